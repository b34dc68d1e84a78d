"""The user's model with a loss on top, differentiated."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from onnx import ModelProto

from onnxblock import loss as losses
from onnxblock.autodiff.recomputation import Recompute
from onnxblock.block import Block, require_block
from onnxblock.errors import BlockBuildError, InvalidModelError, UnknownNameError, did_you_mean
from onnxblock.export import pack_forward_model
from onnxblock.graph.context import MINIMUM_OPSET, building
from onnxblock.graph.graph import Graph
from onnxblock.graph.load import load
from onnxblock.graph.schemas import opset_of
from onnxblock.graph.upgrade import raise_opset
from onnxblock.modes import (
    BatchNormMode,
    RunningVariance,
    batch_norm_in_words,
    choose_batch_norm_mode,
    inner_batch_norms,
    looks_folded,
    own_statistics,
)
from onnxblock.names import MANIFEST_KEY
from onnxblock.shared_weights import WeightSharing, weight_sharing
from onnxblock.training import TrainingModels, build_training_models


class LossType(Enum):
    """The losses that ``generate_artifacts`` builds by name."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4

    def block(self) -> Block:
        """A loss block of this kind with its default settings."""
        made: Block = getattr(losses, self.name)()
        return made


@dataclass(frozen=True)
class ForwardModel:
    """What is known of the user's model, for the summary and the manifest.

    ``packed`` is the model as it was brought, without its large weights, as text that the evaluation model carries.
    """

    packed: str | None
    fingerprint: str
    opset: int
    raised_from: int | None
    batch_norm: str
    inner_batch_norms: int
    looks_folded: bool
    sharing: WeightSharing


def build_training(
    model: ModelProto | str | os.PathLike[str],
    loss: LossType | Block | None,
    requires_grad: Sequence[str] | None,
    frozen_params: Sequence[str],
    additional_output_names: Sequence[str],
    loss_input_names: Sequence[str] | None,
    batch_norm: BatchNormMode,
    running_variance: RunningVariance,
    recompute: Recompute = None,
    dimension_sizes: Mapping[str, int] | None = None,
) -> tuple[TrainingModels, ForwardModel]:
    """Read the model, put the loss on top, choose the parameters and differentiate."""
    bare, weights = load(model)
    _refuse_generated(bare)
    given_opset = opset_of(bare)
    own_statistics(bare, weights)
    raised = raise_opset(bare, MINIMUM_OPSET)
    choose_batch_norm_mode(raised, batch_norm)
    parted = own_statistics(raised, weights)  # those of functions, which are inlined now
    folded = looks_folded(raised)
    graph = Graph(raised, weights, None if isinstance(model, ModelProto) else os.fspath(model))
    forward = ForwardModel(
        packed=None if parted else pack_forward_model(bare),
        fingerprint=_fingerprint(raised),
        opset=graph.opset,
        raised_from=given_opset if given_opset < graph.opset else None,
        batch_norm=batch_norm_in_words(raised),
        inner_batch_norms=inner_batch_norms(raised),
        looks_folded=folded,
        sharing=weight_sharing(raised, weights),
    )
    outputs = _existing(graph, [v.name for v in raised.graph.output], loss_input_names, additional_output_names)
    with building(graph):
        results = [*_call_loss(loss, outputs, loss_input_names), *additional_output_names]
    models = build_training_models(
        graph, results, requires_grad, frozen_params, running_variance, recompute, dimension_sizes
    )
    return models, forward


def _existing(
    graph: Graph, outputs: list[str], loss_inputs: Sequence[str] | None, additional: Sequence[str]
) -> list[str]:
    wrong = [
        f"{what}: the model has no value {name!r}.{did_you_mean(name, [*outputs, *_values(graph)])}"
        for what, names in (("loss_input_names", loss_inputs or ()), ("additional_output_names", additional))
        for name in names
        if name not in graph
    ]
    if wrong:
        raise UnknownNameError(
            "names that the model does not have:\n    " + "\n    ".join(wrong), "Any value of the graph may be named."
        )
    chosen = list(loss_inputs) if loss_inputs else outputs
    if not chosen:
        raise InvalidModelError("the model has no outputs.", "Name the values to give to the loss in loss_input_names.")
    return chosen


def _values(graph: Graph) -> list[str]:
    return [name for node in graph.model.graph.node for name in node.output if name]


def _call_loss(loss: LossType | Block | None, inputs: Sequence[str], asked: Sequence[str] | None) -> list[str]:
    """The loss, and what its block returns beside it; without a loss block, all that it would be given."""
    if loss is None:
        return list(inputs)
    if isinstance(loss, LossType):
        if len(inputs) > 1:
            raise BlockBuildError(
                f"{loss.name} takes one value and "
                + (f"{len(inputs)} are named in loss_input_names" if asked else f"the model has {len(inputs)} outputs")
                + f": {', '.join(map(repr, inputs))}.",
                "Name the one to use in loss_input_names, or write a loss block that takes them all.",
            )
        loss = loss.block()
    require_block("loss", loss, LossType)
    _check_count(loss, inputs)
    result = loss(*inputs)
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    if not results:
        raise BlockBuildError(f"{type(loss).__name__}.build returned nothing.", "It must return the loss.")
    others = [type(other).__name__ for other in results if not isinstance(other, str)]
    if others:
        raise BlockBuildError(
            f"{type(loss).__name__}.build returned {', '.join(others)}.",
            "It must return the name of the loss, or a tuple that begins with it and has names of further outputs.",
        )
    return [str(name) for name in results]


def _check_count(loss: Block, inputs: Sequence[str]) -> None:
    parameters = inspect.signature(loss.build).parameters
    try:
        bound = inspect.signature(loss.build).bind(*inputs).arguments
    except TypeError:
        bound = None
    # a parameter with a name as its default, like target_name, is for something new
    if bound is not None and not any(isinstance(parameters[p].default, str) for p in bound):
        return
    wanted = [
        p.name for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    raise BlockBuildError(
        f"the model has {len(inputs)} output{'s' * (len(inputs) != 1)} ({', '.join(inputs)}), "
        f"but {type(loss).__name__}.build wants {len(wanted)} ({', '.join(wanted)}).",
        "Choose the values to give it with loss_input_names=[...].",
    )


def _refuse_generated(model: ModelProto) -> None:
    """Raise :class:`InvalidModelError` for one of the files that were made for training."""
    if any(entry.key == MANIFEST_KEY for entry in model.metadata_props):
        raise InvalidModelError(
            "the model was itself generated for training, where a forward model is expected.",
            "Pass the model that it was generated from, or what export_model_for_inferencing writes.",
        )


def _fingerprint(model: ModelProto) -> str:
    """A digest of the forward graph: nodes, inputs, outputs, and name, type and shape of each weight, not its data."""
    digest = hashlib.sha256()
    graph = model.graph
    for node in graph.node:
        digest.update(node.SerializeToString(deterministic=True))
    for value in (*graph.input, *graph.output):
        digest.update(f"\0{value.name}".encode())
    for tensor in graph.initializer:
        digest.update(f"\0{tensor.name}\0{tensor.data_type}\0{list(tensor.dims)}".encode())
    return digest.hexdigest()
