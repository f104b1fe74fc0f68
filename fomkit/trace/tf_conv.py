"""Rules of TensorFlow's convolutions: direct, depthwise and transposed, and the gradients of each.

A transposed convolution has no op of its own: it runs as another's input gradient. The walker of the graph says by
``in_backward`` and ``of_transposed`` what a call stands for.
"""

from __future__ import annotations

from collections.abc import Sequence

from fomkit.trace.calls import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Array, Call, Dimensions, Work

_AXES = ("d", "h", "w")
_LENGTHS = ("depth", "height", "width")


def _channels_first(call: Call) -> bool:
    return str(call.arguments.get("data_format", "NHWC")).startswith("NC")


def _spatial(call: Call, values: Sequence[int]) -> list[int]:
    """Pick the values of the spatial axes out of one per axis, filled up to depth, height and width."""
    inner = values[2:] if _channels_first(call) else values[1:-1]
    return [1] * (3 - len(inner)) + list(inner)


def _channels(call: Call, values: Array) -> int:
    return values.shape[1] if _channels_first(call) else values.shape[-1]


def padded(length: int, out: int, reach: int, stride: int) -> tuple[int, int]:
    """Give the padding of each side, and the length it is added to, that give the output length.

    TensorFlow may pad one side more than the other, which one number per axis cannot say: where no such number
    gives the output length, the length itself is taken with its padding.
    """
    total = max((out - 1) * stride + reach - length, 0)
    for pad in (total // 2, -(-total // 2)):
        if (length + 2 * pad - reach) // stride + 1 == out:
            return pad, length
    return 0, length + total


def cut(length: int, out: int, reach: int, stride: int) -> tuple[int, int]:
    """Give the padding and the output padding of a transposed convolution."""
    less = (length - 1) * stride + reach - out
    pad = max(-(-less // 2), 0)
    return pad, 2 * pad - less


def _dimensions(call: Call, small: Array, large: Array, kernel: Sequence[int], *, transposed: bool) -> Dimensions:
    """Describe a convolution by its two sides: ``large`` has the positions that the kernel slides over."""
    depthwise = "Depthwise" in call.op
    *lengths, into, _ = kernel
    large_channels, small_channels = _channels(call, large), _channels(call, small)
    groups = large_channels if depthwise else large_channels // max(into, 1)
    lengths = [1] * (3 - len(lengths)) + list(lengths)
    strides = _spatial(call, call.arguments["strides"])
    dilations = _spatial(call, call.arguments.get("dilations") or [1] * len(large.shape))
    small_at, large_at = _spatial(call, small.shape), _spatial(call, large.shape)
    first, second = (small_channels, large_channels) if transposed else (large_channels, small_channels)
    found: Dimensions = {"batch": large.shape[0], "in_channels": first, "out_channels": second, "groups": groups}
    added = []
    for axis, name, at in zip(_AXES, _LENGTHS, range(3), strict=True):
        reach = dilations[at] * (lengths[at] - 1) + 1
        if transposed:
            found[name] = small_at[at]
            found[f"pad_{axis}"], more = cut(small_at[at], large_at[at], reach, strides[at])
            added.append(more)
        else:
            found[f"pad_{axis}"], found[name] = padded(large_at[at], small_at[at], reach, strides[at])
        found |= {f"kernel_{axis}": lengths[at], f"stride_{axis}": strides[at], f"dilation_{axis}": dilations[at]}
    if any(added):
        found.update({f"output_pad_{axis}": more for axis, more in zip(_AXES, added, strict=True)})
    first_axes = "dhw" if len(large.shape) == 5 else "hw"
    layout = f"nc{first_axes}" if _channels_first(call) else f"n{first_axes}c"
    return {**found, "layout": layout, "transposed": int(transposed)}


def convolution(call: Call) -> list[Work]:
    """Rule of Conv2D, Conv3D and DepthwiseConv2dNative; when backward, a transposed one's input gradient."""
    large, small, weight = call.array("input"), call.results[0], call.array("filter")
    backward = bool(call.arguments["in_backward"])
    dimensions = _dimensions(call, small, large, weight.shape, transposed=backward)
    return [Work("conv", dimensions, large.dtype, INPUT_GRADIENT if backward else FORWARD)]


def input_gradient(call: Call) -> list[Work]:
    """Rule of the input gradient; in the forward pass, a transposed convolution."""
    large, small, weight = call.results[0], call.array("out_backprop"), call.array("filter")
    forward = not call.arguments["in_backward"]
    dimensions = _dimensions(call, small, large, weight.shape, transposed=forward)
    return [Work("conv", dimensions, small.dtype, FORWARD if forward else INPUT_GRADIENT)]


def weight_gradient(call: Call) -> list[Work]:
    """Rule of the weight gradient of a convolution, direct or transposed."""
    large, small, weight = call.array("input"), call.array("out_backprop"), call.results[0]
    transposed = bool(call.arguments["of_transposed"])
    dimensions = _dimensions(call, small, large, weight.shape, transposed=transposed)
    return [Work("conv", dimensions, small.dtype, WEIGHT_GRADIENT)]
