"""Settings of blocks that cannot work are refused, where they are given or when the model is built, in plain words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import onnxblock
from onnxblock import blocks, loss, optim
from onnxblock.errors import ArgumentError, BlockBuildError, did_you_mean, run_failure
from tests.refusing import generate, refused
from tests.test_training import mlp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: optim.SGD(0.1), ["SGD: clip_grad is 0.1", "ClipGradNorm(1.0)", "Optimizer.set_learning_rate"]),
        (
            lambda: optim.AdamW(0.001),
            ["bias_correction = 0.001 is neither True nor False", "Optimizer.set_learning_rate"],
        ),
        (lambda: optim.AdamW(clip_grad=optim.ClipGradNorm), ["clip_grad is ClipGradNorm, where a block is expected"]),
        (lambda: optim.AdamW(betas=0.9), ["AdamW: betas = 0.9 is not a pair of numbers."]),
        (lambda: optim.Lion(betas=(0.9,)), ["Lion: betas = (0.9,) is not a pair of numbers."]),
        (
            lambda: optim.AdamW(betas=(0.9, "b"), eps="a", weight_decay=-1),
            ["AdamW: beta2 = 'b' is not a number; eps = 'a' is not a number; weight_decay = -1 is negative."],
        ),
        (lambda: optim.SGD(momentum=None), ["SGD: momentum = None is not a number."]),
        (lambda: optim.AdamW(betas=(1.0, 0.9)), ["beta1 = 1.0 is not in [0, 1)."]),
        (lambda: optim.AdamW(variant="tourch"), ["Did you mean 'torch'?"]),
        (lambda: optim.ClipGradNorm("1"), ["max_norm='1' is not a positive number"]),
        (lambda: optim.ClipGradNorm(np.nan), ["max_norm=nan is not a positive number"]),
        (lambda: optim.ParameterGroups("AdamW"), ["ParameterGroups begins with an optimizer block, not 'AdamW'"]),
        (lambda: optim.ExponentialMovingAverage(optim.SGD), ["begins with an optimizer block, not the class SGD"]),
        (lambda: blocks.Linear(2.5, 3), ["Linear(2.5, 3): both sizes are whole numbers"]),
        (lambda: blocks.Linear(3, 0), ["Linear(3, 0): both sizes are whole numbers"]),
    ],
)
def test_constructors(make: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(BlockBuildError, match="(?s)" + ".*".join(map(re.escape, words))) as raised:
        make()
    assert "?." not in str(raised.value)


@pytest.mark.parametrize(
    "make", [lambda: optim.AdamW(betas=[0.9, np.float32(0.99)]), lambda: optim.SGD(clip_grad=optim.ClipGradNorm(1))]
)
def test_constructors_take_what_works(make: Callable[[], Any]) -> None:
    assert isinstance(make(), optim.SGD | optim.AdamW)


@pytest.mark.parametrize("made", [loss.CrossEntropyLoss("mean"), loss.BCEWithLogitsLoss(pos_weight="a")])
def test_weights_of_a_loss(made: onnxblock.Block, folder: Path) -> None:
    with refused(BlockBuildError, "the weights of a loss are", "where numbers are expected"):
        generate(mlp(), folder, loss=made)


def test_without_a_loss_the_remedy_says_what_was_taken_for_it(folder: Path) -> None:
    with refused(BlockBuildError, "it must be one number", "the first output of the model is taken for it"):
        generate(mlp(), folder, loss=None)


def test_an_attribute_that_is_misspelled() -> None:
    class Mean(onnxblock.Block):
        def build(self) -> onnxblock.Value:
            return self.graph.op.ReduceMean(self.graph.constant([1.0, 2.0]), keepdim=0)

    with onnxblock.empty_base(), pytest.raises(BlockBuildError) as raised:
        Mean()()
    assert "no attribute or input 'keepdim'. Did you mean 'keepdims'?\n" in str(raised.value)


def test_names_in_another_case_are_near() -> None:
    assert did_you_mean("w", ["b", "W"]) == " Did you mean 'W'?"
    assert did_you_mean("Fc.Weight", ["fc.weights", "fc.weight"]).startswith(" Did you mean 'fc.weight' or")
    assert not did_you_mean("w", ["b", "c"])


@pytest.mark.parametrize("register", [onnxblock.gradient, onnxblock.decomposition, onnxblock.no_gradient])
@pytest.mark.parametrize("given", [("Cube", "my.domain"), (), (abs,), ("",)])
def test_rules_are_for_operators(register: Callable[..., Any], given: tuple[Any, ...]) -> None:
    settings = {"reason": "a test"} if register is onnxblock.no_gradient else {}
    if register is not onnxblock.gradient:
        settings["domain"] = "my.domain"
    with refused(ArgumentError, f"{register.__name__} takes the names of operators", "domain='my.domain'"):
        register(*given, **settings)


def test_failures_of_onnxruntime_are_shown_without_its_source_code() -> None:
    place = "/src/core/gather.cc:150 void onnxruntime::impl(const Tensor*, int64_t) "
    said = "Non-zero status code returned while running Gather node. Name:'g' Status Message: {}out of range (3)"
    for source in ("", place, place + "[with Tin = long int; int64_t = long int] ", place[:-1] + " const "):
        assert run_failure(RuntimeError(said.format(source))) == said.format("")
