"""Checkpoints of every form and element type, loaded and saved again by the original."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from artifacts.api import CheckpointState
from onnxblock.checkpoint import Checkpoint, Tensor, read_checkpoint, write_checkpoint

SCRIPT = Path(__file__).parent / "resave.py"
DTYPES = ["float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES = [(3, 5), (), (1,), (0,), (0, 4), (70,)]


def arrays(dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    limits = (0, 2) if dtype == "bool" else (0, 100)
    return {f"w{k}": random.integers(*limits, shape).astype(dtype) for k, shape in enumerate(SHAPES)}


def checkpoint(dtype: str) -> Checkpoint:
    """Half of the parameters trained, a property of each kind; sorted, as the original saves."""
    tensors = [Tensor.from_array(name, array) for name, array in arrays(dtype).items()]
    properties = {"number": 2**40, "rate": float(np.float32(0.1)), "text": "grüße"}
    return Checkpoint(tensors[::2], tensors[1::2], optimizer_groups=[], properties=properties)


@pytest.fixture(scope="module")
def resaved(original_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    for dtype in DTYPES:
        write_checkpoint(folder / f"{dtype}.ckpt", checkpoint(dtype))
        outside = checkpoint(dtype)
        outside.external = True
        write_checkpoint(folder / f"{dtype}-external.ckpt", outside)
    half = Tensor.from_array("w", np.ones(3, np.float16))
    write_checkpoint(folder / "float16.ckpt", Checkpoint([half], []))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [original_python, str(SCRIPT), str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("form", ["", "-external"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_crosses_over_and_back(dtype, form, resaved):
    path = resaved / f"{dtype}{form}.ckpt"
    assert not path.with_suffix(".refused").exists(), path.with_suffix(".refused").read_text(encoding="utf-8")
    expected = arrays(dtype)
    with np.load(path.with_suffix(".npz")) as theirs:
        assert set(theirs["trained"]) == set(list(expected)[::2])
        for name, array in expected.items():
            np.testing.assert_array_equal(theirs[name], array, strict=True)
    back = CheckpointState.load_checkpoint(path.with_suffix(".saved"))
    assert dict(back.properties) == checkpoint(dtype).properties
    assert {name: p.requires_grad for name, p in back.parameters} == {n: n in list(expected)[::2] for n in expected}
    for name, parameter in back.parameters:
        np.testing.assert_array_equal(parameter.data, expected[name], strict=True)
    CheckpointState.save_checkpoint(back, resaved / "ours", include_optimizer_state=True)
    assert (resaved / "ours").read_bytes() == path.with_suffix(".saved").read_bytes()
    if form:
        assert (resaved / "ours.data").read_bytes() == path.with_suffix(".saved.data").read_bytes()
        assert read_checkpoint(path.with_suffix(".saved")).external


def test_what_the_original_cannot_load(resaved):
    assert "Unsupported data type: 10" in (resaved / "float16.refused").read_text(encoding="utf-8")
    state = CheckpointState.load_checkpoint(resaved / "float16.ckpt")
    assert state.parameters["w"].data.dtype == np.float16
