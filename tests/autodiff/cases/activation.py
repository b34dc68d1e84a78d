"""Rows for the activations."""

from __future__ import annotations

from . import REFERENCE, case, normal

# onnxruntime has float32 kernels only; its float64 Shrink computes in float32.
EVALUATORS = dict.fromkeys(
    (
        *("Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Selu", "Shrink"),
        *("Softplus", "Softsign", "Swish", "ThresholdedRelu"),
    ),
    REFERENCE,
)

EXCEPTIONS = {"swish:newest": "onnxruntime has Swish at opset 24 only"}

CONSTANTS = {"Dropout": (1,)}

ROWS = [case("Relu", [-1.0, 0.0, 2.0], gradient=[0, 0, 1]), case("Relu", normal(2, 3))]
