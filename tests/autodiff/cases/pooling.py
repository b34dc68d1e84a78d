"""Rows for the poolings: ties go to the first element, every form of padding, any rank."""

from __future__ import annotations

import numpy as np

from . import DEFINITIONS, case, normal

EVALUATORS = dict.fromkeys(
    ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool", "MaxUnpool"), DEFINITIONS
)

EXCEPTIONS = {
    **{f"global_lp_{name}:newest": "onnxruntime has no kernel from opset 22 on" for name in (2, 3, "of_zeros")},
    "maxunpool_export_with_output_shape:all": "onnxruntime counts Indices in output_shape, ONNX in the pooled size",
}


def distinct(*shape: int) -> np.ndarray:
    """Numbers no two of which are close, none close to 0."""
    order = np.random.default_rng(1).permutation(np.prod(shape))
    return ((order - len(order) // 2 + 0.25) / len(order) * 8).astype(np.float32).reshape(shape)


X, X1, X3 = distinct(2, 2, 7, 8), distinct(2, 3, 9), distinct(1, 2, 4, 5, 3)
TIES = np.array([[[[2, 2, 1, 0], [2, 0, 1, 1], [0, 0, 3, 3], [0, 0, 3, 3]]]], np.float32)

WINDOWS = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "VALID"},
    {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 0, 1]},
]

ROWS = [
    *(case("MaxPool", X, **window) for window in WINDOWS),
    case("MaxPool", X, kernel_shape=[3, 2], strides=[2, 2], storage_order=1),
    case("MaxPool", X3, kernel_shape=[2, 3, 2], storage_order=1),
    case("MaxPool", X, kernel_shape=[2, 2], outputs=2, name="indices_are_an_output_already"),
    case("MaxPool", X1, kernel_shape=[3], strides=[2]),
    case(
        "MaxPool",
        TIES,
        kernel_shape=[2, 2],
        strides=[2, 2],
        gradient=[[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]],
        name="ties_go_to_the_first",
    ),
    case(
        "MaxPool",
        TIES,
        kernel_shape=[2, 2],
        gradient=[[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 4, 0], [0, 0, 0, 0]],
        name="ties_where_windows_overlap",
    ),
    *(case("AveragePool", X, count_include_pad=counted, **window) for counted in (0, 1) for window in WINDOWS),
    case("AveragePool", X1, kernel_shape=[3], strides=[2], pads=[1, 1]),
    case("AveragePool", X3, kernel_shape=[3, 2, 2], strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 1]),
    case("AveragePool", X3, kernel_shape=[3, 2, 2], strides=[1, 2, 1]),
    *(case("LpPool", X, p=p, **WINDOWS[k]) for p in (1, 2, 3) for k in (0, 1, 2)),
    case(
        "LpPool", np.zeros((1, 1, 2, 2), np.float32), kernel_shape=[2, 2], gradient=[[0, 0], [0, 0]], name="lp_of_zeros"
    ),
    *(case(op, normal(0, 3, 4, 5), kernel_shape=[2, 3]) for op in ("MaxPool", "AveragePool")),
    case("GlobalAveragePool", X3),
    case("GlobalAveragePool", X1),
    case("GlobalMaxPool", X3),
    case("GlobalMaxPool", TIES, gradient=np.eye(1, 16, 10), name="global_ties_go_to_the_first"),
    *(case("GlobalLpPool", X, p=p, name=f"global_lp_{p}") for p in (1, 2, 3)),
    case("GlobalLpPool", np.zeros((1, 1, 2, 2), np.float32), gradient=[[0, 0], [0, 0]], name="global_lp_of_zeros"),
    case("LpPool", X, kernel_shape=[3, 2], strides=[2, 1], auto_pad="VALID"),
    case("MaxUnpool", normal(1, 1, 2, 2), np.array([[[[5, 7], [13, 8]]]]), kernel_shape=[2, 2], strides=[2, 2]),
    case(
        *("MaxUnpool", normal(1, 1, 3, 3), np.array([[[[0, 3, 5], [6, 14, 11], [18, 21, 23]]]])),
        kernel_shape=[2, 2],
        strides=[2, 2],
        pads=[1, 0, 1, 0],
    ),
]
