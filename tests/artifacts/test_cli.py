"""The command line: what it passes on, what it prints, and how it ends."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import artifacts
import onnxblock
from artifacts import cli, overview
from artifacts.api import CheckpointState
from onnxblock.modes import BatchNormMode, RunningVariance
from tests.training import begin, convolutional, generate, perceptron, random_batch

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = [f"Perceptron/Linear/{name}" for name in ("weight", "bias", "weight_1", "bias_1")]
MANY = ["--loss", "CrossEntropyLoss", "--optimizer", "AdamW"]


def without_forward_model(path, target):
    """Save an evaluation model that carries no forward model, as one too large to be carried."""
    bare = onnx.load(path)
    kept = [entry for entry in bare.metadata_props if entry.key != onnxblock.names.FORWARD_MODEL_KEY]
    del bare.metadata_props[:]
    bare.metadata_props.extend(kept)
    onnx.save(bare, target)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(perceptron(), path)
    return path


def run(capsys, *argv):
    """Exit status and what was printed, on both outputs."""
    try:
        status = cli.main(list(map(str, argv)))
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    return status, said.out, said.err


def start(*argv, **options):
    command = [sys.executable, "-W", "error", "-m", "artifacts", *map(str, argv)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("environment", {})}
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, check=False, **options)


def contents(folder):
    """Files by name; onnxruntime writes its own format in other bytes each time."""
    return {path.name: path.suffix == ".ort" or path.read_bytes() for path in folder.iterdir()}


def commands():
    (chosen,) = [a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return chosen.choices


# ---------------------------------------------------------------------------------------------------------- usage


def test_options_are_the_arguments_of_generate_artifacts():
    options = {a.dest: a for a in commands()["generate"]._actions if a.dest != "help"}
    arguments = inspect.signature(artifacts.generate_artifacts).parameters
    assert options.keys() == arguments.keys()
    without = {"model", "artifact_directory"}
    assert all(options[a].required for a in without)
    assert {a: options[a].default for a in options if a not in without} == {
        a: p.default for a, p in arguments.items() if a not in without
    }
    assert set(options["batch_norm"].choices) == {mode.value for mode in BatchNormMode}
    assert set(options["running_var"].choices) == {variance.value for variance in RunningVariance}


def test_every_option_says_what_it_is(capsys):
    assert set(commands()) == {"inspect", "generate", "describe", "export"}
    for name, parser in commands().items():
        assert all(action.help for action in parser._actions)
        status, out, err = run(capsys, name, "--help")
        assert (status, err) == (0, "")
        assert all(option in out for action in parser._actions for option in action.option_strings)
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(name in out for name in commands())
    assert run(capsys, "--version") == (0, f"onnxblock-artifacts {onnxblock.__version__}\n", "")


def test_help_loads_nothing_that_takes_time():
    code = (
        "import sys\nfrom artifacts.cli import main\ntry:\n    main(['generate', '--help'])\nexcept SystemExit:\n"
        "    print(*{m.split('.')[0] for m in sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(ran.stdout.splitlines()[-1].split())
    assert {"argparse", "artifacts"} <= loaded
    assert not {"numpy", "onnx", "onnxruntime", "flatbuffers"} & loaded


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "required: COMMAND"),
        (["train"], "invalid choice: 'train'"),
        (["inspect"], "required: MODEL"),
        (["generate", "m.onnx"], "required: --output"),
        (["generate", "m.onnx", "--out", "o"], "required: --output"),
        (["generate", "m.onnx", "--output", "o", "--loss", "MSE"], "Did you mean 'MSELoss'?"),
        (["generate", "m.onnx", "--output", "o", "--loss", "Weighted"], "'Weighted' is none of"),
        (["generate", "m.onnx", "--output", "o", "--optimizer", "Optimizer"], "'Optimizer' is none of"),
        (["generate", "m.onnx", "--output", "o", "--optimizer", "ClipGradNorm"], "'ClipGradNorm' is none of"),
        (["generate", "m.onnx", "--output", "o", "--batch-norm", "trained"], "invalid choice: 'trained'"),
        (["generate", "m.onnx", "--output", "o", "--dimension-size", "batch"], "'batch' is not NAME=N"),
        (["generate", "m.onnx", "--output", "o", "--dimension-size", "n=x"], "'n=x' is not NAME=N"),
        (["export", "checkpoint", "eval_model.onnx"], "required: --output"),
    ],
)
def test_wrong_usage(capsys, argv, said):
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert err.startswith("usage: onnxblock-artifacts")
    assert said in err


def test_every_loss_and_optimizer_with_default_settings_can_be_named():
    for kind in artifacts.LossType:
        assert isinstance(cli._loss(kind.name), type(kind.block()))
    for kind in artifacts.OptimType:
        assert isinstance(cli._optimizer(kind.name), type(kind.block()))
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        cli._loss("")
    assert set(onnxblock.loss.__all__) - {"Weighted"} == set(re.findall(r"\w+(?=[,.])", str(raised.value)))
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        cli._optimizer("")
    offered = re.findall(r"\w+(?=[,.])", str(raised.value))
    assert len(offered) == 12
    assert all(isinstance(cli._optimizer(name), getattr(onnxblock.optim, name)) for name in offered)


# ------------------------------------------------------------------------------------------------------- commands


def test_inspect_prints_the_inspection(capsys, model):
    assert run(capsys, "inspect", model) == (0, f"{onnxblock.inspect(model)}\n", "")
    hidden = onnx.load(model).graph.node[0].output[0]
    status, out, _ = run(capsys, "inspect", model, "--loss-input", hidden)
    assert (status, out) == (0, f"{onnxblock.inspect(model, [hidden])}\n")
    assert out != f"{onnxblock.inspect(model)}\n"
    onnx.save(convolutional(), model)
    for mode in ("train", "frozen"):
        said = f"{onnxblock.inspect(model, batch_norm=mode)}\n"
        assert run(capsys, "inspect", model, "--batch-norm", mode)[1] == said
        assert f"batch norm: {mode}" in said


def test_generate_writes_and_prints_what_the_function_does(capsys, model, tmp_path):
    status, out, err = run(capsys, "generate", model, "--output", tmp_path / "cli", *MANY)
    made = generate(model, tmp_path / "python")
    assert (status, err) == (0, "")
    assert contents(tmp_path / "cli") == contents(tmp_path / "python")
    assert len(contents(tmp_path / "cli")) == 4
    assert out.replace(str(tmp_path / "cli"), str(tmp_path / "python")) == f"{made}\n"


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--train", *WEIGHTS[:2]], {"requires_grad": WEIGHTS[:2]}),
        (["--train", WEIGHTS[2], "--train", WEIGHTS[3]], {"requires_grad": WEIGHTS[2:]}),
        (["--freeze", *WEIGHTS[:2]], {"frozen_params": WEIGHTS[:2]}),
        (["--loss", "FocalLoss"], {"loss": onnxblock.loss.FocalLoss()}),
        (["--optimizer", "Lion"], {"optimizer": onnxblock.optim.Lion()}),
        (["--loss-input", "HIDDEN"], {"loss_input_names": ["HIDDEN"]}),
        (["--additional-output", "HIDDEN", "scores"], {"additional_output_names": ["HIDDEN", "scores"]}),
        (["--prefix", "small_"], {"prefix": "small_"}),
        (["--nominal"], {"nominal_checkpoint": True}),
        (["--ort-format"], {"ort_format": True}),
        (["--runtime", "onnxruntime-training"], {"runtime": "onnxruntime-training"}),
        (["--fused-step"], {"fused_step": True}),
        (["--batch-norm", "frozen"], {"batch_norm": "frozen"}),
        (["--running-var", "biased"], {"running_var": "biased"}),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_options_of_generate(capsys, tmp_path, options, settings):
    """Each writes what its argument does, and something else than no option."""
    proto = convolutional() if {"--batch-norm", "--running-var"} & set(options) else perceptron()
    onnx.save(proto, tmp_path / "model.onnx")
    hidden = next(n.output[0] for n in proto.graph.node if n.op_type == "Relu")
    options = [hidden if word == "HIDDEN" else word for word in options]
    settings = {
        k: [hidden if n == "HIDDEN" else n for n in v] if isinstance(v, list) else v for k, v in settings.items()
    }
    status, _, err = run(capsys, "generate", tmp_path / "model.onnx", "--output", tmp_path / "cli", *MANY, *options)
    assert (status, err) == (0, "")
    generate(tmp_path / "model.onnx", tmp_path / "python", **settings)
    generate(tmp_path / "model.onnx", tmp_path / "plain")
    assert contents(tmp_path / "cli") == contents(tmp_path / "python")
    assert contents(tmp_path / "cli") != contents(tmp_path / "plain")


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ([], {"recompute": None}),
        (["--recompute"], {"recompute": True}),
        (["--recompute", "1000000", "--dimension-size", "n=8"], {"recompute": 1000000, "dimension_sizes": {"n": 8}}),
        (["--recompute", "/a/*", "/b"], {"recompute": ["/a/*", "/b"]}),
        (["--dimension-size", "n=8", "--dimension-size", "a=b=3"], {"dimension_sizes": {"n": 8, "a=b": 3}}),
        (["--custom-op-library", "lib.so"], {"custom_op_library": "lib.so"}),
    ],
)
def test_options_that_are_read_as_something_else(capsys, monkeypatch, options, settings):
    given = {}
    monkeypatch.setattr("artifacts.generate.generate_artifacts", lambda **settings: given.update(settings) or "made")
    assert run(capsys, "generate", "m.onnx", "--output", "o", *options) == (0, "made\n", "")
    assert {name: given[name] for name in settings} == settings
    assert (given["model"], given["artifact_directory"]) == ("m.onnx", "o")


def test_export_writes_what_the_module_does(capsys, model, tmp_path):
    made = generate(model, tmp_path / "out")
    training = begin(made)
    training.step(*random_batch(8))
    CheckpointState.save_checkpoint(training.state, tmp_path / "trained")
    for name, outputs in {"whole": ["scores"], "loss": [training.module.output_names()[0], "scores"]}.items():
        options = [] if name == "whole" else ["--graph-output", *outputs]
        exported, expected = tmp_path / f"{name}.onnx", tmp_path / f"{name}_expected.onnx"
        status, out, err = run(capsys, "export", tmp_path / "trained", made.eval_model, "--output", exported, *options)
        assert (status, err) == (0, "")
        assert out == f"outputs: {', '.join(outputs)}\nfile:\n  {exported}\n"
        training.module.export_model_for_inferencing(expected, outputs)
        assert exported.read_bytes() == expected.read_bytes()
    run(capsys, "export", made.checkpoint, made.eval_model, "--output", tmp_path / "untrained.onnx")
    assert (tmp_path / "untrained.onnx").read_bytes() != (tmp_path / "whole.onnx").read_bytes()


def test_describe_a_checkpoint(capsys, model, tmp_path):
    made = generate(model, tmp_path / "out", frozen_params=WEIGHTS[:1])
    status, out, _ = run(capsys, "describe", made.checkpoint)
    assert status == 0
    assert out.splitlines()[:6] == [
        "trained: 3 weights, 362 elements",
        "  Perceptron/Linear/bias      float32[32]",
        "  Perceptron/Linear/weight_1  float32[32, 10]",
        "  Perceptron/Linear/bias_1    float32[10]",
        "frozen: 1 weight, 2,048 elements",
        "  Perceptron/Linear/weight  float32[64, 32]",
    ]
    assert "step" not in out
    training = begin(made, seed=3)
    training.optimizer.set_learning_rate(0.25)
    for _ in range(2):
        training.step(*random_batch(8))
    training.state.properties["epoch"] = 7
    CheckpointState.save_checkpoint(training.state, tmp_path / "saved", include_optimizer_state=True)
    lines = run(capsys, "describe", tmp_path / "saved")[1].splitlines()
    assert "group0: step 2, learning rate 0.25" in lines
    assert "  Perceptron/Linear/bias_1    momentum0 float32[10]" in lines
    assert {"epoch: 7", "seed: 3", "runs: 2", "learning_rate: 0.25", "memory: average of g, average of g²"} <= {*lines}


def test_describe_gradients_and_nominal_checkpoints(capsys, model, tmp_path):
    training = begin(generate(model, tmp_path / "out"))
    training.accumulate(*random_batch(8))
    CheckpointState.save_checkpoint(
        training.state, tmp_path / "saved", include_optimizer_state=True, include_gradients=True
    )
    lines = run(capsys, "describe", tmp_path / "saved")[1].splitlines()
    assert "group0: step 0, learning rate 0.001" in lines
    assert "onnxblock.gradients: step 0" in lines
    assert "  Perceptron/Linear/bias      gradient float32[32]" in lines
    made = generate(model, tmp_path / "nominal", nominal_checkpoint=True)
    lines = run(capsys, "describe", made.nominal_checkpoint)[1].splitlines()
    assert lines[:3] == ["nominal: names and types only", "trained: 4 weights", "  Perceptron/Linear/weight    float32"]


def test_describe_a_model(capsys, model, tmp_path):
    made = generate(model, tmp_path / "out")
    for path, kind in (
        (made.training_model, "training"),
        (made.eval_model, "eval"),
        (made.optimizer_model, "optimizer"),
    ):
        status, out, _ = run(capsys, "describe", path)
        lines = [re.sub(" +", " ", line) for line in out.splitlines()]
        manifest = overview.read_generated(path)[1]
        assert status == 0
        assert lines[0] == f"{kind} model for {' and '.join(manifest.runtimes)}"
        assert f"inputs: {len(manifest.inputs)}" in lines
        assert all(any(line.startswith(f" {p.name} {p.dtype}[") for line in lines) for p in manifest.inputs)
        assert (
            lines[-1] == f"carried from step to step: {len(manifest.state)}, of these in place: {len(manifest.state)}"
        )
    assert " learning_rate float32[1] learning_rate" in lines
    assert " Perceptron/Linear/bias.momentum1 float32[32] moment of Perceptron/Linear/bias" in lines
    assert "memory: average of g, average of g²" in lines
    (out,) = [line for line in run(capsys, "describe", made.training_model)[1].splitlines() if line.startswith("  x ")]
    assert out.split() == ["x", "float32[n,", "64]", "user"]


def test_the_commands_of_the_readme(capsys, model, monkeypatch):
    monkeypatch.chdir(model.parent)
    lines = re.findall(r"^python -m artifacts (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        assert run(capsys, *shlex.split(line, comments=True))[0::2] == (0, "")
    onnx.checker.check_model(onnx.load("trained.onnx"), full_check=True)


# ------------------------------------------------------------------------------------------------------- endings


@pytest.mark.parametrize(
    "argv",
    [
        ["inspect", "nothing.onnx"],
        ["generate", "nothing.onnx", "--output", "o"],
        ["generate", "model.onnx", "--output", "o", *MANY, "--train", "Perceptron/Linear/weigth"],
        ["generate", "model.onnx", "--output", "o", "--fused-step", "--loss", "MSELoss"],
        ["generate", "model.onnx", "--output", "o", "--recompute", "0"],
        ["generate", "model.onnx", "--output", "o", *MANY, "--dimension-size", "n=0"],
        ["describe", "nothing"],
        ["describe", "nothing.onnx"],
        ["describe", "model.onnx"],
        ["export", "out/checkpoint", "out/training_model.onnx", "--output", "o"],
        ["export", "out/checkpoint", "out/eval_model.onnx", "--output", "o", "--graph-output", "score"],
        ["export", "nominal/nominal_checkpoint", "nominal/eval_model.onnx", "--output", "o"],
        ["export", "other/checkpoint", "out/eval_model.onnx", "--output", "o"],
        ["export", "out/checkpoint", "bare.onnx", "--output", "o"],
    ],
    ids=" ".join,
)
def test_what_the_library_refuses(capsys, model, monkeypatch, argv):
    monkeypatch.chdir(model.parent)
    made = generate(model, Path("out"))
    generate(model, Path("nominal"), nominal_checkpoint=True)
    generate(perceptron(hidden=3), Path("other"))
    without_forward_model(made.eval_model, "bare.onnx")
    arguments = vars(cli._parser().parse_args(argv))
    command = arguments.pop("command")
    with pytest.raises(onnxblock.OnnxBlockError) as raised:
        command(**arguments)
    assert run(capsys, *argv) == (1, "", f"{raised.value}\n")
    assert "\n  " in str(raised.value)
    assert not Path("o").exists()


def test_the_remedy_of_an_evaluation_model_that_carries_no_forward_model(capsys, model, tmp_path):
    made = generate(model, tmp_path / "out")
    without_forward_model(made.eval_model, tmp_path / "bare.onnx")
    argv = ["export", made.checkpoint, tmp_path / "bare.onnx", "--output", tmp_path / "o.onnx"]
    assert "--graph-output" in run(capsys, *argv)[2]
    assert run(capsys, *argv, "--graph-output", "scores")[0] == 0
    assert [value.name for value in onnx.load(tmp_path / "o.onnx").graph.output] == ["scores"]


def test_an_interruption_has_no_traceback(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("onnxblock.inspection.inspect", interrupted)
    assert run(capsys, "inspect", "m.onnx") == (130, "", "")


def test_other_faults_are_not_hidden(monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("onnxblock.inspection.inspect", fails)
    with pytest.raises(ZeroDivisionError):
        cli.main(["inspect", "m.onnx"])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("argv", [["generate", "--help"], ["inspect", "model.onnx"]], ids=" ".join)
def test_a_closed_pipe_has_no_traceback(model, argv):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ran = start(*argv, cwd=model.parent, stdout=closed, environment={"PYTHONUNBUFFERED": ""})
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_as_a_module_and_as_a_script(model, tmp_path):
    made = generate(model, tmp_path / "out")
    ran = start("describe", made.optimizer_model, stdout=subprocess.PIPE, environment={"PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.decode("ascii").splitlines() == [
        line.replace("²", "\\xb2") for line in overview.overview(made.optimizer_model).splitlines()
    ]
    ran = start("inspect", "nothing.onnx", cwd=tmp_path, stdout=subprocess.PIPE)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr.startswith(b"there is no file")
    (script,) = re.findall(
        r'^\[project\.scripts\]\nonnxblock-artifacts = "(\S+):(\S+)"$',
        (ROOT / "pyproject.toml").read_text(),
        re.MULTILINE,
    )
    assert getattr(importlib.import_module(script[0]), script[1]) is cli.main
