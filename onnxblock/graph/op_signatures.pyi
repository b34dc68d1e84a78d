# Written by tools/make_stubs.py from the operators of opset 28; not to be edited.

from collections.abc import Sequence
from typing import Any, Literal, overload

from numpy.typing import NDArray
from onnx import GraphProto, SparseTensorProto, TensorProto, TypeProto

from .value import Operand, Value

class Signatures:
    def Abs(self, X: Operand) -> Value: ...
    def Acos(self, input: Operand) -> Value: ...
    def Acosh(self, input: Operand) -> Value: ...
    def Add(self, A: Operand, B: Operand) -> Value: ...
    def AffineGrid(self, theta: Operand, size: Operand, *, align_corners: int | None = None) -> Value: ...
    def And(self, A: Operand, B: Operand) -> Value: ...
    def ArgMax(
        self,
        data: Operand,
        *,
        axis: int | None = None,
        keepdims: int | None = None,
        select_last_index: int | None = None,
    ) -> Value: ...
    def ArgMin(
        self,
        data: Operand,
        *,
        axis: int | None = None,
        keepdims: int | None = None,
        select_last_index: int | None = None,
    ) -> Value: ...
    def Asin(self, input: Operand) -> Value: ...
    def Asinh(self, input: Operand) -> Value: ...
    def Atan(self, input: Operand) -> Value: ...
    def Atanh(self, input: Operand) -> Value: ...
    @overload
    def Attention(
        self,
        Q: Operand,
        K: Operand,
        V: Operand,
        attn_mask: Operand = None,
        past_key: Operand = None,
        past_value: Operand = None,
        nonpad_kv_seqlen: Operand = None,
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
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def Attention(
        self,
        Q: Operand,
        K: Operand,
        V: Operand,
        attn_mask: Operand = None,
        past_key: Operand = None,
        past_value: Operand = None,
        nonpad_kv_seqlen: Operand = None,
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
        outputs: int,
    ) -> Any: ...
    def AveragePool(
        self,
        X: Operand,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        count_include_pad: int | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    @overload
    def BatchNormalization(
        self,
        X: Operand,
        scale: Operand,
        B: Operand,
        input_mean: Operand,
        input_var: Operand,
        *,
        epsilon: float | None = None,
        momentum: float | None = None,
        training_mode: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def BatchNormalization(
        self,
        X: Operand,
        scale: Operand,
        B: Operand,
        input_mean: Operand,
        input_var: Operand,
        *,
        epsilon: float | None = None,
        momentum: float | None = None,
        training_mode: int | None = None,
        outputs: int,
    ) -> Any: ...
    def Bernoulli(self, input: Operand, *, dtype: int | None = None, seed: float | None = None) -> Value: ...
    def BitCast(self, input: Operand, *, to: int) -> Value: ...
    def BitShift(self, X: Operand, Y: Operand, *, direction: str) -> Value: ...
    def BitwiseAnd(self, A: Operand, B: Operand) -> Value: ...
    def BitwiseNot(self, X: Operand) -> Value: ...
    def BitwiseOr(self, A: Operand, B: Operand) -> Value: ...
    def BitwiseXor(self, A: Operand, B: Operand) -> Value: ...
    def BlackmanWindow(
        self,
        size: Operand,
        *,
        output_datatype: int | None = None,
        periodic: int | None = None,
    ) -> Value: ...
    def Cast(self, input: Operand, *, to: int, round_mode: str | None = None, saturate: int | None = None) -> Value: ...
    def CastLike(
        self,
        input: Operand,
        target_type: Operand,
        *,
        round_mode: str | None = None,
        saturate: int | None = None,
    ) -> Value: ...
    @overload
    def CausalConvWithState(
        self,
        input: Operand,
        weight: Operand,
        bias: Operand = None,
        past_state: Operand = None,
        *,
        activation: str | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def CausalConvWithState(
        self,
        input: Operand,
        weight: Operand,
        bias: Operand = None,
        past_state: Operand = None,
        *,
        activation: str | None = None,
        outputs: int,
    ) -> Any: ...
    def Ceil(self, X: Operand) -> Value: ...
    def Celu(self, X: Operand, *, alpha: float | None = None) -> Value: ...
    def CenterCropPad(self, input_data: Operand, shape: Operand, *, axes: Sequence[int] | None = None) -> Value: ...
    def Clip(self, input: Operand, min: Operand = None, max: Operand = None) -> Value: ...
    def Col2Im(
        self,
        input: Operand,
        image_shape: Operand,
        block_shape: Operand,
        *,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def Compress(self, input: Operand, condition: Operand, *, axis: int | None = None) -> Value: ...
    def Concat(self, *inputs: Operand, axis: int) -> Value: ...
    def ConcatFromSequence(self, input_sequence: Operand, *, axis: int, new_axis: int | None = None) -> Value: ...
    def Constant(
        self,
        *,
        sparse_value: SparseTensorProto | None = None,
        value: TensorProto | NDArray[Any] | None = None,
        value_float: float | None = None,
        value_floats: Sequence[float] | None = None,
        value_int: int | None = None,
        value_ints: Sequence[int] | None = None,
        value_string: str | None = None,
        value_strings: Sequence[str] | None = None,
    ) -> Value: ...
    def ConstantOfShape(self, input: Operand, *, value: TensorProto | NDArray[Any] | None = None) -> Value: ...
    def Conv(
        self,
        X: Operand,
        W: Operand,
        B: Operand = None,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def ConvInteger(
        self,
        x: Operand,
        w: Operand,
        x_zero_point: Operand = None,
        w_zero_point: Operand = None,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def ConvTranspose(
        self,
        X: Operand,
        W: Operand,
        B: Operand = None,
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def Cos(self, input: Operand) -> Value: ...
    def Cosh(self, input: Operand) -> Value: ...
    def CumProd(
        self,
        x: Operand,
        axis: Operand,
        *,
        exclusive: int | None = None,
        reverse: int | None = None,
    ) -> Value: ...
    def CumSum(
        self,
        x: Operand,
        axis: Operand,
        *,
        exclusive: int | None = None,
        reverse: int | None = None,
    ) -> Value: ...
    def DFT(
        self,
        input: Operand,
        dft_length: Operand = None,
        axis: Operand = None,
        *,
        inverse: int | None = None,
        onesided: int | None = None,
    ) -> Value: ...
    def DeformConv(
        self,
        X: Operand,
        W: Operand,
        offset: Operand,
        B: Operand = None,
        mask: Operand = None,
        *,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        offset_group: int | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def DepthToSpace(self, input: Operand, *, blocksize: int, mode: str | None = None) -> Value: ...
    def DequantizeLinear(
        self,
        x: Operand,
        x_scale: Operand,
        x_zero_point: Operand = None,
        *,
        axis: int | None = None,
        block_size: int | None = None,
        output_dtype: int | None = None,
    ) -> Value: ...
    def Det(self, X: Operand) -> Value: ...
    def Div(self, A: Operand, B: Operand) -> Value: ...
    @overload
    def Dropout(
        self,
        data: Operand,
        ratio: Operand = None,
        training_mode: Operand = None,
        *,
        seed: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def Dropout(
        self,
        data: Operand,
        ratio: Operand = None,
        training_mode: Operand = None,
        *,
        seed: int | None = None,
        outputs: int,
    ) -> Any: ...
    @overload
    def DynamicQuantizeLinear(self, x: Operand, *, outputs: Literal[1] = 1) -> Value: ...
    @overload
    def DynamicQuantizeLinear(self, x: Operand, *, outputs: int) -> Any: ...
    def Einsum(self, *Inputs: Operand, equation: str) -> Value: ...
    def Elu(self, X: Operand, *, alpha: float | None = None) -> Value: ...
    def Equal(self, A: Operand, B: Operand) -> Value: ...
    def Erf(self, input: Operand) -> Value: ...
    def Exp(self, input: Operand) -> Value: ...
    def Expand(self, input: Operand, shape: Operand) -> Value: ...
    def EyeLike(self, input: Operand, *, dtype: int | None = None, k: int | None = None) -> Value: ...
    def Flatten(self, input: Operand, *, axis: int | None = None) -> Value: ...
    def Floor(self, X: Operand) -> Value: ...
    @overload
    def GRU(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        layout: int | None = None,
        linear_before_reset: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def GRU(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        layout: int | None = None,
        linear_before_reset: int | None = None,
        outputs: int,
    ) -> Any: ...
    def Gather(self, data: Operand, indices: Operand, *, axis: int | None = None) -> Value: ...
    def GatherElements(self, data: Operand, indices: Operand, *, axis: int | None = None) -> Value: ...
    def GatherND(self, data: Operand, indices: Operand, *, batch_dims: int | None = None) -> Value: ...
    def Gelu(self, X: Operand, *, approximate: str | None = None) -> Value: ...
    def Gemm(
        self,
        A: Operand,
        B: Operand,
        C: Operand = None,
        *,
        alpha: float | None = None,
        beta: float | None = None,
        transA: int | None = None,
        transB: int | None = None,
    ) -> Value: ...
    def GlobalAveragePool(self, X: Operand) -> Value: ...
    def GlobalLpPool(self, X: Operand, *, p: int | None = None) -> Value: ...
    def GlobalMaxPool(self, X: Operand) -> Value: ...
    def Greater(self, A: Operand, B: Operand) -> Value: ...
    def GreaterOrEqual(self, A: Operand, B: Operand) -> Value: ...
    def GridSample(
        self,
        X: Operand,
        grid: Operand,
        *,
        align_corners: int | None = None,
        mode: str | None = None,
        padding_mode: str | None = None,
    ) -> Value: ...
    def GroupNormalization(
        self,
        X: Operand,
        scale: Operand,
        bias: Operand,
        *,
        num_groups: int,
        epsilon: float | None = None,
        stash_type: int | None = None,
    ) -> Value: ...
    def HammingWindow(
        self,
        size: Operand,
        *,
        output_datatype: int | None = None,
        periodic: int | None = None,
    ) -> Value: ...
    def HannWindow(
        self,
        size: Operand,
        *,
        output_datatype: int | None = None,
        periodic: int | None = None,
    ) -> Value: ...
    def HardSigmoid(self, X: Operand, *, alpha: float | None = None, beta: float | None = None) -> Value: ...
    def HardSwish(self, X: Operand) -> Value: ...
    def Hardmax(self, input: Operand, *, axis: int | None = None) -> Value: ...
    def Identity(self, input: Operand) -> Value: ...
    @overload
    def If(
        self,
        cond: Operand,
        *,
        else_branch: GraphProto,
        then_branch: GraphProto,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def If(self, cond: Operand, *, else_branch: GraphProto, then_branch: GraphProto, outputs: int) -> Any: ...
    def ImageDecoder(self, encoded_stream: Operand, *, pixel_format: str | None = None) -> Value: ...
    def InstanceNormalization(
        self,
        input: Operand,
        scale: Operand,
        B: Operand,
        *,
        epsilon: float | None = None,
    ) -> Value: ...
    def IsInf(self, X: Operand, *, detect_negative: int | None = None, detect_positive: int | None = None) -> Value: ...
    def IsNaN(self, X: Operand) -> Value: ...
    def LRN(
        self,
        X: Operand,
        *,
        size: int,
        alpha: float | None = None,
        beta: float | None = None,
        bias: float | None = None,
    ) -> Value: ...
    @overload
    def LSTM(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        initial_c: Operand = None,
        P: Operand = None,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        input_forget: int | None = None,
        layout: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def LSTM(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        initial_c: Operand = None,
        P: Operand = None,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        input_forget: int | None = None,
        layout: int | None = None,
        outputs: int,
    ) -> Any: ...
    @overload
    def LayerNormalization(
        self,
        X: Operand,
        Scale: Operand,
        B: Operand = None,
        *,
        axis: int | None = None,
        epsilon: float | None = None,
        stash_type: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def LayerNormalization(
        self,
        X: Operand,
        Scale: Operand,
        B: Operand = None,
        *,
        axis: int | None = None,
        epsilon: float | None = None,
        stash_type: int | None = None,
        outputs: int,
    ) -> Any: ...
    def LeakyRelu(self, X: Operand, *, alpha: float | None = None) -> Value: ...
    def Less(self, A: Operand, B: Operand) -> Value: ...
    def LessOrEqual(self, A: Operand, B: Operand) -> Value: ...
    @overload
    def LinearAttention(
        self,
        query: Operand,
        key: Operand,
        value: Operand,
        past_state: Operand = None,
        decay: Operand = None,
        beta: Operand = None,
        *,
        kv_num_heads: int,
        q_num_heads: int,
        chunk_size: int | None = None,
        scale: float | None = None,
        update_rule: str | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def LinearAttention(
        self,
        query: Operand,
        key: Operand,
        value: Operand,
        past_state: Operand = None,
        decay: Operand = None,
        beta: Operand = None,
        *,
        kv_num_heads: int,
        q_num_heads: int,
        chunk_size: int | None = None,
        scale: float | None = None,
        update_rule: str | None = None,
        outputs: int,
    ) -> Any: ...
    def Log(self, input: Operand) -> Value: ...
    def LogSoftmax(self, input: Operand, *, axis: int | None = None) -> Value: ...
    @overload
    def Loop(
        self,
        M: Operand = None,
        cond: Operand = None,
        *v_initial: Operand,
        body: GraphProto,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def Loop(
        self,
        M: Operand = None,
        cond: Operand = None,
        *v_initial: Operand,
        body: GraphProto,
        outputs: int,
    ) -> Any: ...
    def LpNormalization(self, input: Operand, *, axis: int | None = None, p: int | None = None) -> Value: ...
    def LpPool(
        self,
        X: Operand,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Sequence[int] | None = None,
        p: int | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def MatMul(self, A: Operand, B: Operand) -> Value: ...
    def MatMulInteger(
        self,
        A: Operand,
        B: Operand,
        a_zero_point: Operand = None,
        b_zero_point: Operand = None,
    ) -> Value: ...
    def Max(self, *data_0: Operand) -> Value: ...
    @overload
    def MaxPool(
        self,
        X: Operand,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        storage_order: int | None = None,
        strides: Sequence[int] | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def MaxPool(
        self,
        X: Operand,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        storage_order: int | None = None,
        strides: Sequence[int] | None = None,
        outputs: int,
    ) -> Any: ...
    def MaxRoiPool(
        self,
        X: Operand,
        rois: Operand,
        *,
        pooled_shape: Sequence[int],
        spatial_scale: float | None = None,
    ) -> Value: ...
    def MaxUnpool(
        self,
        X: Operand,
        I: Operand,
        output_shape: Operand = None,
        *,
        kernel_shape: Sequence[int],
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def Mean(self, *data_0: Operand) -> Value: ...
    def MeanVarianceNormalization(self, X: Operand, *, axes: Sequence[int] | None = None) -> Value: ...
    def MelWeightMatrix(
        self,
        num_mel_bins: Operand,
        dft_length: Operand,
        sample_rate: Operand,
        lower_edge_hertz: Operand,
        upper_edge_hertz: Operand,
        *,
        output_datatype: int | None = None,
    ) -> Value: ...
    def Min(self, *data_0: Operand) -> Value: ...
    def Mish(self, X: Operand) -> Value: ...
    def Mod(self, A: Operand, B: Operand, *, fmod: int | None = None) -> Value: ...
    def Mul(self, A: Operand, B: Operand) -> Value: ...
    def Multinomial(
        self,
        input: Operand,
        *,
        dtype: int | None = None,
        sample_size: int | None = None,
        seed: float | None = None,
    ) -> Value: ...
    def Neg(self, X: Operand) -> Value: ...
    def NegativeLogLikelihoodLoss(
        self,
        input: Operand,
        target: Operand,
        weight: Operand = None,
        *,
        ignore_index: int | None = None,
        reduction: str | None = None,
    ) -> Value: ...
    def NonMaxSuppression(
        self,
        boxes: Operand,
        scores: Operand,
        max_output_boxes_per_class: Operand = None,
        iou_threshold: Operand = None,
        score_threshold: Operand = None,
        *,
        center_point_box: int | None = None,
    ) -> Value: ...
    def NonZero(self, X: Operand) -> Value: ...
    def Not(self, X: Operand) -> Value: ...
    def OneHot(self, indices: Operand, depth: Operand, values: Operand, *, axis: int | None = None) -> Value: ...
    def Optional(self, input: Operand = None, *, type: TypeProto | None = None) -> Value: ...
    def OptionalGetElement(self, input: Operand) -> Value: ...
    def OptionalHasElement(self, input: Operand = None) -> Value: ...
    def Or(self, A: Operand, B: Operand) -> Value: ...
    def PRelu(self, X: Operand, slope: Operand) -> Value: ...
    def Pad(
        self,
        data: Operand,
        pads: Operand,
        constant_value: Operand = None,
        axes: Operand = None,
        *,
        mode: str | None = None,
    ) -> Value: ...
    def Pow(self, X: Operand, Y: Operand) -> Value: ...
    def QLinearConv(
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
        *,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def QLinearMatMul(
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
    def QuantizeLinear(
        self,
        x: Operand,
        y_scale: Operand,
        y_zero_point: Operand = None,
        *,
        axis: int | None = None,
        block_size: int | None = None,
        output_dtype: int | None = None,
        precision: int | None = None,
        saturate: int | None = None,
    ) -> Value: ...
    def RMSNormalization(
        self,
        X: Operand,
        scale: Operand,
        *,
        axis: int | None = None,
        epsilon: float | None = None,
        stash_type: int | None = None,
    ) -> Value: ...
    @overload
    def RNN(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        layout: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def RNN(
        self,
        X: Operand,
        W: Operand,
        R: Operand,
        B: Operand = None,
        sequence_lens: Operand = None,
        initial_h: Operand = None,
        *,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = None,
        hidden_size: int | None = None,
        layout: int | None = None,
        outputs: int,
    ) -> Any: ...
    def RandomNormal(
        self,
        *,
        shape: Sequence[int],
        dtype: int | None = None,
        mean: float | None = None,
        scale: float | None = None,
        seed: float | None = None,
    ) -> Value: ...
    def RandomNormalLike(
        self,
        input: Operand,
        *,
        dtype: int | None = None,
        mean: float | None = None,
        scale: float | None = None,
        seed: float | None = None,
    ) -> Value: ...
    def RandomUniform(
        self,
        *,
        shape: Sequence[int],
        dtype: int | None = None,
        high: float | None = None,
        low: float | None = None,
        seed: float | None = None,
    ) -> Value: ...
    def RandomUniformLike(
        self,
        input: Operand,
        *,
        dtype: int | None = None,
        high: float | None = None,
        low: float | None = None,
        seed: float | None = None,
    ) -> Value: ...
    def Range(self, start: Operand, limit: Operand, delta: Operand, *, stash_type: int | None = None) -> Value: ...
    def Reciprocal(self, X: Operand) -> Value: ...
    def ReduceL1(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceL2(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceLogSum(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceLogSumExp(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceMax(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceMean(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceMin(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceProd(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceSum(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def ReduceSumSquare(
        self,
        data: Operand,
        axes: Operand = None,
        *,
        keepdims: int | None = None,
        noop_with_empty_axes: int | None = None,
    ) -> Value: ...
    def RegexFullMatch(self, X: Operand, *, pattern: str | None = None) -> Value: ...
    def Relu(self, X: Operand) -> Value: ...
    def Reshape(self, data: Operand, shape: Operand, *, allowzero: int | None = None) -> Value: ...
    def Resize(
        self,
        X: Operand,
        roi: Operand = None,
        scales: Operand = None,
        sizes: Operand = None,
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
    ) -> Value: ...
    def ReverseSequence(
        self,
        input: Operand,
        sequence_lens: Operand,
        *,
        batch_axis: int | None = None,
        time_axis: int | None = None,
    ) -> Value: ...
    def RoiAlign(
        self,
        X: Operand,
        rois: Operand,
        batch_indices: Operand,
        *,
        coordinate_transformation_mode: str | None = None,
        mode: str | None = None,
        output_height: int | None = None,
        output_width: int | None = None,
        sampling_ratio: int | None = None,
        spatial_scale: float | None = None,
    ) -> Value: ...
    def RotaryEmbedding(
        self,
        X: Operand,
        cos_cache: Operand,
        sin_cache: Operand,
        position_ids: Operand = None,
        *,
        interleaved: int | None = None,
        num_heads: int | None = None,
        rotary_embedding_dim: int | None = None,
    ) -> Value: ...
    def Round(self, X: Operand) -> Value: ...
    def STFT(
        self,
        signal: Operand,
        frame_step: Operand,
        window: Operand = None,
        frame_length: Operand = None,
        *,
        onesided: int | None = None,
    ) -> Value: ...
    @overload
    def Scan(
        self,
        *initial_state_and_scan_inputs: Operand,
        body: GraphProto,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def Scan(
        self,
        *initial_state_and_scan_inputs: Operand,
        body: GraphProto,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None,
        outputs: int,
    ) -> Any: ...
    def ScatterElements(
        self,
        data: Operand,
        indices: Operand,
        updates: Operand,
        *,
        axis: int | None = None,
        reduction: str | None = None,
    ) -> Value: ...
    def ScatterND(
        self,
        data: Operand,
        indices: Operand,
        updates: Operand,
        *,
        reduction: str | None = None,
    ) -> Value: ...
    def Selu(self, X: Operand, *, alpha: float | None = None, gamma: float | None = None) -> Value: ...
    def SequenceAt(self, input_sequence: Operand, position: Operand) -> Value: ...
    def SequenceConstruct(self, *inputs: Operand) -> Value: ...
    def SequenceEmpty(self, *, dtype: int | None = None) -> Value: ...
    def SequenceErase(self, input_sequence: Operand, position: Operand = None) -> Value: ...
    def SequenceInsert(self, input_sequence: Operand, tensor: Operand, position: Operand = None) -> Value: ...
    def SequenceLength(self, input_sequence: Operand) -> Value: ...
    @overload
    def SequenceMap(
        self,
        input_sequence: Operand,
        *additional_inputs: Operand,
        body: GraphProto,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def SequenceMap(
        self,
        input_sequence: Operand,
        *additional_inputs: Operand,
        body: GraphProto,
        outputs: int,
    ) -> Any: ...
    def Shape(self, data: Operand, *, end: int | None = None, start: int | None = None) -> Value: ...
    def Shrink(self, input: Operand, *, bias: float | None = None, lambd: float | None = None) -> Value: ...
    def Sigmoid(self, X: Operand) -> Value: ...
    def Sign(self, input: Operand) -> Value: ...
    def Sin(self, input: Operand) -> Value: ...
    def Sinh(self, input: Operand) -> Value: ...
    def Size(self, data: Operand) -> Value: ...
    def Slice(
        self,
        data: Operand,
        starts: Operand,
        ends: Operand,
        axes: Operand = None,
        steps: Operand = None,
    ) -> Value: ...
    def Softmax(self, input: Operand, *, axis: int | None = None) -> Value: ...
    @overload
    def SoftmaxCrossEntropyLoss(
        self,
        scores: Operand,
        labels: Operand,
        weights: Operand = None,
        *,
        ignore_index: int | None = None,
        reduction: str | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def SoftmaxCrossEntropyLoss(
        self,
        scores: Operand,
        labels: Operand,
        weights: Operand = None,
        *,
        ignore_index: int | None = None,
        reduction: str | None = None,
        outputs: int,
    ) -> Any: ...
    def Softplus(self, X: Operand) -> Value: ...
    def Softsign(self, input: Operand) -> Value: ...
    def SpaceToDepth(self, input: Operand, *, blocksize: int, mode: str | None = None) -> Value: ...
    @overload
    def Split(
        self,
        input: Operand,
        split: Operand = None,
        *,
        axis: int | None = None,
        num_outputs: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def Split(
        self,
        input: Operand,
        split: Operand = None,
        *,
        axis: int | None = None,
        num_outputs: int | None = None,
        outputs: int,
    ) -> Any: ...
    def SplitToSequence(
        self,
        input: Operand,
        split: Operand = None,
        *,
        axis: int | None = None,
        keepdims: int | None = None,
    ) -> Value: ...
    def Sqrt(self, X: Operand) -> Value: ...
    def Squeeze(self, data: Operand, axes: Operand = None) -> Value: ...
    def StringConcat(self, X: Operand, Y: Operand) -> Value: ...
    def StringNormalizer(
        self,
        X: Operand,
        *,
        case_change_action: str | None = None,
        is_case_sensitive: int | None = None,
        locale: str | None = None,
        stopwords: Sequence[str] | None = None,
    ) -> Value: ...
    @overload
    def StringSplit(
        self,
        X: Operand,
        *,
        delimiter: str | None = None,
        maxsplit: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def StringSplit(
        self,
        X: Operand,
        *,
        delimiter: str | None = None,
        maxsplit: int | None = None,
        outputs: int,
    ) -> Any: ...
    def Sub(self, A: Operand, B: Operand) -> Value: ...
    def Sum(self, *data_0: Operand) -> Value: ...
    def SwiGLU(self, A: Operand, B: Operand, *, alpha: float | None = None) -> Value: ...
    def Swish(self, X: Operand, *, alpha: float | None = None) -> Value: ...
    def Tan(self, input: Operand) -> Value: ...
    def Tanh(self, input: Operand) -> Value: ...
    def TensorScatter(
        self,
        past_cache: Operand,
        update: Operand,
        write_indices: Operand = None,
        *,
        axis: int | None = None,
        mode: str | None = None,
    ) -> Value: ...
    def TfIdfVectorizer(
        self,
        X: Operand,
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
    ) -> Value: ...
    def ThresholdedRelu(self, X: Operand, *, alpha: float | None = None) -> Value: ...
    def Tile(self, input: Operand, repeats: Operand) -> Value: ...
    @overload
    def TopK(
        self,
        X: Operand,
        K: Operand,
        *,
        axis: int | None = None,
        largest: int | None = None,
        sorted: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def TopK(
        self,
        X: Operand,
        K: Operand,
        *,
        axis: int | None = None,
        largest: int | None = None,
        sorted: int | None = None,
        outputs: int,
    ) -> Any: ...
    def Transpose(self, data: Operand, *, perm: Sequence[int] | None = None) -> Value: ...
    def Trilu(self, input: Operand, k: Operand = None, *, upper: int | None = None) -> Value: ...
    @overload
    def Unique(
        self,
        X: Operand,
        *,
        axis: int | None = None,
        sorted: int | None = None,
        outputs: Literal[1] = 1,
    ) -> Value: ...
    @overload
    def Unique(self, X: Operand, *, axis: int | None = None, sorted: int | None = None, outputs: int) -> Any: ...
    def Unsqueeze(self, data: Operand, axes: Operand) -> Value: ...
    def Where(self, condition: Operand, X: Operand, Y: Operand) -> Value: ...
    def Xor(self, A: Operand, B: Operand) -> Value: ...
