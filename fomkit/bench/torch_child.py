"""Time a user's PyTorch model in a child process: its plain step and, if requested, its ops under a profiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from fomkit.bench import model_steps
from fomkit.bench.model_steps import ProfiledOps, Sample
from fomkit.bench.record import conditions_before
from fomkit.frontends.drafting import Request
from fomkit.frontends.model_file import run_file, take_workload
from fomkit.frontends.torch.profile import check_finite, check_workload, is_finite, real_step

_LACKS_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def time_torch(
    path: Path, request: Request, *, ops: bool, threads: int | None, folder: str, precision: str = ""
) -> Mapping[str, object]:
    """Time a file's model; see `fomkit.bench.model_steps.timing_result`."""
    workload = take_workload(run_file(path), request.where, check_workload)
    if threads is not None:
        torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = real_step(workload, request, device, precision)
    watch = model_steps.stopwatch(torch.cuda if device == "cuda" else None)
    conditions = conditions_before("torch", str(torch.__version__))
    if device == "cuda":
        conditions |= {"processor": torch.cuda.get_device_name()}
        conditions["software"] |= {"cuda": str(torch.version.cuda or torch.version.hip)}

    trace = Path(folder) / "trace.json"

    def profiled(repeats: int) -> list[Sample]:
        return profiled_steps(step.run, watch, repeats, trace, device)

    check = partial(check_finite, where=request.where)
    timed = model_steps.time_steps(step.run, watch, profiled if ops else None, check)
    notes = [*step.notes]
    if not is_finite(timed.last):
        notes.append("after the timed steps the loss was not finite: the step as written does not train")
    seen = None
    if ops:
        from fomkit.readers.profilers.kineto import time_spent

        spent, covered = time_spent(trace)
        seen = ProfiledOps(PROFILER, timed.profiled, spent, covered)
    kind, threads = "gpu" if device == "cuda" else "cpu", torch.get_num_threads()
    return model_steps.timed_step(timed, seen, **conditions, threads=threads, device=kind, sizes=step.sizes,
                      precision=precision, notes=list(dict.fromkeys(notes)))  # fmt: skip


def lacks_memory(error: BaseException) -> bool:
    """Return whether a step did not fit in memory."""
    text = str(error).lower()
    return isinstance(error, MemoryError | RuntimeError) and any(words in text for words in _LACKS_MEMORY)


def main() -> None:
    """Run one request."""
    model_steps.run_timing(time_torch, lacks_memory)


PROFILER = "torch.profiler, with shapes"
_ERROR = 2


@contextmanager
def _silent() -> Iterator[None]:
    """Discard the profiler library's output on standard error, which none of its settings stops."""
    kept = os.dup(_ERROR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _ERROR)
        yield
    finally:
        os.dup2(kept, _ERROR)
        os.close(nowhere)
        os.close(kept)


def profiled_steps(
    step: Callable[[], Any], watch: Callable[[Callable[[], Any]], Sample], repeats: int, path: Path, device: str
) -> list[Sample]:
    """Run steps under the profiler, after one warm-up step, and write their trace to a path."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    samples = []
    plan = schedule(wait=0, warmup=1, active=repeats, repeat=1)

    def write(profiler: Any) -> None:
        profiler.export_chrome_trace(str(path))

    with (
        _silent(),
        profile(activities=activities, schedule=plan, on_trace_ready=write, record_shapes=True) as profiler,
    ):
        for _ in range(repeats + 1):
            samples.append(watch(step))
            profiler.step()
    return samples[1:]
