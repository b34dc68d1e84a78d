from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxblock.errors import InvalidModelError, UnknownNameError
from onnxblock.graph.external import ExternalFiles
from onnxblock.graph.storage import is_numeric, tensor_bytes, tensor_nbytes
from onnxblock.graph.weights import Weights, detach, is_stub, stub


def model_of(nodes: list[onnx.NodeProto], initializers: list[TensorProto]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dense(weight: np.ndarray, name: str = "w") -> ModelProto:
    return model_of([helper.make_node("MatMul", ["x", name], ["y"])], [numpy_helper.from_array(weight, name)])


@pytest.fixture
def weight() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)


def test_detach_leaves_a_stub_and_the_users_model_as_it_was(weight: np.ndarray) -> None:
    model = dense(weight)
    before = model.SerializeToString()
    light, weights = detach(model)
    assert model.SerializeToString() == before
    (left,) = light.graph.initializer
    assert is_stub(left)
    assert (left.name, list(left.dims), left.data_type) == ("w", [32, 32], TensorProto.FLOAT)
    assert light.ByteSize() < 500
    assert weights.names() == ["w"]
    assert "w" in weights
    assert (weights.dtype("w"), weights.shape("w"), weights.nbytes("w")) == (TensorProto.FLOAT, (32, 32), 4096)
    np.testing.assert_array_equal(weights.array("w"), weight)
    restored = ModelProto()
    restored.CopyFrom(light)
    restored.graph.initializer[0].CopyFrom(weights.tensor("w"))
    assert restored.SerializeToString() == before


def test_detach_keeps_everything_else(weight: np.ndarray) -> None:
    model = dense(weight)
    model.doc_string, model.producer_name, model.domain = "doc", "producer", "domain"
    model.graph.doc_string = "graph"
    helper.set_model_props(model, {"key": "value"})
    model.graph.value_info.add(name="v").doc_string = "kept"
    light, _ = detach(model)
    light.graph.initializer[0].CopyFrom(model.graph.initializer[0])
    assert light == model


def test_a_light_model_can_be_checked_and_inferred(weight: np.ndarray) -> None:
    light, _ = detach(dense(weight))
    onnx.checker.check_model(light, full_check=True)
    light.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(light, strict_mode=True, data_prop=True)
    assert [d.dim_value or d.dim_param for d in inferred.graph.output[0].type.tensor_type.shape.dim] == ["n", 32]


def test_small_weights_and_shapes_stay_inside() -> None:
    small = numpy_helper.from_array(np.zeros(256, np.float32), "small")
    shape = numpy_helper.from_array(np.zeros(8192, np.int64), "shape")
    text = helper.make_tensor("text", TensorProto.STRING, [300], [b"0123456789"] * 300)
    index = numpy_helper.from_array(np.zeros(8193, np.int64), "index")
    light, weights = detach(model_of([], [small, shape, text, index]))
    assert [is_stub(t) for t in light.graph.initializer] == [False, False, False, True]
    assert weights.names() == ["index"]


def test_a_large_constant_node_becomes_an_initializer(weight: np.ndarray) -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weight, "ignored"))
    small = helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.ones((), np.float32)))
    product = helper.make_node("MatMul", ["x", "w"], ["xw"])
    light, weights = detach(model_of([constant, small, product, helper.make_node("Mul", ["xw", "one"], ["y"])], []))
    assert [n.op_type for n in light.graph.node] == ["Constant", "MatMul", "Mul"]
    assert [t.name for t in light.graph.initializer] == ["w"]
    assert weights.tensor("w").name == "w"
    np.testing.assert_array_equal(weights.array("w"), weight)


def test_bodies_keep_their_weights(weight: np.ndarray) -> None:
    def branch(name: str, **constant: TensorProto) -> onnx.GraphProto:
        nodes = [helper.make_node("Constant", [], ["c" + name], **constant)] if constant else []
        return helper.make_graph(
            [*nodes, helper.make_node("Identity", ["c" + name], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, 32])],
            [] if constant else [numpy_helper.from_array(weight, "c" + name)],
        )

    value = numpy_helper.from_array(weight)
    node = helper.make_node("If", ["b"], ["y"], then_branch=branch("t"), else_branch=branch("e", value=value))
    model = model_of([node], [numpy_helper.from_array(np.array(True), "b")])
    light, weights = detach(model)
    assert weights.names() == []
    assert light == model


@pytest.mark.parametrize("dtype", sorted(d for d in TensorProto.DataType.values() if is_numeric(d)))
def test_every_dtype_in_raw_and_in_typed_fields(dtype: int) -> None:
    rng = np.random.default_rng(dtype)
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    values = rng.integers(0, 2, (3, 7)).astype(kind)
    raw = numpy_helper.from_array(values, "t")
    assert raw.HasField("raw_data")
    assert raw.data_type == dtype
    typed = helper.make_tensor("t", dtype, values.shape, values.ravel().tolist())
    assert not typed.HasField("raw_data")
    for tensor in (raw, typed):
        assert tensor_nbytes(tensor) == len(raw.raw_data)
        assert tensor_bytes(tensor, "t") == raw.raw_data
        weights = Weights()
        weights.add(tensor)
        assert weights.nbytes("t") == len(raw.raw_data)
        assert b"".join(weights.chunks("t", 5)) == raw.raw_data
        assert weights.tensor("t") == raw
        read = weights.array("t")
        assert (read.dtype, read.shape, read.tobytes()) == (kind, values.shape, values.tobytes())
        assert not read.flags.writeable


def test_typed_fields_keep_signs_and_wide_values() -> None:
    for dtype, values in (
        (TensorProto.INT8, [-128, 127]),
        (TensorProto.INT16, [-32768, 32767]),
        (TensorProto.UINT16, [0, 65535]),
        (TensorProto.INT64, [-(2**63), 2**63 - 1]),
        (TensorProto.UINT64, [0, 2**64 - 1]),
        (TensorProto.UINT32, [0, 2**32 - 1]),
        (TensorProto.FLOAT16, [-1.5, 65504.0]),
        (TensorProto.COMPLEX64, [1 - 2j, 3j]),
    ):
        weights = Weights()
        weights.add(helper.make_tensor("t", dtype, [2], values))
        assert weights.array("t").tolist() == values


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (3, 0), (1, 1)])
def test_scalars_and_empty_weights(shape: tuple[int, ...]) -> None:
    weights = Weights()
    weights.add(numpy_helper.from_array(np.ones(shape, np.float32), "t"))
    weights.add_array("a", np.ones(shape, np.float32))
    for name in "ta":
        assert weights.array(name).shape == weights.shape(name) == shape
        assert b"".join(weights.chunks(name)) == np.ones(shape, np.float32).tobytes()


def test_arrays_are_held_by_reference_and_in_any_layout() -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    weights = Weights()
    weights.add_array("a", array)
    weights.add_array("t", array.T)
    weights.add_array("big", array.astype(">f8"))
    array[0, 0] = 7
    assert weights.array("a")[0, 0] == 7
    assert weights.dtype("t") == weights.dtype("big") == TensorProto.DOUBLE
    assert b"".join(weights.chunks("t", 8)) == np.ascontiguousarray(array.T).tobytes()
    assert numpy_helper.to_array(weights.tensor("big")).tolist() == np.arange(6.0).reshape(2, 3).tolist()


def test_remove_and_unknown_names() -> None:
    weights = Weights()
    weights.add(numpy_helper.from_array(np.ones(3, np.float32), "fc1.weight"))
    with pytest.raises(UnknownNameError, match=r"fc1\.wieght.*Did you mean 'fc1\.weight'"):
        weights.nbytes("fc1.wieght")
    weights.remove("fc1.weight")
    assert weights.names() == []
    with pytest.raises(UnknownNameError):
        weights.remove("fc1.weight")


def test_wrong_data_is_refused() -> None:
    short = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT, raw_data=b"\0" * 12)
    weights = Weights()
    weights.add(short)
    with pytest.raises(InvalidModelError, match=r"'w' has 12 bytes.*float32.*\[4\] need 16"):
        weights.array("w")
    with pytest.raises(InvalidModelError, match="two weights"):
        weights.add(short)
    with pytest.raises(InvalidModelError, match="only a reference"):
        Weights().add(stub(short))
    with pytest.raises(InvalidModelError, match="not plain numbers"):
        Weights().add(helper.make_tensor("s", TensorProto.STRING, [1], [b"a"]))
    with pytest.raises(InvalidModelError, match="negative"):
        Weights().add(TensorProto(name="w", dims=[-1], data_type=TensorProto.FLOAT))
    with pytest.raises(InvalidModelError, match="unknown type 99"):
        Weights().add(TensorProto(name="w", dims=[1], data_type=99))


def test_duplicate_initializers_are_refused(weight: np.ndarray) -> None:
    model = dense(weight)
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(InvalidModelError, match="'w'"):
        detach(model)


def test_a_stub_cannot_be_detached_again(weight: np.ndarray) -> None:
    light, _ = detach(dense(weight))
    with pytest.raises(InvalidModelError, match=r"'w'.*stub"):
        detach(light)


def test_external_data_stays_in_its_file(tmp_path: Path, weight: np.ndarray) -> None:
    onnx.save(dense(weight), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    before = model.SerializeToString()
    light, weights = detach(model, tmp_path)
    assert model.SerializeToString() == before
    assert is_stub(light.graph.initializer[0])
    assert b"".join(weights.chunks("w", 1000)) == weight.tobytes()
    assert [len(c) for c in weights.chunks("w", 4000)] == [4000, 96]
    np.testing.assert_array_equal(weights.array("w"), weight)
    np.testing.assert_array_equal(numpy_helper.to_array(weights.tensor("w")), weight)


def test_a_changed_or_lost_data_file_is_noticed(tmp_path: Path, weight: np.ndarray) -> None:
    onnx.save(dense(weight), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    _, weights = detach(onnx.load(tmp_path / "m.onnx", load_external_data=False), tmp_path)
    data = (tmp_path / "m.bin").read_bytes()
    (tmp_path / "m.bin").write_bytes(data + b"\0")
    with pytest.raises(InvalidModelError, match=r"m\.bin.*has changed"):
        weights.array("w")
    (tmp_path / "m.bin").unlink()
    with pytest.raises(InvalidModelError, match=r"m\.bin.*cannot be read"):
        weights.array("w")


def test_small_external_data_comes_inside_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "d.bin").write_bytes(np.arange(4, dtype=np.int64).tobytes())

    def external(name: str) -> TensorProto:
        tensor = TensorProto(name=name, data_type=TensorProto.INT64, dims=[2], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="d.bin")
        tensor.external_data.add(key="offset", value="16")
        return tensor

    body = helper.make_graph(
        [helper.make_node("Identity", ["i"], ["o"])],
        "body",
        [],
        [helper.make_tensor_value_info("o", TensorProto.INT64, [2])],
        [external("i")],
    )
    choose = helper.make_node("If", ["c"], ["s"], then_branch=body, else_branch=body)
    constant = helper.make_node("Constant", [], ["k"], value=external("k"))
    light, _ = detach(model_of([choose, constant], [external("w")]), tmp_path)
    found = [light.graph.initializer[0], light.graph.node[1].attribute[0].t]
    found += [attribute.g.initializer[0] for attribute in light.graph.node[0].attribute]
    assert [numpy_helper.to_array(t).tolist() for t in found] == [[2, 3]] * 4
    assert all(t.data_location == TensorProto.DEFAULT for t in found)


def test_every_fault_of_external_data_is_listed(tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "short.bin").write_bytes(b"\0" * 100)
    (tmp_path / "secret.bin").write_bytes(b"\0" * 4096)
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")

    def external(name: str, **entries: str) -> TensorProto:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1024], data_location=TensorProto.EXTERNAL)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        return tensor

    tensors = [
        external("a", location="lost.bin"),
        external("b", location="short.bin"),
        external("c", location="../secret.bin"),
        external("d", location=str(tmp_path / "secret.bin")),
        external("e", location="link.bin"),
        external("f"),
        external("g", location="short.bin", offset="zero"),
        external("h", location="short.bin", length="8"),
        external("i", location="short.bin", offset="-8"),
        external("j", location="../model"),
    ]
    with pytest.raises(InvalidModelError) as caught:
        detach(model_of([], tensors), inside)
    lines = str(caught.value).splitlines()[1:-1]
    for name, line, words in zip(
        "abcdefghij",
        lines,
        ("does not exist", "too short", "outside", "outside", "outside", "no file", "not two numbers", "needs 4096",
         "too short", "does not exist"),
        strict=True,
    ):  # fmt: skip
        assert f"'{name}'" in line
        assert words in line


def test_a_link_may_lead_to_the_folder_of_the_model_it_belongs_to(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "blobs" / "1").write_bytes(b"\0" * 4096)
    (tmp_path / "snapshot" / "data").symlink_to(tmp_path / "blobs" / "1")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1024], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="data")
    assert ExternalFiles(tmp_path / "snapshot").find(tensor, "w") is None
    assert ExternalFiles(tmp_path / "snapshot", [tmp_path / "blobs"]).find(tensor, "w") is not None
