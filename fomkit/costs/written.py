"""Generated from the sympy formulas by ``python -m fomkit.costs``; do not edit, run that instead."""
# ruff: noqa: D103, E501
# fmt: off

from __future__ import annotations

from typing import Any

import numpy

from fomkit.costs.formula import CostText, Row, Shorthand, Variant


def conv_slid_over(op: Row) -> Any:
    return op.depth*op.height*op.transposed*op.width + (1 - op.transposed)*(op.transposed*(op.dilation_d*(op.kernel_d - 1) + op.output_pad_d - 2*op.pad_d + op.stride_d*(op.depth - 1) + 1) + (1 - op.transposed)*(numpy.floor((op.depth - op.dilation_d*(op.kernel_d - 1) + 2*op.pad_d - 1)/op.stride_d) + 1))*(op.transposed*(op.dilation_h*(op.kernel_h - 1) + op.output_pad_h - 2*op.pad_h + op.stride_h*(op.height - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_h*(op.kernel_h - 1) + op.height + 2*op.pad_h - 1)/op.stride_h) + 1))*(op.transposed*(op.dilation_w*(op.kernel_w - 1) + op.output_pad_w - 2*op.pad_w + op.stride_w*(op.width - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_w*(op.kernel_w - 1) + 2*op.pad_w + op.width - 1)/op.stride_w) + 1))

def conv_out_depth(op: Row) -> Any:
    return op.transposed*(op.dilation_d*(op.kernel_d - 1) + op.output_pad_d - 2*op.pad_d + op.stride_d*(op.depth - 1) + 1) + (1 - op.transposed)*(numpy.floor((op.depth - op.dilation_d*(op.kernel_d - 1) + 2*op.pad_d - 1)/op.stride_d) + 1)

def conv_out_height(op: Row) -> Any:
    return op.transposed*(op.dilation_h*(op.kernel_h - 1) + op.output_pad_h - 2*op.pad_h + op.stride_h*(op.height - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_h*(op.kernel_h - 1) + op.height + 2*op.pad_h - 1)/op.stride_h) + 1)

def conv_out_width(op: Row) -> Any:
    return op.transposed*(op.dilation_w*(op.kernel_w - 1) + op.output_pad_w - 2*op.pad_w + op.stride_w*(op.width - 1) + 1) + (1 - op.transposed)*(numpy.floor((-op.dilation_w*(op.kernel_w - 1) + 2*op.pad_w + op.width - 1)/op.stride_w) + 1)


SHORTHANDS: dict[str, dict[str, Shorthand]] = {
    "conv": {
        "slid_over": Shorthand("depth*height*transposed*width + out_depth*out_height*out_width*(1 - transposed)", conv_slid_over),
        "out_depth": Shorthand("transposed*(dilation_d*(kernel_d - 1) + output_pad_d - 2*pad_d + stride_d*(depth - 1) + 1) + (1 - transposed)*(floor((depth - dilation_d*(kernel_d - 1) + 2*pad_d - 1)/stride_d) + 1)", conv_out_depth),
        "out_height": Shorthand("transposed*(dilation_h*(kernel_h - 1) + output_pad_h - 2*pad_h + stride_h*(height - 1) + 1) + (1 - transposed)*(floor((-dilation_h*(kernel_h - 1) + height + 2*pad_h - 1)/stride_h) + 1)", conv_out_height),
        "out_width": Shorthand("transposed*(dilation_w*(kernel_w - 1) + output_pad_w - 2*pad_w + stride_w*(width - 1) + 1) + (1 - transposed)*(floor((-dilation_w*(kernel_w - 1) + 2*pad_w + width - 1)/stride_w) + 1)", conv_out_width),
    },
}

FORMULA_TEXTS: dict[str, dict[Variant, CostText]] = {
    "gemm": {
        (): CostText("2*b*k*m*n", "b*item_byte*(k*m + k*n + m*n)", "1"),
    },
    "sparse_gemm": {
        (): CostText("2*b*density*k*m*n", "b*(density*k*m*(item_byte + 4) + item_byte*(k*n + m*n) + 4*m + 4)", "1"),
    },
    "conv": {
        ("forward",): CostText("2*batch*in_channels*kernel_d*kernel_h*kernel_w*out_channels*slid_over/groups", "item_byte*(batch*depth*height*in_channels*width + batch*out_channels*out_depth*out_height*out_width + in_channels*kernel_d*kernel_h*kernel_w*out_channels/groups)", "1"),
        ("backward_input",): CostText("2*batch*in_channels*kernel_d*kernel_h*kernel_w*out_channels*slid_over/groups", "item_byte*(batch*depth*height*in_channels*width + batch*out_channels*out_depth*out_height*out_width + in_channels*kernel_d*kernel_h*kernel_w*out_channels/groups)", "1"),
        ("backward_weight",): CostText("2*batch*in_channels*kernel_d*kernel_h*kernel_w*out_channels*slid_over/groups", "item_byte*(batch*depth*height*in_channels*width + batch*out_channels*out_depth*out_height*out_width + in_channels*kernel_d*kernel_h*kernel_w*out_channels/groups)", "1"),
        ("backward",): CostText("4*batch*in_channels*kernel_d*kernel_h*kernel_w*out_channels*slid_over/groups", "2*item_byte*(batch*depth*height*in_channels*width + batch*out_channels*out_depth*out_height*out_width + in_channels*kernel_d*kernel_h*kernel_w*out_channels/groups)", "2"),
    },
    "rnn": {
        ("vanilla", "forward"): CostText("2*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("vanilla", "backward_input"): CostText("2*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(2*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("vanilla", "backward_weight"): CostText("2*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(2*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("vanilla", "backward"): CostText("4*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "2*item_byte*(batch*steps*(2*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "2"),
        ("lstm", "forward"): CostText("8*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 4*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("lstm", "backward_input"): CostText("8*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(5*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 4*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("lstm", "backward_weight"): CostText("8*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(5*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 4*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("lstm", "backward"): CostText("16*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "2*item_byte*(batch*steps*(5*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 4*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "2"),
        ("gru", "forward"): CostText("6*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 3*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("gru", "backward_input"): CostText("6*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(4*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 3*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("gru", "backward_weight"): CostText("6*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "item_byte*(batch*steps*(4*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 3*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "1"),
        ("gru", "backward"): CostText("12*batch*directions*hidden_size*steps*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size)", "2*item_byte*(batch*steps*(4*directions*hidden_size*layers + directions*hidden_size*(layers - 1) + input_size) + 3*directions*hidden_size*(directions*hidden_size*(layers - 1) + hidden_size*layers + input_size))", "2"),
    },
    "attention": {
        ("forward",): CostText("4*batch*head_dim*heads*kv_len*q_len", "2*batch*head_dim*heads*item_byte*q_len + 2*batch*head_dim*item_byte*kv_heads*kv_len", "1"),
        ("backward",): CostText("8*batch*head_dim*heads*kv_len*q_len", "4*batch*head_dim*heads*item_byte*q_len + 4*batch*head_dim*item_byte*kv_heads*kv_len", "1"),
    },
    "pointwise": {
        (): CostText("numel", "read_byte + write_byte", "1"),
    },
    "reduction": {
        (): CostText("numel", "read_byte + write_byte", "1"),
    },
    "norm": {
        ("forward",): CostText("8*numel", "read_byte + write_byte", "1"),
        ("backward",): CostText("13*numel", "read_byte + write_byte", "1"),
    },
    "softmax": {
        ("forward",): CostText("5*numel", "read_byte + write_byte", "1"),
        ("backward",): CostText("4*numel", "read_byte + write_byte", "1"),
    },
    "pool": {
        (): CostText("numel", "read_byte + write_byte", "1"),
    },
    "embedding": {
        (): CostText("0", "read_byte + write_byte", "1"),
    },
    "copy": {
        (): CostText("0", "read_byte + write_byte", "1"),
    },
    "optimizer": {
        ("sgd", "per_tensor"): CostText("2*numel", "3*item_byte*numel", "tensors"),
        ("sgd", "foreach"): CostText("2*numel", "3*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("momentum", "per_tensor"): CostText("5*numel", "8*item_byte*numel", "3*tensors"),
        ("momentum", "foreach"): CostText("5*numel", "8*item_byte*numel", "3*ceiling(numel/20971520 + tensors/48)"),
        ("nesterov", "per_tensor"): CostText("7*numel", "11*item_byte*numel", "4*tensors"),
        ("nesterov", "foreach"): CostText("7*numel", "11*item_byte*numel", "4*ceiling(numel/20971520 + tensors/48)"),
        ("adam", "per_tensor"): CostText("13*numel", "18*item_byte*numel", "7*tensors"),
        ("adam", "foreach"): CostText("13*numel", "18*item_byte*numel", "7*ceiling(numel/20971520 + tensors/48)"),
        ("adam_amsgrad", "per_tensor"): CostText("14*numel", "21*item_byte*numel", "8*tensors"),
        ("adam_amsgrad", "foreach"): CostText("14*numel", "21*item_byte*numel", "8*ceiling(numel/20971520 + tensors/48)"),
        ("adamw", "per_tensor"): CostText("14*numel", "20*item_byte*numel", "8*tensors"),
        ("adamw", "foreach"): CostText("14*numel", "20*item_byte*numel", "8*ceiling(numel/20971520 + tensors/48)"),
        ("adamw_amsgrad", "per_tensor"): CostText("15*numel", "23*item_byte*numel", "9*tensors"),
        ("adamw_amsgrad", "foreach"): CostText("15*numel", "23*item_byte*numel", "9*ceiling(numel/20971520 + tensors/48)"),
        ("adamax", "per_tensor"): CostText("10*numel", "16*item_byte*numel", "6*tensors"),
        ("adamax", "foreach"): CostText("10*numel", "16*item_byte*numel", "6*ceiling(numel/20971520 + tensors/48)"),
        ("nadam", "per_tensor"): CostText("16*numel", "22*item_byte*numel", "8*tensors"),
        ("nadam", "foreach"): CostText("16*numel", "22*item_byte*numel", "8*ceiling(numel/20971520 + tensors/48)"),
        ("radam", "per_tensor"): CostText("17*numel", "28*item_byte*numel", "12*tensors"),
        ("radam", "foreach"): CostText("15*numel", "22*item_byte*numel", "9*ceiling(numel/20971520 + tensors/48)"),
        ("rmsprop", "per_tensor"): CostText("9*numel", "13*item_byte*numel", "5*tensors"),
        ("rmsprop", "foreach"): CostText("9*numel", "13*item_byte*numel", "5*ceiling(numel/20971520 + tensors/48)"),
        ("rmsprop_momentum", "per_tensor"): CostText("12*numel", "18*item_byte*numel", "7*tensors"),
        ("rmsprop_momentum", "foreach"): CostText("12*numel", "18*item_byte*numel", "7*ceiling(numel/20971520 + tensors/48)"),
        ("rmsprop_centered", "per_tensor"): CostText("15*numel", "19*item_byte*numel", "7*tensors"),
        ("rmsprop_centered", "foreach"): CostText("15*numel", "19*item_byte*numel", "7*ceiling(numel/20971520 + tensors/48)"),
        ("rmsprop_centered_momentum", "per_tensor"): CostText("18*numel", "24*item_byte*numel", "9*tensors"),
        ("rmsprop_centered_momentum", "foreach"): CostText("18*numel", "24*item_byte*numel", "9*ceiling(numel/20971520 + tensors/48)"),
        ("adagrad", "per_tensor"): CostText("8*numel", "11*item_byte*numel", "4*tensors"),
        ("adagrad", "foreach"): CostText("9*numel", "13*item_byte*numel", "5*ceiling(numel/20971520 + tensors/48)"),
        ("adadelta", "per_tensor"): CostText("16*numel", "27*item_byte*numel", "11*tensors"),
        ("adadelta", "foreach"): CostText("16*numel", "27*item_byte*numel", "11*ceiling(numel/20971520 + tensors/48)"),
        ("sgd", "fused"): CostText("2*numel", "3*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("momentum", "fused"): CostText("5*numel", "5*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("nesterov", "fused"): CostText("7*numel", "5*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("adam", "fused"): CostText("13*numel", "7*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("adam_amsgrad", "fused"): CostText("14*numel", "9*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("adamw", "fused"): CostText("14*numel", "7*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("adamw_amsgrad", "fused"): CostText("15*numel", "9*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
        ("adagrad", "fused"): CostText("8*numel", "5*item_byte*numel", "ceiling(numel/20971520 + tensors/48)"),
    },
    "other": {
        (): CostText("numel", "read_byte + write_byte", "1"),
    },
}
