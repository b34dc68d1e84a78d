from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime import fault

SLOW = Path(__file__).parent / "slow"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the long suites in tests/slow too")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out ``tests/slow`` unless ``--slow`` is given or a path inside it is named."""
    named = any(SLOW in [path := Path(argument.split("::")[0]).resolve(), *path.parents] for argument in config.args)
    if collection_path == SLOW and not named and not config.getoption("--slow"):
        return True
    return None


def pytest_collection_finish() -> None:
    """Keep the collector of cycles from looking through all tests again and again: a tenth of the time of exports."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what the installed onnxruntime is known not to do; the summary counts such tests by their reasons."""
    if reason := fault(item.nodeid):
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """After the rule test, say how many operators are differentiable and how many cases showed it."""
    passed = terminalreporter.stats.get("passed", [])
    cases = sum("test_rules.py::test_gradient[" in report.nodeid for report in passed)
    if cases:
        from onnx import defs

        from onnxblock.autodiff.coverage import Way, coverage

        names = {s.name for s in defs.get_all_schemas_with_history() if not s.domain}
        ways = [coverage(name, defs.onnx_opset_version()).way for name in names]
        count = sum(way not in (Way.NONE, Way.GAP) for way in ways)
        terminalreporter.write_line(f"{count} differentiable operators of ai.onnx, {cases} gradient cases passed")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that is asserted to be untouched at the end, with a file of the user's own in it."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    yield out
    assert [p.name for p in out.rglob("*")] == ["mine.txt"]
    assert (out / "mine.txt").read_text() == "mine"
