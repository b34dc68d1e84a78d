"""Where a training step's time goes: onnxruntime's own profile of the training and the optimizer model."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .engines.ours import Engine

WARM_UP, MEASURED = 3, 10
MICROSECONDS_PER_MILLISECOND = 1e3


@dataclass
class Cost:
    """What nodes of one kind take in a step."""

    milliseconds: float = 0.0
    nodes: int = 0
    models: set[str] = field(default_factory=set)

    def add(self, milliseconds: float, model: str) -> None:
        self.milliseconds += milliseconds
        self.nodes += 1
        self.models.add(model)


@dataclass(frozen=True)
class Node:
    """One node of a model after onnxruntime's optimization, and the median of its time."""

    model: str
    name: str
    operator: str
    shapes: str
    milliseconds: float


@dataclass(frozen=True)
class Profile:
    """The nodes of a step, and how long the step takes with and without the profiler."""

    nodes: list[Node]
    step_milliseconds: float
    profiled_milliseconds: float

    def by_operator(self) -> dict[str, Cost]:
        costs: defaultdict[str, Cost] = defaultdict(Cost)
        for node in self.nodes:
            costs[node.operator].add(node.milliseconds, node.model)
        return dict(sorted(costs.items(), key=lambda item: -item[1].milliseconds))

    @property
    def kernels(self) -> float:
        """Milliseconds of a step in kernels."""
        return sum(node.milliseconds for node in self.nodes)


def profile(folder: Path, threads: int) -> Profile:
    """Generate the artifacts of a prepared workload, train a few steps with the profiler, and read what it wrote."""
    engine = _Profiled(folder, threads, {})
    engine.imports()
    engine.own_folder.mkdir(exist_ok=True)
    engine.generate()
    plain = Engine(folder, threads, {})
    plain.imports()
    plain.load()
    step = _median_step(plain)
    del plain
    for old in engine.own_folder.glob("profile_*.json"):
        old.unlink()
    engine.load()
    profiled = _median_step(engine)
    del engine.module, engine.optimizer  # the profile is written when its session goes
    nodes = [
        node
        for model in ("training", "optimizer")
        for path in engine.own_folder.glob(f"profile_{model}_*.json")
        for node in _nodes(model, json.loads(path.read_text(encoding="utf-8")))
    ]
    return Profile(nodes, step, profiled)


class _Profiled(Engine):
    """Ours, with the profiler of onnxruntime on; a file for each of its two models."""

    def session_options(self) -> Any:
        options = super().session_options()
        options.enable_profiling = True
        options.profile_file_prefix = str(self.own_folder / "profile_training")
        return options

    def load(self) -> None:
        checkpoint_state, module, optimizer = self.api
        state = checkpoint_state.load_checkpoint(self.own_folder / "checkpoint")
        options = self.session_options()
        self.module = module(self.own_folder / "training_model.onnx", state, session_options=options)
        options.profile_file_prefix = str(self.own_folder / "profile_optimizer")
        self.optimizer = optimizer(self.own_folder / "optimizer_model.onnx", self.module)


def _median_step(engine: Engine) -> float:
    """Milliseconds."""
    times = []
    for number in range(WARM_UP + MEASURED):
        started = time.perf_counter()
        engine.step(number % len(engine.batches))
        times.append(time.perf_counter() - started)
    return statistics.median(times[WARM_UP:]) * 1e3


def _nodes(model: str, events: list[dict[str, Any]]) -> list[Node]:
    runs: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for event in _own_time([e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]):
        name = event["name"].removesuffix("_kernel_time")
        runs[name, str(event["args"].get("node_index", ""))].append(event)
    return [_node(model, name, found) for (name, _), found in runs.items()]


def _own_time(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events in order, each without the time of those inside it: of the body's nodes for If, Loop and Scan."""
    ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    open_ones: list[tuple[float, dict[str, Any]]] = []
    for event in ordered:
        while open_ones and event["ts"] >= open_ones[-1][0]:
            open_ones.pop()
        end = event["ts"] + event["dur"]
        if open_ones and end <= open_ones[-1][0]:
            open_ones[-1][1]["dur"] -= event["dur"]
        open_ones.append((end, event))
    return ordered


def _node(model: str, name: str, runs: list[dict[str, Any]]) -> Node:
    """The median over the runs; inside a loop a node runs several times in a step, and its times add up."""
    per_step = max(1, len(runs) // (WARM_UP + MEASURED))
    steps = [sum(run["dur"] for run in runs[k : k + per_step]) for k in range(0, len(runs), per_step)]
    arguments = runs[-1]["args"]
    milliseconds = statistics.median(steps[WARM_UP:] or steps) / MICROSECONDS_PER_MILLISECOND
    return Node(model, name, arguments["op_name"], _shapes(arguments), milliseconds)


def _shapes(arguments: dict[str, Any]) -> str:
    """Like ``64×784, 500×784 → 64×500``."""

    def said(key: str) -> str:
        dims = [next(iter(one.values())) for one in arguments.get(key, [])]
        return ", ".join("×".join(map(str, shape)) or "·" for shape in dims)

    return f"{said('input_type_shape')} → {said('output_type_shape')}"


def show(found: Profile, title: str, count: int, console: Console) -> None:
    """Print the costliest operators and the costliest nodes."""
    total = found.kernels
    operators = Table(title=f"{title}: the {count} costliest operators of a step")
    for column in ("operator", "models"):
        operators.add_column(column)
    for column in ("nodes", "ms", "share"):
        operators.add_column(column, justify="right")
    for name, cost in list(found.by_operator().items())[:count]:
        share = f"{cost.milliseconds / total:.1%}"
        models = " + ".join(sorted(cost.models, reverse=True))
        operators.add_row(name, models, str(cost.nodes), f"{cost.milliseconds:.3f}", share)
    console.print(operators)
    nodes = Table(title=f"the {count} costliest nodes")
    for column in ("node", "operator", "model", "shapes"):
        nodes.add_column(column, overflow="fold")
    for column in ("ms", "share"):
        nodes.add_column(column, justify="right")
    for node in sorted(found.nodes, key=lambda n: -n.milliseconds)[:count]:
        share = f"{node.milliseconds / total:.1%}"
        nodes.add_row(node.name, node.operator, node.model, node.shapes, f"{node.milliseconds:.3f}", share)
    console.print(nodes)
    parts = {model: sum(n.milliseconds for n in found.nodes if n.model == model) for model in ("training", "optimizer")}
    console.print(
        f"A step takes {found.step_milliseconds:.2f} ms ({found.profiled_milliseconds:.2f} ms with the profiler); "
        f"{total:.2f} ms of it in {len(found.nodes)} kernels: "
        + ", ".join(f"{ms:.2f} ms in the {model} model" for model, ms in parts.items())
        + "."
    )
