"""An export of Nsight Systems as rows: those of PyTorch's calls where NVTX names them, else of kernels by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fomkit.errors import FomkitError
from fomkit.trace.kineto_events import Events
from fomkit.trace.kineto_model import TraceRows, rows_of, steps_of
from fomkit.trace.nsys_events import device_name, events_of
from fomkit.trace.nsys_file import open_report

RECORD = (
    "Record it with sizes: the steps inside 'with torch.autograd.profiler.emit_nvtx(record_shapes=True)', under "
    "nsys profile --trace=cuda,nvtx python train.py"
)


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
        events.add_all(events_of(report))
        name = device_name(report)
    if not len(events.device_time):
        raise FomkitError(
            str(path), f"has no kernel among its {events.seen:,} events. Check that CUDA was traced."
        )
    found = steps_of(events, {"deviceProperties": [{"name": name}]} if name else {})
    trace = rows_of(found)
    sized = any(row.op.kind not in ("other", "copy") for row in trace.rows)
    told = (
        "partial: NVTX ranges tell the sizes of tensors only: fp32 is taken as their number format, products have "
        "no transposition, and convolutions, norms and what else needs more has a time and no sizes"
        if sized
        else f"partial: a table of kernels by name, without sizes. {RECORD}"
    )
    return replace(trace, notes=(told, *trace.notes))
