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


def slices(sizes: Mapping[str, int]) -> dict[str, Sequence[tuple[int, int]]]:
    """Start and end of each slice of the parameters that are too large to be taken whole; ``sizes`` in elements."""
    large = {name: size for name, size in sizes.items() if size > _LONGEST}
    longest = max(_LONGEST, math.ceil(sum(large.values()) / _MOST))
    return {name: _slices(size, longest) for name, size in large.items() if size > longest}


def slices_of(optimizer: ModelProto) -> dict[str, list[list[int]]]:
    """Start and end of each slice of the parameters that an optimizer model, fresh from its block, takes in slices."""
    about = next((entry.value for entry in optimizer.metadata_props if entry.key == OPTIMIZER_KEY), "{}")
    found: dict[str, list[list[int]]] = json.loads(about).get("slices", {})
    return found


def _slices(size: int, longest: int) -> list[tuple[int, int]]:
    """As few as possible, of nearly equal length."""
    length = math.ceil(size / math.ceil(size / longest) / _ALIGNMENT) * _ALIGNMENT
    return [(start, min(start + length, size)) for start in range(0, size, length)]
