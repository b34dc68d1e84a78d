"""Recurrent nodes whose kernels end the process where there is nothing to compute: they get to raise instead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from .dependencies import all_nodes, inner_names, subgraphs
from .naming import Names
from .passes.types import Types

_VIEWS = {"LSTM": (-1, 0, 0), "GRU": (0, 0, -1)}
"""The input [steps, batch, size] as it is, 0 being a size that is kept: a Reshape finds no -1 beside an empty size."""


def refuse_empty_batches(model: ModelProto, types: Types) -> None:
    """Let the LSTM and GRU nodes of a finished graph read their input through a view that exists for no empty batch.

    The kernels of onnxruntime abort for 0 samples, and that of GRU for 0 steps too.  A Reshape that changes nothing
    raises there, copies nothing, and stays what it is in every optimization.  Nodes whose sizes are known need none.
    """
    kinds = {node.op_type for node in all_nodes(model.graph.node) if _may_be_empty(node, types)}
    if not kinds:
        return
    names = Names()
    names.take(_names(model.graph))
    shapes = {kind: names.unique(f"not_empty/{kind}") for kind in sorted(kinds)}
    for kind, name in shapes.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(_VIEWS[kind], np.int64), name))
    _look_through_views(model.graph, types, shapes, names)


def _may_be_empty(node: NodeProto, types: Types) -> bool:
    if node.op_type not in _VIEWS or node.domain:
        return False
    known = types(node.input[0])
    return known is None or known.shape is None or not all(isinstance(n, int) and n > 0 for n in known.shape)


def _look_through_views(graph: GraphProto, types: Types, shapes: dict[str, str], names: Names) -> None:
    nodes = []
    for node in graph.node:
        for body in subgraphs(node):
            _look_through_views(body, types, shapes, names)
        if _may_be_empty(node, types):
            view = names.unique(f"{node.name or node.op_type}/not_empty")
            nodes.append(helper.make_node("Reshape", [node.input[0], shapes[node.op_type]], [view], name=view))
            node.input[0] = view
        nodes.append(node)
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _names(graph: GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield node.name
        yield from node.output
        yield from inner_names(node)
