"""onnxblock with forward, backward and update in one file."""

from __future__ import annotations

from typing import Any, ClassVar

from .base import LEARNING_RATE
from .ours import Engine as Ours


class Engine(Ours):
    """``generate_artifacts(..., fused_step=True)``, then ``TrainingStep`` on stock onnxruntime."""

    generate_settings: ClassVar[dict[str, Any]] = {"fused_step": True}

    def imports(self) -> str:
        version = super().imports()

        from artifacts.api import TrainingStep

        self.training_step = TrainingStep
        return version

    def load(self) -> None:
        checkpoint_state = self.api[0]
        state = checkpoint_state.load_checkpoint(self.own_folder / "checkpoint")
        self.trainer = self.training_step(
            self.own_folder / "step_model.onnx", state, session_options=self.session_options()
        )
        self.trainer.set_learning_rate(LEARNING_RATE)

    def step(self, batch: int) -> float:
        return float(self.trainer(*self.batches[batch]))
