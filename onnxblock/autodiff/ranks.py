"""Gradients whose form depends on the number of axes, where that is only known when the graph runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..graph.graph import Graph
from ..graph.subgraph import Subgraph
from ..graph.types import TensorType
from ..graph.value import Value
from .registry import Cotangents, RuleResult
from .rule import RuleContext

Ranks = Mapping[str, int]
"""The rank that a choice gives to values, by name."""


def by_rank(
    g: RuleContext, rule: Callable[[RuleContext], RuleResult], number: Value, choices: Mapping[int, Ranks]
) -> RuleResult:
    """The gradient by one branch for each of ``choices``: the one whose key is ``number`` (an int64) runs.

    In a branch the ranks of its choice hold, and ``rule`` is asked again.  A number that is none of the keys takes the
    last branch, whose operators then say what does not fit.
    """
    results: list[Value | None] = [None] * len(g.node.input)
    for k, d in _choose(g.graph, g, rule, str(number), list(choices.items())).items():
        results[k] = d
    return results


def _choose(
    graph: Graph,
    g: RuleContext,
    rule: Callable[[RuleContext], RuleResult],
    number: str,
    choices: Sequence[tuple[int, Ranks]],
) -> dict[int, Value]:
    """The cotangents by the positions of the inputs; every rank gives those of the same inputs."""
    (key, ranks), *others = choices
    if not others:
        return _ranked(graph, g, rule, ranks)
    first, second = Subgraph(graph), Subgraph(graph)
    one, other = _ranked(first, g, rule, ranks), _choose(second, g, rule, number, others)
    first.returns(one.values())
    second.returns(other.values())
    if not one:
        return {}
    condition = graph.op.Equal(Value(number, graph), key)
    branches = {"then_branch": first.proto, "else_branch": second.proto}
    return dict(zip(one, graph.add("If", [condition], branches, outputs=len(one)), strict=True))


def _ranked(graph: Graph, g: RuleContext, rule: Callable[[RuleContext], RuleResult], ranks: Ranks) -> dict[int, Value]:
    """What the rule gives in a body in which the values have these ranks."""
    for name, rank in ranks.items():
        dtype = graph.value(name).dtype
        if dtype is not None:
            graph.set_type(name, TensorType(dtype, (None,) * rank))
    grads = [None if d is None else Value(d, graph) for d in g.grads]
    found = rule(replace(g, graph=graph, grads=grads))
    assert not isinstance(found, Cotangents)
    results = [found] if found is None or isinstance(found, Value) else list(found)
    return {k: d for k, d in enumerate(results) if d is not None and g.wants(k)}
