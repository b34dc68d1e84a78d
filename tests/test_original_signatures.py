"""Blocks, losses and optimizers take what the original's take: same names, same order, same defaults."""

from __future__ import annotations

import inspect

import pytest

from onnxblock import blocks, loss, optim

BINARY = ("input_name1", "input_name2")
SEQUENCES = (
    "learning_rate_name",
    "step_name",
    "parameter_sequence_name",
    "gradient_sequence_name",
    "first_order_moment_sequence_name",
    "second_order_moment_sequence_name",
)
ENCODER = {
    "default_float": 0.0,
    "default_int64": -1,
    "default_string": "_Unused",
    **dict.fromkeys(
        ("keys_floats", "keys_int64s", "keys_strings", "values_floats", "values_int64s", "values_strings"), None
    ),
}
REQUIRED = inspect.Parameter.empty

SIGNATURES = {
    blocks.Abs: ({}, ("input_name",)),
    blocks.Add: ({}, BINARY),
    blocks.Cast: ({"to": REQUIRED}, ("cast_input_name",)),
    blocks.Clip: ({"clip_min": None, "clip_max": None}, ("clip_input_name",)),
    blocks.Constant: ({"value_float": REQUIRED}, ()),
    blocks.Div: ({}, BINARY),
    blocks.InputLike: ({"like": REQUIRED}, ("input_name",)),
    blocks.LabelEncoder: (ENCODER, ("label_encoder_input_name",)),
    blocks.Linear: (
        {"in_features": REQUIRED, "out_features": REQUIRED, "bias": True, "alpha": 1.0, "beta": 1.0},
        ("linear_input_name",),
    ),
    blocks.Log: ({}, ("input_name",)),
    blocks.Mul: ({}, BINARY),
    blocks.Neg: ({}, ("input_name",)),
    blocks.PassThrough: ({}, ("*input_names",)),
    blocks.Pow: ({"exponent": REQUIRED}, ("pow_input_name",)),
    blocks.ReduceAllL2: ({}, ("*reduce_node_input_names",)),
    blocks.ReduceMean: ({"keepdims": True}, ("input_name",)),
    blocks.ReduceSum: ({"keepdims": True}, ("input_name",)),
    blocks.SequenceConstruct: ({}, ("*sequence_input_names",)),
    blocks.Sigmoid: ({}, ("input_name",)),
    blocks.Sub: ({}, BINARY),
    loss.BCEWithLogitsLoss: (
        {"weight": None, "reduction": "mean", "pos_weight": None},
        ("loss_input_name", "target_name=target"),
    ),
    loss.CrossEntropyLoss: (
        {"weight": None, "reduction": "mean", "ignore_index": None},
        ("scores_input_name", "labels_name=labels"),
    ),
    loss.L1Loss: ({"reduction": "mean"}, ("loss_input_name", "target_name=target")),
    loss.MSELoss: ({"reduction": "mean"}, ("loss_input_name", "target_name=target")),
    optim.AdamW: (
        {"bias_correction": True, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0, "clip_grad": None},
        ("parameters",),
    ),
    optim.AdamWOptimizer: (
        {"bias_correction": True, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0},
        SEQUENCES,
    ),
    optim.ClipGradNorm: ({"max_norm": REQUIRED}, ("gradients_name",)),
    optim.SGD: ({"clip_grad": None}, ("parameters",)),
    optim.SGDOptimizer: ({}, ("learning_rate_name", "gradients_name", "params_name")),
}


@pytest.mark.parametrize("block", SIGNATURES, ids=lambda b: b.__name__)
def test_constructor(block):
    expected, _ = SIGNATURES[block]
    ours = [p for p in inspect.signature(block).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert {p.name: p.default for p in ours[: len(expected)]} == expected
    assert [p.name for p in ours[: len(expected)]] == list(expected)
    assert all(p.default is not REQUIRED for p in ours[len(expected) :])


@pytest.mark.parametrize("block", SIGNATURES, ids=lambda b: b.__name__)
def test_build(block):
    _, expected = SIGNATURES[block]
    described = []
    for p in list(inspect.signature(block.build).parameters.values())[1:]:
        star = "*" if p.kind is p.VAR_POSITIONAL else ""
        default = f"={p.default}" if p.default not in (REQUIRED, None) else ""
        described.append(f"{star}{p.name}{default}")
    assert described == list(expected)
