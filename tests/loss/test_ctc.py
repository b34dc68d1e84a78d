"""The connectionist temporal classification loss against PyTorch, value and gradient."""

from __future__ import annotations

import numpy as np
import pytest

import onnxblock
from onnxblock import loss, optim
from onnxblock.block import set_outputs
from onnxblock.errors import BlockBuildError
from onnxblock.graph.check import check
from onnxblock.graph.passes import run_passes
from onnxblock.graph.types import onnx_dtype
from tests.running import normal, run
from tests.training import begin, generate

torch = pytest.importorskip("torch")

T, N, C, S = 9, 4, 5, 3
NAMES = ("targets", "input_lengths", "target_lengths")


def model_of(block, shape, dtype):
    """The loss of scores, and the gradient of the sum of its elements in them."""
    with onnxblock.empty_base() as graph:
        x = graph.input("x", onnx_dtype(np.dtype(dtype)), shape)
        value = block(x)
        set_outputs(graph, [value, *onnxblock.gradients(value, [x])])
        check(graph.model)
        model = graph.to_model_proto()
    run_passes(model)
    assert {node.domain for node in model.graph.node} == {""}
    assert [v.name for v in model.graph.input] == ["x", *NAMES]
    return model


def expected(x, targets, input_lengths, target_lengths, *, blank=0, reduction="mean", zero_infinity=False):
    x = torch.tensor(x, requires_grad=True)
    value = torch.nn.functional.ctc_loss(
        x.log_softmax(2),
        torch.tensor(np.where(targets < 0, (blank + 1) % C, targets)),
        torch.tensor(input_lengths),
        torch.tensor(target_lengths),
        blank=blank,
        reduction=reduction,
        zero_infinity=zero_infinity,
    )
    (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach().numpy(), gradient.numpy()


def compare(scores, targets, input_lengths, target_lengths, tolerance, shape=None, **settings):
    block = loss.CTCLoss(logits=True, **settings)
    arrays = [np.asarray(a, np.int64) for a in (targets, input_lengths, target_lengths)]
    feeds = {"x": scores, **dict(zip(NAMES, arrays, strict=True))}
    found = run(model_of(block, scores.shape if shape is None else shape, scores.dtype), feeds)
    for ours, theirs in zip(found, expected(scores, *arrays, **settings), strict=True):
        assert ours.dtype == scores.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    return found


RAGGED = ([[1, 2, 3], [4, 4, 0], [2, 0, 0], [3, 3, 3]], [9, 7, 1, 6], [3, 2, 1, 3])


@pytest.mark.parametrize("shape", [None, ("t", "n", C), (None, None, C), (T, "n", "c")], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ragged_lengths(dtype, reduction, shape):
    tolerance = 2e-6 if dtype == np.float32 else 1e-11
    compare(normal(T, N, C, dtype=dtype), *RAGGED, tolerance, shape, reduction=reduction)


@pytest.mark.parametrize("blank", [0, 2, C - 1])
def test_any_class_is_the_blank(blank):
    targets = [[(blank + 1 + k) % C for k in row] for row in ([0, 1, 1], [2, 2, 2], [3, 0, 3], [1, 1, 0])]
    compare(normal(T, N, C, dtype=np.float64), targets, [9, 8, 7, 6], [3, 3, 2, 1], 1e-11, blank=blank)


def test_repeated_labels_need_a_blank_between():
    """Three times the same label take five steps of time, and fill them in one way only."""
    scores = normal(5, 1, C, dtype=np.float64)
    value, _ = compare(scores, [[1, 1, 1]], [5], [3], 1e-11, reduction="sum")
    said = torch.tensor(scores).log_softmax(2).numpy()[:, 0]
    np.testing.assert_allclose(value, -sum(said[t, (1, 0)[t % 2]] for t in range(5)))


def test_no_labels_at_all():
    targets = np.zeros((N, S), np.int64)
    value, _ = compare(normal(T, N, C, dtype=np.float64), targets, [9, 3, 1, 0], [0, 0, 0, 0], 1e-11, reduction="none")
    assert value[3] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_labels_that_do_not_fit(reduction, dtype):
    targets, lengths, counts = [[1, 2, 3], [4, 4, 4], [1, 2, 0], [1, 0, 0]], [2, 4, 9, 0], [3, 3, 2, 1]
    scores = normal(T, N, C, dtype=dtype)
    compare(scores, targets, lengths, counts, 2e-6, reduction=reduction, zero_infinity=True)
    block = loss.CTCLoss(reduction=reduction, logits=True)
    arrays = [np.array(a, np.int64) for a in (targets, lengths, counts)]
    value, gradient = run(model_of(block, scores.shape, dtype), {"x": scores, **dict(zip(NAMES, arrays, strict=True))})
    assert np.isinf(value).tolist() == ([True, True, False, True] if reduction == "none" else True)
    assert np.isfinite(gradient).all()


def test_certain_scores_stay_finite():
    """Probabilities far below what float32 can hold."""
    scores = (1000 * normal(T, N, C)).astype(np.float32)
    value, gradient = compare(scores, *RAGGED, 1e-3, reduction="none")  # here PyTorch is off by 4e-4
    assert value.max() > 1000
    assert np.isfinite(gradient).all()


def test_what_is_beyond_the_lengths_does_not_count():
    scores, (targets, lengths, counts) = normal(T, N, C, dtype=np.float64), RAGGED
    model = model_of(loss.CTCLoss(reduction="none", logits=True), scores.shape, np.float64)
    other, padded = scores.copy(), np.array(targets)
    for n in range(N):
        other[lengths[n] :, n] = 50.0
        padded[n, counts[n] :] = -1
    arrays = (np.array(lengths), np.array(counts))
    first = run(model, {"x": scores, **dict(zip(NAMES, (np.array(targets), *arrays), strict=True))})
    again = run(model, {"x": other, **dict(zip(NAMES, (padded, *arrays), strict=True))})
    np.testing.assert_array_equal(again[0], first[0])
    assert all(not again[1][lengths[n] :, n].any() for n in range(N))


def test_logarithms_of_probabilities_and_samples_first():
    scores = normal(T, N, C, dtype=np.float64)
    arrays = dict(zip(NAMES, (np.array(a) for a in RAGGED), strict=True))
    (value, gradient) = run(model_of(loss.CTCLoss(logits=True), scores.shape, np.float64), {"x": scores, **arrays})
    said = torch.tensor(scores).log_softmax(2).numpy()
    np.testing.assert_allclose(run(model_of(loss.CTCLoss(), said.shape, np.float64), {"x": said, **arrays})[0], value)
    first = np.ascontiguousarray(scores.transpose(1, 0, 2))
    block = loss.CTCLoss(logits=True, batch_first=True)
    found = run(model_of(block, first.shape, np.float64), {"x": first, **arrays})
    np.testing.assert_allclose(found[0], value)
    np.testing.assert_allclose(found[1].transpose(1, 0, 2), gradient)


def test_half_precision_is_computed_in_single():
    scores = normal(T, N, C).astype(np.float16)
    arrays = dict(zip(NAMES, (np.array(a) for a in RAGGED), strict=True))
    found = run(model_of(loss.CTCLoss(), scores.shape, np.float16), {"x": scores, **arrays})
    single = run(model_of(loss.CTCLoss(), scores.shape, np.float32), {"x": scores.astype(np.float32), **arrays})
    for ours, theirs in zip(found, single, strict=True):
        assert ours.dtype == np.float16
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_long_sequence():
    random = np.random.default_rng(5)
    targets = random.integers(1, C, (N, 30))
    compare(normal(120, N, C, dtype=np.float64), targets, [120, 100, 80, 119], [30, 12, 30, 1], 1e-9)


@pytest.mark.parametrize("shape", [(T, N, C), ("t", "n", C), (None, None, None)], ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {"targets": np.array([[1, 2, 3]])},
        {"input_lengths": np.array([9])},
        {"target_lengths": np.array([3])},
        {"targets": np.array([[1, 2, -1]] * N), "target_lengths": np.array([3] * N)},
        {"targets": np.array([[1, 2, C]] * N), "target_lengths": np.array([3] * N)},
    ],
    ids=["targets of one sample", "one input length", "one target length", "a negative label", "a label too large"],
)
def test_what_would_be_misread_ends_the_run(changes, shape):
    feeds = {"x": normal(T, N, C), **dict(zip(NAMES, (np.array(a) for a in RAGGED), strict=True)), **changes}
    model = model_of(loss.CTCLoss(logits=True), shape, np.float32)
    with pytest.raises(Exception, match=r"(?i)invalid|out of|shape"):
        run(model, feeds)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: loss.CTCLoss(-1), "blank=-1 is no class"),
        (lambda: loss.CTCLoss(reduction="average"), "'average' is not one of"),
        (lambda: model_of(loss.CTCLoss(), (2, 3), np.float32), r"\[T, N, C\]"),
        (lambda: model_of(loss.CTCLoss(batch_first=True), (2, 3), np.float32), r"\[N, T, C\]"),
        (lambda: model_of(loss.CTCLoss(labels_type=np.uint8), (2, 3, 4), np.float32), "neither int64 nor int32"),
    ],
)
def test_what_cannot_be(make, message):
    with pytest.raises(BlockBuildError, match=message):
        make()


class _PerStep(onnxblock.ForwardBlock):
    """Scores of each step of time from its features alone."""

    def build(self):
        x = self.graph.input("x", np.float32, ["time", "n", 6])
        return self.graph.rename(onnxblock.blocks.Linear(6, C, seed=0)(x), "scores")


def test_training_with_it(tmp_path):
    """Features that spell the labels are learnt, whatever their alignment, lengths and batch size."""
    with onnxblock.empty_base(18):
        block = _PerStep()
        block()
        model = block.to_model_proto()
    training = begin(generate(model, tmp_path, loss=loss.CTCLoss(logits=True), optimizer=optim.Adam()))
    training.optimizer.set_learning_rate(0.1)
    random = np.random.default_rng(0)
    losses = []
    for t in range(60):
        n = 3 + t % 2
        counts = random.integers(1, S + 1, n)
        targets = random.integers(1, C, (n, S))
        x = np.zeros((2 * S + t % 3, n, 6), np.float32)
        for sample in range(n):
            x[1 : 2 * counts[sample] : 2, sample] = np.eye(6)[targets[sample, : counts[sample]]]
        x[..., 5] = 1
        losses.append(training.step(x, targets, np.full(n, len(x)), counts))
    assert losses[0] > 1
    assert max(losses[-5:]) < 0.3
