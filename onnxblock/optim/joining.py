"""Small vectors that are updated as one: biases, and scales of normalizations.

A model has hundreds of them, each so small that to start a node takes longer than to run it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
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

_MOST = 16
"""All that the gradients of joined vectors are computed of stays until the last of them is there: in a fused step of
neighbors, what the backward pass of a layer or two has made."""


def taken_together(parameters: Mapping[Parameter, Part]) -> list[list[Parameter]]:
    """All parameters; in one list those whose updates are one update of their concatenation.

    They are neighbors, of one element type.
    """
    groups: dict[tuple[Part, int], list[Parameter]] = {}
    for p, its_part in parameters.items():
        if _is_small(p) and is_elementwise(p, its_part):
            groups.setdefault((its_part, p.dtype), []).append(p)
    joined = [some for group in groups.values() for some in _in_parts(group)]
    inside = {p for group in joined for p in group}
    return [*([p] for p in parameters if p not in inside), *joined]


def _in_parts(group: list[Parameter]) -> list[list[Parameter]]:
    """Parts of nearly equal length, or none."""
    if len(group) < _FEWEST:
        return []
    count = math.ceil(len(group) / _MOST)
    ends = [len(group) * k // count for k in range(count + 1)]
    return [group[start:stop] for start, stop in pairwise(ends)]


def _is_small(p: Parameter) -> bool:
    return p.shape is not None and len(p.shape) == 1 and isinstance(p.shape[0], int) and 0 < p.shape[0] <= _LONGEST


def is_elementwise(p: Parameter, its_part: Part) -> bool:
    """Whether the update of each element depends on that element alone, for this parameter."""
    optimizer = its_part.optimizer
    return optimizer.elementwise and all(state.shape == p.shape for state in optimizer.states(p.shape))


def join(vectors: Sequence[Value]) -> Value:
    """One after the other, as a row: onnx's shape inference follows what is done to each element of a vector."""
    first = vectors[0]
    return first if len(vectors) == 1 else first.graph.op.Concat(*vectors, axis=0).unsqueeze(0)


def parted(joined: Value, parameters: Sequence[Parameter]) -> list[Value]:
    """The pieces of what :func:`join` made, which are as long as the parameters."""
    if len(parameters) == 1:
        return [joined]
    lengths = np.array([p.shape[0] for p in parameters if p.shape is not None])
    return list(joined.graph.op.Split(joined.squeeze(0), lengths, axis=0, outputs=len(parameters)))
