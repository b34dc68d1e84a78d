# Written by tools/make_stubs.py from the operators of opset 28; not to be edited.

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, TensorProto, TypeProto

from ..graph.value import Operand, Value
from .operator import Operator

class Acos(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Acosh(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class AffineGrid(Operator):
    def __init__(self, *, align_corners: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, theta: Operand, size: Operand) -> Value: ...

class And(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class ArgMax(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        keepdims: int | None = None,
        select_last_index: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand) -> Value: ...

class ArgMin(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        keepdims: int | None = None,
        select_last_index: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand) -> Value: ...

class Asin(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Asinh(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Atan(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Atanh(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Attention(Operator):
    def __init__(
        self,
        *,
        is_causal: int | None = None,
        kv_num_heads: int | None = None,
        left_window_size: int | None = None,
        q_num_heads: int | None = None,
        qk_matmul_output_mode: int | None = None,
        right_window_size: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        softmax_precision: int | None = None,
        attn_mask: Operand = None,
        past_key: Operand = None,
        past_value: Operand = None,
        nonpad_kv_seqlen: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        Q: Operand,
        K: Operand,
        V: Operand,
        attn_mask: Operand = None,
        past_key: Operand = None,
        past_value: Operand = None,
        nonpad_kv_seqlen: Operand = None,
    ) -> Any: ...

class AveragePool(Operator):
    def __init__(
        self,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        count_include_pad: int | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class BatchNormalization(Operator):
    def __init__(
        self,
        *,
        epsilon: float | None = None,
        momentum: float | None = None,
        training_mode: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, scale: Operand, B: Operand, input_mean: Operand, input_var: Operand) -> Any: ...

class Bernoulli(Operator):
    def __init__(self, *, dtype: int | None = None, seed: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class BitCast(Operator):
    def __init__(self, *, to: int, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class BitShift(Operator):
    def __init__(self, *, direction: str, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand, Y: Operand) -> Value: ...

class BitwiseAnd(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class BitwiseNot(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class BitwiseOr(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class BitwiseXor(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class BlackmanWindow(Operator):
    def __init__(
        self,
        *,
        output_datatype: int | None = None,
        periodic: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, size: Operand) -> Value: ...

class CastLike(Operator):
    def __init__(
        self,
        *,
        round_mode: str | None = None,
        saturate: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, target_type: Operand) -> Value: ...

class CausalConvWithState(Operator):
    def __init__(
        self,
        *,
        activation: str | None = None,
        bias: Operand = None,
        past_state: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, weight: Operand, bias: Operand = None, past_state: Operand = None) -> Any: ...

class Ceil(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Celu(Operator):
    def __init__(self, *, alpha: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class CenterCropPad(Operator):
    def __init__(self, *, axes: Sequence[int] | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input_data: Operand, shape: Operand) -> Value: ...

class Col2Im(Operator):
    def __init__(
        self,
        *,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, image_shape: Operand, block_shape: Operand) -> Value: ...

class Compress(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand, condition: Operand) -> Value: ...

class Concat(Operator):
    def __init__(self, *, axis: int, outputs: int | None = None) -> None: ...
    def __call__(self, *inputs: Operand) -> Value: ...

class ConcatFromSequence(Operator):
    def __init__(self, *, axis: int, new_axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input_sequence: Operand) -> Value: ...

class ConstantOfShape(Operator):
    def __init__(self, *, value: TensorProto | NDArray[Any] | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Conv(Operator):
    def __init__(
        self,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        B: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, W: Operand, B: Operand = None) -> Value: ...

class ConvInteger(Operator):
    def __init__(
        self,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        x_zero_point: Operand = None,
        w_zero_point: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, x: Operand, w: Operand, x_zero_point: Operand = None, w_zero_point: Operand = None) -> Value: ...

class ConvTranspose(Operator):
    def __init__(
        self,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        B: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, W: Operand, B: Operand = None) -> Value: ...

class Cos(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Cosh(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class CumProd(Operator):
    def __init__(
        self,
        *,
        exclusive: int | None = None,
        reverse: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, x: Operand, axis: Operand) -> Value: ...

class CumSum(Operator):
    def __init__(
        self,
        *,
        exclusive: int | None = None,
        reverse: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, x: Operand, axis: Operand) -> Value: ...

class DFT(Operator):
    def __init__(
        self,
        *,
        inverse: int | None = None,
        onesided: int | None = None,
        dft_length: Operand = None,
        axis: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, dft_length: Operand = None, axis: Operand = None) -> Value: ...

class DeformConv(Operator):
    def __init__(
        self,
        *,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        offset_group: int | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        B: Operand = None,
        mask: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, W: Operand, offset: Operand, B: Operand = None, mask: Operand = None) -> Value: ...

class DepthToSpace(Operator):
    def __init__(self, *, blocksize: int, mode: str | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class DequantizeLinear(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        block_size: int | None = None,
        output_dtype: int | None = None,
        x_zero_point: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, x: Operand, x_scale: Operand, x_zero_point: Operand = None) -> Value: ...

class Det(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Dropout(Operator):
    def __init__(
        self,
        *,
        seed: int | None = None,
        ratio: Operand = None,
        training_mode: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, ratio: Operand = None, training_mode: Operand = None) -> Any: ...

class DynamicQuantizeLinear(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, x: Operand) -> Any: ...

class Einsum(Operator):
    def __init__(self, *, equation: str, outputs: int | None = None) -> None: ...
    def __call__(self, *Inputs: Operand) -> Value: ...

class Elu(Operator):
    def __init__(self, *, alpha: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Equal(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class Erf(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Exp(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Expand(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand, shape: Operand) -> Value: ...

class EyeLike(Operator):
    def __init__(self, *, dtype: int | None = None, k: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Flatten(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Floor(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class GRU(Operator):
    def __init__(
        self,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        layout: int | None = None,
        linear_before_reset: int | None = None,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
    ) -> Any: ...

class Gather(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand, indices: Operand) -> Value: ...

class GatherElements(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand, indices: Operand) -> Value: ...

class GatherND(Operator):
    def __init__(self, *, batch_dims: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand, indices: Operand) -> Value: ...

class Gelu(Operator):
    def __init__(self, *, approximate: str | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Gemm(Operator):
    def __init__(
        self,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        transA: int | None = None,
        transB: int | None = None,
        C: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, A: Operand, B: Operand, C: Operand = None) -> Value: ...

class GlobalAveragePool(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class GlobalLpPool(Operator):
    def __init__(self, *, p: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class GlobalMaxPool(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Greater(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class GreaterOrEqual(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class GridSample(Operator):
    def __init__(
        self,
        *,
        align_corners: int | None = None,
        mode: str | None = None,
        padding_mode: str | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, grid: Operand) -> Value: ...

class GroupNormalization(Operator):
    def __init__(
        self,
        *,
        num_groups: int,
        epsilon: float | None = None,
        stash_type: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, scale: Operand, bias: Operand) -> Value: ...

class HammingWindow(Operator):
    def __init__(
        self,
        *,
        output_datatype: int | None = None,
        periodic: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, size: Operand) -> Value: ...

class HannWindow(Operator):
    def __init__(
        self,
        *,
        output_datatype: int | None = None,
        periodic: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, size: Operand) -> Value: ...

class HardSigmoid(Operator):
    def __init__(
        self,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class HardSwish(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Hardmax(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Identity(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class If(Operator):
    def __init__(self, *, else_branch: GraphProto, then_branch: GraphProto, outputs: int | None = None) -> None: ...
    def __call__(self, cond: Operand) -> Any: ...

class ImageDecoder(Operator):
    def __init__(self, *, pixel_format: str | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, encoded_stream: Operand) -> Value: ...

class InstanceNormalization(Operator):
    def __init__(self, *, epsilon: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand, scale: Operand, B: Operand) -> Value: ...

class IsInf(Operator):
    def __init__(
        self,
        *,
        detect_negative: int | None = None,
        detect_positive: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class IsNaN(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class LRN(Operator):
    def __init__(
        self,
        *,
        size: int,
        alpha: float | None = None,
        beta: float | None = None,
        bias: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class LSTM(Operator):
    def __init__(
        self,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        input_forget: int | None = None,
        layout: int | None = None,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        initial_c: Operand = None,
        P: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        initial_c: Operand = None,
        P: Operand = None,
    ) -> Any: ...

class LayerNormalization(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        epsilon: float | None = None,
        stash_type: int | None = None,
        B: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, Scale: Operand, B: Operand = None) -> Any: ...

class LeakyRelu(Operator):
    def __init__(self, *, alpha: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Less(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class LessOrEqual(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class LinearAttention(Operator):
    def __init__(
        self,
        *,
        kv_num_heads: int,
        q_num_heads: int,
        chunk_size: int | None = None,
        scale: float | None = None,
        update_rule: str | None = None,
        past_state: Operand = None,
        decay: Operand = None,
        beta: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        query: Operand,
        key: Operand,
        value: Operand,
        past_state: Operand = None,
        decay: Operand = None,
        beta: Operand = None,
    ) -> Any: ...

class LogSoftmax(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Loop(Operator):
    def __init__(
        self,
        *,
        body: GraphProto,
        M: Operand = None,
        cond: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, M: Operand = None, cond: Operand = None, *v_initial: Operand) -> Any: ...

class LpNormalization(Operator):
    def __init__(self, *, axis: int | None = None, p: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class LpPool(Operator):
    def __init__(
        self,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Sequence[int] | None = None,
        p: int | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class MatMul(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class MatMulInteger(Operator):
    def __init__(
        self,
        *,
        a_zero_point: Operand = None,
        b_zero_point: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, A: Operand, B: Operand, a_zero_point: Operand = None, b_zero_point: Operand = None) -> Value: ...

class Max(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, *data_0: Operand) -> Value: ...

class MaxPool(Operator):
    def __init__(
        self,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        storage_order: int | None = None,
        strides: Sequence[int] | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Any: ...

class MaxRoiPool(Operator):
    def __init__(
        self,
        *,
        pooled_shape: Sequence[int],
        spatial_scale: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, rois: Operand) -> Value: ...

class MaxUnpool(Operator):
    def __init__(
        self,
        *,
        kernel_shape: Sequence[int],
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        output_shape: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, I: Operand, output_shape: Operand = None) -> Value: ...

class Mean(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, *data_0: Operand) -> Value: ...

class MeanVarianceNormalization(Operator):
    def __init__(self, *, axes: Sequence[int] | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class MelWeightMatrix(Operator):
    def __init__(self, *, output_datatype: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(
        self,
        num_mel_bins: Operand,
        dft_length: Operand,
        sample_rate: Operand,
        lower_edge_hertz: Operand,
        upper_edge_hertz: Operand,
    ) -> Value: ...

class Min(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, *data_0: Operand) -> Value: ...

class Mish(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Mod(Operator):
    def __init__(self, *, fmod: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class Multinomial(Operator):
    def __init__(
        self,
        *,
        dtype: int | None = None,
        sample_size: int | None = None,
        seed: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class NegativeLogLikelihoodLoss(Operator):
    def __init__(
        self,
        *,
        ignore_index: int | None = None,
        reduction: str | None = None,
        weight: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, target: Operand, weight: Operand = None) -> Value: ...

class NonMaxSuppression(Operator):
    def __init__(
        self,
        *,
        center_point_box: int | None = None,
        max_output_boxes_per_class: Operand = None,
        iou_threshold: Operand = None,
        score_threshold: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        boxes: Operand,
        scores: Operand,
        max_output_boxes_per_class: Operand = None,
        iou_threshold: Operand = None,
        score_threshold: Operand = None,
    ) -> Value: ...

class NonZero(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Not(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class OneHot(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, indices: Operand, depth: Operand, values: Operand) -> Value: ...

class Optional(Operator):
    def __init__(self, *, type: TypeProto | None = None, input: Operand = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand = None) -> Value: ...

class OptionalGetElement(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class OptionalHasElement(Operator):
    def __init__(self, *, input: Operand = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand = None) -> Value: ...

class Or(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class PRelu(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand, slope: Operand) -> Value: ...

class Pad(Operator):
    def __init__(
        self,
        *,
        mode: str | None = None,
        constant_value: Operand = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, pads: Operand, constant_value: Operand = None, axes: Operand = None) -> Value: ...

class QLinearConv(Operator):
    def __init__(
        self,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        B: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        x: Operand,
        x_scale: Operand,
        x_zero_point: Operand,
        w: Operand,
        w_scale: Operand,
        w_zero_point: Operand,
        y_scale: Operand,
        y_zero_point: Operand,
        B: Operand = None,
    ) -> Value: ...

class QLinearMatMul(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(
        self,
        a: Operand,
        a_scale: Operand,
        a_zero_point: Operand,
        b: Operand,
        b_scale: Operand,
        b_zero_point: Operand,
        y_scale: Operand,
        y_zero_point: Operand,
    ) -> Value: ...

class QuantizeLinear(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        block_size: int | None = None,
        output_dtype: int | None = None,
        precision: int | None = None,
        saturate: int | None = None,
        y_zero_point: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, x: Operand, y_scale: Operand, y_zero_point: Operand = None) -> Value: ...

class RMSNormalization(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        epsilon: float | None = None,
        stash_type: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, scale: Operand) -> Value: ...

class RNN(Operator):
    def __init__(
        self,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        layout: int | None = None,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
    ) -> Any: ...

class RandomNormal(Operator):
    def __init__(
        self,
        *,
        shape: Sequence[int],
        dtype: int | None = None,
        mean: float | None = None,
        scale: float | None = None,
        seed: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self) -> Value: ...

class RandomNormalLike(Operator):
    def __init__(
        self,
        *,
        dtype: int | None = None,
        mean: float | None = None,
        scale: float | None = None,
        seed: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class RandomUniform(Operator):
    def __init__(
        self,
        *,
        shape: Sequence[int],
        dtype: int | None = None,
        high: float | None = None,
        low: float | None = None,
        seed: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self) -> Value: ...

class RandomUniformLike(Operator):
    def __init__(
        self,
        *,
        dtype: int | None = None,
        high: float | None = None,
        low: float | None = None,
        seed: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Range(Operator):
    def __init__(self, *, stash_type: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, start: Operand, limit: Operand, delta: Operand) -> Value: ...

class Reciprocal(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class ReduceL1(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class ReduceL2(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class ReduceLogSum(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class ReduceLogSumExp(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class ReduceMax(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class ReduceMin(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class ReduceProd(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class ReduceSumSquare(Operator):
    def __init__(
        self,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
        axes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class RegexFullMatch(Operator):
    def __init__(self, *, pattern: str | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Relu(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Reshape(Operator):
    def __init__(self, *, allowzero: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand, shape: Operand) -> Value: ...

class Resize(Operator):
    def __init__(
        self,
        *,
        antialias: int | None = None,
        axes: Sequence[int] | None = None,
        coordinate_transformation_mode: str | None = None,
        cubic_coeff_a: float | None = None,
        exclude_outside: int | None = None,
        extrapolation_value: float | None = None,
        keep_aspect_ratio_policy: str | None = None,
        mode: str | None = None,
        nearest_mode: str | None = None,
        roi: Operand = None,
        scales: Operand = None,
        sizes: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, roi: Operand = None, scales: Operand = None, sizes: Operand = None) -> Value: ...

class ReverseSequence(Operator):
    def __init__(
        self,
        *,
        batch_axis: int | None = None,
        time_axis: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, sequence_lens: Operand) -> Value: ...

class RoiAlign(Operator):
    def __init__(
        self,
        *,
        coordinate_transformation_mode: str | None = None,
        mode: str | None = None,
        output_height: int | None = None,
        output_width: int | None = None,
        sampling_ratio: int | None = None,
        spatial_scale: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, rois: Operand, batch_indices: Operand) -> Value: ...

class RotaryEmbedding(Operator):
    def __init__(
        self,
        *,
        interleaved: int | None = None,
        num_heads: int | None = None,
        rotary_embedding_dim: int | None = None,
        position_ids: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, cos_cache: Operand, sin_cache: Operand, position_ids: Operand = None) -> Value: ...

class Round(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class STFT(Operator):
    def __init__(
        self,
        *,
        onesided: int | None = None,
        window: Operand = None,
        frame_length: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(
        self,
        signal: Operand,
        frame_step: Operand,
        window: Operand = None,
        frame_length: Operand = None,
    ) -> Value: ...

class Scan(Operator):
    def __init__(
        self,
        *,
        body: GraphProto,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, *initial_state_and_scan_inputs: Operand) -> Any: ...

class ScatterElements(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        reduction: str | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, data: Operand, indices: Operand, updates: Operand) -> Value: ...

class ScatterND(Operator):
    def __init__(self, *, reduction: str | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand, indices: Operand, updates: Operand) -> Value: ...

class Selu(Operator):
    def __init__(
        self,
        *,
        alpha: float | None = None,
        gamma: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class SequenceAt(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input_sequence: Operand, position: Operand) -> Value: ...

class SequenceEmpty(Operator):
    def __init__(self, *, dtype: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self) -> Value: ...

class SequenceErase(Operator):
    def __init__(self, *, position: Operand = None, outputs: int | None = None) -> None: ...
    def __call__(self, input_sequence: Operand, position: Operand = None) -> Value: ...

class SequenceInsert(Operator):
    def __init__(self, *, position: Operand = None, outputs: int | None = None) -> None: ...
    def __call__(self, input_sequence: Operand, tensor: Operand, position: Operand = None) -> Value: ...

class SequenceLength(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input_sequence: Operand) -> Value: ...

class SequenceMap(Operator):
    def __init__(self, *, body: GraphProto, outputs: int | None = None) -> None: ...
    def __call__(self, input_sequence: Operand, *additional_inputs: Operand) -> Any: ...

class Shape(Operator):
    def __init__(self, *, end: int | None = None, start: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand) -> Value: ...

class Shrink(Operator):
    def __init__(
        self,
        *,
        bias: float | None = None,
        lambd: float | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Sign(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Sin(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Sinh(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Size(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand) -> Value: ...

class Slice(Operator):
    def __init__(self, *, axes: Operand = None, steps: Operand = None, outputs: int | None = None) -> None: ...
    def __call__(
        self,
        data: Operand,
        starts: Operand,
        ends: Operand,
        axes: Operand = None,
        steps: Operand = None,
    ) -> Value: ...

class Softmax(Operator):
    def __init__(self, *, axis: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class SoftmaxCrossEntropyLoss(Operator):
    def __init__(
        self,
        *,
        ignore_index: int | None = None,
        reduction: str | None = None,
        weights: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, scores: Operand, labels: Operand, weights: Operand = None) -> Any: ...

class Softplus(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Softsign(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class SpaceToDepth(Operator):
    def __init__(self, *, blocksize: int, mode: str | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Split(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        num_outputs: int | None = None,
        split: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, split: Operand = None) -> Any: ...

class SplitToSequence(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        keepdims: int | None = None,
        split: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, input: Operand, split: Operand = None) -> Value: ...

class Sqrt(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Squeeze(Operator):
    def __init__(self, *, axes: Operand = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand, axes: Operand = None) -> Value: ...

class StringConcat(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand, Y: Operand) -> Value: ...

class StringNormalizer(Operator):
    def __init__(
        self,
        *,
        case_change_action: str | None = None,
        is_case_sensitive: int | None = None,
        locale: str | None = None,
        stopwords: Sequence[str] | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class StringSplit(Operator):
    def __init__(
        self,
        *,
        delimiter: str | None = None,
        maxsplit: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Any: ...

class Sum(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, *data_0: Operand) -> Value: ...

class SwiGLU(Operator):
    def __init__(self, *, alpha: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...

class Swish(Operator):
    def __init__(self, *, alpha: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Tan(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class Tanh(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand) -> Value: ...

class TensorScatter(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        mode: str | None = None,
        write_indices: Operand = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, past_cache: Operand, update: Operand, write_indices: Operand = None) -> Value: ...

class TfIdfVectorizer(Operator):
    def __init__(
        self,
        *,
        max_gram_length: int,
        max_skip_count: int,
        min_gram_length: int,
        mode: str,
        ngram_counts: Sequence[int],
        ngram_indexes: Sequence[int],
        pool_int64s: Sequence[int] | None = None,
        pool_strings: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class ThresholdedRelu(Operator):
    def __init__(self, *, alpha: float | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Value: ...

class Tile(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand, repeats: Operand) -> Value: ...

class TopK(Operator):
    def __init__(
        self,
        *,
        axis: int | None = None,
        largest: int | None = None,
        sorted: int | None = None,
        outputs: int | None = None,
    ) -> None: ...
    def __call__(self, X: Operand, K: Operand) -> Any: ...

class Transpose(Operator):
    def __init__(self, *, perm: Sequence[int] | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand) -> Value: ...

class Trilu(Operator):
    def __init__(self, *, upper: int | None = None, k: Operand = None, outputs: int | None = None) -> None: ...
    def __call__(self, input: Operand, k: Operand = None) -> Value: ...

class Unique(Operator):
    def __init__(self, *, axis: int | None = None, sorted: int | None = None, outputs: int | None = None) -> None: ...
    def __call__(self, X: Operand) -> Any: ...

class Unsqueeze(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, data: Operand, axes: Operand) -> Value: ...

class Where(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, condition: Operand, X: Operand, Y: Operand) -> Value: ...

class Xor(Operator):
    def __init__(self, *, outputs: int | None = None) -> None: ...
    def __call__(self, A: Operand, B: Operand) -> Value: ...
