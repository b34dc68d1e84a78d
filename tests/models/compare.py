"""Train one step of an exported example and compare everything with PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

import artifacts
from artifacts.api import CheckpointState, Module
from tests.models import ALL, example, oracle
from tests.models.export import Exporter, Mode, export

if TYPE_CHECKING:
    from pathlib import Path

LOSS_TYPES = {"cross_entropy": artifacts.LossType.CrossEntropyLoss, "mse": artifacts.LossType.MSELoss}
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    family: str
    exporter: Exporter
    opset: int
    mode: Mode
    dynamic: bool = False
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        batch = "dynamic" if self.dynamic else "static"
        kind = "" if self.dtype == torch.float32 else "-float64"
        return f"{self.family}-{self.exporter}-{self.opset}-{self.mode}-{batch}{kind}"


def compare(case: Case, folder: Path) -> None:
    """Assert that the loss, every gradient and every running statistic after one step are PyTorch's."""
    made = example(case.family, dtype=case.dtype)
    model = export(
        made.module, made.inputs, exporter=case.exporter, opset=case.opset, mode=case.mode, dynamic=case.dynamic
    )
    if case.dynamic:  # another size than the exporter saw
        made = example(case.family, dtype=case.dtype, batch=ALL[case.family].batch + 1)
    theirs = oracle.expected(model, made, case.mode)
    artifacts.generate_artifacts(
        model,
        requires_grad=list(theirs.gradients),
        loss=LOSS_TYPES[made.loss],
        artifact_directory=folder,
        # One exporter writes inference form even for a module in train mode.
        batch_norm="train" if (case.exporter, case.mode) == ("dynamo", "train") else "as exported",
    )
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    module.train()
    loss = module(*(x.numpy() for x in made.inputs), made.target.numpy())

    tolerance = TOLERANCE[case.dtype]
    np.testing.assert_allclose(loss, theirs.loss, rtol=tolerance)
    worst = oracle.errors({name: state.parameters[name].grad for name in theirs.gradients}, theirs.gradients)
    assert max(worst.values()) <= tolerance, {name: error for name, error in worst.items() if error > tolerance}
    for name, statistic in theirs.statistics.items():
        np.testing.assert_allclose(state.parameters[name].data, statistic, rtol=1e-4, atol=1e-5, err_msg=name)
