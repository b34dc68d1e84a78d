from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from artifacts.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from onnxblock.checkpoint import read_checkpoint
from tests.artifacts.handmade import TARGET, TRAINED, Files, X, parameters, train

ORIGINAL = Path(__file__).parents[1] / "checkpoint" / "original"

# losses of onnxruntime-training 1.19.2 on this network: six steps with its own optimizer models
LOSSES = {
    "AdamW": [
        3.768359422683716,
        3.7618064880371094,
        3.755275249481201,
        3.748774290084839,
        3.74230694770813,
        3.7358779907226562,
    ],
    "SGD": [
        3.768359422683716,
        3.7655692100524902,
        3.7627155780792236,
        3.7598767280578613,
        3.757053852081299,
        3.7542457580566406,
    ],
}
FORMS = [
    ("AdamW", {}),
    ("AdamW", {"in_place": False}),
    ("AdamW", {"manifest": False}),
    ("SGD", {}),
    ("SGD", {"manifest": False}),
    ("sequence", {}),
    ("sequence", {"manifest": False}),
]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_training_follows_the_original(kind, form, tmp_path):
    files = Files(tmp_path, kind, **form)
    state, module, optimizer = files.open()
    expected = LOSSES["AdamW" if kind == "AdamW" else "SGD"]
    np.testing.assert_allclose(train(module, optimizer, 3), expected[:3], rtol=3e-7)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    saved = read_checkpoint(tmp_path / "saved")
    original = read_checkpoint(ORIGINAL / f"{'AdamW' if kind == 'AdamW' else 'SGD'}_state.ckpt")
    for ours, theirs in zip(saved.parameters, original.parameters, strict=True):
        assert ours.name == theirs.name
        np.testing.assert_allclose(ours.array(), theirs.array(), atol=1e-7, rtol=0)
    (group,), (reference,) = saved.optimizer_groups, original.optimizer_groups
    assert (group.step, group.initial_learning_rate) == (3, reference.initial_learning_rate)
    if kind != "SGD":  # a per-tensor SGD keeps no moments, the original keeps zeros
        assert list(group.moments) == list(reference.moments)
        for name, tensors in reference.moments.items():
            for ours, theirs in zip(group.moments[name], tensors, strict=True):
                assert ours.name == theirs.name
                np.testing.assert_allclose(ours.array(), theirs.array(), atol=1e-7, rtol=0)
    np.testing.assert_allclose(train(module, optimizer, 3), expected[3:], rtol=3e-7)


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_resuming_is_bit_equal(kind, form, tmp_path):
    files = Files(tmp_path, kind, **form)
    state, module, optimizer = files.open()
    train(module, optimizer, 3)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    continued = train(module, optimizer, 3)
    resumed_state, module, optimizer = files.open(tmp_path / "saved")
    assert optimizer.completed_steps == 3
    assert train(module, optimizer, 3) == continued
    for name, parameter in resumed_state.parameters:
        np.testing.assert_array_equal(parameter.data, state.parameters[name].data)


def test_original_checkpoints_continue_as_the_original_did(tmp_path):
    for kind, expected in LOSSES.items():
        files = Files(tmp_path, kind)
        state, module, optimizer = files.open(ORIGINAL / f"{kind}_state.ckpt")
        assert optimizer.completed_steps == 3
        assert state.properties["name"] == "grüße"
        np.testing.assert_allclose(train(module, optimizer, 3), expected[3:], rtol=3e-7)


def test_without_its_state_the_optimizer_starts_anew(tmp_path):
    files = Files(tmp_path)
    state, module, optimizer = files.open()
    train(module, optimizer, 3)
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    _, module, optimizer = files.open(tmp_path / "saved")
    assert optimizer.completed_steps == 0
    assert train(module, optimizer, 1)[0] == pytest.approx(LOSSES["AdamW"][3], rel=3e-7)


def test_bits_do_not_depend_on_binding_in_place(tmp_path):
    results = []
    for in_place in (True, False):
        folder = tmp_path / str(in_place)
        folder.mkdir()
        files = Files(folder, in_place=in_place, statistic=True)
        state, module, optimizer = files.open()
        losses = train(module, optimizer, 5)
        CheckpointState.save_checkpoint(state, folder / "saved", include_optimizer_state=True)
        results.append((losses, (folder / "saved").read_bytes()))
    assert results[0] == results[1]


@pytest.mark.parametrize("form", [{}, {"in_place": False}, {"manifest": False}])
def test_data_and_grad_are_live(form, tmp_path):
    state, module, optimizer = Files(tmp_path, "SGD", **form).open()
    parameter = state.parameters["W1"]
    data, grad = parameter.data, parameter.grad
    assert (grad == 0).all()
    before = data.copy()
    module(X, TARGET)
    assert (grad != 0).any()
    assert (data == before).all()
    optimizer.set_learning_rate(0.5)
    optimizer.step()
    np.testing.assert_allclose(data, before - 0.5 * grad, rtol=1e-6)
    assert parameter.data is data
    data[...] = 0
    state.parameters["b1"].data.fill(0)
    state.parameters["W2"] = np.zeros((2, 4), np.float32)
    loss = module(X, TARGET)
    assert float(loss) == pytest.approx(((parameters()["b2"] - TARGET) ** 2).mean(), rel=1e-6)
    assert state.parameters["b2"].grad is None
    assert [name for name, p in state.parameters if p.requires_grad] == list(TRAINED)


@pytest.mark.parametrize("form", [{}, {"in_place": False}, {"manifest": False}])
def test_gradients_accumulate_until_they_are_reset(form, tmp_path):
    state, module, optimizer = Files(tmp_path, "SGD", **form).open()
    optimizer.set_learning_rate(0.0)
    grad = state.parameters["W1"].grad

    def after_a_run():
        module(X, TARGET)
        return grad.copy()

    once = after_a_run()
    np.testing.assert_array_equal(after_a_run(), once + once)
    module.lazy_reset_grad()
    np.testing.assert_array_equal(grad, once + once)  # nothing happens before the next training run
    module.eval()
    module(X, TARGET)
    np.testing.assert_array_equal(grad, once + once)  # which an evaluation is not
    module.train()
    optimizer.step()
    np.testing.assert_array_equal(after_a_run(), once)
    np.testing.assert_array_equal(after_a_run(), once + once)  # the reset was for one run


def test_optimizer_step_after_the_reset_still_applies_the_gradient(tmp_path):
    state, module, optimizer = Files(tmp_path, "SGD").open()
    module(X, TARGET)
    before = state.parameters["W1"].data.copy()
    module.lazy_reset_grad()
    optimizer.step()
    assert (state.parameters["W1"].data != before).any()


def test_assigned_gradients_are_what_the_optimizer_applies(tmp_path):
    state, _, optimizer = Files(tmp_path, "SGD").open()
    optimizer.set_learning_rate(1.0)
    for _, parameter in state.parameters:
        if parameter.requires_grad:
            parameter.grad = parameter.data.copy()
    optimizer.step()
    assert all((p.data == 0).all() for _, p in state.parameters if p.requires_grad)


@pytest.mark.parametrize("form", [{}, {"in_place": False}, {"manifest": False}])
def test_running_statistics_move_in_training_and_serve_evaluation(form, tmp_path):
    state, module, _ = Files(tmp_path, statistic=True, **form).open()
    mean = state.parameters["mean"].data
    weights = parameters()
    hidden = np.maximum(X @ weights["W1"].T + weights["b1"], 0)
    expected = np.zeros(4, np.float32)
    for _ in range(3):
        module(X, TARGET)
        expected = 0.9 * expected + 0.1 * hidden.mean(0)
        np.testing.assert_allclose(mean, expected, rtol=1e-5)
    frozen = mean.copy()
    module.eval()
    loss, centred = module(X, TARGET)
    np.testing.assert_allclose(centred, hidden - frozen, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mean, frozen)
    assert loss.shape == ()
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    (saved,) = [t for t in read_checkpoint(tmp_path / "saved").frozen if t.name == "mean"]
    np.testing.assert_array_equal(saved.array(), frozen)


def dropout_losses(files, steps, saved=None, **options):
    state, module, optimizer = files.open(saved, **options)
    return state, train(module, optimizer, steps)


def test_seeds_make_dropout_reproducible_and_resumable(tmp_path):
    files = Files(tmp_path, dropout=True)
    state, first = dropout_losses(files, 4, seed=7)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    _, whole = dropout_losses(files, 8, seed=7)
    assert whole[:4] == first
    assert len(set(whole)) == 8
    assert dropout_losses(files, 4, tmp_path / "saved")[1] == whole[4:]
    assert dropout_losses(files, 4, tmp_path / "saved", seed=7)[1] == whole[4:]
    assert dropout_losses(files, 4, tmp_path / "saved", seed=8)[1] != whole[4:]
    assert len(state.properties) == 0
    assert "onnxblock.state" not in state.properties
    _, module, optimizer = files.open()
    module.set_seed(7)
    assert train(module, optimizer, 4) == first


def test_without_a_seed_nothing_is_added_to_the_checkpoint(tmp_path):
    files = Files(tmp_path)
    state, module, optimizer = files.open()
    train(module, optimizer, 2)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    assert read_checkpoint(tmp_path / "saved").properties is None


def test_learning_rate(tmp_path):
    files = Files(tmp_path, "SGD")
    state, _, optimizer = files.open()
    assert optimizer.get_learning_rate() == 0.001
    optimizer.set_learning_rate(0.25)
    assert optimizer.get_learning_rate() == 0.25
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    assert files.open(tmp_path / "saved")[2].get_learning_rate() == 0.25
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    assert files.open(tmp_path / "saved")[2].get_learning_rate() == 0.001


def test_linear_schedule_is_the_documented_one(tmp_path):
    state, module, optimizer = Files(tmp_path, "SGD").open()
    scheduler = LinearLRScheduler(optimizer, 2, 6, 0.2)
    rates = []
    for _ in range(8):
        rates.append(optimizer.get_learning_rate())
        module(X, TARGET)
        scheduler.step()  # without an optimizer step it changes nothing
        assert optimizer.get_learning_rate() == rates[-1]
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0, 0.1, 0.2, 0.15, 0.1, 0.05, 0, 0])
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    assert read_checkpoint(tmp_path / "saved").optimizer_groups[0].initial_learning_rate == np.float32(0.2)


def test_ortvalues_in_ortvalues_out(tmp_path):
    _, module, _ = Files(tmp_path).open()
    wrapped = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in (X, TARGET)]
    loss = module(X, TARGET)
    assert isinstance(loss, np.ndarray)
    assert (loss.shape, loss.dtype) == ((), np.float32)
    result = module(*wrapped)
    assert isinstance(result, onnxruntime.OrtValue)
    assert result.numpy() == loss
    assert isinstance(module(X, wrapped[1]), np.ndarray)
    assert isinstance(module(X.tolist(), TARGET), np.ndarray)


def test_results_and_inputs_are_left_alone(tmp_path):
    _, module, optimizer = Files(tmp_path, statistic=True).open()
    x, target = X.copy(), TARGET.copy()
    x.flags.writeable = target.flags.writeable = False
    losses = []
    for rows in (5, 3, 5):  # sizes may change from run to run
        losses.append(module(x[:rows], target[:rows]))
        optimizer.step()
    kept = [float(loss) for loss in losses]
    module(X * 2, TARGET)
    assert [float(loss) for loss in losses] == kept
    np.testing.assert_array_equal(x, X)
    transposed = module(np.asfortranarray(X), TARGET)
    assert float(transposed) == pytest.approx(float(module(X, TARGET)))


def test_names_follow_the_mode(tmp_path):
    _, module, _ = Files(tmp_path, statistic=True).open()
    assert module.training
    assert (module.input_names(), module.output_names()) == (["x", "target"], ["loss"])
    assert module.eval() is module
    assert not module.training
    assert module.output_names() == ["loss", "centred"]
    assert module.train(False).train().training


def test_what_they_say_of_themselves(tmp_path):
    _, module, optimizer = Files(tmp_path).open()
    train(module, optimizer, 2)
    assert repr(module).startswith("Module(x float32[")
    assert repr(module).endswith("; training)")
    assert f"parameters: {len(TRAINED)} trained" in repr(module)
    assert repr(module.eval()).endswith("; evaluation)")
    assert "steps done: 2, learning rate 0.001" in repr(optimizer)


def test_evaluation_equals_training_loss(tmp_path):
    _, module, _ = Files(tmp_path).open()
    assert float(module.eval()(X, TARGET)) == pytest.approx(float(module.train()(X, TARGET)), rel=1e-6)


def test_nothing_is_printed(tmp_path, capfd):
    state, module, optimizer = Files(tmp_path).open()
    train(module, optimizer, 2)
    with pytest.raises(RuntimeError):
        module(X, TARGET[:3])
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    assert capfd.readouterr() == ("", "")


def test_one_state_serves_several_modules(tmp_path):
    files = Files(tmp_path)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    first, second = Module(files.training, state), Module(files.training, state)
    first(X, TARGET)
    once = state.parameters["W1"].grad.copy()
    second(X, TARGET)
    np.testing.assert_array_equal(state.parameters["W1"].grad, 2 * once)
    Optimizer(files.optimizer, second).step()
    assert float(first(X, TARGET)) == float(second(X, TARGET))
