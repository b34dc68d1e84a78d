"""Makes the files that training needs from a forward-only ONNX model, and trains with them on stock onnxruntime."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import api
    from .generate import generate_artifacts
    from .optimizer import OptimType
    from .summary import Artifacts
    from .train import LossType

_HOMES = {
    "Artifacts": "summary",
    "LossType": "train",
    "OptimType": "optimizer",
    "generate_artifacts": "generate",
}

__all__ = ["Artifacts", "LossType", "OptimType", "api", "generate_artifacts"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name == "api":
        return importlib.import_module(f"{__name__}.api")
    # With its name and the module, Python adds the nearest name to what it prints.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
