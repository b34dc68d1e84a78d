"""Convolution, its adjoint in the image and its adjoint in the weights, over given windows.

Weights are ``[M, C / group, kernel...]``: M channels of the outputs, C of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
from onnx import TensorProto

from .value import Value
from .windows import Windows, known_sizes, pad_image, positions, spatial_shape, sum_over_batch, taps, window_places

_LARGEST_COLUMNS = 2**21
"""The number of elements of one image's windows up to which they are laid out side by side: 8 MiB in float32."""
_LARGEST_SHIFTED = 2**25
"""The number of elements up to which cotangents are laid out once for each place along the last axis of a kernel."""


def convolution(image: Value, w: Value, windows: Windows, group: int) -> Value:
    """Every window of ``image`` times the weights."""
    op, rank = image.graph.op, len(windows.strides)
    begin, end = known_sizes(windows.begin), known_sizes(windows.end)
    if begin is None or end is None or min(begin + end) < 0:
        image, pads = pad_image(image, windows.begin, windows.end), [0] * 2 * rank
    else:
        pads = begin + end
    return op.Conv(image, w, strides=windows.strides, dilations=windows.dilations, group=group, pads=pads)


def transposed_convolution(dy: Value, w: Value, windows: Windows, group: int) -> Value:
    """Adjoint of :func:`convolution` in its image: every output spread over its window.

    1. Without strides, where that costs less than ConvTranspose (:func:`_is_worth_turning`): the convolution with the
    kernel turned round.  2. ConvTranspose, its result cut or padded by the node itself where the sizes are known.
    """
    op = dy.graph.op
    begin, end = known_sizes(windows.begin), known_sizes(windows.end)
    if begin is not None and end is not None and min(begin) >= 0:
        turned = _by_turned_kernel(dy, w, windows, group, begin, end)
        if turned is not None:
            return turned
    transposed = partial(op.ConvTranspose, dy, w, strides=windows.strides, dilations=windows.dilations, group=group)
    if begin is not None and end is not None and min(begin) >= 0:
        pads, rest = [*begin, *(max(n, 0) for n in end)], [max(-n, 0) for n in end]
        if all(n < max(s, d) for n, s, d in zip(rest, windows.strides, windows.dilations, strict=True)):
            return transposed(pads=pads, output_padding=rest)
    return pad_image(transposed(), op.Neg(windows.begin), op.Neg(windows.end))


def _by_turned_kernel(
    dy: Value, w: Value, windows: Windows, group: int, begin: Sequence[int], end: Sequence[int]
) -> Value | None:
    kernel = known_sizes(windows.kernel)
    if kernel is None or any(s != 1 for s in windows.strides):
        return None
    op, rank = dy.graph.op, len(kernel)
    if group == 1 and prod(kernel) == 1 and not any([*begin, *end]):
        return op.Conv(dy, op.Transpose(w, perm=[1, 0, *range(2, 2 + rank)]))
    extent = [(k - 1) * d for k, d in zip(kernel, windows.dilations, strict=True)]
    pads = [e - n for e, n in zip([*extent, *extent], [*begin, *end], strict=True)]
    if not w.is_static or min(pads) < 0 or not _is_worth_turning(dy, w, windows, group):
        return None
    outputs, channels = _sizes(w)[:2]
    turned = op.Slice(w, [-1] * rank, [-(2**62)] * rank, np.arange(2, 2 + rank), [-1] * rank)
    if group == 1:
        turned = op.Transpose(turned, perm=[1, 0, *range(2, 2 + rank)])
    elif channels > 1 or outputs > group:
        split = op.Reshape(turned, [group, outputs // group, channels, *kernel])
        swapped = op.Transpose(split, perm=[0, 2, 1, *range(3, 3 + rank)])
        turned = op.Reshape(swapped, [group * channels, outputs // group, *kernel])
    return op.Conv(dy, turned, dilations=windows.dilations, group=group, pads=pads)


def _is_worth_turning(dy: Value, w: Value, windows: Windows, group: int) -> bool:
    """Whether to turn the kernel and convolve costs less than ConvTranspose.

    Of many small groups onnxruntime's ConvTranspose does one after the other.  Of one group it writes a product of the
    size of all windows of the image and adds it up, where Conv reads the windows of ``dy``: that is no more where
    ``dy`` has no more channels.  Turning takes as long as it gains by some 25 windows for each of them.
    """
    outputs, channels = _sizes(w)[:2]
    if group > 1:
        return channels <= 8 and outputs // group <= 8
    count = known_sizes(windows.count)
    return count is not None and outputs <= channels and _batch(dy, 1) * prod(count) >= 25 * outputs


# -- the adjoint in the weights


def weight_gradient(image: Value, dy: Value, w: Value, windows: Windows, group: int) -> Value:
    """Adjoint of :func:`convolution` in its weights: dw[m, c, k] = Σ dy[m, o] image[c, window o at k].

    1. Weights of unknown size, and large kernels over few channels: one convolution, batch and channels exchanged.
    2. One channel to a group, in images that are not wide: all pairs of columns as matrix products, of which a mask
    keeps those in the same window.  3. No strides and many positions: products of the image with dy shifted along the
    last axis.  4. More weights than positions: one product with all windows of all images, in the order of the weights.
    5. Many channels and small kernels: the same, the windows gathered in rows.  6. Otherwise a product for each place
    in the kernel, or for all of them where the channels are few.

    The forms that lay out windows side by side are for images of moderate size: they cost memory.
    """
    padded = pad_image(image, windows.begin, windows.end)
    if not w.is_static:
        return _by_exchanged_convolution(padded, dy, windows, group)
    outputs, channels, *kernel = sizes = _sizes(w)
    if group == 1 and channels <= 4 and prod(kernel) >= 25:
        return _by_exchanged_convolution(padded, dy, windows, group)
    count = known_sizes(windows.count)
    if count is None or known_sizes(spatial_shape(padded)) is None:
        return _by_taps(padded, dy, windows, group, sizes)
    # Then a sum over the batch of [N, M, C] costs more than to transpose [N, M, positions] and [N, C, positions].
    few = 2 * outputs * channels > prod(count) * (outputs + channels)
    if len(kernel) == 2 and channels == 1 and outputs == group and prod(kernel) > 1:
        if count[1] <= 40 or windows.strides[1] > 1 or kernel[1] > 3:
            return _by_masked_columns(padded, dy, windows, outputs)
    elif not few and prod(kernel) > 1 and _is_worth_shifting(dy, windows, sizes, group):
        return _by_shifted_cotangents(padded, dy, windows, group, sizes)
    moderate = prod(count) * prod(kernel) * channels <= _LARGEST_COLUMNS
    if group == 1 and few and moderate and (prod(kernel) == 1 or _batch(dy, 8) * prod(count) <= 8 * outputs):
        return _by_joined_columns(padded, dy, windows, sizes)
    if group == 1 and channels >= 32 and 1 < max(kernel) <= 3 and max(windows.dilations) == 1 and moderate:
        return _by_gathered_rows(padded, dy, windows, outputs, channels)
    return _by_taps(padded, dy, windows, group, sizes)


def _by_taps(padded: Value, dy: Value, windows: Windows, group: int, sizes: Sequence[int]) -> Value:
    """For each place in the kernel, a product of cotangents with what the windows have there.

    Few channels make small products: then the places are joined first, in one matrix of columns.
    """
    op = padded.graph.op
    outputs, channels, *kernel = sizes
    lead, last = [0, group] if group > 1 else [0], positions(windows.count)
    shape = op.Concat([*lead, channels], last, axis=0)
    columns = [op.Reshape(tap, shape) for tap in taps(padded, windows)]
    elements = prod(known_sizes(windows.count) or [1]) * prod(kernel) * channels * group
    if len(columns) > 1 and channels < 16 and elements <= _LARGEST_COLUMNS:
        columns = [op.Concat(*columns, axis=len(lead))]
    rows = op.Reshape(dy, op.Concat([*lead, outputs // group], last, axis=0))
    order = [*range(len(lead)), len(lead) + 1, len(lead)]
    found = [sum_over_batch(op.MatMul(rows, op.Transpose(x, perm=order))) for x in columns]
    if len(found) > 1:
        joined = op.Concat(*(op.Reshape(d, [outputs, channels, 1]) for d in found), axis=2)
        return op.Reshape(joined, [outputs, channels, *kernel])
    if prod(kernel) == 1:
        return op.Reshape(found[0], [outputs, channels, *kernel])
    return _channels_before_taps(op.Reshape(found[0], [outputs, *kernel, channels]), len(kernel))


def _by_shifted_cotangents(padded: Value, dy: Value, windows: Windows, group: int, sizes: Sequence[int]) -> Value:
    """dw[m, c, i, j] = Σ dy[m, h, v - j] image[c, h + i, v]: a product for each place i along the axes but the last.

    The places j along the last axis are rows of it, so that it is large, and of the image only whole rows are cut out.
    """
    op, graph = padded.graph.op, padded.graph
    outputs, channels, *kernel = sizes
    dilation, count = windows.dilations[-1], known_sizes(windows.count) or []
    lead, reach = [0, group] if group > 1 else [0], (kernel[-1] - 1) * dilation
    rows = op.Reshape(dy, [*lead, outputs // group, *count]) if group > 1 else dy
    before = [0] * (len(lead) + len(count))
    shifted = [op.Pad(rows, [*before, j * dilation, *before, reach - j * dilation]) for j in range(kernel[-1])]
    size = [*count[:-1], count[-1] + reach]
    joined = op.Concat(*shifted, axis=len(lead))
    cotangents = op.Reshape(joined, [*lead, kernel[-1] * outputs // group, prod(size)])
    lines = replace(
        windows,
        kernel=graph.constant(np.array([*kernel[:-1], 1], np.int64)),
        count=graph.constant(np.array(size, np.int64)),
    )
    found = []
    for line in taps(padded, lines):
        image = op.Reshape(line, [*lead, channels, prod(size)]).transpose(*range(len(lead)), -1, -2)
        product = sum_over_batch(op.MatMul(cotangents, image))
        found.append(op.Reshape(product, [1, *lead[1:], kernel[-1], outputs // group * channels]))
    order = [*range(1, len(lead)), len(lead) + 1, 0, len(lead)]
    return op.Reshape(op.Transpose(op.Concat(*found, axis=0), perm=order), [outputs, channels, *kernel])


def _is_worth_shifting(dy: Value, windows: Windows, sizes: Sequence[int], group: int) -> bool:
    """Whether there are no strides, and the products are neither short nor narrow, of operands of moderate size."""
    outputs, channels, *kernel = sizes
    positions = prod(known_sizes(windows.count) or [])
    wide = channels >= 16 or 1 < channels >= outputs // group
    moderate = _batch(dy, 8) * outputs * kernel[-1] * positions <= _LARGEST_SHIFTED
    return wide and moderate and positions >= 512 and all(s == 1 for s in windows.strides)


def _by_joined_columns(padded: Value, dy: Value, windows: Windows, sizes: Sequence[int]) -> Value:
    """One product over all images, of dy with all windows side by side: its columns are in the order of the weights."""
    op = padded.graph.op
    outputs, channels, *kernel = sizes
    rows, image = _channels_first(dy, len(kernel)), _channels_first(padded, len(kernel))
    columns = op.Concat(*(op.Reshape(tap, [channels, 1, -1]) for tap in taps(image, windows)), axis=1)
    dw = op.Gemm(op.Reshape(rows, [outputs, -1]), op.Reshape(columns, [channels * prod(kernel), -1]), transB=1)
    return op.Reshape(dw, list(sizes))


def _by_gathered_rows(padded: Value, dy: Value, windows: Windows, outputs: int, channels: int) -> Value:
    """With the channels last a window is a few rows of the image: one Gather makes the matrix, one Gemm the product."""
    op, rank = padded.graph.op, len(windows.strides)
    axes = list(range(2, 2 + rank))
    kernel = known_sizes(windows.kernel) or []
    size = op.Concat([0], positions(spatial_shape(padded)), [channels], axis=0)
    rows = op.Reshape(op.Transpose(padded, perm=[0, *axes, 1]), size)
    columns = op.Reshape(
        op.Gather(rows, window_places(padded, windows, windows_first=True), axis=1), [-1, prod(kernel) * channels]
    )
    cotangents = op.Reshape(_channels_first(dy, rank), [outputs, -1])
    return _channels_before_taps(op.Reshape(op.Gemm(cotangents, columns), [outputs, *kernel, channels]), rank)


def _channels_first(x: Value, rank: int) -> Value:
    """``[N, C, ...]`` as ``[C, N, ...]``."""
    return x.graph.op.Transpose(x, perm=[1, 0, *range(2, 2 + rank)])


def _by_masked_columns(padded: Value, dy: Value, windows: Windows, channels: int) -> Value:
    """Depthwise in two dimensions: for each row of the kernel, the products of all columns of dy with all of the image.

    That is more arithmetic than needed, in matrix products that are much faster than what they replace.
    """
    op = padded.graph.op
    count, kernel = known_sizes(windows.count) or [], known_sizes(windows.kernel) or []
    width = (known_sizes(spatial_shape(padded)) or [])[1]
    step, dilation = windows.strides, windows.dilations
    rows = op.Reshape(op.Transpose(dy, perm=[1, 0, 2, 3]), [channels, -1, count[1]])
    cotangents, image = op.Transpose(rows, perm=[0, 2, 1]), op.Transpose(padded, perm=[1, 0, 2, 3])
    products = []
    for i in range(kernel[0]):
        start = i * dilation[0]
        reach = op.Slice(image, [start], [start + (count[0] - 1) * step[0] + 1], [2], [step[0]])
        products.append(op.MatMul(cotangents, op.Reshape(reach, [channels, -1, width])))
    pairs = op.Concat(*products, axis=0) if len(products) > 1 else products[0]
    places = np.arange(count[1])[:, None, None] * step[1] + np.arange(kernel[1]) * dilation[1]
    together = op.Equal(places, np.arange(width)[:, None])
    mask = op.Reshape(op.Cast(together, to=dy.dtype or TensorProto.FLOAT), [count[1] * width, kernel[1]])
    kept = op.MatMul(op.Reshape(pairs, [kernel[0] * channels, count[1] * width]), mask)
    return op.Reshape(
        op.Transpose(op.Reshape(kept, [kernel[0], channels, kernel[1]]), perm=[1, 0, 2]), [channels, 1, *kernel]
    )


def _by_exchanged_convolution(padded: Value, dy: Value, windows: Windows, group: int) -> Value:
    """One convolution whose batch is the channels, whose channels are the batch, and whose kernel is dy.

    Neighbouring places in dw are ``dilations`` apart, neighbouring elements of dy ``strides``: the two exchange roles.
    """
    op, rank = padded.graph.op, len(windows.strides)
    axes = list(range(2, 2 + rank))
    exchanged = op.Transpose(padded, perm=[1, 0, *axes])
    if group > 1:
        spatial, batch = spatial_shape(padded), op.Shape(padded, end=1)
        channels = op.Div(op.Shape(padded, start=1, end=2), np.array([group]))
        parted = op.Reshape(padded, op.Concat(batch, [group], channels, spatial, axis=0), allowzero=1)
        turned = op.Transpose(parted, perm=[2, 1, 0, *(a + 1 for a in axes)])
        mixed = op.Mul(batch, np.array([group]))
        exchanged = op.Reshape(turned, op.Concat(channels, mixed, spatial, axis=0), allowzero=1)
    kernel = op.Transpose(dy, perm=[1, 0, *axes])
    dw = op.Conv(exchanged, kernel, strides=windows.dilations, dilations=windows.strides, group=group)
    cut = op.Slice(dw, np.zeros(rank, np.int64), windows.kernel, np.array(axes))
    return op.Transpose(cut, perm=[1, 0, *axes])


def _channels_before_taps(dw: Value, rank: int) -> Value:
    """``[M, kernel..., C]`` as ``[M, C, kernel...]``, of a kernel with ``rank`` axes."""
    return dw.graph.op.Transpose(dw, perm=[0, rank + 1, *range(1, rank + 1)])


def _batch(x: Value, otherwise: int) -> int:
    """The number of images, or the number to reckon with where it is not known."""
    size = None if x.shape is None else x.shape[0]
    return size if isinstance(size, int) else otherwise


def _sizes(w: Value) -> list[int]:
    assert w.shape is not None
    return [n for n in w.shape if isinstance(n, int)]
