"""What the rule test does with one case; the test itself is in ``test_rules.py``."""

from __future__ import annotations

import fnmatch
import functools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper, shape_inference

from artifacts.api.feeds import unwrap, wrap
from onnxblock.autodiff import registry
from onnxblock.autodiff.check import check_gradients, onnxruntime_evaluator, reference_evaluator
from onnxblock.autodiff.functions import expand, has_function_body
from onnxblock.autodiff.gradients import COTANGENT_SUFFIX, gradients
from onnxblock.checkpoint import element_type_of
from onnxblock.errors import GradientMismatchError, RuntimeUnavailableError
from onnxblock.graph import decomposition
from onnxblock.graph.graph import Graph
from onnxblock.graph.precision import in_float_type, to_float64
from onnxblock.graph.schemas import find_schema, ir_version_of
from onnxblock.graph.types import FLOATS, dtype_name, onnx_dtype, tensor_type
from tests.runtime import is_newest, newest_opset

from .cases import DEFINITIONS, ORT, PARTS, REFERENCE, Case, gathered
from .definitions import definitions_evaluator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def parts_evaluator(model: ModelProto) -> Any:
    """Run what operators without a rule are made of: ``onnx.reference`` computes some of them in float32."""
    graph = Graph(_copy(model))
    expand(graph, [v.name for v in model.graph.input], [v.name for v in model.graph.output])
    return definitions_evaluator(graph.to_model_proto())


def runtime_evaluator(model: ModelProto) -> Any:
    """Run on onnxruntime; where an older one lacks float64 kernels that the newest has, ONNX's evaluator runs."""
    try:
        return onnxruntime_evaluator(model)
    except RuntimeUnavailableError:
        if is_newest():
            raise
        return definitions_evaluator(model)


EVALUATORS = {
    ORT: runtime_evaluator,
    REFERENCE: reference_evaluator,
    DEFINITIONS: definitions_evaluator,
    PARTS: parts_evaluator,
}
TOLERANCES = {TensorProto.DOUBLE: 1e-9, TensorProto.FLOAT: 1e-4, TensorProto.FLOAT16: 2e-2, TensorProto.BFLOAT16: 5e-2}


# -- collecting


@functools.cache
def backend_cases() -> list[Case]:
    """ONNX's own single-node cases with float inputs and outputs, one for each form of each operator."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases()
    cases, forms = [], set()
    constants = gathered("CONSTANTS")
    for test in found:
        node = test.model.graph.node[0]
        if all(o.domain not in ("", "ai.onnx") for o in test.model.opset_import):
            continue  # nothing can be built on them
        if len(test.model.graph.node) > 1 or test.name.endswith("_expanded") or "_expanded_" in test.name:
            continue
        if registry.find(node.op_type, node.domain) is None and not is_made_of_others(test.model):
            continue
        feeds = dict(zip((i.name for i in test.model.graph.input), test.data_sets[0][0], strict=True))
        feeds = {name: numpy_helper.to_array(x) if isinstance(x, TensorProto) else x for name, x in feeds.items()}
        if any(not isinstance(x, (np.ndarray, np.generic)) for x in feeds.values()):
            continue  # sequences
        feeds = {name: np.asarray(x) for name, x in feeds.items()}
        settings = {node.input[k] for k in constants.get(node.op_type, ()) if k < len(node.input)}
        case = Case(
            node.op_type,
            node.domain,
            test.name.removeprefix("test_"),
            test.model,
            feeds,
            constants=frozenset(settings | fixed_float_inputs(test.model)),
        )
        if wrt(case) and any(_is_float(o) for o in test.model.graph.output) and (key := _form(case)) not in forms:
            forms.add(key)
            cases.append(case)
    return cases


def _form(case: Case) -> tuple[Any, ...]:
    node = case.model.graph.node[0]
    attributes = tuple(sorted(a.SerializeToString(deterministic=True) for a in node.attribute))
    present = tuple(bool(name) for name in (*node.input, *node.output))
    data = tuple((str(x.dtype), x.shape, x.tobytes() if x.dtype.kind in "iub" else b"") for x in case.feeds.values())
    return case.op_type, opset(case.model), attributes, present, data


def fixed_float_inputs(model: ModelProto) -> set[str]:
    """Inputs that the operator takes as float32 only: settings, like the scales of Resize."""
    node = model.graph.node[0]
    schema = find_schema(node.op_type, opset(model), node.domain)
    if schema is None or not schema.inputs:
        return set()
    formals = [schema.inputs[min(k, len(schema.inputs) - 1)] for k in range(len(node.input))]
    return {n for n, f in zip(node.input, formals, strict=True) if f.type_str == "tensor(float)"}


def opset(model: ModelProto) -> int:
    return next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def _is_float(value: Any) -> bool:
    known = tensor_type(value.type)
    return known is not None and known.dtype in FLOATS


def wrt(case: Case) -> list[str]:
    """The inputs that are differentiated."""
    return [v.name for v in case.model.graph.input if _is_float(v) and v.name not in case.constants]


@functools.cache
def all_cases() -> list[Case]:
    return [*gathered("ROWS"), *(c for c in backend_cases() if has_rule(c) or not _has_entry(c))]


def is_made_of_others(model: ModelProto) -> bool:
    """Whether the node is one of ONNX's own operators whose gradient goes through what they are made of."""
    node = model.graph.node[0]
    if node.domain:
        return False
    return decomposition.find(node.op_type, "") is not None or has_function_body(node.op_type, opset(model))


def _has_entry(case: Case) -> bool:
    return registry.find(case.op_type, case.domain) is not None


def has_rule(case: Case) -> bool:
    return isinstance(registry.find(case.op_type, case.domain), registry.Rule)


def cases_of_backend(op_type: str, domain: str = "") -> list[Case]:
    return [c for c in backend_cases() if (c.op_type, c.domain) == (op_type, domain)]


def cases_of(op_type: str, domain: str = "") -> list[Case]:
    return [c for c in all_cases() if (c.op_type, c.domain) == (op_type, domain)]


def evaluator_of(case: Case) -> str:
    """The name of what runs the case in float64, as the families say."""
    named = gathered("EVALUATORS")
    operator = f"{case.domain}.{case.op_type}" if case.domain else case.op_type
    return named.get(operator) or next((e for p, e in named.items() if fnmatch.fnmatch(case.name, p)), ORT)


def exception_of(case: Case, step: str) -> str | None:
    """Why a step of a case cannot work, where a family says so."""
    return next((why for p, why in gathered("EXCEPTIONS").items() if fnmatch.fnmatch(f"{case.name}:{step}", p)), None)


# -- the point, and the model in its forms


def static(case: Case) -> ModelProto:
    """Shapes known; what is not differentiated is an initializer."""
    model = _copy(case.model)
    kept = set(wrt(case))
    for value in [v for v in model.graph.input if v.name not in kept]:
        model.graph.initializer.append(numpy_helper.from_array(case.feeds[value.name], value.name))
        model.graph.input.remove(value)
    for value in model.graph.input:
        _set_shape(value, case.feeds[value.name].shape)
    return model


def symbolic(case: Case) -> ModelProto:
    """Every dimension of every input has a name of its own."""
    model = static(case)
    for value in model.graph.input:
        _set_shape(value, [f"{value.name}_{k}" for k in range(case.feeds[value.name].ndim)])
    _forget_outputs(model)
    return model


def unranked(case: Case) -> ModelProto:
    """Not even ranks are known, and everything is fed."""
    model = _copy(case.model)
    present = {v.name for v in model.graph.input}
    for tensor in [t for t in model.graph.initializer if t.name in case.feeds]:
        if tensor.name not in present:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        model.graph.initializer.remove(tensor)
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    _forget_outputs(model)
    return model


def newest(case: Case) -> ModelProto:
    """The same node at the newest opset that onnxruntime runs."""
    model = static(case)
    for imported in model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            imported.version = newest_opset()
    model.ir_version = ir_version_of(newest_opset())
    return model


def half(case: Case) -> ModelProto:
    """In float16, for which onnxruntime casts where it has no kernel."""
    return in_float_type(static(case), TensorProto.FLOAT16)


def brain(case: Case) -> ModelProto:
    """In bfloat16."""
    return in_float_type(static(case), TensorProto.BFLOAT16)


FORMS = {"symbolic": symbolic, "unranked": unranked, "newest": newest, "float16": half, "bfloat16": brain}


def _copy(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _set_shape(value: Any, shape: Sequence[int | str]) -> None:
    value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape))


def _forget_outputs(model: ModelProto) -> None:
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


# -- running


def open_onnxruntime(model: ModelProto, optimized: bool) -> onnxruntime.InferenceSession:
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_onnxruntime(model: ModelProto, feeds: Mapping[str, np.ndarray], optimized: bool) -> list[np.ndarray]:
    session = open_onnxruntime(model, optimized)
    names = {i.name for i in session.get_inputs()}
    arrays = {k: np.asarray(x) for k, x in feeds.items() if k in names}
    if all(x.dtype.kind != "V" for x in arrays.values()):
        return session.run(None, arrays)
    # onnxruntime takes no arrays of types that NumPy has not, but values of them
    values = {k: wrap(np.ascontiguousarray(x).reshape(x.shape), element_type_of(x.dtype)) for k, x in arrays.items()}
    return [unwrap(y) for y in session.run_with_ort_values(None, values)]


class Point:
    """One case in float64: the cotangents, and the gradients that every other form must give."""

    def __init__(self, case: Case) -> None:
        self.case, self.wrt = case, wrt(case)
        evaluate = EVALUATORS[evaluator_of(case)]
        model = static(case)
        wide = to_float64(model)
        feeds = {k: x.astype(np.float64) if k in self.wrt else x for k, x in case.feeds.items()}
        outputs = [o for o in wide.graph.output if _is_float(o)]
        values = evaluate(_only(wide, outputs))(feeds)
        rng = np.random.default_rng(7)
        self.outputs = [o.name for o in outputs]
        self.cotangents = {
            name + COTANGENT_SUFFIX: np.ones(y.shape)
            if case.gradients is not None
            else np.round(rng.uniform(0.5, 1.0, y.shape) * rng.choice([-1, 1], y.shape), 2)
            for name, y in zip(self.outputs, values, strict=True)
        }
        self.backward = vjp(case, wide)
        found = evaluate(self.backward)({**feeds, **self.cotangents})
        self.gradients = {name: np.asarray(d) for name, d in zip(self.wrt, found, strict=True)}

    def feeds(self, model: ModelProto) -> dict[str, np.ndarray]:
        """The arrays for a gradient model of any form, in its element types."""
        wanted = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
        arrays = {**self.case.feeds, **self.cotangents}
        return {name: arrays[name].astype(dtype) for name, dtype in wanted.items() if name in arrays}


@functools.lru_cache(maxsize=256)
def point(case_id: int) -> Point:
    return Point(all_cases()[case_id])


def _only(model: ModelProto, outputs: Sequence[Any]) -> ModelProto:
    copy = _copy(model)
    del copy.graph.output[:]
    copy.graph.output.extend(outputs)
    return copy


def vjp(case: Case, model: ModelProto) -> ModelProto:
    return gradients(model, wrt=wrt(case), cotangents="inputs")


def compare(case: Case, at: Point, forward: ModelProto, model: ModelProto, found: Sequence[np.ndarray]) -> None:
    """Element types, shapes and values of gradients against the float64 ones."""
    types = {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    tolerance = max(TOLERANCES[t] for t in types & TOLERANCES.keys())
    value_types = {v.name: v.type.tensor_type.elem_type for v in forward.graph.input}
    for name, output, d in zip(at.wrt, model.graph.output, found, strict=True):
        x, exact = case.feeds[name], at.gradients[name]
        declared = tensor_type(output.type)
        assert d.shape == x.shape, f"the gradient of {name} has shape {d.shape}, its value {x.shape}"
        assert declared is not None
        assert declared.dtype == onnx_dtype(d.dtype), f"{name} is declared {dtype_name(declared.dtype)}, not {d.dtype}"
        assert declared.dtype == value_types[name], f"the gradient of {name} is {d.dtype}"
        finite = np.isfinite(exact)
        scale = max(1.0, float(np.max(np.abs(exact[finite]), initial=0.0)))
        np.testing.assert_allclose(
            np.asarray(d, np.float64), exact, rtol=tolerance, atol=tolerance * scale, err_msg=f"gradient of {name}"
        )


def constant_nearby(case: Case) -> None:
    """The outputs are the same after a small step from a point beside the case's."""
    evaluate = reference_evaluator(to_float64(static(case)))
    rng = np.random.default_rng(5)
    beside = {n: case.feeds[n].astype(np.float64) + rng.uniform(0.01, 0.02, case.feeds[n].shape) for n in wrt(case)}
    near = {n: x + 1e-6 * rng.standard_normal(x.shape) for n, x in beside.items()}
    for y, z in zip(evaluate(beside), evaluate(near), strict=True):
        np.testing.assert_array_equal(y, z)


# -- the steps


def step_float64(case: Case, at: Point) -> None:
    """Literal values, or finite differences; away from a kink or tie where the point lies on one."""
    for name, d in at.gradients.items():
        assert d.shape == case.feeds[name].shape
        assert d.dtype == np.float64
    if case.gradients is not None:
        for name, expected in case.gradients.items():
            np.testing.assert_allclose(at.gradients[name], expected, rtol=1e-6, atol=1e-9, err_msg=name)
        return
    differences(case, at)


def differences(case: Case, at: Point) -> None:
    """Compare with finite differences; once more beside the point where its derivative does not exist."""
    model = static(case)
    feeds = {name: case.feeds[name].astype(np.float64) for name in at.wrt}
    try:
        check_gradients(model, feeds, wrt=at.wrt, evaluator=EVALUATORS[evaluator_of(case)])
    except GradientMismatchError as error:
        rough = {c.value for c in error.result.comparisons if not c.smooth}
        if not rough:
            raise
        rng = np.random.default_rng(3)
        beside = {
            k: x + rng.uniform(0.01, 0.02, x.shape) * rng.choice([-1, 1], x.shape) if k in rough else x
            for k, x in feeds.items()
        }
        check_gradients(model, beside, wrt=at.wrt, evaluator=EVALUATORS[evaluator_of(case)])


def is_smooth(case: Case) -> bool:
    """Whether differences say something there, and there is something to differentiate."""
    if case.gradients is not None or exception_of(case, "all") or exception_of(case, "float64"):
        return False
    return all(np.size(x) for x in case.feeds.values())


def step_second(case: Case, at: Point) -> None:
    """The model of gradients, differentiated with respect to everything that it is given."""
    feeds = {name: x.astype(np.float64) for name, x in at.feeds(at.backward).items()}
    wrt = [v.name for v in at.backward.graph.input if _is_float(v)]
    check_gradients(at.backward, feeds, wrt=wrt, evaluator=EVALUATORS[evaluator_of(case)])


def racing(model: ModelProto) -> int:
    """How many ScatterND combine what meets at one place."""
    return sum(
        node.op_type == "ScatterND" and any(a.name == "reduction" and a.s != b"none" for a in node.attribute)
        for node in model.graph.node
    )


def step_structure(case: Case) -> ModelProto:
    """Standard operators only, valid at the opset, and the same bytes twice."""
    forward = static(case)
    backward = vjp(case, forward)
    allowed = {"", case.domain}
    foreign = {f"{n.domain}::{n.op_type}" for n in backward.graph.node if n.domain not in allowed}
    assert not foreign, f"operators outside the standard: {foreign}"
    assert racing(backward) <= racing(forward), "threads of onnxruntime lose updates of a ScatterND that combines"
    assert not backward.functions
    if not case.domain:
        shape_inference.infer_shapes(backward, check_type=True, strict_mode=True, data_prop=True)
    again = vjp(case, static(case))
    assert backward.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    return backward


def step_float32(case: Case, at: Point, backward: ModelProto) -> None:
    """On stock onnxruntime, optimised and not."""
    for optimized in (True, False) if has_kernels(backward) else ():
        compare(case, at, static(case), backward, run_onnxruntime(backward, at.feeds(backward), optimized))


def has_kernels(model: ModelProto, errors: Any = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented) -> bool:
    """Whether onnxruntime opens a model without one of ``errors``; only of bfloat16 may it lack kernels."""
    types = {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    if TensorProto.BFLOAT16 not in types:
        return True
    try:
        open_onnxruntime(model, optimized=False)
    except errors:
        return False
    return True


def step_form(case: Case, at: Point, form: str) -> None:
    """Another form of the model gives the same gradients."""
    forward = FORMS[form](case)
    if not has_kernels(forward, errors=Exception):
        return
    backward = vjp(case, forward)
    if has_kernels(backward):
        compare(case, at, forward, backward, run_onnxruntime(backward, at.feeds(backward), optimized=True))
