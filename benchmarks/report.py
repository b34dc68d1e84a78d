"""Tables for people, and a picture."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .engines import ENGINES, OURS
from .statistics import median
from .verdicts import Results, compare, fastest_eager, verdicts

NOTHING = "–"
LONGEST_ERROR = 180  # in a table; the results have more of it


def tables(results: Results, console: Console) -> None:
    """Print a table for each part, and the bars."""
    for part in results.values():
        if "engines" in part:
            console.print(_engines(part))
    if "generation" in results:
        console.print(_figures(results["generation"]["details"]))
    bars = _bars(results)
    if bars.row_count:
        console.print(bars)


def _engines(part: dict[str, Any]) -> Table:
    engines = part["engines"]
    eager = fastest_eager(engines)
    rounds = max((len(one["times"]) for one in engines.values()), default=0)
    table = Table(title=f"{part['title']} ({part['size']}, {part['threads']} threads, {rounds} rounds)")
    table.add_column("engine", no_wrap=True)
    for column in (
        "ms a step",
        "of PyTorch",
        "IQR",
        "onnxblock of it",
        "MiB",
        "late imports",
        "generate s",
        "load s",
        "import s",
    ):
        table.add_column(column, justify="right")
    if any(one["error"] for one in engines.values()):
        table.add_column("why not", overflow="fold")
    for name, one in engines.items():
        title = ENGINES[name].title
        if one["error"]:
            table.add_row(title, "error", *[NOTHING] * 8, Text(shorten(one["error"], LONGEST_ERROR), style="red"))
            continue
        reference = compare(engines, name, eager) if eager else None
        ours = compare(engines, OURS, name)
        memory = NOTHING if one["memory"] is None else f"{one['memory']:.0f}"
        late = f"{one['late_imports']:.0f}" if one["late_imports"] else NOTHING
        table.add_row(
            title + (" *" if name == eager else ""),
            f"{median(one['times']) * 1e3:.3f}",
            f"{reference.median:.2f}" if reference else NOTHING,
            f"{reference.spread:.2f}" if reference else NOTHING,
            f"{ours.median:.2f}" if ours else NOTHING,
            memory,
            late,
            *(NOTHING if one[key] is None else f"{one[key]:.2f}" for key in ("generation", "load", "imports")),
        )
    return table


def _figures(details: list[list[str]]) -> Table:
    table = Table(title="Generation")
    for column in ("what", "figure"):
        table.add_column(column)
    for what, figure in details:
        table.add_row(what, figure)
    return table


def _bars(results: Results) -> Table:
    table = Table(title="Bars")
    for column in ("what", "against", "bar", "figure", ""):
        table.add_column(column)
    said = {True: Text("met", style="green"), False: Text("not met", style="bold red"), None: Text("")}
    for one in verdicts(results):
        if one.met is not None:
            table.add_row(one.what, one.against, one.bar, one.figure, said[one.met])
    return table


def draw(results: Results, path: Path) -> None:
    """A picture of the step times and the peak memory, as ratios to PyTorch eager."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    parts = {name: part["engines"] for name, part in results.items() if "engines" in part}
    parts = {name: engines for name, engines in parts.items() if fastest_eager(engines)}
    shown = [name for name in ENGINES if any(name in engines for engines in parts.values())]
    if not parts:
        return
    figure, axes = plt.subplots(1, 2, figsize=(13, 1.5 + 0.9 * len(parts)), layout="constrained", sharey=True)
    height = 0.8 / len(shown)
    for place, name in enumerate(shown):
        color = f"C{place}"
        for row, engines in enumerate(parts.values()):
            one, eager = engines.get(name), fastest_eager(engines)
            if one is None or one["error"] or eager is None:
                continue
            at = row + (place - len(shown) / 2 + 0.5) * height
            measured = compare(engines, name, eager)
            assert measured is not None
            axes[0].barh(at, measured.median, height, xerr=measured.spread / 2, color=color)
            if one["memory"] is not None and engines[eager]["memory"]:
                axes[1].barh(at, one["memory"] / engines[eager]["memory"], height, color=color)
        axes[0].barh(0, 0, color=color, label=ENGINES[name].title)
    for axis, title in zip(axes, ("time of a step", "peak memory"), strict=True):
        axis.axvline(1, color="0.4", linewidth=0.8)
        axis.set(title=f"{title}, of PyTorch eager", xscale="log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("{x:g}")
        axis.tick_params(axis="x", which="both", labelsize=8, rotation=45)
        axis.grid(axis="x", which="both", color="0.9")
        axis.set_axisbelow(True)
    axes[0].set_yticks(range(len(parts)), parts)
    axes[0].invert_yaxis()
    figure.legend(loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=130)
    plt.close(figure)
