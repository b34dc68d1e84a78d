from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxblock.errors import InvalidModelError, OnnxBlockError, UnknownNameError
from onnxblock.graph import store
from onnxblock.graph.load import load
from onnxblock.graph.store import write, write_together
from onnxblock.graph.weights import Weights, detach, is_stub


@pytest.fixture
def model() -> ModelProto:
    """Every field that writing has to put in order, weights of several kinds, and one in a Constant node."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(32, 32)).astype(np.float32),
        "b": rng.normal(size=32).astype(np.float32),
        "half": rng.normal(size=(32, 32)).astype(np.float16),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], name="first"),
            helper.make_node("Add", ["xw", "b"], ["h"]),
            helper.make_node("Cast", ["half"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["h", "wide"], ["y"]),
        ],
        "the graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
        doc_string="graph doc",
        value_info=[helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n", 32])],
    )
    graph.initializer[0].doc_string = "the first weight"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="test")
    helper.set_model_props(made, {"key": "value"})
    return made


def save_external(model: ModelProto, path: Path, location: str) -> None:
    copied = ModelProto()
    copied.CopyFrom(model)
    onnx.save(copied, path, save_as_external_data=True, location=location, size_threshold=0)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run(path: Path | str) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.arange(64, dtype=np.float32).reshape(2, 32) / 64})[0]


def test_a_path_and_a_model_give_the_same(tmp_path: Path, model: ModelProto) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    for given in (model, tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        light, weights = load(given)
        expected, held = detach(model)
        assert light == expected
        assert weights.names() == held.names() == ["w", "half"]
        for name in weights.names():
            assert b"".join(weights.chunks(name)) == b"".join(held.chunks(name))


def test_relative_paths(tmp_path: Path, model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(*detach(model), "m.onnx")
    light, weights = load("m.onnx")
    monkeypatch.chdir("/")
    assert weights.array("w").shape == (32, 32)
    monkeypatch.chdir(tmp_path)
    write(light, weights, Path("m.onnx"))
    assert onnx.load("m.onnx") == model


def test_written_bytes_are_those_of_onnx(tmp_path: Path, model: ModelProto) -> None:
    light, weights = detach(model)
    write(light, weights, tmp_path / "ours.onnx")
    onnx.save(model, tmp_path / "theirs.onnx")
    assert (tmp_path / "ours.onnx").read_bytes() == (tmp_path / "theirs.onnx").read_bytes()
    write(*load(tmp_path / "ours.onnx"), tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "theirs.onnx").read_bytes()
    assert names_in(tmp_path) == ["again.onnx", "ours.onnx", "theirs.onnx"]


def test_a_model_can_be_written_over_the_file_it_comes_from(tmp_path: Path, model: ModelProto) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    write(*load(path), path)
    assert onnx.load(path) == model
    save_external(model, path, "m.onnx.data")
    light, weights = load(path)
    write(light, weights, path)
    assert onnx.load(path, load_external_data=False).graph.initializer[0].HasField("raw_data")
    assert onnx.load(path) == model


def test_large_models_share_a_second_file(tmp_path: Path, model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several hold stands once; what only a later one holds comes behind; small models stay whole."""
    monkeypatch.setattr(store, "SINGLE_FILE_NBYTES", 4096)
    light, weights = detach(model)
    first, last = [t.name for t in light.graph.initializer if is_stub(t)]
    expected = onnx.load_from_string(model.SerializeToString())
    fewer, small = onnx.ModelProto(), onnx.ModelProto()
    fewer.CopyFrom(light)
    small.CopyFrom(light)
    fewer.graph.initializer.remove(next(t for t in fewer.graph.initializer if t.name == last))
    del small.graph.initializer[:]
    models = {tmp_path / "a.onnx": fewer, tmp_path / "b.onnx": small, tmp_path / "c.onnx": light}
    write_together(models, weights)
    assert names_in(tmp_path) == ["a.onnx", "a.onnx.data", "b.onnx", "c.onnx"]
    whole = onnx.load(tmp_path / "c.onnx")
    for tensor, original in zip(whole.graph.initializer, expected.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(original))
    kept = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "a.onnx").graph.initializer}
    np.testing.assert_array_equal(kept[first], weights.array(first))
    end = -(-weights.nbytes(first) // 4096) * 4096 + weights.nbytes(last)
    assert (tmp_path / "a.onnx.data").stat().st_size == end


def test_large_models_get_a_second_file(tmp_path: Path, model: ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SINGLE_FILE_NBYTES", 4096)
    path = tmp_path / "m.onnx"
    write(*detach(model), path)
    assert names_in(tmp_path) == ["m.onnx", "m.onnx.data"]
    kept = onnx.load(path, load_external_data=False)
    assert [t.data_location for t in kept.graph.initializer] == [1, 0, 1]
    offsets = [int(e.value) for t in kept.graph.initializer for e in t.external_data if e.key == "offset"]
    assert offsets == [0, 4096]
    onnx.checker.check_model(str(path))
    read = onnx.load(path)
    for tensor, original in zip(read.graph.initializer, model.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(original))
    outputs = run(path)
    write(*load(path), path)
    np.testing.assert_array_equal(run(path), outputs)
    monkeypatch.undo()
    write(*load(path), tmp_path / "single.onnx")
    assert onnx.load(tmp_path / "single.onnx") == model
    np.testing.assert_array_equal(run(tmp_path / "single.onnx"), outputs)


def test_a_model_in_a_linked_cache(tmp_path: Path, model: ModelProto) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    save_external(model, tmp_path / "blobs" / "1", "m.onnx_data")
    (tmp_path / "blobs" / "m.onnx_data").rename(tmp_path / "blobs" / "2")
    (tmp_path / "snapshot" / "m.onnx").symlink_to(Path("..") / "blobs" / "1")
    (tmp_path / "snapshot" / "m.onnx_data").symlink_to(Path("..") / "blobs" / "2")
    light, weights = load(tmp_path / "snapshot" / "m.onnx")
    write(light, weights, tmp_path / "copy.onnx")
    assert onnx.load(tmp_path / "copy.onnx") == model
    (tmp_path / "snapshot" / "single.onnx").symlink_to(tmp_path / "copy.onnx")
    assert load(tmp_path / "snapshot" / "single.onnx")[0] == light


def test_external_data_of_a_model_in_memory_lies_in_the_current_folder(
    tmp_path: Path, model: ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_external(model, tmp_path / "m.onnx", "m.bin")
    in_memory = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(InvalidModelError, match=r"m\.bin' does not exist") as caught:
        load(in_memory)
    assert "give the model by its path" in str(caught.value)
    monkeypatch.chdir(tmp_path)
    assert load(in_memory)[1].names() == ["w", "half"]


def test_files_that_are_not_models(tmp_path: Path, model: ModelProto) -> None:
    data = model.SerializeToString()
    contents = {
        "empty": b"",
        "truncated": data[:-1],
        "truncated in the middle": data[: len(data) // 2],
        "truncated at the start": data[:1],
        "garbage": b"\xff" * 300,
        "more garbage": bytes(range(256)) * 4,
        "a group": b"\x0b\x0c",
        "text": b"no model at all, just words, and then more words",
        "web page": b"<!DOCTYPE html><html>",
        "zip": b"PK\x03\x04" + b"\0" * 40,
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0",
        "ort": b"\x20\0\0\0ORTM" + b"\0" * 100,
        "textproto": onnx.printer.to_text(model).encode(),
        "prototxt": str(model).encode(),
    }
    messages = {}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidModelError) as caught:
            load(tmp_path / name)
        assert name in str(caught.value)
        messages[name] = str(caught.value)
    assert "is empty" in messages["empty"]
    assert all("or only a part of one" in messages[n] for n in ("truncated", "truncated in the middle", "garbage"))
    assert "Git LFS pointer" in messages["lfs"]
    assert "web page" in messages["web page"]
    assert "zip archive" in messages["zip"]
    assert "ORT format" in messages["ort"]
    assert "onnx.load(path)" in messages["textproto"]
    assert "onnx.load(path)" in messages["prototxt"]


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(np.ones(300, np.float32), "w")])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(1, len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(InvalidModelError):
            load(path)
    path.write_bytes(data)
    assert load(path)[1].names() == ["w"]


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="no file"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(InvalidModelError, match="not a file"):
        load(tmp_path)
    with pytest.raises(InvalidModelError, match="not a file"):
        load("/dev/null")


def test_models_without_graph_or_opset(tmp_path: Path, model: ModelProto) -> None:
    no_graph, no_opset = ModelProto(), ModelProto()
    no_graph.CopyFrom(model)
    no_graph.ClearField("graph")
    no_opset.CopyFrom(model)
    no_opset.ClearField("opset_import")
    for wrong, words in ((no_graph, "no graph"), (no_opset, "which opset"), (ModelProto(), "no graph")):
        with pytest.raises(InvalidModelError, match=words):
            load(wrong)
    onnx.save(no_opset, tmp_path / "m.onnx")
    with pytest.raises(InvalidModelError, match=r"m\.onnx.*which opset"):
        load(tmp_path / "m.onnx")


def test_wrong_sizes_in_a_file_are_noticed_when_it_is_loaded(tmp_path: Path, model: ModelProto) -> None:
    model.graph.initializer[0].raw_data += b"\0\0\0\0"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InvalidModelError, match="'w': its shape needs 4096 bytes, but 4100 are stored"):
        load(tmp_path / "m.onnx")


def test_writing_says_what_is_wrong_and_leaves_what_was_there(tmp_path: Path, model: ModelProto) -> None:
    light, weights = detach(model)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")
    with pytest.raises(UnknownNameError, match="'w'"):
        write(light, Weights(), path)
    model.graph.initializer[2].raw_data = b"short"
    with pytest.raises(InvalidModelError, match="'half' has 5 bytes"):
        write(light, weights, path)
    with pytest.raises(OnnxBlockError, match="cannot write"):
        write(light, weights, tmp_path / "nowhere" / "m.onnx")
    assert path.read_bytes() == b"before"
    assert names_in(tmp_path) == ["m.onnx"]


_MEMORY = """
import resource, sys
from onnxblock.graph.load import load
from onnxblock.graph.store import write, write_together
from onnxblock.graph.weights import is_stub
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
load(sys.argv[1] + "/small.onnx")
before = peak()
light, weights = load(sys.argv[1] + "/m.onnx")
write(light, weights, sys.argv[1] + "/copy.onnx")
write(*load(sys.argv[1] + "/copy.onnx"), sys.argv[1] + "/copy.onnx")
print(peak() - before)
"""


def test_a_large_model_passes_through_a_small_memory(tmp_path: Path, model: ModelProto) -> None:
    onnx.save(model, tmp_path / "small.onnx")
    big = model.graph.initializer.add(name="big", data_type=TensorProto.FLOAT, dims=[75, 1 << 20])
    big.data_location = TensorProto.EXTERNAL
    big.external_data.add(key="location", value="sparse.bin")
    with (tmp_path / "sparse.bin").open("wb") as file:
        file.truncate(300 << 20)
    onnx.save(model, tmp_path / "m.onnx")
    command = [sys.executable, "-c", _MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "."})
    assert int(done.stdout) < 80
    assert (tmp_path / "copy.onnx").stat().st_size > 300 << 20
    assert is_stub(load(tmp_path / "copy.onnx")[0].graph.initializer[3])
