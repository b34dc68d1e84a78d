"""What onnxruntime-training 1.19.2 does at the edges of its API, and what it crashes at, here."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from artifacts.api import CheckpointState, Module
from onnxblock.checkpoint import OptimizerGroup, Tensor, read_checkpoint, write_checkpoint
from onnxblock.errors import CheckpointError, OnnxBlockError
from tests.artifacts.handmade import TARGET, TRAINED, Files, X, parameters, train


def test_one_array_is_in_the_order_of_the_graph_not_of_the_checkpoint(tmp_path):
    files = Files(tmp_path)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    CheckpointState.save_checkpoint(state, tmp_path / "sorted")
    state, module, _ = files.open(tmp_path / "sorted")
    assert list(dict(state.parameters)) == ["W1", "W2", "b1", "b2"]
    expected = np.concatenate([parameters()[name].ravel() for name in ("W1", "b1", "W2", "b2")])
    np.testing.assert_array_equal(module.get_contiguous_parameters().numpy(), expected)


def test_the_inner_ortvalue_is_taken_as_the_original_wants_it(tmp_path):
    """Scripts hand over ``value._ortvalue``, since the original refuses the class itself."""
    state, module, optimizer = Files(tmp_path).open()
    train(module, optimizer, 2)
    moments = {name: [m.array().copy() for m in ms] for name, ms in state.storage.optimizer.moments.items()}
    flat = np.arange(24, dtype=np.float32)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(flat)
    for given in (value._ortvalue, value, flat, flat.reshape(1, 24)):
        module.copy_buffer_to_parameters(np.zeros(24, np.float32))
        module.copy_buffer_to_parameters(given)
        np.testing.assert_array_equal(module.get_contiguous_parameters(trainable_only=True).numpy(), flat)
    for name, arrays in moments.items():
        for moment, array in zip(state.storage.optimizer.moments[name], arrays, strict=True):
            np.testing.assert_array_equal(moment.array(), array)


def test_arrays_are_views_of_one_memory(tmp_path):
    state, module, optimizer = Files(tmp_path).open()
    for name in TRAINED:
        first, second = state.parameters[name], state.parameters[name]
        assert np.shares_memory(first.data, second.data)
        assert np.shares_memory(first.grad, second.grad)
        assert first.data.flags.writeable
    module(X, TARGET)
    before = {name: state.parameters[name].grad.copy() for name in TRAINED}
    optimizer.step()  # does not reset the gradients, nor scale them
    for name in TRAINED:
        np.testing.assert_array_equal(state.parameters[name].grad, before[name])


def test_dropout_is_random_in_training_and_off_in_evaluation(tmp_path):
    state, module, _ = Files(tmp_path, dropout=True).open()
    state.parameters["W1"].data[...] = 1
    assert len({float(module(X, TARGET)) for _ in range(20)}) > 2
    assert len({float(module.eval()(X, TARGET)) for _ in range(20)}) == 1


def saved(files, change, path):
    """The checkpoint of two steps with its optimizer groups changed."""
    state, module, optimizer = files.open()
    train(module, optimizer, 2)
    CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    checkpoint = read_checkpoint(path)
    (group,) = checkpoint.optimizer_groups
    checkpoint.optimizer_groups = change(group)
    write_checkpoint(path, checkpoint)


def zero_moments(optimizer):
    return all(not m.array().any() for ms in optimizer._group.moments.values() for m in ms)


def without_states(group):
    return [OptimizerGroup(step=group.step, initial_learning_rate=0.25)]


def of_another_name(group):
    return [OptimizerGroup("other", group.step, moments=group.moments)]


@pytest.mark.parametrize(
    ("change", "steps"), [(lambda _: None, 0), (lambda _: [], 0), (without_states, 2), (of_another_name, 0)]
)
def test_optimizer_groups_without_states(change, steps, tmp_path):
    files = Files(tmp_path)
    saved(files, change, tmp_path / "c")
    state, _, optimizer = files.open(tmp_path / "c")
    assert optimizer.completed_steps == steps
    assert optimizer.get_learning_rate() == 0.001
    assert zero_moments(optimizer)
    CheckpointState.save_checkpoint(state, tmp_path / "again", include_optimizer_state=True)
    groups = {group.name: group for group in read_checkpoint(tmp_path / "again").optimizer_groups}
    assert set(groups) == {"group0"} | ({"other"} if change is of_another_name else set())
    assert groups["group0"].initial_learning_rate == (0.25 if change is without_states else np.float32(0.001))


def test_moments_that_are_not_needed_are_left_behind(tmp_path):
    def more(group):
        extra = Tensor.from_array("momentum2", np.ones(4, np.float32))
        group.moments["b1"].append(extra)
        group.moments["nobody"] = [extra]
        return [group]

    files = Files(tmp_path)
    saved(files, more, tmp_path / "c")
    _, _, optimizer = files.open(tmp_path / "c")
    assert optimizer.completed_steps == 2
    assert set(optimizer._group.moments) == set(TRAINED)
    assert not zero_moments(optimizer)


def test_a_group_twice_is_refused(tmp_path):
    files = Files(tmp_path)
    saved(files, lambda group: [group, group], tmp_path / "c")
    with pytest.raises(CheckpointError, match="optimizer group twice: 'group0'"):
        files.open(tmp_path / "c")


def test_exports_keep_the_ir_version_and_leave_out_what_nothing_reads(tmp_path):
    files = Files(tmp_path)
    _, module, _ = files.open()
    module.export_model_for_inferencing(str(tmp_path / "m.onnx"), ["h"])
    exported, evaluation = onnx.load(tmp_path / "m.onnx"), onnx.load(files.evaluation)
    assert exported.ir_version == evaluation.ir_version
    assert [i.name for i in exported.graph.input] == ["x"]
    assert [t.name for t in exported.graph.initializer] == ["W1", "b1"]


def test_what_the_original_crashes_at_or_refuses(tmp_path):
    """Evaluation without a model for it, which ends its process; assigning before a module exists; ``repr``."""
    files = Files(tmp_path)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    state.parameters["b1"].data = np.ones(4, np.float32)
    module = Module(files.training, state)
    module.eval()
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    for given in ((X, TARGET), (value(X), value(TARGET))):
        with pytest.raises(OnnxBlockError, match="no evaluation model"):
            module(*given)
    assert float(module.train()(X, TARGET)) > 0
    assert repr(state.parameters) == "Parameters(W1, b1, W2, b2)"
