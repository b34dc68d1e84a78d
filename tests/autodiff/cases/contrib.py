"""Rows for the operators of ``com.microsoft`` that have a rule; the decompositions have their own test."""

from __future__ import annotations

import dataclasses

import numpy as np
from onnx import TensorProto, helper

from onnxblock.autodiff.check import model_of_node

from . import DEFINITIONS, Case, case, model_case, normal

EVALUATORS = {
    f"com.microsoft.{op_type}": DEFINITIONS
    for op_type in ("MatMulNBits", "MatMulBnb4", "QuantizeLinear", "DequantizeLinear")
}

EXCEPTIONS = {"*_bits_*_bias=True:unranked": "onnxruntime wants to know the shape of the bias"}

MICROSOFT = "com.microsoft"
N = 6


def _bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng([1, *shape]).integers(0, 256, shape).astype(np.uint8)


def n_bits(bits: int, columns: int, zero_points: str = "none", *, bias: bool = False) -> Case:
    blocks = -(-columns // 16)
    zeros = {
        "none": None,
        "packed": _bytes(N * -(-blocks * bits // 8)),
        "float": np.abs(normal(N, blocks)),
    }[zero_points]
    scales = 0.1 * np.abs(normal(N * blocks))
    return case(
        *("MatMulNBits", normal(2, 3, columns), _bytes(N, blocks, 2 * bits), scales, zeros, None),
        normal(N) if bias else None,
        domain=MICROSOFT,
        name=f"{bits}_bits_{columns}_columns_{zero_points}_bias={bias}",
        K=columns,
        N=N,
        block_size=16,
        bits=bits,
    )


def quantized_16_bits() -> Case:
    """Quantized and back, the last element saturated; zero 3, so the highest level is 32764 above it."""
    x, scale = np.array([1.625, -0.375, 0.4375, 9000], np.float32), np.array(0.25, np.float32)
    feeds = {"input0": x, "input1": scale, "input2": np.array(3, np.int16)}
    node = helper.make_node("QuantizeLinear", list(feeds), ["q"], domain=MICROSOFT)
    model = model_of_node(node, feeds, 18)
    model.graph.node.append(helper.make_node("DequantizeLinear", ["q", "input1", "input2"], ["y"], domain=MICROSOFT))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]))
    made = model_case("QuantizeLinear", model, feeds, "quantized_to_16_bits", MICROSOFT)
    step = (6 - 6.5) + (-2 + 1.5) + (2 - 1.75) + 32764
    return dataclasses.replace(made, gradients={"input0": np.array([1, 1, 1, 0.0]), "input1": np.array(step)})


ROWS = [
    quantized_16_bits(),
    case("DequantizeLinear", np.array([7, -3, 300], np.int16), 0.25, np.array(3, np.int16), opset=18, domain=MICROSOFT),
    n_bits(4, 32),
    n_bits(4, 40, "packed", bias=True),
    n_bits(4, 48, "float"),
    n_bits(2, 32, "packed"),
    n_bits(8, 24),
    case(
        *("MatMulBnb4", normal(2, 32), _bytes(32 * N // 2), np.abs(normal(N))),
        domain=MICROSOFT,
        constants=(2,),
        K=32,
        N=N,
        block_size=32,
        quant_type=1,
    ),
    case("Inverse", normal(2, 3, 3) + 3 * np.eye(3, dtype=np.float32), domain=MICROSOFT),
]
