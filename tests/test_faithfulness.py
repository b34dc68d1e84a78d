"""Training from generated artifacts does what NumPy, and what PyTorch, do with the same weights and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import artifacts
from onnxblock import loss, optim
from tests.optim import reference
from tests.training import Training, begin, convolutional, digits, generate, perceptron, random_batch

BATCH, EPOCHS, STEPS = 48, 3, 20


def close(ours, theirs, rtol=0.0, atol=0.0):
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=rtol, atol=atol, err_msg=name)


# -- NumPy: the same gradients give the same parameters and moments

OPTIMIZERS: dict[str, tuple[Any, reference.Update, dict[str, Any], float | None]] = {
    "AdamW": (artifacts.OptimType.AdamW, reference.adamw_original, {}, None),
    "AdamW as a block": (optim.AdamW(), reference.adamw_original, {}, None),
    "AdamW, other settings": (
        optim.AdamW(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
        reference.adamw_original,
        {"betas": (0.8, 0.95), "eps": 1e-3, "decay": 0.1},
        None,
    ),
    "AdamW without bias correction": (
        optim.AdamW(bias_correction=False, betas=(0.875, 0.984375)),
        reference.adamw_original,
        {"correct": False, "betas": (0.875, 0.984375)},
        None,
    ),
    "AdamW, clipped": (optim.AdamW(clip_grad=optim.ClipGradNorm(0.05)), reference.adamw_original, {}, 0.05),
    "AdamW, PyTorch's": (
        optim.AdamW(eps=1e-8, weight_decay=0.01, variant="torch"),
        reference.adamw_torch,
        {"eps": 1e-8, "decay": 0.01},
        None,
    ),
    "SGD": (artifacts.OptimType.SGD, reference.sgd, {}, None),
    "SGD, clipped": (optim.SGD(clip_grad=optim.ClipGradNorm(0.05)), reference.sgd, {}, 0.05),
    "SGD, clipped above its norms": (optim.SGD(clip_grad=optim.ClipGradNorm(1e6)), reference.sgd, {}, None),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_follow_numpy(name, tmp_path):
    optimizer, update, settings, max_norm = OPTIMIZERS[name]
    training = begin(generate(perceptron(), tmp_path, optimizer=optimizer))
    expected = training.data()
    states: dict[str, list[Any]] = {}
    for t in range(1, STEPS + 1):
        lr = np.float32(0.01 / t)
        training.optimizer.set_learning_rate(float(lr))
        training.accumulate(*random_batch(8, seed=t))
        given = training.gradients()
        if max_norm is not None:
            assert np.sqrt(sum((g**2).sum() for g in given.values())) > max_norm
            given = dict(zip(given, reference.clip_norm(list(given.values()), max_norm), strict=True))
        for p, x in expected.items():
            count = 0 if update is reference.sgd else 2
            moments = states.setdefault(p, [np.zeros_like(x)] * count)
            expected[p], *states[p] = update(x, given[p], *moments, lr=lr, t=t, **settings)
        training.apply()
        close(training.data(), expected, atol=1e-6)
    held = training.state.storage.optimizer.moments
    for p, moments in states.items():
        for ours, theirs in zip(held.get(p, []), moments, strict=True):
            np.testing.assert_allclose(ours.array(), theirs, rtol=2e-5, atol=1e-8)


def test_the_learning_rate_is_the_originals_unless_set(tmp_path):
    training = begin(generate(perceptron(), tmp_path, optimizer=artifacts.OptimType.SGD))
    before = training.data()
    training.step(*random_batch(8))
    close(training.data(), {p: x - np.float32(0.001) * training.gradients()[p] for p, x in before.items()})


def test_dropout_is_random_in_training_and_off_in_evaluation(tmp_path):
    batch = random_batch(16)
    files = generate(perceptron(dropout=0.5), tmp_path / "dropout")
    training = begin(files)
    assert len({training.accumulate(*batch) for _ in range(4)}) == 4
    seeded = [begin(files, seed=seed) for seed in (1, 1, 2)]
    first, again, other = ([each.step(*batch) for _ in range(4)] for each in seeded)
    assert first == again
    assert not set(first) & set(other)
    training.module.eval()
    without = begin(generate(perceptron(), tmp_path / "without"))
    assert training.accumulate(*batch) == training.accumulate(*batch) == without.accumulate(*batch)


# -- accumulated gradients


def accumulated(files, batches) -> Training:
    training = begin(files)
    training.module.lazy_reset_grad()
    for batch in batches:
        training.accumulate(*batch)
    return training


@pytest.mark.parametrize("make", [perceptron, convolutional])
def test_gradients_of_micro_batches_add_up(make, tmp_path):
    """With a loss that sums over the samples they are the gradient of the whole batch, whatever its parts."""
    x, labels = random_batch(24)
    if make is convolutional:
        x = x.reshape(-1, 1, 8, 8)
    frozen = {"batch_norm": "frozen"}  # otherwise the samples of a batch depend on each other
    files = generate(make(), tmp_path, loss=loss.CrossEntropyLoss(reduction="sum"), **frozen)
    whole = accumulated(files, [(x, labels)])
    for cuts in ([12], [8, 16], [1, 2, 23]):
        parts = accumulated(files, zip(np.split(x, cuts), np.split(labels, cuts), strict=True))
        close(parts.gradients(), whole.gradients(), rtol=1e-4, atol=1e-5)
        parts.apply()
        stepped = begin(files)
        stepped.step(x, labels)
        close(parts.data(), stepped.data(), atol=1e-4)


def test_gradients_are_added_not_averaged(tmp_path):
    x, labels = random_batch(24)
    files = generate(perceptron(), tmp_path)
    whole = accumulated(files, [(x, labels)])
    parts = accumulated(files, zip(np.split(x, 4), np.split(labels, 4), strict=True))
    close(parts.gradients(), {p: 4 * g for p, g in whole.gradients().items()}, rtol=1e-4, atol=1e-6)


# -- PyTorch: the same weights and batches give the same losses, step by step


def perceptron_of_torch(torch):
    return torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))


def convolutional_of_torch(torch):
    """No bias before a batch norm: its gradient is zero, and Adam would make steps out of the rounding errors."""
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12, momentum=0.3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 10),
    )


def exported(torch, module):
    from onnx import numpy_helper

    from tests.models.export import export

    model = export(module, (torch.zeros(2, 64),), mode="train", dynamic=True)
    # An exporter that traces in train mode moves the statistics before it writes them down.
    initial = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in model.graph.initializer}
    module.load_state_dict(initial, strict=False)
    return model


OF_TORCH = {
    "AdamW": (
        lambda torch, p: torch.optim.AdamW(p, lr=0.003),
        optim.AdamW(eps=1e-8, weight_decay=0.01, variant="torch"),
        0.003,
    ),
    "AdamW, other settings": (
        lambda torch, p: torch.optim.AdamW(p, lr=0.002, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1),
        optim.AdamW(betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1, variant="torch"),
        0.002,
    ),
    "SGD": (lambda torch, p: torch.optim.SGD(p, lr=0.1), artifacts.OptimType.SGD, 0.1),
}


@pytest.mark.parametrize("network", [perceptron_of_torch, convolutional_of_torch], ids=["perceptron", "convolutional"])
@pytest.mark.parametrize("name", OF_TORCH)
def test_losses_follow_pytorch(name, network, tmp_path):
    torch = pytest.importorskip("torch")
    theirs_of, ours, rate = OF_TORCH[name]
    torch.manual_seed(0)
    module = network(torch)
    model = exported(torch, module)
    named = dict(module.named_parameters())
    training = begin(generate(model, tmp_path, optimizer=ours, requires_grad=list(named)))
    training.optimizer.set_learning_rate(rate)
    theirs = theirs_of(torch, module.parameters())
    module.train()
    x, labels = digits()
    random = np.random.default_rng(0)
    losses = []
    for _ in range(EPOCHS):
        for chosen in np.array_split(random.permutation(len(x)), len(x) // BATCH):
            found = training.step(x[chosen], labels[chosen])
            theirs.zero_grad()
            expected = torch.nn.functional.cross_entropy(module(torch.tensor(x[chosen])), torch.tensor(labels[chosen]))
            expected.backward()
            theirs.step()
            losses.append((found, expected.item()))
    found, expected = np.array(losses).T
    assert len(found) > 100
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert found[-20:].mean() < 0.7 * found[:20].mean()
    statistics = {n: b.numpy() for n, b in module.named_buffers() if n.endswith(("running_mean", "running_var"))}
    close({n: training.state.parameters[n].data for n in statistics}, statistics, rtol=1e-3, atol=1e-4)

    training.module.eval()
    module.eval()
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(labels)).item()
    assert float(training.module(x, labels)) == pytest.approx(expected, rel=1e-3)
