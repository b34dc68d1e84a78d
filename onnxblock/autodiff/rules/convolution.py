"""Gradients of Conv and ConvTranspose: any rank, groups, strides, dilations and padding.

A convolution y[m, o] = Σ w[m, c, k] x[c, o·stride + k·dilation - begin] is linear in x and in w.  Its adjoint in x is
the transposed convolution with the same weights, and the other way round; its adjoint in w pairs every output with the
window it was computed from.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...graph.arithmetic import reshape_like, shape_of, sum_over
from ...graph.convolutions import convolution, transposed_convolution, weight_gradient
from ...graph.value import Value
from ...graph.windows import Windows, covered, fitted_windows, flat_images, pad_image, spatial_shape, window_places
from ..ranks import by_rank
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("Conv")
def conv(g: RuleContext) -> RuleResult:
    """The two adjoints: dx = ConvTranspose(dy, w), dw[m, c, k] = Σ dy[m, o] x[c, o·stride + k·dilation - begin].

    The bias is added to every element of its channel: db = Σ dy.
    """
    x, w = g.inputs[:2]
    rank, group = _spatial_rank(g), g.attr("group")
    if rank is None:
        return _by_rank(g, conv)
    windows = _windows(g, rank, image=x, outputs=g.y)
    return (
        transposed_convolution(g.dy, w, windows, group) if g.wants(0) else None,
        weight_gradient(x, g.dy, w, windows, group) if g.wants(1) else None,
        sum_over(g.dy, [0, *range(2, 2 + rank)]) if g.wants(2) else None,
    )


@gradient("ConvTranspose")
def conv_transpose(g: RuleContext) -> RuleResult:
    """The two adjoints: dx = Conv(dy, w), dw[c, m, k] = Σ x[c, i] dy[m, i·stride + k·dilation - begin]; db = Σ dy."""
    x, w = g.inputs[:2]
    rank, group = _spatial_rank(g), g.attr("group")
    if rank is None:
        return _by_rank(g, conv_transpose)
    windows = _windows(g, rank, image=g.y, outputs=x)
    return (
        convolution(g.dy, w, windows, group) if g.wants(0) else None,
        weight_gradient(g.dy, x, w, windows, group) if g.wants(1) else None,
        sum_over(g.dy, [0, *range(2, 2 + rank)]) if g.wants(2) else None,
    )


# -- where the windows lie


def _by_rank(g: RuleContext, rule: Callable[[RuleContext], RuleResult]) -> RuleResult:
    """Where neither a shape nor an attribute says how many spatial axes there are: 1, 2 or 3."""
    values = [g.inputs[0], g.inputs[1], g.y, g.dy]
    axes = g.op.Sub(g.op.Size(shape_of(g.x)), 2)
    return by_rank(g, rule, axes, {n: {str(v): n + 2 for v in values} for n in (2, 1, 3)})


def _spatial_rank(g: RuleContext) -> int | None:
    for name in ("kernel_shape", "strides", "dilations", "output_padding", "output_shape"):
        given = g.attr(name)
        if given:
            return len(given)
    for value in (*g.inputs[:2], g.y):
        if value.rank is not None:
            return value.rank - 2
    if g.attr("pads"):
        return len(g.attr("pads")) // 2
    return None


def _windows(g: RuleContext, rank: int, image: Value, outputs: Value) -> Windows:
    """The windows on ``image``, one for each spatial element of ``outputs``."""
    kernel_shape = g.attr("kernel_shape")
    kernel = g.graph.constant(np.array(kernel_shape)) if kernel_shape else spatial_shape(g.inputs[1])
    strides, dilations = g.attr("strides") or [1] * rank, g.attr("dilations") or [1] * rank
    count, size = spatial_shape(outputs), spatial_shape(image)
    if g.node.op_type == "Conv":
        begin = same_padding(g, rank, kernel, size, strides, dilations)
    else:
        begin = _transposed_begin(g, rank, covered(kernel, count, strides, dilations), count, size, strides)
    return fitted_windows(strides, dilations, kernel, count, size, begin)


def same_padding(
    g: RuleContext, rank: int, kernel: Value, size: Value, strides: list[int], dilations: list[int]
) -> Value:
    """What a convolution or pooling puts before the image: ``pads``, or what ``auto_pad`` asks for."""
    op, auto_pad = g.op, g.attr("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        return g.graph.constant(np.zeros(rank, np.int64))
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return g.graph.constant(np.array((g.attr("pads") or [0] * 2 * rank)[:rank], np.int64))
    steps = np.array(strides, np.int64)
    count = op.Div(op.Add(size, steps - 1), steps)
    total = op.Max(op.Sub(covered(kernel, count, strides, dilations), size), np.zeros(1, np.int64))
    return op.Div(op.Add(total, 1) if auto_pad == "SAME_LOWER" else total, np.array([2]))


def _transposed_begin(
    g: RuleContext, rank: int, reached: Value, count: Value, size: Value, strides: list[int]
) -> Value:
    """What a transposed convolution cuts from its front: ``pads``, or half of what its given size leaves over."""
    op, auto_pad = g.op, g.attr("auto_pad", "NOTSET")
    output_shape = g.attr("output_shape")
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
        pads = None if auto_pad == "VALID" else g.attr("pads")
        return g.graph.constant(np.array((pads or [0] * 2 * rank)[:rank], np.int64))
    added = np.array(g.attr("output_padding") or [0] * rank, np.int64)
    wanted = size if output_shape else op.Mul(count, np.array(strides, np.int64))
    total = op.Max(op.Sub(op.Add(reached, added), wanted), np.zeros(1, np.int64))
    return op.Div(total if auto_pad == "SAME_UPPER" else op.Add(total, 1), np.array([2]))


# -- columns to image


@gradient("Col2Im")
def col2im(g: RuleContext) -> RuleResult:
    """Columns are added up where their blocks overlap, so dx takes from dy the elements of every block."""
    op, (image, block) = g.op, g.inputs[1:]
    rank = _block_rank(g)
    if rank is None:
        ranks = {n: {str(image): 1, str(block): 1, str(g.x): 3, str(g.y): n + 2, str(g.dy): n + 2} for n in (2, 1, 3)}
        return by_rank(g, col2im, op.Size(block), ranks)
    strides, dilations = g.attr("strides") or [1] * rank, g.attr("dilations") or [1] * rank
    pads = np.array(g.attr("pads") or [0] * 2 * rank, np.int64)
    one = covered(block, g.graph.constant(np.ones(rank, np.int64)), strides, dilations)
    room = op.Sub(op.Add(image, pads[:rank] + pads[rank:]), one)
    count = op.Add(op.Div(room, np.array(strides, np.int64)), 1)
    windows = fitted_windows(strides, dilations, block, count, image, g.graph.constant(pads[:rank]))
    padded = pad_image(g.dy, windows.begin, windows.end)
    places = window_places(padded, windows, windows_first=False)
    return reshape_like(op.Gather(flat_images(padded), places, axis=2), g.x)


def _block_rank(g: RuleContext) -> int | None:
    for given in (g.attr("strides"), g.attr("dilations"), (g.attr("pads") or [])[::2]):
        if given:
            return len(given)
    for sizes in g.inputs[1:]:
        if sizes.shape is not None and isinstance(sizes.shape[0], int):
            return sizes.shape[0]
    if g.y.rank is not None:
        return g.y.rank - 2
    return None
