"""The pages are true: their Python runs, their commands and links name what is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(
        page for folder in ("docs", "onnxblock", "artifacts", "examples") for page in (ROOT / folder).rglob("*.md")
    ),
]
# Commands set these up; they are not part of the repository.
MADE = (".venv", "out")


def blocks(text: str, language: str = "python") -> list[tuple[int, str]]:
    """Return the blocks of a language, each with the line that it starts on."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, found.start(1)) + 1, found[1]) for found in pattern.finditer(text)]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def label(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(read(page), language)]


@pytest.mark.parametrize("page", with_blocks("python"), ids=label)
def test_code_runs(page, tmp_path):
    """In an empty folder, page by page; the blocks of one page share their names.

    Each page has a process of its own: what it registers must not reach other pages and tests.
    """
    lines: list[str] = []
    for line, code in blocks(read(page)):
        # The blank lines make a traceback name the line of the page.
        lines += [""] * (line - 1 - len(lines)) + code.splitlines()
    script, folder = tmp_path / f"{page.stem}.py", tmp_path / "empty"
    script.write_text("\n".join(lines), encoding="utf-8")
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", script]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def missing(command: str, folder: Path) -> list[str]:
    """What a shell command names that is neither there nor made by another command."""
    words = [w for w in shlex.split(command, comments=True) if not w.startswith("-") and "://" not in w]
    paths = [w for w in words if ("/" in w or w.endswith((".py", ".md"))) and w.split("/")[0] not in MADE]
    return [path for path in paths if not (folder / path).exists()]


@pytest.mark.parametrize("page", with_blocks("sh"), ids=label)
def test_commands_name_what_is_there(page):
    commands = [line for _, block in blocks(read(page), "sh") for line in block.splitlines()]
    assert [(command, path) for command in commands for path in missing(command, ROOT)] == []
    tasks = {found[1] for command in commands if (found := re.search(r"tools/run\.py (\w+)", command))}
    if tasks:
        usage = subprocess.run(
            [sys.executable, ROOT / "tools" / "run.py", "--help"], capture_output=True, text=True, check=True
        ).stdout
        offered = re.search(r"\{(\S+)\}", usage)
        assert offered is not None
        assert tasks <= set(offered[1].split(","))


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", read(page))
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []


def test_the_readme_has_what_it_needs():
    text = read(ROOT / "README.md")
    assert blocks(text)[0][0] < 30  # on the first screen
    commands = " ".join(block for _, block in blocks(text, "sh"))
    assert "tools/run.py demo" in commands
    assert "tools/run.py check" in commands


def test_what_is_not_true_is_found(tmp_path):
    text = "# Title\n```python\nx = 1\n\ny = 2\n```\ntext\n```sh\nls\n```\n\n```python\nz = x\n```\n"
    assert blocks(text) == [(3, "x = 1\n\ny = 2\n"), (13, "z = x\n")]
    assert blocks(text, "sh") == [(9, "ls\n")]
    (tmp_path / "there.py").touch()
    for command in (
        "python there.py --out out/x  # gone.py",
        "pip install https://a.b/c",
        ".venv/bin/python -m pytest",
    ):
        assert missing(command, tmp_path) == []
    assert missing("python gone.py sub/there.py", tmp_path) == ["gone.py", "sub/there.py"]
