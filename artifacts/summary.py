"""What ``generate_artifacts`` did, to look at and to print."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path


@dataclass(frozen=True)
class ParameterInfo:
    """Name, element type and shape of a weight, and what is done with it and why."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    reason: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class Artifacts:
    """The files of one generation, and what they train.

    ``print(artifacts)`` shows the whole: what is trained, what is frozen and why, and the files.
    """

    training_model: Path
    eval_model: Path
    optimizer_model: Path | None
    checkpoint: Path
    trainable: tuple[ParameterInfo, ...]
    frozen: tuple[ParameterInfo, ...]
    statistics: tuple[ParameterInfo, ...]
    untouched: tuple[ParameterInfo, ...]
    batch_norm: str
    runtimes: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"trained: {_total(self.trainable)}", *_rows(self.trainable)]
        if self.statistics:
            lines += [f"running statistics, moved by the data: {_total(self.statistics)}", *_rows(self.statistics)]
        if self.frozen:
            lines += [f"frozen, kept in the checkpoint: {_total(self.frozen)}", *_rows(self.frozen)]
        if self.untouched:
            lines += [f"not trained, left in the models: {_total(self.untouched)}", *_rows(self.untouched)]
        lines.append(f"batch norm: {self.batch_norm}")
        lines.append(f"runtimes: {', '.join(self.runtimes)}")
        lines += [f"note: {note}" for note in self.notes]
        files = [self.training_model, self.eval_model, self.optimizer_model, self.checkpoint]
        lines += ["files:", *(f"  {path}" for path in files if path is not None)]
        return "\n".join(lines)


def _total(parameters: tuple[ParameterInfo, ...]) -> str:
    count = sum(p.size for p in parameters)
    return f"{len(parameters)} weight{'s' * (len(parameters) != 1)}, {count:,} element{'s' * (count != 1)}"


def _rows(parameters: tuple[ParameterInfo, ...]) -> list[str]:
    width = max((len(p.name) for p in parameters), default=0)
    return [
        f"  {p.name:<{width}}  {p.dtype}{list(p.shape)}" + (f"  {p.reason}" if p.reason else "") for p in parameters
    ]
