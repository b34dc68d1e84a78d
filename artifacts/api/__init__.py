"""Training from artifacts on stock onnxruntime; needs only NumPy and onnxruntime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .module import Module
    from .optimizer import Optimizer
    from .parameters import Parameter, Parameters
    from .properties import Properties
    from .schedulers import LinearLRScheduler
    from .state import CheckpointState

_HOMES = {
    "CheckpointState": "state",
    "LinearLRScheduler": "schedulers",
    "Module": "module",
    "Optimizer": "optimizer",
    "Parameter": "parameters",
    "Parameters": "parameters",
    "Properties": "properties",
}

__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "Module",
    "Optimizer",
    "Parameter",
    "Parameters",
    "Properties",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
