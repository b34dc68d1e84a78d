"""What runs a model for a check: onnxruntime where it has the kernels, ONNX's own evaluator elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from ...errors import BlockBuildError, RuntimeUnavailableError, did_you_mean, refusal
from ...graph.dependencies import all_nodes
from ...graph.graph import Graph
from ...graph.schemas import NEWEST_OPSET, find_schema
from ..functions import expand_undefined

Array: TypeAlias = "npt.NDArray[Any]"
Function: TypeAlias = "Callable[[Mapping[str, Array]], list[Array]]"
Evaluator: TypeAlias = "Callable[[ModelProto], Function]"
"""Makes a function out of a model: from the arrays of its inputs to the arrays of its outputs."""

_REMEDY = 'Pass dtype="float32", or an evaluator of your own.'


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
        raise RuntimeUnavailableError(f"onnxruntime does not load the model: {refusal(error)}") from None
    names = {i.name for i in session.get_inputs()}

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        try:
            return list(session.run(None, {name: np.asarray(x) for name, x in feeds.items() if name in names}))
        except Exception as error:  # noqa: BLE001 - some kernels find out here that they lack an element type
            raise RuntimeUnavailableError(f"onnxruntime does not run the model: {refusal(error)}") from None

    return run


def reference_evaluator(model: ModelProto) -> Function:
    """Run a model with ONNX's own evaluator in NumPy; operators that ONNX does not define by their decompositions."""
    from onnx.reference import ReferenceEvaluator

    defined = _in_defined_operators(model)
    try:
        session = ReferenceEvaluator(defined, new_ops=reference_operators())
    except Exception as error:
        what = f"onnx.reference does not load the model: {str(error) or repr(error)}"
        raise RuntimeUnavailableError(what, _REMEDY) from error
    names = set(session.input_names)

    def run(feeds: Mapping[str, Array]) -> list[Array]:
        try:
            with np.errstate(all="ignore"):
                found = session.run(None, {name: x for name, x in feeds.items() if name in names})
        except Exception as error:
            what = f"onnx.reference does not run the model: {str(error) or repr(error)}"
            raise RuntimeUnavailableError(what, _REMEDY) from error
        return [np.asarray(y) for y in found]

    return run


def _in_defined_operators(model: ModelProto) -> ModelProto:
    """The model with decompositions in place of operators that ONNX does not define.

    Raises :class:`RuntimeUnavailableError` that names those without one.
    """
    if not _undefined(model):
        return model
    expanded = ModelProto()
    expanded.CopyFrom(model)
    expand_undefined(Graph(expanded))
    missing = _undefined(expanded)
    if missing:
        names = ", ".join(f"{op_type} (domain {domain or 'ai.onnx'!r})" for domain, op_type in missing)
        raise RuntimeUnavailableError(
            f"onnx.reference does not know {names}, and no decomposition is registered.",
            "Register one, or pass what runs it: evaluator=lambda model: functools.partial(ReferenceEvaluator(model, "
            f"new_ops=[{missing[0][1]}]).run, None), for example, with a class {missing[0][1]} on "
            "onnx.reference.op_run.OpRun.",
        )
    return expanded


def _undefined(model: ModelProto) -> list[tuple[str, str]]:
    """Domain and name of each operator that is neither in ONNX nor a function of the model."""
    local = {(function.domain, function.name) for function in model.functions}
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    used = dict.fromkeys((node.domain, node.op_type) for nodes in bodies for node in all_nodes(nodes))
    return [key for key in used if key not in local and find_schema(key[1], NEWEST_OPSET, key[0]) is None]


def reference_operators() -> list[Any]:
    """Operators that ONNX's own evaluator computes in float32 whatever it is given, or not for everything they take."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops import op_batch_normalization, op_loop

    def erf(x: Array) -> Array:
        return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), x.dtype)

    def pad(x: Array, pads: Array, value: Array | None, axes: Array | None, mode: Any) -> Array:
        widths = np.zeros((x.ndim, 2), np.int64)
        widths[range(x.ndim) if axes is None else axes] = np.reshape(pads, (2, -1)).T
        options: dict[str, Any] = {"constant_values": 0 if value is None else value} if mode == "constant" else {}
        padded = np.pad(x, np.maximum(widths, 0), mode, **options)
        # Negative widths cut off.
        ends = [n + after for n, after in zip(padded.shape, np.minimum(widths[:, 1], 0), strict=True)]
        return padded[tuple(slice(-min(start, 0), end) for start, end in zip(widths[:, 0], ends, strict=True))]

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
            return (pad(x, pads, value, axes, mode or "constant"),)

    newest: Any = op_batch_normalization.BatchNormalization_14

    class BatchNormalization(newest):  # type: ignore[misc]
        """ONNX's own takes every node of an opset before 14 for one in training."""

        def _run(self, *inputs: Array, training_mode: int | None = None, **options: Any) -> tuple[Array, ...]:
            options = {name: options[name] for name in ("epsilon", "momentum")}
            found: tuple[Array, ...] = super()._run(*inputs, training_mode=training_mode or 0, **options)
            return found

    base: Any = op_loop.Loop

    class Loop(base):  # type: ignore[misc]
        """ONNX's own takes an absent condition for false, and does not give what is collected an axis of its own."""

        def _run(
            self, trips: Array | None, condition: Array | None, *states: Any, context: Any = None, **options: Any
        ) -> tuple[Any, ...]:
            body = options.pop("body", None) or self.body
            names, count = body.input_names, len(states)
            running, done = condition is None or bool(condition), 0
            current = list(states)
            collected: list[list[Array]] = [[] for _ in body.output_names[1 + count :]]
            while running and (trips is None or done < trips):
                given = dict(zip(names, (np.array(done, np.int64), np.array(True), *current), strict=True))
                go_on, *results = self._run_body({**(context or {}), **given}, **options)
                running, current = bool(go_on), results[:count]
                for parts, part in zip(collected, results[count:], strict=True):
                    parts.append(part)
                done += 1
            return (*current, *(np.stack(parts) if parts else np.zeros(0) for parts in collected))

    return [BatchNormalization, Erf, Gelu, Loop, Pad, Softsign]


_EVALUATORS: dict[str, Evaluator] = {"onnxruntime": onnxruntime_evaluator, "onnx.reference": reference_evaluator}


def _where_it_runs(model: ModelProto, point: Mapping[str, Array] | None) -> tuple[Function, str | None]:
    """onnxruntime, unless it does not load the model or does not run it at ``point``; and why not."""
    try:
        run = onnxruntime_evaluator(model)
        if point is not None:
            run(point)
    except RuntimeUnavailableError as error:
        return reference_evaluator(model), str(error)
    return run, None


def choose_evaluators(
    forward: ModelProto, backward: ModelProto, asked: str | Evaluator | None, point: Mapping[str, Array]
) -> tuple[Function, Function, str, str | None]:
    """The two models as functions, the name of what runs them at ``point``, and why it is not onnxruntime alone."""
    if asked is None:
        run, reason = _where_it_runs(forward, point)
        run_backward, other_reason = _where_it_runs(backward, None)
        reason = reason or other_reason
        return run, run_backward, "onnxruntime" if reason is None else "onnx.reference", reason
    make = _asked_for(asked)
    name = asked if isinstance(asked, str) else getattr(asked, "__name__", type(asked).__name__)
    return make(forward), make(backward), name, None


def results_at(model: ModelProto, asked: str | Evaluator | None, point: Mapping[str, Array]) -> list[Array]:
    """What the model computes at ``point``, on what was asked for or on whatever runs it."""
    run = _where_it_runs(model, point)[0] if asked is None else _asked_for(asked)(model)
    return [np.asarray(y) for y in run(point)]


def _asked_for(asked: str | Evaluator) -> Evaluator:
    if not isinstance(asked, str):
        return asked
    if asked not in _EVALUATORS:
        raise BlockBuildError(f"there is no evaluator {asked!r}." + did_you_mean(asked, _EVALUATORS))
    return _EVALUATORS[asked]
