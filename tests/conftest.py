from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

SLOW = Path(__file__).parent / "slow"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the long suites in tests/slow too")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out ``tests/slow`` unless ``--slow`` is given or a path inside it is named."""
    named = any(SLOW in [path := Path(argument.split("::")[0]).resolve(), *path.parents] for argument in config.args)
    if collection_path == SLOW and not named and not config.getoption("--slow"):
        return True
    return None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that is asserted to be untouched at the end, with a file of the user's own in it."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    yield out
    assert [p.name for p in out.rglob("*")] == ["mine.txt"]
    assert (out / "mine.txt").read_text() == "mine"
