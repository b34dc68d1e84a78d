"""One training loop for two runtimes: what it uses has the same names in ``artifacts.api`` and the original's ``api``.

Imported, it trains with what it is given.  As a script it trains with onnxruntime-training, in that package's own
environment: ``python loop.py JOB.json`` writes the outcome beside the job.  It needs NumPy only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def run(api: Any, job: dict[str, Any]) -> dict[str, np.ndarray]:
    """Train as ``job`` says; the losses, what the evaluation gives, the parameters and gradients at the end.

    ``data`` is a file with the arrays ``input0``, ``input1``, …, each with a leading axis of batches.  ``accumulate``
    batches make one step.
    """
    state = api.CheckpointState.load_checkpoint(job["checkpoint"])
    module = api.Module(job["training_model"], state, job["eval_model"])
    optimizer = api.Optimizer(job["optimizer_model"], module)
    if job.get("learning_rate") is not None:
        optimizer.set_learning_rate(job["learning_rate"])
    with np.load(job["data"]) as arrays:
        batches = list(zip(*(arrays[f"input{k}"] for k in range(len(arrays))), strict=True))
    first, last = job.get("steps", (0, len(batches)))
    losses, gradients = [], {}
    for number, batch in enumerate(batches[first:last], 1):
        losses.append(first_of(module(*batch)))
        # before the step: the original's ClipGradNorm changes them in place
        gradients = {f"gradient:{name}": np.array(p.grad) for name, p in state.parameters if p.requires_grad}
        if number % job.get("accumulate", 1) == 0:
            optimizer.step()
            module.lazy_reset_grad()
    if job.get("save"):
        state.properties["interop"] = 1
        api.CheckpointState.save_checkpoint(state, job["save"], include_optimizer_state=True)
    result = {"losses": np.array(losses), **gradients}
    result.update({f"parameter:{name}": np.array(parameter.data) for name, parameter in state.parameters})
    module.eval()
    result["evaluation"] = first_of(module(*batches[0]))
    if job.get("export"):
        module.export_model_for_inferencing(job["export"], job["outputs"])
    return result


def first_of(outputs: Any) -> np.ndarray:
    """The loss among what a module returned."""
    return np.array(outputs[0] if isinstance(outputs, tuple) else outputs)


def original_api() -> Any:
    """The original's ``api``.  The package imports PyTorch for parts that are not used here; a mock stands for it."""
    from importlib.machinery import ModuleSpec
    from unittest.mock import MagicMock

    for name in ("torch", "torch.nn", "torch.utils", "torch.utils.data", "torch.onnx", "torch.distributed"):
        sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None))
    from onnxruntime.training import api

    return api


def main(path: Path) -> None:
    job = json.loads(path.read_text(encoding="utf-8"))
    np.savez(path.with_suffix(".npz"), **run(original_api(), job))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
