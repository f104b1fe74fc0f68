"""Products and convolutions as TensorFlow's ops run them."""

from __future__ import annotations

from typing import Any, NamedTuple

from fomkit.timings.measure_cases import CHECKED_ROWS, CannotTimeError, Cells, size_of
from fomkit.timings.measure_tf_graph import GraphCase, error_of, exact, made

AXES = {"d": "depth", "h": "height", "w": "width"}


def product(cells: Cells) -> GraphCase:
    """Make a product, or a batch of products; the first rows are computed again."""
    import tensorflow as tf

    b, m, n, k = (size_of(cells, name) for name in ("b", "m", "n", "k"))
    flip, turn = (size_of(cells, name, 0) == 1 for name in ("trans_a", "trans_b"))
    if cells.get("layout"):
        raise CannotTimeError(f"the layout {cells['layout']} is not row-major")
    outer = (b,) if b > 1 else ()
    left = made((*outer, k, m) if flip else (*outer, m, k), cells)
    right = made((*outer, n, k) if turn else (*outer, k, n), cells)

    def op(one: Any, other: Any) -> Any:
        if b > 1:
            return tf.raw_ops.BatchMatMulV2(x=one, y=other, adj_x=flip, adj_y=turn)
        return tf.raw_ops.MatMul(a=one, b=other, transpose_a=flip, transpose_b=turn)

    def check(result: Any) -> float:
        rows = left[..., :CHECKED_ROWS] if flip else left[..., :CHECKED_ROWS, :]
        return error_of(result[..., :CHECKED_ROWS, :], op(exact(rows), exact(right)))

    return GraphCase(op, (left, right), check)


class _Convolution(NamedTuple):
    """A convolution with channels last, on as many axes as it needs."""

    inputs: list[int]
    weights: list[int]
    outputs: list[int]
    how: dict[str, Any]
    family: tuple[str, str, str]

    def run(self, place: int, **operands: Any) -> Any:
        """Run it: 0 forward, 1 back to its inputs, 2 back to its weights."""
        import tensorflow as tf

        return getattr(tf.raw_ops, self.family[place])(**operands, **self.how)


_FLAT = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
_DEEP = ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")
_EACH = ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter")


def _padding(reach: list[int], lengths: list[int], strides: list[int], pads: list[int]) -> tuple[str, list[int]]:
    """Name the padding as TensorFlow does, and give the lengths of the result."""
    sizes = zip(lengths, pads, reach, strides, strict=True)
    out = [(length + 2 * pad - size) // stride + 1 for length, pad, size, stride in sizes]
    if not any(pads):
        return "VALID", out
    same = [-(-length // stride) for length, stride in zip(lengths, strides, strict=True)]
    return ("SAME" if out == same else "EXPLICIT"), out


def _convolution(cells: Cells) -> _Convolution:
    deep = size_of(cells, "depth", 1) > 1 or size_of(cells, "kernel_d", 1) > 1
    axes, groups = ("d", "h", "w") if deep else ("h", "w"), size_of(cells, "groups", 1)
    if size_of(cells, "transposed", 0):
        raise CannotTimeError("transposed convolutions are not timed here")
    if cells.get("layout", "").startswith("nc"):
        raise CannotTimeError("TensorFlow runs no convolution with channels first on a CPU")
    batch, into, out = (size_of(cells, name) for name in ("batch", "in_channels", "out_channels"))
    if groups not in (1, into) or (deep and groups > 1):
        raise CannotTimeError("groups of channels are timed only where each channel has its own")
    lengths = [size_of(cells, AXES[axis]) for axis in axes]
    kernel, strides, pads, dilations = (
        [size_of(cells, f"{name}_{axis}", default) for axis in axes]
        for name, default in (("kernel", 1), ("stride", 1), ("pad", 0), ("dilation", 1))
    )
    reach = [size * (many - 1) + 1 for size, many in zip(dilations, kernel, strict=True)]
    padding, results = _padding(reach, lengths, strides, pads)
    how: dict[str, Any] = {"strides": [1, *strides, 1], "padding": padding, "dilations": [1, *dilations, 1]}
    if padding == "EXPLICIT":
        if deep:
            raise CannotTimeError("TensorFlow pads three axes in its own way only")
        how["explicit_paddings"] = [0, 0, *(pad for pad in pads for _ in range(2)), 0, 0]
    each = groups > 1
    weights = [*kernel, into, out // into] if each else [*kernel, into, out]
    return _Convolution([batch, *lengths, into], weights, [batch, *results, out], how,
                        _EACH if each else _DEEP if deep else _FLAT)  # fmt: skip


def convolution(cells: Cells) -> GraphCase:
    """Make a convolution; its checks compute the first sample, or the gradient of the weights of one channel."""
    one = _convolution(cells)
    data, filters, gradient = (made(shape, cells) for shape in (one.inputs, one.weights, one.outputs))
    single = [1, *one.inputs[1:]]

    def forward(values: Any, weights: Any) -> Any:
        return one.run(0, input=values, filter=weights)

    def back(weights: Any, of: Any, shape: list[int] = one.inputs) -> Any:
        return one.run(1, input_sizes=shape, filter=weights, out_backprop=of)

    def back_to_weights(values: Any, of: Any, shape: list[int] = one.weights) -> Any:
        return one.run(2, input=values, filter_sizes=shape, out_backprop=of)

    def check_weights(result: Any) -> float:
        if one.family is _EACH:
            return error_of(result, back_to_weights(exact(data), exact(gradient)))
        narrow = [*one.weights[:-1], 1]
        return error_of(result[..., :1], back_to_weights(exact(data), exact(gradient[..., :1]), narrow))

    if cells["pass_name"] == "forward":
        return GraphCase(
            forward, (data, filters),
            lambda result: error_of(result[:1], forward(exact(data[:1]), exact(filters))),
        )  # fmt: skip
    if cells["pass_name"] == "backward_input":
        return GraphCase(
            back, (filters, gradient),
            lambda result: error_of(result[:1], back(exact(filters), exact(gradient[:1]), single)),
        )  # fmt: skip
    return GraphCase(back_to_weights, (data, gradient), check_weights)
