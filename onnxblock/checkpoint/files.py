"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import CheckpointError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file under a temporary name beside ``path``; on success it is flushed to disk and takes that name.

    When the block raises, the temporary file is removed and an earlier file at ``path`` stays as it was.

    Raises:
        CheckpointError: the file cannot be written there.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(
            f"cannot write {target}: {error.strerror or error}",
            "Choose a folder that exists and is writable, and has room; nothing there was changed.",
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
