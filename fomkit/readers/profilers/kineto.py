"""Read a profiler's trace as a model profile, as the times of all ops in one step, and as timings of a machine.

`model_of_trace`, `time_spent` and `timings_of_trace` are the three results; `read_steps` does the common part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError, printable
from fomkit.core.model import ModelProfile
from fomkit.core.units import agree, count_text
from fomkit.frontends.step import count_rows
from fomkit.frontends.step_spread import (
    Spent,
    busiest_notes,
    cold_note,
    contention_notes,
    spread_notes,
    step_sums,
    sum_notes,
)
from fomkit.ops.check import check_table
from fomkit.ops.tables import empty_table, table_of_rows
from fomkit.readers.profilers.kineto_device import DeviceTimes, join_device
from fomkit.readers.profilers.kineto_nesting import Nesting, step_at, step_windows
from fomkit.readers.profilers.kineto_rows import Row, Rows, commonest_dtype, trace_timings
from fomkit.readers.profilers.kineto_steps import Collector, Executions
from fomkit.readers.profilers.kineto_stream import Events, TraceReader
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount, counts_of, make_timings

RECORD = (
    "Record it with shapes: torch.profiler.profile(record_shapes=True, activities=[ProfilerActivity.CPU, "
    "ProfilerActivity.CUDA]), then export_chrome_trace"
)
MAX_LISTED = 40


@dataclass(frozen=True)
class TraceRows:
    """The rows of a trace.

    `unsupported`: ops and kernels without a rule, with their executions in a step.
    `notes`: how the rows were made; those that begin with ``partial`` say what is missing.
    `properties`: facts in the file about the accelerator.
    `device`: the accelerator's name; "" for a trace of a CPU.
    `on_device`: whether times are those of kernels.
    `step_s`: time of all ops in each step that is used [s].
    """

    rows: tuple[Row, ...]
    unsupported: tuple[str, ...]
    notes: tuple[str, ...]
    properties: Mapping[str, Any]
    device: str
    on_device: bool
    step_s: tuple[float, ...]


def _left_out(events: Events) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in events.wrong.items())


def _trace_notes(
    events: Events, executions: Executions, rows: Rows, device: DeviceTimes, name: str
) -> Iterator[str]:
    if events.wrong:
        yield f"partial: of {events.seen:,} events these were left out: {_left_out(events)}"
    by = {"ProfilerStep": "as the profiler marks them", "Optimizer.step": "each ending with the optimizer's step"}
    cold = executions.cold
    if not executions.marked_by:
        yield "the trace marks no steps (ProfilerStep#N) and counts as one step"
    else:
        used, alike = len(executions.step_s), executions.similar
        taken = "and were used" if cold is None else f"and {used} of these {agree(used, 'was/were')} used"
        of = f"{alike} of {count_text(executions.steps, 'step')} {agree(alike, 'is/are')} alike"
        yield f"{of} {taken}, {by[executions.marked_by]}"
    if cold is not None:
        yield cold_note(f"step {cold[0] + 1} of {executions.steps}", cold[1], executions.step_s)
    if executions.input_calls:
        count = executions.input_calls
        yield f"{agree(count, f'1 op of the data loader was/{count:,} ops of the data loader were')} left out"
    named = {f"device {unit}": time_s for unit, time_s in device.unit_s.items()}
    yield from busiest_notes("devices", named, f"device {device.unit}")
    timer = f"kernels on {name or 'the device'}" if len(events.device_time) else "calls on the host"
    yield from spread_notes(timer, executions.step_s)
    yield from contention_notes(executions.times.values(), executions.step_s, executions.wall_s)
    if not math.isnan(device.occupancy):
        yield (
            f"achieved occupancy {device.occupancy:.1%}, weighted by the time of kernels "
            f"({device.occupancy_share:.0%} of that time has one)"
        )
    call_counts = rows.call_counts
    if call_counts.halved:
        halved = f"{call_counts.halved:,} convolutions or recurrent layers"
        yield f"backward time of {halved} a step was divided equally between the two gradients"
    if call_counts.unsupported:
        missing = sum(call_counts.unsupported.values())
        of = f"{missing:,} of {call_counts.called:,} executions a step"
        yield f"partial: {of} {agree(missing, 'has/have')} no rule or no shapes"


class Steps(NamedTuple):
    """A trace divided into its parts: file facts, events, nesting of calls, device times, executions, rows."""

    head: Mapping[str, Any]
    events: Events
    nesting: Nesting
    device: DeviceTimes
    executions: Executions
    rows: Rows


def read_steps(path: Path) -> Steps:
    """Read a trace and find its steps."""
    events, reader, where = Events(), TraceReader(path), str(path)
    events.add_all(reader)
    if not events.seen:
        raise FomkitError(where, f"has no event. Check that the profiler ran. {RECORD}.")
    if not len(events.start):
        kernels = f"{len(events.device_time):,} kernels and " if len(events.device_time) else ""
        left = f" ({_left_out(events)} were left out)" if events.wrong else ""
        raise FomkitError(
            where, f"has {kernels}no op of PyTorch among its {events.seen:,} events{left}. {RECORD}."
        )
    processes = {name: count for name, count in events.processes.items() if count}
    if len(processes) > 1:
        listed = ", ".join(f"{printable(name)} ({count:,} ops)" for name, count in sorted(processes.items())[:8])
        raise FomkitError(
            where,
            f"holds ops of {len(processes)} processes: {listed}, and does not state which process launched a "
            "kernel. Give the trace that one process wrote.",
        )
    return steps_of(events, reader.head)


def steps_of(events: Events, head: Mapping[str, Any]) -> Steps:
    """Find the steps of events; ``head`` holds the facts in the file besides its events."""
    nesting = Nesting(events)
    device = join_device(events, nesting)
    default_dtype = commonest_dtype(events)
    executions = Collector(events, nesting, device, default_dtype).collect()
    launched, properties = head.get("distributedInfo"), head.get("deviceProperties")
    ranks = launched.get("world_size") if isinstance(launched, dict) else None
    local = len(properties) if isinstance(properties, list) else 0
    rows = Rows(events, executions, default_dtype, ranks if type(ranks) is int and ranks > 1 else 0, local)
    return Steps(head, events, nesting, device, executions, rows)


def read_trace(path: Path) -> TraceRows:
    """Read a trace of PyTorch's profiler (``trace.json``, gzipped or not), of CUDA, ROCm or a CPU."""
    found = read_steps(path)
    trace = rows_of(found)
    if not any(row.op.kind != "other" for row in trace.rows):
        shapes = "no shapes" if found.rows.call_counts.without_shapes else "no op that has a rule"
        raise FomkitError(str(path), f"has {shapes} in its {len(found.events.start):,} calls. {RECORD}.")
    return trace


def rows_of(found: Steps) -> TraceRows:
    """Make the rows of the steps of a trace."""
    head, events, _, device, executions, rows = found
    made = tuple(rows)
    # The file's facts of the device; if they are not numbered, those common to all devices.
    facts = head.get("deviceProperties")
    known = [one for one in facts if isinstance(one, dict)] if isinstance(facts, list) else []
    numbered = [one for one in known if str(one.get("id")) == device.unit]
    similar = known if len({str(one.get("name")) for one in known}) == 1 else []
    properties: Mapping[str, Any] = next(iter(numbered or similar), {})
    name = name if isinstance(name := properties.get("name"), str) else ""
    unsupported = [f"{one} ×{count}" for one, count in rows.call_counts.unsupported.most_common()]
    more = [f"and {len(unsupported) - MAX_LISTED} more"] if len(unsupported) > MAX_LISTED else []
    notes, on_device = tuple(_trace_notes(events, executions, rows, device, name)), bool(len(events.device_time))
    listed = (*unsupported[:MAX_LISTED], *more)
    return TraceRows(made, listed, notes, properties, name, on_device, executions.step_s)


def batch_note(sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note that the samples of a step are not known, unless the user gives them."""
    return () if "batch" in sizes else ("the samples of a step are not in a trace; give them with --set batch=N",)


def bare_model(path: Path, ops: pd.DataFrame, sizes: Mapping[str, int], **known: str) -> ModelProfile:
    """Make a model from a table of ops alone; ``known`` is the head's ``traced_with``."""
    name = path.name.partition(".")[0]
    return ModelProfile(name, name, ops, empty_table("OPS"), sizes, known)


def trace_table(rows: Iterable[Row]) -> pd.DataFrame:
    """Make the OPS table of rows; equal rows are joined.

    Their traced time is that of all their executions in a step (median over steps), divided by their count.
    """
    joined: dict[object, dict[str, Any]] = {}
    spent: dict[object, NDArray[np.float64]] = {}
    timed: Counter[object] = Counter()
    occupied: dict[object, list[float]] = {}
    for row in rows:
        key = row.op.key
        (entry,), _ = count_rows([row.op])
        if key in joined:
            joined[key]["count"] += row.op.count
        else:
            joined[key] = entry
        times = np.asarray(row.times, dtype=np.float64)
        if not np.isnan(times).all():
            sums = step_sums(times, int(row.op.count))
            spent[key] = spent[key] + sums if key in spent else sums
            timed[key] += int(row.op.count)
            if not math.isnan(row.occupancy):
                weight = float(row.op.count) * float(np.nansum(times))
                shares = occupied.setdefault(key, [0.0, 0.0])
                shares[0] += row.occupancy * weight
                shares[1] += weight
    for same, sums in spent.items():
        joined[same]["traced_time_s"] = float(np.median(sums)) / timed[same]
    for same, (share, weight) in occupied.items():
        if weight:
            joined[same]["traced_occupancy"] = share / weight
    return table_of_rows(list(joined.values()), "OPS")


_FRAME = "autograd::engine::evaluate_function"
_SPANS = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#")
"""Marks around ops; the time of the marks themselves is the program's, not the framework's."""
CALM = 0.25
"""Share of steps that count as undisturbed; their upper bound is this quantile."""


def _work_shares(rows: list[Row]) -> list[float]:
    """Return the shares of a call's time for its works: as the trace divides it, else all for the first."""
    means = [float(np.nanmean(row.times)) if not np.isnan(row.times).all() else 0.0 for row in rows]
    whole = sum(means)
    if len(rows) == 1 or whole <= 0:
        return [1.0, *[0.0] * (len(rows) - 1)]
    return [mean / whole for mean in means]


def _spent_rows(steps: Steps) -> Iterator[Spent]:
    for key, count in steps.executions.counts.items():
        sums = step_sums(steps.executions.times[key], count)
        calm, whole = map(float, np.quantile(sums, [CALM, 0.5]))
        rows = list(steps.rows.of(key))
        halved = key in steps.rows.call_counts.halves
        for row, share in zip(rows, _work_shares(rows), strict=True):
            op = row.op
            times = (share * whole, share * calm)
            yield Spent(op.op, op.kind, op.dtype, op.pass_name, op.dimensions, count, *times, halved)


def _without_rows(steps: Steps) -> Iterator[Spent]:
    """Yield the time of host ops outside all rows, without the time of ops inside them."""
    events, nesting = steps.events, steps.nesting
    windows, _ = step_windows(events)
    count = len(events.start)
    own = [events.end[event] - events.start[event] for event in range(count)]
    for event in range(count):
        if (around := nesting.parent[event]) >= 0:
            own[around] -= events.end[event] - events.start[event]
    times: dict[str, list[float]] = {}
    counts: Counter[str] = Counter()
    for event in range(count):
        name = events.names.values[events.name[event]]
        step = step_at(windows, events.start[event])
        if name.startswith(_SPANS) or nesting.row_around(event) >= 0 or step < 0:
            continue
        name = _FRAME if name.startswith(_FRAME) else name
        times.setdefault(name, [0.0] * len(windows))[step] += own[event] / 1e6
        counts[name] += 1
    for name, of_steps in times.items():
        calm, median = map(float, np.quantile(of_steps, [CALM, 0.5]))
        yield Spent(name, "", "", "", {}, max(round(counts[name] / len(windows)), 1), median, calm)


def _covered(steps: Steps) -> float:
    """Return the share of a step's time in which some op ran; NaN if no step is marked."""
    events, parent = steps.events, steps.nesting.parent
    windows, _ = step_windows(events)
    starts = np.array([start for start, _ in windows])
    inside = np.zeros(len(windows))
    marks = [name.startswith(_SPANS) for name in events.names.values]
    for event, start in enumerate(events.start):
        if marks[events.name[event]]:
            continue
        around = parent[event]
        while around >= 0 and marks[events.name[around]]:
            around = parent[around]
        step = int(np.searchsorted(starts, start, side="right")) - 1
        if around < 0 and 0 <= step < len(windows):
            inside[step] += events.end[event] - start
    shares = [time / (end - start) for time, (start, end) in zip(inside, windows, strict=True)]
    return float(np.median(shares)) if shares else math.nan


def time_spent(path: Path) -> tuple[list[Spent], float]:
    """Return all time in one step of a trace, by op, and the share of a step that these ops fill.

    `path`: a trace whose steps are marked. If it has times of an accelerator, these count and the host's do not.
    """
    steps = read_steps(path)
    found = list(_spent_rows(steps))
    if not len(steps.events.device_time):
        found += _without_rows(steps)
    return [one for one in found if one.time_s > 0 and math.isfinite(one.time_s)], _covered(steps)


def model_of_trace(
    path: Path, sizes: Mapping[str, int], read: Callable[[Path], TraceRows] = read_trace
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile of a trace of PyTorch's profiler.

    `sizes`: named sizes of the step that was recorded; `read`: reads the trace. Returns a model with
    ``traced_time_s`` in its ops, and notes on how it was made and what is missing.
    """
    trace = read(path)
    ops = trace_table(trace.rows)
    check_table(ops, "OPS", str(path))
    updates = [row.op.dimensions for row in trace.rows if row.op.kind == "optimizer"]
    trainable = sum(int(update["numel"]) for update in updates)
    passes = {row.op.pass_name for row in trace.rows}
    mode = "infer" if passes == {"forward"} else "train"
    device = printable(trace.device) or ("accelerator" if trace.on_device else "cpu")
    updated = (f"the optimizer updates {trainable:,} parameters",) if trainable else ()
    added = sum_notes(float((ops["count"] * ops["traced_time_s"]).sum()), trace.step_s)
    messages = (*trace.notes, *added, *updated, *batch_note(sizes))
    optimizer = {key: str(updates[0][key]) for key in ("rule", "impl")} if updates else {}
    profile = bare_model(path, ops, sizes, framework="torch", device=device, mode=mode)
    return replace(profile, optimizer=optimizer, unsupported=tuple(map(printable, trace.unsupported))), messages


_SPECS = ("name", "totalGlobalMem", "numSms", "computeMajor", "computeMinor", "maxThreadsPerBlock")


def timings_of_trace(path: Path) -> ImportedTimings:
    """Read the times of a trace's calls as timings of the machine that it was recorded on.

    If the trace has kernels, a call's time is the sum of its kernels; else that of the call on the host.
    """
    trace = read_trace(path)
    table, dropped = trace_timings(trace.rows)
    if table.empty:
        raise FomkitError(str(path), "has no call with shapes and a time of its own. Record whole steps.")
    timer = "kernels" if trace.on_device else "calls on the host"
    columns: dict[str, object] = {str(name): table[name] for name in table}
    columns |= {"harness": f"torch.profiler, {timer}", "library": "PyTorch", "source_row": float("nan")}
    if trace.on_device:
        columns["harness_s"] = 0.0
    timings = make_timings(columns, table.index, path)
    counts = counts_of(timings, "trace") + tuple(
        SectionCount("-", "trace", skipped=rows, reason=why, kind=kind) for (kind, why), rows in dropped.items()
    )
    specs = {key: printable(str(trace.properties[key])[:80]) for key in _SPECS if key in trace.properties}
    left_out = tuple(trace.unsupported[:5])
    return ImportedTimings(timings, printable(trace.device), specs, counts, trace.notes, left_out)
