"""Table of TensorFlow's op names and the rules that price them. To support an op, add its name to `RULES`.

A rule is a function that returns the works of a call; ``None`` marks an op that does no work. An op that is
missing in the table is unsupported and listed. TensorFlow has no op for a transposed convolution: it runs as the
input gradient of a direct convolution. The graph walker marks the difference in the arguments ``in_backward`` and
``of_transposed`` of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from string import ascii_uppercase

from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.calls import Array, Call, Dimensions, Rule, Work, arrays_in, each, row_work, traffic
from fomkit.frontends.lowering.products import TF_SOLVERS


def _channels_first(call: Call) -> bool:
    return str(call.arguments.get("data_format", "NHWC")).startswith("NC")


def _spatial(call: Call, values: Sequence[int]) -> list[int]:
    """Return the values of the spatial axes, padded with 1 to depth, height and width, from one value per axis."""
    inner = values[2:] if _channels_first(call) else values[1:-1]
    return [1] * (3 - len(inner)) + list(inner)


def _channel_count(call: Call, values: Array) -> int:
    return values.shape[1] if _channels_first(call) else values.shape[-1]


def padded(length: int, out: int, reach: int, stride: int) -> tuple[int, int]:
    """Return the padding of each side, and the input length that it applies to, for an output length.

    TensorFlow may pad one side more than the other, which one number per axis cannot express. If no single number
    gives the output length, the padding is 0 and the input length includes it.
    """
    total = max((out - 1) * stride + reach - length, 0)
    for pad in (total // 2, -(-total // 2)):
        if (length + 2 * pad - reach) // stride + 1 == out:
            return pad, length
    return 0, length + total


def transposed_padding(length: int, out: int, reach: int, stride: int) -> tuple[int, int]:
    """Return the padding and the output padding of a transposed convolution."""
    less = (length - 1) * stride + reach - out
    pad = max(-(-less // 2), 0)
    return pad, 2 * pad - less


def _conv_sizes(call: Call, small: Array, large: Array, kernel: Sequence[int], *, transposed: bool) -> Dimensions:
    """Return the dimensions of a convolution; the kernel slides over the positions of ``large``."""
    depthwise = "Depthwise" in call.op
    *lengths, in_channels, _ = kernel
    large_channels, small_channels = _channel_count(call, large), _channel_count(call, small)
    groups = large_channels if depthwise else large_channels // max(in_channels, 1)
    lengths = [1] * (3 - len(lengths)) + list(lengths)
    strides = _spatial(call, call.arguments["strides"])
    dilations = _spatial(call, call.arguments.get("dilations") or [1] * len(large.shape))
    small_at, large_at = _spatial(call, small.shape), _spatial(call, large.shape)
    first, second = (small_channels, large_channels) if transposed else (large_channels, small_channels)
    found: Dimensions = {"batch": large.shape[0], "in_channels": first, "out_channels": second, "groups": groups}
    output_pads = []
    for axis, name, at in zip(calls.AXES, calls.LENGTHS, range(3), strict=True):
        extent = dilations[at] * (lengths[at] - 1) + 1
        if transposed:
            found[name] = small_at[at]
            found[f"pad_{axis}"], output_pad = transposed_padding(small_at[at], large_at[at], extent, strides[at])
            output_pads.append(output_pad)
        else:
            found[f"pad_{axis}"], found[name] = padded(large_at[at], small_at[at], extent, strides[at])
        found |= {f"kernel_{axis}": lengths[at], f"stride_{axis}": strides[at], f"dilation_{axis}": dilations[at]}
    if any(output_pads):
        found.update({f"output_pad_{axis}": pad for axis, pad in zip(calls.AXES, output_pads, strict=True)})
    first_axes = "dhw" if len(large.shape) == 5 else "hw"
    layout = f"nc{first_axes}" if _channels_first(call) else f"n{first_axes}c"
    return {**found, "layout": layout, "transposed": int(transposed)}


def convolution(call: Call) -> list[Work]:
    """Price Conv2D, Conv3D and DepthwiseConv2dNative; when backward, as a transposed one's input gradient."""
    large, small, weight = call.array("input"), call.results[0], call.array("filter")
    backward = bool(call.arguments["in_backward"])
    dimensions = _conv_sizes(call, small, large, weight.shape, transposed=backward)
    return [Work("conv", dimensions, large.dtype, calls.INPUT_GRADIENT if backward else calls.FORWARD)]


def input_gradient(call: Call) -> list[Work]:
    """Price an input gradient; in the forward pass this op is a transposed convolution."""
    large, small, weight = call.results[0], call.array("out_backprop"), call.array("filter")
    forward = not call.arguments["in_backward"]
    dimensions = _conv_sizes(call, small, large, weight.shape, transposed=forward)
    return [Work("conv", dimensions, small.dtype, calls.FORWARD if forward else calls.INPUT_GRADIENT)]


def weight_gradient(call: Call) -> list[Work]:
    """Price the weight gradient of a convolution, direct or transposed."""
    large, small, weight = call.array("input"), call.array("out_backprop"), call.results[0]
    transposed = bool(call.arguments["of_transposed"])
    dimensions = _conv_sizes(call, small, large, weight.shape, transposed=transposed)
    return [Work("conv", dimensions, small.dtype, calls.WEIGHT_GRADIENT)]


def _flag(call: Call, *names: str) -> int:
    return int(any(bool(call.arguments.get(name)) for name in names))


def matrix_product(call: Call) -> list[Work]:
    """Price MatMul and BatchMatMul; their flags say which factor is stored transposed.

    If the right factor has no batch, one matrix serves all, and the batch is folded into the rows.
    """
    names = ("a", "b") if "a" in call.arguments else ("x", "y")
    left, right = (call.array(name) for name in names)
    trans_a = _flag(call, "transpose_a", "adj_x")
    trans_b = _flag(call, "transpose_b", "adj_y")
    rows, inner = left.shape[-2:] if not trans_a else left.shape[:-3:-1]
    columns = right.shape[-2] if trans_b else right.shape[-1]
    outer = prod(call.results[0].shape[:-2])
    if not trans_a and prod(right.shape[:-2]) == 1:
        rows, outer = rows * outer, 1
    return [Work("gemm", calls.gemm_sizes(outer, rows, columns, inner, trans_a, trans_b), left.dtype)]


def spelled_out(equation: str, arrays: Sequence[Array]) -> str:
    """Return an equation with letters in place of each '...'; ``arrays`` are its factors, then its result.

    >>> arrays = [Array(shape, shape, "fp32", 4, storage=1) for shape in ((5, 2, 3), (3, 4), (5, 2, 4))]
    >>> spelled_out("...ij,jk->...ik", arrays)
    'Zij,jk->Zik'
    """
    terms = equation.replace(" ", "").replace("->", ",").split(",")
    spare = "".join(sorted(set(ascii_uppercase) - set(equation)))
    axes = (len(array.shape) - len(term.replace("...", "")) for term, array in zip(terms, arrays, strict=True))
    *factors, out = (
        term.replace("...", spare[-more:] if more else "") for term, more in zip(terms, axes, strict=True)
    )
    return f"{','.join(factors)}->{out}"


def lengths_of(letters: str, arrays: Sequence[Array]) -> dict[str, int]:
    """Return the length of each letter of some factors, where an axis of length 1 may be stretched."""
    found: dict[str, int] = {}
    for letter, length in zip(letters, chain(*(array.shape for array in arrays)), strict=True):
        found[letter] = max(length, found.get(letter, length))
    return found


def einsum(call: Call) -> list[Work]:
    """Price a sum over products of two tensors by the letters of its equation; of one tensor it is a copy.

    Letters in both factors and the result make b. Letters that only the left factor shares with the result make m,
    those of the right one n. Summed letters make k.
    """
    arrays = [one for one in call.arguments["inputs"] if isinstance(one, Array)]
    if len(arrays) != 2:
        return calls.copy(call)
    factors, _, out = spelled_out(str(call.arguments["equation"]), [*arrays, call.results[0]]).partition("->")
    left, right = factors.split(",")
    size = lengths_of(left + right, arrays)
    groups = {"b": "", "m": "", "n": "", "k": ""}
    for letter in dict.fromkeys(left + right):
        kept, both = letter in out, letter in left and letter in right
        groups["b" if both and kept else "k" if not kept else "m" if letter in left else "n"] += letter
    b, m, n, k = (prod(size[letter] for letter in letters) for letters in groups.values())
    trans_a, trans_b = _before(left, groups["k"], groups["m"]), _before(right, groups["n"], groups["k"])
    return [Work("gemm", calls.gemm_sizes(b, m, n, k, trans_a, trans_b), arrays[0].dtype)]


def _before(letters: str, first: str, then: str) -> int:
    """Return 1 if the last axis of one group precedes the last axis of another, as in a transposed factor."""
    if not first or not then:
        return 0
    return int(max(map(letters.find, first)) < max(map(letters.find, then)))


def sum_of_rows(call: Call) -> list[Work]:
    """Price a reduction; over no axis, or over axes of length 1, it changes nothing and is pruned."""
    values = next(arrays_in(call.arguments.values()))
    return [] if values.numel == call.results[0].numel else calls.reduction(call)


def softmax(call: Call) -> list[Work]:
    """Price softmax and the cross-entropies that contain one: a row is the last axis."""
    values = next(arrays_in(call.arguments.values()))
    return row_work("softmax", call, values, values.shape[-1] if values.shape else 1)


def batch_norm(call: Call) -> list[Work]:
    """Price fused batch normalisation, forward or backward: a row holds all values of one channel."""
    values = call.array("x")
    return calls.per_channel(call, values, _channel_count(call, values))


def pool(call: Call) -> list[Work]:
    """Price pooling with a kernel, forward or backward: each pooled value reads one window."""
    window = prod(call.arguments["ksize"])
    gradient = call.arguments.get("grad")
    pooled = gradient if isinstance(gradient, Array) else call.results[0]
    found = traffic(pooled.numel * window, call.read, call.written, row=window)
    return [Work("pool", found, call.dtype)]


def gather_from(table: str) -> Rule:
    """Make the rule of a lookup in the named table: only the selected elements are read, not the whole table."""

    def rule(call: Call) -> list[Work]:
        picked = call.results[0]
        source = call.arguments.get(table)
        read = [array for array in call.read if array != source]
        row = picked.shape[-1] if picked.shape else 1
        found = traffic(picked.numel, read, call.written, row=row, extra_byte=picked.byte)
        return [Work("embedding", {**found, "inputs": len(read) + 1}, picked.dtype)]

    return rule


def add_by_index(call: Call) -> list[Work]:
    """Price a lookup's gradient: the incoming gradient is read, the gradient of the whole table is written."""
    values = call.array("data" if "data" in call.arguments else "updates")
    return row_work("embedding", call, values, values.shape[-1] if values.shape else 1)


def picked(call: Call) -> list[Work]:
    """Price data that is cut out of a tensor: only the selected elements are read."""
    return calls.part_work("copy", call, call.read[0], call.results[0].numel, dtype=call.dtype)


def joined(call: Call) -> list[Work]:
    """Price the tensors of a list that become one: the list has no bytes here, so what is written was read."""
    found = traffic(calls.most_elements(call.written), (*call.read, *call.written), call.written)
    return [Work("copy", found, call.dtype)]


def into_variable(kind: str, name: str, *, has_rows: bool) -> Rule:
    """Make the rule of an op that adds values to a variable, whose changed elements are read and written, too."""

    def rule(call: Call) -> list[Work]:
        values = call.array(name)
        row = values.shape[-1] if values.shape and has_rows else 0
        found = traffic(values.numel, call.read, [values], row=row, extra_byte=values.byte)
        return [Work(kind, {**found, "inputs": len(call.read) + 1}, values.dtype)]

    return rule


PRODUCTS = frozenset(["MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"])
"""Matrix products, whose gradients are products too."""

RULES: Mapping[str, Rule | None] = {
    **TF_SOLVERS, **each(matrix_product, "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3"), "Einsum": einsum,
    **each(convolution, "Conv2D Conv3D DepthwiseConv2dNative"),
    **each(input_gradient, "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput"),
    **each(weight_gradient, "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter"),
    **each(batch_norm, """FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGrad FusedBatchNormGradV2
        FusedBatchNormGradV3"""),
    **each(softmax, "Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"),
    **each(pool, """MaxPool MaxPool3D MaxPoolGrad MaxPool3DGrad MaxPoolWithArgmax MaxPoolGradWithArgmax AvgPool
        AvgPool3D AvgPoolGrad AvgPool3DGrad"""),
    **each(gather_from("params"), "GatherV2 Gather GatherNd"),
    **each(gather_from("resource"), "ResourceGather ResourceGatherNd"),
    **each(add_by_index, """UnsortedSegmentSum SegmentSum SegmentSumV2 ScatterNd TensorScatterAdd
        TensorScatterUpdate"""),
    **each(into_variable("embedding", "updates", has_rows=True), """ResourceScatterAdd ResourceScatterSub
        ResourceScatterUpdate"""),
    **each(into_variable("pointwise", "value", has_rows=False), "AssignAddVariableOp AssignSubVariableOp"),
    **each(sum_of_rows, """Sum Mean Max Min Prod All Any ArgMax ArgMin EuclideanNorm L2Loss BiasAddGrad
        InTopKV2"""),
    # element by element, gradients included
    **each(calls.pointwise, """Abs Acos Acosh Add AddN AddV2 Asin Asinh Atan Atan2 Atanh BiasAdd Bitcast BitwiseAnd
        BitwiseOr BitwiseXor Cast Ceil ClipByValue Complex Conj Cos Cosh Digamma Div DivNoNan Elu EluGrad Equal Erf
        Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Igamma Imag Inv InvGrad IsFinite IsInf
        IsNan LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr
        Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual Pow Real RealDiv Reciprocal ReciprocalGrad
        Relu Relu6 Relu6Grad ReluGrad RightShift Rint Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid
        SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad Softsign SoftsignGrad Sqrt SqrtGrad Square
        SquaredDifference Sub Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta
        ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor
        ResizeNearestNeighborGrad ResizeBicubic ResizeBicubicGrad"""),
    # interpolation
    **each(calls.upsample, """CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage ResizeArea
        ImageProjectiveTransformV2 ImageProjectiveTransformV3 ScaleAndTranslate ScaleAndTranslateGrad"""),
    # data moved unchanged
    **each(picked, "MatrixDiagPartV3 Slice StridedSlice"), **each(joined, "TensorListStack TensorListConcatV2"),
    **each(calls.copy, """BatchToSpaceND BroadcastTo Concat ConcatV2 DepthToSpace DynamicStitch ExtractImagePatches
        InvertPermutation MatrixBandPart MatrixDiagV3 MatrixSetDiagV3 MirrorPad MirrorPadGrad Pack Pad PadV2
        RandomShuffle Reverse ReverseV2 Roll SpaceToBatchND SpaceToDepth SparseToDense Split SplitV
        StridedSliceGrad Tile Transpose Unpack TensorListFromTensor TensorListSplit"""),
    **each(calls.generate, """Fill LinSpace Multinomial OneHot OnesLike RandomGamma
        RandomStandardNormal RandomUniform RandomUniformInt Range StatelessMultinomial StatelessRandomNormal
        StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformInt StatelessRandomUniformIntV2
        StatelessRandomUniformV2 StatelessTruncatedNormalV2 TruncatedNormal ZerosLike"""),
    # work without a formula of its own
    **each(calls.other, """Bincount Bucketize Cumprod Cumsum DenseBincount FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT
        IRFFT2D IRFFT3D LRN LRNGrad LowerBound RFFT RFFT2D RFFT3D SearchSorted Sort TopKV2 UniqueV2 UpperBound
        Where"""),
    # no work: only a description changes, a buffer changes its owner, or a shape is computed
    **each(None, """Assert AssignVariableOp BroadcastArgs BroadcastGradientArgs CheckNumerics Const ConcatOffset
        Empty EmptyTensorList EnsureShape ExpandDims Identity IdentityN NoOp OptionalFromValue
        OptionalGetValue OptionalHasValue OptionalNone Placeholder
        PreventGradient Rank
        ReadVariableOp Reshape Shape ShapeN Size Snapshot Squeeze StatelessRandomGetKeyCounter
        StatelessRandomGetAlg StopGradient TensorListElementShape TensorListGetItem TensorListLength
        TensorListPopBack TensorListPushBack TensorListReserve TensorListResize TensorListSetItem VarHandleOp
        VarIsInitializedOp VariableShape XlaSharding"""),
}  # fmt: skip
"""Op types as graphs spell them."""
