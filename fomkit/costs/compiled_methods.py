"""Generated from the sympy formulas by ``python -m fomkit.costs``; do not edit, run that instead."""
# ruff: noqa: D103, E501
# fmt: off

from __future__ import annotations

from typing import Any

import numpy

from fomkit.costs.conv_methods import MethodCost
from fomkit.costs.formula import Formula, Row


def slides_d(op: Row) -> Any:
    return 1 - numpy.floor(op.kernel_d**(-1.0))

def slides_h(op: Row) -> Any:
    return 1 - numpy.floor(op.kernel_h**(-1.0))

def slides_w(op: Row) -> Any:
    return 1 - numpy.floor(op.kernel_w**(-1.0))

def direct_forward(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*op.slid_over/op.groups,
        additions=0,
        multiplications=0,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.in_channels/op.groups)),
        fixed_byte=0,
        sample_byte=0,
    )

def direct_backward_input(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*op.slid_over/op.groups,
        additions=0,
        multiplications=0,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.out_channels/op.groups)),
        fixed_byte=0,
        sample_byte=0,
    )

def direct_backward_weight(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*op.slid_over/op.groups,
        additions=0,
        multiplications=0,
        work_depth=numpy.ceil(numpy.log2(op.batch)) + numpy.ceil(numpy.log2(op.depth*op.transposed + op.out_depth*(1 - op.transposed))) + numpy.ceil(numpy.log2(op.height*op.transposed + op.out_height*(1 - op.transposed))) + numpy.ceil(numpy.log2(op.out_width*(1 - op.transposed) + op.transposed*op.width)),
        fixed_byte=0,
        sample_byte=0,
    )

def im2col_forward(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*op.slid_over/op.groups,
        additions=op.batch*op.kernel_d*op.kernel_h*op.kernel_w*op.slid_over*op.transposed*(op.in_channels*(1 - op.transposed) + op.out_channels*op.transposed),
        multiplications=0,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.in_channels/op.groups)),
        fixed_byte=0,
        sample_byte=op.item_byte*op.kernel_d*op.kernel_h*op.kernel_w*op.slid_over*(op.in_channels*(1 - op.transposed) + op.out_channels*op.transposed)/op.groups,
    )

def im2col_backward_input(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*op.slid_over/op.groups,
        additions=op.batch*op.kernel_d*op.kernel_h*op.kernel_w*op.slid_over*(1 - op.transposed)*(op.in_channels*(1 - op.transposed) + op.out_channels*op.transposed),
        multiplications=0,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.out_channels/op.groups)),
        fixed_byte=0,
        sample_byte=op.item_byte*op.kernel_d*op.kernel_h*op.kernel_w*op.slid_over*(op.in_channels*(1 - op.transposed) + op.out_channels*op.transposed)/op.groups,
    )

def im2col_backward_weight(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.kernel_d*op.kernel_h*op.kernel_w*op.out_channels*op.slid_over/op.groups,
        additions=0,
        multiplications=0,
        work_depth=numpy.ceil(numpy.log2(op.batch)) + numpy.ceil(numpy.log2(op.depth*op.transposed + op.out_depth*(1 - op.transposed))) + numpy.ceil(numpy.log2(op.height*op.transposed + op.out_height*(1 - op.transposed))) + numpy.ceil(numpy.log2(op.out_width*(1 - op.transposed) + op.transposed*op.width)),
        fixed_byte=0,
        sample_byte=op.item_byte*op.kernel_d*op.kernel_h*op.kernel_w*op.slid_over*(op.in_channels*(1 - op.transposed) + op.out_channels*op.transposed)/op.groups,
    )

def fft_forward(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(2*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + 2*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2))/op.groups,
        additions=(3/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))),
        multiplications=(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))),
        work_depth=numpy.ceil(numpy.log2(op.in_channels/op.groups)) + 2*numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)) + 2*numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)) + 2*numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1)),
        fixed_byte=2*op.in_channels*op.item_byte*op.out_channels*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))/op.groups,
        sample_byte=2*op.item_byte*(op.in_channels + op.out_channels)*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2)),
    )

def fft_backward_input(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(2*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + 2*(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1))*numpy.ceil(op.depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 2))*numpy.ceil(op.height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 2))*numpy.ceil(op.width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 2))/op.groups,
        additions=(3/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 2))*numpy.ceil(op.height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 2))*numpy.ceil(op.width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1))),
        multiplications=(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 2))*numpy.ceil(op.height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 2))*numpy.ceil(op.width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1))),
        work_depth=numpy.ceil(numpy.log2(op.out_channels/op.groups)) + 2*numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)) + 2*numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)) + 2*numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1)),
        fixed_byte=2*op.in_channels*op.item_byte*op.out_channels*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1))/op.groups,
        sample_byte=2*op.item_byte*(op.in_channels + op.out_channels)*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 1))*numpy.ceil(op.depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.depth + op.kernel_d - 1)) - 1) + 2))*numpy.ceil(op.height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.height + op.kernel_h - 1)) - 1) + 2))*numpy.ceil(op.width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.width - 1)) - 1) + 2)),
    )

def fft_backward_weight(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(2*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + 2*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2))/op.groups,
        additions=(3/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))),
        multiplications=(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)) + numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))),
        work_depth=numpy.ceil(numpy.log2(op.batch*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2)))) + 2*numpy.ceil(numpy.log2(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)) + 2*numpy.ceil(numpy.log2(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)) + 2*numpy.ceil(numpy.log2(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1)),
        fixed_byte=2*op.in_channels*op.item_byte*op.out_channels*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))/op.groups,
        sample_byte=2*op.item_byte*(op.in_channels + op.out_channels)*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 1)*(op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 1)*(op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + op.slides_d*(2**numpy.ceil(numpy.log2(op.kernel_d + op.out_depth - 1)) - 1) + 2))*numpy.ceil(op.out_height/(-op.kernel_h + op.slides_h*(2**numpy.ceil(numpy.log2(op.kernel_h + op.out_height - 1)) - 1) + 2))*numpy.ceil(op.out_width/(-op.kernel_w + op.slides_w*(2**numpy.ceil(numpy.log2(op.kernel_w + op.out_width - 1)) - 1) + 2)),
    )

def fft_tiled_forward(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(2*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + 2*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2))/op.groups,
        additions=(3/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(31*op.slides_d + 1)) + numpy.ceil(numpy.log2(31*op.slides_h + 1)) + numpy.ceil(numpy.log2(31*op.slides_w + 1))),
        multiplications=(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(31*op.slides_d + 1)) + numpy.ceil(numpy.log2(31*op.slides_h + 1)) + numpy.ceil(numpy.log2(31*op.slides_w + 1))),
        work_depth=numpy.ceil(numpy.log2(op.in_channels/op.groups)) + 2*numpy.ceil(numpy.log2(31*op.slides_d + 1)) + 2*numpy.ceil(numpy.log2(31*op.slides_h + 1)) + 2*numpy.ceil(numpy.log2(31*op.slides_w + 1)),
        fixed_byte=2*op.in_channels*op.item_byte*op.out_channels*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))/op.groups,
        sample_byte=2*op.item_byte*(op.in_channels + op.out_channels)*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2)),
    )

def fft_tiled_backward_input(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(2*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + 2*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))*numpy.ceil(op.depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.width/(-op.kernel_w + 31*op.slides_w + 2))/op.groups,
        additions=(3/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.width/(-op.kernel_w + 31*op.slides_w + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(31*op.slides_d + 1)) + numpy.ceil(numpy.log2(31*op.slides_h + 1)) + numpy.ceil(numpy.log2(31*op.slides_w + 1))),
        multiplications=(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.width/(-op.kernel_w + 31*op.slides_w + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(31*op.slides_d + 1)) + numpy.ceil(numpy.log2(31*op.slides_h + 1)) + numpy.ceil(numpy.log2(31*op.slides_w + 1))),
        work_depth=numpy.ceil(numpy.log2(op.out_channels/op.groups)) + 2*numpy.ceil(numpy.log2(31*op.slides_d + 1)) + 2*numpy.ceil(numpy.log2(31*op.slides_h + 1)) + 2*numpy.ceil(numpy.log2(31*op.slides_w + 1)),
        fixed_byte=2*op.in_channels*op.item_byte*op.out_channels*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))/op.groups,
        sample_byte=2*op.item_byte*(op.in_channels + op.out_channels)*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))*numpy.ceil(op.depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.width/(-op.kernel_w + 31*op.slides_w + 2)),
    )

def fft_tiled_backward_weight(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(2*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + 2*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2))/op.groups,
        additions=(3/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(31*op.slides_d + 1)) + numpy.ceil(numpy.log2(31*op.slides_h + 1)) + numpy.ceil(numpy.log2(31*op.slides_w + 1))),
        multiplications=(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1)*(op.batch*(op.in_channels + op.out_channels)*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2)) + op.in_channels*op.out_channels/op.groups)*(numpy.ceil(numpy.log2(31*op.slides_d + 1)) + numpy.ceil(numpy.log2(31*op.slides_h + 1)) + numpy.ceil(numpy.log2(31*op.slides_w + 1))),
        work_depth=numpy.ceil(numpy.log2(op.batch*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2)))) + 2*numpy.ceil(numpy.log2(31*op.slides_d + 1)) + 2*numpy.ceil(numpy.log2(31*op.slides_h + 1)) + 2*numpy.ceil(numpy.log2(31*op.slides_w + 1)),
        fixed_byte=2*op.in_channels*op.item_byte*op.out_channels*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))/op.groups,
        sample_byte=2*op.item_byte*(op.in_channels + op.out_channels)*((1/2)*(op.slides_d + 1)*(op.slides_h + 1)*(op.slides_w + 1) + (1/2)*(31*op.slides_d + 1)*(31*op.slides_h + 1)*(31*op.slides_w + 1))*numpy.ceil(op.out_depth/(-op.kernel_d + 31*op.slides_d + 2))*numpy.ceil(op.out_height/(-op.kernel_h + 31*op.slides_h + 2))*numpy.ceil(op.out_width/(-op.kernel_w + 31*op.slides_w + 2)),
    )

def winograd_2_forward(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1))/op.groups,
        additions=op.batch*op.in_channels*(4*op.slides_d*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w) + 4*op.slides_h*(op.kernel_d + op.slides_d)*(op.kernel_w + op.slides_w) + 4*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1)) + op.batch*op.out_channels*(4*op.slides_d*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w) + 4*op.slides_h*(op.kernel_w + op.slides_w)*(op.slides_d + 1) + 4*op.slides_w*(op.slides_d + 1)*(op.slides_h + 1))*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1)) + op.in_channels*op.out_channels*(3*op.kernel_h*op.kernel_w*op.slides_d + 3*op.kernel_w*op.slides_h*(op.kernel_d + op.slides_d) + 3*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))/op.groups,
        multiplications=op.in_channels*op.out_channels*(2*op.kernel_h*op.kernel_w*op.slides_d + 2*op.kernel_w*op.slides_h*(op.kernel_d + op.slides_d) + 2*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))/op.groups,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.in_channels/op.groups)) + 2*numpy.ceil(numpy.log2(op.kernel_d + op.slides_d)) + 2*numpy.ceil(numpy.log2(op.kernel_h + op.slides_h)) + 2*numpy.ceil(numpy.log2(op.kernel_w + op.slides_w)),
        fixed_byte=op.in_channels*op.item_byte*op.out_channels*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)/op.groups,
        sample_byte=op.item_byte*(op.in_channels + op.out_channels)*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1)),
    )

def winograd_2_backward_input(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)*numpy.ceil(op.depth/(op.slides_d + 1))*numpy.ceil(op.height/(op.slides_h + 1))*numpy.ceil(op.width/(op.slides_w + 1))/op.groups,
        additions=op.batch*op.in_channels*(4*op.slides_d*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w) + 4*op.slides_h*(op.kernel_w + op.slides_w)*(op.slides_d + 1) + 4*op.slides_w*(op.slides_d + 1)*(op.slides_h + 1))*numpy.ceil(op.depth/(op.slides_d + 1))*numpy.ceil(op.height/(op.slides_h + 1))*numpy.ceil(op.width/(op.slides_w + 1)) + op.batch*op.out_channels*(4*op.slides_d*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w) + 4*op.slides_h*(op.kernel_d + op.slides_d)*(op.kernel_w + op.slides_w) + 4*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))*numpy.ceil(op.depth/(op.slides_d + 1))*numpy.ceil(op.height/(op.slides_h + 1))*numpy.ceil(op.width/(op.slides_w + 1)) + op.in_channels*op.out_channels*(3*op.kernel_h*op.kernel_w*op.slides_d + 3*op.kernel_w*op.slides_h*(op.kernel_d + op.slides_d) + 3*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))/op.groups,
        multiplications=op.in_channels*op.out_channels*(2*op.kernel_h*op.kernel_w*op.slides_d + 2*op.kernel_w*op.slides_h*(op.kernel_d + op.slides_d) + 2*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))/op.groups,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.out_channels/op.groups)) + 2*numpy.ceil(numpy.log2(op.kernel_d + op.slides_d)) + 2*numpy.ceil(numpy.log2(op.kernel_h + op.slides_h)) + 2*numpy.ceil(numpy.log2(op.kernel_w + op.slides_w)),
        fixed_byte=op.in_channels*op.item_byte*op.out_channels*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)/op.groups,
        sample_byte=op.item_byte*(op.in_channels + op.out_channels)*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)*numpy.ceil(op.depth/(op.slides_d + 1))*numpy.ceil(op.height/(op.slides_h + 1))*numpy.ceil(op.width/(op.slides_w + 1)),
    )

def winograd_2_backward_weight(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1))/op.groups,
        additions=op.batch*op.in_channels*(4*op.slides_d*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w) + 4*op.slides_h*(op.kernel_d + op.slides_d)*(op.kernel_w + op.slides_w) + 4*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1)) + op.batch*op.out_channels*(2*op.slides_d*(op.slides_h + 1)*(op.slides_w + 1) + 2*op.slides_h*(op.kernel_d + op.slides_d)*(op.slides_w + 1) + 2*op.slides_w*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h))*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1)) + op.in_channels*op.out_channels*(4*op.kernel_d*op.kernel_h*op.slides_w + 4*op.kernel_d*op.slides_h*(op.kernel_w + op.slides_w) + 4*op.slides_d*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w))/op.groups,
        multiplications=op.in_channels*op.out_channels*(2*op.kernel_d*op.kernel_h*op.slides_w + 2*op.kernel_d*op.slides_h*(op.kernel_w + op.slides_w) + 2*op.slides_d*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w))/op.groups,
        work_depth=numpy.ceil(numpy.log2(op.batch*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1)))) + 2*numpy.ceil(numpy.log2(op.kernel_d + op.slides_d)) + 2*numpy.ceil(numpy.log2(op.kernel_h + op.slides_h)) + 2*numpy.ceil(numpy.log2(op.kernel_w + op.slides_w)) + numpy.ceil(numpy.log2(op.slides_d + 1)) + numpy.ceil(numpy.log2(op.slides_h + 1)) + numpy.ceil(numpy.log2(op.slides_w + 1)),
        fixed_byte=op.in_channels*op.item_byte*op.out_channels*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)/op.groups,
        sample_byte=op.item_byte*(op.in_channels + op.out_channels)*(op.kernel_d + op.slides_d)*(op.kernel_h + op.slides_h)*(op.kernel_w + op.slides_w)*numpy.ceil(op.out_depth/(op.slides_d + 1))*numpy.ceil(op.out_height/(op.slides_h + 1))*numpy.ceil(op.out_width/(op.slides_w + 1)),
    )

def winograd_4_forward(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1))/op.groups,
        additions=op.batch*op.in_channels*(12*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 12*op.slides_h*(op.kernel_d + 3*op.slides_d)*(op.kernel_w + 3*op.slides_w) + 12*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.batch*op.out_channels*(10*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 10*op.slides_h*(op.kernel_w + 3*op.slides_w)*(3*op.slides_d + 1) + 10*op.slides_w*(3*op.slides_d + 1)*(3*op.slides_h + 1))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.in_channels*op.out_channels*(6*op.kernel_h*op.kernel_w*op.slides_d + 6*op.kernel_w*op.slides_h*(op.kernel_d + 3*op.slides_d) + 6*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))/op.groups,
        multiplications=op.batch*op.in_channels*(7*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 7*op.slides_h*(op.kernel_d + 3*op.slides_d)*(op.kernel_w + 3*op.slides_w) + 7*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.batch*op.out_channels*(3*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 3*op.slides_h*(op.kernel_w + 3*op.slides_w)*(3*op.slides_d + 1) + 3*op.slides_w*(3*op.slides_d + 1)*(3*op.slides_h + 1))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.in_channels*op.out_channels*(5*op.kernel_h*op.kernel_w*op.slides_d + 5*op.kernel_w*op.slides_h*(op.kernel_d + 3*op.slides_d) + 5*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))/op.groups,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.in_channels/op.groups)) + 2*numpy.ceil(numpy.log2(op.kernel_d + 3*op.slides_d)) + 2*numpy.ceil(numpy.log2(op.kernel_h + 3*op.slides_h)) + 2*numpy.ceil(numpy.log2(op.kernel_w + 3*op.slides_w)),
        fixed_byte=op.in_channels*op.item_byte*op.out_channels*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)/op.groups,
        sample_byte=op.item_byte*(op.in_channels + op.out_channels)*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)),
    )

def winograd_4_backward_input(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)*numpy.ceil(op.depth/(3*op.slides_d + 1))*numpy.ceil(op.height/(3*op.slides_h + 1))*numpy.ceil(op.width/(3*op.slides_w + 1))/op.groups,
        additions=op.batch*op.in_channels*(10*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 10*op.slides_h*(op.kernel_w + 3*op.slides_w)*(3*op.slides_d + 1) + 10*op.slides_w*(3*op.slides_d + 1)*(3*op.slides_h + 1))*numpy.ceil(op.depth/(3*op.slides_d + 1))*numpy.ceil(op.height/(3*op.slides_h + 1))*numpy.ceil(op.width/(3*op.slides_w + 1)) + op.batch*op.out_channels*(12*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 12*op.slides_h*(op.kernel_d + 3*op.slides_d)*(op.kernel_w + 3*op.slides_w) + 12*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.depth/(3*op.slides_d + 1))*numpy.ceil(op.height/(3*op.slides_h + 1))*numpy.ceil(op.width/(3*op.slides_w + 1)) + op.in_channels*op.out_channels*(6*op.kernel_h*op.kernel_w*op.slides_d + 6*op.kernel_w*op.slides_h*(op.kernel_d + 3*op.slides_d) + 6*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))/op.groups,
        multiplications=op.batch*op.in_channels*(3*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 3*op.slides_h*(op.kernel_w + 3*op.slides_w)*(3*op.slides_d + 1) + 3*op.slides_w*(3*op.slides_d + 1)*(3*op.slides_h + 1))*numpy.ceil(op.depth/(3*op.slides_d + 1))*numpy.ceil(op.height/(3*op.slides_h + 1))*numpy.ceil(op.width/(3*op.slides_w + 1)) + op.batch*op.out_channels*(7*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 7*op.slides_h*(op.kernel_d + 3*op.slides_d)*(op.kernel_w + 3*op.slides_w) + 7*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.depth/(3*op.slides_d + 1))*numpy.ceil(op.height/(3*op.slides_h + 1))*numpy.ceil(op.width/(3*op.slides_w + 1)) + op.in_channels*op.out_channels*(5*op.kernel_h*op.kernel_w*op.slides_d + 5*op.kernel_w*op.slides_h*(op.kernel_d + 3*op.slides_d) + 5*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))/op.groups,
        work_depth=numpy.ceil(numpy.log2(op.kernel_d)) + numpy.ceil(numpy.log2(op.kernel_h)) + numpy.ceil(numpy.log2(op.kernel_w)) + numpy.ceil(numpy.log2(op.out_channels/op.groups)) + 2*numpy.ceil(numpy.log2(op.kernel_d + 3*op.slides_d)) + 2*numpy.ceil(numpy.log2(op.kernel_h + 3*op.slides_h)) + 2*numpy.ceil(numpy.log2(op.kernel_w + 3*op.slides_w)),
        fixed_byte=op.in_channels*op.item_byte*op.out_channels*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)/op.groups,
        sample_byte=op.item_byte*(op.in_channels + op.out_channels)*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)*numpy.ceil(op.depth/(3*op.slides_d + 1))*numpy.ceil(op.height/(3*op.slides_h + 1))*numpy.ceil(op.width/(3*op.slides_w + 1)),
    )

def winograd_4_backward_weight(op: Row) -> MethodCost:
    return MethodCost(
        multiply_adds=op.batch*op.in_channels*op.out_channels*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1))/op.groups,
        additions=op.batch*op.in_channels*(12*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 12*op.slides_h*(op.kernel_d + 3*op.slides_d)*(op.kernel_w + 3*op.slides_w) + 12*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.batch*op.out_channels*(8*op.slides_d*(3*op.slides_h + 1)*(3*op.slides_w + 1) + 8*op.slides_h*(op.kernel_d + 3*op.slides_d)*(3*op.slides_w + 1) + 8*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.in_channels*op.out_channels*(9*op.kernel_d*op.kernel_h*op.slides_w + 9*op.kernel_d*op.slides_h*(op.kernel_w + 3*op.slides_w) + 9*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w))/op.groups,
        multiplications=op.batch*op.in_channels*(7*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w) + 7*op.slides_h*(op.kernel_d + 3*op.slides_d)*(op.kernel_w + 3*op.slides_w) + 7*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.batch*op.out_channels*(3*op.slides_d*(3*op.slides_h + 1)*(3*op.slides_w + 1) + 3*op.slides_h*(op.kernel_d + 3*op.slides_d)*(3*op.slides_w + 1) + 3*op.slides_w*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h))*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)) + op.in_channels*op.out_channels*(5*op.kernel_d*op.kernel_h*op.slides_w + 5*op.kernel_d*op.slides_h*(op.kernel_w + 3*op.slides_w) + 5*op.slides_d*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w))/op.groups,
        work_depth=numpy.ceil(numpy.log2(op.batch*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)))) + 2*numpy.ceil(numpy.log2(op.kernel_d + 3*op.slides_d)) + 2*numpy.ceil(numpy.log2(op.kernel_h + 3*op.slides_h)) + 2*numpy.ceil(numpy.log2(op.kernel_w + 3*op.slides_w)) + numpy.ceil(numpy.log2(3*op.slides_d + 1)) + numpy.ceil(numpy.log2(3*op.slides_h + 1)) + numpy.ceil(numpy.log2(3*op.slides_w + 1)),
        fixed_byte=op.in_channels*op.item_byte*op.out_channels*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)/op.groups,
        sample_byte=op.item_byte*(op.in_channels + op.out_channels)*(op.kernel_d + 3*op.slides_d)*(op.kernel_h + 3*op.slides_h)*(op.kernel_w + 3*op.slides_w)*numpy.ceil(op.out_depth/(3*op.slides_d + 1))*numpy.ceil(op.out_height/(3*op.slides_h + 1))*numpy.ceil(op.out_width/(3*op.slides_w + 1)),
    )


PARTS: dict[str, Formula] = {
    "slides_d": slides_d,
    "slides_h": slides_h,
    "slides_w": slides_w,
}

COMPILED: dict[str, dict[str, Formula]] = {
    "direct": {
        "forward": direct_forward,
        "backward_input": direct_backward_input,
        "backward_weight": direct_backward_weight,
    },
    "im2col": {
        "forward": im2col_forward,
        "backward_input": im2col_backward_input,
        "backward_weight": im2col_backward_weight,
    },
    "fft": {
        "forward": fft_forward,
        "backward_input": fft_backward_input,
        "backward_weight": fft_backward_weight,
    },
    "fft_tiled": {
        "forward": fft_tiled_forward,
        "backward_input": fft_tiled_backward_input,
        "backward_weight": fft_tiled_backward_weight,
    },
    "winograd_2": {
        "forward": winograd_2_forward,
        "backward_input": winograd_2_backward_input,
        "backward_weight": winograd_2_backward_weight,
    },
    "winograd_4": {
        "forward": winograd_4_forward,
        "backward_input": winograd_4_backward_input,
        "backward_weight": winograd_4_backward_weight,
    },
}
