"""Rows for the normalisations."""

from __future__ import annotations

import numpy as np

from . import DEFINITIONS, REFERENCE, case, normal

EVALUATORS = {
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization"), REFERENCE),
    **dict.fromkeys(("LRN", "MeanVarianceNormalization", "GroupNormalization"), DEFINITIONS),
}

EXCEPTIONS = {
    "mvn:structure": "ONNX cannot infer through the body of the operator",
    "group_of_two:newest": "from opset 21 on the scale belongs to a channel",
    "l2normalization_axis_0:float64": "one row is zero, where the norm has a kink",
}

X, SHIFTED = normal(3, 4, 5, 2), normal(3, 4, 5, 2) * 2 + 3
C = [normal(4, seed=k) for k in range(4)]
VARIANCE = np.abs(normal(4, seed=4)) + 0.5

ROWS = [
    *(case("BatchNormalization", x, *C[:3], VARIANCE, epsilon=0.01) for x in (X, normal(5, 4), normal(2, 4, 3))),
    *(
        case(
            "BatchNormalization",
            x,
            *C[:3],
            VARIANCE,
            training_mode=1,
            momentum=momentum,
            outputs=3,
            name=f"training_{x.ndim}d_momentum_{momentum}",
        )
        for x in (SHIFTED, normal(5, 4), normal(2, 4, 3))
        for momentum in (0.0, 0.9)
    ),
    *(
        case("LayerNormalization", SHIFTED, normal(*SHIFTED.shape[axis:]), *bias, axis=axis, epsilon=0.1)
        for axis in (-1, 2, 0)
        for bias in ((), (normal(*SHIFTED.shape[axis:], seed=1),))
    ),
    case("LayerNormalization", normal(6, 8), normal(8), normal(8, seed=1), outputs=3, name="statistics_are_outputs"),
    case("LayerNormalization", normal(0, 8), normal(8), normal(8, seed=1)),
    case("BatchNormalization", normal(0, 4, 3), *C[:3], VARIANCE, name="an_empty_batch"),
    case("RMSNormalization", SHIFTED, normal(2), opset=23, epsilon=0.1),
    case("RMSNormalization", SHIFTED, normal(5, 2), axis=2, opset=23),
    case("GroupNormalization", SHIFTED, C[0], C[1], num_groups=2),
    case("GroupNormalization", normal(2, 4, 6), C[0], C[1], num_groups=4, epsilon=0.1),
    case("GroupNormalization", SHIFTED, C[0][:2], C[1][:2], num_groups=2, opset=18, name="group_of_two"),
    case("MeanVarianceNormalization", SHIFTED, axes=[1, 3]),
    case("InstanceNormalization", SHIFTED, C[0], C[1], epsilon=0.1),
    case("InstanceNormalization", normal(2, 4, 6), C[0], C[1]),
    *(case("LpNormalization", SHIFTED, p=p, axis=axis) for p in (1, 2) for axis in (-1, 1)),
    case("LpNormalization", [[0.0, 0.0], [3.0, 4.0]], gradient=[[0, 0], [0.032, -0.024]], name="the_zero_vector"),
    case("LRN", SHIFTED, size=3, alpha=0.5, beta=0.6, bias=1.5),
    case("LRN", SHIFTED, size=5, alpha=0.1),
]
