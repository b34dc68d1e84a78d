"""The losses beyond the original's four: against PyTorch where it has them, else against NumPy and differences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import onnxblock
from onnxblock import loss
from onnxblock.block import set_outputs
from onnxblock.errors import BlockBuildError
from onnxblock.graph.check import check
from onnxblock.graph.passes import run_passes
from tests.running import normal, run

torch = pytest.importorskip("torch")
nn = torch.nn

REDUCTIONS = ("mean", "sum", "none")
GENERATOR = np.random.default_rng(3)
UNIT = GENERATOR.uniform(0.05, 0.95, (3, 4))
SIGNS = np.where(GENERATOR.uniform(size=(3, 4)) < 0.5, -1.0, 1.0)
PROBABILITIES = GENERATOR.dirichlet(np.ones(5), 4)
LABELS = np.array([0, 4, -1, 2])
WEIGHT = [1.0, 2.0, 0.0, 0.5, 3.0]
SCORES, PIXELS = normal(4, 5), normal(2, 5, 3)
PIXEL_LABELS = np.array([[0, 4, -1], [-1, 2, 1]])


def model_of(block, inputs, names=()):
    """The model of a loss and the gradients of the sum of its elements in ``inputs``."""
    with onnxblock.empty_base() as graph:
        values = [graph.input(f"x{k}", x.dtype, x.shape) for k, x in enumerate(inputs)]
        value = block(*values, *names)
        found = onnxblock.gradients(value, values)
        set_outputs(graph, [value, *found])
        check(graph.model)
        model = graph.to_model_proto()
    run_passes(model)
    assert {node.domain for node in model.graph.node} == {""}
    return model


def compare(block, function, inputs, target, dtype, name="target"):
    tolerance = 2e-6 if dtype == np.float32 else 1e-11
    inputs = [np.asarray(x, dtype) for x in inputs]
    feeds = {f"x{k}": x for k, x in enumerate(inputs)}
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    arguments = list(tensors)
    if target is not None:
        target = np.asarray(target, None if target.dtype == np.int64 else dtype)
        feeds[name] = target
        arguments.append(torch.tensor(target))
    expected = function(*arguments)
    gradients = torch.autograd.grad(expected.sum(), tensors)
    found = run(model_of(block, inputs), feeds)
    for array, theirs in zip(found, [expected, *gradients], strict=True):
        assert array.dtype == dtype
        assert array.shape == tuple(theirs.shape)
        np.testing.assert_allclose(array, theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


def like(x, weights):
    return torch.tensor(weights).to(x.dtype)


def divergence(reduction, log_target=False):
    """PyTorch warns of its own "mean"."""
    return lambda x, y: reduced(nn.functional.kl_div(x, y, reduction="none", log_target=log_target), reduction)


def log_softmax(x):
    return torch.log_softmax(torch.tensor(x), 1).numpy()


CASES = {
    "Huber": (lambda r: loss.HuberLoss(r, 0.7), lambda r: nn.HuberLoss(r, 0.7), [normal(3, 4)], normal(3, 4, seed=1)),
    "SmoothL1": (
        lambda r: loss.SmoothL1Loss(r, 0.7), lambda r: nn.SmoothL1Loss(reduction=r, beta=0.7),
        [normal(3, 4)], normal(3, 4, seed=1),
    ),
    "SmoothL1 without a bend": (
        lambda r: loss.SmoothL1Loss(r, 0.0), lambda r: nn.SmoothL1Loss(reduction=r, beta=0.0),
        [normal(3, 4)], normal(3, 4, seed=1),
    ),
    "Huber at the bends": (
        loss.HuberLoss, nn.HuberLoss,
        [np.array([-1.0, 0, 1, 2, -2])], np.zeros(5),
    ),
    "BCE": (
        lambda r: loss.BCELoss([1.0, 2, 0, 3], r),
        lambda r: lambda x, y: nn.functional.binary_cross_entropy(x, y, like(x, [1, 2, 0, 3]), reduction=r),
        [UNIT], UNIT[::-1].copy(),
    ),
    "BCE at the ends": (
        lambda r: loss.BCELoss(reduction=r), lambda r: nn.BCELoss(reduction=r),
        [np.array([0.0, 1, 0.5, 0.25])], np.array([0.0, 1, 1, 0]),
    ),
    "KLDiv": (loss.KLDivLoss, divergence, [log_softmax(SCORES)], PROBABILITIES),
    "KLDiv with zeros": (loss.KLDivLoss, divergence, [log_softmax(SCORES)], np.eye(5)[:4]),
    "KLDiv of logarithms": (
        lambda r: loss.KLDivLoss(r, log_target=True), lambda r: divergence(r, log_target=True),
        [log_softmax(SCORES)], np.log(PROBABILITIES),
    ),
    "HingeEmbedding": (
        lambda r: loss.HingeEmbeddingLoss(0.5, r), lambda r: nn.HingeEmbeddingLoss(0.5, reduction=r),
        [np.abs(normal(3, 4))], SIGNS,
    ),
    "CosineEmbedding": (
        lambda r: loss.CosineEmbeddingLoss(0.2, r), lambda r: nn.CosineEmbeddingLoss(0.2, reduction=r),
        [normal(3, 6), normal(3, 6, seed=1)], SIGNS[:, 0].copy(),
    ),
    "TripletMargin": (
        lambda r: loss.TripletMarginLoss(0.5, reduction=r), lambda r: nn.TripletMarginLoss(0.5, reduction=r),
        [normal(4, 6), normal(4, 6, seed=1), normal(4, 6, seed=2)], None,
    ),
    "TripletMargin that swaps": (
        lambda r: loss.TripletMarginLoss(2.0, reduction=r, swap=True),
        lambda r: nn.TripletMarginLoss(2.0, swap=True, reduction=r),
        [normal(6, 3), normal(6, 3, seed=1), normal(6, 3, seed=2)], None,
    ),
    "NLL": (
        lambda r: loss.NLLLoss(WEIGHT, r, -1),
        lambda r: lambda x, y: nn.functional.nll_loss(x, y, like(x, WEIGHT), ignore_index=-1, reduction=r),
        [log_softmax(SCORES)], LABELS,
    ),
    "smoothing": (
        lambda r: loss.CrossEntropyLoss(reduction=r, label_smoothing=0.2),
        lambda r: nn.CrossEntropyLoss(reduction=r, label_smoothing=0.2),
        [SCORES], np.abs(LABELS),
    ),
    "smoothing of pixels, weighted": (
        lambda r: loss.CrossEntropyLoss(WEIGHT, r, -1, label_smoothing=0.2),
        lambda r: lambda x, y: nn.functional.cross_entropy(
            x, y, like(x, WEIGHT), ignore_index=-1, reduction=r, label_smoothing=0.2
        ),
        [PIXELS], PIXEL_LABELS,
    ),
    "smoothing where some are ignored": (
        lambda r: loss.CrossEntropyLoss(None, r, -1, label_smoothing=0.2),
        lambda r: nn.CrossEntropyLoss(ignore_index=-1, reduction=r, label_smoothing=0.2),
        [SCORES], LABELS,
    ),
    "soft labels": (
        lambda r: loss.CrossEntropyLoss(WEIGHT, r, soft_labels=True, label_smoothing=0.1),
        lambda r: lambda x, y: nn.functional.cross_entropy(
            x, y, like(x, WEIGHT), reduction=r, label_smoothing=0.1
        ),
        [SCORES], PROBABILITIES,
    ),
    "soft labels of pixels": (
        lambda r: loss.CrossEntropyLoss(WEIGHT, r, soft_labels=True),
        lambda r: lambda x, y: nn.functional.cross_entropy(x, y, like(x, WEIGHT), reduction=r),
        [PIXELS], np.abs(normal(2, 5, 3, seed=4)),
    ),
    "InfoNCE": (
        lambda r: loss.InfoNCELoss(0.5, r),
        lambda r: lambda a, b: nn.functional.cross_entropy(
            nn.functional.normalize(a) @ nn.functional.normalize(b).T / 0.5, torch.arange(4), reduction=r
        ),
        [normal(4, 6), normal(4, 6, seed=1)], None,
    ),
    "Focal": (
        lambda r: loss.FocalLoss(0.3, 1.5, r), lambda r: lambda x, y: reduced(focal(x, y, 0.3, 1.5), r),
        [normal(3, 4)], (SIGNS + 1) / 2,
    ),
    "Focal without balance": (
        lambda r: loss.FocalLoss(None, 2.0, r), lambda r: lambda x, y: reduced(focal(x, y, None, 2.0), r),
        [normal(3, 4)], (SIGNS + 1) / 2,
    ),
    "Dice": (
        lambda r: loss.DiceLoss(0.5, r), lambda r: lambda x, y: reduced(dice(x.sigmoid(), y), r),
        [normal(2, 3, 4)], GENERATOR.uniform(size=(2, 3, 4)),
    ),
    "Dice of probabilities": (
        lambda r: loss.DiceLoss(0.5, r, logits=False), lambda r: lambda x, y: reduced(dice(x, y), r),
        [UNIT], UNIT[::-1].copy(),
    ),
    "GIoU": (
        loss.GIoULoss, lambda r: lambda x, y: reduced(giou(x, y), r),
        [np.array([[0.0, 0, 2, 2], [0, 0, 1, 1], [1, 1, 4, 3]])],
        np.array([[1.0, 1, 3, 4], [2, 3, 4, 5], [2, 1.5, 3, 2]]),
    ),
}  # fmt: skip


def reduced(losses, reduction):
    return losses if reduction == "none" else getattr(losses, reduction)()


def focal(x, y, alpha, gamma):
    q = torch.where(y == 1, x.sigmoid(), 1 - x.sigmoid())
    share = 1 if alpha is None else torch.where(y == 1, torch.full_like(y, alpha), torch.full_like(y, 1 - alpha))
    return -share * (1 - q) ** gamma * q.log()


def dice(p, t):
    p, t = p.flatten(1), t.flatten(1)
    return 1 - (2 * (p * t).sum(1) + 0.5) / (p.sum(1) + t.sum(1) + 0.5)


def giou(a, b):
    def area(box):
        return (box[:, 2:] - box[:, :2]).clamp(min=0).prod(1)

    def joined(low, high):
        return torch.cat([low(a[:, :2], b[:, :2]), high(a[:, 2:], b[:, 2:])], 1)

    common = area(joined(torch.maximum, torch.minimum))
    union, around = area(a) + area(b) - common, area(joined(torch.minimum, torch.maximum))
    return 1 - common / (union + 1e-7) + (around - union) / (around + 1e-7)


def test_every_loss_is_compared():
    """Here, or in the files named."""
    elsewhere = {
        *("MSELoss", "L1Loss", "BCEWithLogitsLoss", "CrossEntropyLoss"),  # test_losses.py
        "CTCLoss",  # test_ctc.py
        "Weighted",  # below
    }
    assert {type(make("mean")).__name__ for make, *_ in CASES.values()} | elsewhere == set(loss.__all__)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient(case, reduction, dtype):
    make, theirs, inputs, target = CASES[case]
    name = "labels" if case.startswith(("NLL", "smoothing", "soft")) else "target"
    compare(make(reduction), theirs(reduction), inputs, target, dtype, name)


def test_divergence_by_batch():
    compare(
        loss.KLDivLoss("batchmean"),
        nn.KLDivLoss(reduction="batchmean"),
        [log_softmax(SCORES)],
        PROBABILITIES,
        np.float32,
    )


def test_both_directions_of_contrast():
    a, b = normal(4, 6), normal(4, 6, seed=1)
    both, there, back = (
        run(model_of(block, inputs), {"x0": inputs[0], "x1": inputs[1]})[0]
        for block, inputs in (
            (loss.InfoNCELoss(symmetric=True), [a, b]),
            (loss.InfoNCELoss(), [a, b]),
            (loss.InfoNCELoss(), [b, a]),
        )
    )
    np.testing.assert_allclose(both, (there + back) / 2, rtol=1e-6)


def test_classes_last_with_smoothing():
    def theirs(x, y):
        return nn.functional.cross_entropy(x.movedim(-1, 1), y, ignore_index=-1, label_smoothing=0.3)

    block = loss.CrossEntropyLoss(ignore_index=-1, class_axis=-1, label_smoothing=0.3)
    compare(block, theirs, [np.moveaxis(PIXELS, 1, -1).copy()], PIXEL_LABELS, np.float64, "labels")


class TestWeighted:
    def test_several_outputs(self):
        block = loss.Weighted((0.25, loss.MSELoss()), (2, loss.CrossEntropyLoss()))
        x, y = normal(4, 5), normal(4, 5, seed=1)
        model = model_of(block, [x, y])
        assert [v.name for v in model.graph.input] == ["x0", "x1", "target1", "labels2"]
        value, dx, _ = run(model, {"x0": x, "x1": y, "target1": y, "labels2": np.arange(4)})
        expected = 0.25 * ((x - y) ** 2).mean() + 2 * float(
            nn.functional.cross_entropy(torch.tensor(y), torch.arange(4))
        )
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_allclose(dx, 0.25 * 2 * (x - y) / x.size, rtol=1e-5)

    def test_one_output(self):
        x = normal(4, 5)
        model = model_of(loss.Weighted((1, loss.L1Loss()), (1, loss.MSELoss())), [x])
        zeros = np.zeros_like(x)
        value = run(model, {"x0": x, "target1": zeros, "target2": zeros})[0]
        np.testing.assert_allclose(value, np.abs(x).mean() + (x**2).mean(), rtol=1e-6)

    def test_what_does_not_fit(self):
        with onnxblock.empty_base() as graph:
            values = [graph.input(n, TensorProto.FLOAT, [2]) for n in "abc"]
            with pytest.raises(BlockBuildError, match="3 values for 2 losses"):
                loss.Weighted((1, loss.L1Loss()), (1, loss.MSELoss()))(*values)
        with pytest.raises(BlockBuildError, match="pairs"):
            loss.Weighted((loss.L1Loss(), 1))
        with pytest.raises(BlockBuildError, match="nothing"):
            loss.Weighted()


@pytest.mark.parametrize(
    "make",
    [
        lambda: loss.HuberLoss(delta=0),
        lambda: loss.SmoothL1Loss(beta=-1),
        lambda: loss.FocalLoss(gamma=-1),
        lambda: loss.TripletMarginLoss(margin=0),
        lambda: loss.InfoNCELoss(temperature=0),
        lambda: loss.CrossEntropyLoss(label_smoothing=2),
        lambda: loss.CrossEntropyLoss(soft_labels=True, ignore_index=0),
        lambda: loss.KLDivLoss("batch"),
    ],
)
def test_settings_are_checked(make):
    with pytest.raises(BlockBuildError):
        make()
