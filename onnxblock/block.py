"""``Block``: a piece of graph that is built by being called."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import nullcontext
from enum import Enum
from typing import Any

from onnx import ModelProto, ValueInfoProto, shape_inference

from .errors import BlockBuildError, NoGraphError, UnknownNameError, did_you_mean
from .graph.check import check
from .graph.context import current_graph
from .graph.graph import Graph
from .graph.origins import note_constants
from .graph.value import Value


class Block(ABC):
    """Base class of everything that adds nodes to the current graph.

    A subclass writes ``build(...)``, which takes and returns names of values, and is used by being called inside
    ``onnxblock.base(model)`` or ``onnxblock.empty_base()``.  Blocks compose: a ``build`` calls other blocks, does
    arithmetic on values, uses ``self.graph.op.<Operator>(...)``, or appends to ``self.base.graph`` directly.
    Calling ``super().__init__()`` is not needed.
    """

    _opens_scope = True

    def __init__(self, temp_file_name: str = "temp.onnx") -> None:  # noqa: B027 - subclasses need not call it
        """The original wrote a file of this name while building; this library writes none."""

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Add this block's nodes to the graph and return the name of its output, or several of them."""

    @property
    def graph(self) -> Graph:
        """The graph being built."""
        return current_graph()

    @property
    def base(self) -> ModelProto:
        """The model being built; nodes, inputs and initializers may be appended to it."""
        return current_graph().model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Build into the current graph.

        Every argument that is the name of a value of the graph arrives in ``build`` as a :class:`Value`.
        """
        return self._run(current_graph(), args, kwargs)

    def _run(self, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        graph.sync()
        positional = [_as_value(graph, a) for a in args]
        named = {k: _as_value(graph, v) for k, v in kwargs.items()}
        self._check_arguments(positional, named)
        with graph.scope(type(self).__name__) if self._opens_scope else nullcontext():
            output = self.build(*positional, **named)
        graph.sync()
        return _as_value(graph, output)

    def _check_arguments(self, positional: list[Any], named: dict[str, Any]) -> None:
        try:
            inspect.signature(self.build).bind(*positional, **named)
        except TypeError as error:
            given = [str(a) if isinstance(a, str) else type(a).__name__ for a in positional]
            raise BlockBuildError(
                f"{type(self).__name__}.build{inspect.signature(self.build)} was called with {len(positional)} "
                f"positional argument{'s' * (len(positional) != 1)} ({', '.join(given)})"
                + (f" and {', '.join(named)}" if named else "")
                + f": {error}."
            ) from None

    def infer_shapes_on_base(self) -> ModelProto:
        """A copy of the model being built with every shape that can be inferred written into ``value_info``."""
        return shape_inference.infer_shapes(self.base, data_prop=True)


class ForwardBlock(Block):
    """A block whose results become the outputs of a model, which :meth:`to_model_proto` returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        graph = current_graph()
        before = len(graph.model.graph.output)
        output = self._run(graph, args, kwargs)
        added = [v.name for v in graph.model.graph.output[before:]]
        set_outputs(graph, [*_names(output), *added])
        self._built = graph
        return output

    def to_model_proto(self) -> ModelProto:
        """The model that was built, checked, with its weights inside, and a note of what are constants of blocks."""
        graph: Graph | None = getattr(self, "_built", None)
        if graph is None:
            raise NoGraphError(f"{type(self).__name__} has not been called, so there is no model yet.")
        check(graph.model)
        model = graph.to_model_proto()
        note_constants(model, graph.index.written)
        return model


def require_block(what: str, given: object, kind: type[Enum]) -> None:
    """Raise :class:`BlockBuildError` unless ``given`` is a block; ``kind`` are the ones that have a name."""
    if isinstance(given, Block):
        return
    if isinstance(given, type):
        shown, remedy = f"the class {given.__name__}", f"Pass an instance: {what}={given.__name__}()."
    else:
        shown = repr(given) if isinstance(given, (str, int, Enum)) else type(given).__name__
        remedy = f"Pass one of {', '.join(map(str, kind))}, or an instance of a block."
    raise BlockBuildError(f"{what} is {shown}, which is neither one of {kind.__name__}, nor a block, nor None.", remedy)


def set_outputs(graph: Graph, names: Iterable[str]) -> None:
    """Make the named values the outputs of the graph, each once, in this order."""
    declared = {v.name: v for v in graph.model.graph.output}
    infos = []
    for name in dict.fromkeys(names):
        if name not in graph:
            raise UnknownNameError(
                f"{str(name)!r} cannot be an output: the graph has no such value."
                + did_you_mean(name, [o for n in graph.model.graph.node for o in n.output])
            )
        info = ValueInfoProto(name=name)
        known = graph.type_proto(name)
        if known is not None:
            info.type.CopyFrom(known)
        elif name in declared:
            info.CopyFrom(declared[name])
        infos.append(info)
    del graph.model.graph.output[:]
    graph.model.graph.output.extend(infos)


def _names(output: Any) -> list[str]:
    if output is None:
        return []
    return [str(output)] if isinstance(output, str) else [str(name) for name in output]


def _as_value(graph: Graph, argument: Any) -> Any:
    if isinstance(argument, str) and not isinstance(argument, Value) and argument in graph:
        return Value(argument, graph)
    if type(argument) in (list, tuple):
        return type(argument)(_as_value(graph, a) for a in argument)
    return argument
