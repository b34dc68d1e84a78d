"""Passes over a finished graph.

Each takes a model and what is known of the types of its values, changes the model in place, and says whether it did.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx import ModelProto

from .common_subexpressions import merge_common_subexpressions
from .cross_entropy import expand_cross_entropy
from .duplicates import merge_equal_initializers
from .identities import remove_identities
from .joined_pads import join_pads
from .own_functions import inline_own_functions
from .prune import prune
from .scattered_sums import add_in_place
from .transposes import merge_transposes
from .types import Types, unknown
from .views import merge_views

PASSES: tuple[Callable[[ModelProto, Types], bool], ...] = (
    inline_own_functions,
    prune,
    expand_cross_entropy,
    merge_transposes,
    join_pads,
    add_in_place,
    merge_views,
    remove_identities,
    merge_equal_initializers,
    merge_common_subexpressions,
    prune,
)
"""The passes that finish a training graph, in their order."""


def run_passes(model: ModelProto, types: Types = unknown) -> None:
    """Run every pass once, in order; the more is known of the types of values, the more they find."""
    for run in PASSES:
        run(model, types)
