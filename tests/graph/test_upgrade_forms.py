from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, defs, helper
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.case.test_case import TestCase

from onnxblock.graph.upgrade_forms import FORMS
from tests.graph.upgrading import Feeds, normal, one_node, session, verify, without_ranks

NOT_RESTATED = {
    *("Cast", "CastLike"),  # in some release of onnx, every case gives an attribute that came later
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceSumSquare"),  # or an input
    *("ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceLength"),
    *("GlobalLpPool", "LpNormalization", "MaxRoiPool", "Optional"),
    *("Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}  # fmt: skip

# ---------------------------------------------------------------------------------------- forms written by hand

Row = tuple[str, str, Sequence[int], dict[str, Any], Feeds]


def rows() -> Iterator[Row]:
    """Operator, outputs, opsets, attributes, inputs."""
    x3, x4 = normal(2, 3, 4), normal(2, 3, 4, 5)
    image = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    for dtype in (np.float32, np.float16):
        x = normal(2, 3, dtype=dtype)
        yield "Clip", "y", [7, 10], {"min": -0.5, "max": 0.25}, {"x": x}
        yield "Clip", "y", [7], {"min": -0.5}, {"x": x}
        yield "Clip", "y", [7], {"max": 0.5, "min": -3.4028234663852886e38}, {"x": x}
    yield "Clip", "y", [7], {}, {"x": x3}
    for dtype in (np.float32, np.float64):
        x = normal(2, 3, dtype=dtype)
        yield "Pad", "y", [7, 10], {"pads": [0, 1, 2, 0]}, {"x": x}
        yield "Pad", "y", [7], {"pads": [0, 1, 2, 0], "value": 1.5, "mode": "constant"}, {"x": x}
        yield "Pad", "y", [7], {"pads": [0, 1, 1, 0], "mode": "reflect"}, {"x": x}
        yield "Pad", "y", [7], {"pads": [0, 1, 0, -1], "mode": "edge"}, {"x": x}
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1, 2, 3):
            yield op, "y", [7, 11, 12], {"axis": axis}, {"x": x4}
        yield op, "y", [7, 12], {}, {"x": x4}
        yield op, "y", [11], {"axis": -2}, {"x": x4}
        yield op, "y", [11], {"axis": -1}, {"x": x4}
        yield op, "y", [9], {"axis": 1}, {"x": normal(2, 5, 1, 1)}
        yield op, "y", [9], {"axis": 1}, {"x": normal(2, 1, 1)}
        yield op, "y", [9], {"axis": 1}, {"x": normal(2, 3)}
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"):
        for attributes in ({}, {"keepdims": 0}, {"axes": [1]}, {"axes": [0, 2], "keepdims": 0}):
            yield op, "y", [7, 11, 12, *([] if op == "ReduceSum" else [13, 17])], attributes, {"x": x3}
    for op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"):
        yield op, "y", [7, 11, 13], {"axes": [2], "keepdims": 0}, {"x": abs(x3)}
        yield op, "y", [11, 17], {"axes": [-2]}, {"x": abs(x3)}
    half = np.array([[-300, 1, 12], [89, 300, 60000]], np.float16)
    yield "Softplus", "y", [7, 17], {}, {"x": half}
    yield "ReduceLogSumExp", "y", [7, 17], {"axes": [1], "keepdims": 0}, {"x": half}
    yield "ReduceLogSumExp", "y", [13], {}, {"x": half}
    for dtype in (np.float32, np.float16):
        yield "MeanVarianceNormalization", "y", [11, 17], {"axes": [0, 2]}, {"x": normal(2, 3, 4, dtype=dtype)}
        yield "MeanVarianceNormalization", "y", [14], {}, {"x": normal(2, 3, 4, 5, dtype=dtype)}
    yield "Squeeze", "y", [7, 11], {"axes": [0, 2]}, {"x": normal(1, 3, 1)}
    yield "Squeeze", "y", [7, 12], {}, {"x": normal(1, 3, 1)}
    yield "Squeeze", "y", [11], {"axes": [-1]}, {"x": normal(1, 3, 1)}
    yield "Unsqueeze", "y", [7, 11], {"axes": [0, 2]}, {"x": normal(2, 3)}
    yield "Unsqueeze", "y", [11], {"axes": [-1]}, {"x": normal(2, 3)}
    yield "Split", "y z", [7, 11], {"axis": 1, "split": [1, 3]}, {"x": normal(2, 4)}
    yield "Split", "y z", [7, 11, 13, 17], {"axis": 1}, {"x": normal(2, 4)}
    yield "Split", "y z", [7], {}, {"x": normal(2, 4)}
    yield "Slice", "y", [7, 9], {"starts": [1, 0], "ends": [10, -1], "axes": [0, 2]}, {"x": x3}
    yield "Slice", "y", [7], {"starts": [1, 0], "ends": [2, 2]}, {"x": x3}
    yield "TopK", "y i", [7], {"k": 2}, {"x": x3}
    yield "TopK", "y i", [7], {"k": 2, "axis": 1}, {"x": x3}
    yield "TopK", "y i", [10], {"axis": 1}, {"x": x3, "k": np.array([2])}
    yield "Scatter", "y", [9], {"axis": 1}, {"x": normal(2, 3), "i": np.array([[1], [0]]), "u": normal(2, 1)}
    yield "Dropout", "y", [7, 10], {"ratio": 0.3}, {"x": x3}
    yield "Dropout", "y", [7, 10], {}, {"x": x3}
    statistics = {"scale": normal(3), "b": normal(3), "mean": normal(3), "var": abs(normal(3)) + 0.5}
    for opset in (7, 9, 13):
        yield "BatchNormalization", "y", [opset], {"epsilon": 0.01, "momentum": 0.8}, {"x": x4, **statistics}
    wide = {name: np.broadcast_to(value[:, None, None], (3, 4, 5)).copy() for name, value in statistics.items()}
    yield "BatchNormalization", "y", [7], {"spatial": 1}, {"x": x4, **statistics}
    yield "BatchNormalization", "y", [8], {"spatial": 0, "epsilon": 0.01}, {"x": x4, **wide}
    yield "Upsample", "y", [7], {"scales": [1.0, 1.0, 2.0, 3.0]}, {"x": image}
    yield "Upsample", "y", [7, 8], {"scales": [1.0, 1.0, 1.5, 2.5], "mode": "nearest"}, {"x": image}
    yield "Upsample", "y", [7], {"scales": [1.0, 1.0, 2.0, 1.7], "mode": "linear"}, {"x": image}
    for scales in ([1, 1, 2, 2], [1, 1, 0.6, 0.3], [1, 1, 0.6, 2.3], [2, 1, 1, 1.5]):
        fed = {"x": image, "s": np.array(scales, np.float32)}
        yield "Resize", "y", [10], {"mode": "nearest"}, fed
        if scales[0] == 1:
            yield "Resize", "y", [10], {"mode": "linear"}, fed
        if min(scales) >= 1:
            yield "Upsample", "y", [9], {"mode": "nearest"}, fed
    for nearest, scale in itertools.product(("floor", "round_prefer_floor"), (0.3, 0.5, 0.6, 1.5, 2, 3)):
        mode = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
        fed = {"x": image, "roi": np.zeros(0, np.float32), "s": np.array([1, 1, scale, scale], np.float32)}
        yield "Resize", "y", [11], mode, fed
    roi = np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 1], np.float32)
    empty = np.zeros(0, np.float32)
    sizes = np.array([2, 3, 6, 3])
    for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"):
        for mode in ("nearest", "linear", "cubic"):
            attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
            yield "Resize", "y", [11, 12], attributes, {"x": image, "roi": roi, "s": empty, "n": sizes}
            yield "Resize", "y", [13, 17], attributes, {"x": image, "roi": roi, "": empty, "n": sizes}
    yield "Resize", "y", [12], {"mode": "linear"}, {"x": image, "roi": roi, "s": np.array([1, 1, 2, 2], np.float32)}
    boxes = {"r": np.array([[0, 0, 3, 3], [1, 0.5, 4, 3]], np.float32), "i": np.array([0, 1])}
    for opset, mode, samples in itertools.product((10, 15), ("avg", "max"), (1, 2)):
        if (mode, samples) == ("max", 2):  # onnxruntime warns that it does something else
            continue
        attributes = {"mode": mode, "output_height": 2, "output_width": 2, "sampling_ratio": samples}
        yield "RoiAlign", "y", [opset], attributes, {"x": image, **boxes}
    indices = {"i": np.array([-1, 0, 2, 7]), "d": np.array(3), "v": np.array([2, 5], np.float32)}
    yield "OneHot", "y", [9, 10], {"axis": 0}, indices
    gemm = {"a": normal(2, 3), "b": normal(4, 3), "c": normal(4)}
    yield "Gemm", "y", [7, 9, 10], {"transB": 1, "alpha": 0.5}, gemm
    lstm = {"x": normal(4, 2, 3), "w": normal(1, 20, 3), "r": normal(1, 20, 5), "b": normal(1, 40)}
    yield "LSTM", "y h c", [7, 13], {"hidden_size": 5}, lstm
    gru = {"x": normal(4, 2, 3), "w": normal(1, 15, 3), "r": normal(1, 15, 5), "b": normal(1, 30)}
    yield "GRU", "y h", [7, 13], {"hidden_size": 5, "linear_before_reset": 1}, gru
    yield "AveragePool", "y", [7, 10], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}, {"x": x4}
    yield "AveragePool", "y", [10], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, {"x": x4}
    yield "MaxPool", "y i", [8, 10, 11], {"kernel_shape": [2, 2], "strides": [2, 2]}, {"x": x4}
    conv = {"x": x4, "w": normal(3, 2, 3, 3)}
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield "ConvTranspose", "y", [7], {"auto_pad": pad, "strides": [2, 2]}, conv
    yield "Cast", "y", [7, 9], {"to": TensorProto.INT32}, {"x": x3}
    yield "Reshape", "y", [7, 13], {}, {"x": x3, "s": np.array([0, -1])}
    yield "Flatten", "y", [7, 9], {"axis": 2}, {"x": x3}
    yield "DepthToSpace", "y", [7], {"blocksize": 2}, {"x": normal(1, 8, 2, 2)}
    yield "PRelu", "y", [7, 9], {}, {"x": x3, "s": normal(4)}


ROWS = [
    (op, outputs, opset, attributes, feeds) for op, outputs, opsets, attributes, feeds in rows() for opset in opsets
]


@pytest.mark.parametrize("op", dict.fromkeys(row[0] for row in ROWS))
def test_old_forms(op: str) -> None:
    for op_type, outputs, opset, attributes, feeds in ROWS:
        if op_type != op:
            continue
        node = helper.make_node(op, list(feeds), outputs.split(), "node", **attributes)
        fed = {name: x for name, x in feeds.items() if name}
        raised = verify(one_node(node, opset, fed), fed)
        assert raised.opset_import[0].version == 18
        assert raised.ir_version == 8
        verify(one_node(node, opset, fed, ranks=False), without_ranks(fed))


def test_every_form_has_a_row() -> None:
    with_row = {(row[0], row[2]) for row in ROWS} | {("Scan", 8), ("BatchNormalization", 13)}
    missing = [
        (op, change)
        for op, changes in FORMS.items()
        for change in changes
        if not any(row_op == op and opset < change for row_op, opset in with_row)
    ]
    assert missing == []


# ---------------------------------------------------------------------------------------------- the cases of onnx


@functools.cache
def cases() -> dict[str, list[TestCase]]:
    found: dict[str, list[TestCase]] = {}
    for case in node_cases.collect_testcases(None):
        nodes = case.model.graph.node
        if len(nodes) == 1 and not nodes[0].domain and not case.name.endswith("_expanded"):
            found.setdefault(nodes[0].op_type, []).append(case)
    return found


def restated(case: TestCase) -> Iterator[tuple[ModelProto, Feeds]]:
    """The case at every opset from 7 to 17 where the operator had another schema, if it had this form and runs."""
    name = case.model.graph.node[0].op_type
    feeds = {
        value.name: x if isinstance(x, list) else np.asarray(x)
        for value, x in zip(case.model.graph.input, case.data_sets[0][0], strict=True)
    }
    for opset in sorted({max(schema.since_version, 7) for schema in old_schemas() if schema.name == name}):
        model = ModelProto()
        model.CopyFrom(case.model)
        model.ir_version = 8
        del model.opset_import[:]
        model.opset_import.append(helper.make_opsetid("", opset))
        try:
            onnx.checker.check_model(model, full_check=True)
            session(model).run(None, feeds)
        except Exception:  # noqa: BLE001 - onnx and onnxruntime have many kinds of refusal
            continue
        yield model, feeds


def old_schemas() -> list[defs.OpSchema]:
    return [s for s in defs.get_all_schemas_with_history() if not s.domain and s.since_version < 18]


@pytest.mark.parametrize("op", sorted({schema.name for schema in old_schemas()}))
@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx.*")
def test_the_cases_of_onnx(op: str) -> None:
    verified = 0
    for case in cases().get(op, []):
        for model, feeds in restated(case):
            verify(model, feeds)
            verified += 1
    assert verified or op in NOT_RESTATED
