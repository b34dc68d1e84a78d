"""What PyTorch's exporter writes down about the tensors of a model, and what is trained for it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxblock
from onnxblock.graph.origins import Origin, note_constants, noted_constants, origins
from onnxblock.graph.weights import Weights, detach

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
SOURCES = "pkg.onnxscript.optimizer.folded_from"
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"

SIGNED = """
# inputs
p_w: PARAMETER target='w'
p_t: PARAMETER target='block.t'
b_pe: BUFFER target='pe' persistent=True
x: USER_INPUT
"""


def noted(notes: dict[str, dict[str, str]], signature: str | None = SIGNED) -> onnx.GraphProto:
    graph = onnx.GraphProto()
    for name, entries in notes.items():
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
        helper.set_metadata_props(info, entries)
        graph.value_info.append(info)
    if signature is not None:
        helper.set_metadata_props(graph, {SIGNATURE: signature})
    return graph


def test_kinds_are_taken_as_noted() -> None:
    graph = noted({"w": {KIND: "PARAMETER"}, "pe": {KIND: "BUFFER"}, "c": {KIND: "CONSTANT_TENSOR"}, "h": {}})
    assert origins(graph, Weights()) == {"w": Origin.PARAMETER, "pe": Origin.BUFFER, "c": Origin.CONSTANT}


@pytest.mark.parametrize(
    ("sources", "origin"),
    [
        ("['w']", Origin.PARAMETER),
        ("['val_3', 'block.t']", Origin.PARAMETER),
        ("['pe', 'val_3']", Origin.CONSTANT),
        ("[]", Origin.CONSTANT),
        ("['w'", None),
        ("w", None),
        ("3", None),
    ],
)
def test_what_was_computed_is_a_parameter_if_it_was_made_of_one(sources: str, origin: Origin | None) -> None:
    assert origins(noted({"val_9": {SOURCES: sources}}), Weights()).get("val_9") is origin


def test_without_the_list_of_parameters_nothing_is_said_of_what_was_computed() -> None:
    assert origins(noted({"val_9": {SOURCES: "['pe']"}, "w": {KIND: "PARAMETER"}}, None), Weights()) == {
        "w": Origin.PARAMETER
    }


@pytest.mark.parametrize(
    ("parameter", "computed", "origin"),
    [
        (np.arange(8.0), np.zeros((1, 4)), Origin.CONSTANT),
        (np.arange(8.0), np.arange(4.0), Origin.PARAMETER),
        (np.ones(8), np.ones((8, 1, 1)), Origin.PARAMETER),
        (None, np.ones(4), Origin.PARAMETER),
        (np.arange(8192.0), np.zeros(8192), Origin.CONSTANT),
        (np.ones(8192), np.ones((1, 8192)), Origin.PARAMETER),
        (np.ones(8192), np.arange(8192.0), Origin.PARAMETER),
    ],
)
def test_zeros_in_the_shape_of_a_parameter_are_no_parameter(
    parameter: np.ndarray | None, computed: np.ndarray, origin: Origin
) -> None:
    graph = noted({"w": {KIND: "PARAMETER"}, "zeros": {SOURCES: "['w', 'val_3']"}})
    for name, array in (("w", parameter), ("zeros", computed)):
        if array is not None:
            graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    light, weights = detach(helper.make_model(graph))
    assert origins(light.graph, weights)["zeros"] is origin


def test_numbers_that_the_exporter_wrote_itself_are_constants() -> None:
    graph = noted({"w": {KIND: "PARAMETER"}, "val_2": {SOURCES: "['w']"}})
    for name, array in {"val_0": [1.0], "val_1": [1.0, 2.0], "val_2": [1.0], "fc.bias": [0.5]}.items():
        graph.initializer.append(numpy_helper.from_array(np.array(array, np.float32), name))
    assert origins(graph, Weights()) == {"w": Origin.PARAMETER, "val_2": Origin.PARAMETER, "val_0": Origin.CONSTANT}


def test_unknown_kinds_are_not_noted() -> None:
    assert origins(noted({"w": {KIND: "CUSTOM_OBJ"}}), Weights()) == {}


def test_constants_are_noted_beside_earlier_ones() -> None:
    made = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {1, 2}, int64[1] i = {0}> {
            h = Add(x, a)  y = Add(h, b)
        }"""
    )
    assert noted_constants(made) == set()
    note_constants(made, [])
    assert not made.metadata_props
    note_constants(made, ["a", "i", "gone"])
    assert noted_constants(made) == {"a"}
    note_constants(made, {"b"})
    assert noted_constants(made) == {"a", "b"}
    assert len(made.metadata_props) == 1
    for damage in ("[", "3", '{"a": 1}', "[1, null]"):
        made.metadata_props[0].value = damage
        assert noted_constants(made) == set()


def model() -> onnx.ModelProto:
    made = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]> g (float[N,3] x) => (float[N,3] y) {
        a = Add(x, pe) b = Mul(a, scale) c = MatMul(b, w) d = MatMul(c, folded) y = Add(d, mask) }"""
    )
    arrays = {"pe": np.ones(3), "scale": np.ones(()), "w": np.eye(3), "folded": np.eye(3), "mask": np.zeros((1, 3))}
    made.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items())
    return made


def annotated() -> onnx.ModelProto:
    made = model()
    kinds = {
        "pe": {KIND: "BUFFER"},
        "scale": {KIND: "PARAMETER"},
        "w": {KIND: "PARAMETER"},
        "folded": {SOURCES: "['block.t']"},
        "mask": {SOURCES: "['val_1', 'pe']"},
    }
    graph = noted(kinds)
    made.graph.value_info.extend(graph.value_info)
    made.graph.metadata_props.extend(graph.metadata_props)
    return made


def test_buffers_and_constants_are_not_trained_and_numbers_that_were_parameters_are() -> None:
    seen = onnxblock.inspect(annotated())
    assert [p.name for p in seen.trainable] == ["scale", "w", "folded"]
    reasons = {p.name: p.reason for p in seen.not_trained}
    assert "a buffer of the PyTorch module" in reasons["pe"]
    assert "a constant in the code" in reasons["mask"]


def test_without_notes_all_but_single_numbers_are_trained() -> None:
    assert [p.name for p in onnxblock.inspect(model()).trainable] == ["pe", "w", "folded", "mask"]


def test_notes_inside_bodies_and_functions_are_kept() -> None:
    made = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        g (float[4,4] x, bool c) => (float[4,4] y) <float[4] w = {1, 2, 3, 4}> {
            s = Mul(x, w)
            h = If (c) <
                then_branch = t () => (float[4,4] a) <float[1,4] row = {0, 0, 0, 0}> { a = Add(s, row) },
                else_branch = e () => (float[4,4] b) <float[1,4] scale = {5, 6, 7, 8}> { b = Mul(s, scale) }
            >
            y = own.shift(h)
        }
        <domain: "own", opset_import: ["" : 18]>
        shift (x) => (y) { r = Constant<value = float[4] {0, 0, 0, 0}>()  y = Add(x, r) }
        """
    )
    helper.set_metadata_props(made.graph, {SIGNATURE: "p_w: PARAMETER target='w'"})
    branches = next(node for node in made.graph.node if node.op_type == "If").attribute
    bodies = {a.name: a.g for a in branches}
    for holder, name in ((bodies["then_branch"], "row"), (bodies["else_branch"], "scale"), (made.functions[0], "r")):
        info = holder.value_info.add(name=name)
        helper.set_metadata_props(info, {SOURCES: "['w', 'tmp_1']"})
    seen = onnxblock.inspect(made)
    assert {p.name for p in seen.trainable} == {"w", "scale"}
    assert {p.name for p in seen.not_trained} == {"row", "shift.r"}


def exported(module: Any, *inputs: Any, **settings: Any) -> onnx.ModelProto:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module.eval(), inputs, dynamo=True, optimize=True, verbose=False, **settings)
    return program.model_proto


def test_the_row_of_an_empty_bag_is_not_trained() -> None:
    torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")
    bag = torch.nn.EmbeddingBag(20, 4, mode="mean")
    made = exported(bag, torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2]), dynamic_shapes=({0: "numbers"}, {0: "bags"}))
    seen = onnxblock.inspect(made)
    assert [p.name for p in seen.trainable] == ["weight"]


def test_the_exporter_writes_these_notes() -> None:
    torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.temperature = torch.nn.Parameter(torch.tensor(0.5))
            self.register_buffer("position", torch.randn(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            mask = torch.full((3, 3), -1e9).triu(1)
            return (self.linear(x + self.position) @ mask) * self.temperature

    # Three axes: a product, so the transposed weight is folded.
    seen = onnxblock.inspect(exported(Net(), torch.randn(2, 3, 3)))
    trained = {p.name: p.shape for p in seen.trainable}
    assert sorted(trained.values()) == [(), (3,), (3, 3)], trained
    assert {"temperature", "linear.bias"} <= set(trained)
    assert "position" in {p.name for p in seen.not_trained}
