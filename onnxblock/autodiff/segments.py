"""Which parts of a forward graph to compute again: by the names of nodes, at narrow places, or within a budget."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from onnx import NodeProto

from ..errors import ArgumentError, UnknownNameError, did_you_mean
from .retention import Recomputed, Retention, Segment
from .trace import key_of

_COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
_SCOPES_KEY = "pkg.torch.onnx.name_scopes"
_MIB = 2**20


def by_name(retention: Retention, patterns: Sequence[str]) -> list[Recomputed]:
    """One segment for each path that one of ``patterns`` matches.

    The path of a node is its name cut off at a slash, or a module that PyTorch's exporter wrote down for it; ``*``
    stands for any part between slashes.  The shortest path that matches counts, by the first pattern that has one.
    Nodes that are matched by their whole names, and follow each other, are one segment.

    Raises :class:`UnknownNameError` when a pattern matches nothing; all such are listed.  Raises
    :class:`ArgumentError` when nothing of what they match can be computed again.
    """
    places: dict[str, list[int]] = {}
    compiled = list(map(_expression, patterns))
    used: set[str] = set()
    seen: dict[str, None] = {}
    run = ""  # the segment of the node before, where its whole name was matched
    for k, node in enumerate(retention.nodes):
        paths, whole = list(_paths(node)), node.name or key_of(node)
        seen.update(dict.fromkeys(paths))
        pattern, path = next(((p, path) for p, e in compiled for path in paths if e.fullmatch(path)), ("", ""))
        used.add(pattern)
        run = (run or path) if path == whole else ""
        if path:
            places.setdefault(run or path, []).append(k)
    wrong = [p for p in patterns if p not in used]
    if wrong:
        raise UnknownNameError(
            "recompute names what the model does not have:\n    "
            + "\n    ".join(f"no node has the path {p!r}.{did_you_mean(p, seen)}" for p in wrong),
            "Give names of nodes, or the beginning of names up to a slash, with * for what varies: '/encoder/layer.*'.",
        )
    made = _all_again(retention, (Segment(name, tuple(found)) for name, found in places.items()))
    if not made:
        raise ArgumentError(
            f"nothing of {', '.join(map(repr, patterns))} can be computed again.",
            "What is random, what comes out of control flow and what other nodes read is kept: name whole blocks.",
        )
    return made


def _expression(pattern: str) -> tuple[str, re.Pattern[str]]:
    text = re.escape(pattern.strip("/")).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return pattern, re.compile("/?" + text)


def _paths(node: NodeProto) -> Iterable[str]:
    """The paths of a node, the shortest first."""
    name = node.name or key_of(node)
    yield from (name[: m.start()] for m in re.finditer("(?<=.)/", name))
    yield name
    for entry in node.metadata_props:
        if entry.key == _SCOPES_KEY:
            yield from filter(None, re.findall("'([^']*)'", entry.value))


def automatic(retention: Retention) -> list[Recomputed]:
    """The segments, cut at narrow places, that leave the least memory; what comes last is not computed again."""
    return min(_divisions(retention), key=retention.peak, default=[])


def within(retention: Retention, budget: int) -> list[Recomputed]:
    """The least work that brings what is kept, and the largest part that is computed again, down to ``budget`` bytes.

    Raises :class:`ArgumentError` when nothing does.
    """
    if retention.peak([]) <= budget:
        return []
    found: list[tuple[float, list[Recomputed]]] = []
    least = retention.peak([])
    for division in _divisions(retention):
        least = min(least, retention.peak(division))
        chosen: list[Recomputed] = []
        for part in sorted(division, key=lambda part: part.work / (1 + retention.memory(part.wanted))):
            chosen.append(part)
            if retention.peak(chosen) <= budget:
                found.append((sum(part.work for part in chosen), chosen))
                break
    if not found:
        raise ArgumentError(
            f"recompute={budget} bytes cannot be reached: at least {least} ({least / _MIB:.1f} MiB) are kept for the "
            "gradient.",
            f"Give at least {least}, or recompute=True for the least.",
        )
    return min(found, key=lambda pair: pair[0])[1]


def _divisions(retention: Retention) -> Iterable[list[Recomputed]]:
    """The forward part cut into various numbers of segments, as equal in what they keep as narrow places allow."""
    count = len(retention.nodes)
    crossing = retention.crossing()
    sums, total = [], 0
    for node in retention.nodes:
        sums.append(total)
        total += sum(retention.size(name) for name in node.output if name in retention.needed)
    done: set[tuple[int, ...]] = set()
    for parts in _COUNTS:
        cuts = [0]
        for k in range(1, parts):
            wanted = total * k / parts
            near = [p for p in range(cuts[-1] + 1, count) if abs(sums[p] - wanted) * 3 <= total / parts]
            if near:
                cuts.append(min(near, key=lambda p: (crossing[p], abs(sums[p] - wanted))))
        if len(cuts) > 1 and tuple(cuts) not in done:
            done.add(tuple(cuts))
            # what lies behind the last cut has its gradient at once
            segments = [Segment(_title(retention, a), tuple(range(a, b))) for a, b in pairwise(cuts)]
            again = _all_again(retention, segments)
            if again:
                yield again


def _title(retention: Retention, place: int) -> str:
    node = retention.nodes[place]
    return f"from {node.name or key_of(node)}"


def _all_again(retention: Retention, segments: Iterable[Segment]) -> list[Recomputed]:
    made = map(retention.again, segments)
    return [part for part in made if part is not None]
