"""The timing process for TensorFlow: it makes, checks and times ops as requested.

Products, convolutions, ops over rows and lookups run as TensorFlow's ops; `UNSUPPORTED` lists kinds that do not.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from fomkit.harness.tensorflow.traffic import (
    NAMED,
    GraphCase,
    Maker,
    compiled,
    elementwise,
    error_of,
    exact,
    graph_watch,
    made,
    raw,
    same_in_double,
    tf,
    tf_dtype,
    time_graph,
)
from fomkit.harness.torch.cases import CHECKED_ROWS, TOLERANCES, CannotTimeError, Cells, Watch, size_of
from fomkit.harness.torch.times import Effort
from fomkit.harness.torch.worker import LONG_S, Answer, first_line, talk

AXES = {"d": "depth", "h": "height", "w": "width"}


def product(cells: Cells) -> GraphCase:
    """Make a product, or a batch of products; the check recomputes the first rows."""
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
    """A convolution with channels last, with as many axes as its sizes need."""

    inputs: list[int]
    weights: list[int]
    outputs: list[int]
    how: dict[str, Any]
    family: tuple[str, str, str]

    def run(self, place: int, **operands: Any) -> Any:
        """Run a pass: 0 forward, 1 gradient of the inputs, 2 gradient of the weights."""
        return getattr(tf.raw_ops, self.family[place])(**operands, **self.how)


_FLAT = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
_DEEP = ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")
_EACH = ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter")


def _padding(reach: list[int], lengths: list[int], strides: list[int], pads: list[int]) -> tuple[str, list[int]]:
    """Return TensorFlow's name of the padding, and the lengths of the result."""
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
    """Make a convolution; the check recomputes the first sample, or the weight gradient of one output channel."""
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
            forward, (data, filters), lambda result: error_of(result[:1], forward(exact(data[:1]), exact(filters)))
        )
    if cells["pass_name"] == "backward_input":
        return GraphCase(
            back, (filters, gradient),
            lambda result: error_of(result[:1], back(exact(filters), exact(gradient[:1]), single)),
        )  # fmt: skip
    return GraphCase(back_to_weights, (data, gradient), check_weights)


TABLE_BYTE = 128e6
"""Largest lookup table [byte], if the row does not state its size."""
EPSILON = 1e-3


def _grid(cells: Cells) -> Any:
    """Make numel values as rows of the reduced length."""
    row = size_of(cells, "row")
    return made([size_of(cells, "numel") // row, row], cells)


def _sum_case(cells: Cells) -> GraphCase:
    """Make a sum: backward over the first axis, the batch; forward over the last."""
    function, back = raw(cells.get("op") or "Sum"), cells["pass_name"].startswith("backward")
    row = size_of(cells, "row")
    rows = size_of(cells, "numel") // row
    data, axis = made([row, rows] if back else [rows, row], cells), 0 if back else 1
    return same_in_double(lambda values: function(input=values, axis=axis), [data])


def _bias_gradient(cells: Cells) -> GraphCase:
    row, function = size_of(cells, "row"), raw("BiasAddGrad")
    data = made([row, size_of(cells, "numel") // row], cells)
    return same_in_double(lambda values: function(out_backprop=values), [data])


def _softmax(cells: Cells) -> GraphCase:
    function = raw(cells.get("op") or "Softmax")
    return same_in_double(lambda values: function(logits=values), [_grid(cells)])


def _cross_entropy(cells: Cells) -> GraphCase:
    function, data = raw("SparseSoftmaxCrossEntropyWithLogits"), _grid(cells)
    labels = tf.random.uniform((data.shape[0],), 0, data.shape[1], dtype=tf.int32)
    return same_in_double(lambda values, of: function(features=values, labels=of), [data, labels])


def _channel_values(cells: Cells) -> Any:
    """Make values of numel / row channels, channels last; a row is divided into 8 samples if that fits."""
    row = size_of(cells, "row")
    samples = 8 if row % 8 == 0 else 1
    return made([samples, 1, row // samples, size_of(cells, "numel") // row], cells)


def _moments(values: Any) -> tuple[Any, Any]:
    mean = tf.reduce_mean(values, (0, 1, 2))
    return mean, tf.math.rsqrt(tf.reduce_mean(tf.square(values - mean), (0, 1, 2)) + EPSILON)


def _norm_of(data: Any) -> Any:
    ones, none = tf.ones((data.shape[-1],)), tf.zeros((0,))
    return raw("FusedBatchNormV3")(x=data, scale=ones, offset=0 * ones, mean=none, variance=none, epsilon=EPSILON)


def _batch_norm(cells: Cells) -> GraphCase:
    data = _channel_values(cells)
    gain, bias = (made([data.shape[-1]], {**cells, "dtype": "fp32"}) for _ in range(2))
    function, none = raw("FusedBatchNormV3"), tf.zeros((0,))

    def op(values: Any, scale: Any, offset: Any) -> Any:
        return function(x=values, scale=scale, offset=offset, mean=none, variance=none, epsilon=EPSILON)

    def check(result: Any) -> float:
        values = exact(data)
        mean, deviation = _moments(values)
        return error_of(result, (values - mean) * deviation * exact(gain) + exact(bias))

    return GraphCase(op, (data, gain, bias), check)


def _batch_norm_back(cells: Cells) -> GraphCase:
    data, gradient = _channel_values(cells), _channel_values(cells)
    gain, reserved = made([data.shape[-1]], {**cells, "dtype": "fp32"}), _norm_of(data)[3:6]
    function = raw("FusedBatchNormGradV3")

    def op(of: Any, values: Any, scale: Any, *reserve: Any) -> Any:
        named = {f"reserve_space_{number}": one for number, one in enumerate(reserve, start=1)}
        return function(y_backprop=of, x=values, scale=scale, epsilon=EPSILON, **named)

    def check(result: Any) -> float:
        values, of = exact(data), exact(gradient)
        mean, deviation = _moments(values)
        around = (values - mean) * deviation
        left = of - tf.reduce_mean(of, (0, 1, 2)) - around * tf.reduce_mean(of * around, (0, 1, 2))
        return error_of(result, left * deviation * exact(gain))

    return GraphCase(op, (gradient, data, gain, *reserved), check)


def _places(cells: Cells, table: int) -> Any:
    return tf.random.uniform((max(size_of(cells, "numel") // size_of(cells, "row"), 1),), 0, table, dtype=tf.int32)


def _lookup(cells: Cells) -> GraphCase:
    """Make a lookup in a variable or a tensor; its length is not stated and is chosen here."""
    row, each = size_of(cells, "row"), tf_dtype(cells).size
    table = int(min(50_000, TABLE_BYTE / each / row))
    values, places = made([table, row], cells), _places(cells, table)
    if cells["op"] == "GatherV2":
        gather = raw("GatherV2")
        return same_in_double(lambda rows, at: gather(params=rows, indices=at, axis=0), [values, places])
    variable, function = tf.Variable(values), raw("ResourceGather")
    return GraphCase(
        lambda at: function(resource=variable.handle, indices=at, dtype=variable.dtype), (places,),
        lambda result: error_of(result, tf.cast(values, tf.float64).numpy()[places.numpy()]),
    )  # fmt: skip


def _lookup_back(cells: Cells) -> GraphCase:
    row, function = size_of(cells, "row"), raw("UnsortedSegmentSum")
    table = max(round(float(cells["write_byte"]) / tf_dtype(cells).size / row), 1)
    places = _places(cells, table)
    gradient = made([places.shape[0], row], cells)
    return same_in_double(lambda of, at: function(data=of, segment_ids=at, num_segments=table), [gradient, places])


OVER: Mapping[str, Maker] = {
    **dict.fromkeys(("Sum", "Mean", "Max"), _sum_case), "BiasAddGrad": _bias_gradient,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax), "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
    "FusedBatchNormV3": _batch_norm, "FusedBatchNormGradV3": _batch_norm_back,
    **dict.fromkeys(("GatherV2", "ResourceGather"), _lookup), "UnsortedSegmentSum": _lookup_back,
}  # fmt: skip
"""Makers of ops over rows and lookup tables, by TensorFlow's name."""
UNNAMED: Mapping[str, Maker] = {"softmax": _softmax, "reduction": _sum_case}


def over_rows(cells: Cells) -> GraphCase:
    """Make an op over rows: the named op, else a forward softmax or sum."""
    name = cells.get("op", "")
    maker = OVER.get(name) if name else UNNAMED.get(cells["kind"])
    if maker is None:
        raise CannotTimeError(f"the op {name or cells['kind']} is not timed here")
    if not name and cells["pass_name"] not in ("forward", ""):
        raise CannotTimeError("only forward passes over rows are timed without a name of the op")
    return maker(cells)


MAKERS: Mapping[str, Callable[[Cells], GraphCase]] = {
    "gemm": product, "conv": convolution, "pointwise": elementwise, "copy": elementwise,
    "softmax": over_rows, "norm": over_rows, "reduction": over_rows, "embedding": over_rows,
}  # fmt: skip
UNSUPPORTED: Mapping[str, str] = {
    "sparse_gemm": "sparse products are timed with PyTorch only",
    "rnn": "on a CPU Keras runs recurrent layers as loops of other ops",
    "attention": "Keras runs attention as products and a softmax", "pool": "pooling is timed with PyTorch only",
    "optimizer": "updates are timed with PyTorch only",
}  # fmt: skip
"""Kinds that are not timed with TensorFlow, and why."""


def knows_op(cells: Cells) -> bool:
    """Return whether the op that a row names is made here, so that the timing may have that name."""
    return cells.get("op", "") in (OVER if MAKERS.get(cells["kind"]) is over_rows else NAMED)


def make_case(cells: Cells) -> GraphCase:
    """Make the op of a row."""
    maker = MAKERS.get(cells["kind"])
    if maker is None:
        raise CannotTimeError(UNSUPPORTED.get(cells["kind"], f"the kind {cells['kind']} is not timed here"))
    try:
        return maker(cells)
    except (KeyError, ValueError) as error:
        raise CannotTimeError(f"a size is missing or not a number ({error})") from error


def checked_case(cells: Cells) -> tuple[GraphCase, float]:
    """Make the op of a row, run it once, and return the case with the error of its result."""
    tf.random.set_seed(0)
    case = make_case(cells)
    error = case.check(case.op(*case.operands))
    # The time of a kernel with a wrong result is worthless.
    if not error <= TOLERANCES.get(cells["dtype"], 0.0):
        raise CannotTimeError(f"its result is wrong by {error:.1e} of the largest value")
    return case, error


LAYERS, WIDTH, ROUNDS, OPS = 40, 8, 30, 4
"""Layers of the chain of tiny ops, their width, repeats of the chain, and ops of a layer."""


def introduce(threads: int) -> Answer:
    """Set TensorFlow's threads and options before it runs anything, and return facts on the software."""
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    # Otherwise equal nodes of a graph would run once, and nodes that depend on constants never.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.is_file() else ""
    found = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    name = found[1].strip() if found else platform.machine()
    set_threads, python = tf.config.threading.get_intra_op_parallelism_threads(), platform.python_version()
    about = f"{name}; {threads} threads; Python {python}; ops of compiled graphs"
    facts = {"library_version": str(tf.version.VERSION), "python": python, "threads": int(set_threads)}
    return {**facts, "about": about, "cuda": ""}


def host_cost(watch: Watch) -> Answer:
    """Measure the time of one op in a graph of a chain of tiny ops.

    ``host_s`` is 0: an op is timed in a graph of its repeats too, so its timing contains the same cost.
    """
    tiny = {"dtype": "fp32"}
    weight = made((WIDTH, WIDTH), tiny)

    def chain(values: Any) -> Any:
        for _ in range(LAYERS):
            values = tf.tanh(values @ weight) * values + values
        return values

    whole = GraphCase(chain, (made((WIDTH, WIDTH), tiny),), lambda _result: 0.0)
    runs = [compiled(whole, copies) for copies in (0, 1)]
    for run in runs:
        watch.measure(run, 2)
    call_s, chain_s = (median(watch.measure(run, 1) for _ in range(ROUNDS)) for run in runs)
    if not chain_s > call_s:
        raise CannotTimeError("the time of tiny ops cannot be distinguished from that of a function call")
    return {"op_s": (chain_s - call_s) / (LAYERS * OPS), "host_s": 0.0}


def time_op(request: Mapping[str, Any], watch: Watch) -> Answer:
    """Time one op, or the host's cost of one; if that fails, return the reason."""
    try:
        if "cells" not in request:
            return host_cost(watch)
        case, error = checked_case(request["cells"])
        other = make_case(request["cells"]) if watch.measure(compiled(case, 1), 1) < LONG_S else None
        effort, cold = Effort(**request["effort"]), bool(request["cold"])
        times = time_graph(case, watch, effort, other=other, cold=cold)
    except CannotTimeError as reason:
        return {"reason": str(reason)}
    except (tf.errors.OpError, MemoryError, TypeError, ValueError) as problem:
        return {"reason": first_line(problem)}
    return {"warm": times.warm, "cold": times.cold, "error": error, "empty_s": watch.empty_s}


def main() -> None:
    """Answer requests to time TensorFlow's ops."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    state: dict[str, Any] = {}

    def handle(request: Mapping[str, Any]) -> Answer:
        if "threads" in request:
            facts = introduce(request["threads"])
            state["watch"] = graph_watch(request["threads"], request["cache_byte"])
            return facts
        # Fresh pages and transfers to a device are not measured with TensorFlow.
        return {} if "ask" in request else time_op(request, state["watch"])

    talk(handle)
