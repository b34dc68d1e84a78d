"""Forward results that are computed again for the gradient: what is repeated, when it runs, and what it saves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module
from artifacts.manifest import Manifest
from onnxblock.autodiff.backward import backward
from onnxblock.autodiff.recomputation import Recomputation, recompute_forward
from onnxblock.autodiff.trace import Trace
from onnxblock.block import set_outputs
from onnxblock.errors import ArgumentError, UnknownNameError
from onnxblock.graph.arithmetic import full_like
from tests.running import run

ROWS, WIDTH, LAYERS = 16, 8, 9
GELU = "p = Mul(x, x) q = Mul(p, x) r = Mul(q, cubic) z = Add(x, r) b = Mul(z, beta) t = Tanh(b) a = Add(t, one)"
# Before 1.24, onnxruntime fuses a Transpose with a product of float64 into a node that it cannot run.
NEW = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 24)
DTYPE = np.float64 if NEW else np.float32
BYTES = np.dtype(DTYPE).itemsize


def layered(rows: int | str = ROWS, width: int = WIDTH, layers: int = LAYERS, dtype: type = DTYPE) -> onnx.ModelProto:
    """Products and tanh in turn, in blocks called /block.0, /block.1, ..."""
    rng = np.random.default_rng(0)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = [
        numpy_helper.from_array((rng.standard_normal((width, width)) / width**0.5).astype(dtype), f"w{k}")
        for k in range(layers)
    ]
    nodes = []
    for k in range(layers):
        nodes += [
            helper.make_node("MatMul", [f"y{k}" if k else "x", f"w{k}"], [f"h{k}"], name=f"/block.{k}/MatMul"),
            helper.make_node("Tanh", [f"h{k}"], [f"t{k}"], name=f"/block.{k}/Tanh"),
            helper.make_node("Mul", [f"t{k}", f"t{k}"], [f"y{k + 1}"], name=f"/block.{k}/Mul"),
        ]
    graph = helper.make_graph(
        nodes,
        "layered",
        [helper.make_tensor_value_info("x", element, [rows, width])],
        [helper.make_tensor_value_info(f"y{layers}", element, [rows, width])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def generate(model: onnx.ModelProto, folder: Path, **options: Any) -> artifacts.Artifacts:
    return artifacts.generate_artifacts(model, loss=artifacts.LossType.MSELoss, artifact_directory=folder, **options)


def gradients(folder: Path, *batch: Any) -> dict[str, Any]:
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state)
    module(*batch)
    return {name: parameter.grad.copy() for name, parameter in state.parameters if parameter.requires_grad}


def batch_of(rows: int = ROWS, width: int = WIDTH) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((rows, width)).astype(DTYPE), rng.standard_normal((rows, width)).astype(DTYPE)


def optimized(path: Path, folder: Path) -> onnx.ModelProto:
    """What onnxruntime makes of a model."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def manifest(path: Path) -> Manifest:
    found = Manifest.from_metadata({entry.key: entry.value for entry in onnx.load(path).metadata_props})
    assert found is not None
    return found


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize(
    "recompute", [True, "/block.*", ["/block.1", "block.7"], ["/block.3/*"], 11 * ROWS * WIDTH * BYTES]
)
def test_gradients_are_the_same_to_the_last_bit(recompute: Any, tmp_path: Path) -> None:
    generate(layered(), tmp_path / "kept")
    summary = generate(layered(), tmp_path / "again", recompute=recompute)
    assert summary.recomputation is not None
    kept, again = (gradients(tmp_path / which, *batch_of()) for which in ("kept", "again"))
    assert kept.keys() == again.keys()
    for name in kept:
        assert np.abs(kept[name]).max() > 0
        np.testing.assert_array_equal(again[name], kept[name], err_msg=name)


GROUPED = {
    "swish": "s = Sigmoid(x) y = Mul(x, s)",
    "gelu, halved last": f"{GELU} m = Mul(x, a) y = Mul(m, half)",
    "gelu, x halved": f"{GELU} h = Mul(x, half) y = Mul(h, a)",
}


@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_nodes_that_are_differentiated_as_one(name: str, tmp_path: Path) -> None:
    """What the operator that a group is reads is there when its gradient is computed, wherever the group is cut."""
    kind = "double" if np.dtype(DTYPE) == np.float64 else "float"
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
    groups ({kind}[{ROWS},{WIDTH}] x0) => ({kind}[{ROWS},{WIDTH}] x{LAYERS})
    <{kind} one = {{1}}, {kind} half = {{0.5}}, {kind} cubic = {{0.044715}}, {kind} beta = {{0.79788456}}>
    {{ {" ".join(_layer(GROUPED[name], k) for k in range(LAYERS))} }}""")
    rng = np.random.default_rng(0)
    for k in range(LAYERS):
        weight = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(DTYPE)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{k}"))
    for node in model.graph.node:
        node.name = f"layer{node.output[0][-1]}.{node.output[0][:-1]}"
    names = [node.name for node in model.graph.node]
    generate(model, tmp_path / "kept")
    for recompute in (True, *(names[start:-3] for start in range(1, len(names) // LAYERS))):
        summary = generate(model, tmp_path / "again", recompute=recompute)
        assert summary.recomputation is not None
        kept, again = (gradients(tmp_path / which, *batch_of()) for which in ("kept", "again"))
        for parameter, expected in kept.items():
            np.testing.assert_array_equal(again[parameter], expected, err_msg=parameter)


def _layer(activation: str, k: int) -> str:
    """A product and an activation, whose values are numbered; x of one layer is that of the next."""
    words = re.sub(r"\b([a-z])\b", rf"\g<1>{k}", activation.replace("x", "v").replace("y", "x"))
    return f"v{k} = MatMul(x{k}, w{k}) " + words.replace(f"x{k} =", f"x{k + 1} =")


RECURRENT = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Operators by the number of gates."""


@pytest.mark.parametrize("operator", RECURRENT)
@pytest.mark.parametrize("recompute", [True, "/layer"])
def test_weights_of_recurrent_layers_that_are_computed(operator: str, recompute: Any, tmp_path: Path) -> None:
    """The gradient of a layer waits for no weight that waits for it, wherever what stands in its place is cut."""
    kind = "double" if np.dtype(DTYPE) == np.float64 else "float"
    gates, size = RECURRENT[operator], 3
    text = f"""
        <ir_version: 9, opset_import: ["": 18]> agraph ({kind}[5, 2, 4] x) => ({kind}[5, 1, 2, {size}] y) {{
            w = Tanh(v) r = Tanh(q)
            {"y" if operator == "LSTM" else "y, last"} = {operator} <hidden_size = {size}> (x, w, r)
        }}"""
    model = onnx.parser.parse_model(text)
    for node, name in zip(model.graph.node, ["/layer/Tanh", "/layer/Tanh_1", "/layer/Layer"], strict=True):
        node.name = name
    rng = np.random.default_rng(0)
    weights = {"v": (1, gates * size, 4), "q": (1, gates * size, size)}
    made = {name: rng.standard_normal(shape).astype(DTYPE) for name, shape in weights.items()}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in made.items())
    x = rng.standard_normal((5, 2, 4)).astype(DTYPE)
    target = rng.standard_normal((5, 1, 2, size)).astype(DTYPE)
    generate(model, tmp_path / "kept")
    generate(model, tmp_path / "again", recompute=recompute)
    kept, again = (gradients(tmp_path / which, x, target) for which in ("kept", "again"))
    assert set(kept) == {"v", "q"}
    for name in kept:
        assert np.abs(kept[name]).max() > 0
        np.testing.assert_array_equal(again[name], kept[name], err_msg=name)


def test_axes_are_there_at_once(tmp_path: Path) -> None:
    """What waits is a float: without its axes a mean would have no shape that a runtime knows before the first run."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["": 18]> agraph (float[n, 2, 4, 4] x) => (float[n, 2, 8, 8] y)
        <float[2] w = {0.5, -1.5}, float[1] v = {2.0}, int64[1, 2] last = {2, 3}, int64[1] flat = {-1}> {
            axes = Reshape(last, flat)
            scale = Reshape(w, shape)
            shape = Constant <value = int64[3] {2, 1, 1}> ()
            a = Mul(x, scale)
            b = Tanh(a)
            m = ReduceMean <keepdims = 1> (b, axes)
            s = Sigmoid(m)
            beginning = Shape <start = 0, end = 2> (s)
            end = Constant <value = int64[2] {8, 8}> ()
            sizes = Concat <axis = 0> (beginning, end)
            r = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (s, , , sizes)
            c = Mul(r, v)
            t = Tanh(c)
            y = Mul(t, t)
        }"""
    )
    nodes = sorted(model.graph.node, key=lambda node: node.op_type != "Constant")
    for node in nodes:
        node.name = f"/{'block' if node.output[0] in 'msr' else 'other'}/{node.output[0]}"
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    rng = np.random.default_rng(0)
    x, target = (rng.standard_normal((3, 2, size, size)).astype(np.float32) for size in (4, 8))
    generate(model, tmp_path / "kept")
    generate(model, tmp_path / "again", recompute="/block")
    kept, again = (gradients(tmp_path / which, x, target) for which in ("kept", "again"))
    for name in ("w", "v"):
        assert np.abs(kept[name]).max() > 0
        np.testing.assert_allclose(again[name], kept[name], rtol=1e-5, err_msg=name)
    nodes = onnx.load(tmp_path / "again" / "training_model.onnx").graph.node
    means = [node for node in nodes if node.op_type == "ReduceMean" and node.name.startswith("recompute")]
    assert [node.input[1] for node in means] == ["axes"]


def test_copies_outlast_every_optimization_and_run_late(tmp_path: Path) -> None:
    """onnxruntime would merge plain copies with the nodes that they repeat, and would run them first."""
    generate(layered(), tmp_path / "kept")
    summary = generate(layered(), tmp_path / "again", recompute=[f"/block.{k}" for k in range(LAYERS - 1)])
    kept, again = (optimized(tmp_path / w / "training_model.onnx", tmp_path) for w in ("kept", "again"))
    assert summary.recomputation is not None
    assert summary.recomputation.nodes == 2 * (LAYERS - 1)
    assert operators(again)["Tanh"] == operators(kept)["Tanh"] + LAYERS - 1 == 2 * LAYERS - 1
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    module = Module(
        tmp_path / "again/training_model.onnx",
        CheckpointState.load_checkpoint(tmp_path / "again/checkpoint"),
        session_options=options,
    )
    module(*batch_of())
    events = json.loads(Path(module._train_model._session.end_profiling()).read_text(encoding="utf-8"))
    events = sorted((e for e in events if e["name"].endswith("_kernel_time")), key=lambda e: e["ts"])
    ran = [e["name"].removesuffix("_kernel_time") for e in events if e["args"].get("op_name") == "Tanh"]
    assert ran[:LAYERS] == [f"/block.{k}/Tanh" for k in range(LAYERS)]
    assert ran[LAYERS:] == [f"recompute/t{k}.recomputed" for k in reversed(range(LAYERS - 1))]


def test_less_is_resident(tmp_path: Path) -> None:
    """The peak of a run, in a process of its own, above what is there before."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the peak of a process is read from /proc")
    rows, width, layers = 8192, 64, 16
    model = layered(rows, width, layers, np.float32)
    peaks = []
    for recompute in (None, True):
        generate(model, tmp_path / "m", recompute=recompute)
        script = (
            "import sys, numpy as np, onnxruntime\n"
            "from artifacts.api import CheckpointState, Module\n"
            "def status(key):\n"
            "    return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith(key + ':'))\n"
            "options = onnxruntime.SessionOptions()\n"
            "options.enable_cpu_mem_arena = False\n"
            "options.intra_op_num_threads = 1\n"
            "state = CheckpointState.load_checkpoint('checkpoint')\n"
            "module = Module('training_model.onnx', state, session_options=options)\n"
            f"x = np.ones(({rows}, {width}), np.float32)\n"
            "module(x, x)\n"
            "open('/proc/self/clear_refs', 'w').write('5')\n"
            "before = status('VmRSS')\n"
            "module(x, x)\n"
            "print(status('VmHWM') - before)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path / "m",
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout) / 1024)
    kept, again = peaks
    assert kept > 2 * layers * rows * width * 4 / 2**20 * 0.9
    assert again < 0.6 * kept


def test_random_results_are_kept(tmp_path: Path) -> None:
    model = layered()
    for k in range(LAYERS):
        tanh = next(n for n in model.graph.node if n.name == f"/block.{k}/Tanh")
        model.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), f"ratio{k}"))
        model.graph.initializer.append(numpy_helper.from_array(np.array(True), f"train{k}"))
        drop = helper.make_node(
            "Dropout", [tanh.output[0], f"ratio{k}", f"train{k}"], [f"d{k}"], name=f"/block.{k}/Dropout"
        )
        multiplication = next(n for n in model.graph.node if n.name == f"/block.{k}/Mul")
        multiplication.input[:] = [f"d{k}", f"d{k}"]
        model.graph.node.insert(list(model.graph.node).index(multiplication), drop)
    generate(model, tmp_path, recompute="/block.*", additional_output_names=[f"d{k}" for k in range(LAYERS)])
    assert operators(optimized(tmp_path / "training_model.onnx", tmp_path))["Dropout"] == LAYERS
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    x, target = batch_of()
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    _, *dropped = Module(tmp_path / "training_model.onnx", state, seed=0)(x, target)
    # the gradient by hand, with the masks that the forward pass drew
    ys = [x, *(d * d for d in dropped)]
    dy = 2 * (ys[-1] - target) / target.size
    for k in reversed(range(LAYERS)):
        t = np.tanh(ys[k] @ weights[f"w{k}"])
        dh = dy * 2 * dropped[k] * np.where(dropped[k] != 0, 2.0, 0.0) * (1 - t * t)
        expected = ys[k].T @ dh
        error = np.abs(state.parameters[f"w{k}"].grad - expected).max()
        assert error <= (1e-9 if NEW else 1e-3) * np.abs(expected).max()
        dy = dh @ weights[f"w{k}"].T


def normalized() -> onnx.ModelProto:
    """Products and batch normalizations in turn."""
    model = layered()
    for k in range(LAYERS):
        for what, value in (("scale", 1.5), ("bias", 0.1), ("mean", 0.3), ("var", 2.0)):
            model.graph.initializer.append(numpy_helper.from_array(np.full(WIDTH, value, DTYPE), f"n{k}.{what}"))
        tanh = next(n for n in model.graph.node if n.name == f"/block.{k}/Tanh")
        norm = helper.make_node(
            "BatchNormalization",
            [f"h{k}", *(f"n{k}.{what}" for what in ("scale", "bias", "mean", "var"))],
            [f"b{k}"],
            name=f"/block.{k}/Norm",
        )
        tanh.input[0] = f"b{k}"
        model.graph.node.insert(list(model.graph.node).index(tanh), norm)
    return model


def test_running_statistics_move_once(tmp_path: Path) -> None:
    moved = []
    for which, recompute in (("kept", None), ("again", "/block.*")):
        summary = generate(normalized(), tmp_path / which, recompute=recompute, batch_norm="train")
        state = CheckpointState.load_checkpoint(tmp_path / which / "checkpoint")
        Module(tmp_path / which / "training_model.onnx", state)(*batch_of())
        names = [p.name for p in summary.statistics]
        assert len(names) == 2 * LAYERS
        trained = [p.name for p in summary.trainable]
        moved.append([state.parameters[n].data for n in names] + [state.parameters[n].grad for n in trained])
    for kept, again in zip(*moved, strict=True):
        np.testing.assert_array_equal(again, kept)
    manifests = [
        Manifest.from_metadata({e.key: e.value for e in onnx.load(tmp_path / w / "training_model.onnx").metadata_props})
        for w in ("kept", "again")
    ]
    assert manifests[0] is not None
    assert manifests[1] is not None
    assert [p.in_place for p in manifests[1].state] == [p.in_place for p in manifests[0].state]


def test_bodies_of_control_flow_are_kept(tmp_path: Path) -> None:
    model = layered()
    tanh = next(n for n in model.graph.node if n.name == "/block.4/Tanh")
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(3), "three"))
    number, flag = (TensorProto.INT64, []), (TensorProto.BOOL, [])
    state = (helper.np_dtype_to_tensor_dtype(np.dtype(DTYPE)), [ROWS, WIDTH])
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["going"]), helper.make_node("Tanh", ["s"], ["r"])],
        "body",
        [helper.make_tensor_value_info(name, *kind) for name, kind in (("i", number), ("go", flag), ("s", state))],
        [helper.make_tensor_value_info(name, *kind) for name, kind in (("going", flag), ("r", state))],
    )
    tanh.CopyFrom(helper.make_node("Loop", ["three", "always", "h4"], ["t4"], name="/block.4/Loop", body=body))
    generate(model, tmp_path / "kept")
    generate(model, tmp_path / "again", recompute="/block.*")
    kept, again = (gradients(tmp_path / which, *batch_of()) for which in ("kept", "again"))
    for name in kept:
        np.testing.assert_array_equal(again[name], kept[name], err_msg=name)
    counts = [operators(optimized(tmp_path / w / "training_model.onnx", tmp_path))["Loop"] for w in ("kept", "again")]
    assert counts[0] == counts[1] == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 3])
def test_element_types_and_empty_tensors(dtype: Any, rows: int) -> None:
    """One element of the gradient is looked at, where there is one."""
    x = np.linspace(-1, 1, rows * 4).reshape(rows, 4).astype(dtype)
    results = []
    for recompute in (None, ["first"]):
        with onnxblock.empty_base(18) as graph:
            value = graph.input("x", dtype, ("rows", 4))
            with graph.scope("first"):
                y = graph.op.Relu(graph.op.Mul(graph.op.Relu(value), 2.0))
            loss = graph.op.ReduceSum(graph.op.Mul(y, y), keepdims=0)
            set_outputs(graph, [loss])
            trace = Trace()
            found = backward(graph, {str(loss): full_like(loss, 1.0)}, ["x"], trace)
            made = recompute_forward(graph, trace, recompute)
            assert (made is None) == (recompute is None)
            set_outputs(graph, [loss, found["x"]])
            results.append(run(graph.to_model_proto(), {"x": x}))
    np.testing.assert_array_equal(results[1][1], results[0][1])


def test_a_budget_is_kept(tmp_path: Path) -> None:
    least = generate(layered(), tmp_path, recompute=True).recomputation
    assert least is not None
    assert least.kept < 0.6 * least.kept_before
    assert generate(layered(), tmp_path, recompute=least.kept_before).recomputation is None
    made: list[Recomputation] = []
    for budget in (least.kept_before - 1, (least.kept_before + least.kept) // 2, least.kept):
        found = generate(layered(), tmp_path, recompute=budget).recomputation
        assert found is not None
        assert found.kept <= budget
        made.append(found)
    assert made[0].nodes < made[1].nodes < made[2].nodes <= least.nodes
    with pytest.raises(ArgumentError, match=f"at least {least.kept} "):
        generate(layered(), tmp_path, recompute=least.kept - 1)


def test_sizes_of_dimensions_settle_a_budget(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"dimension_sizes=\{'rows': \.\.\.\}"):
        generate(layered("rows"), tmp_path, recompute=1900 * BYTES)
    few = generate(layered("rows"), tmp_path, recompute=1900 * BYTES, dimension_sizes={"rows": ROWS}).recomputation
    more = generate(
        layered("rows"), tmp_path, recompute=19000 * BYTES, dimension_sizes={"rows": 10 * ROWS}
    ).recomputation
    assert few is not None
    assert more is not None
    assert 0.5 < few.kept / (1900 * BYTES) <= 1
    assert 0.5 < more.kept / (19000 * BYTES) <= 1
    assert few.segments == more.segments
    for recompute in (1900 * BYTES, True, None):
        with pytest.raises(ArgumentError, match=r"'row'\. Did you mean 'rows'"):
            generate(layered("rows"), tmp_path, recompute=recompute, dimension_sizes={"row": ROWS})


def test_what_is_asked_for_wrongly_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'/blok\.\*'(.|\n)*'/nothing'"):
        generate(layered(), tmp_path, recompute=["/blok.*", "/block.1", "/nothing"])
    with pytest.raises(ArgumentError, match=r"nothing of '/block.2/Tanh' can be computed again"):
        generate(layered(), tmp_path, recompute="/block.2/Tanh")
    for wrong in (0, -5, 1.5, [1], {"a": 1}):
        with pytest.raises(ArgumentError, match="recompute"):
            generate(layered(), tmp_path, recompute=wrong)
    for nothing in ([], (), ""):
        with pytest.raises(ArgumentError, match="recompute names no nodes"):
            generate(layered(), tmp_path, recompute=nothing)
    with pytest.raises(ArgumentError, match="positive sizes"):
        generate(layered("rows"), tmp_path, recompute=True, dimension_sizes={"rows": 0})


def test_it_is_written_down(tmp_path: Path) -> None:
    summary = generate(layered(), tmp_path, recompute=["/block.2", "/block.3"])
    assert "computed again for the gradient: 4 nodes in 2 parts" in str(summary)
    assert manifest(summary.training_model).settings["recompute"]["segments"] == ["/block.2", "/block.3"]
    assert "recompute" not in str(generate(layered(), tmp_path))
    assert generate(layered(), tmp_path, recompute=False).recomputation is None


def test_building_stays_cheap() -> None:
    """The same work per node for three times the nodes."""
    counts = []
    for layers in (100, 300):
        with onnxblock.base(layered(layers=layers)) as graph:
            y = graph.value(f"y{layers}")
            loss = graph.op.ReduceSum(y, keepdims=0)
            wrt = [f"w{k}" for k in range(layers)]
            trace = Trace()
            backward(graph, {str(loss): full_like(loss, 1.0)}, wrt, trace)
            made = recompute_forward(graph, trace, True)
            assert made is not None
            counts.append((made.nodes / layers, made.kept / made.kept_before))
    assert counts[1][0] == pytest.approx(counts[0][0], rel=0.2)
    assert counts[1][1] < counts[0][1]
