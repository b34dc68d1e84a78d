"""Recurrent networks of seven steps: only one output, optional inputs left out or given, both directions."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from . import NODE, compare_with_torch, make_model, normal

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

TIME, BATCH, FEATURES, HIDDEN = 7, 2, 4, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def lstm(x, h, c, w, r, b):
    """One step; the gates are input, output, forget, cell."""
    i, o, f, g = (x @ w.T + h @ r.T + b[: 4 * HIDDEN] + b[4 * HIDDEN :]).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru(x, h, c, w, r, b):
    """One step; the gates are update, reset, hidden, the reset before the product."""
    inner, outer = x @ w.T + b[: 3 * HIDDEN], b[3 * HIDDEN :]
    zr = torch.sigmoid(inner[:, : 2 * HIDDEN] + h @ r[: 2 * HIDDEN].T + outer[: 2 * HIDDEN])
    z, reset = zr.chunk(2, -1)
    new = torch.tanh(inner[:, 2 * HIDDEN :] + (reset * h) @ r[2 * HIDDEN :].T + outer[2 * HIDDEN :])
    return (1 - z) * new + z * h, c


def rnn(x, h, c, w, r, b):
    return torch.tanh(x @ w.T + h @ r.T + b[:HIDDEN] + b[HIDDEN:]), c


STEPS = {"LSTM": lstm, "GRU": gru, "RNN": rnn}


def run(op_type, output, x, w, r, b, h0, c0):
    """All directions over all steps: Y [T, D, B, H] or Y_h [D, B, H]."""
    sequences, ends = [], []
    for d in range(w.shape[0]):
        h, c = h0[d], c0[d]
        order = range(TIME) if d == 0 else reversed(range(TIME))
        found = {}
        for step in order:
            h, c = STEPS[op_type](x[step], h, c, w[d], r[d], b[d])
            found[step] = h
        sequences.append(torch.stack([found[step] for step in range(TIME)]))
        ends.append(h)
    return torch.stack(sequences, 1) if output == "Y" else torch.stack(ends)


def forward(op_type, output, directions, t):
    size = GATES[op_type] * HIDDEN
    bias = getattr(t, "B", torch.zeros(directions, 2 * size))
    zeros = torch.zeros(directions, BATCH, HIDDEN)
    return run(op_type, output, t.x @ t.V, t.W, t.R, bias, getattr(t, "h0", zeros), getattr(t, "c0", zeros))


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("full", [False, True], ids=["bare", "full"])
@pytest.mark.parametrize("output", ["Y", "Y_h"])
@pytest.mark.parametrize("op_type", GATES)
def test_recurrent(tmp_path, op_type, output, full, directions):
    size = GATES[op_type] * HIDDEN
    weights = {
        "V": normal(FEATURES, FEATURES),
        "W": normal(directions, size, FEATURES) * np.float32(0.5),
        "R": normal(directions, size, HIDDEN) * np.float32(0.5),
    }
    inputs = ["xV", "W", "R"]
    if full:
        weights |= {"B": normal(directions, 2 * size), "h0": normal(directions, BATCH, HIDDEN)}
        inputs += ["B", "", "h0"]
        if op_type == "LSTM":
            weights["c0"] = normal(directions, BATCH, HIDDEN, seed=1)
            inputs.append("c0")
    attributes = {"hidden_size": HIDDEN, "direction": "bidirectional" if directions == 2 else "forward"}
    node = NODE(op_type, inputs, ["y"] if output == "Y" else ["", "y"], **attributes)
    training = compare_with_torch(
        make_model([NODE("MatMul", ["x", "V"], ["xV"]), node], {"x": [TIME, BATCH, FEATURES]}, weights, opset=14),
        tmp_path,
        partial(forward, op_type, output, directions),
        {"x": normal(TIME, BATCH, FEATURES)},
        tolerance=3e-5,
    )
    assert set(training.gradients()) == set(weights)


EMPTY = """
import sys
import numpy as np
from onnxblock.errors import OnnxBlockError
from tests.user_cases import train
path, folder, steps, batch = *sys.argv[1:3], *map(int, sys.argv[3:5])
x = np.zeros((steps, batch, 4), np.float32)

def attempt(what, do):
    try:
        print(what, np.asarray(do()).shape)
    except OnnxBlockError as error:
        print(what, "not_empty" in str(error))

for frozen in ([], ["V", "W", "R"]):
    training = train(path, folder, frozen_params=frozen)
    target = np.zeros((steps, 1, batch, 5), np.float32)
    attempt("train", lambda: training.module(x, target))
    training.module.eval()
    attempt("eval", lambda: training.module(x, target))
"""


@pytest.mark.parametrize(
    ("op_type", "steps", "batch", "said"),
    [
        ("LSTM", 3, 0, ["train ()", "eval True", "train True", "eval True"]),
        ("GRU", 3, 0, ["train ()", "eval True", "train True", "eval True"]),
        ("GRU", 0, 2, ["train False", "eval True", "train True", "eval True"]),
        ("RNN", 3, 0, ["train ()", "eval ()", "train ()", "eval ()"]),
        ("LSTM", 3, 2, ["train ()", "eval ()", "train ()", "eval ()"]),
        ("GRU", 3, 2, ["train ()", "eval ()", "train ()", "eval ()"]),
    ],
)
def test_an_empty_batch_is_an_error_not_the_end_of_the_process(op_type, steps, batch, said, tmp_path):
    """onnxruntime's kernels abort; frozen layers keep theirs in the training model too."""
    rows = GATES[op_type] * HIDDEN
    weights = {"V": normal(4, 4), "W": normal(1, rows, 4), "R": normal(1, rows, HIDDEN), "O": normal(5, 5)}
    model = make_model(
        [
            NODE("MatMul", ["x", "V"], ["h"]),
            NODE(op_type, ["h", "W", "R"], ["s"], hidden_size=HIDDEN),
            NODE("MatMul", ["s", "O"], ["y"]),
        ],
        {"x": ["steps", "batch", 4]},
        weights,
    )
    onnx.save(model, tmp_path / "m.onnx")
    command = [sys.executable, "-c", EMPTY, tmp_path / "m.onnx", tmp_path, str(steps), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == said
