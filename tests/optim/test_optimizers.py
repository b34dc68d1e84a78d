"""Properties that every optimizer has.  A new optimizer is a new row in CASES."""

from __future__ import annotations

from collections.abc import Callable
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
    LEARNING_RATE,
    SHAPES,
    STEPS,
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
from tests.test_in_place import KINDS


@dataclass(frozen=True)
class Case:
    """An optimizer, and the same in NumPy or PyTorch."""

    optimizer: optim.Optimizer
    update: reference.Update | str
    """A function of :mod:`reference`, or the name of a class of ``torch.optim``."""
    settings: dict[str, Any] = field(default_factory=dict)
    clip: Callable[[list[Any]], list[Any]] = list

    exactness: float = 1e-12
    """How far float64 may be off."""

    @property
    def states(self) -> int:
        return len(self.optimizer.states((2,)))

    def expected(self, parameters, steps=STEPS):
        if not isinstance(self.update, str):
            return expected_steps(self.update, self.states, parameters, steps, self.clip, **self.settings)
        return torch_steps(self.update, parameters, steps, self.clip, **self.settings)


def torch_steps(name, parameters, steps, clip, **settings):
    """The parameters after some steps of an optimizer of PyTorch."""
    torch = pytest.importorskip("torch")
    tensors = {p: torch.tensor(x, requires_grad=True) for p, x in parameters.items()}
    theirs = getattr(torch.optim, name)(tensors.values(), lr=float(LEARNING_RATE), **settings)
    for t in range(1, steps + 1):
        given = gradients(t, parameters)
        for p, g in zip(given, clip(list(given.values())), strict=True):
            tensors[p].grad = torch.tensor(g)
        theirs.step()
    return {p: x.detach().numpy() for p, x in tensors.items()}


def clip_norm(max_norm):
    return lambda given: reference.clip_norm(given, max_norm)


def like_torch(make, name, exactness=1e-12, **settings):
    """An optimizer that has the settings of PyTorch's of the same name."""
    return Case(make(**settings), name, settings, exactness=exactness)


CASES = {
    "SGD": Case(optim.SGD(), reference.sgd),
    "SGD clipped": Case(optim.SGD(optim.ClipGradNorm(1.5)), reference.sgd, clip=clip_norm(1.5)),
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
    "AdamW clipped": Case(
        optim.AdamW(clip_grad=optim.ClipGradNorm(0.01)), reference.adamw_original, clip=clip_norm(0.01)
    ),
    "AdamW of PyTorch": Case(optim.AdamW(eps=1e-8, weight_decay=0.01, variant="torch"), reference.adamw_torch),
    "SGD clipped by value": Case(
        optim.SGD(optim.ClipGradValue(0.3)), reference.sgd, clip=lambda gs: [np.clip(g, -0.3, 0.3) for g in gs]
    ),
    "SGD with momentum": like_torch(optim.SGD, "SGD", momentum=0.9),
    "SGD of Nesterov": like_torch(optim.SGD, "SGD", momentum=0.9, nesterov=True, weight_decay=0.1),
    "SGD dampened": like_torch(optim.SGD, "SGD", momentum=0.9, dampening=0.5),
    "SGD with decay": like_torch(optim.SGD, "SGD", weight_decay=0.1),
    "Adam": like_torch(optim.Adam, "Adam", weight_decay=0.1),
    "Adam of the largest squares": like_torch(optim.Adam, "Adam", weight_decay=0.1, betas=(0.5, 0.6), amsgrad=True),
    "AdamW of the largest squares": Case(
        optim.AdamW(eps=1e-8, weight_decay=0.1, betas=(0.5, 0.6), variant="torch", amsgrad=True),
        "AdamW",
        {"weight_decay": 0.1, "betas": (0.5, 0.6), "amsgrad": True},
    ),
    "Adamax": like_torch(optim.Adamax, "Adamax", betas=(0.8, 0.9), weight_decay=0.1),
    "NAdam": Case(optim.NAdam(weight_decay=0.1), reference.nadam, {"decay": 0.1}),
    # PyTorch keeps the product of the momenta in float32.
    "NAdam of PyTorch": like_torch(optim.NAdam, "NAdam", 1e-6),
    "NAdam with settings": like_torch(
        optim.NAdam, "NAdam", 1e-6, betas=(0.5, 0.9), weight_decay=0.1, momentum_decay=0.1, eps=1e-4
    ),
    "RAdam": like_torch(optim.RAdam, "RAdam", weight_decay=0.1),
    "RAdam adaptive at once": like_torch(optim.RAdam, "RAdam", betas=(0.5, 0.99), eps=1e-4),
    "RMSprop": like_torch(optim.RMSprop, "RMSprop", weight_decay=0.1),
    "RMSprop with all": like_torch(optim.RMSprop, "RMSprop", alpha=0.9, momentum=0.9, centered=True, eps=1e-4),
    "Adagrad": like_torch(
        optim.Adagrad, "Adagrad", lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-4
    ),
    "Adadelta": like_torch(optim.Adadelta, "Adadelta", rho=0.8, weight_decay=0.1),
    "Adafactor": like_torch(optim.Adafactor, "Adafactor", weight_decay=0.1),
    "Adafactor with settings": like_torch(optim.Adafactor, "Adafactor", beta2_decay=-0.5, eps=(1e-4, 0.1), d=1.1),
    "Lion": Case(optim.Lion(weight_decay=0.1), reference.lion, {"decay": 0.1}),
    "Lion without a past": Case(optim.Lion(betas=(0.0, 0.9)), reference.lion, {"betas": (0.0, 0.9)}),
    "LAMB": Case(optim.LAMB(weight_decay=0.1), reference.lamb, {"decay": 0.1}),
    "average": Case(optim.ExponentialMovingAverage(optim.SGD(), 0.9), reference.averaged_sgd, {"decay": 0.9}),
    "average of Adam": Case(optim.ExponentialMovingAverage(optim.Adam()), "Adam"),
}


def test_every_optimizer_is_compared():
    """Groups are, in test_groups.py."""
    compared = {type(case.optimizer).__name__ for case in CASES.values()}
    assert {kind.__name__ for kind in KINDS} == compared | {"ParameterGroups"}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_follows_the_reference(case, dtype):
    model = step_model(case.optimizer, dtype)
    parameters = start(dtype=dtype)
    found = run_steps(model, parameters)
    expected = case.expected(parameters)
    assert set(expected) in (set(parameters), set(found))
    tolerance = 1e-6 if dtype == np.float32 else case.exactness
    for name, array in expected.items():
        assert found[name].dtype == dtype
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
    assert min(np.abs(found[p] - x).max() for p, x in parameters.items()) > 1e-6


def test_interface(case):
    model = step_model(case.optimizer)
    states = {p: range(len(case.optimizer.states(shape))) for p, shape in SHAPES.items()}
    inputs = [names.LEARNING_RATE, names.STEP]
    for p in start():
        inputs += [p, p + "_grad", *(f"{p}.momentum{k}" for k in states[p])]
    assert [v.name for v in model.graph.input] == inputs
    assert [v.name for v in model.graph.output] == [
        f"{old}.updated" for p in start() for old in (p, *(f"{p}.momentum{k}" for k in states[p]))
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


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("SGD", "AdamW"))])
def test_with_sequences(name):
    """The form of onnxruntime-training does the same on stock onnxruntime."""
    case = CASES[name]
    if (isinstance(case.optimizer, optim.SGD) and case.settings) or "largest" in name:
        with pytest.raises(BlockBuildError, match="has no form for onnxruntime-training"):
            sequence_model(case.optimizer)
        return
    found = run_sequence_steps(sequence_model(case.optimizer), start())
    expected = run_steps(step_model(case.optimizer), start())
    for p, array in found.items():
        assert array.shape == expected[p].shape
        np.testing.assert_allclose(array, expected[p], rtol=1e-6, atol=1e-6)


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
