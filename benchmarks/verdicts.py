"""Which bars the results meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import bars
from .engines import EAGER, ORIGINAL, OURS
from .statistics import Ratio, ratio
from .workloads import WORKLOADS

Results = dict[str, Any]
"""The parts of a benchmark by name, as :func:`benchmarks.measure.measure` gives them."""


@dataclass(frozen=True)
class Verdict:
    """A bar, the figure beside it, and whether it is met; None when it was not measured."""

    what: str
    against: str
    bar: str
    figure: str
    met: bool | None


def compare(engines: dict[str, Any], name: str, other: str) -> Ratio | None:
    """The ratio of the times of two engines, if both ran."""
    pair = [engines.get(one, {}) for one in (name, other)]
    if any(one.get("error") or not one.get("times") for one in pair):
        return None
    return ratio(pair[0]["times"], pair[1]["times"])


def fastest_eager(engines: dict[str, Any]) -> str | None:
    """The faster of PyTorch's eager settings."""
    ran = [name for name in EAGER if name in engines and compare(engines, name, name) is not None]
    return min(
        ran, key=lambda name: float(sorted(engines[name]["times"])[len(engines[name]["times"]) // 2]), default=None
    )


def verdicts(results: Results) -> list[Verdict]:
    """All bars, in the order of the workloads; what was measured at another size than the full one does not count."""
    results = {name: part for name, part in results.items() if part["size"] == "full"}
    found: list[Verdict] = []
    for name, workload in WORKLOADS.items():
        engines = results.get(name, {}).get("engines", {})
        if workload.only_optimizer:
            limits = list(bars.OPTIMIZER_AGAINST.items())
        else:
            limits = [(fastest_eager(engines) or EAGER[0], bars.STEP_AGAINST_EAGER[name])]
            limits += bars.STEP_AGAINST_OTHERS.items()
        found += [_time(workload.title, engines, other, bar) for other, bar in limits]
        if not workload.only_optimizer:
            found.append(_memory(workload.title, engines))
    return found + list(_generation(results.get("generation", {}).get("figures", {})))


def _time(title: str, engines: dict[str, Any], other: str, bar: float) -> Verdict:
    measured = compare(engines, OURS, other)
    what, against, limit = f"{title}: time", other, f"≤ {bar:g} ×"
    if measured is not None:
        return Verdict(what, against, limit, str(measured), measured.meets(bar))
    if engines.get(other, {}).get("error") and not engines.get(OURS, {}).get("error"):
        return Verdict(what, against, limit, "does not run it", True)
    return Verdict(what, against, limit, "not measured", None)


def _memory(title: str, engines: dict[str, Any]) -> Verdict:
    original = engines.get(ORIGINAL, {})
    runs = original.get("memory") is not None and not original.get("error")
    other = ORIGINAL if runs else fastest_eager(engines) or EAGER[0]
    bar = bars.MEMORY_AGAINST_ORIGINAL if runs else bars.MEMORY_AGAINST_EAGER
    what, limit = f"{title}: memory", f"≤ {bar:g} ×"
    pair = [engines.get(name, {}) for name in (OURS, other)]
    if any(one.get("error") or one.get("memory") is None for one in pair):
        return Verdict(what, other, limit, "not measured", None)
    ours, theirs = (one["memory"] for one in pair)
    return Verdict(what, other, limit, f"{ours / theirs:.2f} ({ours:.0f} of {theirs:.0f} MiB)", ours <= bar * theirs)


def _generation(figures: dict[str, float]) -> Iterator[Verdict]:
    for limit in bars.GENERATION:
        said = f"≤ {limit.most:g} {limit.unit}".rstrip()
        if limit.figure in figures:
            value = figures[limit.figure]
            yield Verdict(limit.title, "", said, f"{value:.2f} {limit.unit}".rstrip(), value <= limit.most)
        else:
            yield Verdict(limit.title, "", said, "not measured", None)
