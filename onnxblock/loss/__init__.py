"""Losses: blocks that compare what a model says with what it should say.

A loss is called with the name of a value of the model, makes the input for the target itself, and returns one number
(rank 0), or one per element or sample with ``reduction="none"``.  Every loss works in the element type of the value.
"""

from __future__ import annotations

from .binary import BCELoss, BCEWithLogitsLoss, FocalLoss
from .classification import CrossEntropyLoss, NLLLoss
from .divergence import KLDivLoss
from .embedding import CosineEmbeddingLoss, HingeEmbeddingLoss, InfoNCELoss, TripletMarginLoss
from .overlap import DiceLoss, GIoULoss
from .regression import HuberLoss, L1Loss, MSELoss, SmoothL1Loss
from .sequence import CTCLoss
from .weighted import Weighted

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "DiceLoss",
    "FocalLoss",
    "GIoULoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "InfoNCELoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "SmoothL1Loss",
    "TripletMarginLoss",
    "Weighted",
]
