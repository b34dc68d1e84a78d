"""What a generated model or a checkpoint holds, as text."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from onnxblock.checkpoint import OptimizerGroup, Tensor, read_checkpoint
from onnxblock.errors import InvalidModelError
from onnxblock.names import GRADIENTS_GROUP, STATE_PROPERTY

from .api.storage import Extras
from .manifest import Input, Manifest, Output, tensor_text

if TYPE_CHECKING:
    from onnx import ModelProto


def overview(file: str | os.PathLike[str]) -> str:
    """What the file holds: the manifest of an ``.onnx`` file, or else the checkpoint, whose data is not read.

    Raises:
        InvalidModelError: the model cannot be read, or has no valid manifest.
        CheckpointError: the checkpoint cannot be read.
    """
    path = Path(file)
    lines = _of_manifest(read_generated(path)[1]) if path.suffix == ".onnx" else _of_checkpoint(path)
    return "\n".join(lines)


def read_generated(path: str | os.PathLike[str]) -> tuple[ModelProto, Manifest]:
    """A generated model, without its large weights, and its manifest.

    Raises:
        InvalidModelError: the model cannot be read, or has no valid manifest.
    """
    from onnxblock.graph.load import load

    model, _ = load(path)
    manifest = Manifest.from_metadata({entry.key: entry.value for entry in model.metadata_props})
    if manifest is None:
        raise InvalidModelError(
            f"{os.fspath(path)!r} has no manifest, so it is no model that generate_artifacts wrote.",
            "Of a forward model, onnxblock.inspect says what training it would mean.",
        )
    return model, manifest


def _of_manifest(manifest: Manifest) -> list[str]:
    in_place = sum(pair.in_place for pair in manifest.state)
    lines = [f"{manifest.kind} model for {' and '.join(manifest.runtimes)}"]
    lines += [f"{name}: {value}" for name, value in manifest.settings.items()]
    if manifest.memory is not None:
        lines.append(f"memory: {manifest.memory}")
    lines += [f"inputs: {len(manifest.inputs)}", *_columns(map(_port, manifest.inputs))]
    lines += [f"outputs: {len(manifest.outputs)}", *_columns(map(_port, manifest.outputs))]
    return [*lines, f"carried from step to step: {len(manifest.state)}, of these in place: {in_place}"]


def _port(port: Input | Output) -> tuple[str, str, str]:
    belonging = "" if port.parameter is None else f" of {port.parameter}"
    return port.name, tensor_text(port.dtype, port.shape), port.role + belonging


def _of_checkpoint(path: Path) -> list[str]:
    checkpoint = read_checkpoint(path)
    lines = ["nominal: names and types only"] if checkpoint.nominal else []
    for title, tensors in (("trained", checkpoint.trainable), ("frozen", checkpoint.frozen)):
        if tensors:
            count, elements = len(tensors), sum(math.prod(tensor.shape) for tensor in tensors)
            size = "" if checkpoint.nominal else f", {elements:,} element{'s' * (elements != 1)}"
            lines.append(f"{title}: {count} weight{'s' * (count != 1)}{size}")
            lines += _columns((tensor.name, _tensor(tensor, checkpoint.nominal), "") for tensor in tensors)
    properties = dict(checkpoint.properties or {})
    state = properties.pop(STATE_PROPERTY, None)
    extras = Extras() if state is None else Extras.from_json(str(state))
    for group in checkpoint.optimizer_groups or ():
        lines += _of_group(group, extras.learning_rate)
    properties |= {name: value for name, value in vars(extras).items() if value != getattr(Extras(), name)}
    return [*lines, *(f"{name}: {value}" for name, value in properties.items())]


def _of_group(group: OptimizerGroup, learning_rate: float | None) -> list[str]:
    """The states of an optimizer, or the gradients of a step in progress, which have no learning rate."""
    title = f"{group.name}: step {group.step}"
    if group.name != GRADIENTS_GROUP:
        title += f", learning rate {group.initial_learning_rate if learning_rate is None else learning_rate:g}"
    rows = [(name, f"{t.name} {_tensor(t)}", "") for name, tensors in group.moments.items() for t in tensors]
    return [title, *_columns(rows)]


def _tensor(tensor: Tensor, nominal: bool = False) -> str:
    return tensor_text(tensor.element_type.name, None if nominal else tensor.shape)


def _columns(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """A line for each row, in columns."""
    listed = list(rows)
    first, second = (max((len(row[k]) for row in listed), default=0) for k in (0, 1))
    return [f"  {a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in listed]
