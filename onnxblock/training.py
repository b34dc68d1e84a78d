"""From a forward graph with a loss to a training model and an evaluation model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from . import names
from .accumulation import accumulate, accumulator_function
from .autodiff.backward import backward
from .autodiff.recomputation import Recomputation, Recompute, check_recompute_argument, recompute_forward
from .autodiff.trace import Trace
from .block import Block, set_outputs
from .errors import BlockBuildError, NoGraphError, ParameterError
from .graph import decomposition
from .graph.arithmetic import full_like, zeros_like
from .graph.broadcasting import widen_scalars
from .graph.check import check
from .graph.context import current_graph
from .graph.empty_batches import refuse_empty_batches
from .graph.explicit_windows import make_windows_explicit
from .graph.graph import Graph
from .graph.padding import spell_out_pads
from .graph.passes import run_passes
from .graph.passes.cross_entropy import expand_cross_entropy
from .graph.passes.own_functions import inline_own_functions
from .graph.passes.prune import prune
from .graph.schemas import find_schema, ir_version_of, opset_of
from .graph.types import FLOATS, Dimension, dtype_name, is_sequence, shape_text
from .graph.value import Value
from .graph.weights import Weights
from .modes import RunningVariance, running_statistics, to_evaluation_form, to_training_form, training_batch_norms
from .parameters import ParameterChoice, choose_parameters


@dataclass(frozen=True)
class TrainingModels:
    """A training model and its evaluation model, with what was chosen and the bytes of the weights.

    Large weights that are neither trained nor frozen stay in the models as stubs.  ``unsized_loss`` is the loss with
    its shape, in words, where only a run shows that it is one number.
    """

    training: ModelProto
    evaluation: ModelProto
    choice: ParameterChoice
    outputs: tuple[str, ...]
    weights: Weights
    recomputation: Recomputation | None = None
    unsized_loss: str | None = None

    def parameter(self, name: str) -> TensorProto:
        """The initial value of a trainable or frozen parameter."""
        return self.weights.tensor(name)

    def parameter_stub(self, name: str) -> TensorProto:
        """Name, element type and shape of a parameter, without its data."""
        return TensorProto(name=name, data_type=self.weights.dtype(name), dims=self.weights.shape(name))


class TrainingBlock(Block):
    """A block whose first result is the loss; calling it builds the gradient too.

    ``requires_grad(name)`` and ``requires_grad(name, False)`` say before the call what is trained and what is frozen;
    without any, the sensible set is (every float weight on a path to the loss).
    """

    def requires_grad(self, argument_name: str, value: bool = True) -> None:
        """Train the weight ``argument_name``, or freeze it with ``value=False``."""
        asked: dict[str, bool] = self.__dict__.setdefault("_requires_grad", {})
        asked[str(argument_name)] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        graph = current_graph()
        output = self._run(graph, args, kwargs)
        outputs = [output] if isinstance(output, str) else list(output)
        asked: dict[str, bool] = self.__dict__.get("_requires_grad", {})
        trained = [name for name, value in asked.items() if value]
        frozen = [name for name, value in asked.items() if not value]
        self._models = build_training_models(graph, outputs, trained or None, frozen)
        return output

    @property
    def models(self) -> TrainingModels:
        """What the call built; raises :class:`NoGraphError` before it."""
        models: TrainingModels | None = self.__dict__.get("_models")
        if models is None:
            raise NoGraphError(f"{type(self).__name__} has not been called, so nothing is built yet.")
        return models

    def parameters(self) -> tuple[list[TensorProto], list[TensorProto]]:
        """The trainable and the frozen parameters with their initial values, each in initializer order."""
        models = self.models
        trainable = [models.parameter(name) for name in models.choice.trainable]
        return trainable, [models.parameter(name) for name in models.choice.frozen]

    def to_model_proto(self) -> tuple[ModelProto, ModelProto]:
        """The training model and the evaluation model."""
        models = self.models
        return _with_weights(models.training, models.weights), _with_weights(models.evaluation, models.weights)


def build_training_models(
    graph: Graph,
    outputs: Sequence[str],
    requires_grad: Sequence[str] | None = None,
    frozen: Sequence[str] = (),
    running_variance: RunningVariance = RunningVariance.UNBIASED,
    recompute: Recompute = None,
    dimension_sizes: Mapping[str, int] | None = None,
) -> TrainingModels:
    """Differentiate the first of ``outputs`` and build the two models around it.

    ``recompute`` and ``dimension_sizes`` say what of the forward pass is computed again for the gradient; see
    :func:`~onnxblock.autodiff.recomputation.recompute_forward`.

    Raises :class:`BlockBuildError` when the loss is not one float number, :class:`ParameterError` for parameters that
    cannot be used as asked, and :class:`UnsupportedOperatorError` for operators without a gradient.
    """
    check_recompute_argument(recompute, dimension_sizes)
    given = graph.value(outputs[0])
    loss = scalar_loss(graph, given)
    moving = _moving_statistics(graph.model)
    choice = choose_parameters(graph, loss, requires_grad, frozen, moving)
    _refuse_reserved_names(graph, choice)
    results = tuple(dict.fromkeys([str(loss), *map(str, outputs[1:])]))
    set_outputs(graph, results)
    make_windows_explicit(graph)
    forward = _parameters_as_inputs(graph, choice)
    evaluation = ModelProto()
    evaluation.CopyFrom(forward)
    to_evaluation_form(evaluation)
    inline_own_functions(evaluation)
    expand_cross_entropy(evaluation, graph.tensor_type)
    prune(evaluation)
    refuse_empty_batches(evaluation, graph.tensor_type)
    training, recomputation = _differentiate(
        forward, loss, results, choice, running_variance, recompute, dimension_sizes
    )
    for model in (training, evaluation):
        settle_ir_version(model)
        check(model)
    unsized = None if set(_sizes(given)) <= {1} else f"{str(given)!r} {shape_text(given.shape)}"
    return TrainingModels(training, evaluation, choice, results, graph.weights, recomputation, unsized)


def scalar_loss(graph: Graph, loss: Value) -> Value:
    """``loss`` as a rank-0 value; raises :class:`BlockBuildError` when it is not one float number.

    A size that an input has too, such as that of the batch, is taken for one that varies; others that are not known may
    be 1, which a run shows.
    """
    if is_sequence(graph.type_proto(loss)):
        raise BlockBuildError(
            f"the loss {str(loss)!r} is a sequence; it must be one number.", "Name a loss, or put it first."
        )
    if loss.dtype is not None and loss.dtype not in FLOATS:
        raise BlockBuildError(
            f"the loss {str(loss)!r} is {dtype_name(loss.dtype)}, so it has no gradient.", "Return a float value."
        )
    if loss.rank == 0:
        return loss
    named = {d for value in graph.proto.input for d in _sizes(graph.value(value.name)) if isinstance(d, str)}
    named -= names.UNKNOWN_SIZES
    if any(d in named or (isinstance(d, int) and d != 1) for d in _sizes(loss)):
        raise BlockBuildError(
            f"the loss {str(loss)!r} has shape {shape_text(loss.shape)}; it must be one number.",
            "Reduce it: loss.mean() or loss.sum(), or reduction='mean' in the loss block. "
            "Without a loss, the first output of the model is taken for it.",
        )
    scalar: Value = graph.op.Reshape(loss, np.array([], np.int64))
    return scalar


def _sizes(value: Value) -> tuple[Dimension, ...]:
    """The sizes of a value; one that is not known where its rank is not."""
    return (None,) if value.shape is None else value.shape


def _moving_statistics(model: ModelProto) -> list[str]:
    moved = {name for node in training_batch_norms(model) for name in node.input[3:5]}
    return [name for name in running_statistics(model) if name in moved]


def _refuse_reserved_names(graph: Graph, choice: ParameterChoice) -> None:
    """Raise :class:`ParameterError` when the names that training gives to its own values are taken."""
    made = [names.LAZY_RESET_GRAD] if choice.trainable else []
    for name in choice.trainable:
        made += [names.gradient_buffer(name), names.gradient_flag(name), names.accumulated_gradient(name)]
    made += map(names.updated_statistic, choice.statistics)
    made += [name + names.GRADIENT_SUFFIX for name in choice.inputs]
    taken = [name for name in made if name in graph]
    trained = set(choice.trainable)
    numbers = (names.LEARNING_RATE, names.STEP)
    taken += [n for n in choice.trainable if n in numbers or names.owners_in_optimizer(n) & trained]
    if taken:
        raise ParameterError(
            f"the model has values of names that training needs for its own: {', '.join(map(repr, taken))}.",
            "Rename them in the model, or do not train the parameters that they are named after.",
        )


def _parameters_as_inputs(graph: Graph, choice: ParameterChoice) -> ModelProto:
    """A copy of the graph's model in which trainable and frozen parameters are inputs, in initializer order.

    Their values are held by the graph's weights from here on.
    """
    chosen = {*choice.trainable, *choice.frozen}
    model = ModelProto()
    model.CopyFrom(graph.model)
    _declare_foreign_values(graph, model)
    kept, inputs = [], []
    given = {v.name for v in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in chosen:
            kept.append(tensor)
            continue
        if tensor.name not in given:
            inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        if tensor.name not in graph.weights:
            graph.weights.add(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.input.extend(inputs)
    return model


def _declare_foreign_values(graph: Graph, model: ModelProto) -> None:
    """Write down the types of what unknown operators compute: only the model's outputs may have told them."""
    declared = {value.name for value in model.graph.value_info}
    for node in model.graph.node:
        if find_schema(node.op_type, graph.opset, node.domain) or decomposition.find(node.op_type, node.domain):
            continue
        for name in node.output:
            known = graph.type_proto(name) if name and name not in declared else None
            if known is not None:
                model.graph.value_info.append(helper.make_value_info(name, known))


def _differentiate(
    forward: ModelProto,
    loss: str,
    results: Sequence[str],
    choice: ParameterChoice,
    running_variance: RunningVariance,
    recompute: Recompute,
    dimension_sizes: Mapping[str, int] | None,
) -> tuple[ModelProto, Recomputation | None]:
    model = ModelProto()
    model.CopyFrom(forward)
    statistics = to_training_form(model, choice.statistics, running_variance)
    wrt = [*choice.trainable, *choice.inputs]
    graph = Graph(model)
    seed = full_like(graph.value(loss), 1.0)
    trace = Trace()
    gradients = backward(graph, {str(loss): seed}, wrt, trace)
    recomputation = recompute_forward(graph, trace, recompute, dimension_sizes)
    outputs = list(results)
    for name in choice.inputs:
        gradient = gradients.get(name) or zeros_like(graph.value(name))
        outputs += [_named(graph, gradient, name + names.GRADIENT_SUFFIX)]
    _accumulate_gradients(graph, choice, gradients, outputs)
    _move_statistics(graph, choice, statistics, outputs)
    set_outputs(graph, outputs)
    spell_out_pads(graph)
    widen_scalars(graph)
    run_passes(graph.model, graph.tensor_type)
    refuse_empty_batches(graph.model, graph.tensor_type)
    return graph.model, recomputation


def _named(graph: Graph, value: Value, name: str) -> str:
    graph.model.graph.node.append(helper.make_node("Identity", [value], [name], name=name))
    graph.sync()
    return name


def _accumulate_gradients(
    graph: Graph, choice: ParameterChoice, gradients: dict[str, Value], outputs: list[str]
) -> None:
    for name in choice.trainable:
        known = graph.value(name).type
        if known is None:
            raise ParameterError(f"the type of the parameter {name!r} is not known.")
        graph.input(names.gradient_buffer(name), known.dtype, known.shape)
    if choice.trainable:
        graph.input(names.LAZY_RESET_GRAD, TensorProto.BOOL, (1,))
    for name in choice.trainable:
        gradient = gradients.get(name)
        if gradient is None:
            gradient = zeros_like(graph.value(name))
        _add_accumulator(
            graph,
            name,
            accumulate(
                names.gradient_buffer(name),
                gradient,
                names.LAZY_RESET_GRAD,
                flag := names.gradient_flag(name),
                out := names.accumulated_gradient(name),
            ),
        )
        outputs += [flag, out]


def _move_statistics(graph: Graph, choice: ParameterChoice, new_values: dict[str, str], outputs: list[str]) -> None:
    moved = [name for name in choice.statistics if name in new_values]
    if not moved:
        return
    always = graph.constant(np.array([True]))
    for name in moved:
        out = names.updated_statistic(name)
        node = accumulate(name, new_values[name], always, graph.unique(name + ".flag"), out)
        _add_accumulator(graph, name, node)
        outputs.append(out)


def _add_accumulator(graph: Graph, state: str, node: NodeProto) -> None:
    graph.import_domain(names.ACCUMULATOR_DOMAIN, 1)
    if all(f.name != names.ACCUMULATOR_OP for f in graph.model.functions):
        graph.model.functions.append(accumulator_function(graph.opset))
    graph.model.graph.node.append(node)
    graph.sync()
    flag, out = node.output
    graph.set_type(flag, helper.make_tensor_type_proto(TensorProto.BOOL, [1]))
    known = graph.type_proto(state)
    if known is not None:
        graph.set_type(out, known)


OLD_RUNTIME_OPSET = 21
OLD_RUNTIME_IR = 10


def settle_ir_version(model: ModelProto) -> None:
    """Set the IR version that all artifacts share.

    At least 8 (functions), and at most what came with the opset: up to opset 21 that is 10, the latest that the
    discontinued runtime reads.
    """
    opset = opset_of(model)
    least = 8 if opset <= OLD_RUNTIME_OPSET else OLD_RUNTIME_IR
    model.ir_version = min(max(model.ir_version, least), ir_version_of(opset))


def _with_weights(model: ModelProto, weights: Weights) -> ModelProto:
    full = ModelProto()
    full.CopyFrom(model)
    for tensor in full.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and tensor.name in weights:
            tensor.CopyFrom(weights.tensor(tensor.name))
    return full
