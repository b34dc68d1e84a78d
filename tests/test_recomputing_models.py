"""Gradients of the model families are the same whether forward results are kept or computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the models are PyTorch's")

import artifacts  # noqa: E402
from artifacts.api import CheckpointState, Module  # noqa: E402
from tests.models import FAMILIES, example  # noqa: E402
from tests.models.compare import LOSS_TYPES  # noqa: E402
from tests.models.export import export  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from tests.models import Example


NOTHING_AGAIN = {"lstm"}
"""All that the gradient reads of it comes out of recurrent layers, which are kept."""


def step(model: onnx.ModelProto, made: Example, folder: Path, **options: object) -> tuple[dict, artifacts.Artifacts]:
    """The gradients and running statistics after one step, and the summary."""
    summary = artifacts.generate_artifacts(
        model, loss=LOSS_TYPES[made.loss], artifact_directory=folder, **{"batch_norm": "train", **options}
    )
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state)
    module(*(x.numpy() for x in made.inputs), made.target.numpy())
    trained = [p.name for p in summary.trainable]
    arrays = {name: state.parameters[name].grad for name in trained}
    return {**arrays, **{p.name: state.parameters[p.name].data for p in summary.statistics}}, summary


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_do_not_depend_on_it(family: str, tmp_path: Path) -> None:
    dtype = torch.float64 if FAMILIES[family].float64 else torch.float32
    made = example(family, dtype=dtype)
    model = export(made.module, made.inputs, dynamic=True)
    kept, _ = step(model, made, tmp_path / "kept")
    again, summary = step(model, made, tmp_path / "again", recompute=True)
    assert (summary.recomputation is None) == (family in NOTHING_AGAIN)
    assert summary.recomputation is None or summary.recomputation.nodes > 0
    for name in kept:
        if dtype == torch.float64:
            np.testing.assert_array_equal(again[name], kept[name], err_msg=name)
        else:  # onnxruntime fuses other nodes of a float32 graph, which rounds differently
            np.testing.assert_allclose(again[name], kept[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("exporter", "path"), [("torchscript", "/model/transformer/h.*"), ("dynamo", "model.transformer.h.*")]
)
def test_blocks_go_by_the_names_that_exporters_give(exporter: str, path: str, tmp_path: Path) -> None:
    made = example("gpt2", dtype=torch.float64)
    model = export(made.module, made.inputs, exporter=exporter, opset=20)
    kept, _ = step(model, made, tmp_path / "kept")
    again, summary = step(model, made, tmp_path / "again", recompute=path)
    assert summary.recomputation is not None
    assert summary.recomputation.segments == tuple(path.replace("*", str(k)) for k in range(2))
    for name in kept:
        np.testing.assert_array_equal(again[name], kept[name], err_msg=name)
