"""Weights that set how an operator works: left alone by default, trained when named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module

MODELS = {
    "exponent of Pow": ("y = Pow (h, s)", "float[1] s = {3.0}"),
    "upper bound of Clip": ("y = Clip (h, , s)", "float s = {1.5}"),
    "padding value": ("pads = Constant <value_ints = [0, 1, 0, 1]> ()\ny = Pad (h, pads, s)", "float s = {0.5}"),
    "scale of quantized numbers": ("q = QuantizeLinear (h, s)\ny = DequantizeLinear (q, s)", "float s = {0.1}"),
}


def model(of: str) -> onnx.ModelProto:
    nodes, setting = MODELS[of]
    return parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        agraph (float[n, 2] x) => (float[n, m] y) <float[2, 3] w = {{1, 2, 3, 4, 5, 6}}, {setting}> {{
            h = MatMul (x, w)
            {nodes}
        }}"""
    )


class Squares(onnxblock.Block):
    def build(self, prediction: onnxblock.Value) -> onnxblock.Value:
        return (prediction**2).mean()


@pytest.mark.parametrize("of", MODELS)
def test_a_setting_is_left_alone_by_default_and_the_reason_says_so(of):
    found = onnxblock.inspect(model(of))
    assert [p.name for p in found.trainable] == ["w"]
    (left,) = found.not_trained
    assert left.reason.startswith("a setting of ")
    assert left.reason.endswith("; name it in requires_grad to train it")


@pytest.mark.parametrize("of", MODELS)
def test_a_setting_that_is_named_is_trained_and_nothing_says_that_its_gradient_is_zero(tmp_path, of):
    files = artifacts.generate_artifacts(model(of), ["w", "s"], loss=Squares(), artifact_directory=tmp_path)
    assert [(p.name, p.reason) for p in files.trainable] == [("w", ""), ("s", "")]
    state = CheckpointState.load_checkpoint(files.checkpoint)
    Module(files.training_model, state)(np.full((2, 2), 0.25, np.float32))
    assert np.abs(state.parameters["s"].grad).max() > 1e-3


def test_a_setting_without_gradient_is_on_no_path():
    given = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        agraph (float[1, 1, 2, 2] x) => (float[1, 1, n, m] y)
        <float[1, 1, 2, 2] w = {1, 2, 3, 4}, float[4] s = {1, 1, 2, 2}> {
            h = Mul (x, w)
            y = Resize (h, , s)
        }"""
    )
    (left,) = onnxblock.inspect(given).not_trained
    assert left.reason == "on no differentiable path to the loss"
