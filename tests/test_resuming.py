"""A training that is stopped, saved and resumed ends with the same bits as one that never stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest

import artifacts
from artifacts import api
from artifacts.api import CheckpointState
from onnxblock import names, optim
from onnxblock.checkpoint import read_checkpoint
from onnxblock.errors import CheckpointError, UnknownNameError
from tests.test_in_place import OPTIMIZERS
from tests.training import Training, begin, convolutional, generate, perceptron, random_batch

BATCHES = [random_batch(6, seed=t) for t in range(12)]
STOPS = {"between steps": 6, "within a step": 7}


def schedule(training: Training) -> api.LRScheduler:
    training.optimizer.set_learning_rate(0.01)
    return api.WarmUp(api.CosineAnnealingLR(training.optimizer, 4), 2, 0.5)


def train(training: Training, scheduler: api.LRScheduler, first: int, last: int) -> list[float]:
    """Batches ``first`` to ``last``, every two of which make one step; the losses."""
    losses = []
    for t in range(first, last):
        losses.append(training.accumulate(*BATCHES[t]))
        if t % 2:
            training.apply()
            scheduler.step()
    return losses


def save(training: Training, path) -> bytes:
    CheckpointState.save_checkpoint(training.state, path, include_optimizer_state=True, include_gradients=True)
    return path.read_bytes()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name, tmp_path):
    """With Dropout, a seed, a schedule after a warm-up, and gradients of two batches to each step."""
    files = generate(perceptron(hidden=8, dropout=0.5), tmp_path, optimizer=OPTIMIZERS[name])
    through = begin(files, seed=3)
    scheduler = schedule(through)
    losses = train(through, scheduler, 0, 7)
    save(through, tmp_path / "stopped")
    losses += train(through, scheduler, 7, 12)
    expected = save(through, tmp_path / "through")
    assert len(set(losses)) == len(losses)

    resumed = begin(files, tmp_path / "stopped")
    assert resumed.optimizer.completed_steps == 3
    assert train(resumed, schedule(resumed), 7, 12) == losses[7:]
    assert save(resumed, tmp_path / "resumed") == expected


@pytest.mark.parametrize("stop", STOPS)
def test_running_statistics_and_where_it_stops(stop, tmp_path):
    files = generate(convolutional(), tmp_path, optimizer=optim.Adam(amsgrad=True))
    images = [(x.reshape(-1, 1, 8, 8), labels) for x, labels in BATCHES]

    def run(training: Training, first: int, last: int) -> list[float]:
        losses = []
        for t in range(first, last):
            losses.append(training.accumulate(*images[t]))
            if t % 2:
                training.apply()
        return losses

    through = begin(files)
    run(through, 0, STOPS[stop])
    save(through, tmp_path / "stopped")
    kept = [g.name for g in read_checkpoint(tmp_path / "stopped").optimizer_groups]
    assert kept == [names.CHECKPOINT_GROUP, *([names.GRADIENTS_GROUP] if stop == "within a step" else [])]
    expected = run(through, STOPS[stop], 10)
    resumed = begin(files, tmp_path / "stopped")
    assert run(resumed, STOPS[stop], 10) == expected
    assert save(resumed, tmp_path / "resumed") == save(through, tmp_path / "through")


def test_gradients_are_saved_only_when_asked_for(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path)
    training = begin(files)
    training.accumulate(*BATCHES[0])
    CheckpointState.save_checkpoint(training.state, tmp_path / "saved", include_optimizer_state=True)
    assert [g.name for g in read_checkpoint(tmp_path / "saved").optimizer_groups] == [names.CHECKPOINT_GROUP]
    save(training, tmp_path / "with")
    resumed = begin(files, tmp_path / "with")
    for name, gradient in training.gradients().items():
        assert gradient.any()
        np.testing.assert_array_equal(resumed.gradients()[name], gradient)
    resumed.module.lazy_reset_grad()
    save(resumed, tmp_path / "again")
    assert [g.name for g in read_checkpoint(tmp_path / "again").optimizer_groups] == [names.CHECKPOINT_GROUP]


def test_gradients_of_other_parameters(tmp_path):
    from onnxblock.checkpoint import write_checkpoint

    files = generate(perceptron(hidden=8), tmp_path)
    training = begin(files)
    training.accumulate(*BATCHES[0])
    save(training, tmp_path / "saved")
    checkpoint = read_checkpoint(tmp_path / "saved")
    group = next(g for g in checkpoint.optimizer_groups if g.name == names.GRADIENTS_GROUP)
    weight, bias = sorted(group.moments)[:2]
    group.moments[weight], group.moments["other"] = group.moments[bias], group.moments[weight]
    write_checkpoint(tmp_path / "wrong", checkpoint)
    with pytest.raises(CheckpointError, match=f"gradients that fit no parameter of it: {weight}, other"):
        CheckpointState.load_checkpoint(tmp_path / "wrong")


# -- groups of parameters


HEAD = "Group('*weight_1', name='head', learning_rate_scale=2.0)"
GROUPS = optim.ParameterGroups(
    optim.AdamW(), optim.Group("*weight_1", name="head", learning_rate_scale=2.0), optim.Group(optim.vectors)
)


def test_the_learning_rates_of_groups(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path, optimizer=GROUPS)
    training = begin(files)
    optimizer = training.optimizer
    optimizer.set_learning_rate(0.25)
    assert optimizer.learning_rate_scales == {"head": 2.0}
    assert (optimizer.get_learning_rate(), optimizer.get_learning_rate(group="head")) == (0.25, 0.5)
    optimizer.set_learning_rate_scale("head", 0.0)
    before = training.data()
    training.step(*BATCHES[0])
    still = [name for name, x in training.data().items() if np.array_equal(x, before[name])]
    assert still == [name for name in before if name.endswith("weight_1")]
    save(training, tmp_path / "saved")
    resumed = begin(files, tmp_path / "saved").optimizer
    assert resumed.learning_rate_scales == {"head": 0.0}
    with pytest.raises(UnknownNameError, match=r"no group 'haed' .*Did you mean 'head'"):
        resumed.set_learning_rate_scale("haed", 1.0)
    with pytest.raises(UnknownNameError, match="no group 'group2'"):  # it takes the common rate
        resumed.get_learning_rate(group="group2")


def test_groups_as_pytorch_trains_them(tmp_path):
    """20 steps with a schedule that moves all groups."""
    torch = pytest.importorskip("torch")
    optimizer = optim.ParameterGroups(
        optim.AdamW(variant="torch", eps=1e-8, weight_decay=0.1),
        optim.Group(optim.vectors, weight_decay=0.0),
        optim.Group("*weight_1", learning_rate_scale=0.25),
    )
    training = begin(generate(perceptron(), tmp_path, optimizer=optimizer))
    training.optimizer.set_learning_rate(0.01)
    scheduler = api.ExponentialLR(training.optimizer, 0.9)
    theirs = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    with torch.no_grad():
        for tensor, array in zip(theirs.parameters(), training.data().values(), strict=True):
            tensor.copy_(torch.tensor(array.T if array.ndim == 2 and array.shape != tensor.shape else array))
    first, bias, second, last_bias = theirs.parameters()
    groups = [
        {"params": [first]},
        {"params": [bias, last_bias], "weight_decay": 0.0},
        {"params": [second], "lr": 0.0025},
    ]
    expected = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)
    decay = torch.optim.lr_scheduler.ExponentialLR(expected, 0.9)
    for t in range(20):
        x, labels = BATCHES[t % len(BATCHES)]
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(labels))
        expected.zero_grad()
        loss.backward()
        expected.step()
        decay.step()
        assert training.step(x, labels) == pytest.approx(loss.item(), abs=1e-5)
        scheduler.step()
        assert training.optimizer.get_learning_rate(group="group2") == pytest.approx(groups[2]["lr"], rel=1e-12)


# -- the state of another optimizer


SAME = [(optim.Adam(), optim.AdamW()), (optim.AdamW(), GROUPS), (optim.RAdam(), optim.LAMB(weight_decay=0.1))]
OTHERS = [
    (optim.AdamW(), optim.Adamax()),
    (optim.AdamW(), optim.SGD(momentum=0.9)),
    (optim.SGD(momentum=0.9), optim.Lion()),
    (optim.RMSprop(momentum=0.9), optim.RMSprop(centered=True)),
    (optim.Adam(amsgrad=True), optim.Adam()),
    (optim.SGD(), optim.AdamW()),
    (optim.AdamW(), optim.ExponentialMovingAverage(optim.AdamW())),
]


def saved_with(optimizer, folder):
    training = begin(generate(perceptron(hidden=4), folder, optimizer=optimizer))
    training.step(*BATCHES[0])
    CheckpointState.save_checkpoint(training.state, folder / "saved", include_optimizer_state=True)
    CheckpointState.save_checkpoint(training.state, folder / "without")
    return folder


@pytest.mark.parametrize(("before", "after"), SAME, ids=str)
def test_states_that_are_the_same_go_on(before, after, tmp_path):
    saved = saved_with(before, tmp_path) / "saved"
    kept = [x.array().copy() for x in read_checkpoint(saved).optimizer_groups[0].moments["Perceptron/Linear/bias"]]
    training = begin(generate(perceptron(hidden=4), tmp_path / "new", optimizer=after), saved)
    assert training.optimizer.completed_steps == 1
    CheckpointState.save_checkpoint(training.state, tmp_path / "again", include_optimizer_state=True)
    again = read_checkpoint(tmp_path / "again").optimizer_groups[0].moments["Perceptron/Linear/bias"]
    np.testing.assert_array_equal([x.array() for x in again], kept)


@pytest.mark.parametrize(("before", "after"), OTHERS, ids=str)
def test_states_of_another_optimizer_are_refused(before, after, tmp_path):
    folder = saved_with(before, tmp_path)
    files = generate(perceptron(hidden=4), tmp_path / "new", optimizer=after)
    with pytest.raises(CheckpointError) as caught:
        begin(files, folder / "saved")
    for part in (f"{before} keeps {before.memory}", f"{after} keeps {after.memory}", "save_checkpoint(state, path)"):
        assert part in str(caught.value)
    assert begin(files, folder / "without").optimizer.completed_steps == 0


def of_group(name: str) -> optim.ParameterGroups:
    return optim.ParameterGroups(optim.SGD(momentum=0.9), optim.Group(f"*{name}", optimizer=optim.Lion()))


def test_groups_are_compared_parameter_by_parameter(tmp_path):
    """Momentum and Lion keep one tensor each, so numbers and shapes would not tell."""
    saved = saved_with(of_group("weight_1"), tmp_path) / "saved"
    files = generate(perceptron(hidden=4), tmp_path / "new", optimizer=of_group("bias_1"))
    with pytest.raises(CheckpointError, match=r"weight_1: average of g.*and .*bias_1: average of g"):
        begin(files, saved)
    named = optim.ParameterGroups(optim.SGD(momentum=0.9), optim.Group("*t_1", name="head", optimizer=optim.Lion()))
    files = generate(perceptron(hidden=4), tmp_path / "same", optimizer=named)
    assert begin(files, saved).optimizer.completed_steps == 1


def test_checkpoints_that_do_not_say_what_they_hold(tmp_path):
    """Those of the original, and those of optimizers built by hand, are taken as they come."""
    from onnxblock.checkpoint import write_checkpoint

    folder = saved_with(optim.RMSprop(centered=True), tmp_path)
    checkpoint = read_checkpoint(folder / "saved")
    said = json.loads(checkpoint.properties[names.STATE_PROPERTY])
    assert said["memory"] == "average of g², average of g"
    assert said["optimizer"].startswith("RMSprop(alpha=0.99")
    del said["memory"]
    checkpoint.properties[names.STATE_PROPERTY] = json.dumps(said)
    write_checkpoint(tmp_path / "silent", checkpoint)
    files = generate(perceptron(hidden=4), tmp_path / "new", optimizer=optim.Adam())
    assert begin(files, tmp_path / "silent").optimizer.completed_steps == 1


# -- the order of the parameters


def test_the_order_of_the_parameters(tmp_path):
    """A saved state is sorted by name, as the original's are; the order of the model's inputs stays."""
    files = generate(perceptron(hidden=4), tmp_path)
    training = begin(files)
    made = [name for name, _ in training.state.parameters]
    assert made == [p.name for p in files.trainable]
    assert made != sorted(made)
    flat = training.module.get_contiguous_parameters().numpy()
    CheckpointState.save_checkpoint(training.state, tmp_path / "saved")
    resumed = begin(files, tmp_path / "saved")
    assert [name for name, _ in resumed.state.parameters] == sorted(made)
    np.testing.assert_array_equal(resumed.module.get_contiguous_parameters().numpy(), flat)


# -- what generate_artifacts says of the optimizer


def test_the_optimizer_is_a_line_of_the_summary(tmp_path):
    clipped = optim.SGD(optim.ClipGradNorm(1.0), momentum=0.9)
    for optimizer, line in (
        (artifacts.OptimType.AdamW, str(optim.AdamW())),
        (clipped, "SGD(momentum=0.9, dampening=0.0, nesterov=False, weight_decay=0.0, clip_grad=ClipGradNorm(1.0))"),
        (GROUPS, f"ParameterGroups({optim.AdamW()}, {HEAD}, Group(vectors))"),
    ):
        files = generate(perceptron(hidden=4), tmp_path, optimizer=optimizer)
        assert files.optimizer == line
        assert f"\noptimizer: {line}\n" in str(files)
    without = generate(perceptron(hidden=4), tmp_path, optimizer=None)
    assert without.optimizer is None
    assert "optimizer:" not in str(without)


def test_an_optimizer_of_ones_own_is_a_line_too(tmp_path):
    class Own(optim.Optimizer):
        def states(self, shape):
            return [optim.State(shape)]

        def rule(self, step):
            return lambda p, g, m: [p - g * step.scalar(step.learning_rate), m + g]

    files = generate(perceptron(hidden=4), tmp_path, optimizer=Own())
    assert files.optimizer == "Own()"
    assert Own().memory == "state 0 of Own"
