"""Paths as users give them, and files that appear whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from .errors import ArgumentError, OnnxBlockError

AnyPath: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.partial")
_ABANDONED_SECONDS = 24 * 3600
"""Where files cannot be locked, one that nobody wrote to for so long was left behind."""


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


def is_one_of(path: Path, others: Iterable[Path]) -> bool:
    """Whether there is a file at ``path``, and one of ``others`` is the same."""
    return path.exists() and any(other.exists() and path.samefile(other) for other in others)


def file_version(path: AnyPath) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written to, None where there is none."""
    try:
        found = as_path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def replacing(
    path: AnyPath, error_type: type[OnnxBlockError] = OnnxBlockError, *, durable: bool = True
) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` when the block ends without an exception.

    The bytes go to a temporary name in the same folder, reach the disk, and are renamed in one step; what was at
    ``path`` stays readable until then and is kept when the block raises.  For what can be made again (not ``durable``),
    the system chooses when they reach the disk: waiting takes longer than all else.  Of several that write to one path
    at once, each writes a file of its own, and the last to end stays.  Temporary files that a process left in the
    folder when it was killed are removed.  Raises ``error_type`` when the file cannot be written.
    """
    target = as_path(path, error_type)
    temporary = target
    try:
        _remove_abandoned(target.parent)
        temporary, file = _open_temporary(target)
        with file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if sys.platform != "win32":  # there an open file has to keep its name
                temporary.replace(target)
        if sys.platform == "win32":
            temporary.replace(target)
    except OSError as error:
        raise error_type(
            f"cannot write {str(target)!r}: {error.strerror or error}.",
            "Choose a folder that exists, can be written to and has space left.",
        ) from error
    finally:
        if temporary != target:
            temporary.unlink(missing_ok=True)


def _open_temporary(target: Path) -> tuple[Path, BinaryIO]:
    """A new file beside ``target``, locked for as long as it is open."""
    while True:
        path = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
        file = path.open("xb")
        # between opening and locking it another process may take it for abandoned
        if _lock(file) is not False and path.exists():
            return path, file
        file.close()


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files in ``folder`` whose writers are gone; what cannot be removed stays."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                with suppress(OSError):
                    _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    with path.open("r+b") as file:
        locked = _lock(file)
        if locked is None:
            locked = time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
        if locked and sys.platform != "win32":
            path.unlink()
    if locked and sys.platform == "win32":
        path.unlink()


def _lock(file: BinaryIO) -> bool | None:
    """Whether ``file`` is locked for this process now: False if another holds it, None where there are no locks.

    The system gives a lock back when its process ends, however it ends.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
