"""The training form and the evaluation form of a forward graph: BatchNormalization, Dropout, random seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from .errors import ArgumentError
from .graph.arithmetic import shape_of
from .graph.dependencies import all_nodes, subgraphs, topological_order
from .graph.graph import Graph
from .graph.passes.common_subexpressions import RANDOM
from .graph.passes.renaming import rename_reads
from .graph.value import Value
from .graph.weights import Weights, stub


class BatchNormMode(str, Enum):
    """Whether BatchNormalization uses the statistics of the batch while training."""

    AS_EXPORTED = "as exported"
    TRAIN = "train"
    FROZEN = "frozen"


class RunningVariance(str, Enum):
    """Which variance of the batch the running variance follows."""

    UNBIASED = "unbiased"
    BIASED = "biased"


def choose_batch_norm_mode(model: ModelProto, mode: BatchNormMode) -> None:
    """Put every BatchNormalization of the main graph into the form that ``mode`` asks for, in place."""
    if mode is BatchNormMode.AS_EXPORTED:
        return
    for node in _batch_norms(model):
        if mode is BatchNormMode.FROZEN:
            _to_inference(node)
        else:
            _to_training(node)


def training_batch_norms(model: ModelProto) -> list[NodeProto]:
    """The BatchNormalization nodes of the main graph that use the statistics of the batch."""
    return [node for node in _batch_norms(model) if _int(node, "training_mode") == 1]


def batch_norm_in_words(model: ModelProto) -> str:
    """``none``, ``frozen``, ``train``, or ``train (1 of 2 nodes)``: what the nodes of the main graph do."""
    count = len(list(_batch_norms(model)))
    moving = len(training_batch_norms(model))
    if not count:
        return "none"
    return "frozen" if not moving else "train" if moving == count else f"train ({moving} of {count} nodes)"


def inner_batch_norms(model: ModelProto) -> int:
    """How many BatchNormalization nodes are inside bodies of control flow; they stay as they were exported."""
    everywhere = sum(n.op_type == "BatchNormalization" and not n.domain for n in all_nodes(model.graph.node))
    return everywhere - len(list(_batch_norms(model)))


def running_statistics(model: ModelProto) -> list[str]:
    """The initializers that hold running means and variances, whatever the mode, in initializer order.

    Those of nodes inside bodies are among them: the data moves them, not a gradient.
    """
    nodes = (n for n in all_nodes(model.graph.node) if n.op_type == "BatchNormalization" and not n.domain)
    named = {name for node in nodes for name in node.input[3:5]}
    return [t.name for t in model.graph.initializer if t.name in named]


def own_statistics(model: ModelProto, weights: Weights) -> list[str]:
    """Give every BatchNormalization of the main graph running statistics of its own, in place; name the new ones.

    Exporters merge equal tensors: a running mean may be an Identity of a bias, a Constant, or an initializer that
    something else reads too.  Such statistics become initializers called after the node.  Nodes that share scale,
    bias, mean and variance are one layer used several times, and keep sharing.
    """
    producers = {name: node for node in model.graph.node for name in node.output if name}
    initializers = {t.name: t for t in model.graph.initializer}
    uses: dict[str, set[tuple[str, ...]]] = {}
    for node in all_nodes(model.graph.node):
        layer = tuple(node.input[1:5]) if node.op_type == "BatchNormalization" and not node.domain else ()
        for k, name in enumerate(node.input):
            uses.setdefault(name, set()).add((str(k), *layer) if k in (3, 4) and layer else (node.name, str(k)))
    taken = {*initializers, *producers, *(v.name for v in model.graph.input)}
    made = []
    for node in _batch_norms(model):
        for k, what in ((3, "running_mean"), (4, "running_var")):
            name = node.input[k]
            if name in initializers and len(uses[name]) == 1:
                continue
            source = _stored(name, producers, initializers)
            if source is None:
                continue
            full = weights.tensor(source.name) if source.name in weights else source
            node.input[k] = _free_name(f"{node.name or node.output[0]}.{what}", taken)
            own = TensorProto()
            own.CopyFrom(full)
            own.name = node.input[k]
            if source.name in weights:
                weights.add(own)
                own = stub(own)
            model.graph.initializer.append(own)
            made.append(own.name)
    if made:
        model.ir_version = max(model.ir_version, _WITHOUT_INPUTS_IR)
    return made


def _stored(name: str, producers: dict[str, NodeProto], initializers: dict[str, TensorProto]) -> TensorProto | None:
    """The tensor that a value is, behind any number of Identity nodes; None for a computed one."""
    while name not in initializers:
        node = producers.get(name)
        if node is None or node.op_type not in ("Identity", "Constant"):
            return None
        if node.op_type == "Constant":
            return next((a.t for a in node.attribute if a.name == "value"), None)
        name = node.input[0]
    return initializers[name]


def _free_name(base: str, taken: set[str]) -> str:
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    taken.add(name)
    return name


_WITHOUT_INPUTS_IR = 4
"""From this IR version on, an initializer need not be an input too."""


def to_evaluation_form(model: ModelProto) -> None:
    """Remove training behaviour in place.

    BatchNormalization uses its running statistics and has one output; Dropout passes its input through (where its mask
    is read, it stays with training switched off).
    """
    graph = model.graph
    for node in training_batch_norms(model):
        _to_inference(node)
    replaced: dict[str, str] = {}
    outputs = {o.name for o in graph.output}
    read = {name for node in graph.node for name in node.input} | outputs
    kept = []
    for node in graph.node:
        rename_reads(node, replaced)
        if node.op_type == "Dropout" and not node.domain:
            if len(node.output) > 1 and node.output[1] in read:
                del node.input[2:]
            elif node.output[0] in outputs:
                kept.append(helper.make_node("Identity", [node.input[0]], [node.output[0]], name=node.name))
                continue
            else:
                replaced[node.output[0]] = node.input[0]
                continue
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    for node in graph.node:
        for body in subgraphs(node):
            _bodies_to_evaluation(body.node)


def _bodies_to_evaluation(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        if node.op_type == "Dropout" and not node.domain:
            del node.input[2:]
        elif node.op_type == "BatchNormalization" and _int(node, "training_mode") == 1:
            _to_inference(node)
        for body in subgraphs(node):
            _bodies_to_evaluation(body.node)


def to_training_form(model: ModelProto, statistics: Iterable[str], running_variance: RunningVariance) -> dict[str, str]:
    """Make the training behaviour explicit, in place; return the name of the next value of each of ``statistics``.

    BatchNormalization runs with ``momentum=0``, so that its second and third outputs are the mean and the biased
    variance of the batch, and standard nodes move the running statistics.  Its own update would be written into the
    arrays it is fed, so it is given statistics that nobody reads.  Seeds are removed: every step draws anew.
    """
    for node in all_nodes(model.graph.node):
        if node.op_type in RANDOM and not node.domain:
            kept = [a for a in node.attribute if a.name != "seed"]
            del node.attribute[:]
            node.attribute.extend(kept)
    targets = training_batch_norms(model)
    if not targets:
        return {}
    graph = Graph(model)
    current: dict[str, str] = {}
    uses: Counter[str] = Counter()
    for node in targets:
        _expose_batch_statistics(graph, node, set(statistics), current, uses, running_variance)
    ordered = topological_order(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(ordered)
    return current


def _expose_batch_statistics(
    graph: Graph,
    node: NodeProto,
    statistics: set[str],
    current: dict[str, str],
    uses: Counter[str],
    running_variance: RunningVariance,
) -> None:
    momentum = _float(node, "momentum", 0.9)
    x, mean, variance = (graph.value(node.input[k]) for k in (0, 3, 4))
    old_outputs = [*node.output, "", ""][1:3]
    with graph.scope(node.name or node.output[0]):
        unread = [_unread(statistic, uses) for statistic in (mean, variance)]
        batch = [graph.unique("batch_mean"), graph.unique("batch_variance")]
        for name, like in zip(batch, (mean, variance), strict=True):
            if like.type is not None:
                graph.set_type(name, like.type)
        means = Value(batch[0], graph), Value(batch[1], graph)
        new_mean = _moved(Value(current.get(mean, mean), graph), means[0], momentum)
        spread = means[1] * _bessel(x, means[1]) if running_variance is RunningVariance.UNBIASED else means[1]
        new_variance = _moved(Value(current.get(variance, variance), graph), spread, momentum)
    node.input[3:5] = [str(u) for u in unread]
    del node.output[1:]
    node.output.extend(batch)
    _set_float(node, "momentum", 0.0)
    for statistic, new in ((mean, new_mean), (variance, new_variance)):
        if statistic in statistics:
            current[str(statistic)] = str(new)
    for old, new in zip(old_outputs, (new_mean, new_variance), strict=True):
        if old:
            graph.model.graph.node.append(helper.make_node("Identity", [new], [old], name=old))
    graph.sync()


def _unread(statistic: Value, uses: Counter[str]) -> Value:
    """What the kernel may write its batch statistics over: computed, so that nothing that lasts is changed.

    Each node has its own: equal ones would be merged, by onnxruntime too, and two nodes would write into one memory.
    They are finite, since 0 times NaN would reach the result.
    """
    op = statistic.graph.op
    source = statistic + float(uses[statistic]) if uses[statistic] else statistic
    uses[str(statistic)] += 1
    unread: Value = op.CastLike(op.IsNaN(source), statistic)
    return unread


def _moved(old: Value, new: Value, momentum: float) -> Value:
    moved: Value = old * momentum + new * (1.0 - momentum)
    return moved


def _bessel(x: Value, like: Value) -> Value:
    """N / (n - 1) for the n elements of a channel, 1 where n is 1."""
    op, graph = x.graph.op, x.graph
    shape = x.shape
    if shape is not None and all(isinstance(d, int) for k, d in enumerate(shape) if k != 1):
        count = int(np.prod([d for k, d in enumerate(shape) if k != 1 and isinstance(d, int)]))
        return graph.constant(count / max(count - 1, 1), like.dtype)
    per_channel = op.Div(op.Size(x), op.Gather(shape_of(x), 1))
    count_of: Value = op.CastLike(per_channel, like)
    return count_of / op.Max(count_of - 1.0, 1.0)


def _batch_norms(model: ModelProto) -> Iterator[NodeProto]:
    return (n for n in model.graph.node if n.op_type == "BatchNormalization" and not n.domain)


def _to_inference(node: NodeProto) -> None:
    _set_int(node, "training_mode", 0)
    del node.output[1:]


def _to_training(node: NodeProto) -> None:
    """Type inference refuses the training form without its outputs for the running statistics, named or not."""
    _set_int(node, "training_mode", 1)
    node.output.extend([""] * (3 - len(node.output)))


def _attribute(node: NodeProto, name: str) -> AttributeProto | None:
    return next((a for a in node.attribute if a.name == name), None)


def _int(node: NodeProto, name: str) -> int:
    found = _attribute(node, name)
    return 0 if found is None else found.i


def _float(node: NodeProto, name: str, default: float) -> float:
    found = _attribute(node, name)
    return default if found is None else found.f


def _set_int(node: NodeProto, name: str, to: int) -> None:
    found = _attribute(node, name) or node.attribute.add(name=name, type=AttributeProto.INT)
    found.i = to


def _set_float(node: NodeProto, name: str, to: float) -> None:
    found = _attribute(node, name) or node.attribute.add(name=name, type=AttributeProto.FLOAT)
    found.f = to


def looks_folded(model: ModelProto) -> bool:
    """Whether a convolutional model has no BatchNormalization left although its convolutions all have a bias.

    Exporters fold an inference-form BatchNormalization into the convolution before it; such a model trains, but not as
    the original did.
    """
    nodes = model.graph.node
    if any(n.op_type == "BatchNormalization" for n in nodes):
        return False
    convolutions = [n for n in nodes if n.op_type == "Conv"]
    return len(convolutions) >= 3 and all(len(n.input) > 2 and n.input[2] for n in convolutions)


def check_batch_norm_argument(mode: str) -> BatchNormMode:
    """The mode of that spelling; raises :class:`ArgumentError` for any other."""
    try:
        return BatchNormMode(mode)
    except ValueError:
        raise ArgumentError(
            f"batch_norm={mode!r} is not one of {', '.join(repr(m.value) for m in BatchNormMode)}.",
            "'as exported' is the default.",
        ) from None
