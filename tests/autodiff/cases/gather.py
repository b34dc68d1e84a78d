"""Rows for the operators that pick elements by index, and for those that put them in place."""

from __future__ import annotations

import numpy as np

from . import REFERENCE, case, normal

EVALUATORS = {"OneHot": REFERENCE, "Unique": REFERENCE}

CONSTANTS = {"OneHot": (0, 1)}

EXCEPTIONS = {
    "unique_*sorted_with*:float64": "where elements are equal, every difference changes the shape of the output",
}

X = normal(4, 3, 5)
ROWS_OF_X = np.array([[0, 1], [-1, -1], [0, 1]])
INDEX = np.array([[0, 0, 1], [1, -1, -1], [2, 2, 2]])
UPDATES = normal(3, 3, seed=1)
# Two zeros at one place, one at another.
ZEROS = np.array([[0.0, 0.5, 2.0], [1.5, 0.0, 0.0], [2.0, -1.0, 0.5]], np.float32)

ROWS = [
    *(
        case("Gather", X, np.array(index), axis=axis)
        for axis in (0, 1, -1)
        for index in ([0, 2, 2, -1], [[0, 1], [1, -2]], 1, -2, [-1])
    ),
    case("Gather", X, np.zeros(0, np.int64), axis=1),
    case("Gather", normal(0, 3), np.array([1, 2]), axis=1),
    case("Gather", X, np.array([0, 2], np.int32), axis=1, name="int32"),
    case("Gather", [[1.0, 2.0], [3.0, 4.0]], np.array([1, 1, 0]), gradient=[[1, 1], [2, 2]], name="twice"),
    case("GatherElements", normal(3, 3), np.array([[0, -1, 1], [2, 0, 0]]), axis=0),
    case("GatherElements", normal(3, 3), np.array([[0, 1], [1, -1], [2, 2]]), axis=-1),
    case("GatherND", X, ROWS_OF_X),
    case("GatherND", X, np.array([[[0], [2]], [[1], [1]], [[-1], [0]], [[2], [2]]]), batch_dims=1),
    case("GatherND", X, np.array([[0, 1], [2, 4], [1, 1], [0, 0]]), batch_dims=1, name="whole_index"),
    case("GatherND", normal(2, 3, 4, 5), np.arange(12).reshape(2, 3, 2, 1) % 4, batch_dims=2),
    *(
        row
        for reduction in ("add", "mul", "max", "min")
        for row in (
            case("ScatterElements", normal(3, 4), INDEX, UPDATES, axis=1, reduction=reduction),
            case("ScatterND", X, ROWS_OF_X, normal(3, 5, seed=1), reduction=reduction),
        )
    ),
    case("ScatterElements", normal(3, 4), INDEX, ZEROS, axis=1, reduction="mul", name="zero_factors"),
    case("ScatterND", normal(4), np.array([[1], [1], [2]]), [0.0, 2.0, 0.0], reduction="mul", name="zero_slices"),
    case("ScatterElements", normal(3, 4), np.array([[0, -2, 1], [1, 0, 3], [2, 1, 0]]), UPDATES, axis=1),
    case("ScatterND", X, np.array([[0], [-2]]), normal(2, 3, 5, seed=1)),
    *(
        case(
            "ScatterElements",
            [1.0, 2.0],
            np.array([0, 0, 1]),
            [1.0, updates, 2.0],
            reduction=reduction,
            gradients=([0.5, 0.5], None, [0.5, 0.0, 0.5]),
            name=f"{reduction}_shares_ties",
        )
        for reduction, updates in (("max", 0.0), ("min", 3.0))
    ),
    *(
        case(
            "TensorScatter",
            cache,
            update,
            *start,
            axis=axis,
            mode=mode,
            opset=24,
            name=f"{mode}_from_{'anywhere' if start else 'zero'}_axis_{axis}",
        )
        for mode, last in (("linear", 2), ("circular", 4))
        for start in ((), (np.array([1, last]),))
        for axis, cache, update in (
            (-2, normal(2, 2, 5, 4), normal(2, 2, 3, 4, seed=1)),
            (1, normal(2, 5, 3), normal(2, 3, 3, seed=1)),
        )
    ),
    *(case("OneHot", np.array([0, -1, 7, 2, -9]), np.array(5), normal(2), axis=axis) for axis in (-1, 0)),
    case("Compress", normal(3, 4), np.array([False, True, True]), axis=0),
    case("Compress", normal(3, 4), np.array([True, False, True]), axis=-1),
    case("Compress", normal(3, 4), np.array([True, False, True, True, False, True])),
    case("Unique", [2.0, 1.0, 1.0, 4.0], gradient=[1, 1, 0, 1]),
    case("Unique", [[2.0, 1.0, 2.0], [3.0, 4.0, 3.0]], axis=1, sorted=0, gradient=[[1, 1, 0], [1, 1, 0]]),
    case("Unique", [[2.0, 1.0, 3.0], [3.5, 4.0, 6.0]], name="all_differ"),
]
