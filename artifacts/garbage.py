"""Python's collector of reference cycles, while graphs are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the collector from running, unless it is switched off already.

    Graphs are many objects and no cycles: the collector would walk through all of them again and again, a quarter of
    the time that a model of 20,000 nodes takes, and find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
