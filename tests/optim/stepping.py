"""Optimizer models, and what 20 steps of them do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto

import onnxblock
from onnxblock import names
from onnxblock.graph.passes import run_passes
from onnxblock.graph.types import onnx_dtype
from onnxblock.optim.sequences import sequence_form
from tests.optim.reference import Update

SHAPES = {"layer/weight": (3, 4), "bias": (), "v": (5,)}
LEARNING_RATE = np.float32(0.01)
STEPS = 20

Arrays = dict[str, npt.NDArray[Any]]


class _Model(onnxblock.ForwardBlock):
    def __init__(self, optimizer: onnxblock.Block) -> None:
        self._optimizer = optimizer

    def build(self, parameters: Any) -> Any:
        return self._optimizer(parameters)


def step_model(
    optimizer: onnxblock.Block, dtype: npt.DTypeLike = np.float32, shapes: Mapping[str, Any] = SHAPES, opset: int = 21
) -> ModelProto:
    """The checked and finished model of one step."""
    parameters = [(name, onnx_dtype(dtype), shape) for name, shape in shapes.items()]
    with onnxblock.empty_base(opset):
        block = _Model(optimizer)
        block(parameters)
        model = block.to_model_proto()
    run_passes(model)
    return model


def sequence_model(optimizer: onnxblock.Block) -> ModelProto:
    with sequence_form():
        return step_model(optimizer)


def start(seed: int = 0, dtype: npt.DTypeLike = np.float32, shapes: Mapping[str, Any] = SHAPES) -> Arrays:
    generator = np.random.default_rng(seed)
    return {name: np.asarray(generator.standard_normal(shape), dtype) for name, shape in shapes.items()}


def gradients(t: int, like: Arrays) -> Arrays:
    return start(1000 + t, next(iter(like.values())).dtype, {name: x.shape for name, x in like.items()})


def session(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def scalars(t: int) -> Arrays:
    return {names.LEARNING_RATE: np.array([LEARNING_RATE]), names.STEP: np.array([t], np.int64)}


def run_steps(model: ModelProto, parameters: Arrays, steps: int = STEPS) -> Arrays:
    """Parameters and states after some steps of a model with one input per tensor."""
    ready = session(model)
    dtypes = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
    state = dict(parameters)
    metadata = {e.key: json.loads(e.value) for e in model.metadata_props}
    initial = metadata.get(names.INITIAL_STATES_KEY, {})
    for value in ready.get_inputs():
        parameter, separator, _ = value.name.rpartition(f".{names.MOMENTUM_PREFIX}")
        if separator:
            begin = initial.get(value.name, 0)
            content = parameters[parameter] if begin == "parameter" else begin
            state[value.name] = np.full(value.shape, content, dtypes[value.type])
    for t in range(1, steps + 1):
        given = {p + names.GRADIENT_SUFFIX: g for p, g in gradients(t, parameters).items()}
        outputs = ready.run(None, {**scalars(t), **group_rates(metadata), **state, **given})
        for value, array in zip(ready.get_outputs(), outputs, strict=True):
            state[value.name.removesuffix(names.UPDATED_SUFFIX)] = array
    return state


def group_rates(metadata: Mapping[str, Any]) -> Arrays:
    """The learning rates of the groups of parameters that have one of their own."""
    scales = metadata[names.OPTIMIZER_KEY]["learning_rate_scales"]
    return {name: np.array([float(LEARNING_RATE) * scale], np.float32) for name, scale in scales.items()}


def run_sequence_steps(model: ModelProto, parameters: Arrays, steps: int = STEPS) -> Arrays:
    """The parameters after some steps of a model with sequences."""
    ready = session(model)
    taken = [value.name for value in ready.get_inputs()]
    state = {names.PARAMETERS_SEQUENCE: list(parameters.values())}
    for sequence in (names.FIRST_MOMENTS_SEQUENCE, names.SECOND_MOMENTS_SEQUENCE):
        state[sequence] = [np.zeros_like(p) for p in parameters.values()]
    for t in range(1, steps + 1):
        feeds = {**scalars(t), **state, names.GRADIENTS_SEQUENCE: list(gradients(t, parameters).values())}
        outputs = ready.run(None, {name: feeds[name] for name in taken})
        assert outputs[0].tolist() == [True]
        for value, arrays in zip(ready.get_outputs()[1:], outputs[1:], strict=True):
            state[value.name.removesuffix(names.UPDATED_SUFFIX)] = [np.asarray(x) for x in arrays]
    return dict(zip(parameters, state[names.PARAMETERS_SEQUENCE], strict=True))


def expected_steps(
    update: Update, states: int, parameters: Arrays, steps: int = STEPS, clip: Any = None, **settings: Any
) -> Arrays:
    """Parameters and states after some steps of a NumPy optimizer."""
    state = dict(parameters)
    for p, x in parameters.items():
        state.update((names.moment(p, k), np.zeros_like(x)) for k in range(states))
    for t in range(1, steps + 1):
        given = gradients(t, parameters)
        if clip is not None:
            given = dict(zip(given, clip(list(given.values())), strict=True))
        for p in parameters:
            own = [p, *(names.moment(p, k) for k in range(states))]
            lr = parameters[p].dtype.type(LEARNING_RATE)
            updated: Sequence[Any] = update(state[p], given[p], *(state[s] for s in own[1:]), lr=lr, t=t, **settings)
            state.update((name, np.asarray(x, parameters[p].dtype)) for name, x in zip(own, updated, strict=True))
    return state


def pairs(model: ModelProto) -> dict[str, str]:
    """Which output replaces which input."""
    inputs = {value.name for value in model.graph.input}
    return {
        old: value.name
        for value in model.graph.output
        if (old := value.name.removesuffix(names.UPDATED_SUFFIX)) in inputs
    }
