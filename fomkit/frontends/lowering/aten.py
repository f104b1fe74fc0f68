"""Table of PyTorch's op names and the rules that price them. To support an op, add its name to `RULES`.

A rule is a function that returns the works of a call; ``None`` marks an op that does no work. An op that is
missing in the table is unsupported and listed, unless PyTorch itself describes the op: as pointwise (its
``pointwise`` tag), as a view (no traffic), or as a composite of ops of this table. Every spelling of a product
becomes one row; a backward convolution becomes one row for each of its two gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from fomkit.frontends.lowering import calls, products
from fomkit.frontends.lowering.calls import (
    Array,
    Call,
    Dimensions,
    Rule,
    Work,
    copy,
    each,
    other,
    pointwise,
    reduction,
    row_work,
    traffic,
)


def convolution(call: Call) -> list[Work]:
    """Price a forward convolution; its bias is added in the same kernel."""
    values = call.array("input")
    sizes = products.conv_dimensions(call.arguments, values, call.array("weight"))
    return [Work("conv", sizes, values.dtype, calls.FORWARD)]


def convolution_backward(call: Call) -> list[Work]:
    """Price a backward convolution: one work for each gradient that ``output_mask`` requests.

    The first layer requests no input gradient, and a frozen layer no weight gradient. The bias gradient sums over
    positions.
    """
    values, gradient = call.array("input"), call.array("grad_output")
    dimensions = products.conv_dimensions(call.arguments, values, call.array("weight"))
    to_input, to_weight, to_bias = call.arguments["output_mask"]
    works = []
    if to_input:
        works.append(Work("conv", dimensions, values.dtype, calls.INPUT_GRADIENT))
    if to_weight:
        works.append(Work("conv", dict(dimensions), values.dtype, calls.WEIGHT_GRADIENT))
    if to_bias:
        channels = gradient.shape[1]
        sizes: Dimensions = {"numel": gradient.numel, "row": gradient.numel // max(channels, 1), "inputs": 1}
        sizes |= {"read_byte": gradient.byte, "write_byte": channels * gradient.item_byte}
        works.append(Work("reduction", sizes, gradient.dtype))
    return works


def convolution_by_steps(call: Call) -> list[Work]:
    """Price a convolution of (steps, batch, channels) as ATen's ConvolutionTBC.cpp runs it.

    That is a copy of the bias, then a product for each tap of the kernel, without the steps that are padding.
    """
    values, weight, bias = call.array("self"), call.array("weight"), call.array("bias")
    (steps, batch, _), (taps, inner, columns), pad = values.shape, weight.shape, int(call.arguments.get("pad", 0))
    made = steps + 2 * pad - taps + 1
    numel = made * batch * columns
    copied = {"read_byte": bias.byte, "write_byte": numel * values.item_byte}
    works = [Work("copy", {"numel": numel, "inputs": 1, **copied}, values.dtype)]
    for tap in range(taps):
        rows = (min(steps + pad - tap, made) - max(pad - tap, 0)) * batch
        if rows > 0:
            works.append(Work("gemm", calls.gemm_sizes(1, rows, columns, inner), values.dtype))
    return works


def stored_transposed(factor: Array) -> int:
    """Return 1 if a matrix is stored column by column, else 0; the strides decide.

    An axis of length 1 does not count. A matrix in neither order is copied before the product, hence row by row.

    >>> stored_transposed(Array((3, 2), (1, 3), "fp32", 4, storage=1))
    1
    """
    (rows, columns), (down, along) = factor.shape[-2:], factor.stride[-2:]
    row_by_row = along == 1 or columns == 1
    return int(not row_by_row and (down == 1 or rows == 1))


def product(left: Array, right: Array) -> Dimensions:
    """Return the dimensions of left·right, for factors with two axes or with three, the batch first."""
    b, (m, k), n = prod(left.shape[:-2]), left.shape[-2:], right.shape[-1]
    return calls.gemm_sizes(b, m, n, k, stored_transposed(left), stored_transposed(right))


def gemm_of(left: str, right: str) -> Rule:
    """Make the rule of a product of two named arguments; libraries add a bias or a sum in the same kernel."""

    def rule(call: Call) -> list[Work]:
        first, second = call.array(left), call.array(right)
        if len(first.shape) == 1 or len(second.shape) == 1:
            return calls.sparse_product(call, first, second)
        return [Work("gemm", product(first, second), first.dtype)]

    return rule


def grouped(call: Call) -> list[Work]:
    """Price products of groups of rows whose bounds depend on data, as if the groups were as equal as they can be.

    If both factors have two axes, the product sums over the rows of a group: a weight gradient. Of groups without
    rows, only the gradients are written.
    """
    left, right = call.array("self"), call.array("mat2")
    groups = (call.array("offs") if call.arguments.get("offs") else left).shape[0]
    m, k = left.shape[-2:]
    sizes = calls.gemm_sizes(groups, m, right.shape[-1], k, stored_transposed(left), stored_transposed(right))
    rows = "k" if len(left.shape) == len(right.shape) == 2 else "m" if len(left.shape) == 2 else "n"
    each, more = divmod(int(sizes[rows]), groups)
    parts = [(more, each + 1), (groups - more, each or int(rows == "k"))]
    if len(left.shape) == len(right.shape) == 3:
        parts = [(groups, int(sizes[rows]))]
    return [Work("gemm", {**sizes, "b": b, rows: size}, left.dtype) for b, size in parts if b and size]


def _as_column(vector: Array) -> Array:
    return replace(vector, shape=(*vector.shape, 1), stride=(*vector.stride, 1))


def matrix_vector_of(left: str) -> Rule:
    """Make the rule of a matrix times ``vec``: a product with n = 1."""

    def rule(call: Call) -> list[Work]:
        first = call.array(left)
        return [Work("gemm", product(first, _as_column(call.array("vec"))), first.dtype)]

    return rule


def dot(call: Call) -> list[Work]:
    """Price the inner product of two vectors: a product with m = n = 1."""
    first, second = list(calls.arrays_in(call.arguments.values()))[:2]
    row = replace(first, shape=(1, *first.shape), stride=(*first.shape, *first.stride))
    return [Work("gemm", product(row, _as_column(second)), first.dtype)]


def linear(call: Call) -> list[Work]:
    """Price x·Wᵀ + bias as one op, as PyTorch runs it under ``inference_mode``."""
    values, weight = call.array("input"), call.array("weight")
    return [products.rows_times(values, weight.shape[0], 1, values.dtype)]


def _contraction(left: list[int], right: list[int], summed: set[int]) -> Dimensions:
    """Return the batched product of two factors with matching axes; an axis that a factor lacks has length 1."""
    sizes = {"b": 1, "m": 1, "n": 1, "k": 1}
    for axis, (first, second) in enumerate(zip(left, right, strict=True)):
        letter = "k" if axis in summed else "b" if first > 1 and second > 1 else "m" if first > 1 else "n"
        sizes[letter] *= max(first, second)
    return calls.gemm_sizes(**sizes)


def trilinear(call: Call) -> list[Work]:
    """Price the product of three tensors in a bilinear layer: first times second, then times third.

    The first product sums over the axes that the third tensor lacks; the second product sums over the others.
    """
    arrays = [call.array(name) for name in ("i1", "i2", "i3")]
    expanded = [set(call.arguments[f"expand{number}"]) for number in (1, 2, 3)]
    axes = len(arrays[0].shape) + len(expanded[0])
    shapes = []
    for array, added in zip(arrays, expanded, strict=True):
        lengths = iter(array.shape)
        shapes.append([1 if axis in added else next(lengths) for axis in range(axes)])
    summed = set(call.arguments["sumdim"])
    early = summed & expanded[2]
    between = [1 if axis in early else max(shapes[0][axis], shapes[1][axis]) for axis in range(axes)]
    pair = (_contraction(shapes[0], shapes[1], early), _contraction(between, shapes[2], summed - early))
    return [Work("gemm", dimensions, arrays[0].dtype) for dimensions in pair]


def copy_into(call: Call) -> list[Work]:
    """Price ``copy_(self, src)``: the old content of self is not read."""
    read = list(calls.arrays_in([call.arguments.get("src")]))
    return [Work("copy", traffic(calls.most_elements(call.written), read, call.written), call.dtype)]


def softmax(call: Call) -> list[Work]:
    """Price a softmax, forward or backward, over axis ``dim``, in the format of its result: it may read fp16.

    Tensors in another order than their axes are copied first (ATen's SoftMax.cu and SoftMax.cpp).
    """
    values = call.arguments.get("output", call.results[0])
    copies = [Work("copy", traffic(array.numel, [array], [array]), array.dtype)
              for array in call.read if not array.packed and all(array.stride)]  # fmt: skip
    length = values.shape[int(call.arguments["dim"])] if values.shape else 1
    return [*copies, *row_work("softmax", call, values, length)]


def batch_norm(call: Call) -> list[Work]:
    """Price batch normalisation: a row holds all values of a channel; by stored statistics it is pointwise."""
    values = call.array("input")
    if call.arguments.get("training") is False or call.op.endswith("no_training"):
        return calls.pointwise(call)
    return calls.per_channel(call, values, values.shape[1] if len(values.shape) > 1 else 1)


def layer_norm(call: Call) -> list[Work]:
    """Price layer or root-mean-square normalisation, forward or backward: a row is the normalised shape."""
    return row_work("norm", call, call.array("input"), prod(call.arguments["normalized_shape"]))


def group_norm(call: Call) -> list[Work]:
    """Price group normalisation, forward or backward: a row holds the values of one group of one sample."""
    return calls.per_channel(call, call.array("input"), int(call.arguments["N"]) * int(call.arguments["group"]))


def weight_norm(call: Call) -> list[Work]:
    """Price weight normalisation, forward or backward: a row holds the weights that share one length."""
    weight = call.array("v" if "v" in call.arguments else "saved_v")
    lengths = call.array("g" if "g" in call.arguments else "saved_g")
    return calls.per_channel(call, weight, lengths.numel)


def _pool_reads(call: Call) -> list[Array]:
    """Return the arrays read, without the input that a backward call receives for its shape only."""
    backward = "grad_output" in call.arguments
    return [array for array in call.read if not (backward and array == call.array("self"))]


def window_pool(call: Call) -> list[Work]:
    """Price pooling with a kernel: each result reads one window, so numel = results × window."""
    kernel = list(call.arguments["kernel_size"])
    spatial = 3 if "3d" in call.op else 2
    window = prod(kernel * spatial if len(kernel) == 1 else kernel)
    results = call.array("grad_output").numel if "grad_output" in call.arguments else call.results[0].numel
    found = traffic(results * window, _pool_reads(call), call.written, row=window)
    return [Work("pool", found, call.dtype)]


def adaptive_pool(call: Call) -> list[Work]:
    """Price pooling to a given size: the windows tile the larger of input and result, whose elements are numel."""
    pooled = call.array("grad_output") if "grad_output" in call.arguments else call.results[0]
    fewer, numel = sorted((call.array("self").numel, pooled.numel))
    found = traffic(numel, _pool_reads(call), call.written, row=numel // max(fewer, 1))
    return [Work("pool", found, call.dtype)]


def gather_from(table: str, kind: str) -> Rule:
    """Make the rule of a lookup in the named table: only the selected elements are read, not the whole table."""

    def rule(call: Call) -> list[Work]:
        source, picked = call.array(table), call.results[0]
        return calls.part_work(kind, call, source, picked.numel, picked.shape[-1] if kind == "embedding" else 0)

    return rule


def embedding_bag(call: Call) -> list[Work]:
    """Price a lookup that sums its rows: every selected row is read, one row per bag is written."""
    table, indices = call.array("weight"), call.array("indices")
    width = table.shape[-1]
    bags = replace(call, results=call.results[:1])
    return calls.part_work("embedding", bags, table, indices.numel * width, width)


def embedding_backward(call: Call) -> list[Work]:
    """Price a lookup's gradient: the incoming gradient is read, the gradient of the whole table is written."""
    gradient = call.array("grad_output" if "grad_output" in call.arguments else "grad")
    return row_work("embedding", call, gradient, gradient.shape[-1])


def embedding_bag_backward(call: Call) -> list[Work]:
    """Price the gradient of `embedding_bag`: per row looked up, or per element of a bag for maxima (mode 2)."""
    gradient, largest = call.array("grad"), int(call.arguments["mode"]) == 2
    names = {0: "indices offset2bag per_sample_weights", 1: "indices offset2bag bag_size", 2: "maximum_indices"}
    chosen = names[int(call.arguments["mode"])].split()
    read = [gradient, *calls.arrays_in(call.arguments.get(name) for name in chosen)]
    width = gradient.shape[-1]
    numel = gradient.numel if largest else call.array("indices").numel * width
    return [Work("embedding", traffic(numel, read, call.written, row=width), gradient.dtype)]


def bag_weights_backward(call: Call) -> list[Work]:
    """Price the gradient of an `embedding_bag`'s weights of samples: each is a product of two rows, summed."""
    table = call.array("weight")
    numel = call.array("indices").numel * table.shape[-1]
    return calls.part_work("reduction", call, table, numel, table.shape[-1])


def scatter(call: Call) -> list[Work]:
    """Price writing values to indexed places: in place only these places are touched, otherwise all is copied."""
    target = call.array("self")
    read = [array for array in call.read if array != target]
    in_place = any(array.storage == target.storage for array in call.results)
    touched = max((array.numel for array in read), default=0)
    if not in_place:
        return [Work("copy", traffic(touched, call.read, call.written), target.dtype)]
    moved = {"read_byte": calls.total_byte(read), "write_byte": touched * target.item_byte}
    return [Work("copy", {"numel": touched, "inputs": len(read), **moved}, target.dtype)]


def picked_loss(call: Call) -> list[Work]:
    """Price the negative log-likelihood: one probability per target is read, whatever the number of classes."""
    numel = call.array("target").numel
    return calls.part_work("reduction", call, call.array("self"), numel, numel)


def picked_loss_backward(call: Call) -> list[Work]:
    """Price the gradient of `picked_loss`: a whole tensor of zeros with one value per target."""
    probabilities = call.array("self")
    read = [array for array in call.read if array != probabilities]
    return [Work("copy", traffic(probabilities.numel, read, call.written), probabilities.dtype)]


PRODUCTS: Mapping[str, Rule | None] = {
    **products.SOLVERS,
    "mm": gemm_of("self", "mat2"), "addmm": gemm_of("mat1", "mat2"), "_addmm_activation": gemm_of("mat1", "mat2"),
    "bmm": gemm_of("self", "mat2"), "baddbmm": gemm_of("batch1", "batch2"), "addbmm": gemm_of("batch1", "batch2"),
    "_scaled_mm": gemm_of("self", "mat2"), "_int_mm": gemm_of("self", "mat2"), "mv": matrix_vector_of("self"),
    "_sparse_addmm": gemm_of("mat1", "mat2"),
    "addmv": matrix_vector_of("mat"), "dot": dot, "vdot": dot, "linear": linear, "_trilinear": trilinear,
    "_euclidean_dist": calls.euclidean, "convolution": convolution, "convolution_backward": convolution_backward,
    "_convolution": convolution, "conv_tbc": convolution_by_steps, "_grouped_mm": grouped,
}  # fmt: skip
"""Matrix products and convolutions: their arguments determine the whole work; the result is not needed."""

_RESIZED = """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"""
RULES: Mapping[str, Rule | None] = {
    **PRODUCTS,
    **each(products.packed_product, """_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu
        _weight_int4pack_mm_with_scales_and_zeros _dyn_quant_matmul_4bit"""),
    # normalisation and softmax
    **each(batch_norm, """native_batch_norm native_batch_norm_backward _native_batch_norm_legit
        batch_norm_backward _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
        _batch_norm_with_update _batch_norm_no_update cudnn_batch_norm"""),
    **each(layer_norm, """native_layer_norm native_layer_norm_backward _fused_rms_norm
        _fused_rms_norm_backward"""),
    "_weight_norm_interface": weight_norm, "_weight_norm_interface_backward": weight_norm,
    "native_group_norm": group_norm, "native_group_norm_backward": group_norm,
    **each(softmax, "_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data"),
    # pooling and interpolation
    **each(window_pool, """max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices
        max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
        fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d
        fractional_max_pool3d_backward"""),
    **each(adaptive_pool, """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
        _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
        adaptive_max_pool3d_backward"""),
    **each(calls.upsample, " ".join(f"{name} {name}_backward" for name in _RESIZED.split())),
    # lookups and their gradients
    "embedding": gather_from("weight", "embedding"),
    "embedding_dense_backward": embedding_backward, "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "_embedding_bag_backward": embedding_bag_backward,
    "_embedding_bag_dense_backward": embedding_bag_backward,
    "_embedding_bag_per_sample_weights_backward": bag_weights_backward,
    **each(gather_from("self", "copy"), "index _unsafe_index index_select gather take sparse_mask"),
    **each(scatter, """index_put _unsafe_index_put _index_put_impl index_add index_copy index_fill scatter
        scatter_add scatter_reduce index_reduce put"""),
    # reductions and losses
    **each(reduction, """sum mean prod amax amin max min aminmax argmax argmin all any count_nonzero _is_all_true
        _is_any_true std std_mean var var_mean norm linalg_vector_norm nansum logsumexp trace dist mse_loss
        smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits
        multi_margin_loss multilabel_margin_loss_forward linalg__powsum _sparse_sum"""),
    **each(calls.distances, "_cdist_forward _cdist_backward _pdist_forward _pdist_backward"),
    "nll_loss_forward": picked_loss, "nll_loss2d_forward": picked_loss,
    "nll_loss_backward": picked_loss_backward, "nll_loss2d_backward": picked_loss_backward,
    **each(calls.alignment, "_ctc_loss _ctc_loss_backward _cudnn_ctc_loss miopen_ctc_loss"),
    # element by element, but without PyTorch's pointwise tag
    **each(pointwise, """native_dropout _fused_dropout _masked_scale glu glu_backward leaky_relu_backward
        elu_backward softplus_backward softshrink_backward hardshrink_backward hardtanh_backward
        hardsigmoid_backward hardswish hardswish_backward log_sigmoid_forward log_sigmoid_backward _prelu_kernel
        _prelu_kernel_backward rrelu_with_noise rrelu_with_noise_backward threshold mse_loss_backward
        smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward binary_cross_entropy_backward
        multi_margin_loss_backward multilabel_margin_loss_backward addr rsub floor_divide masked_fill complex polar
        isin bernoulli fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
        fake_quantize_per_tensor_affine_cachemask_backward quantize_per_tensor quantize_per_tensor_dynamic
        quantize_per_channel dequantize _fused_moving_avg_obs_fq_helper linalg_cross glu_jvp renorm
        normal poisson binomial _standard_gamma _standard_gamma_grad _sample_dirichlet _dirichlet_grad"""),
    # element by element, on lists of tensors
    **each(calls.for_each("pointwise"), """_amp_foreach_non_finite_check_and_unscale _foreach_abs _foreach_add
        _foreach_addcdiv _foreach_addcmul _foreach_clamp_max _foreach_clamp_min _foreach_div _foreach_exp
        _foreach_lerp _foreach_log _foreach_maximum _foreach_minimum _foreach_mul _foreach_neg _foreach_pow
        _foreach_reciprocal _foreach_sign _foreach_sqrt _foreach_sub _foreach_rsqrt _foreach_expm1 _foreach_lgamma
        _foreach_log1p _foreach_sigmoid _foreach_tanh _foreach_erf _foreach_floor _foreach_ceil _foreach_round
        _foreach_sin _foreach_cos"""),
    **each(calls.for_each("copy"), "_foreach_copy _foreach_zero"),
    **each(calls.for_each("reduction"), "_foreach_norm _foreach_max _foreach_powsum"),
    # data moved unchanged
    **each(copy, """clone _to_copy copy cat stack _chunk_cat constant_pad_nd flip roll rot90 repeat tril triu
        diag_embed block_diag pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im slice_backward
        select_backward diagonal_backward unfold_backward slice_scatter select_scatter diagonal_scatter
        as_strided_scatter lu_unpack masked_scatter_backward masked_select"""),
    **each(copy, " ".join(f"{one}_pad{axes}d{end}" for one in ("reflection", "replication") for axes in (1, 2, 3)
                          for end in ("", "_backward"))),
    "copy_": copy_into,
    **each(calls.generate, """fill_ zero_ zeros zeros_like ones ones_like full full_like new_zeros new_ones
        new_full scalar_tensor eye arange linspace logspace tril_indices triu_indices rand rand_like randn
        randn_like randint randint_like randperm bernoulli_ uniform_ normal_ random_ exponential_ log_normal_
        geometric_ cauchy_ hann_window hamming_window blackman_window bartlett_window kaiser_window"""),
    # work without a formula of its own
    **each(other, """sort topk kthvalue median nanmedian mode cumsum cumprod cummax cummin logcumsumexp
        searchsorted bucketize nonzero _fft_r2c _fft_c2r _fft_c2c bincount histc multinomial grid_sampler_2d
        grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward max_unpool2d max_unpool3d masked_scatter
        _amp_update_scale affine_grid_generator affine_grid_generator_backward repeat_interleave
        _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _coalesce _to_sparse _sparse_softmax
        _sparse_log_softmax _sparse_sum_backward _unique2 unique_dim unique_consecutive unique_dim_consecutive
        segment_reduce _segment_reduce_backward histogram nonzero_static"""),
    # no work: only the tensor's description changes, or memory is reserved
    **each(None, """detach alias lift lift_fresh _unsafe_view _reshape_alias unsafe_split unsafe_split_with_sizes
        unsafe_chunk t transpose squeeze unsqueeze as_strided set resize resize_as empty empty_like empty_strided
        empty_permuted new_empty new_empty_strided is_same_size record_stream _local_scalar_dense
        _sparse_coo_tensor_with_dims_and_tensors is_coalesced _coalesced _nnz sparse_dim dense_dim _assert_async
        _functional_assert_async _assert_tensor_metadata _efficientzerotensor _has_same_storage_numel
        _linalg_check_errors"""),
}  # fmt: skip
"""Op names without ``aten::``; without its end where it is missing: ``_`` is in place, ``_copy`` a view's copy."""

_OF_DETECTION = """nms roi_align roi_pool ps_roi_align ps_roi_pool _roi_align_backward _roi_pool_backward
    _ps_roi_align_backward _ps_roi_pool_backward box_iou_rotated"""
_LIBRARIES: Mapping[str, Mapping[str, Rule | None]] = {
    "aten": RULES, "quantized": products.QUANTIZED,
    "torchvision": {
        **each(other, _OF_DETECTION), **each(products.deformed, "deform_conv2d _deform_conv2d_backward"),
    },
}  # fmt: skip


def find_rule(op: str) -> tuple[bool, Rule | None]:
    """Return whether the table knows an op, and the op's rule (None: the op does no work).

    Communication between processes is no work of a device: the parallel layout prices it.

    >>> find_rule("aten::detach"), find_rule("aten::_cholesky_solve_helper"), find_rule("c10d::allreduce_")
    ((True, None), (False, None), (True, None))
    """
    library, _, name = op.partition("::")
    if library in ("c10d", "_c10d_functional"):
        return True, None
    if library == "fsdp":
        return True, copy
    rules = _LIBRARIES.get(library, {})
    for spelling in (name, name.removesuffix("_")):
        if spelling in rules:
            return True, rules[spelling]
    return (True, copy) if library == "aten" and name.endswith("_copy") else (False, None)
