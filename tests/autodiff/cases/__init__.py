"""Rows of the rule test, one module per family of operators.

A module says, beyond what ONNX's own backend cases cover:

``ROWS``        cases made with :func:`case` (or ``model_case``): more attributes, ties and kinks with literal gradients
``CONSTANTS``   ``{"Resize": (1, 2, 3)}``: float inputs of an operator that are settings, so have no gradient
``EVALUATORS``  ``{"Erf": REFERENCE}``: operators (or case patterns) that onnxruntime has no float64 kernel for
``NO_DIFFERENCES``  ``("QuantizeLinear",)``: operators of which differences say nothing, or that take float32 only
``EXCEPTIONS``  ``{"swish_*:float32": "why"}``: steps of cases that cannot work; each is run and must fail
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import NodeProto, helper

from onnxblock.autodiff.check import model_of_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import ModelProto

ORT, REFERENCE, DEFINITIONS, PARTS = "onnxruntime", "onnx.reference", "definitions", "parts"


@dataclass(frozen=True)
class Case:
    """One operator at one point.  ``gradients`` are literal values for cotangents of one, by input name."""

    op_type: str
    domain: str
    name: str
    model: ModelProto
    feeds: Mapping[str, np.ndarray]
    gradients: Mapping[str, np.ndarray] | None = None
    constants: frozenset[str] = frozenset()


def case(
    op_type: str,
    *inputs: Any,
    name: str | None = None,
    gradient: Any = None,
    gradients: tuple[Any, ...] | None = None,
    outputs: int = 1,
    opset: int = 21,
    domain: str = "",
    constants: tuple[int, ...] = (),
    **attributes: Any,
) -> Case:
    """A row: an operator on these inputs (lists and numbers become float32 or int64, None is absent).

    Without literal values its gradient is compared with finite differences.  ``gradient`` is the literal gradient of
    the first input (``gradients``: of each input, None to leave one out) where the cotangents are ones: the form for
    kinks and ties, where differences say nothing.  ``constants`` are the positions of float inputs without gradient.
    """
    arrays = {f"input{k}": _array(x) for k, x in enumerate(inputs) if x is not None}
    node = helper.make_node(
        op_type,
        ["" if x is None else f"input{k}" for k, x in enumerate(inputs)],
        [f"output{k}" for k in range(outputs)],
        domain=domain,
        **attributes,
    )
    literal = (gradient,) if gradient is not None else gradients
    expected = None
    if literal is not None:
        expected = {
            f"input{k}": np.asarray(d, np.float64).reshape(arrays[f"input{k}"].shape)
            for k, d in enumerate(literal)
            if d is not None
        }
    return Case(
        op_type,
        domain,
        name or _describe(node, inputs),
        model_of_node(node, arrays, opset),
        arrays,
        expected,
        frozenset(f"input{k}" for k in constants),
    )


def model_case(op_type: str, model: ModelProto, feeds: dict[str, Any], name: str, domain: str = "") -> Case:
    """A row that needs a model of more than one node (bodies, sequences)."""
    return Case(op_type, domain, name, model, {k: _array(x) for k, x in feeds.items()})


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers, the same every time."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _array(x: Any) -> np.ndarray:
    array = np.asarray(x)
    return array if isinstance(x, np.ndarray) or array.dtype != np.float64 else array.astype(np.float32)


def _describe(node: NodeProto, inputs: tuple[Any, ...]) -> str:
    shapes = ["x".join(map(str, np.shape(x))) or "scalar" for x in inputs if x is not None]
    attributes = [f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute]
    text = "_".join([*shapes, *attributes])
    return "".join(c if c.isalnum() or c in "_=.-" else "," for c in text.replace(" ", "").replace("b'", ""))


def families() -> list[Any]:
    """The modules of rows."""
    return [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]


@functools.cache
def gathered(name: str) -> Any:
    """Everything that the families say under one name."""
    found = [getattr(module, name) for module in families() if hasattr(module, name)]
    if all(isinstance(part, dict) for part in found):
        return {k: v for part in found for k, v in part.items()}
    return list(itertools.chain.from_iterable(found))
