"""A loss of one's own, of several outputs and blocks, with a clipped optimizer."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime.training.onnxblock as onnxblock  # noqa: PLR0402 - as users write it
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer


class BothHeads(onnxblock.Block):
    def __init__(self):
        super().__init__()
        self.first = onnxblock.loss.MSELoss()
        self.second = onnxblock.loss.L1Loss(reduction="sum")
        self.w1 = onnxblock.blocks.Constant(0.4)
        self.w2 = onnxblock.blocks.Constant(0.01)
        self.mul = onnxblock.blocks.Mul()
        self.add = onnxblock.blocks.Add()
        self.third = onnxblock.loss.BCEWithLogitsLoss()

    def build(self, scores, hidden):
        first = self.mul(self.w1(), self.first(scores, target_name="wanted"))
        second = self.mul(self.w2(), self.second(hidden, target_name="wanted_inside"))
        third = self.mul(self.w1(), self.third(scores, target_name="chance"))
        return self.add(self.add(first, second), third)


model = onnx.load("model.onnx")
model.graph.output.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, ["n", 16]))
artifacts.generate_artifacts(
    model,
    requires_grad=["w0", "b0", "w1", "b1"],
    loss=BothHeads(),
    loss_input_names=["scores", "h"],
    optimizer=onnxblock.optim.AdamW(
        betas=(0.8, 0.99), eps=1e-7, weight_decay=0.05, clip_grad=onnxblock.optim.ClipGradNorm(0.5)
    ),
    artifact_directory="data",
)
state = CheckpointState.load_checkpoint("data/checkpoint")
module = Module("data/training_model.onnx", state, "data/eval_model.onnx")
optimizer = Optimizer("data/optimizer_model.onnx", module)
random = np.random.default_rng(1)
x = random.normal(size=(8, 12)).astype(np.float32)
wanted, chance = random.normal(size=(8, 5)).astype(np.float32), random.uniform(size=(8, 5)).astype(np.float32)
inside = random.normal(size=(8, 16)).astype(np.float32)
losses = []
for _ in range(12):
    module.train()
    losses.append(float(module(x, wanted, inside, chance)))
    optimizer.step()
    module.lazy_reset_grad()
module.eval()
losses.append(float(module(x, wanted, inside, chance)))
Path("seen.json").write_text(json.dumps({"inputs": module.input_names(), "losses": losses}))
