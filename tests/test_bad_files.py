"""Bad models, files and folders end in one exception, and nothing that is there is lost; unusual ones are used."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxblock
from onnxblock.errors import ArgumentError, ArtifactMismatchError, InvalidModelError, OnnxBlockError
from onnxblock.graph import store
from tests.refusing import generate, refused, rename
from tests.test_training import mlp
from tests.training import begin

# -- folders


def test_a_file_where_the_folder_should_be(folder):
    for path in (folder / "mine.txt", folder / "mine.txt" / "below"):
        with refused(OnnxBlockError, "mine.txt' is not a folder", "another folder"):
            generate(mlp(), path)


def test_a_folder_where_a_file_should_be(tmp_path):
    for name in ("eval_model.onnx", "checkpoint"):
        inside = tmp_path / name / name / "kept"
        inside.mkdir(parents=True)
        with refused(OnnxBlockError, name, "is a folder"):
            generate(mlp(), tmp_path / name)
        assert [p.name for p in (tmp_path / name).iterdir()] == [name]
        assert inside.is_dir()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write everywhere, so be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    nobody = 65534
    os.setresuid(nobody, nobody, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.skipif(os.name != "posix", reason="folders have no such mode")
def test_a_read_only_folder(tmp_path):
    generate(mlp(), tmp_path)  # everything is imported: somebody else may not be allowed to read the code
    closed = tmp_path / "closed"
    closed.mkdir()
    if os.geteuid() == 0:
        temporary = Path(tempfile.gettempdir()).resolve()
        for parent in (tmp_path, *tmp_path.parents):  # those that pytest made, and where
            if parent.is_relative_to(temporary):
                parent.chmod(parent.stat().st_mode | 0o055)
    closed.chmod(0o555)
    try:
        for path in (closed, closed / "new"):
            with unprivileged(), refused(OnnxBlockError, "closed' is read-only", "another folder"):
                generate(mlp(), path)
        assert not list(closed.iterdir())
    finally:
        closed.chmod(0o755)


def test_a_name_that_is_too_long(folder):
    with refused(OnnxBlockError, "cannot write to", "name too long"):
        generate(mlp(), folder / ("a" * 300))


def test_a_failed_generation_leaves_the_last_one_alone(tmp_path):
    generate(mlp(), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for settings in ({"requires_grad": ["w9"]}, {"optimizer": "AdamW"}, {"loss": onnxblock.loss.MSELoss}):
        with pytest.raises(OnnxBlockError):
            generate(mlp(3), tmp_path, **settings)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("width", [4, 64])
@pytest.mark.parametrize("name", ["training_model.onnx", "eval_model.onnx", "checkpoint"])
def test_the_model_is_not_overwritten(name, width, tmp_path):
    onnx.save(mlp(width=width), tmp_path / name)
    before = (tmp_path / name).read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / name)
    for path in (tmp_path / name, tmp_path / "link"):
        with refused(ArgumentError, f"{name}' would be overwritten", "prefix"):
            generate(path, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "link"])
    generate(tmp_path / name, tmp_path, prefix="my_")
    assert (tmp_path / name).read_bytes() == before


def test_external_data_is_not_overwritten(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(mlp(width=64), path, save_as_external_data=True, location="checkpoint", size_threshold=0)
    with refused(ArgumentError, "checkpoint' would be overwritten"):
        generate(path, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "model.onnx"]
    generate(path, tmp_path / "out")


@pytest.mark.parametrize("written", range(5))
def test_a_generation_that_is_cut_off(written, tmp_path, monkeypatch):
    """After any number of files: what is there is the old whole, the new whole, or refused; no half file stays."""
    old = generate(mlp(), tmp_path)
    rename_file, calls = Path.replace, []

    def replace(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > written:
            raise OSError(28, "No space left on device")
        return rename_file(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    for attempt in range(2):
        if written < 4:
            with refused(OnnxBlockError, "cannot write", "No space left on device"):
                generate(mlp(3), tmp_path)
        else:
            assert attempt or generate(mlp(3), tmp_path)
    monkeypatch.undo()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        p.name for p in (old.checkpoint, old.eval_model, old.optimizer_model, old.training_model)
    )
    x = np.zeros((2, 4), np.float32)
    if written in (0, 4):
        begin(old).step(x, x)
    else:
        with refused(ArtifactMismatchError, "one generate_artifacts run"):
            begin(old)
    begin(generate(mlp(3), tmp_path)).step(x, x)


@pytest.mark.parametrize("written", range(6))
def test_a_generation_with_a_data_file_that_is_cut_off(written, tmp_path, monkeypatch):
    """Models are never opened with the weights of another generation: these two differ in nothing else."""
    monkeypatch.setattr(store, "SINGLE_FILE_NBYTES", 20_000)
    old, new = mlp(width=64), mlp(width=64)
    for tensor in new.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))
    settings = {"requires_grad": ["b0", "b1"]}
    x = np.ones((2, 64), np.float32)
    losses = [begin(generate(m, tmp_path / str(k), **settings)).step(x, x) for k, m in enumerate((old, new))]
    assert losses[0] != losses[1]
    files = generate(old, tmp_path / "cut", **settings)
    assert files.external_data == (tmp_path / "cut" / "training_model.onnx.data",)
    assert all(path.exists() for path in files.external_data)
    assert str(files).endswith(str(files.external_data[0]))
    rename_file, calls = Path.replace, []

    def replace(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > written:
            raise OSError(28, "No space left on device")
        return rename_file(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        if written < 5:
            with refused(OnnxBlockError, "cannot write", "No space left on device"):
                generate(new, tmp_path / "cut", **settings)
        else:
            generate(new, tmp_path / "cut", **settings)
    assert len(calls) == min(written + 1, 5)
    if written == 5:
        assert begin(files).step(x, x) == losses[1]
    else:
        with refused(InvalidModelError, "there is no model file") if written < 3 else nullcontext():
            assert begin(files).step(x, x) in losses
    assert begin(generate(new, tmp_path / "cut", **settings)).step(x, x) == losses[1]


def test_folders_as_str_bytes_and_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    onnx.save(mlp(), tmp_path / "model.onnx")
    for k, path in enumerate([f"{tmp_path}/0/new", os.fsencode(tmp_path / "1"), "~/2", Path("~") / "3", "./4"]):
        made = generate("~/model.onnx", path, prefix="deep/a b.ü*")
        assert made.checkpoint.resolve().parts[: len(tmp_path.parts) + 1] == (*tmp_path.parts, str(k))
        assert made.checkpoint.name == "a b.ü*checkpoint"
        assert all(p.is_file() for p in (made.training_model, made.eval_model, made.optimizer_model, made.checkpoint))
    made = generate("model.onnx", None)
    assert made.checkpoint.resolve() == tmp_path / "checkpoint"


# -- models


def changed(change: Any) -> onnx.ModelProto:
    model = mlp()
    change(model)
    return model


def first_initializer(model: onnx.ModelProto) -> TensorProto:
    return model.graph.initializer[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.graph.node[0].input.__setitem__(0, "xx"), ["Gemm node 'gemm0' reads 'xx'", "Did you mean 'x'"]),
        (lambda m: setattr(m.graph.output[0], "name", "yy"), ["the output 'yy' is made by nothing", "'y'"]),
        (lambda m: m.graph.node[2].output.__setitem__(0, "h0"), ["2 values are called 'h0'", "reads 'h1'"]),
        (lambda m: setattr(m.graph.node[1], "name", "gemm0"), ["2 nodes are called 'gemm0'"]),
        (lambda m: m.graph.node[0].input.__setitem__(0, "a1"), ["depend on each other in a circle"]),
        (
            lambda m: first_initializer(m).dims.__setitem__(0, 5),
            ["tensor 'w0': it has 64 bytes", "float32[5, 4] needs 80"],
        ),
        (lambda m: m.graph.initializer.append(first_initializer(m)), ["several initializers share one name: 'w0'"]),
        (lambda m: setattr(m.opset_import[0], "version", 99), ["opset 99"]),
        (lambda m: setattr(m.opset_import[0], "version", 5), ["opset 5"]),
        (lambda m: m.ClearField("opset_import"), ["does not say which opset"]),
        (lambda m: m.ClearField("graph"), ["no graph"]),
        (lambda m: setattr(first_initializer(m), "name", ""), ["an input or a weight has no name", "reads 'w0'"]),
    ],
)
def test_models_that_are_not_valid(change, words, folder, tmp_path):
    model = changed(change)
    with refused(InvalidModelError, *words):
        generate(model, folder)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with refused(InvalidModelError, *words):
        generate(tmp_path / "model.onnx", folder)


@pytest.mark.parametrize(
    "given", [None, 3, b"", mlp().SerializeToString(), mlp().graph, [mlp()]], ids=lambda x: type(x).__name__
)
def test_what_is_no_model(given, folder):
    with refused(InvalidModelError, type(given).__name__, "ModelProto"):
        generate(given, folder)


def test_missing_files(folder, tmp_path):
    for path, words in ((tmp_path / "no.onnx", "no file"), (folder, "not a file"), ("", "not a file")):
        with refused(InvalidModelError, words):
            generate(path, folder)


@pytest.mark.parametrize("cut", [0, 1, 10, 100, 300, -1])
def test_truncated_models(cut, folder, tmp_path):
    (tmp_path / "model.onnx").write_bytes(mlp().SerializeToString()[:cut])
    with refused(InvalidModelError, "model.onnx'", "again"):
        generate(tmp_path / "model.onnx", folder)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (np.random.default_rng(0).bytes(999), "not an ONNX model"),
        (b"hello world\n", "not an ONNX model"),
        (b"\x00\x00\x00\x00ORTM", "ORT format"),
        (b"PK\x03\x04", "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_files_that_are_something_else(content, words, folder, tmp_path):
    (tmp_path / "model.onnx").write_bytes(content)
    with refused(InvalidModelError, words):
        generate(tmp_path / "model.onnx", folder)


def test_missing_and_short_external_data(folder, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(mlp(width=64), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").write_bytes(b"short")
    with refused(InvalidModelError, "'w0'", "'b1'", "weights.bin' is too short: bytes 0 to 16384 are needed, 5 are"):
        generate(path, folder)
    (tmp_path / "weights.bin").unlink()
    with refused(InvalidModelError, "'w0'", "'b1'", "weights.bin' does not exist", str(tmp_path)):
        generate(path, folder)
    with refused(InvalidModelError, "weights.bin' does not exist", "give the model by its path"):
        generate(onnx.load(path, load_external_data=False), folder)


# -- unusual, and all right


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.graph.node.sort(key=lambda node: node.name, reverse=True),
        lambda m: setattr(m.graph, "name", ""),
        lambda m: [setattr(node, "name", "") for node in m.graph.node],
        lambda m: m.graph.output[0].ClearField("type"),
        lambda m: setattr(m.opset_import[0], "domain", "ai.onnx"),
        lambda m: m.graph.input.extend([helper.make_tensor_value_info(t.name, 1, t.dims) for t in m.graph.initializer]),
        lambda m: rename(m, "w1", "a b/ü.日本\n'\"\\" + "w" * 300),
        lambda m: rename(m, "w1", "w2_grad"),
        lambda m: rename(m, "w1", "params"),
        lambda m: rename(m, "w1", "momentum0"),
        lambda m: rename(m, "y", "w0_grad"),
        lambda m: rename(m, "h0", "constant"),
        lambda m: rename(m, "h0", "w0_grad"),
    ],
    ids=range(13),
)
@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-training"])
def test_unusual_models_train_all_the_same(change, runtime, tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    losses = []
    for name, model in {"usual": mlp(), "unusual": changed(change)}.items():
        made = generate(model, tmp_path / name, runtime=runtime)
        training = begin(made)
        losses.append([training.step(x, 2 * x) for _ in range(3)])
        training.module.export_model_for_inferencing(tmp_path / "exported.onnx", [model.graph.output[0].name])
    assert losses[0] == losses[1]


def test_an_input_that_is_called_like_a_gradient(tmp_path):
    """Not for onnxruntime-training, which takes it for one: tests/artifacts/test_runtimes.py."""
    x = np.ones((3, 4), np.float32)
    losses = [
        begin(generate(model, tmp_path / str(k))).step(x, 2 * x)
        for k, model in enumerate((mlp(), rename(mlp(), "x", "x_grad")))
    ]
    assert losses[0] == losses[1]
