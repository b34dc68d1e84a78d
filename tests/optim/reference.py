"""Optimizers in NumPy, written from their papers and from the description of the original, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Update = Callable[..., Sequence[Array]]
"""``(p, g, *states, lr, t) -> (p, *states)``; all arrays have one element type, in which everything is computed."""


def sgd(p, g, *, lr, t):
    return [p - lr * g]


def adamw_original(p, g, m, v, *, lr, t, betas=(0.9, 0.999), eps=1e-6, decay=0.0, correct=True):
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    rate = lr * np.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) if correct else lr
    p = p - rate * m / (np.sqrt(v) + eps)
    return [p - lr * decay * p, m, v]


def adamw_torch(p, g, m, v, *, lr, t, betas=(0.9, 0.999), eps=1e-8, decay=0.01):
    p = p - lr * decay * p
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return [p - lr * m_hat / (np.sqrt(v_hat) + eps), m, v]


def lion(p, g, m, *, lr, t, betas=(0.9, 0.99), decay=0.0):
    direction = np.sign(betas[0] * m + (1 - betas[0]) * g)
    return [p - lr * (direction + decay * p), betas[1] * m + (1 - betas[1]) * g]


def lamb(p, g, m, v, *, lr, t, betas=(0.9, 0.999), eps=1e-6, decay=0.0):
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    u = (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps) + decay * p
    length, step_length = np.sqrt((p**2).sum()), np.sqrt((u**2).sum())
    return [p - lr * (length / step_length if length and step_length else 1) * u, m, v]


def nadam(p, g, m, v, *, lr, t, betas=(0.9, 0.999), eps=1e-8, decay=0.0, momentum_decay=0.004):
    def mu(step):
        return betas[0] * (1 - 0.5 * 0.96 ** (step * momentum_decay))

    g = g + decay * p
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    product = np.prod([mu(k) for k in range(1, t + 1)])
    m_hat = mu(t + 1) * m / (1 - product * mu(t + 1)) + (1 - mu(t)) * g / (1 - product)
    return [p - lr * m_hat / (np.sqrt(v / (1 - betas[1] ** t)) + eps), m, v]


def averaged_sgd(p, g, e, *, lr, t, decay=0.999):
    p = p - lr * g
    return [p, decay * (p + lr * g if t == 1 else e) + (1 - decay) * p]


def clip_norm(gradients: Sequence[Array], max_norm: float) -> list[Array]:
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients))
    factor = min(max_norm / (norm + 1e-6), 1)
    return [np.asarray(g * factor, g.dtype) for g in gradients]
