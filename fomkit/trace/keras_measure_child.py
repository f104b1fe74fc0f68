"""The child process that times a Keras model: the step as it is, and its ops where these are asked for."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from fomkit.errors import FomkitError
from fomkit.trace.conditions import conditions_before, load
from fomkit.trace.drafting import Request
from fomkit.trace.keras_op_times import PROFILER, OpTimes
from fomkit.trace.keras_profile import TracedWorkload, trace_workload
from fomkit.trace.keras_step import specs_of, whole_step_of
from fomkit.trace.keras_values import step_values
from fomkit.trace.keras_workload import check_workload
from fomkit.trace.model_file import run_file, take_workload
from fomkit.trace.stopwatch import stopwatch
from fomkit.trace.timed_steps import WARM_UP, time_steps
from fomkit.trace.timing_child import Door, run_timing
from fomkit.trace.xplane_join import say_gaps

_LACKS_MEMORY = ("oom", "out of memory", "failed to allocate", "unable to allocate")


def _check_finite(result: Any, where: str) -> None:
    """Raise where a loss, or an output, is not made of finite numbers.

    Raises
    ------
    FomkitError
    """
    logs = result.get("loss", result) if isinstance(result, dict) else result
    for leaf in tf.nest.flatten(logs):
        if hasattr(leaf, "dtype") and leaf.dtype.is_floating and not np.isfinite(leaf.numpy()).all():
            raise FomkitError(
                where,
                "the loss, or the output, of the first step is no finite number, and times of such numbers are no "
                "times of training. Let inputs give values as in training.",
            )


def _use(threads: int | None) -> int:
    """Set TensorFlow's threads, before anything runs, and give their number."""
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    return int(tf.config.threading.get_intra_op_parallelism_threads()) or os.cpu_count() or 1


def _seen(times: OpTimes | None, samples: Any, traced: TracedWorkload) -> dict[str, Any]:
    if times is None or times.joined is None:
        return {"spent": None}
    joined = times.joined
    return {
        "spent": [],
        "profiler": PROFILER,
        "profiled": samples,
        "joined": asdict(joined),
        "rows": [[row["op"], row["pass_name"], row["module"]] for row in traced.draft.rows],
    }


def _timed(
    path: Path, request: Request, *, ops: bool, threads: int | None, folder: str, precision: str = ""
) -> dict[str, Any]:
    number = _use(threads)
    workload = take_workload(run_file(path), request.where, check_workload)
    traced = trace_workload(workload, request)
    sizes = traced.sized.sizes
    values, notes = step_values(workload, specs_of(traced.prepared, sizes), sizes)
    plain = whole_step_of(traced.prepared, sizes).function
    conditions = conditions_before("tensorflow", str(tf.__version__))
    watch = stopwatch()
    times = OpTimes(traced, values, folder) if ops else None
    profiled = partial(times.profiled, watch) if times is not None else None
    notes.append("Keras is timed on the CPU only, whatever accelerator is here")
    timed = time_steps(lambda: plain(values), watch, profiled, partial(_check_finite, where=request.where))
    if times is not None and times.joined is not None:
        notes += [
            *say_gaps(times.joined),
            "the profiled step runs each op by itself; the plain one fuses products with what follows them",
        ]
    return {
        "conditions": {**conditions, "load_end": load(), "threads": number, "warm_up": WARM_UP, "device": "cpu",
                       "sizes": dict(sizes), "precision": precision, "notes": notes},
        "plain": timed.plain,
        "moments": timed.moments,
        **_seen(times, timed.profiled, traced),
    }  # fmt: skip


def _lacks_memory(error: BaseException) -> bool:
    told = str(error).lower()
    is_told = any(words in told for words in _LACKS_MEMORY)
    return is_told or isinstance(error, MemoryError | tf.errors.ResourceExhaustedError)


DOOR = Door(_timed, _lacks_memory)


def main() -> None:
    """Run one request."""
    run_timing(DOOR)
