"""The gradient of Einsum: Einsum again, with the letters put round."""

from __future__ import annotations

import functools
import string
from collections.abc import Sequence

import numpy as np

from ...graph.arithmetic import shape_of, with_shape_of
from ...graph.separable import identity
from ...graph.types import same_shape
from ...graph.value import Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext

_REST = "."  # one letter for "...", where the number of axes it stands for is not known


@gradient("Einsum")
def einsum(g: RuleContext) -> RuleResult:
    """For y = einsum("ij,jk->ik", a, b): da = einsum("ik,jk->ij", dy, b), and so for any operand.

    1. A letter that only this operand has was summed over: its axis is stretched again.  2. A letter that this operand
    has twice reads a diagonal: the second becomes a letter of its own, tied to the first by an identity matrix.
    3. Where the rank is known, "..." is letters too.  4. Operands and results without letters are factors.
    """
    terms, output = _read(g.attr("equation"), [x.rank for x in g.inputs])
    return [_operand(g, k, terms, output) if g.wants(k) else None for k in range(len(terms))]


def _operand(g: RuleContext, k: int, terms: list[str], output: str) -> Value:
    op, x = g.op, g.inputs[k]
    target, ties = _untied(terms[k], "".join((*terms, output)))
    sources = [(output, g.dy), *((t, v) for j, (t, v) in enumerate(zip(terms, g.inputs, strict=True)) if j != k)]
    sources += [(first + second, identity(_size(x, terms[k], at), x.dtype)) for at, first, second in ties]
    there = {letter for term, _ in sources for letter in term}
    kept = "".join(letter for letter in target if letter in there)
    if _REST in there and _REST not in target:
        kept = _REST + kept
    named = [(term, value) for term, value in sources if term]
    factors = [value for term, value in sources if not term]
    if named:
        factors.insert(0, op.Einsum(*(v for _, v in named), equation=_write([t for t, _ in named], kept)))
    d = functools.reduce(lambda a, b: a * b, factors)
    absent = [at for at, letter in enumerate(target) if letter not in there]
    if absent:
        # The letter for the rest may stand for any number of axes: counted from the end, or from the front before it.
        places = [at if _REST in target[at:] else at - len(target) for at in absent]
        d = op.Unsqueeze(d, np.array(places, np.int64))
    if not absent and _sizes_agree(terms, [v.shape for v in g.inputs]):
        return with_shape_of(d, x)
    return d if same_shape(d.shape, x.shape) else op.Expand(d, shape_of(x))


def _read(equation: str, ranks: Sequence[int | None]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, one for each axis."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        output = "".join(sorted(c for c in set(left) - {",", "."} if left.count(c) == 1))
        output = ("..." if "..." in left else "") + output
    terms, output = [t.replace("...", _REST) for t in terms], output.replace("...", _REST)
    # It stands for the same number of axes everywhere.
    counts = [rank - len(t) + 1 for t, rank in zip(terms, ranks, strict=True) if _REST in t and rank is not None]
    if counts:
        rest = "".join(_unused("".join(terms))[: counts[0]])
        terms, output = [t.replace(_REST, rest) for t in terms], output.replace(_REST, rest)
    return terms, output


def _write(terms: Sequence[str], output: str) -> str:
    return (",".join(terms) + "->" + output).replace(_REST, "...")


def _unused(used: str) -> list[str]:
    return [c for c in string.ascii_letters if c not in used]


def _untied(term: str, used: str) -> tuple[str, list[tuple[int, str, str]]]:
    """The term with every letter once, and (axis, first letter, new letter) for each that was there before."""
    fresh = iter(_unused(used))
    letters: list[str] = []
    ties = []
    for at, letter in enumerate(term):
        if letter in letters:
            new = next(fresh)
            ties.append((at, letter, new))
            letters.append(new)
        else:
            letters.append(letter)
    return "".join(letters), ties


def _size(x: Value, term: str, at: int) -> Value:
    """The size of one axis as a vector of one element; counted from the end behind the letter for the rest."""
    axis = at if _REST not in term[:at] else at - len(term)
    size: Value = x.graph.op.Gather(shape_of(x), np.array([axis], np.int64))
    return size


def _sizes_agree(terms: Sequence[str], shapes: Sequence[Sequence[object] | None]) -> bool:
    """Whether every letter certainly stands for one size, so that nothing of size 1 is stretched."""
    sizes: dict[str, object] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if shape is None or len(shape) != len(term) or _REST in term:
            return False
        for letter, size in zip(term, shape, strict=True):
            if size is None or sizes.setdefault(letter, size) != size:
                return False
    return True
