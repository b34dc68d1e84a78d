"""Windows that slide over the spatial axes of an image ``[N, C, ...]``, as convolution and pooling lay them.

Sizes are int64 vectors of the graph: constants where the shapes are known while building, nodes where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from .types import TensorType
from .value import Value


@dataclass(frozen=True)
class Windows:
    """Windows of ``kernel`` elements, ``dilations`` apart, one every ``strides`` elements of the padded image.

    ``begin`` and ``end`` are the padding with which the windows fit exactly:
    image + begin + end = (count - 1) · stride + extent.  A negative end is a rest of the image that no window reads.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    kernel: Value
    count: Value
    begin: Value
    end: Value


def fitted_windows(
    strides: Sequence[int], dilations: Sequence[int], kernel: Value, count: Value, image: Value, begin: Value
) -> Windows:
    """The windows whose first starts ``begin`` elements before the image; the end is what ``count`` of them need."""
    op = kernel.graph.op
    end = op.Sub(op.Sub(covered(kernel, count, strides, dilations), image), begin)
    return Windows(tuple(strides), tuple(dilations), kernel, count, begin, end)


def covered(kernel: Value, count: Value, strides: Sequence[int], dilations: Sequence[int]) -> Value:
    """The length that ``count`` windows cover: (count - 1) · stride + (kernel - 1) · dilation + 1."""
    op = kernel.graph.op
    starts = op.Mul(op.Sub(count, 1), np.array(strides, np.int64))
    return op.Add(op.Add(starts, op.Mul(op.Sub(kernel, 1), np.array(dilations, np.int64))), 1)


def spatial_shape(x: Value) -> Value:
    """The sizes of all axes behind batch and channels, as an int64 vector."""
    return x.graph.op.Shape(x, start=2)


def positions(sizes: Value) -> Value:
    """The number of elements of an image of these spatial sizes, as a vector of one number.

    Reshapes name it rather than leave -1 for it, which an empty batch makes ambiguous.
    """
    return sizes.graph.op.ReduceProd(sizes, keepdims=1)


def flat_images(x: Value) -> Value:
    """``[N, C, ...]`` as ``[N, C, positions]``."""
    op = x.graph.op
    # With allowzero the sizes stand: onnxruntime's optimizer would write -1 for the last.
    flat: Value = op.Reshape(x, op.Concat(op.Shape(x, end=2), positions(spatial_shape(x)), axis=0), allowzero=1)
    if flat.rank is None and x.dtype is not None:
        x.graph.set_type(flat, TensorType(x.dtype, (None,) * 3))
    return flat


def known_sizes(sizes: Value) -> list[int] | None:
    """The elements of an int64 vector where they are known while building."""
    array = sizes.graph.constant_value(sizes)
    return None if array is None else [int(n) for n in array]


def pad_image(x: Value, begin: Value, end: Value) -> Value:
    """``x`` with zeros around it on the spatial axes; negative sizes cut instead.

    Where the sizes are known, cutting is a Slice: few runtimes but onnxruntime's CPU provider pad by negative sizes.
    """
    op = x.graph.op
    first, last = known_sizes(begin), known_sizes(end)
    if first is None or last is None:
        whole = np.zeros(2, np.int64)
        return op.Pad(x, op.Concat(whole, begin, whole, end, axis=0))
    if min(first + last) < 0:
        x = op.Slice(
            x, [max(-n, 0) for n in first], [n if n < 0 else 2**62 for n in last], np.arange(2, 2 + len(first))
        )
    if max(first + last) > 0:
        x = op.Pad(x, [max(n, 0) for n in [0, 0, *first, 0, 0, *last]])
    return x


def taps(padded: Value, windows: Windows) -> list[Value]:
    """For each place in the window, in row-major order, the elements that all windows have there: ``[..., count...]``.

    ``padded`` is the image with the padding of ``windows``, its spatial axes last; the kernel's size must be known.
    """
    op = padded.graph.op
    kernel = known_sizes(windows.kernel)
    assert kernel is not None
    steps = np.array(windows.strides, np.int64)
    if all(k == 1 for k in kernel) and all(s == 1 for s in windows.strides):
        return [padded]
    axes = np.arange(-len(kernel), 0)
    length = op.Add(op.Mul(op.Sub(windows.count, 1), steps), 1)
    found = []
    for place in product(*(range(k) for k in kernel)):
        start = np.array(place, np.int64) * np.array(windows.dilations, np.int64)
        found.append(op.Slice(padded, start, op.Add(length, start), axes, steps))
    return found


def window_places(padded: Value, windows: Windows, windows_first: bool) -> Value:
    """The places in the flattened padded image of every element of every window, as a vector.

    They come window by window, or, with the windows last, place by place in the kernel.
    """
    op, rank = padded.graph.op, len(windows.strides)
    size = spatial_shape(padded)
    parts = []
    for axis in range(rank):
        step = op.ReduceProd(op.Slice(size, [axis + 1], [rank]), keepdims=0)
        for lengths, distance, first in (
            (windows.count, windows.strides, windows_first),
            (windows.kernel, windows.dilations, not windows_first),
        ):
            along = op.Mul(op.Range(0, op.Gather(lengths, axis), 1), op.Mul(step, distance[axis]))
            own = axis if first else rank + axis
            parts.append(op.Reshape(along, [-1 if k == own else 1 for k in range(2 * rank)]))
    total = parts[0]
    for part in parts[1:]:
        total = op.Add(total, part)
    return op.Reshape(total, [-1])


def sum_over_batch(x: Value) -> Value:
    """The sum over the leading axis, which is dropped."""
    op = x.graph.op
    if x.shape is not None and x.shape[0] == 1:
        return op.Squeeze(x, [0])
    return op.ReduceSum(x, [0], keepdims=0)
