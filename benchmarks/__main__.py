"""The command line: ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .workloads import SIZES, WORKLOADS

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 160  # of what is not printed to a terminal


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    profile = commands.add_parser("profile", help="the costliest operators of a training step of onnxblock")
    profile.add_argument("workload", choices=WORKLOADS)
    profile.add_argument("--count", type=int, default=10, help="how many to name")
    for command in (profile,):
        command.add_argument("--size", choices=SIZES, default="full")
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--output", type=Path, default=ROOT / "out" / "benchmarks")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    _profile(chosen, console)
    return 0


def _profile(chosen: argparse.Namespace, console: Console) -> None:
    from .prepare import prepare
    from .profiling import profile, show

    workload = WORKLOADS[chosen.workload]
    folder = prepare(workload, chosen.size, (chosen.output / "work" / f"{workload.name}-{chosen.size}").resolve())
    show(profile(folder, chosen.threads), workload.title, chosen.count, console)


if __name__ == "__main__":
    sys.exit(main())
