"""Time a Keras model in a child process: its plain step and, if requested, its ops under a profiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from fomkit.bench import model_steps
from fomkit.bench.model_steps import ProfiledOps, Sample
from fomkit.bench.record import conditions_before
from fomkit.core.errors import FomkitError
from fomkit.frontends.drafting import Request
from fomkit.frontends.keras import profile
from fomkit.frontends.keras.inputs import step_values
from fomkit.frontends.model_file import run_file, take_workload
from fomkit.readers.profilers.xplane import JoinedNodes, gap_notes, join_nodes
from fomkit.readers.profilers.xplane_times import read_plane_times

PROFILER = "tf.profiler, joined to the graph; ops are not fused"


@contextmanager
def _unfused() -> Iterator[None]:
    """Disable op fusion inside the block, because the time of a fused op cannot be divided among its parts."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({**before, "remapping": False})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({**before, "remapping": before.get("remapping", True)})


@dataclass
class OpTimes:
    """Times a step's ops; ``joined`` is the outcome after steps have run."""

    traced: profile.TracedWorkload
    values: Any
    folder: str
    joined: JoinedNodes | None = field(default=None, init=False)

    def profiled(self, watch: Callable[[Callable[[], Any]], Sample], repeats: int) -> list[Sample]:
        """Run steps under the profiler, after one step without it.

        The function is compiled again: TensorFlow stops recording cheap ops after some 90 executions.
        """
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
        with _unfused():
            step = profile.whole_step_of(self.traced.prepared, self.traced.sized.sizes)

            def run() -> Any:
                return step.function(self.values)

            run()
            tf.profiler.experimental.start(self.folder, options=options)
            try:
                samples = [watch(run) for _ in range(repeats)]
            finally:
                tf.profiler.experimental.stop()
        nodes = profile.nodes_of_step(self.traced.prepared, step, self.traced.sized)
        self.joined = join_nodes(read_plane_times(self._file()), nodes, len(self.traced.draft.rows))
        return samples

    def _file(self) -> Path:
        found = sorted(Path(self.folder).glob("plugins/profile/*/*.xplane.pb"))
        if not found:
            raise FomkitError("tf.profiler", "left no trace. Measure the step alone with --measure step.")
        return found[-1]


_LACKS_MEMORY = ("oom", "out of memory", "failed to allocate", "unable to allocate")


def _check_finite(result: Any, where: str) -> None:
    """Raise FomkitError if the loss, or the output, is not finite."""
    logs = result.get("loss", result) if isinstance(result, dict) else result
    for leaf in tf.nest.flatten(logs):
        if hasattr(leaf, "dtype") and leaf.dtype.is_floating and not np.isfinite(leaf.numpy()).all():
            raise FomkitError(
                where,
                "the loss, or the output, of the first step is not finite, so its times are not those of "
                "training. Let inputs return values as in training.",
            )


def _time_keras(
    path: Path, request: Request, *, ops: bool, threads: int | None, folder: str, precision: str = ""
) -> Mapping[str, object]:
    if threads is not None:  # set before anything runs
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    number = int(tf.config.threading.get_intra_op_parallelism_threads()) or os.cpu_count() or 1
    workload = take_workload(run_file(path), request.where, profile.check_workload)
    traced = profile.trace_workload(workload, request)
    sizes = traced.sized.sizes
    values, notes = step_values(workload, profile.specs_of(traced.prepared, sizes), sizes)
    plain = profile.whole_step_of(traced.prepared, sizes).function
    conditions = conditions_before("tensorflow", str(tf.__version__))
    watch = model_steps.stopwatch()
    times = OpTimes(traced, values, folder) if ops else None
    profiled = partial(times.profiled, watch) if times is not None else None
    notes.append("Keras is timed on the CPU only, even if there is an accelerator")
    timed = model_steps.time_steps(
        lambda: plain(values), watch, profiled, partial(_check_finite, where=request.where)
    )
    seen = None
    if times is not None and times.joined is not None:
        notes += [
            *gap_notes(times.joined),
            "the profiled step runs each op by itself; the plain step fuses products with the ops after them",
        ]
        rows = [[row["op"], row["pass_name"], row["module"]] for row in traced.draft.rows]
        seen = ProfiledOps(PROFILER, timed.profiled, joined=times.joined, rows=rows)
    return model_steps.timed_step(timed, seen, **conditions, threads=number, device="cpu", sizes=dict(sizes),
                      precision=precision, notes=notes)  # fmt: skip


def _lacks_memory(error: BaseException) -> bool:
    is_named = any(words in str(error).lower() for words in _LACKS_MEMORY)
    return is_named or isinstance(error, MemoryError | tf.errors.ResourceExhaustedError)


def main() -> None:
    """Run one request."""
    model_steps.run_timing(_time_keras, _lacks_memory)
