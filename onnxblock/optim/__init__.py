"""Optimizers: blocks that build the model of one optimizer step.

An optimizer is called with the trainable parameters.  It makes one input for each parameter, each gradient and each
state, and one output for each new value.  :func:`slice_form` asks for several inputs for each large parameter,
:func:`sparse_form` for the gradients of some rows of a matrix, and :func:`sequence_form` for the form of the
discontinued onnxruntime-training.
"""

from __future__ import annotations

from .adam import AdamW, AdamWOptimizer
from .adam_family import LAMB, Adam, Adamax, Lion, NAdam, RAdam
from .averaging import ExponentialMovingAverage
from .clipping import ClipGradNorm, ClipGradValue
from .groups import Group, ParameterGroups, vectors
from .optimizer import Optimizer
from .parameters import Parameter
from .rms import Adadelta, Adafactor, Adagrad, RMSprop
from .sequences import sequence_form
from .sgd import SGD, SGDOptimizer
from .slices import slice_form
from .sparse import sparse_form
from .state import State
from .step import Step, Update

__all__ = [
    "LAMB",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "AdamWOptimizer",
    "Adamax",
    "ClipGradNorm",
    "ClipGradValue",
    "ExponentialMovingAverage",
    "Group",
    "Lion",
    "NAdam",
    "Optimizer",
    "Parameter",
    "ParameterGroups",
    "RAdam",
    "RMSprop",
    "SGDOptimizer",
    "State",
    "Step",
    "Update",
    "sequence_form",
    "slice_form",
    "sparse_form",
    "vectors",
]
