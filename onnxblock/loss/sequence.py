"""Losses on sequences whose labels are not aligned with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from ..block import Block
from ..blocks.gradient import CustomGradient
from ..errors import BlockBuildError
from ..graph.arithmetic import widened
from ..graph.subgraph import Subgraph, scan
from ..graph.types import TensorType, shape_text
from ..graph.value import Value
from .reduction import as_reduction, reduce
from .target import class_labels, float_dtype, held_to

_IMPOSSIBLE = -1e30
"""The logarithm of probability 0: finite, so that no difference of two of them is undefined."""
_NO_CLASS = 2**40
_INFINITE = 1e29
"""A loss from here on is one of something impossible."""


class CTCLoss(Block):
    """-log of the probability of all ways to say the labels in time, with blanks and repetitions between; reduced.

    The scores are logarithms of probabilities (from LogSoftmax) ``[T, N, C]``, of T steps of time, N samples and C
    classes, one of which is the ``blank``; with ``logits`` they are any scores, and with ``batch_first``
    ``[N, T, C]``.  New inputs of the model are the labels ``targets`` ``[N, S]``, of which each sample uses as many as
    ``target_lengths`` ``[N]`` says, and ``input_lengths`` ``[N]``, the steps of time that each sample has; a length
    beyond T or S counts as T or S.  They are of type ``labels_type``, int64 or int32.

    ``reduction`` is ``"mean"`` (each loss divided by the number of labels, at least 1, and then the mean), ``"sum"`` or
    ``"none"``.  Labels that do not fit into the time have an infinite loss, which ``zero_infinity`` takes for 0; its
    gradient is 0 in either case.  Graves et al. 2006, equations 6 to 8, in logarithms.  As ``torch.nn.CTCLoss`` on
    padded targets.
    """

    def __init__(
        self,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
        *,
        logits: bool = False,
        batch_first: bool = False,
        labels_type: npt.DTypeLike = np.int64,
    ) -> None:
        if blank < 0:
            raise BlockBuildError(f"CTCLoss: blank={blank!r} is no class.")
        self._blank, self._reduction, self._zero_infinity = blank, as_reduction(reduction), zero_infinity
        self._logits, self._batch_first, self._labels_type = logits, batch_first, labels_type

    def build(
        self,
        scores_input_name: Value,
        targets_name: str = "targets",
        input_lengths_name: str = "input_lengths",
        target_lengths_name: str = "target_lengths",
    ) -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when a name is taken, or the scores have no three axes."""
        scores = self._in_order_of_time(scores_input_name)
        dtype = float_dtype(scores)
        batch = None if scores.shape is None else scores.shape[1]
        targets, input_lengths, target_lengths = (
            self._of_batch(class_labels(self.graph, name, shape, self._labels_type), scores)
            for name, shape in (
                (targets_name, (batch, f"{targets_name}_size")),
                (input_lengths_name, (batch,)),
                (target_lengths_name, (batch,)),
            )
        )
        losses = self._losses(scores, targets, input_lengths, target_lengths)
        if self._reduction == "mean":
            losses = losses / self.graph.op.Max(target_lengths, 1).cast(dtype)
        return reduce(losses, self._reduction, scores_input_name)

    def _of_batch(self, given: Value, scores: Value) -> Value:
        """``given``, so that another number of samples than that of the scores is an error and not broadcast."""
        op, shape = self.graph.op, given.shape
        if shape is not None and isinstance(shape[0], int):
            return given
        samples = op.Gather(op.Shape(scores), [1])
        rest = [] if given.rank == 1 else [op.Shape(given, start=1)]
        return held_to(given, op.Concat(samples, *rest, axis=0), shape)

    def _in_order_of_time(self, scores: Value) -> Value:
        if scores.rank not in (None, 3):
            raise BlockBuildError(
                f"CTCLoss: {str(scores)!r} has shape {shape_text(scores.shape)}.",
                f"It takes scores of shape {'[N, T, C]' if self._batch_first else '[T, N, C]'}.",
            )
        # Sums of many probabilities need more than the digits of half precision.
        scores = widened(scores)
        if self._batch_first:
            scores = scores.graph.op.Transpose(scores, perm=[1, 0, 2])
        return scores.graph.op.LogSoftmax(scores, axis=2) if self._logits else scores

    def _losses(self, scores: Value, targets: Value, input_lengths: Value, target_lengths: Value) -> Value:
        """One loss for each sample."""
        op, dtype = scores.graph.op, float_dtype(scores)
        states = self._extended(targets, target_lengths)
        may_skip = self._may_skip(states, dtype)
        time = op.Gather(op.Shape(scores), [0])
        # [T, N, 2 S + 1]: what each state says at each time
        index = op.Expand(states.unsqueeze(0), op.Concat(time, op.Shape(states), axis=0))
        said = op.GatherElements(scores, index, axis=2)
        running = op.Less(op.Range(0, op.Gather(op.Shape(scores), 0), 1).unsqueeze(1), input_lengths.unsqueeze(0))
        place = op.Range(0, op.Gather(op.Shape(states), 1), 1)
        last = op.Mul(target_lengths.unsqueeze(1), 2)
        is_end = op.Or(op.Equal(place, last), op.Equal(place, op.Sub(last, 1)))
        losses: Value = _Alignments()(said, running.unsqueeze(2), may_skip, is_end)[0]
        return op.Where(op.Less(losses, _INFINITE), losses, 0.0 if self._zero_infinity else float("inf"))

    def _extended(self, targets: Value, lengths: Value) -> Value:
        """The labels with a blank before, between and after, ``[N, 2 S + 1]``; blanks in place of those not used."""
        op = targets.graph.op
        place = op.Range(0, op.Gather(op.Shape(targets), 1), 1)
        # a negative index would count from the last class; one as large as this is refused
        labels = op.Where(op.Less(targets, 0), _NO_CLASS, targets)
        labels = op.Where(op.Less(place, lengths.unsqueeze(1)), labels, self._blank).unsqueeze(2)
        pairs = op.Pad(labels, [0, 0, 1, 0, 0, 0], self._blank)
        pairs = op.Reshape(pairs, op.Concat(op.Shape(targets, start=0, end=1), [-1], axis=0))
        return op.Pad(pairs, [0, 0, 0, 1], self._blank)

    def _may_skip(self, states: Value, dtype: int) -> Value:
        """0 where a state may follow the one before the last, as a label that differs from the label before."""
        op = states.graph.op
        before = op.Pad(op.Slice(states, [0], [-2], [1]), [0, 2, 0, 0], self._blank)
        barred = op.Or(op.Equal(states, self._blank), op.Equal(states, before))
        return op.Where(barred, states.graph.constant(_IMPOSSIBLE, dtype), 0.0)


class _Alignments(CustomGradient):
    """The losses of all alignments together, and the logarithms of the probabilities α of their beginnings.

    α(t, s) is the probability of all that may have been said up to time t and that ends in state s; β(t, s) that of all
    that may still be said after it.  The derivative of the loss in what state s says at time t is their product over
    the probability of all: the share of the alignments that pass there.
    """

    def forward(self, *inputs: Value) -> list[Value]:
        said, running, may_skip, is_end = inputs
        op, dtype = said.graph.op, float_dtype(said)
        sizes = op.Shape(is_end)
        first = op.Equal(op.Range(0, op.Gather(sizes, 1), 1), 0)
        begin = op.Expand(op.Where(first, said.graph.constant(0.0, dtype), _IMPOSSIBLE), sizes)

        def step(now: Value, here: Value) -> tuple[Value, Value]:
            skipping = _shifted(now, 2) + now.graph.value(may_skip)
            new = _log_sum(now, _shifted(now, 1), skipping) + here
            return new, new

        end, alphas = _over_time(step, begin, said, running)
        return [-op.ReduceLogSumExp(op.Where(is_end, end, _IMPOSSIBLE), [1], keepdims=0), alphas]

    def backward(
        self, inputs: Sequence[Value], outputs: Sequence[Value], cotangents: Sequence[Value]
    ) -> Sequence[Value | None]:
        said, running, may_skip, is_end = inputs
        losses, alphas = outputs
        op, dtype = said.graph.op, float_dtype(said)
        end = op.Where(is_end, said.graph.constant(0.0, dtype), _IMPOSSIBLE)

        def step(after: Value, here: Value) -> tuple[Value, Value]:
            following = after + here
            skipping = _shifted(following + following.graph.value(may_skip), -2)
            return _log_sum(following, _shifted(following, -1), skipping), after

        _, betas = _over_time(step, end, said, running, reverse=True)
        counts = op.And(running, op.Less(losses, _INFINITE).unsqueeze(1))
        shares = op.Where(counts, alphas + betas + losses.unsqueeze(1), _IMPOSSIBLE).exp()
        return [-shares * cotangents[0].unsqueeze(1), None, None, None]


def _over_time(
    step: Callable[[Value, Value], tuple[Value, Value]],
    begin: Value,
    said: Value,
    running: Value,
    *,
    reverse: bool = False,
) -> list[Value]:
    """Carry ``step(state, what is said) -> (new state, what to collect)`` over the times at which a sample runs."""
    body = Subgraph(said.graph)
    row = TensorType(float_dtype(said), None if begin.shape is None else (None,) * 2)
    state, here = body.argument("state", row), body.argument("said", row)
    runs = body.argument("running", TensorType(TensorProto.BOOL, (None, 1)))
    new, collected = step(state, here)
    body.returns([body.op.Where(runs, new, state), collected])
    return scan(said.graph, body, [begin], [said, running], reverse=reverse)


def _shifted(x: Value, places: int) -> Value:
    """The rows of x moved to the right, or to the left where ``places`` is negative, with nothing possible behind."""
    kept = ([0], [-places]) if places > 0 else ([-places], [2**62])
    pads = [0, max(places, 0), 0, max(-places, 0)]
    return x.graph.op.Pad(x.graph.op.Slice(x, *kept, [1]), pads, _IMPOSSIBLE)


def _log_sum(*ways: Value) -> Value:
    op = ways[0].graph.op
    return op.ReduceLogSumExp(op.Concat(*(way.unsqueeze(0) for way in ways), axis=0), [0], keepdims=0)
