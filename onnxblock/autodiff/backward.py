"""Reverse mode over a graph: walk the nodes backwards, ask each operator's rule, add up what meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import NodeProto

from ..errors import OnnxBlockError, RuleError
from ..graph.arithmetic import cast_like, sum_to, with_shape_of
from ..graph.dependencies import captured as captured_by
from ..graph.dependencies import reads, subgraphs
from ..graph.graph import Graph
from ..graph.sequences import sum_of
from ..graph.subgraph import Subgraph
from ..graph.types import FLOATS, Shape, dtype_name, shape_text
from ..graph.value import Value
from . import registry
from .composites import composites
from .functions import expand, passing_nodes
from .registry import Cotangents, Rule, RuleResult
from .rule import RuleContext
from .trace import Trace, key_of
from .unsupported import NoRuleError, live_values, unsupported, without_gradient


def backward(
    graph: Graph, cotangents: Mapping[str, Value], wrt: Sequence[str], trace: Trace | None = None
) -> dict[str, Value]:
    """Append the nodes that compute a vector-Jacobian product and return the gradient of each of ``wrt``.

    ``cotangents`` maps output values to their cotangents.  A value of ``wrt`` on which no output depends is left out of
    the result.  Every gradient has the element type and shape of its value.  ``trace`` is told what happens.

    Raises :class:`UnsupportedOperatorError` that lists every node without a rule between the outputs and ``wrt``, those
    in bodies included.
    """
    try:
        return _sweep(graph, cotangents, wrt, Trace() if trace is None else trace)
    except NoRuleError as error:
        if isinstance(graph, Subgraph):
            raise
        raise unsupported(graph, wrt, cotangents) from error


def _sweep(graph: Graph, cotangents: Mapping[str, Value], wrt: Sequence[str], trace: Trace) -> dict[str, Value]:
    expand(graph, wrt, cotangents)
    trace.begin(graph.proto.node)
    nodes = passing_nodes(graph.proto.node, cotangents)
    live = live_values(graph, nodes, wrt)
    missing = without_gradient(graph, nodes, live)
    if missing:
        raise NoRuleError(f"{missing[0].op_type} has no gradient.")
    trace.groups = composites(graph, nodes, live, [*cotangents, *wrt])
    grads: dict[str, Value] = {}
    for name, cotangent in cotangents.items():
        if name in live:
            _accumulate(graph, grads, name, cotangent)
            trace.arrived(name, grads[name], None)
    for last in reversed(nodes):
        node = trace.groups.get(key_of(last), last)
        entry = registry.find(node.op_type, node.domain)
        outputs = [grads.get(name) if name else None for name in node.output]
        if not isinstance(entry, Rule) or all(d is None for d in outputs) or live.isdisjoint(reads(node)):
            continue
        with graph.scope(f"{node.name or node.output[0]}.grad"):
            for name in _apply(graph, node, entry, outputs, live, grads):
                trace.arrived(name, grads[name], key_of(node))
    return {name: grads[name] for name in wrt if name in grads}


def _apply(
    graph: Graph, node: NodeProto, rule: Rule, outputs: Sequence[Value | None], live: set[str], grads: dict[str, Value]
) -> list[str]:
    """Add to ``grads`` what the rule says; returns the names of the values concerned."""
    wanted = [name in live for name in node.input]
    captured = sorted(set().union(*map(captured_by, subgraphs(node))) & live)
    context = RuleContext(graph, node, outputs, wanted, captured)
    try:
        results = _as_cotangents(rule.function(context))
        _require_fit(graph, node, wanted, results.inputs)
    except NoRuleError:
        raise
    except OnnxBlockError as error:
        error.args = (
            f"{error.args[0]}\n  In the gradient of {node.op_type} {node.name or node.output[0]!r}, {rule.where}.",
        )
        raise
    given = [(name, d) for name, wants, d in zip(node.input, wanted, results.inputs) if d is not None and wants]
    given += results.captured.items()
    for name, d in given:
        _accumulate(graph, grads, name, d)
    return list(dict.fromkeys(name for name, _ in given))


def _as_cotangents(result: RuleResult) -> Cotangents:
    if isinstance(result, Cotangents):
        return result
    if result is None or isinstance(result, Value):
        return Cotangents((result,), {})
    if isinstance(result, list | tuple) and all(d is None or isinstance(d, Value) for d in result):
        return Cotangents(result, {})
    raise RuleError(
        f"a rule returns {result!r}, which is neither a value, nor None, nor a sequence of these.",
        "Return the cotangent of each input, None where it has none.",
    )


def _require_fit(graph: Graph, node: NodeProto, wanted: Sequence[bool], cotangents: Sequence[Value | None]) -> None:
    """Raise :class:`RuleError` for cotangents of integers, or of a shape that cannot be summed to that of the input."""
    problems = []
    for name, wants, d in zip(node.input, wanted, cotangents):
        if d is None or not wants:
            continue
        x = graph.value(name)
        if d.dtype is not None and d.dtype not in FLOATS and x.dtype in FLOATS:
            problems.append(f"the cotangent of {name!r} is {dtype_name(d.dtype)}")
        elif _misfits(d.shape, x.shape):
            problems.append(f"the cotangent of {name!r}, {shape_text(x.shape)}, has shape {shape_text(d.shape)}")
    if problems:
        raise RuleError(
            "a rule returns what does not fit:" + "".join(f"\n    {problem}" for problem in problems),
            "Return for each input a cotangent of its shape, or of one that it was broadcast to.",
        )


def _misfits(wide: Shape, narrow: Shape) -> bool:
    """Whether a cotangent of shape ``wide`` cannot be summed to ``narrow``, as far as sizes are known."""
    if wide is None or narrow is None:
        return False
    pairs = zip(reversed(wide), reversed(narrow))
    return any(isinstance(w, int) and isinstance(n, int) and n not in (w, 1) for w, n in pairs)


def _accumulate(graph: Graph, grads: dict[str, Value], name: str, d: Value) -> None:
    """Make ``d`` fit the value called ``name`` and add it to what is already there."""
    value = graph.value(name)
    if value.dtype in FLOATS and d.dtype != value.dtype:
        d = cast_like(d, value)
    if value.type is not None:
        d = with_shape_of(sum_to(d, value), value)
    grads[name] = d if name not in grads else with_shape_of(sum_of(grads[name], d), value)
