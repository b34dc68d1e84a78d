"""The optimizer model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from enum import Enum
from typing import Any, Literal, TypeAlias

from onnx import ModelProto, TensorProto

from onnxblock import optim
from onnxblock.block import Block, ForwardBlock, require_block
from onnxblock.graph.broadcasting import widen_scalars
from onnxblock.graph.check import check
from onnxblock.graph.context import empty_base
from onnxblock.graph.passes import run_passes
from onnxblock.graph.schemas import opset_of
from onnxblock.training import TrainingModels


class OptimType(Enum):
    """The optimizers that ``generate_artifacts`` builds by name."""

    AdamW = 1
    SGD = 2

    def block(self) -> Block:
        """An optimizer block of this kind with its default settings."""
        made: Block = getattr(optim, self.name)()
        return made


class _OptimizerModel(ForwardBlock):
    def __init__(self, optimizer: Block) -> None:
        self._optimizer = optimizer

    def build(self, parameters: tuple[list[TensorProto], list[TensorProto]]) -> Any:
        return self._optimizer(parameters)


Form: TypeAlias = Literal["slices", "sequences"]
"""How an optimizer model takes its parameters: one by one and large ones in slices, or all in sequences.

An optimizer that is not made of ours takes them as it pleases.
"""


def build_optimizer(
    optimizer: OptimType | Block,
    models: TrainingModels,
    form: Form,
    is_sparse: Callable[[str], bool] = lambda _: False,
) -> ModelProto:
    """The model of one optimizer step for the trainable parameters, at the opset and IR of the training model.

    ``is_sparse`` says whether the gradient of a parameter is given as some of its rows, where the optimizer can.
    """
    if isinstance(optimizer, OptimType):
        optimizer = optimizer.block()
    require_block("optimizer", optimizer, OptimType)
    block = optimizer if isinstance(optimizer, ForwardBlock) else _OptimizerModel(optimizer)
    trainable, frozen = (
        [models.parameter_stub(name) for name in chosen] for chosen in (models.choice.trainable, models.choice.frozen)
    )
    opset = opset_of(models.training)
    in_slices = form == "slices" and isinstance(optimizer, optim.Optimizer)
    with (
        empty_base(opset) as graph,
        optim.sparse_form(is_sparse),
        optim.sequence_form() if form == "sequences" else optim.slice_form() if in_slices else nullcontext(),
    ):
        block((trainable, frozen))
    widen_scalars(graph)
    model = graph.to_model_proto()
    model.ir_version = models.training.ir_version
    run_passes(model, graph.tensor_type)
    check(model)
    return model
