"""Whether an output may be written over the input it replaces.

A runtime runs nodes in any order that respects their dependencies, so the order in the file protects nothing.  Writing
over an input is safe only if everything else that reads the old value must have run before the writer starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, inliner, numpy_helper

from .dependencies import has_operator, needed_nodes, needs_of, reads, subgraphs
from .inference import infer_model
from .types import same_shape, tensor_type
from .value import Value

ELEMENTWISE = frozenset(
    {
        "Abs",
        "Add",
        "Cast",
        "Clip",
        "Div",
        "Exp",
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

_VARIADIC = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
_VIEWS = frozenset({"Cast", "CastLike", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_REARRANGING = frozenset({"Expand", "Pad", "Slice", "Tile", "Transpose"})
_CONTAINERS = frozenset({"Optional", "OptionalGetElement", "SequenceAt", "SequenceConstruct", "SequenceInsert"})
_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0, "Pow": 1.0}
_COMMUTATIVE = frozenset({"Add", "Mul"})
_PRODUCTS = frozenset({"Gemm", "MatMul"})
_LARGEST_CONSTANT = 4096


class InPlace:
    """The question asked of one model, any number of times.

    ``wholes`` has inputs that lie in the memory of another: slices, by the name of the input that they are a part of.
    """

    def __init__(self, model: ModelProto, wholes: Mapping[str, str] | None = None) -> None:
        self._wholes = wholes or {}
        flat = inliner.inline_local_functions(model) if model.functions else model
        # Of the model with its functions: inside of an If, ONNX's inference starts by copying what it knows of all
        # values outside.  Where no sizes are computed from others, as in an optimizer, none need be followed.
        types = infer_model(model, follow_contents=has_operator(flat.graph.node, "Shape", "Size"))
        self._type = cache(lambda name: tensor_type(types.get(name)))
        self._outputs = {v.name for v in flat.graph.output}
        self._tensors = tensors = {t.name: t for t in flat.graph.initializer}
        self._is_constant = cache(lambda name, number: _is_all(tensors[name], number))
        self._producers: dict[str, NodeProto] = {}
        self._readers: dict[str, list[NodeProto]] = {}
        self._positions: dict[int, int] = {}
        self._reads: dict[int, set[str]] = {}
        self._shares: dict[int, list[str]] = {}
        for node in flat.graph.node:
            if node.op_type == "Constant":
                self._tensors.update((node.output[0], a.t) for a in node.attribute if a.type == AttributeProto.TENSOR)
        for k, node in enumerate(needed_nodes(map(self._decided, flat.graph.node), self._outputs)[0]):
            self._positions[id(node)] = k
            for name in node.output:
                self._producers[name] = node
            self._reads[id(node)] = reads(node)
            for name in self._reads[id(node)]:
                self._readers.setdefault(name, []).append(node)

    def is_safe(self, old: str, new: str) -> bool:
        """Whether the output ``new`` may be bound onto the memory of the input ``old``.

        1. Both have one known element type and shape.
        2. The writer is the node that makes ``new``, or the one before it where that node may change nothing and be
           left out by a runtime.
        3. What a runtime may keep in the memory of ``old``, such as its Reshape, counts as ``old``; none of it is an
           output.
        4. The writer is elementwise in ``old``, if it reads it at all, or puts rows into it; it does not read what
           ``old`` is a slice of.
        5. Every other reader of ``old``, or of what it is a slice of, is an ancestor of the writer, whichever branch
           a runtime puts in the place of an If.
        6. Of those, the ones that feed the writer are elementwise too, since a runtime may fuse them with it.
        """
        return self.late_readers(old, new) == []

    def late_readers(self, old: str, new: str) -> list[NodeProto] | None:
        """The readers of ``old`` that need not have run when the writer of ``new`` does, against the fifth condition.

        None where ``new`` may not lie in the memory of ``old`` even if the writer waits for them.
        """
        if not self._same_form(old, new):
            return None
        aliases = self._aliases(old, rearranged=True)
        if old in self._wholes:
            aliases |= self._aliases(self._wholes[old], rearranged=True)
        writer, made = self._writer(new)
        if writer is None or made in aliases or not aliases.isdisjoint(self._outputs):
            return None
        read = aliases & self._reads[id(writer)]
        in_its_place = _is_elementwise(writer) or _puts_into(writer, read)
        if read and not (in_its_place and all(self._same_form(x, made) for x in read)):
            return None
        if read and not read <= self._aliases(old, rearranged=False):
            return None
        readers = [node for name in aliases for node in self._readers.get(name, ()) if node is not writer]
        feeding = {id(self._producers[name]) for name in self._roots(writer) if name in self._producers}
        if any(id(node) in feeding and not _is_elementwise(node) for node in readers if not self._shared(node)):
            return None
        return self._not_before(readers, writer)

    def _decided(self, node: NodeProto) -> NodeProto:
        """The node of the branch that is always taken, where that is known and holds a single node."""
        condition = self._tensors.get(node.input[0]) if node.op_type == "If" and not node.domain else None
        if condition is None:
            return node
        wanted = "then_branch" if numpy_helper.to_array(condition).all() else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == wanted)
        outside = {inner.name: name for inner, name in zip(branch.output, node.output, strict=True)}
        if len(branch.node) != 1 or not set(branch.node[0].output) <= outside.keys():
            return node
        taken = NodeProto()
        taken.CopyFrom(branch.node[0])
        taken.output[:] = [outside[name] for name in branch.node[0].output]
        return taken

    def _same_form(self, a: str, b: str) -> bool:
        first, second = self._type(a), self._type(b)
        if first is None or second is None or first.dtype != second.dtype:
            return False
        return same_shape(first.shape, second.shape)

    def _shared(self, node: NodeProto) -> list[str]:
        """The inputs whose memory the output of ``node`` may have."""
        key = id(node)
        if key not in self._shares:
            self._shares[key] = self._find_shared(node)
        return self._shares[key]

    def _find_shared(self, node: NodeProto) -> list[str]:
        """The same, not remembered.

        1. A container of tensors.  2. A view, or a node that may turn out to do nothing.  3. A factor that a runtime
        may fold into the product after it.
        """
        if node.domain:
            return []
        if node.op_type in _CONTAINERS:
            return [name for name in node.input if name]
        if node.op_type == "If":
            return [name for body in subgraphs(node) for inner in body.node for name in self._find_shared(inner)]
        if node.op_type in _VIEWS | _REARRANGING or (node.op_type in _VARIADIC and len(node.input) == 1):
            return [node.input[0]]
        if node.op_type not in _NEUTRAL:
            return []
        pairs = [(node.input[0], node.input[1])]
        if node.op_type in _COMMUTATIVE:
            pairs.append((node.input[1], node.input[0]))
        scales = node.op_type in ("Mul", "Div")
        into_product = scales and any(n.op_type in _PRODUCTS for n in self._readers.get(node.output[0], ()))
        return [
            data
            for data, other in pairs
            if other in self._tensors and (into_product or self._is_constant(other, _NEUTRAL[node.op_type]))
        ]

    def _aliases(self, old: str, *, rearranged: bool) -> set[str]:
        """What may lie in the memory of ``old``; without ``rearranged``, only where the elements keep their places."""
        found, pending = {old}, [old]
        while pending:
            name = pending.pop()
            for node in self._readers.get(name, ()):
                if name in self._shared(node) and (rearranged or node.op_type not in _REARRANGING):
                    pending += [output for output in node.output if output and output not in found]
                    found.update(node.output)
        return found - {""}

    def _writer(self, new: str) -> tuple[NodeProto | None, str]:
        """The node that fills the memory of ``new``, and the value that it computes."""
        node = self._producers.get(new)
        while node is not None and node.op_type != "If" and len(shared := self._shared(node)) == 1:
            new = shared[0]
            node = self._producers.get(new)
        return node, new

    def _roots(self, node: NodeProto) -> Iterator[str]:
        """What ``node`` reads, and what that may share memory with."""
        pending = list(self._reads[id(node)])
        while pending:
            name = pending.pop()
            yield name
            producer = self._producers.get(name)
            if producer is not None:
                pending += self._shared(producer)

    def _not_before(self, nodes: Iterable[NodeProto], writer: NodeProto) -> list[NodeProto]:
        """Those of ``nodes`` that ``writer`` does not depend on."""
        missing = {id(node): node for node in nodes}
        if not missing:
            return []
        first = min(self._positions[k] for k in missing)
        # the nearest first: the readers of a state are, and what all tensors share is a long way back
        pending = deque(name for output in writer.output for name in self._needs(writer, output))
        seen: set[int | str] = {id(writer)}
        left: dict[int, set[str]] = {}
        while missing and pending:
            name = pending.popleft()
            producer = self._producers.get(name)
            if producer is None or self._positions[id(producer)] < first:
                continue
            by_output = producer.op_type == "If"
            if (name if by_output else id(producer)) in seen:
                continue
            seen.add(name if by_output else id(producer))
            pending += self._needs(producer, name)
            if by_output:
                unseen = left.setdefault(id(producer), {x for x in producer.output if self._is_read(x)})
                unseen.discard(name)
            if not by_output or not unseen:
                missing.pop(id(producer), None)
        return list(missing.values())

    def _needs(self, node: NodeProto, output: str) -> set[str]:
        """What must be there before ``output`` of ``node`` is."""
        return needs_of(node, output) if node.op_type == "If" else self._reads[id(node)]

    def _is_read(self, name: str) -> bool:
        return name in self._readers or name in self._outputs


def in_place_safe(model: ModelProto, old: str, new: str) -> bool:
    """Whether the output ``new`` of ``model`` may lie in the memory of its input ``old``; see :class:`InPlace`."""
    return InPlace(model).is_safe(old, new)


def after(number: Value, *values: Value) -> Value:
    """The scalar ``number``, which a runtime knows only once all ``values`` are computed.

    A writer that takes it waits for what computed them.  Nothing is copied: only the first element of each is read.
    """
    op = number.graph.op
    for value in values:
        # a row: onnx's shape inference follows each element of a vector
        first = value if value.rank == 0 else op.ReduceSum(op.Slice(value.reshape(1, -1), [0], [1], [1]), keepdims=0)
        number = op.Where(op.Equal(first, first), number, number)
    return number


def _is_elementwise(node: NodeProto) -> bool:
    if node.domain:
        return False
    if node.op_type == "If":
        return all(len(b.node) == 1 and _in_order(b.node[0]) for b in subgraphs(node))
    if node.op_type not in ELEMENTWISE:
        return False
    # With more inputs the result is built up in the memory of the output.
    return node.op_type not in _VARIADIC or len(node.input) <= 2


def _puts_into(node: NodeProto, read: set[str]) -> bool:
    """Whether all that ``node`` does with what it ``read`` is to put something else in some of its places."""
    is_put = node.op_type == "ScatterND" and not node.domain and not node.attribute
    return is_put and read == {node.input[0]} and node.input[0] not in node.input[1:]


def _in_order(node: NodeProto) -> bool:
    return _is_elementwise(node) or (node.op_type == "Identity" and not node.domain)


def _is_all(tensor: TensorProto, number: float) -> bool:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.data_type == TensorProto.STRING:
        return False
    if np.prod(tensor.dims, dtype=np.int64) > _LARGEST_CONSTANT:
        return False
    return bool(np.all(numpy_helper.to_array(tensor) == number))
