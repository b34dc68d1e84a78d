"""Groups of parameters with settings and learning rates of their own, against PyTorch."""

from __future__ import annotations

import json

import numpy as np
import pytest

import onnxblock
from onnxblock import names, optim
from onnxblock.errors import BlockBuildError, ParameterError
from onnxblock.graph.inplace import InPlace
from onnxblock.optim import Group, ParameterGroups
from tests.optim.stepping import (
    LEARNING_RATE,
    SHAPES,
    STEPS,
    gradients,
    pairs,
    run_steps,
    sequence_model,
    start,
    step_model,
)

OPTIMIZERS = {
    "SGD": (optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "Adam": (optim.Adam, {"weight_decay": 0.1}),
    "Adamax": (optim.Adamax, {"weight_decay": 0.1}),
    "RAdam": (optim.RAdam, {"weight_decay": 0.1}),
    "RMSprop": (optim.RMSprop, {"weight_decay": 0.1, "momentum": 0.5}),
    "Adagrad": (optim.Adagrad, {"weight_decay": 0.1}),
    "Adadelta": (optim.Adadelta, {"weight_decay": 0.1}),
    "Adafactor": (optim.Adafactor, {"weight_decay": 0.1}),
    "AdamW": (lambda **settings: optim.AdamW(variant="torch", eps=1e-8, **settings), {"weight_decay": 0.1}),
}


def torch_groups(name, parameters, common, special, steps=STEPS):
    """The parameters after some steps where those in ``special`` have other settings; all as PyTorch names them."""
    torch = pytest.importorskip("torch")
    tensors = {p: torch.tensor(x, requires_grad=True) for p, x in parameters.items()}
    rest = [p for p in parameters if not any(p in members for members, _ in special)]
    groups = [{"params": [tensors[p] for p in rest]}]
    groups += [{"params": [tensors[p] for p in members], **settings} for members, settings in special]
    theirs = getattr(torch.optim, name)(groups, lr=float(LEARNING_RATE), **common)
    for t in range(1, steps + 1):
        for p, g in gradients(t, parameters).items():
            tensors[p].grad = torch.tensor(g)
        theirs.step()
    return {p: x.detach().numpy() for p, x in tensors.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_groups_of_pytorch(name, dtype):
    make, common = OPTIMIZERS[name]
    ours = ParameterGroups(
        make(**common), Group("bias", weight_decay=0.0), Group("v", learning_rate_scale=3.0, weight_decay=0.5)
    )
    parameters = start(dtype=dtype)
    special = [(["bias"], {"weight_decay": 0.0}), (["v"], {"lr": 3 * float(LEARNING_RATE), "weight_decay": 0.5})]
    expected = torch_groups(name, parameters, common, special)
    model = step_model(ours, dtype)
    found = run_steps(model, parameters)
    # the learning rate of a group is a float32 of its own
    tolerance = 2e-6 if dtype == np.float32 else 2e-7
    for p, array in expected.items():
        np.testing.assert_allclose(found[p], array, rtol=tolerance, atol=tolerance, err_msg=p)
    alike = run_steps(step_model(make(**common), dtype), parameters)
    assert np.array_equal(alike["layer/weight"], found["layer/weight"])
    assert min(np.abs(alike[p] - found[p]).max() for p in ("bias", "v")) > 1e-5
    proof = InPlace(model)
    assert [old for old, new in pairs(model).items() if not proof.is_safe(old, new)] == []


def test_the_same_settings_in_a_group_change_no_bit():
    grouped = ParameterGroups(optim.AdamW(weight_decay=0.1), Group(optim.vectors, learning_rate_scale=1.0))
    found, expected = (run_steps(step_model(o), start()) for o in (grouped, optim.AdamW(weight_decay=0.1)))
    for name, array in expected.items():
        assert np.array_equal(found[name], array)


def test_a_group_costs_its_shared_numbers_only():
    """A group of the same settings adds no node, and one that does not decay saves one."""
    decaying = optim.AdamW(weight_decay=0.1)
    groups = [ParameterGroups(decaying, Group("bias", weight_decay=decay)) for decay in (0.1, 0.0)]
    plain, same, without = (len(step_model(o).graph.node) for o in (decaying, *groups))
    assert same == plain
    assert without == plain - 1


def test_the_first_group_that_matches():
    def wide(parameter):
        return parameter.shape == (3, 4)

    groups = ParameterGroups(
        optim.SGD(), Group("layer/*", optimizer=optim.Adam()), Group(wide, "v", weight_decay=0.1), Group(optim.vectors)
    )
    parameters = {p: optim.Parameter(p, 1, shape) for p, shape in SHAPES.items()}
    kinds = {p: repr(groups.part_for(x).optimizer) for p, x in parameters.items()}
    assert kinds["layer/weight"].startswith("Adam(")
    assert "weight_decay=0.1" in kinds["v"]
    assert kinds["bias"] == repr(optim.SGD())
    assert [optim.vectors(x) for x in parameters.values()] == [False, True, True]
    assert not optim.vectors(optim.Parameter("unknown", 1, None))


def test_names_that_look_like_patterns():
    shapes = {"onnx::MatMul_1": (2,), "w[0]": (2,), "w0": (2,)}
    groups = ParameterGroups(optim.SGD(), Group("w[0]", "onnx::*", learning_rate_scale=0.0))
    found = run_steps(step_model(groups, shapes=shapes), start(shapes=shapes))
    unchanged = [p for p, x in start(shapes=shapes).items() if np.array_equal(x, found[p])]
    # "w[0]" is also a pattern, of w0
    assert unchanged == ["onnx::MatMul_1", "w[0]", "w0"]


def test_inputs_and_what_the_model_says_of_itself():
    inner = optim.AdamW(weight_decay=0.1, clip_grad=optim.ClipGradNorm(1.0))
    groups = ParameterGroups(inner, Group("bias", weight_decay=0.0), Group("v", name="head", learning_rate_scale=2.0))
    for optimizer in (groups, optim.ExponentialMovingAverage(groups)):
        model = step_model(optimizer)
        assert [v.name for v in model.graph.input][:3] == ["learning_rate", "step", "learning_rate.head"]
        about = json.loads(next(p.value for p in model.metadata_props if p.key == names.OPTIMIZER_KEY))
        assert about["learning_rate_scales"] == {"learning_rate.head": 2.0}
        assert (
            "Group('bias', weight_decay=0.0), Group('v', name='head', learning_rate_scale=2.0)" in about["description"]
        )
        assert "clip_grad=ClipGradNorm(1.0)" in about["description"]
        assert about["memory"] == optimizer.memory
    assert groups.memory == inner.memory == "average of g, average of g²"


def test_what_is_kept_of_which_parameter():
    adam, momentum = optim.AdamW(), optim.SGD(momentum=0.9)
    of = {
        ParameterGroups(adam, Group("bias", optimizer=momentum)): "{adam}; bias: momentum",
        ParameterGroups(adam, Group("v", "bias", optimizer=momentum)): "momentum; layer/weight: {adam}",
        ParameterGroups(momentum, Group("layer/*", optimizer=adam)): "momentum; layer/weight: {adam}",
        ParameterGroups(optim.SGD(), Group("*", optimizer=adam)): "{adam}",
        ParameterGroups(adam, Group("bias", optimizer=momentum), Group("v", optimizer=optim.SGD())): (
            "{adam}; bias: momentum; v: nothing"
        ),
        optim.ExponentialMovingAverage(ParameterGroups(adam, Group("bias", optimizer=momentum))): (
            "{adam}, average of p; bias: momentum, average of p"
        ),
    }
    for optimizer, words in of.items():
        metadata = step_model(optimizer).metadata_props
        about = json.loads(next(p.value for p in metadata if p.key == names.OPTIMIZER_KEY))
        assert about["memory"] == words.format(adam=adam.memory)


def test_averages_of_groups_are_those_of_the_parameters():
    groups = ParameterGroups(optim.SGD(), Group("bias", optimizer=optim.Adam()), Group("v", learning_rate_scale=2.0))
    averaged = optim.ExponentialMovingAverage(groups, 0.5)
    found, expected = run_steps(step_model(averaged), start()), run_steps(step_model(groups), start())
    before = run_steps(step_model(groups), start(), STEPS - 1)
    for p in SHAPES:
        assert np.array_equal(found[p], expected[p])
    state = {"layer/weight": 0, "bias": 2, "v": 0}
    earlier = run_steps(step_model(averaged), start(), STEPS - 1)
    for p, k in state.items():
        name = names.moment(p, k)
        np.testing.assert_allclose(found[name], (earlier[name] + found[p]) / 2, rtol=1e-6)
        assert not np.array_equal(before[p], found[p])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group(weight_decay=0.0), "names no parameters"),
        (lambda: Group(3), "3 is neither text nor a function"),
        (lambda: Group("v", learning_rate_scale=-1.0), "learning_rate_scale = -1.0 is not"),
        (lambda: Group("v", learning_rate_scale=float("nan")), "learning_rate_scale = nan is not"),
        (lambda: Group("v", optimizer=optim.SGD(), momentum=0.9), "momentum belongs in the optimizer"),
        (lambda: Group("v", clip_grad=None), "clipped all together"),
        (lambda: Group("v", optimizer=optim.SGD(optim.ClipGradNorm(1.0))), "clipped all together"),
        (lambda: ParameterGroups(optim.SGD()), "nothing is not a list of Group"),
        (lambda: ParameterGroups(optim.SGD(), "v"), "'v' is not a list of Group"),
        (lambda: ParameterGroups(optim.SGD(), Group("a", name="x"), Group("b", name="x")), "'x' comes 2 times"),
        (lambda: ParameterGroups(optim.SGD(), Group("v", weight_decy=0.0)), r"no setting 'weight_decy'. Did you mean"),
        (lambda: ParameterGroups(optim.SGD(), Group("v", weight_decay=-1.0)), "weight_decay = -1.0 is negative"),
        (
            lambda: ParameterGroups(
                optim.ExponentialMovingAverage(ParameterGroups(optim.SGD(), Group("v"))), Group("v")
            ),
            "groups within groups",
        ),
    ],
)
def test_groups_that_mean_nothing(make, message):
    with pytest.raises(BlockBuildError, match=message):
        make()


def test_groups_without_parameters_are_listed():
    groups = ParameterGroups(optim.SGD(), Group("biass", name="one"), Group("*"), Group("v", name="late"))
    with onnxblock.empty_base(), pytest.raises(ParameterError) as caught:
        groups([("bias", 1, ()), ("v", 1, (5,))])
    assert "one Group('biass', name='one'). Did you mean 'bias'?" in str(caught.value)
    assert "late Group('v'" in str(caught.value)
    assert "group2" not in str(caught.value)


def test_groups_have_no_form_for_sequences():
    with pytest.raises(BlockBuildError, match="groups of parameters have no form"):
        sequence_model(ParameterGroups(optim.AdamW(), Group("v", weight_decay=0.1)))
