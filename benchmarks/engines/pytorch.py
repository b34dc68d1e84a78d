"""PyTorch with fused AdamW: eager, with channels last, or compiled."""

from __future__ import annotations

from typing import ClassVar

from ..networks import build, load_module
from .base import EPSILON, LEARNING_RATE, WEIGHT_DECAY, BaseEngine


class Engine(BaseEngine):
    """The settings: ``memory_format`` (``channels_last``), ``compile`` (``yes``), ``optimizer`` (``foreach``)."""

    late_imports: ClassVar[tuple[str, ...]] = ("torch._dynamo",)  # with the first optimizer

    def imports(self) -> str:
        import torch

        load_module(self.specification["network"])
        torch.set_num_threads(self.threads)
        return torch.__version__

    def load(self) -> None:
        import torch

        specification = self.specification
        self.network = build(specification["network"], specification["arguments"], specification["prefix"])
        trained = [p for p in self.network.parameters() if p.requires_grad]
        self.tensors = [tuple(torch.from_numpy(array) for array in batch) for batch in self.batches]
        if self.settings.get("memory_format") == "channels_last":
            self.network = self.network.to(memory_format=torch.channels_last)
            self.tensors = [(x.to(memory_format=torch.channels_last), y) for x, y in self.tensors]
        form = {self.settings.get("optimizer", "fused"): True}
        self.optimizer = torch.optim.AdamW(trained, LEARNING_RATE, eps=EPSILON, weight_decay=WEIGHT_DECAY, **form)
        if self.settings.get("compile"):
            self.network = torch.compile(self.network)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def forward_backward(self, batch: int) -> float:
        *inputs, target = self.tensors[batch]
        self.optimizer.zero_grad()
        loss = self.cross_entropy(self.network(*inputs), target)
        loss.backward()
        return float(loss.detach())

    def update(self) -> None:
        self.optimizer.step()
