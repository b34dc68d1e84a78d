"""Embeddings of which a step changes the rows that were used, and no others.

The gradient of an embedding is zero but in those rows.  Where an update with a gradient of zero changes nothing, the
table need not be passed over: its used rows are taken out, updated, and put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..graph.value import Value

_is_wanted: ContextVar[Callable[[str], bool] | None] = ContextVar("onnxblock_sparse_form", default=None)


@contextmanager
def sparse_form(is_wanted: Callable[[str], bool]) -> Iterator[None]:
    """Make optimizers take the gradients of matrices as some of their rows, where the update allows it.

    ``is_wanted`` is asked with the name of each parameter that could be updated so.
    """
    token = _is_wanted.set(is_wanted)
    try:
        yield
    finally:
        _is_wanted.reset(token)


def wants_sparse(parameter: str) -> bool:
    """Whether the caller is inside :func:`sparse_form` for this parameter."""
    is_wanted = _is_wanted.get()
    return is_wanted is not None and is_wanted(parameter)


@dataclass(frozen=True)
class Rows:
    """Some rows of a matrix, by their distinct numbers (int64 [n]); of all of them where there are no numbers."""

    numbers: Value | None = None

    def of(self, matrix: Value) -> Value:
        """These rows of ``matrix``."""
        return matrix if self.numbers is None else matrix.graph.op.Gather(matrix, self.numbers, axis=0)

    def put(self, matrix: Value, rows: Value) -> Value:
        """``matrix`` with ``rows`` in their place."""
        if self.numbers is None:
            return rows
        made: Value = matrix.graph.op.ScatterND(matrix, self.numbers.unsqueeze(-1), rows)
        return made
