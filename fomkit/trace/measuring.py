"""Timing a user's model in a child process: the step as it is, and its ops under the framework's profiler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError, ManyFomkitError
from fomkit.measurement import Clock, MeasuredRun, Repeated, StepTimes, Unjoined
from fomkit.trace.child_process import MEASURED, MEASURED_KERAS, run_child
from fomkit.trace.doors import framework_of_file
from fomkit.trace.spent import Spent
from fomkit.trace.xplane_join import Joined

TIME_LIMIT_S = 300.0
MEMORY_LIMIT_BYTE = 16e9
"""A measured model really runs, with weights and data."""
SHARED = 1.05
"""Wall time over processor time of one thread from which a processor counts as shared."""


@dataclass(frozen=True)
class Timed:
    """What was timed.

    Attributes
    ----------
    run : MeasuredRun
        Without its ops.
    profiler : str
    profiled : StepTimes or None
        The step under the profiler; None where only the plain step was asked for.
    spent : tuple of Spent
        All time that the profiler saw in one step.
    joined : Joined or None
        The same put on the rows of the op table already, where nodes of a graph told which; ``rows`` are these.
    """

    run: MeasuredRun
    profiler: str = ""
    profiled: StepTimes | None = None
    spent: tuple[Spent, ...] = ()
    joined: Joined | None = None
    rows: tuple[tuple[str, ...], ...] = ()


def step_times(samples: Sequence[Mapping[str, float]]) -> StepTimes:
    """Sum up the samples of a step, each of them a time [s] by clock."""
    clocks = {name: [one[name] for one in samples] for name in ("process", "wall", "device") if name in samples[0]}
    return StepTimes(len(samples), **{name: Repeated.of(times) for name, times in clocks.items()})


def _clock(device: str, threads: int) -> Clock:
    """Choose the clock that others disturb least; threads that wait for each other use their processors' time."""
    if device == "gpu":
        return "device"
    return "process" if threads == 1 else "wall"


def _factor(run: MeasuredRun, profiled: StepTimes, whole: float, covered: float) -> float:
    """Give by how much times of ops, which profilers read from the wall, exceed one thread's processor time.

    They are medians of steps, which a short op spends undisturbed and a long one does not: none but their sum can
    be held against the clock.
    """
    if run.clock != "process" or profiled.process is None or not whole or not 0 < covered <= 1:
        return 1.0
    return whole / (covered * profiled.process.median_s)


def by_processor(
    run: MeasuredRun, profiled: StepTimes, spent: Sequence[Spent], covered: float
) -> tuple[MeasuredRun, tuple[Spent, ...]]:
    """Bring times of ops from the wall's to the processor's time where one thread shared the processor.

    Parameters
    ----------
    run : MeasuredRun
    profiled : StepTimes
        The step under the profiler.
    spent : sequence of Spent
        By the wall.
    covered : float
        Share of the profiled step that some op ran in.
    """
    factor = _factor(run, profiled, sum(one.time_s for one in spent), covered)
    if _is_alone(factor):
        return run, tuple(spent)  # medians that are shorter met no other; there is nothing to take off
    return _shared(run, factor), tuple(replace(one, time_s=one.time_s / factor) for one in spent)


def _is_alone(factor: float) -> bool:
    return factor < SHARED


def _shared(run: MeasuredRun, factor: float) -> MeasuredRun:
    told = f"times of ops are those of the wall divided by {factor:.3g}, so that their sum is processor time"
    return replace(run, notes=(*run.notes, f"the processor was shared: {told}"))


def _timed(result: Mapping[str, Any]) -> Timed:
    conditions = dict(result["conditions"])
    notes = tuple(conditions.pop("notes"))
    clock = _clock(conditions["device"], conditions["threads"])
    run = MeasuredRun(clock=clock, step=step_times(result["plain"]), notes=notes, **conditions)
    if result["spent"] is None:
        return Timed(run)
    profiled, profiler = step_times(result["profiled"]), result["profiler"]
    if "joined" in result:
        joined = _joined(result["joined"])
        wall_s = math.nan if profiled.wall is None else profiled.wall.median_s
        factor = _factor(run, profiled, joined.whole_s, min(joined.whole_s / wall_s, 1.0))
        rows = tuple(map(tuple, result["rows"]))
        if not _is_alone(factor):
            run, joined = _shared(run, factor), joined.faster(factor)
        return Timed(run, profiler, profiled, joined=joined, rows=rows)
    run, spent = by_processor(
        run, profiled, [Spent(**one) for one in result["spent"]], result.get("covered", math.nan)
    )
    return Timed(run, profiler, profiled, spent)


def _joined(content: Mapping[str, Any]) -> Joined:
    return Joined(**{**content, "unjoined": tuple(Unjoined(**one) for one in content["unjoined"])})


def time_file(
    path: Path,
    *,
    mode: str,
    sizes: Mapping[str, int],
    ops: bool,
    threads: int | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_byte: float = MEMORY_LIMIT_BYTE,
) -> Timed:
    """Time the step of a ``model.py``, on an accelerator where PyTorch finds one.

    Parameters
    ----------
    path : Path
        The file is run, so it must be one you trust.
    mode : str
        ``train`` or ``infer``.
    sizes : mapping
        Named sizes of the step.
    ops : bool
        Whether its ops are timed too, under the profiler.
    threads : int, optional
        Of the framework on the CPU; default: as many as it takes by itself.
    time_limit_s, memory_limit_byte : float
        Wall time [s] and resident memory [byte].

    Raises
    ------
    FomkitError
        When the model does not run, does not fit, or its loss is no finite number.
    """
    where = str(path)
    program = MEASURED_KERAS if framework_of_file(path) == "tensorflow" else MEASURED
    request = {"path": str(path.resolve()), "where": where, "name": path.stem, "mode": mode, "sizes": dict(sizes),
               "ops": ops, "threads": threads}  # fmt: skip
    result = run_child(request, where, time_limit_s, memory_limit_byte, program)
    if "timed" not in result:
        told = [FomkitError(*error) for error in result["errors"]]
        raise told[0] if len(told) == 1 else ManyFomkitError(told)
    return _timed(result["timed"])
