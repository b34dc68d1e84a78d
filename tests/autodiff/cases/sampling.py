"""Rows for the operators that read images at computed points or in regions."""

from __future__ import annotations

import numpy as np

from . import DEFINITIONS, REFERENCE, case, normal

EVALUATORS = {"Col2Im": REFERENCE, "MaxRoiPool": DEFINITIONS, "gridsample_16_*": DEFINITIONS}

CONSTANTS = {"RoiAlign": (1,), "MaxRoiPool": (1,)}

_NEWER = "onnxruntime has no kernel from opset 22 on"
EXCEPTIONS = {
    "roi_align_avg_*:newest": _NEWER,
    "roialign_*:all": _NEWER,
}


def distinct(*shape: int) -> np.ndarray:
    """Numbers no two of which are close."""
    order = np.random.default_rng(1).permutation(np.prod(shape))
    return (order / len(order) * 8 - 4).astype(np.float32).reshape(shape)


IMAGE, GRID = normal(2, 3, 5, 4), normal(2, 3, 4, 2) * 0.8
IMAGE3, GRID3 = normal(1, 2, 3, 4, 5), normal(1, 2, 2, 3, 3) * 0.6
REGIONS = np.array([[0, 0, 3.3, 4.1], [1.2, 0.7, 6.9, 5.5], [-3, 2, 1.5, 2.2], [2.2, 1.1, 4, 9.5]], np.float32)
BATCH = np.array([1, 0, 1, 1])

ROWS = [
    *(
        case("GridSample", IMAGE, GRID, mode=mode, padding_mode=padding, align_corners=align, name=name)
        for mode in ("linear", "cubic")
        for padding in ("zeros", "border", "reflection")
        for align in (0, 1)
        for name in [f"gridsample_{mode}_{padding}_{align}"]
    ),
    *(
        case(
            "GridSample",
            IMAGE,
            GRID,
            mode="nearest",
            padding_mode=padding,
            constants=(1,),
            name=f"gridsample_{padding}",
        )
        for padding in ("zeros", "border", "reflection")
    ),
    *(
        case("GridSample", IMAGE3, GRID3, padding_mode=padding, name=f"gridsample_3d_{padding}")
        for padding in ("zeros", "border", "reflection")
    ),
    # On the outermost elements, 0; on the others, the slope on the right.
    *(
        case(
            "GridSample",
            [[[[1.0, 2.0, 4.0]]]],
            [[[[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [beyond, 0.0]]]],
            padding_mode=padding,
            align_corners=1,
            gradients=([[[taken]]], [[[[0, 0], [2, 0], [0, 0], [slope, 0]]]]),
            name=f"gridsample_on_elements_{padding}",
        )
        for padding, beyond, taken, slope in (
            ("border", -2.0, [2, 1, 1], 0),
            ("reflection", -2.0, [1, 2, 1], -2),
            ("reflection", 3.0, [2, 1, 1], 0),
        )
    ),
    case("AffineGrid", normal(2, 2, 3), np.array([2, 3, 4, 5])),
    case("AffineGrid", normal(2, 3, 4), np.array([2, 3, 2, 5, 4]), align_corners=1),
    case("Col2Im", normal(2, 12, 12), np.array([4, 5]), np.array([2, 2]), name="columns"),
    case(
        "Col2Im",
        normal(2, 12, 9),
        np.array([6, 7]),
        np.array([2, 3]),
        strides=[2, 2],
        pads=[1, 0, 0, 1],
        dilations=[2, 1],
    ),
    case("DeformConv", normal(2, 3, 6, 5), normal(4, 3, 2, 2), normal(2, 8, 5, 4)),
    case(
        "DeformConv",
        normal(2, 4, 6, 5),
        normal(4, 2, 3, 2),
        normal(2, 24, 3, 3),
        normal(4),
        normal(2, 12, 3, 3),
        group=2,
        offset_group=2,
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        dilations=[1, 2],
    ),
    *(
        case(
            "RoiAlign",
            distinct(2, 3, 6, 7),
            REGIONS,
            BATCH,
            constants=(1,),
            mode=mode,
            coordinate_transformation_mode=pixel,
            sampling_ratio=samples,
            output_height=3,
            output_width=2,
            spatial_scale=0.8,
            name=f"roi_align_{mode}_{pixel}_{samples}",
        )
        for mode in ("avg", "max")
        for pixel in ("half_pixel", "output_half_pixel")
        for samples in (0, 2)
    ),
    case(
        "MaxRoiPool",
        distinct(2, 3, 6, 7),
        np.concatenate([BATCH[:, None], np.maximum(REGIONS, 0)], 1).astype(np.float32),
        constants=(1,),
        pooled_shape=[3, 2],
        spatial_scale=0.8,
        name="max_roi_pool",
    ),
]
