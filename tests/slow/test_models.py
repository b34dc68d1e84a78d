"""Every family × exporter × opset × mode × batch against PyTorch."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

from tests.models import FAMILIES, VARIANTS  # noqa: E402
from tests.models.compare import Case, compare  # noqa: E402
from tests.models.export import OPSETS  # noqa: E402

CASES = [
    Case(family, exporter, opset, mode, dynamic)
    for family, (exporter, opsets) in product(FAMILIES, OPSETS.items())
    for opset, mode, dynamic in product(opsets, ("train", "eval"), (False, True))
]
VARIANT_CASES = [
    Case(variant, exporter, opset, mode, dynamic)
    for variant, (exporter, opset) in product(VARIANTS, [("torchscript", 20), ("dynamo", 20), ("dynamo", 23)])
    for mode, dynamic in product(("train", "eval"), (False, True))
]
# Not the new exporter: it writes the numbers in the code as float32, which moves GPT-2's logits by 4e-8.
FLOAT64 = [
    Case(family, "torchscript", opset, mode, dynamic=True, dtype=torch.float64)
    for family in FAMILIES
    if FAMILIES[family].float64
    for opset, mode in product(OPSETS["torchscript"], ("train", "eval"))
]


@pytest.mark.parametrize("case", [*CASES, *VARIANT_CASES, *FLOAT64], ids=str)
def test_gradients_are_pytorchs(case, tmp_path):
    compare(case, tmp_path)
