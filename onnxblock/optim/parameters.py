"""What an optimizer is told of the parameters: names, element types and shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from onnx import TensorProto, ValueInfoProto

from ..errors import BlockBuildError, ParameterError
from ..graph.types import FLOATS, Shape, dtype_name, tensor_type

ParameterLike: TypeAlias = "TensorProto | ValueInfoProto | tuple[str, int, Sequence[int]]"
"""One parameter: a tensor (its data is not looked at), a value info, or (name, element type, shape)."""

Parameters: TypeAlias = "Sequence[ParameterLike] | tuple[Sequence[ParameterLike], Sequence[ParameterLike]]"
"""The trainable parameters, or (trainable, frozen) as ``TrainingBlock.parameters`` returns them."""


@dataclass(frozen=True)
class Parameter:
    """A trainable parameter."""

    name: str
    dtype: int
    shape: Shape


def trainable(parameters: Parameters) -> list[Parameter]:
    """The trainable ones of ``parameters``.

    Raises :class:`BlockBuildError` for what is no list of parameters, and :class:`ParameterError` when there are none,
    when a name comes twice, or a type cannot be trained.
    """
    given: Iterable[Any] = parameters
    if isinstance(parameters, tuple) and len(parameters) == 2 and all(isinstance(p, list) for p in parameters):
        given = parameters[0]
    if isinstance(given, str | TensorProto | ValueInfoProto):
        raise BlockBuildError(
            f"an optimizer takes the list of trainable parameters, not one {type(given).__name__}.",
            "Pass what TrainingBlock.parameters() returns.",
        )
    found = [_parameter(p) for p in given]
    if not found:
        raise ParameterError("an optimizer needs at least one trainable parameter, and the list is empty.")
    problems = [f"{name!r} comes {count} times" for name, count in Counter(p.name for p in found).items() if count > 1]
    problems += [f"{p.name!r} is {dtype_name(p.dtype)}" for p in found if p.dtype not in FLOATS]
    if problems:
        raise ParameterError(f"parameters that cannot be trained: {'; '.join(problems)}.")
    return found


def _parameter(given: Any) -> Parameter:
    if isinstance(given, TensorProto):
        return Parameter(given.name, given.data_type, tuple(given.dims))
    if isinstance(given, ValueInfoProto):
        known = tensor_type(given.type)
        if known is not None:
            return Parameter(given.name, known.dtype, known.shape)
    elif isinstance(given, tuple) and len(given) == 3:
        name, dtype, shape = given
        return Parameter(str(name), int(dtype), tuple(shape))
    raise BlockBuildError(
        f"{given!r} does not say name, element type and shape of a parameter.",
        "Pass a TensorProto, a ValueInfoProto of a tensor, or a tuple (name, element type, shape).",
    )
