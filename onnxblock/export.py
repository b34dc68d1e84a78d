"""The user's own model with trained parameters in it, for inference."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from . import names
from .errors import FeedError, InvalidModelError, UnknownNameError, did_you_mean
from .graph.dependencies import all_nodes, needed_nodes, subgraphs
from .graph.function_weights import function_weights
from .graph.inner_weights import inner_weights
from .graph.load import load
from .graph.outputs import choose_outputs
from .graph.passes.prune import prune
from .graph.storage import element_bits
from .graph.store import write
from .graph.types import dtype_name, onnx_dtype
from .graph.weights import Weights, constant_tensor, is_stub, stub

_WITHOUT_NUMPY_NAME = ("BFLOAT16", "FLOAT8")
_LARGEST_CARRIED = 16 << 20
"""Bytes of a graph that another model's metadata may carry; only bodies with large weights have more."""


def export_for_inference(
    model: ModelProto | str | os.PathLike[str],
    parameters: Mapping[str, npt.NDArray[Any]],
    path: str | os.PathLike[str],
    outputs: Sequence[str] | None = None,
) -> None:
    """Write the model that was trained, as it was brought, with new values for its parameters.

    Opset, operators and names are those of ``model``: nothing is raised, decomposed or fused.  Only training behaviour
    is switched off: BatchNormalization uses its running statistics and Dropout passes its input through.  What no
    output needs is left out.  Weights are streamed; from 1,800 MiB on they go to ``<path>.data``.

    Args:
        model: the forward model, or its path, which may be ``path`` itself.
        parameters: new values by name, with the element type and shape that the model has.  A name is that of an
            initializer or of the output of a ``Constant`` node (in a body, with the path to it where the name alone
            is not unique); parameters that are not given keep their values.
        path: the ``.onnx`` file to write.
        outputs: the values, intermediate ones too, to be the outputs instead of the model's own.  Inputs that they do
            not depend on are left out.

    Raises:
        InvalidModelError: the model cannot be read, or reads batch statistics that only training computes.
        UnknownNameError: names of parameters or outputs that the model does not have (all of them are listed).
        FeedError: arrays of another element type or shape than the parameter (all of them are listed).
        OnnxBlockError: no output is named, or one twice; the file cannot be written.
    """
    light, weights = load(model, lift_constants=False)
    write_for_inference(light, weights, parameters, path, outputs)


def write_for_inference(
    model: ModelProto,
    weights: Weights,
    parameters: Mapping[str, npt.NDArray[Any]],
    path: str | os.PathLike[str],
    outputs: Sequence[str] | None = None,
) -> None:
    """:func:`export_for_inference` for a light model, which is changed, and its weights."""
    _replace_parameters(model, weights, parameters)
    _switch_off_training(model)
    if outputs is not None:
        choose_outputs(model, outputs)
    prune(model)
    write(model, weights, path)


# ------------------------------------------------------------------------------------------------ carried models


def pack_forward_model(model: ModelProto) -> str | None:
    """A light model as text for the metadata of another; None where its bodies hold too much data for that."""
    packed = ModelProto()
    packed.CopyFrom(model)
    own = (names.MANIFEST_KEY, names.FORWARD_MODEL_KEY)
    kept = [entry for entry in packed.metadata_props if entry.key not in own]
    del packed.metadata_props[:]
    packed.metadata_props.extend(kept)
    if packed.ByteSize() > _LARGEST_CARRIED:
        return None
    return base64.b64encode(zlib.compress(packed.SerializeToString(deterministic=True), 9)).decode("ascii")


def unpack_forward_model(model: ModelProto) -> ModelProto | None:
    """The light model that the metadata of ``model`` carries, if any.

    Raises:
        InvalidModelError: what it carries is damaged.
    """
    text = next((entry.value for entry in model.metadata_props if entry.key == names.FORWARD_MODEL_KEY), None)
    if text is None:
        return None
    carried = ModelProto()
    try:
        carried.ParseFromString(zlib.decompress(base64.b64decode(text, validate=True)))
    except (ValueError, zlib.error, DecodeError) as error:
        raise InvalidModelError(
            f"the metadata {names.FORWARD_MODEL_KEY!r} of the model is damaged: {error}.",
            "Generate the artifacts again.",
        ) from error
    return carried


def can_give(model: ModelProto, weights: Weights, parameters: Collection[str], outputs: Iterable[str]) -> bool:
    """Whether a light model has these parameters and outputs, and the data of all that the outputs depend on."""
    graph = model.graph
    if not _holders(model).keys() >= set(parameters):
        return False
    wanted = list(outputs)
    known = {name for node in graph.node for name in node.output if name}
    known |= {value.name for value in (*graph.input, *graph.output)}
    if not known.issuperset(wanted):
        return False
    _, needed = needed_nodes(graph.node, wanted)
    stubs = {tensor.name for tensor in graph.initializer if tensor.name in needed and is_stub(tensor)}
    return all(name in parameters or name in weights for name in stubs)


# ------------------------------------------------------------------------------------------------------ parameters


def _replace_parameters(model: ModelProto, weights: Weights, parameters: Mapping[str, npt.NDArray[Any]]) -> None:
    holders = _holders(model)
    unknown = [name for name in parameters if name not in holders]
    if unknown:
        raise UnknownNameError(
            "the model has no parameter " + ", ".join(f"{n!r}.{did_you_mean(n, holders)}" for n in unknown),
            "Give only parameters of the model itself, not those that a loss or another block has added.",
        )
    arrays = {name: np.asarray(array) for name, array in parameters.items()}
    problems = [problem for name, array in arrays.items() if (problem := _misfit(holders[name], name, array))]
    if problems:
        raise FeedError("new values do not fit the parameters:" + "".join(f"\n  {problem}" for problem in problems))
    initializers = {tensor.name for tensor in model.graph.initializer}
    for name, array in arrays.items():
        tensor = holders[name]
        if name in initializers:
            if name in weights:
                weights.remove(name)
            weights.add_array(name, array, tensor.data_type)
            tensor.CopyFrom(stub(tensor))
        else:
            made = Weights()
            made.add_array(tensor.name, array, tensor.data_type)
            tensor.CopyFrom(made.tensor(tensor.name))


def _holders(model: ModelProto) -> dict[str, TensorProto]:
    """The tensors that may be replaced, by name; those of bodies and functions as they are called outside."""
    graph = model.graph
    for node in graph.node:
        _hold_tensor(node)
    held = {node.output[0]: tensor for node in graph.node if (tensor := constant_tensor(node)) is not None}
    held |= {tensor.name: tensor for tensor in graph.initializer}
    inner = {weight.name: weight.tensor for weight in (*inner_weights(graph), *function_weights(model))}
    return inner | held


def _hold_tensor(node: NodeProto) -> None:
    """Let a Constant that holds floats in another attribute hold a tensor of the same content."""
    for attribute in node.attribute:
        if node.op_type == "Constant" and not node.domain and attribute.name in ("value_float", "value_floats"):
            content = np.array(helper.get_attribute_value(attribute), np.float32)
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(content)))


def _misfit(tensor: TensorProto, name: str, array: npt.NDArray[Any]) -> str | None:
    if array.shape == tuple(tensor.dims) and _same_element_type(tensor.data_type, array.dtype):
        return None
    wanted = f"{dtype_name(tensor.data_type)}{list(tensor.dims)}"
    return f"parameter {name!r} is {wanted}, but the array is {array.dtype}{list(array.shape)}."


def _same_element_type(dtype: int, given: np.dtype[Any]) -> bool:
    """Whether arrays of ``given`` hold elements of this type; unsigned integers may hold those that NumPy lacks."""
    try:
        if onnx_dtype(given.newbyteorder("=")) == dtype:
            return True
    except (KeyError, ValueError):
        return False
    lent = TensorProto.DataType.Name(dtype).startswith(_WITHOUT_NUMPY_NAME)
    return lent and given == np.dtype(f"u{element_bits(dtype) // 8}")


# ---------------------------------------------------------------------------------------- training behaviour


def _switch_off_training(model: ModelProto) -> None:
    holders: list[GraphProto | FunctionProto] = list(_all_graphs(model.graph))
    for function in model.functions:
        holders.append(function)
        holders += [body for node in function.node for outer in subgraphs(node) for body in _all_graphs(outer)]
    read = {name for holder in holders for node in all_nodes(holder.node) for name in node.input}
    read |= {_name(value) for holder in holders for value in holder.output}
    for holder in holders:
        given = set(map(_name, holder.input))
        if isinstance(holder, GraphProto):
            given -= {tensor.name for tensor in holder.initializer}
        nodes: list[NodeProto] = []
        for node in holder.node:
            nodes.append(node)
            if node.domain not in {"", "ai.onnx"}:
                continue
            if node.op_type == "BatchNormalization":
                nodes.extend(_batch_norm_to_inference(node, read))
            elif node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] not in given:
                del node.input[2:]
        if len(nodes) > len(holder.node):
            del holder.node[:]
            holder.node.extend(nodes)


def _name(value: ValueInfoProto | str) -> str:
    """The name of an input or output: functions list names only."""
    return value if isinstance(value, str) else value.name


def _batch_norm_to_inference(node: NodeProto, read: set[str]) -> Iterator[NodeProto]:
    """Put a BatchNormalization of any opset into its inference form; the statistics that are read do not move."""
    for attribute in node.attribute:
        if attribute.name == "training_mode":
            attribute.i = 0
    dropped = [(i, name) for i, name in enumerate(node.output) if i and name in read]
    if any(i > 2 for i, _ in dropped):
        raise InvalidModelError(
            f"node {node.name!r} (BatchNormalization): its saved mean or variance, which only training computes, is"
            " read.",
            "Export the forward model for inference, or with opset 14 or later.",
        )
    del node.output[1:]
    for i, name in dropped:
        yield helper.make_node("Identity", [node.input[2 + i]], [name], name)


def _all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in subgraphs(node):
            yield from _all_graphs(body)
