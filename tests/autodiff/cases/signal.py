"""Rows for the Fourier transforms."""

from __future__ import annotations

import numpy as np

from . import case, normal

EXCEPTIONS = {f"dft{kind}_opset19:newest": "the axis is an input there" for kind in ("", "_inverse", "_rfft", "_irfft")}

REAL, COMPLEX = normal(2, 6, 5, 1), normal(2, 6, 5, 2)
SIGNAL = normal(2, 11, 1)
WINDOW = np.abs(normal(4)) + 0.2

ROWS = [
    case("DFT", REAL, np.array(4), name="dft_default_axis"),
    *(
        case("DFT", x, length, axis, inverse=inverse, name=f"dft_{kind}_{length}_axis_{axis}_inverse_{inverse}")
        for kind, x in (("real", REAL), ("complex", COMPLEX))
        for inverse in (0, 1)
        for length, axis in ((None, np.array(1)), (np.array(4), np.array(-2)), (np.array(9), np.array(1)))
    ),
    *(
        case("DFT", REAL, length, axis, onesided=1, name=f"dft_onesided_{length}_axis_{axis}")
        for length, axis in (
            (None, np.array(1)),
            (None, np.array(2)),
            (np.array(4), np.array(-2)),
            (np.array(9), np.array(-3)),
        )
    ),
    *(
        case("DFT", COMPLEX, length, axis, onesided=1, inverse=1, name=f"dft_to_real_{length}_axis_{axis}")
        for length, axis in (
            (None, np.array(1)),
            (np.array(11), np.array(1)),
            (np.array(8), np.array(2)),
            (np.array(15), np.array(-2)),
        )
    ),
    *(
        case("STFT", SIGNAL, np.array(3), *settings, name=f"stft_{name}", **attributes)
        for name, settings, attributes in (
            ("window", (WINDOW,), {"onesided": 1}),
            ("window_both_sides", (WINDOW,), {"onesided": 0}),
            ("length", (None, np.array(5)), {"onesided": 1}),
            ("window_and_length", (WINDOW, np.array(4)), {}),
        )
    ),
    case("STFT", normal(2, 11), np.array(3), WINDOW, onesided=1, name="stft_rank_2"),
    case("STFT", normal(2, 11, 2), np.array(2), WINDOW, onesided=0, name="stft_complex"),
]
