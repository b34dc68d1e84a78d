"""Raising a model to the opset that the engine works at, with every name kept."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from itertools import repeat

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, inliner

from ..errors import InvalidModelError
from ..names import OWN_DOMAIN
from .dependencies import all_nodes, subgraphs
from .function_weights import lift_function_constants
from .inference import stand_in_for_label_encoders
from .naming import Names
from .schemas import NEWEST_OPSET
from .types import TensorType, tensor_type
from .upgrade_forms import CHANGED_LATER, FORMS, OldNode
from .weights import constant_tensor, is_stub

OLDEST_OPSET = 7
_MINIMUM_IR = 8
_DEFAULT_DOMAIN = "ai.onnx"
_RUNTIME_DOMAIN = "com.microsoft"


def raise_opset(model: ModelProto, minimum: int = 18) -> ModelProto:
    """A copy of a model at opset ``minimum``, or at its own if that is higher, that computes the same.

    Model-local functions are inlined, and initializers that are graph inputs too, as they had to be before IR 4, are
    only initializers afterwards (:func:`overridable_inputs` tells which those are).  Nodes, values and initializers
    keep their names; stubs stay stubs; nodes of other domains stay as they are, as do their opsets.

    Args:
        model: a model of opset 7 or later, as :func:`~onnxblock.graph.weights.detach` gives it; not modified.
        minimum: the opset to raise to, at most 18.

    Raises:
        InvalidModelError: an opset below 7 or above what the installed onnx knows, or a node that means something no
            newer opset can say; every such node is named.
    """
    raised = ModelProto()
    raised.CopyFrom(model)
    _use_one_default_domain(raised)
    _import_domains(raised)
    opset = _opset(raised)
    if opset < OLDEST_OPSET:
        raise InvalidModelError(
            f"the model uses opset {opset}, which is too old: opset {OLDEST_OPSET} is the first that can be raised.",
            f"Convert it: onnx.version_converter.convert_version(model, {OLDEST_OPSET}).",
        )
    if opset > NEWEST_OPSET:
        raise InvalidModelError(
            f"the model uses opset {opset}, but onnx {onnx.__version__} knows only up to {NEWEST_OPSET}.",
            "Install a newer onnx: pip install -U onnx.",
        )
    _initializers_win(raised)
    raised = _inline_functions(raised)
    _raise_graph(raised, minimum)
    raised.ir_version = max(raised.ir_version, _MINIMUM_IR)
    return raised


def overridable_inputs(model: ModelProto) -> list[str]:
    """Names of the graph inputs that have an initializer: weights of old models, defaults of newer ones."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name in initializers]


def _initializers_win(model: ModelProto) -> None:
    twice = set(overridable_inputs(model))
    kept = [value for value in model.graph.input if value.name not in twice]
    del model.graph.input[:]
    model.graph.input.extend(kept)


# ------------------------------------------------------------------------------------------------ opsets and domains


def _opset(holder: ModelProto | FunctionProto) -> int:
    """The version of the default operator set; 0 when none is imported."""
    return next((entry.version for entry in holder.opset_import if not entry.domain), 0)


def _set_opset(holder: ModelProto | FunctionProto, opset: int) -> None:
    for entry in holder.opset_import:
        if not entry.domain:
            entry.version = opset


def _use_one_default_domain(model: ModelProto) -> None:
    """Spell the default domain in one way: ``ai.onnx`` is another name for the empty one."""
    for holder in (model, *model.functions):
        for entry in holder.opset_import:
            if entry.domain == _DEFAULT_DOMAIN:
                entry.domain = ""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in all_nodes(nodes):
            if node.domain == _DEFAULT_DOMAIN:
                node.domain = ""


def _import_domains(model: ModelProto) -> None:
    """Import onnxruntime's own operators where they are used, since some optimizers forget it; refuse other gaps."""
    imported = {entry.domain for entry in model.opset_import} | {function.domain for function in model.functions}
    nodes = [node for node in all_nodes(model.graph.node) if node.domain not in imported and node.domain]
    if any(node.domain == _RUNTIME_DOMAIN for node in nodes):
        model.opset_import.append(onnx.helper.make_opsetid(_RUNTIME_DOMAIN, 1))
    others = [f"{_described(node)}, of domain {node.domain!r}" for node in nodes if node.domain != _RUNTIME_DOMAIN]
    if others:
        raise InvalidModelError(
            "the model does not say which opset these operators are from:"
            + "".join(f"\n  {other}" for other in others),
            "Add it: model.opset_import.append(onnx.helper.make_opsetid(domain, version)).",
        )


# ------------------------------------------------------------------------------------------------------- functions


def _inline_functions(model: ModelProto) -> ModelProto:
    """The model with the bodies of its functions in place of their calls.

    Functions of our own domain stay, since they carry gradients.  The inliner passes over functions whose opsets are
    not those of the model, so these are made equal first, and it does not import what the bodies need.  Float
    constants of a function, which its calls share, are moved out of it before they would be copied.
    """
    if not model.functions:
        return model
    constants = lift_function_constants(model)
    opset = max(_opset(model), *(_opset(function) for function in model.functions))
    for function in model.functions:
        if 0 < _opset(function) < opset:
            _raise_function(function, opset, constants)
    if _opset(model) < opset:
        _raise_graph(model, opset)
    versions: dict[str, int] = {}
    for holder in (model, *model.functions):
        for entry in holder.opset_import:
            versions[entry.domain] = max(entry.version, versions.get(entry.domain, 0))
    for holder in (model, *model.functions):
        for entry in holder.opset_import:
            entry.version = versions[entry.domain]
    called = {function.domain for function in model.functions}
    own = [(f.domain, f.name) for f in model.functions if f.domain == OWN_DOMAIN]
    inlined = inliner.inline_selected_functions(model, own, exclude=True)
    domains = {node.domain for node in all_nodes(inlined.graph.node)}
    imported = {entry.domain for entry in inlined.opset_import}
    kept = [e for e in inlined.opset_import if not e.domain or e.domain in domains or e.domain not in called]
    kept += [onnx.helper.make_opsetid(d, versions[d]) for d in sorted(domains - imported) if d in versions]
    del inlined.opset_import[:]
    inlined.opset_import.extend(kept)
    return inlined


# --------------------------------------------------------------------------------------------------------- raising


@dataclass(frozen=True)
class _Scope:
    """What holds for all nodes of a graph."""

    opset: int
    target: int
    types: MutableMapping[str, TensorType]
    names: Names
    used: frozenset[str]
    constants: MutableMapping[str, TensorProto]
    problems: list[str]


def _raise_graph(model: ModelProto, target: int) -> None:
    opset = _opset(model)
    if opset >= target:
        return
    names, used = _names_in(model.graph)
    scope = _Scope(opset, target, {}, names, used, {}, [])
    _raise_body(model.graph, _infer(model), scope)
    _raise_problems(scope)
    _set_opset(model, target)


def _raise_function(function: FunctionProto, target: int, constants: Mapping[str, TensorProto]) -> None:
    """Raise the body of a function, where types are not known; ``constants`` are inputs that every call gives."""
    body = GraphProto(node=function.node)
    names, used = _names_in(body)
    names.take([*function.input, *function.output])
    scope = _Scope(_opset(function), target, {}, names, used | set(function.output), dict(constants), [])
    _raise_body(body, None, scope)
    _raise_problems(scope)
    del function.node[:]
    function.node.extend(body.node)
    _set_opset(function, target)


def _raise_problems(scope: _Scope) -> None:
    if scope.problems:
        raise InvalidModelError(
            f"the model cannot be raised from opset {scope.opset} to {scope.target}:"
            + "".join(f"\n  {problem}" for problem in scope.problems),
            f"Export the model again with opset {scope.target} or later.",
        )


def _raise_body(graph: GraphProto, inferred: GraphProto | None, outer: _Scope) -> None:
    """Raise the nodes of ``graph``; ``inferred`` is the same graph, with the types that inference found."""
    scope = replace(outer, types=ChainMap({}, outer.types), constants=ChainMap({}, outer.constants))
    for value in () if inferred is None else (*inferred.input, *inferred.value_info, *inferred.output):
        if (known := tensor_type(value.type)) is not None:
            scope.types[value.name] = known
    fixed = {value.name for value in graph.input}
    for tensor in graph.initializer:
        scope.types[tensor.name] = TensorType(tensor.data_type, tuple(tensor.dims))
        if not is_stub(tensor) and tensor.name not in fixed:
            scope.constants[tensor.name] = tensor
    raised: list[NodeProto] = []
    for i, node in enumerate(graph.node):
        tensor = constant_tensor(node)
        if tensor is not None:
            scope.constants[node.output[0]] = tensor
        twins = repeat(None) if inferred is None else subgraphs(inferred.node[i])
        for body, twin in zip(subgraphs(node), twins, strict=False):
            _raise_body(body, twin, scope)
        raised.extend(_raise_node(node, scope.opset, scope))
    del graph.node[:]
    graph.node.extend(raised)


def _raise_node(node: NodeProto, opset: int, scope: _Scope) -> list[NodeProto]:
    """The nodes, at the target opset, that compute what ``node`` does at ``opset``."""
    if node.domain:
        return [node]
    if opset < CHANGED_LATER.get(node.op_type, 0) <= scope.target:
        scope.problems.append(f"{_described(node)}: it changed at opset {CHANGED_LATER[node.op_type]}.")
        return [node]
    steps = [step for step in sorted(FORMS.get(node.op_type, ())) if opset < step <= scope.target]
    if not steps:
        return [node]
    old = OldNode(node, scope.types, scope.names, scope.used, scope.constants)
    FORMS[node.op_type][steps[0]](old)
    if old.problem:
        scope.problems.append(f"{_described(node)}: {old.problem}")
        return [node]
    return [new for n in (*old.before, node, *old.after) for new in _raise_node(n, steps[0], scope)]


def _described(node: NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type}, outputs {', '.join(node.output)})"


def _names_in(graph: GraphProto) -> tuple[Names, frozenset[str]]:
    """Every name of ``graph`` and its bodies, and the values that are read."""
    names = Names()
    used: set[str] = set()
    graphs = [graph]
    while graphs:
        body = graphs.pop()
        names.take(value.name for value in (*body.input, *body.output, *body.initializer, *body.value_info))
        used.update(value.name for value in body.output)
        for node in body.node:
            names.take([node.name, *node.input, *node.output])
            used.update(node.input)
            graphs.extend(subgraphs(node))
    return names, frozenset(used - {""})


def _infer(model: ModelProto) -> GraphProto | None:
    """The graph with the types that inference finds, those of bodies included; None where inference fails."""
    for trusting in (True, False):
        given = ModelProto()
        given.CopyFrom(model)
        if not trusting:
            del given.graph.value_info[:]
        stand_in_for_label_encoders(given)
        try:
            return onnx.shape_inference.infer_shapes(given, data_prop=True).graph
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
            continue
    return None
