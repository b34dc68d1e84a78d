"""How the form of a node changes from one opset to the next, 7 to 18: one function for each operator and change.

Only changes that alter what a node means, or how it is written, are here; an operator that merely gained an element
type or an attribute with a neutral default needs nothing.  Every node and value keeps its name.  Sources: the operator
changelog of ONNX and, where it leaves the old behaviour open, what onnxruntime computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from .naming import Names
from .types import HALVES, TensorType, numpy_dtype

_LARGEST_FLOAT = float(np.finfo(np.float32).max)

Form = Callable[["OldNode"], None]

FORMS: dict[str, dict[int, Form]] = {}
"""For each operator, the opsets at which its form changed, and the change from just below to that opset."""

CHANGED_LATER: dict[str, int] = {"DFT": 20, "GridSample": 20, "GroupNormalization": 21}
"""Operators whose form changes again above opset 18; no model is raised past that, so there is nothing to do it."""


def form(opset: int, *op_types: str) -> Callable[[Form], Form]:
    """Register the change that makes ``op_types`` of the opset before ``opset`` fit it."""

    def register(change: Form) -> Form:
        for op_type in op_types:
            FORMS.setdefault(op_type, {})[opset] = change
        return change

    return register


class OldNode:
    """A node that a form changes in place, and the nodes that the change needs before and after it.

    A form that cannot say what the node means sets ``problem`` to the reason.

    Args:
        node: the node; it keeps its name and the names of the outputs that it keeps.
        types: what is known of the values in scope.
        names: gives names to new nodes and values.
        used: every value that something reads.
        constants: the constants in scope; new ones are added.
    """

    def __init__(
        self,
        node: NodeProto,
        types: Mapping[str, TensorType],
        names: Names,
        used: frozenset[str],
        constants: MutableMapping[str, TensorProto],
    ) -> None:
        self.node = node
        self.before: list[NodeProto] = []
        self.after: list[NodeProto] = []
        self.problem = ""
        self._types = types
        self._names = names
        self._used = used
        self._constants = constants

    def take(self, attribute: str, default: Any = None) -> Any:
        """Remove an attribute, and return its value or ``default``."""
        for i, found in enumerate(self.node.attribute):
            if found.name == attribute:
                value = helper.get_attribute_value(found)
                del self.node.attribute[i]
                return value.decode() if isinstance(value, bytes) else value
        return default

    def set(self, **attributes: Any) -> None:
        """Set attributes anew."""
        for name, value in attributes.items():
            self.take(name)
            self.node.attribute.append(helper.make_attribute(name, value))

    def type(self, i: int = 0) -> TensorType | None:
        """What is known of the i-th input."""
        return self._types.get(self.node.input[i])

    def value(self, i: int) -> npt.NDArray[Any] | None:
        """The elements of the i-th input if they are constant."""
        tensor = self._constants.get(self.node.input[i])
        return None if tensor is None else numpy_helper.to_array(tensor)

    def is_used(self, output: int) -> bool:
        """Whether the node has this output and something reads it."""
        return len(self.node.output) > output and self.node.output[output] in self._used

    def new_name(self, what: str) -> str:
        """A name for a value that belongs to this node."""
        return self._names.unique(f"{self.node.name or next(filter(None, self.node.output))}/{what}")

    def insert(self, op_type: str, inputs: Sequence[str], what: str, **attributes: Any) -> str:
        """Compute a value in a new node before this one; returns its name."""
        output = self.new_name(what)
        self.before.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def constant(self, content: npt.ArrayLike, dtype: npt.DTypeLike, what: str) -> str:
        """A new constant; returns its name."""
        output = self.new_name(what)
        value = numpy_helper.from_array(np.asarray(content, dtype), output)
        self._constants[output] = value
        self.before.append(helper.make_node("Constant", [], [output], output, value=value))
        return output

    def scalar_like_input(self, content: float, what: str) -> str:
        """A new scalar of the element type of the first input, cast at run time where that is not known."""
        type_ = self.type()
        if type_ is not None:
            return self.constant(content, numpy_dtype(type_.dtype), what)
        return self.insert("CastLike", [self.constant(content, np.float32, what), self.node.input[0]], what)

    def set_input(self, i: int, name: str) -> None:
        """Make ``name`` the i-th input; inputs before it that the node lacks are left out."""
        while len(self.node.input) <= i:
            self.node.input.append("")
        self.node.input[i] = name

    def append(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """Compute ``output`` in a new node after this one."""
        self.after.append(helper.make_node(op_type, inputs, [output], self.new_name(op_type), **attributes))


@form(9, "BatchNormalization")
def _batch_norm_9(old: OldNode) -> None:
    """With ``spatial = 0`` the statistics had one element for each position: (X − mean) · scale / √(var + ε) + B."""
    if old.take("spatial", 1):
        return
    if any(old.node.output[1:]):
        old.problem = "training with spatial = 0 has no successor."
        return
    x, scale, bias, mean, var = old.node.input
    epsilon = old.scalar_like_input(old.take("epsilon", 1e-5), "epsilon")
    deviation = old.insert("Sqrt", [old.insert("Add", [var, epsilon], "variance")], "deviation")
    scaled = old.insert("Mul", [old.insert("Sub", [x, mean], "centered"), scale], "scaled")
    old.take("momentum")
    old.node.op_type = "Add"
    old.node.input[:] = [old.insert("Div", [scaled, deviation], "normalized"), bias]
    old.node.output[:] = old.node.output[:1]


@form(14, "BatchNormalization")
def _batch_norm_14(old: OldNode) -> None:
    """Training was meant by asking for the statistics; now it is an attribute, and the saved ones are gone."""
    if any(old.is_used(i) for i in (3, 4)):
        old.problem = "the saved mean and variance are read, which newer opsets do not offer."
        return
    if not any(old.node.output[1:]):
        old.node.output[:] = old.node.output[:1]
        return
    outputs = [*old.node.output[:3], ""][:3]
    old.node.output[:] = [name or old.new_name(f"output_{i}") for i, name in enumerate(outputs)]
    old.set(training_mode=1)


@form(11, "Clip")
def _clip_11(old: OldNode) -> None:
    """Bounds became inputs; the largest float, their old default, means none."""
    for i, (name, none) in enumerate((("min", -_LARGEST_FLOAT), ("max", _LARGEST_FLOAT)), start=1):
        bound = old.take(name, none)
        if abs(bound) < _LARGEST_FLOAT:
            old.set_input(i, old.scalar_like_input(bound, name))


@form(10, "Dropout")
def _dropout_10(old: OldNode) -> None:
    """The mask became boolean; it had the type of the data."""
    if old.is_used(1):
        mask, old.node.output[1] = old.node.output[1], old.new_name("mask")
        old.append("CastLike", [old.node.output[1], old.node.input[0]], mask)


@form(12, "Dropout")
def _dropout_12(old: OldNode) -> None:
    """The ratio became an input; without the new input ``training_mode`` nothing is dropped, as before."""
    ratio = old.take("ratio")
    if ratio is not None:
        old.set_input(1, old.constant(ratio, np.float32, "ratio"))


@form(11, "Pad")
def _pad_11(old: OldNode) -> None:
    old.set_input(1, old.constant(old.take("pads"), np.int64, "pads"))
    value = old.take("value", 0.0)
    if value:
        old.set_input(2, old.scalar_like_input(value, "value"))


@form(13, "ReduceSum", "Squeeze", "Unsqueeze")
@form(
    18,
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)
def _axes_input(old: OldNode) -> None:
    axes = old.take("axes")
    if axes:
        old.set_input(1, old.constant(axes, np.int64, "axes"))


@form(18, "MeanVarianceNormalization", "Softplus")
def _in_single_precision(old: OldNode) -> None:
    """Half precision is cast to float32 and back, which onnxruntime does by itself at older opsets.

    It has no kernel of it, and from opset 18 on it runs the function that ONNX gives instead, which overflows, or mixes
    element types.
    """
    type_ = old.type()
    if type_ is None or type_.dtype not in HALVES:
        return
    y, wide = old.node.output[0], old.new_name("wide")
    old.node.input[0] = old.insert("Cast", [old.node.input[0]], "input", to=TensorProto.FLOAT)
    old.node.output[0] = wide
    old.append("Cast", [wide], y, to=type_.dtype)


@form(18, "ReduceLogSumExp")
def _reduce_log_sum_exp_18(old: OldNode) -> None:
    _axes_input(old)
    _in_single_precision(old)


@form(10, "Upsample")
def _upsample_10(old: OldNode) -> None:
    """Upsample became Resize."""
    old.node.op_type = "Resize"


@form(9, "Upsample")
def _upsample_9(old: OldNode) -> None:
    old.set_input(1, old.constant(old.take("scales"), np.float32, "scales"))


@form(11, "Resize")
def _resize_11(old: OldNode) -> None:
    """Coordinates were asymmetric; the nearest was the one below where the size grew, the one above where it shrank.

    A node has one rounding for all axes, so the axes that grow and those that shrink are resized one after the other.
    """
    x, scales = old.node.input
    asymmetric = {"mode": old.take("mode", "nearest"), "coordinate_transformation_mode": "asymmetric"}
    old.set(**asymmetric)
    old.node.input[:] = [x, "", scales]
    if asymmetric["mode"] != "nearest":
        return
    known = old.value(2)
    if known is not None and (known >= 1).all():
        old.set(nearest_mode="floor")
        return
    if known is None or (known > 1).any():
        one = old.constant(1, np.float32, "one")
        growing = old.insert("Max", [scales, one], "growing")
        x = old.insert("Resize", [x, "", growing], "grown", nearest_mode="floor", **asymmetric)
        old.node.input[:] = [x, "", old.insert("Min", [scales, one], "shrinking")]
    old.set(nearest_mode="ceil")


@form(13, "Resize")
def _resize_13(old: OldNode) -> None:
    """One coordinate mode was dropped: (x + ½) / scale, half a pixel above ``half_pixel``, so rounding goes lower."""
    mode = old.take("coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        lower = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
        nearest = old.take("nearest_mode", "round_prefer_floor")
        if old.take("mode", "nearest") != "nearest" or nearest not in lower:
            old.problem = f"coordinates tf_half_pixel_for_nn, rounded with {nearest}, have no successor."
            return
        mode = "half_pixel"
        old.set(mode="nearest", nearest_mode=lower[nearest])
    old.set(coordinate_transformation_mode=mode)


@form(18, "Resize")
def _resize_18(old: OldNode) -> None:
    """Placeholders for inputs that are not meant, empty tensors, are left out."""
    if len(old.node.input) > 3 and old.node.input[3]:
        old.node.input[2] = ""
    cropping = any(
        a.name == "coordinate_transformation_mode" and a.s == b"tf_crop_and_resize" for a in old.node.attribute
    )
    if not cropping and len(old.node.input) > 1:
        old.node.input[1] = ""


@form(16, "RoiAlign")
def _roi_align_16(old: OldNode) -> None:
    """The default became ``half_pixel``."""
    old.set(coordinate_transformation_mode="output_half_pixel")


@form(9, "Scan")
def _scan_9(old: OldNode) -> None:
    """The first axis was a batch: a scan over it, around the scan over the sequence that was second."""
    if old.node.input[0]:
        old.problem = "sequence lengths have no successor."
        return
    body, scans = old.take("body"), old.take("num_scan_inputs")
    inner_inputs = [old.new_name(f"input_{i}") for i in range(len(body.input))]
    inner_outputs = [old.new_name(f"output_{i}") for i in range(len(body.output))]
    directions = {"scan_input_directions": d} if (d := old.take("directions")) else {}
    inner = helper.make_node(
        "Scan", inner_inputs, inner_outputs, old.new_name("sequence"), body=body, num_scan_inputs=scans, **directions
    )
    sequence = helper.make_graph(
        [inner], old.new_name("batch"), _renamed(body.input, inner_inputs), _renamed(body.output, inner_outputs)
    )
    del old.node.input[0]
    old.set(body=sequence, num_scan_inputs=len(old.node.input))


def _renamed(values: Iterable[ValueInfoProto], names: Iterable[str]) -> list[ValueInfoProto]:
    """The same element types under other names, the shapes left open."""
    types = (value.type.tensor_type.elem_type for value in values)
    return [helper.make_tensor_value_info(name, dtype, None) for name, dtype in zip(names, types, strict=True)]


@form(11, "Scatter")
def _scatter_11(old: OldNode) -> None:
    old.node.op_type = "ScatterElements"


@form(10, "Slice")
def _slice_10(old: OldNode) -> None:
    for i, name in enumerate(("starts", "ends", "axes"), start=1):
        values = old.take(name)
        if values is not None:
            old.set_input(i, old.constant(values, np.int64, name))


@form(13, "Softmax", "LogSoftmax", "Hardmax")
def _softmax_13(old: OldNode) -> None:
    """The input was flattened to two dimensions at ``axis``; now only ``axis`` itself is normalized."""
    axis = old.take("axis", 1)
    shape = type_.shape if (type_ := old.type()) is not None else None
    if shape is not None:
        axis = axis % len(shape) if shape else 0
        longer = [i for i in range(axis, len(shape)) if shape[i] != 1]
        if len(longer) <= 1:
            old.set(axis=longer[0] if longer else axis)
            return
    x, y = old.node.input[0], old.node.output[0]
    old.node.input[0] = old.insert("Flatten", [x], "flat", axis=axis)
    old.node.output[0] = old.new_name("normalized")
    old.set(axis=1)
    old.append("Reshape", [old.node.output[0], old.insert("Shape", [x], "shape")], y, allowzero=1)


@form(13, "Split")
def _split_13(old: OldNode) -> None:
    sizes = old.take("split")
    if sizes:
        old.set_input(1, old.constant(sizes, np.int64, "split"))


@form(18, "Split")
def _split_18(old: OldNode) -> None:
    """Equal parts are now asked for by their number."""
    if len(old.node.input) < 2 or not old.node.input[1]:
        old.set(num_outputs=len(old.node.output))


@form(10, "TopK")
def _top_k_10(old: OldNode) -> None:
    old.set_input(1, old.constant([old.take("k")], np.int64, "k"))
