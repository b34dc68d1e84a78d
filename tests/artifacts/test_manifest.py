from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import get_args

import pytest

from artifacts import manifest
from artifacts.manifest import Initial, Input, Manifest, Output, StatePair
from onnxblock.errors import InvalidModelError
from onnxblock.names import MANIFEST_KEY, MANIFEST_VERSION

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "manifest.schema.json").read_text())


def training() -> Manifest:
    return Manifest(
        kind="training",
        model="abc",
        generation="def",
        runtimes=("onnxruntime", "onnxruntime-training"),
        inputs=(
            Input("x", "user", "float32", ("N", 3)),
            Input("target", "user", "float32", None),
            Input("w", "parameter", "float32", (3, 2)),
            Input("mean", "statistic", "float32", (2,)),
            Input("w_grad.accumulation.buffer", "gradient_buffer", "float32", (3, 2), "w"),
            Input("lazy_reset_grad", "reset", "bool", (1,)),
        ),
        outputs=(
            Output("loss", "loss", "float32", ()),
            Output("y", "user", "float32", ("N", None)),
            Output("w_grad.accumulation.out", "gradient_flag", "bool", (1,), "w"),
            Output("w.accumulated_grad", "accumulated_gradient", "float32", (3, 2), "w"),
            Output("mean_grad", "statistic", "float32", (2,)),
        ),
        state=(
            StatePair("w_grad.accumulation.buffer", "w.accumulated_grad", True, Initial("zeros")),
            StatePair("mean", "mean_grad", False, Initial("parameter", parameter="mean")),
        ),
        settings={"batch_norm": "train"},
    )


def test_round_trip_through_metadata():
    made = training()
    metadata = made.metadata()
    assert list(metadata) == [MANIFEST_KEY]
    assert Manifest.from_metadata(metadata) == made
    assert Manifest.from_metadata({"other": "x"}) is None
    data = json.loads(metadata[MANIFEST_KEY])
    assert next(iter(data)) == "version"
    assert data["inputs"][1] == {"name": "target", "role": "user", "dtype": "float32", "shape": None}
    assert data["outputs"][0]["shape"] == []
    assert data["state"][1]["initial"] == {"kind": "parameter", "parameter": "mean"}


def test_ports_by_role():
    made = training()
    assert [p.name for p in made.inputs_of("user")] == ["x", "target"]
    assert [p.name for p in made.inputs_of("parameter", "statistic")] == ["w", "mean"]
    assert [p.name for p in made.outputs_of("loss", "user")] == ["loss", "y"]


def changed(**changes):
    return dataclasses.replace(training(), **changes)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (changed(runtimes=()), ["runtimes"]),
        (changed(inputs=(*training().inputs, Input("x", "user", "int64"))), ["input 'x' appears 2 times"]),
        (changed(kind="eval"), ["'gradient_buffer' does not belong in the eval model", "accumulated_gradient"]),
        (
            changed(outputs=training().outputs[1:] + training().outputs[:1]),
            ["'loss': the loss is always the first output"],
        ),
        (
            changed(state=(StatePair("w_grad.accumulation.bufer", "y", True, Initial("zeros")),)),
            ["no such input. Did you mean 'w_grad.accumulation.buffer'"],
        ),
        (
            changed(state=(StatePair("mean", "mean_grd", True, Initial("constant")),)),
            ["no output 'mean_grd'. Did you mean 'mean_grad'", "a value is given exactly when"],
        ),
        (changed(state=training().state * 2), ["state input 'mean' appears 2 times"]),
        (
            changed(inputs=(Input("b", "gradient_buffer", "float32"),), state=()),
            ["needs the parameter it belongs to"],
        ),
    ],
)
def test_parts_that_do_not_fit(broken, words):
    with pytest.raises(InvalidModelError) as caught:
        broken.to_json()
    for word in words:
        assert word in str(caught.value)


def edited(edit):
    data = json.loads(training().to_json())
    edit(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["not JSON"]),
        ("[]", ["not a JSON object"]),
        (edited(lambda d: d.update(version=99)), ["version 99", f"reads version {MANIFEST_VERSION}"]),
        (edited(lambda d: d.pop("version")), ["version None"]),
        (edited(lambda d: d.pop("state")), ["'state' is missing"]),
        (edited(lambda d: d.update(kind="train", inputs=3)), ["'kind' is 'train'", "'inputs' is 3"]),
        (edited(lambda d: d["inputs"][0].update(rol="user")), ["inputs[0]: unknown field 'rol'. Did you mean 'role'"]),
        (edited(lambda d: d["inputs"][2].update(shape=[True])), ["inputs[2]: 'shape' is [True]"]),
        (edited(lambda d: d["outputs"][1].update(role="state")), ["outputs[1]: 'role' is 'state'", "gradient_flag"]),
        (edited(lambda d: d["state"][0].update(in_place=1)), ["state[0]: 'in_place' is 1"]),
        (edited(lambda d: d["state"][0]["initial"].update(kind="twos")), ["state[0].initial: 'kind' is 'twos'"]),
    ],
)
def test_text_that_is_not_a_manifest(text, words):
    with pytest.raises(InvalidModelError) as caught:
        Manifest.from_json(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "made", "fields"),
    [
        (SCHEMA, Manifest, manifest._MANIFEST),
        (SCHEMA["$defs"]["input"], Input, manifest._INPUT),
        (SCHEMA["$defs"]["output"], Output, manifest._OUTPUT),
        (SCHEMA["$defs"]["pair"], StatePair, manifest._PAIR),
        (SCHEMA["$defs"]["initial"], Initial, manifest._INITIAL),
    ],
)
def test_schema_agrees_with_the_dataclasses(schema, made, fields):
    assert set(schema["properties"]) == {f.name for f in dataclasses.fields(made)} == set(fields)
    assert set(schema["required"]) == {name for name, field in fields.items() if field.required}
    assert schema["additionalProperties"] is False


def test_schema_agrees_with_the_vocabulary():
    assert SCHEMA["properties"]["version"]["const"] == MANIFEST_VERSION
    for schema, literal in (
        (SCHEMA["properties"]["kind"], manifest.Kind),
        (SCHEMA["properties"]["runtimes"]["items"], manifest.Runtime),
        (SCHEMA["$defs"]["input"]["properties"]["role"], manifest.InputRole),
        (SCHEMA["$defs"]["output"]["properties"]["role"], manifest.OutputRole),
        (SCHEMA["$defs"]["initial"]["properties"]["kind"], manifest.InitialKind),
    ):
        assert tuple(schema["enum"]) == get_args(literal)


def test_every_role_belongs_to_a_kind():
    for roles, literal in ((manifest._INPUT_ROLES, manifest.InputRole), (manifest._OUTPUT_ROLES, manifest.OutputRole)):
        assert set(roles) == set(get_args(manifest.Kind))
        assert set().union(*roles.values()) == set(get_args(literal))
