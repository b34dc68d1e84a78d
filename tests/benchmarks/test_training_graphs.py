"""The training graph of the transformer that is measured, in small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

torch = pytest.importorskip("torch", reason="the model is PyTorch's")

import artifacts  # noqa: E402
from benchmarks.networks import build  # noqa: E402
from benchmarks.nodes import idle, inlined, needed_for  # noqa: E402
from benchmarks.prepare import export  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {"width": 24, "heads": 3, "length": 10, "vocabulary": 30}


def test_the_training_graph_of_the_transformer_has_few_nodes(tmp_path: Path) -> None:
    module = build("small.Transformer", SIZES)
    export(module, (torch.zeros(2, 10, dtype=torch.int64),), tmp_path / "model.onnx", 17)
    artifacts.generate_artifacts(
        tmp_path / "model.onnx",
        requires_grad=[name for name, _ in module.named_parameters()],
        loss=artifacts.LossType.CrossEntropyLoss,
        artifact_directory=tmp_path,
    )
    model = inlined(onnx.load(tmp_path / "training_model.onnx"))
    forward = needed_for(model.graph, model.graph.output[0].name)
    assert idle(model) == []
    assert 230 < len(forward) < len(model.graph.node) <= 3 * len(forward)
