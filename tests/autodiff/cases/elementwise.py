"""Rows for the elementwise operators."""

from __future__ import annotations

from . import case, normal

CONSTANTS: dict[str, tuple[int, ...]] = {}

EVALUATORS: dict[str, str] = {}

EXCEPTIONS: dict[str, str] = {}

ROWS = [
    *(case(op, 2.5, 1.5) for op in ("Add", "Sub", "Mul", "Div")),
    *(case(op, normal(0, 3), normal(3)) for op in ("Add", "Sub", "Mul", "Div")),
    *(case(op, normal(2, 1, 3), normal(4, 1)) for op in ("Add", "Sub", "Mul", "Div")),
]
