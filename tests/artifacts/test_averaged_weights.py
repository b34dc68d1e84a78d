"""Evaluation, export and checkpoints with the averages of the weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from artifacts.api import CheckpointState, Module, TrainingStep
from onnxblock import optim
from onnxblock.errors import OnnxBlockError
from tests.training import begin, generate, one_thread, perceptron, random_batch

DECAY = 0.75
BATCHES = [random_batch(6, seed=t) for t in range(5)]


@pytest.fixture
def files(tmp_path):
    averaged = optim.ExponentialMovingAverage(optim.SGD(momentum=0.9), DECAY)
    return generate(perceptron(hidden=8), tmp_path, optimizer=averaged, fused_step=True)


def trained(files, form):
    """The state, what evaluates and what has the averages after some steps; and the averages as NumPy finds them."""
    if form == "fused":
        state = CheckpointState.load_checkpoint(files.checkpoint)
        module = stepping = TrainingStep(files.step_model, state, files.eval_model, session_options=one_thread())
        step = module
    else:
        training = begin(files)
        state, module, stepping, step = training.state, training.module, training.optimizer, training.step
    stepping.set_learning_rate(0.1)
    expected = {name: p.data.copy() for name, p in state.parameters}
    for batch in BATCHES:
        step(*batch)
        for name, p in state.parameters:
            expected[name] = DECAY * expected[name] + (1 - DECAY) * p.data
    return state, module, stepping, expected


@pytest.mark.parametrize("form", ["two models", "fused"])
def test_everything_is_done_with_the_averages(form, files, tmp_path):
    state, module, stepping, expected = trained(files, form)
    assert stepping.averages.keys() == expected.keys()
    before = {name: p.data.copy() for name, p in state.parameters}
    module.eval()
    plain = float(module(*BATCHES[0]))
    with stepping.averaged_weights():
        for name, p in state.parameters:
            np.testing.assert_allclose(p.data, expected[name], rtol=1e-5, atol=1e-6)
            assert not np.array_equal(p.data, before[name])
        averaged = float(module(*BATCHES[0]))
        module.export_model_for_inferencing(tmp_path / "averaged.onnx", ["scores"])
        CheckpointState.save_checkpoint(state, tmp_path / "averaged")
    assert averaged != plain
    assert float(module(*BATCHES[0])) == plain
    for name, p in state.parameters:
        np.testing.assert_array_equal(p.data, before[name])
    kept = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "averaged.onnx").graph.initializer}
    saved = CheckpointState.load_checkpoint(tmp_path / "averaged")
    for name, array in expected.items():
        np.testing.assert_allclose(kept[name], array, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(saved.parameters[name].data, kept[name])
    again = Module(files.training_model, saved, files.eval_model, session_options=one_thread())
    assert float(again.eval()(*BATCHES[0])) == averaged


def test_training_goes_on_as_if_nothing_had_been(files):
    through, paused = begin(files), begin(files)
    for batch in BATCHES:
        with paused.optimizer.averaged_weights(), pytest.raises(ZeroDivisionError):
            1 / 0  # noqa: B018 - what is raised inside does not stay
        assert paused.step(*batch) == through.step(*batch)
    np.testing.assert_equal(paused.data(), through.data())


def test_there_are_none(tmp_path):
    training = begin(generate(perceptron(hidden=4), tmp_path))
    assert training.optimizer.averages == {}
    with (
        pytest.raises(OnnxBlockError, match=r"keeps no averages.*\n.*ExponentialMovingAverage"),
        training.optimizer.averaged_weights(),
    ):
        pass
