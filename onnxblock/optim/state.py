"""What an optimizer remembers of a parameter from one step to the next."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from ..graph.graph import Graph
from ..graph.types import Shape
from ..names import INITIAL_STATES_KEY


@dataclass(frozen=True)
class State:
    """One state: its shape, and the value that its elements start with (a number, or the parameter itself)."""

    shape: Shape
    initial: float | Literal["parameter"] = 0.0


def record_initial(graph: Graph, initial: dict[str, float | str]) -> None:
    """Write into the model's metadata which states do not start at zero, for whoever prepares them."""
    if initial:
        text = json.dumps(initial, sort_keys=True, separators=(",", ":"))
        graph.model.metadata_props.add(key=INITIAL_STATES_KEY, value=text)
