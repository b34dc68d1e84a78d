"""Gradients of the Fourier transforms.

With complex numbers as pairs, the adjoint of the transform F is its conjugate transpose, L F⁻¹ for length L.
"""

from __future__ import annotations

from onnx import TensorProto

from ...graph.arithmetic import cast_like, shape_of, with_shape_of
from ...graph.scatter import scatter_along
from ...graph.value import Operand, Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext

_END = 2**62


@gradient("DFT")
def dft(g: RuleContext) -> RuleResult:
    """y = F x gives dx = L F⁻¹ dy, y = F⁻¹ x gives dx = F dy / L.

    What a one-sided transform leaves out has no cotangent.  Its inverse sees every frequency but the first, and the
    last of an even length, twice.  A signal that is cut or filled with zeros to the length has its cotangent filled or
    cut; a real one takes the real part.
    """
    op, inverse, onesided = g.op, g.attr("inverse"), g.attr("onesided")
    axis = g.attr("axis", 1) if g.graph.opset < 20 else -2 if g.input(2) is None else g.inputs[2]
    where: Operand = [axis] if isinstance(axis, int) else op.Reshape(axis, [1])
    size, given = op.Gather(shape_of(g.x), where), g.input(1)
    if inverse and onesided:
        length = op.Gather(shape_of(g.y), where)
        d = op.DFT(g.dy, None, axis=axis, onesided=1)
        twice = _twice(g, length, where)
        d = d * twice / cast_like(length, d)
    elif inverse:
        length = op.Gather(shape_of(g.y), where)
        d = op.DFT(g.dy, None, axis=axis) / cast_like(length, g.dy)
    else:
        length = size if given is None else op.Reshape(given.cast(TensorProto.INT64), [1])
        whole = _fit(g.dy, where, length) if onesided else g.dy
        d = op.DFT(whole, None, axis=axis, inverse=1) * cast_like(length, g.dy)
    return with_shape_of(_real_part_like(g.x, _fit(d, where, size)), g.x)


def _twice(g: RuleContext, length: Value, where: Operand) -> Value:
    """1 for the first frequency and the last of an even length, 2 for the others, along the axis."""
    op = g.op
    number = op.Range(0, op.Add(op.Div(op.Squeeze(length, [0]), 2), 1), 1)
    alone = op.Or(op.Equal(number, 0), op.Equal(op.Mul(number, 2), length))
    times = op.Sub(2, alone.cast(TensorProto.INT64))
    ones = op.Expand(g.graph.constant([1]), op.Shape(shape_of(g.x)))
    return cast_like(op.Reshape(times, op.ScatterElements(ones, where, [-1], axis=0)), g.dy)


def _fit(d: Value, where: Operand, size: Value) -> Value:
    """``d`` cut or filled with zeros to a size along an axis."""
    op = d.graph.op
    cut = op.Slice(d, [0], size, where)
    missing = op.Sub(size, op.Gather(shape_of(cut), where))
    fitted: Value = op.Pad(cut, op.Concat([0], missing, axis=0), None, where)
    return fitted


def _real_part_like(x: Value, d: Value) -> Value:
    """The real part of ``d`` where ``x`` is real."""
    op = d.graph.op
    part: Value = op.Slice(d, [0], op.Shape(x, start=-1), [-1])
    return part


@gradient("STFT")
def stft(g: RuleContext) -> RuleResult:
    """Frames of the signal, times a window, are transformed.

    The cotangents of the frames, times the window, add up where frames overlap.  That of the window is the sum of
    theirs times the frames.  A signal of rank 2, which exporters write and runtimes take, is a real one.
    """
    op, window = g.op, g.input(2)
    x = _of_rank_3(g.x)
    given = g.input(3)
    if given is not None:
        length = op.Reshape(given.cast(TensorProto.INT64), [1])
    else:
        length = op.Shape(x, start=1, end=2) if window is None else shape_of(window)
    whole = _fit(g.dy, [2], length)
    d = _real_part_like(x, op.DFT(whole, None, axis=2, inverse=1)) * cast_like(length, g.dy)
    step = g.inputs[1].cast(TensorProto.INT64)
    starts = op.Mul(op.Range(0, op.Gather(shape_of(g.dy), 1), 1), op.Reshape(step, [1]))
    places = op.Add(op.Unsqueeze(starts, [1]), op.Unsqueeze(op.Range(0, op.Squeeze(length, [0]), 1), [0]))
    d_window = None
    if g.wants(2):
        d_window = op.ReduceSum(d * op.Gather(x, places, axis=1), [0, 1, 3], keepdims=0)
    windowed = d if window is None else d * op.Unsqueeze(window, [1])
    d_signal = scatter_along(x, places, windowed, 1) if g.wants(0) else None
    if d_signal is not None and g.x.rank != 3:
        d_signal = op.Reshape(d_signal, shape_of(g.x), allowzero=1)
    return d_signal, None, d_window


def _of_rank_3(signal: Value) -> Value:
    """The signal with an axis for its real and imaginary part, which a real one may leave out."""
    op = signal.graph.op
    if signal.rank == 3:
        return signal
    if signal.rank == 2:
        return signal.unsqueeze(2)
    shape = op.Slice(op.Concat(shape_of(signal), [1], axis=0), [0], [3])
    reshaped: Value = op.Reshape(signal, shape, allowzero=1)
    return reshaped
