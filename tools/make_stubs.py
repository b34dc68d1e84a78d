"""Write the stubs that tell editors and type checkers about every ONNX operator.

    python tools/make_stubs.py

``onnxblock/blocks/operators.pyi`` has one block class per operator, ``onnxblock/graph/op_signatures.pyi`` one method of
``graph.op`` per operator.  The operators are those of the installed onnx; what an operator takes is collected over the
opsets that the library works at.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from onnx import defs
from onnx.defs import OpSchema

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = ROOT / "onnxblock" / "blocks" / "operators.pyi"
METHODS = ROOT / "onnxblock" / "graph" / "op_signatures.pyi"
sys.path.insert(0, str(ROOT))

OLDEST_OPSET = 18
LINE_LENGTH = 120

_TYPES = {
    "FLOAT": "float",
    "INT": "int",
    "STRING": "str",
    "TENSOR": "TensorProto | NDArray[Any]",
    "GRAPH": "GraphProto",
    "SPARSE_TENSOR": "SparseTensorProto",
    "TYPE_PROTO": "TypeProto",
    "FLOATS": "Sequence[float]",
    "INTS": "Sequence[int]",
    "STRINGS": "Sequence[str]",
}

_HEADER = """\
# Written by tools/make_stubs.py from the operators of opset {opset}; not to be edited.

from collections.abc import Sequence
from typing import Any{typing}

from numpy.typing import NDArray
from onnx import {protos}

{imports}
"""


@dataclass(frozen=True)
class Description:
    """What an operator takes and gives, over all supported opsets."""

    name: str
    inputs: list[str]
    optional_inputs: list[str]
    attributes: dict[str, str]
    has_one_output: bool


def describe(name: str) -> Description:
    """Collect what the versions of an operator take, each input and attribute once."""
    options = OpSchema.FormalParameterOption
    versions = _versions(name)
    attributes: dict[str, str] = {}
    formals: dict[str, OpSchema.FormalParameter] = {}
    for schema in versions:
        for attribute in schema.attributes.values():
            required = attribute.required and schema is versions[-1]
            kind = _TYPES[attribute.type.name]
            attributes[attribute.name] = kind if required else f"{kind} | None = None"
        formals.update({formal.name: formal for formal in schema.inputs})
    inputs, optional = [], []
    for formal in formals.values():
        if formal.option == options.Variadic:
            inputs.append(f"*{formal.name}: Operand")
        elif formal.option == options.Optional or optional:
            inputs.append(f"{formal.name}: Operand = None")
            optional.append(formal.name)
        else:
            inputs.append(f"{formal.name}: Operand")
    only_attributes = {k: v for k, v in attributes.items() if k not in formals}
    keywords = dict(sorted(only_attributes.items(), key=lambda item: (item[1].endswith("= None"), item[0])))
    newest = versions[-1]
    return Description(name, inputs, optional, keywords, newest.min_output == newest.max_output == 1)


def _versions(name: str) -> list[OpSchema]:
    """The descriptions of an operator that are in force at some supported opset, oldest first."""
    found = {}
    for opset in range(OLDEST_OPSET, defs.onnx_opset_version() + 1):
        try:
            schema = defs.get_schema(name, opset, "")
        except defs.SchemaError:
            continue
        found[schema.since_version] = schema
    return [found[version] for version in sorted(found)]


def _function(name: str, parameters: list[str], result: str) -> str:
    line = f"    def {name}({', '.join(parameters)}) -> {result}: ..."
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join([f"    def {name}(", *(f"        {p}," for p in parameters), f"    ) -> {result}: ..."])


def block(operator: Description) -> str:
    """The class of an operator block."""
    fixed = dict.fromkeys(operator.optional_inputs, "Operand = None")
    keywords = {**operator.attributes, **fixed, "outputs": "int | None = None"}
    result = "Value" if operator.has_one_output else "Any"
    return "\n".join(
        [
            f"class {operator.name}(Operator):",
            _function("__init__", ["self", "*", *(f"{k}: {v}" for k, v in keywords.items())], "None"),
            _function("__call__", ["self", *operator.inputs], result),
        ]
    )


def method(operator: Description) -> str:
    """The method of ``graph.op``; more than one output makes a list, which an overload cannot say."""
    star = [] if any(i.startswith("*") for i in operator.inputs) else ["*"]
    keywords = [f"{k}: {v}" for k, v in operator.attributes.items()]
    if operator.has_one_output:
        return _function(operator.name, ["self", *operator.inputs, *(star if keywords else []), *keywords], "Value")
    parameters = ["self", *operator.inputs, *star, *keywords]
    return "\n".join(
        [
            "    @overload",
            _function(operator.name, [*parameters, "outputs: Literal[1] = 1"], "Value"),
            "    @overload",
            _function(operator.name, [*parameters, "outputs: int"], "Any"),
        ]
    )


def _operators() -> list[Description]:
    from onnxblock.graph.schemas import operator_names

    return [describe(name) for name in operator_names(defs.onnx_opset_version())]


def _file(body: str, *, typing: str, imports: str) -> str:
    protos = [p for p in ("GraphProto", "SparseTensorProto", "TensorProto", "TypeProto") if p in body]
    header = _HEADER.format(opset=defs.onnx_opset_version(), typing=typing, protos=", ".join(protos), imports=imports)
    return f"{header}\n{body}\n"


def blocks_text() -> str:
    """The stub of the operator blocks that are not written by hand."""
    from onnxblock import blocks

    by_hand = set(blocks.__all__)
    body = "\n\n".join(block(o) for o in _operators() if o.name not in by_hand)
    return _file(body, typing="", imports="from ..graph.value import Operand, Value\nfrom .operator import Operator")


def methods_text() -> str:
    """The stub of the methods of ``graph.op``."""
    body = "class Signatures:\n" + "\n".join(method(o) for o in _operators())
    return _file(body, typing=", Literal, overload", imports="from .value import Operand, Value")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    BLOCKS.write_text(blocks_text(), encoding="utf-8")
    METHODS.write_text(methods_text(), encoding="utf-8")
