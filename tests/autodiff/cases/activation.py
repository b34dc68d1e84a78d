"""Rows for the activations."""

from __future__ import annotations

import math

import numpy as np

from . import REFERENCE, case, normal

# onnxruntime has float32 kernels only; its float64 Celu and Shrink compute in float32.  (Celu takes no float64 below
# opset 28.)
EVALUATORS = dict.fromkeys(
    (
        *("Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Selu", "Shrink"),
        *("Softplus", "Softsign", "Swish", "ThresholdedRelu"),
    ),
    REFERENCE,
)

EXCEPTIONS = {
    "swish*:newest": "onnxruntime has Swish at opset 24 only",
    "training_dropout_default*:float64": "the mask is drawn anew in every run",
}

CONSTANTS = {"Dropout": (1,)}

_PLAIN = (
    *("Sigmoid", "Tanh", "Softsign", "HardSigmoid", "Relu", "LeakyRelu", "ThresholdedRelu", "Elu", "Selu"),
    *("Softplus", "HardSwish", "Mish", "Gelu"),
)
# Far out, where a naive formula would overflow or cancel.
_FAR = np.array([-1e4, -90.0, -20.0, 20.0, 90.0, 1e4], np.float32)
_E = math.exp(-1)

ROWS = [
    *(case(op, 0.4) for op in _PLAIN),
    *(case(op, normal(0, 3)) for op in _PLAIN),
    *(case(op, normal(2, 5)) for op in _PLAIN),
    *(case("Celu", x, alpha=0.3, opset=28) for x in (np.float32(0.4), normal(0, 3), normal(2, 5))),
    case("Shrink", 0.4, lambd=0.3),
    case("Shrink", normal(0, 3)),
    case("Shrink", normal(2, 5), lambd=0.3, bias=0.1),
    case("Swish", normal(2, 5), opset=24, name="swish_1"),
    case("Swish", normal(2, 5), opset=24, alpha=0.7, name="swish_alpha"),
    case("Swish", normal(0, 5), opset=24, name="swish_nothing"),
    case("Swish", 0.4, opset=24, name="swish_scalar"),
    case("PRelu", 0.4, 0.2),
    case("PRelu", normal(0, 3), normal(3)),
    case("PRelu", normal(2, 3, 4), normal(3, 1)),
    case("Gelu", normal(2, 5), approximate="tanh"),
    case("Elu", normal(2, 5), alpha=0.3),
    case("Selu", normal(2, 5), alpha=0.3, gamma=0.5),
    case("LeakyRelu", normal(2, 5), alpha=-0.3),
    case("HardSigmoid", normal(2, 5), alpha=0.5, beta=0.6),
    case("ThresholdedRelu", normal(2, 5), alpha=-0.3),
    # -- kinks, as PyTorch has them
    case("Relu", [-1.0, 0.0, 2.0], gradient=[0, 0, 1]),
    case("LeakyRelu", [-1.0, 0.0, 2.0], alpha=0.25, gradient=[0.25, 0.25, 1]),
    case("PRelu", [-1.0, 0.0, 2.0], 0.25, gradients=([0.25, 0.25, 1], -1)),
    case("Elu", [-1.0, 0.0, 2.0], alpha=0.5, gradient=[0.5 * _E, 0.5, 1]),
    case("Selu", [-1.0, 0.0, 2.0], alpha=0.5, gamma=2.0, gradient=[_E, 1, 2]),
    case("Celu", [-1.0, 0.0, 2.0], alpha=0.5, gradient=[math.exp(-2), 1, 1]),
    case("HardSigmoid", [-3.0, 0.0, 3.0], alpha=0.5, beta=0.5, gradient=[0, 0.5, 0]),
    case("HardSigmoid", [-1.0, 1.0], alpha=0.5, beta=0.5, gradient=[0, 0]),
    case("HardSwish", [-4.0, -3.0, 0.0, 3.0, 4.0], gradient=[0, -0.5, 0.5, 1.5, 1]),
    case("ThresholdedRelu", [-1.0, 1.0, 2.0], alpha=1.0, gradient=[0, 0, 1]),
    case("Shrink", [-2.0, -1.0, 0.0, 1.0, 2.0], lambd=1.0, gradient=[1, 0, 0, 0, 1]),
    case("Softsign", [-1.0, 0.0, 3.0], gradient=[0.25, 1, 0.0625]),
    # -- far out
    case("Softplus", _FAR, gradient=[0, 0, 2.0611536181902037e-09, 1, 1, 1]),
    case("Sigmoid", _FAR, gradient=[0, 0, 2.0611536181902037e-09, 2.0611536181902037e-09, 0, 0]),
    case("Mish", _FAR, gradient=[0, 0, -3.91619183e-08, 1, 1, 1]),
    case("Gelu", _FAR, gradient=[0, 0, 0, 1, 1, 1]),
    case("Gelu", _FAR, approximate="tanh", gradient=[0, 0, 0, 1, 1, 1], name="far_tanh"),
    case("Elu", _FAR, gradient=[0, 0, 2.06115362e-09, 1, 1, 1]),
    case("Softsign", _FAR[[1, 4]], gradient=[1 / 91**2, 1 / 91**2]),
    # -- along an axis
    *(case(op, normal(2, 3, 4), axis=axis) for op in ("Softmax", "LogSoftmax") for axis in (0, 1, -1)),
    *(case(op, normal(0, 3)) for op in ("Softmax", "LogSoftmax")),
    *(case(op, normal(3, 0)) for op in ("Softmax", "LogSoftmax")),
    case("Softmax", [1000.0, 0.0, -1000.0], gradient=[0, 0, 0]),
    case("LogSoftmax", [1000.0, 0.0, -1000.0], gradient=[-2, 1, 1]),
    # -- Dropout that drops nothing
    case("Dropout", normal(2, 3)),
    case("Dropout", normal(2, 3), 0.75, constants=(1,)),
    case("Dropout", normal(2, 3), 0.75, np.array(False), constants=(1,)),
    case("Dropout", normal(2, 3), 0.0, np.array(True), constants=(1,)),
    case("Dropout", normal(0, 3), 0.5, np.array(True), constants=(1,)),
]
