"""What trains, one module each.

An engine is a class ``Engine`` in a module of this package, which may need an environment of its own; the worker
process that runs there imports it, with NumPy and nothing else of the benchmarks' own needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MODEL, MODEL_15, MODEL_WITH_LOSS = "model.onnx", "model_opset15.onnx", "model_with_loss.onnx"
SPECIFICATION = "workload.json"
HERE = "this"
"""The environment of the benchmarks themselves."""


@dataclass(frozen=True)
class EngineInfo:
    """An engine: its name, what it is, the module it stands in, and the environment that module needs.

    ``settings`` are passed to its class.  ``only`` says for which workloads it is of interest: those of images, whole
    steps, or the optimizer alone; all by default.
    """

    name: str
    title: str
    module: str
    environment: str = HERE
    settings: tuple[tuple[str, str], ...] = ()
    only: Literal["", "images", "step", "optimizer"] = ""


OURS, FUSED, RECOMPUTE = "onnxblock", "onnxblock-fused", "onnxblock-recompute"
TORCH, CHANNELS_LAST = "torch", "torch-channels-last"
COMPILED, FOREACH = "torch-compile", "torch-foreach"
ORIGINAL, ONNXSIM, ONNX2TORCH = "onnxruntime-training", "onnxsim", "onnx2torch"
EAGER = (TORCH, CHANNELS_LAST)
"""PyTorch without compilation: its time is that of the faster one."""

ENGINES: dict[str, EngineInfo] = {
    info.name: info
    for info in (
        EngineInfo(OURS, "onnxblock on stock onnxruntime", "ours"),
        EngineInfo(FUSED, "onnxblock, the whole step in one file", "fused", only="step"),
        EngineInfo(RECOMPUTE, "onnxblock, the whole step, forward results computed again", "recompute", only="step"),
        EngineInfo(TORCH, "PyTorch eager", "pytorch"),
        EngineInfo(
            CHANNELS_LAST,
            "PyTorch eager, channels last",
            "pytorch",
            settings=(("memory_format", "channels_last"),),
            only="images",
        ),
        EngineInfo(COMPILED, "torch.compile", "pytorch", settings=(("compile", "yes"),), only="step"),
        EngineInfo(
            FOREACH, "PyTorch, foreach optimizer", "pytorch", settings=(("optimizer", "foreach"),), only="optimizer"
        ),
        EngineInfo(ORIGINAL, "onnxruntime-training 1.19.2", "original", environment="original"),
        EngineInfo(ONNXSIM, "onnxsim 0.8.1", "onnxsim", environment="onnxsim", only="step"),
        EngineInfo(ONNX2TORCH, "onnx2torch 1.5.15", "onnx2torch", environment="onnx2torch", only="step"),
    )
}
