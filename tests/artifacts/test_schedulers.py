"""Learning rate schedulers, step by step beside PyTorch's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from artifacts import api
from artifacts.api import CheckpointState
from onnxblock.errors import ArgumentError
from tests.artifacts.handmade import TARGET, Files, X

BASE, STEPS = 0.3, 60
METRICS = [5 - 0.4 * min(t, 7) + 0.3 * np.sin(3 * t) + (t > 40) * 2.0 for t in range(STEPS)]

# kind, settings: the names are PyTorch's
CASES = {
    "constant": ("ConstantLR", {"factor": 0.25, "total_iters": 7}),
    "constant by default": ("ConstantLR", {}),
    "linear": ("LinearLR", {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 9}),
    "linear by default": ("LinearLR", {}),
    "cosine": ("CosineAnnealingLR", {"T_max": 50, "eta_min": 0.01}),
    "cosine there and back": ("CosineAnnealingLR", {"T_max": 25}),
    "steps": ("StepLR", {"step_size": 7, "gamma": 0.5}),
    "milestones": ("MultiStepLR", {"milestones": [30, 5, 5, 31], "gamma": 0.2}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "polynomial": ("PolynomialLR", {"total_iters": 40, "power": 2.0}),
    "polynomial by default": ("PolynomialLR", {}),
    "one cycle": ("OneCycleLR", {"max_lr": 2.0, "total_steps": STEPS + 1}),
    "one cycle, linear": (
        "OneCycleLR",
        {"max_lr": 2.0, "total_steps": STEPS + 1, "anneal_strategy": "linear", "pct_start": 0.4, "div_factor": 5.0},
    ),
    "one cycle of three phases": (
        "OneCycleLR",
        {"max_lr": 2.0, "total_steps": STEPS + 1, "three_phase": True, "final_div_factor": 10.0},
    ),
    "plateau": ("ReduceLROnPlateau", {"patience": 3, "factor": 0.5}),
    "plateau, resting": ("ReduceLROnPlateau", {"patience": 2, "cooldown": 4, "min_lr": 0.02, "threshold": 0.1}),
    "plateau of what should grow": ("ReduceLROnPlateau", {"mode": "max", "patience": 4, "threshold": 0.05}),
    "plateau by differences": (
        "ReduceLROnPlateau",
        {"mode": "max", "patience": 1, "threshold": 0.2, "threshold_mode": "abs", "factor": 0.7, "eps": 1e-3},
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def optimizer(files):
    optimizer = files.open()[2]
    optimizer.set_learning_rate(BASE)
    return optimizer


def rates(optimizer, scheduler, steps=STEPS, first=0):
    found = [optimizer.get_learning_rate()]
    for t in range(first, first + steps):
        scheduler.step(METRICS[t])
        found.append(optimizer.get_learning_rate())
    return found


def torch_rates(make, steps=STEPS):
    torch = pytest.importorskip("torch")
    theirs = torch.optim.SGD([torch.zeros(1)], lr=BASE)
    scheduler = make(torch.optim.lr_scheduler, theirs)
    watching = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
    found = [theirs.param_groups[0]["lr"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of no optimizer step before, and of its own use of a deprecated argument
        for t in range(steps):
            theirs.step()
            scheduler.step(*([METRICS[t]] if watching else []))
            found.append(theirs.param_groups[0]["lr"])
    return found


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name, optimizer):
    kind, settings = CASES[name]
    scheduler = getattr(api, kind)(optimizer, **settings)
    expected = torch_rates(lambda module, theirs: getattr(module, kind)(theirs, **settings))
    np.testing.assert_allclose(rates(optimizer, scheduler), expected, rtol=1e-9, atol=1e-15)
    assert len(set(expected)) > 1


def test_any_function(optimizer):
    scheduler = api.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    assert rates(optimizer, scheduler) == [BASE * (1 / (1 + t)) for t in range(STEPS + 1)]


@pytest.mark.parametrize("kind", ["CosineAnnealingLR", "StepLR", "ExponentialLR", "PolynomialLR"])
def test_warming_up_as_pytorch(kind, optimizer):
    settings = next(s for k, s in CASES.values() if k == kind)
    scheduler = api.WarmUp(getattr(api, kind)(optimizer, **settings), 6, start_factor=0.1)

    def make(module, theirs):
        parts = [module.LinearLR(theirs, 0.1, 1.0, 6), getattr(module, kind)(theirs, **settings)]
        return module.SequentialLR(theirs, parts, milestones=[6])

    expected = torch_rates(make, 40)
    np.testing.assert_allclose(rates(optimizer, scheduler, 40), expected, rtol=1e-9)


def test_warming_up_from_zero_and_not_at_all(optimizer):
    scheduler = api.WarmUp(api.ConstantLR(optimizer, 1.0), 4)
    np.testing.assert_allclose(rates(optimizer, scheduler, 5), [0, BASE / 4, BASE / 2, 3 * BASE / 4, BASE, BASE])
    at_once = api.WarmUp(api.StepLR(optimizer, 1, 0.5), 0)
    assert rates(optimizer, at_once, 2) == [BASE, BASE / 2, BASE / 4]


def test_warming_up_before_a_plateau(optimizer):
    scheduler = api.WarmUp(api.ReduceLROnPlateau(optimizer, patience=1, factor=0.5), 2)
    found = [optimizer.get_learning_rate()]
    for metrics in (1.0, 1.0, 1.0, 1.0, 1.0):
        scheduler.step(metrics)
        found.append(optimizer.get_learning_rate())
    # what was seen while warming up does not count
    assert found == [0.0, BASE / 2, BASE, BASE, BASE, BASE / 2]


def test_one_cycle_ends_where_it_ends(optimizer):
    scheduler = api.OneCycleLR(optimizer, 2.0, 10)
    found = rates(optimizer, scheduler, 20)
    assert found[9:] == [pytest.approx(2.0 / 25 / 1e4)] * 12
    scheduler = api.OneCycleLR(optimizer, 2.0, 10, pct_start=0.1)
    assert max(rates(optimizer, scheduler, 20)) == pytest.approx(2.0)


def test_a_metric_that_is_no_number_is_nothing_better(optimizer):
    scheduler = api.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for metrics in (float("nan"), np.float32(1.0), np.array([2.0])):
        scheduler.step(metrics)
    assert optimizer.get_learning_rate() == BASE / 4


# -- saved with the optimizer's state


def all_schedulers():
    return {name: lambda o, kind=kind, s=s: getattr(api, kind)(o, **s) for name, (kind, s) in CASES.items()} | {
        "function": lambda o: api.LambdaLR(o, lambda t: 0.9**t),
        "warm-up": lambda o: api.WarmUp(api.CosineAnnealingLR(o, np.int64(50)), 20, 0.1),
        "warm-up before a plateau": lambda o: api.WarmUp(api.ReduceLROnPlateau(o, patience=2), 5),
    }


@pytest.mark.parametrize("stop", [13, 33])
@pytest.mark.parametrize("name", all_schedulers())
def test_resuming_goes_on_with_the_same_bits(name, stop, files, tmp_path):
    make = all_schedulers()[name]
    state, _, optimizer = files.open()
    optimizer.set_learning_rate(BASE)
    scheduler = make(optimizer)
    rates(optimizer, scheduler, stop)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    expected = rates(optimizer, scheduler, STEPS - stop, stop)
    _, _, resumed = files.open(tmp_path / "saved")
    if stop == 33:  # as a script does that begins and resumes in the same way
        resumed.set_learning_rate(BASE)
    assert rates(resumed, make(resumed), STEPS - stop, stop) == expected


def test_saving_again_before_the_scheduler_is_made(files, tmp_path):
    state, _, optimizer = files.open()
    rates(optimizer, api.StepLR(optimizer, 2), 3)
    CheckpointState.save_checkpoint(state, tmp_path / "first", include_optimizer_state=True)
    state, _, _ = files.open(tmp_path / "first")
    CheckpointState.save_checkpoint(state, tmp_path / "second", include_optimizer_state=True)
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()
    assert api.StepLR(files.open(tmp_path / "second")[2], 2).steps == 3


def test_what_starts_anew(files, tmp_path):
    state, _, optimizer = files.open()
    optimizer.set_learning_rate(BASE)
    scheduler = api.StepLR(optimizer, 2, 0.5)
    rates(optimizer, scheduler, 3)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    CheckpointState.save_checkpoint(state, tmp_path / "without")
    _, _, resumed = files.open(tmp_path / "saved")
    assert api.StepLR(resumed, 3, 0.5).steps == 0  # other settings
    assert resumed.get_learning_rate() == BASE / 2
    assert api.ExponentialLR(resumed, 0.5).steps == 0  # another kind
    assert api.StepLR(resumed, 2, 0.5).steps == 3
    assert resumed.get_learning_rate() == BASE / 2
    assert api.StepLR(resumed, 2, 0.5).steps == 0  # it is given once
    assert api.StepLR(files.open(tmp_path / "without")[2], 2, 0.5).steps == 0
    assert api.StepLR(optimizer, 2, 0.5).steps == 0  # one made beside another, without a checkpoint between


def test_state_dicts(optimizer):
    scheduler = api.StepLR(optimizer, 2, 0.5)
    rates(optimizer, scheduler, 4)
    kept = scheduler.state_dict()
    assert kept == {"kind": "StepLR", "settings": {"step_size": 2, "gamma": 0.5}, "base_lr": BASE, "steps": 4}
    rates(optimizer, scheduler, 4)
    scheduler.load_state_dict(kept)
    assert optimizer.get_learning_rate() == BASE / 4
    with pytest.raises(ArgumentError, match=r"of StepLR with .*'gamma': 0\.5.*, not of StepLR with .*'gamma': 0\.1"):
        api.StepLR(optimizer, 2).load_state_dict(kept)


def test_the_first_rate_is_recorded_for_the_original(files, tmp_path):
    from onnxblock.checkpoint import read_checkpoint

    state, _, optimizer = files.open()
    optimizer.set_learning_rate(0.25)
    api.WarmUp(api.StepLR(optimizer, 2), 3)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    assert read_checkpoint(tmp_path / "saved").optimizer_groups[0].initial_learning_rate == 0.25


def test_what_the_rate_is_used_for(files):
    state, module, optimizer = files.open()
    scheduler = api.WarmUp(api.ConstantLR(optimizer, 1.0), 1)
    before = {name: p.data.copy() for name, p in state.parameters}
    module(X, TARGET)
    optimizer.step()
    assert all(np.array_equal(p.data, before[name]) for name, p in state.parameters)
    scheduler.step()
    optimizer.step()
    assert any(not np.array_equal(p.data, before[name]) for name, p in state.parameters)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: api.StepLR(o, 0), r"StepLR: step_size=0 is not a number of steps from 1 on"),
        (lambda o: api.StepLR(o, 2.5, -1), r"step_size=2\.5 .*; gamma=-1 is no number from 0 on"),
        (lambda o: api.ExponentialLR(o, "0.9"), "gamma='0.9' is no number"),
        (lambda o: api.ExponentialLR(o, float("inf")), "gamma=inf is no number"),
        (lambda o: api.MultiStepLR(o, [3, -1]), r"milestones\[1\]=-1 is no number of steps"),
        (lambda o: api.OneCycleLR(o, 0.0, 10, pct_start=2), "pct_start=2 is not in|max_lr=0.0 is not positive"),
        (lambda o: api.OneCycleLR(o, 1.0, 10, anneal_strategy="linaer"), "Did you mean 'linear'"),
        (lambda o: api.ReduceLROnPlateau(o, "low", 1.0), r"factor=1\.0 is not in \[0, 1\); mode='low'"),
        (lambda o: api.ReduceLROnPlateau(o, threshold_mode="x"), "threshold_mode='x'"),
        (lambda o: api.ReduceLROnPlateau(o).step(), "given None, where a number"),
        (lambda o: api.ReduceLROnPlateau(o).step([1, 2]), "where a number is expected"),
        (lambda o: api.LambdaLR(o, 3), "lr_lambda=3 is no function"),
        (lambda o: api.WarmUp(o, 3), "scheduler is Optimizer, where a LRScheduler"),
        (lambda o: api.StepLR(api, 3), "optimizer is module, where an Optimizer"),
    ],
)
def test_settings_out_of_range(make, message, optimizer):
    with pytest.raises(ArgumentError, match=message):
        make(optimizer)
