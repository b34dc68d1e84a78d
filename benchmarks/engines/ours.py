"""onnxblock, as its README tells to use it."""

from __future__ import annotations

from typing import Any, ClassVar

from . import MODEL
from .base import EPSILON, LEARNING_RATE, WEIGHT_DECAY, BaseEngine


class Engine(BaseEngine):
    """``generate_artifacts``, then ``Module`` and ``Optimizer`` on stock onnxruntime."""

    made_by: ClassVar[str] = "onnxblock"
    generate_settings: ClassVar[dict[str, Any]] = {}

    def imports(self) -> str:
        import onnxruntime

        from artifacts.api import CheckpointState, Module, Optimizer

        self.api = CheckpointState, Module, Optimizer
        return f"onnxruntime {onnxruntime.__version__}"

    def generate(self) -> bool:
        import artifacts
        from onnxblock.optim import AdamW

        artifacts.generate_artifacts(
            self.folder / MODEL,
            requires_grad=self.specification["trained"],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=AdamW(eps=EPSILON, weight_decay=WEIGHT_DECAY, variant="torch"),
            artifact_directory=self.own_folder,
            **self.generate_settings,
        )
        return True

    def session_options(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        return options

    def load(self) -> None:
        checkpoint_state, module, optimizer = self.api
        state = checkpoint_state.load_checkpoint(self.own_folder / "checkpoint")
        options = self.session_options()
        self.module = module(self.own_folder / "training_model.onnx", state, session_options=options)
        self.optimizer = optimizer(self.own_folder / "optimizer_model.onnx", self.module)
        self.optimizer.set_learning_rate(LEARNING_RATE)
        self.module.train()

    def forward_backward(self, batch: int) -> float:
        self.module.lazy_reset_grad()
        return float(self.module(*self.batches[batch]))

    def update(self) -> None:
        self.optimizer.step()
