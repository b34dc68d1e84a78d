"""What holds for cases of every operator."""

from __future__ import annotations

_BFLOAT16 = "onnxruntime takes no bfloat16 arrays from Python"

EXCEPTIONS = {
    f"*{name}*:{step}": _BFLOAT16
    for name in ("bfloat16", "BFLOAT16")
    for step in ("float32", "symbolic", "unranked", "newest")
}
