"""Reverse mode over a graph: walk the nodes backwards, ask each operator's rule, add up what meets."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from onnx import NodeProto

from ..errors import OnnxBlockError, UnsupportedOperatorError
from ..graph.arithmetic import cast_like, sum_to, with_shape_of
from ..graph.dependencies import captured as captured_by
from ..graph.dependencies import needed_nodes, reads, subgraphs
from ..graph.graph import Graph
from ..graph.sequences import sum_of
from ..graph.types import FLOATS
from ..graph.value import Value
from . import registry
from .functions import expand, passing_nodes
from .registry import Cotangents, NoGradient, Rule, RuleResult
from .rule import RuleContext


def backward(graph: Graph, cotangents: Mapping[str, Value], wrt: Sequence[str]) -> dict[str, Value]:
    """Append the nodes that compute a vector-Jacobian product and return the gradient of each of ``wrt``.

    ``cotangents`` maps output values to their cotangents.  A value of ``wrt`` on which no output depends is left out of
    the result.  Every gradient has the element type and shape of its value.

    Raises :class:`UnsupportedOperatorError` that lists every node without a rule between the outputs and ``wrt``.
    """
    refused = expand(graph, wrt, cotangents)
    nodes = passing_nodes(graph.proto.node, cotangents)
    live = live_values(graph, nodes, wrt)
    _check_rules(graph, nodes, live, wrt, refused)
    grads: dict[str, Value] = {}
    for name, cotangent in cotangents.items():
        if name in live:
            _accumulate(graph, grads, name, cotangent)
    for node in reversed(nodes):
        entry = registry.find(node.op_type, node.domain)
        outputs = [grads.get(name) if name else None for name in node.output]
        if not isinstance(entry, Rule) or all(d is None for d in outputs) or live.isdisjoint(reads(node)):
            continue
        with graph.scope(f"{node.name or node.output[0]}.grad"):
            _apply(graph, node, entry, outputs, live, grads)
    return {name: grads[name] for name in wrt if name in grads}


def live_values(graph: Graph, nodes: Sequence[NodeProto], wrt: Iterable[str]) -> set[str]:
    """The values that carry a gradient: they depend on ``wrt`` through operators that pass one back."""
    live = set(wrt)
    for node in nodes:
        if live.isdisjoint(reads(node)) or isinstance(registry.find(node.op_type, node.domain), NoGradient):
            continue
        live.update(name for name in node.output if name and graph.carries_gradient(name))
    return live


def without_gradient(graph: Graph, nodes: Iterable[NodeProto], live: set[str]) -> list[NodeProto]:
    """The nodes that a gradient has to pass (they read ``live`` values) and for whose operator nobody wrote a rule."""
    return [
        node
        for node in nodes
        if registry.find(node.op_type, node.domain) is None
        and not live.isdisjoint(reads(node))
        and any(graph.carries_gradient(name) for name in node.output if name)
    ]


def _apply(
    graph: Graph, node: NodeProto, rule: Rule, outputs: Sequence[Value | None], live: set[str], grads: dict[str, Value]
) -> None:
    wanted = [name in live for name in node.input]
    captured = sorted(set().union(*map(captured_by, subgraphs(node))) & live)
    context = RuleContext(graph, node, outputs, wanted, captured)
    try:
        results = _as_cotangents(rule.function(context))
    except OnnxBlockError as error:
        error.args = (
            f"{error.args[0]}\n  In the gradient of {node.op_type} {node.name or node.output[0]!r}, {rule.where}.",
        )
        raise
    for name, wants, d in zip(node.input, wanted, results.inputs):
        if d is not None and wants:
            _accumulate(graph, grads, name, d)
    for name, d in results.captured.items():
        _accumulate(graph, grads, name, d)


def _as_cotangents(result: RuleResult) -> Cotangents:
    if isinstance(result, Cotangents):
        return result
    return Cotangents((result,) if result is None or isinstance(result, Value) else result, {})


def _accumulate(graph: Graph, grads: dict[str, Value], name: str, d: Value) -> None:
    """Make ``d`` fit the value called ``name`` and add it to what is already there."""
    value = graph.value(name)
    if value.dtype in FLOATS and d.dtype != value.dtype:
        d = cast_like(d, value)
    if value.type is not None:
        d = with_shape_of(sum_to(d, value), value)
    grads[name] = d if name not in grads else with_shape_of(sum_of(grads[name], d), value)


def _check_rules(
    graph: Graph, nodes: Sequence[NodeProto], live: set[str], wrt: Sequence[str], refused: Mapping[str, str]
) -> None:
    missing = without_gradient(graph, nodes, live)
    if not missing:
        return
    known = [entry.op_type for entry in registry.entries() if isinstance(entry, Rule)]
    lines = []
    for node in missing:
        behind = sorted(set(wrt) & _ancestors(nodes, node))
        why = refused.get(node.output[0])
        near = [] if why else difflib.get_close_matches(node.op_type, known, 3)
        lines.append(
            f"{node.op_type} (domain {node.domain or 'ai.onnx'}, opset {graph.opset}, "
            f"node {node.name or node.output[0]!r}), behind it {_few(behind)}"
            + (f"; {why}" if why else "")
            + (f"; operators of a similar name: {', '.join(near)}" if near else "")
        )
    raise UnsupportedOperatorError(
        f"{len(missing)} node{'s' if len(missing) > 1 else ''} on the way to the loss "
        f"{'have' if len(missing) > 1 else 'has'} no gradient:\n    " + "\n    ".join(lines),
        f"Write a rule (@onnxblock.gradient({missing[0].op_type!r}"
        + (f", domain={missing[0].domain!r}" if missing[0].domain else "")
        + "), docs/adding-a-gradient.md), or freeze the parameters behind them.",
    )


def _ancestors(nodes: Sequence[NodeProto], node: NodeProto) -> set[str]:
    _, needed = needed_nodes(nodes, node.output)
    return needed


def _few(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(n) for n in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "") or "nothing that is trained"
