"""How the gradient of each operator is made: by a rule, through a decomposition or a function body, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..graph import decomposition
from ..graph.schemas import find_schema
from ..graph.upgrade_forms import FORMS
from . import registry
from .functions import has_function_body
from .registry import NoGradient


class Way(str, Enum):
    """How a gradient is made."""

    RULE = "rule"
    DECOMPOSITION = "decomposition"
    FUNCTION_BODY = "function body"
    RAISED = "raised"
    NONE = "none"
    REFUSED = "refused"
    GAP = "gap"


@dataclass(frozen=True)
class Coverage:
    """The way of one operator; ``reason`` where it has none, ``family`` the module that says so."""

    way: Way
    family: str = ""
    reason: str = ""


def coverage(op_type: str, opset: int, domain: str = "") -> Coverage:
    """How the gradient of an operator is made at ``opset``: what the engine does, in its order."""
    entry = registry.find(op_type, domain)
    if isinstance(entry, NoGradient):
        return Coverage(Way.NONE, _family(entry.where), entry.reason)
    if entry is not None:
        return Coverage(Way.RULE, _family(entry.where))
    parts = decomposition.find(op_type, domain)
    if parts is not None:
        return Coverage(Way.DECOMPOSITION, _family(parts.where))
    if has_function_body(op_type, opset, domain):
        return Coverage(Way.FUNCTION_BODY)
    schema = find_schema(op_type, opset, domain)
    if schema is not None and schema.deprecated and not domain and op_type in FORMS:
        return Coverage(Way.RAISED)
    why = registry.refusal(op_type, domain)
    return Coverage(Way.GAP) if why is None else Coverage(Way.REFUSED, reason=why)


def _family(where: str) -> str:
    return Path(where.rpartition(":")[0]).stem
