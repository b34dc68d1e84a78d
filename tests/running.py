"""Build a graph from blocks and run it on stock onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto

from onnxblock import empty_base
from onnxblock.block import set_outputs
from onnxblock.graph.check import check
from onnxblock.graph.types import onnx_dtype

Feeds = Mapping[str, npt.NDArray[Any]]


def build(function: Callable[..., Any], feeds: Feeds, opset: int | None = None) -> ModelProto:
    """The checked model of ``function(*inputs)``, whose inputs have the names, types and shapes of ``feeds``."""
    with empty_base(opset) as graph:
        inputs = [graph.input(name, onnx_dtype(x.dtype), x.shape) for name, x in feeds.items()]
        outputs = function(*inputs)
        set_outputs(graph, [outputs] if isinstance(outputs, str) else outputs)
        check(graph.model)
        return graph.to_model_proto()


def run(model: ModelProto, feeds: Feeds, *, optimize: bool = True) -> list[Any]:
    """The outputs of ``model``."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def evaluate(function: Callable[..., Any], feeds: Feeds, opset: int | None = None) -> list[Any]:
    """The outputs of ``function(*inputs)`` on ``feeds``."""
    return run(build(function, feeds, opset), feeds)


def normal(*shape: int, seed: int = 0, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Reproducible standard normal numbers."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)
