"""What a graph knows of its values, by name."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
from onnx import NodeProto, TensorProto, TypeProto

from .literals import Literal
from .naming import Names
from .types import TensorType


@dataclass
class Index:
    """The names, types, known contents and producers of the values of a graph.

    The index of a body falls back to that of the graph around it, as ONNX's scopes do.  Names are given out once in
    the whole model, so that nothing in a body hides a value outside of it.
    """

    types: MutableMapping[str, TypeProto]
    names: Names = field(default_factory=Names)
    tensor_types: dict[str, TensorType | None] = field(default_factory=dict)
    constants: MutableMapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    constant_protos: MutableMapping[str, TensorProto] = field(default_factory=dict)
    producers: MutableMapping[str, NodeProto] = field(default_factory=dict)
    literals: dict[str, Literal] = field(default_factory=dict)
    interned: dict[tuple[int, tuple[int, ...], bytes], str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    """The initializers that are numbers in the code of blocks, not weights."""

    def inner(self) -> Index:
        """The index of a body of this graph."""
        return Index(
            types=ChainMap({}, self.types),
            names=self.names,
            constants=ChainMap({}, self.constants),
            constant_protos=ChainMap({}, self.constant_protos),
            producers=ChainMap({}, self.producers),
            literals=self.literals,
            interned=self.interned,
            written=self.written,
        )
