"""What is trained: a network, a batch and a loss each, in two sizes.

Everything is float32, the loss is the mean cross-entropy, the optimizer AdamW.  ``full`` are the sizes that the
published table is about; ``tiny`` only shows that everything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

Array = np.ndarray[Any, Any]
Size = Literal["full", "tiny"]
SIZES: tuple[Size, ...] = get_args(Size)
Arguments = dict[str, dict[str, Any]]
Batch = Callable[[np.random.Generator, dict[str, int]], tuple[Array, ...]]
"""Draws the inputs and then the labels."""


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    ``network`` names a function of ``benchmarks.networks``; ``full`` and ``tiny`` hold its arguments under
    ``"network"``, and what ``batch`` takes under ``"batch"``.  Only weights whose name starts with ``trained`` train.
    With ``only_optimizer`` the optimizer step is measured alone.
    """

    name: str
    title: str
    network: str
    batch: Batch
    full: Arguments
    tiny: Arguments
    images: bool = False
    trained: str = ""
    only_optimizer: bool = False

    def sizes(self, size: Size) -> Arguments:
        return self.full if size == "full" else self.tiny


def _vectors(random: np.random.Generator, size: dict[str, int]) -> tuple[Array, ...]:
    n = size["batch"]
    return random.standard_normal((n, size["inputs"]), np.float32), random.integers(0, 10, n)


def _images(random: np.random.Generator, size: dict[str, int]) -> tuple[Array, ...]:
    n, side = size["batch"], size["side"]
    return random.standard_normal((n, 3, side, side), np.float32), random.integers(0, size["classes"], n)


def _sequences(random: np.random.Generator, size: dict[str, int]) -> tuple[Array, ...]:
    tokens = random.integers(0, size["vocabulary"], (size["batch"], size["length"]))
    return tokens, random.integers(0, size["classes"], size["batch"])


def _masked_sequences(random: np.random.Generator, size: dict[str, int]) -> tuple[Array, ...]:
    """Sequences that fill their row, three quarters of it, or a half; the mask says so."""
    tokens, labels = _sequences(random, size)
    length = size["length"]
    lengths = length - np.arange(size["batch"]) % 3 * (length // 4)
    return tokens, (np.arange(length) < lengths[:, None]).astype(np.int64), labels


def _next_tokens(random: np.random.Generator, size: dict[str, int]) -> tuple[Array, ...]:
    text = random.integers(0, size["vocabulary"], (size["batch"], size["length"] + 1))
    return np.ascontiguousarray(text[:, :-1]), text[:, 1:].reshape(-1)


_TINY_RESNET: Arguments = {
    "network": {"depths": [1, 1, 1, 1], "width": 8, "classes": 10},
    "batch": {"batch": 2, "side": 64, "classes": 10},
}
_RESNET: Arguments = {"network": {}, "batch": {"batch": 8, "side": 224, "classes": 1000}}


def _optimizer(name: str, title: str, layers: int, width: int) -> Workload:
    """Square matrices in a row, through which one small batch passes once for the gradients."""
    return Workload(
        name,
        title,
        "small.matrices",
        _vectors,
        full={"network": {"layers": layers, "width": width}, "batch": {"batch": 2, "inputs": width}},
        tiny={"network": {"layers": 3, "width": 16}, "batch": {"batch": 2, "inputs": 16}},
        only_optimizer=True,
    )


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "mlp",
            "MLP 784-500-10, batch 64",
            "small.perceptron",
            _vectors,
            full={"network": {}, "batch": {"batch": 64, "inputs": 784}},
            tiny={"network": {"inputs": 32, "hidden": 16}, "batch": {"batch": 8, "inputs": 32}},
        ),
        Workload(
            "cnn",
            "CNN 3-32-64-128 with batch norm, batch 32 at 32²",
            "small.convolutional",
            _images,
            full={"network": {}, "batch": {"batch": 32, "side": 32, "classes": 10}},
            tiny={"network": {"width": 4}, "batch": {"batch": 4, "side": 16, "classes": 10}},
            images=True,
        ),
        Workload(
            "resnet18", "ResNet-18, batch 8 at 224²", "vision.ResNet", _images, _RESNET, _TINY_RESNET, images=True
        ),
        Workload(
            "mobilenetv2",
            "MobileNetV2, batch 8 at 128²",
            "vision.MobileNetV2",
            _images,
            full={"network": {}, "batch": {"batch": 8, "side": 128, "classes": 1000}},
            tiny={"network": {"stages": 2, "classes": 10}, "batch": {"batch": 2, "side": 32, "classes": 10}},
            images=True,
        ),
        Workload(
            "transformer",
            "Transformer, 4 layers of 256, batch 8 × 64",
            "small.Transformer",
            _next_tokens,
            full={"network": {}, "batch": {"batch": 8, "length": 64, "vocabulary": 1000}},
            tiny={
                "network": {"layers": 1, "width": 16, "heads": 2, "length": 8, "vocabulary": 30},
                "batch": {"batch": 2, "length": 8, "vocabulary": 30},
            },
        ),
        Workload(
            "bert",
            "BERT-base sizes, 4 layers, batch 4 × 128",
            "language.Bert",
            _masked_sequences,
            full={"network": {}, "batch": {"batch": 4, "length": 128, "vocabulary": 30522, "classes": 2}},
            tiny={
                "network": {"layers": 1, "width": 16, "heads": 2, "vocabulary": 30},
                "batch": {"batch": 3, "length": 8, "vocabulary": 30, "classes": 2},
            },
        ),
        Workload(
            "gpt2",
            "GPT-2 small sizes, 2 layers, batch 2 × 256, tied embedding",
            "language.GPT2",
            _next_tokens,
            full={"network": {}, "batch": {"batch": 2, "length": 256, "vocabulary": 50257}},
            tiny={
                "network": {"layers": 1, "width": 16, "heads": 2, "vocabulary": 30, "length": 8},
                "batch": {"batch": 2, "length": 8, "vocabulary": 30},
            },
        ),
        Workload(
            "lstm",
            "LSTM classifier, hidden 256, batch 32 × 50",
            "small.LSTMClassifier",
            _sequences,
            full={"network": {}, "batch": {"batch": 32, "length": 50, "vocabulary": 5000, "classes": 10}},
            tiny={
                "network": {"vocabulary": 30, "width": 8, "hidden": 8},
                "batch": {"batch": 4, "length": 6, "vocabulary": 30, "classes": 10},
            },
        ),
        Workload(
            "head",
            "ResNet-18, only the head trained, batch 8 at 224²",
            "vision.ResNet",
            _images,
            _RESNET,
            _TINY_RESNET,
            images=True,
            trained="head.",
        ),
        Workload(
            "adamw-0.4m",
            "AdamW alone, 4 tensors, 0.4 M",
            "small.perceptron",
            _vectors,
            full={"network": {}, "batch": {"batch": 2, "inputs": 784}},
            tiny={"network": {"inputs": 32, "hidden": 16}, "batch": {"batch": 2, "inputs": 32}},
            only_optimizer=True,
        ),
        _optimizer("adamw-3m", "AdamW alone, 48 tensors, 3.1 M", 48, 256),
        _optimizer("adamw-33m", "AdamW alone, 32 tensors, 33.6 M", 32, 1024),
    )
}


def draw(workload: Workload, size: Size, count: int) -> list[tuple[Array, ...]]:
    """``count`` batches, the same at every call."""
    random = np.random.default_rng(0)
    return [workload.batch(random, workload.sizes(size)["batch"]) for _ in range(count)]
