"""Training models: their interface, their determinism, and that building stays cheap as graphs grow."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module
from onnxblock.errors import (
    BlockBuildError,
    OnnxBlockError,
    ParameterError,
    UnknownNameError,
    UnsupportedOperatorError,
)


def mlp(layers: int = 2, width: int = 4, batch: int | str = "batch") -> onnx.ModelProto:
    """Gemm and Relu in turn, from ``x`` to ``y``."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for k in range(layers):
        weights += [
            numpy_helper.from_array((rng.standard_normal((width, width)) / width).astype(np.float32), f"w{k}"),
            numpy_helper.from_array(np.zeros(width, np.float32), f"b{k}"),
        ]
        nodes += [helper.make_node("Gemm", [last, f"w{k}", f"b{k}"], [f"h{k}"], name=f"gemm{k}", transB=1)]
        nodes += [helper.make_node("Relu", [f"h{k}"], [f"a{k}"], name=f"relu{k}")]
        last = f"a{k}"
    nodes.append(helper.make_node("Identity", [last], ["y"], name="out"))
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, width])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def generate(model: onnx.ModelProto, folder: Path, **options: object) -> artifacts.Artifacts:
    settings: dict[str, object] = {
        "loss": artifacts.LossType.MSELoss,
        "optimizer": artifacts.OptimType.AdamW,
        "artifact_directory": folder,
    }
    return artifacts.generate_artifacts(model, **{**settings, **options})  # type: ignore[arg-type]


def names(values: object) -> list[str]:
    return [v.name for v in values]  # type: ignore[attr-defined]


def test_inputs_and_outputs_are_in_the_order_of_the_contract(tmp_path: Path) -> None:
    made = generate(mlp(), tmp_path, requires_grad=["w0", "b1"], frozen_params=["w1"])
    training = onnx.load(made.training_model)
    assert names(training.graph.input) == [
        "x",
        "target",
        "w0",
        "w1",
        "b1",
        "w0_grad.accumulation.buffer",
        "b1_grad.accumulation.buffer",
        "lazy_reset_grad",
    ]
    assert names(training.graph.output)[1:] == [
        "w0_grad.accumulation.out",
        "w0.accumulated_grad",
        "b1_grad.accumulation.out",
        "b1.accumulated_grad",
    ]
    evaluation = onnx.load(made.eval_model)
    assert names(evaluation.graph.input) == ["x", "target", "w0", "w1", "b1"]
    assert names(evaluation.graph.output) == names(training.graph.output)[:1]
    assert training.ir_version == evaluation.ir_version
    assert {o.domain for o in training.opset_import} == {"", "com.microsoft"}
    assert {o.domain for o in evaluation.opset_import} == {""}
    loss = training.graph.output[0].type.tensor_type
    assert loss.HasField("shape")
    assert len(loss.shape.dim) == 0


def test_everything_is_the_same_the_second_time_and_in_another_process(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second", "third")]
    model = tmp_path / "model.onnx"
    onnx.save(mlp(), model)
    for folder in folders[:2]:
        generate(onnx.load(model), folder)
    script = (
        "import sys, artifacts; artifacts.generate_artifacts(sys.argv[1], loss=artifacts.LossType.MSELoss, "
        "optimizer=artifacts.OptimType.AdamW, artifact_directory=sys.argv[2])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), str(folders[2])], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    for name in ("training_model.onnx", "eval_model.onnx", "optimizer_model.onnx", "checkpoint"):
        first, second, third = ((folder / name).read_bytes() for folder in folders)
        assert first == second == third, name


class Chain(onnxblock.ForwardBlock):
    def __init__(self, length: int) -> None:
        self.blocks = [onnxblock.blocks.Neg() for _ in range(length)]

    def build(self, x: str) -> str:
        for block in self.blocks:
            x = block(x)
        return x


def seconds_per(count: int, run: Callable[[], object], repeats: int = 1) -> float:
    """Processor time per unit of work: the best of some runs, undisturbed by other processes and by collections."""
    gc.collect()
    gc.disable()
    try:
        best = min(timeit.repeat(run, timer=time.process_time, repeat=repeats, number=1))
    finally:
        gc.enable()
    return best / count


def test_building_costs_the_same_per_block_however_many_there_are() -> None:
    def build(length: int) -> None:
        with onnxblock.base(mlp()):
            Chain(length)("y")

    build(10)
    few, many = (seconds_per(n, lambda n=n: build(n), repeats=3) for n in (100, 1600))
    assert many < 3 * few


def test_generation_costs_the_same_per_node_however_many_there_are(tmp_path: Path) -> None:
    models = {nodes: mlp(nodes // 2) for nodes in (500, 8000)}
    generate(mlp(), tmp_path, optimizer=None)
    few, many = (seconds_per(n, lambda m=m: generate(m, tmp_path, optimizer=None)) for n, m in models.items())
    assert many < 2 * few


def test_requires_grad_with_a_typo_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"no weight 'w9'.*Did you mean 'w\d'"):
        generate(mlp(), tmp_path, requires_grad=["w9"])
    assert not list(tmp_path.iterdir())


def test_every_problem_with_parameters_is_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ParameterError) as caught:
        generate(mlp(), tmp_path, requires_grad=["w0", "nope"], frozen_params=["w0", "neither"])
    for text in ("'nope'", "'neither'", "'w0' is both"):
        assert text in str(caught.value)


def test_unknown_outputs_are_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        generate(mlp(), tmp_path, additional_output_names=["a7"], loss_input_names=["z"])
    assert "'a7'" in str(caught.value)
    assert "'z'" in str(caught.value)


def test_a_loss_that_is_not_one_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BlockBuildError, match="one number"):
        generate(mlp(batch=3), tmp_path, loss=None)


@pytest.mark.parametrize(
    ("loss", "output"),
    [
        (onnxblock.loss.CrossEntropyLoss(reduction="none"), "float[batch,3] y"),
        (onnxblock.loss.MSELoss(reduction="none"), "float[batch,3] y"),
        (None, "float[batch] y"),
    ],
)
def test_a_loss_for_each_element_of_a_batch_of_any_size_is_refused(
    tmp_path: Path, loss: onnxblock.Block | None, output: str
) -> None:
    last = "y = Sum(h)" if loss is not None else "y = ReduceSum <keepdims = 0> (h, axes)"
    model = parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        scores (float[batch, 2] x) => ({output})
        <float[2, 3] w = {{1, 2, 3, 4, 5, 6}}, int64[1] axes = {{1}}>
        {{ h = MatMul(x, w)  {last} }}
    """)
    with pytest.raises(
        BlockBuildError, match=r"has shape \[batch.*\]; it must be one number\.\n  Reduce it: loss\.mean"
    ):
        generate(model, tmp_path, loss=loss)


@pytest.mark.parametrize(
    "declared", ["float y", "float[] y", "float[1] y", "float[1, 1] y", "float[n] y", "float[unknown] y"]
)
def test_a_loss_that_may_be_one_number_is_one(tmp_path: Path, declared: str) -> None:
    """Its sizes are those that a run is given; exporters call every size that they do not know ``unknown``."""
    model = parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        total (float[unknown, 2] x, int64[rank] sizes) => ({declared})
        <float[2, 3] w = {{1, 2, 3, 4, 5, 6}}>
        {{ h = MatMul(x, w)  s = ReduceSum(h)  y = Reshape(s, sizes) }}
    """)
    files = generate(model, tmp_path, loss=None, optimizer=None)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    rank = declared.count("1") if "1" in declared else int("n]" in declared)
    loss = module(np.array([[1, 2], [3, 4]], np.float32), np.ones(rank, np.int64))
    assert loss.shape == ()
    assert float(loss) == 4 * (1 + 2 + 3) + 6 * (4 + 5 + 6)
    np.testing.assert_array_equal(state.parameters["w"].grad, [[4, 4, 4], [6, 6, 6]])


@pytest.mark.parametrize("train", [True, False])
def test_a_loss_of_unknown_size_that_is_more_than_one_number_is_named_in_the_run(tmp_path: Path, train: bool) -> None:
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        scores (float[unknown, 2] x) => (float[unknown, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }
    """)
    files = generate(model, tmp_path, loss=onnxblock.loss.CrossEntropyLoss(reduction="none"))
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model).train(train)
    says = (
        r"Check that the loss 'CrossEntropyLoss/SoftmaxCrossEntropyLoss' \[unknown\] is one number here, or reduce it"
    )
    with pytest.raises(OnnxBlockError, match=says):
        module(np.ones((2, 2), np.float32), np.zeros(2, np.int64))


def test_all_operators_without_a_gradient_are_listed(tmp_path: Path) -> None:
    model = mlp()
    for name in ("first", "second"):
        model.graph.node.append(helper.make_node("Foreign", ["y"], [name], name=f"node_{name}", domain="my.domain"))
    model.graph.node.append(helper.make_node("Add", ["first", "second"], ["z"]))
    model.graph.output[0].name = "z"
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    with pytest.raises(UnsupportedOperatorError) as caught:
        generate(model, tmp_path)
    for text in ("node_first", "node_second", "my.domain", "'w0'"):
        assert text in str(caught.value)


def test_the_summary_says_what_is_trained_and_why(tmp_path: Path) -> None:
    text = str(generate(mlp(), tmp_path, requires_grad=["w0"], frozen_params=["w1"]))
    for part in ("trained: 1 weight, 16 elements", "w0", "frozen as asked", "not in requires_grad", "checkpoint"):
        assert part in text


def test_files_that_are_not_ours_stay(tmp_path: Path) -> None:
    (tmp_path / "temp.onnx").write_text("mine")
    generate(mlp(), tmp_path)
    assert (tmp_path / "temp.onnx").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint",
        "eval_model.onnx",
        "optimizer_model.onnx",
        "temp.onnx",
        "training_model.onnx",
    ]


def test_what_an_exponent_or_a_bound_is_computed_of_is_trained_by_default(tmp_path):
    """A constant exponent sets how Pow works; one that a layer computes is a value like others."""
    for expression in ("y = Pow(base, h)", "y = Clip(x, low, high)"):
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        computed (float[n, 3] x) => (float[n, 3] y) <float base = {{1.3}}, float low = {{-1}}> {{
            h = MatMul(x, w)
            high = ReduceMax<keepdims = 0>(h)
            {expression}
        }}""")
        weight = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
        made = artifacts.generate_artifacts(model, loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path)
        assert [parameter.name for parameter in made.trainable] == ["w"]


def test_numbers_in_the_code_of_a_model_are_not_trained_by_default(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    positions (float[n, 2] x) => (float[n, 2] y) <float[2] literal = {1, 2}, float[2] w = {3, 4}> {
        h = Add(x, literal)
        y = Mul(h, w)
    }""")
    literal = "/embed/Constant_4_output_0"
    model.graph.initializer[0].name = model.graph.node[0].input[1] = literal
    made = artifacts.generate_artifacts(model, loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path)
    assert [parameter.name for parameter in made.trainable] == ["w"]
    asked = artifacts.generate_artifacts(
        model, requires_grad=[literal], loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path
    )
    assert [parameter.name for parameter in asked.trainable] == [literal]
