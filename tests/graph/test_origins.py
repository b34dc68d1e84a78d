"""What PyTorch's exporter writes down about the tensors of a model, and what is trained for it."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxblock
from onnxblock.graph.origins import Origin, note_constants, noted_constants, origins

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
    assert origins(graph) == {"w": Origin.PARAMETER, "pe": Origin.BUFFER, "c": Origin.CONSTANT}


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
    assert origins(noted({"val_9": {SOURCES: sources}})).get("val_9") is origin


def test_without_the_list_of_parameters_nothing_is_said_of_what_was_computed() -> None:
    assert origins(noted({"val_9": {SOURCES: "['pe']"}, "w": {KIND: "PARAMETER"}}, None)) == {"w": Origin.PARAMETER}


def test_unknown_kinds_are_not_noted() -> None:
    assert origins(noted({"w": {KIND: "CUSTOM_OBJ"}})) == {}


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

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Three axes: a product, so the transposed weight is folded.
        program = torch.onnx.export(Net().eval(), (torch.randn(2, 3, 3),), dynamo=True, optimize=True, verbose=False)
    made = program.model_proto
    seen = onnxblock.inspect(made)
    trained = {p.name: p.shape for p in seen.trainable}
    assert sorted(trained.values()) == [(), (3,), (3, 3)], trained
    assert {"temperature", "linear.bias"} <= set(trained)
    assert "position" in {p.name for p in seen.not_trained}
