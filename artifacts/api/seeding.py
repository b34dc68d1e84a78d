"""Reproducible randomness: onnxruntime's generators are seeded anew before each training run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from onnxblock.errors import ArgumentError

from .session import runtime

# onnxruntime's generators belong to the process: a seeded run must have them to itself
_generators = threading.Lock()
_MASK = 2**64 - 1


@contextmanager
def seeded(seed: int | None, run: int) -> Iterator[None]:
    """Hold onnxruntime's generators, seeded from (``seed``, ``run``); without a seed they are left alone."""
    if seed is None:
        yield
        return
    with _generators:
        runtime().set_seed(mixed(seed, run))
        yield


def checked_seed(seed: object) -> int | None:
    """``seed`` as an ``int`` or None; raises :class:`ArgumentError` unless it is a number of 63 bits."""
    if seed is None:
        return None
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ArgumentError(f"the seed {seed!r} is not a 63-bit number", "Give a number from 0 to 2**63 - 1.")
    return int(seed)


def mixed(seed: int, run: int) -> int:
    """A well spread 63-bit number from two numbers: the output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = (seed + (run + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1
