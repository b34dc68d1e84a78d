"""Weights inside model-local functions: the tensors of Constant nodes, and what the bodies of their nodes hold.

A function has no weights of its own in ONNX, so one that is to be trained becomes an input of its function, and every
call gives it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper

from ..names import OWN_DOMAIN
from .dependencies import all_nodes, inner_names
from .inner_weights import InnerWeight, carry_notes, in_constants, lifted
from .naming import Names
from .types import FLOATS
from .weights import Weights

Key = tuple[str, str, str]


def function_weights(model: ModelProto) -> list[InnerWeight]:
    """The float tensors in the functions that the graph of ``model`` calls, directly or through other functions.

    Each is called after its function, such as ``Linear.weight``, with the nodes and attributes in between if it lies
    in a body (``Linear.If_3.then_branch.weight``), and with a number where something else has that name.  A function
    that is called several times has it once: its calls share the weight, as they share the function.
    """
    return [weight for _, weight in _with_functions(model)]


def lift_function_weights(model: ModelProto, weights: Weights, is_weight: Callable[[TensorProto], bool]) -> None:
    """Make the weights of functions initializers of the main graph, in place; large ones are held by ``weights``."""
    model.graph.initializer.extend(weights.take(tensor) for tensor in _pass_to_functions(model, is_weight))


def lift_function_constants(model: ModelProto) -> dict[str, TensorProto]:
    """Make the float Constant nodes of functions nodes of the main graph, in place; returns their tensors by name."""
    moved = _pass_to_functions(model, lambda _: True)
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in moved]
    if nodes:
        nodes += model.graph.node
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    return {tensor.name: tensor for tensor in moved}


def _pass_to_functions(model: ModelProto, wanted: Callable[[TensorProto], bool]) -> list[TensorProto]:
    """Take weights out of their functions, which get them as inputs, and give them to every call."""
    functions = _called_functions(model)
    chosen = [(key, weight) for key, weight in _with_functions(model) if wanted(weight.tensor)]
    if not chosen:
        return []
    needed: dict[Key, list[str]] = defaultdict(list)
    for key, weight in chosen:
        needed[key].append(weight.name)
    calls = {key: [n for n in all_nodes(f.node) if _key(n) in functions] for key, f in functions.items()}
    for key in _callees_first(functions, calls):
        for call in calls[key]:
            needed[key] += [name for name in needed[_key(call)] if name not in needed[key]]
    counts = {key: len(function.input) for key, function in functions.items()}
    for call in (*all_nodes(model.graph.node), *(node for nodes in calls.values() for node in nodes)):
        names = needed.get(_key(call))
        if names:
            call.input.extend([""] * (counts[_key(call)] - len(call.input)))
            call.input.extend(names)
    for _, weight in chosen:
        carry_notes(weight, model.graph)
    tensors = [lifted(weight) for _, weight in chosen]
    for key, function in functions.items():
        function.input.extend(needed[key])
    return tensors


def _with_functions(model: ModelProto) -> list[tuple[Key, InnerWeight]]:
    names, found = Names(), []
    names.take(_names(model))
    for key, function in _called_functions(model).items():
        for path, weight in in_constants(function, function.name):
            if weight.tensor.data_type not in FLOATS or function.domain == OWN_DOMAIN:
                continue
            name = names.unique(f"{path}.{weight.own_name}")
            found.append((key, InnerWeight(name, weight.own_name, weight.tensor, weight.body, weight.node)))
    return found


def _key(holder: NodeProto | FunctionProto) -> Key:
    name = holder.name if isinstance(holder, FunctionProto) else holder.op_type
    return holder.domain, name, holder.overload


def _called_functions(model: ModelProto) -> dict[Key, FunctionProto]:
    """The functions that the graph calls, directly or not, in the order of the model."""
    functions = {_key(function): function for function in model.functions}
    called: set[Key] = set()
    pending = list(all_nodes(model.graph.node)) if functions else []
    while pending:
        key = _key(pending.pop())
        if key in functions and key not in called:
            called.add(key)
            pending += all_nodes(functions[key].node)
    return {key: function for key, function in functions.items() if key in called}


def _callees_first(functions: Iterable[Key], calls: dict[Key, list[NodeProto]]) -> list[Key]:
    ordered: dict[Key, None] = {}
    entered: set[Key] = set()
    for start in functions:
        pending = [(start, False)]
        while pending:
            key, ready = pending.pop()
            if ready:
                ordered[key] = None
            elif key not in entered:
                entered.add(key)
                pending.append((key, True))
                pending += [(_key(call), False) for call in calls[key]]
    return list(ordered)


def _names(model: ModelProto) -> Iterator[str]:
    """Every name of a value, in the graph, its bodies and the functions."""
    yield from (value.name for value in model.graph.input)
    yield from (tensor.name for tensor in model.graph.initializer)
    yield from (name for function in model.functions for name in function.input)
    for holder in (model.graph, *model.functions):
        for node in holder.node:
            yield from node.output
            yield from inner_names(node)
