"""Gradients of the operators that move, copy and leave out elements without changing them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import cast_like, reshape_like, shape_of, with_shape_of, zeros_like
from ...graph.scatter import move_back
from ...graph.value import Operand, Value
from ..registry import RuleResult, gradient, no_gradient
from ..rule import RuleContext

no_gradient("Shape", "Size", reason="the result is made of integers")
no_gradient("ConstantOfShape", "EyeLike", "Constant", reason="the result does not depend on elements of the input")
no_gradient(*("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"), reason="the inputs are settings")
no_gradient(
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    reason="the result is drawn at random",
)

no_gradient(
    *("ImageDecoder", "NonMaxSuppression", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    "TfIdfVectorizer",
    reason="made of text, or of what cannot be told apart by small changes",
)

_LAST = 2**62


@gradient("Identity")
def identity(g: RuleContext) -> RuleResult:
    """The gradient passes."""
    return g.dy


@gradient("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(g: RuleContext) -> RuleResult:
    """The gradient in the shape of the input."""
    return reshape_like(g.dy, g.x)


@gradient("Transpose")
def transpose(g: RuleContext) -> RuleResult:
    """The gradient under the inverse permutation."""
    order = g.attr("perm")
    return g.op.Transpose(g.dy, perm=None if order is None else [int(k) for k in np.argsort(order)])


@gradient("Expand")
def expand(g: RuleContext) -> RuleResult:
    """The gradient, summed by the engine over what was stretched."""
    return g.dy, None


# -- joining and taking apart


@gradient("Concat")
def concat(g: RuleContext) -> RuleResult:
    """Each input gets its piece of the gradient."""
    inputs, axis, op = g.inputs, g.attr("axis"), g.op
    if len(inputs) == 1:
        return g.dy
    sizes = [op.Gather(shape_of(x), np.array([axis])) for x in inputs]
    wanted = [k for k in range(len(inputs)) if g.wants(k)]
    if len(wanted) == 1:
        [k] = wanted
        start = op.ReduceSum(op.Concat(*sizes[:k], axis=0), keepdims=1) if k else np.array([0])
        piece = op.Slice(g.dy, start, op.Add(start, sizes[k]), np.array([axis]))
        return [piece if j == k else None for j in range(len(inputs))]
    pieces: list[Value] = op.Split(g.dy, op.Concat(*sizes, axis=0), axis=axis, outputs=len(inputs))
    return pieces


@gradient("Split")
def split(g: RuleContext) -> RuleResult:
    """The pieces joined again, zeros for those that nothing depends on."""
    pieces = [zeros_like(y) if d is None else d for y, d in zip(g.outputs, g.grads, strict=True)]
    return g.op.Concat(*pieces, axis=g.attr("axis")), None


@gradient("Slice")
def slice_(g: RuleContext) -> RuleResult:
    """The gradient with zeros around it; where steps are larger than 1 or unknown, each element back to its place."""
    steps, axes = g.constant(4), g.constant(3)
    known = (g.input(4) is None or (steps is not None and np.all(np.abs(steps) == 1))) and g.x.rank is not None
    if known and (axes is not None or (g.input(3) is None and _length(g.input(1)) is not None)):
        over = range(_length(g.input(1)) or 0) if axes is None else [int(a) % (g.x.rank or 1) for a in axes]
        return _padded_back(g, list(over), [1] * len(over) if steps is None else [int(s) for s in steps])
    return move_back(g.x, g.dy, lambda positions: g.op.Slice(positions, *_rest(g)))


def _length(vector: Value | None) -> int | None:
    size = None if vector is None or vector.shape is None or len(vector.shape) != 1 else vector.shape[0]
    return size if isinstance(size, int) else None


def _padded_back(g: RuleContext, axes: list[int], steps: list[int]) -> Value:
    """Zeros before and behind the gradient, which is turned round where the slice ran backwards."""
    op, dy = g.op, g.dy
    backwards = [axis for axis, step in zip(axes, steps, strict=True) if step < 0]
    if backwards:
        count = len(backwards)
        first, last, back = (np.full(count, n, np.int64) for n in (-1, -_LAST, -1))
        dy = with_shape_of(op.Slice(dy, first, last, np.array(backwards), back), dy)
    index = np.array(axes, np.int64)
    sizes, lengths = op.Gather(shape_of(g.x), index), op.Gather(shape_of(dy), index)
    starts = g.inputs[1] if g.inputs[1].dtype == TensorProto.INT64 else g.inputs[1].cast(TensorProto.INT64)
    zero = np.zeros(len(axes), np.int64)
    starts = op.Add(starts, op.Where(op.Less(starts, zero), sizes, zero))
    turned = np.array([int(s < 0) for s in steps], np.int64)
    # A slice that runs backwards begins at the last element and its start is the place of the last one.
    starts = op.Max(op.Min(starts, op.Sub(sizes, turned)), zero)
    before = op.Sub(starts, op.Mul(turned, op.Sub(lengths, np.ones(len(axes), np.int64))))
    behind = op.Sub(op.Sub(sizes, before), lengths)
    return with_shape_of(op.Pad(dy, op.Concat(before, behind, axis=0), None, index), g.x)


def _rest(g: RuleContext) -> list[Value | None]:
    """Every input but the first, None where it is left out."""
    return [g.input(k) for k in range(1, len(g.node.input))]


@gradient("Pad")
def pad(g: RuleContext) -> RuleResult:
    """Constant: what was added is cut off, what was cut off gets zeros, and the constant gets what lies outside of x.

    Reflected, repeated and wrapped elements get the sum of the cotangents of all their copies.
    """
    op, mode, axes = g.op, g.attr("mode"), g.input(3)
    if mode != "constant":
        return move_back(g.x, g.dy, lambda at: op.Pad(at, g.inputs[1], None, axes, mode=mode), "add")
    dx = with_shape_of(op.Pad(g.dy, op.Neg(g.inputs[1]), None, axes), g.x)
    return dx, None, g.dy.sum() - dx.sum() if g.wants(2) else None


@gradient("CenterCropPad")
def center_crop_pad(g: RuleContext) -> RuleResult:
    """The same operator, back to the sizes of the input: cropping and padding are adjoint."""
    axes = g.attr("axes")
    shape = shape_of(g.x) if axes is None else g.op.Gather(shape_of(g.x), np.array(axes, np.int64))
    return with_shape_of(g.op.CenterCropPad(g.dy, shape, axes=axes), g.x), None


# -- copying and reordering


@gradient("Tile")
def tile(g: RuleContext) -> RuleResult:
    """The sum over the copies: each axis is split into copy and position, and the copies are added up."""
    op, repeats, known = g.op, g.inputs[1], g.constant(1)
    if known is not None and np.all(known == 1):
        return g.dy, None
    if known is None:
        rank = op.Size(repeats)
        pairs = op.Concat(op.Unsqueeze(repeats, [1]), op.Unsqueeze(shape_of(g.x), [1]), axis=1)
        copies = op.Range(0, op.Mul(rank, 2), 2)
        split_axes = op.Reshape(g.dy, op.Reshape(pairs, [-1]), allowzero=1)
        return with_shape_of(op.ReduceSum(split_axes, copies, keepdims=0), g.x), None
    sizes: list[Operand] = []
    axes = []
    for k, count in enumerate(known.tolist()):
        if count != 1:
            axes.append(len(sizes))
            sizes.append(np.array([count], np.int64))
        sizes.append(op.Gather(shape_of(g.x), np.array([k], np.int64)))
    split_axes = op.Reshape(g.dy, op.Concat(*sizes, axis=0), allowzero=1)
    return with_shape_of(op.ReduceSum(split_axes, np.array(axes, np.int64), keepdims=0), g.x), None


@gradient("DepthToSpace")
def depth_to_space(g: RuleContext) -> RuleResult:
    """The blocks of space back into depth."""
    size, op = g.attr("blocksize"), g.op
    if g.attr("mode") == "DCR":
        return op.SpaceToDepth(g.dy, blocksize=size)
    batch, depth, height, width = (op.Gather(shape_of(g.x), np.array([k], np.int64)) for k in range(4))
    block = np.array([size], np.int64)
    channels = op.Div(depth, np.array([size * size], np.int64))
    blocks = op.Reshape(g.dy, op.Concat(batch, channels, height, block, width, block, axis=0), allowzero=1)
    return reshape_like(op.Transpose(blocks, perm=[0, 1, 3, 5, 2, 4]), g.x)


@gradient("SpaceToDepth")
def space_to_depth(g: RuleContext) -> RuleResult:
    """The depth back into blocks of space."""
    return g.op.DepthToSpace(g.dy, blocksize=g.attr("blocksize"), mode=g.attr("mode", "DCR"))


@gradient("Trilu")
def trilu(g: RuleContext) -> RuleResult:
    """The same triangle of the gradient."""
    return g.op.Trilu(g.dy, g.input(1), upper=g.attr("upper")), None


@gradient("ReverseSequence")
def reverse_sequence(g: RuleContext) -> RuleResult:
    """Reversing is its own inverse."""
    return g.op.ReverseSequence(g.dy, g.inputs[1], batch_axis=g.attr("batch_axis"), time_axis=g.attr("time_axis")), None


@gradient("Range")
def range_(g: RuleContext) -> RuleResult:
    """y_i = start + i delta: start gets Σ dy, delta gets Σ i dy."""
    if not g.wants(2):
        return g.dy.sum(), None, None
    places = cast_like(g.op.Range(0, g.op.Size(g.y), 1), g.dy)
    return g.dy.sum(), None, (g.dy * places).sum()
