"""Rules of ONNX's convolutions: direct, grouped, transposed, in integers."""

from __future__ import annotations

from typing import Any

from fomkit.trace.aten_conv import conv_dimensions
from fomkit.trace.calls import FORWARD, Array, Call, Dimensions, Work
from fomkit.trace.tf_conv import cut, padded

_LENGTHS = ("depth", "height", "width")
_AXES = ("d", "h", "w")


def _factors(call: Call) -> tuple[Array, Array]:
    known = call.arguments
    values = known.get("X", known.get("x"))
    weight = known.get("W", known.get("w"))
    if not isinstance(values, Array) or not isinstance(weight, Array):
        raise ValueError(f"{call.op}: its input or its weight is a plain number")
    return values, weight


def sizes_of(call: Call) -> Dimensions:
    """Give the dimensions of a convolution's row.

    Padding that differs on both sides of an axis is no one number: where no such number gives the output's length,
    the input is taken with its padding, as for TensorFlow.
    """
    values, weight = _factors(call)
    told, spatial = call.arguments, len(weight.shape) - 2
    transposed = call.op == "ConvTranspose"
    groups = int(told.get("group", 1))
    into = weight.shape[0] if transposed else weight.shape[1] * groups
    if spatial < 1 or len(values.shape) != spatial + 2 or into != values.shape[1]:
        raise ValueError(f"{call.op} takes {values.shape} with a weight of {weight.shape} in {groups} groups")
    arguments: dict[str, Any] = {
        "groups": groups,
        "transposed": transposed,
        "stride": told.get("strides") or [1] * spatial,
        "dilation": told.get("dilations") or [1] * spatial,
        "padding": [0] * spatial,
        "output_padding": [0] * spatial,
    }
    if spatial > 3:
        raise ValueError(f"{call.op} has {spatial} axes of space")
    found = conv_dimensions(arguments, values, weight)
    results = call.results[0].shape[2:]
    for at in range(spatial):
        _pad(found, at - spatial, call, int(results[at]), transposed=transposed)
    return found


def _pad(found: Dimensions, at: int, call: Call, out: int, *, transposed: bool) -> None:
    """Put the padding of one axis in, counted from the last."""
    axis, length = _AXES[at], _LENGTHS[at]
    reach = int(found[f"dilation_{axis}"]) * (int(found[f"kernel_{axis}"]) - 1) + 1
    stride, given = int(found[f"stride_{axis}"]), int(found[length])
    pads = list(call.arguments.get("pads") or ())
    spatial = len(pads) // 2
    before, after = (pads[at + spatial], pads[at + 2 * spatial]) if pads else (0, 0)
    automatic = call.arguments.get("auto_pad", "NOTSET") not in ("NOTSET", "")
    if transposed:
        found[f"pad_{axis}"], more = cut(given, out, reach, stride)
        if more:
            for one in _AXES:
                found.setdefault(f"output_pad_{one}", 0)
            found[f"output_pad_{axis}"] = more
    elif before == after and not automatic:
        found[f"pad_{axis}"] = before
    else:
        found[f"pad_{axis}"], found[length] = padded(given, out, reach, stride)


def convolution(call: Call) -> list[Work]:
    """Rule of Conv, ConvTranspose, ConvInteger and QLinearConv; a bias is added in the same kernel."""
    values, _ = _factors(call)
    return [Work("conv", sizes_of(call), "int8" if values.dtype == "uint8" else values.dtype, FORWARD)]
