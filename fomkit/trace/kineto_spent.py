"""All time that a trace saw in a step: the rows' own, and what ran outside of them, so that nothing is dropped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fomkit.trace.kineto_model import Steps, read_steps
from fomkit.trace.kineto_nesting import step_windows
from fomkit.trace.kineto_rows import Row
from fomkit.trace.spent import Spent
from fomkit.trace.step_spread import step_sums

_FRAME = "autograd::engine::evaluate_function"
_SPANS = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#")
"""Marks around ops; their own time is the program's, not the framework's."""
CALM = 0.25
"""Share of steps that are taken for undisturbed; their end is the quartile."""


def _shares(rows: list[Row]) -> list[float]:
    """Part the time of a call among its works: as the trace parts it, else all to the first."""
    means = [float(np.nanmean(row.times)) if not np.isnan(row.times).all() else 0.0 for row in rows]
    whole = sum(means)
    if len(rows) == 1 or whole <= 0:
        return [1.0, *[0.0] * (len(rows) - 1)]
    return [mean / whole for mean in means]


def _rows(steps: Steps) -> Iterator[Spent]:
    for key, count in steps.executions.counts.items():
        sums = step_sums(steps.executions.times[key], count)
        calm, whole = map(float, np.quantile(sums, [CALM, 0.5]))
        rows = list(steps.rows.of(key))
        halved = key in steps.rows.told.halves
        for row, share in zip(rows, _shares(rows), strict=True):
            op = row.op
            times = (share * whole, share * calm)
            yield Spent(op.op, op.kind, op.dtype, op.pass_name, op.dimensions, count, *times, halved)


def _without_rows(steps: Steps) -> Iterator[Spent]:
    """Give the time of host ops that are no rows and in none, without that of what runs inside them."""
    events, nesting = steps.events, steps.nesting
    windows, _ = step_windows(events)
    count = len(events.start)
    own = [events.end[event] - events.start[event] for event in range(count)]
    for event in range(count):
        if (around := nesting.parent[event]) >= 0:
            own[around] -= events.end[event] - events.start[event]
    starts = np.array([start for start, _ in windows])
    times: dict[str, list[float]] = {}
    counts: Counter[str] = Counter()
    for event in range(count):
        name = events.names.values[events.name[event]]
        step = int(np.searchsorted(starts, events.start[event], side="right")) - 1
        if name.startswith(_SPANS) or nesting.row_around(event) >= 0 or not 0 <= step < len(windows):
            continue
        if events.start[event] < windows[step][1]:
            name = _FRAME if name.startswith(_FRAME) else name
            times.setdefault(name, [0.0] * len(windows))[step] += own[event] / 1e6
            counts[name] += 1
    for name, of_steps in times.items():
        calm, middle = map(float, np.quantile(of_steps, [CALM, 0.5]))
        yield Spent(name, "", "", "", {}, max(round(counts[name] / len(windows)), 1), middle, calm)


def _covered(steps: Steps) -> float:
    """Give the share of a step's time that some op ran in; NaN where no step is marked."""
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
    """Give all time that a trace saw in one step, by op, and the share of a step that these ops fill.

    Parameters
    ----------
    path : Path
        A trace whose steps are marked. Where it has times of an accelerator, these count and the host's do not.

    Raises
    ------
    FomkitError
        When the trace holds no op.
    """
    steps = read_steps(path)
    found = list(_rows(steps))
    if not len(steps.events.device_time):
        found += _without_rows(steps)
    return [one for one in found if one.time_s > 0 and math.isfinite(one.time_s)], _covered(steps)
