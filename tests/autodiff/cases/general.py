"""What holds for cases of every operator."""

from __future__ import annotations

_BFLOAT16 = "onnxruntime takes no bfloat16 arrays from Python"

EXCEPTIONS = {
    **{
        f"*{name}*:{step}": _BFLOAT16
        for name in ("bfloat16", "BFLOAT16")
        for step in ("float32", "symbolic", "unranked", "newest")
    },
    # -- what float16 cannot hold, or onnxruntime cannot do in it
    "*softmax_large_number:float16": "numbers of 10,000 have no digits behind the point",
    "maxpool_3d_default:float16": "rounding makes ties",
    "mvn:float16": "onnxruntime expands it with float32 constants",
    "reduce_prod_default_axes_keepdims_example:float16": "the product is larger than any",
    "resize_downsample_scales_linear_align_corners:float16": "onnxruntime resizes differently there",
    "scatternd_m[ai]*:float16": "onnxruntime scatters no maximum of float16",
    "4x3x5_3x2_3x5_reduction=m[ai]*:float16": "onnxruntime scatters no maximum of float16",
}
