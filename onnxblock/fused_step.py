"""Forward, backward and update in one graph: the gradients live inside it, each until its parameter is updated.

An update may be written over the parameter only when nothing reads the old value any more.  The backward pass does: the
gradient of a layer's input is a product with its weight, and nothing makes it run before the weight changes.  So the
update takes a number, such as the learning rate, that a runtime knows only once that product is there.

A large parameter is updated in slices.  They are inputs and outputs of their own, in the memory of the parameter, which
forward and backward pass read as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from onnx import FunctionProto, ModelProto, NodeProto, ValueInfoProto, helper

from . import names
from .errors import BlockBuildError, ParameterError
from .fused_gradients import FusedGradients
from .graph.check import check
from .graph.dependencies import reads, topological_order
from .graph.graph import Graph
from .graph.inlining import inlined
from .graph.inplace import InPlace, after
from .graph.passes import run_passes
from .graph.types import FLOATS, Shape
from .optim.slices import slices_of
from .training import TrainingModels


def fuse_step(models: TrainingModels, build_optimizer: Callable[[Callable[[str], bool]], ModelProto]) -> ModelProto:
    """One graph of the training model and the optimizer model, without gradient buffers.

    ``build_optimizer`` makes the optimizer model.  It is given what says of a parameter whether its gradient can be had
    as some of its rows; see :func:`~onnxblock.optim.sparse_form`.

    Its inputs are those of the training model but for the buffers and the reset, then the learning rates, the step, the
    slices of parameters and the states of the optimizer.  Its outputs are the loss and what else the user asked for,
    the new running statistics, and the new parameters and states.  The metadata are those of the optimizer model.

    Raises :class:`ParameterError` when the model has values of names that the optimizer needs, and
    :class:`BlockBuildError` when the optimizer does not take each parameter and its gradient as inputs of their own.
    """
    model = ModelProto()
    model.CopyFrom(models.training)
    gradients = FusedGradients(model, models.weights, _without_accumulators(model, models.choice.trainable))
    differentiated = {name for node in model.graph.node for name in node.output if name}
    optimizer = build_optimizer(gradients.is_sparse)
    _require_tensors(optimizer, models.choice.trainable)
    ranges = slices_of(optimizer)
    _append(model, optimizer, models.choice.trainable, gradients.taken(ranges))
    run_passes(model)
    graph = Graph(model, models.weights)
    wholes = {names.slice_of(name, *ends): name for name, cut in ranges.items() for ends in cut}
    whole = [name for name in models.choice.trainable if name not in ranges]
    _let_updates_wait(graph, [*whole, *wholes], wholes, differentiated)
    graph.arrange(_updates_early(graph, differentiated))
    check(model)
    return model


def _require_tensors(optimizer: ModelProto, trainable: Sequence[str]) -> None:
    known = {names.LEARNING_RATE, names.STEP, *trainable}
    parameters = set(trainable)
    others = [
        value.name
        for value in optimizer.graph.input
        if not value.type.HasField("tensor_type")
        or not (
            value.name in known
            or value.name.startswith(names.group_learning_rate(""))
            or names.owners_in_optimizer(value.name) & parameters
        )
    ]
    if others:
        raise BlockBuildError(
            f"the optimizer takes {', '.join(map(repr, others))}, which a fused step does not have: it has "
            f"{names.LEARNING_RATE}, {names.STEP}, and each parameter p, its gradient p{names.GRADIENT_SUFFIX} and its "
            f"states {names.moment('p', 0)}, … as tensors of their own.",
            "Use an optimizer like optim.AdamW, or leave fused_step out.",
        )


# -- joining


def _without_accumulators(model: ModelProto, trainable: Sequence[str]) -> dict[str, str]:
    """Take the accumulators out of the training model; gives the value that is the gradient of each parameter.

    What a running statistic becomes is an output itself.
    """
    graph = model.graph
    buffers = {names.gradient_buffer(name): name for name in trainable}
    gradients: dict[str, str] = {}
    statistics: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if (node.domain, node.op_type) != (names.ACCUMULATOR_DOMAIN, names.ACCUMULATOR_OP):
            kept.append(node)
            continue
        state, value, _ = node.input
        if state in buffers:
            gradients[buffers[state]] = value
        else:
            statistics[node.output[1]] = value
    kept += [helper.make_node("Identity", [value], [name], name=name) for name, value in statistics.items()]
    gone = {names.LAZY_RESET_GRAD, *buffers}
    made = (
        {name for node in kept for name in node.output}
        | {v.name for v in graph.input}
        | {t.name for t in graph.initializer}
    )
    inputs = [v for v in graph.input if v.name not in gone]
    outputs = [v for v in graph.output if v.name in made]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(kept)
    graph.input.extend(inputs)
    graph.output.extend(outputs)
    return gradients


def _append(model: ModelProto, optimizer: ModelProto, trainable: Sequence[str], fed: Mapping[str, str]) -> None:
    """Put the optimizer behind the training model, in place; its inner values get a common prefix."""
    graph, update = model.graph, optimizer.graph
    shared = {v.name for v in graph.input}.intersection(trainable)
    added = [v for v in update.input if v.name not in shared and v.name not in fed]
    taken = _names_of(graph.node) | {v.name for v in graph.input} | {t.name for t in graph.initializer}
    _require_free([*added, *update.output], taken)
    call = NodeProto(
        name=_prefix(taken),
        input=[fed.get(v.name, v.name) for v in update.input],
        output=[v.name for v in update.output],
    )
    body = FunctionProto(input=[v.name for v in update.input], output=[v.name for v in update.output], node=update.node)
    graph.node.extend(inlined(call, body))
    for tensor in update.initializer:
        graph.initializer.add().CopyFrom(tensor)
        if tensor.name not in body.output:
            graph.initializer[-1].name = f"{call.name}/{tensor.name}"
    graph.input.extend(added)
    graph.output.extend(update.output)
    present = {(f.domain, f.name) for f in model.functions}
    model.functions.extend(f for f in optimizer.functions if (f.domain, f.name) not in present)
    imported = {o.domain for o in model.opset_import}
    model.opset_import.extend(o for o in optimizer.opset_import if o.domain not in imported)
    model.metadata_props.extend(optimizer.metadata_props)


def _names_of(nodes: Iterable[NodeProto]) -> set[str]:
    return {name for node in nodes for name in (node.name, *node.output) if name}


def _prefix(taken: Iterable[str]) -> str:
    """A name that no other name begins with."""
    prefix = "optimizer"
    firsts = {name.partition("/")[0] for name in taken}
    while prefix in firsts:
        prefix += "_"
    return prefix


def _require_free(values: Iterable[ValueInfoProto], taken: set[str]) -> None:
    found = [value.name for value in values if value.name in taken]
    if found:
        raise ParameterError(
            f"the model has values of names that the optimizer needs for its own: {', '.join(map(repr, found))}.",
            "Rename them in the model, or leave fused_step out.",
        )


# -- in place


def _let_updates_wait(
    graph: Graph, written: Iterable[str], wholes: Mapping[str, str], differentiated: set[str]
) -> None:
    """Make the writer of each parameter depend on all that reads the old value, where one number stands in the way."""
    nodes, proof = graph.proto.node, InPlace(graph.model, wholes)
    readers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for name in reads(node):
            readers.setdefault(name, []).append(node)
    outputs = {v.name for v in graph.proto.output}
    waiting: dict[tuple[str, ...], str] = {}
    for name in written:
        late = proof.late_readers(name, names.updated(name))
        found = _number(graph, names.updated(name), differentiated) if late else None
        awaited = [_later(graph, node, readers, differentiated, outputs) for node in late or ()]
        if found is None or not all(awaited):
            continue
        node, k = found
        key = (node.input[k], *sorted(set(chain.from_iterable(awaited))))
        if key not in waiting:
            with graph.scope(names.updated(name)):
                waiting[key] = after(*map(graph.value, key))
        node.input[k] = waiting[key]


def _number(graph: Graph, new: str, differentiated: set[str]) -> tuple[NodeProto, int] | None:
    """The nearest node before ``new``, and its input, that takes a single number."""
    pending, seen = deque([new]), {new}
    while pending:
        node = graph.producer(pending.popleft())
        if node is None or not differentiated.isdisjoint(node.output):
            continue
        for k, name in enumerate(node.input):
            known = graph.tensor_type(name) if name else None
            if k and known is not None and known.dtype in FLOATS and _is_single(known.shape):
                return node, k
        fresh = [name for name in node.input if name and name not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return None


def _is_single(shape: Shape) -> bool:
    return shape is not None and all(size == 1 for size in shape)


def _later(
    graph: Graph, node: NodeProto, readers: Mapping[str, list[NodeProto]], differentiated: set[str], outputs: set[str]
) -> list[str]:
    """Values that are there only once ``node`` has run: its own results, or one made of them that several nodes read.

    A runtime computes a result in the memory of an operand that nothing else reads; it is not to lose that.  Of an If
    it may put the nodes of one branch in its place, so all that is read of it counts.  Nothing where no value will do.
    """
    if node.op_type == "If":
        results = [name for name in node.output if name in readers or name in outputs]
        known = all(graph.tensor_type(name) is not None for name in results)
        return results if known and not differentiated.isdisjoint(node.output) else []
    value: str | None = None
    while not differentiated.isdisjoint(node.output) and node.op_type != "If":
        following = next((name for name in node.output if name and graph.tensor_type(name) is not None), None)
        if following is None:
            break
        value = following
        if value in outputs or len(readers.get(value, ())) != 1:
            break
        node = readers[value][0]
    return [] if value is None else [value]


# -- the order of the nodes


def _updates_early(graph: Graph, differentiated: set[str]) -> list[NodeProto]:
    """The nodes in the order in which onnxruntime takes each update as soon as its gradient is there.

    onnxruntime runs what a node needs and then the node, beginning with the last one that nothing reads.  So of
    those, what is ready first stands last: the loss, then the update of the last layer.
    """
    nodes = list(graph.proto.node)
    read = {name for node in nodes for name in reads(node)}
    ready: dict[str, int] = {}
    ends: list[tuple[int, NodeProto]] = []
    for k, node in enumerate(topological_order(nodes)):
        at = max((ready.get(name, -1) for name in reads(node)), default=-1)
        if not differentiated.isdisjoint(node.output):
            at = k
        ready.update(dict.fromkeys(node.output, at))
        if read.isdisjoint(node.output):
            ends.append((at, node))
    last = [node for _, node in sorted(ends, key=lambda end: -end[0])]
    ending = {id(node) for node in last}
    others = [node for node in nodes if id(node) not in ending]
    inner = [node for node in others if not differentiated.isdisjoint(node.output)]
    return topological_order([*inner, *last, *(node for node in others if differentiated.isdisjoint(node.output))])
