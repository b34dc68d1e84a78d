"""Class labels of int32: in the model, as devices without 64-bit integers feed them, and in what a Module is given."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import onnxblock
from onnxblock import loss
from onnxblock.block import set_outputs
from onnxblock.errors import BlockBuildError, FeedError
from onnxblock.graph.passes import run_passes
from tests.running import normal, run
from tests.training import begin, generate, perceptron, random_batch

SCORES, PIXELS, TIME = normal(4, 5), normal(2, 5, 3), normal(6, 2, 5)
LABELS = {"labels": np.array([0, 4, 3, 2])}
IGNORED = {"labels": np.array([0, 4, -1, 2])}
PIXEL_LABELS = {"labels": np.array([[0, 4, -1], [-1, 2, 1]])}
SAID = {"targets": np.array([[1, 2], [3, 3]]), "input_lengths": np.array([6, 5]), "target_lengths": np.array([2, 1])}
CASES = {
    "cross-entropy": (loss.CrossEntropyLoss, {}, SCORES, LABELS),
    "cross-entropy, ignoring": (loss.CrossEntropyLoss, {"ignore_index": -1}, SCORES, IGNORED),
    "cross-entropy of pixels": (loss.CrossEntropyLoss, {"ignore_index": -1}, PIXELS, PIXEL_LABELS),
    "cross-entropy, smoothing": (
        loss.CrossEntropyLoss,
        {"ignore_index": -1, "label_smoothing": 0.1, "weight": [1.0, 2.0, 3.0, 4.0, 5.0]},
        SCORES,
        IGNORED,
    ),
    "cross-entropy, classes last": (
        loss.CrossEntropyLoss,
        {"class_axis": -1, "ignore_index": -1},
        np.ascontiguousarray(PIXELS.transpose(0, 2, 1)),
        PIXEL_LABELS,
    ),
    "negative log-likelihood": (loss.NLLLoss, {"weight": [1.0, 2.0, 3.0, 4.0, 5.0]}, SCORES, LABELS),
    "negative log-likelihood, ignoring": (loss.NLLLoss, {"ignore_index": -1}, SCORES, IGNORED),
    "temporal classification": (loss.CTCLoss, {"logits": True}, TIME, SAID),
}


def model_of(block, scores, dynamic):
    with onnxblock.empty_base() as graph:
        x = graph.input("x", TensorProto.FLOAT, [None] * scores.ndim if dynamic else scores.shape)
        value = block(x)
        set_outputs(graph, [value, *onnxblock.gradients(value, [x])])
        model = graph.to_model_proto()
    run_passes(model)
    return model


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", CASES)
def test_int32_labels_give_the_same_bits(name, reduction, dynamic):
    kind, settings, scores, labels = CASES[name]
    made = {}
    for labels_type in (np.int32, np.int64):
        model = model_of(kind(reduction=reduction, labels_type=labels_type, **settings), scores, dynamic)
        taken = {v.name: v.type.tensor_type.elem_type for v in model.graph.input if v.name != "x"}
        assert taken == dict.fromkeys(labels, TensorProto.INT32 if labels_type == np.int32 else TensorProto.INT64)
        made[labels_type] = run(model, {"x": scores, **{k: v.astype(labels_type) for k, v in labels.items()}})
    for ours, same in zip(made[np.int32], made[np.int64], strict=True):
        np.testing.assert_array_equal(ours, same)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_where_no_label_counts_the_loss_is_nan_and_the_gradient_zero(weight, smoothing):
    block = loss.CrossEntropyLoss(weight, ignore_index=-1, label_smoothing=smoothing)
    value, gradient = run(model_of(block, SCORES, False), {"x": SCORES, "labels": np.full(4, -1)})
    assert np.isnan(value)
    np.testing.assert_array_equal(gradient, np.zeros_like(SCORES))


@pytest.mark.parametrize("kind", [loss.CrossEntropyLoss, loss.NLLLoss])
@pytest.mark.parametrize("labels_type", [np.uint8, np.float32])
def test_other_types_are_refused(kind, labels_type):
    with onnxblock.empty_base() as graph, pytest.raises(BlockBuildError, match="neither int64 nor int32"):
        kind(labels_type=labels_type)(graph.input("x", TensorProto.FLOAT, (2, 3)))


def test_a_module_takes_smaller_integers(tmp_path):
    x, labels = random_batch(5)
    files = generate(perceptron(hidden=4), tmp_path)
    expected = begin(files).accumulate(x, labels)
    for kind in (np.int32, np.int8, np.uint8, np.uint32):
        assert begin(files).accumulate(x, labels.astype(kind)) == expected
    for kind in (np.uint64, np.float32, np.bool_):
        with pytest.raises(FeedError, match="'labels' is int64"):
            begin(files).accumulate(x, labels.astype(kind))


def test_artifacts_with_int32_labels(tmp_path):
    x, labels = random_batch(5)
    expected = begin(generate(perceptron(hidden=4), tmp_path / "wide")).accumulate(x, labels)
    files = generate(perceptron(hidden=4), tmp_path, loss=loss.CrossEntropyLoss(labels_type=np.int32))
    training = begin(files)
    assert training.accumulate(x, labels.astype(np.int32)) == expected
    training.module.eval()
    assert training.accumulate(x, labels.astype(np.int32)) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(FeedError, match=r"'labels' is int32\[n\], the array given is int64"):
        training.accumulate(x, labels)
