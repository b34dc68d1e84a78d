"""Rows for the elementwise operators."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, parser

from . import REFERENCE, Case, case, model_case, normal

# onnxruntime has float32 kernels only, and no unsigned exponents in float64.
EVALUATORS = dict.fromkeys(
    ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Erf", "Mean", "Sinh", "Tan", "AtanOfQuotient"),
    REFERENCE,
) | dict.fromkeys(("pow_types_float32_uint*",), REFERENCE)

EXCEPTIONS = {
    "acosh_example:float64": "its slope at 1, the end of its domain, is infinite",
    "cast*_to_*:float64": "the data holds infinities",
    "range_*:float64": "its length jumps at these limits",
    "pow_types_float32_uint*:unranked": "onnxruntime has no unsigned exponents",
    "mod_float_edge_cases_*:float64": "divides by infinity",
    "relu6:unranked": "bounds that are fed may be anything, so this is an ordinary Clip",
}

CONSTANTS = {"CastLike": (1,)}

_UNARY = (
    *("Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log", "Neg", "Reciprocal"),
    *("Sin", "Sinh", "Sqrt", "Tan"),
)
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum")
_POSITIVE = normal(2, 3) ** 2 + 0.5
_INF, _LOG2 = math.inf, math.log(2)


def group(op_type: str, nodes: str) -> Case:
    """Standard operators that are differentiated as one of the engine's own."""
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]>
        row (float[3,4] a, float[3,4] b) => (float[m,n] y)
        <int64[1] last = {{-1}}, float half = {{0.5}}, float third = {{0.33333333}}, float three = {{3}}> {{ {nodes} }}
    """)
    return model_case(op_type, model, {"a": normal(3, 4), "b": normal(3, 4, seed=1)}, op_type, domain="onnxblock")


GROUPS = [
    group("RootOfSquares", "s = Mul(a, a) r = ReduceSum(s, last) t = Sqrt(r) y = Mul(t, b)"),
    group("RootOfSquares", "m = Abs(a) s = Pow(m, three) r = ReduceSum(s, last) t = Pow(r, third) y = Mul(t, b)"),
    group("AtanOfQuotient", "q = Div(a, b) y = Atan(q)"),
]

ROWS = [
    *GROUPS,
    # -- scalars, nothing at all, broadcasting
    *(case(op, 0.4) for op in _UNARY),
    *(case(op, normal(0, 3)) for op in _UNARY),
    case("Acosh", 1.4),
    *(case(op, 2.5, 1.5) for op in _BINARY),
    *(case(op, normal(0, 3), normal(3)) for op in _BINARY),
    *(case(op, normal(2, 1, 3) ** 2 + 0.5, normal(4, 1)) for op in _BINARY),
    case("Mean", normal(2, 4, 3), normal(4, 1)),
    case("Mod", [5.5, -5.5], [[2.0], [-3.0], [4.5]], fmod=1),
    case("Where", np.array([[True], [False]]), normal(3), normal(2, 1)),
    case("Where", np.array(True), 1.0, 2.0),
    # -- points where two rules would be right
    case("Abs", [-2.0, 0.0, 2.0], gradient=[-1, 0, 1]),
    case("Sqrt", [0.0, 4.0], gradient=[_INF, 0.25]),
    case("Max", [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], gradients=([0.5, 0, 1], [0.5, 1, 0])),
    case("Min", [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], gradients=([0.5, 1, 0], [0.5, 0, 1])),
    case("Max", [1.0, 2.0], [1.0, 2.0], [1.0, 0.0], gradients=([1 / 3, 0.5], [1 / 3, 0.5], [1 / 3, 0])),
    case("Min", [1.0, 2.0], [1.0, 2.0], [1.0, 3.0], gradients=([1 / 3, 0.5], [1 / 3, 0.5], [1 / 3, 0])),
    case("Max", [-1.0, 0.0, 1.0], 0.0, constants=(1,), gradient=[0, 0.5, 1]),
    case("Max", 0.0, [-1.0, 0.0, 1.0], constants=(0,), gradients=(None, [0, 0.5, 1])),
    case("Max", normal(2, 3), normal(3), normal(2, 1), normal(1)),
    # -- Pow: fast forms, and the ends of its domain
    *(case("Pow", _POSITIVE, p, constants=(1,)) for p in (2.0, 3.0, 0.5, 0.0, 1.0, -1.5)),
    *(case("Pow", normal(2, 3), np.array(p), name=f"int{p}") for p in (0, 1, 2, 3, -2)),
    case("Pow", normal(2, 3), np.array([[2.0], [3.0]], np.float32), constants=(1,)),
    *(case("Pow", x, [3.0], constants=(1,), name=f"vector_exponent_{np.ndim(x)}") for x in (2.0, _POSITIVE)),
    case("Pow", _POSITIVE, np.array([2.0, 0.5, -1.0]), name="float32_float64"),
    case("Pow", _POSITIVE.astype(np.float64), [2.0, 0.5, -1.0], name="float64_float32"),
    case("Pow", [0.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.0], gradients=([0, 1, 0, 0], [0, 0, 0, _LOG2])),
    case("Pow", [0.0, -2.0, 3.0], 2.0, constants=(1,), gradient=[0, -4, 6]),
    case("Pow", [0.0, -2.0], 0.0, constants=(1,), gradient=[0, 0]),
    case("Pow", [0.0, 4.0], 0.5, constants=(1,), gradient=[_INF, 0.25]),
    case("Pow", [-2.0, -1.0], [2.0, 3.0], gradients=([-4, 3], [math.nan, math.nan]), name="negative_base"),
    # -- Clip: the bounds pass, and take what lies outside
    case("Clip", [-2.0, -1.0, 0.0, 1.0, 2.0], -1.0, 1.0, gradients=([0, 1, 1, 1, 0], 1, 1)),
    case("Clip", [-2.0, -1.0, 0.0, 1.0, 2.0], -1.0, 1.0, constants=(1, 2), gradient=[0, 1, 1, 1, 0]),
    case("Clip", [-2.0, 0.0, 2.0], None, 0.0, gradients=([1, 1, 0], None, 1), name="upper_bound"),
    case("Clip", [-2.0, 0.0, 2.0], 0.0, gradients=([0, 1, 1], 1), name="lower_bound"),
    case("Clip", [-2.0, 0.0, 1.0, 3.0], 2.0, 1.0, gradients=([0, 0, 0, 0], 0, 4), name="crossed_bounds"),
    case("Clip", [-1.0, 0.0, 3.0, 6.0, 7.0], 0.0, 6.0, constants=(1, 2), gradient=[0, 0, 1, 0, 0], name="relu6"),
    case("Clip", normal(3), name="no_bounds"),
    case("Clip", normal(0, 3), -1.0, 1.0),
    case("Where", np.array([True, False]), [1.0, 2.0], [3.0, 4.0], gradients=(None, [1, 0], [0, 1])),
    # -- element types
    *(case("Cast", normal(2, 3), to=to, name=TensorProto.DataType.Name(to)) for to in (1, 10, 11)),
    case("Cast", normal(2, 3).astype(np.float64), to=TensorProto.FLOAT, name="from_double"),
    case("CastLike", normal(2, 3), np.zeros(1, np.float64), constants=(1,)),
    case("CastLike", normal(0, 3), np.zeros(1, np.float16), constants=(1,)),
    # -- with a fixed length
    case("Range", 1.0, 5.5, 2.0, constants=(1,)),
    case("Range", 5.0, 0.2, -1.5, constants=(1,), name="downwards"),
]
