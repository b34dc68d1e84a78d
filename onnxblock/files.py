"""Paths as users give them, and files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from .errors import ArgumentError, OnnxBlockError

AnyPath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"


def as_path(path: AnyPath, error_type: type[OnnxBlockError] = ArgumentError) -> Path:
    """``path`` as a ``Path``; a leading ``~`` means the home folder, unless there is a folder of that name.

    Raises ``error_type`` for what is no path.
    """
    try:
        found = Path(os.fsdecode(path))
    except TypeError:
        raise error_type(f"{path!r} ({type(path).__name__}) is not a path.", "Give a str or a pathlib.Path.") from None
    if "\0" in str(found):
        raise error_type(f"{str(found)!r} is not a path: it has a null character in it.", "Leave that out.")
    return found.expanduser() if found.parts[:1] == ("~",) and not Path("~").exists() else found


@contextmanager
def replacing(path: AnyPath, error_type: type[OnnxBlockError] = OnnxBlockError) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` when the block ends without an exception.

    The bytes go to a temporary name in the same folder, reach the disk, and are renamed in one step; what was at
    ``path`` stays readable until then and is kept when the block raises.  Of several that write to one path at once,
    each writes a file of its own, and the last to end stays.  Raises ``error_type`` when the file cannot be written.
    """
    target = as_path(path, error_type)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise error_type(
            f"cannot write {str(target)!r}: {error.strerror or error}.",
            "Choose a folder that exists, can be written to and has space left.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
