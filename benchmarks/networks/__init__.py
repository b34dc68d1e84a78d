"""The networks that are measured, as PyTorch modules; every one returns scores with the classes on axis 1."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

SEED = 0


def load_module(network: str) -> Any:
    """The module of ``benchmarks.networks`` that a workload's network stands in."""
    return importlib.import_module(f"{__name__}.{network.partition('.')[0]}")


def build(network: str, arguments: dict[str, Any], trained: str = "") -> nn.Module:
    """The network, with the same random weights at every call.

    With ``trained``, only weights whose name starts so train, and batch normalization uses its running statistics.
    """
    import torch

    torch.manual_seed(SEED)
    module: nn.Module = getattr(load_module(network), network.partition(".")[2])(**arguments)
    module.train(not trained)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    return module
