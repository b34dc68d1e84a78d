"""The accumulator: what makes one file train on two runtimes.

A state (a gradient buffer, a running statistic) is updated by a node ``com.microsoft::InPlaceAccumulatorV2``.  The
discontinued training runtime has a kernel of that name that writes into the buffer it is fed; stock onnxruntime has
none and inlines the model-local function of that name, whose second output is the new value.
"""

from __future__ import annotations

from onnx import FunctionProto, NodeProto, helper

from . import names


def accumulator_function(opset: int) -> FunctionProto:
    """``(buffer, value, overwrite) -> (flag, out)`` in standard operators.

    ``out`` is ``value`` where ``overwrite`` holds, else ``buffer + value``; ``flag`` is always true, of shape [1].
    """
    nodes = [
        helper.make_node("Squeeze", ["overwrite"], ["replace"]),
        helper.make_node("Add", ["buffer", "value"], ["total"]),
        helper.make_node("Where", ["replace", "value", "total"], ["out"]),
        helper.make_node("Not", ["overwrite"], ["keep"]),
        helper.make_node("Or", ["overwrite", "keep"], ["flag"]),
    ]
    return helper.make_function(
        names.ACCUMULATOR_DOMAIN,
        names.ACCUMULATOR_OP,
        inputs=["buffer", "value", "overwrite"],
        outputs=["flag", "out"],
        nodes=nodes,
        opset_imports=[helper.make_opsetid("", opset)],
    )


def accumulate(buffer: str, value: str, overwrite: str, flag: str, out: str) -> NodeProto:
    """The node that accumulates ``value`` into ``buffer``."""
    return helper.make_node(
        names.ACCUMULATOR_OP, [buffer, value, overwrite], [flag, out], name=out, domain=names.ACCUMULATOR_DOMAIN
    )
