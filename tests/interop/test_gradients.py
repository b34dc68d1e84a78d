"""Our gradient of every case of the rule tests that the original's generator takes is the one that it makes.

The rule tests compare ours with finite differences; so what differs here is wrong there, and ``WRONG_THERE`` says why.
Kinks and ties, where more than one gradient is right, are left out.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx

from tests.autodiff import harness
from tests.interop import losses

SCRIPT = Path(__file__).parent / "differentiate.py"
TOLERANCE = 1e-4
MOST_CRASHES = 60

WRONG_THERE = {
    "AveragePool:*auto_pad=SAME*": "automatic padding is ignored",
    "AveragePool:averagepool_*_same_*": "automatic padding is ignored",
    "AveragePool:*dilations*": "dilations are ignored",
    "AveragePool:*ceil_mode=1_count_include_pad=1*": "windows that reach beyond the padding",
    "AveragePool:1x2x4x5x3*": "windows of three dimensions",
    "AveragePool:averagepool_3d_*": "windows of three dimensions",
    "Conv:*auto_pad=SAME*": "automatic padding is ignored",
    "Conv:conv_with_autopad_same": "automatic padding is ignored",
    "Conv:1x2x4x3x5*dilations*_group=2": "three dimensions, dilated, in groups: changes from run to run",
    "Dropout:dropout_default_mask_ratio": "dropout that is off is turned on",
    "Gelu:*approximate=tanh*": "the gradient of the exact form is taken",
    "Gelu:gelu_tanh_*": "the gradient of the exact form is taken",
    "LSTM:lstm_forward_peepholes": "peepholes: all gradients are off",
    "LeakyRelu:*alpha=-*": "a negative slope",
    "MaxPool:*storage_order=1*": "indices in column order are read in row order",
    "MaxPool:maxpool_with_argmax_2d_precomputed_strides": "indices in column order are read in row order",
    "ScatterElements:*reduction*": "reduction is ignored",
    "ScatterElements:zero_factors": "reduction is ignored",
    "ScatterElements:*_duplicate_indices": "reduction is ignored",
    "ScatterND:*reduction*": "reduction is ignored",
    "ScatterND:zero_slices": "reduction is ignored",
    "ScatterND:scatternd_*": "reduction is ignored",
    "Where:2x1_3_2x1": "the second choice gets nothing where it is broadcast",
}


def test_gradients_are_those_of_the_original(original_python, tmp_path):
    exact = {}
    for index, case in enumerate(harness.all_cases()):
        if case.domain or not harness.is_smooth(case):
            continue
        at = harness.point(index)
        model = losses.loss_model(case, at)
        if model is None:
            continue
        path = tmp_path / f"{index:04}.onnx"
        onnx.save(model, path)
        exact[path] = f"{case.op_type}:{case.name}", losses.exact_gradients(case, at)
        path.with_suffix(".json").write_text(json.dumps(list(exact[path][1])))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    for _ in range(MOST_CRASHES):
        command = [original_python, str(SCRIPT), str(tmp_path)]
        if subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0:
            break
    else:
        raise AssertionError(f"the original crashed {MOST_CRASHES} times")
    equal, different, unused = set(), {}, set(WRONG_THERE)
    for path, (name, gradients) in exact.items():
        found = path.with_suffix(".npz")
        if not found.exists():
            continue  # refused, or the process died
        known = {pattern for pattern in WRONG_THERE if fnmatch.fnmatch(name, pattern)}
        unused -= known
        with np.load(found) as theirs:
            worst = max(distance(theirs[parameter], ours) for parameter, ours in gradients.items())
        if worst <= TOLERANCE:
            equal.add(name)
        elif not known:
            different[name] = worst
    assert not different, "wrong there? then say why in WRONG_THERE"
    assert not unused
    assert len(equal) > 400
    assert len({name.split(":")[0] for name in equal}) > 50


def distance(theirs: np.ndarray, ours: np.ndarray) -> float:
    """The largest difference of the finite elements, relative to the largest of ours or one."""
    if theirs.shape != ours.shape:
        return np.inf
    finite = np.isfinite(ours)
    scale = np.max(np.abs(ours[finite]), initial=1.0)
    difference = np.abs(np.where(finite, theirs, 0) - np.where(finite, ours, 0)) / scale
    return float(np.max(np.where(np.isnan(difference), np.inf, difference), initial=0.0))
