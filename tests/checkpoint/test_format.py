"""The bytes of checkpoints, against files of the original."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxblock.checkpoint import (
    Checkpoint,
    OptimizerGroup,
    Tensor,
    read_checkpoint,
    save_checkpoint,
    write,
    write_checkpoint,
)

ORIGINAL = Path(__file__).parent / "original"
FILES = sorted(p for p in ORIGINAL.glob("*.ckpt") if p.stem != "external")


def pattern(shape, dtype, k):
    n = int(np.prod(shape))
    values = np.arange(n) % 2 == 0 if dtype is np.bool_ else (np.arange(n) + k) % 7 - 3
    return values.reshape(shape).astype(dtype)


TRAINABLE = {
    "w": pattern((3, 5), np.float32, 1),
    "scalar": pattern((), np.float32, 2),
    "empty": pattern((0, 4), np.float32, 0),
}
FROZEN_DTYPES = ["float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"]
FROZEN = {"f_" + d: pattern((3,), np.dtype(d).type, i) for i, d in enumerate(FROZEN_DTYPES)}


def protos(arrays):
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def test_there_are_reference_files():
    assert len(FILES) == 8


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_reading_and_writing_gives_the_same_bytes(path, tmp_path):
    write_checkpoint(tmp_path / "c", read_checkpoint(path))
    assert (tmp_path / "c").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("name", "nominal"), [("dtypes", False), ("nominal", True)])
def test_tensor_protos_give_the_bytes_of_the_original(name, nominal, tmp_path):
    save_checkpoint((protos(TRAINABLE), protos(FROZEN)), tmp_path / "c", nominal_checkpoint=nominal)
    assert (tmp_path / "c").read_bytes() == (ORIGINAL / f"{name}.ckpt").read_bytes()


def test_doc_strings_and_typed_fields_give_the_bytes_of_the_original(tmp_path):
    documented = numpy_helper.from_array(pattern((2,), np.float32, 1), "w")
    documented.doc_string = "doc"
    save_checkpoint(([documented], []), tmp_path / "doc")
    assert (tmp_path / "doc").read_bytes() == (ORIGINAL / "doc.ckpt").read_bytes()
    floats = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    integers = helper.make_tensor("b", TensorProto.INT8, [3], [1, 2, 3])
    assert not floats.HasField("raw_data")
    save_checkpoint(([floats], [integers]), tmp_path / "fields")
    assert (tmp_path / "fields").read_bytes() == (ORIGINAL / "fielddata.ckpt").read_bytes()


def test_arrays_are_read_back():
    checkpoint = read_checkpoint(ORIGINAL / "dtypes.ckpt")
    for expected, tensors in ((TRAINABLE, checkpoint.trainable), (FROZEN, checkpoint.frozen)):
        assert [t.name for t in tensors] == list(expected)
        for tensor in tensors:
            assert tensor.array().dtype == expected[tensor.name].dtype
            np.testing.assert_array_equal(tensor.array(), expected[tensor.name], strict=True)
    assert (checkpoint.optimizer_groups, checkpoint.properties, checkpoint.external) == (None, None, False)


def test_optimizer_state_and_properties_are_read():
    checkpoint = read_checkpoint(ORIGINAL / "AdamW_state.ckpt")
    assert checkpoint.properties == {"a": -1, "best": float(np.float32(0.1)), "epoch": 7, "name": "grüße"}
    assert checkpoint.optimizer_groups is not None
    (group,) = checkpoint.optimizer_groups
    assert (group.name, group.step, group.initial_learning_rate) == ("group0", 3, float(np.float32(0.001)))
    assert {p: [m.name for m in ms] for p, ms in group.moments.items()} == {
        p: ["momentum0", "momentum1"] for p in ("W1", "W2", "b1")
    }
    assert [t.name for t in checkpoint.trainable] == ["W1", "W2", "b1"]
    assert [t.name for t in checkpoint.frozen] == ["b2"]
    assert all((m.array() >= 0).all() and (m.array() != 0).any() for m in [group.moments["W1"][1]])
    (sgd,) = read_checkpoint(ORIGINAL / "SGD_state.ckpt").optimizer_groups or ()
    assert {p: [m.name for m in ms] for p, ms in sgd.moments.items()} == {p: ["momentum0"] for p in ("W1", "W2", "b1")}
    assert read_checkpoint(ORIGINAL / "AdamW_plain.ckpt").optimizer_groups == []


def test_the_fixed_bytes(tmp_path):
    # the smallest checkpoint, byte by byte: header, root, vtables, two empty vectors
    write_checkpoint(tmp_path / "c", Checkpoint([], []))
    data = (tmp_path / "c").read_bytes()
    assert data[4:8] == b"ODTC"
    assert len(data) == 48
    assert data[-8:] == bytes(8)


class Sink:
    def __init__(self):
        self.at = 0
        self.written = {}
        self.largest = 0

    def write(self, data):
        if bytes(data[:64]).strip(b"\0"):
            self.written[self.at] = bytes(data[:64])
        self.at += len(data)
        self.largest = max(self.largest, len(data))

    def writelines(self, chunks):
        for chunk in chunks:
            self.write(chunk)


def external_example():
    zeros = memoryview(bytes(1 << 20))

    def half_a_mebibyte_less():
        yield zeros[: 1 << 19]
        for _ in range(1799):
            yield zeros

    def arrays(*specs):
        return [Tensor.from_array(name, pattern((n,), dtype, 1)) for name, dtype, n in specs]

    small = [("s36", "f4", 9), ("s60", "f4", 15), ("s64", "f4", 16), ("odd", "i1", 67), ("dbl", "f8", 9)]
    big = Tensor("big", TensorProto.FLOAT, (int(1799.5 * 2**18),), half_a_mebibyte_less)
    frozen = [("odd2", "i1", 65), ("i64", "i8", 20), ("u64", "u8", 33), ("i64s", "i8", 3)]
    return Checkpoint([*arrays(*small), big], arrays(*frozen))


def test_gigabytes_stream_into_external_data(monkeypatch, tmp_path):
    sinks = {}

    @contextmanager
    def replacing(path, error_type, durable):
        yield sinks.setdefault(Path(path).name, Sink())

    def content(layout):
        return b"".join(layout.write_to())

    monkeypatch.setattr(write, "replacing", replacing)
    checkpoint = external_example()
    write_checkpoint(tmp_path / "c", checkpoint)
    data = sinks["c.data"]
    assert (data.at, data.largest) == (1_886_913_216, 1 << 20)
    assert sinks["c"].at == 728
    assert list(data.written)[:3] == [0, 64, 136]  # 64 bytes of float32, 67 of int8, padding to 8, float64
    external = [t for t in checkpoint.parameters if t.nbytes >= 64]
    assert (
        content(write._lay_out(checkpoint, write._external_offsets(external)))
        == (ORIGINAL / "external.ckpt").read_bytes()
    )


@pytest.mark.parametrize(("mebibytes", "external"), [(1798.5, False), (1799.5, True)])
def test_threshold_of_external_data(mebibytes, external):
    tensor = Tensor("w", TensorProto.FLOAT, (int(mebibytes * 2**18),), tuple)
    assert (write._size_in_mib([tensor]) >= write.EXTERNAL_THRESHOLD) is external


def test_size_is_that_of_the_protobuf_message():
    for name, array in {**TRAINABLE, **FROZEN, "big": np.zeros((300, 2, 2), np.float32)}.items():
        proto = numpy_helper.from_array(array, name)
        assert write._message_size(Tensor.from_array(name, array)) == proto.ByteSize(), name


def test_external_data_round_trip(tmp_path):
    arrays = {
        "tiny": pattern((3,), np.float32, 1),
        "odd": pattern((67,), np.int8, 2),
        "d": pattern((9,), np.float64, 0),
    }
    trainable = [Tensor.from_array(n, a) for n, a in arrays.items()]
    moments = {"d": [Tensor.from_array("momentum0", arrays["d"] * 2)]}
    checkpoint = Checkpoint(trainable, [], optimizer_groups=[OptimizerGroup(step=2, moments=moments)], external=True)
    write_checkpoint(tmp_path / "c", checkpoint, inline_below=16)
    assert (tmp_path / "c.data").stat().st_size == 67 + 5 + 72
    read = read_checkpoint(tmp_path / "c")
    assert read.external
    for tensor in read.trainable:
        np.testing.assert_array_equal(tensor.array(), arrays[tensor.name], strict=True)
    read.trainable[1].array()[0] = 5  # copy-on-write: private to this process
    assert read_checkpoint(tmp_path / "c").trainable[1].array()[0] == arrays["odd"][0]
    assert (read.optimizer_groups or [])[0].moments["d"][0].array()[3] == arrays["d"][3] * 2
    write_checkpoint(tmp_path / "c", read, inline_below=0)  # over itself: everything goes outside now
    assert (tmp_path / "c.data").stat().st_size == 12 + 67 + 1 + 72


def test_moments_go_outside_only_when_they_must(tmp_path, monkeypatch):
    def checkpoint(external):
        moments = {"w": [Tensor.from_array(f"momentum{k}", pattern((50_000,), np.float32, k)) for k in range(2)]}
        weights = [Tensor.from_array("w", pattern((50_000,), np.float32, 1))]
        return Checkpoint(weights, [], optimizer_groups=[OptimizerGroup(moments=moments)], external=external)

    write_checkpoint(tmp_path / "c", checkpoint(True))
    assert (tmp_path / "c.data").stat().st_size == 200_000
    monkeypatch.setattr(write, "INSIDE_LIMIT", 300_000)
    write_checkpoint(tmp_path / "d", checkpoint(True))
    assert (tmp_path / "d.data").stat().st_size == 600_000
    (group,) = read_checkpoint(tmp_path / "d").optimizer_groups or ()
    np.testing.assert_array_equal(group.moments["w"][1].array(), pattern((50_000,), np.float32, 1))


def test_bfloat16_and_packed_types_keep_their_bytes(tmp_path):
    tensors = [
        Tensor("bf", TensorProto.BFLOAT16, (3,), lambda: (b"\x80\x3f\x00\x40\x40\x40",)),
        Tensor("f8", TensorProto.FLOAT8E4M3FN, (2,), lambda: (b"\x38\x40",)),
        Tensor("i4", TensorProto.INT4, (3,), lambda: (b"\x21\x03",)),
    ]
    write_checkpoint(tmp_path / "c", Checkpoint([], tensors))
    read = {t.name: t for t in read_checkpoint(tmp_path / "c").frozen}
    assert [b"".join(read[n].chunks()).hex() for n in ("bf", "f8", "i4")] == ["803f00404040", "3840", "2103"]
    assert (read["i4"].shape, read["i4"].array().shape) == ((3,), (2,))
    assert read["bf"].array().view(np.uint16).tolist() == [0x3F80, 0x4000, 0x4040]
