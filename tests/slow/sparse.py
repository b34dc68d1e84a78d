"""Files with holes: the library writes whole files, and this leaves out what is zero of them.

So tests of gigabytes, nearly all of them zeros, need little disk and little time; what is read back is the same.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from onnxblock import files

PIECE = 1 << 20


class SparseFile(io.BufferedWriter):
    """A file that seeks over zeros instead of writing them."""

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PIECE):
            piece = view[start : start + PIECE]
            if len(piece) == PIECE and not np.frombuffer(piece, np.uint64).any():
                self.seek(PIECE, io.SEEK_CUR)
            else:
                super().write(piece)
        return len(view)

    def flush(self) -> None:
        """A hole at the end belongs to the file too."""
        super().flush()
        if not self.closed:
            self.truncate(max(self.tell(), os.fstat(self.fileno()).st_size))


def install() -> None:
    """Let the library write such files from now on."""
    open_temporary = files._open_temporary

    def sparse(target: Path) -> tuple[Path, BinaryIO]:
        path, file = open_temporary(target)
        return path, SparseFile(file.detach())  # type: ignore[attr-defined]

    files._open_temporary = sparse


def are_supported(folder: Path) -> bool:
    """Whether the file system of ``folder`` gives holes no space."""
    path = folder / "hole"
    with path.open("wb") as file:
        file.truncate(1 << 24)
    blocks = getattr(path.stat(), "st_blocks", 1)
    path.unlink()
    return blocks == 0
