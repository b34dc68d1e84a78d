"""Artifacts fed, combined, saved or set up wrongly: one exception that says how, and training goes on as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import artifacts
from artifacts.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from artifacts.api.feeds import UserInput, checked
from artifacts.api.inference import export_model
from artifacts.manifest import Input
from onnxblock import loss
from onnxblock.errors import (
    ArgumentError,
    ArtifactMismatchError,
    CheckpointError,
    FeedError,
    InvalidModelError,
    OnnxBlockError,
    RuntimeUnavailableError,
    UnknownNameError,
)
from onnxblock.graph import store
from tests.refusing import refused
from tests.training import Training, begin, convolutional, generate, perceptron, random_batch

X, LABELS = random_batch(6)
IMAGES = X.reshape(-1, 1, 8, 8)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> artifacts.Artifacts:
    return generate(convolutional(), tmp_path_factory.mktemp("convolutional"))


@pytest.fixture(scope="module")
def others(tmp_path_factory) -> artifacts.Artifacts:
    return generate(perceptron(), tmp_path_factory.mktemp("perceptron"))


def everything(training: Training) -> list[Any]:
    """All that training changes."""
    return [training.data(), training.gradients(), training.optimizer.completed_steps, training.state.storage.extras]


# -- arrays


@pytest.mark.parametrize(
    ("fed", "words"),
    [
        ((IMAGES,), ["takes 2 inputs, 1 were given", "x, labels"]),
        ((IMAGES, LABELS, LABELS), ["takes 2 inputs, 3 were given"]),
        ((), ["takes 2 inputs, 0 were given"]),
        ((X, LABELS), ["'x' is float32[n, 1, 8, 8], what was given has shape [6, 64]"]),
        ((IMAGES[:, :, :7], LABELS), ["has shape [6, 1, 7, 8]"]),
        (
            (IMAGES.astype(float), LABELS.astype(np.uint64)),
            ["the array given is float64[", "'labels' is int64[n]", "uint64"],
        ),
        ((IMAGES.astype(">f4"), LABELS), ["'x' is float32", ">f4"]),
        ((IMAGES + 0j, LABELS), ["'x' is float32", "complex64"]),
        ((IMAGES > 0, LABELS), ["'x' is float32", "bool"]),
        ((IMAGES, LABELS.astype(np.float32)), ["'labels' is int64[n], the array given is float32[6]"]),
        ((IMAGES, np.eye(10, dtype=np.int64)[LABELS]), ["'labels' is int64[n], what was given has shape [6, 10]"]),
        ((IMAGES, None), ["'labels' cannot be made of what was given"]),
        ((None, LABELS), ["'x' cannot be made of what was given: None"]),
        (({"x": IMAGES}, LABELS), ["'x' cannot be made of what was given"]),
        (([[1.0], [1.0, 2.0]], LABELS), ["'x' cannot be made of what was given"]),
        (("x", "labels"), ["'x' cannot", "'labels' cannot"]),
        ((IMAGES, LABELS[:3]), ["do not agree with each other", "n is 6 in 'x', 3 in 'labels'"]),
        ((onnxruntime.OrtValue.ortvalue_from_numpy(IMAGES), LABELS[:3]), ["n is 6 in 'x', 3 in 'labels'"]),
        ((onnxruntime.OrtValue.ortvalue_from_numpy(X), LABELS), ["'x' is float32[n, 1, 8, 8]", "[6, 64]"]),
    ],
)
def test_arrays_that_do_not_fit(fed, words, files):
    training, undisturbed = begin(files), begin(files)
    for each in (training, undisturbed):
        each.step(IMAGES, LABELS)
        each.accumulate(IMAGES, LABELS)
    for mode in (True, False):
        training.module.train(mode)
        with refused(FeedError, *words):
            training.module(*fed)
    training.module.train()
    np.testing.assert_equal(everything(training), everything(undisturbed))
    assert training.step(IMAGES, LABELS) == undisturbed.step(IMAGES, LABELS)
    np.testing.assert_equal(everything(training), everything(undisturbed))


def test_sizes_agree_by_name():
    def ports(name):
        shapes = ((name, "features"), (name,), ("features", name))
        return [UserInput(Input(f"x{k}", "user", "float32", shape)) for k, shape in enumerate(shapes)]

    arrays = [np.ones(shape, np.float32) for shape in ((2, 3), (4,), (3, 2))]
    with refused(FeedError, "rows is 2 in 'x0', 4 in 'x1'"):
        checked(ports("rows"), arrays, [False] * 3)
    with refused(FeedError, "features is 3 in 'x0', 5 in 'x2'"):
        checked(ports("rows"), [arrays[0], arrays[1][:2], np.ones((5, 2), np.float32)], [False] * 3)
    assert len(checked(ports("?"), arrays, [False] * 3)) == 3  # says nothing but that it is not known


def test_an_empty_batch(files, others):
    training = begin(files)
    before = everything(training)
    with refused(FeedError, "the batch is empty", "running statistics"):
        training.module(IMAGES[:0], LABELS[:0])
    np.testing.assert_equal(everything(training)[:2], before[:2])
    training.module.eval()(IMAGES[:0], LABELS[:0])
    training = begin(others)  # without batch norm it adds nothing
    training.accumulate(X, LABELS)
    gradients = training.gradients()
    training.accumulate(X[:0], LABELS[:0])
    np.testing.assert_equal(training.gradients(), gradients)


@pytest.mark.parametrize("label", [10, 1000, -1, -10, -11, 2**40])
@pytest.mark.parametrize("kind", [loss.CrossEntropyLoss, loss.NLLLoss])
def test_labels_that_are_no_class(kind, label, tmp_path):
    """Negative ones too: an index may count from the end, a label may not."""
    files = generate(perceptron(), tmp_path, loss=kind())
    training, undisturbed = begin(files), begin(files)
    wrong = LABELS.copy()
    wrong[2] = label
    for each in (training, undisturbed):
        each.accumulate(X, LABELS)
        each.module.lazy_reset_grad()
    for mode in (True, False):
        training.module.train(mode)
        with refused(
            OnnxBlockError, "failed", "label or an index is out of range", f"{wrong.min()} to {wrong.max()}"
        ) as caught:
            training.module(X, wrong)
        assert "onnxruntime::" not in str(caught.value)
    training.module.train()
    assert training.accumulate(X, LABELS) == undisturbed.accumulate(X, LABELS)  # the reset is not lost either
    np.testing.assert_equal(training.gradients(), undisturbed.gradients())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_leaves_with_the_next_reset(value, others):
    training, undisturbed = begin(others), begin(others)
    assert not np.isfinite(training.accumulate(X * np.float32(value), LABELS))
    assert any(not np.isfinite(g).all() for g in training.gradients().values())
    training.module.lazy_reset_grad()
    assert training.step(X, LABELS) == undisturbed.step(X, LABELS)
    np.testing.assert_equal(training.data(), undisturbed.data())


@pytest.mark.parametrize(
    "x", [X.tolist(), np.asfortranarray(X), np.ma.masked_array(X), np.concatenate([X, X], 1)[:, :64], X[::-1][::-1]]
)
def test_arrays_in_any_form_give_the_same(x, others):
    assert begin(others).step(x, LABELS.tolist()) == begin(others).step(X, LABELS)


# -- files that do not belong together


def load(path: Path) -> CheckpointState:
    return CheckpointState.load_checkpoint(path)


def test_files_of_different_models(files, others):
    with refused(ArtifactMismatchError, str(files.training_model), "different models", "'Perceptron/Linear/weight'"):
        Module(files.training_model, load(others.checkpoint))
    with refused(ArtifactMismatchError, str(files.training_model), str(others.eval_model), "different generations"):
        Module(files.training_model, load(files.checkpoint), others.eval_model)
    module = Module(files.training_model, load(files.checkpoint))
    with refused(ArtifactMismatchError, str(files.training_model), str(others.optimizer_model), "generations"):
        Optimizer(others.optimizer_model, module)


def test_files_of_different_generations_of_one_model(others, tmp_path):
    """As they lie in a folder when the second generation was cut off between two files."""
    new = generate(perceptron(), tmp_path / "new", loss=loss.CrossEntropyLoss(reduction="sum"))
    old_state, new_state = load(others.checkpoint), load(new.checkpoint)
    with refused(ArtifactMismatchError, str(new.training_model), str(others.eval_model), "one generate_artifacts run"):
        Module(new.training_model, old_state, others.eval_model)
    with refused(ArtifactMismatchError, str(new.training_model), str(others.optimizer_model)):
        Optimizer(others.optimizer_model, Module(new.training_model, new_state, new.eval_model))
    Module(new.training_model, old_state, new.eval_model)  # the parameters of the one are those of the other


def test_files_in_the_wrong_place(others):
    state = load(others.checkpoint)
    for path, kind in ((others.eval_model, "eval"), (others.optimizer_model, "optimizer")):
        with refused(ArtifactMismatchError, f"is the {kind} model, where the training model is expected"):
            Module(path, state)
    for path, kind in ((others.training_model, "training"), (others.optimizer_model, "optimizer")):
        with refused(ArtifactMismatchError, f"is the {kind} model, where the eval model is expected"):
            Module(others.training_model, state, path)
    with refused(ArtifactMismatchError, "is the eval model, where the optimizer model is expected"):
        Optimizer(others.eval_model, Module(others.training_model, state))
    with refused(InvalidModelError, "cannot load", "checkpoint"):
        Module(others.checkpoint, state)
    with refused(CheckpointError, "training_model.onnx is not a checkpoint"):
        load(others.training_model)


@pytest.mark.parametrize("weight", [np.ones((65, 3), np.float32), np.ones((64, 3))])
def test_files_of_a_forward_model_that_no_runtime_loads(weight, tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[N,64] x) => (float[N,3] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    new = generate(model, tmp_path)
    with refused(InvalidModelError, "cannot load", "MatMul", "loads the forward model itself"):
        Module(new.training_model, load(new.checkpoint))


@pytest.mark.parametrize("kind", ["training_model", "eval_model", "optimizer_model"])
def test_what_was_generated_is_no_forward_model(kind, others, tmp_path):
    with refused(InvalidModelError, "itself generated for training", "export_model_for_inferencing"):
        generate(onnx.load(getattr(others, kind)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_trained_here_and_frozen_there(others, tmp_path):
    kept = ["Perceptron/Linear/weight", "Perceptron/Linear/bias"]
    new = generate(perceptron(), tmp_path, requires_grad=kept[:1], frozen_params=kept[1:])
    with refused(ArtifactMismatchError, f"{kept[1]!r} is frozen in the model, trained in the checkpoint"):
        Module(new.training_model, load(others.checkpoint))
    words = [f"{kept[1]!r} is trained in the model, frozen", "'Perceptron/Linear/bias_1' of the model is not in the"]
    with refused(ArtifactMismatchError, *words):
        Module(others.training_model, load(new.checkpoint))


def test_checkpoints_that_were_cut_off(others, tmp_path):
    content = others.checkpoint.read_bytes()
    whole = {name: p.data.copy() for name, p in load(others.checkpoint).parameters}
    for cut in [*range(0, 400, 7), *range(400, len(content) - 50, 997), *range(len(content) - 50, len(content))]:
        path = tmp_path / "cut"
        path.write_bytes(content[:cut])
        try:
            found = {name: p.data for name, p in load(path).parameters}
        except CheckpointError:
            continue
        np.testing.assert_equal(found, whole)  # only padding was lost
        assert cut > len(content) - 8


# -- arguments


def test_arguments_in_the_wrong_order(others, tmp_path):
    training = begin(others)
    with refused(ArgumentError, "state is PosixPath", "CheckpointState is expected", "Module(training model, state"):
        Module(training.state, others.training_model)
    with refused(ArgumentError, "state is str"):
        Module(others.training_model, str(others.checkpoint))
    with refused(ArgumentError, "module is PosixPath, where a Module is expected"):
        Optimizer(training.module, others.optimizer_model)
    with refused(ArgumentError, "state is PosixPath"):
        CheckpointState.save_checkpoint(tmp_path / "saved", training.state)
    with refused(ArgumentError, "optimizer is Module, where an Optimizer or TrainingStep is expected"):
        LinearLRScheduler(training.module, 1, 2, 0.1)
    with refused(InvalidModelError, "is not a path"):
        Module(None, training.state)
    with refused(CheckpointError, "is not a path"):
        load(3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rate", [np.nan, np.inf, "0.1", None, [0.1], np.ones(2), 1j])
def test_learning_rates(rate, others):
    training = begin(others)
    with refused(ArgumentError, "is not a finite number"):
        training.optimizer.set_learning_rate(rate)
    with refused(ArgumentError, "is not a finite number"):
        LinearLRScheduler(training.optimizer, 0, 2, rate)
    assert training.optimizer.get_learning_rate() == 0.001
    for fine in (0, 1, 0.5, np.float32(0.5), np.array([0.25])):
        training.optimizer.set_learning_rate(fine)
        assert training.optimizer.get_learning_rate() == fine


@pytest.mark.parametrize("counts", [(-1, 2), (1, -2), (0.5, 2), (1, None), ("1", "2")])
def test_schedules(counts, others):
    with refused(ArgumentError, "is no number of steps"):
        LinearLRScheduler(begin(others).optimizer, *counts, 0.1)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "7", [7]])
def test_seeds(seed, others):
    with refused(ArgumentError, "63-bit number"):
        begin(others, seed=seed)
    training = begin(others, seed=np.int64(7))
    with refused(ArgumentError, "63-bit number"):
        training.module.set_seed(seed)
    assert training.state.storage.extras.seed == 7


def test_devices_and_options(others):
    state = load(others.checkpoint)
    with refused(ArgumentError, "device is NoneType"):
        Module(others.training_model, state, device=None)
    with refused(ArgumentError, "session options are dict"):
        Module(others.training_model, state, session_options={})
    with refused(RuntimeUnavailableError, "does not have NoSuchProvider"):
        Module(others.training_model, state, providers=["NoSuchProvider"])
    with refused(ArgumentError, "providers are 'CPUExecutionProvider'", "['CPUExecutionProvider']"):
        Module(others.training_model, state, providers="CPUExecutionProvider")


# -- saving and exporting


def test_what_cannot_be_exported(others, tmp_path):
    module = begin(others).module
    path = tmp_path / "exported.onnx"
    path.write_text("mine")
    with refused(UnknownNameError, "no value 'score'", "Did you mean 'scores'", "It gives 'scores'; intermediate"):
        module.export_model_for_inferencing(path, ["score"])
    with refused(ArgumentError, "the str 'scores'", "['scores']"):
        module.export_model_for_inferencing(path, "scores")
    with refused(ArgumentError, "the outputs are the NoneType None", "['scores']"):
        module.export_model_for_inferencing(path, None)
    for outputs in ([], ["scores", "scores"]):
        with refused(OnnxBlockError, "at least one value"):
            module.export_model_for_inferencing(path, outputs)
    with refused(OnnxBlockError, "cannot write", "no/exported.onnx"):
        module.export_model_for_inferencing(tmp_path / "no" / "exported.onnx", ["scores"])
    for needed in (others.eval_model, others.training_model, others.checkpoint):
        before = needed.read_bytes()
        with refused(ArgumentError, f"{needed.name}' would be overwritten, and training needs it"):
            module.export_model_for_inferencing(needed, ["scores"])
        assert needed.read_bytes() == before
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_an_export_does_not_take_the_data_of_the_models(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SINGLE_FILE_NBYTES", 1000)
    files = generate(perceptron(), tmp_path, requires_grad=["Perceptron/Linear/bias"], optimizer=None)
    data = files.training_model.with_name("training_model.onnx.data")
    before = data.read_bytes()
    files.training_model.unlink()
    state = CheckpointState.load_checkpoint(files.checkpoint)
    arrays = {name: p.data for name, p in state.parameters}
    with refused(ArgumentError, "training_model.onnx.data' would be overwritten"):
        export_model(files.eval_model, arrays, files.training_model, ["scores"])
    assert data.read_bytes() == before


def test_an_evaluation_model_that_was_replaced_is_not_exported(tmp_path):
    files = generate(perceptron(), tmp_path)
    module = begin(files).module
    generate(perceptron(hidden=16), tmp_path)
    with refused(ArtifactMismatchError, "eval_model.onnx is no longer the file that was opened", "Open a new Module"):
        module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])
    files.eval_model.unlink()
    with refused(ArtifactMismatchError, "is no longer the file"):
        module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])
    assert not (tmp_path / "m.onnx").exists()


def test_an_export_reads_the_file_that_was_opened_wherever_one_is(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, hidden in ((here, 32), (there, 8)):
        generate(perceptron(hidden=hidden), folder)
    monkeypatch.chdir(here)
    module = Module("training_model.onnx", CheckpointState.load_checkpoint("checkpoint"), "eval_model.onnx")
    monkeypatch.chdir(there)
    module.export_model_for_inferencing("m.onnx", ["scores"])
    shapes = [list(tensor.dims) for tensor in onnx.load(there / "m.onnx").graph.initializer]
    assert [64, 32] in shapes or [32, 64] in shapes


def test_checkpoints_that_cannot_be_written(others, tmp_path):
    state = begin(others).state
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "no" / "checkpoint"):
        with refused(CheckpointError, "cannot write", str(path)):
            CheckpointState.save_checkpoint(state, path)
    assert [p.name for p in tmp_path.rglob("*")] == ["folder"]


def test_parameters_that_do_not_exist(others):
    parameters = begin(others).state.parameters
    with refused(UnknownNameError, "no parameter 'Perceptron/Linear/weigth'", "'Perceptron/Linear/weight'"):
        parameters["Perceptron/Linear/weigth"]
    with refused(UnknownNameError, "no parameter 'bias'", "'Perceptron/Linear/bias'"):
        parameters["bias"]
    for name in (0, None):
        with refused(UnknownNameError, "no parameter"):
            parameters[name]
