"""What trains, one module each.

An engine is a class ``Engine`` in a module of this package, which may need an environment of its own; the worker
process that runs there imports it, with NumPy and nothing else of the benchmarks' own needs.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL, MODEL_15, MODEL_WITH_LOSS = "model.onnx", "model_opset15.onnx", "model_with_loss.onnx"
SPECIFICATION = "workload.json"
HERE = "this"
"""The environment of the benchmarks themselves."""


@dataclass(frozen=True)
class EngineInfo:
    """An engine: its name, what it is, the module it stands in, and the environment that module needs.

    ``settings`` are passed to its class.  ``images_only`` engines differ from another only for images.
    """

    name: str
    title: str
    module: str
    environment: str = HERE
    settings: tuple[tuple[str, str], ...] = ()
    images_only: bool = False


OURS, TORCH, CHANNELS_LAST = "onnxblock", "torch", "torch-channels-last"
EAGER = (TORCH, CHANNELS_LAST)
"""PyTorch without compilation: its time is that of the faster one."""

ENGINES: dict[str, EngineInfo] = {
    info.name: info
    for info in (
        EngineInfo(OURS, "onnxblock on stock onnxruntime", "ours"),
        EngineInfo(TORCH, "PyTorch eager", "pytorch"),
        EngineInfo(
            CHANNELS_LAST,
            "PyTorch eager, channels last",
            "pytorch",
            settings=(("memory_format", "channels_last"),),
            images_only=True,
        ),
    )
}
