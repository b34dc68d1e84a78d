"""Gradients of If, Loop and Scan: the gradients of their bodies, in a second If and in a Loop that runs backwards.

Random nodes run once: what they drew is kept by the forward node.
"""

from __future__ import annotations

import functools

from onnx import GraphProto, NodeProto, TypeProto, helper

from ...graph.sequences import zeros_like_value
from ...graph.subgraph import Subgraph
from ...graph.types import innermost_dtype, is_sequence
from ...graph.value import Value
from ..bodies import BodyGradient, Split, add_body_output, add_node_output
from ..iteration import Iteration
from ..randomness import is_random
from ..registry import Cotangents, RuleResult, gradient
from ..rule import RuleContext


@gradient("If")
def if_(g: RuleContext) -> RuleResult:
    """A second If on the same condition, whose branches are the gradients of the branches.

    Each gives the cotangent of every outer value that either of them reads, zeros where it does not.  The forward If
    puts out what the gradient reads of its inner values.  Where the condition is known while building, only the branch
    that is taken is differentiated, since the other may be one that fits no input of this rank, and its gradient needs
    no If.
    """
    branches = [BodyGradient(g.graph, _body(g.node, name)) for name in ("then_branch", "else_branch")]
    condition = g.constant(0)
    taken = None if condition is None else int(not bool(condition))
    found: list[dict[str, Value]] = []
    for k, branch in enumerate(branches):
        if taken not in (None, k):
            found.append({})
            continue
        outputs = zip(branch.body.output, g.grads, strict=True)
        cotangents = [(output.name, branch.joint.value(d)) for output, d in outputs if d is not None]
        found.append(branch.differentiate(cotangents, g.captured))
    names = [name for name in g.captured if any(name in grads for grads in found)]
    if not names:
        return None
    results = [
        [grads.get(name) or zeros_like_value(branch.joint.value(name)) for name in names]
        for branch, grads in zip(branches, found, strict=True)
    ]
    splits = [
        branch.split(values, functools.partial(_is_kept, branch))
        for branch, values in zip(branches, results, strict=True)
    ]
    kept = _keep(g, branches, splits)
    if taken is not None:
        branches[taken].fill(g.graph, splits[taken], kept[taken])
        values = [g.graph.value(kept[taken].get(value, value)) for value in results[taken]]
        return Cotangents([None], dict(zip(names, values, strict=True)))
    bodies = []
    for branch, split, values, called in zip(branches, splits, results, kept, strict=True):
        body = Subgraph(g.graph)
        branch.fill(body, split, called)
        body.returns([called.get(value, value) for value in values])
        bodies.append(body.proto)
    attributes = {"then_branch": bodies[0], "else_branch": bodies[1]}
    made = g.graph.add("If", [g.x], attributes, outputs=len(names))
    return Cotangents([None], dict(zip(names, made, strict=True)))


def _body(node: NodeProto, name: str) -> GraphProto:
    body: GraphProto = next(attribute.g for attribute in node.attribute if attribute.name == name)
    return body


def _is_kept(branch: BodyGradient, node: NodeProto) -> bool:
    """Whether the forward If puts out the values of a node.

    Computing them again is for what is cheap: constants; and for what has no known type to put out.
    """
    known = all(innermost_dtype(branch.joint.type_proto(name)) for name in node.output if name)
    return known and (bool(node.input) or is_random(branch.joint, node))


def _keep(g: RuleContext, branches: list[BodyGradient], splits: list[Split]) -> list[dict[str, str]]:
    """Make the kept values outputs of the If; returns what each branch's values are called outside.

    An output serves one value of each branch, of the same kind; where a branch has none left, it puts out a zero.
    """
    called: list[dict[str, str]] = []
    waiting: list[dict[tuple[bool, int], list[str]]] = []
    for branch, split in zip(branches, splits, strict=True):
        outputs = {o.name: name for o, name in zip(branch.body.output, g.node.output, strict=True) if name}
        called.append({name: outputs[name] for name in split.kept if name in outputs})
        kinds: dict[tuple[bool, int], list[str]] = {}
        for name in split.kept:
            if name not in outputs:
                kinds.setdefault(_kind(branch.joint.type_proto(name)), []).append(name)
        waiting.append(kinds)
    for kind in sorted({*waiting[0], *waiting[1]}):
        values = [kinds.get(kind, []) for kinds in waiting]
        for k in range(max(map(len, values))):
            pair = [names[k] if k < len(names) else None for names in values]
            outer = add_node_output(g.graph, g.node, pair[0] or pair[1] or "kept", _of_kind(kind))
            for branch, value, names in zip(branches, pair, called, strict=True):
                if value is not None:
                    names[value] = outer
                inner = value or _nothing(g, branch.body, kind)
                add_body_output(g.graph, branch.body, inner, branch.joint.type_proto(inner) or _of_kind(kind))
    return called


def _kind(type_: TypeProto | None) -> tuple[bool, int]:
    dtype = innermost_dtype(type_)
    assert dtype is not None
    return is_sequence(type_), dtype


def _of_kind(kind: tuple[bool, int]) -> TypeProto:
    sequence, dtype = kind
    tensor = helper.make_tensor_type_proto(dtype, None)
    return helper.make_sequence_type_proto(tensor) if sequence else tensor


def _nothing(g: RuleContext, body: GraphProto, kind: tuple[bool, int]) -> str:
    sequence, dtype = kind
    name = g.graph.unique("nothing")
    if sequence:
        node = helper.make_node("SequenceEmpty", [], [name], name=name, dtype=dtype)
    else:
        node = helper.make_node("Constant", [], [name], name=name, value=helper.make_tensor(name, dtype, [], [0]))
    body.node.append(node)
    return name


@gradient("Loop", "Scan")
def loop(g: RuleContext) -> RuleResult:
    """A Loop over the same iterations, from the last to the first; see :class:`Iteration`."""
    return Iteration(g, _body(g.node, "body")).gradient()
