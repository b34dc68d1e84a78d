"""The gradients inside a fused step, in the pieces that the optimizer takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from . import names
from .graph.added_rows import UsedRows, used_rows
from .graph.dependencies import reads
from .graph.graph import Graph
from .graph.row_ranges import by_rows
from .graph.weights import Weights

_LARGE = 2**22
"""Elements: the gradient of a smaller parameter, 16 MB in float32, is there as a whole."""

_Cut = Sequence[Sequence[int]]


class FusedGradients:
    """The gradients in ``model``, whose ``values`` they are by parameter.

    What the optimizer takes of them is added to the model when it is asked for.
    """

    def __init__(self, model: ModelProto, weights: Weights, values: Mapping[str, str]) -> None:
        self._model, self._weights, self._values = model, weights, values
        self._used: dict[str, UsedRows] = {}

    def is_sparse(self, parameter: str) -> bool:
        """Whether the gradient of a parameter is had as some of its rows; it is taken so from then on."""
        with self._graph.scope(parameter + names.GRADIENT_SUFFIX):
            used = used_rows(self._graph, self._values[parameter], self._readers)
        if used is not None:
            self._used[parameter] = used
        return used is not None

    def taken(self, ranges: Mapping[str, _Cut]) -> dict[str, str]:
        """The value that each input of the optimizer for gradients is fed with; ``ranges`` has what it takes in slices.

        Very large slices are computed each without the others where their rows can be, as those of embeddings can: a
        step would otherwise need the most memory when such a gradient is there.
        """
        fed = {name + names.GRADIENT_SUFFIX: value for name, value in self._values.items()}
        for name, used in self._used.items():
            fed |= {name + names.GRADIENT_SUFFIX: str(used.rows), names.gradient_rows(name): str(used.numbers)}
        for name, cut in ranges.items():
            pieces = (self._in_rows(name, cut) if cut[-1][1] >= _LARGE else None) or self._cut(name, cut)
            fed |= {slice_ + names.GRADIENT_SUFFIX: piece for slice_, piece in pieces.items()}
        return fed

    @cached_property
    def _graph(self) -> Graph:
        return Graph(self._model, self._weights)

    @cached_property
    def _readers(self) -> Counter[str]:
        readers = Counter(name for node in self._model.graph.node for name in reads(node))
        readers.update(v.name for v in self._model.graph.output)
        return readers

    def _in_rows(self, name: str, cut: _Cut) -> dict[str, str]:
        """The slices by their names; none where one cannot be computed without the others."""
        graph, gradient, length = self._graph, self._values[name], cut[0][1]
        known = graph.tensor_type(gradient)
        width = known.shape[-1] if known is not None and known.shape else None
        if not isinstance(width, int) or length % width:
            return {}
        with graph.scope(name + names.GRADIENT_SUFFIX):
            rows = by_rows(graph, gradient, length // width, self._readers)
            if rows is None:
                return {}
            return {
                names.slice_of(name, start, stop): str(rows(start // width, stop // width).reshape(1, -1))
                for start, stop in cut
            }

    def _cut(self, name: str, cut: _Cut) -> dict[str, str]:
        """The slices of the gradient, flattened to [1, n], by their names.

        Each says the whole of the first axis too: onnxruntime would join slices of one axis to a Split, which copies
        the gradient before the first update.
        """
        graph, base = self._model.graph, name + names.GRADIENT_SUFFIX

        def constant(name: str, content: Sequence[int]) -> str:
            graph.initializer.append(numpy_helper.from_array(np.array(content, np.int64), f"{base}/{name}"))
            return f"{base}/{name}"

        flat, axes, row = f"{base}/flat", constant("axes", [0, 1]), constant("row", [1, -1])
        graph.node.append(helper.make_node("Reshape", [self._values[name], row], [flat], flat))
        pieces = {}
        for start, stop in cut:
            ends = [constant(f"from_{start}", [0, start]), constant(f"to_{stop}", [1, stop])]
            piece = f"{base}/{start}"
            graph.node.append(helper.make_node("Slice", [flat, *ends, axes], [piece], piece))
            pieces[names.slice_of(name, start, stop)] = piece
        return pieces
