"""What training changes: parameters, gradients, optimizer state, as arrays that keep their place in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxblock.checkpoint import Checkpoint, ElementType, OptimizerGroup, Property, Tensor
from onnxblock.errors import CheckpointError, UnknownNameError, did_you_mean
from onnxblock.names import CHECKPOINT_GROUP, GRADIENTS_GROUP, STATE_PROPERTY

Array = npt.NDArray[Any]
_STATE_VERSION = 1
_OF_OPTIMIZER = ("learning_rate", "learning_rate_scales", "scheduler", "optimizer", "memory")


@dataclass
class StoredParameter:
    """One parameter.  ``array`` and ``gradient`` are never replaced once they exist: sessions are bound to them.

    ``array`` is ``None`` in a nominal state until its data is given; ``gradient`` is ``None`` for a frozen parameter
    and before a module exists.
    """

    name: str
    element_type: ElementType
    requires_grad: bool
    array: Array | None
    gradient: Array | None = None


@dataclass
class Extras:
    """State that the checkpoint format has no field for; it travels as JSON in one string property.

    ``seed`` and ``runs``: the seed of training and the training runs since it was set.  ``model``: fingerprint of the
    model that the checkpoint belongs to.  The others belong to the optimizer's state: ``learning_rate`` and
    ``learning_rate_scales`` that were set by hand; ``scheduler`` as its ``state_dict`` gives it; ``optimizer`` and
    ``memory``, what the moments were made by and what they are.
    """

    model: str | None = None
    seed: int | None = None
    runs: int = 0
    learning_rate: float | None = None
    learning_rate_scales: dict[str, float] = field(default_factory=dict)
    scheduler: dict[str, Any] | None = None
    optimizer: str | None = None
    memory: str | None = None
    unknown: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> Extras:
        """Read the property.

        Raises:
            CheckpointError: it is not what this release writes.
        """
        try:
            data = json.loads(text)
            version = data.pop("version")
            known = {k: data.pop(k) for k in ("model", "seed", "runs", *_OF_OPTIMIZER) if k in data}
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"the checkpoint's property {STATE_PROPERTY!r} cannot be read: {error!r}", "Write the checkpoint again."
            ) from error
        if version != _STATE_VERSION:
            raise CheckpointError(
                f"the checkpoint's property {STATE_PROPERTY!r} has version {version!r}; "
                f"this release reads version {_STATE_VERSION}",
                "Use the release that wrote it.",
            )
        return cls(**known, unknown=data)

    def to_json(self, include_optimizer_state: bool) -> str | None:
        """The property, ``None`` when there is nothing to say."""
        data: dict[str, Any] = {}
        if self.model is not None:
            data["model"] = self.model
        if self.seed is not None:
            data |= {"seed": self.seed, "runs": self.runs}
        if include_optimizer_state:
            data |= {k: v for k in _OF_OPTIMIZER if (v := getattr(self, k)) not in (None, {})}
        data |= self.unknown
        return json.dumps({"version": _STATE_VERSION} | data, separators=(",", ":")) if data else None


class Storage:
    """Everything that a :class:`~artifacts.api.CheckpointState` stands for.

    ``optimizer`` is the state that the checkpoint held or that an optimizer made, ``None`` before.  ``scheduler`` gives
    the state of the learning rate scheduler that is in use.  ``gradients_pending`` tells whether the gradients are to
    be added to, so that they belong to the state.  A nominal storage knows names and element types only.
    """

    scheduler: Callable[[], dict[str, Any]] | None = None
    scheduler_resumed = False
    gradients_pending = False

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.nominal = checkpoint.nominal
        self.external = checkpoint.external
        self.parameters = {
            tensor.name: StoredParameter(tensor.name, tensor.element_type, requires_grad, _own_array(tensor))
            for tensors, requires_grad in ((checkpoint.trainable, True), (checkpoint.frozen, False))
            for tensor in tensors
        }
        self.properties = dict(checkpoint.properties or {})
        extras = self.properties.pop(STATE_PROPERTY, None)
        self.extras = Extras() if extras is None else Extras.from_json(str(extras))
        groups = {group.name: group for group in checkpoint.optimizer_groups or ()}
        self.optimizer: OptimizerGroup | None = groups.pop(CHECKPOINT_GROUP, None)
        gradients = groups.pop(GRADIENTS_GROUP, None)
        self._other_groups = list(groups.values())
        for group in [self.optimizer, *self._other_groups]:
            if group is not None:
                group.moments = {p: [_with_own_array(t) for t in ts] for p, ts in group.moments.items()}
        # another runtime keeps the group and makes steps
        if gradients is not None and (self.optimizer is None or gradients.step == self.optimizer.step):
            self._take_gradients(gradients)

    def _take_gradients(self, group: OptimizerGroup) -> None:
        """Go on from the gradients that a checkpoint holds."""
        wrong = []
        for name, tensors in group.moments.items():
            stored = self.parameters.get(name)
            gradient = _own_array(tensors[0]) if len(tensors) == 1 else None
            if stored is None or stored.array is None or gradient is None or gradient.shape != stored.array.shape:
                wrong.append(name)
            else:
                stored.gradient = gradient
        if wrong:
            raise CheckpointError(
                f"the checkpoint holds gradients that fit no parameter of it: {', '.join(wrong)}",
                "Write the checkpoint again.",
            )
        self.gradients_pending = True

    def parameter(self, name: str) -> StoredParameter:
        """The parameter called ``name``.

        Raises:
            UnknownNameError: there is none.
        """
        try:
            return self.parameters[name]
        except KeyError:
            raise UnknownNameError(
                f"there is no parameter {name!r}.{did_you_mean(name, self.parameters)}", "See list(state.parameters)."
            ) from None

    def arrays(self) -> Mapping[str, Array]:
        """The arrays of all parameters by name.

        Raises:
            CheckpointError: the state is nominal.
        """
        return {name: data_of(stored) for name, stored in self.parameters.items()}

    def to_checkpoint(self, include_optimizer_state: bool, include_gradients: bool = False) -> Checkpoint:
        """The state as the original's ``CheckpointState.save_checkpoint`` writes it: sorted by name."""
        trainable, frozen = (
            [
                Tensor(name, p.element_type.number, () if p.array is None else p.array.shape, p.array)
                for name, p in sorted(self.parameters.items())
                if p.requires_grad is requires_grad
            ]
            for requires_grad in (True, False)
        )
        groups: list[OptimizerGroup] = []
        if include_optimizer_state:
            groups += [*self._other_groups, *([] if self.optimizer is None else [self.optimizer])]
        if include_gradients and self.gradients_pending:
            groups.append(self._gradients())
        groups = [replace(g, moments=dict(sorted(g.moments.items()))) for g in sorted(groups, key=lambda g: g.name)]
        properties: dict[str, Property] = dict(self.properties)
        extras = self.extras if self.scheduler is None else replace(self.extras, scheduler=self.scheduler())
        text = extras.to_json(include_optimizer_state)
        if text is not None:
            properties[STATE_PROPERTY] = text
        return Checkpoint(trainable, frozen, self.nominal, groups, dict(sorted(properties.items())), self.external)

    def _gradients(self) -> OptimizerGroup:
        """The gradients as a group that onnxruntime-training reads and leaves alone."""
        tensors = {
            name: [Tensor("gradient", p.element_type.number, p.gradient.shape, p.gradient)]
            for name, p in self.parameters.items()
            if p.gradient is not None
        }
        step = 0 if self.optimizer is None else self.optimizer.step
        return OptimizerGroup(GRADIENTS_GROUP, step, moments=tensors)


def data_of(parameter: StoredParameter) -> Array:
    """The live array of a parameter.

    Raises:
        CheckpointError: the state is nominal and has no data yet.
    """
    if parameter.array is None:
        raise CheckpointError(
            f"parameter {parameter.name!r} has no data: the checkpoint is nominal",
            "Fill it first: module.copy_buffer_to_parameters(buffer, trainable_only=False).",
        )
    return parameter.array


def gradient_of(parameter: StoredParameter) -> Array:
    """The live gradient of a parameter; zeros when it is asked for first.

    Raises:
        CheckpointError: the state is nominal and has no data yet.
    """
    if parameter.gradient is None:
        array = data_of(parameter)
        parameter.gradient = np.zeros(array.shape, array.dtype)  # unlike zeros_like, takes no memory until it is used
    return parameter.gradient


def _own_array(tensor: Tensor) -> Array | None:
    """A writable array that nothing else changes: a copy, unless the data is a private mapping already."""
    if tensor.data is None:
        return None
    array = tensor.array()
    return array if array.flags.writeable else np.array(array)


def _with_own_array(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.data_type, tensor.shape, _own_array(tensor))
