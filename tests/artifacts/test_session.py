"""What sessions are opened with."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from artifacts.api import Module, session
from onnxblock.errors import InvalidModelError
from tests.artifacts.handmade import Files
from tests.refusing import refused

SPINNING = "session.force_spinning_stop"


def test_threads_stop_spinning_when_a_run_ends(tmp_path):
    module = Files(tmp_path).open()[1]
    assert module.session_options.get_session_config_entry(SPINNING) == "1"


def test_no_block_is_planned_for_a_second_run(tmp_path):
    assert not Files(tmp_path).open()[1].session_options.enable_mem_pattern


def test_no_place_is_planned_for_a_tensor(tmp_path):
    assert not Files(tmp_path).open()[1].session_options.enable_mem_reuse


def test_options_that_say_what_threads_do_are_kept(tmp_path):
    files = Files(tmp_path)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(SPINNING, "0")
    state = files.open()[0]
    Module(tmp_path / "training_model.onnx", state, session_options=options)
    assert options.get_session_config_entry(SPINNING) == "0"


WEIGHTS = 36
"""MiB of the four convolutions below."""
OPEN = """
import re, sys
from artifacts.api import session
def memory(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
options = session.default_session_options()
before = memory("VmRSS")
opened = session.open_session(sys.argv[1], options, ["CPUExecutionProvider"])
print(memory("VmRSS") - before, memory("VmHWM") - before)
"""
OLD = tuple(f"1.{minor}." for minor in range(18, 25))
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries give memory back themselves")

mapping = pytest.mark.skipif(
    sys.platform == "win32" or onnxruntime.__version__.startswith(OLD[:3]),
    reason="a file that is mapped cannot be replaced there, or onnxruntime cannot be told where it is",
)


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory):
    """The file of a model of 36 MiB."""
    weights = [np.random.default_rng(k).normal(0, 0.02, (512, 512, 3, 3)).astype(np.float32) for k in range(4)]
    nodes = [onnx.helper.make_node("Conv", [f"y{k}", f"w{k}"], [f"y{k + 1}"]) for k in range(4)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "convolutions",
            [onnx.helper.make_tensor_value_info("y0", onnx.TensorProto.FLOAT, [1, 512, 15, 15])],
            [onnx.helper.make_tensor_value_info("y4", onnx.TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=9,
    )
    path = tmp_path_factory.mktemp("convolutions") / "model.onnx"
    onnx.save(model, path)
    return path


def memory_of_opening(path):
    """MiB that are resident after a session was opened, and were at most."""
    process = subprocess.run([sys.executable, "-c", OPEN, str(path)], capture_output=True, text=True, check=True)
    assert not process.stderr
    resident, peak = map(float, process.stdout.split())
    return resident, peak


@glibc
def test_copies_of_weights_that_were_read_are_given_back(convolutions):
    assert memory_of_opening(convolutions)[0] < 2 * WEIGHTS


@glibc
@pytest.mark.skipif(onnxruntime.__version__.startswith(OLD), reason="made fewer copies, or cannot be told where to map")
def test_weights_that_stay_in_the_file_are_not_copied_to_be_read(convolutions, tmp_path):
    linked = tmp_path / "model.onnx"  # of which the weights are read
    linked.symlink_to(convolutions)
    assert memory_of_opening(convolutions)[1] < memory_of_opening(linked)[1] - WEIGHTS / 2


def opened_with(path, monkeypatch, **settings):
    """A session, and what it was opened with: the path, or bytes."""
    given = []
    start = session._start
    monkeypatch.setattr(session, "_start", lambda model, *others: given.append(model) or start(model, *others))
    options = session.default_session_options()
    for name, value in settings.items():
        setattr(options, name, value)
    made = session.open_session(path, options, ["CPUExecutionProvider"])
    monkeypatch.undo()
    return made, given


@mapping
def test_the_same_results_with_weights_that_stay_in_the_file(convolutions, tmp_path, monkeypatch):
    copy = shutil.copy(convolutions, tmp_path / "mödel ø.onnx")
    light, given = opened_with(copy, monkeypatch)
    assert [len(model) < 1000 for model in given] == [True]
    whole, given = opened_with(copy, monkeypatch, optimized_model_filepath=str(tmp_path / "optimized.onnx"))
    assert given == [str(copy)]
    image = np.random.default_rng(9).normal(size=(1, 512, 15, 15)).astype(np.float32)
    expected = whole.run(None, {"y0": image})[0]
    assert np.array_equal(light.run(None, {"y0": image})[0], expected)
    replacement = tmp_path / "replacement"
    replacement.write_bytes(b"another model")
    replacement.replace(copy)
    assert np.array_equal(light.run(None, {"y0": image})[0], expected)


def test_options_for_files_in_two_folders(convolutions, tmp_path, monkeypatch, capfd):
    folders = [tmp_path / "one", tmp_path / "two"]
    options = session.default_session_options()
    image = np.ones((1, 512, 15, 15), np.float32)
    results = []
    for folder in folders:
        folder.mkdir()
        opened = session.open_session(shutil.copy(convolutions, folder), options, ["CPUExecutionProvider"])
        results.append(opened.run(None, {"y0": image})[0])
    assert np.array_equal(*results)
    assert capfd.readouterr() == ("", "")


def test_what_is_wrong_with_a_large_file_is_said_of_the_file(convolutions, tmp_path):
    content = convolutions.read_bytes()
    for name, broken in (("cut", content[:-1000]), ("zeros", bytes(2**24))):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(broken)
        with refused(InvalidModelError, "onnxruntime cannot load", f"{name}.onnx"):
            session.open_session(path, session.default_session_options(), ["CPUExecutionProvider"])
