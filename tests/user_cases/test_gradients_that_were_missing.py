"""Operators that the original has no gradient for, or no kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxblock
from artifacts.api import CheckpointState, Module

from . import NODE, begin, behind_weight, compare_with_torch, export, generate, kinds, make_model, normal, train

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")
F = torch.nn.functional


# -- optional outputs


@pytest.mark.parametrize("bias", [False, True])
def test_layer_normalization_with_one_output(tmp_path, bias):
    weights = {"scale": normal(6), **({"bias": normal(6, seed=1)} if bias else {})}
    node = NODE("LayerNormalization", ["h", *weights], ["y"], axis=-1)
    model = behind_weight(node, weights=weights, shape=(3, 6), opset=17)
    compare_with_torch(
        model, tmp_path, lambda t: F.layer_norm(t.x @ t.W, (6,), t.scale, getattr(t, "bias", None)), tolerance=2e-5
    )


def test_cross_entropy_inside_the_model_with_one_output(tmp_path):
    model = make_model(
        [NODE("MatMul", ["x", "W"], ["h"]), NODE("SoftmaxCrossEntropyLoss", ["h", "labels"], ["loss"])],
        {"x": [3, 5], "labels": (np.int64, [3])},
        {"W": normal(5, 4)},
        ["loss"],
    )
    training = train(model, tmp_path, loss=None)
    x, labels = normal(3, 5), np.array([0, 3, 1])
    weight = torch.tensor(normal(5, 4), requires_grad=True)
    expected = F.cross_entropy(torch.tensor(x) @ weight, torch.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(training.accumulate(x, labels), expected.item(), rtol=1e-5)
    np.testing.assert_allclose(training.gradients()["W"], weight.grad, rtol=1e-4, atol=1e-6)


def test_dropout_with_one_output(tmp_path):
    weights = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    model = behind_weight(NODE("Dropout", ["h", "ratio", "training"], ["y"]), weights=weights, shape=(3, 40))
    files = generate(model, tmp_path, additional_output_names=["y"])
    training = begin(files, seed=1)
    x, target = normal(3, 5), np.zeros((3, 40), np.float32)
    masks = []
    for _ in range(2):
        loss, y = training.module(x, target)
        training.module.lazy_reset_grad()
        kept = (y != 0) * np.float32(2)
        masks.append(kept)
        np.testing.assert_allclose(y, x @ normal(5, 40) * np.float32(0.5) * kept, rtol=1e-5)
        np.testing.assert_allclose(loss, np.mean(y**2), rtol=1e-5)
        np.testing.assert_allclose(training.gradients()["W"], x.T @ (2 * y / y.size * kept), rtol=1e-4, atol=1e-6)
    assert 0.3 < np.mean(masks[0] != 0) < 0.7
    assert (masks[0] != masks[1]).any()
    assert "Dropout" not in kinds(files.eval_model)
    training.module.eval()
    np.testing.assert_allclose(training.module(x, target)[1], x @ normal(5, 40) * np.float32(0.5), rtol=1e-5)


# -- batch norm


def batch_norm(training_mode: int) -> onnx.ModelProto:
    outputs = ["y", "mean_after", "variance_after"] if training_mode else ["y"]
    nodes = [
        NODE("Conv", ["x", "W"], ["h"]),
        NODE(
            *("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], outputs),
            training_mode=training_mode,
            momentum=0.8,
        ),
    ]
    statistics = {"mean": normal(4) * np.float32(0.1), "variance": np.float32(1) + np.abs(normal(4, seed=1))}
    weights = {"W": normal(4, 2, 3, 3) * np.float32(0.3), "scale": normal(4, seed=2), "shift": normal(4, seed=3)}
    return make_model(nodes, {"x": [3, 2, 6, 6]}, {**weights, **statistics})


IMAGES = {"x": normal(3, 2, 6, 6)}


def test_batch_norm_on_the_statistics_of_the_batch(tmp_path):
    model = batch_norm(1)

    def forward(t):
        moved = t.mean.clone(), t.variance.clone()
        y = F.batch_norm(F.conv2d(t.x, t.W), *moved, t.scale, t.shift, training=True, momentum=0.2, eps=1e-5)
        forward.moved = [m.numpy() for m in moved]
        return y

    training = compare_with_torch(model, tmp_path, forward, IMAGES)
    for name, moved in zip(("mean", "variance"), forward.moved, strict=True):
        np.testing.assert_allclose(training.state.parameters[name].data, moved, rtol=1e-4, atol=1e-5)
    again = training.data()
    training.accumulate(normal(3, 2, 6, 6, seed=5), np.zeros((3, 4, 4, 4), np.float32))
    assert all((training.data()[name] != again[name]).all() for name in ("mean", "variance"))
    CheckpointState.save_checkpoint(training.state, tmp_path / "later")
    loaded = CheckpointState.load_checkpoint(tmp_path / "later")
    np.testing.assert_array_equal(loaded.parameters["mean"].data, training.data()["mean"])
    evaluation = onnx.load(tmp_path / "eval_model.onnx")
    node = next(n for n in evaluation.graph.node if n.op_type == "BatchNormalization")
    assert [name for name in node.output if name] == ["y"]
    assert {a.name: a.i for a in node.attribute}["training_mode"] == 0
    onnx.checker.check_model(evaluation)


def test_batch_norm_exported_for_inference_keeps_its_statistics(tmp_path):
    def forward(t):
        return F.batch_norm(F.conv2d(t.x, t.W), t.mean, t.variance, t.scale, t.shift, training=False)

    model = batch_norm(0)
    training = compare_with_torch(model, tmp_path, forward, IMAGES)
    assert {name for name, _ in training.state.parameters} == {"W", "scale", "shift"}


@pytest.mark.parametrize("mode", [0, 1])
def test_running_statistics_are_left_out_of_a_list_of_everything(tmp_path, mode):
    model = batch_norm(mode)
    files = generate(model, tmp_path, requires_grad=[t.name for t in model.graph.initializer])
    assert [p.name for p in files.trainable] == ["W", "scale", "shift"]
    lines = str(files).splitlines()
    for name in ("mean", "variance"):
        about = [line for line in lines if line.split()[:1] == [name]]
        assert len(about) == 1
        assert "running statistic" in about[0]


def test_running_statistics_cannot_be_trained(tmp_path):
    with pytest.raises(onnxblock.OnnxBlockError, match="'mean' is a running statistic"):
        generate(batch_norm(1), tmp_path, requires_grad=["W", "mean"])


# -- what is named in requires_grad


def test_an_integer_parameter_is_named_with_its_type(tmp_path):
    model = behind_weight(NODE("Reshape", ["h", "shape"], ["y"]), weights={"shape": np.array([2, -1])}, shape=(3, 6))
    with pytest.raises(onnxblock.OnnxBlockError, match="'shape' is int64, which is not differentiable"):
        generate(model, tmp_path, requires_grad=["W", "shape"])


@pytest.mark.parametrize("asked", [["W"], None])
@pytest.mark.parametrize("width", [2, 80])
def test_a_weight_in_a_constant_node_is_trained(tmp_path, width, asked):
    weight = normal(5, width)
    constant = NODE("Constant", [], ["W"], value=onnx.numpy_helper.from_array(weight))
    model = make_model([constant, NODE("MatMul", ["x", "W"], ["y"])], {"x": [3, 5]}, {})
    training = train(model, tmp_path, requires_grad=asked)
    x, target = normal(3, 5), normal(3, width, seed=1)
    np.testing.assert_array_equal(training.state.parameters["W"].data, weight)
    training.accumulate(x, target)
    expected = x.T @ (2 * (x @ weight - target) / target.size)
    np.testing.assert_allclose(training.gradients()["W"], expected, rtol=1e-4, atol=1e-6)
    training.apply()
    trained = training.data()["W"]
    assert (trained != weight).all()
    exported = export(training, tmp_path / "inference.onnx")
    values = {t.name: t for t in exported.graph.initializer}
    values.update((n.output[0], n.attribute[0].t) for n in exported.graph.node if n.op_type == "Constant")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(values["W"]), trained)


@pytest.mark.parametrize(
    ("initializers", "trained"),
    [("", ["W", "b"]), ("<float[4] s = {1, 2, 3, 4}>", ["s"]), ("<int64[1] axes = {1}>", ["W", "b"])],
)
def test_small_constants_are_weights_where_the_model_has_no_others(tmp_path, initializers, trained):
    scale = "s" if "s" in trained else "one"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 2] x) => (float[n, 4] y) {initializers} {{
            W = Constant <value: tensor = float[2, 4] {{1, 2, 3, 4, 5, 6, 7, 8}}> ()
            b = Constant <value: tensor = float[4] {{1, 2, 3, 4}}> ()
            one = Constant <value: tensor = float {{1}}> ()
            h = MatMul(x, W)  scaled = Mul(h, {scale})  y = Add(scaled, b)
        }}
    """)
    assert [p.name for p in generate(model, tmp_path).trainable] == trained
    assert [p.name for p in onnxblock.inspect(model).trainable] == trained


@pytest.mark.parametrize("trained", [["x"], ["x", "W"]])
def test_the_gradient_of_an_input_is_an_output(tmp_path, trained):
    model = make_model(
        [NODE("MatMul", ["x", "W"], ["h"]), NODE("Tanh", ["h"], ["y"])], {"x": ["n", 5]}, {"W": normal(5, 4)}
    )
    files = generate(model, tmp_path, requires_grad=trained)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    assert module.output_names()[1:] == ["x_grad"]
    x, target = normal(3, 5), normal(3, 4, seed=1)
    tensors = [torch.tensor(v, requires_grad=True) for v in (x, normal(5, 4))]
    expected = F.mse_loss(torch.tanh(tensors[0] @ tensors[1]), torch.tensor(target))
    expected.backward()
    loss, found = module(x, target)
    np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
    np.testing.assert_allclose(found, tensors[0].grad, rtol=1e-4, atol=1e-6)
    if "W" in trained:
        np.testing.assert_allclose(state.parameters["W"].grad, tensors[1].grad, rtol=1e-4, atol=1e-6)


# -- images


RESIZES = {
    "nearest": ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, {}),
    "linear": ({"mode": "linear", "coordinate_transformation_mode": "half_pixel"}, {"align_corners": False}),
    "cubic": ({"mode": "cubic", "coordinate_transformation_mode": "half_pixel"}, {"align_corners": False}),
}


@pytest.mark.parametrize("opset", [13, 18, 19])
@pytest.mark.parametrize("mode", RESIZES)
def test_resize(tmp_path, mode, opset):
    attributes, settings = RESIZES[mode]
    nodes = [NODE("Conv", ["x", "W"], ["h"]), NODE("Resize", ["h", "", "scales"], ["y"], **attributes)]
    weights = {"W": normal(3, 2, 3, 3), "scales": np.array([1, 1, 2, 2], np.float32)}
    name = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    compare_with_torch(
        make_model(nodes, {"x": ["n", 2, 6, 7]}, weights, opset=opset),
        tmp_path,
        lambda t: F.interpolate(F.conv2d(t.x, t.W), scale_factor=2, mode=name, **settings),
        {"x": normal(2, 2, 6, 7)},
    )


@pytest.mark.parametrize(
    ("attributes", "settings"),
    [
        ({}, {}),
        ({"output_padding": [1, 1], "pads": [1, 1, 1, 1]}, {"output_padding": 1, "padding": 1}),
        ({"group": 2}, {"groups": 2}),
        ({"dilations": [2, 2]}, {"dilation": 2}),
    ],
)
def test_conv_transpose(tmp_path, attributes, settings):
    nodes = [
        NODE("Conv", ["x", "W"], ["h"]),
        NODE("ConvTranspose", ["h", "V", "B"], ["y"], strides=[2, 2], kernel_shape=[3, 3], **attributes),
    ]
    weights = {"W": normal(4, 2, 3, 3), "V": normal(4, 3, 3, 3), "B": normal(3 * settings.get("groups", 1))}
    compare_with_torch(
        make_model(nodes, {"x": [2, 2, 5, 5]}, weights),
        tmp_path,
        lambda t: F.conv_transpose2d(F.conv2d(t.x, t.W), t.V, t.B, stride=2, **settings),
        {"x": normal(2, 2, 5, 5)},
    )


# -- single operators


SMALL = {
    "Atan": (NODE("Atan", ["h"], ["y"]), {}, lambda h, t: torch.atan(h)),
    "Sum": (
        NODE("Sum", ["h", "b", "h", "c"], ["y"]),
        {"b": normal(6), "c": normal(4, 1)},
        lambda h, t: 2 * h + t.b + t.c,
    ),
    "Reciprocal": (NODE("Reciprocal", ["h"], ["y"]), {}, lambda h, t: 1 / h),
}


@pytest.mark.parametrize("name", SMALL)
def test_operators_without_a_rule(tmp_path, name):
    node, weights, forward = SMALL[name]
    compare_with_torch(
        behind_weight(node, weights=weights, shape=(4, 6)),
        tmp_path,
        lambda t: forward((t.x @ t.W).reshape(4, 6), t),
        tolerance=3e-5,
    )


def test_reduce_max_shares_among_equal_elements(tmp_path):
    model = make_model(
        [NODE("Mul", ["x", "W"], ["h"]), NODE("ReduceMax", ["h", "axes"], ["y"], keepdims=0)],
        {"x": [2, 4]},
        {"W": np.ones(4, np.float32), "axes": np.array([1])},
    )
    training = train(model, tmp_path)
    training.accumulate(np.array([[1, 3, 3, 0], [2, 0, 0, 1]], np.float32), np.array([2, 1], np.float32))
    np.testing.assert_allclose(training.gradients()["W"], [2, 1.5, 1.5, 0])


def test_global_max_pool(tmp_path):
    model = make_model(
        [NODE("Conv", ["x", "W"], ["h"]), NODE("GlobalMaxPool", ["h"], ["y"])],
        {"x": [2, 2, 5, 5]},
        {"W": normal(3, 2, 3, 3)},
    )
    feeds = {"x": normal(2, 2, 5, 5)}
    compare_with_torch(model, tmp_path, lambda t: F.conv2d(t.x, t.W).amax((2, 3), keepdim=True), feeds)


class Rounded(onnxblock.blocks.Block):
    """The mean square of ``h`` rounded, straight through or not."""

    def __init__(self, straight: bool) -> None:
        rounding = onnxblock.blocks.Round()
        self.rounding = onnxblock.blocks.StraightThrough(rounding) if straight else rounding

    def build(self, h):
        rounded = self.rounding(h)
        return (rounded * rounded + h * 0.0).mean()


@pytest.mark.parametrize("straight", [False, True])
def test_round_has_no_gradient_or_passes_straight_through(tmp_path, straight):
    training = train(behind_weight(NODE("Identity", ["h"], ["y"]), shape=(3, 6)), tmp_path, loss=Rounded(straight))
    training.accumulate(normal(3, 5))
    rounded = np.round(normal(3, 5) @ normal(5, 6) * np.float32(0.5))
    expected = normal(3, 5).T @ (2 * rounded / rounded.size) if straight else np.zeros((5, 6))
    np.testing.assert_allclose(training.gradients()["W"], expected, rtol=1e-4, atol=1e-6)


def test_a_weight_behind_rounding_alone_is_not_trained(tmp_path):
    with pytest.raises(onnxblock.OnnxBlockError, match="on no differentiable path"):
        generate(behind_weight(NODE("Round", ["h"], ["y"]), shape=(3, 6)), tmp_path)


# -- control flow and functions


def test_an_if_chosen_at_run_time(tmp_path):
    def branch(op_type: str) -> onnx.GraphProto:
        output = helper.make_tensor_value_info(f"y_{op_type}", 1, [3, 6])
        return helper.make_graph([NODE(op_type, ["h"], [f"y_{op_type}"])], op_type, [], [output])

    node = NODE("If", ["condition"], ["y"], then_branch=branch("Relu"), else_branch=branch("Identity"))
    model = behind_weight(node, shape=(3, 6))
    model.graph.input.append(helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, []))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [3, 6]))
    training = train(model, tmp_path)
    x, target, weight = normal(3, 5), normal(3, 6, seed=1), normal(5, 6) * np.float32(0.5)
    for condition in (True, False):
        training.accumulate(x, np.array(condition), target)
        h = x @ weight
        dh = 2 * (np.maximum(h, 0) - target) / h.size * (h > 0) if condition else 2 * (h - target) / h.size
        np.testing.assert_allclose(training.gradients()["W"], x.T @ dh, rtol=1e-4, atol=1e-6)
        training.module.lazy_reset_grad()


def test_a_local_function_is_inlined(tmp_path):
    model = behind_weight(NODE("Bend", ["h"], ["y"], domain="mine"), shape=(3, 6), domains=["mine"])
    body = [NODE("Tanh", ["a"], ["b"]), NODE("Mul", ["a", "b"], ["c"])]
    model.functions.append(helper.make_function("mine", "Bend", ["a"], ["c"], body, [helper.make_opsetid("", 18)]))
    compare_with_torch(model, tmp_path, lambda t: t.x @ t.W * torch.tanh(t.x @ t.W))
    assert {o.domain for o in onnx.load(tmp_path / "eval_model.onnx").opset_import} == {""}
