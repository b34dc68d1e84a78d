"""``onnxblock.check_gradients``: gradients against finite differences of the forward model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, helper, numpy_helper

from ...errors import BlockBuildError, FeedError, GradientMismatchError, did_you_mean
from ...graph.context import open_graph
from ...graph.graph import Graph
from ...graph.load import load
from ...graph.precision import to_float64
from ...graph.schemas import NEWEST_OPSET, ir_version_of
from ...graph.types import FLOATS, numpy_dtype, onnx_dtype, tensor_type
from ..gradients import COTANGENT_SUFFIX, gradients
from .differences import TOLERANCE, Comparison, GradientCheck, Line
from .evaluators import (
    Array,
    Evaluator,
    choose_evaluators,
    onnxruntime_evaluator,
    reference_evaluator,
    reference_operators,
    results_at,
)

_OPSET = min(21, NEWEST_OPSET)

_CONSTANTS = {"Resize": (1, 2), "RoiAlign": (1,), "MaxRoiPool": (1,)}
"""Float inputs that say how large a result is or of which part of an image; the rules take them for constants."""


def check_gradients(
    model: ModelProto | str | os.PathLike[str],
    inputs: Mapping[str, npt.ArrayLike] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    wrt: Sequence[str] | None = None,
    dtype: str = "float64",
    evaluator: str | Evaluator | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> GradientCheck:
    """Compare the gradients of a model with five-point finite differences along random directions.

    The model is turned into float64 first.  For each value two random directions u are drawn, and <gradient, u> is
    compared with ``(8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h`` (Abramowitz & Stegun 25.3.6), f being the sum of the
    outputs weighted at random, along u.

    Args:
        model: a ``ModelProto`` or the path of one.
        inputs: arrays for the model's inputs.  Float inputs of known shape may be left out; they are drawn from the
            standard normal distribution.
        outputs: the values to differentiate; every float output by default.
        wrt: inputs and weights to differentiate with respect to; by default every float one but those that say how
            large a result is or of which part of an image, as the scales of Resize do.
        dtype: ``"float64"``, or ``"float32"`` with coarser steps and tolerance.
        evaluator: ``"onnxruntime"``, ``"onnx.reference"``, a function from a model to a function from inputs to
            outputs, or None: onnxruntime where it has kernels for the whole model in this element type, else
            ``onnx.reference``.  The result says which it was.
        tolerance: the largest error allowed, relative to the size of the gradient; 1e-6 (2e-2 in float32) by default.
        seed: of the random numbers.

    Raises:
        GradientMismatchError: a derivative differs; its ``result`` is the :class:`GradientCheck`.
        FeedError: an input is missing, unknown, or does not fit.
        RuntimeUnavailableError: no evaluator runs the model.
        UnsupportedOperatorError: operators without a gradient lie in between.
    """
    if dtype not in ("float64", "float32"):
        raise BlockBuildError(f"dtype={dtype!r} is not known here.", 'It is "float64" or "float32".')
    forward = Graph(*load(model)).to_model_proto()
    if forward.functions:
        # Numbers may come into a function as attributes, which have no float64.
        forward = open_graph(forward).to_model_proto()
    if dtype == "float64":
        forward = to_float64(forward)
    rng = np.random.default_rng(seed)
    feeds = _feeds(forward, inputs or {}, rng)
    names = _float_values(forward) if wrt is None else list(wrt)
    weights = _initializer_arrays(forward, names)
    forward = _with_inputs(forward, weights)
    chosen = _select_outputs(forward, outputs)
    backward = gradients(forward, wrt=names, outputs=chosen, cotangents="inputs")
    point = {**feeds, **weights}
    run, run_backward, used, reason = choose_evaluators(forward, backward, evaluator, point)

    results = run(point)
    cotangents = [np.asarray(rng.uniform(0.5, 1.0, y.shape) * rng.choice([-1, 1], y.shape), y.dtype) for y in results]
    seeds = {name + COTANGENT_SUFFIX: c for name, c in zip(chosen, cotangents)}
    found = run_backward({**point, **seeds})
    line = Line(run, point, cotangents, np.dtype(dtype))
    limit = TOLERANCE[np.dtype(dtype)] if tolerance is None else tolerance
    comparisons = tuple(
        line.compare(name, gradient, limit, rng) for name, gradient in zip(names, found) for _ in range(2)
    )
    result = GradientCheck(comparisons, dtype, used, reason, limit)
    if not result.passed:
        raise GradientMismatchError(result)
    return result


def check_rule(
    op_type: str,
    *inputs: npt.ArrayLike | None,
    outputs: int = 1,
    domain: str = "",
    opset: int = _OPSET,
    evaluator: str | Evaluator | None = None,
    **attributes: Any,
) -> GradientCheck:
    """Compare the gradient rule of one operator with finite differences at ``inputs``, as :func:`check_gradients` does.

    ``inputs`` are arrays in the operator's order, None for an absent one: float arrays are differentiated, others
    are constants.  ``outputs`` is the number of outputs of the node.  A ``domain`` other than the default one is
    imported in version 1.  Of an operator that ONNX does not define, the types of the outputs are those of its
    decomposition, or of what the evaluator computes.
    """
    arrays = {f"input{k}": _array(x) for k, x in enumerate(inputs) if x is not None}
    node = helper.make_node(
        op_type,
        ["" if x is None else f"input{k}" for k, x in enumerate(inputs)],
        [f"output{k}" for k in range(outputs)],
        domain=domain,
        **attributes,
    )
    model = model_of_node(node, arrays, opset)
    if len(model.graph.output) < outputs:
        model.graph.output.extend(_computed_outputs(model, node, arrays, evaluator))
    return check_gradients(model, arrays, evaluator=evaluator)


def model_of_node(node: NodeProto, arrays: Mapping[str, Array], opset: int) -> ModelProto:
    """A model of one node: float arrays are its inputs, the others initializers; the types of outputs are inferred."""
    graph = GraphProto(name="graph", node=[node])
    for name, array in arrays.items():
        if onnx_dtype(array.dtype) in FLOATS:
            graph.input.append(helper.make_tensor_value_info(name, onnx_dtype(array.dtype), array.shape))
        else:
            graph.initializer.append(numpy_helper.from_array(array, name))
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(node.domain, 1)] if node.domain else [])
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version_of(opset))
    known = Graph(model)
    for name in node.output:
        proto = known.type_proto(name) if name else None
        if proto is not None:
            graph_output = model.graph.output.add(name=name)
            graph_output.type.CopyFrom(proto)
    return model


def _computed_outputs(
    model: ModelProto, node: NodeProto, arrays: Mapping[str, Array], evaluator: str | Evaluator | None
) -> list[ValueInfoProto]:
    """The outputs whose types nobody tells, as what the evaluator computes shows them."""
    asked = ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    told = {output.name for output in model.graph.output}
    asked.graph.output.extend(ValueInfoProto(name=name) for name in node.output if name not in told)
    found = results_at(asked, evaluator, {v.name: arrays[v.name] for v in model.graph.input})
    return [
        helper.make_tensor_value_info(output.name, onnx_dtype(y.dtype), y.shape)
        for output, y in zip(asked.graph.output, found, strict=True)
    ]


def _array(x: npt.ArrayLike) -> Array:
    array = np.asarray(x)
    return array if isinstance(x, np.ndarray) or array.dtype != np.float64 else array.astype(np.float32)


# -- the model and its inputs


def _feeds(model: ModelProto, given: Mapping[str, npt.ArrayLike], rng: np.random.Generator) -> dict[str, Array]:
    initializers = {t.name for t in model.graph.initializer}
    wanted = {v.name: tensor_type(v.type) for v in model.graph.input if v.name not in initializers}
    problems = [f"the model has no input {name!r}.{did_you_mean(name, wanted)}" for name in given if name not in wanted]
    feeds: dict[str, Array] = {}
    for name, known in wanted.items():
        if name in given:
            array = np.asarray(given[name])
            narrow = known is not None and known.dtype in FLOATS and array.dtype.kind == "f"
            feeds[name] = array.astype(numpy_dtype(known.dtype)) if narrow and known is not None else array
        elif known is None or known.dtype not in FLOATS or not known.is_static or known.shape is None:
            problems.append(f"input {name!r} ({known or 'not a tensor'}) has no array, and none can be drawn for it.")
        else:
            shape = [d for d in known.shape if isinstance(d, int)]
            feeds[name] = np.asarray(rng.standard_normal(shape), numpy_dtype(known.dtype))
    if problems:
        raise FeedError("the inputs do not fit the model: " + " ".join(problems), "Pass inputs={name: array, ...}.")
    return feeds


def _float_values(model: ModelProto) -> list[str]:
    read = {
        name
        for node in model.graph.node
        for k, name in enumerate(node.input)
        if k not in _CONSTANTS.get(node.op_type, ())
    }
    names = [v.name for v in model.graph.input if (t := tensor_type(v.type)) is not None and t.dtype in FLOATS]
    names += [t.name for t in model.graph.initializer if t.data_type in FLOATS and t.name in read]
    return list(dict.fromkeys(names))


def _initializer_arrays(model: ModelProto, names: Sequence[str]) -> dict[str, Array]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name in names}


def _with_inputs(model: ModelProto, weights: Mapping[str, Array]) -> ModelProto:
    """The model with some of its weights as inputs."""
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    present = {v.name for v in graph.input}
    kept = [t for t in graph.initializer if t.name not in weights]
    for tensor in graph.initializer:
        if tensor.name in weights and tensor.name not in present:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return changed


def _select_outputs(model: ModelProto, outputs: Sequence[str] | None) -> list[str]:
    """Reduce the model's outputs to the float ones that are differentiated; inner values may be named."""
    graph = Graph(model)
    names = [o.name for o in model.graph.output if graph.is_differentiable(o.name)] if outputs is None else [*outputs]
    types = [graph.type_proto(graph.value(name)) for name in names]
    del model.graph.output[:]
    for name, proto in zip(names, types, strict=True):
        model.graph.output.add(name=name).type.CopyFrom(TypeProto() if proto is None else proto)
    return names


__all__ = [
    "Comparison",
    "Evaluator",
    "GradientCheck",
    "check_gradients",
    "check_rule",
    "model_of_node",
    "onnxruntime_evaluator",
    "reference_evaluator",
    "reference_operators",
]
