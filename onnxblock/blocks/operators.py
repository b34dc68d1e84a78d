"""Every operator of the default domain as a block class, made when first asked for.

``operators.pyi`` beside this file declares them for editors and type checkers; ``tools/make_stubs.py`` writes it.
"""

from __future__ import annotations

from typing import Any

from ..errors import did_you_mean
from ..graph.schemas import NEWEST_OPSET, operator_names
from .operator import operator_block


def __getattr__(name: str) -> Any:
    known = operator_names(NEWEST_OPSET)
    if name not in known:
        raise AttributeError(f"there is no block {name!r} and no operator of that name." + did_you_mean(name, known))
    made = operator_block(name, __name__)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return list(operator_names(NEWEST_OPSET))
