"""Ops over rows and tables by TensorFlow's name: sums, softmax, batch normalisation, lookups, their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.timings.measure_cases import CannotTimeError, Cells, size_of
from fomkit.timings.measure_tf_graph import GraphCase, error_of, exact, made, same_in_double, tf_dtype
from fomkit.timings.measure_tf_traffic import Maker, raw

TABLE_BYTE = 128e6
"""Largest table that looked-up rows come from, where the row does not say how large it is."""
EPSILON = 1e-3


def _grid(cells: Cells) -> Any:
    """Make numel values as rows of the reduced length."""
    row = size_of(cells, "row")
    return made([size_of(cells, "numel") // row, row], cells)


def _sum(cells: Cells) -> GraphCase:
    """Make a sum: of a gradient over the batch, the first axis; forward over the last."""
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
    import tensorflow as tf

    function, data = raw("SparseSoftmaxCrossEntropyWithLogits"), _grid(cells)
    labels = tf.random.uniform((data.shape[0],), 0, data.shape[1], dtype=tf.int32)
    return same_in_double(lambda values, of: function(features=values, labels=of), [data, labels])


def _channels(cells: Cells) -> Any:
    """Make values of numel / row channels, channels last; a row is taken from 8 samples where that fits."""
    row = size_of(cells, "row")
    samples = 8 if row % 8 == 0 else 1
    return made([samples, 1, row // samples, size_of(cells, "numel") // row], cells)


def _moments(values: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    mean = tf.reduce_mean(values, (0, 1, 2))
    return mean, tf.math.rsqrt(tf.reduce_mean(tf.square(values - mean), (0, 1, 2)) + EPSILON)


def _norm_of(data: Any) -> Any:
    import tensorflow as tf

    ones, none = tf.ones((data.shape[-1],)), tf.zeros((0,))
    return raw("FusedBatchNormV3")(x=data, scale=ones, offset=0 * ones, mean=none, variance=none, epsilon=EPSILON)


def _batch_norm(cells: Cells) -> GraphCase:
    import tensorflow as tf

    data = _channels(cells)
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
    import tensorflow as tf

    data, gradient = _channels(cells), _channels(cells)
    gain, reserved = made([data.shape[-1]], {**cells, "dtype": "fp32"}), _norm_of(data)[3:6]
    function = raw("FusedBatchNormGradV3")

    def op(of: Any, values: Any, scale: Any, *kept: Any) -> Any:
        named = {f"reserve_space_{number}": one for number, one in enumerate(kept, start=1)}
        return function(y_backprop=of, x=values, scale=scale, epsilon=EPSILON, **named)

    def check(result: Any) -> float:
        values, of = exact(data), exact(gradient)
        mean, deviation = _moments(values)
        around = (values - mean) * deviation
        left = of - tf.reduce_mean(of, (0, 1, 2)) - around * tf.reduce_mean(of * around, (0, 1, 2))
        return error_of(result, left * deviation * exact(gain))

    return GraphCase(op, (gradient, data, gain, *reserved), check)


def _places(cells: Cells, table: int) -> Any:
    import tensorflow as tf

    return tf.random.uniform((max(size_of(cells, "numel") // size_of(cells, "row"), 1),), 0, table, dtype=tf.int32)


def _lookup(cells: Cells) -> GraphCase:
    """Make a lookup in a variable, or in a tensor, whose length is not stated."""
    import tensorflow as tf

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
    **dict.fromkeys(("Sum", "Mean", "Max"), _sum),
    "BiasAddGrad": _bias_gradient,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
    "FusedBatchNormV3": _batch_norm,
    "FusedBatchNormGradV3": _batch_norm_back,
    **dict.fromkeys(("GatherV2", "ResourceGather"), _lookup),
    "UnsortedSegmentSum": _lookup_back,
}
"""Makers of ops over rows and tables, by TensorFlow's name."""
UNNAMED: Mapping[str, Maker] = {"softmax": _softmax, "reduction": _sum}


def over_rows(cells: Cells) -> GraphCase:
    """Make an op over rows: the named one, else a softmax or a sum, forward.

    Raises
    ------
    CannotTimeError
        When the name is not known here, or the row is of another pass and names no op.
    """
    name = cells.get("op", "")
    maker = OVER.get(name) if name else UNNAMED.get(cells["kind"])
    if maker is None:
        raise CannotTimeError(f"the op {name or cells['kind']} is not made here")
    if not name and cells["pass_name"] not in ("forward", ""):
        raise CannotTimeError("only forward passes over rows are timed without a name of the op")
    return maker(cells)
