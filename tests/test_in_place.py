"""Generated artifacts give the same bits whether states are written in place or not, in whatever order nodes run."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

import artifacts
from artifacts.manifest import Manifest
from onnxblock import names, optim
from onnxblock.graph.graph import Graph
from onnxblock.graph.inplace import after, in_place_safe
from onnxblock.graph.types import onnx_dtype
from tests.in_place import run_bound, settings, shuffled
from tests.training import convolutional, generate, perceptron, random_batch

KINDS = [
    kind
    for kind in (getattr(optim, name) for name in optim.__all__)
    if inspect.isclass(kind) and issubclass(kind, optim.Optimizer) and not inspect.isabstract(kind)
]
WRAPPING = {
    optim.ExponentialMovingAverage: optim.ExponentialMovingAverage,
    optim.ParameterGroups: lambda inner: optim.ParameterGroups(inner, optim.Group(optim.vectors, weight_decay=0.1)),
}
OPTIMIZERS = {
    "clipped": optim.AdamW(clip_grad=optim.ClipGradNorm(0.01), weight_decay=0.1),
    "AMSGrad": optim.AdamW(amsgrad=True, weight_decay=0.1, variant="torch"),
    "averaged groups": optim.ExponentialMovingAverage(
        optim.ParameterGroups(
            optim.AdamW(clip_grad=optim.ClipGradNorm(0.01), weight_decay=0.1),
            optim.Group("*bias", weight_decay=0.0),
            optim.Group("*weight_1", learning_rate_scale=0.5, optimizer=optim.SGD(momentum=0.9)),
        )
    ),
    **{kind.__name__: WRAPPING[kind](optim.AdamW()) if kind in WRAPPING else kind() for kind in KINDS},
}


def manifest_of(model: ModelProto) -> Manifest:
    found = Manifest.from_metadata({p.key: p.value for p in model.metadata_props})
    assert found is not None
    return found


def feeds_of(manifest: Manifest, **given: Any) -> dict[str, Any]:
    """Random numbers of the right kind for every input; second moments must not be negative."""
    random = np.random.default_rng(0)
    ports = [p for p in manifest.inputs if p.name not in given]
    return {p.name: np.abs(random.standard_normal(p.shape)).astype(p.dtype) for p in ports} | given


def pairs_of(manifest: Manifest) -> dict[str, str]:
    """Every state of the model; all of them are proved safe."""
    assert [pair.input for pair in manifest.state if not pair.in_place] == []
    return {pair.input: pair.output for pair in manifest.state}


def assert_same_bits(model: ModelProto, feeds: dict[str, Any], pairs: dict[str, str]) -> None:
    """Under every setting, each with another order of the nodes in the file."""
    for seed, setting in enumerate(settings()):
        variant = shuffled(model, seed)
        assert seed == 0 or [n.name for n in variant.graph.node] != [n.name for n in model.graph.node]
        expected = run_bound(variant, feeds, {}, **setting)
        found = run_bound(variant, feeds, pairs, **setting)
        for name, array in expected.items():
            assert np.array_equal(found[name], array, equal_nan=True), (seed, setting, name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, tmp_path):
    made = generate(perceptron(hidden=8), tmp_path, optimizer=OPTIMIZERS[name])
    model = onnx.load(made.optimizer_model)
    manifest = manifest_of(model)
    scalars = {names.LEARNING_RATE: np.array([0.1], np.float32), names.STEP: np.array([3], np.int64)}
    feeds = feeds_of(manifest, **scalars)
    before = {key: array.copy() for key, array in feeds.items()}
    assert_same_bits(model, feeds, pairs_of(manifest))
    np.testing.assert_equal(feeds, before)
    moved = run_bound(model, feeds, {})
    assert all(not np.array_equal(moved[new], feeds[old]) for old, new in pairs_of(manifest).items())


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("make", [perceptron, convolutional])
def test_gradients_and_running_statistics(make, reset, tmp_path):
    model = onnx.load(generate(make(), tmp_path).training_model)
    manifest = manifest_of(model)
    pairs = pairs_of(manifest)
    assert {"Convolutional/mean", "Convolutional/variance"} <= pairs.keys() or make is perceptron
    x, labels = random_batch(5)
    x = x if make is perceptron else x.reshape(-1, 1, 8, 8)
    feeds = feeds_of(manifest, x=x, labels=labels, **{names.LAZY_RESET_GRAD: np.array([reset])})
    assert_same_bits(model, feeds, pairs)


def embedding(sizes: str) -> ModelProto:
    """A table of a quarter million elements, of which the gradient is made when it is needed."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
    embedding (int64[{sizes}] tokens) => (float[{sizes}, 10] scores) {{
        h = Gather (table, tokens)
        scores = MatMul (h, w)
    }}""")
    for name, shape in (("table", (4096, 64)), ("w", (64, 10))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    return model


@pytest.mark.parametrize("sizes", ["n", "3", "40", "n, 2"])
def test_gradients_of_a_large_embedding(sizes, tmp_path):
    made = generate(embedding(sizes), tmp_path, loss=artifacts.LossType.MSELoss, fused_step=True)
    shape = [3 if size == "n" else int(size) for size in sizes.split(", ")]
    tokens = np.arange(np.prod(shape)).reshape(shape) % 7
    given = {"tokens": tokens, "target": np.ones((*shape, 10), np.float32)}
    for path in (made.training_model, made.step_model):
        model = onnx.load(path)
        manifest = manifest_of(model)
        pairs = pairs_of(manifest)
        numbers = {names.LAZY_RESET_GRAD: np.array([False]), names.STEP: np.array([3], np.int64)}
        known = {p.name for p in manifest.inputs}
        feeds = feeds_of(manifest, **given, **{k: v for k, v in numbers.items() if k in known})
        assert_same_bits(model, feeds, pairs)


@pytest.mark.parametrize("make", [perceptron, convolutional])
def test_many_steps_in_place(make, tmp_path):
    """What each step leaves behind is what the next one starts from."""
    model = onnx.load(generate(make(), tmp_path).training_model)
    manifest = manifest_of(model)
    pairs = pairs_of(manifest)
    x, labels = random_batch(5)
    x = x if make is perceptron else x.reshape(-1, 1, 8, 8)
    state = feeds_of(manifest, x=x, labels=labels, **{names.LAZY_RESET_GRAD: np.array([False])})
    found = run_bound(model, state, pairs, steps=4)
    for _ in range(4):
        results = run_bound(model, state, {})
        state |= {old: results[new] for old, new in pairs.items()}
    for old, new in pairs.items():
        np.testing.assert_array_equal(found[new], state[old])


# -- an update inside the training model: the gradient of one layer reads the weight of the next


def with_update(made: artifacts.Artifacts, *, wait: bool) -> ModelProto:
    """The training model with w ← w - rate · gradient for every parameter, if asked for with the rate made to wait."""
    graph = Graph(onnx.load(made.training_model))
    rate = graph.input("rate", TensorProto.FLOAT, ())
    trained = [p.name for p in made.trainable]
    gradients = [graph.value(names.accumulated_gradient(name)) for name in trained]
    rate = after(rate, *gradients) if wait else rate
    for name, gradient in zip(trained, gradients, strict=True):
        new = graph.rename(graph.value(name) - gradient * rate, names.updated(name))
        graph.model.graph.output.add(name=new).type.CopyFrom(graph.type_proto(name))
    return graph.model


def fused(made: artifacts.Artifacts, *, wait: bool) -> tuple[ModelProto, dict[str, Any], dict[str, str]]:
    """The model, what it is fed, and its parameters with their new values."""
    model = with_update(made, wait=wait)
    x, labels = random_batch(5)
    given = {"x": x, "labels": labels, "rate": np.float32(0.1), names.LAZY_RESET_GRAD: np.array([True])}
    return model, feeds_of(manifest_of(model), **given), {p.name: names.updated(p.name) for p in made.trainable}


def test_a_fused_step_is_not_proved_where_the_backward_pass_reads_the_weight(tmp_path):
    made = generate(perceptron(hidden=8), tmp_path)
    safe = {p.name: in_place_safe(with_update(made, wait=False), p.name, names.updated(p.name)) for p in made.trainable}
    assert safe == {
        "Perceptron/Linear/weight": True,
        "Perceptron/Linear/bias": True,
        "Perceptron/Linear/weight_1": False,
        "Perceptron/Linear/bias_1": True,
    }


def test_an_update_that_is_not_proved_does_go_wrong():
    """Otherwise the comparison of bits would show nothing: here nothing makes the reader run before the writer."""
    imports = [onnx.helper.make_opsetid("", 18)]
    graph = Graph(onnx.helper.make_model(onnx.GraphProto(name="race"), opset_imports=imports, ir_version=8))
    old = graph.input("old", np.float32, (4,))
    readers = [(f"read{k}", old * float(k)) for k in range(2, 8)]
    for name, value in (*readers, ("new", old * 0.5)):
        graph.model.graph.output.add(name=graph.rename(value, name)).type.CopyFrom(graph.type_proto(old))
    assert not in_place_safe(graph.model, "old", "new")
    with pytest.raises(AssertionError, match="read"):
        assert_same_bits(graph.model, {"old": np.arange(4, dtype=np.float32)}, {"old": "new"})


def test_a_fused_step_that_waits_gives_the_same_bits(tmp_path: Path):
    made = generate(perceptron(hidden=8), tmp_path)
    model, feeds, pairs = fused(made, wait=True)
    assert all(in_place_safe(model, old, new) for old, new in pairs.items())
    assert_same_bits(model, feeds, pairs)


def test_an_update_like_lions_is_proved_only_with_one_factor():
    """sign(β₁ m + (1 - β₁) g) beside m ← β₂ m + (1 - β₂) g: the first may be read after the second is written."""

    def lion(*, one_factor: bool) -> ModelProto:
        empty = onnx.helper.make_model(onnx.GraphProto(name="lion"), opset_imports=[onnx.helper.make_opsetid("", 21)])
        graph = Graph(empty)
        p, g, m = (graph.input(name, onnx_dtype(np.dtype(np.float32)), (4, 4)) for name in "pgm")
        op = graph.op
        interpolated = m * 0.9 + g * 0.1
        moved = interpolated * 0.99 + g * 0.01 if one_factor else m * 0.99 + g * 0.01
        for old, new in ((p, p - op.Sign(interpolated) * 0.01), (m, moved)):
            graph.model.graph.output.add(name=graph.rename(new, f"{old}.updated")).type.CopyFrom(graph.type_proto(old))
        return graph.model

    assert in_place_safe(lion(one_factor=False), "p", "p.updated")
    assert not in_place_safe(lion(one_factor=False), "m", "m.updated")
    assert in_place_safe(lion(one_factor=True), "m", "m.updated")
