"""What sessions are opened with."""

from __future__ import annotations

import onnxruntime

from artifacts.api import Module
from tests.artifacts.handmade import Files

SPINNING = "session.force_spinning_stop"


def test_threads_stop_spinning_when_a_run_ends(tmp_path):
    module = Files(tmp_path).open()[1]
    assert module.session_options.get_session_config_entry(SPINNING) == "1"


def test_no_block_is_planned_for_a_second_run(tmp_path):
    assert not Files(tmp_path).open()[1].session_options.enable_mem_pattern


def test_options_that_say_what_threads_do_are_kept(tmp_path):
    files = Files(tmp_path)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(SPINNING, "0")
    state = files.open()[0]
    Module(tmp_path / "training_model.onnx", state, session_options=options)
    assert options.get_session_config_entry(SPINNING) == "0"
