"""What the installed onnxruntime runs, found by trying: the one place that says which tests it is too old for.

The versions of Python that are supported do not all get the newest onnxruntime, but do get the newest onnx, which
writes opsets that an older runtime refuses.
"""

from __future__ import annotations

import functools
import re

import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxblock.graph.schemas import NEWEST_OPSET, ir_version_of


def loads(opset: int) -> bool:
    """Whether onnxruntime loads a model of one node at ``opset``."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "one", ports[:1], ports[1:])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version_of(opset)
    ).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - the bindings derive their exceptions from Exception only
        return False
    return True


@functools.cache
def newest_opset() -> int:
    """The newest opset that both the installed onnx and the installed onnxruntime know."""
    return next(opset for opset in range(NEWEST_OPSET, 0, -1) if loads(opset))


def too_old_for(opset: int) -> str:
    """The reason for leaving out a test at ``opset``, or nothing where onnxruntime runs it."""
    if opset <= newest_opset():
        return ""
    return f"onnxruntime {onnxruntime.__version__} runs no opset above {newest_opset()}"


def is_newest() -> bool:
    """Whether onnxruntime is as new as the installed onnx."""
    return newest_opset() == NEWEST_OPSET


def require_newest(why: str) -> None:
    """Skip the test, with the reason, where onnxruntime is older than onnx."""
    if not is_newest():
        pytest.skip(f"onnxruntime {onnxruntime.__version__}: {why}")


def require_opset(opset: int) -> None:
    """Skip the test, with the reason, where onnxruntime does not run models of ``opset``."""
    if reason := too_old_for(opset):
        pytest.skip(reason)


_SUMS = "its ReduceSum adds up a tensor without elements even if it is told to reduce nothing"
FAULTS = {
    "1.23": {
        # -- operators of com.microsoft
        r"test_decompositions.*(ScaledSiLU|GatedRMSNorm|BranchwiseRMSNorm|GatedAdd|CausalConvWithState|MRotaryEmb)": (
            "it has no such operator"
        ),
        r"test_decompositions.*\[microsoft(ExpandDims_|Attention_.*none_1x3x5x5)": "its kernel ends the process",
        r"test_decompositions.*(FusedConv_.*HardSwish|MatMulNBits_.*bits=2)": "its kernel takes fewer settings",
        r"test_decompositions.*GatherBlockQuantized_.*(bits=2|_5x2_bits=4)": "its kernel packs in another way",
        r"test_decompositions.*GroupQueryAttention_(?!.*do_rotary=1_opset18)": "its kernel takes fewer inputs",
        r"test_decompositions.*GroupQueryAttention_.*_2x5_num_heads": "its kernel takes fewer inputs",
        # -- float64
        r"test_gradients_of_gradients_of_models|test_a_model_with_right_gradients": "it has no float64 kernel of Cos",
        r"test_value_and_gradient\[InfoNCE-.*float64": "it fuses float64 products, and has no kernel for that",
        # -- faults of kernels
        r"test_rules.*\[RotaryEmbedding-(turned_part|.*rotary_dim)": "it does not turn a part of heads apart",
        r"test_rules.*\[Einsum-0x3_3x4": "its kernel ends the process",
        r"test_rules.*\[Reduce\w+-(noop_without_axes|2x3x4_0_noop)": "it fails where nothing is reduced",
        r"test_rules.*\[DFT-dft_(irfft|to_real)": "it knows no inverse of a onesided transform",
        r"test_rules.*\[DeformConv-": "it has no kernel of the operator",
        r"test_rules.*\[STFT-stft_complex": "it reads beyond a complex signal",
        r"test_rules.*\[LpNormalization-(l[12]norm|lpnorm|.*newest)": "it has no kernel of opset 22",
        r"test_form\[MatMulNBits-2_bits": "its kernel takes fewer settings",
        r"test_form\[QuantizeLinear-quantize_tensor-.*-float16": "it quantizes float16 to other values",
        # -- tensors without elements
        r"test_nothing_is_differentiated\[Conv-9-static": "a convolution of nothing leaves its output as it was",
        r"test_form\[(TopK-top_none|Expand-3x1_3|Split-2x6_3_axis=-1|Tile-2x3_2)-.*-unranked": _SUMS,
        r"test_form\[Slice-(5_4_0\.(3\.1\.1|10\.20\.1)|7_4_0\.1\.5\.-1|slice_start_out_of_bounds)-.*-unranked": _SUMS,
        r"test_nothing_is_differentiated\[(AveragePool|Resize|LpPool)-": "its MatMul broadcasts no empty batch",
        r"test_nothing_is_differentiated\[(Einsum|ReduceMax.*static|TopK)": "its kernel ends the process",
        r"test_nothing_is_differentiated\[(GridSample|STFT|DeformConv)-": "its kernel refuses them",
        r"test_nothing_is_differentiated\[(?!RoiAlign).*-unranked": _SUMS,
        r"test_nothing_is_differentiated\[(LayerN|RMSN|Conv|MatMul|Gemm|GatherE|Scatter|Concat).*-symbolic": _SUMS,
        r"test_nothing_is_differentiated\[(Split|DepthTo|SpaceTo|PRelu|Det|Compress|MaxUnpool).*-symbolic": _SUMS,
        # -- faults of other tools and evaluators
        r"test_the_cases_of_onnx\[ReverseSequence": "it leaves out sequences of length 0",
        r"test_what_the_transformers_tool_optimizes\[(Attention|MultiHead)": "its tool does not know this attention",
    }
}
"""What the last onnxruntime for a version of Python cannot do, by the tests' names; the newest release can."""


def fault(test: str) -> str:
    """Why the installed onnxruntime cannot pass a test, or nothing."""
    version = onnxruntime.__version__
    known = FAULTS.get(".".join(version.split(".")[:2]), {})
    return next((f"onnxruntime {version}: {why}" for pattern, why in known.items() if re.search(pattern, test)), "")
