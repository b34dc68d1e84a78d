"""Everything by hand: a training block on a base, its optimizer, the checkpoint, and the weights back in a model."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime.training.onnxblock as onnxblock  # noqa: PLR0402 - as users write it
from onnxruntime.training.api import CheckpointState, Module, Optimizer


class TrainClassifier(onnxblock.TrainingBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.CrossEntropyLoss()

    def build(self, scores):
        return self.loss(scores, labels_name="classes"), scores


model = onnx.load("model.onnx")
training_block = TrainClassifier()
for initializer in model.graph.initializer:
    training_block.requires_grad(initializer.name, initializer.name != "b0")
with onnxblock.base(model):
    loss, scores = training_block("scores")
    training_model, eval_model = training_block.to_model_proto()
    parameters = training_block.parameters()
optimizer_block = onnxblock.optim.SGD()
with onnxblock.empty_base(17):
    optimizer_block(parameters)
    optimizer_model = optimizer_block.to_model_proto()
onnxblock.save_checkpoint(parameters, "checkpoint")
onnxblock.save_checkpoint(parameters, "nominal", nominal_checkpoint=True)
for name, made in (("training", training_model), ("eval", eval_model), ("optimizer", optimizer_model)):
    onnx.save(made, name + ".onnx")

state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training.onnx", state, "eval.onnx")
optimizer = Optimizer("optimizer.onnx", module)
optimizer.set_learning_rate(0.1)
random = np.random.default_rng(2)
batches = [(random.normal(size=(8, 12)).astype(np.float32), random.integers(0, 5, 8)) for _ in range(8)]
losses = []
for k, batch in enumerate(batches):
    losses.append(float(module(*batch)[0]))
    if k % 2:  # two batches to each step
        optimizer.step()
        module.lazy_reset_grad()

# the average of two devices
mine = module.get_contiguous_parameters(trainable_only=True).numpy().copy()
other_state = CheckpointState.load_checkpoint("checkpoint")
other = Module("training.onnx", other_state, "eval.onnx")
buffer = module.get_contiguous_parameters(trainable_only=True)
other.copy_buffer_to_parameters(buffer)
assert np.array_equal(other.get_contiguous_parameters(trainable_only=True).numpy(), mine)
CheckpointState.save_checkpoint(state, "trained")
onnxblock.load_checkpoint_to_model("trained", model)
weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
seen = {
    "names": [[p.name for p in kind] for kind in parameters],
    "inputs": module.input_names(),
    "size": module.get_parameters_size(),
    "losses": losses,
    "weights": {name: array.tolist() for name, array in sorted(weights.items())},
    "files": sorted(path.name for path in Path().iterdir()),
}
Path("seen.json").write_text(json.dumps(seen))
