"""The cases of the rule tests as models whose loss is the sum of output × cotangent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, TensorProto, defs, helper, numpy_helper

from onnxblock.graph.types import tensor_type
from tests.autodiff import harness

OLDEST, NEWEST = 13, 21  # opsets of the original
ONE_OUTPUT = {"LayerNormalization", "SoftmaxCrossEntropyLoss"}  # it forgets what comes back through the others


def loss_model(case: harness.Case, at: harness.Point) -> ModelProto | None:
    """The model, with everything an initializer; nothing where the original lacks the operator or the types."""
    model = harness.static(case)
    (imported,) = (o for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if imported.version < OLDEST or not _known(model, min(imported.version, NEWEST)):
        return None
    if any(v.type.tensor_type.elem_type != TensorProto.FLOAT for v in model.graph.input):
        return None
    imported.version, model.ir_version = min(imported.version, NEWEST), 8
    graph = model.graph
    total = ""
    for value in [v for v in graph.output if v.name in at.outputs]:
        known = tensor_type(value.type)
        if known is None or known.dtype != TensorProto.FLOAT:
            return None
        cotangent = cotangents(case, at)[value.name + harness.COTANGENT_SUFFIX].astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(cotangent, f"{value.name}.cotangent"))
        graph.node.append(helper.make_node("Mul", [value.name, f"{value.name}.cotangent"], [f"{value.name}.product"]))
        graph.node.append(helper.make_node("ReduceSum", [f"{value.name}.product"], [f"{value.name}.sum"], keepdims=0))
        if total:
            graph.node.append(helper.make_node("Add", [total, f"{value.name}.sum"], [f"{value.name}.total"]))
        total = f"{value.name}.total" if total else f"{value.name}.sum"
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(total, TensorProto.FLOAT, []))
    for value in graph.input:
        # the original's pooling crashes the process when its input is a parameter itself
        graph.node.insert(0, helper.make_node("Neg", [negative(value.name)], [value.name]))
        graph.initializer.append(numpy_helper.from_array(-case.feeds[value.name], negative(value.name)))
    del graph.input[:]
    return model


def negative(name: str) -> str:
    """The parameter that is minus an input of the case, so its gradient has the other sign."""
    return f"{name}.negative"


def cotangents(case: harness.Case, at: harness.Point) -> dict[str, np.ndarray]:
    """The cotangents of the case, zero where the original would not look at them."""
    first = next(iter(at.cotangents))
    keep_all = case.op_type not in ONE_OUTPUT
    return {name: x if keep_all or name == first else np.zeros_like(x) for name, x in at.cotangents.items()}


def exact_gradients(case: harness.Case, at: harness.Point) -> Mapping[str, np.ndarray]:
    """Our gradients for these cotangents in float64, by the name of the parameter."""
    found: Mapping[str, np.ndarray] = at.gradients
    if case.op_type in ONE_OUTPUT:
        feeds = {k: x.astype(np.float64) if k in at.wrt else x for k, x in case.feeds.items()}
        evaluate = harness.EVALUATORS[harness.evaluator_of(case)]
        found = dict(zip(at.wrt, evaluate(at.backward)({**feeds, **cotangents(case, at)}), strict=True))
    return {negative(name): -np.asarray(d) for name, d in found.items()}


def _known(model: ModelProto, opset: int) -> bool:
    for node in model.graph.node:
        try:
            schema = defs.get_schema(node.op_type, opset, "")
        except defs.SchemaError:
            return False
        if schema.deprecated or any(a.name not in schema.attributes for a in node.attribute):
            return False
    return True
