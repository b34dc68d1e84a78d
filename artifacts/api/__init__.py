"""Training from artifacts on stock onnxruntime; needs only NumPy and onnxruntime."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .module import Module
    from .optimizer import Optimizer
    from .parameters import Parameter, Parameters
    from .properties import Properties
    from .schedulers import (
        ConstantLR,
        CosineAnnealingLR,
        ExponentialLR,
        LambdaLR,
        LinearLR,
        LinearLRScheduler,
        MultiStepLR,
        OneCycleLR,
        PolynomialLR,
        ReduceLROnPlateau,
        StepLR,
    )
    from .scheduling import LRScheduler, WarmUp
    from .state import CheckpointState
    from .step import TrainingStep

_HOMES = {
    "CheckpointState": "state",
    "ConstantLR": "schedulers",
    "CosineAnnealingLR": "schedulers",
    "ExponentialLR": "schedulers",
    "LRScheduler": "scheduling",
    "LambdaLR": "schedulers",
    "LinearLR": "schedulers",
    "LinearLRScheduler": "schedulers",
    "Module": "module",
    "MultiStepLR": "schedulers",
    "OneCycleLR": "schedulers",
    "Optimizer": "optimizer",
    "Parameter": "parameters",
    "Parameters": "parameters",
    "PolynomialLR": "schedulers",
    "Properties": "properties",
    "ReduceLROnPlateau": "schedulers",
    "StepLR": "schedulers",
    "TrainingStep": "step",
    "WarmUp": "scheduling",
}

__all__ = [
    "CheckpointState",
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "LinearLRScheduler",
    "Module",
    "MultiStepLR",
    "OneCycleLR",
    "Optimizer",
    "Parameter",
    "Parameters",
    "PolynomialLR",
    "Properties",
    "ReduceLROnPlateau",
    "StepLR",
    "TrainingStep",
    "WarmUp",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    # With its name and the module, Python adds the nearest name to what it prints.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
