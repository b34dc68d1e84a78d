"""Small networks, and training them from generated artifacts on stock onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module, Optimizer

Arrays = dict[str, npt.NDArray[Any]]


class Perceptron(onnxblock.ForwardBlock):
    """Two dense layers on [n, 64], with dropout between them if a ratio is given; 10 scores."""

    def __init__(self, hidden: int = 32, dropout: float = 0.0) -> None:
        self.layers = [onnxblock.blocks.Linear(64, hidden, seed=0), onnxblock.blocks.Linear(hidden, 10, seed=1)]
        self.dropout = dropout

    def build(self) -> onnxblock.Value:
        x = self.graph.input("x", np.float32, ["n", 64])
        hidden = self.layers[0](x).relu()
        if self.dropout:
            hidden = self.graph.op.Dropout(hidden, self.dropout, True)
        return self.graph.rename(self.layers[1](hidden), "scores")


class Convolutional(onnxblock.ForwardBlock):
    """Convolution, batch norm on the statistics of the batch, ReLU, maximum, dense layer; [n, 1, 8, 8] to 10 scores."""

    def build(self) -> onnxblock.Value:
        graph, random = self.graph, np.random.default_rng(0)

        def parameter(name: str, array: npt.NDArray[Any]) -> onnxblock.Value:
            return graph.parameter(name, array.astype(np.float32))

        x = graph.input("x", np.float32, ["n", 1, 8, 8])
        y = graph.op.Conv(x, parameter("weight", random.uniform(-0.3, 0.3, (6, 1, 3, 3))), pads=[1, 1, 1, 1])
        scale, shift = parameter("scale", np.ones(6)), parameter("shift", np.zeros(6))
        mean, variance = parameter("mean", np.zeros(6)), parameter("variance", np.ones(6))
        y = graph.op.BatchNormalization(y, scale, shift, mean, variance, training_mode=1, outputs=3)[0]
        y = graph.op.MaxPool(y.relu(), kernel_shape=[2, 2], strides=[2, 2])
        return graph.rename(onnxblock.blocks.Linear(96, 10)(graph.op.Flatten(y)), "scores")


def model_of(block: onnxblock.ForwardBlock) -> onnx.ModelProto:
    """The model of a block that makes its own inputs."""
    with onnxblock.empty_base(18):
        block()
        return block.to_model_proto()


def perceptron(**settings: Any) -> onnx.ModelProto:
    return model_of(Perceptron(**settings))


def convolutional() -> onnx.ModelProto:
    return model_of(Convolutional())


def generate(model: onnx.ModelProto | Path, folder: Path, **settings: Any) -> artifacts.Artifacts:
    """Artifacts with cross-entropy and AdamW unless something else is asked for."""
    chosen = {"loss": artifacts.LossType.CrossEntropyLoss, "optimizer": artifacts.OptimType.AdamW}
    return artifacts.generate_artifacts(model, artifact_directory=folder, **{**chosen, **settings})


@dataclass
class Training:
    """A state with its module and its optimizer, on one thread."""

    state: CheckpointState
    module: Module
    optimizer: Optimizer

    def step(self, *batch: npt.NDArray[Any]) -> float:
        """One step on one batch; the loss before it."""
        loss = self.accumulate(*batch)
        self.apply()
        return loss

    def accumulate(self, *batch: npt.NDArray[Any]) -> float:
        """Add the gradient of one batch; its loss."""
        result = self.module(*batch)
        return float(result[0] if isinstance(result, tuple) else result)

    def apply(self) -> None:
        """An optimizer step; the next gradient replaces this one."""
        self.optimizer.step()
        self.module.lazy_reset_grad()

    def data(self) -> Arrays:
        """Copies of all parameters."""
        return {name: p.data.copy() for name, p in self.state.parameters}

    def gradients(self) -> Arrays:
        """Copies of the gradients of the trained parameters."""
        return {name: p.grad.copy() for name, p in self.state.parameters if p.grad is not None}


def one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return options


def begin(files: artifacts.Artifacts, checkpoint: Path | None = None, **options: Any) -> Training:
    """Open artifacts, at another checkpoint than their own if one is given."""
    state = CheckpointState.load_checkpoint(checkpoint or files.checkpoint)
    module = Module(files.training_model, state, files.eval_model, session_options=one_thread(), **options)
    return Training(state, module, Optimizer(files.optimizer_model, module))


def digits() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Handwritten digits [1797, 64] between 0 and 1, and what they show."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target.astype(np.int64)


def random_batch(count: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Pixels [count, 64] and labels out of ten."""
    random = np.random.default_rng(seed)
    return random.standard_normal((count, 64)).astype(np.float32), random.integers(0, 10, count)
