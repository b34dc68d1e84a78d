"""One graph being built: its values, types, names and known constants.  Nothing here knows about gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.checker import ValidationError
from onnx.defs import OpSchema

from ..errors import BlockBuildError, InvalidModelError, UnknownNameError, did_you_mean
from .dependencies import inner_names, reads
from .folding import LARGEST, constant_node_value, fold, fold_shape
from .index import Index
from .inference import (
    InferenceError,
    infer_model,
    infer_node,
    operand_with_output_type,
    rightly_inferred,
    wrongly_inferred,
)
from .inner_weights import inner_weights, lifted
from .literals import Literal, allowed_dtypes, literal_dtype
from .loops import loop_output_types
from .op import Operators
from .passes.renaming import rename_reads
from .schemas import arrange, find_schema, get_schema, input_types, opset_of
from .types import (
    FLOATS,
    Dimension,
    TensorType,
    checked_shape,
    element_type,
    innermost_dtype,
    numpy_dtype,
    onnx_dtype,
    tensor_type,
)
from .value import Operand, Value
from .weights import Weights, constant_tensor

_INTERNED_BYTES = 4096
_QUANTIZERS = frozenset({"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear"})
_MOVEMENTS = frozenset(
    {
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)


class Graph:
    """A model under construction.

    ``model`` is the live ``onnx.ModelProto``, and ``proto`` the ``GraphProto`` in it that is being built; nodes, inputs
    and initializers that a block appends to it directly are picked up by :meth:`sync`.  Large weights are stubs in it,
    their bytes are held by ``weights``.
    """

    def __init__(self, model: ModelProto, weights: Weights | None = None, path: str | None = None) -> None:
        self._begin(model, model.graph, Index(infer_model(model)), Weights() if weights is None else weights, path)

    def _begin(self, model: ModelProto, proto: GraphProto, index: Index, weights: Weights, path: str | None) -> None:
        self.model = model
        self.proto = proto
        self.index = index
        self.weights = weights
        self.path = path
        self.opset = opset_of(model)
        if not self.opset:
            raise InvalidModelError("the model imports no version of the default operator set ai.onnx.")
        self._names = index.names
        self._types = index.types
        self._tensor_types = index.tensor_types
        self._constants = index.constants
        self._constant_protos = index.constant_protos
        self._literals = index.literals
        self._interned = index.interned
        self._producers = index.producers
        self._indexed = [0, 0, 0]
        self._declared = {value.name: value.type for value in proto.value_info}
        self._late: set[str] = set()
        """Values whose types were found after the inference of the whole model: what reads them is inferred again."""
        self.sync()

    @property
    def op(self) -> Operators:
        """The operators of the opset, each as a method that adds a node.

        Made for each use: were it kept, graphs would wait for Python's collector of cycles to be freed.
        """
        return Operators(self)

    # -- looking things up

    @property
    def has_path(self) -> bool:
        """Whether the model came with the path of its file."""
        return self.path is not None

    def __contains__(self, name: str) -> bool:
        return name in self._names and (name in self._types or name in self._producers)

    def value(self, name: str) -> Value:
        """The value called ``name``; raises :class:`UnknownNameError` when the graph has none."""
        if not isinstance(name, str):
            raise BlockBuildError(f"the name of a value is expected, not {type(name).__name__}.", "Give one name.")
        if name not in self:
            raise UnknownNameError(
                f"the graph has no value {str(name)!r}." + did_you_mean(name, [*self._types, *self._producers]),
                "Values are inputs, initializers and outputs of nodes.",
            )
        return Value(name, self)

    def tensor_type(self, name: str) -> TensorType | None:
        """Element type and shape of a tensor; None for a sequence or when nothing is known."""
        known = self._tensor_types.get(name)
        if known is None and name not in self._tensor_types:
            known = self._tensor_types[str(name)] = tensor_type(self._types.get(name))
        return known

    def type_proto(self, name: str) -> TypeProto | None:
        """The type of a value of any kind, or None when unknown."""
        return self._types.get(name)

    def set_type(self, name: str, type_: TypeProto | TensorType) -> None:
        """Say what is known of a value beyond what inference found."""
        proto = type_.to_proto() if isinstance(type_, TensorType) else type_
        self._types[str(name)] = proto
        self._tensor_types.pop(str(name), None)

    def producer(self, name: str) -> NodeProto | None:
        """The node that computes a value; None for inputs and initializers."""
        return self._producers.get(name)

    def constant_value(self, name: str | None) -> npt.NDArray[Any] | None:
        """The elements of a value that is known while building (small, and not trained), else None."""
        return None if name is None else self._constants.get(name)

    # -- adding things

    def input(self, name: str, dtype: int | npt.DTypeLike, shape: Sequence[Dimension] | None) -> Value:
        """A new graph input; raises :class:`BlockBuildError` for a name that is taken, and what is no dtype or shape.

        ``dtype`` is an ONNX element type or a NumPy one; dimensions are numbers, names of varying sizes, or None.
        """
        if name in self._names:
            raise BlockBuildError(
                f"the model already has a value called {name!r}, so it cannot be a new input.",
                "Choose another name (target_name=..., labels_name=... of a loss).",
            )
        self.proto.input.append(helper.make_tensor_value_info(name, element_type(dtype), checked_shape(shape)))
        self.sync()
        return Value(name, self)

    def parameter(self, name: str, array: npt.NDArray[Any]) -> Value:
        """A new weight: an initializer under a name of its own (a number is added if ``name`` is taken)."""
        unique = self.unique(name)
        tensor = numpy_helper.from_array(np.asarray(array, order="C"), unique)
        self.proto.initializer.append(tensor)
        self.sync()
        return Value(unique, self)

    def constant(self, content: Operand, dtype: int | None = None) -> Value:
        """An initializer with this content, which is no weight; the same content twice is one initializer.

        Without ``dtype``, arrays keep their own, floats become float32, integers int64.
        """
        array = np.asarray(content)
        if dtype is not None:
            array = array.astype(numpy_dtype(dtype))
        elif not isinstance(content, (np.ndarray, np.generic)):
            array = array.astype({"f": np.float32, "i": np.int64, "b": np.bool_}[array.dtype.kind])
        key = (onnx_dtype(array.dtype), array.shape, array.tobytes()) if array.nbytes <= _INTERNED_BYTES else None
        if key is not None and key in self._interned:
            return Value(self._interned[key], self)
        name = self._names.unique("constant", scoped=False)
        self.index.written.add(name)
        self.proto.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        self.sync()
        if key is not None:
            self._interned[key] = name
        return Value(name, self)

    def literal(self, content: Literal) -> Value:
        """A number that takes the element type of the first typed operand it meets (float32 until then)."""
        name = self._names.unique("literal", scoped=False)
        self.index.written.add(name)
        array = np.asarray(content)
        array = array.astype(np.bool_ if array.dtype.kind == "b" else np.float32)
        self.proto.initializer.append(numpy_helper.from_array(array, name))
        self.sync()
        self._literals[name] = content
        return Value(name, self)

    def add(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        attributes: Mapping[str, Any] | None = None,
        outputs: int = 1,
        domain: str = "",
    ) -> list[Value]:
        """Append one node and return its outputs.

        Raises :class:`BlockBuildError` where the arguments, types or shapes do not fit the operator.  A node whose
        inputs are known integers is computed at once and becomes a constant.
        """
        if domain and find_schema(op_type, self._version(domain), domain) is None:
            return self._append_foreign(op_type, inputs, attributes or {}, outputs, domain)
        schema = get_schema(op_type, self._version(domain), domain)
        ordered, named = arrange(schema, inputs, attributes or {})
        operands = self._operands(schema, ordered)
        if not domain and outputs == 1:
            folded = self._fold(op_type, operands, named)
            if folded is not None:
                return [self.constant(folded)]
        names = [self._names.unique(op_type if outputs == 1 else f"{op_type}.{k}") for k in range(outputs)]
        node = NodeProto(op_type=op_type, input=operands, output=names, name=names[0], domain=domain)
        if named:
            node.attribute.extend(_attribute(schema, name, given) for name, given in named.items())
            self._names.take(inner_names(node))
        self._infer(node, schema, strict=True)
        if op_type == "Constant":
            self._know(node)
        return self._register(node)

    def _append_foreign(
        self, op_type: str, inputs: Sequence[Operand], attributes: Mapping[str, Any], outputs: int, domain: str
    ) -> list[Value]:
        operands = ["" if x is None else x if isinstance(x, str) else self.constant(x) for x in inputs]
        names = [self._names.unique(op_type if outputs == 1 else f"{op_type}.{k}") for k in range(outputs)]
        return self._append(helper.make_node(op_type, operands, names, name=names[0], domain=domain, **attributes))

    def _append(self, node: NodeProto) -> list[Value]:
        self._index_node(node)
        return self._register(node)

    def _register(self, node: NodeProto) -> list[Value]:
        """Append a node whose names are taken and whose types are known."""
        self.proto.node.append(node)
        kept = self.proto.node[-1]
        names = list(node.output)
        self._producers.update((name, kept) for name in names if name)
        self._indexed[2] = len(self.proto.node)
        return [Value(name, self) for name in names]

    def unique(self, name: str) -> str:
        """A name that nothing in the graph has yet: ``name``, or ``name`` with a number."""
        return self._names.unique(name)

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Put ``name/`` before the names of what is added inside."""
        return self._names.scope(name)

    def import_domain(self, domain: str, version: int) -> None:
        """Make sure the model imports an operator set."""
        if all(o.domain != domain for o in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid(domain, version))

    def add_optional_output(self, node: NodeProto, k: int) -> Value:
        """The k-th output of ``node``, added if the node leaves it out."""
        if k < len(node.output) and node.output[k]:
            return Value(node.output[k], self)
        name = self._names.unique(f"{node.output[0]}.{k}")
        node.output.extend([""] * (k + 1 - len(node.output)))
        node.output[k] = name
        self._producers[name] = node
        schema = find_schema(node.op_type, self._version(node.domain), node.domain)
        if schema is not None:
            self._infer(node, schema, strict=False, only=name)
        return Value(name, self)

    def rename(self, value: str, name: str) -> Value:
        """Call the output of a recent node ``name``, there and where it is read; what no node makes passes an Identity.

        Raises :class:`BlockBuildError` when the name is taken.
        """
        if name in self._names:
            raise BlockBuildError(f"{str(value)!r} cannot be called {name!r}, since something else is.")
        self._names.take([name])
        if value not in self._producers:
            return self._append(helper.make_node("Identity", [value], [name], name=name))[0]
        for node in reversed(self.proto.node):
            rename_reads(node, {value: name})
            if value in node.output:
                node.output[list(node.output).index(value)] = name
                break
        self._producers[name] = self._producers.pop(value)
        self._tensor_types.pop(value, None)
        if value in self._types:
            self._types[name] = self._types.pop(value)
        return Value(name, self)

    def lift_constant(self, name: str) -> bool:
        """Turn the Constant node that makes ``name`` into an initializer; False where there is none.

        One that lies in a body is called as :func:`~onnxblock.graph.inner_weights.inner_weights` says.
        """
        node = self.producer(name)
        if node is None:
            inner = next((w for w in inner_weights(self.proto) if w.name == name), None)
            if inner is not None:
                self.proto.initializer.append(lifted(inner))
                self.sync()
            return inner is not None
        held = constant_tensor(node)
        if held is None:
            content = constant_node_value(node)
            if content is None:
                return False
            held = numpy_helper.from_array(content)
        tensor = TensorProto()
        tensor.CopyFrom(held)
        tensor.name = name
        self.proto.initializer.append(tensor)
        self.proto.node.remove(node)
        del self._producers[name]
        self._indexed = [len(self.proto.input), len(self.proto.initializer), len(self.proto.node)]
        return True

    def arrange(self, nodes: Iterable[NodeProto]) -> None:
        """Keep only these nodes of the graph, in this order."""
        kept = list(nodes)
        del self.proto.node[:]
        self.proto.node.extend(kept)
        self._producers.clear()
        self._producers.update((name, node) for node in self.proto.node for name in node.output if name)
        self._indexed[2] = len(self.proto.node)

    def replace(self, node: NodeProto, start: int) -> None:
        """Put the nodes from number ``start`` on, which make the outputs of ``node``, in its place."""
        nodes = self.proto.node
        made = list(nodes[start:])
        place = next(k for k, other in enumerate(nodes) if set(other.output) & set(node.output))
        del nodes[start:]
        del nodes[place]
        for k, new in enumerate(made, start=place):
            nodes.insert(k, new)
            self._producers.update((name, nodes[k]) for name in new.output if name)
        self._indexed[2] = len(nodes)

    # -- keeping the index in step with the model

    def sync(self) -> None:
        """Index what was appended to ``model`` since the last call; costs nothing when nothing was."""
        graph = self.proto
        counts = [len(graph.input), len(graph.initializer), len(graph.node)]
        if counts == self._indexed:
            return
        if any(now < before for now, before in zip(counts, self._indexed)):
            self._indexed = [0, 0, 0]
            self._producers.clear()
        inputs, initializers, nodes = self._indexed
        self._indexed = counts
        for value in graph.input[inputs:]:
            self._names.take([value.name])
            self._types.setdefault(value.name, value.type)
        for tensor in graph.initializer[initializers:]:
            self._index_initializer(tensor)
        for node in graph.node[nodes:]:
            self._index_node(node)

    def _index_initializer(self, tensor: TensorProto) -> None:
        self._names.take([tensor.name])
        self._types.setdefault(tensor.name, helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        count = int(np.prod(tensor.dims, dtype=np.int64))
        if tensor.data_location != TensorProto.EXTERNAL and tensor.data_type != TensorProto.STRING and count <= LARGEST:
            self._constants[tensor.name] = numpy_helper.to_array(tensor)
            self._constant_protos[tensor.name] = tensor

    def _index_node(self, node: NodeProto) -> None:
        outputs = [name for name in node.output if name]
        self._names.take([node.name, *outputs, *inner_names(node)])
        for name in outputs:
            self._producers[name] = node
        late = (bool(self._late) and not self._late.isdisjoint(reads(node))) or self._is_now_certain(node)
        late = late or (bool(node.domain) and any(map(self._is_declared_without_rank, outputs)))
        if late or any(name not in self._types for name in outputs) or node.op_type == "Loop":
            before = [self._types.get(name) for name in outputs]
            schema = find_schema(node.op_type, self._version(node.domain), node.domain)
            if schema is not None:
                self._infer(node, schema, strict=False)
            else:
                self._infer_foreign(node)
            if late or schema is None:
                self._late.update(n for n, t in zip(outputs, before, strict=True) if self._types.get(n) != t)
        if len(outputs) == 1 and not node.domain:
            self._know(node)

    def _is_now_certain(self, node: NodeProto) -> bool:
        """Whether a size that ONNX left open depends on a number that was computed since, such as a bound of Slice."""
        computed = any(
            n in self._constants and self._producers[n].op_type != "Constant"
            for n in node.input
            if n in self._producers
        )
        return computed and any(
            known is None or not known.is_static for known in map(self.tensor_type, filter(None, node.output))
        )

    def _is_declared_without_rank(self, name: str) -> bool:
        known = self.tensor_type(name)
        return known is not None and known.shape is None

    def _know(self, node: NodeProto) -> None:
        """Follow small integers through the node."""
        if node.op_type == "Constant":
            known = constant_node_value(node)
        else:
            attributes = {
                a.name: helper.get_attribute_value(a) for a in node.attribute if a.type != AttributeProto.GRAPH
            }
            known = self._fold(node.op_type, node.input, attributes)
        if known is not None and known.size <= LARGEST:
            self._remember(node.output[0], known)

    def _remember(self, name: str, array: npt.NDArray[Any]) -> None:
        self._constants[name] = array
        self._constant_protos[name] = numpy_helper.from_array(np.asarray(array), name)

    # -- inside add

    def _version(self, domain: str) -> int:
        if domain in ("", "ai.onnx"):
            return self.opset
        return next((o.version for o in self.model.opset_import if o.domain == domain), 1)

    def _fold(self, op_type: str, inputs: Iterable[str], attributes: dict[str, Any]) -> npt.NDArray[Any] | None:
        names = list(inputs)
        if op_type in ("Shape", "Size"):
            return fold_shape(op_type, self.tensor_type(names[0]), attributes)
        known = [self._constants.get(name) if name else None for name in names]
        if not names or any(name and array is None for name, array in zip(names, known)):
            return None
        return fold(op_type, known, attributes)

    def _operands(self, schema: OpSchema, ordered: Sequence[Operand]) -> list[str]:
        """The names of the inputs; numbers become constants of the type that the operator wants there."""
        types = input_types(schema)
        formals = [types[min(k, len(types) - 1)] for k in range(len(ordered))]
        bound: dict[str, int] = {}
        first: int | None = None
        for formal, operand in zip(formals, ordered):
            dtype = self._strong_dtype(operand)
            if dtype is not None:
                bound.setdefault(formal, dtype)
                first = dtype if first is None else first
        names = []
        for formal, operand in zip(formals, ordered):
            content: Any = self._literals.get(operand, operand) if isinstance(operand, str) else operand
            if content is None:
                names.append("")
            elif isinstance(content, str):
                names.append(content if content in self else self.value(content))
            elif isinstance(content, np.ndarray):
                names.append(str(self.constant(content)))
            else:
                names.append(str(self.constant(content, literal_dtype(schema, formal, content, bound, first))))
        return names

    def _strong_dtype(self, operand: Operand) -> int | None:
        if isinstance(operand, np.ndarray):
            return onnx_dtype(operand.dtype)
        if isinstance(operand, str) and operand not in self._literals:
            known = self.tensor_type(operand)
            return None if known is None else known.dtype
        return None

    def _infer(self, node: NodeProto, schema: OpSchema, strict: bool, only: str | None = None) -> None:
        if not node.domain and len(node.output) == 1:
            operands = [(name, self.tensor_type(name)) for name in node.input]
            plain = operand_with_output_type(node.op_type, [known for _, known in operands])
            if plain is not None and operands[plain][0] in self._types:
                source, known = operands[plain]
                self._types[node.output[0]], self._tensor_types[node.output[0]] = self._types[source], known
                return
        try:
            found = infer_node(schema, node, self._types, self._constant_protos, self.model.opset_import)
        except (InferenceError, ValidationError, RuntimeError, ValueError) as error:
            if not strict or any(name and name not in self._types for name in node.input):
                self._take_fixed_types(node, schema)
                return
            raise BlockBuildError(
                f"{node.op_type} (opset {self.opset}) cannot take {self.describe(node.input)}: {_reason(error)}"
            ) from None
        if node.op_type == "Loop":
            found |= loop_output_types(self, node)
        if wrongly_inferred(node, self._types):
            found = {name: rightly_inferred(node, self._types, type_) for name, type_ in found.items()}
        for name, type_ in found.items():
            if type_.WhichOneof("value") is not None and (only is None or name == only):
                self.set_type(name, type_)
        if len(found) < len(node.output):
            self._take_fixed_types(node, schema)

    def _take_fixed_types(self, node: NodeProto, schema: OpSchema) -> None:
        """Element types of outputs that do not depend on the inputs, such as that of Shape."""
        for name, formal in zip(node.output, schema.outputs):
            dtypes = allowed_dtypes(schema, formal.type_str)
            if name and name not in self._types and len(dtypes) == 1:
                self.set_type(name, TensorType(next(iter(dtypes)), None))

    def _infer_foreign(self, node: NodeProto) -> None:
        """Types of an operator that ONNX does not know: from its decomposition, else as the model declares them.

        Of declared shapes only the rank counts; exporters leave stale sizes there.
        """
        from .decomposition import infer_by_decomposition

        types = infer_by_decomposition(self, node)
        for name in node.output:
            known = tensor_type(self._declared.get(name))
            if name in types:
                self.set_type(name, types[name])
            elif name and name not in self._types and known is not None:
                unsized = None if known.shape is None else (None,) * len(known.shape)
                self.set_type(name, TensorType(known.dtype, unsized))

    def describe(self, names: Iterable[str]) -> str:
        """``'x' float32[2, 3], 'w' float32[4, 5]`` for messages."""
        return ", ".join(f"{str(n)!r} {self.tensor_type(n) or 'of unknown type'}" if n else "nothing" for n in names)

    # -- finishing

    def is_differentiable(self, name: str) -> bool:
        """Whether a value can carry a gradient: float tensors, sequences of them, and values of unknown type."""
        dtype = innermost_dtype(self.type_proto(name))
        return dtype is None or dtype in FLOATS

    def carries_gradient(self, name: str) -> bool:
        """Whether a gradient may pass through a value: also through the quantized form of a float tensor."""
        if self.is_differentiable(name):
            return True
        node = self.producer(name)
        while node is not None and node.op_type in _MOVEMENTS and not node.domain:
            name = node.input[0]
            node = self.producer(name)
        return node is not None and node.op_type in _QUANTIZERS and name == node.output[0]

    def to_model_proto(self) -> ModelProto:
        """A copy of the model with its weights inside."""
        model = ModelProto()
        model.CopyFrom(self.model)
        for tensor in model.graph.initializer:
            if tensor.name in self.weights:
                tensor.CopyFrom(self.weights.tensor(tensor.name))
        return model


def _attribute(schema: OpSchema, name: str, given: Any) -> AttributeProto:
    wanted: Any = schema.attributes[name].type
    kind = OpSchema.AttrType
    try:
        if wanted == kind.FLOAT:
            given = float(given)
        elif wanted == kind.INT:
            given = int(given)
        elif wanted == kind.FLOATS:
            given = [float(x) for x in given]
        elif wanted == kind.INTS:
            given = [int(x) for x in given]
        elif wanted == kind.TENSOR and isinstance(given, (np.ndarray, np.generic)):
            given = numpy_helper.from_array(np.asarray(given), name)
        made = helper.make_attribute(name, given, attr_type=int(wanted.value))
    except (TypeError, ValueError) as error:
        raise BlockBuildError(f"{schema.name}: attribute {name}={given!r} does not fit: {error}") from None
    return made


def _reason(error: Exception) -> str:
    text = str(error)
    return text.rsplit("] ", 1)[-1].strip() or type(error).__name__
