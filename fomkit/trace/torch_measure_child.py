"""The child process that times a user's model: the step as it is, and its ops where these are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fomkit.trace.conditions import conditions_before, load
from fomkit.trace.drafting import Request
from fomkit.trace.model_file import run_file, take_workload
from fomkit.trace.stopwatch import Sample, stopwatch
from fomkit.trace.timed_steps import WARM_UP, Timed, time_steps, trace_path
from fomkit.trace.timing_child import Door, run_timing
from fomkit.trace.torch_real_step import check_finite, is_finite, real_step
from fomkit.trace.torch_workload import check_workload

_LACKS_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def _profiler(
    run: Callable[[], Any], watch: Callable[[Callable[[], Any]], Sample], device: str, folder: str
) -> Callable[[int], list[Sample]]:
    # Imported where ops are asked for: the plain step is timed without any profiler in the process.
    from fomkit.trace.torch_op_times import profiled_steps

    return lambda repeats: profiled_steps(run, watch, repeats, trace_path(folder), device)


def _timed(
    path: Path, request: Request, *, ops: bool, threads: int | None, folder: str, precision: str = ""
) -> dict[str, Any]:
    workload = take_workload(run_file(path), request.where, check_workload)
    if threads is not None:
        torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = real_step(workload, request, device, precision)
    watch = stopwatch(torch.cuda if device == "cuda" else None)
    conditions = conditions_before("torch", str(torch.__version__))
    if device == "cuda":
        conditions |= {"processor": torch.cuda.get_device_name()}
        conditions["software"] |= {"cuda": str(torch.version.cuda or torch.version.hip)}
    profiled = _profiler(step.run, watch, device, folder) if ops else None
    timed: Timed = time_steps(step.run, watch, profiled, partial(check_finite, where=request.where))
    notes = [*step.notes]
    if not is_finite(timed.last):
        notes.append("after the timed steps the loss was no finite number: the step does not train as it stands")
    seen: dict[str, Any] = {"spent": None}
    if ops:
        from fomkit.trace.kineto_spent import time_spent
        from fomkit.trace.torch_op_times import PROFILER

        spent, covered = time_spent(trace_path(folder))
        seen = {"spent": [asdict(one) for one in spent], "covered": covered, "profiler": PROFILER}
        seen["profiled"] = timed.profiled
    return {
        "conditions": {**conditions, "load_end": load(), "threads": torch.get_num_threads(), "warm_up": WARM_UP,
                       "device": "gpu" if device == "cuda" else "cpu", "sizes": step.sizes,
                       "precision": precision, "notes": list(dict.fromkeys(notes))},
        "plain": timed.plain,
        "moments": timed.moments,
        **seen,
    }  # fmt: skip


def _lacks_memory(error: BaseException) -> bool:
    told = str(error).lower()
    return isinstance(error, MemoryError | RuntimeError) and any(words in told for words in _LACKS_MEMORY)


DOOR = Door(_timed, _lacks_memory)


def main() -> None:
    """Run one request."""
    run_timing(DOOR)
