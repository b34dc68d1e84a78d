"""``onnxblock.inspect``: what training a model would mean, before anything is built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto

from .autodiff import registry
from .autodiff.functions import passing_nodes
from .autodiff.registry import NoGradient
from .autodiff.unsupported import called, levels
from .errors import UnknownNameError, did_you_mean
from .graph import decomposition
from .graph.context import MINIMUM_OPSET
from .graph.dependencies import all_nodes, needed_nodes
from .graph.graph import Graph
from .graph.load import load
from .graph.passes.common_subexpressions import RANDOM
from .graph.schemas import opset_of
from .graph.types import FLOATS, dtype_name
from .graph.upgrade import raise_opset
from .modes import (
    batch_norm_in_words,
    check_batch_norm_argument,
    choose_batch_norm_mode,
    looks_folded,
    running_statistics,
    training_batch_norms,
)
from .parameters import (
    SMALL_CONSTANT,
    ParameterInfo,
    parameter_rows,
    parameter_total,
    small_constants,
    trainable_by_default,
)
from .shared_weights import WeightSharing, weight_sharing

_SHOWN = 5


@dataclass(frozen=True)
class NodeInfo:
    """A node, what is to be said of it, and the weights whose gradient would have to pass through it."""

    name: str
    op_type: str
    domain: str
    reason: str
    weights: tuple[ParameterInfo, ...] = ()

    @property
    def elements(self) -> int:
        """Number of elements of those weights."""
        return sum(w.size for w in self.weights)

    def __str__(self) -> str:
        return f"{self.domain + '::' if self.domain else ''}{self.op_type} {self.name!r}: {self.reason}"


@dataclass(frozen=True)
class Inspection:
    """What training a model would mean.  ``print`` shows the whole.

    ``unsupported`` are nodes that a gradient has to pass and for which there is none: building stops at them, unless
    the weights behind them are frozen.  ``stopping`` are nodes that pass no gradient back by nature and so leave
    weights untrained.  ``decomposed`` are replaced by what they are made of, in the training graph only.
    ``raised_from`` is the model's own opset where it is older than what training needs.  ``sharing`` are weights that
    several layers use, and embedding tables that the output layer has a copy of.
    """

    opset: int
    raised_from: int | None
    outputs: tuple[str, ...]
    trainable: tuple[ParameterInfo, ...]
    not_trained: tuple[ParameterInfo, ...]
    statistics: tuple[ParameterInfo, ...]
    batch_norm: str
    unsupported: tuple[NodeInfo, ...]
    stopping: tuple[NodeInfo, ...]
    decomposed: tuple[NodeInfo, ...]
    inlined_functions: tuple[str, ...]
    random: tuple[NodeInfo, ...]
    looks_folded: bool
    sharing: WeightSharing

    @property
    def can_train(self) -> bool:
        """Whether artifacts can be generated with the parameters that are trained by default."""
        return bool(self.trainable) and not self.unsupported

    @property
    def trainable_elements(self) -> int:
        """Number of elements that are trained by default."""
        return sum(p.size for p in self.trainable)

    def __str__(self) -> str:
        lines = [f"trained by default: {parameter_total(self.trainable)}", *parameter_rows(self.trainable)]
        if self.not_trained:
            lines += [f"not trained: {parameter_total(self.not_trained)}", *parameter_rows(self.not_trained)]
        if self.statistics:
            lines += [f"running statistics: {parameter_total(self.statistics)}", *parameter_rows(self.statistics)]
        lines.append(f"batch norm: {self.batch_norm}")
        raised = "" if self.raised_from is None else f", raised from {self.raised_from} (the exported model is not)"
        lines.append(f"opset: {self.opset}{raised}")
        for title, nodes in (
            ("no gradient, to be written or to be frozen off", self.unsupported),
            ("no gradient by nature, and weights behind it", self.stopping),
            ("replaced by what they are made of", self.decomposed),
            ("random", self.random),
        ):
            if nodes:
                lines.append(f"{title}: {len(nodes)} node{'s' * (len(nodes) != 1)}")
                lines += [f"  {node}{_cost(node)}" for node in nodes]
        if self.inlined_functions:
            lines.append(f"functions to be inlined: {', '.join(self.inlined_functions)}")
        if self.looks_folded:
            lines.append(
                "note: convolutions with biases and no BatchNormalization: an exporter may have folded it into them"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.sharing.notes({p.name for p in self.trainable}))])


def _cost(node: NodeInfo) -> str:
    if not node.weights:
        return ""
    names = ", ".join(w.name for w in node.weights[:_SHOWN])
    more = f" and {len(node.weights) - _SHOWN} more" if len(node.weights) > _SHOWN else ""
    return f"\n    behind it {parameter_total(node.weights)}: {names}{more}"


def inspect(
    model: ModelProto | str | os.PathLike[str],
    outputs: Sequence[str] | None = None,
    *,
    batch_norm: str = "as exported",
) -> Inspection:
    """Say what training a model would mean: nothing is built, written or changed, and nothing unsupported raises.

    Args:
        model: a forward model, or its path; of its weights only the beginnings of some are read.
        outputs: the values that the loss will be made of; every float output of the model by default.
        batch_norm: as for ``generate_artifacts``.

    Raises:
        InvalidModelError: the model cannot be read, or cannot be raised to opset 18.
        UnknownNameError: a name in ``outputs`` does not exist (all of them are listed).
        ArgumentError: ``batch_norm`` is not one of its values.
    """
    mode = check_batch_norm_argument(batch_norm)
    bare, held = load(model)
    given_opset = opset_of(bare)
    raised = raise_opset(bare, MINIMUM_OPSET)
    choose_batch_norm_mode(raised, mode)
    graph = Graph(raised, held, None if isinstance(model, ModelProto) else os.fspath(model))
    ends = _ends(graph, outputs)
    chosen, reasons = trainable_by_default(graph, ends)
    weights = {t.name: t for t in raised.graph.initializer if t.data_type in FLOATS}
    infos = {name: _info(tensor, reasons.get(name, "")) for name, tensor in weights.items()}
    statistics = running_statistics(raised)
    moved = {name for node in training_batch_norms(raised) for name in node.input[3:5]}
    trained = [name for name in weights if name in chosen]
    kept_functions = {(f.domain, f.name) for f in raised.functions}
    in_words, folded, sharing = batch_norm_in_words(raised), looks_folded(raised), weight_sharing(raised, held)
    random, stopping = tuple(_random_nodes(raised)), tuple(_stopping(graph, ends, infos))
    unsupported: list[NodeInfo] = []
    decomposed: list[NodeInfo] = []
    # Nobody else uses this graph, in which nodes are replaced.
    graphs = list(levels(graph, trained, ends))
    for level in graphs:
        inside = "".join(f"in {step}: " for step in level.path)
        decomposed += [NodeInfo(called(n), n.op_type, n.domain, inside + _way(n)) for n in level.replaced]
        for node in level.missing:
            why = level.refused.get(node.output[0]) or registry.refusal(node.op_type, node.domain)
            reason = inside + (why or "no rule, no decomposition, no function body")
            behind = needed_nodes(graphs[0].nodes, (level.outer or node).output)[1] & set(trained)
            weights_behind = tuple(info for name, info in infos.items() if name in behind)
            unsupported.append(NodeInfo(called(node), node.op_type, node.domain, reason, weights_behind))
    return Inspection(
        opset=graph.opset,
        raised_from=given_opset if given_opset < graph.opset else None,
        outputs=tuple(ends),
        trainable=tuple(infos[name] for name in trained),
        not_trained=(
            *(infos[n] for n in weights if n not in chosen and n not in statistics),
            *(_info(tensor, SMALL_CONSTANT) for tensor in small_constants(graph, ends)),
        ),
        statistics=tuple(
            _info(weights[n], "moved by the data" if n in moved else "used as they are") for n in statistics
        ),
        batch_norm=in_words,
        unsupported=tuple(unsupported),
        stopping=stopping,
        decomposed=tuple(decomposed),
        inlined_functions=tuple(
            f"{f.domain}::{f.name}" for f in bare.functions if (f.domain, f.name) not in kept_functions
        ),
        random=random,
        looks_folded=folded,
        sharing=sharing,
    )


def _ends(graph: Graph, outputs: Sequence[str] | None) -> list[str]:
    if outputs is None:
        return [v.name for v in graph.model.graph.output if graph.is_differentiable(v.name)]
    known = [name for node in graph.model.graph.node for name in node.output if name]
    wrong = [f"{name!r}.{did_you_mean(name, known)}" for name in outputs if name not in graph]
    if wrong:
        raise UnknownNameError(
            "values that the model does not have: " + " ".join(wrong), "Any value of the graph may be named."
        )
    return list(map(str, outputs))


def _info(tensor: TensorProto, reason: str) -> ParameterInfo:
    return ParameterInfo(tensor.name, dtype_name(tensor.data_type), tuple(tensor.dims), reason)


def _random_nodes(model: ModelProto) -> Iterable[NodeInfo]:
    for node in all_nodes(model.graph.node):
        if node.op_type in RANDOM and not node.domain:
            training = node.op_type != "Dropout" or (len(node.input) > 2 and node.input[2])
            reason = "drawn anew at every step" if training else "not in training mode: passes its input through"
            yield NodeInfo(called(node), node.op_type, "", reason)


def _stopping(graph: Graph, ends: Sequence[str], infos: dict[str, ParameterInfo]) -> Iterable[NodeInfo]:
    """The nodes without a gradient by nature that come between the outputs and weights with no other path to them."""
    nodes, _ = needed_nodes(graph.proto.node, ends)
    reached = needed_nodes(passing_nodes(nodes, ends), ends)[1]
    lost = {name for name in infos if name not in reached and graph.value(name).rank != 0}
    passing = [n for n in nodes if not isinstance(registry.find(n.op_type, n.domain), NoGradient)]
    for node in nodes if lost else ():
        entry = registry.find(node.op_type, node.domain)
        if isinstance(entry, NoGradient):
            behind = needed_nodes(passing, node.input)[1] & lost
            if behind:
                found = tuple(infos[name] for name in infos if name in behind)
                yield NodeInfo(called(node), node.op_type, node.domain, entry.reason, found)


def _way(node: NodeProto) -> str:
    if decomposition.find(node.op_type, node.domain) is not None:
        return "composed of standard operators"
    if node.op_type == "Scan":
        return "a Loop, which can keep what is drawn inside"
    return "the body of its function in its definition"
