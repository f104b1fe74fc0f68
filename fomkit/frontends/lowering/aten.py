"""The one table from PyTorch's op names to what they cost; to support an op, add its name here.

Three states: a rule gives the works of a priced op, ``None`` marks an op that does no work, and an op that is
missing is unsupported and listed, unless PyTorch itself says that it works element by element (its ``pointwise``
tag), moves nothing (a view) or is made of ops of this table (a composite).
"""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.frontends.lowering import aten_products as products
from fomkit.frontends.lowering import aten_traffic as traffic
from fomkit.frontends.lowering.calls import Rule, copy, each, generate, other, pointwise, reduction, upsample

RULES: Mapping[str, Rule | None] = {
    # matrix products
    "mm": products.gemm_of("self", "mat2"), "addmm": products.gemm_of("mat1", "mat2"),
    "_addmm_activation": products.gemm_of("mat1", "mat2"), "bmm": products.gemm_of("self", "mat2"),
    "baddbmm": products.gemm_of("batch1", "batch2"), "addbmm": products.gemm_of("batch1", "batch2"),
    "_scaled_mm": products.gemm_of("self", "mat2"), "_int_mm": products.gemm_of("self", "mat2"),
    "mv": products.matrix_vector_of("self"), "addmv": products.matrix_vector_of("mat"),
    "dot": products.dot, "vdot": products.dot, "linear": products.linear, "_trilinear": products.trilinear,
    # convolutions
    "convolution": products.convolution, "convolution_backward": products.convolution_backward,
    # normalisation and softmax
    **each(traffic.batch_norm, """native_batch_norm native_batch_norm_backward _native_batch_norm_legit
        batch_norm_backward _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
        _batch_norm_with_update _batch_norm_no_update cudnn_batch_norm"""),
    **each(traffic.layer_norm, """native_layer_norm native_layer_norm_backward _fused_rms_norm
        _fused_rms_norm_backward"""),
    "_weight_norm_interface": traffic.weight_norm, "_weight_norm_interface_backward": traffic.weight_norm,
    "native_group_norm": traffic.group_norm, "native_group_norm_backward": traffic.group_norm,
    **each(traffic.softmax_along("self"), "_softmax _log_softmax _safe_softmax"),
    **each(traffic.softmax_along("output"), "_softmax_backward_data _log_softmax_backward_data"),
    # pooling and interpolation
    **each(traffic.window_pool, """max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices
        max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward"""),
    **each(traffic.adaptive_pool, """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
        _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
        adaptive_max_pool3d_backward"""),
    **each(upsample, """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d
        upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d upsample_nearest1d_backward
        upsample_nearest2d_backward upsample_nearest3d_backward upsample_linear1d_backward
        upsample_bilinear2d_backward upsample_bicubic2d_backward upsample_trilinear3d_backward
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _upsample_bilinear2d_aa
        _upsample_bicubic2d_aa"""),
    # lookups and their gradients
    "embedding": traffic.gather_from("weight", "embedding"),
    "embedding_dense_backward": traffic.embedding_backward, "_embedding_bag": traffic.embedding_bag,
    "_embedding_bag_forward_only": traffic.embedding_bag,
    "_embedding_bag_backward": traffic.embedding_bag_backward,
    "_embedding_bag_dense_backward": traffic.embedding_bag_backward,
    **each(traffic.gather_from("self", "copy"), "index _unsafe_index index_select gather take"),
    **each(traffic.scatter, """index_put _unsafe_index_put _index_put_impl index_add index_copy index_fill scatter
        scatter_add scatter_reduce"""),
    # reductions and losses
    **each(reduction, """sum mean prod amax amin max min aminmax argmax argmin all any count_nonzero std std_mean
        var var_mean norm linalg_vector_norm nansum logsumexp trace dist mse_loss smooth_l1_loss huber_loss
        soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits multi_margin_loss
        multilabel_margin_loss_forward"""),
    "nll_loss_forward": traffic.picked_loss, "nll_loss2d_forward": traffic.picked_loss,
    "nll_loss_backward": traffic.picked_loss_backward, "nll_loss2d_backward": traffic.picked_loss_backward,
    # element by element, without the tag that says so
    **each(pointwise, """native_dropout _fused_dropout _masked_scale glu glu_backward leaky_relu_backward
        elu_backward softplus_backward softshrink_backward hardshrink_backward hardtanh_backward
        hardsigmoid_backward hardswish hardswish_backward log_sigmoid_forward log_sigmoid_backward _prelu_kernel
        _prelu_kernel_backward rrelu_with_noise rrelu_with_noise_backward threshold mse_loss_backward
        smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward binary_cross_entropy_backward
        multi_margin_loss_backward multilabel_margin_loss_backward addr rsub floor_divide masked_fill complex polar
        isin bernoulli"""),
    # element by element, on lists of tensors
    **each(traffic.for_each("pointwise"), """_amp_foreach_non_finite_check_and_unscale _foreach_abs _foreach_add
        _foreach_addcdiv _foreach_addcmul _foreach_clamp_max _foreach_clamp_min _foreach_div _foreach_exp
        _foreach_lerp _foreach_log _foreach_maximum _foreach_minimum _foreach_mul _foreach_neg _foreach_pow
        _foreach_reciprocal _foreach_sign _foreach_sqrt _foreach_sub"""),
    **each(traffic.for_each("copy"), "_foreach_copy _foreach_zero"),
    **each(traffic.for_each("reduction"), "_foreach_norm _foreach_max"),
    # data that moves unchanged
    **each(copy, """clone _to_copy copy cat stack _chunk_cat constant_pad_nd flip roll rot90 repeat tril triu
        diag_embed block_diag pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im slice_backward
        select_backward diagonal_backward unfold_backward slice_scatter select_scatter diagonal_scatter
        as_strided_scatter lift_fresh_copy view_copy expand_copy permute_copy transpose_copy unfold_copy
        reflection_pad1d reflection_pad2d reflection_pad3d reflection_pad1d_backward reflection_pad2d_backward
        reflection_pad3d_backward replication_pad1d replication_pad2d replication_pad3d replication_pad1d_backward
        replication_pad2d_backward replication_pad3d_backward"""),
    "copy_": traffic.copy_into,
    **each(generate, """fill_ zero_ zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full
        scalar_tensor eye arange linspace logspace tril_indices triu_indices rand rand_like randn randn_like
        randint randint_like randperm bernoulli_ uniform_ normal_ random_ exponential_ log_normal_ geometric_
        cauchy_"""),
    # work with no formula of its own
    **each(other, """sort topk kthvalue median nanmedian mode cumsum cumprod cummax cummin logcumsumexp
        searchsorted bucketize bincount histc multinomial grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d
        grid_sampler_3d_backward max_unpool2d max_unpool3d masked_scatter _amp_update_scale"""),
    # no work: the tensor's description changes, or memory is set aside
    **each(None, """detach alias lift lift_fresh _unsafe_view _reshape_alias unsafe_split unsafe_split_with_sizes
        unsafe_chunk t transpose squeeze unsqueeze as_strided set resize resize_as empty empty_like empty_strided
        empty_permuted new_empty new_empty_strided is_same_size record_stream _local_scalar_dense
        _sparse_coo_tensor_with_dims_and_tensors _assert_async _functional_assert_async
        _assert_tensor_metadata"""),
}  # fmt: skip
"""Op names without ``aten::``. A name that ends in ``_`` and is missing is looked up without it."""


def find_rule(op: str) -> tuple[bool, Rule | None]:
    """Look an op up: whether the table knows it, and its rule (None: it does no work).

    >>> find_rule("aten::detach"), find_rule("aten::_fft_r2c")
    ((True, None), (False, None))
    """
    library, _, name = op.partition("::")
    if library != "aten":
        return False, None
    for spelling in (name, name.removesuffix("_")):
        if spelling in RULES:
            return True, RULES[spelling]
    return False, None
