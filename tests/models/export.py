"""Modules to ONNX, through both of PyTorch's exporters."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Literal

import onnx
import torch
from torch.onnx import TrainingMode

if TYPE_CHECKING:
    from torch import Tensor, nn

Exporter = Literal["torchscript", "dynamo"]
Mode = Literal["train", "eval"]

# The TorchScript exporter warns above 20, but writes models that are valid and right.  The new one names 23 as its
# newest, converts to 25 as well, and at 26 writes Gelu, which came with opset 20, into a model that declares opset 18.
OPSETS: dict[Exporter, tuple[int, ...]] = {"torchscript": (13, 17, 20, 23), "dynamo": (18, 20, 23, 25)}


def export(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    *,
    exporter: Exporter = "torchscript",
    opset: int = 17,
    mode: Mode = "train",
    dynamic: bool = False,
) -> onnx.ModelProto:
    """Export ``module`` as a user would; ``dynamic`` leaves the first axis of every input open.

    The inputs are called ``input0``, ``input1``, …, the output ``output``.  The module is left in ``mode``.
    """
    module.train(mode == "train")
    names = [f"input{k}" for k in range(len(inputs))]
    with warnings.catch_warnings():
        # Exporters warn about their own age, about tracing, about train mode and about opsets.
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            return _torchscript(module, inputs, names, opset, mode, dynamic=dynamic)
        shapes = tuple({0: torch.export.Dim("batch")} for _ in inputs) if dynamic else None
        program = torch.onnx.export(
            module,
            inputs,
            input_names=names,
            output_names=["output"],
            opset_version=opset,
            dynamic_shapes=shapes,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
    return program.model_proto


def _torchscript(
    module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], opset: int, mode: Mode, *, dynamic: bool
) -> onnx.ModelProto:
    training = mode == "train"
    file = io.BytesIO()
    torch.onnx.export(
        module,
        inputs,
        file,
        input_names=names,
        output_names=["output"],
        opset_version=opset,
        dynamic_axes={name: {0: "batch"} for name in [*names, "output"]} if dynamic else None,
        training=TrainingMode.TRAINING if training else TrainingMode.EVAL,
        do_constant_folding=not training,
        dynamo=False,
    )
    return onnx.load_model_from_string(file.getvalue())
