"""Running statistics that went bad: training with the statistics of the batch does not read them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.user_cases import NODE, make_model, normal, train

BAD = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", BAD)
def test_bad_running_statistics_do_not_reach_loss_or_gradients(tmp_path, bad, dtype):
    def model(mean, variance):
        weights = {
            "W": normal(3, 4),
            "scale": normal(4) + 2,
            "bias": normal(4),
            "mean": np.full(4, mean),
            "variance": np.full(4, variance),
        }
        return make_model(
            [
                NODE("MatMul", ["x", "W"], ["h"]),
                NODE("BatchNormalization", ["h", "scale", "bias", "mean", "variance"], ["y"], name="norm"),
            ],
            {"x": (np.dtype(dtype), [5, 3])},
            {name: array.astype(dtype) for name, array in weights.items()},
        )

    x, target = normal(5, 3).astype(dtype), normal(5, 4, seed=1).astype(dtype)
    losses, gradients = [], []
    for number, given in enumerate([(0, 1), (BAD[bad], BAD[bad])]):
        training = train(model(*given), tmp_path / str(number), batch_norm="train")
        # Twice: what the first run leaves behind must not matter either.
        losses += [training.accumulate(x, target) for _ in range(2)]
        gradients.append(training.gradients())
    assert len(set(map(float, losses))) == 1
    for name, d in gradients[0].items():
        np.testing.assert_array_equal(gradients[1][name], d)
        assert np.isfinite(d).all()
