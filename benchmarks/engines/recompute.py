"""onnxblock with the whole step in one file, where the backward pass computes forward results again."""

from __future__ import annotations

from typing import Any, ClassVar

from .fused import Engine as Fused


class Engine(Fused):
    """``generate_artifacts(..., fused_step=True, recompute=True)``, then ``TrainingStep`` on stock onnxruntime."""

    made_by: ClassVar[str] = "onnxblock-recompute"
    generate_settings: ClassVar[dict[str, Any]] = {"fused_step": True, "recompute": True}
