"""Small models for both runtimes, written as ONNX text: opset 17 and 21, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

Array = np.ndarray
CLASSES, VOCABULARY, LENGTH, WIDTH = 5, 11, 6, 8


@dataclass(frozen=True)
class Network:
    """A model, and how a batch of ``n`` for it is drawn: inputs, then labels."""

    model: onnx.ModelProto
    batch: Callable[[np.random.Generator, int], tuple[Array, ...]]


def make(text: str, weights: dict[str, Any], opset: int) -> onnx.ModelProto:
    """The model of a graph in ONNX text, with these weights."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    for name, array in weights.items():
        kept = np.asarray(array) if np.asarray(array).dtype == np.int64 else np.asarray(array, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(kept, name))
    onnx.checker.check_model(model, full_check=True)
    return model


def weight(random: np.random.Generator, *shape: int) -> Array:
    """A weight that keeps the size of what it is multiplied with."""
    return random.standard_normal(shape) / np.sqrt(np.prod(shape[1:] or shape))


def vectors(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    return random.standard_normal((n, 12)).astype(np.float32), random.integers(0, CLASSES, n)


def images(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    return random.standard_normal((n, 1, 8, 8)).astype(np.float32), random.integers(0, CLASSES, n)


def tokens(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    return random.integers(0, VOCABULARY, (n, LENGTH)), random.integers(0, CLASSES, n)


def perceptron(opset: int = 17) -> Network:
    random = np.random.default_rng(1)
    text = f"""
    mlp (float[n, 12] x) => (float[n, {CLASSES}] scores) {{
        a = Gemm <transB = 1> (x, w0, b0)
        h = Relu (a)
        scores = Gemm <transB = 1> (h, w1, b1)
    }}"""
    weights = {"w0": weight(random, 16, 12), "b0": np.zeros(16), "w1": weight(random, CLASSES, 16)}
    return Network(make(text, {**weights, "b1": np.zeros(CLASSES)}, opset), vectors)


def scaled(opset: int = 17) -> Network:
    """A perceptron with a learned temperature of rank 0."""
    random = np.random.default_rng(2)
    text = f"""
    scaled (float[n, 12] x) => (float[n, {CLASSES}] scores) {{
        a = Gemm <transB = 1> (x, w, b)
        scores = Mul (a, temperature)
    }}"""
    weights = {"w": weight(random, CLASSES, 12), "b": np.zeros(CLASSES), "temperature": np.float32(1.5)}
    return Network(make(text, weights, opset), vectors)


def dropout(opset: int = 17, ratio: float = 0.0) -> Network:
    random = np.random.default_rng(3)
    text = f"""
    dropout (float[n, 12] x) => (float[n, {CLASSES}] scores) {{
        a = Gemm <transB = 1> (x, w0, b0)
        h = Relu (a)
        ratio = Constant <value = float {{{ratio}}}> ()
        training = Constant <value = bool {{1}}> ()
        d = Dropout (h, ratio, training)
        scores = Gemm <transB = 1> (d, w1, b1)
    }}"""
    weights = {"w0": weight(random, 16, 12), "b0": np.zeros(16), "w1": weight(random, CLASSES, 16)}
    return Network(make(text, {**weights, "b1": np.zeros(CLASSES)}, opset), vectors)


def convolutional(opset: int = 17) -> Network:
    """No bias before the batch normalization: its gradient is zero but for rounding, which AdamW would amplify."""
    random = np.random.default_rng(4)
    text = f"""
    cnn (float[n, 1, 8, 8] x) => (float[n, {CLASSES}] scores) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, kernel)
        y, next_mean, next_variance = BatchNormalization <training_mode = 1> (c, scale, shift, mean, variance)
        r = Relu (y)
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
        f = Flatten (p)
        scores = Gemm <transB = 1> (f, w, b)
    }}"""
    weights = {"kernel": weight(random, 4, 1, 3, 3), "scale": np.ones(4), "shift": np.zeros(4), "mean": np.zeros(4)}
    rest = {"variance": np.ones(4), "w": weight(random, CLASSES, 64), "b": np.zeros(CLASSES)}
    return Network(make(text, {**weights, **rest}, opset), images)


def transformer(opset: int = 17) -> Network:
    """One layer, pre-norm, two heads, GELU; the first token is classified."""
    random = np.random.default_rng(5)
    gelu = "g = Gelu (u)"
    if opset < 20:
        gelu = "e0 = Div (u, root2) e1 = Erf (e0) e2 = Add (e1, one) e3 = Mul (u, e2) g = Mul (e3, half)"
    text = f"""
    transformer (int64[n, {LENGTH}] tokens) => (float[n, {CLASSES}] scores) {{
        embedded = Gather (embedding, tokens)
        x = Add (embedded, positions)
        a = LayerNormalization (x, scale0, shift0)
        q0 = MatMul (a, wq) q1 = Add (q0, bq) q2 = Reshape (q1, heads) q = Transpose <perm = [0, 2, 1, 3]> (q2)
        k0 = MatMul (a, wk) k2 = Reshape (k0, heads) k = Transpose <perm = [0, 2, 3, 1]> (k2)
        v0 = MatMul (a, wv) v1 = Add (v0, bv) v2 = Reshape (v1, heads) v = Transpose <perm = [0, 2, 1, 3]> (v2)
        s0 = MatMul (q, k) s = Mul (s0, half) p = Softmax <axis = -1> (s)
        z0 = MatMul (p, v) z1 = Transpose <perm = [0, 2, 1, 3]> (z0) z2 = Reshape (z1, joined)
        z = MatMul (z2, wo) x1 = Add (x, z)
        m = LayerNormalization (x1, scale1, shift1)
        u0 = MatMul (m, w1) u = Add (u0, b1)
        {gelu}
        y0 = MatMul (g, w2) y = Add (x1, y0)
        first = Gather <axis = 1> (y, zero)
        scores = Gemm (first, w3, b3)
    }}"""
    matrices = {f"w{c}": weight(random, WIDTH, WIDTH) for c in "qkvo"}
    weights = {
        "embedding": random.standard_normal((VOCABULARY, WIDTH)),
        "positions": random.standard_normal((LENGTH, WIDTH)) / 2,
        "w1": weight(random, WIDTH, 2 * WIDTH),
        "w2": weight(random, 2 * WIDTH, WIDTH),
        "w3": weight(random, WIDTH, CLASSES),
        **dict.fromkeys(("scale0", "scale1"), np.ones(WIDTH)),
        **dict.fromkeys(("shift0", "shift1", "bq", "bv"), np.zeros(WIDTH)),
        "b1": np.zeros(2 * WIDTH),
        "b3": np.zeros(CLASSES),
    }
    settings = {"heads": np.array([0, 0, 2, -1]), "joined": np.array([0, 0, -1]), "zero": np.int64(0)}
    numbers = {"half": np.float32(0.5), "one": np.float32(1), "root2": np.float32(np.sqrt(2))}
    used = {"half": numbers["half"]} if opset >= 20 else numbers
    return Network(make(text, {**matrices, **weights, **settings, **used}, opset), tokens)


def lstm(opset: int = 17) -> Network:
    """An embedding and a bidirectional LSTM; both final states are classified."""
    random, size = np.random.default_rng(6), 4
    text = f"""
    lstm (int64[n, {LENGTH}] tokens) => (float[n, {CLASSES}] scores) {{
        embedded = Gather (embedding, tokens)
        x = Transpose <perm = [1, 0, 2]> (embedded)
        states, last = LSTM <hidden_size = {size}, direction = "bidirectional"> (x, W, R, B)
        h = Transpose <perm = [1, 0, 2]> (last)
        f = Flatten (h)
        scores = Gemm (f, w, b)
    }}"""
    weights = {
        "embedding": random.standard_normal((VOCABULARY, WIDTH)),
        "W": weight(random, 2, 4 * size, WIDTH) * 3,
        "R": weight(random, 2, 4 * size, size) * 3,
        "B": np.zeros((2, 8 * size)),
        "w": weight(random, 2 * size, CLASSES),
        "b": np.zeros(CLASSES),
    }
    return Network(make(text, weights, opset), tokens)


NETWORKS = {
    "mlp": perceptron,
    "cnn": convolutional,
    "dropout": dropout,
    "transformer": transformer,
    "lstm": lstm,
    "scalar": scaled,
}
