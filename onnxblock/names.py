"""The fixed words of the file formats, in one place.

Nothing here may depend on anything but the standard library: devices that only train import it.
"""

from __future__ import annotations

import re

# -- the training and evaluation models
GRADIENT_SUFFIX = "_grad"
GRADIENT_BUFFER_SUFFIX = "_grad.accumulation.buffer"
GRADIENT_FLAG_SUFFIX = "_grad.accumulation.out"
GRADIENT_ROWS_SUFFIX = "_grad.rows"
ACCUMULATED_GRADIENT_SUFFIX = ".accumulated_grad"
SUFFIXES_OF_GRADIENTS = (GRADIENT_SUFFIX, GRADIENT_BUFFER_SUFFIX, GRADIENT_FLAG_SUFFIX)
"""onnxruntime-training takes inputs of such names for gradients, and returns no outputs of such names."""
RECOMPUTED_SUFFIX = ".recomputed"
LAZY_RESET_GRAD = "lazy_reset_grad"
ACCUMULATOR_DOMAIN = "com.microsoft"
ACCUMULATOR_OP = "InPlaceAccumulatorV2"
UNKNOWN_SIZES = frozenset({"?", "-1", "*", "None", "unk", "unknown"})
"""What some exporters call every size that they do not know."""

# -- the optimizer model
LEARNING_RATE = "learning_rate"
STEP = "step"
PARAMETERS_SEQUENCE = "params"
GRADIENTS_SEQUENCE = "gradients"
FIRST_MOMENTS_SEQUENCE = "first_order_moments"
SECOND_MOMENTS_SEQUENCE = "second_order_moments"
UPDATED_SUFFIX = ".updated"

# -- the checkpoint
CHECKPOINT_GROUP = "group0"
GRADIENTS_GROUP = "onnxblock.gradients"
MOMENTUM_PREFIX = "momentum"
STATE_PROPERTY = "onnxblock.state"

# -- metadata and our own domain
MANIFEST_KEY = "onnxblock.manifest"
MANIFEST_VERSION = 1
FORWARD_MODEL_KEY = "onnxblock.forward_model"
INITIAL_STATES_KEY = "onnxblock.initial_states"
CONSTANTS_KEY = "onnxblock.constants"
OPTIMIZER_KEY = "onnxblock.optimizer"
OWN_DOMAIN = "onnxblock"

# -- files that generate_artifacts writes, after the prefix
TRAINING_MODEL_FILE = "training_model.onnx"
EVAL_MODEL_FILE = "eval_model.onnx"
OPTIMIZER_MODEL_FILE = "optimizer_model.onnx"
STEP_MODEL_FILE = "step_model.onnx"
CHECKPOINT_FILE = "checkpoint"
NOMINAL_CHECKPOINT_FILE = "nominal_checkpoint"


def gradient_buffer(parameter: str) -> str:
    """Name of the input that carries the accumulated gradient of ``parameter``."""
    return parameter + GRADIENT_BUFFER_SUFFIX


def gradient_flag(parameter: str) -> str:
    """Name of the boolean output that says the gradient of ``parameter`` was accumulated."""
    return parameter + GRADIENT_FLAG_SUFFIX


def accumulated_gradient(parameter: str) -> str:
    """Name of the output that holds the accumulated gradient of ``parameter``.

    It ends in ``_grad`` so that the original runtime's ``Module`` does not show it to the user.
    """
    return parameter + ACCUMULATED_GRADIENT_SUFFIX


def updated_statistic(statistic: str) -> str:
    """Name of the output that holds the next value of a running statistic."""
    return statistic + GRADIENT_SUFFIX


def updated(state: str) -> str:
    """Name of the optimizer output that replaces the input ``state``."""
    return state + UPDATED_SUFFIX


def slice_of(parameter: str, start: int, stop: int) -> str:
    """Name of the optimizer input that carries the elements from ``start`` up to ``stop`` of ``parameter``."""
    return f"{parameter}[{start}:{stop}]"


def gradient_rows(parameter: str) -> str:
    """Name of the optimizer input that carries the numbers of the rows of ``parameter`` that its gradient is of."""
    return parameter + GRADIENT_ROWS_SUFFIX


def owners_in_optimizer(name: str) -> set[str]:
    """The parameters that a value called ``name`` in an optimizer model may belong to.

    It is the gradient, its rows, a state or the new value of a parameter or of a slice of one, or such a slice.
    """
    state = name.removesuffix(UPDATED_SUFFIX)
    parameter, _, number = state.rpartition(f".{MOMENTUM_PREFIX}")
    if not (parameter and number.isdecimal()):
        endings = (UPDATED_SUFFIX, GRADIENT_SUFFIX, GRADIENT_ROWS_SUFFIX)
        parameter = next((name.removesuffix(s) for s in endings if name.endswith(s)), name)
    return {parameter, re.sub(r"\[\d+:\d+\]$", "", parameter)} - {name}


def moment(parameter: str, k: int) -> str:
    """Name of the optimizer input that carries the k-th state of ``parameter``."""
    return f"{parameter}.{MOMENTUM_PREFIX}{k}"


def group_learning_rate(group: str) -> str:
    """Name of the optimizer input that carries the learning rate of the parameter group ``group``."""
    return f"{LEARNING_RATE}.{group}"


def backward_function(function: str) -> str:
    """Name of the function of our own domain that is the backward pass of ``function``."""
    return f"{function}_backward"
