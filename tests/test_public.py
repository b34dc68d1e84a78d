"""The public names, and the signatures of the original's functions and of its runtime, as its scripts use them."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from enum import Enum
from functools import cached_property
from typing import Any

import pytest

import artifacts
import onnxblock
from artifacts import api

# The original's public names (onnxruntime-training 1.19.2), by the modules that take their place.
ORIGINAL_NAMES = {
    "onnxblock": "Block ForwardBlock TrainingBlock base blocks custom_op_library empty_base load_checkpoint_to_model "
    "loss optim save_checkpoint",
    "onnxblock.blocks": "Abs Add Block Cast Clip Constant Div InputLike LabelEncoder Linear Log Mul Neg PassThrough "
    "Pow ReduceAllL2 ReduceMean ReduceSum SequenceConstruct Sigmoid Sub",
    "onnxblock.loss": "BCEWithLogitsLoss CrossEntropyLoss L1Loss MSELoss",
    "onnxblock.optim": "AdamW ClipGradNorm SGD",
    "artifacts": "LossType OptimType generate_artifacts",
    "artifacts.api": "CheckpointState LinearLRScheduler Module Optimizer",
}

# Parameters without annotations; what is keyword-only in ours is our own addition.
ORIGINAL_SIGNATURES = {
    artifacts.generate_artifacts: "model, requires_grad=None, frozen_params=None, loss=None, optimizer=None, "
    "artifact_directory=None, prefix='', ort_format=False, custom_op_library=None, additional_output_names=None, "
    "nominal_checkpoint=False, loss_input_names=None",
    onnxblock.base: "model, model_path=None",
    onnxblock.empty_base: "opset_version=None",
    onnxblock.custom_op_library: "custom_op_library_path",
    onnxblock.save_checkpoint: "parameters, path_to_checkpoint, nominal_checkpoint=False",
    onnxblock.load_checkpoint_to_model: "path_to_checkpoint, model",
    onnxblock.Block: "temp_file_name='temp.onnx'",
    onnxblock.Block.build: "self, *args, **kwargs",
    onnxblock.Block.__call__: "self, *args, **kwargs",
    onnxblock.Block.infer_shapes_on_base: "self",
    onnxblock.ForwardBlock.to_model_proto: "self",
    onnxblock.TrainingBlock.requires_grad: "self, argument_name, value=True",
    onnxblock.TrainingBlock.parameters: "self",
    onnxblock.TrainingBlock.to_model_proto: "self",
    api.CheckpointState.load_checkpoint: "checkpoint_uri",
    api.CheckpointState.save_checkpoint: "state, checkpoint_uri, include_optimizer_state=False",
    api.Module: "train_model_uri, state, eval_model_uri=None, device='cpu', session_options=None",
    api.Module.__call__: "self, *user_inputs",
    api.Module.train: "self, mode=True",
    api.Module.eval: "self",
    api.Module.lazy_reset_grad: "self",
    api.Module.get_contiguous_parameters: "self, trainable_only=False",
    api.Module.get_parameters_size: "self, trainable_only=True",
    api.Module.copy_buffer_to_parameters: "self, buffer, trainable_only=True",
    api.Module.export_model_for_inferencing: "self, inference_model_uri, graph_output_names",
    api.Module.input_names: "self",
    api.Module.output_names: "self",
    api.Optimizer: "optimizer_uri, module",
    api.Optimizer.step: "self",
    api.Optimizer.set_learning_rate: "self, learning_rate",
    api.Optimizer.get_learning_rate: "self",
    api.LinearLRScheduler: "optimizer, warmup_step_count, total_step_count, initial_lr",
    api.LinearLRScheduler.step: "self",
}


def described(function: Any) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return ", ".join(
        stars.get(p.kind, "") + p.name + ("" if p.default is p.empty else f"={p.default!r}")
        for p in inspect.signature(function).parameters.values()
        if p.kind is not p.KEYWORD_ONLY
    )


@pytest.mark.parametrize("function", ORIGINAL_SIGNATURES, ids=lambda f: f.__qualname__)
def test_signatures_of_the_original(function):
    assert described(function) == ORIGINAL_SIGNATURES[function]
    added = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert all(p.default is not p.empty for p in added)


def test_enumerations_of_the_original():
    def members(kind: type[Enum]) -> dict[str, int]:
        return {member.name: member.value for member in kind}

    assert members(artifacts.LossType) == {"MSELoss": 1, "CrossEntropyLoss": 2, "BCEWithLogitsLoss": 3, "L1Loss": 4}
    assert members(artifacts.OptimType) == {"AdamW": 1, "SGD": 2}


def test_properties_of_the_original():
    for kind, properties in (
        (api.CheckpointState, "parameters properties"),
        (api.Parameter, "name data grad requires_grad"),
        (onnxblock.Block, "base"),
    ):
        for name in properties.split():
            assert isinstance(inspect.getattr_static(kind, name), (property, cached_property)), name
    for name in ("__getitem__", "__setitem__", "__contains__", "__iter__", "__len__"):
        assert callable(getattr(api.Parameters, name))
        assert callable(getattr(api.Properties, name))


@pytest.mark.parametrize("module", ORIGINAL_NAMES)
def test_names(module):
    found = importlib.import_module(module)
    assert set(ORIGINAL_NAMES[module].split()) <= set(found.__all__)
    assert len(set(found.__all__)) == len(found.__all__)
    assert set(found.__all__) <= set(dir(found))
    for name in found.__all__:
        value = getattr(found, name)
        assert value is not None
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module}.{name} has no docstring"
    with pytest.raises(AttributeError, match="no_such_name"):
        found.no_such_name  # noqa: B018 - looking it up is the test
    namespace: dict[str, Any] = {}
    exec(f"from {module} import *", namespace)
    assert set(found.__all__) <= namespace.keys()


@pytest.mark.parametrize("module", ORIGINAL_NAMES)
def test_modules_import_first_and_alone(module):
    """In a fresh interpreter, each first: no order of imports is asked for, and nothing is printed."""
    names = ", ".join(ORIGINAL_NAMES[module].split())
    code = f"from {module} import {names}"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        (onnxblock, "gradient_", "gradient"),
        (artifacts, "generate_artifact", "generate_artifacts"),
        (api, "Modul", "Module"),
    ],
)
def test_a_name_that_is_not_there_lets_python_say_the_nearest(module, name, near):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'") as raised:
        getattr(module, name)
    assert (raised.value.name, raised.value.obj) == (name, module)
    assert near in dir(module)


def test_blocks_may_pass_on_what_the_original_took():
    class Named(onnxblock.Block):
        def __init__(self):
            super().__init__("temporary.onnx")

        def build(self, name):
            return name

    with onnxblock.empty_base() as graph:
        graph.input("x", 1, [2])
        assert Named()("x") == "x"
