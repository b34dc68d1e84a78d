"""What all optimizers have in common: the inputs and outputs of the model of one step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from onnx import TensorProto

from .. import names
from ..block import Block
from ..errors import BlockBuildError
from ..graph.types import Shape
from ..graph.value import Value
from .clipping import clip
from .parameters import Parameter, Parameters, trainable
from .sequences import wants_sequences
from .state import State, record_initial
from .step import Step, Update, begin, computed_in


class Optimizer(Block):
    """One optimizer step for a set of parameters.

    A subclass says in :meth:`states` what it keeps of a parameter, and in :meth:`rule` how a tensor is updated.

    The model has the inputs ``learning_rate`` (float32 [1]), ``step`` (int64 [1], the number of completed steps plus
    1), and for every parameter ``p`` its value ``p``, its gradient ``p_grad`` and its states ``p.momentum0``, …; the
    outputs ``p.updated``, ``p.momentum0.updated``, … replace them.  Each output can be bound onto the memory of its
    input.  float16 and bfloat16 parameters are updated in float32, which their states are kept in.
    """

    _opens_scope = False

    def __init__(self, clip_grad: Block | None = None) -> None:
        """``clip_grad`` is a block like :class:`ClipGradNorm` that is given all gradients before the update."""
        self.clip_grad = clip_grad

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
        return self._build_sequences(chosen) if wants_sequences() else self._build_tensors(chosen)

    def _build_sequences(self, parameters: Sequence[Parameter]) -> Value:  # noqa: ARG002 - for those who can
        raise BlockBuildError(
            f"{type(self).__name__} has no form for onnxruntime-training, which knows AdamW and SGD.",
            "Leave runtime= at its default, 'onnxruntime'.",
        )

    def _build_tensors(self, parameters: Sequence[Parameter]) -> list[Value]:
        graph = self.graph
        learning_rate = graph.input(names.LEARNING_RATE, TensorProto.FLOAT, (1,))
        count = graph.input(names.STEP, TensorProto.INT64, (1,))
        tensors = [self._declare(p) for p in parameters]
        wide = {p.name: computed_in(p.dtype) for p in parameters}
        gradients = clip(self.clip_grad, [_as(gradient, wide[p]) for p, gradient, *_ in tensors])
        with graph.scope(type(self).__name__):
            rules = {dtype: self.rule(begin(learning_rate, count, dtype)) for dtype in sorted(set(wide.values()))}
        record_initial(graph, {s: x.initial for p in parameters for s, x in self._named_states(p) if x.initial != 0})
        outputs = []
        for (value, _, *states), gradient in zip(tensors, gradients):
            with graph.scope(f"{type(self).__name__}/{value}"):
                new, *moved = rules[wide[value]](_as(value, wide[value]), gradient, *states)
                new = _as(new, graph.value(value).dtype or wide[value])
            outputs += [graph.rename(n, names.updated(old)) for old, n in zip((value, *states), (new, *moved))]
        return outputs

    def _declare(self, parameter: Parameter) -> list[Value]:
        """The inputs of one parameter: value, gradient, states."""
        graph, p = self.graph, parameter
        inputs = [graph.input(n, p.dtype, p.shape) for n in (p.name, p.name + names.GRADIENT_SUFFIX)]
        return [*inputs, *(graph.input(n, computed_in(p.dtype), s.shape) for n, s in self._named_states(p))]

    def _named_states(self, parameter: Parameter) -> list[tuple[str, State]]:
        return [(names.moment(parameter.name, k), s) for k, s in enumerate(self.states(parameter.shape))]


def _as(value: Value, dtype: int) -> Value:
    return value if value.dtype == dtype else value.cast(dtype)
