"""Train the networks of ``tests/interop`` on another execution provider and compare with the CPU.

    python tools/device_check.py --provider CUDAExecutionProvider
    python tools/device_check.py --provider DmlExecutionProvider --networks mlp cnn --tolerance 1e-3

Each network trains 20 steps on both from the same artifacts: losses, gradients, parameters, running statistics,
evaluation and the exported model must agree.  Half of a training on the device, saved, must continue on the CPU as the
whole did.  Prints one line for each network; exits with 1 if anything differs, with 2 if there is no such provider.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import artifacts  # noqa: E402 - after the path, as those below
from artifacts import api  # noqa: E402
from tests.interop import loop  # noqa: E402
from tests.interop.networks import NETWORKS, Network  # noqa: E402

CPU = "CPUExecutionProvider"
OPSETS, STEPS, BATCH, RATE = (17, 21), 20, 8, 0.01
EXACT = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""Options under which a provider computes in full float32, as the CPU does."""

Results = dict[str, np.ndarray]


def main() -> int:
    """Read the command line and compare; returns the exit status."""
    import onnxruntime

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--provider", required=True, help="as onnxruntime names it")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest difference (default 1e-4)")
    arguments = parser.parse_args()
    available = onnxruntime.get_available_providers()
    if arguments.provider not in available:
        print(f"This onnxruntime does not have {arguments.provider}; it has {', '.join(available)}.", file=sys.stderr)
        return 2
    print(f"onnxruntime {onnxruntime.__version__}, {arguments.provider} against the CPU, {STEPS} steps", flush=True)
    device = on(*dict.fromkeys([arguments.provider, CPU]))
    failed = 0
    for name in arguments.networks:
        for opset in OPSETS:
            for optimizer in artifacts.OptimType:
                started = time.monotonic()
                differences = compare(NETWORKS[name](opset), optimizer, device)
                worst = max(differences, key=lambda what: differences[what])
                differs = not differences[worst] <= arguments.tolerance
                failed += differs
                print(
                    f"{'DIFFERS' if differs else 'same':8}{name:12} opset {opset}  {optimizer.name:6}"
                    f" largest difference {differences[worst]:.1e} ({worst})  {time.monotonic() - started:.1f} s",
                    flush=True,
                )
    return 1 if failed else 0


def on(*providers: str) -> SimpleNamespace:
    """The api, with every module on these providers."""
    module = partial(api.Module, providers=[(name, EXACT.get(name, {})) for name in providers])
    return SimpleNamespace(CheckpointState=api.CheckpointState, Module=module, Optimizer=api.Optimizer)


def compare(network: Network, optimizer: artifacts.OptimType, device: SimpleNamespace) -> dict[str, float]:
    """The largest difference of each result."""
    import onnxruntime

    cpu = on(CPU)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        random = np.random.default_rng(0)
        batches = [network.batch(random, BATCH) for _ in range(STEPS)]
        np.savez(folder / "data.npz", **{f"input{k}": np.stack(arrays) for k, arrays in enumerate(zip(*batches))})
        files = artifacts.generate_artifacts(
            network.model, loss=artifacts.LossType.CrossEntropyLoss, optimizer=optimizer, artifact_directory=folder
        )
        job = {
            "training_model": files.training_model,
            "eval_model": files.eval_model,
            "optimizer_model": files.optimizer_model,
            "checkpoint": files.checkpoint,
            "data": folder / "data.npz",
            "learning_rate": RATE,
            "outputs": [output.name for output in network.model.graph.output],
        }
        expected = loop.run(cpu, {**job, "export": folder / "cpu.onnx"})
        found = loop.run(device, {**job, "export": folder / "device.onnx"})
        differences = {name: distance(found[name], array) for name, array in expected.items()}
        half = STEPS // 2
        loop.run(device, {**job, "steps": (0, half), "save": folder / "half"})
        rest = loop.run(cpu, {**job, "steps": (half, STEPS), "checkpoint": folder / "half"})
        differences["continued on the CPU"] = distance(rest["losses"], expected["losses"][half:])
        inputs = dict(zip((port.name for port in network.model.graph.input), batches[0]))
        outputs = [
            onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=[CPU]).run(None, inputs)
            for name in ("device", "cpu")
        ]
        differences["exported model"] = max(map(distance, *outputs))
    return differences


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, infinite where one is not a number."""
    difference = np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64))
    return float(np.max(np.where(np.isnan(difference), np.inf, difference), initial=0.0))


if __name__ == "__main__":
    sys.exit(main())
