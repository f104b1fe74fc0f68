"""Generated from the sympy formulas by ``python -m fomkit.costs``; do not edit, run that instead."""
# ruff: noqa: ARG001, D103, E501
# fmt: off

from __future__ import annotations

from typing import Any

import numpy

from fomkit.costs.formula import CompiledCost, Row, Variant


def gemm_flop(op: Row) -> Any:
    return 2*op.b*op.k*op.m*op.n

def gemm_byte(op: Row) -> Any:
    return op.b*op.item_byte*(op.k*op.m + op.k*op.n + op.m*op.n)

def gemm_launches(op: Row) -> Any:
    return 1

def sparse_gemm_flop(op: Row) -> Any:
    return 2*op.b*op.density*op.k*op.m*op.n

def sparse_gemm_byte(op: Row) -> Any:
    return op.b*(op.density*op.k*op.m*(op.item_byte + 4) + op.item_byte*(op.k*op.n + op.m*op.n) + 4*op.m + 4)

def conv_forward_flop(op: Row) -> Any:
    return 2*op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*(op.depth*op.height*op.transposed*op.width + (1 - op.transposed)*(op.transposed*(op.dilation_d*(op.kernel_d - 1) + op.output_pad_d - 2*op.pad_d + op.stride_d*(op.depth - 1) + 1) + (1 - op.transposed)*(numpy.floor((op.depth - op.dilation_d*(op.kernel_d - 1) + 2*op.pad_d - 1)/op.stride_d) + 1))*(op.transposed*(op.dilation_h*(op.kernel_h - 1) + op.output_pad_h - 2*op.pad_h + op.stride_h*(op.height - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_h*(op.kernel_h - 1) + op.height + 2*op.pad_h - 1)/op.stride_h) + 1))*(op.transposed*(op.dilation_w*(op.kernel_w - 1) + op.output_pad_w - 2*op.pad_w + op.stride_w*(op.width - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_w*(op.kernel_w - 1) + 2*op.pad_w + op.width - 1)/op.stride_w) + 1)))/op.groups

def conv_forward_byte(op: Row) -> Any:
    return op.item_byte*(op.batch*op.depth*op.height*op.in_channels*op.width + op.batch*op.out_channels*(op.transposed*(op.dilation_d*(op.kernel_d - 1) + op.output_pad_d - 2*op.pad_d + op.stride_d*(op.depth - 1) + 1) + (1 - op.transposed)*(numpy.floor((op.depth - op.dilation_d*(op.kernel_d - 1) + 2*op.pad_d - 1)/op.stride_d) + 1))*(op.transposed*(op.dilation_h*(op.kernel_h - 1) + op.output_pad_h - 2*op.pad_h + op.stride_h*(op.height - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_h*(op.kernel_h - 1) + op.height + 2*op.pad_h - 1)/op.stride_h) + 1))*(op.transposed*(op.dilation_w*(op.kernel_w - 1) + op.output_pad_w - 2*op.pad_w + op.stride_w*(op.width - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_w*(op.kernel_w - 1) + 2*op.pad_w + op.width - 1)/op.stride_w) + 1)) + op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels/op.groups)

def conv_backward_flop(op: Row) -> Any:
    return 4*op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*(op.depth*op.height*op.transposed*op.width + (1 - op.transposed)*(op.transposed*(op.dilation_d*(op.kernel_d - 1) + op.output_pad_d - 2*op.pad_d + op.stride_d*(op.depth - 1) + 1) + (1 - op.transposed)*(numpy.floor((op.depth - op.dilation_d*(op.kernel_d - 1) + 2*op.pad_d - 1)/op.stride_d) + 1))*(op.transposed*(op.dilation_h*(op.kernel_h - 1) + op.output_pad_h - 2*op.pad_h + op.stride_h*(op.height - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_h*(op.kernel_h - 1) + op.height + 2*op.pad_h - 1)/op.stride_h) + 1))*(op.transposed*(op.dilation_w*(op.kernel_w - 1) + op.output_pad_w - 2*op.pad_w + op.stride_w*(op.width - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_w*(op.kernel_w - 1) + 2*op.pad_w + op.width - 1)/op.stride_w) + 1)))/op.groups

def conv_backward_byte(op: Row) -> Any:
    return 2*op.item_byte*(op.batch*op.depth*op.height*op.in_channels*op.width + op.batch*op.out_channels*(op.transposed*(op.dilation_d*(op.kernel_d - 1) + op.output_pad_d - 2*op.pad_d + op.stride_d*(op.depth - 1) + 1) + (1 - op.transposed)*(numpy.floor((op.depth - op.dilation_d*(op.kernel_d - 1) + 2*op.pad_d - 1)/op.stride_d) + 1))*(op.transposed*(op.dilation_h*(op.kernel_h - 1) + op.output_pad_h - 2*op.pad_h + op.stride_h*(op.height - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_h*(op.kernel_h - 1) + op.height + 2*op.pad_h - 1)/op.stride_h) + 1))*(op.transposed*(op.dilation_w*(op.kernel_w - 1) + op.output_pad_w - 2*op.pad_w + op.stride_w*(op.width - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_w*(op.kernel_w - 1) + 2*op.pad_w + op.width - 1)/op.stride_w) + 1)) + op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels/op.groups)

def conv_backward_launches(op: Row) -> Any:
    return 2

def rnn_vanilla_forward_flop(op: Row) -> Any:
    return 2*op.batch*op.directions*op.hidden_size*op.steps*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size)

def rnn_vanilla_forward_byte(op: Row) -> Any:
    return op.item_byte*(op.batch*op.steps*(op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_vanilla_backward_input_byte(op: Row) -> Any:
    return op.item_byte*(op.batch*op.steps*(2*op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_vanilla_backward_flop(op: Row) -> Any:
    return 4*op.batch*op.directions*op.hidden_size*op.steps*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size)

def rnn_vanilla_backward_byte(op: Row) -> Any:
    return 2*op.item_byte*(op.batch*op.steps*(2*op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_lstm_forward_flop(op: Row) -> Any:
    return 8*op.batch*op.directions*op.hidden_size*op.steps*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size)

def rnn_lstm_forward_byte(op: Row) -> Any:
    return op.item_byte*(op.batch*op.steps*(op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + 4*op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_lstm_backward_input_byte(op: Row) -> Any:
    return op.item_byte*(op.batch*op.steps*(5*op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + 4*op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_lstm_backward_flop(op: Row) -> Any:
    return 16*op.batch*op.directions*op.hidden_size*op.steps*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size)

def rnn_lstm_backward_byte(op: Row) -> Any:
    return 2*op.item_byte*(op.batch*op.steps*(5*op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + 4*op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_gru_forward_flop(op: Row) -> Any:
    return 6*op.batch*op.directions*op.hidden_size*op.steps*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size)

def rnn_gru_forward_byte(op: Row) -> Any:
    return op.item_byte*(op.batch*op.steps*(op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + 3*op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_gru_backward_input_byte(op: Row) -> Any:
    return op.item_byte*(op.batch*op.steps*(4*op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + 3*op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def rnn_gru_backward_flop(op: Row) -> Any:
    return 12*op.batch*op.directions*op.hidden_size*op.steps*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size)

def rnn_gru_backward_byte(op: Row) -> Any:
    return 2*op.item_byte*(op.batch*op.steps*(4*op.directions*op.hidden_size*op.layers + op.directions*op.hidden_size*(op.layers - 1) + op.input_size) + 3*op.directions*op.hidden_size*(op.directions*op.hidden_size*(op.layers - 1) + op.hidden_size*op.layers + op.input_size))

def attention_forward_flop(op: Row) -> Any:
    return 4*op.batch*op.head_dim*op.heads*op.kv_len*op.q_len

def attention_forward_byte(op: Row) -> Any:
    return 2*op.batch*op.head_dim*op.heads*op.item_byte*op.q_len + 2*op.batch*op.head_dim*op.item_byte*op.kv_heads*op.kv_len

def attention_backward_flop(op: Row) -> Any:
    return 8*op.batch*op.head_dim*op.heads*op.kv_len*op.q_len

def attention_backward_byte(op: Row) -> Any:
    return 4*op.batch*op.head_dim*op.heads*op.item_byte*op.q_len + 4*op.batch*op.head_dim*op.item_byte*op.kv_heads*op.kv_len

def pointwise_flop(op: Row) -> Any:
    return op.numel

def pointwise_byte(op: Row) -> Any:
    return op.read_byte + op.write_byte

def norm_forward_flop(op: Row) -> Any:
    return 8*op.numel

def norm_backward_flop(op: Row) -> Any:
    return 13*op.numel

def softmax_forward_flop(op: Row) -> Any:
    return 5*op.numel

def softmax_backward_flop(op: Row) -> Any:
    return 4*op.numel

def embedding_flop(op: Row) -> Any:
    return 0

def optimizer_sgd_per_tensor_flop(op: Row) -> Any:
    return 2*op.numel

def optimizer_sgd_per_tensor_byte(op: Row) -> Any:
    return 3*op.item_byte*op.numel

def optimizer_sgd_per_tensor_launches(op: Row) -> Any:
    return op.tensors

def optimizer_sgd_foreach_launches(op: Row) -> Any:
    return numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_momentum_per_tensor_byte(op: Row) -> Any:
    return 8*op.item_byte*op.numel

def optimizer_momentum_per_tensor_launches(op: Row) -> Any:
    return 3*op.tensors

def optimizer_momentum_foreach_launches(op: Row) -> Any:
    return 3*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_nesterov_per_tensor_flop(op: Row) -> Any:
    return 7*op.numel

def optimizer_nesterov_per_tensor_byte(op: Row) -> Any:
    return 11*op.item_byte*op.numel

def optimizer_nesterov_per_tensor_launches(op: Row) -> Any:
    return 4*op.tensors

def optimizer_nesterov_foreach_launches(op: Row) -> Any:
    return 4*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_adam_per_tensor_byte(op: Row) -> Any:
    return 18*op.item_byte*op.numel

def optimizer_adam_per_tensor_launches(op: Row) -> Any:
    return 7*op.tensors

def optimizer_adam_foreach_launches(op: Row) -> Any:
    return 7*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_adam_amsgrad_per_tensor_flop(op: Row) -> Any:
    return 14*op.numel

def optimizer_adam_amsgrad_per_tensor_byte(op: Row) -> Any:
    return 21*op.item_byte*op.numel

def optimizer_adam_amsgrad_per_tensor_launches(op: Row) -> Any:
    return 8*op.tensors

def optimizer_adam_amsgrad_foreach_launches(op: Row) -> Any:
    return 8*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_adamw_per_tensor_byte(op: Row) -> Any:
    return 20*op.item_byte*op.numel

def optimizer_adamw_amsgrad_per_tensor_flop(op: Row) -> Any:
    return 15*op.numel

def optimizer_adamw_amsgrad_per_tensor_byte(op: Row) -> Any:
    return 23*op.item_byte*op.numel

def optimizer_adamw_amsgrad_per_tensor_launches(op: Row) -> Any:
    return 9*op.tensors

def optimizer_adamw_amsgrad_foreach_launches(op: Row) -> Any:
    return 9*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_adamax_per_tensor_flop(op: Row) -> Any:
    return 10*op.numel

def optimizer_adamax_per_tensor_byte(op: Row) -> Any:
    return 16*op.item_byte*op.numel

def optimizer_adamax_per_tensor_launches(op: Row) -> Any:
    return 6*op.tensors

def optimizer_adamax_foreach_launches(op: Row) -> Any:
    return 6*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_nadam_per_tensor_flop(op: Row) -> Any:
    return 16*op.numel

def optimizer_nadam_per_tensor_byte(op: Row) -> Any:
    return 22*op.item_byte*op.numel

def optimizer_radam_per_tensor_flop(op: Row) -> Any:
    return 17*op.numel

def optimizer_radam_per_tensor_byte(op: Row) -> Any:
    return 28*op.item_byte*op.numel

def optimizer_radam_per_tensor_launches(op: Row) -> Any:
    return 12*op.tensors

def optimizer_rmsprop_per_tensor_flop(op: Row) -> Any:
    return 9*op.numel

def optimizer_rmsprop_per_tensor_byte(op: Row) -> Any:
    return 13*op.item_byte*op.numel

def optimizer_rmsprop_per_tensor_launches(op: Row) -> Any:
    return 5*op.tensors

def optimizer_rmsprop_foreach_launches(op: Row) -> Any:
    return 5*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_rmsprop_momentum_per_tensor_flop(op: Row) -> Any:
    return 12*op.numel

def optimizer_rmsprop_centered_per_tensor_byte(op: Row) -> Any:
    return 19*op.item_byte*op.numel

def optimizer_rmsprop_centered_momentum_per_tensor_flop(op: Row) -> Any:
    return 18*op.numel

def optimizer_rmsprop_centered_momentum_per_tensor_byte(op: Row) -> Any:
    return 24*op.item_byte*op.numel

def optimizer_adadelta_per_tensor_byte(op: Row) -> Any:
    return 27*op.item_byte*op.numel

def optimizer_adadelta_per_tensor_launches(op: Row) -> Any:
    return 11*op.tensors

def optimizer_adadelta_foreach_launches(op: Row) -> Any:
    return 11*numpy.ceil((1/20971520)*op.numel + (1/48)*op.tensors)

def optimizer_momentum_fused_byte(op: Row) -> Any:
    return 5*op.item_byte*op.numel

def optimizer_adam_fused_byte(op: Row) -> Any:
    return 7*op.item_byte*op.numel

def optimizer_adam_amsgrad_fused_byte(op: Row) -> Any:
    return 9*op.item_byte*op.numel


COMPILED: dict[str, dict[Variant, CompiledCost]] = {
    "gemm": {
        (): CompiledCost(gemm_flop, gemm_byte, gemm_launches),
    },
    "sparse_gemm": {
        (): CompiledCost(sparse_gemm_flop, sparse_gemm_byte, gemm_launches),
    },
    "conv": {
        ("forward",): CompiledCost(conv_forward_flop, conv_forward_byte, gemm_launches),
        ("backward_input",): CompiledCost(conv_forward_flop, conv_forward_byte, gemm_launches),
        ("backward_weight",): CompiledCost(conv_forward_flop, conv_forward_byte, gemm_launches),
        ("backward",): CompiledCost(conv_backward_flop, conv_backward_byte, conv_backward_launches),
    },
    "rnn": {
        ("vanilla", "forward"): CompiledCost(rnn_vanilla_forward_flop, rnn_vanilla_forward_byte, gemm_launches),
        ("vanilla", "backward_input"): CompiledCost(rnn_vanilla_forward_flop, rnn_vanilla_backward_input_byte, gemm_launches),
        ("vanilla", "backward_weight"): CompiledCost(rnn_vanilla_forward_flop, rnn_vanilla_backward_input_byte, gemm_launches),
        ("vanilla", "backward"): CompiledCost(rnn_vanilla_backward_flop, rnn_vanilla_backward_byte, conv_backward_launches),
        ("lstm", "forward"): CompiledCost(rnn_lstm_forward_flop, rnn_lstm_forward_byte, gemm_launches),
        ("lstm", "backward_input"): CompiledCost(rnn_lstm_forward_flop, rnn_lstm_backward_input_byte, gemm_launches),
        ("lstm", "backward_weight"): CompiledCost(rnn_lstm_forward_flop, rnn_lstm_backward_input_byte, gemm_launches),
        ("lstm", "backward"): CompiledCost(rnn_lstm_backward_flop, rnn_lstm_backward_byte, conv_backward_launches),
        ("gru", "forward"): CompiledCost(rnn_gru_forward_flop, rnn_gru_forward_byte, gemm_launches),
        ("gru", "backward_input"): CompiledCost(rnn_gru_forward_flop, rnn_gru_backward_input_byte, gemm_launches),
        ("gru", "backward_weight"): CompiledCost(rnn_gru_forward_flop, rnn_gru_backward_input_byte, gemm_launches),
        ("gru", "backward"): CompiledCost(rnn_gru_backward_flop, rnn_gru_backward_byte, conv_backward_launches),
    },
    "attention": {
        ("forward",): CompiledCost(attention_forward_flop, attention_forward_byte, gemm_launches),
        ("backward",): CompiledCost(attention_backward_flop, attention_backward_byte, gemm_launches),
    },
    "pointwise": {
        (): CompiledCost(pointwise_flop, pointwise_byte, gemm_launches),
    },
    "reduction": {
        (): CompiledCost(pointwise_flop, pointwise_byte, gemm_launches),
    },
    "norm": {
        ("forward",): CompiledCost(norm_forward_flop, pointwise_byte, gemm_launches),
        ("backward",): CompiledCost(norm_backward_flop, pointwise_byte, gemm_launches),
    },
    "softmax": {
        ("forward",): CompiledCost(softmax_forward_flop, pointwise_byte, gemm_launches),
        ("backward",): CompiledCost(softmax_backward_flop, pointwise_byte, gemm_launches),
    },
    "pool": {
        (): CompiledCost(pointwise_flop, pointwise_byte, gemm_launches),
    },
    "embedding": {
        (): CompiledCost(embedding_flop, pointwise_byte, gemm_launches),
    },
    "copy": {
        (): CompiledCost(embedding_flop, pointwise_byte, gemm_launches),
    },
    "optimizer": {
        ("sgd", "per_tensor"): CompiledCost(optimizer_sgd_per_tensor_flop, optimizer_sgd_per_tensor_byte, optimizer_sgd_per_tensor_launches),
        ("sgd", "foreach"): CompiledCost(optimizer_sgd_per_tensor_flop, optimizer_sgd_per_tensor_byte, optimizer_sgd_foreach_launches),
        ("momentum", "per_tensor"): CompiledCost(softmax_forward_flop, optimizer_momentum_per_tensor_byte, optimizer_momentum_per_tensor_launches),
        ("momentum", "foreach"): CompiledCost(softmax_forward_flop, optimizer_momentum_per_tensor_byte, optimizer_momentum_foreach_launches),
        ("nesterov", "per_tensor"): CompiledCost(optimizer_nesterov_per_tensor_flop, optimizer_nesterov_per_tensor_byte, optimizer_nesterov_per_tensor_launches),
        ("nesterov", "foreach"): CompiledCost(optimizer_nesterov_per_tensor_flop, optimizer_nesterov_per_tensor_byte, optimizer_nesterov_foreach_launches),
        ("adam", "per_tensor"): CompiledCost(norm_backward_flop, optimizer_adam_per_tensor_byte, optimizer_adam_per_tensor_launches),
        ("adam", "foreach"): CompiledCost(norm_backward_flop, optimizer_adam_per_tensor_byte, optimizer_adam_foreach_launches),
        ("adam_amsgrad", "per_tensor"): CompiledCost(optimizer_adam_amsgrad_per_tensor_flop, optimizer_adam_amsgrad_per_tensor_byte, optimizer_adam_amsgrad_per_tensor_launches),
        ("adam_amsgrad", "foreach"): CompiledCost(optimizer_adam_amsgrad_per_tensor_flop, optimizer_adam_amsgrad_per_tensor_byte, optimizer_adam_amsgrad_foreach_launches),
        ("adamw", "per_tensor"): CompiledCost(optimizer_adam_amsgrad_per_tensor_flop, optimizer_adamw_per_tensor_byte, optimizer_adam_amsgrad_per_tensor_launches),
        ("adamw", "foreach"): CompiledCost(optimizer_adam_amsgrad_per_tensor_flop, optimizer_adamw_per_tensor_byte, optimizer_adam_amsgrad_foreach_launches),
        ("adamw_amsgrad", "per_tensor"): CompiledCost(optimizer_adamw_amsgrad_per_tensor_flop, optimizer_adamw_amsgrad_per_tensor_byte, optimizer_adamw_amsgrad_per_tensor_launches),
        ("adamw_amsgrad", "foreach"): CompiledCost(optimizer_adamw_amsgrad_per_tensor_flop, optimizer_adamw_amsgrad_per_tensor_byte, optimizer_adamw_amsgrad_foreach_launches),
        ("adamax", "per_tensor"): CompiledCost(optimizer_adamax_per_tensor_flop, optimizer_adamax_per_tensor_byte, optimizer_adamax_per_tensor_launches),
        ("adamax", "foreach"): CompiledCost(optimizer_adamax_per_tensor_flop, optimizer_adamax_per_tensor_byte, optimizer_adamax_foreach_launches),
        ("nadam", "per_tensor"): CompiledCost(optimizer_nadam_per_tensor_flop, optimizer_nadam_per_tensor_byte, optimizer_adam_amsgrad_per_tensor_launches),
        ("nadam", "foreach"): CompiledCost(optimizer_nadam_per_tensor_flop, optimizer_nadam_per_tensor_byte, optimizer_adam_amsgrad_foreach_launches),
        ("radam", "per_tensor"): CompiledCost(optimizer_radam_per_tensor_flop, optimizer_radam_per_tensor_byte, optimizer_radam_per_tensor_launches),
        ("radam", "foreach"): CompiledCost(optimizer_adamw_amsgrad_per_tensor_flop, optimizer_nadam_per_tensor_byte, optimizer_adamw_amsgrad_foreach_launches),
        ("rmsprop", "per_tensor"): CompiledCost(optimizer_rmsprop_per_tensor_flop, optimizer_rmsprop_per_tensor_byte, optimizer_rmsprop_per_tensor_launches),
        ("rmsprop", "foreach"): CompiledCost(optimizer_rmsprop_per_tensor_flop, optimizer_rmsprop_per_tensor_byte, optimizer_rmsprop_foreach_launches),
        ("rmsprop_momentum", "per_tensor"): CompiledCost(optimizer_rmsprop_momentum_per_tensor_flop, optimizer_adam_per_tensor_byte, optimizer_adam_per_tensor_launches),
        ("rmsprop_momentum", "foreach"): CompiledCost(optimizer_rmsprop_momentum_per_tensor_flop, optimizer_adam_per_tensor_byte, optimizer_adam_foreach_launches),
        ("rmsprop_centered", "per_tensor"): CompiledCost(optimizer_adamw_amsgrad_per_tensor_flop, optimizer_rmsprop_centered_per_tensor_byte, optimizer_adam_per_tensor_launches),
        ("rmsprop_centered", "foreach"): CompiledCost(optimizer_adamw_amsgrad_per_tensor_flop, optimizer_rmsprop_centered_per_tensor_byte, optimizer_adam_foreach_launches),
        ("rmsprop_centered_momentum", "per_tensor"): CompiledCost(optimizer_rmsprop_centered_momentum_per_tensor_flop, optimizer_rmsprop_centered_momentum_per_tensor_byte, optimizer_adamw_amsgrad_per_tensor_launches),
        ("rmsprop_centered_momentum", "foreach"): CompiledCost(optimizer_rmsprop_centered_momentum_per_tensor_flop, optimizer_rmsprop_centered_momentum_per_tensor_byte, optimizer_adamw_amsgrad_foreach_launches),
        ("adagrad", "per_tensor"): CompiledCost(norm_forward_flop, optimizer_nesterov_per_tensor_byte, optimizer_nesterov_per_tensor_launches),
        ("adagrad", "foreach"): CompiledCost(optimizer_rmsprop_per_tensor_flop, optimizer_rmsprop_per_tensor_byte, optimizer_rmsprop_foreach_launches),
        ("adadelta", "per_tensor"): CompiledCost(optimizer_nadam_per_tensor_flop, optimizer_adadelta_per_tensor_byte, optimizer_adadelta_per_tensor_launches),
        ("adadelta", "foreach"): CompiledCost(optimizer_nadam_per_tensor_flop, optimizer_adadelta_per_tensor_byte, optimizer_adadelta_foreach_launches),
        ("sgd", "fused"): CompiledCost(optimizer_sgd_per_tensor_flop, optimizer_sgd_per_tensor_byte, optimizer_sgd_foreach_launches),
        ("momentum", "fused"): CompiledCost(softmax_forward_flop, optimizer_momentum_fused_byte, optimizer_sgd_foreach_launches),
        ("nesterov", "fused"): CompiledCost(optimizer_nesterov_per_tensor_flop, optimizer_momentum_fused_byte, optimizer_sgd_foreach_launches),
        ("adam", "fused"): CompiledCost(norm_backward_flop, optimizer_adam_fused_byte, optimizer_sgd_foreach_launches),
        ("adam_amsgrad", "fused"): CompiledCost(optimizer_adam_amsgrad_per_tensor_flop, optimizer_adam_amsgrad_fused_byte, optimizer_sgd_foreach_launches),
        ("adamw", "fused"): CompiledCost(optimizer_adam_amsgrad_per_tensor_flop, optimizer_adam_fused_byte, optimizer_sgd_foreach_launches),
        ("adamw_amsgrad", "fused"): CompiledCost(optimizer_adamw_amsgrad_per_tensor_flop, optimizer_adam_amsgrad_fused_byte, optimizer_sgd_foreach_launches),
        ("adagrad", "fused"): CompiledCost(norm_forward_flop, optimizer_momentum_fused_byte, optimizer_sgd_foreach_launches),
    },
    "other": {
        (): CompiledCost(pointwise_flop, pointwise_byte, gemm_launches),
    },
}
