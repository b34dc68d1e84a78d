"""Large parameters in slices, each of which is updated on its own.

The nodes of an update pass over a tensor one after the other.  What they hand on stays in the processor's cache where
the tensor is a slice of a few hundred thousand elements, and comes back from memory where it is a large parameter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from onnx import ModelProto

from ..names import OPTIMIZER_KEY

_LONGEST = 262_144
"""Elements: what an update hands on is then three arrays of 1 MB in float32."""

_MOST = 512
"""In one model, which takes longer slices beyond it: the time to open a model grows with its nodes."""

_ALIGNMENT = 64
"""Elements: each slice begins where a cache line does."""

_FEWEST_UNITS = 8
"""A slice is of whole rows where it can be of so many of them, or of so many times what keeps both to the alignment."""

_wanted: ContextVar[bool] = ContextVar("onnxblock_slice_form", default=False)


@contextmanager
def slice_form() -> Iterator[None]:
    """Make optimizers take every large parameter in slices of its flattened array, where the update allows it."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def wants_slices() -> bool:
    """Whether the caller is inside :func:`slice_form`."""
    return _wanted.get()


def slices(shapes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[tuple[int, int]]]:
    """Start and end, in elements, of each slice of the parameters that are too large to be taken whole."""
    large = {name: shape for name, shape in shapes.items() if math.prod(shape) > _LONGEST}
    longest = max(_LONGEST, math.ceil(sum(map(math.prod, large.values())) / _MOST))
    return {name: _slices(shape, longest) for name, shape in large.items() if math.prod(shape) > longest}


def slices_of(optimizer: ModelProto) -> dict[str, list[list[int]]]:
    """Start and end of each slice of the parameters that an optimizer model, fresh from its block, takes in slices."""
    about = next((entry.value for entry in optimizer.metadata_props if entry.key == OPTIMIZER_KEY), "{}")
    found: dict[str, list[list[int]]] = json.loads(about).get("slices", {})
    return found


def _slices(shape: Sequence[int], longest: int) -> list[tuple[int, int]]:
    """As few as possible, of equal length but for the last; of whole rows where those are short."""
    size, rows = math.prod(shape), math.lcm(math.prod(shape[1:]), _ALIGNMENT)
    unit = rows if rows * _FEWEST_UNITS <= longest else _ALIGNMENT
    length = math.ceil(size / math.ceil(size / longest) / unit) * unit
    return [(start, min(start + length, size)) for start in range(0, size, length)]
