"""Read the imports of source files, without running them, and say which break the rules of the architecture."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# From the bottom up.  A module may import what stands on a lower line, or what belongs to its own entry; never what
# stands beside it or above.  A module belongs to the entry with the longest matching prefix.
LAYERS = (
    ("onnxblock.errors", "onnxblock.names", "onnxblock.wire"),
    ("onnxblock.files", "onnxblock.left_in_file", "artifacts.manifest"),
    ("onnxblock.graph", "onnxblock.checkpoint", "onnxblock.accumulation"),
    ("onnxblock.modes", "onnxblock.shared_weights"),
    ("onnxblock.block", "onnxblock.autodiff"),
    ("onnxblock.blocks", "onnxblock.autodiff.rules", "onnxblock.parameters"),
    ("onnxblock.loss", "onnxblock.optim", "onnxblock.export", "onnxblock.inspection"),
    ("onnxblock.training", "onnxblock.fused_gradients", "artifacts.api"),
    ("onnxblock.fused_step",),
    ("artifacts.describe", "artifacts.summary", "artifacts.overview"),
    ("artifacts.train", "artifacts.optimizer", "artifacts.write", "artifacts.garbage"),
    ("artifacts.generate",),
    ("artifacts.cli",),
    ("artifacts.__main__",),
)
# Inside a function, and only these: the registry loads the rules, which register themselves, when it is first asked.
DELIBERATELY_UP = (("onnxblock.autodiff.registry", "onnxblock.autodiff.rules"),)
# The two facades give out names on demand; nothing inside the packages may lean on them.
FACADES = ("onnxblock", "artifacts")
# They train on devices that have numpy and onnxruntime, and nothing else.
WITHOUT_ONNX = (
    "onnxblock.errors",
    "onnxblock.names",
    "onnxblock.files",
    "onnxblock.wire",
    "onnxblock.left_in_file",
    "onnxblock.checkpoint",
    "artifacts.manifest",
    "artifacts.api",
)
MAY_RUN = ("artifacts.api", "artifacts.write", "onnxblock.autodiff.check")
NEVER_REACHES = (("artifacts.api", "onnxblock.autodiff"), ("onnxblock.autodiff.rules", "onnxblock.blocks"))
LONGEST_FILE = 600


@dataclass(frozen=True)
class Import:
    """One import statement's target, and when it takes effect."""

    source: str
    target: str
    line: int
    at_module_level: bool
    for_types_only: bool


def belongs(module: str, prefixes: Iterable[str]) -> str | None:
    """Return the longest of ``prefixes`` that ``module`` is or lies in."""
    matching = [p for p in prefixes if module == p or module.startswith(p + ".")]
    return max(matching, key=len, default=None)


def needs_no_onnx(module: str) -> bool:
    """Whether the module must work where ``onnx`` is not installed."""
    return module in FACADES or belongs(module, WITHOUT_ONNX) is not None


class _Reader(ast.NodeVisitor):
    """Collect the imports of one module."""

    def __init__(self, module: str, is_package: bool, known: Iterable[str]) -> None:
        self.module, self.known = module, frozenset(known)
        self.package = module if is_package else module.rpartition(".")[0]
        self.depth, self.for_types_only = 0, False
        self.found: list[Import] = []

    def add(self, target: str, node: ast.stmt) -> None:
        self.found.append(Import(self.module, target, node.lineno, self.depth == 0, self.for_types_only))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self.package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
        for alias in node.names:
            submodule = f"{base}.{alias.name}"
            self.add(submodule if submodule in self.known else base, node)

    def visit_If(self, node: ast.If) -> None:
        outer = self.for_types_only
        self.for_types_only = outer or ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for child in node.body:
            self.visit(child)
        self.for_types_only = outer
        for child in node.orelse:
            self.visit(child)

    def _enter(self, node: ast.AST) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _enter


def read_sources(root: Path, packages: Iterable[str]) -> dict[str, str]:
    """Return the text of every module of the packages; the name of a package ends in ``.__init__``."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_text(encoding="utf-8")
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    }


def imports(sources: Mapping[str, str]) -> list[Import]:
    """Return the imports of all modules in ``sources`` (as of :func:`read_sources`)."""
    names = {source: source.removesuffix(".__init__") for source in sources}
    found = []
    for source, text in sources.items():
        reader = _Reader(names[source], source.endswith(".__init__"), names.values())
        reader.visit(ast.parse(text, source))
        found += reader.found
    return found


def _say(found: Import, why: str) -> str:
    return f"{found.source}:{found.line} imports {found.target}: {why}"


def upward(found: Iterable[Import]) -> list[str]:
    """Imports that point up or sideways, into a facade, or from or to a module that is in no layer."""
    level = {prefix: k for k, layer in enumerate(LAYERS) for prefix in layer}
    problems = []
    for one in found:
        if one.for_types_only or belongs(one.target, FACADES) is None or one.source in FACADES:
            continue
        if (one.source, one.target) in DELIBERATELY_UP and not one.at_module_level:
            continue
        if one.target in FACADES:
            problems.append(_say(one, "take the name from the module that defines it"))
            continue
        source, target = belongs(one.source, level), belongs(one.target, level)
        if source is None or target is None:
            problems.append(_say(one, f"{one.source if source is None else one.target} is in no layer"))
        elif source != target and level[target] >= level[source]:
            problems.append(_say(one, f"{target} does not lie below {source}"))
    return list(dict.fromkeys(problems))


def runtime(found: Iterable[Import]) -> list[str]:
    """Imports of onnxruntime at module level or outside the places that run models."""
    problems = []
    for one in found:
        if one.for_types_only or belongs(one.target, ["onnxruntime"]) is None:
            continue
        if one.at_module_level:
            problems.append(_say(one, "only inside functions"))
        elif belongs(one.source, MAY_RUN) is None:
            problems.append(_say(one, f"only in {', '.join(MAY_RUN)}"))
    return problems


def lazy(found: Iterable[Import]) -> list[str]:
    """Imports of a facade that take effect when the facade is imported and cost more than the standard library."""
    return [
        _say(one, "a facade loads on demand")
        for one in found
        if one.source in FACADES and one.at_module_level and not one.for_types_only
        if one.target.split(".")[0] not in sys.stdlib_module_names
    ]


def reaches(
    found: Iterable[Import], start: Iterable[str], target: str, *, module_level_only: bool
) -> list[tuple[str, ...]]:
    """Return a chain of imports, parent packages included, from each module of ``start`` that leads to ``target``."""
    edges: dict[str, set[str]] = {}
    for one in found:
        if one.for_types_only or (module_level_only and not one.at_module_level):
            continue
        parts = one.target.split(".")
        edges.setdefault(one.source, set()).update(".".join(parts[: k + 1]) for k in range(len(parts)))
    chains: list[tuple[str, ...]] = []
    for module in start:
        paths: dict[str, tuple[str, ...]] = {module: (module,)}
        queue = [module]
        for current in queue:
            if belongs(current, [target]):
                chains.append(paths[current])
                break
            for following in sorted(edges.get(current, ())):
                if following not in paths and following not in FACADES:
                    paths[following] = (*paths[current], following)
                    queue.append(following)
    return chains


def reaching(found: Iterable[Import]) -> list[str]:
    """Modules that reach, through however many others, what they must work without."""
    found = list(found)
    modules = {one.source for one in found}
    wanted = [
        ([m for m in modules if needs_no_onnx(m)], "onnx", True),
        *(([m for m in modules if belongs(m, [source])], target, False) for source, target in NEVER_REACHES),
    ]
    return [
        f"{chain[0]} must not need {target}: {' -> '.join(chain)}"
        for start, target, module_level_only in wanted
        for chain in reaches(found, sorted(start), target, module_level_only=module_level_only)
    ]


def too_long(files: Iterable[Path]) -> list[str]:
    """Files longer than the limit; generated stubs (``.pyi``) are not looked at."""
    lengths = {f: len(f.read_text(encoding="utf-8").splitlines()) for f in files if f.suffix == ".py"}
    return [f"{f}: {n} lines, at most {LONGEST_FILE}" for f, n in lengths.items() if n > LONGEST_FILE]
