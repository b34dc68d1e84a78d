"""Writing files so that a crash, or a full disk, never leaves half of one under its final name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import OnnxBlockError


@contextmanager
def replacing(path: str | os.PathLike[str], error_type: type[OnnxBlockError] = OnnxBlockError) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` when the block ends without an exception.

    The bytes go to a temporary name in the same folder, reach the disk, and are renamed in one step; what was at
    ``path`` stays readable until then and is kept when the block raises.  Raises ``error_type`` when the file
    cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise error_type(
            f"cannot write {os.fspath(path)!r}: {error.strerror or error}.",
            "Choose a folder that exists, can be written to and has space left.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
