"""Nodes of ``com.microsoft`` (and the like) to compare with onnxruntime's own kernels, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Row:
    """One node at one point.

    Inputs that are not float32, and those whose position is in ``fixed``, are initializers.  ``kept`` are float inputs
    that are not differentiated, ``sized`` those whose shape is always known.  ``compared`` are the outputs that the
    kernel fills.
    """

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any]
    domain: str = MICROSOFT
    outputs: int = 1
    compared: tuple[int, ...] = (0,)
    opset: int = 18
    fixed: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    sized: tuple[int, ...] = ()

    def __str__(self) -> str:
        shapes = ["x".join(map(str, x.shape)) or "scalar" if x is not None else "none" for x in self.inputs]
        attributes = [f"{k}={v}" for k, v in self.attributes.items()]
        text = "_".join([self.domain.rpartition(".")[2] + self.op_type, *shapes, *attributes, f"opset{self.opset}"])
        return "".join(c if c.isalnum() or c in "_=.-" else "," for c in text.replace(" ", ""))

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"input{k}": x for k, x in enumerate(self.inputs) if x is not None and self.is_fed(k)}

    def is_fed(self, k: int) -> bool:
        x = self.inputs[k]
        return x is not None and x.dtype == np.float32 and k not in self.fixed

    def differentiated(self) -> list[str]:
        return [f"input{k}" for k in range(len(self.inputs)) if self.is_fed(k) and k not in self.kept]

    def model(self, *, symbolic: bool = False) -> ModelProto:
        """One node called ``node``; with ``symbolic``, equal dimensions of the inputs have equal names."""
        node = helper.make_node(
            self.op_type,
            ["" if x is None else f"input{k}" for k, x in enumerate(self.inputs)],
            [f"output{k}" if k in self.compared else "" for k in range(self.outputs)],
            name="node",
            domain=self.domain,
            **self.attributes,
        )
        inputs, initializers = [], []
        for k, x in enumerate(self.inputs):
            if x is None:
                continue
            if self.is_fed(k):
                # The last two axes are often weights or widths, which a model knows.
                shape = [f"n{d}" if symbolic and a < x.ndim - 1 and d > 1 else d for a, d in enumerate(x.shape)]
                shape = list(x.shape) if x.ndim < 3 or k in self.sized else shape
                inputs.append(
                    helper.make_tensor_value_info(f"input{k}", helper.np_dtype_to_tensor_dtype(x.dtype), shape)
                )
            else:
                initializers.append(numpy_helper.from_array(x, f"input{k}"))
        outputs = [ValueInfoProto(name=f"output{k}") for k in self.compared]
        graph = helper.make_graph([node], "graph", inputs, outputs, initializers)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def row(op_type: str, *inputs: np.ndarray | None, settings: dict[str, Any] | None = None, **attributes: Any) -> Row:
    return Row(op_type, inputs, attributes, **(settings or {}))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng([seed, high, *shape]).integers(0, high, shape).astype(dtype)


def int32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


X, SKIP, SCALE, BIAS = normal(2, 3, 4), normal(2, 3, 4, seed=1), normal(4), normal(4, seed=1)

ACTIVATIONS = [
    *(row(op, X, settings={"opset": opset}) for op in ("Gelu", "FastGelu") for opset in (18, 21)),
    *(row(op, X, BIAS, settings={"opset": opset}) for op in ("BiasGelu", "FastGelu") for opset in (18, 21)),
    row("QuickGelu", X),
    row("QuickGelu", X, alpha=1.0),
    row("ScaledSiLU", X, alpha=0.3),
    row("ScaledSiLU", X, np.array(2, np.float32)),
]

STATISTICS = {"outputs": 4, "compared": (0, 3)}
IDS, SEGMENTS = integers(7, 2, 3, dtype=np.int32), integers(2, 2, 3, dtype=np.int32)
WORDS, PLACES, SORTS = normal(7, 4), normal(5, 4), normal(2, 4)

NORMALIZATIONS = [
    row("SkipLayerNormalization", X, SKIP, SCALE, BIAS, normal(4, seed=2), epsilon=1e-5, settings=STATISTICS),
    row("SkipLayerNormalization", X, SKIP, SCALE),
    row("SkipLayerNormalization", X, normal(3, 4), SCALE, BIAS, settings=STATISTICS),
    row("SkipLayerNormalization", X, normal(1, 3, 4), SCALE, None, BIAS),
    row("SkipSimplifiedLayerNormalization", X, SKIP, SCALE, BIAS, settings=STATISTICS),
    row("SkipSimplifiedLayerNormalization", X, SKIP, SCALE, epsilon=1e-3),
    row("SimplifiedLayerNormalization", X, SCALE, settings={"domain": ""}),
    row("SimplifiedLayerNormalization", X, normal(3, 4), axis=1, epsilon=0.1, settings={"domain": ""}),
    row("GatedRMSNorm", X, SCALE, SKIP),
    row("GatedRMSNorm", X, SCALE, SKIP, activation="swish", epsilon=0.1),
    row("GatedRMSNorm", X, SCALE, SKIP, activation="sigmoid"),
    row("BranchwiseRMSNorm", X),
    row("BranchwiseRMSNorm", X, normal(3, 4)),
    row("BranchwiseRMSNorm", normal(2, 5, 12), num_branches=3),
    *(row("BranchwiseRMSNorm", normal(2, 5, 12), normal(*s), num_branches=3) for s in ((12,), (3, 4), (4,))),
    row("BranchwiseRMSNorm", normal(2, 5, 12), normal(12), num_branches=4, epsilon=0.1),
    row("GatedAdd", X, SKIP, normal(2, 3, 1)),
    row(
        *("EmbedLayerNormalization", IDS, SEGMENTS, WORDS, PLACES, SORTS, SCALE, BIAS, int32([1, 1, 0], [1, 0, 0])),
        settings={"outputs": 3, "compared": (0, 1, 2)},
    ),
    row(
        *("EmbedLayerNormalization", IDS, None, WORDS, PLACES, None, SCALE, BIAS),
        settings={"outputs": 2, "compared": (0, 1)},
        epsilon=0.1,
    ),
    row(
        *("EmbedLayerNormalization", IDS, SEGMENTS, WORDS, PLACES, SORTS, SCALE, BIAS, None),
        integers(5, 2, 3, dtype=np.int32),
        settings={"outputs": 2, "compared": (0, 1)},
    ),
]

ACTIVATION_SETTINGS = {"activation_alpha": 0.3, "activation_beta": 0.4, "activation_gamma": 0.5}
BY_TWO = {"group": 2, "dilations": [2, 1]}
IMAGE, KERNEL = normal(1, 2, 5, 5), normal(3, 2, 3, 3)

MATRIX_PRODUCTS = [
    row("FusedMatMul", normal(2, 4, 5), normal(2, 5, 6), alpha=0.5),
    row("FusedMatMul", normal(2, 5, 4), normal(2, 5, 6), transA=1),
    row("FusedMatMul", normal(2, 4, 5), normal(2, 6, 5), transB=1, alpha=2.0),
    row("FusedMatMul", normal(2, 3, 4, 5), normal(6, 5), transB=1),
    row("FusedMatMul", normal(5), normal(5, 6), transA=1),
    row("FusedMatMul", normal(5, 2, 4), normal(5, 2, 6), transA=1, transBatchA=1, transBatchB=1),
    row("FusedMatMul", normal(4, 2, 3, 5), normal(6, 2, 3, 5), transB=1, transBatchA=1, transBatchB=1),
    row("TransposeMatMul", normal(5, 4), normal(6, 5), transA=1, transB=1),
    *(
        row(
            *("FusedGemm", normal(2, 3), normal(4, 3), BIAS),
            **{"activation": name, "transB": 1, "alpha": 0.5, "beta": 2.0, **ACTIVATION_SETTINGS},
        )
        for name in (
            *("Relu", "LeakyRelu", "Elu", "HardSigmoid", "Selu", "Sigmoid", "Softsign", "Tanh", "ThresholdedRelu"),
            *("Celu", "Softplus", "ParametricSoftplus", "ScaledTanh"),
        )
    ),
    row("TransposeMatMul", normal(5, 4), normal(5, 6), transA=1, alpha=0.5),
    row("FusedGemm", normal(2, 3), normal(3, 4), activation="Relu"),
    row("FusedGemm", normal(3, 2), normal(3, 4), normal(2, 1), activation="Tanh", transA=1),
    row("FusedConv", IMAGE, KERNEL, normal(3), normal(1, 3, 3, 3), activation="Relu"),
    row("FusedConv", IMAGE, KERNEL, None, normal(1, 3, 3, 3)),
    *(
        row("FusedConv", IMAGE, KERNEL, normal(3), activation=name, activation_params=params, pads=[1, 1, 1, 1])
        for name, params in (("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]))
    ),
    row(
        *("FusedConv", normal(1, 4, 7, 6), normal(6, 2, 2, 3), normal(6)),
        **{**BY_TWO, "activation": "Tanh", "strides": [2, 1], "pads": [1, 0, 0, 2]},
    ),
    *(row("FusedConv", IMAGE, KERNEL, auto_pad="SAME_UPPER", activation=a) for a in ("Tanh", "Sigmoid", "HardSwish")),
    row("ConvTransposeWithDynamicPads", normal(1, 2, 4, 4), normal(2, 3, 3, 3), np.array([1, 0, 0, 1]), strides=[2, 2]),
    row(
        *("ConvTransposeWithDynamicPads", normal(1, 4, 4, 4), normal(4, 3, 2, 3), np.array([1, 0, 1, 2]), normal(6)),
        **{**BY_TWO, "strides": [2, 3], "output_padding": [1, 2]},
    ),
    row("CDist", normal(3, 4), normal(5, 4)),
    row("CDist", normal(3, 4), normal(5, 4), metric="euclidean"),
]

TOKENS, LIKES = normal(4, 6), normal(4, 3)
EXPERTS = normal(3, 8, 6), normal(3, 8), normal(3, 6, 8, seed=1), normal(3, 6)
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}

MIXTURES = [
    *(
        row("MoE", TOKENS, LIKES, *EXPERTS, k=k, normalize_routing_weights=normalized, activation_type=name)
        for k, normalized, name in ((1, 0, "relu"), (2, 0, "gelu"), (2, 1, "silu"), (3, 1, "identity"))
    ),
    row("MoE", normal(2, 2, 6), LIKES, EXPERTS[0], None, EXPERTS[2], k=2),
    *(
        row("MoE", TOKENS, LIKES, normal(3, 16, 6), normal(3, 16), *EXPERTS[2:], k=2, **SWIGLU, **limit)
        for limit in ({}, {"swiglu_limit": 1.0})
    ),
    *(
        row(
            *("CausalConvWithState", normal(2, 3, 7), normal(3, 1, 4), normal(3) if full else None),
            normal(2, 3, 3 * dilation) if full else None,
            settings={"outputs": 2, "compared": (0, 1), "sized": (1,)},
            dilation=dilation,
            activation=activation,
        )
        for full in (False, True)
        for dilation, activation in ((1, "silu"), (2, "none"), (2, "swish"))
    ),
]

POINTS = np.random.default_rng(0).uniform(-1.3, 1.3, (1, 3, 3, 2)).astype(np.float32)
BOXES = np.array([[0.05, 0.03, 0.93, 0.97], [0.1, 0.25, 0.8, 0.65], [-0.2, 0.1, 0.9, 1.3]], np.float32)

MOVEMENTS = [
    row("Trilu", normal(3, 6)),
    row("Trilu", normal(3, 6), np.array(1), upper=0),
    row("GatherND", normal(3, 6), int32([0], [1])),
    row("GatherND", normal(3, 6), np.array([[0, 1], [1, -1]])),
    row("Pad", normal(2, 3), np.array([1, 0, 0, 1]), mode="reflect"),
    row("Pad", normal(2, 3), np.array([1, 2, 0, 1]), mode="edge"),
    row("Pad", normal(3, 3), np.array([-1, 2, 0, -1]), np.array([2], np.float32), settings={"kept": (2,)}),
    row("Pad", normal(2, 3), np.array([[1, 0, 0, 1]]), np.array([2], np.float32), settings={"kept": (2,)}),
    row("Range", *(np.array(v, np.float32) for v in (0, 5)), settings={"kept": (0, 1)}),
    row("Range", *(np.array([v], np.float32) for v in (0, 5, 2)), settings={"kept": (0, 1, 2)}),
    *(row("ExpandDims", normal(2, 3), np.array(axis, np.int32)) for axis in (0, 2, -1, -2)),
    *(
        row("GridSample", normal(1, 2, 4, 5), POINTS, mode=mode, padding_mode=padding, settings={"opset": opset})
        for mode in ("bilinear", "bicubic")
        for padding in ("zeros", "border")
        for opset in (18, 21)
    ),
    row("GridSample", normal(1, 2, 4, 5), POINTS, mode="bilinear", padding_mode="reflection", align_corners=1),
    row("GridSample", normal(1, 2, 4, 5), POINTS, mode="bicubic", padding_mode="reflection"),
    row("GridSample", normal(1, 2, 4, 5), POINTS, mode="nearest", align_corners=1, settings={"kept": (1,)}),
    row("Unique", np.array([3, 1, 2], np.float32), settings={"outputs": 3, "compared": (0, 1, 2)}),
    row("Unique", np.array([3, 1, 3, 1], np.float32), settings={"outputs": 3, "compared": (0, 1, 2), "kept": (0,)}),
    row("UnfoldTensor", normal(3, 7), size=2),
    row("UnfoldTensor", normal(3, 7, 2), size=3, step=2, dim=1),
    *(
        row("CropAndResize", normal(2, 2, 5, 6), BOXES, int32(0, 1, 1), int32(*size), extrapolation_value=0.5)
        for size in ((3, 4), (1, 1))
    ),
]


def quantized(bits: int, columns: int, block: int, zero_points: str = "", bias: bool = False) -> Row:
    rows, blocks = 8, -(-columns // block)
    zeros = {
        "": None,
        "packed": integers(256, rows * -(-blocks * bits // 8), dtype=np.uint8),
        "float": np.random.default_rng(1).uniform(0, 8, (rows, blocks)).astype(np.float32),
    }[zero_points]
    scales = np.random.default_rng(0).uniform(0.02, 0.1, rows * blocks).astype(np.float32)
    weights = integers(256, rows, blocks, block * bits // 8, dtype=np.uint8)
    inputs = (normal(3, 2, columns), weights, scales, zeros, None, normal(rows) if bias else None)
    return row("MatMulNBits", *inputs, K=columns, N=rows, block_size=block, bits=bits)


def four_bit_floats(quant_type: int) -> Row:
    weights = integers(256, 48 * 8 // 2, dtype=np.uint8)
    settings = {"kept": (2,)}
    scales = np.abs(normal(24))
    return row(
        "MatMulBnb4", normal(2, 48), weights, scales, K=48, N=8, block_size=16, quant_type=quant_type, settings=settings
    )


def packed_table(kind: Any, zero_points: bool, **axes: int) -> Row:
    """A table of 4-bit elements, quantized along an axis that it is not gathered along."""
    low = -8 if kind is ml_dtypes.int4 else 0
    shape, blocks = (5, 3, 32), (5, 3, 2)
    inputs = [(integers(16, *shape) + low).astype(kind), np.array([[0, 2], [2, 1]]), np.abs(normal(*blocks))]
    if zero_points:
        inputs.append((integers(16, *blocks) + low).astype(kind))
    return row("GatherBlockQuantized", *inputs, block_size=16, settings={"opset": 21, "sized": (2,)}, **axes)


def table(bits: int, zero_points: bool) -> Row:
    inputs = [integers(256, 5, 48 * bits // 8, dtype=np.uint8), np.array([[0, 3], [2, 1]]), np.abs(normal(5, 3))]
    if zero_points:
        inputs.append(integers(256, 5, -(-3 * bits // 8), dtype=np.uint8))
    return row("GatherBlockQuantized", *inputs, bits=bits, block_size=16)


PER_CHANNEL = np.array([0.1, 0.2, 0.05, 0.3], np.float32)

QUANTIZED = [
    row("QuantizeLinear", X, np.array(0.1, np.float32), settings={"kept": (0, 1)}),
    *(
        row("QuantizeLinear", X * 5, np.array(0.03, np.float32), np.array(3, kind), settings={"kept": (0, 1)})
        for kind in (np.int8, np.uint8, np.int16, np.uint16)
    ),
    row("QuantizeLinear", X, PER_CHANNEL, np.array([1, 0, -2, 3], np.int8), axis=2, settings={"kept": (0, 1)}),
    row("DequantizeLinear", integers(200, 2, 3, 4, dtype=np.uint8), np.array(0.1, np.float32)),
    row("DequantizeLinear", integers(99, 2, 3, 4, dtype=np.int16), np.array(0.1, np.float32), np.array(3, np.int16)),
    row("DequantizeLinear", integers(99, 2, 3, 4, dtype=np.int8), PER_CHANNEL, np.zeros(4, np.int8), axis=2),
    *(quantized(bits, columns, 16, zeros) for bits in (2, 4, 8) for columns in (32, 40) for zeros in ("", "packed")),
    *(quantized(4, columns, 16, "float", bias=True) for columns in (32, 48)),
    *(four_bit_floats(kind) for kind in (0, 1)),
    packed_table(ml_dtypes.int4, False, gather_axis=1, quantize_axis=2),
    packed_table(ml_dtypes.uint4, True, gather_axis=0, quantize_axis=-1),
    *(table(bits, zeros) for bits in (2, 4, 8) for zeros in (False, True)),
]

CONVOLVED = ("CausalConvWithState", normal(2, 3, 7), normal(3, 1, 4))
FOUR_BITS = {"K": 32, "N": 8, "block_size": 16, "bits": 4}
REFUSED = [
    *(
        (row(*CONVOLVED, **{name: value}), "another layout")
        for name, value in (("channels_last", 1), ("state_window", 2), ("ndim", 2), ("state_length", 9))
    ),
    *((row(*CONVOLVED, **{name: 1}), "another layout") for name in ("state_channels_last", "input_channel_offset")),
    (row("MoE", TOKENS, LIKES, *EXPERTS, EXPERTS[0], k=2, activation_type="silu"), "third dense layer"),
    (row("MoE", TOKENS, LIKES, *EXPERTS, k=2, use_sparse_mixer=1), "sparse mixer"),
    (row("MoE", TOKENS, LIKES, *EXPERTS, k=2, activation_type="swiglu"), "activation 'swiglu'"),
    (row("GatedAdd", X, SKIP, normal(2, 3, 1), normal(4)), "inference only"),
    (row("CDist", normal(3, 4), normal(5, 4), metric="cosine"), "metric 'cosine'"),
    (row("CropAndResize", normal(2, 2, 5, 6), BOXES, int32(0, 1, 1), int32(3, 4), mode="nearest"), "nearest"),
    (row("FusedGemm", normal(2, 3), normal(3, 4), activation="Step"), "activation 'Step'"),
    (
        row(
            *("MatMulNBits", normal(3, 32), integers(256, 8, 2, 8, dtype=np.uint8), normal(16), None),
            integers(2, 32, dtype=np.int32),
            **FOUR_BITS,
        ),
        "reordered",
    ),
]
"""Nodes whose settings mean something that is written nowhere, and a part of the reason."""
