"""Passes over a finished graph: each takes a model, changes it in place, and says whether it did."""

from __future__ import annotations

from collections.abc import Callable

from onnx import ModelProto

from .common_subexpressions import merge_common_subexpressions
from .cross_entropy import expand_cross_entropy
from .duplicates import merge_equal_initializers
from .identities import remove_identities
from .own_functions import inline_own_functions
from .prune import prune

PASSES: tuple[Callable[[ModelProto], bool], ...] = (
    inline_own_functions,
    prune,
    expand_cross_entropy,
    remove_identities,
    merge_equal_initializers,
    merge_common_subexpressions,
    prune,
)
"""The passes that finish a training graph, in their order."""


def run_passes(model: ModelProto) -> None:
    """Run every pass once, in order."""
    for run in PASSES:
        run(model)
