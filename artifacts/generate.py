"""``generate_artifacts``: a forward-only model becomes the files that training needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, get_args

from onnx import ModelProto

from onnxblock import names
from onnxblock.autodiff.recomputation import Recompute, check_recompute_argument
from onnxblock.block import Block
from onnxblock.errors import ArgumentError
from onnxblock.files import AnyPath, as_path
from onnxblock.fused_step import fuse_step
from onnxblock.graph.context import custom_op_library as use_custom_op_library
from onnxblock.graph.types import dtype_name
from onnxblock.modes import BatchNormMode, RunningVariance, check_batch_norm_argument
from onnxblock.parameters import ParameterChoice, ParameterInfo
from onnxblock.training import TrainingModels

from .describe import (
    describe_evaluation,
    describe_optimizer,
    describe_step,
    describe_training,
    generation_fingerprint,
    require_old_runtime,
)
from .garbage import without_collector
from .manifest import Manifest, Runtime
from .optimizer import Form, OptimType, build_optimizer
from .summary import Artifacts
from .train import ForwardModel, LossType, build_training
from .write import (
    folder_for,
    require_ort_sizes,
    require_other_files,
    write_models,
    write_ort_format,
    write_parameters,
)


@without_collector()
def generate_artifacts(
    model: ModelProto | str | os.PathLike[str],
    requires_grad: Sequence[str] | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: LossType | Block | None = None,
    optimizer: OptimType | Block | None = None,
    artifact_directory: AnyPath | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: AnyPath | None = None,
    additional_output_names: Sequence[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: Sequence[str] | None = None,
    *,
    batch_norm: str = "as exported",
    running_var: str = "unbiased",
    runtime: Runtime = "onnxruntime",
    fused_step: bool = False,
    recompute: Recompute = None,
    dimension_sizes: Mapping[str, int] | None = None,
) -> Artifacts:
    """Write ``training_model.onnx``, ``eval_model.onnx``, ``optimizer_model.onnx`` and ``checkpoint``.

    Args:
        model: the forward model, or the path of one (needed for models above 2 GB). It is not changed.
        requires_grad: the weights to train; graph inputs may be named too, their gradient becomes an output
            ``<input>_grad``. By default every float weight on a differentiable path to the loss, without running
            statistics.
        frozen_params: weights that are inputs of the training model and kept in the checkpoint, but not trained.
        loss: a :class:`LossType`, an instance of a loss block, or None when the model's first output is the loss.
            What a block returns after the loss, and the model's further outputs where there is none, are returned too.
        optimizer: an :class:`OptimType`, an instance of an optimizer block, or None for no optimizer model.
        artifact_directory: where to write, made if missing; the current folder by default.
        prefix: put before every file name.
        ort_format: also write each model in ORT format (``.ort``) beside the ``.onnx``.
        custom_op_library: the shared library of the model's custom operators.
        additional_output_names: values to return beside the loss, in training and in evaluation.
        nominal_checkpoint: also write ``nominal_checkpoint``, with names and types only, for a device that gets the
            weights another way.
        loss_input_names: the values given to the loss, in order; all outputs of the model by default.
        batch_norm: ``"as exported"``, ``"train"`` (use the statistics of each batch and move the running ones) or
            ``"frozen"`` (use the running statistics as they are).
        running_var: the running variance follows the ``"unbiased"`` variance of the batch, as in PyTorch, or the
            ``"biased"`` one, as in onnxruntime-training.
        runtime: the runtime that the optimizer model is for. The other files serve both.
        fused_step: also write ``step_model.onnx``, which does forward, backward and update in one run, for
            :class:`artifacts.api.TrainingStep`: the fastest, and the least memory. It needs an optimizer.
        recompute: what of the forward pass is computed again for the gradient, instead of being kept: True for the
            parts that save most, a number of bytes that forward results may take, or paths of nodes (a block of layers
            each, as exporters name them, with ``*`` for what varies: ``"/encoder/layer.*"``). Random nodes never are.
        dimension_sizes: how large symbolic dimensions of the inputs are, by their names, to reckon those bytes with.

    Returns:
        The paths, and what is trained, frozen and left alone, and why; ``print`` it.

    Raises:
        ArgumentError: an argument is of the wrong kind, or none of the values it may have.
        InvalidModelError: the model cannot be read, is not valid, or does not fit the ORT format.
        UnknownNameError: a name in ``loss_input_names``, ``additional_output_names`` or ``recompute`` does not exist.
        ParameterError: parameters that cannot be trained or frozen as asked.
        UnsupportedOperatorError: operators without a gradient between the loss and what is trained; all are listed.
        BlockBuildError: the loss or the optimizer does not fit.
        OnnxBlockError: a file cannot be written.
    """
    mode = check_batch_norm_argument(batch_norm)
    variance = _running_variance(running_var)
    _check_spellings(prefix, runtime)
    check_recompute_argument(recompute, dimension_sizes)
    if fused_step:
        _require_optimizer(optimizer, runtime)
    listed = {
        "requires_grad": requires_grad,
        "frozen_params": frozen_params,
        "additional_output_names": additional_output_names,
        "loss_input_names": loss_input_names,
    }
    trained, frozen, additional, loss_inputs = (_listed(what, given) for what, given in listed.items())
    folder = folder_for(artifact_directory, prefix)
    library = None if custom_op_library is None else str(as_path(custom_op_library))
    with use_custom_op_library(library or ""):
        models, forward = build_training(
            model,
            loss,
            trained,
            frozen or [],
            additional or [],
            loss_inputs,
            mode,
            variance,
            recompute,
            dimension_sizes,
        )
    if runtime == "onnxruntime-training":
        require_old_runtime(models)
    graphs = {names.TRAINING_MODEL_FILE: models.training, names.EVAL_MODEL_FILE: models.evaluation}
    if optimizer is not None and models.choice.trainable:
        form: Form = "sequences" if runtime == "onnxruntime-training" else "slices"
        graphs[names.OPTIMIZER_MODEL_FILE] = build_optimizer(optimizer, models, form)
        if fused_step:
            with use_custom_op_library(library or ""):
                graphs[names.STEP_MODEL_FILE] = fuse_step(models, partial(build_optimizer, optimizer, models, "slices"))
    generation = generation_fingerprint(list(graphs.values()))
    settings = _settings(models, forward, variance)
    common: tuple[Any, ...] = (forward.fingerprint, generation, settings)
    manifests = {
        names.TRAINING_MODEL_FILE: describe_training(models, *common),
        names.EVAL_MODEL_FILE: describe_evaluation(models, *common),
    }
    for name, describe in ((names.OPTIMIZER_MODEL_FILE, describe_optimizer), (names.STEP_MODEL_FILE, describe_step)):
        if name in graphs:
            manifests[name] = describe(graphs[name], models, *common)
    if ort_format:
        require_ort_sizes(graphs, models.weights)
    given = set() if isinstance(model, ModelProto) else {as_path(model)}
    require_other_files(folder, prefix, given | models.weights.files())
    metadata = {name: manifest.metadata() for name, manifest in manifests.items()}
    if forward.packed is not None:
        metadata[names.EVAL_MODEL_FILE][names.FORWARD_MODEL_KEY] = forward.packed
    paths, models_data = write_models(folder, prefix, graphs, metadata, models.weights)
    ort_models = write_ort_format(paths.values(), library) if ort_format else []
    nominal = None
    if nominal_checkpoint:
        nominal, _ = write_parameters(folder, prefix, models, forward.fingerprint, nominal=True)
    checkpoint, checkpoint_data = write_parameters(folder, prefix, models, forward.fingerprint)
    optimizer_manifest = manifests.get(names.OPTIMIZER_MODEL_FILE)
    return Artifacts(
        training_model=paths[names.TRAINING_MODEL_FILE],
        eval_model=paths[names.EVAL_MODEL_FILE],
        optimizer_model=paths.get(names.OPTIMIZER_MODEL_FILE),
        step_model=paths.get(names.STEP_MODEL_FILE),
        checkpoint=checkpoint,
        nominal_checkpoint=nominal,
        external_data=tuple(path for path in (models_data, checkpoint_data) if path is not None),
        batch_norm=forward.batch_norm,
        optimizer=_optimizer_line(optimizer_manifest, optimizer),
        runtimes=manifests[names.TRAINING_MODEL_FILE].runtimes,
        optimizer_runtimes=optimizer_manifest.runtimes if optimizer_manifest is not None else (),
        ort_models=tuple(ort_models),
        recomputation=models.recomputation,
        notes=_notes(forward, mode, models.choice),
        **_parameter_tables(models),
    )


def _optimizer_line(manifest: Manifest | None, optimizer: OptimType | Block | None) -> str | None:
    """The optimizer with its settings; only its class where it does not say them."""
    if manifest is None:
        return None
    return str(manifest.settings.get("optimizer", type(optimizer).__name__))


def _listed(what: str, given: Any) -> list[str] | None:
    """``given`` as a list; raises :class:`ArgumentError` for what is no collection of names."""
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ArgumentError(
            f"{what} is {type(given).__name__}, where a list of names is expected.",
            f"Write {what}=[{given!r}]." if isinstance(given, str) else f"Write {what}=['name', ...].",
        )
    listed = list(given)
    others = {type(name).__name__ for name in listed if not isinstance(name, str)}
    if others:
        raise ArgumentError(
            f"{what} holds {', '.join(sorted(others))}, where names are expected.", "Give a list of str."
        )
    return listed


def _check_spellings(prefix: Any, runtime: str) -> None:
    if not isinstance(prefix, str):
        raise ArgumentError(f"prefix is {type(prefix).__name__}, where a str is expected.", "Write prefix='name_'.")
    if runtime not in get_args(Runtime):
        raise ArgumentError(
            f"runtime={runtime!r} is not one of {', '.join(map(repr, get_args(Runtime)))}.",
            "'onnxruntime' is the stock one, and the default.",
        )


def _require_optimizer(optimizer: OptimType | Block | None, runtime: Runtime) -> None:
    if optimizer is None or runtime == "onnxruntime-training":
        raise ArgumentError(
            "fused_step=True needs an optimizer."
            if optimizer is None
            else "fused_step=True has no form for onnxruntime-training.",
            "Pass optimizer=artifacts.OptimType.AdamW, for example, or leave fused_step out."
            if optimizer is None
            else "Leave runtime= at its default, 'onnxruntime', or fused_step out.",
        )


def _running_variance(spelling: str) -> RunningVariance:
    try:
        return RunningVariance(spelling)
    except ValueError:
        raise ArgumentError(
            f"running_var={spelling!r} is not one of {', '.join(repr(v.value) for v in RunningVariance)}.",
            "'unbiased' is PyTorch's, and the default.",
        ) from None


def _settings(models: TrainingModels, forward: ForwardModel, variance: RunningVariance) -> dict[str, Any]:
    """What was chosen, for the manifests."""
    made: dict[str, Any] = {"batch_norm": forward.batch_norm, "running_var": variance.value}
    if models.unsized_loss is not None:
        made["loss"] = models.unsized_loss
    if models.recomputation is not None:
        made["recompute"] = asdict(models.recomputation)
    return made


def _notes(forward: ForwardModel, batch_norm: BatchNormMode, choice: ParameterChoice) -> tuple[str, ...]:
    notes = []
    if forward.raised_from is not None:
        notes.append(f"the model was raised from opset {forward.raised_from} to {forward.opset}")
    if forward.batch_norm == "frozen" and batch_norm is BatchNormMode.AS_EXPORTED:
        notes.append(
            "BatchNormalization uses its running statistics, as exported; batch_norm='train' uses those of each batch"
        )
    if forward.inner_batch_norms and batch_norm is not BatchNormMode.AS_EXPORTED:
        notes.append(f"BatchNormalization inside control flow ({forward.inner_batch_norms} nodes) stays as exported")
    elif forward.looks_folded or (forward.batch_norm == "none" and batch_norm is BatchNormMode.TRAIN):
        notes.append(
            "the model has no BatchNormalization: if it had, the exporter folded it into the convolutions; PyTorch's "
            "keeps it with optimize=False, or with dynamo=False and training=TrainingMode.TRAINING"
        )
    notes += forward.sharing.notes(choice.trainable)
    notes += [
        f"the gradient of the input {name!r} is the output {name + names.GRADIENT_SUFFIX!r}" for name in choice.inputs
    ]
    if not choice.trainable:
        notes.append("no weight is trained, so there is no optimizer model")
    return tuple(notes)


def _parameter_tables(models: TrainingModels) -> dict[str, tuple[ParameterInfo, ...]]:
    choice, weights = models.choice, models.weights

    def info(name: str) -> ParameterInfo:
        return ParameterInfo(name, dtype_name(weights.dtype(name)), weights.shape(name), choice.reasons.get(name, ""))

    return {
        "trainable": tuple(map(info, choice.trainable)),
        "frozen": tuple(info(n) for n in choice.frozen if n not in choice.statistics),
        "statistics": tuple(map(info, choice.statistics)),
        "untouched": tuple(
            ParameterInfo(t.name, dtype_name(t.data_type), tuple(t.dims), choice.reasons.get(t.name, ""))
            for t in choice.untouched
        ),
    }
