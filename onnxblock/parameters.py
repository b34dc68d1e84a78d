"""Which weights are trained, which are frozen, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from onnx import NodeProto, TensorProto

from .autodiff import registry
from .autodiff.registry import NoGradient
from .errors import ParameterError, did_you_mean
from .graph.decomposition import MICROSOFT
from .graph.dependencies import reads
from .graph.graph import Graph
from .graph.inner_weights import inner_weights
from .graph.origins import Origin, noted_constants, origins
from .graph.types import FLOATS, dtype_name
from .graph.weights import constant_tensor
from .modes import running_statistics

_SETTINGS = {
    ("", "Clip"): (1, 2),
    ("", "Dropout"): (1, 2),
    ("", "OneHot"): (2,),
    ("", "Pad"): (2,),
    ("", "Pow"): (1,),
    ("", "Range"): (0, 1, 2),
    ("", "Resize"): (1, 2),
    ("", "RoiAlign"): (1,),
    ("", "MaxRoiPool"): (1,),
    ("", "QuantizeLinear"): (1, 2),
    ("", "DequantizeLinear"): (1, 2),
    ("", "RotaryEmbedding"): (1, 2),
    (MICROSOFT, "DequantizeLinear"): (1, 2),
    (MICROSOFT, "GatherBlockQuantized"): (2, 3),
    (MICROSOFT, "GroupQueryAttention"): (7, 8),
    (MICROSOFT, "MatMulBnb4"): (2,),
    (MICROSOFT, "MatMulNBits"): (2, 3),
    (MICROSOFT, "MRotaryEmbedding"): (2, 3),
    (MICROSOFT, "Pad"): (2,),
    (MICROSOFT, "QuantizeLinear"): (1, 2),
    (MICROSOFT, "RotaryEmbedding"): (2, 3),
}
"""Float inputs that set how an operator works: by default they are not trained."""

_WITHOUT_GRADIENT = {("", "Dropout"), ("", "Resize"), ("", "RoiAlign"), ("", "MaxRoiPool"), (MICROSOFT, "MatMulBnb4")}
"""Operators whose settings have no gradient.  Those of others have: what the model computes is no setting there."""

_BUFFER_WORDS = ("running_mean", "running_var", "inv_freq", "masked_bias", "final_logits_bias")
"""Parts of the names that PyTorch models give to what they do not train."""

_LITERAL = re.compile(r"(^|/)Constant(_\d+)?_output_0$")
"""What PyTorch's exporter calls numbers in the code of a model, which optimizers turn into initializers."""

SMALL_CONSTANT = "a small tensor in a Constant node; name it in requires_grad to train it"

_OFF_PATH = "on no differentiable path to the loss"
_FROZEN = "frozen as asked"

_ORIGINS = {
    Origin.BUFFER: "a buffer of the PyTorch module, which no optimizer there trains",
    Origin.CONSTANT: "a constant in the code of the PyTorch module",
}


@dataclass(frozen=True)
class ParameterChoice:
    """What happens to each weight.

    ``trainable`` and ``frozen`` are in initializer order; both become inputs and are kept in the checkpoint.
    ``statistics`` are the running means and variances among ``frozen`` that training moves.  ``inputs`` are graph
    inputs whose gradient is asked for.  ``untouched`` are stubs (name, type, shape) of the other float weights of the
    model, which stay as they are.  ``reasons`` says for every float weight that is not trained, and for what was left
    out of a request, why.
    """

    trainable: tuple[str, ...]
    frozen: tuple[str, ...]
    statistics: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    untouched: tuple[TensorProto, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ParameterInfo:
    """Name, element type and shape of a weight, and what is done with it and why."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    reason: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def parameter_total(parameters: Sequence[ParameterInfo]) -> str:
    """``2 weights, 1,024 elements``."""
    count = sum(p.size for p in parameters)
    return f"{len(parameters)} weight{'s' * (len(parameters) != 1)}, {count:,} element{'s' * (count != 1)}"


def parameter_rows(parameters: Sequence[ParameterInfo]) -> list[str]:
    """A line for each weight, in columns."""
    width = max((len(p.name) for p in parameters), default=0)
    return [
        f"  {p.name:<{width}}  {p.dtype}{list(p.shape)}" + (f"  {p.reason}" if p.reason else "") for p in parameters
    ]


def choose_parameters(
    graph: Graph,
    loss: str,
    requires_grad: Iterable[str] | None = None,
    frozen: Iterable[str] | None = None,
    moving_statistics: Sequence[str] = (),
) -> ParameterChoice:
    """Decide what is trained.

    Without ``requires_grad``, every float weight on a differentiable path to ``loss`` is, except running statistics,
    settings of operators, constants of blocks, and what the exporter noted as a buffer or a constant; where it noted
    nothing, rank-0 constants, and buffers known by name.  ``moving_statistics`` are those that training updates.

    Raises:
        ParameterError: lists every unknown name, every name both trainable and frozen, integer weights, running
            statistics, or that there is nothing to train.
    """
    weights = {t.name: t.data_type for t in graph.model.graph.initializer}
    asked = None if requires_grad is None else list(dict.fromkeys(requires_grad))
    kept = list(dict.fromkeys(frozen or ()))
    statistics = running_statistics(graph.model)
    _lift_constants(graph, [*(asked or []), *kept], weights)
    inputs = {v.name: v.type.tensor_type.elem_type for v in graph.model.graph.input if v.name not in weights}
    added = graph.index.written
    own = {name for name, dtype in weights.items() if dtype in FLOATS} - added - noted_constants(graph.model)
    blanket = asked is not None and own <= {*asked, *kept}
    _refuse(asked or [], kept, weights, inputs, statistics, blanket)
    reasons: dict[str, str] = {}
    if asked is None:
        chosen, reasons = trainable_by_default(graph, [loss], kept)
    else:
        chosen = set(asked) & set(weights) - set(statistics)
        on_path, settings = _differentiable_values(graph, [loss])
        ended = _ends(graph, [loss], on_path)
        for name in asked:
            if name in statistics:
                reasons[name] = "a running statistic: it is moved by the data, not by gradients"
            elif name in weights and name not in on_path and name not in settings:
                reasons[name] = f"trained as asked, but {_off_path(name, ended)}; its gradient is zero"
        for name, dtype in weights.items():
            if dtype in FLOATS and name not in chosen and name not in reasons:
                reasons[name] = _FROZEN if name in kept else "not in requires_grad"
    gradient_inputs = tuple(n for n in asked or () if n in inputs)
    if not chosen and not gradient_inputs:
        raise ParameterError(*_nothing_to_train(graph, reasons))
    moved = [name for name in weights if name in moving_statistics]
    left = {name for name, dtype in weights.items() if dtype in FLOATS} - chosen - {*kept, *moved} - added
    constants = small_constants(graph, [loss])
    for tensor in constants:
        reasons[tensor.name] = SMALL_CONSTANT if asked is None else "not in requires_grad"
    return ParameterChoice(
        trainable=tuple(name for name in weights if name in chosen),
        frozen=tuple(name for name in weights if name in kept or name in moved),
        statistics=tuple(moved),
        inputs=gradient_inputs,
        untouched=(*(_stub(t, t.name) for t in graph.model.graph.initializer if t.name in left), *constants),
        reasons=reasons,
    )


def _refuse(
    asked: Sequence[str],
    frozen: Sequence[str],
    weights: dict[str, int],
    inputs: dict[str, int],
    statistics: Sequence[str],
    blanket: bool,
) -> None:
    problems = []
    for what, names, known in (
        ("requires_grad", asked, [*weights, *inputs]),
        ("frozen_params", frozen, list(weights)),
    ):
        problems += [
            f"{what}: the model has no weight {name!r}.{did_you_mean(name, known)}"
            for name in names
            if name not in known
        ]
    problems += [f"{name!r} is both in requires_grad and in frozen_params." for name in asked if name in frozen]
    for name in asked:
        dtype = weights.get(name, inputs.get(name, 0))
        if dtype and dtype not in FLOATS:
            problems.append(f"{name!r} is {dtype_name(dtype)}, which is not differentiable.")
        elif name in statistics and not blanket:
            problems.append(
                f"{name!r} is a running statistic of BatchNormalization: the data moves it, not a gradient."
            )
    if problems:
        raise ParameterError(
            "these parameters cannot be used as asked:\n    " + "\n    ".join(problems),
            "Leave them out, or correct their names.",
        )


def _nothing_to_train(graph: Graph, reasons: dict[str, str]) -> tuple[str, str]:
    held = {
        f"those of {node.op_type} {node.name or node.output[0]!r}": "attributes of the node, not tensors"
        for node in graph.model.graph.node
        if any(attribute.name == "coefficients" for attribute in node.attribute)
    }
    if not held and not reasons:
        return (
            "the model has no float weights, so there is nothing to train.",
            "Export it with its weights inside; those in Constant nodes are trained if requires_grad names them.",
        )
    shown = "\n    ".join(f"{name}: {why}" for name, why in list({**held, **reasons}.items())[:10])
    converted = (
        "Convert the model without such operators, as skl2onnx does if given black_op={'LinearClassifier', "
        "'LinearRegressor'}, or name other weights in requires_grad."
    )
    if held:
        remedy = converted
    elif all(why.startswith(_OFF_PATH) for why in reasons.values()):
        remedy = "Compute the loss of values that depend on the weights differentiably; loss_input_names chooses them."
    elif _FROZEN in reasons.values():
        remedy = "Leave some out of frozen_params."
    else:
        remedy = "Name what to train in requires_grad."
    return f"none of the model's weights is trained:\n    {shown}", remedy


def trainable_by_default(
    graph: Graph, outputs: Iterable[str], frozen: Sequence[str] = ()
) -> tuple[set[str], dict[str, str]]:
    """The weights that are trained when nobody says which, and for each other float weight why it is not.

    ``outputs`` are the loss, or the values that a loss will be made of.
    """
    statistics = set(running_statistics(graph.model))
    on_path, settings = _differentiable_values(graph, outputs)
    ended = _ends(graph, outputs, on_path)
    noted = origins(graph.model.graph, graph.weights)
    constants = graph.index.written | noted_constants(graph.model)
    chosen: set[str] = set()
    reasons: dict[str, str] = {}
    for tensor in graph.model.graph.initializer:
        name = tensor.name
        if tensor.data_type not in FLOATS:
            continue
        if name in frozen:
            reasons[name] = _FROZEN
        elif name in statistics:
            reasons[name] = "a running statistic of BatchNormalization"
        elif name in settings:
            reasons[name] = f"a setting of {settings[name]}; name it in requires_grad to train it"
        elif name not in on_path:
            reasons[name] = _off_path(name, ended)
        elif name in constants:
            reasons[name] = "a constant that a block wrote; name it in requires_grad to train it"
        elif name in noted:
            if noted[name] is Origin.PARAMETER:
                chosen.add(name)
            else:
                reasons[name] = f"{_ORIGINS[noted[name]]}; name it in requires_grad to train it"
        elif graph.value(name).rank == 0:
            reasons[name] = "a single number, most likely a constant of the model; name it in requires_grad to train it"
        elif any(word in name for word in _BUFFER_WORDS):
            reasons[name] = "a buffer by its name; list it in requires_grad to train it"
        elif _LITERAL.search(name):
            reasons[name] = (
                "a number in the code of the PyTorch module by its name; list it in requires_grad to train it"
            )
        else:
            chosen.add(name)
    return chosen, reasons


def small_constants(graph: Graph, outputs: Iterable[str]) -> list[TensorProto]:
    """Stubs of the float tensors of several elements in Constant nodes: weights if they are named, and else numbers.

    Of the graph's own nodes, those from which a gradient path leads to one of ``outputs``.
    """
    held = [(node.output[0], tensor) for node in graph.proto.node if (tensor := constant_tensor(node)) is not None]
    inner = [(weight.name, weight.tensor) for weight in inner_weights(graph.proto)]
    found = [_stub(tensor, name) for name, tensor in held + inner if _has_several_floats(tensor)]
    if not found:
        return []
    on_path = _differentiable_values(graph, outputs)[0] | {name for name, _ in inner}
    return [tensor for tensor in found if tensor.name in on_path]


def _has_several_floats(tensor: TensorProto) -> bool:
    return tensor.data_type in FLOATS and len(tensor.dims) > 0 and prod(tensor.dims) > 1


def _stub(tensor: TensorProto, name: str) -> TensorProto:
    return TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)


def _differentiable_values(graph: Graph, outputs: Iterable[str]) -> tuple[set[str], dict[str, str]]:
    """The values from which a gradient path leads to one of ``outputs``, settings of operators aside.

    The second result has the values that are settings only and have a gradient, each with an operator that it sets.
    """
    on_path, settings = set(map(str, outputs)), dict[str, str]()
    computed = {name for node in graph.model.graph.node if node.op_type != "Constant" for name in node.output}
    for node in reversed(graph.model.graph.node):
        if on_path.isdisjoint(node.output):
            continue
        if isinstance(registry.find(node.op_type, node.domain), NoGradient):
            continue
        differentiable = {name for name in reads(node) if graph.carries_gradient(name)}
        set_only = differentiable & _settings(node, computed)
        on_path |= differentiable - set_only
        if (node.domain, node.op_type) not in _WITHOUT_GRADIENT:
            settings.update(dict.fromkeys(set_only, f"{node.op_type} {node.name or node.output[0]!r}"))
    return on_path, {name: operator for name, operator in settings.items() if name not in on_path}


def _ends(graph: Graph, outputs: Iterable[str], on_path: set[str]) -> dict[str, str]:
    """For values that ``outputs`` are computed of, but by no differentiable path, the operator that passes none."""
    ended: dict[str, str] = {}
    used = set(map(str, outputs))
    for node in reversed(graph.model.graph.node):
        if used.isdisjoint(node.output):
            continue
        used.update(reads(node))
        passes = not isinstance(registry.find(node.op_type, node.domain), NoGradient)
        if not on_path.isdisjoint(node.output) and passes:
            continue
        own = f"{node.op_type} {node.name or node.output[0]!r}"
        later = next((ended[name] for name in node.output if name in ended), own)
        ends_here = not passes or not any(graph.carries_gradient(name) for name in node.output if name)
        for name in reads(node) - on_path:
            ended.setdefault(name, own if ends_here else later)
    return ended


def _off_path(name: str, ended: Mapping[str, str]) -> str:
    return _OFF_PATH + (f": {ended[name]} passes no gradient back" if name in ended else "")


def _settings(node: NodeProto, computed: set[str]) -> set[str]:
    operator = (node.domain, node.op_type)
    numbers = _SETTINGS.get(operator, ())
    found = {node.input[k] for k in numbers if k < len(node.input)}
    if operator not in _WITHOUT_GRADIENT:
        found -= computed
    return found - {name for k, name in enumerate(node.input) if k not in numbers}


def _lift_constants(graph: Graph, names: Iterable[str], weights: dict[str, int]) -> None:
    """Weights in Constant nodes become initializers of the same name."""
    for name in names:
        if name not in weights and graph.lift_constant(name):
            weights[name] = graph.value(name).dtype or 0
