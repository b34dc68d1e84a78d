"""``import onnxblock.compat`` lets scripts written for ``onnxruntime.training`` run unchanged on stock onnxruntime.

It puts this library in the place of the discontinued package: ``from onnxruntime.training import artifacts``,
``import onnxruntime.training.onnxblock as onnxblock`` and ``from onnxruntime.training.api import Module`` work as
before. Nothing happens where the original is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_ORIGINAL = "onnxruntime.training"
_PLACES = {
    "artifacts": "artifacts",
    "api": "artifacts.api",
    "onnxblock": "onnxblock",
    "onnxblock.blocks": "onnxblock.blocks",
    "onnxblock.loss": "onnxblock.loss",
    "onnxblock.optim": "onnxblock.optim",
}


def has_original() -> bool:
    """Whether the installed onnxruntime brings its own ``onnxruntime.training``."""
    spec = importlib.util.find_spec("onnxruntime")
    folders = [] if spec is None else spec.submodule_search_locations or []
    return any((Path(folder) / "training" / "__init__.py").exists() for folder in folders)


def install() -> None:
    """Make ``onnxruntime.training`` and its modules this library, unless the original is there."""
    if has_original() or _ORIGINAL in sys.modules:
        return
    package = ModuleType(_ORIGINAL, "The training package, provided by onnxblock on stock onnxruntime.")
    package.__path__ = []
    package.__spec__ = ModuleSpec(_ORIGINAL, None, is_package=True)  # for those who ask whether it can be imported
    sys.modules[_ORIGINAL] = package
    for place, ours in _PLACES.items():
        module = importlib.import_module(ours)
        sys.modules[f"{_ORIGINAL}.{place}"] = module
        if "." not in place:
            setattr(package, place, module)
    setattr(importlib.import_module("onnxruntime"), "training", package)  # noqa: B010 - a module we do not own


install()
