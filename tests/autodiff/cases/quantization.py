"""Rows for quantization.

The gradient is a convention, and the operators take float32 only, so the expected values are computed from their
definition, with numbers that float32 holds exactly.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxblock.autodiff.check import model_of_node

from . import REFERENCE, Case, case, model_case, normal

EVALUATORS = dict.fromkeys(("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"), REFERENCE)

NO_DIFFERENCES = ("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear")

EXCEPTIONS = {
    "integers_conv_channels:symbolic": "onnxruntime takes one zero point for all weights",
    "integers_conv_channels:unranked": "onnxruntime takes one zero point for all weights",
    "dequantizelinear_float4e2m1:all": "onnxruntime does not cast from it",
    "dequantizelinear*:float64": "it is in float32 even there, too coarse for differences",
    "dequantizelinear*:unranked": "onnxruntime has no kernel of opset 28",
    "quantize_[!d]*:newest": "onnxruntime has no kernel of opset 28",
}

X = np.array(
    [[-900, -1.625, -0.375, 0.4375], [1.1875, 900, 0.75, -0.6875], [2.3125, -3.125, 4.375, 0.0625]], np.float32
)
LEVELS = np.array([[3, -7, 100, 0], [-128, 127, 5, 6], [1, 2, -3, -4]], np.int8)
ZEROS = np.array([0, 5, -7, 100], np.int8)
BOUNDS = {np.int8: (-128, 127), np.uint8: (0, 255)}


def learned_step(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of x and of the scale of every element, for cotangents of one (Esser et al. 2020)."""
    lowest, highest = BOUNDS[zero.dtype.type]
    x, scale, zero = (v.astype(np.float64) for v in (x, scale, zero))
    level = np.round(x / scale) + zero
    inside = (level >= lowest) & (level <= highest)
    limit = np.where(level > highest, highest, lowest) - zero
    return inside.astype(np.float64), np.where(inside, level - zero - x / scale, limit)


def there_and_back(name: str, scale: Any, zero: Any, each: Any, back: Any, **attributes: Any) -> Case:
    """Quantize and dequantize.  ``each`` gives every element its setting, ``back`` sums over what shares one."""
    feeds = {"x": X, "scale": np.asarray(scale, np.float32)} | ({} if zero is None else {"zero": np.asarray(zero)})
    settings = ["scale"] if zero is None else ["scale", "zero"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *settings], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", *settings], ["y"], **attributes),
    ]
    dx, d_scale = learned_step(X, each(feeds["scale"]), each(feeds.get("zero", np.uint8(0))))
    return _case("QuantizeLinear", f"quantize_{name}", nodes, feeds, {"x": dx, "scale": back(d_scale)})


def dynamic() -> Case:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    return _case("DynamicQuantizeLinear", "quantize_dynamically", nodes, {"x": X}, {"x": np.ones(X.shape)})


def of_integers(op_type: str, name: str, shape: Any, w: np.ndarray, zeros: Any, dx: Any, **attributes: Any) -> Case:
    """Quantize x without saturating it, multiply in integers, and take the result as numbers.

    ``zeros`` are the zero points of both operands.  ``dx`` is the gradient of the levels of x for cotangents of one.
    """
    scale, x = np.float32(0.25), np.round(normal(*shape) * 8) / 16
    feeds = {"x": x.astype(np.float32), "scale": scale, "middle": np.uint8(99), "w": w}
    feeds |= {f"zero_{k}": np.asarray(zero) for k, zero in enumerate(zeros)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "middle"], ["q"]),
        helper.make_node(op_type, ["q", "w", *(f"zero_{k}" for k in range(len(zeros)))], ["i"], **attributes),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    return _case(op_type, name, nodes, feeds, {"x": np.broadcast_to(dx, shape) / scale}, [None] * len(shape))


def met(w: np.ndarray, size: int, *, stride: int = 1, pad: int = 0, dilation: int = 1) -> np.ndarray:
    """The sum of the weights [1, 1, k, k] that each element of a square image meets."""
    taps = w.shape[-1]
    sums = np.zeros((size + 2 * pad, size + 2 * pad))
    starts = range(0, len(sums) - dilation * (taps - 1), stride)
    for top, left, i, j in itertools.product(starts, starts, range(taps), range(taps)):
        sums[top + dilation * i, left + dilation * j] += w[0, 0, i, j]
    return sums[pad : pad + size, pad : pad + size]


def _case(
    op_type: str,
    name: str,
    nodes: Any,
    feeds: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    shape: Any = X.shape,
) -> Case:
    model = model_of_node(nodes[0], feeds, 21)
    model.graph.node.extend(nodes[1:])
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, shape))
    return dataclasses.replace(model_case(op_type, model, feeds, name), gradients=expected)


def in_blocks(block: int, axis: int) -> tuple[Any, Any]:
    size = X.shape[axis]
    starts = np.arange(0, size, block)

    def each(setting: np.ndarray) -> np.ndarray:
        return np.repeat(setting, block, axis).take(range(size), axis)

    return each, lambda d: np.add.reduceat(d, starts, axis)


W = np.array([[3, -7, 100], [0, 5, 6], [1, 2, -3], [-128, 127, 4]], np.int8)
KERNELS = np.arange(-9, 9, dtype=np.int8).reshape(2, 1, 3, 3)
KERNEL, WITHOUT_2 = KERNELS[:1], KERNELS[:1] - 2.0
SEVEN, TWO = np.uint8(7), np.int8(2)

ROWS = [
    dynamic(),
    of_integers("MatMulInteger", "integers", (3, 4), W, (SEVEN, TWO), (W - 2.0).sum(1)),
    of_integers("MatMulInteger", "integers_columns", (2, 3, 4), W, (SEVEN, ZEROS[:3]), (W - ZEROS[:3] * 1.0).sum(1)),
    of_integers("MatMulInteger", "integers_no_zero_points", (3, 4), W, (), (W * 1.0).sum(1)),
    of_integers("ConvInteger", "integers_conv", (2, 1, 6, 6), KERNEL, (SEVEN, TWO), met(WITHOUT_2, 6)),
    of_integers(
        "ConvInteger",
        "integers_conv_windows",
        (2, 1, 6, 6),
        KERNEL,
        (SEVEN, TWO),
        met(WITHOUT_2, 6, stride=2, pad=1, dilation=2),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        dilations=[2, 2],
    ),
    of_integers(
        "ConvInteger",
        "integers_conv_groups",
        (2, 2, 5, 5),
        KERNELS,
        (),
        np.stack([met(KERNELS[k : k + 1], 5, pad=1) for k in range(2)]),
        group=2,
        auto_pad="SAME_UPPER",
    ),
    of_integers(
        "ConvInteger",
        "integers_conv_channels",
        (2, 2, 5, 5),
        KERNELS,
        (SEVEN, ZEROS[1:3]),
        np.stack([met(KERNELS[k : k + 1] - float(ZEROS[1 + k]), 5) for k in range(2)]),
        group=2,
    ),
    there_and_back("tensor", 0.5, np.int8(3), lambda s: s, np.sum),
    there_and_back("from_zero_on", 0.25, None, lambda s: s, np.sum),
    there_and_back("unsigned", 0.25, np.uint8(100), lambda s: s, np.sum),
    *(
        there_and_back(f"axis_{axis}", [0.5, 0.25, 1.0, 2.0], ZEROS, lambda s: s, lambda d: d.sum(0), axis=axis)
        for axis in (1, -1)
    ),
    there_and_back("axis_0", [0.5, 0.25, 1.0], ZEROS[:3], lambda s: s[:, None], lambda d: d.sum(1), axis=0),
    *(
        there_and_back(
            f"blocks_of_{block}_on_axis_{axis}",
            2.0 ** np.round(normal(*shape)),
            (normal(*shape, seed=1) * 10).astype(np.int8),
            *in_blocks(block, axis),
            axis=axis,
            block_size=block,
        )
        for block, axis, shape in ((2, 1, (3, 2)), (3, -1, (3, 2)), (2, 0, (2, 4)))
    ),
    *(
        case("DequantizeLinear", LEVELS, *settings, name=f"dequantize_{name}", gradients=(None, expected), **attributes)
        for name, settings, expected, attributes in (
            ("tensor", (0.5, np.int8(3)), (LEVELS - 3.0).sum(), {}),
            ("axis", ([0.5, 0.25, 1.0, 2.0], ZEROS), (LEVELS - ZEROS.astype(float)).sum(0), {"axis": 1}),
            ("no_zero_point", ([0.5, 0.25, 1.0],), LEVELS.sum(1), {"axis": 0}),
            ("blocks", (np.ones((3, 2), np.float32),), LEVELS.reshape(3, 2, 2).sum(2), {"axis": 1, "block_size": 2}),
        )
    ),
]
