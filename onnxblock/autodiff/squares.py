"""Which values are sums of squares, or products of such: what norms, distances and deviations are the roots of.

Where such a value is 0, its own slope is 0 in all that it is made of, while that of its root is infinite.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx import NodeProto

_MOVEMENTS = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_SUMS = frozenset({"Add", "Mean", "Sum"})
_REDUCTIONS = frozenset({"ReduceMean", "ReduceSum"})
_FARTHEST = 12
"""How many nodes on from a root its squares are looked for."""


class Squares:
    """Looks through the nodes before a value.

    ``producer`` gives the node that computes a value, ``number`` the number that it is, each None where there is none;
    ``live`` are the values that a gradient passes.
    """

    def __init__(
        self,
        producer: Callable[[str], NodeProto | None],
        number: Callable[[str], float | None],
        live: set[str],
    ) -> None:
        self._producer, self._number, self._live = producer, number, live
        self._known: dict[tuple[str, int], bool] = {}

    def make_up(self, name: str, farthest: int = _FARTHEST) -> bool:
        """Whether ``name`` is a sum of squares, or of other powers above 1 that are never negative."""
        if (name, farthest) not in self._known:
            self._known[name, farthest] = self._look(name, farthest)
        return self._known[name, farthest]

    def _look(self, name: str, farthest: int) -> bool:
        node = self._producer(name)
        if node is None or farthest == 0:
            return False
        parts = list(node.input)
        if node.op_type == "ReduceSumSquare" or (node.op_type == "Mul" and parts[0] == parts[1]):
            return True
        if node.op_type == "Pow":
            exponent = self._number(parts[1])
            return exponent is not None and exponent > 1 and (exponent % 2 == 0 or self._is_absolute(parts[0]))
        if node.op_type == "Mul":
            parts = [part for part in parts if part in self._live]
        elif node.op_type == "Div":
            parts = parts[:1] if parts[1] not in self._live else []
        elif node.op_type in _REDUCTIONS | _MOVEMENTS:
            parts = parts[:1]
        elif node.op_type not in _SUMS:
            return False
        return bool(parts) and all(self.make_up(part, farthest - 1) for part in parts)

    def _is_absolute(self, name: str) -> bool:
        node = self._producer(name)
        return node is not None and node.op_type == "Abs"
