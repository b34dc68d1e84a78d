"""ONNX's own description of its operators, looked up by opset."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import defs, helper
from onnx.defs import OpSchema

from ..errors import ArgumentError, BlockBuildError, UnknownNameError, did_you_mean, listed

NEWEST_OPSET = defs.onnx_opset_version()


def ir_version_of(opset: int) -> int:
    """The IR version that came with ``opset``, which every runtime that knows the opset reads; at least 10.

    The installed onnx would write its own, which may be newer than what the runtime reads.  Raises
    :class:`ArgumentError` for an opset that the installed onnx does not know.
    """
    if opset > NEWEST_OPSET:
        raise ArgumentError(
            f"opset {opset} is asked for, but onnx {onnx.__version__} knows only up to {NEWEST_OPSET}.",
            "Choose a lower opset, or install a newer onnx.",
        )
    return max(10, int(helper.find_min_ir_version_for([helper.make_opsetid("", opset)])))


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the default operator set that a model imports; 0 where it imports none."""
    return next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


@functools.cache
def find_schema(op_type: str, opset: int, domain: str = "") -> OpSchema | None:
    """The schema in force at ``opset``, or None where the operator does not exist."""
    try:
        return defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None


@functools.cache
def _operator_names(domain: str) -> frozenset[str]:
    return frozenset(s.name for s in defs.get_all_schemas_with_history() if s.domain == domain)


@functools.cache
def operator_names(opset: int) -> tuple[str, ...]:
    """Every operator of the default domain at ``opset``, without the deprecated ones."""
    found = ((name, find_schema(name, opset)) for name in sorted(_operator_names("")))
    return tuple(name for name, schema in found if schema is not None and not schema.deprecated)


def get_schema(op_type: str, opset: int, domain: str = "") -> OpSchema:
    """The schema in force at ``opset``; raises :class:`UnknownNameError` that says why there is none."""
    schema = find_schema(op_type, opset, domain)
    if schema is not None:
        return schema
    newest = find_schema(op_type, NEWEST_OPSET, domain)
    if newest is not None:
        first = min(
            s.since_version for s in defs.get_all_schemas_with_history() if s.name == op_type and s.domain == domain
        )
        raise UnknownNameError(
            f"operator {op_type} does not exist at opset {opset}: it came with opset {first}.",
            f"Raise the model to opset {first} or later.",
        )
    raise UnknownNameError(
        f"there is no operator {op_type!r} in domain {domain or 'ai.onnx'!r}."
        + did_you_mean(op_type, _operator_names(domain))
    )


@functools.cache
def input_types(schema: OpSchema) -> tuple[str, ...]:
    """What an operator calls the types of its inputs; the last is that of all further ones where it is variadic."""
    return tuple(formal.type_str for formal in schema.inputs)


@dataclass(frozen=True)
class _Form:
    """What :func:`arrange` asks of a schema, whose own answers are made anew each time."""

    positions: Mapping[str, int]
    variadic: bool
    required: tuple[tuple[int, str], ...]
    attributes: frozenset[str]
    required_attributes: tuple[str, ...]


@functools.cache
def _form(schema: OpSchema) -> _Form:
    option = OpSchema.FormalParameterOption
    return _Form(
        positions={formal.name: k for k, formal in enumerate(schema.inputs)},
        variadic=bool(schema.inputs) and schema.inputs[-1].option == option.Variadic,
        required=tuple((k, formal.name) for k, formal in enumerate(schema.inputs) if formal.option == option.Single),
        attributes=frozenset(schema.attributes),
        required_attributes=tuple(name for name, attribute in schema.attributes.items() if attribute.required),
    )


def arrange(schema: OpSchema, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Sort what a caller gave into the inputs and attributes of ``schema``.

    What one opset takes as an attribute and another as an input (``axes``, ``split``, ``pads``, ...) may be given by
    name: it goes where ``schema`` wants it.  Raises :class:`BlockBuildError` that lists everything that does not fit.
    """
    form = _form(schema)
    positions, count = form.positions, len(form.positions)
    ordered, attributes, problems = list(inputs), {}, []
    for name, given in named.items():
        if given is None:
            continue
        if name in form.attributes:
            attributes[name] = given
        elif name in positions:
            ordered.extend([None] * (positions[name] + 1 - len(ordered)))
            if ordered[positions[name]] is not None:
                problems.append(f"input {name!r} is given twice")
            ordered[positions[name]] = given
        else:
            problems.append(f"no attribute or input {name!r}." + did_you_mean(name, {*form.attributes, *positions}))
    while ordered and ordered[-1] is None and len(ordered) > schema.min_input:
        ordered.pop()
    if len(ordered) > count and not form.variadic:
        problems.append(f"{len(ordered)} inputs given, at most {count} taken")
    for k, name in form.required:
        if k >= len(ordered) or ordered[k] is None:
            problems.append(f"input {name!r} is missing")
    problems += [f"attribute {name!r} is missing" for name in form.required_attributes if name not in attributes]
    if problems:
        raise BlockBuildError(
            f"{schema.name} (opset {schema.since_version}): {listed(problems)}", f"It is {signature(schema)}."
        )
    return ordered, attributes


def signature(schema: OpSchema) -> str:
    """``Clip(input, min?, max?)``: the inputs and attributes of an operator, optional ones marked."""
    marks = {OpSchema.FormalParameterOption.Optional: "?", OpSchema.FormalParameterOption.Variadic: "..."}
    parts = [formal.name + marks.get(formal.option, "") for formal in schema.inputs]
    parts += [f"{name}{'' if a.required else '?'}=" for name, a in sorted(schema.attributes.items())]
    return f"{schema.name}({', '.join(parts)})"


def attribute_default(schema: OpSchema, name: str) -> Any:
    """The default of an attribute, or None where the schema has none."""
    from onnx import helper

    attribute = schema.attributes.get(name)
    if attribute is None or not attribute.default_value.name:
        return None
    return helper.get_attribute_value(attribute.default_value)
