"""The states that an optimizer keeps for each parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from artifacts.manifest import Initial, Input, Manifest
from onnxblock.checkpoint import ElementType, OptimizerGroup, Tensor, element_type_of
from onnxblock.errors import CheckpointError
from onnxblock.names import MOMENTUM_PREFIX

from .storage import Array, Storage, data_of


@dataclass(frozen=True)
class Moment:
    """One state of one parameter; ``inputs`` are what it feeds: one, alone or inside a sequence, or one by slice."""

    inputs: list[Input]
    parameter: str
    index: int
    element_type: ElementType
    shape: tuple[int, ...]
    initial: Initial


def moments_of(manifest: Manifest, trained: list[str], storage: Storage) -> list[Moment]:
    """The moments that the optimizer model of ``manifest`` keeps for the parameters ``trained``."""
    initial = {pair.input: pair.initial for pair in manifest.state}
    zeros = Initial("zeros")
    counts: Counter[tuple[str, int | None]] = Counter()
    found: dict[tuple[str, int], Moment] = {}
    for port in manifest.inputs_of("moment", "moments"):
        for name in trained if port.role == "moments" else [port.parameter or ""]:
            index = counts[name, port.offset]
            counts[name, port.offset] += 1
            if (name, index) in found:
                found[name, index].inputs.append(port)
                continue
            array = data_of(storage.parameter(name))
            fixed = port.size is not None and port.offset is None
            shape = tuple(d for d in port.shape or () if isinstance(d, int)) if fixed else array.shape
            start = initial.get(port.name, zeros) if port.role == "moment" else zeros
            found[name, index] = Moment([port], name, index, element_type_of(port.dtype), shape, start)
    return list(found.values())


def prepare(group: OptimizerGroup, moments: list[Moment], storage: Storage) -> None:
    """Give ``group`` exactly these moments: those it holds, or new ones if it holds none at all.

    Moments of other parameters, and more of them than the optimizer keeps, are left behind.

    Raises:
        CheckpointError: the moments that it holds do not fit; all problems are listed.
    """
    if group.moments:
        problems = list(_problems(group, moments))
        if problems:
            raise CheckpointError(
                "the optimizer state of the checkpoint does not fit:\n    " + "\n    ".join(problems),
                "Use the optimizer that it was saved with, or a checkpoint saved without optimizer state.",
            )
        held = {(m.parameter, m.index): group.moments[m.parameter][m.index] for m in moments}
    else:
        held = {(m.parameter, m.index): _tensor(m, _start(m, storage)) for m in moments}
    group.moments = {}
    for moment in moments:
        group.moments.setdefault(moment.parameter, []).append(held[moment.parameter, moment.index])


def array_of(group: OptimizerGroup, moment: Moment) -> Array:
    """The array that holds a moment now."""
    return group.moments[moment.parameter][moment.index].array()


def replace(group: OptimizerGroup, moment: Moment, array: Array) -> None:
    """Let ``array`` hold a moment from now on."""
    group.moments[moment.parameter][moment.index] = _tensor(moment, array)


def _tensor(moment: Moment, array: Array) -> Tensor:
    return Tensor(f"{MOMENTUM_PREFIX}{moment.index}", moment.element_type.number, moment.shape, array)


def _problems(group: OptimizerGroup, moments: list[Moment]) -> Iterator[str]:
    for moment in moments:
        held = group.moments.get(moment.parameter)
        what = f"{MOMENTUM_PREFIX}{moment.index} of parameter {moment.parameter!r}"
        if held is None or len(held) <= moment.index:
            yield f"{what} is missing"
            continue
        tensor = held[moment.index]
        have, want = (tensor.element_type.name, tensor.shape), (moment.element_type.name, moment.shape)
        if have != want:
            yield f"{what} is {have[0]}{list(have[1])}, the optimizer keeps {want[0]}{list(want[1])}"


def _start(moment: Moment, storage: Storage) -> Array:
    initial, dtype = moment.initial, moment.element_type.dtype()
    if initial.kind == "parameter":
        return data_of(storage.parameter(initial.parameter or moment.parameter)).astype(dtype)
    value = {"zeros": 0, "ones": 1, "constant": initial.value}[initial.kind]
    return np.full(moment.shape, value, dtype)
