"""``compile_training_loop`` of onnxsim 0.8.1: one graph of forward, backward and update; Adam without decay."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import MODEL_WITH_LOSS
from .base import LEARNING_RATE, BaseEngine


class Engine(BaseEngine):
    """The loss is part of its model; it has one call for the whole step, and chooses the threads itself."""

    def imports(self) -> str:
        import onnx
        import onnxruntime
        import onnxsim

        self.packages: Any = onnx, onnxsim
        return f"onnxsim {onnxsim.__version__}, onnxruntime {onnxruntime.__version__}"

    def load(self) -> None:
        onnx, onnxsim = self.packages
        unit = np.eye(self.specification["classes"], dtype=np.float32)
        self.feeds = [
            {f"input{k}": array for k, array in enumerate((*inputs, unit[target]))} for *inputs, target in self.batches
        ]
        model = onnx.load(self.folder / MODEL_WITH_LOSS)
        _constants_to_initializers(model.graph)
        trained = [f"network.{name}" for name in self.specification["trained"]]
        self.loop = onnxsim.compile_training_loop(model, "output", trained)

    def step(self, batch: int) -> float:
        return float(self.loop(self.feeds[batch], LEARNING_RATE))


def _constants_to_initializers(graph: Any) -> None:
    """Its gradients take no Constant nodes; its simplification would remove them, but rename weights too."""
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        graph.initializer.append(node.attribute[0].t)
        graph.initializer[-1].name = node.output[0]
        graph.node.remove(node)
