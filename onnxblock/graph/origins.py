"""What an initializer was where the model was written, as far as that is noted in it.

``torch.onnx.export(dynamo=True)`` notes beside each tensor whether it was a parameter, a buffer or a tensor in the
code of the PyTorch module, and, for one that it computed itself, of which tensors.  Models that were built of blocks
say which initializers are constants of the blocks.  Other exporters and frameworks write nothing of the kind.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection
from enum import Enum
from math import prod

from onnx import GraphProto, ModelProto, TensorProto

from ..names import CONSTANTS_KEY
from .types import FLOATS
from .weights import Weights, is_uniform

_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_SOURCES = "pkg.onnxscript.optimizer.folded_from"
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_OWN_NUMBER = re.compile(r"val_\d+")
_TARGET = re.compile(r"^\s*\S+: (PARAMETER|BUFFER|CONSTANT_TENSOR) target='(.*?)'", re.MULTILINE)


class Origin(Enum):
    """What a weight was in the module."""

    PARAMETER = "PARAMETER"
    BUFFER = "BUFFER"
    CONSTANT = "CONSTANT_TENSOR"


def origins(graph: GraphProto, weights: Weights) -> dict[str, Origin]:
    """What each value of ``graph`` was in the PyTorch module; what nothing is noted of is missing.

    A tensor that the exporter computed is a parameter if it was made of the elements of at least one, as a transposed
    weight is, and else a constant, as zeros in the shape of one are; so is a number that it wrote itself, of which it
    notes nothing.  ``weights`` holds the large initializers.
    """
    known: dict[str, Origin] = {}
    computed: dict[str, str] = {}
    for value in graph.value_info:
        notes = {entry.key: entry.value for entry in value.metadata_props}
        if notes.get(_KIND) in _SPELLINGS:
            known[value.name] = _SPELLINGS[notes[_KIND]]
        elif _SOURCES in notes:
            computed[value.name] = notes[_SOURCES]
    signature = next((entry.value for entry in graph.metadata_props if entry.key == _SIGNATURE), None)
    if signature is None:
        # What was computed of tensors that are no longer there cannot be told.
        return known
    parameters = {target for kind, target in _TARGET.findall(signature) if kind == Origin.PARAMETER.value}
    parameters.update(name for name, origin in known.items() if origin is Origin.PARAMETER)
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for name, text in computed.items():
        sources = _names(text)
        if sources is not None:
            made_of = [tensors.get(source) for source in sources if source in parameters]
            only_shape = name in tensors and _only_shape(tensors[name], made_of, weights)
            known[name] = Origin.PARAMETER if made_of and not only_shape else Origin.CONSTANT
    for name, tensor in tensors.items():
        if name not in computed and _OWN_NUMBER.fullmatch(name) and prod(tensor.dims) == 1:
            known.setdefault(name, Origin.CONSTANT)
    return known


def _only_shape(tensor: TensorProto, parameters: list[TensorProto | None], weights: Weights) -> bool:
    """Whether ``tensor`` holds nothing of ``parameters`` but a shape: its elements are equal, those of each are not."""
    return is_uniform(tensor, weights) and all(p is not None and not is_uniform(p, weights) for p in parameters)


_SPELLINGS = {origin.value: origin for origin in Origin}


def _names(text: str) -> list[str] | None:
    """The list of names that ``text`` spells as Python does; None for anything else."""
    try:
        spelled = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    return [str(name) for name in spelled] if isinstance(spelled, list) else None


def noted_constants(model: ModelProto) -> set[str]:
    """The initializers that :func:`note_constants` noted; nothing where the note is damaged."""
    text = next((entry.value for entry in model.metadata_props if entry.key == CONSTANTS_KEY), "[]")
    try:
        noted = json.loads(text)
    except ValueError:
        return set()
    return {name for name in noted if isinstance(name, str)} if isinstance(noted, list) else set()


def note_constants(model: ModelProto, constants: Collection[str]) -> None:
    """Note in the metadata of ``model`` which of its float initializers are constants in the code of blocks."""
    known = {*constants, *noted_constants(model)}
    names = [t.name for t in model.graph.initializer if t.name in known and t.data_type in FLOATS]
    others = [entry for entry in model.metadata_props if entry.key != CONSTANTS_KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(others)
    if names:
        model.metadata_props.add(key=CONSTANTS_KEY, value=json.dumps(names))
