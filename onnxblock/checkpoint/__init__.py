"""The checkpoint file format, read and written without ``onnx`` or onnxruntime; README.md here gives the bytes."""

from __future__ import annotations

from .dtypes import ElementType, element_type, element_type_of
from .model import load_checkpoint_to_model, save_checkpoint
from .read import is_checkpoint, read_checkpoint
from .safetensors import read_safetensors, write_safetensors
from .state import Checkpoint, OptimizerGroup, Property, Tensor
from .write import write_checkpoint

__all__ = [
    "Checkpoint",
    "ElementType",
    "OptimizerGroup",
    "Property",
    "Tensor",
    "element_type",
    "element_type_of",
    "is_checkpoint",
    "load_checkpoint_to_model",
    "read_checkpoint",
    "read_safetensors",
    "save_checkpoint",
    "write_checkpoint",
    "write_safetensors",
]
