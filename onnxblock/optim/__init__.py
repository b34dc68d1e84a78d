"""Optimizers: blocks that build the model of one optimizer step.

An optimizer is called with the trainable parameters.  It makes one input for each parameter, each gradient and each
state, and one output for each new value; :func:`sequence_form` asks for the form of the discontinued
onnxruntime-training instead.
"""

from __future__ import annotations

from .adam import AdamW, AdamWOptimizer
from .clipping import ClipGradNorm
from .optimizer import Optimizer
from .sequences import sequence_form
from .sgd import SGD, SGDOptimizer

__all__ = ["SGD", "AdamW", "AdamWOptimizer", "ClipGradNorm", "Optimizer", "SGDOptimizer", "sequence_form"]
