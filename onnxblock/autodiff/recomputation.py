"""Compute parts of the forward pass again for the gradient, instead of keeping what they computed.

Copies of the nodes are put behind the gradient that arrives at their segment: what they read are views that a runtime
has only then (:class:`~onnxblock.graph.waiting.Arrival`), so it cannot run them earlier, nor take them for the nodes
that they repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx import ModelProto, NodeProto

from .. import names
from ..errors import ArgumentError, did_you_mean
from ..graph.dependencies import topological_order
from ..graph.graph import Graph
from ..graph.passes.renaming import rename_reads
from ..graph.types import FLOATS, TensorType
from ..graph.waiting import Arrival
from .retention import Recomputed, Retention, is_training_batch_norm
from .segments import automatic, by_name, within
from .trace import Trace

Recompute: TypeAlias = "bool | int | str | Sequence[str] | None"
"""What to compute again: nothing, what pays most (True), what a number of bytes demands, or what paths of nodes say."""


@dataclass(frozen=True)
class Recomputation:
    """What is computed again, and what that is expected to save.

    ``segments`` are the names of its parts.  ``nodes`` counts the nodes that run twice.  ``kept`` and ``kept_before``
    are bytes of forward results that the gradient needs at most at one time, with and without; unknown sizes count
    as 1.
    """

    segments: tuple[str, ...]
    nodes: int
    kept: int
    kept_before: int

    def __str__(self) -> str:
        before, now = self.kept_before / 2**20, self.kept / 2**20
        return f"{self.nodes} nodes in {len(self.segments)} parts; kept for the gradient: {now:.1f} of {before:.1f} MiB"


def check_recompute_argument(recompute: Recompute, sizes: Mapping[str, int] | None) -> None:
    """Raise :class:`ArgumentError` when ``recompute`` is none of what it may be, or ``sizes`` hold no sizes."""
    if isinstance(recompute, int) and not isinstance(recompute, bool) and recompute <= 0:
        raise ArgumentError(f"recompute={recompute} is no number of bytes.", "Give a positive number, or True.")
    if isinstance(recompute, (list, tuple, str)) and not recompute:
        raise ArgumentError("recompute names no nodes.", "Leave it out, or give paths of nodes or True.")
    given: object = recompute
    paths = given if isinstance(given, (list, tuple)) else [given]
    if given is not None and not isinstance(given, int) and not all(isinstance(path, str) for path in paths):
        raise ArgumentError(
            f"recompute is {given!r}, where True, a number of bytes or paths of nodes are expected.",
            "Write recompute=True, recompute=200 * 2**20 or recompute=['/encoder/layer.*'].",
        )
    wrong = {name: n for name, n in (sizes or {}).items() if type(n) is not int or n <= 0}
    if wrong:
        raise ArgumentError(f"dimension_sizes holds {wrong}, where positive sizes are expected.", "Give {'batch': 8}.")


def recompute_forward(
    graph: Graph, trace: Trace, recompute: Recompute, sizes: Mapping[str, int] | None = None
) -> Recomputation | None:
    """Make the gradient nodes of ``graph`` read copies of forward results, as ``recompute`` asks.

    ``trace`` comes from the sweep that built them.  ``sizes`` says how large symbolic dimensions are, for the choice.
    Returns None when nothing is asked for, or nothing can be computed again.

    Raises :class:`ArgumentError` for unknown dimensions and a budget that cannot be reached or reckoned, and
    :class:`UnknownNameError` for paths that no node has.
    """
    _require_symbols(graph, sizes or {})
    if recompute is None or recompute is False:
        return None
    retention = Retention(graph, trace, _types(graph, sizes or {}))
    if recompute is True:
        parts = automatic(retention)
    elif isinstance(recompute, int):
        _require_sizes(graph, retention, sizes or {})
        parts = within(retention, recompute)
    else:
        parts = by_name(retention, [recompute] if isinstance(recompute, str) else list(recompute))
    if not parts:
        return None
    before, now = retention.peak([]), retention.peak(parts)
    for part in parts:
        _compute_again(graph, retention, part)
    graph.arrange([*retention.nodes, *topological_order(list(graph.proto.node)[len(retention.nodes) :])])
    segments = tuple(part.segment.name for part in parts)
    return Recomputation(segments, sum(len(part.places) for part in parts), now, before)


def _types(graph: Graph, sizes: Mapping[str, int]) -> Callable[[str], TensorType | None]:
    """The types of values as they are known when symbolic dimensions of the inputs have these sizes.

    Inference says more of most, and nothing of what bodies put out for the gradient, which the rules have said.
    """
    if not sizes:
        return graph.tensor_type
    model = ModelProto()
    model.CopyFrom(graph.model)
    del model.graph.value_info[:]
    for value in [*model.graph.input, *model.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    sized = Graph(model)

    def type_of(name: str) -> TensorType | None:
        inferred, said = sized.tensor_type(name), graph.tensor_type(name)
        if said is None or said.shape is None or (inferred is not None and inferred.is_static):
            return inferred
        with_sizes = TensorType(said.dtype, tuple(sizes.get(d, d) if isinstance(d, str) else d for d in said.shape))
        return with_sizes if with_sizes.is_static or inferred is None else inferred

    return type_of


def _require_symbols(graph: Graph, sizes: Mapping[str, int]) -> None:
    symbols = _symbols(graph) if sizes else []
    unknown = [name for name in sizes if name not in symbols]
    if unknown:
        raise ArgumentError(
            "dimension_sizes names what is no dimension of an input: "
            + ", ".join(f"{name!r}.{did_you_mean(name, symbols)}" for name in unknown),
            f"The dimensions of the inputs are {', '.join(map(repr, symbols)) or 'all numbers'}.",
        )


def _symbols(graph: Graph) -> list[str]:
    shapes = [graph.value(v.name).shape or () for v in graph.model.graph.input]
    return sorted({d for shape in shapes for d in shape if isinstance(d, str)})


def _require_sizes(graph: Graph, retention: Retention, sizes: Mapping[str, int]) -> None:
    unknown = [name for name in sorted(retention.needed) if not retention.is_sized(name)]
    if not unknown:
        return
    unsaid = [name for name in _symbols(graph) if name not in sizes]
    raise ArgumentError(
        f"recompute is a number of bytes, and the sizes of {len(unknown)} values are not known, such as "
        f"{graph.describe(unknown[:1])}.",
        "Say how large the dimensions of the inputs are: dimension_sizes={"
        + ", ".join(f"{name!r}: ..." for name in unsaid)
        + "}."
        if unsaid
        else "What bodies of control flow and operators of other libraries give has no known size: pass recompute=True,"
        " or the names of what to compute again.",
    )


def _compute_again(graph: Graph, retention: Retention, part: Recomputed) -> None:
    """Append copies of the nodes of ``part``, and make the gradient read them."""
    new: dict[str, str] = {}
    with graph.scope("recompute"):
        arrival = Arrival(part.arrivals)
        for place in part.places:
            operands = retention.copied_reads(place)
            if new.keys().isdisjoint(operands):
                waiting = _first_to_wait(graph, retention, part, operands)
                new[waiting] = str(arrival.view(graph.value(waiting)))
            new.update(_append_copy(graph, retention.nodes[place], new))
    wanted = {name: new[name] for name in part.wanted}
    for node in retention.gradient_nodes:
        rename_reads(node, wanted)


def _first_to_wait(graph: Graph, retention: Retention, part: Recomputed, operands: Sequence[str]) -> str:
    """The operand that a copy waits with: floats if there are any, and of those what is kept in any case.

    Integers may be sizes or axes, and a runtime that can compute them knows the shape of what comes out.
    """

    def rank(name: str) -> tuple[bool, bool, int]:
        return graph.value(name).dtype not in FLOATS, name not in part.inputs, retention.size(name)

    return min(filter(retention.can_wait, operands), key=rank)


def _append_copy(graph: Graph, node: NodeProto, read: Mapping[str, str]) -> dict[str, str]:
    """Append ``node`` once more, with what it reads renamed; returns the new names of its outputs.

    BatchNormalization computes the statistics of the batch anew, so that it rounds as before, but moves none: it is
    given zeros of its own to write to.
    """
    copy = NodeProto()
    copy.CopyFrom(node)
    if is_training_batch_norm(node):
        statistics = [graph.value(name) for name in node.output[1:3]]
        copy.input[3:] = [str(graph.op.CastLike(graph.op.IsNaN(s), s)) for s in statistics]
    rename_reads(copy, read)
    made = {name: graph.unique(name + names.RECOMPUTED_SUFFIX) for name in copy.output if name}
    copy.output[:] = [made.get(name, "") for name in copy.output]
    copy.name = next(iter(made.values()))
    for old, name in made.items():
        known = graph.type_proto(old)
        if known is not None:
            graph.set_type(name, known)
    graph.proto.node.append(copy)
    graph.sync()
    return made
