"""Faults of checkpoint files and of what is asked of them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxblock.checkpoint import (
    Checkpoint,
    Tensor,
    load_checkpoint_to_model,
    read_checkpoint,
    save_checkpoint,
    write_checkpoint,
)
from onnxblock.errors import ArgumentError, CheckpointError

ORIGINAL = Path(__file__).parent / "original"
WHOLE = (ORIGINAL / "AdamW_state.ckpt").read_bytes()


def refuse(path, *words):
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert path.name in message
    for word in words:
        assert word in message
    assert len(message.splitlines()) >= 2  # the remedy


def test_files_that_are_not_checkpoints(tmp_path):
    path = tmp_path / "c"
    refuse(path, "No such file")
    refuse(tmp_path, "folder")
    path.write_bytes(b"")
    refuse(path, "empty")
    path.write_bytes(b"ODTC")
    refuse(path, "not a checkpoint")
    path.write_bytes(WHOLE[:4] + b"ODTX" + WHOLE[8:])
    refuse(path, "not a checkpoint", "ODTC")


@pytest.mark.parametrize("version", [0, 1, 3])
def test_other_versions(version, tmp_path):
    at = WHOLE.index(struct.pack("<i", 2), 8)
    (tmp_path / "c").write_bytes(WHOLE[:at] + struct.pack("<i", version) + WHOLE[at + 4 :])
    refuse(tmp_path / "c", f"version {version}")


def test_every_truncation_is_refused(tmp_path):
    content = len(WHOLE.rstrip(b"\0")) + 1  # what follows is padding
    assert content > len(WHOLE) - 8
    for size in range(1, content):
        (tmp_path / "c").write_bytes(WHOLE[:size])
        with pytest.raises(CheckpointError):
            read_checkpoint(tmp_path / "c").trainable[-1].array()


def test_damage_is_read_or_refused(tmp_path):
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(1500):
        data = bytearray(WHOLE)
        for at in generator.integers(8, len(data), size=2):
            data[at] = generator.integers(256)
        (tmp_path / "c").write_bytes(data)
        try:
            read_checkpoint(tmp_path / "c")
        except CheckpointError:
            refused += 1
    assert refused > 100


def test_missing_and_short_external_data(tmp_path):
    tensor = Tensor.from_array("w", np.arange(50, dtype=np.float32))
    write_checkpoint(tmp_path / "c", Checkpoint([tensor], [], external=True))
    (tmp_path / "c.data").write_bytes(bytes(199))
    refuse(tmp_path / "c", "c.data", "too short", "'w'")
    (tmp_path / "c.data").unlink()
    refuse(tmp_path / "c", "c.data", "does not exist")


def test_duplicate_names(tmp_path):
    w, v = (Tensor.from_array(n, np.zeros(2, np.float32)) for n in "wv")
    with pytest.raises(CheckpointError, match="'w'"):
        write_checkpoint(tmp_path / "c", Checkpoint([w], [w]))
    assert not list(tmp_path.iterdir())
    write_checkpoint(tmp_path / "c", Checkpoint([w], [v]))
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes().replace(b"\1\0\0\0v\0", b"\1\0\0\0w\0"))
    refuse(tmp_path / "c", "parameter twice", "'w'")


def test_a_failed_write_leaves_the_earlier_file(tmp_path):
    good = Tensor.from_array("w", np.zeros(2, np.float32))
    write_checkpoint(tmp_path / "c", Checkpoint([good], []))
    before = (tmp_path / "c").read_bytes()
    for chunks in (lambda: (b"1234567",), lambda: (b"123456789",)):
        with pytest.raises(CheckpointError, match=r"\(8\)"):
            write_checkpoint(tmp_path / "c", Checkpoint([Tensor("w", TensorProto.FLOAT, (2,), chunks)], []))
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert (tmp_path / "c").read_bytes() == before


def test_unwritable_places_and_strings(tmp_path):
    state = Checkpoint([Tensor.from_array("w", np.zeros(2, np.float32))], [])
    with pytest.raises(CheckpointError, match="nowhere"):
        write_checkpoint(tmp_path / "nowhere" / "c", state)
    with pytest.raises(CheckpointError, match="string"):
        save_checkpoint(([helper.make_tensor("s", TensorProto.STRING, [1], [b"x"])], []), tmp_path / "c")
    with pytest.raises(CheckpointError, match="'w' has no data"):
        write_checkpoint(tmp_path / "c", Checkpoint([Tensor("w", TensorProto.FLOAT, (2,), None)], []))


def model(**arrays):
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(a, n) for n, a in arrays.items()])
    return helper.make_model(graph)


def test_load_checkpoint_to_model(tmp_path):
    new = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32)}
    save_checkpoint(([numpy_helper.from_array(a, n) for n, a in new.items()], []), tmp_path / "c")
    target = model(w=np.zeros((2, 3), np.float32), other=np.full(2, 7, np.float32))
    load_checkpoint_to_model(tmp_path / "c", target)
    after = {i.name: numpy_helper.to_array(i) for i in target.graph.initializer}
    np.testing.assert_array_equal(after["w"], new["w"], strict=True)
    np.testing.assert_array_equal(after["other"], np.full(2, 7, np.float32))
    assert list(after) == ["w", "other"]
    both = model(w=np.zeros((3, 2), np.float32), b=np.zeros(3, np.int64))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint_to_model(tmp_path / "c", both)
    assert "'w': float32 [2, 3] in the checkpoint, float32 [3, 2] in the model" in str(caught.value)
    assert "'b': float32 [3] in the checkpoint, int64 [3] in the model" in str(caught.value)
    with pytest.raises(CheckpointError, match="no parameter in common"):
        load_checkpoint_to_model(tmp_path / "c", model(x=np.zeros(2, np.float32)))
    with pytest.raises(ArgumentError, match=r"the model is str.*\n.*onnx\.load"):
        load_checkpoint_to_model(tmp_path / "c", "model.onnx")
    with pytest.raises(CheckpointError, match="nominal"):
        load_checkpoint_to_model(ORIGINAL / "nominal.ckpt", both)


class Held:
    def __init__(self, **arrays):
        self.arrays = arrays

    def __contains__(self, name):
        return name in self.arrays

    def chunks(self, name):
        yield self.arrays[name].tobytes()


def reference(name, shape, location, **entries):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_external_tensors_are_streamed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    w = np.arange(100, dtype=np.float32)
    Path("weights.bin").write_bytes(b"x" * 16 + w.tobytes())
    stub, in_file = reference("v", (100,), "held"), reference("w", (100,), "weights.bin", offset=16, length=400)
    save_checkpoint(([in_file], [stub]), "c", weights=Held(v=w + 1))
    checkpoint = read_checkpoint("c")
    np.testing.assert_array_equal(checkpoint.trainable[0].array(), w)
    np.testing.assert_array_equal(checkpoint.frozen[0].array(), w + 1)
    with pytest.raises(CheckpointError, match="'v' lies in the external file 'held'"):
        save_checkpoint(([in_file], [stub]), "c")
    Path("weights.bin").write_bytes(b"x" * 20)
    with pytest.raises(CheckpointError, match="fewer bytes"):
        save_checkpoint(([in_file], []), "c")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointError, match="cannot write"):
        write_checkpoint(tmp_path / "c", Checkpoint([], []))
