"""Pad without its ``axes`` input."""

from __future__ import annotations

import numpy as np

from .dependencies import topological_order
from .graph import Graph


def spell_out_pads(graph: Graph) -> None:
    """Give every Pad of the main graph sizes for all axes instead of sizes for some and their ``axes``, in place.

    onnxruntime moves a Transpose past a Pad by permuting its sizes, and forgets that they belong to some axes only
    (1.32: the model fails when it runs).  A Pad of unknown rank stays as it is; no Transpose moves past it.
    """
    nodes = graph.model.graph.node
    count_before = len(nodes)
    for node in list(nodes):
        if node.op_type != "Pad" or node.domain or len(node.input) < 4:
            continue
        rank, axes = graph.value(node.input[0]).rank, graph.constant_value(node.input[3])
        if rank is None or axes is None:
            continue
        count = len(axes)
        # Where each of the 2 * rank sizes is among the given ones; what is not given is the zero behind them.
        places = np.full((2, rank), 2 * count)
        places[:, axes] = np.arange(2 * count).reshape(2, count)
        sizes, zero = graph.value(node.input[1]), np.zeros(1, np.int64)
        known = graph.constant_value(sizes)
        if known is None:
            with graph.scope(node.name or node.output[0]):
                every = graph.op.Gather(graph.op.Concat(sizes, zero, axis=0), places.ravel())
        else:
            every = graph.constant(np.concatenate([known, zero])[places.ravel()])
        node.input[1] = str(every)
        del node.input[3 if node.input[2] else 2 :]
    if len(nodes) > count_before:
        ordered = topological_order(nodes)
        del nodes[:]
        nodes.extend(ordered)
