"""``onnxblock.gradients``: vector-Jacobian products, inside a graph under construction or of a whole model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias, overload

from onnx import ModelProto, helper

from ..errors import BlockBuildError
from ..graph.arithmetic import full_like, zeros_like
from ..graph.check import check
from ..graph.context import current_graph, open_graph
from ..graph.empty_batches import refuse_empty_batches
from ..graph.explicit_windows import make_windows_explicit
from ..graph.graph import Graph
from ..graph.padding import spell_out_pads
from ..graph.passes import run_passes
from ..graph.types import FLOATS
from ..graph.value import Value
from ..names import GRADIENT_SUFFIX
from .backward import backward

Model: TypeAlias = "ModelProto | str | os.PathLike[str]"
"""A model, or the path of one."""

COTANGENT_SUFFIX = "_cotangent"
"""What the input that carries the cotangent of an output is called, behind the output's name."""


# A Value is a str, and so a sequence of them; the first form that fits is meant.
@overload
def gradients(  # type: ignore[overload-overlap]
    of: Value, wrt: Value, cotangents: Value | None = None
) -> Value: ...


@overload
def gradients(  # type: ignore[overload-overlap]
    of: Value | Sequence[str], wrt: Sequence[str], cotangents: Value | Sequence[str | None] | None = None
) -> list[Value]: ...


@overload
def gradients(
    of: Model,
    wrt: Sequence[str],
    cotangents: Literal["inputs"] | None = None,
    *,
    outputs: Sequence[str] | None = None,
) -> ModelProto: ...


def gradients(
    of: Value | Sequence[str] | Model,
    wrt: Sequence[str],
    cotangents: Value | Sequence[str | None] | Literal["inputs"] | None = None,
    *,
    outputs: Sequence[str] | None = None,
) -> Value | list[Value] | ModelProto:
    """The gradients of values with respect to other values: ``sum_k <cotangent_k, output_k>`` differentiated.

    Two forms, told apart by the first argument:

    1. Inside ``onnxblock.base(...)``: ``gradients(loss, weight)`` adds nodes to the graph and returns a
       :class:`Value`, or a list of them where ``wrt`` is a sequence.  ``of`` is a value or a sequence of values;
       ``cotangents`` has one entry for each, None standing for ones.  The result is an ordinary value: it can be used
       in a loss and differentiated again.
    2. With a model (``ModelProto`` or path): returns a new model that has the inputs of the given one and computes the
       gradient of each of ``wrt`` (inputs, weights or inner values), in that order, as an output called
       ``<value>_grad`` (with a number behind it where the model has a value of that name).  ``outputs`` names the
       values to differentiate, all float outputs by default.  The cotangents are ones, or with ``cotangents="inputs"``
       further inputs called ``<output>_cotangent``.

    Every gradient has the element type and shape of its value, and is zero where no output depends on the value.

    Raises:
        UnknownNameError: a name that the graph does not have.
        BlockBuildError: a value that is not a float tensor, or a number of cotangents that does not fit.
        UnsupportedOperatorError: operators without a gradient lie in between; all of them are listed.
    """
    if isinstance(of, Value) or not isinstance(of, (ModelProto, str, os.PathLike)):
        if outputs is not None:
            raise BlockBuildError("outputs=... belongs to a model; here the first argument names the outputs.")
        return _of_values(of, wrt, cotangents)
    if not (cotangents is None or cotangents == "inputs"):
        raise BlockBuildError(
            f"cotangents={cotangents!r} does not go with a model.",
            'Leave it out for ones, or say cotangents="inputs" and feed them.',
        )
    return _of_model(of, wrt, outputs, cotangents == "inputs")


def _of_values(
    of: Value | Sequence[str], wrt: Sequence[str], cotangents: Value | Sequence[str | None] | None
) -> Value | list[Value]:
    names: list[str] = [of] if isinstance(of, str) else list(of)
    targets: list[str] = [wrt] if isinstance(wrt, str) else list(wrt)
    graph = next((v.graph for v in (*names, *targets) if isinstance(v, Value)), None) or current_graph()
    given: list[str | None] = [None] * len(names)
    if cotangents is not None:
        given = [cotangents] if isinstance(cotangents, str) else list(cotangents)
    if len(given) != len(names):
        raise BlockBuildError(f"{len(names)} outputs have {len(given)} cotangents.", "Give one for each output.")
    seeds: dict[str, Value] = {}
    for name, cotangent in zip(names, given):
        output = _differentiable(graph, name)
        seed = full_like(output, 1.0) if cotangent is None else graph.value(cotangent)
        seeds[name] = seeds[name] + seed if name in seeds else seed
    found = _gradients(graph, seeds, targets)
    return found[0] if isinstance(wrt, str) else found


def _gradients(graph: Graph, seeds: dict[str, Value], targets: Sequence[str]) -> list[Value]:
    values = [_differentiable(graph, name) for name in targets]
    found = backward(graph, seeds, targets)
    return [found[v] if v in found else zeros_like(v) for v in values]


def _differentiable(graph: Graph, name: str) -> Value:
    value = graph.value(name)
    if value.type is None or value.type.dtype not in FLOATS:
        raise BlockBuildError(
            f"{str(name)!r} is {value.type or 'not a tensor, or of unknown type'}: only float tensors have gradients.",
            "Cast it to a float type first, or leave it out."
            if value.type is not None
            else "Give its type in the model's inputs.",
        )
    return value


def _of_model(model: Model, wrt: Sequence[str], outputs: Sequence[str] | None, as_inputs: bool) -> ModelProto:
    graph = open_graph(model)
    make_windows_explicit(graph)
    proto = graph.model.graph
    if outputs is None:
        outputs = [o.name for o in proto.output if graph.is_differentiable(o.name)]
    for what, names in (("outputs", outputs), ("wrt", wrt)):
        if not names or len(set(names)) < len(names):
            raise BlockBuildError(
                f"{what}={list(names)!r} " + ("names nothing." if not names else "names a value twice."),
                "Name each value once.",
            )
        if not outputs:
            raise BlockBuildError("no output of the model is a float tensor, so there is nothing to differentiate.")
    seeds = {}
    for name in outputs:
        output = _differentiable(graph, name)
        assert output.type is not None
        if as_inputs:
            seeds[name] = graph.input(name + COTANGENT_SUFFIX, output.type.dtype, output.type.shape)
        else:
            seeds[name] = full_like(output, 1.0)
    targets = [wrt] if isinstance(wrt, str) else list(wrt)
    found = _gradients(graph, seeds, targets)
    del proto.output[:]
    for name, gradient in zip(targets, found):
        known = graph.value(name).type
        assert known is not None
        named = graph.unique(name + GRADIENT_SUFFIX)
        proto.node.append(helper.make_node("Identity", [gradient], [named], name=named))
        proto.output.append(helper.make_tensor_value_info(named, known.dtype, known.shape))
    spell_out_pads(graph)
    result = graph.to_model_proto()
    run_passes(result, graph.tensor_type)
    refuse_empty_batches(result, graph.tensor_type)
    check(result)
    return result
