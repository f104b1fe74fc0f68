"""Table of ONNX's op names and the rules that price them. To support an op, add its name to `RULES`.

A rule is a function that returns the works of a call; ``None`` marks an op that does no work. An op that is
missing in the table is unsupported and listed. `onnx_gradients` prices the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.aten import product
from fomkit.frontends.lowering.calls import Array, Call, Dimensions, Rule, Work, each, row_work, traffic
from fomkit.frontends.lowering.onnx_calls import attention, new_array, recurrent, reshaped, swapped
from fomkit.frontends.lowering.products import conv_dimensions
from fomkit.frontends.lowering.tf import einsum as contraction
from fomkit.frontends.lowering.tf import lengths_of, padded, spelled_out, transposed_padding


def _factors(call: Call) -> tuple[Array, Array]:
    values, weight = (call.arguments.get(name, call.arguments.get(name.lower())) for name in "XW")
    if not isinstance(values, Array) or not isinstance(weight, Array):
        raise ValueError(f"{call.op}: its input or its weight is a plain number")
    return values, weight


def sizes_of(call: Call) -> Dimensions:
    """Return the dimensions of a convolution's row.

    Padding that differs between the two sides of an axis is not one number. If no single number gives the output's
    length, the padding is added to the input's length, as for TensorFlow.
    """
    values, weight = _factors(call)
    attributes, spatial = call.arguments, len(weight.shape) - 2
    transposed = call.op == "ConvTranspose"
    groups = int(attributes.get("group", 1))
    in_channels = weight.shape[0] if transposed else weight.shape[1] * groups
    if spatial < 1 or len(values.shape) != spatial + 2 or in_channels != values.shape[1]:
        raise ValueError(f"{call.op} takes {values.shape} with a weight of {weight.shape} in {groups} groups")
    if spatial > 3:
        raise ValueError(f"{call.op} has {spatial} axes of space")
    ones, zeros = [1] * spatial, [0] * spatial
    arguments: dict[str, Any] = {
        "groups": groups, "transposed": transposed, "stride": attributes.get("strides") or ones,
        "dilation": attributes.get("dilations") or ones, "padding": zeros, "output_padding": zeros,
    }  # fmt: skip
    found = conv_dimensions(arguments, values, weight)
    results = call.results[0].shape[2:]
    for at in range(spatial):
        _pad(found, at - spatial, call, int(results[at]), transposed=transposed)
    return found


def _pad(found: Dimensions, at: int, call: Call, out: int, *, transposed: bool) -> None:
    """Set the padding of one axis; ``at`` counts from the last axis."""
    axis, length = calls.AXES[at], calls.LENGTHS[at]
    extent = int(found[f"dilation_{axis}"]) * (int(found[f"kernel_{axis}"]) - 1) + 1
    stride, given = int(found[f"stride_{axis}"]), int(found[length])
    pads = list(call.arguments.get("pads") or ())
    spatial = len(pads) // 2
    before, after = (pads[at + spatial], pads[at + 2 * spatial]) if pads else (0, 0)
    automatic = call.arguments.get("auto_pad", "NOTSET") not in ("NOTSET", "")
    if transposed:
        found[f"pad_{axis}"], output_pad = transposed_padding(given, out, extent, stride)
        if output_pad:
            for one in calls.AXES:
                found.setdefault(f"output_pad_{one}", 0)
            found[f"output_pad_{axis}"] = output_pad
    elif before == after and not automatic:
        found[f"pad_{axis}"] = before
    else:
        found[f"pad_{axis}"], found[length] = padded(given, out, extent, stride)


def convolution(call: Call) -> list[Work]:
    """Price Conv, ConvTranspose, ConvInteger and QLinearConv; a bias is added in the same kernel."""
    values, _ = _factors(call)
    return [Work("conv", sizes_of(call), _signed_dtype(values.dtype), calls.FORWARD)]


class NoRule(ValueError):  # noqa: N818 - a verdict, not a fault
    """A use of an op has no rule; the message is an entry of the list of unsupported ops."""


def _signed_dtype(dtype: str) -> str:
    return "int8" if dtype == "uint8" else dtype


def as_matrix(array: Array, *, on_left: bool) -> Array:
    """Add to a vector the axis of length 1 that a product gives it."""
    if len(array.shape) > 1:
        return array
    return reshaped(array, (1, *array.shape) if on_left else (*array.shape, 1))


def flat_rows(array: Array) -> Array:
    """Describe a stack of matrices, stored row by row, as one matrix with all rows below each other."""
    return reshaped(array, (prod(array.shape[:-1]), array.shape[-1]))


def factors(call: Call) -> tuple[Array, Array]:
    """Return the left and the right factor of Gemm, MatMul and their integer spellings, as they are multiplied."""
    arrays = [argument for argument in call.arguments.values() if isinstance(argument, Array)]
    named = call.arguments.get("b" if "b" in call.arguments else "B")
    second = named if isinstance(named, Array) else arrays[-1]
    left, right = as_matrix(arrays[0], on_left=True), as_matrix(second, on_left=False)
    if call.op == "Gemm":
        left = swapped(left) if call.arguments.get("transA") else left
        right = swapped(right) if call.arguments.get("transB") else right
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"{call.op} multiplies {left.shape} and {right.shape}")
    return left, right


def is_row_by_row(array: Array) -> bool:
    """Return whether a tensor is stored without gaps, last axis fastest."""
    return array.stride == reshaped(array, array.shape).stride


def multiplied(left: Array, right: Array) -> Dimensions:
    """Return the dimensions of a product; stacks are broadcast against each other.

    One right factor for a whole stack makes one product, whose rows are all rows of the stack.
    """
    if prod(right.shape[:-2]) == 1 and is_row_by_row(left):
        return product(flat_rows(left), reshape_last(right))
    outer = prod(stretched(left, right))
    return {**product(reshape_last(left), reshape_last(right)), "b": outer}


def reshape_last(array: Array) -> Array:
    """Return one matrix of a stack."""
    return Array(array.shape[-2:], array.stride[-2:], array.dtype, array.item_byte, array.storage)


def stretched(left: Array, right: Array) -> tuple[int, ...]:
    """Return the lengths of two stacks (all axes but the last two), broadcast against each other."""
    longest = max(len(left.shape), len(right.shape)) - 2
    stacks = ([1] * (longest - len(array.shape[:-2])) + list(array.shape[:-2]) for array in (left, right))
    return tuple(map(max, *stacks))


def matrix_product(call: Call) -> list[Work]:
    """Price Gemm, MatMul, MatMulInteger and QLinearMatMul; a bias is added in the same kernel."""
    left, right = factors(call)
    return [Work("gemm", multiplied(left, right), _signed_dtype(left.dtype))]


def equation_of(call: Call) -> str:
    """Return an Einsum's equation with its result, which the file may leave out, and letters in place of '...'."""
    equation = str(call.arguments["equation"]).replace(" ", "")
    if "->" not in equation:
        letters = equation.replace(",", "").replace("...", "")
        kept = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
        equation = f"{equation}->{'...' if '...' in equation else ''}{kept}"
    if "..." not in equation:
        return equation
    return spelled_out(equation, [*calls.arrays_in([call.arguments["Inputs"]]), call.results[0]])


def summed_product(equation: str, arrays: Sequence[Array], results: tuple[Array, ...]) -> list[Work]:
    """Price a sum over the product of some tensors by its equation, two of them at a time from left to right."""
    letters, _, out = equation.partition("->")
    first, second, *others = [*letters.split(","), ""]
    if len(arrays) > 2:
        length = lengths_of(first + second, arrays[:2])
        kept = "".join(letter for letter in length if letter in out + "".join(others))
        made = new_array(tuple(length[letter] for letter in kept), arrays[0].dtype)
        rest = f"{','.join([kept, *others[:-1]])}->{out}"
        return [*summed_product(f"{first},{second}->{kept}", arrays[:2], (made,)),
                *summed_product(rest, [made, *arrays[2:]], results)]  # fmt: skip
    return contraction(Call("Einsum", {"inputs": tuple(arrays), "equation": equation}, results))


def einsum(call: Call) -> list[Work]:
    """Price Einsum."""
    return summed_product(equation_of(call), list(calls.arrays_in([call.arguments["Inputs"]])), call.results)


def picked(call: Call) -> list[Work]:
    """Price data that is cut or picked out of a tensor: only the selected elements are read."""
    numel, taken = calls.most_elements(call.written), sum(array.numel for array in call.written)
    return calls.part_work("copy", call, call.read[0], numel, picked=taken, dtype=call.dtype)


def gather(call: Call) -> list[Work]:
    """Price a lookup along an axis; a lookup along the first axis of a matrix is an embedding."""
    works, source = picked(call), call.read[0]
    if int(call.arguments.get("axis", 0)) % max(len(source.shape), 1) or len(source.shape) != 2:
        return works
    # A row selected by a fixed number is a cut; rows selected by a tensor of indices are looked up.
    if not isinstance(call.arguments.get("indices"), Array):
        return works
    return [Work("embedding", {**one.dimensions, "row": source.shape[-1]}, one.dtype) for one in works]


def put(call: Call) -> list[Work]:
    """Price writing values to indexed places of a copy."""
    values = call.read[-1]
    return [Work("copy", traffic(values.numel, call.read, call.written), call.dtype)]


def batch_norm(call: Call) -> list[Work]:
    """Price batch normalisation: a row is all values of one channel."""
    values = call.read[0]
    return calls.per_channel(call, values, values.shape[1] if len(values.shape) > 1 else 1)


def group_norm(call: Call) -> list[Work]:
    """Price group or instance normalisation: a row is one group of channels, or one channel, of one sample."""
    values = call.read[0]
    groups = values.shape[1] if call.op == "InstanceNormalization" else int(call.arguments.get("num_groups", 1))
    return calls.per_channel(call, values, groups * values.shape[0])


def layer_norm(call: Call) -> list[Work]:
    """Price layer or root-mean-square normalisation: a row spans all axes from ``axis`` on."""
    values = call.read[0]
    axis = int(call.arguments.get("axis", -1)) % max(len(values.shape), 1)
    return row_work("norm", call, values, prod(values.shape[axis:]))


def axis_norm(call: Call) -> list[Work]:
    """Price scaling to length 1 along one axis, or to mean 0 over several."""
    values = call.read[0]
    axes = call.arguments.get("axes") or [call.arguments.get("axis", -1)]
    return row_work("norm", call, values, prod(values.shape[int(axis)] for axis in axes))


def softmax(call: Call) -> list[Work]:
    """Price a softmax over one axis, the last by default; before opset 13 over all axes from ``axis`` on."""
    values, flattens = call.read[0], int(call.arguments.get("since_version", 13)) < 13
    axis = int(call.arguments.get("axis", 1 if flattens else -1)) % max(len(values.shape), 1)
    return row_work("softmax", call, values, prod(values.shape[axis : None if flattens else axis + 1]))


def window_pool(call: Call) -> list[Work]:
    """Price pooling with a kernel: each result reads one window, so numel = results × window."""
    window = prod(int(one) for one in call.arguments["kernel_shape"])
    found = traffic(call.results[0].numel * window, call.read, call.written, row=window)
    return [Work("pool", found, call.dtype)]


def global_pool(call: Call) -> list[Work]:
    """Price pooling over all positions."""
    values = call.read[0]
    row = values.numel // max(call.results[0].numel, 1)
    return [Work("pool", traffic(values.numel, call.read, call.written, row=row), call.dtype)]


def picked_loss(call: Call) -> list[Work]:
    """Price the negative log-likelihood: one probability per target is read, whatever the number of classes."""
    source, target = call.read[:2]
    return calls.part_work("reduction", call, source, target.numel, target.numel)


def softmax_loss(call: Call) -> list[Work]:
    """Price a softmax with its loss in one op: all scores are read."""
    values = call.read[0]
    return row_work("softmax", call, values, values.shape[1] if len(values.shape) > 1 else 1)


def names(text: str) -> frozenset[str]:
    """Split a string of names."""
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

NORMS = names(
    """BatchNormalization InstanceNormalization GroupNormalization LayerNormalization RMSNormalization
    LpNormalization MeanVarianceNormalization"""
)

PICKS = frozenset(["Compress", "GatherElements", "GatherND", "Slice"])

RULES: Mapping[str, Rule | None] = {
    **each(matrix_product, "Gemm MatMul MatMulInteger QLinearMatMul"), "Einsum": einsum,
    **each(convolution, "Conv ConvTranspose ConvInteger QLinearConv"), **each(recurrent, "LSTM GRU RNN"),
    "Attention": attention, "BatchNormalization": batch_norm,
    **each(group_norm, "GroupNormalization InstanceNormalization"),
    **each(layer_norm, "LayerNormalization RMSNormalization"),
    **each(axis_norm, "LpNormalization MeanVarianceNormalization"), **each(softmax, "Softmax LogSoftmax Hardmax"),
    **each(window_pool, "MaxPool AveragePool LpPool"),
    **each(global_pool, "GlobalAveragePool GlobalMaxPool GlobalLpPool"), "Gather": gather,
    "NegativeLogLikelihoodLoss": picked_loss, "SoftmaxCrossEntropyLoss": softmax_loss,
    **dict.fromkeys(POINTWISE, calls.pointwise),
    **each(calls.pointwise, "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
    **each(calls.upsample, "Resize Upsample"), **dict.fromkeys(REDUCTIONS, calls.reduction),
    **dict.fromkeys(MOVES, calls.copy), **dict.fromkeys(PICKS, picked),
    **each(put, "Scatter ScatterElements ScatterND TensorScatter"),
    **each(calls.generate, """AffineGrid Bernoulli BlackmanWindow ConstantOfShape EyeLike HammingWindow HannWindow
        MelWeightMatrix OneHot RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range"""),
    # work without a formula of its own
    **each(calls.other, """CumProd CumSum DFT GridSample LRN MaxRoiPool MaxUnpool Multinomial NonMaxSuppression
        NonZero RoiAlign STFT TopK Unique"""),
    # no work: only a description changes, or a shape is computed
    **each(None, "Constant Flatten Identity Reshape Shape Size Squeeze Unsqueeze"),
}  # fmt: skip
"""Op types as graphs spell them, from ONNX's own set."""

SAME_SHAPE = POINTWISE | NORMS | {"Softmax", "LogSoftmax", "Hardmax", "LRN"}
"""Ops whose first result has the shape of their first input, used where the file states no shape."""

Piece = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]
"""One standard op: its name, inputs, outputs and attributes."""


def _attention_ops(call: Mapping[str, Any], given: Sequence[str], made: Sequence[str], width: int) -> list[Piece]:
    """Return the attention of onnxruntime as standard ops; ``width`` is that of the queries."""
    heads, out = int(call["num_heads"]), [made[0]]
    kv_heads = int(call.get("kv_num_heads", heads))
    is_causal = int(call.get("unidirectional", "kv_num_heads" in call))
    past = [*given[3:5], ""][:2]
    out += [one for one in made[1:3] if past[0]]
    told = {"q_num_heads": heads, "kv_num_heads": kv_heads, "is_causal": is_causal}
    if given[1]:
        return [("Attention", [*given[:3], "", *past], out, told)]
    parts, each = [f"{made[0]}/{name}" for name in ("q", "k", "v", "sizes")], width // (heads + 2 * kv_heads)
    sizes = [each * heads, each * kv_heads, each * kv_heads]
    return [
        ("Constant", [], parts[3:], {"value_ints": sizes}),
        ("Split", [given[0], parts[3]], parts[:3], {"axis": -1}),
        ("Attention", [*parts[:3], "", *past], out, told),
    ]


_PLAIN: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "FusedGemm": ("Gemm", (0, 1, 2)), "FusedConv": ("Conv", (0, 1, 2)),
    "QLinearAdd": ("Add", (0, 3)), "QLinearMul": ("Mul", (0, 3)), "QLinearSigmoid": ("Sigmoid", (0,)),
    "QLinearLeakyRelu": ("LeakyRelu", (0,)), "QLinearSoftmax": ("Softmax", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)), "QLinearAveragePool": ("AveragePool", (0,)),
    "Gelu": ("Gelu", (0,)), "QuickGelu": ("Gelu", (0,)), "BiasGelu": ("Add", (0, 1)),
    "SimplifiedLayerNormalization": ("RMSNormalization", (0, 1)),
    "LayerNormalization": ("LayerNormalization", (0, 1, 2)),
}  # fmt: skip
"""By op of onnxruntime the standard op that costs the same, and which inputs it takes."""


def _of_integers(op: str, call: Mapping[str, Any], given: Sequence[str], first: str) -> list[Piece]:
    """Return an op on quantised numbers as standard ops; weights of 4 bits are counted unpacked."""
    inner = [f"{first}/{one}" for one in ("left", "right", "zero", "product")]
    if op == "MatMulNBits":
        sizes = {"value_ints": [int(call["K"]), int(call["N"])]}
        return [
            ("Constant", [], inner[:1], sizes), ("ConstantOfShape", inner[:1], inner[1:2], {}),
            ("CastLike", [inner[1], given[0]], inner[2:3], {}), ("MatMul", [given[0], inner[2]], [first], {}),
        ]  # fmt: skip
    factors, before = [given[0], given[3] if op == "QGemm" else given[1]], list[Piece]()
    if op == "DynamicQuantizeMatMul":
        before.append(("DynamicQuantizeLinear", given[:1], inner[:3], {}))
        factors[0] = inner[0]
    for at, name in enumerate(("transA", "transB")):
        if call.get(name):
            before.append(("Transpose", [factors[at]], [inner[at]], {}))
            factors[at] = inner[at]
    to = _INT8 if op == "QGemm" else _FP32
    return [*before, ("MatMulInteger", factors, inner[3:], {}), ("Cast", inner[3:], [first], {"to": to})]


_FP32, _INT8 = 1, 3
"""ONNX's numbers of formats."""


def _norm(op: str, given: Sequence[str], made: Sequence[str]) -> list[Piece]:
    """Return a sum and the norm of it as standard ops."""
    added = made[3] if len(made) > 3 and made[3] else f"{made[0]}/sum"
    plain = op == "SkipLayerNormalization"
    bias = given[4 if plain else 3]
    scales = [one for one in given[2 : 4 if plain else 3] if one]
    norm = "LayerNormalization" if plain else "RMSNormalization"
    return [("Sum", [*given[:2], *([bias] if bias else [])], [added], {}), (norm, [added, *scales], made[:1], {})]


def _embedded(given: Sequence[str], first: str) -> list[Piece]:
    """Return lookups of words and segments with the norm of their sum as standard ops."""
    names = [f"{first}/{one}" for one in ("words", "segments", "sum")]
    tables: list[Piece] = [("Gather", [given[2], given[0]], names[:1], {})]
    if given[1] and given[4]:
        tables.append(("Gather", [given[4], given[1]], names[1:2], {}))
    norm: Piece = ("LayerNormalization", [names[2], given[5], given[6]], [first], {})
    return [*tables, ("Sum", [one[2][0] for one in tables], names[2:], {}), norm]


def standard_ops(
    op: str, call: Mapping[str, Any], given: Sequence[str], made: Sequence[str], shapes: Sequence[Sequence[int]]
) -> list[Piece]:
    """Return the standard ops that an op of onnxruntime (com.microsoft) stands for; none if it is not known.

    `call`: its attributes; `given`, `made`: names of its inputs ("" for one left out) and outputs; `shapes`: of
    its inputs. What a fused kernel saves by keeping results in its registers is not taken off.
    """
    given, first, axes = [*given, *[""] * 8], made[0], [len(one) for one in shapes]
    if op in _PLAIN:
        name, places = _PLAIN[op]
        return [(name, [given[at] for at in places if given[at]], [first], call)]
    if op == "FastGelu":
        return [("Add", given[:2], [first], {}) if given[1] else ("Gelu", given[:1], [first], {})]
    if op in ("FusedMatMul", "TransposeMatMul") and len(axes) > 1:
        more = ["..." if one > 2 else "" for one in axes[:2]]
        left, right = ("ji" if call.get("transA") else "ij"), ("kj" if call.get("transB") else "jk")
        return [("Einsum", given[:2], [first], {"equation": f"{more[0]}{left},{more[1]}{right}->{max(more)}ik"})]
    if op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        return _norm(op, given, made)
    if op == "EmbedLayerNormalization":
        return _embedded(given, first)
    if op in ("MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm"):
        return _of_integers(op, call, given, first)
    if op == "Attention" and axes[1:2] == [2]:
        packed = [f"{first}/product", f"{first}/packed"]
        sums: list[Piece] = [("Add", [packed[0], given[2]], packed[1:], {})] if given[2] else []
        inner = _attention_ops(call, [packed[bool(sums)], "", ""], made[:1], shapes[1][1])
        return [("MatMul", given[:2], packed[:1], {}), *sums, *inner]
    if op in ("MultiHeadAttention", "GroupQueryAttention") and axes[:1] == [3]:
        past = given[6:8] if op == "MultiHeadAttention" else given[3:5]
        return _attention_ops(call, [*given[:3], *past], made, shapes[0][2])
    if op == "RotaryEmbedding" and axes[2:3] == [2]:
        heads = shapes[0][-1] // (2 * shapes[2][1])
        return [("RotaryEmbedding", [given[0], given[2], given[3], given[1]], [first], {"num_heads": heads})]
    return []
