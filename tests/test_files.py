"""Files that appear whole or not at all, and what a process that was killed leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from onnxblock import files
from onnxblock.errors import CheckpointError, OnnxBlockError
from onnxblock.files import replacing

ROOT = Path(__file__).resolve().parent.parent
WRITER = """
import sys
from onnxblock.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


def start_writer(path: Path) -> subprocess.Popen[str]:
    """A process that has begun to write ``path`` and ends when it is told to."""
    started = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "writing\n"
    return started


def save(path: Path, content: bytes = b"whole") -> None:
    with replacing(path) as file:
        file.write(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be killed so there")
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_kept(tmp_path):
    with start_writer(tmp_path / "killed") as killed, start_writer(tmp_path / "living") as living:
        assert len(names(tmp_path)) == 2
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        assert len(names(tmp_path)) == 2
        save(tmp_path / "other")
        (kept, other) = names(tmp_path)
        assert kept.startswith(f".living.{living.pid}.")
        assert other == "other"
        assert living.communicate("\n") == ("", None)
        assert living.returncode == 0
    assert names(tmp_path) == ["living", "other"]
    assert (tmp_path / "living").read_bytes() == b"half"


def test_files_of_others_are_left_alone(tmp_path):
    ours = ".checkpoint.1.0123abcd.partial"
    others = ["notes.partial", ".checkpoint.partial", ".checkpoint.x.0123abcd.partial", f"{ours}.txt"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".folder.1.0123abcd.partial").mkdir()
    (tmp_path / ours).write_text("half")
    save(tmp_path / "checkpoint")
    kept = sorted(["checkpoint", ".folder.1.0123abcd.partial", *others])
    assert names(tmp_path) == (kept if sys.platform != "win32" else sorted([*kept, ours]))


def test_without_locks_only_old_files_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_lock", lambda _: None)
    old, new = tmp_path / ".a.1.0123abcd.partial", tmp_path / ".b.1.0123abcd.partial"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    save(tmp_path / "checkpoint")
    assert names(tmp_path) == [new.name, "checkpoint"]


def test_a_file_that_another_took_for_abandoned_is_made_again(tmp_path, monkeypatch):
    taken = []

    def lock(file):
        taken.append(Path(file.name))
        if len(taken) == 1:
            taken[0].unlink()
        return len(taken) != 2

    monkeypatch.setattr(files, "_lock", lock)
    save(tmp_path / "checkpoint")
    assert len(set(taken)) == 3
    assert (tmp_path / "checkpoint").read_bytes() == b"whole"


def test_several_threads_write_one_path(tmp_path):
    contents = [bytes([k]) * 1000 for k in range(8)]
    threads = [threading.Thread(target=save, args=(tmp_path / "checkpoint", content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() in contents


def test_what_was_there_is_kept_when_writing_fails(tmp_path):
    save(tmp_path / "checkpoint", b"before")
    with pytest.raises(TypeError), replacing(tmp_path / "checkpoint") as file:
        file.writelines([b"half", "text"])
    with pytest.raises(CheckpointError, match="cannot write"), replacing(tmp_path / "nowhere" / "c", CheckpointError):
        pass
    with pytest.raises(OnnxBlockError, match="cannot write"), replacing(tmp_path / "checkpoint" / "c"):
        pass
    assert names(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"before"
