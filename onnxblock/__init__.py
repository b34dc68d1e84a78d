"""Train any ONNX model on the ONNX Runtime you already have.

``onnxblock`` is a declarative block language on top of a forward-only ONNX model, with a reverse-mode auto-diff
generator behind it.  Names are loaded when first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import blocks, checkpoint, loss, optim
    from .autodiff import check
    from .autodiff.check import check_gradients, check_rule
    from .autodiff.gradients import gradients
    from .autodiff.registry import gradient, no_gradient
    from .autodiff.rule import RuleContext
    from .block import Block, ForwardBlock
    from .checkpoint import load_checkpoint_to_model, save_checkpoint
    from .errors import OnnxBlockError
    from .export import export_for_inference
    from .graph.context import base, current_graph, custom_op_library, empty_base
    from .graph.decomposition import decomposition
    from .graph.graph import Graph
    from .graph.node import NodeContext
    from .graph.value import Value
    from .inspection import Inspection, inspect
    from .training import TrainingBlock

__version__ = "0.1.0"

_HOMES = {
    "Block": "block",
    "ForwardBlock": "block",
    "Graph": "graph.graph",
    "Inspection": "inspection",
    "NodeContext": "graph.node",
    "OnnxBlockError": "errors",
    "RuleContext": "autodiff.rule",
    "TrainingBlock": "training",
    "Value": "graph.value",
    "base": "graph.context",
    "check_gradients": "autodiff.check",
    "check_rule": "autodiff.check",
    "current_graph": "graph.context",
    "custom_op_library": "graph.context",
    "decomposition": "graph.decomposition",
    "empty_base": "graph.context",
    "export_for_inference": "export",
    "gradient": "autodiff.registry",
    "gradients": "autodiff.gradients",
    "inspect": "inspection",
    "load_checkpoint_to_model": "checkpoint",
    "no_gradient": "autodiff.registry",
    "save_checkpoint": "checkpoint",
}
_MODULES = {
    "blocks": "blocks",
    "check": "autodiff.check",
    "checkpoint": "checkpoint",
    "loss": "loss",
    "optim": "optim",
}

__all__ = [
    "Block",
    "ForwardBlock",
    "Graph",
    "Inspection",
    "NodeContext",
    "OnnxBlockError",
    "RuleContext",
    "TrainingBlock",
    "Value",
    "base",
    "blocks",
    "check",
    "check_gradients",
    "check_rule",
    "checkpoint",
    "current_graph",
    "custom_op_library",
    "decomposition",
    "empty_base",
    "export_for_inference",
    "gradient",
    "gradients",
    "inspect",
    "load_checkpoint_to_model",
    "loss",
    "no_gradient",
    "optim",
    "save_checkpoint",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    # With its name and the module, Python adds the nearest name to what it prints.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
