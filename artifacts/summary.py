"""What ``generate_artifacts`` did, to look at and to print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxblock.autodiff.recomputation import Recomputation
from onnxblock.parameters import ParameterInfo, parameter_rows, parameter_total


@dataclass(frozen=True)
class Artifacts:
    """The files of one generation, and what they train.

    ``print(artifacts)`` shows the whole: what is trained, what is frozen and why, and the files.  ``external_data`` are
    the files beside the models and the checkpoint that hold what is too large for them.
    """

    training_model: Path
    eval_model: Path
    optimizer_model: Path | None
    step_model: Path | None
    checkpoint: Path
    external_data: tuple[Path, ...]
    trainable: tuple[ParameterInfo, ...]
    frozen: tuple[ParameterInfo, ...]
    statistics: tuple[ParameterInfo, ...]
    untouched: tuple[ParameterInfo, ...]
    batch_norm: str
    optimizer: str | None
    runtimes: tuple[str, ...]
    notes: tuple[str, ...]
    nominal_checkpoint: Path | None = None
    recomputation: Recomputation | None = None

    def __str__(self) -> str:
        lines = [f"trained: {parameter_total(self.trainable)}", *parameter_rows(self.trainable)]
        if self.statistics:
            lines += [
                f"running statistics, moved by the data: {parameter_total(self.statistics)}",
                *parameter_rows(self.statistics),
            ]
        if self.frozen:
            lines += [f"frozen, kept in the checkpoint: {parameter_total(self.frozen)}", *parameter_rows(self.frozen)]
        if self.untouched:
            lines += [
                f"not trained, left in the models: {parameter_total(self.untouched)}",
                *parameter_rows(self.untouched),
            ]
        lines.append(f"batch norm: {self.batch_norm}")
        if self.optimizer is not None:
            lines.append(f"optimizer: {self.optimizer}")
        if self.recomputation is not None:
            lines.append(f"computed again for the gradient: {self.recomputation}")
            lines += [f"  {name}" for name in self.recomputation.segments]
        lines.append(f"runtimes: {', '.join(self.runtimes)}")
        lines += [f"note: {note}" for note in self.notes]
        files = [self.training_model, self.eval_model, self.optimizer_model, self.step_model, self.checkpoint]
        files += [self.nominal_checkpoint, *self.external_data]
        lines += ["files:", *(f"  {path}" for path in files if path is not None)]
        return "\n".join(lines)
