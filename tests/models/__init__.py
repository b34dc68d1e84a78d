"""Small models of ten families, with random weights, for comparison with PyTorch.

:func:`example` gives a module with inputs, loss and target; ``export`` turns it into ONNX and ``oracle`` computes what
PyTorch says its loss and gradients are.  Everything is seeded, and nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch

from tests.models import transformer, vision

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

Loss = Literal["cross_entropy", "mse"]


@dataclass(frozen=True)
class Example:
    """A module and one batch for it; ``loss`` and ``target`` are what it is trained with."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    loss: Loss
    target: Tensor


@dataclass(frozen=True)
class Family:
    """How the examples of one family are made.

    ``data`` takes a generator and the batch size.  ``float64`` says that onnxruntime has double kernels for all its
    operators: it has none for Conv, Erf and LSTM, and Llama casts to float32 inside.
    """

    build: Callable[[], nn.Module]
    data: Callable[[torch.Generator, int], tuple[tuple[Tensor, ...], Tensor]]
    loss: Loss = "cross_entropy"
    batch: int = 4
    seed: int = 0
    float64: bool = False


FAMILIES = {
    "mlp": Family(vision.Perceptron, vision.vectors, "mse", float64=True),
    "lenet": Family(vision.LeNet, vision.digits),
    "resnet": Family(vision.resnet, vision.images, batch=6),
    "mobilenet": Family(vision.mobilenet, vision.images, batch=2, seed=6),
    "unet-transpose": Family(vision.UNetTranspose, vision.pixel_labels),
    "unet-resize": Family(vision.UNetResize, vision.pixel_values, "mse"),
    "distilbert": Family(transformer.distilbert, transformer.masked_tokens),
    "gpt2": Family(transformer.gpt2, transformer.next_tokens, float64=True),
    "vit": Family(vision.vit, vision.images),
    "llama": Family(transformer.llama, transformer.next_tokens),
    "lstm": Family(transformer.LSTMClassifier, transformer.tokens),
}
# Attention as one function of PyTorch, which the new exporter turns into ONNX's Attention from opset 23 on.
VARIANTS = {
    "vit-sdpa": Family(partial(vision.vit, "sdpa"), vision.images),
    "llama-sdpa": Family(partial(transformer.llama, "sdpa"), transformer.next_tokens),
}
ALL = {**FAMILIES, **VARIANTS}


def example(
    family: str, *, seed: int | None = None, batch: int | None = None, dtype: torch.dtype = torch.float32
) -> Example:
    """Make the module and one batch of ``family``: the same for the same arguments, different for another seed.

    The weights depend on the seed only, so another ``batch`` gives other data for the same module.  Each family has a
    seed for which no activation lies so close to a kink that rounding in float32 decides which side it is on.
    """
    chosen = ALL[family]
    generator = torch.Generator().manual_seed(chosen.seed if seed is None else seed)
    module = chosen.build().to(dtype)
    randomize(module, generator)
    inputs, target = chosen.data(generator, batch or chosen.batch)
    return Example(module, tuple(map(_as(dtype), inputs)), chosen.loss, _as(dtype)(target))


def _as(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor


@torch.no_grad()
def randomize(module: nn.Module, generator: torch.Generator) -> None:
    """Give every parameter and running statistic a value of its own, of a size that keeps activations near one.

    Two tensors of equal value would be merged by one of the exporters, and statistics of 0 and 1 would hide a mistake.
    """

    def noise(shape: torch.Size) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            parameter.copy_(noise(parameter.shape) / parameter[0].numel() ** 0.5)
        else:
            parameter.copy_(0.1 * noise(parameter.shape) + (1.0 if name.endswith("weight") else 0.0))
    for name, statistic in module.named_buffers():
        if name.endswith("running_mean"):
            statistic.copy_(0.1 * noise(statistic.shape))
        elif name.endswith("running_var"):
            statistic.copy_(1 + 0.2 * noise(statistic.shape).abs())
