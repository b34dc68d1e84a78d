"""Train a small convolutional network on handwritten digits, with onnxruntime and nothing else that computes gradients.

    python tools/run.py demo            sets up an environment and runs this
    python examples/digits.py           if the extra ``demo`` is installed

The network is written down in the block language, ``generate_artifacts`` makes what training needs, ``artifacts.api``
trains, and the result is an ordinary ONNX model that runs anywhere.  All files go to ``out/``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import onnxruntime
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import artifacts
import onnxblock
from artifacts.api import CheckpointState, LinearLRScheduler, Module, Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

BATCH = 32
LEARNING_RATE = 3e-3
WANTED_ACCURACY = 0.97
SIDE, CLASSES = 8, 10  # of scikit-learn's digits


class Convolution(onnxblock.Block):
    """A 3 × 3 convolution that keeps the image's size; a block may own weights and use any ONNX operator."""

    def __init__(self, channels_in: int, channels_out: int, seed: int) -> None:
        self.shape = (channels_out, channels_in, 3, 3)
        self.random = np.random.default_rng(seed)

    def build(self, image: onnxblock.Value) -> onnxblock.Value:
        limit = 1 / np.sqrt(np.prod(self.shape[1:]))
        weight = self.graph.parameter("weight", self.random.uniform(-limit, limit, self.shape).astype(np.float32))
        bias = self.graph.parameter("bias", np.zeros(self.shape[0], np.float32))
        return self.graph.op.Conv(image, weight, bias, pads=[1, 1, 1, 1])


class Digits(onnxblock.ForwardBlock):
    """Two convolutions, one pooling, one dense layer: 64 grey pixels in, a score for each of ten digits out."""

    def __init__(self) -> None:
        self.first = Convolution(1, 16, seed=1)
        self.second = Convolution(16, 32, seed=2)
        self.scores = onnxblock.blocks.Linear(32 * (SIDE // 2) ** 2, CLASSES, seed=3)

    def build(self, pixels: onnxblock.Value) -> onnxblock.Value:
        op = self.graph.op
        image = pixels.reshape(-1, 1, SIDE, SIDE)
        features = self.second(self.first(image).relu()).relu()
        return self.scores(op.Flatten(op.MaxPool(features, kernel_shape=[2, 2], strides=[2, 2])))


def forward_model() -> onnx.ModelProto:
    """Build the forward model, with untrained weights and any batch size."""
    with onnxblock.empty_base() as graph:
        network = Digits()
        network(graph.input("pixels", np.float32, ["batch", SIDE**2]))
        return network.to_model_proto()


def batches(count: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the indices of one epoch's batches."""
    yield from np.array_split(random.permutation(count), count // BATCH)


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of rows whose largest score is the label's."""
    return float((scores.argmax(1) == labels).mean())


def draw(losses: list[float], per_epoch: int, test_accuracy: float, path: Path) -> None:
    """Draw the loss of every step, and its mean in every epoch, to a PNG."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.semilogy(np.arange(len(losses)) / per_epoch, losses, color="0.75", linewidth=0.8, label="each step")
    means = np.reshape(losses, (-1, per_epoch)).mean(1)
    axes.semilogy(np.arange(len(means)) + 0.5, means, color="tab:blue", label="mean of the epoch")
    axes.set(xlabel="epoch", ylabel="cross-entropy", title=f"Handwritten digits: {test_accuracy:.1%} of the test set")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def train(folder: Path, epochs: int, console: Console) -> float:
    """Do all of it, and return the accuracy of the exported model on digits it has not seen."""
    data = load_digits()
    pixels, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int64)
    split = train_test_split(pixels, labels, test_size=0.25, random_state=0, stratify=labels)
    train_pixels, test_pixels, train_labels, test_labels = split

    forward = forward_model()
    made = artifacts.generate_artifacts(
        forward,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
    )
    console.print(str(made))

    state = CheckpointState.load_checkpoint(made.checkpoint)
    module = Module(made.training_model, state, made.eval_model)
    optimizer = Optimizer(made.optimizer_model, module)
    per_epoch = len(train_labels) // BATCH
    schedule = LinearLRScheduler(optimizer, 0, epochs * per_epoch, LEARNING_RATE)
    random = np.random.default_rng(0)
    losses: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    started = time.perf_counter()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("epochs", total=epochs)
        for epoch in range(1, epochs + 1):
            module.train()
            for chosen in batches(len(train_labels), random):
                losses.append(float(module(train_pixels[chosen], train_labels[chosen])))
                optimizer.step()
                schedule.step()
                module.lazy_reset_grad()
            module.eval()
            test_loss = float(module(test_pixels, test_labels))
            if epoch in {1, epochs} or epoch % 5 == 0:
                mean = np.mean(losses[-per_epoch:])
                console.print(f"epoch {epoch:3}   training loss {mean:.4f}   test loss {test_loss:.4f}")
            progress.update(task, advance=1)
    seconds = time.perf_counter() - started
    console.print(f"{len(losses)} steps in {seconds:.1f} s: {1e3 * seconds / len(losses):.2f} ms each")

    trained = folder / "digits.onnx"
    module.export_model_for_inferencing(trained, [output.name for output in forward.graph.output])
    session = onnxruntime.InferenceSession(trained, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"pixels": test_pixels})
    reached = accuracy(scores, test_labels)
    picture = folder / "loss.png"
    draw(losses, per_epoch, reached, picture)
    console.print(f"{reached:.1%} of {len(test_labels)} unseen digits are right, says a plain InferenceSession.")
    console.print(f"The trained model is {trained}, the loss curve {picture}.")
    return reached


def main() -> int:
    """Read the command line and train; fails when the accuracy is not reached."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with onnxruntime.")
    parser.add_argument("--epochs", type=int, default=30, help="how often to go through the training set (default 30)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="FOLDER", help="where all files go (default out)"
    )
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error("--epochs must be at least 1")
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, soft_wrap=True)
    reached = train(arguments.out, arguments.epochs, console)
    if reached < WANTED_ACCURACY:
        console.print(f"That is below {WANTED_ACCURACY:.0%}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
