"""Ops whose time is decided by traffic, by TensorFlow's name: element by element and copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fomkit.timings.measure_cases import CannotTimeError, Cells, size_of
from fomkit.timings.measure_tf_graph import GraphCase, error_of, made, same_in_double, tf_dtype

Maker = Callable[[Cells], GraphCase]
ONE: Mapping[str, str] = {
    **dict.fromkeys(("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu"), "features"),
    **dict.fromkeys(("Abs", "Cos", "Erf", "Exp", "Expm1", "Log", "Log1p", "LogicalNot", "Neg", "Reciprocal",
                     "Rsqrt", "Sigmoid", "Sign", "Sin", "Sqrt", "Square", "Tanh"), "x"),
}  # fmt: skip
"""Functions of one tensor, and what TensorFlow calls it."""
TWO = (
    "AddV2", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "Maximum", "Minimum", "Mul", "NotEqual",
    "RealDiv", "SquaredDifference", "Sub",
)  # fmt: skip
"""Functions of two tensors, the second of which may be one row or a number."""
BACK: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ReluGrad", "Relu6Grad", "LeakyReluGrad", "SoftplusGrad", "SoftsignGrad"),
                    ("gradients", "features")),
    **dict.fromkeys(("EluGrad", "SeluGrad"), ("gradients", "outputs")),
    **dict.fromkeys(("SigmoidGrad", "TanhGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad"), ("dy", "y")),
}  # fmt: skip
"""Gradients of a gradient and one tensor, and what TensorFlow calls both."""
FILLS = ("Fill", "OnesLike", "ZerosLike")
POSITIVE = ("Log", "Log1p", "Reciprocal", "Rsqrt", "Sqrt", "RealDiv", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad")
"""Functions that are only asked about positive numbers: their errors near 0 say nothing."""


def raw(name: str) -> Any:
    """Give an op by TensorFlow's name."""
    import tensorflow as tf

    found = getattr(tf.raw_ops, name, None)
    if found is None:
        raise CannotTimeError(f"this TensorFlow has no op {name}")
    return found


def _values(cells: Cells, name: str, numel: int | None = None) -> Any:
    import tensorflow as tf

    values = made([size_of(cells, "numel") if numel is None else numel], cells)
    return tf.abs(values) + 0.5 if name in POSITIVE and values.dtype.is_floating else values


def _one(cells: Cells) -> GraphCase:
    name = cells["op"]
    function, argument = raw(name), ONE[name]
    return same_in_double(lambda data: function(**{argument: data}), [_values(cells, name)])


def _two(cells: Cells) -> GraphCase:
    """Make a function of a tensor and another: as long, one row, or a number, by the bytes that are read."""
    import tensorflow as tf

    name, numel = cells["op"], size_of(cells, "numel")
    function, first = raw(name), _values(cells, name)
    rest = round(float(cells["read_byte"]) / tf_dtype(cells).size) - numel
    if rest <= 0 or size_of(cells, "inputs", 2) < 2:
        rest = 1
    if 1 < rest < numel and numel % rest == 0:
        first = tf.reshape(first, (numel // rest, rest))
    elif rest != numel:
        rest = 1
    second = _values(cells, name, rest)
    return same_in_double(lambda one, other: function(x=one, y=other), [first, second])


def _bias(cells: Cells) -> GraphCase:
    import tensorflow as tf

    numel, function = size_of(cells, "numel"), raw("BiasAdd")
    row = round(float(cells["read_byte"]) / tf_dtype(cells).size) - numel
    if row < 1 or numel % row:
        raise CannotTimeError("its bytes are not those of rows and one bias for them")
    data = tf.reshape(_values(cells, ""), (numel // row, row))
    return same_in_double(lambda one, other: function(value=one, bias=other), [data, made([row], cells)])


def _back(cells: Cells) -> GraphCase:
    name = cells["op"]
    function, (first, second) = raw(name), BACK[name]
    values = [_values(cells, name) for _ in range(2)]
    return same_in_double(lambda one, other: function(**{first: one, second: other}), values)


def _select(cells: Cells) -> GraphCase:
    import tensorflow as tf

    values, function = _values(cells, ""), raw("SelectV2")
    chosen = tf.random.uniform(values.shape) < 0.5
    return same_in_double(lambda mask, one, other: function(condition=mask, t=one, e=other),
                          [chosen, values, tf.zeros_like(values)])  # fmt: skip


def _fill(cells: Cells) -> GraphCase:
    import tensorflow as tf

    function, numel, value = raw("Fill"), size_of(cells, "numel"), tf.ones((), tf_dtype(cells))
    return GraphCase(
        lambda one: function(dims=[numel], value=one), (value,), lambda result: error_of(result, tf.ones([numel]))
    )


def _join(cells: Cells) -> GraphCase:
    count, numel = max(2, size_of(cells, "inputs", 2)), size_of(cells, "numel")
    function, parts = raw("ConcatV2"), [made([8, -(-numel // count // 8)], cells) for _ in range(count)]
    return same_in_double(lambda *values: function(values=list(values), axis=1), parts)


def _transpose(cells: Cells) -> GraphCase:
    """Make a transposition as attention asks for it: rows of 64 in another order."""
    import tensorflow as tf

    numel, function = size_of(cells, "numel"), raw("Transpose")
    if numel % 512:
        raise CannotTimeError("its elements are no rows of 64 in another order, and no other order is known")
    data = tf.reshape(_values(cells, ""), (-1, 8, 64))
    return same_in_double(lambda one: function(x=one, perm=[1, 0, 2]), [data])


NAMED: Mapping[str, Maker] = {
    **dict.fromkeys(ONE, _one),
    **dict.fromkeys(TWO, _two),
    **dict.fromkeys(BACK, _back),
    **dict.fromkeys(FILLS, _fill),
    "BiasAdd": _bias,
    "SelectV2": _select,
    "ConcatV2": _join,
    "Transpose": _transpose,
}
"""Makers of element-wise ops and copies, by TensorFlow's name."""


def stream(cells: Cells) -> GraphCase:
    """Make a sum in place, which shows the bandwidth: no result takes memory of its own."""
    import tensorflow as tf

    variable, more = tf.Variable(made([size_of(cells, "numel")], cells)), _values(cells, "")
    before = variable.numpy()[:1000]

    def op(values: Any) -> Any:
        done = variable.assign_add(values, read_value=False)
        with tf.control_dependencies([done] if done is not None else []):
            return tf.constant(0)

    def check(_result: Any) -> float:
        return error_of(variable[:1000], before.astype("float64") + more[:1000].numpy().astype("float64"))

    return GraphCase(op, (more,), check)


STREAM = "AssignAddVariableOp"


def elementwise(cells: Cells) -> GraphCase:
    """Make an element-wise op or a copy: the named one, else any of its traffic.

    Raises
    ------
    CannotTimeError
        When the name is not known here, or no op of that traffic.
    """
    name = cells.get("op", "")
    if name == STREAM:
        return stream(cells)
    if name:
        if name not in NAMED:
            raise CannotTimeError(f"the op {name} is not made here")
        return NAMED[name](cells)
    whole = size_of(cells, "numel") * int(tf_dtype(cells).size)
    read, written = (float(cells[f"{word}_byte"]) / whole for word in ("read", "write"))
    count, most = round(read), 1 if cells["kind"] == "copy" else 2
    if abs(written - 1) > 0.01 or abs(read - count) > 0.01 or not 1 <= count <= most:
        raise CannotTimeError("its bytes are not those of one or two tensors read and one written")
    if cells["kind"] == "copy":
        function = raw("DeepCopy")
        return same_in_double(lambda data: function(x=data), [_values(cells, "")])
    any_op = "Relu" if count == 1 else "AddV2"
    return NAMED[any_op]({**cells, "op": any_op})
