"""Rows for the reductions, running sums and products, and sorting."""

from __future__ import annotations

import math

import numpy as np

from . import case, normal

EXCEPTIONS = {
    "far_out_*:newest": "at opset 28 onnxruntime takes the logarithm of Σ e^x as it stands, which overflows",
}

_ALL = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
)
_X = np.abs(normal(2, 3, 4)) + 0.5
_AXES = np.array([0, -1])
_NONE = np.array([], np.int64)

ROWS = [
    *(case(op, _X, keepdims=keep) for op in _ALL for keep in (0, 1)),
    *(case(op, _X, _AXES, keepdims=keep) for op in _ALL for keep in (0, 1)),
    *(case(op, _X, _NONE, noop_with_empty_axes=noop) for op in _ALL for noop in (0, 1)),
    *(case(op, _X, noop_with_empty_axes=1, keepdims=0, name="noop_without_axes") for op in _ALL),
    *(case(op, 0.7, keepdims=keep) for op in _ALL for keep in (0, 1)),
    *(case(op, normal(2, 0, 3), np.array([0]), keepdims=0, name="nothing") for op in _ALL),
    *(case(op, normal(2, 0, 3), np.array([1]), name="over_nothing") for op in ("ReduceSum", "ReduceL1", "ReduceProd")),
    # -- ties share evenly, as in PyTorch's amax and amin
    case("ReduceMax", [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], np.array([1]), gradient=[[0, 0.5, 0.5], [1 / 3] * 3]),
    case("ReduceMin", [[1.0, 3.0, 1.0], [2.0, 2.0, 2.0]], np.array([1]), gradient=[[0.5, 0, 0.5], [1 / 3] * 3]),
    case("ReduceMax", [[1.0, 3.0], [3.0, 0.0]], keepdims=0, gradient=[[0, 0.5], [0.5, 0]]),
    # -- zeros
    case(
        "ReduceProd",
        [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]],
        np.array([1]),
        gradient=[[6, 0, 0], [0, 0, 0], [6, 3, 2]],
    ),
    case("ReduceProd", [[0.0, 2.0, 3.0], [4.0, 5.0, 0.5]], np.array([1]), name="one_zero"),
    case("ReduceL1", [-1.0, 0.0, 2.0], gradient=[-1, 0, 1]),
    case("ReduceL2", [[0.0, 0.0], [3.0, 4.0]], np.array([1]), gradient=[[0, 0], [0.6, 0.8]]),
    case(
        "ReduceLogSumExp",
        [[1000.0, 1000.0], [-1000.0, -1000.0]],
        np.array([1]),
        gradient=[[0.5, 0.5]] * 2,
        name="far_out_2x2",
    ),
    case("ReduceLogSumExp", [1000.0, 0.0], gradient=[1, 0], name="far_out_2"),
    case("ReduceLogSum", [0.0, 0.0], gradient=[math.inf, math.inf]),
    # -- running
    *(
        case(op, normal(2, 3, 4), np.array(axis), exclusive=exclusive, reverse=reverse, opset=26)
        for op in ("CumSum", "CumProd")
        for axis in (1, -1)
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    *(case(op, normal(0, 3), np.array(0), opset=26) for op in ("CumSum", "CumProd")),
    *(
        case(
            "CumProd",
            [[1.5, 0.0, 2.0, 3.0], [0.0, 2.0, 0.0, 1.0], [2.0, 3.0, 4.0, 0.0]],
            np.array(1),
            exclusive=exclusive,
            reverse=reverse,
            opset=26,
            name=f"zeros_{exclusive}{reverse}",
        )
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    # -- sorting
    case("TopK", normal(3, 5), np.array([2]), outputs=2),
    case("TopK", normal(3, 5), np.array([2]), outputs=2, axis=0, largest=0, sorted=0),
    case("TopK", normal(3, 5), np.array([0]), outputs=2, name="top_none"),
    case("TopK", [1.0, 3.0, 3.0, 2.0], np.array([1]), outputs=2, gradient=[0, 1, 0, 0]),
]
