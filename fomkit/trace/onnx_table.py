"""The one table from ONNX's op names to what they cost; to support an op, add its name here.

Three states: a rule gives the works of a priced op, ``None`` marks an op that does no work, and an op that is
missing is unsupported and listed. What an op's gradient costs is said in `fomkit.trace.onnx_gradients`.
"""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.trace.calls import Rule
from fomkit.trace.onnx_conv import convolution
from fomkit.trace.onnx_gemm import einsum, matrix_product
from fomkit.trace.onnx_rows import attention, recurrent
from fomkit.trace.onnx_traffic import (
    axis_norm,
    batch_norm,
    gather,
    global_pool,
    group_norm,
    instance_norm,
    layer_norm,
    picked,
    picked_loss,
    put,
    softmax_loss,
    softmax_of,
    window_pool,
)
from fomkit.trace.traffic import copy, generate, other, pointwise, reduction, upsample


def _each(rule: Rule | None, names: str) -> dict[str, Rule | None]:
    return dict.fromkeys(names.split(), rule)


def names(text: str) -> frozenset[str]:
    """Read a list of names."""
    return frozenset(text.split())


POINTWISE = names(
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu
    Clip Cos Cosh Div Dropout Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf
    IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu
    RotaryEmbedding Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum SwiGLU Swish Tan Tanh
    ThresholdedRelu Where Xor"""
)
"""Ops that work element by element."""

REDUCTIONS = names(
    """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare ArgMax ArgMin"""
)

MOVES = names(
    """Cast CastLike CenterCropPad Col2Im Concat DepthToSpace Expand Pad ReverseSequence SpaceToDepth Split Tile
    Transpose Trilu"""
)
"""Ops that move all their data unchanged."""

PICKS = frozenset(["Compress", "GatherElements", "GatherND", "Slice"])

RULES: Mapping[str, Rule | None] = {
    **_each(matrix_product, "Gemm MatMul MatMulInteger QLinearMatMul"),
    "Einsum": einsum,
    **_each(convolution, "Conv ConvTranspose ConvInteger QLinearConv"),
    **_each(recurrent, "LSTM GRU RNN"),
    "Attention": attention,
    "BatchNormalization": batch_norm,
    "InstanceNormalization": instance_norm,
    "GroupNormalization": group_norm,
    **_each(layer_norm, "LayerNormalization RMSNormalization"),
    **_each(axis_norm, "LpNormalization MeanVarianceNormalization"),
    **_each(softmax_of(-1), "Softmax LogSoftmax Hardmax"),
    **_each(window_pool, "MaxPool AveragePool LpPool"),
    **_each(global_pool, "GlobalAveragePool GlobalMaxPool GlobalLpPool"),
    "Gather": gather,
    "NegativeLogLikelihoodLoss": picked_loss,
    "SoftmaxCrossEntropyLoss": softmax_loss,
    **dict.fromkeys(POINTWISE, pointwise),
    **_each(pointwise, "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
    **_each(upsample, "Resize Upsample"),
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(MOVES, copy),
    **dict.fromkeys(PICKS, picked),
    **_each(put, "Scatter ScatterElements ScatterND TensorScatter"),
    **_each(
        generate,
        """Bernoulli BlackmanWindow ConstantOfShape EyeLike HammingWindow HannWindow OneHot RandomNormal
        RandomNormalLike RandomUniform RandomUniformLike Range""",
    ),
    # work with no formula of its own
    **_each(
        other,
        """CumProd CumSum GridSample LRN MaxRoiPool MaxUnpool Multinomial NonMaxSuppression NonZero RoiAlign TopK
        Unique""",
    ),
    # no work: a description changes, or a shape is worked out
    **_each(None, "Constant Flatten Identity Reshape Shape Size Squeeze Unsqueeze"),
}
"""Op types as graphs spell them, of ONNX's own set."""

SAME_SHAPE = POINTWISE | {
    "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization",
    "LpNormalization", "MeanVarianceNormalization", "Softmax", "LogSoftmax", "Hardmax", "LRN",
}  # fmt: skip
"""Ops whose first result has the shape of their first input, where nothing else says so."""
