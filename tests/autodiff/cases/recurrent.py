"""Rows for LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import DEFINITIONS, Case, case, normal

EVALUATORS = dict.fromkeys(("LSTM", "GRU", "RNN"), DEFINITIONS)

TIME, BATCH, FEATURES, HIDDEN = 4, 3, 2, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTHS = np.array([4, 2, 3], np.int32)


def row(
    op_type: str,
    direction: str = "forward",
    *,
    bias: bool = True,
    lengths: bool = False,
    states: bool = False,
    peepholes: bool = False,
    outputs: int | None = None,
    name: str = "",
    **attributes: Any,
) -> Case:
    directions, size, features = 1 + (direction == "bidirectional"), GATES[op_type] * HIDDEN, FEATURES
    state = (directions, BATCH, HIDDEN)
    inputs: list[Any] = [
        normal(TIME, BATCH, FEATURES) * 0.7,
        normal(directions, size, features, seed=1) * 0.7,
        normal(directions, size, HIDDEN, seed=2) * 0.7,
        normal(directions, 2 * size, seed=3) * 0.5 if bias else None,
        LENGTHS if lengths else None,
        normal(*state, seed=4) if states else None,
    ]
    if op_type == "LSTM":
        inputs += [normal(*state, seed=5) if states else None, normal(directions, 3 * HIDDEN) if peepholes else None]
    if attributes.get("layout"):
        inputs = [x.swapaxes(0, 1) if x is not None and k in {0, 5, 6} else x for k, x in enumerate(inputs)]
    while inputs[-1] is None:
        inputs.pop()
    return case(
        op_type,
        *inputs,
        outputs=outputs or (3 if op_type == "LSTM" else 2),
        name=f"{op_type}_{direction}_{name}".rstrip("_").lower(),
        hidden_size=HIDDEN,
        direction=direction,
        **attributes,
    )


ROWS = [
    *(
        row(op, direction, lengths=lengths, states=states, name="lengths" * lengths + "states" * states)
        for op in GATES
        for direction in ("forward", "reverse", "bidirectional")
        for lengths, states in ((False, False), (False, True), (True, True))
    ),
    *(row(op, bias=False, states=True, name="no_bias") for op in GATES),
    *(row(op, "bidirectional", outputs=1, name="only_the_sequence") for op in GATES),
    *(row(op, "bidirectional", clip=0.4, states=True, name="clip") for op in GATES),
    *(row(op, "bidirectional", layout=1, states=True, name="batchwise") for op in GATES),
    *(
        row(
            "LSTM",
            direction,
            peepholes=True,
            lengths=lengths,
            states=True,
            input_forget=coupled,
            name=f"peepholes{'_lengths' * lengths}{'_coupled' * coupled}",
        )
        for direction in ("forward", "bidirectional")
        for lengths in (False, True)
        for coupled in (0, 1)
    ),
    row("LSTM", states=True, input_forget=1, name="coupled"),
    row("LSTM", peepholes=True, clip=0.5, name="peepholes_clip"),
    *(
        row(
            "GRU",
            direction,
            states=True,
            lengths=direction == "bidirectional",
            linear_before_reset=1,
            name="linear_before_reset",
        )
        for direction in ("forward", "bidirectional")
    ),
    *(row("RNN", activations=[name], name=name) for name in ("Relu", "Sigmoid", "Softsign", "Softplus")),
    *(
        row("RNN", "bidirectional", activations=[name] * 2, activation_alpha=[0.4, 0.3], name=name)
        for name in ("LeakyRelu", "ThresholdedRelu", "Elu")
    ),
    *(
        row("RNN", activations=[name], activation_alpha=[0.4], activation_beta=[0.3], name=name)
        for name in ("Affine", "ScaledTanh", "HardSigmoid")
    ),
    row(
        "LSTM",
        "bidirectional",
        activations=["HardSigmoid", "Tanh", "Affine", "Sigmoid", "ScaledTanh", "Softsign"],
        activation_alpha=[0.3, 1.2, 0.8],
        activation_beta=[0.4, 0.1, 0.7],
        name="directions_differ",
    ),
    row("GRU", activations=["HardSigmoid", "Relu"], activation_alpha=[0.3], activation_beta=[0.4], name="activations"),
]
