"""``ceil_mode`` with a last window that would start in the padding: trained as PyTorch trains it, at any opset."""

from __future__ import annotations

import pytest

from tests.user_cases import NODE, compare_with_torch, export, make_model, normal, outputs_of

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

from torch.nn import functional as F  # noqa: E402


@pytest.mark.parametrize("opset", [11, 18, 22])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_a_pool_between_convolutions(tmp_path, kind, opset):
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    model = make_model(
        [
            NODE("Conv", ["x", "W"], ["h"]),
            NODE(kind, ["h"], ["p"], **window),
            NODE("Relu", ["p"], ["r"]),
            NODE("Conv", ["r", "V"], ["y"]),
        ],
        {"x": [2, 3, 7, 7]},
        {"W": normal(4, 3, 3, 3), "V": normal(2, 4, 2, 2)},
        opset=opset,
    )

    def forward(t):
        h = F.conv2d(t.x, t.W)
        p = F.max_pool2d(h, 2, 2, 1, 1, True) if kind == "MaxPool" else F.avg_pool2d(h, 2, 2, 1, True, False)
        return F.conv2d(F.relu(p), t.V)

    training = compare_with_torch(model, tmp_path, forward, {"x": normal(2, 3, 7, 7)})
    training.apply()
    export(training, tmp_path / "inference.onnx")
    assert outputs_of(tmp_path / "inference.onnx", {"x": normal(2, 3, 7, 7)})[0].shape == (2, 2, 2, 2)
