"""Rules of convolutions: 1-D to 3-D, grouped, dilated, transposed, and the three works of a backward call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fomkit.trace.calls import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Array, Call, Dimensions, Work

_AXES = ("d", "h", "w")
_LENGTHS = ("depth", "height", "width")


def _three(values: Sequence[int], spatial: int, filler: int) -> list[int]:
    """Fill a per-axis list up to depth, height, width; one value stands for all axes."""
    given = list(values) * spatial if len(values) == 1 else list(values)
    return [filler] * (3 - spatial) + given


def _layout(values: Array) -> str:
    spatial = len(values.shape) - 2
    axes = "dhw"[-max(spatial, 2) :]
    channels_last = values.stride[1] == 1 and values.shape[1] > 1 and values.stride[-1] != 1
    return f"n{axes}c" if channels_last else f"nc{axes}"


def conv_dimensions(arguments: Any, values: Array, weight: Array) -> Dimensions:
    """Give the dimensions of a convolution's row; ``arguments`` are those of ``aten::convolution``."""
    spatial, groups = len(weight.shape) - 2, int(arguments["groups"])
    transposed = bool(arguments["transposed"])
    # A transposed convolution's weight is (in, out/groups, …), the direct one's (out, in/groups, …).
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    dimensions: Dimensions = {"batch": values.shape[0], "in_channels": values.shape[1]}
    dimensions["out_channels"] = out_channels
    dimensions.update(zip(_LENGTHS, _three(values.shape[2:], spatial, 1), strict=True))
    for name, given, filler in (
        ("kernel", weight.shape[2:], 1),
        ("stride", arguments["stride"], 1),
        ("pad", arguments["padding"], 0),
        ("dilation", arguments["dilation"], 1),
    ):
        per_axis = _three(given, spatial, filler)
        dimensions.update({f"{name}_{axis}": size for axis, size in zip(_AXES, per_axis, strict=True)})
    dimensions |= {"groups": groups, "layout": _layout(values), "transposed": int(transposed)}
    if transposed and any(arguments["output_padding"]):
        added = _three(arguments["output_padding"], spatial, 0)
        dimensions.update({f"output_pad_{axis}": size for axis, size in zip(_AXES, added, strict=True)})
    return dimensions


def convolution(call: Call) -> list[Work]:
    """Rule of a forward convolution; its bias is added in the same kernel."""
    values = call.array("input")
    return [Work("conv", conv_dimensions(call.arguments, values, call.array("weight")), values.dtype, FORWARD)]


def convolution_backward(call: Call) -> list[Work]:
    """Rule of a backward convolution: the gradients that ``output_mask`` asks for, each a work of its own.

    The first layer asks for no input gradient and a frozen layer for no weight gradient. The bias gradient is a
    sum over all positions.
    """
    values, gradient = call.array("input"), call.array("grad_output")
    dimensions = conv_dimensions(call.arguments, values, call.array("weight"))
    to_input, to_weight, to_bias = call.arguments["output_mask"]
    works = []
    if to_input:
        works.append(Work("conv", dimensions, values.dtype, INPUT_GRADIENT))
    if to_weight:
        works.append(Work("conv", dict(dimensions), values.dtype, WEIGHT_GRADIENT))
    if to_bias:
        channels = gradient.shape[1]
        traffic: Dimensions = {"numel": gradient.numel, "row": gradient.numel // max(channels, 1), "inputs": 1}
        traffic |= {"read_byte": gradient.byte, "write_byte": channels * gradient.item_byte}
        works.append(Work("reduction", traffic, gradient.dtype))
    return works
