"""The cases of the rule test use all that operators offer: each attribute, each value that has a name, each input.

An attribute that is new in ONNX, or a rule that is, fails here until a row in ``cases/`` sets it.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import pytest
from onnx import NodeProto, defs, helper
from onnx.defs import OpSchema

from onnxblock.autodiff import registry

from . import harness

_BOTH = ("DCR", "CRD")
NAMES: dict[str, tuple[str, ...]] = {
    "ConvTranspose.auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
    "Conv.auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
    "AveragePool.auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
    "LpPool.auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
    "MaxPool.auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
    "CausalConvWithState.activation": ("silu", "swish"),
    "DepthToSpace.mode": _BOTH,
    "SpaceToDepth.mode": _BOTH,
    "Gelu.approximate": ("tanh",),
    "GridSample.mode": ("linear", "nearest", "cubic"),
    "GridSample.padding_mode": ("zeros", "border", "reflection"),
    "GRU.direction": ("forward", "reverse", "bidirectional"),
    "LSTM.direction": ("forward", "reverse", "bidirectional"),
    "RNN.direction": ("forward", "reverse", "bidirectional"),
    "LinearAttention.update_rule": ("linear", "gated", "delta"),
    "NegativeLogLikelihoodLoss.reduction": ("none", "sum", "mean"),
    "SoftmaxCrossEntropyLoss.reduction": ("none", "sum", "mean"),
    "Normalizer.norm": ("L1", "L2"),
    "Pad.mode": ("constant", "reflect", "edge", "wrap"),
    "Resize.mode": ("nearest", "linear", "cubic"),
    "Resize.nearest_mode": ("floor", "ceil", "round_prefer_ceil"),
    "Resize.keep_aspect_ratio_policy": ("not_larger", "not_smaller"),
    "Resize.coordinate_transformation_mode": (
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
        "tf_crop_and_resize",
    ),
    "RoiAlign.mode": ("avg", "max"),
    "RoiAlign.coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    "ScatterElements.reduction": ("none", "add", "mul", "max", "min"),
    "ScatterND.reduction": ("none", "add", "mul", "max", "min"),
    "TensorScatter.mode": ("linear", "circular"),
    "Einsum.equation": (),
    "LinearRegressor.post_transform": ("NONE",),
}
"""The values of attributes that are names, where the default is not the only other one."""

CHANGES_NOTHING = {
    "saturate": "of casts to 8 and 4 bits only, which pass no gradient or pass it as it is",
    "round_mode": "of casts to a type of powers of two only",
    "output_dtype": "the type of what is quantized",
    "precision": "how onnxruntime divides while quantizing",
    "stash_type": "the type in which the operator computes",
    "chunk_size": "how the operator cuts its work",
    "type": "the type of an empty optional",
}
"""Attributes that no gradient depends on."""


FIXED = {
    "Imputer.replaced_value_int64": "for integers, which have no gradient",
    "Imputer.imputed_value_int64s": "for integers, which have no gradient",
    "Optional.input": "an optional without content has nothing to differentiate",
}
"""Attributes and inputs of single operators of which the same is true."""


@functools.cache
def _nodes() -> dict[str, list[NodeProto]]:
    found: dict[str, list[NodeProto]] = defaultdict(list)
    for case in harness.all_cases():
        for node in case.model.graph.node:
            found[node.op_type].append(node)
    return found


@functools.cache
def _schemas() -> list[OpSchema]:
    """The newest forms of ONNX's operators that a case has and that pass a gradient."""
    return [
        schema
        for schema in defs.get_all_schemas()
        if schema.domain in ("", "ai.onnx.ml")
        and not schema.deprecated
        and schema.name in _nodes()
        and not isinstance(registry.find(schema.name, schema.domain), registry.NoGradient)
    ]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _attributes() -> list[tuple[str, str]]:
    """Every attribute that changes what is computed, with its default."""
    found = []
    for schema in _schemas():
        for name, attribute in schema.attributes.items():
            full, given = f"{schema.name}.{name}", attribute.default_value
            if name not in CHANGES_NOTHING and full not in FIXED:
                found.append((full, _text(helper.get_attribute_value(given)) if given.name else ""))
    return found


@pytest.mark.parametrize(("name", "default"), _attributes(), ids=lambda x: str(x)[:40])
def test_every_attribute_is_set_by_a_case(name: str, default: str) -> None:
    op_type, _, attribute = name.partition(".")
    values = {
        _text(helper.get_attribute_value(a)) for n in _nodes()[op_type] for a in n.attribute if a.name == attribute
    }
    if name in NAMES:
        assert not set(NAMES[name]) - values - {default}
    else:
        assert values - {default}, "write a row in which it is not what it is by default"


def _optional(kind: str) -> list[tuple[str, int]]:
    found = []
    for schema in _schemas():
        for k, formal in enumerate(getattr(schema, kind)):
            if formal.option == OpSchema.FormalParameterOption.Optional:
                found.append((f"{schema.name}.{formal.name}", k))
    return [(name, k) for name, k in found if name not in FIXED]


@pytest.mark.parametrize(("name", "k"), _optional("inputs"), ids=str)
def test_every_optional_input_is_given_in_one_case_and_left_out_in_another(name: str, k: int) -> None:
    found = {len(node.input) > k and bool(node.input[k]) for node in _nodes()[name.partition(".")[0]]}
    assert found == {True, False}


@pytest.mark.parametrize(("name", "k"), _optional("outputs"), ids=str)
def test_every_optional_output_is_read_in_a_case(name: str, k: int) -> None:
    assert any(len(node.output) > k and node.output[k] for node in _nodes()[name.partition(".")[0]])


def test_what_is_said_of_attributes_is_said_of_attributes_that_exist() -> None:
    every = {f"{s.name}.{name}" for s in _schemas() for name in (*s.attributes, *(i.name for i in s.inputs))}
    assert {*NAMES, *FIXED} <= every
    assert set(CHANGES_NOTHING) <= {name.partition(".")[2] for name in every}
