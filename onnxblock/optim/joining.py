"""Small vectors that are updated as one: biases, and scales of normalizations.

A model has hundreds of them, each so small that to start a node takes longer than to run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..graph.value import Value
from .parameters import Parameter

if TYPE_CHECKING:
    from .optimizer import Part

_LONGEST = 8192
"""Elements: copying a vector of float32 into the joined one and back then takes a few microseconds."""

_FEWEST = 4
"""To join and part them are some nodes too."""


def taken_together(parameters: Mapping[Parameter, Part]) -> list[list[Parameter]]:
    """All parameters; in one list those of one element type whose updates are one update of their concatenation."""
    groups: dict[tuple[Part, int], list[Parameter]] = {}
    for p, its_part in parameters.items():
        if _is_small(p) and is_elementwise(p, its_part):
            groups.setdefault((its_part, p.dtype), []).append(p)
    joined = [group for group in groups.values() if len(group) >= _FEWEST]
    inside = {p for group in joined for p in group}
    return [*([p] for p in parameters if p not in inside), *joined]


def _is_small(p: Parameter) -> bool:
    return p.shape is not None and len(p.shape) == 1 and isinstance(p.shape[0], int) and 0 < p.shape[0] <= _LONGEST


def is_elementwise(p: Parameter, its_part: Part) -> bool:
    """Whether the update of each element depends on that element alone, for this parameter."""
    optimizer = its_part.optimizer
    return optimizer.elementwise and all(state.shape == p.shape for state in optimizer.states(p.shape))


def join(vectors: Sequence[Value]) -> Value:
    """One after the other."""
    first = vectors[0]
    return first if len(vectors) == 1 else first.graph.op.Concat(*vectors, axis=0)


def parted(joined: Value, parameters: Sequence[Parameter]) -> list[Value]:
    """The pieces of a joined vector, which are as long as the parameters."""
    if len(parameters) == 1:
        return [joined]
    lengths = np.array([p.shape[0] for p in parameters if p.shape is not None])
    return list(joined.graph.op.Split(joined, lengths, axis=0, outputs=len(parameters)))
