"""Time single TensorFlow ops in a compiled graph, without the function call; make element-wise ops and copies.

A Keras step is one compiled function whose ops run without Python in between. Ops are therefore timed inside such
a function: the time of the call is subtracted, and the function repeats a short op many times in sequence.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from fomkit.harness.torch import cases
from fomkit.harness.torch.cases import CannotTimeError, Cells, Later, Watch, by_clock, first_of, size_of, summarise
from fomkit.harness.torch.times import SAMPLE_S, Effort, Times, repeat

tf: Any = Later("tensorflow")
COPIES = 64
"""Largest number of repeats of a short op in the timed function."""
TOLD_APART = 0.02
"""Least share of the function's time that an op must have to be distinguished from the call."""


class GraphCase(NamedTuple):
    """One op: ``op`` applies it to operands, inside a graph or not; ``check`` returns the error of a result."""

    op: Callable[..., Any]
    operands: tuple[Any, ...]
    check: Callable[[Any], float]


def tf_dtype(cells: Cells) -> Any:
    """Return TensorFlow's number format for a row."""
    formats = {
        "fp64": tf.float64, "fp32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16, "int64": tf.int64,
        "int32": tf.int32, "bool": tf.bool,
    }  # fmt: skip
    if cells["dtype"] not in formats:
        raise CannotTimeError(f"the number format {cells['dtype']} is not timed here")
    return formats[cells["dtype"]]


def made(shape: Sequence[int], cells: Cells) -> Any:
    """Make a tensor of random values in the row's number format."""
    dtype = tf_dtype(cells)
    # Checked here because TensorFlow itself waits 10 s for memory before it fails.
    memory_byte = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else math.inf
    if (byte := math.prod(shape) * dtype.size) > memory_byte:
        raise CannotTimeError(f"a tensor of {byte / 2**20:,.0f} MiB is larger than this machine's memory")
    if dtype.is_floating:
        return tf.cast(tf.random.normal(tuple(shape), dtype=tf.float32), dtype)
    return tf.cast(tf.random.uniform(tuple(shape), 0, 2, dtype=tf.int32), dtype)


def exact(value: Any) -> Any:
    """Return a floating-point tensor in double precision, anything else unchanged."""
    return tf.cast(value, tf.float64) if value.dtype.is_floating else value


def error_of(found: Any, truth: Any) -> float:
    """Return the largest error of a result, relative to the largest true value."""
    apart, true = (np.asarray(one).astype(np.float64) for one in (first_of(found), first_of(truth)))
    return float(np.abs(apart - true).max() / (np.abs(true).max() or 1.0))


def same_in_double(op: Callable[..., Any], operands: Sequence[Any]) -> GraphCase:
    """Make a case of an op and its operands, checked by the same op in double precision."""
    return GraphCase(op, tuple(operands), lambda result: error_of(result, op(*map(exact, operands))))


def compiled(case: GraphCase, copies: int) -> Callable[[], Any]:
    """Compile a function that runs the op ``copies`` times in sequence; with 0 it is the call alone."""

    def run(*operands: Any) -> Any:
        result, before = tf.constant(0), list[Any]()
        for _ in range(copies):
            with tf.control_dependencies(before):
                result = case.op(*operands)
            before = tf.nest.flatten(result)
        return first_of(result)

    specs = [tf.TensorSpec(operand.shape, operand.dtype) for operand in case.operands]
    function = tf.function(run, autograph=False).get_concrete_function(*specs)
    return lambda: function(*case.operands)


def _once(watch: Watch, run: Callable[[], Any]) -> float:
    return watch.measure(run, 1) - watch.empty_s


def time_graph(
    case: GraphCase, watch: Watch, effort: Effort, *, other: GraphCase | None = None, cold: bool = False
) -> Times:
    """Time an op with warm and with cold operands; the state given by ``cold`` gets the full effort.

    `other`: the same op on other operands, run before each cold repeat, so that operands are cold and the program
    is not.
    """
    nothing, one = compiled(case, 0), compiled(case, 1)
    beside = compiled(other, 1) if other else None
    for run in (nothing, one, *((beside,) if beside else ())):
        watch.measure(run, 2)
    call_s, one_s = median(_once(watch, nothing) for _ in range(effort.least)), _once(watch, one)
    if short := one_s - call_s < SAMPLE_S:
        one_s = median(_once(watch, one) for _ in range(effort.least))
        copies = min(COPIES, max(2, round(SAMPLE_S / max(one_s - call_s, 1e-9))))
        many, less_s = compiled(case, copies + 1), one_s
        # The first op of a call costs more than the next ones, because its result is returned.
        call_s = one_s - median((_once(watch, many) - one_s) / copies for _ in range(3))
    else:
        copies, many, less_s = 1, one, call_s

    def warm_once() -> float:
        return max((_once(watch, many) - less_s) / copies, 1e-12)

    def cold_once() -> float:
        watch.flush()
        if beside is not None:
            beside()
        return max(_once(watch, one) - call_s, 1e-12)

    few = effort._replace(most=effort.least, limit_s=effort.limit_s / 4)
    warm = repeat(warm_once, few if cold else effort, watch.clock)
    times = Times(warm, repeat(cold_once, effort if cold else few, watch.clock))
    summary = summarise(times.cold if cold else times.warm)
    if summary.p25_s * (copies if short and not cold else 1) < TOLD_APART * one_s:
        raise CannotTimeError("its own time is too short to be measured")
    return times


def graph_watch(threads: int, cache_byte: float) -> Watch:
    """Make the stopwatch of TensorFlow on a CPU."""
    clock = cases.processor_clock(threads)
    measure = by_clock(clock)
    buffer = np.zeros(int(cache_byte // 4), np.float32)

    def flush() -> None:
        np.add(buffer, 1.0, out=buffer)

    return Watch(measure, median(measure(lambda: None, 1) for _ in range(cases.CLOCK_READS)), flush, clock)


Maker = Callable[[Cells], GraphCase]
ONE: Mapping[str, str] = {
    **dict.fromkeys(("Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu"), "features"),
    **dict.fromkeys(("Abs", "Cos", "Erf", "Exp", "Expm1", "Log", "Log1p", "LogicalNot", "Neg", "Reciprocal",
                     "Rsqrt", "Sigmoid", "Sign", "Sin", "Sqrt", "Square", "Tanh"), "x"),
}  # fmt: skip
"""Functions of one tensor, and TensorFlow's name of the argument."""
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
"""Gradients computed from a gradient and one tensor, and TensorFlow's names of both arguments."""
FILLS = ("Fill", "OnesLike", "ZerosLike")
POSITIVE = ("Log", "Log1p", "Reciprocal", "Rsqrt", "Sqrt", "RealDiv", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad")
"""Functions that get only positive numbers: their errors near 0 are meaningless."""


def raw(name: str) -> Any:
    """Return an op by TensorFlow's name."""
    found = getattr(tf.raw_ops, name, None)
    if found is None:
        raise CannotTimeError(f"this TensorFlow has no op {name}")
    return found


def _random_values(cells: Cells, name: str, numel: int | None = None) -> Any:
    values = made([size_of(cells, "numel") if numel is None else numel], cells)
    return tf.abs(values) + 0.5 if name in POSITIVE and values.dtype.is_floating else values


def _of_one(cells: Cells) -> GraphCase:
    name = cells["op"]
    function, argument = raw(name), ONE[name]
    return same_in_double(lambda data: function(**{argument: data}), [_random_values(cells, name)])


def _two(cells: Cells) -> GraphCase:
    """Make a function of two tensors; the bytes read decide if the second is full, one row, or a number."""
    name, numel = cells["op"], size_of(cells, "numel")
    function, first = raw(name), _random_values(cells, name)
    rest = round(float(cells["read_byte"]) / tf_dtype(cells).size) - numel
    if rest <= 0 or size_of(cells, "inputs", 2) < 2:
        rest = 1
    if 1 < rest < numel and numel % rest == 0:
        first = tf.reshape(first, (numel // rest, rest))
    elif rest != numel:
        rest = 1
    second = _random_values(cells, name, rest)
    return same_in_double(lambda one, other: function(x=one, y=other), [first, second])


def _bias(cells: Cells) -> GraphCase:
    numel, function = size_of(cells, "numel"), raw("BiasAdd")
    row = round(float(cells["read_byte"]) / tf_dtype(cells).size) - numel
    if row < 1 or numel % row:
        raise CannotTimeError("its bytes are not those of rows and one bias for them")
    data = tf.reshape(_random_values(cells, ""), (numel // row, row))
    return same_in_double(lambda one, other: function(value=one, bias=other), [data, made([row], cells)])


def _back(cells: Cells) -> GraphCase:
    name = cells["op"]
    function, (first, second) = raw(name), BACK[name]
    values = [_random_values(cells, name) for _ in range(2)]
    return same_in_double(lambda value, other: function(**{first: value, second: other}), values)


def _select(cells: Cells) -> GraphCase:
    values, function = _random_values(cells, ""), raw("SelectV2")
    chosen = tf.random.uniform(values.shape) < 0.5
    return same_in_double(lambda mask, one, other: function(condition=mask, t=one, e=other),
                          [chosen, values, tf.zeros_like(values)])  # fmt: skip


def _filled(cells: Cells) -> GraphCase:
    function, numel, value = raw("Fill"), size_of(cells, "numel"), tf.ones((), tf_dtype(cells))
    return GraphCase(lambda one: function(dims=[numel], value=one), (value,),
                     lambda result: error_of(result, tf.ones([numel])))  # fmt: skip


def _join(cells: Cells) -> GraphCase:
    count, numel = max(2, size_of(cells, "inputs", 2)), size_of(cells, "numel")
    function, parts = raw("ConcatV2"), [made([8, -(-numel // count // 8)], cells) for _ in range(count)]
    return same_in_double(lambda *values: function(values=list(values), axis=1), parts)


def _transpose(cells: Cells) -> GraphCase:
    """Make a transposition as attention needs it: rows of 64 in another order."""
    numel, function = size_of(cells, "numel"), raw("Transpose")
    if numel % 512:
        raise CannotTimeError("its elements are no rows of 64 in another order, and no other order is known")
    data = tf.reshape(_random_values(cells, ""), (-1, 8, 64))
    return same_in_double(lambda one: function(x=one, perm=[1, 0, 2]), [data])


NAMED: Mapping[str, Maker] = {
    **dict.fromkeys(ONE, _of_one), **dict.fromkeys(TWO, _two), **dict.fromkeys(BACK, _back),
    **dict.fromkeys(FILLS, _filled), "BiasAdd": _bias, "SelectV2": _select, "ConcatV2": _join,
    "Transpose": _transpose,
}  # fmt: skip
"""Makers of element-wise ops and copies, by TensorFlow's name."""


def stream(cells: Cells) -> GraphCase:
    """Make a sum in place, which measures the bandwidth because its result needs no new memory."""
    variable, more = tf.Variable(made([size_of(cells, "numel")], cells)), _random_values(cells, "")
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
    """Make an element-wise op or a copy: the named op, else any op with the same traffic."""
    name = cells.get("op", "")
    if name == STREAM:
        return stream(cells)
    if name:
        if name not in NAMED:
            raise CannotTimeError(f"the op {name} is not timed here")
        return NAMED[name](cells)
    whole = size_of(cells, "numel") * int(tf_dtype(cells).size)
    read, written = (float(cells[f"{word}_byte"]) / whole for word in ("read", "write"))
    count, most = round(read), 1 if cells["kind"] == "copy" else 2
    if abs(written - 1) > 0.01 or abs(read - count) > 0.01 or not 1 <= count <= most:
        raise CannotTimeError("its bytes are not those of one or two tensors read and one written")
    if cells["kind"] == "copy":
        function = raw("DeepCopy")
        return same_in_double(lambda data: function(x=data), [_random_values(cells, "")])
    any_op = "Relu" if count == 1 else "AddV2"
    return NAMED[any_op]({**cells, "op": any_op})
