"""The child process that times a Keras model: the step as it is, and its ops where these are asked for."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from fomkit.errors import FomkitError, ManyFomkitError
from fomkit.trace.child_answer import take_request
from fomkit.trace.conditions import conditions_before, load
from fomkit.trace.drafting import Request
from fomkit.trace.keras_op_times import PROFILER, OpTimes
from fomkit.trace.keras_profile import TracedWorkload, trace_workload
from fomkit.trace.keras_step import specs_of, whole_step_of
from fomkit.trace.keras_values import step_values
from fomkit.trace.keras_workload import check_workload
from fomkit.trace.model_file import explain_exception, run_file, take_workload
from fomkit.trace.torch_measure import WARM_UP, time_steps
from fomkit.trace.torch_stopwatch import stopwatch
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


def _timed(path: Path, request: Request, *, ops: bool, threads: int | None, folder: str) -> dict[str, Any]:
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
    timed = time_steps(lambda: plain(values), watch, profiled, partial(_check_finite, where=request.where))
    if times is not None and times.joined is not None:
        notes += [
            *say_gaps(times.joined),
            "the profiled step runs each op by itself; the plain one fuses products with what follows them",
        ]
    return {
        "conditions": {**conditions, "load_end": load(), "threads": number, "warm_up": WARM_UP, "device": "cpu",
                       "sizes": dict(sizes), "notes": notes},
        "plain": timed.plain,
        **_seen(times, timed.profiled, traced),
    }  # fmt: skip


def _explained(error: BaseException, request: Request, path: Path) -> list[str]:
    told = explain_exception(error, request.where, path)
    if isinstance(error, MemoryError | tf.errors.ResourceExhaustedError) or any(
        one in str(error).lower() for one in _LACKS_MEMORY
    ):
        what = f"does not fit into the memory here ({told.what}). Measure a smaller step with --batch."
        return [told.where, what]
    return [told.where, told.what]


def _result(path: Path, request: Request, **asked: Any) -> dict[str, Any]:
    try:
        with tempfile.TemporaryDirectory(prefix="fomkit-") as folder:
            return {"timed": _timed(path, request, folder=folder, **asked)}
    except ManyFomkitError as errors:
        return {"errors": [[error.where, error.what] for error in errors.errors]}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent tells it
        return {"errors": [_explained(error, request, path)]}


def main() -> None:
    """Run one request, then end the process at once, whatever threads and exit handlers the file left behind."""
    message, answer = take_request()
    path = Path(message.pop("path"))
    asked = {name: message.pop(name) for name in ("ops", "threads")}
    sys.dont_write_bytecode = True
    sys.argv = [str(path)]
    answer.leave(_result(path, Request(**message), **asked))
    os._exit(0)
