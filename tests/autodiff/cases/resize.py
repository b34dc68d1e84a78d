"""Rows for Resize."""

from __future__ import annotations

import numpy as np

from . import REFERENCE, case, normal

EVALUATORS = {"Resize": REFERENCE}

CONSTANTS = {"Resize": (1, 2)}

EXCEPTIONS = {
    **{
        f"resize_downsample_scales_linear_align_corners:{step}": "onnxruntime aligns with size times scale, unrounded"
        for step in ("float32", "symbolic", "unranked", "newest")
    },
}

X = normal(1, 2, 4, 5)


def resize(
    scales: list[float] | None = None, sizes: list[int] | None = None, roi: list[float] | None = None, **attributes
):
    inputs = [
        None if roi is None else np.array(roi, np.float32),
        None if scales is None else np.array(scales, np.float32),
    ]
    return case("Resize", X, *inputs, *([] if sizes is None else [np.array(sizes)]), constants=(1, 2), **attributes)


ROWS = [
    resize([1, 1, 2, 3], mode="nearest"),
    resize([1, 1, 2, 3], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    resize([1, 1, 2, 1], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    resize(None, [1, 2, 8, 5], mode="nearest"),
    resize(None, [1, 2, 7, 3], mode="nearest", nearest_mode="ceil"),
    *(
        resize([1, 1, 1.5, 0.6], mode=mode, coordinate_transformation_mode=pixel)
        for mode in ("linear", "cubic")
        for pixel in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric")
    ),
    *(
        resize(None, [1, 2, 7, 3], mode=mode, coordinate_transformation_mode="align_corners")
        for mode in ("linear", "cubic")
    ),
    resize(None, [3, 9], mode="linear", axes=[3, 2]),
    resize(None, [10, 10], mode="linear", axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
    resize([1, 1, 0.6, 0.4], mode="linear", antialias=1),
    resize([1, 1, 1.5, 0.7], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5),
    resize(
        None,
        [1, 2, 6, 7],
        [0, 0, 0.2, -0.1, 1, 1, 0.8, 1.2],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=3.0,
    ),
]
