"""Rows for the elementwise operators."""

from __future__ import annotations

from . import REFERENCE, case, normal

# onnxruntime has float32 kernels only, and no unsigned exponents in float64.
EVALUATORS = dict.fromkeys(
    ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Erf", "Mean", "Sinh", "Tan"), REFERENCE
) | dict.fromkeys(("pow_types_float32_uint*",), REFERENCE)

EXCEPTIONS = {
    "acosh_example:float64": "its slope at 1, the end of its domain, is infinite",
    "range_*:float64": "its length jumps at this limit",
    "mod_float_edge_cases_*:float64": "divides by infinity",
}

ROWS = [
    *(case(op, 2.5, 1.5) for op in ("Add", "Sub", "Mul", "Div")),
    *(case(op, normal(0, 3), normal(3)) for op in ("Add", "Sub", "Mul", "Div")),
    *(case(op, normal(2, 1, 3), normal(4, 1)) for op in ("Add", "Sub", "Mul", "Div")),
]
