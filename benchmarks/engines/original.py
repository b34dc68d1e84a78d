"""onnxruntime-training 1.19.2, the discontinued original, in an environment of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.interop.loop import original_api

from . import MODEL, MODEL_15
from .base import EPSILON, LEARNING_RATE, WEIGHT_DECAY, BaseEngine


class Engine(BaseEngine):
    """The same calls as ours, on its own artifacts; those of the model at opset 15 where it cannot read 17."""

    made_by: ClassVar[str] = "onnxruntime-training"

    def imports(self) -> str:
        self.api: Any = original_api()
        import onnxruntime

        return f"onnxruntime-training {onnxruntime.__version__}"

    def generate(self) -> bool:
        import onnx
        from onnxruntime.training import artifacts
        from onnxruntime.training.onnxblock import optim

        for number, file in enumerate((MODEL, MODEL_15)):
            model = onnx.load(self.folder / file)
            trained = self.specification["trained"]
            try:
                artifacts.generate_artifacts(
                    model,
                    requires_grad=trained,
                    frozen_params=[w.name for w in model.graph.initializer if w.name not in trained],
                    loss=artifacts.LossType.CrossEntropyLoss,
                    optimizer=optim.AdamW(eps=EPSILON, weight_decay=WEIGHT_DECAY),
                    artifact_directory=str(self.own_folder),
                )
                break
            except Exception:
                if number:
                    raise
        return True

    def load(self) -> None:
        import onnxruntime

        state = self.api.CheckpointState.load_checkpoint(str(self.own_folder / "checkpoint"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        folder = self.own_folder
        # without the evaluation model: that of a model with batch normalization does not load
        self.module = self.api.Module(str(folder / "training_model.onnx"), state, session_options=options)
        self.optimizer = self.api.Optimizer(str(folder / "optimizer_model.onnx"), self.module)
        self.optimizer.set_learning_rate(LEARNING_RATE)
        self.module.train()

    def forward_backward(self, batch: int) -> float:
        self.module.lazy_reset_grad()
        loss = self.module(*self.batches[batch])
        return float(loss[0] if isinstance(loss, tuple) else loss)

    def update(self) -> None:
        self.optimizer.step()
