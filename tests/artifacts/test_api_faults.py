"""What does not fit is refused with one exception that names it, and nothing is lost."""

from __future__ import annotations

import re
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import artifacts
from artifacts.api import CheckpointState, Module, Optimizer
from artifacts.api.kernels import missing_kernel
from onnxblock import names
from onnxblock.checkpoint import Checkpoint, Tensor, write_checkpoint
from onnxblock.errors import (
    ArtifactMismatchError,
    FeedError,
    InvalidModelError,
    OnnxBlockError,
    RuntimeUnavailableError,
)
from tests.artifacts import handmade
from tests.artifacts.handmade import TARGET, Files, X, train


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def opened(files):
    return files.open()


@pytest.mark.parametrize(
    ("fed", "words"),
    [
        ((X,), ["takes 2 inputs, 1 were given", "x, target"]),
        ((X, TARGET, TARGET), ["takes 2 inputs, 3 were given"]),
        ((), ["takes 2 inputs, 0 were given"]),
        ((X.astype(np.float64), TARGET), ["'x' is float32[N, 3], the array given is float64[5, 3]", "astype"]),
        ((X[0], TARGET), ["'x' is float32[N, 3], what was given has shape [3]", "array.reshape"]),
        (
            (X[:, :2], TARGET.astype(np.int64)),
            [
                "has shape [5, 2]",
                "'target' is float32[N, 2]",
                "int64[5, 2]",
                "fixed when the model was exported",
                "astype",
            ],
        ),
        ((["a"], TARGET), ["'x' cannot be made of what was given"]),
        ((X, None), ["'target'"]),
    ],
)
def test_arrays_that_do_not_fit(fed, words, opened):
    state, module, _ = opened
    before = {name: p.data.copy() for name, p in state.parameters}
    for mode in (module.train, module.eval):
        mode()
        with pytest.raises(FeedError) as caught:
            module(*fed)
        for word in words:
            assert word in str(caught.value)
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(parameter.data, before[name])
        assert parameter.grad is None or not parameter.grad.any()
    module.train()(X, TARGET)


@pytest.mark.parametrize(
    ("labels", "remedy"),
    [
        (np.zeros((2, 4), np.int64), "CrossEntropyLoss(class_axis=-1)"),
        (np.zeros((2, 3, 4), np.float32), "array.argmax(axis=-1)"),
        (np.zeros(2, np.int64), "array.reshape"),
    ],
)
def test_labels_that_do_not_fit_are_told_what_is_wanted(labels, remedy, tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[N,4,2] x) => (float[N,4,3] y) { y = MatMul(x, w) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    made = artifacts.generate_artifacts(model, loss=artifacts.LossType.CrossEntropyLoss, artifact_directory=tmp_path)
    module = Module(made.training_model, CheckpointState.load_checkpoint(made.checkpoint))
    with pytest.raises(FeedError, match=re.escape(remedy)):
        module(np.ones((2, 4, 2), np.float32), labels)


def test_ortvalues_that_do_not_fit(opened):
    _, module, _ = opened
    doubles = onnxruntime.OrtValue.ortvalue_from_numpy(X.astype(np.float64))
    narrow = onnxruntime.OrtValue.ortvalue_from_numpy(TARGET[:, :1].copy())
    with pytest.raises(FeedError) as caught:
        module(doubles, narrow)
    assert "the OrtValue given is float64[5, 3]" in str(caught.value)
    assert "'target' is float32[N, 2], what was given has shape [5, 1]" in str(caught.value)


def test_sizes_that_disagree_with_each_other(opened):
    _, module, _ = opened
    with pytest.raises(FeedError, match=r"agree with each other:\n    N is 5 in 'x', 3 in 'target'"):
        module(X, TARGET[:3])
    assert float(module(X, TARGET)) == pytest.approx(3.768359)


def test_a_failed_run_keeps_the_request_to_reset(opened):
    state, module, _ = opened
    module(X, TARGET)
    once = state.parameters["W1"].grad.copy()
    module.lazy_reset_grad()
    with pytest.raises(OnnxBlockError):
        module(X, TARGET[:3])
    module(X, TARGET)
    np.testing.assert_array_equal(state.parameters["W1"].grad, once)


def test_evaluation_without_its_model(files):
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training, state).eval()
    for use in (
        lambda: module(X, TARGET),
        module.output_names,
        lambda: module.export_model_for_inferencing("x", ["y"]),
    ):
        with pytest.raises(OnnxBlockError, match="no evaluation model"):
            use()


def test_devices(files):
    with pytest.raises(RuntimeUnavailableError, match=r"no device 'cuad'\. Did you mean 'cuda'"):
        files.open(device="cuad")
    with pytest.raises(RuntimeUnavailableError, match="no device 'cpu:x'"):
        files.open(device="cpu:x")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(RuntimeUnavailableError, match="needs CUDAExecutionProvider"):
            files.open(device="cuda:0")
    _, module, optimizer = files.open(device="cuda", providers=["CPUExecutionProvider"])
    assert train(module, optimizer, 1)


def test_session_options_are_used(files):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    _, module, optimizer = files.open(session_options=options)
    assert train(module, optimizer, 1)[0] == pytest.approx(3.768359)


def test_files_that_are_missing_or_damaged(files, tmp_path):
    state = CheckpointState.load_checkpoint(files.checkpoint)
    with pytest.raises(InvalidModelError, match=r"no model file .*nothing"):
        Module(tmp_path / "nothing.onnx", state)
    (tmp_path / "cut.onnx").write_bytes(files.training.read_bytes()[:100])
    with pytest.raises(InvalidModelError, match=r"cannot load .*cut\.onnx"):
        Module(tmp_path / "cut.onnx", state)


def save(model, path):
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("what", ["opset", "IR version"])
def test_models_newer_than_the_runtime(files, tmp_path, what):
    model = onnx.load(files.training)
    if what == "opset":
        model.opset_import[0].version = 99
    else:
        model.ir_version = 99
    known = rf"t\.onnx: it is of {what} 99, and the installed onnxruntime knows only up to \d+\n"
    with pytest.raises(InvalidModelError, match=known):
        Module(save(model, tmp_path / "t.onnx"), CheckpointState.load_checkpoint(files.checkpoint))


def test_models_in_the_wrong_place(files):
    state = CheckpointState.load_checkpoint(files.checkpoint)
    with pytest.raises(ArtifactMismatchError, match="is the eval model, where the training model is expected"):
        Module(files.evaluation, state)
    module = Module(files.training, state)
    with pytest.raises(ArtifactMismatchError, match="is the training model, where the optimizer model is expected"):
        Optimizer(files.training, module)


def test_models_for_the_other_runtime(files, tmp_path):
    state = CheckpointState.load_checkpoint(files.checkpoint)
    other = save(handmade.training(runtimes=("onnxruntime-training",)), tmp_path / "t.onnx")
    with pytest.raises(ArtifactMismatchError, match="was made for onnxruntime-training only"):
        Module(other, state)


def test_generations_are_not_mixed(files, tmp_path):
    state = CheckpointState.load_checkpoint(files.checkpoint)
    evaluation = save(handmade.evaluation(generation="generation-b"), tmp_path / "e.onnx")
    with pytest.raises(ArtifactMismatchError) as caught:
        Module(files.training, state, evaluation)
    assert str(files.training) in str(caught.value)
    assert str(evaluation) in str(caught.value)
    optimizer = save(handmade.optimizer(generation="generation-b"), tmp_path / "o.onnx")
    with pytest.raises(ArtifactMismatchError, match="generation"):
        Optimizer(optimizer, Module(files.training, state))


def test_checkpoint_of_another_model(files, tmp_path):
    handmade.checkpoint(tmp_path / "same", fingerprint="model-a")
    files.open(tmp_path / "same")
    handmade.checkpoint(tmp_path / "other", fingerprint="model-b")
    with pytest.raises(ArtifactMismatchError, match=r"different models .*model-a and model-b"):
        files.open(tmp_path / "other")


def state_of(tmp_path, **arrays):
    trained = [
        Tensor.from_array(n, a) for n, a in (handmade.parameters() | arrays).items() if n != "b2" and a is not None
    ]
    frozen = [Tensor.from_array("b2", handmade.parameters()["b2"])]
    write_checkpoint(tmp_path / "c", Checkpoint(trained, frozen))
    return CheckpointState.load_checkpoint(tmp_path / "c")


@pytest.mark.parametrize("manifest", [True, False])
def test_checkpoint_without_fingerprint_is_compared(manifest, tmp_path):
    files = Files(tmp_path, manifest=manifest)
    wrong = {"W1": np.zeros((4, 4), np.float32), "b1": np.zeros(4), "extra": np.zeros(2, np.float32)}
    with pytest.raises(ArtifactMismatchError) as caught:
        Module(files.training, state_of(tmp_path, **wrong))
    for problem in (
        "'W1' has shape [4, 3] in the model, [4, 4] in the checkpoint",
        "'b1' is float32 in the model, float64 in the checkpoint",
        "trainable parameter 'extra' of the checkpoint is not in the training model",
    ):
        assert problem in str(caught.value)


def test_parameters_that_are_missing_or_frozen(files, tmp_path):
    tensors = {name: Tensor.from_array(name, array) for name, array in handmade.parameters().items()}
    write_checkpoint(tmp_path / "c", Checkpoint([tensors["W1"]], [tensors["b1"], tensors["b2"]]))
    with pytest.raises(ArtifactMismatchError) as caught:
        Module(files.training, CheckpointState.load_checkpoint(tmp_path / "c"))
    assert "'W2' of the model is not in the checkpoint. Did you mean 'b2' or 'W1'" in str(caught.value)
    assert "'b1' is trained in the model, frozen in the checkpoint" in str(caught.value)


def test_optimizer_of_other_parameters(files, tmp_path):
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training, state)
    partial = save(handmade.optimizer(trained=("W1", "W2")), tmp_path / "o.onnx")
    with pytest.raises(
        ArtifactMismatchError, match="trainable parameter 'b1' of the checkpoint is not in the optimizer"
    ):
        Optimizer(partial, module)


def test_models_without_manifest_that_cannot_train(tmp_path):
    handmade.checkpoint(tmp_path / "c")
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    lost = handmade.training(manifest=False)
    kept = [o for o in lost.graph.output if o.name != names.accumulated_gradient("b1")]
    del lost.graph.output[:]
    lost.graph.output.extend(kept)
    with pytest.raises(InvalidModelError, match=r"no output with the accumulated gradient for: b1_grad\.accumulation"):
        Module(save(lost, tmp_path / "lost.onnx"), state)
    module = Module(save(handmade.training(manifest=False), tmp_path / "t.onnx"), state)
    unknown = handmade.optimizer("SGD", manifest=False)
    unknown.graph.input.append(handmade.info("decay", [1]))
    with pytest.raises(InvalidModelError, match="'decay' is none that an optimizer model has"):
        Optimizer(save(unknown, tmp_path / "o.onnx"), module)
    without = handmade.optimizer("SGD", manifest=False)
    del without.graph.output[0]
    with pytest.raises(InvalidModelError, match="no output with the next value of: W1"):
        Optimizer(save(without, tmp_path / "p.onnx"), module)


def test_models_of_the_original_runtime(tmp_path):
    handmade.checkpoint(tmp_path / "c")
    model = handmade.training(manifest=False)
    del model.functions[:]
    with pytest.raises(InvalidModelError, match="not a registered function/op"):
        Module(save(model, tmp_path / "t.onnx"), CheckpointState.load_checkpoint(tmp_path / "c"))


def test_damaged_manifest(files, tmp_path):
    model = handmade.training()
    model.metadata_props[0].value = "{"
    with pytest.raises(InvalidModelError, match="manifest is not JSON"):
        Module(save(model, tmp_path / "t.onnx"), CheckpointState.load_checkpoint(files.checkpoint))


def test_learning_rate_and_seed_out_of_range(opened):
    _, module, optimizer = opened
    with pytest.raises(OnnxBlockError, match="not a finite number"):
        optimizer.set_learning_rate(float("nan"))
    with pytest.raises(OnnxBlockError, match="63-bit"):
        module.set_seed(-1)


def test_a_model_without_reset_input_is_reset_all_the_same(tmp_path):
    model = handmade.training(manifest=False)
    kept = [i for i in model.graph.input if i.name != names.LAZY_RESET_GRAD]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.append(handmade.constant(names.LAZY_RESET_GRAD, np.array([False])))
    handmade.checkpoint(tmp_path / "c")
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    module = Module(save(model, tmp_path / "t.onnx"), state)
    module(X, TARGET)
    once = state.parameters["W1"].grad.copy()
    module.lazy_reset_grad()
    module(X, TARGET)
    np.testing.assert_array_equal(state.parameters["W1"].grad, once)


def test_providers_that_are_not_there(files, monkeypatch):
    """onnxruntime itself would go on without them."""
    with pytest.raises(
        RuntimeUnavailableError, match=r"does not have CPUExecutonProvider\. Did you mean 'CPUExecution"
    ):
        files.open(providers=["CPUExecutonProvider"])
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        wanted = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
        with pytest.raises(RuntimeUnavailableError, match=r"does not have CUDAExecutionProvider\.\n  It has "):
            files.open(providers=wanted)
    # a build for a device, on a machine without one
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["ROCMExecutionProvider", "CPUExecutionProvider"]
    )
    real = onnxruntime.InferenceSession

    def started(path, options, providers):
        assert providers == ["ROCMExecutionProvider", "CPUExecutionProvider"]
        return real(path, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "InferenceSession", started)
    with pytest.raises(RuntimeUnavailableError, match="cannot start ROCMExecutionProvider, and would run on CPU"):
        files.open(device="rocm")


@pytest.mark.parametrize(
    ("dtype", "operator", "remedy"),
    [("BFLOAT16", "MatMul", "Train in float32"), ("DOUBLE", "Erf", "Train in float32")],
)
def test_element_types_without_kernels(dtype, operator, remedy, tmp_path):
    kind = getattr(TensorProto, dtype)
    if dtype == "BFLOAT16" and helper.tensor_dtype_to_np_dtype(kind) == np.float32:
        pytest.skip("the oldest onnx has no arrays of bfloat16")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], "multiply"), helper.make_node("Erf", ["h"], ["y"], "act")],
        "g",
        [helper.make_tensor_value_info("x", kind, ["n", 3])],
        [helper.make_tensor_value_info("y", kind, ["n", 2])],
        [helper.make_tensor("w", kind, [3, 2], np.ones(6))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    made = artifacts.generate_artifacts(model, loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path)
    state = CheckpointState.load_checkpoint(made.checkpoint)
    name, spelling = {"MatMul": "multiply", "Erf": "act"}[operator], {"DOUBLE": "float64"}.get(dtype, dtype.lower())
    with pytest.raises(InvalidModelError) as caught:
        Module(made.training_model, state)
    what, todo = str(caught.value).split("\n")
    assert what.startswith(f"CPUExecutionProvider has no kernel for node {name!r} of {made.training_model}: {operator}")
    assert what.endswith(f"with inputs of {spelling}")
    assert remedy in todo


def test_missing_kernels_without_the_package_onnx(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxblock.graph.load", None)
    message = (
        "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Erf(13) node with name 'e'"
    )
    what, remedy = missing_kernel(message, tmp_path / "m.onnx", ["XProvider"])
    assert what == f"XProvider has no kernel for node 'e' of {tmp_path / 'm.onnx'}: Erf, in its form of opset 13"
    assert "another release" in remedy
    assert missing_kernel("something else", tmp_path / "m.onnx", ["XProvider"]) is None
