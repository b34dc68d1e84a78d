"""What people ran into: each kind of fault as one small model, trained through the public API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

import artifacts
from tests.training import Training, begin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

Array = np.ndarray
NODE = helper.make_node


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def make_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Any],
    weights: Mapping[str, Array],
    outputs: Sequence[str] = ("y",),
    *,
    opset: int = 18,
    ir_version: int = 8,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model of float32 inputs (a shape, or a pair of element type and shape) with outputs of unknown type."""
    given = {n: s if isinstance(s, tuple) and isinstance(s[1], list) else (np.float32, s) for n, s in inputs.items()}
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), s)
            for n, (t, s) in given.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def behind_weight(
    *nodes: NodeProto, weights: Mapping[str, Array] | None = None, shape: tuple[int, ...] = (4, 6), **settings: Any
) -> ModelProto:
    """``h = x W`` with x [3, 5], and nodes that make ``y`` of it; ``h`` has the given shape."""
    flat = normal(5, int(np.prod(shape)) // 3) * np.float32(0.5)
    reshape = [NODE("MatMul", ["x", "W"], ["product"]), NODE("Reshape", ["product", "shape_of_h"], ["h"])]
    known = {"W": flat, "shape_of_h": np.array(shape, np.int64), **(weights or {})}
    return make_model([*reshape, *nodes], {"x": [3, 5]}, known, **settings)


def generate(model: ModelProto | Path | str, folder: Path, **settings: Any) -> artifacts.Artifacts:
    """Artifacts with the mean squared error and AdamW unless something else is asked for."""
    chosen = {"loss": artifacts.LossType.MSELoss, "optimizer": artifacts.OptimType.AdamW}
    return artifacts.generate_artifacts(model, artifact_directory=folder, **{**chosen, **settings})


def train(model: ModelProto | Path | str, folder: Path, **settings: Any) -> Training:
    return begin(generate(model, folder, **settings))


def outputs_of(model: Path, feeds: Mapping[str, Array]) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def export(training: Training, path: Path, outputs: Sequence[str] = ("y",)) -> ModelProto:
    training.module.export_model_for_inferencing(path, list(outputs))
    return onnx.load(path)


def kinds(model: Path | ModelProto) -> list[str]:
    """The operators of a model, in order."""
    loaded = model if isinstance(model, ModelProto) else onnx.load(model)
    return [node.op_type for node in loaded.graph.node]


def compare_with_torch(
    model: ModelProto,
    folder: Path,
    forward: Callable[[SimpleNamespace], Any],
    feeds: Mapping[str, Array] | None = None,
    *,
    tolerance: float = 1e-5,
    **settings: Any,
) -> Training:
    """Train one step on a random target: the loss and every gradient must be those of PyTorch's ``forward``.

    ``forward`` gets the inputs and weights as attributes, and returns what the model calls ``y``.
    """
    import torch

    feeds = {"x": normal(3, 5)} if feeds is None else dict(feeds)
    training = train(model, folder, **settings)
    trained = {name: p for name, p in training.state.parameters if p.requires_grad}
    assert trained
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values = {name: torch.tensor(x.copy()) for name, x in {**constants, **feeds}.items()}
    values |= {name: torch.tensor(p.data.copy(), requires_grad=True) for name, p in trained.items()}
    y = forward(SimpleNamespace(**values))
    target = normal(*y.shape, seed=9).astype(y.detach().numpy().dtype)
    expected = torch.nn.functional.mse_loss(y, torch.tensor(target))
    expected.backward()
    loss = training.accumulate(*feeds.values(), target)
    np.testing.assert_allclose(loss, expected.item(), rtol=10 * tolerance)
    for name, found in training.gradients().items():
        theirs = values[name].grad
        theirs = np.zeros_like(found) if theirs is None else theirs.numpy()
        scale = max(float(np.abs(theirs).max()), 1e-3)
        np.testing.assert_allclose(found, theirs, rtol=0, atol=10 * tolerance * scale, err_msg=name)
    return training
