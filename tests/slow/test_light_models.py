"""The networks that the onnx package ships, with random weights: gradients against finite differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

torch = pytest.importorskip("torch", reason="onnxruntime has no convolution in float64; torch, an extra, has")

from torch.nn import functional as F  # noqa: E402

import onnxblock  # noqa: E402
from onnxblock.autodiff.gradients import COTANGENT_SUFFIX  # noqa: E402
from tests.autodiff.harness import run_onnxruntime  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet"),
    *("vgg19", "zfnet512"),
)
DIRECTIONS = 2
# In float32 no step is right: so many Relus of a random network switch within it that differences barely converge.  In
# densenet121 a whole channel switches within 1e-7.
STEP = 1e-9
TOLERANCE = 5e-3


def _constant(model: ModelProto, name: str) -> np.ndarray:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    node = next(n for n in model.graph.node if name in n.output)
    return numpy_helper.to_array(node.attribute[0].t)


def _weight(rng: np.random.Generator, shape: tuple[int, ...], use: tuple[str, int]) -> np.ndarray:
    """He's scale for matrices and filters, about one for scales and variances, near zero for the rest."""
    if len(shape) > 1:
        array = rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / np.prod(shape[1:])))
    elif use in {("BatchNormalization", 1), ("BatchNormalization", 4)} or use[0] == "Mul":
        array = rng.uniform(0.5, 1.5, shape)
    else:
        array = 0.1 * rng.standard_normal(shape)
    return np.asarray(array, np.float32)


def randomized(name: str) -> tuple[ModelProto, dict[str, np.ndarray], str]:
    """The model with its weights as inputs, arrays for them and the image, and the last value before Softmax.

    As shipped, every weight is 0.02: all channels are equal, and so are all gradients.
    """
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph = model.graph
    rng = np.random.default_rng(0)
    uses = {i: (n.op_type, k) for n in reversed(graph.node) for k, i in enumerate(n.input)}
    through = {n.input[0]: n.output[0] for n in graph.node if n.op_type in {"Reshape", "Unsqueeze"}}
    arrays = {}
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(d) for d in _constant(model, node.input[0]))
        made = node.output[0]
        use = uses[through.get(made, made)]
        arrays[made] = _weight(rng, shape, use)
        graph.input.append(helper.make_tensor_value_info(made, onnx.TensorProto.FLOAT, shape))
    del graph.node[:]
    graph.node.extend(kept)
    fed = {t.name for t in graph.initializer}
    for tensor in [t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT]:
        if tensor.name in uses:
            arrays[tensor.name] = numpy_helper.to_array(tensor)  # an input too, as it had to be at that time
            graph.initializer.remove(tensor)
    image = next(v for v in graph.input if v.name not in fed and v.name not in arrays)
    size = [d.dim_value for d in image.type.tensor_type.shape.dim]
    softmax = [n for n in kept if n.op_type == "Softmax"]
    logits = softmax[-1].input[0] if softmax else graph.output[0].name
    del graph.output[:]
    graph.output.add(name=logits)
    return model, {**arrays, image.name: rng.standard_normal(size, np.float32)}, logits


def _padded(x: torch.Tensor, pads: list[int], value: float = 0.0) -> torch.Tensor:
    top, left, bottom, right = pads
    return F.pad(x, (left, right, top, bottom), value=value)


def _average(x: torch.Tensor, a: dict[str, Any]) -> torch.Tensor:
    total, count = (
        F.avg_pool2d(_padded(v, a.get("pads", [0, 0, 0, 0])), a["kernel_shape"], a["strides"])
        for v in (x, torch.ones_like(x))
    )
    return total / count


OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "Add": lambda _, x, y: x + y,
    "AveragePool": lambda a, x: _average(x, a),
    "BatchNormalization": lambda a, x, s, b, m, v: F.batch_norm(x, m, v, s, b, eps=a.get("epsilon", 1e-5)),
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Conv": lambda a, x, w, b=None: F.conv2d(
        _padded(x, a.get("pads", [0, 0, 0, 0])), w, b, a["strides"], groups=a.get("group", 1)
    ),
    "Dropout": lambda _, x: x,
    "Gemm": lambda _, x, w, b: x @ w.T + b,
    "GlobalAveragePool": lambda _, x: x.mean((2, 3), keepdim=True),
    "LRN": lambda a, x: F.local_response_norm(x, a["size"], a["alpha"], a["beta"], a["bias"]),
    "MaxPool": lambda a, x: F.max_pool2d(
        _padded(x, a.get("pads", [0, 0, 0, 0]), -torch.inf), a["kernel_shape"], a["strides"]
    ),
    "Mul": lambda _, x, y: x * y,
    "Relu": lambda _, x: F.relu(x),
    "Reshape": lambda _, x, shape: x.reshape([x.shape[k] if d == 0 else d for k, d in enumerate(shape.tolist())]),
    "Sum": lambda _, x, y: x + y,
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Unsqueeze": lambda a, x: x.reshape([*x.shape, *[1] * len(a["axes"])]),
}


def in_float64(model: ModelProto, read: Callable[[str], torch.Tensor]) -> np.ndarray:
    """The output of a network in float64; ``read`` gives the weights and the image."""
    fixed = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in model.graph.initializer}
    values: dict[str, torch.Tensor] = {}
    result = model.graph.output[0].name
    last = {name: node.output[0] for node in model.graph.node for name in node.input}
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        operands = [values[n] if n in values else fixed[n] if n in fixed else read(n) for n in node.input]
        values[node.output[0]] = OPERATORS[node.op_type](attributes, *operands)
        if result in values:
            break
        for name in [n for n in values if last.get(n) == node.output[0]]:
            del values[name]
    return values[result].numpy()


def _moved(feeds: dict[str, np.ndarray], directions: dict[str, np.ndarray], step: float, name: str) -> torch.Tensor:
    at = torch.tensor(feeds[name], dtype=torch.float64)
    return at + step * torch.tensor(directions[name]) if name in directions else at


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    model, feeds, logits = randomized(name)
    statistics = {n.input[k] for n in model.graph.node if n.op_type == "BatchNormalization" for k in (3, 4)}
    image = list(feeds)[-1]
    wrt = [v for v in feeds if v not in statistics and v != image]
    assert wrt
    rng = np.random.default_rng(1)
    (y,) = run_onnxruntime(model, feeds, optimized=True)
    assert np.isfinite(y).all()
    cotangent = rng.standard_normal(y.shape, np.float32) / np.float32(y.std())
    backward = onnxblock.gradients(model, wrt=wrt, outputs=[logits], cotangents="inputs")
    found = run_onnxruntime(backward, {**feeds, logits + COTANGENT_SUFFIX: cotangent}, optimized=True)
    zero = [v for v, g in zip(wrt, found, strict=True) if not np.any(g)]
    assert not zero
    exact = in_float64(model, lambda v: _moved(feeds, {}, 0, v))
    np.testing.assert_allclose(exact, y, rtol=0, atol=1e-3 * y.std(), err_msg="this is another network in float64")
    for _ in range(DIRECTIONS):
        directions = {v: rng.standard_normal(feeds[v].shape, np.float32) * feeds[v].std() for v in wrt}
        terms = [float(np.vdot(g, directions[v])) for v, g in zip(wrt, found, strict=True)]
        values = [
            float(np.vdot(in_float64(model, lambda v, h=step, u=directions: _moved(feeds, u, h, v)), cotangent))
            for step in (STEP, -STEP)
        ]
        difference = (values[0] - values[1]) / (2 * STEP)
        assert abs(difference - sum(terms)) < TOLERANCE * np.linalg.norm(terms)
