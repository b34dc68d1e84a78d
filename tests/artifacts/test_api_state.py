"""States, parameters and properties; nominal states; all parameters in one array."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest

from artifacts.api import CheckpointState, Module, Optimizer
from onnxblock import names
from onnxblock.checkpoint import Checkpoint, Tensor, read_checkpoint, write_checkpoint
from onnxblock.errors import CheckpointError, ParameterError, UnknownNameError
from tests.artifacts import handmade
from tests.artifacts.handmade import TARGET, Files, X, parameters, train


def test_mapping_of_parameters(tmp_path):
    handmade.checkpoint(tmp_path / "c")
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    assert len(state.parameters) == 4
    assert "W1" in state.parameters
    assert "w1" not in state.parameters
    assert repr(state.parameters["b2"]) == "Parameter(name=b2, requires_grad=False)"
    assert repr(state.parameters) == "Parameters(W1, b1, W2, b2)"
    with pytest.raises(KeyError, match=r"no parameter 'W11'\. Did you mean 'W1'"):
        state.parameters["W11"]
    with pytest.raises(UnknownNameError):
        state.parameters["W11"] = np.zeros(3)


def test_assigning_data_before_a_module_exists(tmp_path):
    handmade.checkpoint(tmp_path / "c")
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    parameter = state.parameters["b1"]
    data = parameter.data
    parameter.data = np.ones(4, np.float32)
    assert data.tolist() == [1, 1, 1, 1]
    assert parameter.grad is None
    with pytest.raises(ParameterError, match=r"shape \[4\], the array that was given \[3\]"):
        parameter.data = np.ones(3, np.float32)
    with pytest.raises(ParameterError, match="is float32, the array that was given float64"):
        parameter.data = np.ones(4)
    with pytest.raises(ParameterError, match="no Module was made"):
        parameter.grad = np.ones(4, np.float32)
    with pytest.raises(ParameterError, match="it is frozen"):
        state.parameters["b2"].grad = np.ones(2, np.float32)
    with pytest.raises(AttributeError):
        parameter.requires_grad = False
    assert data.tolist() == [1, 1, 1, 1]


def test_properties(tmp_path):
    handmade.checkpoint(tmp_path / "c", fingerprint="model-a")
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    properties = state.properties
    assert (len(properties), list(properties)) == (0, [])
    properties["flag"], properties["count"], properties["text"] = True, np.int64(2), "grüße"
    properties["rate"], properties["half"] = 0.1, np.float32(0.5)
    assert dict(properties) == {"count": 2, "flag": 1, "half": 0.5, "rate": float(np.float32(0.1)), "text": "grüße"}
    assert [name for name, _ in properties] == sorted(dict(properties))
    for value in (None, [1], 2**63):
        with pytest.raises(TypeError, match="'bad'"):
            properties["bad"] = value
    with pytest.raises(TypeError, match="kept by the library"):
        properties[names.STATE_PROPERTY] = "x"
    with pytest.raises(KeyError, match="Did you mean 'count'"):
        properties["counts"]
    CheckpointState.save_checkpoint(state, tmp_path / "d")
    again = CheckpointState.load_checkpoint(tmp_path / "d")
    assert dict(again.properties) == dict(properties)
    assert json.loads(read_checkpoint(tmp_path / "d").properties[names.STATE_PROPERTY]) == {
        "version": 1,
        "model": "model-a",
    }


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"version":9}'])
def test_unreadable_library_property(text, tmp_path):
    write_checkpoint(tmp_path / "c", Checkpoint([], [], properties={names.STATE_PROPERTY: text}))
    with pytest.raises(CheckpointError, match=names.STATE_PROPERTY):
        CheckpointState.load_checkpoint(tmp_path / "c")


def test_unknown_library_state_is_kept(tmp_path):
    text = '{"version":1,"later":[1,2]}'
    write_checkpoint(tmp_path / "c", Checkpoint([], [], properties={names.STATE_PROPERTY: text}))
    CheckpointState.save_checkpoint(CheckpointState.load_checkpoint(tmp_path / "c"), tmp_path / "d")
    assert read_checkpoint(tmp_path / "d").properties == {names.STATE_PROPERTY: text}


def test_saving_over_the_loaded_file_with_external_data(tmp_path):
    handmade.checkpoint(tmp_path / "c", external=True)
    before = (tmp_path / "c.data").read_bytes()
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    state.parameters["W1"].data[...] = 5
    assert (tmp_path / "c.data").read_bytes() == before
    CheckpointState.save_checkpoint(state, tmp_path / "c")
    assert (tmp_path / "c.data").stat().st_size == 4 * 26  # every parameter, whatever its size
    again = CheckpointState.load_checkpoint(tmp_path / "c")
    assert (again.parameters["W1"].data == 5).all()
    np.testing.assert_array_equal(again.parameters["W2"].data, parameters()["W2"])


def test_one_array_of_all_parameters(tmp_path):
    state, module, optimizer = Files(tmp_path).open()
    ordered = [parameters()[name].ravel() for name in ("W1", "b1", "W2", "b2")]
    whole = module.get_contiguous_parameters()
    assert isinstance(whole, onnxruntime.OrtValue)
    np.testing.assert_array_equal(whole.numpy(), np.concatenate(ordered))
    trained = module.get_contiguous_parameters(trainable_only=True)
    np.testing.assert_array_equal(trained.numpy(), np.concatenate(ordered[:3]))
    assert (module.get_parameters_size(), module.get_parameters_size(trainable_only=False)) == (24, 26)
    losses = train(module, optimizer, 2)
    module.copy_buffer_to_parameters(trained)
    assert float(module(X, TARGET)) == losses[0]
    module.copy_buffer_to_parameters(np.zeros((1, 26), np.float32), trainable_only=False)
    assert not state.parameters["b2"].data.any()
    for wrong in (np.zeros(23, np.float32), np.zeros(24)):
        with pytest.raises(ParameterError, match="the parameters are 24 of float32"):
            module.copy_buffer_to_parameters(wrong)


def test_one_array_holds_float32_only(tmp_path):
    files = Files(tmp_path)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training, state)
    stored = state.storage.parameter("b2")
    stored.element_type = Tensor.from_array("x", np.zeros(1)).element_type
    assert module.get_parameters_size() == 24
    with pytest.raises(ParameterError, match="not float32: b2"):
        module.get_contiguous_parameters()


@pytest.mark.parametrize("form", [{}, {"manifest": False}])
def test_nominal_state_trains_once_it_has_data(form, tmp_path):
    files = Files(tmp_path, **form)
    _, module, optimizer = files.open()
    buffer = module.get_contiguous_parameters()
    expected = train(module, optimizer, 3)
    handmade.checkpoint(tmp_path / "nominal", nominal=True)
    state, module, optimizer = files.open(tmp_path / "nominal")
    assert module.get_parameters_size(False) == 26
    assert list(dict(state.parameters)) == ["W1", "b1", "W2", "b2"]
    for use in (
        lambda: state.parameters["W1"].data,
        lambda: module(X, TARGET),
        lambda: module.eval()(X, TARGET),
        optimizer.step,
        module.get_contiguous_parameters,
        lambda: module.copy_buffer_to_parameters(np.zeros(24, np.float32)),
    ):
        with pytest.raises(CheckpointError, match="nominal"):
            use()
    CheckpointState.save_checkpoint(state, tmp_path / "again")
    assert read_checkpoint(tmp_path / "again").nominal
    module.train().copy_buffer_to_parameters(buffer, trainable_only=False)
    assert train(module, optimizer, 3) == expected
    CheckpointState.save_checkpoint(state, tmp_path / "full")
    assert not read_checkpoint(tmp_path / "full").nominal


def test_optimizer_state_survives_a_module_without_optimizer(tmp_path):
    files = Files(tmp_path)
    state, module, optimizer = files.open()
    train(module, optimizer, 2)
    CheckpointState.save_checkpoint(state, tmp_path / "first", include_optimizer_state=True)
    loaded = CheckpointState.load_checkpoint(tmp_path / "first")
    Module(files.training, loaded)
    CheckpointState.save_checkpoint(loaded, tmp_path / "second", include_optimizer_state=True)
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()


def test_optimizer_state_that_does_not_fit(tmp_path):
    files = Files(tmp_path)
    state, module, optimizer = files.open()
    train(module, optimizer, 1)
    held = state.storage.optimizer.moments
    del held["b1"]
    held["W2"].pop()
    held["W1"][0] = Tensor.from_array("momentum0", np.zeros((3, 4), np.float32))
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    with pytest.raises(CheckpointError) as caught:
        files.open(tmp_path / "saved")
    for problem in (
        "momentum0 of parameter 'b1' is missing",
        "momentum1 of parameter 'W2' is missing",
        "momentum0 of parameter 'W1' is float32[3, 4], the optimizer keeps float32[4, 3]",
    ):
        assert problem in str(caught.value)


def test_state_of_another_optimizer_is_used_as_far_as_it_goes(tmp_path):
    files = Files(tmp_path)
    state, module, optimizer = files.open()
    train(module, optimizer, 2)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    (tmp_path / "sgd").mkdir()
    sgd = Files(tmp_path / "sgd", "SGD")
    state = CheckpointState.load_checkpoint(tmp_path / "saved")
    assert Optimizer(sgd.optimizer, Module(sgd.training, state)).completed_steps == 2
