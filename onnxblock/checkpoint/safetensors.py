"""Checkpoints as ``.safetensors`` files, which many other programs read, and back.

The parameters keep their names; the moments of the optimizer are tensors ``optimizer/<group>/<parameter>/<moment>``.
What else a checkpoint holds (which parameters are trained, their order, steps, properties) is one JSON text in the
file's metadata.

Source of the format: the specification of safetensors (https://huggingface.co/docs/safetensors): the length of a JSON
header as a 64-bit number, the header, and the data without gaps.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..files import as_path, replacing
from .dtypes import element_type_of
from .state import Checkpoint, OptimizerGroup, Property, Tensor

METADATA_KEY = "onnxblock.checkpoint"
METADATA_VERSION = 1
_MOMENT = "optimizer/{group}/{parameter}/{moment}"
_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_ELEMENT_TYPES = {name: element_type_of(dtype) for dtype, name in _NAMES.items()}
_DAMAGED = "Write or copy the file again; it may have been cut off."


def write_safetensors(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write ``checkpoint`` to ``path``, streamed, the optimizer's state included; documentation strings are left out.

    Raises:
        CheckpointError: the checkpoint is nominal, two tensors would share a name, a type has no name in the format, or
            the file cannot be written.
    """
    if checkpoint.nominal:
        raise CheckpointError("a nominal checkpoint has no data to write", "Give its parameters their data first.")
    named = [(tensor.name, tensor) for tensor in checkpoint.parameters]
    groups = checkpoint.optimizer_groups
    named += [moment for group in groups or () for moment in _moments(group)]
    twice = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if twice:
        raise CheckpointError(f"tensors would share a name: {', '.join(map(repr, twice))}", "Rename the parameters.")
    strange = {name: t.element_type.name for name, t in named if t.element_type.name not in _NAMES}
    if strange:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in strange.items())
        raise CheckpointError(f"safetensors has no element type for {listed}", "Use write_checkpoint instead.")
    named.sort(key=lambda item: -item[1].element_type.bits)  # so every tensor is aligned
    header: dict[str, Any] = {"__metadata__": {METADATA_KEY: json.dumps(_description(checkpoint))}}
    end = 0
    for name, tensor in named:
        start, end = end, end + tensor.nbytes
        kind = _NAMES[tensor.element_type.name]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path, CheckpointError) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in named:
            file.writelines(tensor.chunks())


def read_safetensors(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a file of :func:`write_safetensors`; in a file of another program every tensor is a trainable parameter.

    The arrays are read-only views of the mapped file.

    Raises:
        CheckpointError: the file is missing, truncated or no safetensors file, holds an element type that is unknown
            here, or a description of another version.
    """
    path = as_path(path, CheckpointError)
    header, data = _open(path)
    metadata = header.pop("__metadata__", None) or {}
    try:
        tensors = {name: _tensor(path, name, entry, data) for name, entry in header.items()}
        if METADATA_KEY not in metadata:
            return Checkpoint(list(tensors.values()), [])
        return _checkpoint(path, json.loads(metadata[METADATA_KEY]), tensors)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is damaged: {error}", _DAMAGED) from error


def _moments(group: OptimizerGroup) -> Iterator[tuple[str, Tensor]]:
    for parameter, tensors in group.moments.items():
        for tensor in tensors:
            yield _MOMENT.format(group=group.name, parameter=parameter, moment=tensor.name), tensor


def _description(checkpoint: Checkpoint) -> dict[str, Any]:
    groups = checkpoint.optimizer_groups
    return {
        "version": METADATA_VERSION,
        "trainable": [t.name for t in checkpoint.trainable],
        "frozen": [t.name for t in checkpoint.frozen],
        "optimizer_groups": None
        if groups is None
        else [
            {
                "name": group.name,
                "step": group.step,
                "initial_learning_rate": group.initial_learning_rate,
                "moments": {parameter: [t.name for t in tensors] for parameter, tensors in group.moments.items()},
            }
            for group in groups
        ],
        "properties": checkpoint.properties,
    }


def _open(path: Path) -> tuple[dict[str, Any], np.ndarray[Any, np.dtype[np.uint8]]]:
    try:
        content = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", "Pass a .safetensors file.") from error
    length = struct.unpack("<Q", content[:8].tobytes())[0] if content.size >= 8 else content.size
    try:
        header = json.loads(content[8 : 8 + length].tobytes()) if 8 + length <= content.size else None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is not a safetensors file, or is truncated", "Pass a .safetensors file.")
    return header, np.asarray(content[8 + length :])


def _tensor(path: Path, name: str, entry: Mapping[str, Any], data: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    kind, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if kind not in _ELEMENT_TYPES:
        raise CheckpointError(f"{path}: {name!r} has element type {kind!r}", f"Known: {', '.join(_ELEMENT_TYPES)}.")
    element_type = _ELEMENT_TYPES[kind]
    if not 0 <= start <= end <= data.size or end - start != element_type.nbytes(shape):
        raise CheckpointError(f"{path}: the data of {name!r} lies outside of the file or has the wrong size", _DAMAGED)
    return Tensor(name, element_type.number, shape, data[start:end].view(element_type.dtype()).reshape(shape))


def _checkpoint(path: Path, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Checkpoint:
    if description["version"] != METADATA_VERSION:
        raise CheckpointError(
            f"{path} has a description of version {description['version']!r}; this release reads {METADATA_VERSION}",
            "Write the file again with this release.",
        )
    trainable, frozen = ([tensors[name] for name in description[kind]] for kind in ("trainable", "frozen"))
    groups = description["optimizer_groups"]
    properties: dict[str, Property] | None = description["properties"]
    made = None if groups is None else [_group(group, tensors) for group in groups]
    return Checkpoint(trainable, frozen, optimizer_groups=made, properties=properties)


def _group(group: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> OptimizerGroup:
    moments: dict[str, list[Tensor]] = {}
    for parameter, names in group["moments"].items():
        moments[parameter] = []
        for name in names:
            tensor = tensors[_MOMENT.format(group=group["name"], parameter=parameter, moment=name)]
            moments[parameter].append(Tensor(name, tensor.data_type, tensor.shape, tensor.data))
    return OptimizerGroup(group["name"], group["step"], group["initial_learning_rate"], moments)
