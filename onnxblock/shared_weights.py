"""Weights that are trained as one because several layers read them, and weights that were one and are held apart."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Container, Iterable, MutableMapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add, or_

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto

from .graph.dependencies import subgraphs
from .graph.storage import element_bits
from .graph.types import FLOATS
from .graph.weights import Weights, beginning

_SHOWN = 5
_COMPARED = 8


@dataclass(frozen=True)
class WeightSharing:
    """What the layers of a model share.

    ``shared`` are the initializers that are used at several places: parts of a layer that is called several times, or
    equal tensors that an exporter has merged.  An embedding table that is the output layer too is not among them.
    ``untied`` are embedding tables, each with the transpose of itself that an exporter wrote for the output layer.
    """

    shared: tuple[str, ...]
    untied: tuple[tuple[str, str], ...]

    def notes(self, trained: Container[str]) -> list[str]:
        """What there is to be said of the weights that are trained."""
        said = []
        together = [name for name in self.shared if name in trained]
        if together:
            more = f" and {len(together) - _SHOWN} more" if len(together) > _SHOWN else ""
            said.append(
                f"{', '.join(together[:_SHOWN])}{more}: used at several places, and trained as one. Where those are "
                "not one layer, the exporter merged equal tensors of an untrained model: PyTorch's keeps them apart "
                "with optimize=False"
            )
        for table, matrix in self.untied:
            if table in trained and matrix in trained:
                said.append(
                    f"{table} and {matrix}: each the transpose of the other, and trained apart. If the model ties "
                    "them, PyTorch's exporter keeps them one with optimize=False, the older with "
                    "do_constant_folding=False"
                )
        return said


def weight_sharing(model: ModelProto, weights: Weights) -> WeightSharing:
    """Find both; of the weights, the first rows of embedding tables and of what may be their transposes are read."""
    floats = {t.name: t for t in model.graph.initializer if t.data_type in FLOATS}
    made_of = {t.name: frozenset([t.name] if t.name in floats else []) for t in model.graph.initializer}
    uses = _uses(model.graph.node, made_of)
    matrices = {name: t for name, t in floats.items() if len(t.dims) == 2}
    tables = [t for name, t in matrices.items() if uses[name, "lookup"]]
    others = [t for name, t in matrices.items() if not uses[name, "lookup"]]
    return WeightSharing(
        shared=tuple(name for name in floats if uses[name, "lookup"] > 1 or uses[name, "other"] > 1),
        untied=tuple((a.name, b.name) for a, b in product(tables, others) if _are_transposes(a, b, weights)),
    )


def _uses(nodes: Iterable[NodeProto], made_of: MutableMapping[str, frozenset[str]]) -> Counter[tuple[str, str]]:
    """How many nodes bring each weight together with data, and how many of them look up rows of it.

    ``made_of`` has the weights that a value is computed from, for the values that no data goes into.
    """
    uses = Counter[tuple[str, str]]()
    for node in nodes:
        bodies = [_uses(body.node, ChainMap({}, made_of)) for body in subgraphs(node)]
        # One branch of an If runs.
        uses += reduce(or_ if node.op_type == "If" else add, bodies, Counter())
        of_the_shape = node.op_type in {"Shape", "Size"}
        weights = frozenset().union(*(made_of.get(name, ()) for name in node.input if not of_the_shape))
        if not bodies and all(name in made_of for name in node.input if name):
            made_of.update(dict.fromkeys(node.output, weights))
        else:
            uses.update((name, "lookup" if node.op_type == "Gather" else "other") for name in weights)
    return uses


def _are_transposes(table: TensorProto, matrix: TensorProto, weights: Weights) -> bool:
    if table.data_type != matrix.data_type or list(table.dims) != list(reversed(matrix.dims)) or not min(table.dims):
        return False
    first, second = _corner(table, weights), _corner(matrix, weights)
    return bool((first == second.T).all() and (first != first[0, 0]).any())


def _corner(matrix: TensorProto, weights: Weights) -> npt.NDArray[np.void]:
    """The first elements of the first rows, as they are stored."""
    rows, columns = min(matrix.dims[0], _COMPARED), matrix.dims[1]
    element = np.dtype((np.void, element_bits(matrix.data_type) // 8))
    data = beginning(matrix, weights, rows * columns * element.itemsize)
    return np.frombuffer(data, element).reshape(rows, columns)[:, :_COMPARED]
