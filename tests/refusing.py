"""What tests of bad input share: how a refusal looks, and how a model is made bad."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import pytest

import artifacts
from artifacts import LossType, OptimType
from onnxblock.errors import OnnxBlockError


@contextmanager
def refused(error: type[OnnxBlockError], *words: str) -> Iterator[pytest.ExceptionInfo[OnnxBlockError]]:
    """One exception of the type, with these words in it and a remedy on its second line."""
    with pytest.raises(error) as caught:
        yield caught
    text = str(caught.value)
    for word in words:
        assert word in text
    assert "\n  " in text, f"no remedy: {text}"


def generate(model: Any, out: Any, **settings: Any) -> artifacts.Artifacts:
    return artifacts.generate_artifacts(
        model, **{"loss": LossType.MSELoss, "optimizer": OptimType.AdamW, "artifact_directory": out, **settings}
    )


def rename(model: onnx.ModelProto, old: str, new: str) -> onnx.ModelProto:
    """``model`` with one value called otherwise."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = new if value.name == old else value.name
    return model
