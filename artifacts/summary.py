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
    the files beside the models and the checkpoint that hold what is too large for them, and ``ort_models`` the models
    once more in ORT format.  ``runtimes`` are those that the training model, the evaluation model and the checkpoint
    are for, ``optimizer_runtimes`` those of the optimizer model; all other models are for stock onnxruntime only.
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
    ort_models: tuple[Path, ...] = ()
    optimizer_runtimes: tuple[str, ...] = ()

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
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, "files, and the runtimes that they are for:", *self._file_rows()])

    def _file_rows(self) -> list[str]:
        """A row for each file; data files go with the files that they belong to."""
        stock = ("onnxruntime",)
        files: list[tuple[Path | None, tuple[str, ...]]] = [
            (self.training_model, self.runtimes),
            (self.eval_model, self.runtimes),
            (self.optimizer_model, self.optimizer_runtimes),
            (self.step_model, stock),
            (self.checkpoint, self.runtimes),
            (self.nominal_checkpoint, self.runtimes),
            *((path, ()) for path in self.external_data),
            *((path, stock) for path in self.ort_models),
        ]
        rows = [(str(path), ", ".join(runtimes)) for path, runtimes in files if path is not None]
        width = max(len(path) for path, _ in rows)
        return [f"  {path:{width}}  {runtimes}".rstrip() for path, runtimes in rows]
