"""A classifier is tuned, evaluated, saved and exported: the flow of the original's documentation for devices."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

# offline: the training artifacts
model = onnx.load("model.onnx")
requires_grad = ["w0", "w1", "b1"]
frozen_params = [param.name for param in model.graph.initializer if param.name not in requires_grad]
artifacts.generate_artifacts(
    model,
    requires_grad=requires_grad,
    frozen_params=frozen_params,
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
    artifact_directory="data",
    prefix="my_",
    ort_format=False,
    custom_op_library=None,
    additional_output_names=["scores"],
    nominal_checkpoint=False,
    loss_input_names=["scores"],
)

# on the device: training
state = CheckpointState.load_checkpoint("data/my_checkpoint")
module = Module("data/my_training_model.onnx", state, "data/my_eval_model.onnx", device="cpu")
optimizer = Optimizer("data/my_optimizer_model.onnx", module)
random = np.random.default_rng(0)
data = [(random.normal(size=(8, 12)).astype(np.float32), random.integers(0, 5, 8)) for _ in range(6)]


def train_epoch():
    module.train()
    losses = []
    for images, labels in data:
        loss, scores = module(images, labels)
        optimizer.step()
        module.lazy_reset_grad()
        losses.append(float(loss))
        assert scores.shape == (8, 5)
    return losses


def test_epoch():
    module.eval()
    losses, right = [], 0
    for images, labels in data:
        loss, scores = module(images, labels)
        losses.append(float(loss))
        right += int((scores.argmax(1) == labels).sum())
    return [float(np.mean(losses)), right]


optimizer.set_learning_rate(0.02)
seen = {"inputs": module.input_names(), "outputs": len(module.output_names())}
for epoch in range(3):
    seen[f"epoch {epoch}"] = [train_epoch(), test_epoch()]
    state.properties["epoch"] = epoch
    CheckpointState.save_checkpoint(state, "data/latest", include_optimizer_state=True)

# later: go on
state = CheckpointState.load_checkpoint("data/latest")
seen["last epoch"] = state.properties["epoch"]
module = Module("data/my_training_model.onnx", state, "data/my_eval_model.onnx")
optimizer = Optimizer("data/my_optimizer_model.onnx", module)
scheduler = LinearLRScheduler(optimizer, warmup_step_count=4, total_step_count=4, initial_lr=0.02)
seen["resumed"] = [float(module(*data[0])[0])]
optimizer.step()
module.lazy_reset_grad()
scheduler.step()

# inference
module.eval()
module.export_model_for_inferencing("data/inference.onnx", ["scores"])
session = ort.InferenceSession("data/inference.onnx", providers=["CPUExecutionProvider"])
seen["inference"] = session.run(["scores"], {"x": data[0][0]})[0].tolist()
seen["parameters"] = [parameter.data.tolist() for name, parameter in state.parameters if name == "b1"]
Path("seen.json").write_text(json.dumps(seen))
