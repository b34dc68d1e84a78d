"""Every decomposition against onnxruntime's own kernel: values, types and gradients."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import onnxblock
from onnxblock.autodiff import registry
from onnxblock.errors import DuplicateRuleError, UnsupportedOperatorError
from onnxblock.graph import decomposition
from onnxblock.graph.graph import Graph
from onnxblock.graph.precision import in_float_type
from onnxblock.graph.schemas import NEWEST_OPSET, find_schema
from onnxblock.graph.types import numpy_dtype
from tests.running import run

from . import contrib, contrib_attention
from .contrib import MICROSOFT, Row, normal, row

ROWS = [
    *contrib.ACTIVATIONS,
    *contrib.NORMALIZATIONS,
    *contrib.MATRIX_PRODUCTS,
    *contrib.MIXTURES,
    *contrib.MOVEMENTS,
    *contrib.QUANTIZED,
    *contrib_attention.ROWS,
]
IN_PLACE_OF_ANOTHER_DOMAIN = {("", "SkipSimplifiedLayerNormalization"), (MICROSOFT, "SimplifiedLayerNormalization")}
"""Operators that some tools write into the domain in which onnxruntime has no kernel."""


def decomposed(model: ModelProto) -> ModelProto:
    """The model of one node, made of other operators."""
    graph = Graph(model)
    node = graph.proto.node[0]
    entry = decomposition.find(node.op_type, node.domain)
    assert entry is not None
    results = decomposition.decompose(graph, node, entry)
    made = ModelProto()
    made.CopyFrom(graph.model)
    del made.graph.node[0]
    for name, result in zip(node.output, results, strict=False):
        if name:
            assert result is not None
            made.graph.node.append(helper.make_node("Identity", [result], [name]))
    return made


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_values_are_those_of_the_kernel(row: Row, symbolic: bool) -> None:
    model = row.model(symbolic=symbolic)
    made = decomposed(model)
    assert {node.domain for node in made.graph.node} == {""}
    expected, found = (run(m, row.feeds(), optimize=False) for m in (model, made))
    for k, y, z in zip(row.compared, expected, found, strict=True):
        assert (z.dtype, z.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(z, y, rtol=2e-5, atol=2e-5, err_msg=f"output {k}")


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_types_flow_through_the_node(row: Row, symbolic: bool) -> None:
    model = row.model(symbolic=symbolic)
    known = Graph(model)
    for name, y in zip((f"output{k}" for k in row.compared), run(model, row.feeds()), strict=True):
        type_ = known.tensor_type(name)
        assert type_ is not None
        assert numpy_dtype(type_.dtype) == y.dtype
        if row.op_type == "ExpandDims" or type_.shape is None:
            continue
        assert len(type_.shape) == y.ndim
        for dimension, size in zip(type_.shape, y.shape, strict=True):
            assert dimension is None or dimension in (size, f"n{size}"), (type_, y.shape)


@pytest.mark.parametrize("row", [r for r in ROWS if r.differentiated()], ids=str)
def test_gradients_are_those_of_the_kernel(row: Row) -> None:
    model = row.model()
    names = row.differentiated()
    onnxblock.check_gradients(
        model, row.feeds(), wrt=names, outputs=["output0"], dtype="float32", evaluator="onnxruntime"
    )
    gradient = onnxblock.gradients(model, wrt=names, outputs=["output0"])
    has_rule = isinstance(registry.find(row.op_type, row.domain), registry.Rule)
    foreign = {node.op_type for node in gradient.graph.node if node.domain or node.op_type == row.op_type}
    standard = row.op_type in {"Gelu", "Trilu", "GatherND", "Pad", "GridSample", "Range", "Unique"}
    assert foreign <= ({row.op_type} if has_rule or standard else set())
    if standard:
        assert not any(node.domain for node in gradient.graph.node)


def _without_ranks(model: ModelProto) -> ModelProto:
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    return model


def _runs(model: ModelProto, feeds: dict[str, np.ndarray]) -> bool:
    try:
        run(model, feeds, optimize=False)
    except Exception:  # noqa: BLE001 - the bindings derive their exceptions from Exception only
        return False
    return True


@pytest.mark.parametrize("form", ["unranked", "float16"])
@pytest.mark.parametrize("row", [r for r in ROWS if r.differentiated()], ids=str)
def test_gradients_in_other_forms_are_the_same_or_refused_with_the_reason(row: Row, form: str) -> None:
    """Without any shape, and in float16; where onnxruntime runs the node itself that way."""
    names, feeds = row.differentiated(), row.feeds()
    expected = run(onnxblock.gradients(row.model(), wrt=names, outputs=["output0"]), feeds, optimize=False)
    model = _without_ranks(row.model())
    if form == "float16":
        model = in_float_type(row.model(), TensorProto.FLOAT16)
        feeds = {name: x.astype(np.float16) for name, x in feeds.items()}
        model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT16, None))
    if not _runs(model, feeds):
        return
    try:
        gradient = onnxblock.gradients(model, wrt=names, outputs=["output0"])
    except UnsupportedOperatorError as error:
        reason = "(rank|width|shape|weights of unknown|axes)" if form == "unranked" else "cannot take"
        assert re.search(reason, str(error))  # noqa: PT017 - either is right
        return
    tolerance = 3e-2 if form == "float16" else 1e-4
    for d, x, exact in zip(run(gradient, feeds, optimize=False), map(feeds.get, names), expected, strict=True):
        assert x is not None
        assert (d.dtype, d.shape) == (x.dtype, x.shape)
        scale = max(1.0, float(np.max(np.abs(exact), initial=0.0)))
        np.testing.assert_allclose(d, exact, rtol=tolerance, atol=tolerance * scale)


def test_every_decomposition_of_what_onnx_does_not_define_has_a_row() -> None:
    known = {(row.domain, row.op_type) for row in ROWS} | IN_PLACE_OF_ANOTHER_DOMAIN
    foreign = [e for e in decomposition.entries() if find_schema(e.op_type, NEWEST_OPSET, e.domain) is None]
    assert {(e.domain, e.op_type) for e in foreign} <= known


@pytest.mark.parametrize(("domain", "op_type"), sorted(IN_PLACE_OF_ANOTHER_DOMAIN))
def test_the_domain_does_not_matter(domain: str, op_type: str) -> None:
    mine, theirs = (decomposition.find(op_type, d) for d in ("", MICROSOFT))
    assert mine is not None
    assert theirs is not None
    assert mine.function is theirs.function


def test_a_shape_that_the_model_does_not_declare_is_found() -> None:
    model = row("FastGelu", normal(2, 3)).model()
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    assert Graph(model).value("output0").shape == (2, 3)


def test_the_node_stays_where_no_gradient_passes() -> None:
    model = row("FastGelu", normal(2, 3)).model()
    model.graph.node.append(helper.make_node("Mul", ["output0", "w"], ["product"]))
    model.graph.initializer.append(helper.make_tensor("w", 1, [3], [1, 2, 3]))
    model.graph.output[0].name = "product"
    kinds = [node.op_type for node in onnxblock.gradients(model, wrt=["w"]).graph.node]
    assert "FastGelu" in kinds
    kinds = [node.op_type for node in onnxblock.gradients(model, wrt=["input0"]).graph.node]
    assert "FastGelu" not in kinds


def test_nodes_stay_in_order_and_names_are_the_same_every_time() -> None:
    model = row("FastGelu", normal(2, 3)).model()
    model.graph.node.append(helper.make_node("BiasGelu", ["output0", "b"], ["next"], domain=MICROSOFT))
    model.graph.node.append(helper.make_node("Relu", ["next"], ["last"]))
    model.graph.initializer.append(helper.make_tensor("b", 1, [3], [1, 2, 3]))
    model.graph.output[0].name = "last"
    first, second = (onnxblock.gradients(model, wrt=["input0", "b"]) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    onnx.checker.check_model(first)
    assert not any(node.domain for node in first.graph.node)


def test_what_cannot_be_expressed_is_listed_with_the_reason() -> None:
    model = row("CDist", normal(3, 4), normal(5, 4), metric="cosine").model()
    model.graph.node.append(helper.make_node("Foreign", ["output0"], ["last"], name="other", domain="my.domain"))
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    model.graph.output[0].name = "last"
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, None))
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnxblock.gradients(model, wrt=["input0"])
    for text in ("CDist", "its metric 'cosine' is not known", "Foreign", "my.domain"):
        assert text in str(caught.value)


@pytest.mark.parametrize(("row", "why"), contrib.REFUSED + contrib_attention.REFUSED, ids=lambda x: str(x)[:60])
def test_forms_that_are_not_known_are_refused_with_the_reason(row: Row, why: str) -> None:
    """Not taken for the form that is known."""
    model = row.model()
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, None))
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnxblock.gradients(model, wrt=["input0"])
    assert row.op_type in str(caught.value)
    assert why in str(caught.value)


def test_a_second_decomposition_is_refused() -> None:
    with pytest.raises(DuplicateRuleError, match=r"activation\.py"):
        decomposition.decomposition("FastGelu", domain=MICROSOFT)(lambda n: n.x)


def test_anyone_can_add_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "_entries", dict(decomposition._entries))

    @onnxblock.decomposition("Twice", domain="my.domain")
    def twice(n: onnxblock.NodeContext) -> onnxblock.Value:
        y: onnxblock.Value = n.x * 2.0
        return y

    model = row("Twice", normal(2, 3), settings={"domain": "my.domain"}).model()
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    assert Graph(model).value("output0").shape == (2, 3)
    gradient = onnxblock.gradients(model, wrt=["input0"])
    np.testing.assert_array_equal(run(gradient, {"input0": normal(2, 3)})[0], np.full((2, 3), 2))
