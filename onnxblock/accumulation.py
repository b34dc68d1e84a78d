"""The accumulator: what makes one file train on two runtimes.

A state (a gradient buffer, a running statistic) is updated by a node ``com.microsoft::InPlaceAccumulatorV2``.  The
discontinued training runtime has a kernel of that name that writes into the buffer it is fed; stock onnxruntime has
none and inlines the model-local function of that name, whose second output is the new value.
"""

from __future__ import annotations

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper

from . import names


def accumulator_function(opset: int) -> FunctionProto:
    """``(buffer, value, overwrite) -> (flag, out)`` in standard operators.

    ``out`` is ``value`` where ``overwrite`` holds, else ``buffer + value``; ``flag`` is always true, of shape [1].

    A choice between whole tensors is an ``If``: onnxruntime's ``Where`` looks at every element and takes three times
    as long as the addition, or more.
    """
    choice = helper.make_node(
        "If",
        ["overwrite"],
        ["flag", "out"],
        then_branch=_branch("Identity", ["value"], "replaced"),
        else_branch=_branch("Add", ["buffer", "value"], "total"),
    )
    return helper.make_function(
        names.ACCUMULATOR_DOMAIN,
        names.ACCUMULATOR_OP,
        inputs=["buffer", "value", "overwrite"],
        outputs=["flag", "out"],
        nodes=[choice],
        opset_imports=[helper.make_opsetid("", opset)],
    )


def _branch(op_type: str, inputs: list[str], output: str) -> GraphProto:
    """A branch of one node, for any element type, that gives the flag too."""
    flag = numpy_helper.from_array(np.array([True]), f"{output}.flag")
    return helper.make_graph(
        [helper.make_node(op_type, inputs, [output])],
        output,
        inputs=[],
        outputs=[helper.make_tensor_value_info(flag.name, flag.data_type, flag.dims), ValueInfoProto(name=output)],
        initializer=[flag],
    )


def accumulate(buffer: str, value: str, overwrite: str, flag: str, out: str) -> NodeProto:
    """The node that accumulates ``value`` into ``buffer``."""
    return helper.make_node(
        names.ACCUMULATOR_OP, [buffer, value, overwrite], [flag, out], name=out, domain=names.ACCUMULATOR_DOMAIN
    )
