"""Measures what training costs, beside everything that could be used instead.

``python -m benchmarks`` measures all parts with all engines; the figures go to ``results.json`` in the output folder,
which keeps the parts that are not measured again, and a picture to ``results.png``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .engines import ENGINES, OURS, TORCH
from .workloads import SIZES, WORKLOADS

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 180  # of what is not printed to a terminal
GENERATION = "generation"
PARTS = (*WORKLOADS, GENERATION)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure, and print tables (the default)")
    run.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"of {', '.join(PARTS)}")
    run.add_argument(
        "--engines",
        nargs="+",
        choices=ENGINES,
        default=list(ENGINES),
        metavar="ENGINE",
        help=f"of {', '.join(ENGINES)}",
    )
    run.add_argument("--rounds", type=int, default=15, help="how often each engine is measured (default 15)")
    profile = commands.add_parser("profile", help="the costliest operators of a training step of onnxblock")
    profile.add_argument("workload", choices=[name for name, one in WORKLOADS.items() if not one.only_optimizer])
    profile.add_argument("--count", type=int, default=10, help="how many to name")
    for command in (run, profile):
        command.add_argument(
            "--size", choices=SIZES, default="full", help="tiny only shows that all runs (default full)"
        )
        command.add_argument("--threads", type=int, default=2, help="of each engine (default 2)")
    report = commands.add_parser("report", help="print the tables of what was measured before, and draw the picture")
    for command in (run, profile, report):
        command.add_argument(
            "--output", type=Path, default=ROOT / "out" / "benchmarks", help="folder (default out/benchmarks)"
        )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; returns 1 when onnxblock or PyTorch could not run something."""
    known = {"run", "profile", "report", "-h", "--help"}
    chosen = _parser().parse_args(arguments if arguments and arguments[0] in known else ["run", *arguments])
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    if chosen.command == "profile":
        return _profile(chosen, console)
    if chosen.command == "report":
        return _report(chosen.output, console)
    return _run(chosen, console)


def _run(chosen: argparse.Namespace, console: Console) -> int:
    from .generation import measure as measure_generation
    from .measure import Plan, measure

    chosen.output.mkdir(parents=True, exist_ok=True)
    failed = False
    with console.status("") as status:
        plan = Plan(chosen.size, chosen.rounds, chosen.threads, chosen.output, status.update)
        for name in chosen.parts or PARTS:
            if name == GENERATION:
                part = measure_generation(plan)
            else:
                part = measure(WORKLOADS[name], chosen.engines, plan)
                failed |= any(part["engines"].get(engine, {}).get("error") for engine in (OURS, TORCH))
            _keep(chosen.output / "results.json", name, part)
    return _report(chosen.output, console) or int(failed)


def _keep(path: Path, name: str, part: object) -> None:
    """Put a part among the results of earlier runs."""
    kept = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else {}
    kept[name] = part
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    parts = {name: kept[name] for name in PARTS if name in kept}
    path.write_text(json.dumps({"machine": machine, "parts": parts}, indent=1), encoding="utf-8")


def _report(output: Path, console: Console) -> int:
    from .report import draw, tables

    path = output / "results.json"
    if not path.exists():
        console.print(f"There is no {path}: run something first.")
        return 1
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"]
    tables(parts, console)
    draw(parts, output / "results.png")
    console.print(f"{path} and {output / 'results.png'} are written.")
    return 0


def _profile(chosen: argparse.Namespace, console: Console) -> int:
    from .prepare import prepare
    from .profiling import profile, show

    workload = WORKLOADS[chosen.workload]
    folder = prepare(workload, chosen.size, (chosen.output / "work" / f"{workload.name}-{chosen.size}").resolve())
    show(profile(folder, chosen.threads), workload.title, chosen.count, console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
