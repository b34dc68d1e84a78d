"""From one element type, or one set of labels, to another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..block import Block
from ..graph.types import onnx_dtype
from ..graph.value import Operand, Value
from .operator import Operator

_ML_DOMAIN, _ML_VERSION = "ai.onnx.ml", 3


class Cast(Operator):
    """x as the element type ``to``: an ``onnx.TensorProto.DataType`` or a NumPy element type."""

    op_type = "Cast"

    def __init__(self, to: int | npt.DTypeLike) -> None:
        super().__init__(to=int(to) if isinstance(to, int | np.integer) else onnx_dtype(to))

    def build(self, cast_input_name: Operand) -> Value:
        """Add the node."""
        return self._node(cast_input_name)


class LabelEncoder(Block):
    """Every element replaced by the value at its place in a table: ``keys_*[k]`` becomes ``values_*[k]``.

    One ``keys_*`` list and one ``values_*`` list of the same length are given; what is in no key becomes the default of
    the type of the values.  This is LabelEncoder of the domain ai.onnx.ml, which the model then imports.
    """

    _opens_scope = False

    def __init__(
        self,
        default_float: float = 0.0,
        default_int64: int = -1,
        default_string: str = "_Unused",
        keys_floats: list[float] | None = None,
        keys_int64s: list[int] | None = None,
        keys_strings: list[str] | None = None,
        values_floats: list[float] | None = None,
        values_int64s: list[int] | None = None,
        values_strings: list[str] | None = None,
    ) -> None:
        self._attributes = {
            "default_float": default_float,
            "default_int64": default_int64,
            "default_string": default_string,
            "keys_floats": keys_floats,
            "keys_int64s": keys_int64s,
            "keys_strings": keys_strings,
            "values_floats": values_floats,
            "values_int64s": values_int64s,
            "values_strings": values_strings,
        }

    def build(self, label_encoder_input_name: Value) -> Value:
        """Add the node.  Raises :class:`BlockBuildError` where the table does not fit the input."""
        self.graph.import_domain(_ML_DOMAIN, _ML_VERSION)
        return self.graph.add("LabelEncoder", [label_encoder_input_name], self._attributes, domain=_ML_DOMAIN)[0]
