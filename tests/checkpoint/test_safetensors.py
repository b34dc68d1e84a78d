"""Checkpoints as safetensors files, and back."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from artifacts.api import CheckpointState
from onnxblock.checkpoint import (
    Checkpoint,
    OptimizerGroup,
    Tensor,
    read_checkpoint,
    read_safetensors,
    write_checkpoint,
    write_safetensors,
)
from onnxblock.errors import CheckpointError
from tests.training import begin, convolutional, generate

ORIGINAL = Path(__file__).parent / "original"


@pytest.mark.parametrize("name", ["AdamW_state", "SGD_state", "AdamW_plain", "dtypes", "fielddata"])
def test_there_and_back_gives_the_same_bytes(name, tmp_path):
    checkpoint = read_checkpoint(ORIGINAL / f"{name}.ckpt")
    write_safetensors(tmp_path / "x.safetensors", checkpoint)
    write_checkpoint(tmp_path / "back", read_safetensors(tmp_path / "x.safetensors"))
    assert (tmp_path / "back").read_bytes() == (ORIGINAL / f"{name}.ckpt").read_bytes()


def test_training_continues_bit_by_bit(tmp_path):
    files = generate(convolutional(), tmp_path)
    random = np.random.default_rng(0)
    batch = random.standard_normal((4, 1, 8, 8)).astype(np.float32), random.integers(0, 10, 4)
    training = begin(files)
    training.optimizer.set_learning_rate(0.01)
    for _ in range(3):
        training.step(*batch)
    training.state.properties["text"], training.state.properties["number"] = "ä", 0.1
    CheckpointState.save_checkpoint(training.state, tmp_path / "saved", include_optimizer_state=True)
    write_safetensors(tmp_path / "x.safetensors", read_checkpoint(tmp_path / "saved"))
    write_checkpoint(tmp_path / "back", read_safetensors(tmp_path / "x.safetensors"))
    again = begin(files, tmp_path / "back")
    assert dict(again.state.properties) == dict(training.state.properties)
    assert [again.step(*batch) for _ in range(3)] == [training.step(*batch) for _ in range(3)]


def test_the_library_reads_and_writes_the_same(tmp_path):
    library = pytest.importorskip("safetensors.numpy", reason="the comparison needs the package safetensors")
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(7), "flag": np.array([True, False])}
    moments = {"w": [Tensor.from_array("momentum0", np.ones((2, 3), np.float32))]}
    frozen = [Tensor.from_array(k, arrays[k]) for k in ("flag", "n")]
    groups = [OptimizerGroup(step=3, moments=moments)]
    write_safetensors(tmp_path / "ours", Checkpoint([Tensor.from_array("w", arrays["w"])], frozen, False, groups))
    found = library.load_file(tmp_path / "ours")
    assert found.keys() == {*arrays, "optimizer/group0/w/momentum0"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    library.save_file(arrays, tmp_path / "theirs")
    read = read_safetensors(tmp_path / "theirs")
    assert read.optimizer_groups is None
    assert {t.name for t in read.trainable} == arrays.keys()
    for tensor in read.trainable:
        np.testing.assert_array_equal(tensor.array(), arrays[tensor.name], strict=True)


def test_types_that_numpy_lacks(tmp_path):
    raw = np.arange(4, dtype=np.uint16)
    tensor = Tensor("b", 16, (2, 2), lambda: [raw.tobytes()])
    write_safetensors(tmp_path / "x", Checkpoint([tensor], []))
    (read,) = read_safetensors(tmp_path / "x").trainable
    assert (read.data_type, read.shape) == (16, (2, 2))
    assert b"".join(read.chunks()) == raw.tobytes()


@pytest.mark.parametrize(
    ("checkpoint", "words"),
    [
        (Checkpoint([Tensor("w", 1, (), None)], [], nominal=True), "nominal"),
        (Checkpoint([Tensor("w", 22, (2,), np.zeros(1, np.uint8))], []), "int4"),
        (Checkpoint([Tensor.from_array("w", np.zeros(1))], [Tensor.from_array("w", np.zeros(1))]), "share a name"),
    ],
)
def test_what_cannot_be_written_is_refused(checkpoint, words, tmp_path):
    with pytest.raises(CheckpointError, match=words):
        write_safetensors(tmp_path / "x", checkpoint)
    assert not list(tmp_path.iterdir())


def header(**entries: object) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a safetensors file"),
        (b"1234567", "not a safetensors file"),
        (struct.pack("<Q", 2**40) + b"{}", "truncated"),
        (struct.pack("<Q", 4) + b"nope", "not a safetensors file"),
        (header(w={"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}) + b"1234", "outside"),
        (header(w={"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}) + b"12345678", "wrong size"),
        (header(w={"dtype": "X9", "shape": [], "data_offsets": [0, 8]}) + b"12345678", "element type 'X9'"),
        (header(w={"dtype": "F32"}), "damaged"),
        (header(w=3), "damaged"),
        (header(__metadata__={"onnxblock.checkpoint": "{"}), "damaged"),
        (header(__metadata__={"onnxblock.checkpoint": '{"version": 9}'}), "version 9"),
        (header(__metadata__={"onnxblock.checkpoint": '{"version": 1, "trainable": ["w"], "frozen": []}'}), "damaged"),
    ],
)
def test_faults_of_a_file_are_named(content, words, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        read_safetensors(tmp_path / "x")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="cannot read"):
        read_safetensors(tmp_path / "absent")
