"""Writes what the engines read: the model as ONNX, the batches, and what is to be trained."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional
from torch.onnx import TrainingMode

from .engines import MODEL, MODEL_15, MODEL_WITH_LOSS, SPECIFICATION
from .networks import build
from .workloads import Size, Workload, draw

BATCHES = 3


class _WithLoss(nn.Module):
    """For an engine without losses: the mean cross-entropy of one-hot labels, in operators that it knows."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        *inputs, target = values
        return -(functional.softmax(self.network(*inputs), -1).log() * target).sum() / target.shape[0]


def prepare(workload: Workload, size: Size, folder: Path) -> Path:
    """Write the files of a workload into ``folder`` unless the same were written there before; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp, fingerprint = folder / "prepared.txt", _fingerprint()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint:
        return folder
    arguments = workload.sizes(size)["network"]
    module = build(workload.network, arguments, workload.trained)
    batches = draw(workload, size, BATCHES)
    inputs = tuple(torch.from_numpy(array) for array in batches[0][:-1])
    export(module, inputs, folder / MODEL, 17)
    export(module, inputs, folder / MODEL_15, 15)
    classes = int(module(*inputs).shape[-1])
    target = torch.eye(classes)[torch.from_numpy(batches[0][-1])]
    export(_WithLoss(module), (*inputs, target), folder / MODEL_WITH_LOSS, 17)
    names = {initializer.name for initializer in onnx.load(folder / MODEL).graph.initializer}
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad and name in names]
    missing = [name for name, p in module.named_parameters() if p.requires_grad and name not in names]
    if missing:
        raise ValueError(f"The exporter gave these weights other names: {', '.join(missing)}")
    specification: dict[str, Any] = {
        "workload": workload.name,
        "size": size,
        "network": workload.network,
        "arguments": arguments,
        "prefix": workload.trained,
        "trained": trained,
        "images": workload.images,
        "classes": classes,
        "inputs": len(inputs),
    }
    (folder / SPECIFICATION).write_text(json.dumps(specification, indent=1), encoding="utf-8")
    for position, arrays in enumerate(zip(*batches, strict=True)):
        np.save(folder / f"input{position}.npy", np.stack(arrays))
    stamp.write_text(fingerprint, encoding="utf-8")
    return folder


def _fingerprint() -> str:
    """Of the code that the files depend on."""
    here = Path(__file__).parent
    sources = [here / "prepare.py", here / "workloads.py", *sorted((here / "networks").glob("*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    return f"{digest.hexdigest()} torch {torch.__version__}"


def export(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, opset: int) -> None:
    """Write ``module`` as ONNX with fixed shapes, in the mode that it is in."""
    training = module.training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its age, about tracing and about training mode
        torch.onnx.export(
            module,
            inputs,
            str(path),
            input_names=[f"input{k}" for k in range(len(inputs))],
            output_names=["output"],
            opset_version=opset,
            training=TrainingMode.TRAINING if training else TrainingMode.EVAL,
            do_constant_folding=not training,
            dynamo=False,
        )
