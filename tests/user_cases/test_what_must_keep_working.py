"""What works in the original: operators, opsets, ways to give a model and ways to write the files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxblock
from artifacts.api import CheckpointState, Module, Optimizer, TrainingStep

from . import NODE, begin, behind_weight, compare_with_torch, generate, kinds, make_model, normal, outputs_of, train

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")
F = torch.nn.functional


def indices(*values):
    return np.array(values, np.int64)


def scattered(h, t):
    return h.index_put((torch.tensor([0, 2]), torch.tensor([1, 3])), t.u)


ROWS, COLUMNS = indices([0, 2, 1], [1, 0, 2]), indices([0, 5, 3], [2, 2, 1], [4, 0, 5])

# name: the node that makes y of h [3, 6], weights, the same in PyTorch, opset
OPERATORS = {
    "Reciprocal": (NODE("Reciprocal", ["h"], ["y"]), {}, lambda h, t: 1 / h, 18),
    "Sin": (NODE("Sin", ["h"], ["y"]), {}, lambda h, t: torch.sin(h), 18),
    "Erf": (NODE("Erf", ["h"], ["y"]), {}, lambda h, t: torch.erf(h), 18),
    "LeakyRelu": (NODE("LeakyRelu", ["h"], ["y"], alpha=0.2), {}, lambda h, t: F.leaky_relu(h, 0.2), 18),
    "LogSoftmax": (NODE("LogSoftmax", ["h"], ["y"], axis=0), {}, lambda h, t: F.log_softmax(h, 0), 18),
    "Max": (NODE("Max", ["h", "b"], ["y"]), {"b": normal(6)}, lambda h, t: torch.maximum(h, t.b), 18),
    "Min": (NODE("Min", ["h", "b"], ["y"]), {"b": normal(6)}, lambda h, t: torch.minimum(h, t.b), 18),
    "ReduceL2": (
        NODE("ReduceL2", ["h", "axes"], ["y"]),
        {"axes": indices(1)},
        lambda h, t: h.norm(dim=1, keepdim=True),
        18,
    ),
    "ReduceLogSumExp": (
        NODE("ReduceLogSumExp", ["h", "axes"], ["y"], keepdims=0),
        {"axes": indices(0)},
        lambda h, t: h.logsumexp(0),
        18,
    ),
    "ReduceMean": (
        NODE("ReduceMean", ["h", "axes"], ["y"]),
        {"axes": indices(-1)},
        lambda h, t: h.mean(1, keepdim=True),
        18,
    ),
    "Clip": (
        NODE("Clip", ["h", "low", "high"], ["y"]),
        {"low": np.array(-0.4, np.float32), "high": np.array(0.7, np.float32)},
        lambda h, t: h.clamp(-0.4, 0.7),
        18,
    ),
    "Pad": (NODE("Pad", ["h", "pads"], ["y"]), {"pads": indices(1, 0, 0, 2)}, lambda h, t: F.pad(h, (0, 2, 1, 0)), 18),
    "TopK": (
        NODE("TopK", ["h", "k"], ["y", "places"], axis=1),
        {"k": indices(2)},
        lambda h, t: h.topk(2, 1).values,
        18,
    ),
    "Trilu": (NODE("Trilu", ["h"], ["y"], upper=0), {}, lambda h, t: h.tril(), 18),
    "GatherND": (
        NODE("GatherND", ["h", "at"], ["y"]),
        {"at": indices([0, 1], [2, 3], [0, 1])},
        lambda h, t: h[[0, 2, 0], [1, 3, 1]],
        18,
    ),
    "GatherElements": (
        NODE("GatherElements", ["h", "at"], ["y"], axis=1),
        {"at": COLUMNS},
        lambda h, t: h.gather(1, t.at),
        18,
    ),
    "ScatterND": (
        NODE("ScatterND", ["h", "at", "u"], ["y"]),
        {"at": indices([0, 1], [2, 3]), "u": normal(2)},
        scattered,
        18,
    ),
    "ScatterElements": (
        NODE("ScatterElements", ["h", "at", "u"], ["y"], axis=0),
        {"at": ROWS, "u": normal(2, 3)},
        lambda h, t: h.scatter(0, t.at, t.u),
        18,
    ),
    "Gelu": (NODE("Gelu", ["h"], ["y"]), {}, lambda h, t: F.gelu(h), 20),
    "Split": (
        NODE("Split", ["h"], ["y", "second"], axis=1, num_outputs=2),
        {},
        lambda h, t: h[:, :3],
        18,
    ),
    "LayerNormalization": (
        NODE("LayerNormalization", ["h", "s", "b"], ["y", "mean", "deviation"]),
        {"s": normal(6), "b": normal(6, seed=1)},
        lambda h, t: F.layer_norm(h, (6,), t.s, t.b),
        17,
    ),
    "Gemm": (NODE("Gemm", ["h", "V"], ["y"]), {"V": normal(6, 4)}, lambda h, t: h @ t.V, 13),
    "Where": (
        NODE("Where", ["condition", "h", "b"], ["y"]),
        {"condition": np.arange(18).reshape(3, 6) % 3 == 0, "b": normal(6)},
        lambda h, t: torch.where(t.condition, h, t.b),
        18,
    ),
    "Tile": (NODE("Tile", ["h", "times"], ["y"]), {"times": indices(2, 3)}, lambda h, t: h.tile(2, 3), 18),
    "Expand": (
        NODE("Expand", ["h", "shape"], ["y"]),
        {"shape": indices(2, 3, 6)},
        lambda h, t: h.expand(2, 3, 6),
        18,
    ),
    "Cast": (NODE("Cast", ["h"], ["y"], to=TensorProto.DOUBLE), {}, lambda h, t: h.double(), 18),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(tmp_path, name):
    node, weights, forward, opset = OPERATORS[name]
    model = behind_weight(node, weights=weights, shape=(3, 6), opset=opset)
    compare_with_torch(model, tmp_path, lambda t: forward((t.x @ t.W).reshape(3, 6), t), tolerance=3e-5)


def test_max_pool(tmp_path):
    nodes = [
        NODE("Conv", ["x", "W"], ["h"]),
        NODE("MaxPool", ["h"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    compare_with_torch(
        make_model(nodes, {"x": ["n", 2, 7, 7]}, {"W": normal(3, 2, 3, 3)}),
        tmp_path,
        lambda t: F.max_pool2d(F.conv2d(t.x, t.W), 3, 2, 1),
        {"x": normal(2, 2, 7, 7)},
    )


def test_dropout_with_its_mask(tmp_path):
    weights = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    model = behind_weight(NODE("Dropout", ["h", "ratio", "training"], ["y", "mask"]), weights=weights, shape=(3, 40))
    training = begin(generate(model, tmp_path, additional_output_names=["y", "mask"]))
    x, target = normal(3, 5), normal(3, 40, seed=1)
    _, y, mask = training.module(x, target)
    assert mask.any()
    assert not mask.all()
    np.testing.assert_array_equal(y != 0, mask)
    expected = x.T @ (2 * (y - target) / y.size * mask * np.float32(2))
    np.testing.assert_allclose(training.gradients()["W"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("opset", range(11, 22))
def test_opsets(tmp_path, opset):
    nodes = [NODE("Gemm", ["x", "W", "b"], ["h"]), NODE("Relu", ["h"], ["y"])]
    model = make_model(nodes, {"x": ["n", 5]}, {"W": normal(5, 6), "b": normal(6)}, opset=opset)
    compare_with_torch(model, tmp_path, lambda t: torch.relu(t.x @ t.W + t.b))


# -- ways to give a model, and to write the files


def simple() -> onnx.ModelProto:
    return behind_weight(NODE("Relu", ["h"], ["y"]), shape=(3, 6))


@pytest.mark.parametrize("given", ["proto", "path", "text"])
def test_a_model_and_its_path(tmp_path, given):
    path = tmp_path / "model.onnx"
    onnx.save(simple(), path)
    model = {"proto": simple(), "path": path, "text": str(path)}[given]
    training = train(model, tmp_path / "made")
    x, target = normal(3, 5), normal(3, 6, seed=1)
    y = np.maximum(x @ normal(5, 6) * np.float32(0.5), 0)
    np.testing.assert_allclose(training.accumulate(x, target), np.mean((y - target) ** 2), rtol=1e-5)


def test_string_inputs_and_label_encoders(tmp_path):
    encoder = NODE(
        *("LabelEncoder", ["word"], ["at"]),
        domain="ai.onnx.ml",
        keys_strings=["cat", "dog"],
        values_int64s=[1, 2],
        default_int64=0,
    )
    nodes = [encoder, NODE("Gather", ["table", "at"], ["e"]), NODE("Mul", ["e", "x"], ["y"])]
    inputs = {"word": (np.object_, ["n"]), "x": ["n", 4]}
    model = make_model(nodes, inputs, {"table": normal(3, 4)}, domains=["ai.onnx.ml"])
    model.opset_import[1].version = 2
    training = train(model, tmp_path)
    words, x, target = np.array(["dog", "bird", "dog"], object), normal(3, 4), normal(3, 4, seed=1)
    y = normal(3, 4)[[2, 0, 2]] * x
    np.testing.assert_allclose(training.accumulate(words, x, target), np.mean((y - target) ** 2), rtol=1e-5)
    expected = np.zeros((3, 4), np.float32)
    np.add.at(expected, [2, 0, 2], 2 * (y - target) / y.size * x)
    np.testing.assert_allclose(training.gradients()["table"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("opset", [17, 21])
def test_a_label_encoder_behind_a_custom_operator(opset):
    """ONNX's own inference ends the process there."""
    nodes = [
        NODE("Upper", ["word"], ["upper"], domain="custom"),
        NODE(
            *("LabelEncoder", ["upper"], ["at"]), domain="ai.onnx.ml", keys_strings=["CAT", "DOG"], values_int64s=[1, 2]
        ),
        NODE("Gather", ["table", "at"], ["e"]),
        NODE("Mul", ["e", "x"], ["y"]),
    ]
    inputs = {"word": (np.object_, ["n"]), "x": ["n", 4]}
    model = make_model(nodes, inputs, {"table": normal(3, 4)}, domains=["ai.onnx.ml", "custom"])
    model.opset_import[0].version, model.opset_import[1].version = opset, 3
    assert [weight.name for weight in onnxblock.inspect(model).trainable] == ["table"]
    (gradient,) = onnxblock.gradients(model, ["table"]).graph.output[-1:]
    assert [d.dim_value for d in gradient.type.tensor_type.shape.dim] == [3, 4]


def test_additional_outputs(tmp_path):
    training = begin(generate(simple(), tmp_path, additional_output_names=["y", "h"]))
    x = normal(3, 5)
    for mode in (True, False):
        training.module.train(mode)
        loss, y, h = training.module(x, np.zeros((3, 6), np.float32))
        np.testing.assert_allclose(h, x @ normal(5, 6) * np.float32(0.5), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(y, np.maximum(h, 0))
        np.testing.assert_allclose(loss, np.mean(y**2), rtol=1e-5)


class TwoTerms(onnxblock.Block):
    """Also returns what it adds up."""

    def __init__(self):
        self.squares, self.distances, self.add = (
            onnxblock.loss.MSELoss(),
            onnxblock.loss.L1Loss(),
            onnxblock.blocks.Add(),
        )

    def build(self, y):
        squares, distances = self.squares(y), self.distances(y, "other_target")
        return self.add(squares, distances), squares, distances


def test_what_a_loss_returns_beside_the_loss(tmp_path):
    files = generate(simple(), tmp_path, loss=TwoTerms(), additional_output_names=["y"], fused_step=True)
    x, target, other = normal(3, 5), normal(3, 6, seed=1), normal(3, 6, seed=2)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    for module in (begin(files).module, TrainingStep(files.step_model, state, files.eval_model)):
        for mode in (True, False):
            module.train(mode)
            loss, squares, distances, y = module(x, target, other)
            np.testing.assert_allclose(squares, np.mean((y - target) ** 2), rtol=1e-5)
            np.testing.assert_allclose(distances, np.mean(np.abs(y - other)), rtol=1e-5)
            np.testing.assert_allclose(loss, squares + distances, rtol=1e-6)


def test_a_model_that_ends_in_its_loss_keeps_its_other_outputs(tmp_path):
    nodes = [
        NODE("MatMul", ["x", "W"], ["y"]),
        NODE("ReduceMean", ["y"], ["loss"], keepdims=0),
        NODE("ArgMax", ["y"], ["k"], axis=1),
    ]
    model = make_model(nodes, {"x": ["n", 5]}, {"W": normal(5, 6)}, outputs=["loss", "y", "k"])
    training = begin(generate(model, tmp_path, loss=None))
    x = normal(3, 5)
    assert training.module.output_names() == ["loss", "y", "k"]
    for mode in (True, False):
        training.module.train(mode)
        loss, y, k = training.module(x)
        np.testing.assert_allclose(y, x @ normal(5, 6), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(loss, y.mean(), rtol=1e-5)
        np.testing.assert_array_equal(k[:, 0], y.argmax(1))
    np.testing.assert_allclose(training.gradients()["W"], np.tile(x.sum(0)[:, None] / 18, (1, 6)), rtol=1e-5)


def test_the_prefix_of_the_files(tmp_path):
    files = generate(simple(), tmp_path, prefix="my_")
    expected = {"my_training_model.onnx", "my_eval_model.onnx", "my_optimizer_model.onnx", "my_checkpoint"}
    assert {path.name for path in tmp_path.iterdir()} == expected
    begin(files).step(normal(3, 5), normal(3, 6))


def test_the_format_of_the_runtime(tmp_path):
    """The models are written beside the others as ``.ort`` files, and train as they do."""
    files = generate(simple(), tmp_path, ort_format=True)
    batch = normal(3, 5), normal(3, 6, seed=1)
    losses = []
    for suffix in (".onnx", ".ort"):
        state = CheckpointState.load_checkpoint(files.checkpoint)
        paths = [p.with_suffix(suffix) for p in (files.training_model, files.eval_model, files.optimizer_model)]
        module = Module(paths[0], state, paths[1])
        optimizer = Optimizer(paths[2], module)
        for _ in range(3):
            losses.append(float(module(*batch)))
            optimizer.step()
            module.lazy_reset_grad()
    np.testing.assert_allclose(losses[:3], losses[3:], rtol=1e-6)
    assert losses[2] < losses[0]


def test_a_checkpoint_without_data(tmp_path):
    files = generate(simple(), tmp_path, nominal_checkpoint=True, prefix="my_")
    assert files.nominal_checkpoint == tmp_path / "my_nominal_checkpoint"
    assert str(files.nominal_checkpoint) in str(files)
    complete = CheckpointState.load_checkpoint(files.checkpoint)
    np.testing.assert_array_equal(complete.parameters["W"].data, normal(5, 6) * np.float32(0.5))
    state = CheckpointState.load_checkpoint(files.nominal_checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    module.copy_buffer_to_parameters(normal(5, 6).reshape(-1), trainable_only=False)
    optimizer = Optimizer(files.optimizer_model, module)
    x, target = normal(3, 5), normal(3, 6, seed=1)
    np.testing.assert_allclose(module(x, target), np.mean((np.maximum(x @ normal(5, 6), 0) - target) ** 2), rtol=1e-5)
    optimizer.step()
    assert (state.parameters["W"].data != normal(5, 6)).any()


def test_frozen_parameters_are_kept_in_the_checkpoint(tmp_path):
    model = behind_weight(NODE("Mul", ["h", "scale"], ["y"]), weights={"scale": normal(6)}, shape=(3, 6))
    training = train(model, tmp_path, requires_grad=["W"], frozen_params=["scale"])
    training.step(normal(3, 5), normal(3, 6, seed=1))
    np.testing.assert_array_equal(training.data()["scale"], normal(6))
    assert set(training.gradients()) == {"W"}
    assert [v.name for v in onnx.load(tmp_path / "eval_model.onnx").graph.input] == ["x", "target", "W", "scale"]


def test_custom_operators_keep_their_nodes_and_their_gradients_are_the_users(tmp_path, monkeypatch):
    from onnxblock.autodiff import registry

    registry.find("Relu")
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    @registry.gradient("Cube", domain="my.domain")
    def cube(g):
        return g.dy * g.x * g.x * 3.0

    model = behind_weight(NODE("Cube", ["h"], ["y"], domain="my.domain"), shape=(3, 6), domains=["my.domain"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 6]))
    files = generate(model, tmp_path, custom_op_library=tmp_path / "libcube.so")
    for path in (files.training_model, files.eval_model):
        assert "Cube" in kinds(path)
        assert "my.domain" in {o.domain for o in onnx.load(path).opset_import}
    # With the operator as a function of the model, the files run without the library.
    body = [NODE("Mul", ["a", "a"], ["b"]), NODE("Mul", ["a", "b"], ["c"])]
    training = onnx.load(files.training_model)
    training.functions.append(
        helper.make_function("my.domain", "Cube", ["a"], ["c"], body, [helper.make_opsetid("", 18)])
    )
    onnx.save(training, tmp_path / "with_function.onnx")
    x, target, weight = normal(3, 5), normal(3, 6, seed=1), normal(5, 6) * np.float32(0.5)
    feeds = {"x": x, "target": target, "W": weight, "W_grad.accumulation.buffer": np.zeros_like(weight)}
    found = outputs_of(tmp_path / "with_function.onnx", {**feeds, "lazy_reset_grad": np.array([True])})
    h = x @ weight
    expected = x.T @ (2 * (h**3 - target) / h.size * 3 * h**2)
    np.testing.assert_allclose(found[2], expected, rtol=1e-3, atol=1e-5)
