"""The command line: ``python -m artifacts``, or ``onnxblock-artifacts`` where the package is installed.

Each command calls one function of the library and prints what it returns.  What the library refuses goes to the error
output, with status 1; wrong usage has status 2.  Packages that take time to load are imported by the commands only.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from onnxblock.errors import ArgumentError, ArtifactMismatchError, OnnxBlockError, did_you_mean

from .manifest import Runtime

if TYPE_CHECKING:
    from onnxblock.block import Block
    from onnxblock.inspection import Inspection

    from .summary import Artifacts

_NAMES: dict[str, Any] = {"nargs": "+", "action": "extend", "metavar": "NAME"}
_INTERRUPTED, _CLOSED_PIPE = 130, 141  # as shells report the signals SIGINT and SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; usage that is wrong, and help, end in ``SystemExit``."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            arguments = vars(_parser().parse_args(argv))
            command: Callable[..., object] = arguments.pop("command")
            print(command(**arguments))
        finally:
            sys.stdout.flush()
    except OnnxBlockError as error:
        print(error, file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        print("this command needs the package onnx, which is not installed.\n  pip install onnx", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # the reader has seen enough; what is left must not fail again when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    return 0


# ---------------------------------------------------------------------------------------------------------- usage


def _parser() -> argparse.ArgumentParser:
    """The whole usage; each option is kept under the name of the argument that it stands for."""
    version = importlib.import_module("onnxblock").__version__
    parser = argparse.ArgumentParser(
        "onnxblock-artifacts",
        description="Make the files that train an ONNX model on stock onnxruntime, and read them.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[..., object], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        made.set_defaults(command=command)
        return made

    inspecting = add("inspect", _inspect, "say what training a model would mean, and write nothing")
    generating = add("generate", _generate, "write the files that training a model needs")
    for either in (inspecting, generating):
        either.add_argument("model", metavar="MODEL", help="the forward-only .onnx file; it is not changed")
        _add_forward_options(either)
    _add_training_options(generating)
    _add_file_options(generating)

    describing = add("describe", _describe, "say what is in a generated model or in a checkpoint")
    describing.add_argument("file", metavar="FILE", help="a generated .onnx file, or a checkpoint")

    exporting = add("export", _export, "write the trained model, for inference")
    exporting.add_argument("checkpoint", metavar="CHECKPOINT", help="the checkpoint with the trained weights")
    exporting.add_argument("eval_model", metavar="EVAL_MODEL", help="the eval_model.onnx of the same generation")
    exporting.add_argument("--output", required=True, metavar="FILE", help="the .onnx file to write")
    exporting.add_argument(
        "--graph-output", dest="graph_output_names", help="its outputs (default: those of the forward model)", **_NAMES
    )
    return parser


def _add_forward_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--loss-input", dest="loss_input_names", help="the values given to the loss (default: all outputs)", **_NAMES
    )
    parser.add_argument(
        "--batch-norm",
        choices=("as exported", "train", "frozen"),
        default="as exported",
        help="'train' uses the statistics of each batch and moves the running ones, 'frozen' uses those as they are",
    )


def _add_training_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--loss", type=_loss, metavar="NAME", help="a loss, such as CrossEntropyLoss (default: the first output is it)")
    add("--optimizer", type=_optimizer, metavar="NAME", help="an optimizer, such as AdamW (default: none is made)")
    add("--train", dest="requires_grad", help="the weights to train (default: all that can be)", **_NAMES)
    add("--freeze", dest="frozen_params", help="weights to keep in the checkpoint as they are", **_NAMES)
    add("--running-var", choices=("unbiased", "biased"), default="unbiased", help="the variance that batch norm keeps")
    add("--fused-step", action="store_true", help="also write step_model.onnx: forward, backward and update in one run")
    add(
        "--recompute",
        nargs="*",
        metavar="WHAT",
        help="compute forward results again instead of keeping them: where it saves most, down to a number of bytes, "
        "or in layers, by paths of nodes such as '/encoder/layer.*'",
    )
    add(
        "--dimension-size",
        dest="dimension_sizes",
        action="append",
        type=_size,
        metavar="NAME=N",
        help="the size of a symbolic dimension, for --recompute to reckon with; may be repeated",
    )
    add("--additional-output", dest="additional_output_names", help="values to return beside the loss", **_NAMES)


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--output", dest="artifact_directory", required=True, metavar="DIR", help="where to write; made if missing")
    add("--prefix", default="", metavar="TEXT", help="put before the name of every file")
    add("--nominal", dest="nominal_checkpoint", action="store_true", help="also write a checkpoint without the weights")
    add("--ort-format", action="store_true", help="also write each model in ORT format")
    add("--runtime", choices=get_args(Runtime), default="onnxruntime", help="what the optimizer model is for")
    add("--custom-op-library", metavar="FILE", help="the shared library of the model's custom operators")


def _loss(name: str) -> Block:
    from onnxblock import loss
    from onnxblock.block import Block

    return _made(name, loss, Block)


def _optimizer(name: str) -> Block:
    from onnxblock import optim

    return _made(name, optim, optim.Optimizer)


def _made(name: str, package: ModuleType, base: type[Any]) -> Block:
    """The block of a package that is called so, with its default settings."""
    exported = {n: getattr(package, n) for n in package.__all__}
    offered = [n for n, kind in exported.items() if _is_made_of_nothing(kind, base)]
    if name not in offered:
        near = did_you_mean(name, offered)
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(offered)}.{near}")
    made: Block = exported[name]()
    return made


def _is_made_of_nothing(kind: object, base: type[Any]) -> bool:
    if not isinstance(kind, type) or not issubclass(kind, base) or inspect.isabstract(kind):
        return False
    return all(p.default is not p.empty for p in inspect.signature(kind).parameters.values())


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N, such as batch=8")
    return name, int(size)


# ------------------------------------------------------------------------------------------------------- commands


def _inspect(model: str, loss_input_names: list[str] | None, batch_norm: str) -> Inspection:
    from onnxblock.inspection import inspect

    return inspect(model, loss_input_names, batch_norm=batch_norm)


def _generate(recompute: list[str] | None, dimension_sizes: list[tuple[str, int]] | None, **settings: Any) -> Artifacts:
    from .generate import generate_artifacts

    return generate_artifacts(**settings, recompute=_recompute(recompute), dimension_sizes=dict(dimension_sizes or ()))


def _recompute(words: list[str] | None) -> bool | int | list[str] | None:
    if words is not None and len(words) == 1 and words[0].isdecimal():
        return int(words[0])
    return True if words == [] else words


def _describe(file: str) -> str:
    from .overview import overview

    return overview(file)


def _export(checkpoint: str, eval_model: str, output: str, graph_output_names: list[str] | None) -> str:
    from onnxblock.export import unpack_forward_model

    from .api.compatibility import require_fit
    from .api.inference import export_model
    from .api.state import CheckpointState
    from .overview import read_generated

    model, manifest = read_generated(eval_model)
    if manifest.kind != "eval":
        raise ArtifactMismatchError(f"{eval_model} is the {manifest.kind} model.", "Name eval_model.onnx here.")
    storage = CheckpointState.load_checkpoint(checkpoint).storage
    require_fit(manifest, eval_model, storage)
    forward = unpack_forward_model(model)
    if graph_output_names is None and forward is None:
        raise ArgumentError(f"{eval_model} does not say what the forward model gives.", "Name it with --graph-output.")
    names = graph_output_names or [value.name for value in (forward or model).graph.output]
    known = {port.name for port in manifest.inputs_of("parameter", "frozen", "statistic")}
    export_model(eval_model, {name: a for name, a in storage.arrays().items() if name in known}, output, names)
    return f"outputs: {', '.join(names)}\nfile:\n  {output}"
