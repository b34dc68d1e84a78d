"""What a training graph keeps of its forward part for the gradient, and what if parts of it were computed again.

A *segment* is a set of forward nodes.  Of a segment that is computed again, these values are kept: what is random, what
comes from bodies of control flow or from operators that nobody describes, statistics of a batch, and what nodes behind
the segment read too, whose gradient would otherwise wait for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from onnx import NodeProto

from ..graph import decomposition
from ..graph.dependencies import reads, subgraphs
from ..graph.graph import Graph
from ..graph.types import TensorType, numpy_dtype
from ..graph.value import Value
from .randomness import is_random
from .trace import Trace, key_of

_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})

_ELEMENT_WORK = 32
"""What reading and writing one element costs, in multiplications of a product."""


@dataclass(frozen=True)
class Segment:
    """Forward nodes, by their places among them, in order."""

    name: str
    places: tuple[int, ...]


@dataclass(frozen=True)
class Recomputed:
    """What computing a segment again takes.

    ``places`` are those of the nodes that run again, ``wanted`` the values that the gradient reads of them, ``inputs``
    the kept values that they read, and ``arrivals`` the gradients that tell when.
    """

    segment: Segment
    places: tuple[int, ...]
    wanted: tuple[str, ...]
    inputs: frozenset[str]
    arrivals: tuple[Value, ...]
    work: float


class Retention:
    """The forward part of a graph after a sweep, with what the gradient reads of it."""

    def __init__(self, graph: Graph, trace: Trace, type_of: Callable[[str], TensorType | None]) -> None:
        self._graph, self._trace, self._type_of = graph, trace, type_of
        known = set(trace.forward)
        nodes = list(graph.proto.node)
        end = 1 + max((k for k, node in enumerate(nodes) if key_of(node) in known), default=-1)
        self.nodes, self.gradient_nodes = nodes[:end], nodes[end:]
        self.producers = {name: k for k, node in enumerate(self.nodes) for name in node.output if name}
        self.needed = {name for node in self.gradient_nodes for name in reads(node) if name in self.producers}
        self._places = {key_of(node): k for k, node in enumerate(self.nodes)}
        self._readers: dict[str, set[int]] = {}
        reader = end
        for k, node in reversed(list(enumerate(self.nodes))):
            # What a rule put in the place of a node, as for a recurrent layer, is read by that rule's gradient too:
            # it reads for the node itself, whose first output comes last.
            original = key_of(node) in known
            reader = k if original else reader
            if key_of(node) in trace.passed or not original:
                for name in reads(trace.groups.get(key_of(node), node)):
                    self._readers.setdefault(self._owner(name), set()).add(reader)
        self._constants = {t.name for t in graph.model.graph.initializer}
        self._constants.update(node.output[0] for node in self.nodes if node.op_type == "Constant")
        self._repeatable = [key_of(node) in known and self._is_repeatable(node) for node in self.nodes]

    def _is_repeatable(self, node: NodeProto) -> bool:
        described = not node.domain or decomposition.find(node.op_type, node.domain) is not None
        return described and not is_random(self._graph, node) and not any(True for _ in subgraphs(node))

    # -- sizes

    def size(self, name: str) -> int:
        """The bytes of a tensor; an unknown dimension counts as 1, and what is no tensor as nothing."""
        known = self._type_of(name)
        if known is None or known.shape is None:
            return 0
        return prod(d if isinstance(d, int) else 1 for d in known.shape) * numpy_dtype(known.dtype).itemsize

    def is_sized(self, name: str) -> bool:
        """Whether the size of a tensor is known."""
        known = self._type_of(name)
        return known is None or known.is_static

    def memory(self, names: Iterable[str]) -> int:
        """The bytes that values of the forward part take together; a view shares those of what it shows."""
        return sum(map(self.size, {self._owner(name) for name in names} & self.producers.keys()))

    def _owner(self, name: str) -> str:
        while (k := self.producers.get(name)) is not None and self.nodes[k].op_type in _VIEWS:
            name = self.nodes[k].input[0]
        return name

    def peak(self, parts: Sequence[Recomputed]) -> int:
        """The bytes kept for the gradient, and those of the largest part that is computed again, together."""
        again = {name for part in parts for name in part.wanted}
        kept = (self.needed - again).union(*(part.inputs for part in parts))
        return self.memory(kept) + max((self.memory(part.wanted) for part in parts), default=0)

    def crossing(self) -> list[int]:
        """For every place, the bytes that nodes from there on, with a gradient, read of those before."""
        change = [0] * (len(self.nodes) + 1)
        for owner, places in self._readers.items():
            if owner in self.producers:
                change[self.producers[owner] + 1] += self.size(owner)
                change[max(places) + 1] -= self.size(owner)
        total, sums = 0, []
        for k in range(len(self.nodes)):
            total += change[k]
            sums.append(total)
        return sums

    # -- computing again

    def again(self, segment: Segment) -> Recomputed | None:
        """What computing ``segment`` again takes, or None where the gradient reads nothing that could be."""
        inside = set(segment.places)
        arrivals = self._arrivals(segment)
        computed = [name for k in segment.places for name in self.nodes[k].output]
        wanted = [name for name in computed if name in self.needed and self._stays(name, inside)]
        if not arrivals or not wanted:
            return None
        repeated = self._repeated(segment, inside)
        wanted = [name for name in wanted if self.producers[name] in repeated and not self.is_statistic(name)]
        places: set[int] = set()
        inputs: set[str] = set()
        pending = [self.producers[name] for name in wanted]
        while pending:
            k = pending.pop()
            if k in places:
                continue
            places.add(k)
            for name in self.copied_reads(k):
                producer = self.producers.get(name)
                if producer is None:
                    continue
                if producer in repeated and self._stays(name, inside) and not self.is_statistic(name):
                    pending.append(producer)
                else:
                    inputs.add(name)
        if not places:
            return None
        work = sum(map(self._work, places))
        return Recomputed(segment, tuple(sorted(places)), tuple(wanted), frozenset(inputs), arrivals, work)

    def _arrivals(self, segment: Segment) -> tuple[Value, ...]:
        """The gradients of what the segment computes, as far as nodes behind it have added to them."""
        found = []
        last = max((k for k in segment.places if key_of(self.nodes[k]) in self._trace.passed), default=-1)
        for name in (n for k in segment.places for n in self.nodes[k].output if n in self._trace.arrivals):
            behind = [d for by, d in self._trace.arrivals[name] if by is None or self._places.get(by, -1) > last]
            if behind and behind[-1].rank is not None:
                found.append(behind[-1])
        return tuple(dict.fromkeys(found))

    def _stays(self, name: str, inside: set[int]) -> bool:
        """Whether only nodes inside a segment have a gradient that may read ``name``, or a view of the same memory."""
        return self._readers.get(self._owner(name), set()) <= inside

    def _repeated(self, segment: Segment, inside: set[int]) -> set[int]:
        """The places of nodes that can run again: each must read something that can be made to wait."""
        found: set[int] = set()
        for k in segment.places:
            if not self._repeatable[k]:
                continue
            for name in self.copied_reads(k):
                producer = self.producers.get(name)
                if (producer in found and self._stays(name, inside)) or self.can_wait(name):
                    found.add(k)
                    break
        return found

    def can_wait(self, name: str) -> bool:
        """Whether a view of the value can be made: it is computed or fed, and of known rank."""
        known = self._graph.tensor_type(name)
        return bool(name) and name not in self._constants and known is not None and known.rank is not None

    def is_statistic(self, name: str) -> bool:
        """Whether a value is the mean or variance of a batch, which BatchNormalization puts out while training."""
        node = self.nodes[self.producers[name]] if name in self.producers else None
        return node is not None and is_training_batch_norm(node) and name != node.output[0]

    def copied_reads(self, k: int) -> list[str]:
        """What the copy of a node reads, in order."""
        node = self.nodes[k]
        if is_training_batch_norm(node):
            return [*node.input[:3], *node.output[1:3]]
        return [name for name in node.input if name]

    def _work(self, k: int) -> float:
        node = self.nodes[k]
        elements = sum(self.size(name) for name in node.output) / 4
        factors = self._type_of(node.input[-1 if node.op_type == "MatMul" else 1]) if len(node.input) > 1 else None
        if factors is None or factors.shape is None or len(factors.shape) < 2:
            return elements * _ELEMENT_WORK
        sizes = [d if isinstance(d, int) else 1 for d in factors.shape]
        if node.op_type in ("Gemm", "MatMul"):
            return elements * (sizes[-2] + _ELEMENT_WORK)
        if node.op_type == "Conv":
            return elements * (prod(sizes[1:]) + _ELEMENT_WORK)
        return elements * _ELEMENT_WORK


def is_training_batch_norm(node: NodeProto) -> bool:
    """Whether the node normalizes with the statistics of the batch."""
    standard = node.op_type == "BatchNormalization" and not node.domain
    return standard and any(a.name == "training_mode" and a.i == 1 for a in node.attribute)
