"""Every loss against PyTorch: value and gradient, float32 and float64, every reduction."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

import onnxblock
from onnxblock import loss
from onnxblock.autodiff.backward import backward
from onnxblock.block import set_outputs
from onnxblock.errors import BlockBuildError
from onnxblock.graph.arithmetic import full_like
from onnxblock.graph.check import check
from onnxblock.graph.passes import run_passes
from onnxblock.graph.types import onnx_dtype
from tests.running import normal, run

torch = pytest.importorskip("torch")

DTYPES = {"float32": (np.float32, 2e-6), "float64": (np.float64, 1e-12)}
REDUCTIONS = ("mean", "sum", "none")
LABELS = np.random.default_rng(7)


def with_gradient(block, scores, shape=None, **names) -> ModelProto:
    """The model that computes a loss and the gradient of the sum of its elements in ``scores``."""
    with onnxblock.empty_base() as graph:
        x = graph.input("scores", onnx_dtype(scores.dtype), scores.shape if shape is None else shape)
        value = block(x, **names)
        gradients = backward(graph, {str(value): full_like(value, 1.0)}, ["scores"])
        set_outputs(graph, [value, gradients["scores"]])
        check(graph.model)
        return graph.to_model_proto()


def compare(block, function, scores, target, tolerance, name="target", shape=None):
    model = with_gradient(block, scores, shape)
    assert [v.name for v in model.graph.input] == ["scores", name]
    x = torch.tensor(scores, requires_grad=True)
    expected = function(x, torch.tensor(target))
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    finished = ModelProto()
    finished.CopyFrom(model)
    run_passes(finished)
    assert "SoftmaxCrossEntropyLoss" not in {node.op_type for node in finished.graph.node}
    for variant, optimize in ((model, True), (finished, True), (finished, False)):
        value, dx = run(variant, {"scores": scores, name: target}, optimize=optimize)
        assert value.dtype == dx.dtype == scores.dtype
        assert value.shape == tuple(expected.shape)
        np.testing.assert_allclose(value, expected.detach().numpy(), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(dx, gradient.numpy(), rtol=tolerance, atol=tolerance)


@pytest.fixture(params=sorted(DTYPES))
def precision(request):
    return DTYPES[request.param]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("name", ["MSELoss", "L1Loss"])
def test_regression(name, shape, reduction, precision):
    dtype, tolerance = precision
    x, y = normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
    block, expected = getattr(loss, name)(reduction), getattr(torch.nn, name)(reduction=reduction)
    compare(block, expected, x, y, tolerance)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("pos_weight", [None, [0.5, 1.0, 2.0, 3.0]])
@pytest.mark.parametrize("weight", [None, [1.0, 0.0, 0.25, 2.0], np.linspace(0, 2, 12).reshape(3, 4)], ids=np.shape)
def test_binary(weight, pos_weight, reduction, precision):
    dtype, tolerance = precision
    x, y = normal(3, 4, dtype=dtype), np.random.default_rng(1).uniform(0, 1, (3, 4)).astype(dtype)
    as_tensor = [None if w is None else torch.tensor(np.asarray(w, dtype)) for w in (weight, pos_weight)]
    expected = torch.nn.BCEWithLogitsLoss(weight=as_tensor[0], pos_weight=as_tensor[1], reduction=reduction)
    compare(loss.BCEWithLogitsLoss(weight, reduction, pos_weight), expected, x, y, tolerance)


def test_binary_at_extreme_logits(precision):
    dtype, tolerance = precision
    x = np.array([-1e4, -100, -1, 0, 1, 100, 1e4] * 2, dtype)
    y = np.repeat(np.array([0, 1], dtype), 7)
    compare(loss.BCEWithLogitsLoss(reduction="none"), torch.nn.BCEWithLogitsLoss(reduction="none"), x, y, tolerance)


CLASSES = 5
CASES = {
    "plain": ((4, CLASSES), {}),
    "pixels": ((2, CLASSES, 3, 4), {}),
    "sequence": ((2, CLASSES, 6), {}),
    "weight": ((6, CLASSES), {"weight": [1.0, 2.0, 0.0, 0.5, 3.0]}),
    "ignore": ((6, CLASSES), {"ignore_index": 2}),
    "ignore outside": ((6, CLASSES), {"ignore_index": -100}),
    "both": ((2, CLASSES, 4), {"ignore_index": -1, "weight": [1.0, 2.0, 0.0, 0.5, 3.0]}),
}


def some_labels(shape, ignore_index, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, shape)
    if ignore_index is not None:
        labels[generator.uniform(size=shape) < 0.4] = ignore_index
    return labels


def torch_cross_entropy(weight=None, reduction="mean", ignore_index=-100, dtype=np.float32):
    weight = None if weight is None else torch.tensor(np.asarray(weight, dtype))
    return torch.nn.CrossEntropyLoss(weight, reduction=reduction, ignore_index=ignore_index)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", CASES)
def test_cross_entropy(case, reduction, precision):
    dtype, tolerance = precision
    shape, arguments = CASES[case]
    labels = some_labels((shape[0], *shape[2:]), arguments.get("ignore_index"))
    block = loss.CrossEntropyLoss(reduction=reduction, **arguments)
    expected = torch_cross_entropy(reduction=reduction, dtype=dtype, **arguments)
    compare(block, expected, normal(*shape, dtype=dtype), labels, tolerance, "labels")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(2, 3, CLASSES), (4, CLASSES), (CLASSES,), (2, 3, 2, CLASSES)], ids=str)
def test_cross_entropy_with_classes_last(shape, reduction, precision):
    dtype, tolerance = precision
    labels = some_labels(shape[:-1], -1)
    block = loss.CrossEntropyLoss(reduction=reduction, ignore_index=-1, class_axis=-1)
    function = torch_cross_entropy(reduction=reduction, ignore_index=-1)

    def expected(x, y):
        result = function(x.reshape(-1, CLASSES), y.reshape(-1))
        return result.reshape(y.shape) if reduction == "none" else result

    compare(block, expected, normal(*shape, dtype=dtype), labels, tolerance, "labels")


def test_cross_entropy_on_another_axis(precision):
    dtype, tolerance = precision
    block = loss.CrossEntropyLoss(reduction="none", class_axis=2)
    function = torch_cross_entropy(reduction="none")
    scores, labels = normal(2, 3, CLASSES, 4, dtype=dtype), some_labels((2, 3, 4), None)
    compare(block, lambda x, y: function(x.movedim(2, 1), y), scores, labels, tolerance, "labels")


@pytest.mark.parametrize("class_axis", [1, -1])
def test_cross_entropy_with_dynamic_batch(class_axis, precision):
    dtype, tolerance = precision
    block = loss.CrossEntropyLoss(ignore_index=-1, class_axis=class_axis)
    scores, labels = normal(6, CLASSES, dtype=dtype), some_labels((6,), -1)
    compare(block, torch_cross_entropy(ignore_index=-1), scores, labels, tolerance, "labels", shape=["batch", None])


def test_large_scores_stay_finite(precision):
    dtype, tolerance = precision
    scores = np.array([[1e4, 0, -1e4], [-1e4, 3, 1e4], [1e4, 1e4, 1e4]], dtype)
    compare(loss.CrossEntropyLoss(), torch_cross_entropy(), scores, np.array([0, 0, 1]), tolerance, "labels")


@pytest.mark.parametrize(("reduction", "expected"), [("mean", np.nan), ("sum", 0.0)])
def test_nothing_to_learn_from(reduction, expected):
    model = with_gradient(loss.CrossEntropyLoss(ignore_index=-1, reduction=reduction), normal(3, CLASSES))
    run_passes(model)
    value, gradient = run(model, {"scores": normal(3, CLASSES), "labels": np.full(3, -1)})
    np.testing.assert_equal(value, np.float32(expected))
    np.testing.assert_array_equal(gradient, np.zeros((3, CLASSES), np.float32))


@pytest.mark.parametrize(
    ("block", "name", "target"),
    [
        (loss.MSELoss(), "target", normal(4, CLASSES, seed=1)),
        (loss.L1Loss(), "target", normal(4, CLASSES, seed=1)),
        (loss.BCEWithLogitsLoss(pos_weight=np.ones(CLASSES)), "target", np.ones((4, CLASSES))),
        (loss.CrossEntropyLoss(weight=np.ones(CLASSES)), "labels", np.arange(4)),
    ],
)
def test_half_precision(block, name, target):
    scores = normal(4, CLASSES)
    target = target if name == "labels" else target.astype(np.float32)
    exact = run(with_gradient(block, scores), {"scores": scores, name: target})
    half = scores.astype(np.float16)
    target = target if name == "labels" else target.astype(np.float16)
    model = with_gradient(block, half)
    run_passes(model)
    for value, expected in zip(run(model, {"scores": half, name: target}), exact, strict=True):
        assert value.dtype == np.float16
        np.testing.assert_allclose(value, expected, rtol=5e-3, atol=5e-3)


def test_many_samples_in_half_precision():
    """Neither the sum of the losses nor that of the weights fits float16."""
    scores = np.zeros((70_000, 2), np.float16)
    model = with_gradient(loss.CrossEntropyLoss(weight=[1.0, 1.0], ignore_index=-1), scores)
    run_passes(model)
    value, _ = run(model, {"scores": scores, "labels": np.zeros(70_000, np.int64)})
    np.testing.assert_allclose(value, np.log(2), rtol=1e-2)


class TestTargets:
    def test_names_and_types(self):
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.DOUBLE, ["batch", 3, 7])
            loss.MSELoss()(x, target_name="wanted")
            loss.CrossEntropyLoss()(x, labels_name="classes")
            loss.CrossEntropyLoss(class_axis=-1)(x, "tokens")
            known = {name: graph.value(name).type for name in ("wanted", "classes", "tokens")}
        assert str(known["wanted"]) == "float64[batch, 3, 7]"
        assert str(known["classes"]) == "int64[batch, 7]"
        assert str(known["tokens"]) == "int64[batch, 3]"

    @pytest.mark.parametrize("make", [loss.MSELoss, loss.CrossEntropyLoss])
    def test_two_losses_do_not_share_a_target(self, make):
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.FLOAT, [2, 3])
            make()(x)
            with pytest.raises(BlockBuildError, match="Choose another name"):
                make()(x)

    def test_a_taken_name(self):
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.FLOAT, [2, 3])
            with pytest.raises(BlockBuildError, match="already has a value called 'x'"):
                loss.L1Loss()(x, target_name="x")


class TestWhatDoesNotFit:
    def test_reduction(self):
        with pytest.raises(BlockBuildError, match="Did you mean 'mean'"):
            loss.MSELoss(reduction="men")

    def test_element_type(self):
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.INT64, [2, 3])
            for make in (loss.MSELoss, loss.L1Loss, loss.BCEWithLogitsLoss, loss.CrossEntropyLoss):
                with pytest.raises(BlockBuildError, match="'x' is int64"):
                    make()(x)

    def test_class_weights(self):
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.FLOAT, [2, 3])
            with pytest.raises(BlockBuildError, match=r"weight has shape \[2\]"):
                loss.CrossEntropyLoss(weight=[1, 2])(x)

    @pytest.mark.parametrize(("shape", "axis"), [([3], 1), ([2, 3], 2), (None, -1)])
    def test_class_axis(self, shape, axis):
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.FLOAT, shape)
            with pytest.raises(BlockBuildError, match=f"no axis {axis} of classes"):
                loss.CrossEntropyLoss(class_axis=axis)(x)
