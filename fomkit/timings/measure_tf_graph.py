"""Single TensorFlow ops as they run in a graph: compiled, checked once, timed without the call of the function.

A Keras step is one compiled function, whose ops start each other without Python; so is what is timed here. The
time of a call is taken off, and short ops stand in it many times, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from fomkit.timings.measure_cases import CannotTimeError, Cells
from fomkit.timings.measure_statistics import summarise
from fomkit.timings.measure_times import SAMPLE_S, Effort, Times, repeat
from fomkit.timings.measure_watch import CLOCK_READS, Watch, by_clock

COPIES = 64
"""How often a short op stands in the function that is timed, at most."""
TOLD_APART = 0.02
"""Share of a call that an op has to take, to be told from it."""


class GraphCase(NamedTuple):
    """One op: ``op`` makes it of its operands, inside a graph or not; ``check`` gives the error of a result."""

    op: Callable[..., Any]
    operands: tuple[Any, ...]
    check: Callable[[Any], float]


def tf_dtype(cells: Cells) -> Any:
    """Give TensorFlow's number format of a row."""
    import tensorflow as tf

    formats = {
        "fp64": tf.float64, "fp32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16, "int64": tf.int64,
        "int32": tf.int32, "bool": tf.bool,
    }  # fmt: skip
    if cells["dtype"] not in formats:
        raise CannotTimeError(f"numbers of format {cells['dtype']} are not made here")
    return formats[cells["dtype"]]


def made(shape: Sequence[int], cells: Cells) -> Any:
    """Make a tensor of random values in the row's number format."""
    import tensorflow as tf

    dtype = tf_dtype(cells)
    if dtype.is_floating:
        return tf.cast(tf.random.normal(tuple(shape), dtype=tf.float32), dtype)
    return tf.cast(tf.random.uniform(tuple(shape), 0, 2, dtype=tf.int32), dtype)


def exact(value: Any) -> Any:
    """Give a tensor of floating-point numbers in double precision, anything else as it is."""
    import tensorflow as tf

    return tf.cast(value, tf.float64) if value.dtype.is_floating else value


def first_of(result: Any) -> Any:
    """Give the first tensor of a result that may be several."""
    return result[0] if isinstance(result, tuple | list) else result


def error_of(found: Any, truth: Any) -> float:
    """Give the largest error of a result, as a share of the largest true value."""
    import numpy as np

    apart, true = (np.asarray(one).astype(np.float64) for one in (first_of(found), first_of(truth)))
    return float(np.abs(apart - true).max() / (np.abs(true).max() or 1.0))


def same_in_double(op: Callable[..., Any], operands: Sequence[Any]) -> GraphCase:
    """Make a case of an op and its operands, checked by the same op in double precision."""
    return GraphCase(op, tuple(operands), lambda result: error_of(result, op(*map(exact, operands))))


def compiled(case: GraphCase, copies: int) -> Callable[[], Any]:
    """Compile a function that runs the op so many times, one after the other; 0 gives the call alone."""
    import tensorflow as tf

    def run(*operands: Any) -> Any:
        result, before = tf.constant(0), list[Any]()
        for _ in range(copies):
            with tf.control_dependencies(before):
                result = case.op(*operands)
            before = tf.nest.flatten(result)
        return first_of(result)

    specs = [tf.TensorSpec(one.shape, one.dtype) for one in case.operands]
    function = tf.function(run, autograph=False).get_concrete_function(*specs)
    return lambda: function(*case.operands)


def _each(watch: Watch, run: Callable[[], Any], runs: int) -> float:
    return (watch.measure(run, runs) - watch.empty_s) / runs


def time_graph(
    case: GraphCase, watch: Watch, effort: Effort, *, other: GraphCase | None = None, cold: bool = False
) -> Times:
    """Time an op with warm and with cold operands; the effort goes to those that are asked for.

    Parameters
    ----------
    case : GraphCase
    watch : Watch
    effort : Effort
    other : GraphCase, optional
        The same op on other operands, run before each cold repeat: its operands are cold then, the program is not.
    cold : bool

    Raises
    ------
    CannotTimeError
        When the op takes too little to be told from the call of a function.
    """
    nothing, one = compiled(case, 0), compiled(case, 1)
    beside = compiled(other, 1) if other else None
    for run in (nothing, one, *((beside,) if beside else ())):
        watch.measure(run, 2)
    call_s, one_s = median(_each(watch, nothing, 1) for _ in range(effort.least)), _each(watch, one, 1)
    if short := one_s - call_s < SAMPLE_S:
        one_s = median(_each(watch, one, 1) for _ in range(effort.least))
        copies = min(COPIES, max(2, round(SAMPLE_S / max(one_s - call_s, 1e-9))))
        many, less_s = compiled(case, copies + 1), one_s
        # A first op costs the call more than the next ones cost: its result is handed out.
        call_s = one_s - median((_each(watch, many, 1) - one_s) / copies for _ in range(3))
    else:
        copies, many, less_s = 1, one, call_s

    def warm_once() -> float:
        return max((_each(watch, many, 1) - less_s) / copies, 1e-12)

    def cold_once() -> float:
        watch.flush()
        if beside is not None:
            beside()
        return max(_each(watch, one, 1) - call_s, 1e-12)

    few = effort._replace(most=effort.least, limit_s=effort.limit_s / 4)
    warm, cool = (
        repeat(warm_once, few if cold else effort, watch.clock),
        repeat(cold_once, effort if cold else few, watch.clock),
    )
    times = Times(warm, cool)
    kept = summarise(times.cold if cold else times.warm)
    if kept.p25_s * (copies if short and not cold else 1) < TOLD_APART * one_s:
        raise CannotTimeError("what it takes by itself is too little to be told apart")
    return times


def graph_watch(threads: int, cache_byte: float) -> Watch:
    """Make the stopwatch of TensorFlow on a CPU: the process's own time on one thread, else the wall's."""
    import numpy as np

    clock = time.process_time if threads == 1 else time.perf_counter
    measure = by_clock(clock)
    buffer = np.zeros(int(cache_byte // 4), np.float32)

    def flush() -> None:
        np.add(buffer, 1.0, out=buffer)

    return Watch(measure, median(measure(lambda: None, 1) for _ in range(CLOCK_READS)), flush, clock)
