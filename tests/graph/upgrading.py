"""Comparing what a model computes before and after it is raised."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxblock.graph.upgrade import raise_opset

WRONGLY_INFERRED = {"MeanVarianceNormalization"}  # without axes, the body in its schema is found invalid
Feeds = dict[str, npt.NDArray[Any]]


def session(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def verify(original: ModelProto, feeds: Feeds) -> ModelProto:
    """Check that raising keeps what a model computes; returns the raised model."""
    expected = session(original).run(None, feeds)
    raised = raise_opset(original)
    onnx.checker.check_model(raised, full_check=not any(n.op_type in WRONGLY_INFERRED for n in raised.graph.node))
    actual = session(raised).run(None, feeds)
    for one, other in zip(expected, actual, strict=True):
        for a, b in zip(*((x if isinstance(x, list) else [x]) for x in (one, other)), strict=True):
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
            if np.issubdtype(np.asarray(a).dtype, np.floating):
                np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(b, a)
    return raised


def one_node(node: NodeProto, opset: int, feeds: Feeds, ranks: bool = True) -> ModelProto:
    """A model of one node, whose inputs have their shapes, or not even a rank as far as inference can tell."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    nodes = [node]
    if not ranks:
        nodes = [helper.make_node("Reshape", ["in_" + name, "shape_" + name], [name]) for name in feeds] + nodes
        for value in inputs:
            value.name = "in_" + value.name
        inputs += [
            helper.make_tensor_value_info("shape_" + name, TensorProto.INT64, ["rank_" + name]) for name in feeds
        ]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in node.output if name])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    results = session(model).run(None, feeds if ranks else without_ranks(feeds))
    for output, x in zip(model.graph.output, results, strict=True):
        output.type.CopyFrom(helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
    return model


def without_ranks(feeds: Feeds) -> Feeds:
    shapes = {"shape_" + name: np.array(x.shape, np.int64) for name, x in feeds.items()}
    return {"in_" + name: x for name, x in feeds.items()} | shapes


def normal(*shape: int, seed: int = 0, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)
