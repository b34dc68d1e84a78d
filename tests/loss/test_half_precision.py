"""Every loss in half precision, at the numbers where that has less room: as PyTorch in float32, rounded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto

import onnxblock
from onnxblock import loss
from onnxblock.autodiff.backward import backward
from onnxblock.block import set_outputs
from onnxblock.graph.arithmetic import full_like
from onnxblock.graph.passes import run_passes
from onnxblock.graph.types import onnx_dtype
from tests.autodiff.harness import run_onnxruntime
from tests.running import normal
from tests.runtime import require_newest

torch = pytest.importorskip("torch")
F = torch.nn.functional

LARGE = np.array([[-3000, -300, -89, -12, 0, 12], [89, 300, 3000, 60000, -60000, 1e-4]])
ANSWERS = np.array([[0, 1, 1, 0, 1, 0], [1, 0, 0, 1, 0, 1]])
MANY = 300 + normal(300, 40)
ZERO = np.concatenate([np.zeros((1, 8)), normal(3, 8)])
CLASSES = np.arange(300) % 40


def focal(x, y):
    p = torch.sigmoid(x)
    wrong = y * (1 - p) + (1 - y) * p
    alpha = 0.25 * y + 0.75 * (1 - y)
    return (alpha * wrong**2 * F.binary_cross_entropy_with_logits(x, y, reduction="none")).mean()


def info_nce(a, b):
    return F.cross_entropy(F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T / 0.07, torch.arange(len(a)))


def dice(x, y):
    p, y = torch.sigmoid(x).flatten(1), y.flatten(1)
    return (1 - (2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)).mean()


ROWS = {
    "BCEWithLogits": (loss.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits, LARGE, ANSWERS),
    "Focal": (loss.FocalLoss(), focal, LARGE, ANSWERS),
    "BCE": (loss.BCELoss(), F.binary_cross_entropy, np.array([0.0, 1, 0, 1, 0.5, 1e-3]), np.array([0, 1, 1, 0, 1, 0])),
    "MSE": (loss.MSELoss(), F.mse_loss, MANY, MANY + normal(300, 40, seed=1) * 100),
    "L1 sum": (loss.L1Loss("sum"), lambda x, y: F.l1_loss(x, y, reduction="sum"), MANY, MANY * 0),
    "Huber": (loss.HuberLoss(delta=500.0), lambda x, y: F.huber_loss(x, y, delta=500.0), MANY, MANY * 0),
    "SmoothL1": (loss.SmoothL1Loss(beta=1e-5), lambda x, y: F.smooth_l1_loss(x, y, beta=1e-5), MANY, MANY * 0),
    "KLDiv": (
        loss.KLDivLoss("batchmean"),
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        np.full((70_000, 2), -0.5),
        np.full((70_000, 2), 0.5),
    ),
    "CrossEntropy": (loss.CrossEntropyLoss(), F.cross_entropy, LARGE[:, :4], np.array([3, 2])),
    "label smoothing": (
        loss.CrossEntropyLoss(label_smoothing=0.1),
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        np.linspace(-20, 20, 80_000)[None],
        np.array([79_999]),
    ),
    "soft labels": (
        loss.CrossEntropyLoss(soft_labels=True),
        F.cross_entropy,
        np.linspace(-20, 20, 80_000)[None],
        np.full((1, 80_000), 1e-5),
    ),
    "NLL sum": (loss.NLLLoss(reduction="sum"), lambda x, y: F.nll_loss(x, y, reduction="sum"), -MANY, CLASSES),
    "Dice": (loss.DiceLoss(), dice, np.full((2, 300, 300), 3.0), np.ones((2, 300, 300))),
    "HingeEmbedding": (loss.HingeEmbeddingLoss(), F.hinge_embedding_loss, MANY, np.sign(MANY)),
}
PAIRS = {
    "CosineEmbedding": (loss.CosineEmbeddingLoss(), F.cosine_embedding_loss, np.array([1.0, -1, -1, 1])),
    "InfoNCE": (loss.InfoNCELoss(), info_nce, None),
}


@pytest.fixture(params=[np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def dtype(request):
    if request.param is not np.float16:
        require_newest("it has fewer kernels of bfloat16")
    return request.param


def results(block, inputs, fixed, dtype):
    """The loss of ``inputs`` and its gradients in them, by models before and after the passes."""
    cast = {name: (x if x.dtype.kind == "i" else x.astype(dtype)) for name, x in {**inputs, **fixed}.items()}
    with onnxblock.empty_base(18) as graph:
        values = [graph.input(name, onnx_dtype(cast[name].dtype), x.shape) for name, x in inputs.items()]
        value = block(*values)
        gradients = backward(graph, {str(value): full_like(value, 1.0)}, list(inputs))
        set_outputs(graph, [value, *(gradients[name] for name in inputs)])
        model = graph.to_model_proto()
    finished = ModelProto()
    finished.CopyFrom(model)
    run_passes(finished)
    return [run_onnxruntime(m, cast, optimized=o) for m, o in ((model, True), (finished, True), (finished, False))]


def compare(found, expected, dtype):
    """Numbers that the type cannot hold, or that are infinitely steep there, are only finite and of the right sign."""
    tolerance, smallest = (2e-3, 6e-8) if dtype == np.float16 else (2e-2, 0.0)
    for values in found:
        for value, tensor in zip(values, expected, strict=True):
            assert value.dtype == dtype
            shown, wanted = value.astype(np.float64), tensor.detach().numpy().astype(np.float64)
            steep = abs(wanted) > 1000 if value.ndim and dtype == np.float16 else np.zeros(wanted.shape, bool)
            assert np.isfinite(shown[steep]).all()
            np.testing.assert_array_equal(np.sign(shown[steep]), np.sign(wanted[steep]))
            shown, wanted = shown[~steep], wanted[~steep]
            wanted[wanted > float(ml_dtypes.finfo(dtype).max)] = np.inf
            scale = abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
            np.testing.assert_allclose(shown, wanted, rtol=tolerance, atol=tolerance * scale + smallest)


@pytest.mark.parametrize("name", ROWS)
def test_as_in_single_precision(name, dtype):
    block, function, x, y = ROWS[name]
    target = "labels" if isinstance(block, loss.CrossEntropyLoss | loss.NLLLoss) else "target"
    y = y if target == "labels" and y.ndim < x.ndim else rounded(y, dtype)
    found = results(block, {"scores": rounded(x, dtype)}, {target: y}, dtype)
    given = torch.tensor(rounded(x, dtype), requires_grad=True)
    expected = function(given, torch.tensor(y))
    expected.backward()
    compare(found, [expected, given.grad], dtype)


@pytest.mark.parametrize("name", PAIRS)
def test_vectors_of_zeros(name, dtype):
    block, function, target = PAIRS[name]
    a, b = rounded(ZERO, dtype), rounded(normal(4, 8, seed=3), dtype)
    fixed = {} if target is None else {"target": rounded(target, dtype)}
    found = results(block, {"a": a, "b": b}, fixed, dtype)
    given = [torch.tensor(x, requires_grad=True) for x in (a, b)]
    expected = function(*given, *map(torch.tensor, fixed.values()))
    expected.backward()
    compare(found, [expected, *(x.grad for x in given)], dtype)


def rounded(x, dtype):
    """What ``dtype`` makes of the numbers, in float32."""
    return x.astype(dtype).astype(np.float32)
