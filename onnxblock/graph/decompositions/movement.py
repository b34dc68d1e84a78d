"""Operators of ``com.microsoft`` that gather and move elements, most of them older forms of standard ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from ...errors import UnsupportedOperatorError
from ..arithmetic import cast_like, shape_of
from ..decomposition import MICROSOFT, decomposition
from ..node import NodeContext
from ..value import Value


@decomposition("Trilu", domain=MICROSOFT)
def trilu(n: NodeContext) -> Value:
    """The upper or lower triangle of the last two axes."""
    return n.op.Trilu(n.x, n.input(1), upper=n.attr("upper", 1))


@decomposition("GatherND", domain=MICROSOFT)
def gather_nd(n: NodeContext) -> Value:
    """The slices at the given places."""
    return n.op.GatherND(n.x, n.inputs[1].cast(TensorProto.INT64))


@decomposition("Pad", domain=MICROSOFT)
def pad(n: NodeContext) -> Value:
    """Pad whose pads may have a leading axis of size 1."""
    return n.op.Pad(n.x, n.op.Reshape(n.inputs[1], [-1]), n.input(2), mode=n.attr("mode", "constant"))


@decomposition("Range", domain=MICROSOFT)
def range_(n: NodeContext) -> Value:
    """The numbers from start to limit in steps of delta, 1 unless given; all may have one axis of size 1."""
    start, limit = (n.op.Reshape(v, np.array([], np.int64)) for v in n.inputs[:2])
    delta = n.input(2)
    return n.op.Range(start, limit, 1 if delta is None else n.op.Reshape(delta, np.array([], np.int64)))


@decomposition("ExpandDims", domain=MICROSOFT)
def expand_dims(n: NodeContext) -> Value:
    """One more axis, of size 1."""
    return n.op.Unsqueeze(n.x, n.op.Reshape(n.inputs[1].cast(TensorProto.INT64), [1]))


@decomposition("GridSample", domain=MICROSOFT)
def grid_sample(n: NodeContext) -> Value:
    """GridSample, whose modes have other names from opset 20 on."""
    mode = n.attr("mode", "bilinear")
    if n.graph.opset >= 20:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    padding = n.attr("padding_mode", "zeros")
    return n.op.GridSample(*n.inputs, align_corners=n.attr("align_corners", 0), mode=mode, padding_mode=padding)


@decomposition("Unique", domain=MICROSOFT)
def unique(n: NodeContext) -> Sequence[Value | None]:
    """The different elements in the order in which they come, where each element went, and how many went there."""
    y, _, places, counts = n.op.Unique(n.x, sorted=0, outputs=4)
    return y, places, counts


@decomposition("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(n: NodeContext) -> Value:
    """Every window of ``size`` elements along ``dim``, ``step`` apart; the elements of a window are the last axis."""
    op, size, step = n.op, n.attr("size"), n.attr("step", 1)
    if n.x.rank is None:
        raise UnsupportedOperatorError("the rank of its input is not known")
    axis = n.attr("dim", -1) % n.x.rank
    length = op.Gather(shape_of(n.x), axis)
    starts = op.Range(0, op.Add(op.Sub(length, size), 1), step)
    windows = op.Gather(n.x, op.Add(op.Unsqueeze(starts, [1]), np.arange(size)), axis=axis)
    kept = [k for k in range(n.x.rank + 1) if k != axis + 1]
    return windows.transpose(*kept, axis + 1)


@decomposition("CropAndResize", domain=MICROSOFT)
def crop_and_resize(n: NodeContext) -> Value:
    """Boxes (y1, x1, y2, x2), in parts of the image, cut out and resampled to one size (as TensorFlow does it)."""
    op, x, boxes = n.op, n.x, n.inputs[1]
    size = n.constant(3)
    if size is None or n.attr("mode", "bilinear") != "bilinear":
        raise UnsupportedOperatorError("its mode is 'nearest', or its size is computed when it runs")
    height, width = (int(k) for k in size)
    images = op.Gather(x, n.inputs[2], axis=0)
    y1, x1, y2, x2 = (op.Slice(boxes, [k], [k + 1], [1]) for k in range(4))
    rows, columns = _between(y1, y2, height), _between(x1, x2, width)
    at = op.Concat(
        op.Expand(op.Unsqueeze(columns, [1, 3]), [1, height, 1, 1]),
        op.Expand(op.Unsqueeze(rows, [2, 3]), [1, 1, width, 1]),
        axis=3,
    )
    mode = "linear" if n.graph.opset >= 20 else "bilinear"
    grid = cast_like(at, x) * 2.0 - 1.0
    sampled = op.GridSample(images, grid, align_corners=1, mode=mode, padding_mode="border")
    inside = op.And(_inside(rows).unsqueeze(2), _inside(columns).unsqueeze(1)).unsqueeze(1)
    return op.Where(inside, sampled, n.attr("extrapolation_value", 0.0))


def _between(first: Value, last: Value, count: int) -> Value:
    """``count`` places evenly from ``first`` to ``last``, both included; the middle where there is only one."""
    places = np.linspace(0, 1, count) if count > 1 else np.array([0.5])
    between: Value = first + (last - first) * first.graph.constant(places.reshape(1, -1), first.dtype)
    return between


def _inside(places: Value) -> Value:
    op = places.graph.op
    return op.And(op.GreaterOrEqual(places, 0.0), op.LessOrEqual(places, 1.0))
