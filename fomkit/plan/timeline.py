"""The projected timeline of a step as trace events, which Perfetto and Chrome's viewer show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import isnan, nextafter
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fomkit import __version__
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.ops.groups import row_dicts, shape_label
from fomkit.ops.resize import resize_ops
from fomkit.ops.views import Execution, executions
from fomkit.plan.content import Ends, as_content, span_content
from fomkit.plan.coverage import uses_of, widen_calls
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.memory_of import can_follow, in_formats, step_memory
from fomkit.plan.options import Options

SCHEMA = "fomkit/timeline/1"
PROCESS, STEP_TRACK = 1, 1
NANOSECONDS = 1e9
_IN_ORDER, _NO_ORDER = "as traced", "unknown: each op is listed once, with all its executions"


def _microseconds(nanoseconds: int) -> float:
    """Convert to the unit of trace events [µs]; a viewer that truncates digits finds the same nanosecond.

    >>> int(1001 / 1000 * 1000), int(_microseconds(1001) * 1000)
    (1000, 1001)
    """
    found = nanoseconds / 1000
    return found if int(found * 1000) == nanoseconds else nextafter(found, float("inf"))


Event = TypedDict("Event", {"name": str, "cat": str, "ph": str, "s": str, "ts": float, "dur": float, "pid": int,
                            "tid": int, "args": Mapping[str, object]}, total=False)  # fmt: skip
Head = TypedDict("Head", {
    "schema": str, "fomkit": str, "projected": str, "model": str, "target": str, "sizes": dict[str, int],
    "precision": str, "step_s": Ends, "device_s": Ends, "bound": str, "order": str, "excludes": list[str],
    "deviations": list[str], "memory": str,
})  # fmt: skip
Timeline = TypedDict("Timeline", {"traceEvents": list[Event], "displayTimeUnit": str, "otherData": Head})


def _slice(name: str, begin: int, end: int, track: int, args: Mapping[str, object] | None = None) -> Event:
    found: Event = {"name": name, "cat": "projected", "ph": "X", "ts": _microseconds(begin),
                    "dur": _microseconds(end - begin), "pid": PROCESS, "tid": track}  # fmt: skip
    return found if args is None else {**found, "args": args}


def _named(kind: str, value: str | int, track: int | None = None) -> Event:
    place: Event = {"pid": PROCESS} if track is None else {"pid": PROCESS, "tid": track}
    argument = "sort_index" if kind.endswith("sort_index") else "name"
    return {"name": kind, "ph": "M", **place, "args": {argument: value}}


def _arguments(row: Mapping[str, Any], count: float) -> dict[str, object]:
    """Return the known properties of one slice; flop and byte are those of all its executions."""
    described = {name: row.get(name) for name in ("module", "code_line", "kind", "dtype", "engine", "pass_name")}
    work = {name: row[name] * count for name in ("flop", "byte")}
    interval = {f"{name}_us": row[f"{name}_s"] * count * 1e6 for name in ("low", "high")}
    how = {name: row.get(name) for name in ("time_source", "bound", "evidence")}
    found = {"shape": shape_label(row), "executions": count, **described, **work, **interval, **how}
    return {name: value for name, value in found.items() if value not in (None, "") and value == value}


def _tracks(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Return the numbers of the tracks of passes and engines, after the track of the step as a whole."""
    pairs = dict.fromkeys((str(row["pass_name"]).partition("_")[0], str(row["engine"])) for row in rows)
    return {pair: number for number, pair in enumerate(pairs, start=STEP_TRACK + 1)}


def _ops(found: Sequence[Execution], rows: Sequence[Mapping[str, Any]], ends: Sequence[int]) -> Iterator[Event]:
    tracks = _tracks(rows)
    for one, (begin, end) in zip(found, pairwise((0, *ends)), strict=True):
        row = rows[one.row]
        track = tracks[str(row["pass_name"]).partition("_")[0], str(row["engine"])]
        arguments = _arguments(row, one.times)
        if isnan(row["time_s"]):
            arguments["time"] = "missing"
            yield {"name": row["op"], "cat": "projected", "ph": "i", "s": "t", "ts": _microseconds(begin),
                   "pid": PROCESS, "tid": track, "args": arguments}  # fmt: skip
        else:
            yield _slice(row["op"], begin, end, track, args=arguments)


def _step(estimated: Estimate) -> Iterator[Event]:
    """Yield the terms of the step: the device's time, the wait after it, and the overheads."""
    step = estimated.step_time
    waits = {"waits for the host's launches": step.host_launch_s, "waits for input": step.input_s}
    wait, until = max(
        ((name, span.value) for name, span in waits.items() if span is not None),
        key=lambda term: term[1],
        default=("", 0.0),
    )
    seconds = step.device_s.value, max(step.device_s.value, until), step.wall_s.value
    device, longest, end = (round(second * NANOSECONDS) for second in seconds)
    span = span_content(step.wall_s)
    yield _slice("projected step", 0, end, STEP_TRACK, args={"step_s": span, "bound": step.bound})
    yield _slice("device", 0, device, STEP_TRACK, args={"device_s": span_content(step.device_s)})
    if longest > device:
        yield _slice(wait, device, longest, STEP_TRACK)
    if end > longest:
        yield _slice("overheads", longest, end, STEP_TRACK)


def _live_byte(estimated: Estimate) -> tuple[NDArray[np.float64] | None, str]:
    """Return the memory in use at each id of the order and a note; None and the reason where it is unknown."""
    model = estimated.model
    if model.order is None:
        return None, "unknown: the profile has no op order"
    if not can_follow(model, estimated.sizes):
        return (
            None,
            f"unknown: the order is valid for the traced {', '.join(sorted(model.resized(estimated.sizes)))} only",
        )
    followed = in_formats(model, estimated.sizes, estimated.formats)
    if followed is None:
        return None, "unknown: it was traced in other number formats"
    use = step_memory(followed, estimated.sizes)
    kept = "as traced" if followed is model else f"of {estimated.formats.name}"
    return None if use is None else use.live_byte, f"as allocated, number formats {kept}"


def _memory(live: NDArray[np.float64], found: Sequence[Execution], ends: Sequence[int]) -> Iterator[Event]:
    """Yield the memory while each op runs; the largest where several moments belong to one op."""
    last = 0
    for one, begin in zip(found, (0, *ends), strict=False):
        if one.last_id is None or one.last_id < last:
            continue
        byte = float(live[last : one.last_id + 1].max())
        last = one.last_id + 1
        yield {"name": "projected memory", "cat": "projected", "ph": "C", "ts": _microseconds(begin),
               "pid": PROCESS, "args": {"byte": byte}}  # fmt: skip


def timeline_content(model: ModelProfile, machine: Machine, options: Options) -> Timeline:
    """Project one step of a model on a machine as a timeline.

    The device runs one op after the other, in the order of the trace where it is known. A wait for the host or for
    input is placed after the last op, because its real place is unknown.

    Returns a dict: trace events in JSON object format (*Trace Event Format*, Google 2016): slices (X) and counters
    (C) in microseconds. ``otherData`` is ``fomkit/timeline/1``. Slices of ops add up to the device time of the
    estimate, and slices of the step's track, without the step itself, to its step time, both to the nanosecond.
    Raises every FomkitError of `estimate`.
    """
    one = estimate(model, machine, options)
    order = None if model.order is None else resize_ops(model.order, one.sizes, f"{model.name}, order")
    timed = widen_calls(one.ops.reset_index(drop=True), uses_of(machine), options.interval)
    rows = row_dicts(timed)
    found = executions(timed["count"].tolist(), order)
    seconds = np.cumsum([np.nan_to_num(rows[each.row]["time_s"]) * each.times for each in found])
    ends = [round(end * NANOSECONDS) for end in seconds.tolist()]
    live, memory = _live_byte(one)
    tracks = {"step": STEP_TRACK, **{", ".join(pair): number for pair, number in _tracks(rows).items()}}
    names = [_named("process_name", f"projected by fomkit, not measured: {model.name} on {machine.name}")]
    for name, number in tracks.items():
        names += [_named("thread_name", name, number), _named("thread_sort_index", number, number)]
    return {
        "traceEvents": [
            *names,
            *_step(one),
            *_ops(found, rows, ends),
            *(() if live is None else _memory(live, found, ends)),
        ],
        "displayTimeUnit": "ms",
        "otherData": _head(one, _IN_ORDER if order is not None else _NO_ORDER, memory),
    }


def _head(estimated: Estimate, order: str, memory: str) -> Head:
    deviations = [*estimated.formats.message.splitlines(), *estimated.deviations]
    return as_content(
        Head, estimated, schema=SCHEMA, fomkit=__version__, projected="times are predicted, not measured",
        model=estimated.model.name, target=estimated.machine.name, step_s=estimated.step, memory=memory,
        device_s=estimated.step_time.device_s, bound=estimated.step_time.bound, order=order, deviations=deviations,
    )  # fmt: skip
