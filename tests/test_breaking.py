"""What no careful user would do and some user will: each ends in the right result or in an error that says why."""

from __future__ import annotations

from onnxblock.files import replacing


def test_two_that_write_one_file_at_once(tmp_path):
    path = tmp_path / "checkpoint"
    with replacing(path) as first:
        first.write(b"one ")
        with replacing(path) as second:
            second.write(b"two two")
        assert path.read_bytes() == b"two two"
        first.write(b"one one")
    assert path.read_bytes() == b"one one one"
    assert list(tmp_path.iterdir()) == [path]
