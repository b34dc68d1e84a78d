"""The cross-entropy operators, in the operators that stock onnxruntime runs fastest."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ..dependencies import has_operator
from .types import Types, unknown

_OPERATORS = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
_NO_CLASS = 2**40


def expand_cross_entropy(model: ModelProto, types: Types = unknown) -> bool:
    """Replace SoftmaxCrossEntropyLoss by LogSoftmax and a choice of one element per sample.

    NegativeLogLikelihoodLoss is the choice alone.  onnxruntime has no kernels for the two and runs the functions that
    ONNX gives for them, which transpose the scores twice: measured, this form takes half the time or less.  A label
    that is no class ends the run with an error, also a negative one.  Opset 18 or later.
    """
    graph = model.graph
    if not has_operator(graph.node, *_OPERATORS):
        return False
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.op_type in _OPERATORS and not node.domain:
            graph.node.extend(_Expansion(node, types).nodes)
        else:
            graph.node.append(node)
    return True


class _Expansion:
    """The nodes that stand for one node of these operators, named after it."""

    def __init__(self, node: NodeProto, types: Types) -> None:
        self.nodes: list[NodeProto] = []
        self._prefix = node.name or node.output[0]
        scores, labels, *weights = node.input
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        reduction = attributes.get("reduction", b"mean").decode()
        given = node.output[1] if len(node.output) > 1 and node.output[1] else None
        is_softmax = node.op_type == "SoftmaxCrossEntropyLoss"
        log_prob = self._add("LogSoftmax", scores, output=given, axis=1) if is_softmax else scores
        known = types(labels)
        if known is None or known.dtype != TensorProto.INT64:
            labels = self._add("Cast", labels, to=TensorProto.INT64)
        counted = None
        if "ignore_index" in attributes:
            # What is ignored may be no class at all, so it reads class 0.
            counted = self._add("Not", self._add("Equal", labels, self._constant(attributes["ignore_index"])))
            labels = self._add("Where", counted, labels, self._constant(0))
        # A negative index would count from the last class; one as large as this is refused.
        negative = self._add("Less", labels, self._constant(0))
        labels = self._add("Where", negative, self._constant(_NO_CLASS), labels)
        axis = self._constant([1])
        chosen = self._add("GatherElements", log_prob, self._add("Unsqueeze", labels, axis), axis=1)
        losses = self._add("Neg", self._add("Squeeze", chosen, axis))
        weight = self._add("Gather", weights[0], labels) if weights and weights[0] else None
        if weight is not None:
            losses = self._add("Mul", losses, weight)
        if counted is not None:
            zero = self._add("CastLike", self._constant(0), losses)
            losses = self._add("Where", counted, losses, zero)
            weight = (
                self._add("CastLike", counted, losses) if weight is None else self._add("Where", counted, weight, zero)
            )
        if reduction == "none":
            self._add("Identity", losses, output=node.output[0])
        elif reduction == "sum":
            self._add("ReduceSum", losses, output=node.output[0], keepdims=0)
        elif weight is None:
            self._add("ReduceMean", losses, output=node.output[0], keepdims=0)
        else:
            # The quotient of two means: either sum may be too large for float16.
            means = [self._add("ReduceMean", x, keepdims=0) for x in (losses, weight)]
            self._add("Div", *means, output=node.output[0])

    def _add(self, op_type: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{self._prefix}/{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def _constant(self, content: int | list[int]) -> str:
        return self._add("Constant", value=numpy_helper.from_array(np.asarray(content, np.int64)))
