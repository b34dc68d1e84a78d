"""``onnxblock.check_gradients``: gradients against finite differences of the forward model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from ..errors import BlockBuildError, FeedError, GradientMismatchError, RuntimeUnavailableError, did_you_mean
from ..graph.graph import Graph
from ..graph.load import load
from ..graph.precision import to_float64
from ..graph.schemas import NEWEST_OPSET
from ..graph.types import FLOATS, numpy_dtype, tensor_type
from .gradients import COTANGENT_SUFFIX, gradients

Array: TypeAlias = "npt.NDArray[Any]"
Function: TypeAlias = "Callable[[Mapping[str, Array]], list[Array]]"
Evaluator: TypeAlias = "Callable[[ModelProto], Function]"
"""Makes a function out of a model: from the arrays of its inputs to the arrays of its outputs."""

_STEPS = {np.dtype(np.float64): (1e-3, 1e-5, 1e-7), np.dtype(np.float32): (1e-1, 1e-2, 1e-3)}
_TOLERANCE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 2e-2}
_OPSET = min(21, NEWEST_OPSET)


@dataclass(frozen=True)
class Comparison:
    """One directional derivative: with respect to ``value``, by the gradient and by finite differences.

    ``smooth`` is False where the derivatives of the two sides differ, as at the kink of a ReLU: there is no number that
    a gradient could be compared with.
    """

    value: str
    analytic: float
    numeric: float
    error: float
    smooth: bool


@dataclass(frozen=True)
class GradientCheck:
    """What was compared, in which element type, and what ran the models.

    ``evaluator`` is ``"onnxruntime"``, ``"onnx.reference"`` or the name of the function that was given; ``reason`` says
    why onnxruntime was not used.  ``error`` is the largest of ``comparisons``, relative to the size of the gradient.
    """

    comparisons: tuple[Comparison, ...]
    dtype: str
    evaluator: str
    reason: str | None
    tolerance: float

    @property
    def error(self) -> float:
        return max((c.error for c in self.comparisons), default=0.0)

    @property
    def passed(self) -> bool:
        return all(c.error <= self.tolerance for c in self.comparisons)

    def __str__(self) -> str:
        lines = [f"gradient against finite differences, {self.dtype} on {self.evaluator}"]
        if self.reason is not None:
            lines[0] += f" ({self.reason})"
        width = max((len(c.value) for c in self.comparisons), default=0)
        for c in self.comparisons:
            verdict = "" if c.error <= self.tolerance else " MISMATCH" if c.smooth else " MISMATCH, at a kink"
            lines.append(
                f"{c.value:{width}}  gradient {c.analytic:+.9e}  differences {c.numeric:+.9e}  error {c.error:.1e}{verdict}"
            )
        return "\n".join(lines)


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
        wrt: inputs and weights to differentiate with respect to; every float one by default.
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
    if dtype == "float64":
        forward = to_float64(forward)
    rng = np.random.default_rng(seed)
    feeds = _feeds(forward, inputs or {}, rng)
    names = _float_values(forward) if wrt is None else list(wrt)
    weights = _initializer_arrays(forward, names)
    forward = _with_inputs(forward, weights)
    chosen = _select_outputs(forward, outputs)
    backward = gradients(forward, wrt=names, outputs=chosen, cotangents="inputs")
    run, run_backward, used, reason = _evaluators(forward, backward, evaluator)

    point = {**feeds, **weights}
    results = run(point)
    cotangents = [np.asarray(rng.uniform(0.5, 1.0, y.shape) * rng.choice([-1, 1], y.shape), y.dtype) for y in results]
    seeds = {name + COTANGENT_SUFFIX: c for name, c in zip(chosen, cotangents)}
    found = run_backward({**point, **seeds})
    line = _Line(run, point, cotangents, np.dtype(dtype))
    limit = _TOLERANCE[np.dtype(dtype)] if tolerance is None else tolerance
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
    imported in version 1.
    """
    arrays = {f"input{k}": _array(x) for k, x in enumerate(inputs) if x is not None}
    node = helper.make_node(
        op_type,
        ["" if x is None else f"input{k}" for k, x in enumerate(inputs)],
        [f"output{k}" for k in range(outputs)],
        domain=domain,
        **attributes,
    )
    return check_gradients(model_of_node(node, arrays, opset), arrays, evaluator=evaluator)


def model_of_node(node: NodeProto, arrays: Mapping[str, Array], opset: int) -> ModelProto:
    """A model of one node: float arrays are its inputs, the others initializers; the types of outputs are inferred."""
    graph = GraphProto(name="graph", node=[node])
    for name, array in arrays.items():
        if onnx_type(array) in FLOATS:
            graph.input.append(helper.make_tensor_value_info(name, onnx_type(array), array.shape))
        else:
            graph.initializer.append(numpy_helper.from_array(array, name))
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(node.domain, 1)] if node.domain else [])
    model = helper.make_model(graph, opset_imports=imports)
    known = Graph(model)
    for name in node.output:
        proto = known.type_proto(name) if name else None
        if proto is not None:
            graph_output = model.graph.output.add(name=name)
            graph_output.type.CopyFrom(proto)
    return model


def onnx_type(array: Array) -> int:
    """The ONNX element type of an array."""
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


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
    read = {name for node in model.graph.node for name in node.input}
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
    infos = [helper.make_value_info(name, graph.type_proto(graph.value(name))) for name in names]
    del model.graph.output[:]
    model.graph.output.extend(infos)
    return names


# -- running


def onnxruntime_evaluator(model: ModelProto) -> Function:
    """Run a model on onnxruntime's CPU provider, one thread, without graph optimisations."""
    try:
        import onnxruntime
    except ImportError as error:
        raise RuntimeUnavailableError(f"onnxruntime is not installed: {error}", "pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the bindings derive their exceptions from Exception only
        raise RuntimeUnavailableError(f"onnxruntime does not load the model: {_first_line(error)}") from None
    names = {i.name for i in session.get_inputs()}

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        return list(session.run(None, {name: np.asarray(x) for name, x in feeds.items() if name in names}))

    return run


def reference_evaluator(model: ModelProto) -> Function:
    """Run a model with ONNX's own evaluator in NumPy."""
    from onnx.reference import ReferenceEvaluator

    session = ReferenceEvaluator(model, new_ops=reference_operators())
    names = set(session.input_names)

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            found = session.run(None, {name: x for name, x in feeds.items() if name in names})
        return [np.asarray(y) for y in found]

    return run


def reference_operators() -> list[Any]:
    """Operators that ONNX's own evaluator computes in float32 whatever it is given, or not for everything they take."""
    from onnx.reference.op_run import OpRun

    def erf(x: Array) -> Array:
        return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), x.dtype)

    class Erf(OpRun):
        def _run(self, x: Array) -> tuple[Array]:
            return (erf(x),)

    class Gelu(OpRun):
        def _run(self, x: Array, approximate: str | None = None) -> tuple[Array]:
            if approximate == "tanh":
                return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
            return (0.5 * x * (1 + erf(x / math.sqrt(2))),)

    class Softsign(OpRun):
        def _run(self, x: Array) -> tuple[Array]:
            return (np.asarray(x / (1 + np.abs(x))),)

    class Pad(OpRun):
        def _run(
            self, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None, mode: str | None = None
        ) -> tuple[Array]:
            widths = np.zeros((x.ndim, 2), np.int64)
            widths[range(x.ndim) if axes is None else axes] = np.reshape(pads, (2, -1)).T
            options = {} if mode not in (None, "constant") else {"constant_values": 0 if value is None else value}
            padded = np.pad(x, np.maximum(widths, 0), mode or "constant", **options)
            ends = [n + after for n, after in zip(padded.shape, np.minimum(widths[:, 1], 0))]
            return (padded[tuple(slice(-min(before, 0), end) for before, end in zip(widths[:, 0], ends))],)

    return [Erf, Gelu, Pad, Softsign]


_EVALUATORS: dict[str, Evaluator] = {"onnxruntime": onnxruntime_evaluator, "onnx.reference": reference_evaluator}


def _evaluators(
    forward: ModelProto, backward: ModelProto, asked: str | Evaluator | None
) -> tuple[Function, Function, str, str | None]:
    """The two models as functions, the name of what runs them, and why it is not onnxruntime."""
    if asked is None:
        try:
            return onnxruntime_evaluator(forward), onnxruntime_evaluator(backward), "onnxruntime", None
        except RuntimeUnavailableError as error:
            reason = str(error)
        return reference_evaluator(forward), reference_evaluator(backward), "onnx.reference", reason
    if isinstance(asked, str):
        if asked not in _EVALUATORS:
            raise BlockBuildError(f"there is no evaluator {asked!r}." + did_you_mean(asked, _EVALUATORS))
        make, name = _EVALUATORS[asked], asked
    else:
        make, name = asked, getattr(asked, "__name__", type(asked).__name__)
    return make(forward), make(backward), name, None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0]


# -- differences


class _Line:
    """A weighted sum of the outputs along straight lines through one point."""

    def __init__(self, run: Function, point: Mapping[str, Array], cotangents: Sequence[Array], dtype: npt.DTypeLike):
        self._run, self._point, self._cotangents = run, point, cotangents
        self._dtype = np.dtype(dtype)
        self._epsilon = float(np.finfo(self._dtype).eps)

    def compare(self, name: str, gradient: Array, tolerance: float, rng: np.random.Generator) -> Comparison:
        """The derivative with respect to one value along one random direction, at the step that agrees best."""
        x = self._point[name]
        if x.size == 0:
            return Comparison(name, 0.0, 0.0, 0.0, smooth=True)
        direction = rng.standard_normal(x.shape)
        direction /= max(float(np.linalg.norm(direction)), 1e-30)
        exact = gradient.astype(np.float64)
        analytic = float(np.sum(exact * direction))
        scale = max(abs(analytic), float(np.linalg.norm(exact)) / np.sqrt(x.size))
        best: Comparison | None = None
        gaps = []
        for step in _STEPS[self._dtype]:
            numeric, gap, noise = self._derivative(name, direction, step)
            gaps.append((gap, noise))
            difference = abs(analytic - numeric)
            # Not a number on either side never agrees.
            error = max(0.0, difference - noise) / max(scale, abs(numeric), 1e-30) if difference < np.inf else np.inf
            if best is None or error < best.error:
                best = Comparison(name, analytic, numeric, error, smooth=True)
            if error <= tolerance:
                break
        assert best is not None
        smooth = len(gaps) < 2 or gaps[-1][0] <= max(0.2 * gaps[0][0], 100 * gaps[-1][1])
        return Comparison(name, best.analytic, best.numeric, best.error, smooth)

    def _derivative(self, name: str, direction: Array, step: float) -> tuple[float, float, float]:
        """The five-point difference; how far the derivatives of both sides are apart; the size of rounding errors."""
        f = {k: self._value(name, direction, k * step) for k in (-2, -1, 0, 1, 2)}
        at = {k: v[0] for k, v in f.items()}
        noise = 4 * self._epsilon * f[0][1] / step
        right = (4 * at[1] - 3 * at[0] - at[2]) / (2 * step)
        left = (3 * at[0] - 4 * at[-1] + at[-2]) / (2 * step)
        return (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * step), abs(right - left), noise

    def _value(self, name: str, direction: Array, distance: float) -> tuple[float, float]:
        """The sum, and the sum of its absolute terms."""
        x = self._point[name]
        results = self._run({**self._point, name: np.asarray(x + distance * direction, x.dtype)})
        with np.errstate(all="ignore"):
            terms = [c.astype(np.float64) * y for c, y in zip(self._cotangents, results)]
        return sum(float(np.sum(t)) for t in terms), sum(float(np.sum(np.abs(t))) for t in terms)


__all__ = ["Comparison", "GradientCheck", "check_gradients", "check_rule"]
