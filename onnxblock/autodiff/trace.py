"""What a sweep did: which forward nodes it went through, and what it knew of each gradient when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from onnx import NodeProto

from ..graph.value import Value


def key_of(node: NodeProto) -> str:
    """The name that tells a node from all others: that of its first output."""
    return next((name for name in node.output if name), "")


@dataclass
class Trace:
    """Filled by :func:`~onnxblock.autodiff.backward.backward`; nodes go by :func:`key_of`.

    ``forward`` has the nodes of the graph before the sweep, and ``passed`` those whose rule was applied.  ``arrivals``
    has the sums of the gradient of each value, one after the other, each with the node whose rule added to it; the
    first may be a cotangent that the sweep began with, which no node added.  ``groups`` has the operators that groups
    of nodes were differentiated as, by the last node of each.
    """

    forward: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    arrivals: dict[str, list[tuple[str | None, Value]]] = field(default_factory=dict)
    groups: dict[str, NodeProto] = field(default_factory=dict)

    def begin(self, nodes: Iterable[NodeProto]) -> None:
        """Note the nodes that are there before the sweep."""
        self.forward = [key_of(node) for node in nodes]

    def arrived(self, name: str, gradient: Value, by: str | None) -> None:
        """Note the gradient of the value ``name`` as it is after the rule of the node ``by``."""
        self.arrivals.setdefault(name, []).append((by, gradient))
        if by is not None:
            self.passed.add(by)
