"""The sizes of poolings and transposed convolutions as runtimes compute them, where ONNX infers others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import NodeProto, helper

from .types import Dimension, TensorType

POOLS = ("AveragePool", "LpPool", "MaxPool")


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node that have a value of their own, by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.ref_attr_name}


def is_uncertain_pool(node: NodeProto) -> bool:
    """Whether ONNX may count one window too many: where ``ceil_mode`` starts the last one in the padding."""
    if node.op_type not in POOLS or node.domain not in ("", "ai.onnx"):
        return False
    given = attributes_of(node)
    return bool(given.get("ceil_mode")) and given.get("auto_pad", b"NOTSET") == b"NOTSET"


def is_uncertain_transpose(node: NodeProto) -> bool:
    """Whether ONNX adds the ``output_padding`` to a size that ``auto_pad`` already sets."""
    if node.op_type != "ConvTranspose" or node.domain not in ("", "ai.onnx"):
        return False
    given = attributes_of(node)
    return (
        given.get("auto_pad", b"").startswith(b"SAME")
        and any(given.get("output_padding", []))
        and not given.get("output_shape")
    )


def extents(attributes: Mapping[str, Any]) -> list[int]:
    """How many elements a window of a pooling spans along each axis: (kernel - 1) · dilation + 1."""
    kernel = attributes["kernel_shape"]
    dilations = attributes.get("dilations") or [1] * len(kernel)
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def pooled_sizes(node: NodeProto, image: Sequence[Dimension]) -> list[tuple[int | None, bool]]:
    """The number of windows of a pooling with ``ceil_mode`` along each axis, and whether ONNX counts one more.

    It is ceil((size + padding - extent) / stride) + 1, less one where the last would start in the padding (PyTorch,
    onnxruntime, and ONNX from opset 22 on).
    """
    given = attributes_of(node)
    rank = len(given["kernel_shape"])
    strides, pads = given.get("strides") or [1] * rank, given.get("pads") or [0] * 2 * rank
    sizes: list[tuple[int | None, bool]] = []
    for axis, (size, extent, stride) in enumerate(zip(image, extents(given), strides, strict=True)):
        if not isinstance(size, int):
            sizes.append((None, True))
            continue
        last = -(-(size + pads[axis] + pads[rank + axis] - extent) // stride)
        in_padding = last * stride >= size + pads[axis]
        sizes.append((last + 1 - in_padding, in_padding))
    return sizes


def known_kernel(node: NodeProto, weight: TensorType | None) -> list[int] | None:
    """The spatial sizes of the kernel of a convolution where they are known while building."""
    shape = () if weight is None else weight.shape or ()
    kernel = attributes_of(node).get("kernel_shape") or shape[2:]
    sizes = [k for k in kernel if isinstance(k, int)]
    return sizes if sizes and len(sizes) == len(kernel) else None


def transpose_padding(node: NodeProto, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """What a ConvTranspose with SAME padding cuts from the front and the end of each axis.

    Of (n - 1) · stride + extent + output_padding elements, n · stride are kept, or all where there are fewer.
    """
    given = attributes_of(node)
    rank = len(kernel)
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    added = given.get("output_padding") or [0] * rank
    total = [
        max((k - 1) * d + 1 + more - s, 0) for k, d, more, s in zip(kernel, dilations, added, strides, strict=True)
    ]
    smaller, larger = [n // 2 for n in total], [n - n // 2 for n in total]
    return (smaller, larger) if given["auto_pad"] == b"SAME_UPPER" else (larger, smaller)


def right_sizes(node: NodeProto, inputs: Sequence[TensorType | None]) -> list[int | None] | None:
    """The spatial sizes of the output, None for one that is not known; None where not even the rank is.

    For nodes of which :func:`is_uncertain_pool` or :func:`is_uncertain_transpose` holds.
    """
    image = inputs[0]
    if image is None or image.shape is None:
        return None
    if node.op_type != "ConvTranspose":
        return [size for size, _ in pooled_sizes(node, image.shape[2:])]
    kernel = known_kernel(node, inputs[1])
    if kernel is None:
        return [None] * (len(image.shape) - 2)
    begin, end = transpose_padding(node, kernel)
    given = attributes_of(node)
    strides, dilations = given.get("strides") or [1] * len(kernel), given.get("dilations") or [1] * len(kernel)
    return [
        (n - 1) * s + (k - 1) * d + 1 + more - first - last if isinstance(n, int) else None
        for n, s, k, d, more, first, last in zip(
            image.shape[2:], strides, kernel, dilations, given["output_padding"], begin, end, strict=True
        )
    ]
