from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import architecture

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("onnxblock", "artifacts", "tests", "examples", "tools", "benchmarks")


@pytest.fixture(scope="module")
def found() -> list[architecture.Import]:
    sources = architecture.read_sources(ROOT, architecture.FACADES)
    assert "onnxblock.errors" in sources
    return architecture.imports(sources)


@pytest.mark.parametrize("rule", [architecture.upward, architecture.runtime, architecture.lazy, architecture.reaching])
def test_imports(found, rule):
    assert rule(found) == []


def test_no_file_is_too_long():
    files = [f for folder in FOLDERS for f in (ROOT / folder).rglob("*.py")]
    assert len(files) > 10
    assert architecture.too_long(files) == []


WITHOUT_ONNX = """
import importlib, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"onnx", "ml_dtypes"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert "onnxruntime" not in sys.modules, "onnxruntime is imported before it is needed"
"""


def test_training_from_artifacts_imports_without_onnx():
    names = [m.removesuffix(".__init__") for m in architecture.read_sources(ROOT, architecture.FACADES)]
    modules = [m for m in names if architecture.needs_no_onnx(m)]
    assert {"onnxblock.errors", "onnxblock.names"} <= set(modules)
    subprocess.run([sys.executable, "-c", WITHOUT_ONNX, *modules], cwd=ROOT, check=True)


def test_facades_import_nothing_but_the_standard_library():
    code = "import onnxblock, artifacts, sys; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert {"onnxblock", "artifacts"} <= set(loaded)
    assert not {"numpy", "onnx", "onnxruntime", "flatbuffers"} & set(loaded)


# The tests of the tests: sources that break each rule, and the words that must be said; then some that break none.
BROKEN = {
    "up": (architecture.upward, {"onnxblock.graph.graph": "from onnxblock import block"}, "does not lie below"),
    "relative, up": (architecture.upward, {"onnxblock.graph.__init__": "from ..autodiff import rule"}, "graph:1"),
    "sideways": (architecture.upward, {"onnxblock.loss": "import onnxblock.optim"}, "does not lie below"),
    "rules, too early": (
        architecture.upward,
        {
            "onnxblock.autodiff.registry": "from onnxblock.autodiff import rules",
            "onnxblock.autodiff.rules.__init__": "",
        },
        "does not lie below",
    ),
    "in a function": (architecture.upward, {"onnxblock.names": "def f():\n from . import errors"}, "names:2"),
    "facade": (architecture.upward, {"onnxblock.loss": "import onnxblock"}, "from the module that defines it"),
    "no layer": (
        architecture.upward,
        {"onnxblock.new": "from onnxblock import errors"},
        "onnxblock.new is in no layer",
    ),
    "rules and blocks": (
        architecture.upward,
        {"onnxblock.autodiff.rules.loss": "from ...blocks import Add"},
        "onnxblock.blocks does not lie below",
    ),
    "top level": (architecture.runtime, {"artifacts.api.module": "import onnxruntime as ort"}, "inside functions"),
    "in a class": (architecture.runtime, {"artifacts.api.module": "class A:\n import onnxruntime"}, "inside functions"),
    "wrong place": (architecture.runtime, {"artifacts.train": "def f():\n  from onnxruntime import x"}, "only in"),
    "eager": (architecture.lazy, {"onnxblock.__init__": "from onnxblock.block import Block"}, "on demand"),
    "not typing": (architecture.lazy, {"artifacts.__init__": "if True:\n import numpy"}, "on demand"),
    "else of typing": (
        architecture.lazy,
        {"artifacts.__init__": "if TYPE_CHECKING:\n import onnx\nelse:\n import numpy"},
        "imports numpy",
    ),
    "onnx": (architecture.reaching, {"artifacts.manifest": "from onnx import helper"}, "must not need onnx"),
    "onnx, far": (
        architecture.reaching,
        {"artifacts.api.state": "from onnxblock.export import x", "onnxblock.export": "import onnx"},
        "artifacts.api.state -> onnxblock.export -> onnx",
    ),
    "onnx, in a parent": (
        architecture.reaching,
        {"artifacts.api.state": "import onnxblock.graph.types", "onnxblock.graph.__init__": "import onnx"},
        "onnxblock.graph -> onnx",
    ),
    "auto-diff": (
        architecture.reaching,
        {
            "artifacts.api.module": "def f():\n from onnxblock.export import e",
            "onnxblock.export": "def g():\n from onnxblock import autodiff",
            "onnxblock.autodiff.__init__": "import numpy",
        },
        "artifacts.api.module -> onnxblock.export -> onnxblock.autodiff",
    ),
}
FINE = {
    "onnxblock.__init__": "import typing\nif typing.TYPE_CHECKING:\n from onnxblock.block import Block\n"
    "def __getattr__(name):\n from onnxblock import block",
    "onnxblock.errors": "import difflib",
    "onnxblock.graph.__init__": "import onnx\nfrom .value import Value",
    "onnxblock.graph.value": "from ..errors import OnnxBlockError\nif TYPE_CHECKING:\n from ..block import Block",
    "onnxblock.autodiff.check": "def run():\n import onnxruntime",
    "onnxblock.autodiff.registry": "def load():\n from onnxblock.autodiff import rules",
    "onnxblock.autodiff.rules.__init__": "",
    "onnxblock.autodiff.rules.loss": "from ..registry import gradient\nfrom ...graph import Value",
    "artifacts.api.module": "from artifacts import manifest\ndef f():\n import onnxruntime\n import onnx",
    "artifacts.manifest": "import json",
    "artifacts.generate": "from artifacts import train",
    "artifacts.train": "import onnxblock.training",
}


@pytest.mark.parametrize(("rule", "sources", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_violations_are_caught(rule, sources, said):
    known = dict.fromkeys(["onnxblock.block", "onnxblock.errors", "onnxblock.autodiff.__init__"], "")
    problems = rule(architecture.imports({**known, **sources}))
    assert len(problems) == 1
    assert said in problems[0]


@pytest.mark.parametrize("rule", [architecture.upward, architecture.runtime, architecture.lazy, architecture.reaching])
def test_allowed_imports_pass(rule):
    assert rule(architecture.imports(FINE)) == []


def test_long_files_are_caught(tmp_path):
    (tmp_path / "long.py").write_text("x = 1\n" * 601, encoding="utf-8")
    (tmp_path / "fits.py").write_text("x = 1\n" * 600, encoding="utf-8")
    (tmp_path / "stub.pyi").write_text("x: int\n" * 900, encoding="utf-8")
    problems = architecture.too_long(sorted(tmp_path.iterdir()))
    assert len(problems) == 1
    assert problems[0].endswith("long.py: 601 lines, at most 600")
