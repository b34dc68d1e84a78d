"""Whether model files and a checkpoint belong together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from artifacts.manifest import Input, Manifest
from onnxblock.errors import ArtifactMismatchError, did_you_mean

from .storage import Storage

_TOGETHER = "Use the files of one generate_artifacts run together, with its checkpoint or one saved from it."


def require_fit(manifest: Manifest, path: str | os.PathLike[str], storage: Storage) -> None:
    """Check that a model's parameters are those of the state.

    Raises:
        ArtifactMismatchError: the fingerprints differ, or names, shapes or element types do; all are listed.
    """
    known = storage.extras.model
    problems = list(_differences(manifest, storage))
    if manifest.model and known and manifest.model != known:
        shown = "".join(f"\n    {problem}" for problem in problems[:10])
        raise ArtifactMismatchError(
            f"{os.fspath(path)} and the checkpoint come from different models "
            f"(fingerprints {manifest.model[:12]} and {known[:12]}){shown}",
            _TOGETHER,
        )
    if problems:
        raise ArtifactMismatchError(
            f"{os.fspath(path)} and the checkpoint do not fit:\n    " + "\n    ".join(problems), _TOGETHER
        )


def require_same_generation(
    first: Manifest, first_path: str | os.PathLike[str], second: Manifest, second_path: str | os.PathLike[str]
) -> None:
    """Check that two model files come from the same run of the generator.

    Raises:
        ArtifactMismatchError: their manifests say that they do not.
    """
    if first.generation and second.generation and first.generation != second.generation:
        raise ArtifactMismatchError(
            f"{os.fspath(first_path)} and {os.fspath(second_path)} come from different generations "
            f"({first.generation[:12]} and {second.generation[:12]})",
            _TOGETHER,
        )


def _differences(manifest: Manifest, storage: Storage) -> Iterator[str]:
    ports: dict[str, list[Input]] = {}
    for port in manifest.inputs_of("parameter", "frozen", "statistic"):
        ports.setdefault(port.owner, []).append(port)
    for name, (port, *others) in ports.items():
        slices = [p for p in (port, *others) if p.offset is not None]
        stored = storage.parameters.get(name)
        if stored is None:
            near = did_you_mean(name, storage.parameters)
            yield f"parameter {name!r} of the model is not in the checkpoint.{near}"
            continue
        if stored.requires_grad is not (port.role == "parameter"):
            here, there = _trained(port.role == "parameter"), _trained(stored.requires_grad)
            yield f"parameter {name!r} is {here} in the model, {there} in the checkpoint"
        if stored.element_type.name != port.dtype:
            yield f"parameter {name!r} is {port.dtype} in the model, {stored.element_type.name} in the checkpoint"
        if stored.array is None or port.shape is None:
            continue
        shape = list(stored.array.shape)
        if slices:
            yield from _gaps(name, slices, stored.array.size)
        if port.offset is None and not _is_of(port.shape, shape):
            yield f"parameter {name!r} has shape {list(port.shape)} in the model, {shape} in the checkpoint"
    known = set(ports)
    if manifest.kind == "training":
        buffered = {port.parameter for port in manifest.inputs_of("gradient_buffer")}
        for port in manifest.inputs_of("parameter"):
            if port.name not in buffered:
                yield f"trained parameter {port.name!r} has no gradient buffer in the model"
        for name in sorted(filter(None, buffered - known)):
            yield f"the gradient buffer for {name!r} belongs to no parameter of the model"
    if manifest.kind == "eval" or manifest.inputs_of("parameters"):
        return
    for name, stored in storage.parameters.items():
        if stored.requires_grad and name not in known:
            yield f"trainable parameter {name!r} of the checkpoint is not in the {manifest.kind} model"


def _is_of(wanted: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    """Whether an array of this shape fits, whatever the sizes that are open."""
    return len(shape) == len(wanted) and all(
        want == have for want, have in zip(wanted, shape, strict=True) if isinstance(want, int)
    )


def _gaps(name: str, slices: Sequence[Input], size: int) -> Iterator[str]:
    """What the slices of a parameter leave out of its elements, or take twice."""
    at = 0
    for port in sorted(slices, key=lambda port: port.offset or 0):
        if port.offset != at:
            yield f"parameter {name!r}: a slice of the model begins at element {port.offset}, not {at}"
            return
        at += port.size or 0
    if at != size:
        yield f"parameter {name!r} has {at} elements in the model, {size} in the checkpoint"


def _trained(requires_grad: bool) -> str:
    return "trained" if requires_grad else "frozen"
