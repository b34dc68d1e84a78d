"""Measures one workload: every engine in processes of its own, times in alternating rounds."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .engines import ENGINES, TORCH, EngineInfo
from .environments import EnvironmentUnavailableError, python_of
from .prepare import prepare
from .process import WorkerError, WorkerProcess
from .statistics import median
from .workloads import Size, Workload

ROUND_SECONDS: dict[Size, float] = {"full": 0.5, "tiny": 0.02}
MOST_STEPS = 2000
CHECKED_STEPS = 5
# Losses of the first steps, relative: the first says that the model is the same; the later ones tell whether gradients
# and updates are, which let rounding grow (Adam divides small gradients by their own size).
FIRST_LOSS, LATER_LOSSES = 1e-4, 1e-2


@dataclass(frozen=True)
class Plan:
    """How to measure."""

    size: Size
    rounds: int
    threads: int
    output: Path
    report: Callable[[str], None]


@dataclass
class Outcome:
    """What is known of one engine; ``error`` when it could not run."""

    times: list[float] = field(default_factory=list)
    steps_per_round: int = 0
    losses: list[float] = field(default_factory=list)
    memory: float | None = None
    late_imports: float | None = None
    generation: float | None = None
    load: float | None = None
    imports: float | None = None
    version: str = ""
    error: str = ""


def interesting(engine: EngineInfo, workload: Workload) -> bool:
    """Whether the engine is of interest for the workload."""
    wanted = {"", "optimizer" if workload.only_optimizer else "step"}
    return engine.only in wanted or (engine.only == "images" and workload.images)


def measure(workload: Workload, engines: Sequence[str], plan: Plan) -> dict[str, Any]:
    """Measure a workload with the engines of these names; the result can be written as JSON."""
    plan.report(f"{workload.name}: exporting")
    folder = prepare(workload, plan.size, (plan.output / "work" / f"{workload.name}-{plan.size}").resolve())
    chosen = [ENGINES[name] for name in engines if interesting(ENGINES[name], workload)]
    outcomes = {engine.name: Outcome() for engine in chosen}
    command = "updates" if workload.only_optimizer else "steps"
    with ExitStack() as stack:
        workers: dict[str, WorkerProcess] = {}
        for engine in chosen:
            plan.report(f"{workload.name}: starting {engine.name}")
            try:
                workers[engine.name] = _start(engine, folder, plan, outcomes[engine.name], stack, command)
            except (WorkerError, EnvironmentUnavailableError) as error:
                outcomes[engine.name].error = str(error)
        _check_losses(outcomes)
        _rounds(workload, command, workers, outcomes, plan)
    return {
        "title": workload.title,
        "size": plan.size,
        "threads": plan.threads,
        "when": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "engines": {name: vars(outcome) for name, outcome in outcomes.items()},
    }


def _start(
    engine: EngineInfo, folder: Path, plan: Plan, outcome: Outcome, stack: ExitStack, command: str
) -> WorkerProcess:
    """Generate, measure the memory, and leave a process ready for rounds; fills all of ``outcome`` but the times."""
    python = python_of(engine.environment, plan.output / "environments")
    imports = []

    def process() -> WorkerProcess:
        return WorkerProcess(python, engine, folder, plan.threads, folder / f"{engine.name}.log")

    def import_in(worker: WorkerProcess) -> None:
        answer = worker.tell("imports")
        imports.append(answer["seconds"])
        outcome.version = answer["version"]

    with process() as worker:
        import_in(worker)
        outcome.generation = worker.tell("generate")["seconds"]
    with process() as worker:
        import_in(worker)
        answer = worker.tell("memory")
        outcome.memory, outcome.late_imports = answer["mebibytes"], answer["late_imports"]
    worker = stack.enter_context(process())
    import_in(worker)
    outcome.imports = median(imports)
    answer = worker.tell("load")
    outcome.load, outcome.losses = answer["seconds"], answer["losses"]
    if command == "updates":
        worker.tell("updates", count=2)  # shows in the losses that follow
    outcome.losses += worker.tell("steps", count=CHECKED_STEPS - 1)["losses"]
    outcome.steps_per_round = _steps_per_round(worker, command, ROUND_SECONDS[plan.size])
    return worker


def _steps_per_round(worker: WorkerProcess, command: str, wanted: float) -> int:
    """As many as a round of ``wanted`` seconds has, by two tries: the first few may be slow."""
    seconds = wanted
    for _ in range(2):
        count = min(MOST_STEPS, max(1, math.ceil(wanted / 5 / seconds)))
        seconds = worker.tell(command, count=count)["seconds"]
    return min(MOST_STEPS, max(1, round(wanted / seconds)))


def _check_losses(outcomes: dict[str, Outcome]) -> None:
    """An engine that computes something else than PyTorch has no time worth telling."""
    expected = outcomes.get(TORCH, Outcome(error="not asked for"))
    if expected.error:
        return
    for outcome in outcomes.values():
        if not outcome.error and (wrong := difference(outcome.losses, expected.losses)):
            outcome.error = wrong


def difference(losses: Sequence[float], expected: Sequence[float]) -> str:
    """How the losses of the first steps differ from PyTorch's; empty when they do not."""
    tolerances = [FIRST_LOSS] + [LATER_LOSSES] * (len(expected) - 1)
    if np.all(np.abs(np.subtract(losses, expected)) <= np.multiply(tolerances, np.abs(expected))):
        return ""
    said = (", ".join(f"{loss:.5f}" for loss in values) for values in (losses, expected))
    return "computes something else: losses {} where PyTorch has {}".format(*said)


def _rounds(
    workload: Workload, command: str, workers: dict[str, WorkerProcess], outcomes: dict[str, Outcome], plan: Plan
) -> None:
    """Fill in the times.  The order turns from round to round; an engine that fails is left out from there on."""
    for number in range(plan.rounds):
        plan.report(f"{workload.name}: round {number + 1} of {plan.rounds}")
        names = [name for name in workers if not outcomes[name].error]
        turn = number % max(1, len(names))
        for name in names[turn:] + names[:turn]:
            outcome = outcomes[name]
            try:
                outcome.times.append(workers[name].tell(command, count=outcome.steps_per_round)["seconds"])
            except WorkerError as error:
                outcome.error = str(error)
