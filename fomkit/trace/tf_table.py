"""The one table from TensorFlow's op names to what they cost; to support an op, add its name here.

Three states: a rule gives the works of a priced op, ``None`` marks an op that does no work, and an op that is
missing is unsupported and listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.trace.calls import Rule
from fomkit.trace.tf_conv import convolution, input_gradient, weight_gradient
from fomkit.trace.tf_gemm import einsum, matrix_product
from fomkit.trace.tf_traffic import add_by_index, batch_norm, gather_from, pool, softmax, sum_of_rows
from fomkit.trace.traffic import copy, generate, other, pointwise


def _each(rule: Rule | None, names: str) -> dict[str, Rule | None]:
    return dict.fromkeys(names.split(), rule)


PRODUCTS = frozenset(["MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"])
"""Matrix products, whose gradients are products too."""

RULES: Mapping[str, Rule | None] = {
    **_each(matrix_product, "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3"),
    "Einsum": einsum,
    **_each(convolution, "Conv2D Conv3D DepthwiseConv2dNative"),
    **_each(input_gradient, "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput"),
    **_each(weight_gradient, "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter"),
    **_each(
        batch_norm,
        """FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGrad FusedBatchNormGradV2
        FusedBatchNormGradV3""",
    ),
    **_each(softmax, "Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"),
    **_each(
        pool,
        """MaxPool MaxPool3D MaxPoolGrad MaxPool3DGrad MaxPoolWithArgmax MaxPoolGradWithArgmax AvgPool AvgPool3D
        AvgPoolGrad AvgPool3DGrad""",
    ),
    **_each(gather_from("params"), "GatherV2 Gather GatherNd"),
    **_each(gather_from("resource"), "ResourceGather ResourceGatherNd"),
    **_each(
        add_by_index,
        """UnsortedSegmentSum SegmentSum SegmentSumV2 ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate
        ScatterNd TensorScatterAdd TensorScatterUpdate""",
    ),
    **_each(
        sum_of_rows,
        """Sum Mean Max Min Prod All Any ArgMax ArgMin EuclideanNorm L2Loss BiasAddGrad InTopKV2""",
    ),
    # element by element, their gradients too
    **_each(
        pointwise,
        """Abs Acos Acosh Add AddN AddV2 Asin Asinh Atan Atan2 Atanh BiasAdd Bitcast BitwiseAnd BitwiseOr
        BitwiseXor Cast Ceil ClipByValue Complex Conj Cos Cosh Digamma Div DivNoNan Elu EluGrad Equal
        Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Igamma Imag Inv InvGrad
        IsFinite IsInf IsNan LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p
        LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual
        Pow Real RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad RightShift Rint Round
        Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Softplus
        SoftplusGrad Softsign SoftsignGrad Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh TanhGrad
        TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta AssignAddVariableOp AssignSubVariableOp
        ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad ResizeBicubic
        ResizeBicubicGrad""",
    ),
    # data that moves unchanged
    **_each(
        copy,
        """BatchToSpaceND BroadcastTo Concat ConcatV2 DepthToSpace DynamicStitch ExtractImagePatches
        InvertPermutation MatrixBandPart MatrixDiagV3 MatrixDiagPartV3 MirrorPad MirrorPadGrad Pack Pad
        PadV2 Reverse ReverseV2 Roll Slice SpaceToBatchND SpaceToDepth Split SplitV StridedSlice
        StridedSliceGrad Tile Transpose Unpack TensorListStack TensorListFromTensor TensorListConcatV2
        TensorListSplit""",
    ),
    **_each(
        generate,
        """Fill LinSpace Multinomial OneHot OnesLike RandomGamma RandomShuffle RandomStandardNormal RandomUniform
        RandomUniformInt Range StatelessMultinomial StatelessRandomNormal StatelessRandomNormalV2
        StatelessRandomUniform StatelessRandomUniformInt StatelessRandomUniformIntV2
        StatelessRandomUniformV2 StatelessTruncatedNormalV2 TruncatedNormal ZerosLike""",
    ),
    # work with no formula of its own
    **_each(other, "Bincount Cumprod Cumsum DenseBincount LRN LRNGrad SearchSorted Sort TopKV2 UniqueV2 Where"),
    # no work: a description changes, a buffer changes hands, or a shape is worked out
    **_each(
        None,
        """Assert AssignVariableOp BroadcastArgs BroadcastGradientArgs CheckNumerics Const ConcatOffset Empty
        EmptyTensorList EnsureShape ExpandDims Identity IdentityN NoOp Placeholder PreventGradient Rank
        ReadVariableOp Reshape Shape ShapeN Size Snapshot Squeeze StatelessRandomGetKeyCounter
        StatelessRandomGetAlg StopGradient TensorListElementShape TensorListGetItem TensorListLength
        TensorListPopBack TensorListPushBack TensorListReserve TensorListResize TensorListSetItem
        VarHandleOp VarIsInitializedOp VariableShape XlaSharding""",
    ),
}
"""Op types as graphs spell them."""
