"""Write ``docs/operators.md``: every operator, and how its gradient is made.

    python tools/make_operator_table.py

The operators of the default domain are those that the installed onnx knows; the rest is what the registry holds.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from onnx import defs
from onnx.defs import OpSchema

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operators.md"
sys.path.insert(0, str(ROOT))

from onnxblock.autodiff import registry  # noqa: E402
from onnxblock.autodiff.coverage import Coverage, Way, coverage  # noqa: E402
from onnxblock.graph import decomposition  # noqa: E402
from onnxblock.graph.context import MINIMUM_OPSET  # noqa: E402
from onnxblock.graph.decomposition import MICROSOFT  # noqa: E402
from onnxblock.graph.schemas import NEWEST_OPSET  # noqa: E402

_MEANING = {
    Way.RULE: "there is a rule in `onnxblock/autodiff/rules/<family>.py`",
    Way.DECOMPOSITION: "`onnxblock/graph/decompositions/<family>.py` composes it of operators that have rules",
    Way.FUNCTION_BODY: "its ONNX definition has a function body, whose operators have rules",
    Way.RAISED: f"deprecated; when a model is raised to opset {MINIMUM_OPSET}, another operator takes its place",
    Way.NONE: "it passes no gradient back by nature; the table says why",
    Way.REFUSED: "a model that needs its gradient is refused; the table says why",
    Way.GAP: "its gradient has not been written",
}

_HEADER = """\
# Operators

<!-- Written by tools/make_operator_table.py for onnx up to opset {newest}; a test fails when it is stale. -->

How the gradient of each operator is made. `onnxblock.inspect(model)` says it for the nodes of a model.

{counts}

## ai.onnx

Opsets {oldest} to {newest}; older models are raised to {oldest}. *Float inputs* may hold floats, and a gradient with
respect to them can be asked for; inputs that only set how an operator works, such as the scales of Resize, get none.

| operator | since opset | gradient | family | float inputs |
|---|---|---|---|---|
"""

OTHER_DOMAINS = ("ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
"""Further domains that onnx itself defines."""

_OTHERS = """
## {domain}

The operators that exporters and optimizers write and that have a gradient. Any other raises an error that names its
nodes, unless you register it (`onnxblock.gradient`, `onnxblock.no_gradient`, `onnxblock.decomposition`).

| operator | gradient | family |
|---|---|---|
"""


def versions() -> dict[str, list[int]]:
    """The opsets at which each operator of the default domain was defined anew."""
    found: dict[str, list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema.since_version)
    return {name: sorted(found[name]) for name in sorted(found)}


def float_inputs(schema: OpSchema) -> list[str]:
    """The inputs that may hold floats, or sequences or optionals of them."""
    marks = {OpSchema.FormalParameterOption.Optional: "?", OpSchema.FormalParameterOption.Variadic: "..."}
    return [
        formal.name + marks.get(formal.option, "")
        for formal in schema.inputs
        if any("tensor(float)" in type_ for type_ in formal.types)
    ]


def row(name: str, since: list[int], found: Coverage) -> str:
    """One line of the table of the default domain."""
    has_gradient = found.way not in {Way.NONE, Way.GAP}
    inputs = ", ".join(float_inputs(defs.get_schema(name, since[-1], ""))) if has_gradient else ""
    opsets = ", ".join(map(str, since))
    return f"| {name} | {opsets} | {described(found)} | {found.family} | {inputs} |"


def other_rows(domain: str) -> list[tuple[str, Coverage]]:
    """The operators of another domain that have an entry."""
    names = {e.op_type for e in (*registry.entries(), *decomposition.entries()) if e.domain == domain}
    return [(name, coverage(name, 1, domain)) for name in sorted(names)]


def rows_of_onnx(domain: str) -> list[tuple[str, Coverage]]:
    """The operators of another domain that the installed onnx knows."""
    known: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == domain:
            known[schema.name] = max(schema.since_version, known.get(schema.name, 0))
    newest = max(known.values())
    return [(name, coverage(name, newest, domain)) for name in sorted(known)]


def described(found: Coverage) -> str:
    """The way, with the reason where there is no gradient."""
    return f"{found.way.value}: {found.reason}" if found.way in {Way.NONE, Way.REFUSED} else found.way.value


def text() -> str:
    """The whole page."""
    known = versions()
    found = {name: coverage(name, NEWEST_OPSET) for name in known}
    counted = Counter(c.way for c in found.values())
    others = other_rows(MICROSOFT)
    counts = [f"Of the {len(known)} operators of ai.onnx:", ""]
    counts += [f"* **{counted[way]}** *{way.value}*: {_MEANING[way]}." for way in Way if counted[way]]
    differentiable = sum(counted[way] for way in (Way.RULE, Way.DECOMPOSITION, Way.FUNCTION_BODY, Way.RAISED))
    with_gradient = sum(c.way is not Way.NONE for _, c in others)
    counts += ["", f"So **{differentiable}** have a gradient, and **{with_gradient}** of {MICROSOFT}."]
    page = _HEADER.format(oldest=MINIMUM_OPSET, newest=NEWEST_OPSET, counts="\n".join(counts))
    page += "\n".join(row(name, known[name], found[name]) for name in known) + "\n"
    page += _OTHERS.format(domain=MICROSOFT)
    page += "".join(f"| {name} | {described(one)} | {one.family} |\n" for name, one in others)
    for domain in OTHER_DOMAINS:
        page += f"\n## {domain}\n\n| operator | gradient | family |\n|---|---|---|\n"
        page += "".join(f"| {name} | {described(one)} | {one.family} |\n" for name, one in rows_of_onnx(domain))
    return page


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PAGE.write_text(text(), encoding="utf-8")
