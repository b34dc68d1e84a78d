"""Rows for the two loss operators."""

from __future__ import annotations

import numpy as np

from . import case, normal

LABELS = {2: np.array([1, 3, 0, 3]), 3: np.array([[1, 0], [2, 1], [0, 0], [2, 2]])}
SCORES = {2: normal(4, 5), 3: normal(4, 3, 2)}
WEIGHTS = {2: np.abs(normal(5)) + 0.2, 3: np.abs(normal(3)) + 0.2}
OPERATORS = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")


def ignored(rank: int, index: int) -> np.ndarray:
    labels = LABELS[rank].copy()
    labels[::2] = index
    return labels


ROWS = [
    *(
        case(op, SCORES[rank], ignored(rank, index), *weights, ignore_index=index, reduction=reduction)
        for op in OPERATORS
        # A class, no class, and negative ones: nothing may read or write there.
        for rank, index in ((2, 1), (2, 99), (2, -1), (3, -100))
        for weights in ((), (WEIGHTS[rank],))
        for reduction in ("mean", "none")
    ),
    *(case(op, SCORES[2], LABELS[2].astype(np.int32), WEIGHTS[2], name="int32_labels") for op in OPERATORS),
    case("SoftmaxCrossEntropyLoss", SCORES[3], LABELS[3], WEIGHTS[3], outputs=2, reduction="none"),
    case("SoftmaxCrossEntropyLoss", SCORES[2], ignored(2, -1), outputs=2, ignore_index=-1, name="log_prob_ignored"),
    case(
        "SoftmaxCrossEntropyLoss",
        [[0.0, 0.0], [0.0, 0.0]],
        np.array([0, 1]),
        gradient=[[-0.25, 0.25], [0.25, -0.25]],
        name="even_odds",
    ),
    *(
        case(op, normal(2, 3), np.array([-1, -1]), ignore_index=-1, gradient=np.zeros((2, 3)), name="nothing_counts")
        for op in OPERATORS
    ),
    case("SoftmaxCrossEntropyLoss", [[200.0, -200.0]], np.array([1]), gradient=[[1, -1]], name="large_scores"),
]
