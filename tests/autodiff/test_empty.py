"""Tensors without elements: the gradient is built, runs, and has the right shapes, however much of them is known.

Left out is what onnxruntime does not run forward: Attention and GroupNormalization of an empty batch.  Its kernels of
LSTM and GRU do not either; the steps that take their place for the gradient do.
"""

from __future__ import annotations

import numpy as np
import pytest

from onnxblock.autodiff.gradients import gradients

from . import harness
from .cases import case, normal


def _none(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


CASES = [
    case("InstanceNormalization", _none(0, 4, 3, 3), normal(4), normal(4)),
    case("LayerNormalization", _none(0, 4), normal(4), normal(4)),
    case("RMSNormalization", _none(0, 4), normal(4), opset=23),
    case("BatchNormalization", _none(0, 4, 3, 3), normal(4), normal(4), normal(4), abs(normal(4)), constants=(3, 4)),
    case("Conv", _none(0, 4, 5, 5), normal(2, 4, 3, 3), normal(2)),
    case("Conv", _none(0, 4, 5, 5), normal(2, 4, 1, 1), normal(2)),
    case("Conv", _none(0, 4, 5, 5), normal(4, 2, 3, 3), normal(4), group=2),
    case("Conv", _none(0, 4, 5, 5), normal(4, 1, 3, 3), normal(4), group=4, strides=[2, 2]),
    case("Conv", _none(0, 4, 5), normal(2, 4, 3), normal(2)),
    case("Conv", _none(0, 2, 4, 4, 4), normal(2, 2, 3, 3, 3), normal(2)),
    case("ConvTranspose", _none(0, 4, 5, 5), normal(4, 2, 3, 3), normal(2), strides=[2, 2]),
    case("MaxPool", _none(0, 4, 5, 5), kernel_shape=[2, 2]),
    case("AveragePool", _none(0, 4, 5, 5), kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
    case("GlobalAveragePool", _none(0, 4, 5, 5)),
    case("GlobalMaxPool", _none(0, 4, 5, 5)),
    case("MatMul", _none(0, 4), normal(4, 3)),
    case("MatMul", _none(0, 3, 4), normal(4, 3)),
    case("Gemm", _none(0, 4), normal(4, 3), normal(3)),
    case("Softmax", _none(0, 4)),
    case("LogSoftmax", _none(0, 4, 2), axis=1),
    case("SoftmaxCrossEntropyLoss", _none(0, 4), np.zeros(0, np.int64), reduction="sum"),
    case("NegativeLogLikelihoodLoss", _none(0, 4), np.zeros(0, np.int64), reduction="none"),
    case("Resize", _none(0, 2, 4, 4), None, np.array([1, 1, 2, 2], np.float32), constants=(1, 2), mode="linear"),
    case("GridSample", _none(0, 2, 4, 4), _none(0, 3, 3, 2)),
    case("LRN", _none(0, 4, 3, 3), size=3),
    case("LpNormalization", _none(0, 4)),
    case("MeanVarianceNormalization", _none(0, 4, 3, 3)),
    case("Einsum", _none(0, 4), normal(4, 3), equation="ij,jk->ik"),
    case("ReduceMax", _none(0, 4), np.array([1])),
    case("ReduceProd", _none(0, 4), np.array([1])),
    case("TopK", _none(0, 4), np.array([2]), outputs=2),
    case("CumSum", _none(0, 4), np.array(1)),
    case("Gather", normal(5, 4), np.zeros((0, 2), np.int64)),
    case("GatherElements", _none(0, 4), np.zeros((0, 4), np.int64)),
    case("GatherND", normal(5, 4), np.zeros((0, 1), np.int64)),
    case("ScatterElements", normal(5, 4), np.zeros((0, 4), np.int64), _none(0, 4)),
    case("ScatterND", normal(5, 4), np.zeros((0, 1), np.int64), _none(0, 4)),
    case("Slice", _none(0, 4), np.array([1]), np.array([3]), np.array([1])),
    case("Pad", _none(0, 4), np.array([0, 1, 0, 1])),
    case("Pad", _none(0, 4), np.array([0, 1, 0, 1]), mode="reflect"),
    case("Concat", _none(0, 4), normal(2, 4), axis=0),
    case("Split", _none(0, 4), outputs=2, axis=1, num_outputs=2),
    case("Tile", _none(0, 4), np.array([2, 2])),
    case("Expand", normal(1, 4), np.array([0, 4])),
    case("DepthToSpace", _none(0, 4, 2, 2), blocksize=2),
    case("SpaceToDepth", _none(0, 1, 4, 4), blocksize=2),
    case("Trilu", _none(0, 4, 4)),
    case("PRelu", _none(0, 4), normal(4)),
    case("Det", _none(0, 3, 3)),
    case("Det", _none(0, 0)),
    case("Det", _none(2, 0, 0)),
    case(
        "RoiAlign",
        normal(1, 2, 5, 5),
        _none(0, 4),
        np.zeros(0, np.int64),
        output_height=2,
        output_width=2,
        constants=(1,),
    ),
    case("Col2Im", _none(0, 4, 9), np.array([4, 4]), np.array([2, 2])),
    case("DFT", _none(0, 4, 1), None, np.array(1), opset=20),
    case("DeformConv", _none(0, 2, 5, 5), normal(2, 2, 2, 2), _none(0, 8, 4, 4), opset=19),
    case("ReverseSequence", _none(3, 0, 2), np.zeros(0, np.int64)),
    case("Compress", _none(0, 4), np.zeros(0, bool), axis=0),
    case("MaxUnpool", _none(0, 1, 2, 2), np.zeros((0, 1, 2, 2), np.int64), kernel_shape=[2, 2], strides=[2, 2]),
    case("STFT", _none(0, 16, 1), np.array(4), normal(8), np.array(8), opset=17),
    case("LpPool", _none(0, 4, 5, 5), kernel_shape=[2, 2]),
    case("LSTM", _none(3, 0, 4), normal(2, 20, 4), normal(2, 20, 5), hidden_size=5, direction="bidirectional"),
    case("GRU", _none(3, 0, 4), normal(1, 15, 4), normal(1, 15, 5), hidden_size=5, linear_before_reset=1),
    case("RNN", _none(3, 0, 4), normal(1, 5, 4), normal(1, 5, 5), hidden_size=5),
    case("MaxRoiPool", normal(1, 2, 5, 5), _none(0, 5), pooled_shape=[2, 2], constants=(1,)),
]


@pytest.mark.parametrize("form", ["static", "symbolic", "unranked"])
@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda k: f"{CASES[k].op_type}-{k}")
def test_nothing_is_differentiated(index: int, form: str) -> None:
    one = CASES[index]
    names = harness.wrt(one)
    model = gradients(getattr(harness, form)(one), wrt=names, outputs=[one.model.graph.output[0].name])
    for optimized in (False, True):
        for name, d in zip(names, harness.run_onnxruntime(model, one.feeds, optimized=optimized), strict=True):
            assert d.shape == one.feeds[name].shape
            assert np.isfinite(d).all()
