"""Gradients by the original's own generator: ``python differentiate.py FOLDER``, in the original's environment.

Each ``<n>.onnx`` in the folder is a model without inputs whose output is the loss; ``<n>.json`` names the parameters.
The gradients go to ``<n>.npz``, what it refuses to ``<n>.refused``.  A model that kills the process leaves
``<n>.begun`` behind, and the next start goes on after it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from loop import original_api


def differentiate(api: Any, model: Path) -> dict[str, np.ndarray]:
    """Generate artifacts, do one step, and give the gradient of each parameter."""
    import onnx
    from onnxruntime.training import artifacts

    folder = model.with_suffix("")
    folder.mkdir(exist_ok=True)
    names = json.loads(model.with_suffix(".json").read_text(encoding="utf-8"))
    artifacts.generate_artifacts(onnx.load(str(model)), requires_grad=names, artifact_directory=str(folder))
    state = api.CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    module = api.Module(str(folder / "training_model.onnx"), state, device="cpu")
    module()
    return {name: np.array(state.parameters[name].grad) for name in names}


def main(folder: Path) -> None:
    api = original_api()
    for model in sorted(folder.glob("*.onnx")):
        begun = model.with_suffix(".begun")
        if begun.exists():
            continue
        begun.touch()
        try:
            np.savez(model.with_suffix(".npz"), **differentiate(api, model))
        except Exception as error:  # noqa: BLE001 - whatever it is, the model is refused
            model.with_suffix(".refused").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
