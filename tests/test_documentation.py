"""Every block of Python in the README and in the pages of docs/ runs, page by page, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[tuple[int, str]]:
    """Return the blocks marked as Python, each with the line that it starts on."""
    return [(text.count("\n", 0, found.start(1)) + 1, found[1]) for found in BLOCK.finditer(text)]


WITH_CODE = [page for page in PAGES if blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for line, code in blocks(page.read_text(encoding="utf-8")):
        # The blank lines make a traceback point into the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_blocks_are_found():
    text = "# Title\n```python\nx = 1\n\ny = 2\n```\ntext\n```sh\nls\n```\n\n```python\nz = x\n```\n"
    assert blocks(text) == [(3, "x = 1\n\ny = 2\n"), (13, "z = x\n")]
