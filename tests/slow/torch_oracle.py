"""One operator at random attributes and shapes: its gradient on onnxruntime against torch's autograd in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxblock.autodiff.gradients import COTANGENT_SUFFIX, gradients
from tests.autodiff import harness
from tests.autodiff.cases import case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOLERANCE = 2e-4


def examples(count: int = 200) -> Callable[[Any], Any]:
    """Run a test on ``count`` draws, the same every time."""

    def decorate(test: Any) -> Any:
        chosen = settings(
            max_examples=count,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        )
        return chosen(given(st.data())(test))

    return decorate


class Draw:
    """Random choices, which hypothesis shrinks, and random numbers that follow from a seed."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.rng = np.random.default_rng(self.int(0, 2**16))

    def int(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def ints(self, count: int, low: int, high: int) -> list[int]:
        return [self.int(low, high) for _ in range(count)]

    def bool(self) -> bool:
        return self.draw(st.booleans())

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Different axes, some of them counted from the back."""
        chosen = self.draw(st.lists(st.integers(0, rank - 1), unique=True, min_size=least, max_size=rank))
        return [axis - rank if self.bool() else axis for axis in chosen]

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def distinct(self, *shape: int) -> np.ndarray:
        """Numbers no two of which are near each other or near zero."""
        count = int(np.prod(shape))
        steps = np.arange(1, count + 1) * self.rng.choice([-1, 1], count)
        return (self.rng.permutation(steps).reshape(shape) * (2.0 / max(count, 1))).astype(np.float32)

    def indices(self, low: int, high: int, *shape: int) -> np.ndarray:
        return self.rng.integers(low, high, shape)


def agree(
    d: Draw,
    op_type: str,
    function: Callable[..., Any],
    *inputs: Any,
    constants: Sequence[int] = (),
    outputs: int = 1,
    opset: int = 21,
    tolerance: float = TOLERANCE,
    domain: str = "",
    run: Callable[[Any], Any] | None = None,
    **attributes: Any,
) -> None:
    """Assert that the gradients of an operator are those of ``function``, which has the same inputs and outputs.

    ``function`` is given float64 tensors and returns one for each output (None for no gradient), or one.
    Whether the shapes are known while building is drawn too.  ``run`` makes a function of a model where onnxruntime
    cannot run it.
    """
    one = case(op_type, *inputs, outputs=outputs, opset=opset, constants=tuple(constants), domain=domain, **attributes)
    names = harness.wrt(one)
    tensors = []
    for k, given_array in enumerate(inputs):
        if given_array is None:
            tensors.append(None)
            continue
        array = one.feeds[f"input{k}"]
        tensor = torch.tensor(array.astype(np.float64) if array.dtype == np.float32 else array)
        tensors.append(tensor.requires_grad_(f"input{k}" in names))
    results = function(*tensors)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    cotangents = {f"output{k}": d.normal(*y.shape) for k, y in enumerate(results) if y is not None}
    wanted = [tensors[int(name.removeprefix("input"))] for name in names]
    expected = torch.autograd.grad(
        [results[int(name.removeprefix("output"))] for name in cotangents],
        wanted,
        [torch.tensor(c, dtype=torch.float64) for c in cotangents.values()],
        allow_unused=True,
    )
    forward = harness.symbolic(one) if d.bool() else harness.static(one)
    model = gradients(forward, wrt=names, outputs=list(cotangents), cotangents="inputs")
    feeds = {**one.feeds, **{name + COTANGENT_SUFFIX: c for name, c in cotangents.items()}}
    found = harness.run_onnxruntime(model, feeds, optimized=False) if run is None else run(model)(feeds)
    for name, got, exact, tensor in zip(names, found, expected, wanted, strict=True):
        exact_array = np.zeros(tensor.shape) if exact is None else exact.numpy()
        assert got.shape == exact_array.shape, f"{name}: {got.shape} and not {exact_array.shape}"
        scale = max(1.0, float(np.max(np.abs(exact_array), initial=0.0)))
        np.testing.assert_allclose(
            got, exact_array, rtol=0, atol=tolerance * scale, err_msg=f"gradient of {name} of {op_type} {attributes}"
        )
