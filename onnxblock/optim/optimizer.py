"""What all optimizers have in common: the inputs and outputs of the model of one step."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, TensorProto

from .. import names
from ..block import Block, ForwardBlock
from ..errors import BlockBuildError, did_you_mean
from ..graph.types import Shape
from ..graph.value import Value
from .clipping import clip, clips_slices
from .joining import is_elementwise, join, parted, taken_together
from .parameters import Parameter, Parameters, trainable
from .pieces import NO_LEARNING_RATE
from .sequences import wants_sequences
from .slices import slices, wants_slices
from .sparse import Rows, wants_sparse
from .state import State
from .step import Step, Update, begin, computed_in


@dataclass(frozen=True)
class Part:
    """What updates some of the parameters: an optimizer, and the group whose learning rate it takes, if any."""

    optimizer: Optimizer
    group: str | None = None


_ABOUT_RULE = ("elementwise", "sparse")


class Optimizer(ForwardBlock):
    """One optimizer step for a set of parameters.

    A subclass says in :meth:`states` what it keeps of a parameter, and in :meth:`rule` how a tensor is updated.

    The model has the inputs ``learning_rate`` (float32 [1]), ``step`` (int64 [1], the number of completed steps plus
    1), and for every parameter ``p`` its value ``p``, its gradient ``p_grad`` and its states ``p.momentum0``, …; the
    outputs ``p.updated``, ``p.momentum0.updated``, … replace them.  Each output can be bound onto the memory of its
    input.  float16 and bfloat16 parameters are updated in float32, which their states are kept in.

    A group of parameters with a learning rate of its own (:class:`ParameterGroups`) has it in the input
    ``learning_rate.<group>``.

    Inside :func:`slice_form` a large parameter is several inputs ``p[start:stop]``, with gradients and states of their
    own: ranges of its elements, flattened, in the shape [1, stop - start].  Small vectors are updated as one.

    Inside :func:`sparse_form` the gradient ``p_grad`` of a matrix [v, w] is that of some of its rows [n, w], whose
    distinct numbers are the input ``p_grad.rows`` (int64 [n]), and the others are left alone.
    """

    _opens_scope = False

    elementwise = False
    """Whether an element's update depends on nothing but that element and the step.

    A subclass says so beside its :meth:`rule`; it is not inherited by one with another rule, mixed in or its own.
    """

    sparse = False
    """Whether an element whose gradient is zero stays as it is, with all that is kept of it; said in the same way."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        place = {name: _place(cls, name) for name in ("rule", *_ABOUT_RULE)}
        for about in _ABOUT_RULE:
            if place[about] > place["rule"]:
                setattr(cls, about, False)

    def __init__(self, clip_grad: Block | None = None, **settings: Any) -> None:
        """``clip_grad`` is a block like :class:`ClipGradNorm` that is given all gradients before the update.

        ``settings`` are the other arguments of the constructor, for groups of parameters and for showing.
        """
        given: object = clip_grad
        if given is not None and (isinstance(given, type) or not callable(given)):
            shown = given.__name__ if isinstance(given, type) else repr(given)
            raise BlockBuildError(
                f"{type(self).__name__}: clip_grad is {shown}, where a block is expected.",
                f"Write clip_grad=onnxblock.optim.ClipGradNorm(1.0). {NO_LEARNING_RATE}",
            )
        self.clip_grad = clip_grad
        self.settings = settings

    def __repr__(self) -> str:
        clip_grad = {} if self.clip_grad is None else {"clip_grad": self.clip_grad}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in {**self.settings, **clip_grad}.items())})"

    def with_settings(self, **changes: Any) -> Optimizer:
        """The same kind of optimizer with some settings changed; it clips no gradients.

        Raises :class:`BlockBuildError` for settings that it does not have or that are out of range.
        """
        unknown = [f"{name!r}.{did_you_mean(name, self.settings)}" for name in changes if name not in self.settings]
        if unknown:
            raise BlockBuildError(
                f"{type(self).__name__} has no setting {' '.join(unknown)}",
                f"It has {', '.join(self.settings) or 'none'}.",
            )
        return type(self)(**{**self.settings, **changes})

    def part_for(self, parameter: Parameter) -> Part:  # noqa: ARG002 - for those who have groups
        """What updates a parameter: this optimizer, unless there are groups."""
        return Part(self)

    @property
    def learning_rate_scales(self) -> Mapping[str, float]:
        """What the learning rates of groups are multiples of this optimizer's by, as far as they have their own."""
        return {}

    @property
    def memory(self) -> str:
        """What is kept of a parameter, in words.

        Optimizers with equal words can go on from each other's states.
        """
        kept = self.states((None, None))
        return ", ".join(s.content or f"state {k} of {type(self).__name__}" for k, s in enumerate(kept)) or "nothing"

    def states(self, shape: Shape) -> Sequence[State]:  # noqa: ARG002 - for those that keep something
        """What is kept of a parameter of this shape; nothing by default."""
        return ()

    @abstractmethod
    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""

    def build(self, parameters: Parameters) -> Any:
        """Add the step and return the names of its outputs: the flag alone in the form with sequences.

        Raises :class:`ParameterError` when there is nothing to train, :class:`BlockBuildError` when the optimizer has
        no such form.
        """
        chosen = trainable(parameters)
        parts = {p: self.part_for(p) for p in chosen}
        if wants_sequences():
            self._record(parts, {}, _memory_in_words(parts))
            return self._build_sequences(chosen)
        divisible = [p for p, part in parts.items() if is_elementwise(p, part)] if clips_slices(self.clip_grad) else []
        sparse = {p.name for p in divisible if parts[p].optimizer.sparse and wants_sparse(p.name)}
        cut = _slices(p for p in divisible if p.name not in sparse) if wants_slices() else {}
        tensors = {tensor: part for p, part in parts.items() for tensor in _cut(p, cut.get(p.name))}
        self._record(tensors, cut, _memory_in_words(parts))
        return self._build_tensors(tensors, sparse)

    def _build_sequences(self, parameters: Sequence[Parameter]) -> Value:  # noqa: ARG002 - for those who can
        raise BlockBuildError(
            f"{type(self).__name__} has no form for onnxruntime-training, which knows AdamW and SGD.",
            "Leave runtime= at its default, 'onnxruntime'.",
        )

    def _build_tensors(self, chosen: Mapping[Parameter, Part], sparse: Collection[str]) -> list[Value]:
        graph = self.graph
        parts = {p.name: part for p, part in chosen.items()}
        rates: dict[str | None, Value] = {None: graph.input(names.LEARNING_RATE, TensorProto.FLOAT, (1,))}
        count = graph.input(names.STEP, TensorProto.INT64, (1,))
        for group in self.learning_rate_scales:
            rates[group] = graph.input(names.group_learning_rate(group), TensorProto.FLOAT, (1,))
        tensors = [self._declare(p, part, sparse) for p, part in chosen.items()]
        numbers = {name: graph.input(names.gradient_rows(name), TensorProto.INT64, (None,)) for name in sorted(sparse)}
        wide = {p.name: computed_in(p.dtype) for p in chosen}
        gradients = clip(self.clip_grad, [_as(gradient, wide[p]) for p, gradient, *_ in tensors])
        with graph.scope(type(self).__name__):
            rules = {
                (part, dtype): part.optimizer.rule(begin(rates[part.group], count, dtype))
                for part in dict.fromkeys(parts.values())
                for dtype in sorted({wide[p] for p, its_part in parts.items() if its_part == part})
            }
        taken = {str(p): (p, gradient, *states) for (p, _, *states), gradient in zip(tensors, gradients)}
        results: dict[str, list[Value]] = {}
        for alike in taken_together(chosen) if wants_slices() else [[p] for p in chosen]:
            first, called = alike[0], "vectors" if len(alike) > 1 else alike[0].name
            with graph.scope(f"{type(self).__name__}/{called}"):
                value, gradient, *states = (join(column) for column in zip(*(taken[p.name] for p in alike)))
                update, rows = rules[chosen[first], wide[first.name]], Rows(numbers.get(first.name))
                new, *moved = update(_as(rows.of(value), wide[first.name]), gradient, *map(rows.of, states))
                updated = map(rows.put, (value, *states), (_as(new, first.dtype), *moved))
                columns = [parted(v, alike) for v in updated]
            for p, made in zip(alike, zip(*columns)):
                old = (p.name, *(name for name, _ in _named_states(p, chosen[p])))
                results[p.name] = [graph.rename(new, names.updated(name)) for name, new in zip(old, made)]
        return [output for p in chosen for output in results[p.name]]

    def _declare(self, parameter: Parameter, part: Part, sparse: Collection[str]) -> list[Value]:
        """The inputs of one parameter: value, gradient, states."""
        graph, p = self.graph, parameter
        value = graph.input(p.name, p.dtype, p.shape)
        shape = (None, *(p.shape or ())[1:]) if p.name in sparse else p.shape
        gradient = graph.input(p.name + names.GRADIENT_SUFFIX, p.dtype, shape)
        return [value, gradient, *(graph.input(n, computed_in(p.dtype), s.shape) for n, s in _named_states(p, part))]

    def _record(
        self, tensors: Mapping[Parameter, Part], cut: Mapping[str, Sequence[tuple[int, int]]], memory: str
    ) -> None:
        """Write into the model's metadata what its inputs do not say, for whoever prepares them."""
        states = [named for p, part in tensors.items() for named in _named_states(p, part)]
        initial = {name: state.initial for name, state in states if state.initial != 0}
        if initial:
            _add_metadata(self.base, names.INITIAL_STATES_KEY, initial)
        scales = {names.group_learning_rate(group): scale for group, scale in self.learning_rate_scales.items()}
        about = {"description": repr(self), "memory": memory, "learning_rate_scales": scales}
        about |= {"slices": cut} if cut else {}
        _add_metadata(self.base, names.OPTIMIZER_KEY, about)


def require_optimizer(wrapper: str, given: object) -> Optimizer:
    """``given``, which ``wrapper`` wraps, if it is an optimizer; raises :class:`BlockBuildError` if not."""
    if isinstance(given, Optimizer):
        return given
    shown = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
    raise BlockBuildError(
        f"{wrapper} begins with an optimizer block, not {shown}.", f"optim.{wrapper}(optim.AdamW(), ...)"
    )


def _place(cls: type, name: str) -> int:
    """How far up among the classes that ``cls`` inherits from an attribute is given."""
    return next(k for k, base in enumerate(cls.__mro__) if name in vars(base))


def _memory_in_words(parts: Mapping[Parameter, Part]) -> str:
    """What is kept of most parameters, and of those by name of which something else is kept."""
    owners: dict[str, list[str]] = {}
    for p, part in parts.items():
        owners.setdefault(part.optimizer.memory, []).append(p.name)
    common = max(owners, key=lambda memory: len(owners[memory]))
    return "; ".join([common, *(f"{', '.join(of)}: {memory}" for memory, of in owners.items() if memory != common)])


def _slices(parameters: Iterable[Parameter]) -> dict[str, Sequence[tuple[int, int]]]:
    """Start and end of the slices of each of the parameters that is taken in slices."""
    shapes = {}
    for p in parameters:
        known = [d for d in p.shape or () if isinstance(d, int)]
        if p.shape is not None and len(known) == len(p.shape):
            shapes[p.name] = known
    return slices(shapes)


def _cut(parameter: Parameter, ranges: Sequence[tuple[int, int]] | None) -> list[Parameter]:
    """The slices of a parameter, or the whole one.

    Rows, because onnx's shape inference takes any vector for the content of a shape and lists its elements.
    """
    if ranges is None:
        return [parameter]
    return [
        Parameter(names.slice_of(parameter.name, start, stop), parameter.dtype, (1, stop - start))
        for start, stop in ranges
    ]


def _named_states(parameter: Parameter, part: Part) -> list[tuple[str, State]]:
    return [(names.moment(parameter.name, k), s) for k, s in enumerate(part.optimizer.states(parameter.shape))]


def _add_metadata(model: ModelProto, key: str, content: Mapping[str, Any]) -> None:
    model.metadata_props.add(key=key, value=json.dumps(content, sort_keys=True, separators=(",", ":")))


def _as(value: Value, dtype: int) -> Value:
    return value if value.dtype == dtype else value.cast(dtype)
