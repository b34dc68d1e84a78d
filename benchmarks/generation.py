"""What it costs to generate artifacts and to import, and how large the generated graphs are."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch

from .engines import MODEL, SPECIFICATION
from .networks import build
from .nodes import count, idle, inlined, needed_for
from .once import fresh
from .prepare import export, prepare
from .statistics import median
from .workloads import WORKLOADS

if TYPE_CHECKING:
    from .measure import Plan

REPETITIONS = {"full": 5, "tiny": 1}
NODES = {"full": (2_500, 5_000, 10_000, 20_000), "tiny": (100, 400)}
BERT = {"full": {"layers": 12}, "tiny": {"layers": 1, "width": 16, "heads": 2, "vocabulary": 30}}
RESNET = {
    "full": {"depths": [3, 4, 6, 3], "bottleneck": True},
    "tiny": {"depths": [1, 1, 1, 1], "bottleneck": True, "width": 8, "classes": 10},
}
NODES_PER_LAYER = 4
WIDTH = 8


def measure(plan: Plan) -> dict[str, Any]:
    """The figures that have a bar, and more beside them as pairs of texts."""
    folder = (plan.output / "work" / f"generation-{plan.size}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, float] = {}
    details: list[list[str]] = []
    for name, model in (("resnet50", _resnet(plan.size, folder)), ("bert", _bert(plan.size, folder))):
        plan.report(f"generation: {name}")
        _files(name, model, folder / "made", REPETITIONS[plan.size], figures, details)
    plan.report("generation: time per node")
    _flatness(NODES[plan.size], folder, REPETITIONS[plan.size], figures, details)
    plan.report("generation: nodes")
    _graphs(plan, figures, details)
    plan.report("generation: imports")
    _imports(2 * REPETITIONS[plan.size] + 1, figures, details)
    when = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    return {"title": "Generation", "size": plan.size, "when": when, "figures": figures, "details": details}


def _resnet(size: str, folder: Path) -> Path:
    network = build("vision.ResNet", RESNET[size])
    return _external(network, (torch.zeros(2, 3, 64, 64),), folder / "resnet50.onnx")


def _bert(size: str, folder: Path) -> Path:
    network = build("language.Bert", BERT[size])
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    return _external(network, (tokens, torch.ones_like(tokens)), folder / "bert.onnx")


def _external(network: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> Path:
    """The network as a small file, and its weights in another beside it."""
    export(network, inputs, path, 17)
    model = onnx.load(path)
    path.with_suffix(".data").unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=path.with_suffix(".data").name)
    return path


def _files(
    name: str, model: Path, made: Path, repetitions: int, figures: dict[str, float], details: list[list[str]]
) -> None:
    """The whole, what of it writes the weights, and a plain copy of the file with the weights, in turns."""
    weights, copy = model.with_suffix(".data"), made / "copy"
    times: dict[str, list[float]] = {"seconds": [], "writing": [], "graphs": [], "copy": []}
    made.mkdir(exist_ok=True)
    for _ in range(repetitions):
        found = fresh("generate", model=str(model), folder=str(made))
        for kind in ("seconds", "writing"):
            times[kind].append(found[kind])
        times["graphs"].append(found["seconds"] - found["writing"])
        started = time.perf_counter()
        shutil.copyfile(weights, copy)
        times["copy"].append(time.perf_counter() - started)
    figures[f"{name}_graphs"] = median(times["graphs"])
    figures[f"{name}_writing"] = median(times["writing"]) / median(times["copy"])
    nodes = len(onnx.load(model, load_external_data=False).graph.node)
    size = weights.stat().st_size / 2**20
    details += [
        [f"{name}: generate_artifacts without the weights' bytes", f"{median(times['graphs']):.2f} s, {nodes} nodes"],
        [f"{name}: the same with them", f"{median(times['seconds']):.2f} s, {size:.0f} MiB"],
        [f"{name}: a plain copy of the weights' file", f"{median(times['copy']):.3f} s"],
    ]
    shutil.rmtree(made)


def _flatness(
    sizes: tuple[int, ...], folder: Path, repetitions: int, figures: dict[str, float], details: list[list[str]]
) -> None:
    models = {nodes: _chain(nodes, folder / f"chain{nodes}.onnx") for nodes in (40, *sizes)}
    per_node = {}
    for nodes in sizes:
        times = [
            fresh("generate", model=str(models[nodes]), folder=str(folder / "made"), warm_up=str(models[40]))["seconds"]
            for _ in range(repetitions)
        ]
        per_node[nodes] = median(times) / nodes
        details.append([f"{nodes} nodes", f"{median(times):.2f} s, {per_node[nodes] * 1e6:.0f} µs a node"])
    figures["flatness"] = per_node[sizes[-1]] / per_node[sizes[0]]


def _chain(nodes: int, path: Path) -> Path:
    """Dense layers in a row, each with a residual connection: MatMul, Add, Relu, Add."""
    random = np.random.default_rng(0)
    body, weights, last = [], [], "x"
    for layer in range(nodes // NODES_PER_LAYER):
        w, b = (random.standard_normal(s).astype(np.float32) / WIDTH for s in ((WIDTH, WIDTH), (WIDTH,)))
        weights += [onnx.numpy_helper.from_array(w, f"w{layer}"), onnx.numpy_helper.from_array(b, f"b{layer}")]
        for operator, inputs, output in (
            ("MatMul", [last, f"w{layer}"], f"m{layer}"),
            ("Add", [f"m{layer}", f"b{layer}"], f"a{layer}"),
            ("Relu", [f"a{layer}"], f"r{layer}"),
            ("Add", [last, f"r{layer}"], f"x{layer}"),
        ):
            body.append(onnx.helper.make_node(operator, inputs, [output], name=output))
        last = f"x{layer}"
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", WIDTH]) for n in ("x", last)]
    graph = onnx.helper.make_graph(body, "chain", values[:1], values[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def _graphs(plan: Plan, figures: dict[str, float], details: list[list[str]]) -> None:
    """The nodes of each workload's training graph; those of the transformer have bars."""
    for name, workload in WORKLOADS.items():
        if workload.only_optimizer:
            continue
        folder = prepare(workload, plan.size, (plan.output / "work" / f"{name}-{plan.size}").resolve())
        trained = json.loads((folder / SPECIFICATION).read_text(encoding="utf-8"))["trained"]
        fresh("generate", model=str(folder / MODEL), folder=str(folder / "made"), trained=trained)
        model = inlined(onnx.load(folder / "made" / "training_model.onnx"))
        total = count(model.graph.node)
        forward = count(needed_for(model.graph, model.graph.output[0].name))
        unchanged = idle(model)
        said = (
            f"{total} nodes, {total / forward:.2f} × the {forward} of the forward part, {len(unchanged)} change nothing"
        )
        details.append([f"{name}: training graph", said + (f" ({'; '.join(unchanged[:3])})" if unchanged else "")])
        if name == "transformer":
            figures["node_ratio"], figures["idle_nodes"] = total / forward, len(unchanged)


def _imports(repetitions: int, figures: dict[str, float], details: list[list[str]]) -> None:
    found = [fresh("imports") for _ in range(repetitions)]
    figures["import_api"] = median([one["api"] for one in found])
    figures["import_onnxblock"] = median([fresh("import_onnxblock")["onnxblock"] for _ in range(repetitions)])
    details += [
        ["import onnxruntime", f"{median([one['onnxruntime'] for one in found]):.2f} s"],
        ["import artifacts.api, over it", f"{figures['import_api']:.2f} s"],
        ["import onnxblock, all of it", f"{figures['import_onnxblock']:.2f} s"],
    ]
