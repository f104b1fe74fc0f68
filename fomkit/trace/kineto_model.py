"""A profiler's trace as a model profile: the op table of one step, with the times of the trace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fomkit.errors import FomkitError
from fomkit.trace.kineto_device import DeviceTimes, join_device
from fomkit.trace.kineto_events import Events
from fomkit.trace.kineto_nesting import Nesting
from fomkit.trace.kineto_rows import Row, Rows, usual_dtype
from fomkit.trace.kineto_steps import Collector, Executions
from fomkit.trace.kineto_stream import TraceReader
from fomkit.trace.op_table import count_rows, make_table

if TYPE_CHECKING:
    import pandas as pd

RECORD = (
    "Record it with shapes: torch.profiler.profile(record_shapes=True, activities=[ProfilerActivity.CPU, "
    "ProfilerActivity.CUDA]), then export_chrome_trace"
)
MAX_LISTED = 40


@dataclass(frozen=True)
class TraceRows:
    """What a trace is made of.

    Attributes
    ----------
    rows : tuple of Row
    unsupported : tuple of str
        Ops and kernels without a rule, with their executions in a step.
    notes : tuple of str
        How the rows were made; those that begin with ``partial`` say what is missing.
    head : mapping
        What the file says of itself.
    device : str
        The accelerator's name; "" for a trace of a CPU.
    on_device : bool
        Whether times are those of kernels.
    """

    rows: tuple[Row, ...]
    unsupported: tuple[str, ...]
    notes: tuple[str, ...]
    head: Mapping[str, Any]
    device: str
    on_device: bool


def _entry(value: Any, *keys: Any) -> Any:
    """Look into values of unknown build; ``None`` where nothing is."""
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def _check(events: Events, where: str) -> None:
    if not events.seen:
        raise FomkitError(where, f"has no event. Check that the profiler ran. {RECORD}.")
    if not len(events.start):
        kernels = f"{len(events.device_time):,} kernels and " if len(events.device_time) else ""
        left = _left_out(events)
        raise FomkitError(
            where, f"has {kernels}no op of PyTorch among its {events.seen:,} events{left}. {RECORD}."
        )


def _left_out(events: Events) -> str:
    listed = ", ".join(f"{count:,} {what}" for what, count in events.wrong.items())
    return f" ({listed} were left out)" if listed else ""


def _notes(events: Events, executions: Executions, rows: Rows, device: DeviceTimes, name: str) -> Iterator[str]:
    if events.wrong:
        listed = ", ".join(f"{count:,} {what}" for what, count in events.wrong.items())
        yield f"partial: of {events.seen:,} events were left out: {listed}"
    by = {"ProfilerStep": "as the profiler marks them", "Optimizer.step": "told by the optimizer's"}
    if not executions.told:
        yield "the trace marks no steps (ProfilerStep#N) and is taken as one step"
    else:
        yield f"{executions.alike} of {executions.steps} steps are alike and were taken, {by[executions.told]}"
    if executions.input_calls:
        yield f"{executions.input_calls:,} ops of the data loader were left out"
    timer = f"kernels on {name or 'the device'}" if len(events.device_time) else "calls on the host"
    yield f"traced_time_s: mean time of {timer}, under the profiler"
    if not math.isnan(device.occupancy):
        yield (
            f"achieved occupancy {device.occupancy:.1%}, weighted by the time of kernels "
            f"({device.occupancy_share:.0%} of it says one)"
        )
    told = rows.told
    if told.halved:
        yield f"backward time of {told.halved:,} convolutions or recurrent layers a step was parted in halves"
    if told.unsupported:
        missing = sum(told.unsupported.values())
        yield f"partial: {missing:,} of {told.called:,} executions a step have no rule or no shapes"


class Steps(NamedTuple):
    """A trace taken apart: what it says of itself, its events, who ran inside whom, and its steps' executions."""

    head: Mapping[str, Any]
    events: Events
    nesting: Nesting
    device: DeviceTimes
    executions: Executions
    rows: Rows


def read_steps(path: Path) -> Steps:
    """Read a trace and find its steps.

    Raises
    ------
    FomkitError
        When the file is damaged, or holds no op.
    """
    events, reader = Events(), TraceReader(path)
    events.add_all(reader)
    _check(events, str(path))
    return steps_of(events, reader.head)


def steps_of(events: Events, head: Mapping[str, Any]) -> Steps:
    """Find the steps of events.

    Parameters
    ----------
    events : Events
    head : mapping
        What the file says of itself.
    """
    nesting = Nesting(events)
    device = join_device(events, nesting)
    usual = usual_dtype(events)
    executions = Collector(events, nesting, device, usual).collect()
    ranks = _entry(head, "distributedInfo", "world_size")
    properties = _entry(head, "deviceProperties")
    local = len(properties) if isinstance(properties, list) else 0
    rows = Rows(events, executions, usual, ranks if type(ranks) is int and ranks > 1 else 0, local)
    return Steps(head, events, nesting, device, executions, rows)


def read_trace(path: Path) -> TraceRows:
    """Read a trace of PyTorch's profiler, of CUDA, ROCm or a CPU.

    Parameters
    ----------
    path : Path
        ``trace.json``, packed by gzip or not.

    Raises
    ------
    FomkitError
        When the file is damaged, or holds no op or no shapes.
    """
    found = read_steps(path)
    trace = rows_of(found)
    if not any(row.op.kind != "other" for row in trace.rows):
        shapes = "no shapes" if found.rows.told.without_shapes else "no op that has a rule"
        raise FomkitError(str(path), f"has {shapes} in its {len(found.events.start):,} calls. {RECORD}.")
    return trace


def rows_of(found: Steps) -> TraceRows:
    """Make the rows of the steps of a trace."""
    head, events, _, device, executions, rows = found
    made = tuple(rows)
    name = _entry(head, "deviceProperties", 0, "name")
    name = name if isinstance(name, str) else ""
    unsupported = [f"{one} ×{count}" for one, count in rows.told.unsupported.most_common()]
    more = [f"and {len(unsupported) - MAX_LISTED} more"] if len(unsupported) > MAX_LISTED else []
    return TraceRows(
        made,
        (*unsupported[:MAX_LISTED], *more),
        tuple(_notes(events, executions, rows, device, name)),
        head,
        name,
        bool(len(events.device_time)),
    )


def trace_table(rows: Iterable[Row]) -> pd.DataFrame:
    """Make the OPS table of rows: equal ones are joined, their traced time is the mean over all that have one."""
    joined: dict[object, dict[str, Any]] = {}
    spent: dict[object, list[float]] = {}
    occupied: dict[object, list[float]] = {}
    for row in rows:
        key = (row.op.identity, tuple(row.op.dimensions.items()))
        (entry,), _ = count_rows([row.op])
        if key in joined:
            joined[key]["count"] += row.op.count
        else:
            joined[key] = entry
        times = [time for time in row.times if not math.isnan(time)]
        if times:
            sums = spent.setdefault(key, [0.0, 0.0])
            sums[0] += row.op.count * sum(times) / len(times)  # type: ignore[operator]
            sums[1] += row.op.count  # type: ignore[operator]
            if not math.isnan(row.occupancy):
                weight = float(row.op.count) * sum(times)
                shares = occupied.setdefault(key, [0.0, 0.0])
                shares[0] += row.occupancy * weight
                shares[1] += weight
    for same, (total, count) in spent.items():
        joined[same]["traced_time_s"] = total / count
    for same, (share, weight) in occupied.items():
        if weight:
            joined[same]["traced_occupancy"] = share / weight
    return make_table(list(joined.values()))
