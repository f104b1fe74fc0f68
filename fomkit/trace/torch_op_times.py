"""Steps under PyTorch's profiler: how long each took, and the trace that it left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule

from fomkit.trace.stopwatch import Sample

PROFILER = "torch.profiler, with shapes"
_ERROR = 2


@contextmanager
def _silent() -> Iterator[None]:
    """Take away what the profiler's library prints on the standard error, which no setting of its stops."""
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
    """Run steps under the profiler, one more before them, and write their trace.

    Parameters
    ----------
    step : function
    watch : function
        Times a step.
    repeats : int
    path : Path
        Where the trace goes.
    device : str
        ``cpu`` or ``cuda``.
    """
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
