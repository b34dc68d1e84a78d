from __future__ import annotations

import numpy as np
import pytest

from onnxblock import optim
from onnxblock.errors import BlockBuildError
from tests.optim.stepping import LEARNING_RATE, STEPS, gradients, run_steps, start, step_model

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("settings", [{}, {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}], ids=["", "set"])
def test_the_variant_of_pytorch(settings, dtype):
    parameters = start(dtype=dtype)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in parameters.items()}
    theirs = torch.optim.AdamW(tensors.values(), lr=float(LEARNING_RATE), **settings)
    for t in range(1, STEPS + 1):
        for name, g in gradients(t, parameters).items():
            tensors[name].grad = torch.tensor(g)
        theirs.step()
    defaults = {"eps": 1e-8, "weight_decay": 0.01}
    ours = optim.AdamW(variant="torch", **{**defaults, **settings})
    found = run_steps(step_model(ours, dtype), parameters)
    for name, tensor in tensors.items():
        tolerance = 2e-6 if dtype == np.float32 else 1e-12
        np.testing.assert_allclose(found[name], tensor.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_the_variants_differ():
    found = [run_steps(step_model(optim.AdamW(weight_decay=0.1, variant=v)), start()) for v in ("original", "torch")]
    assert np.abs(found[0]["v"] - found[1]["v"]).max() > 1e-5


def test_few_passes_over_each_tensor():
    """The work on scalars is shared: a second parameter adds only what reads it."""
    one = len(step_model(optim.AdamW(), shapes={"a": (2,)}).graph.node)
    two = len(step_model(optim.AdamW(), shapes={"a": (2,), "b": (2,)}).graph.node)
    assert two - one == 12


def test_all_wrong_settings_are_listed():
    with pytest.raises(BlockBuildError) as caught:
        optim.AdamW(betas=(1.0, -0.1), eps=-1, weight_decay=-1, variant="pytorch")
    for part in ("beta1 = 1.0", "beta2 = -0.1", "eps = -1", "weight_decay = -1", "Did you mean 'torch'"):
        assert part in str(caught.value)
