"""Which operator has which gradient rule, and which has none by nature."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..errors import DuplicateRuleError
from ..graph.decomposition import require_operator_names
from ..graph.value import Value

if TYPE_CHECKING:
    from .rule import RuleContext


@dataclass(frozen=True)
class Cotangents:
    """What the rule of a node with bodies returns: also what belongs to the outer values that the bodies read."""

    inputs: Sequence[Value | None]
    captured: Mapping[str, Value]


ANY = "*"
"""Stands for every operator of a domain that has no entry of its own."""

RuleResult: TypeAlias = "Value | Sequence[Value | None] | Cotangents | None"
RuleFunction: TypeAlias = "Callable[[RuleContext], RuleResult]"


@dataclass(frozen=True)
class Rule:
    """The gradient of an operator: a function from what the node did to the cotangents of its inputs."""

    op_type: str
    domain: str
    function: RuleFunction
    where: str


@dataclass(frozen=True)
class NoGradient:
    """A statement that an operator passes no gradient back, and why."""

    op_type: str
    domain: str
    reason: str
    where: str


_entries: dict[tuple[str, str], Rule | NoGradient] = {}
_refusals: dict[tuple[str, str], str] = {}


def gradient(*op_types: str, domain: str = "") -> Callable[[RuleFunction], RuleFunction]:
    """Register a function as the gradient of one or more operators.

    The function is given a :class:`RuleContext` ``g`` and returns the cotangent of each input in order: one value, or a
    sequence with None where there is no gradient, or :class:`Cotangents` for an operator with bodies.  It is the
    mathematics only: broadcasting, accumulation, element types and names are the engine's.  Raises
    :class:`DuplicateRuleError` when an operator already has an entry, and :class:`ArgumentError` for what is no name of
    an operator.
    """
    require_operator_names("gradient", op_types)

    def register(function: RuleFunction) -> RuleFunction:
        where = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        for op_type in op_types:
            _enter(Rule(op_type, domain, function, where))
        return function

    return register


def no_gradient(*op_types: str, reason: str, domain: str = "") -> None:
    """State that operators pass no gradient back, with the reason; raises as :func:`gradient` does."""
    require_operator_names("no_gradient", op_types)
    # Not inspect.stack(), which goes through every module that was ever imported: seconds beside large libraries.
    caller = sys._getframe(1)  # noqa: SLF001
    for op_type in op_types:
        _enter(NoGradient(op_type, domain, reason, f"{caller.f_code.co_filename}:{caller.f_lineno}"))


def refuse(*op_types: str, reason: str, domain: str) -> None:
    """Say of operators that would have a gradient why there is none: a model that needs it is an error."""
    _refusals.update(((domain, op_type), reason) for op_type in op_types)


def refusal(op_type: str, domain: str = "") -> str | None:
    """Why an operator without an entry has none, where that is known."""
    _load_rules()
    return _refusals.get((_standard(domain), op_type))


def _enter(entry: Rule | NoGradient) -> None:
    key = (entry.domain, entry.op_type)
    if key in _entries:
        raise DuplicateRuleError(
            f"{entry.op_type} of domain {entry.domain or 'ai.onnx'!r} already has an entry, at {_entries[key].where}; "
            f"{entry.where} adds a second one.",
            "Remove the old one first with onnxblock.autodiff.registry.forget(op_type, domain).",
        )
    _entries[key] = entry


def forget(op_type: str, domain: str = "") -> None:
    """Remove the entry of an operator, so that another can be registered."""
    _load_rules()
    _entries.pop((_standard(domain), op_type), None)


def find(op_type: str, domain: str = "") -> Rule | NoGradient | None:
    """The entry of an operator, or None where nobody wrote one."""
    _load_rules()
    domain = _standard(domain)
    return _entries.get((domain, op_type)) or _entries.get((domain, ANY))


def entries() -> Iterator[Rule | NoGradient]:
    """Every entry of one operator, in the order of domain and name."""
    _load_rules()
    return iter([_entries[key] for key in sorted(_entries) if key[1] != ANY])


def _standard(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _load_rules() -> None:
    from . import rules  # noqa: F401 - importing the package registers its rules
