"""Operators straight from their definitions, in NumPy, for float64.

onnxruntime has no float64 kernel for these.  ``onnx.reference`` lacks them, or refuses or mistakes some of their
attributes (groups with strides, output_shape, ceil_mode), or has constants in float32.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxblock.autodiff.check import reference_operators

from .definitions_contrib import CONTRIB
from .definitions_recurrent import GRU, LSTM, RNN, Loop, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onnx import ModelProto


def definitions_evaluator(model: ModelProto) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
    """Run a model with ``onnx.reference``, some of its operators replaced by the ones here."""
    session = ReferenceEvaluator(model, new_ops=[*reference_operators(), *OPERATORS])
    names = set(session.input_names)

    def run(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.asarray(y) for y in session.run(None, {k: x for k, x in feeds.items() if k in names})]

    return run


# -- windows


class _Windows:
    """The geometry of a convolution or pooling over an image of ``size``."""

    def __init__(self, size: Sequence[int], kernel: Sequence[int], a: Mapping[str, Any]) -> None:
        self.kernel, rank = kernel, len(kernel)
        self.strides, self.dilations = a.get("strides") or [1] * rank, a.get("dilations") or [1] * rank
        self.extent = [(k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True)]
        pads, auto_pad = a.get("pads") or [0] * 2 * rank, a.get("auto_pad")
        self.begin, self.end = list(pads[:rank]), list(pads[rank:])
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            steps = zip(size, self.strides, self.extent, strict=True)
            total = [max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in steps]
            halves = [t // 2 for t in total], [t - t // 2 for t in total]
            self.begin, self.end = halves if auto_pad == "SAME_UPPER" else halves[::-1]
        self.counts, self.beyond = [], []
        for n, s, e, p, q in zip(size, self.strides, self.extent, self.begin, self.end, strict=True):
            room = n + p + q - e
            count = room // s + 1
            if a.get("ceil_mode") and room % s and count * s < n + p:
                count += 1
            self.counts.append(count)
            self.beyond.append(max((count - 1) * s + e - n - p - q, 0))

    def pad(self, x: np.ndarray, padding: float = 0.0, beyond: float = 0.0) -> np.ndarray:
        lead = [(0, 0)] * (x.ndim - len(self.kernel))
        x = np.pad(x, [*lead, *zip(self.begin, self.end, strict=True)], constant_values=padding)
        return np.pad(x, [*lead, *((0, n) for n in self.beyond)], constant_values=beyond)

    def places(self) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """Every place in the window, and the elements that all windows have there."""
        for place in product(*(range(k) for k in self.kernel)):
            yield place, (..., *map(_reach, place, self.counts, self.strides, self.dilations))


def _reach(k: int, count: int, stride: int, dilation: int) -> slice:
    return slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride)


def _groups(x: np.ndarray, group: int, axis: int) -> np.ndarray:
    return x.reshape(*x.shape[:axis], group, x.shape[axis] // group, *x.shape[axis + 1 :])


def _with_bias(y: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    y = y.reshape(y.shape[0], y.shape[1] * y.shape[2], *y.shape[3:])
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))


class Conv(OpRun):
    def _run(self, x, w, b=None, **a):
        windows, group = _Windows(x.shape[2:], w.shape[2:], a), a.get("group") or 1
        x, w = _groups(windows.pad(x), group, 1), _groups(w, group, 0)
        products = (np.einsum("ngc...,gmc->ngm...", x[r], w[(..., *p)]) for p, r in windows.places())
        return (_with_bias(sum(products), b),)


class ConvTranspose(OpRun):
    def _run(self, x, w, b=None, **a):
        rank, group = x.ndim - 2, a.get("group") or 1
        windows = _Windows([0] * rank, w.shape[2:], {**a, "auto_pad": None})
        windows.counts, added = x.shape[2:], a.get("output_padding") or [0] * rank
        steps = zip(windows.counts, windows.strides, windows.extent, added, strict=True)
        full = [(n - 1) * s + e + more for n, s, e, more in steps]
        begin, auto_pad = windows.begin, a.get("auto_pad")
        wanted = [f - p - q for f, p, q in zip(full, begin, windows.end, strict=True)]
        if a.get("output_shape") or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = a.get("output_shape") or [n * s for n, s in zip(windows.counts, windows.strides, strict=True)]
            total = [max(f - n, 0) for f, n in zip(full, wanted, strict=True)]
            begin = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
        x, w = _groups(x, group, 1), _groups(w, group, 0)
        room = [max(f, p + n) for f, p, n in zip(full, begin, wanted, strict=True)]
        y = np.zeros((x.shape[0], group, w.shape[2], *room), x.dtype)
        for place, reach in windows.places():
            y[reach] += np.einsum("ngc...,gcm->ngm...", x, w[(..., *place)])
        return (_with_bias(y[(..., *(slice(p, p + n) for p, n in zip(begin, wanted, strict=True)))], b),)


class AveragePool(OpRun):
    def _run(self, x, **a):
        windows = _Windows(x.shape[2:], a["kernel_shape"], a)
        padded = windows.pad(x)
        counted = windows.pad(np.ones_like(x), float(bool(a.get("count_include_pad"))))
        total = sum(padded[r] for _, r in windows.places())
        return (total / sum(counted[r] for _, r in windows.places()),)


class LpPool(OpRun):
    def _run(self, x, **a):
        windows, p = _Windows(x.shape[2:], a["kernel_shape"], a), a["p"]
        padded = windows.pad(np.abs(x) ** p)
        return (sum(padded[r] for _, r in windows.places()) ** (1 / p),)


class GlobalLpPool(OpRun):
    def _run(self, x, p=None):
        return ((np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p),)


class GlobalMaxPool(OpRun):
    def _run(self, x):
        return (x.max(tuple(range(2, x.ndim)), keepdims=True),)


class MaxRoiPool(OpRun):
    def _run(self, x, regions, pooled_shape=None, spatial_scale=None):
        y = np.zeros((len(regions), x.shape[1], *pooled_shape), x.dtype)
        for r, (n, *corners) in enumerate(regions):
            left, top, right, bottom = (int(np.floor(c * spatial_scale + 0.5)) for c in corners)
            steps = max(bottom - top + 1, 1) / pooled_shape[0], max(right - left + 1, 1) / pooled_shape[1]
            for bin_ in np.ndindex(*pooled_shape):
                inside = x[int(n)]
                for axis, (first, k, step) in enumerate(zip((top, left), bin_, steps, strict=True), start=1):
                    edges = [max(first + int(np.floor(k * step)), 0), max(first + int(np.ceil((k + 1) * step)), 0)]
                    inside = np.take(inside, np.arange(*np.minimum(edges, x.shape[axis + 1])), axis)
                if inside.size:
                    y[(r, slice(None), *bin_)] = inside.max((1, 2))
        return (y,)


# -- normalisations


class LRN(OpRun):
    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        before = (size - 1) // 2
        padded = np.pad(x**2, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
        total = sum(padded[:, k : k + x.shape[1]] for k in range(size))
        return (x / (bias + alpha / size * total) ** beta,)


class MeanVarianceNormalization(OpRun):
    def _run(self, x, axes=None):
        axes = tuple(axes or (0, 2, 3))
        centred = x - x.mean(axes, keepdims=True)
        return (centred / np.sqrt((centred**2).mean(axes, keepdims=True)),)


class GroupNormalization(OpRun):
    def _run(self, x, scale, bias, epsilon=None, num_groups=None, stash_type=None):
        rows = x.reshape(x.shape[0], num_groups, -1)
        rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + epsilon)
        repeated = x.shape[1] // scale.size
        scale, bias = (np.repeat(v, repeated).reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias))
        return (rows.reshape(x.shape) * scale + bias,)


OPERATORS = [
    *CONTRIB,
    Conv,
    ConvTranspose,
    AveragePool,
    LpPool,
    GlobalLpPool,
    GlobalMaxPool,
    MaxRoiPool,
    LRN,
    MeanVarianceNormalization,
    GroupNormalization,
    Loop,
    Scan,
    LSTM,
    GRU,
    RNN,
]
