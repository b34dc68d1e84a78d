"""Functions that several losses are made of, in forms that neither overflow nor lose what they compute."""

from __future__ import annotations

from onnx import TensorProto

from ..graph.value import Value


def softplus(x: Value) -> Value:
    """log(1 + exp(x)).

    float64 has no kernel for Softplus in stock onnxruntime, which then computes exp(x) as it stands; there
    m + log(exp(-m) + exp(x - m)) with m = max(x, 0) is used, whose derivative does not depend on that of m.
    """
    op = x.graph.op
    if x.dtype != TensorProto.DOUBLE:
        return op.Softplus(x)
    m = op.Relu(x)
    return m + op.Log(op.Exp(-m) + op.Exp(x - m))


def least(x: Value, usual: float, half: float) -> float:
    """What a divisor is at least: ``usual``, or ``half`` where the gradient of ``x`` must fit float16.

    An infinite gradient would come out of a mask or a flat slope before ``x`` as NaN, where float32 has 0.
    """
    return half if x.dtype == TensorProto.FLOAT16 else usual
