"""What sessions are opened with."""

from __future__ import annotations

import platform
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from artifacts.api import Module
from tests.artifacts.handmade import Files

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
from artifacts.api.session import default_session_options, open_session
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
options = default_session_options()
before = resident()
session = open_session(sys.argv[1], options, ["CPUExecutionProvider"])
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries give memory back themselves")
def test_copies_of_weights_that_were_read_are_given_back(tmp_path):
    weights = [np.full((512, 512, 3, 3), k, np.float32) for k in range(4)]
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
    onnx.save(model, tmp_path / "model.onnx")
    process = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path / "model.onnx")], capture_output=True, text=True, check=True
    )
    assert float(process.stdout) < 2 * WEIGHTS
