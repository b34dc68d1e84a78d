"""Several losses added up."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from ..block import Block
from ..errors import BlockBuildError
from ..graph.value import Value


class Weighted(Block):
    """Σ weight · loss, for models with several outputs: ``Weighted((0.4, MSELoss()), (0.6, CrossEntropyLoss()))``.

    Each loss is called with the value at its place, or all with the same one where only one is given.  The inputs for
    the targets are called as the losses call them, with the place behind it: ``target1``, ``labels2``.
    """

    def __init__(self, *terms: tuple[float, Block]) -> None:
        if not terms or any(not isinstance(loss, Block) for _, loss in terms):
            raise BlockBuildError(
                f"Weighted takes pairs (weight, loss block), not {', '.join(map(repr, terms)) or 'nothing'}.",
                "Weighted((0.4, onnxblock.loss.MSELoss()), (0.6, onnxblock.loss.L1Loss()))",
            )
        self._terms = terms

    def build(self, *loss_input_names: Value) -> Value:
        """Add the losses.  Raises :class:`BlockBuildError` unless there are as many values as losses, or one."""
        count = len(self._terms)
        if len(loss_input_names) not in (1, count):
            raise BlockBuildError(f"Weighted: {len(loss_input_names)} values for {count} losses.", "Give one for each.")
        values: Sequence[Value] = loss_input_names * count if len(loss_input_names) == 1 else loss_input_names
        parts = []
        for place, ((weight, loss), value) in enumerate(zip(self._terms, values), 1):
            names = {k: f"{name}{place}" for k, name in _target_names(loss).items()}
            part: Value = loss(value, **names)
            parts.append(part * weight)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


def _target_names(loss: Block) -> dict[str, str]:
    """The parameters of ``build`` that name inputs to be made, with their defaults."""
    parameters = inspect.signature(loss.build).parameters.values()
    return {p.name: p.default for p in parameters if p.name.endswith("_name") and isinstance(p.default, str)}
