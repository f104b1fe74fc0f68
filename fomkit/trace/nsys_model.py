"""An export of Nsight Systems as rows: those of PyTorch's calls where NVTX names them, else of kernels by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fomkit.errors import FomkitError
from fomkit.trace.busiest import busiest, say_busiest
from fomkit.trace.kineto_events import Events
from fomkit.trace.kineto_model import TraceRows, rows_of, steps_of
from fomkit.trace.nsys_events import devices, events_of, process_times
from fomkit.trace.nsys_file import open_report

RECORD = (
    "Record it with sizes: the steps inside 'with torch.autograd.profiler.emit_nvtx(record_shapes=True)', under "
    "nsys profile --trace=cuda,nvtx python train.py"
)


def _named(times_s: Mapping[int, float], process: int) -> tuple[dict[str, float], str]:
    """Name processes by their own number where that tells them apart, else with the machine's above it."""
    mask = 0xFFFFFF if len({number & 0xFFFFFF for number in times_s}) == len(times_s) else -1
    return {f"process {number & mask}": time_s for number, time_s in times_s.items()}, f"process {process & mask}"


def read_nsys(path: Path) -> TraceRows:
    """Read an export of Nsight Systems.

    Parameters
    ----------
    path : Path
        What ``nsys export --type sqlite`` wrote.

    Raises
    ------
    FomkitError
        When it is no such export, has another schema, or no kernel ran in it.
    """
    events = Events()
    with open_report(path) as report:
        times_s = process_times(report)
        process = busiest(times_s) if len(times_s) > 1 else None
        events.add_all(events_of(report, process))
        properties = devices(report)
    if not len(events.device_time):
        raise FomkitError(
            str(path), f"has no kernel among its {events.seen:,} events. Check that CUDA was traced."
        )
    found = steps_of(events, {"deviceProperties": properties} if properties else {})
    trace = rows_of(found)
    sized = any(row.op.kind not in ("other", "copy") for row in trace.rows)
    told = (
        "partial: NVTX ranges tell the sizes of tensors only: fp32 is taken as their number format, products have "
        "no transposition, and convolutions, norms and what else needs more has a time and no sizes"
        if sized
        else "partial: a table of kernels by name, without sizes; fp32 stands for unknown number formats. "
        f"{RECORD}"
    )
    left = () if process is None else say_busiest("processes", *_named(times_s, process))
    return replace(trace, notes=(told, *left, *trace.notes))
