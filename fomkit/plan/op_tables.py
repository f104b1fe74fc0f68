"""Times for a user's table of ops (`predict_ops`), the tables behind an estimate's figures, and its timeline.

The projected timeline of a step is written as trace events, which Perfetto and Chrome's viewer show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan, nextafter
from typing import Any, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown, nearest_names
from fomkit.core.interval import DEFAULT_LEVEL, half_width, op_half_width
from fomkit.core.machine import Machine
from fomkit.core.measurement import verdict_on
from fomkit.core.model import ModelProfile
from fomkit.core.units import count_text
from fomkit.ops.check import NUMBERS, check_table, fill_defaults
from fomkit.ops.groups import row_dicts, shape_label
from fomkit.ops.pricing import add_costs, split_recurrent
from fomkit.ops.resize import resize_ops, sizes_used
from fomkit.ops.tables import COSTS, LINE, TIMES, column_names
from fomkit.ops.views import BESIDE, Execution, executions
from fomkit.plan.content import Ends, as_content, span_content
from fomkit.plan.coverage import coverage, library_notes, uses_of, widen_calls
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.memory_of import can_follow, in_formats, step_memory
from fomkit.plan.options import Options
from fomkit.plan.step import device_time
from fomkit.prediction.cascade import add_times, as_added
from fomkit.prediction.estimators import as_rows
from fomkit.prediction.rates import with_fresh

_MADE = tuple(column.name for column in (*COSTS, *TIMES))
_ENDS = ("time_s", "low_s", "high_s")

Sourced = TypedDict("Sourced", {"rows": int, "share": float})
Totals = TypedDict("Totals", {
    "target": str, "interval": float, "rows": int, "time_s": Ends | None, "sources": dict[str, Sourced],
    "unpriced": dict[str, list[int]], "rows_are": str,
})  # fmt: skip


class PredictionContent(Totals):
    """The totals as they are printed."""

    schema: str


def as_terms(timed: pd.DataFrame, level: float) -> pd.DataFrame:
    """Convert TIMED rows of single ops to the terms of a sum: with tails of a normal, and means (`as_added`)."""
    rows, times = as_rows(timed), timed[list(_ENDS)].to_numpy(np.float64).T
    ratios = np.divide(times, times[0], out=np.ones_like(times), where=times[0] > 0)
    times = times[0] * ratios ** (half_width(level) / op_half_width(level))
    times = as_added(rows.text("kind"), rows.text("time_source"), times, level)
    return timed.assign(**dict(zip(_ENDS, times, strict=True)))


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """A table of ops with their times on one machine.

    `ops`: the rows and index of the given table: its columns, with numbers for expressions; the values that it
      left out; flop, byte, launches, time_s, low_s, high_s [s], time_source, bound and evidence.
    `said`: notes on what was filled in, kept unread, or recomputed, one a line.
    `where`: the file or stage that the table comes from.
    """

    ops: pd.DataFrame
    machine: Machine
    level: float
    said: tuple[str, ...]
    where: str = "table"

    @property
    def unpriced(self) -> pd.DataFrame:
        """The rows without a time."""
        return self.ops[self.ops["time_s"].isna()]

    @property
    def table(self) -> pd.DataFrame:
        """The rows with their times: `ops`."""
        return self.ops

    @property
    def totals(self) -> Totals:
        """The totals as plain content: rows and time by source, their sum, and the rows without a time."""
        rows = self.ops.groupby("time_source").size()
        unpriced = self.unpriced
        uses = uses_of(self.machine)
        known = len(unpriced) < len(self.ops)
        total = device_time(as_terms(self.ops, self.level), self.level, uses) if known else None
        shares = {source: share for source, share in coverage(self.ops).items() if source in rows.index}
        timed = sum(shares.values()) or 1.0  # rows without a time have no source
        return as_content(
            Totals, target=self.machine.name, interval=self.level, rows=len(self.ops), time_s=total,
            sources={one: {"rows": int(rows[one]), "share": share / timed} for one, share in shares.items()},
            unpriced={str(kind): group.index.tolist() for kind, group in unpriced.groupby("kind")},
            rows_are="line" if self.ops.index.name == LINE else "row",
        )  # fmt: skip


def _check_sizes(ops: pd.DataFrame, sizes: Mapping[str, int], where: str) -> None:
    used = sizes_used(ops)
    if missing := sorted(used - set(sizes)):
        example = " ".join(f"--set {name}=64" for name in missing)
        raise FomkitError(where, f"its dimensions use {', '.join(missing)}. Give values, for example {example}.")
    for name in sorted(set(sizes) - used):
        raise FomkitError(where, f"no dimension uses the size {name!r}. {nearest_names(name, used)}")


def predict_ops(
    ops: pd.DataFrame,
    machine: Machine,
    *,
    sizes: Mapping[str, int] | None = None,
    interval: float = DEFAULT_LEVEL,
    where: str = "predict_ops",
) -> Prediction:
    """Predict each op of a table on a machine with its fits.

    `ops`: at least ``kind``, ``dtype`` and the dimensions of the kinds (docs/profiles.md), as numbers or
    expressions in named sizes; `fill_defaults` fills in what may be left out; other columns are kept unread;
    `sizes`: the value of each named size; `interval`: share of intervals that should contain the truth; `where`:
    for messages.
    """
    names = set(column_names("OPS"))
    unknown = [name for name in ops.columns if name not in names and name not in _MADE]
    replaced = [name for name in ops.columns if name in _MADE]
    known = ops.drop(columns=[*unknown, *replaced])
    for name in known.columns.intersection(list(NUMBERS)):
        if known[name].dtype.kind in "iub":  # in float64 no product overflows
            known[name] = known[name].astype("float64")
        elif known[name].dtype.kind not in "fOUT":
            raise FomkitError(where, f"the column {name!r} must contain numbers, it is {known[name].dtype}.")
    filled, messages = fill_defaults(known, where)
    _check_sizes(filled, sizes or {}, where)
    sized = resize_ops(filled, sizes or {}, where)
    check_table(sized, "OPS", where)
    costed = add_costs(sized)
    timed = add_times(costed, machine, interval=interval, calls=split_recurrent(costed))
    timed = with_fresh(timed, machine.device)
    given = [name for name in ops.columns if name not in replaced]
    order = [*given, *(name for name in timed.columns if name not in given)]
    if unknown:
        messages = (*messages, f"{', '.join(map(str, unknown))}: unknown; kept unchanged and ignored.")
    if replaced:
        messages = (*messages, f"{', '.join(replaced)}: recomputed; the values of the table are replaced.")
    timed = timed.assign(**{name: ops[name] for name in unknown})[order]
    above = as_terms(timed, interval)["time_s"] / timed["time_s"] - 1
    if many := int((above > 0).sum()):
        mean = f"the sum uses the mean of {count_text(many, 'row')}, up to {above.max():.1%} above the median"
        messages = (*messages, f"{mean} shown: times may be far above the median, but only slightly below.")
    return Prediction(timed, machine, interval, (*messages, *library_notes(machine), *verdict_on(machine)), where)


MOMENTS = 500
"""Number of moments up to which all are shown; of more, the fullest of each of as many stretches, and the ends."""

ROLE_WORDS = {"state": "optimizer state"}


def pareto_table(ops: pd.DataFrame, top: int = 15) -> pd.DataFrame:
    """Return the longest ops of a step by name and sizes, with the time of each pass.

    `ops`: from `fomkit.plan.evidence.op_frame`; `top`: ops to list. Returns a DataFrame: one row per op and pass,
    the longest op first: ``name``, ``pass``, ``pass_s``; of the op's passes together ``time_s``, ``low_s``,
    ``high_s`` [s], ``share`` of the step, ``reached`` (cumulative share).
    """
    known = ops[ops["time_s"].notna()]
    named = known.assign(**{"name": known["label"], "pass": known["pass_name"].str.split("_").str[0]})
    wholes = named.groupby("name", sort=False)[["time_s", "low_s", "high_s", "share"]].sum()
    wholes = wholes.sort_values("time_s", ascending=False, kind="stable").head(top)
    wholes = wholes.assign(reached=wholes["share"].cumsum())
    passes = named.groupby(["name", "pass"], sort=False)["time_s"].sum().rename("pass_s").reset_index()
    return wholes.reset_index().merge(passes, on="name", how="left")


def composition_table(estimate: Estimate, by: str = "kind") -> pd.DataFrame:
    """Return ``pass``, ``part`` (by a column) and ``time_s`` of a step, then its host, input and overheads."""
    ops = estimate.ops[estimate.ops["time_s"].notna()]
    spent = pd.DataFrame(
        {
            "pass": ops["pass_name"].astype("str").str.split("_").str[0], "part": ops[by].astype("str"),
            "time_s": ops["time_s"].to_numpy(np.float64) * ops["count"].to_numpy(np.float64),
        }
    )  # fmt: skip
    sums = spent.groupby(["pass", "part"], sort=False)[["time_s"]].sum().reset_index()
    sums = sums.sort_values("time_s", ascending=False, kind="stable")
    order = {name: place for place, name in enumerate(("forward", "backward", "update"))}
    sums = sums.sort_values("pass", key=lambda column: column.map(order), kind="stable", ignore_index=True)
    beside = {"host, meanwhile": estimate.step_time.host_launch_s, "input, meanwhile": estimate.step_time.input_s,
              "overheads, after it": estimate.step_time.extra_s}  # fmt: skip
    rows = [{"pass": name, "part": BESIDE, "time_s": span.value} for name, span in beside.items()
            if span is not None and span.value > 0]  # fmt: skip
    return pd.concat([sums, pd.DataFrame(rows)], ignore_index=True) if rows else sums


def _shown_moments(live_byte: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    """Select moments: all, or the one with most memory of each stretch, with the first and the last."""
    count = len(live_byte)
    if count <= MOMENTS:
        return list(range(count))
    edges = np.linspace(0, count, MOMENTS + 1).astype(int)
    fullest = [int(first + live_byte[first:last].argmax()) for first, last in pairwise(edges)]
    return sorted({0, *fullest, count - 1})


def memory_table(estimate: Estimate) -> pd.DataFrame:
    """Return the memory of each moment: ``id``, ``role``, ``byte``, ``all_byte``, ``op``, ``pass_name``."""
    model = in_formats(estimate.model, estimate.sizes, estimate.formats) or estimate.model
    use = step_memory(model, estimate.sizes)
    if use is None:
        raise FomkitError(
            estimate.model.name, "has no order of its ops, so its memory over a step is unknown. Profile it again."
        )
    moments = _shown_moments(use.live_byte)
    roles = use.over_time.iloc[moments]
    places = use.moments.iloc[moments]
    place = {"id": moments, "all_byte": use.live_byte[moments], "op": places["op"].to_numpy(),
             "pass_name": places["pass_name"].to_numpy()}  # fmt: skip
    tables = [
        pd.DataFrame({"role": ROLE_WORDS.get(str(role), str(role)), "byte": roles[role].to_numpy(), **place})
        for role in roles.columns
    ]
    return pd.concat(tables, ignore_index=True)


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
    waits = {"waits for the host's launches": step.paced_s, "waits for input": step.input_s}
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
    head = as_content(
        Head, one, schema=SCHEMA, fomkit=__version__, projected="times are predicted, not measured",
        model=model.name, target=machine.name, step_s=one.step, memory=memory,
        device_s=one.step_time.device_s, bound=one.step_time.bound,
        order=_NO_ORDER if order is None else _IN_ORDER,
        deviations=[*one.formats.message.splitlines(), *one.deviations],
    )  # fmt: skip
    return {
        "traceEvents": [
            *names,
            *_step(one),
            *_ops(found, rows, ends),
            *(() if live is None else _memory(live, found, ends)),
        ],
        "displayTimeUnit": "ms",
        "otherData": head,
    }
