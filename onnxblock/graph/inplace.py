"""Whether an output may be written over the input it replaces.

A runtime runs nodes in any order that respects their dependencies, so the order in the file protects nothing.  Writing
over an input is safe only if everything else that reads the old value must have run before the writer starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from onnx import ModelProto, NodeProto, inliner

from .dependencies import reads, subgraphs
from .types import tensor_type

ELEMENTWISE = frozenset(
    {
        "Abs",
        "Add",
        "Cast",
        "Clip",
        "Div",
        "Exp",
        "Identity",
        "Max",
        "Mean",
        "Min",
        "Mul",
        "Neg",
        "Pow",
        "Reciprocal",
        "Sign",
        "Sqrt",
        "Sub",
        "Sum",
        "Tanh",
        "Where",
    }
)
"""Operators whose element k of the output depends only on element k of each input of the same shape."""


class InPlace:
    """The question asked of one model, any number of times."""

    def __init__(self, model: ModelProto) -> None:
        flat = inliner.inline_local_functions(model) if model.functions else model
        self._producers: dict[str, NodeProto] = {}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in flat.graph.node:
            for name in node.output:
                self._producers[name] = node
            for name in reads(node):
                self._readers.setdefault(name, []).append(node)
        self._forms = {v.name: tensor_type(v.type) for v in (*flat.graph.input, *flat.graph.output)}
        self._outputs = {v.name for v in flat.graph.output}

    def is_safe(self, old: str, new: str) -> bool:
        """Whether the output ``new`` may be bound onto the memory of the input ``old``.

        1. Both have one known element type and shape.  2. The writer of ``new``, if it reads ``old``, is elementwise.
        3. Every other reader of ``old`` is an ancestor of the writer.  4. Of those, the ones that feed the writer
        directly are elementwise too, since a runtime may fuse them with it into one kernel.
        """
        writer = self._producers.get(new)
        if writer is None or old in self._outputs or self._forms.get(old) is None:
            return False
        if self._forms[old] != self._forms.get(new):
            return False
        others = [node for node in self._readers.get(old, ()) if node is not writer]
        if old in reads(writer) and not _is_elementwise(writer):
            return False
        direct = [self._producers[name] for name in writer.input if name in self._producers]
        if any(not _is_elementwise(node) for node in others if any(node is d for d in direct)):
            return False
        return self._all_before(others, writer)

    def _all_before(self, nodes: Iterable[NodeProto], writer: NodeProto) -> bool:
        missing = {id(self._producers[name]) for node in nodes for name in node.output[:1]}
        seen = {id(writer)}
        pending = deque([writer])
        while missing and pending:
            for name in reads(pending.popleft()):
                producer = self._producers.get(name)
                if producer is not None and id(producer) not in seen:
                    seen.add(id(producer))
                    missing.discard(id(producer))
                    pending.append(producer)
        return not missing


def in_place_safe(model: ModelProto, old: str, new: str) -> bool:
    """Whether the output ``new`` of ``model`` may be bound onto the memory of its input ``old``; see :class:`InPlace`."""
    return InPlace(model).is_safe(old, new)


def _is_elementwise(node: NodeProto) -> bool:
    return not node.domain and node.op_type in ELEMENTWISE and not any(True for _ in subgraphs(node))
