"""Properties that every optimizer has.  A new optimizer is a new row in CASES."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxblock
from onnxblock import names, optim
from onnxblock.errors import BlockBuildError, ParameterError
from onnxblock.graph.inplace import InPlace
from tests.in_place import run_bound, settings, shuffled
from tests.optim import reference
from tests.optim.stepping import (
    expected_steps,
    gradients,
    pairs,
    run_sequence_steps,
    run_steps,
    scalars,
    sequence_model,
    start,
    step_model,
)


@dataclass(frozen=True)
class Case:
    """An optimizer, and the same in NumPy."""

    optimizer: onnxblock.Block
    update: reference.Update
    settings: dict[str, Any] = field(default_factory=dict)
    max_norm: float | None = None

    def clip(self, given):
        return given if self.max_norm is None else reference.clip_norm(given, self.max_norm)


CASES = {
    "SGD": Case(optim.SGD(), reference.sgd),
    "SGD clipped": Case(optim.SGD(optim.ClipGradNorm(1.5)), reference.sgd, max_norm=1.5),
    "AdamW": Case(optim.AdamW(), reference.adamw_original),
    "AdamW with decay": Case(
        optim.AdamW(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
        reference.adamw_original,
        {"betas": (0.8, 0.95), "eps": 1e-3, "decay": 0.1},
    ),
    "AdamW uncorrected": Case(
        # The original rounds 0.999 to float32, which shows in the first steps where nothing corrects for it.
        optim.AdamW(bias_correction=False, betas=(0.875, 0.984375)),
        reference.adamw_original,
        {"correct": False, "betas": (0.875, 0.984375)},
    ),
    "AdamW clipped": Case(optim.AdamW(clip_grad=optim.ClipGradNorm(0.01)), reference.adamw_original, max_norm=0.01),
    "AdamW of PyTorch": Case(optim.AdamW(eps=1e-8, weight_decay=0.01, variant="torch"), reference.adamw_torch),
}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_follows_numpy(case, dtype):
    model = step_model(case.optimizer, dtype)
    parameters = start(dtype=dtype)
    found = run_steps(model, parameters)
    expected = expected_steps(case.update, case.optimizer.states, parameters, clip=case.clip, **case.settings)
    assert set(found) == set(expected)
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    for name, array in expected.items():
        assert found[name].dtype == dtype
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
    moved = max(np.abs(found[p] - x).max() for p, x in parameters.items())
    assert moved > 1e-3 * (case.max_norm or 1)


def test_interface(case):
    model = step_model(case.optimizer)
    states = range(case.optimizer.states)
    inputs = [names.LEARNING_RATE, names.STEP]
    for p in start():
        inputs += [p, p + "_grad", *(f"{p}.momentum{k}" for k in states)]
    assert [v.name for v in model.graph.input] == inputs
    assert [v.name for v in model.graph.output] == [
        f"{old}.updated" for p in start() for old in (p, *(f"{p}.momentum{k}" for k in states))
    ]
    assert {n.domain for n in model.graph.node} == {""}
    assert not {n.op_type for n in model.graph.node} & {"Loop", "Scan", "Identity"}
    assert [o.domain for o in model.opset_import] == [""]
    types = {v.name: v.type for v in (*model.graph.input, *model.graph.output)}
    assert all(types[old] == types[new] for old, new in pairs(model).items())
    assert len(pairs(model)) == len(model.graph.output)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_in_place_is_proved(case, dtype):
    model = step_model(case.optimizer, dtype)
    proof = InPlace(model)
    assert [old for old, new in pairs(model).items() if not proof.is_safe(old, new)] == []


def test_in_place_gives_the_same_bits(case):
    model = step_model(case.optimizer)
    state = run_steps(model, start(), 2)
    feeds = {**scalars(3), **state, **{p + "_grad": g for p, g in gradients(3, start()).items()}}
    for seed, setting in enumerate(settings()):
        variant = shuffled(model, seed)
        expected = run_bound(variant, feeds, {}, **setting)
        found = run_bound(variant, feeds, pairs(model), **setting)
        for name, array in expected.items():
            assert np.array_equal(found[name], array), (setting, name)


def test_half_precision_follows_single(case):
    parameters = start(dtype=np.float16)
    model = step_model(case.optimizer, np.float16)
    found = run_steps(model, parameters, 5)
    single = run_steps(step_model(case.optimizer), {p: x.astype(np.float32) for p, x in parameters.items()}, 5)
    for name, array in single.items():
        assert found[name].dtype == (np.float16 if name in parameters else np.float32)
        np.testing.assert_allclose(found[name], array, rtol=1e-2, atol=1e-2)


def test_the_same_model_every_time(case):
    models = [step_model(case.optimizer).SerializeToString(deterministic=True) for _ in range(2)]
    assert models[0] == models[1]


@pytest.mark.parametrize("opset", [18, 20])
def test_older_opsets(case, opset):
    found = run_steps(step_model(case.optimizer, opset=opset), start(), 2)
    for name, array in run_steps(step_model(case.optimizer), start(), 2).items():
        np.testing.assert_array_equal(found[name], array)


def test_with_sequences(case):
    """The form of onnxruntime-training does the same on stock onnxruntime."""
    found = run_sequence_steps(sequence_model(case.optimizer), start())
    expected = run_steps(step_model(case.optimizer), start())
    for name, array in found.items():
        assert array.shape == expected[name].shape
        np.testing.assert_allclose(array, expected[name], rtol=1e-6, atol=1e-6)


def test_parameters_as_training_blocks_return_them(case):
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
    info = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    frozen = helper.make_tensor("f", TensorProto.FLOAT, [2], [1, 2])
    made = set()
    for parameters in ([tensor], ([tensor], [frozen]), ([tensor], []), [info], [("w", 1, (2,))]):
        with onnxblock.empty_base() as graph:
            case.optimizer(parameters)
            made.add(graph.model.SerializeToString(deterministic=True))
    assert len(made) == 1


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ([], ParameterError, "at least one"),
        (([], []), ParameterError, "at least one"),
        ([("w", 1, (2,)), ("w", 1, (2,))], ParameterError, "'w' comes 2 times"),
        ([("w", 7, (2,)), ("k", 6, ())], ParameterError, "'w' is int64; 'k' is int32"),
        (helper.make_tensor("w", 1, [1], [1]), BlockBuildError, "not one TensorProto"),
        ([3], BlockBuildError, "name, element type and shape"),
        ([("learning_rate", 1, (2,))], BlockBuildError, "already has a value called 'learning_rate'"),
    ],
)
def test_what_cannot_be_trained(parameters, error, message):
    with onnxblock.empty_base(), pytest.raises(error, match=message):
        optim.SGD()(parameters)


def test_sequences_are_float32():
    with onnxblock.empty_base(), optim.sequence_form(), pytest.raises(ParameterError, match=r"'w' \(float64\)"):
        optim.AdamW()([("w", TensorProto.DOUBLE, (2,))])


def test_optimizers_without_a_form_for_sequences_say_so():
    class Own(optim.Optimizer):
        def rule(self, step):
            return lambda p, g: [p - g]

    with onnxblock.empty_base(), optim.sequence_form(), pytest.raises(BlockBuildError, match="Own has no form"):
        Own()([("w", 1, (2,))])
