"""One batch norm used several times: its gradients are those of as many layers, and its statistics move in turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxblock import loss
from tests.running import normal
from tests.training import begin, generate

USES = 3
INPUTS = {f"x{k}": normal(5, 4, seed=k) for k in range(USES)}
TARGET = normal(5, 4, seed=USES)
MOMENTUM = 0.75


def model(shared: bool) -> onnx.ModelProto:
    """A dense layer and a batch norm on each input, multiplied; the statistics are shared or one pair for each use."""
    nodes, weights = [], {"W": normal(4, 4, seed=9), "scale": normal(4, seed=10), "shift": normal(4, seed=11)}
    for k in range(USES):
        mean, variance = ("mean", "variance") if shared else (f"mean{k}", f"variance{k}")
        weights |= {mean: np.zeros(4, np.float32), variance: np.ones(4, np.float32)}
        nodes += [
            helper.make_node("MatMul", [f"x{k}", "W"], [f"h{k}"]),
            helper.make_node(
                "BatchNormalization",
                [f"h{k}", "scale", "shift", mean, variance],
                [f"n{k}", f"m{k}", f"v{k}"],
                training_mode=1,
                momentum=MOMENTUM,
            ),
            helper.make_node("Mul", [f"y{k - 1}" if k else "n0", f"n{k}"], [f"y{k}"]),
        ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in (*INPUTS, f"y{USES - 1}")]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:-1], values[-1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_layer_used_several_times(tmp_path: Path, recompute: bool) -> None:
    trained = {}
    for shared in (True, False):
        files = generate(model(shared), tmp_path / str(shared), loss=loss.MSELoss(), recompute=recompute)
        training = begin(files)
        training.accumulate(*INPUTS.values(), TARGET)
        trained[shared] = training
    separate = trained[False].gradients()
    for name, gradient in trained[True].gradients().items():
        np.testing.assert_allclose(gradient, separate[name], rtol=1e-5, atol=1e-6, err_msg=name)
    mean, variance = np.zeros(4), np.ones(4)
    for x in INPUTS.values():
        hidden = x @ normal(4, 4, seed=9)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * hidden.mean(0)
        variance = MOMENTUM * variance + (1 - MOMENTUM) * hidden.var(0, ddof=1)
    data = trained[True].data()
    np.testing.assert_allclose(data["mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(data["variance"], variance, rtol=1e-5, atol=1e-6)
