"""onnx2torch 1.5.15: the ONNX model as a PyTorch module, trained by PyTorch."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any, ClassVar
from unittest.mock import MagicMock

from . import MODEL
from .base import EPSILON, LEARNING_RATE, WEIGHT_DECAY, BaseEngine


class Engine(BaseEngine):
    """Converted in ``load``; what it made trainable is trained."""

    late_imports: ClassVar[tuple[str, ...]] = ("torch._dynamo",)

    def imports(self) -> str:
        for name in ("torchvision", "torchvision.ops"):
            sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None))
        import onnx2torch
        import torch

        torch.set_num_threads(self.threads)
        self.packages: Any = onnx2torch, torch
        return f"onnx2torch 1.5.15, torch {torch.__version__}"

    def load(self) -> None:
        onnx2torch, torch = self.packages
        network = onnx2torch.convert(str(self.folder / MODEL))
        self.network = network.train(not self.specification["prefix"])
        self.tensors = [tuple(torch.from_numpy(array) for array in batch) for batch in self.batches]
        trained = list(self.network.parameters())
        if self.specification["prefix"]:  # the names are gone; the head's weight and bias stand last
            for parameter in trained[:-2]:
                parameter.requires_grad_(False)
            trained = trained[-2:]
        self.optimizer = torch.optim.AdamW(trained, LEARNING_RATE, eps=EPSILON, weight_decay=WEIGHT_DECAY, fused=True)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def forward_backward(self, batch: int) -> float:
        *inputs, target = self.tensors[batch]
        self.optimizer.zero_grad()
        loss = self.cross_entropy(self.network(*inputs), target)
        loss.backward()
        return float(loss.detach())

    def update(self) -> None:
        self.optimizer.step()
