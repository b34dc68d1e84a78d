"""Where blocks build: ``with base(model):`` and ``with empty_base():``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from onnx import GraphProto, ModelProto, helper

from ..errors import NoGraphError
from .function_weights import lift_function_weights
from .graph import Graph
from .inner_weights import lift_inner_weights
from .load import load
from .schemas import NEWEST_OPSET, ir_version_of
from .upgrade import raise_opset
from .weights import detach, weights_in_constants

MINIMUM_OPSET = 18
"""The engine works at this opset or later; lower models are raised to it."""

DEFAULT_OPSET = min(21, NEWEST_OPSET)
"""The opset of a graph begun from nothing: the newest that every supported runtime has all kernels for."""

_current: ContextVar[Graph | None] = ContextVar("onnxblock_graph", default=None)
_custom_op_library: ContextVar[str | None] = ContextVar("onnxblock_custom_op_library", default=None)


def current_graph() -> Graph:
    """The graph of the innermost ``base`` or ``empty_base``; raises :class:`NoGraphError` outside of both."""
    graph = _current.get()
    if graph is None:
        raise NoGraphError(
            "blocks build into a graph, and there is none here.",
            "Call them inside `with onnxblock.base(model):` or `with onnxblock.empty_base():`.",
        )
    return graph


@contextmanager
def building(graph: Graph) -> Iterator[Graph]:
    """Make ``graph`` the one that blocks build into."""
    token = _current.set(graph)
    try:
        yield graph
    finally:
        _current.reset(token)


@contextmanager
def base(
    model: ModelProto | str | os.PathLike[str], model_path: str | os.PathLike[str] | None = None
) -> Iterator[Graph]:
    """Build on top of ``model`` (a ``ModelProto`` or the path of one), which is not changed.

    Yields the :class:`Graph`; its ``model`` is the ``ModelProto`` being built.  ``model_path`` is where ``model`` was
    read from, used to find external data.  Contexts nest, and belong to the thread or task that opened them.
    """
    with building(open_graph(model, model_path)) as graph:
        yield graph


@contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[Graph]:
    """Build from nothing, at ``opset_version``: at least 18, and by default 21, which every supported runtime runs.

    Raises :class:`ArgumentError` for an opset that the installed onnx does not know.
    """
    opset = max(opset_version or DEFAULT_OPSET, MINIMUM_OPSET)
    model = helper.make_model(
        GraphProto(name="graph"),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version_of(opset),
        producer_name="onnxblock",
    )
    with building(Graph(model)) as graph:
        yield graph


def open_graph(model: ModelProto | str | os.PathLike[str], model_path: str | os.PathLike[str] | None = None) -> Graph:
    """A :class:`Graph` over a copy of ``model``, raised to opset 18 if it is older."""
    if isinstance(model, ModelProto) and model_path is not None:
        bare, weights = detach(model, Path(model_path).parent)
        is_weight = weights_in_constants(model)
        lift_inner_weights(bare, weights, is_weight)
        lift_function_weights(bare, weights, is_weight)
    else:
        bare, weights = load(model)
    path = model_path if model_path is not None else None if isinstance(model, ModelProto) else model
    return Graph(raise_opset(bare, MINIMUM_OPSET), weights, None if path is None else os.fspath(path))


@contextmanager
def custom_op_library(custom_op_library_path: str | os.PathLike[str]) -> Iterator[str]:
    """Name the shared library that implements the custom operators of the models built inside."""
    token = _custom_op_library.set(os.fspath(custom_op_library_path))
    try:
        yield os.fspath(custom_op_library_path)
    finally:
        _custom_op_library.reset(token)


def current_custom_op_library() -> str | None:
    """The library named by the innermost :func:`custom_op_library`, if any."""
    return _custom_op_library.get()
