"""Rows for the operators that move, copy and leave out elements."""

from __future__ import annotations

import numpy as np

from . import case, normal

EXCEPTIONS: dict[str, str] = {}

_MIN, _MAX = -(2**62), 2**62


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _slice(shape: tuple[int, ...], *ranges: tuple[int, int, int, int]) -> object:
    """A Slice row from (axis, start, end, step)."""
    axes, starts, ends, steps = zip(*ranges, strict=True)
    name = "_".join([*map(str, shape), *(f"{a}.{b}.{e}.{s}".replace(str(_MAX), "max") for a, b, e, s in ranges)])
    return case("Slice", normal(*shape), _ints(*starts), _ints(*ends), _ints(*axes), _ints(*steps), name=name)


ROWS = [
    case("Identity", 1.0),
    case("Identity", normal(0, 2)),
    # -- shapes
    case("Reshape", normal(2, 6), _ints(3, -1)),
    case("Reshape", normal(2, 6), _ints(0, 2, -1)),
    case("Reshape", normal(0, 3), _ints(3, 0), allowzero=1),
    case("Reshape", 1.0, _ints(1, 1)),
    case("Flatten", normal(2, 3, 4), axis=2),
    case("Flatten", normal(0, 3), axis=0),
    case("Squeeze", normal(1, 3, 1)),
    case("Squeeze", normal(1, 3, 1), _ints(-1)),
    case("Unsqueeze", 1.0, _ints(0, 1)),
    case("Unsqueeze", normal(3, 2), _ints(1, -1)),
    case("Transpose", normal(2, 3, 4)),
    case("Transpose", normal(2, 3, 4), perm=[2, 0, 1]),
    case("Transpose", normal(0, 3)),
    case("Transpose", 1.0),
    case("Expand", normal(3, 1), _ints(2, 1, 4)),
    case("Expand", 1.0, _ints(2, 3)),
    case("Expand", normal(3, 1), _ints(0, 3, 4)),
    # -- joining and taking apart
    case("Concat", normal(2, 3), axis=0),
    case("Concat", normal(2, 3), normal(4, 3), normal(0, 3), axis=0),
    case("Concat", normal(2, 3), normal(2, 1), normal(2, 2), axis=-1),
    case("Concat", normal(2, 3), normal(2, 1), normal(2, 2), axis=1, constants=(0, 2)),
    case("Concat", normal(2, 3), normal(2, 1), axis=1, constants=(1,)),
    case("Split", normal(6, 2), outputs=3, num_outputs=3),
    case("Split", normal(7, 2), outputs=3, num_outputs=3),
    case("Split", normal(2, 6), _ints(1, 0, 5), outputs=3, axis=-1),
    case("Split", normal(2, 6), outputs=1, num_outputs=1, axis=1),
    # -- Slice
    _slice((5, 4), (0, 1, 4, 1)),
    _slice((5, 4), (1, -3, _MAX, 1), (0, 0, 2, 1)),
    _slice((5, 4), (-1, -100, -1, 1)),
    _slice((5, 4), (0, 3, 1, 1)),
    _slice((5, 4), (0, 10, 20, 1)),
    _slice((7, 4), (0, 1, _MAX, 3)),
    _slice((7, 4), (0, -1, _MIN, -1)),
    _slice((7, 4), (0, 5, 1, -1), (1, 1, 3, 1)),
    _slice((7, 4), (0, 100, 2, -1)),
    _slice((7, 4), (0, 1, 5, -1)),
    _slice((7, 4), (0, -1, _MIN, -3), (1, 3, 0, -2)),
    _slice((0, 4), (0, 0, 2, 1)),
    _slice((4,), (0, 1, 3, 1)),
    case("Slice", normal(5, 4), _ints(1, 1), _ints(3, 4), name="no_axes"),
    case("Slice", normal(5, 4), _ints(1), _ints(3), _ints(-1), name="no_steps"),
    case("Slice", normal(5, 4), *(np.array([k], np.int32) for k in (1, 3, 0)), name="int32"),
    # -- Pad
    case("Pad", normal(3, 4), _ints(1, 0, 2, 3)),
    case("Pad", normal(3, 4), _ints(1, 0, 2, 3), 0.5),
    case("Pad", normal(3, 4), _ints(-1, 2, 1, -2), 0.5),
    case("Pad", normal(3, 4), _ints(1, 2), None, _ints(-1)),
    case("Pad", normal(0, 4), _ints(1, 0, 1, 0)),
    *(case("Pad", normal(3, 4), _ints(1, 2, 2, 3), mode=mode) for mode in ("reflect", "edge", "wrap")),
    *(case("Pad", normal(3, 4), _ints(2, 1), None, _ints(1), mode=mode) for mode in ("reflect", "edge", "wrap")),
    *(case("Pad", normal(4, 5), _ints(1, -1, -1, 2), mode=mode) for mode in ("reflect", "edge")),
    case("CenterCropPad", normal(5, 4), _ints(3, 7)),
    case("CenterCropPad", normal(5, 4), _ints(8, 1)),
    case("CenterCropPad", normal(2, 5, 4), _ints(2), axes=[-2]),
    case("CenterCropPad", normal(2, 4, 5), _ints(7, 2), axes=[2, 1]),
    # -- copying and reordering
    case("Tile", normal(2, 3), _ints(2, 3)),
    case("Tile", normal(2, 3), _ints(1, 1)),
    case("Tile", normal(2, 3), _ints(1, 4)),
    case("Tile", normal(2, 3), _ints(0, 2)),
    case("Tile", normal(0, 3), _ints(2, 2)),
    *(case("DepthToSpace", normal(2, 8, 2, 3), blocksize=2, mode=mode) for mode in ("DCR", "CRD")),
    case("DepthToSpace", normal(0, 8, 2, 3), blocksize=2, mode="CRD"),
    case("SpaceToDepth", normal(2, 3, 4, 6), blocksize=2),
    case("SpaceToDepth", normal(2, 3, 4, 6), blocksize=2, mode="CRD", opset=28),
    *(case("Trilu", normal(2, 3, 4), np.array(k), upper=upper) for k in (-1, 0, 2) for upper in (0, 1)),
    case("Trilu", normal(3, 3)),
    case("ReverseSequence", normal(4, 3), _ints(4, 1, 2), time_axis=0, batch_axis=1),
    case("ReverseSequence", normal(3, 4, 2), _ints(4, 1, 2), time_axis=1, batch_axis=0),
]
