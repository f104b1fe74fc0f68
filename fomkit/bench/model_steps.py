"""Timing a user's model in a child process, whatever framework it is of.

The plain step is timed again and again, and between its halves the step under the framework's profiler, by every
clock there is: the processor's time, the wall's, and events on an accelerator.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from fomkit.bench.power import ReadEnergy
from fomkit.bench.record import load
from fomkit.core.errors import FomkitError
from fomkit.core.measurement import SHARED, Clock, MeasuredRun, Repeated, StepTimes, Unjoined
from fomkit.core.units import round_quantity
from fomkit.files.child_process import MEASURED, MEASURED_KERAS, error_in, run_child, told_error
from fomkit.frontends.drafting import Request, run_file_request
from fomkit.frontends.model_file import Framework, explain_exception, framework_of_file
from fomkit.frontends.step_spread import Spent
from fomkit.harness.torch.cases import order_statistics
from fomkit.readers.profilers.xplane import JoinedNodes

TIME_LIMIT_S = 300.0
MEMORY_LIMIT_BYTE = 16e9
"""A measured model really runs, with weights and data."""
MOST_SHARED = 1.5
"""`SHARED`, above which no times of ops are kept, as the one factor is far from that of any single op."""

NO_ENERGY = "energy: not measured, "
"""How a note begins that says why."""


@dataclass(frozen=True)
class Timed:
    """What was timed.

    `run`: without its ops.
    `profiled`: the step under the profiler; None where only the plain step was asked for.
    `spent`: all time that the profiler saw in one step.
    `joined`: the same put on the rows of the op table already, where nodes of a graph told which; ``rows`` are
      these.
    `scaled_by`: what times of ops were divided by, where they shared a processor.
    """

    run: MeasuredRun
    profiler: str = ""
    profiled: StepTimes | None = None
    spent: tuple[Spent, ...] = ()
    joined: JoinedNodes | None = None
    rows: tuple[tuple[str, ...], ...] = ()
    scaled_by: float = 1.0

    @property
    def whole_s(self) -> float:
        """Time of all ops of a step [s]."""
        return sum(one.time_s for one in self.spent) if self.joined is None else self.joined.whole_s


def repeated(times_s: Sequence[float]) -> Repeated:
    """Sum up the times of repeats [s], in six digits.

    >>> found = repeated([5.0, 1.0, 3.0, 2.0, 4.0, 6.0])
    >>> found.median_s, found.p25_s, found.p75_s, found.low_s, found.high_s
    (3.5, 2.25, 4.75, 1.0, 6.0)
    >>> repeated([1.0, 2.0, 3.0]).low_s is None
    True
    """
    ordered = sorted(round_quantity(one, "time_s") for one in times_s)
    several, ranks = len(ordered) > 1, order_statistics(len(ordered))
    p25, middle, p75 = quantiles(ordered, n=4, method="inclusive") if several else ordered * 3
    tenths = quantiles(ordered, n=10, method="inclusive") if several else ordered * 9
    low, high = (ordered[rank - 1] for rank in ranks) if ranks else (None, None)
    percentiles = (middle, p25, p75, tenths[0], tenths[-1])
    middle, p25, p75, p10, p90 = (round_quantity(one, "time_s") for one in percentiles)
    return Repeated(middle, p25, p75, low, high, p10, p90)


def step_times(samples: Sequence[Mapping[str, float]]) -> StepTimes:
    """Sum up the samples of a step, each of them a time [s] by clock."""
    clocks = {
        name: [sample[name] for sample in samples] for name in ("process", "wall", "device") if name in samples[0]
    }
    return StepTimes(len(samples), **{name: repeated(times) for name, times in clocks.items()})


def _wall_over_processor(timed: Timed, covered: float) -> float:
    """Give by how much times of ops, which profilers read from the wall, exceed one thread's processor time.

    Only their sum can be held against the clock.
    """
    process = None if timed.profiled is None else timed.profiled.process
    if timed.run.clock != "process" or process is None or not timed.whole_s or not 0 < covered <= 1:
        return 1.0
    return timed.whole_s / (covered * process.median_s)


def by_processor(timed: Timed, covered: float) -> Timed:
    """Bring times of ops from the wall's to the processor's time where one thread shared the processor.

    First those of the steps that were disturbed least are taken; what is left over is divided by one factor for
    all, which errs on each: a short op ran mostly undisturbed, a long one never. Where the factor is large, there
    is no telling by how much, and no times of ops are kept.

    `timed`: its ops by the wall; `covered`: share of the profiled step that some op ran in.
    """
    if _wall_over_processor(timed, covered) < SHARED:
        return timed  # medians that are shorter met no other; there is nothing to take off
    timed = _calm(timed)
    factor = _wall_over_processor(timed, covered)
    if factor < SHARED:
        return timed
    if factor > MOST_SHARED:
        why = f"by the wall its ops took {factor:.3g} times their processor time, so that no times of ops are kept"
        text = f"the processor was shared: {why}; run again when it is quiet, or with --measure step"
        return Timed(_noted(timed.run, text))
    text = f"times of ops are those of the wall divided by {factor:.3g}, so that their sum is processor time"
    run = _noted(timed.run, f"the processor was shared: {text}")
    spent = tuple(replace(one, time_s=one.time_s / factor) for one in timed.spent)
    joined = None if timed.joined is None else timed.joined.faster(factor)
    return replace(timed, run=run, spent=spent, joined=joined, scaled_by=factor)


def _calm(timed: Timed) -> Timed:
    """Take the times of the least disturbed steps, where steps are told apart."""
    if not timed.spent or any(math.isnan(one.calm_s) for one in timed.spent):
        return timed
    text = "the time of each op is that of the quarter of profiled steps that disturbed it least"
    spent = tuple(replace(one, time_s=one.calm_s) for one in timed.spent if one.calm_s > 0)
    return replace(timed, run=_noted(timed.run, f"the processor was shared: {text}"), spent=spent)


def _noted(run: MeasuredRun, text: str) -> MeasuredRun:
    return replace(run, notes=(*run.notes, text))


def _timed_by_child(result: Mapping[str, Any]) -> Timed:
    """Read what a child leaves (`timed_step`)."""
    conditions = dict(result["conditions"])
    notes = tuple(conditions.pop("notes"))
    # The clock that others disturb least; threads that wait for each other use their processors' time.
    on_processor: Clock = "process" if conditions["threads"] == 1 else "wall"
    clock: Clock = "device" if conditions["device"] == "gpu" else on_processor
    run = MeasuredRun(clock=clock, step=step_times(result["plain"]), notes=notes, **conditions)
    ops = result["ops"]
    if ops is None:
        return Timed(run)
    seen = Timed(run, ops["profiler"], step_times(ops["profiled"]))
    if ops["joined"] is None:
        spent = tuple(Spent(**one) for one in ops["spent"])
        return by_processor(replace(seen, spent=spent), ops["covered"])
    unjoined = tuple(Unjoined(**one) for one in ops["joined"]["unjoined"])
    joined = JoinedNodes(**{**ops["joined"], "unjoined": unjoined})
    wall = None if seen.profiled is None else seen.profiled.wall
    covered = math.nan if wall is None else min(joined.whole_s / wall.median_s, 1.0)
    return by_processor(replace(seen, joined=joined, rows=tuple(map(tuple, ops["rows"]))), covered)


def _with_energy(timed: Timed, result: Mapping[str, Any], read: ReadEnergy) -> Timed:
    run = timed.run
    found = read(run.device, [(begin, end) for begin, end in result["moments"]], run.step.repeats)
    if isinstance(found, str):
        return replace(timed, run=_noted(run, f"{NO_ENERGY}{found}"))
    return replace(timed, run=replace(run, energy=found))


def check_timed(path: Path, precision: str = "") -> Framework:
    """Give the framework of a file whose model can be timed, at a precision if one is asked for."""
    framework = framework_of_file(path)
    if framework == "keras_torch":
        raise FomkitError(
            str(path),
            "Keras on PyTorch is not timed yet. Time it on TensorFlow (KERAS_BACKEND=tensorflow), or leave "
            "--measure out.",
        )
    if precision and framework != "torch":
        raise FomkitError(
            str(path),
            f"--precision {precision} is autocast, which PyTorch has. Set Keras's policy in the file: "
            "keras.config.set_dtype_policy('mixed_bfloat16').",
        )
    return framework


def time_file(
    path: Path,
    *,
    mode: str,
    sizes: Mapping[str, int],
    ops: bool,
    threads: int | None = None,
    precision: str = "",
    energy: ReadEnergy | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_byte: float = MEMORY_LIMIT_BYTE,
) -> Timed:
    """Time the step of a ``model.py``, on an accelerator where PyTorch finds one.

    `path`: the file is run, so it must be one you trust; `mode`: ``train`` or ``infer``; `sizes`: named sizes of
    the step; `ops`: whether its ops are timed too, under the profiler; `threads`: of the framework on the CPU;
    default: as many as it takes by itself; `precision`: ``bf16`` for a step under autocast; "" for the step as the
    file has it; `energy`: gives the energy of a step, once it is known when the plain steps ran; `time_limit_s`,
    `memory_limit_byte`: wall time [s] and resident memory [byte].
    """
    where, framework = str(path), check_timed(path, precision)
    program = MEASURED_KERAS if framework == "tensorflow" else MEASURED
    request = {"path": str(path.resolve()), "where": where, "name": path.stem, "mode": mode, "sizes": dict(sizes),
               "ops": ops, "threads": threads, "precision": precision}  # fmt: skip
    result = run_child(request, where, time_limit_s, memory_limit_byte, program)
    if "timed" not in result:
        raise error_in(result)
    timed = _timed_by_child(result["timed"])
    return timed if energy is None else _with_energy(timed, result["timed"], energy)


Sample = dict[str, float]
"""Time of one step [s], by clock."""


def _on_processor(step: Callable[[], Any]) -> Sample:
    wall, process = time.perf_counter(), time.process_time()
    step()
    return {"process": time.process_time() - process, "wall": time.perf_counter() - wall}


def stopwatch(cuda: Any = None) -> Callable[[Callable[[], Any]], Sample]:
    """Give what times one step.

    `cuda`: ``torch.cuda`` where the step runs on an accelerator: events tell when it is reached and done there,
    and the wall's clock waits for it.
    """
    if cuda is None:
        return _on_processor

    def on_device(step: Callable[[], Any]) -> Sample:
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)

        def timed() -> None:
            start.record()
            step()
            end.record()
            end.synchronize()

        cuda.synchronize()
        sample = _on_processor(timed)
        return {**sample, "device": float(start.elapsed_time(end)) / 1e3}

    return on_device


WARM_UP = 3
"""Steps before the first timed one; the first of them makes the optimizer's state."""
LEAST, MOST = 6, 50
"""Repeats of the plain step; fewer than six have no interval of their median."""
LEAST_PROFILED, MOST_PROFILED = 3, 10
PLAIN_S, PROFILED_S = 15.0, 10.0
"""Time [s] that repeats may take together, unless they are the least."""


@dataclass(frozen=True)
class TimedSteps:
    """Samples of the plain step, of the profiled one where it was asked for, and the last result.

    ``moments`` are begin and end [s] of each half of the plain steps, by the clock that all processes share.
    """

    plain: list[Sample]
    profiled: list[Sample]
    last: Any
    moments: list[tuple[float, float]]


def _repeats(once_s: float, time_s: float, least: int, most: int) -> int:
    return min(most, max(least, int(time_s / max(once_s, 1e-9))))


def time_steps(
    step: Callable[[], Any],
    watch: Callable[[Callable[[], Any]], Sample],
    profiled: Callable[[int], list[Sample]] | None,
    check_first: Callable[[Any], None],
) -> TimedSteps:
    """Time a step.

    `step`: runs a step and gives its result; `watch`: times a step; `profiled`: times profiled steps; they run
    between two halves of the plain ones, so that a machine that slows down does so for both; `check_first`: raises
    where it is of no use.
    """
    check_first(step())
    for _ in range(WARM_UP - 2):
        step()
    once = watch(step)["wall"]
    repeats = _repeats(once, PLAIN_S, LEAST, MOST)
    plain, moments = list[Sample](), list[tuple[float, float]]()

    def time_half(many: int) -> None:
        begun = time.monotonic()
        plain.extend([watch(step) for _ in range(many)])
        moments.append((begun, time.monotonic()))

    time_half(repeats - repeats // 2)
    samples = []
    if profiled is not None:
        samples = profiled(_repeats(once, PROFILED_S, LEAST_PROFILED, MOST_PROFILED))
        step()
    time_half(repeats // 2)
    return TimedSteps(plain, samples, step(), moments)


@dataclass(frozen=True)
class ProfiledOps:
    """What a profiler saw of a step's ops.

    `profiled`: samples of the profiled step.
    `spent`: time by op, and `covered`, the share of the profiled step that some op ran in.
    `joined`: or times of nodes put on the op table already; ``rows`` are op, pass and module of its rows.
    """

    profiler: str
    profiled: list[Sample]
    spent: Sequence[Spent] = ()
    covered: float = math.nan
    joined: JoinedNodes | None = None
    rows: Sequence[Sequence[str]] = ()


def timed_step(timed: TimedSteps, ops: ProfiledOps | None, **conditions: Any) -> Mapping[str, object]:
    """Give what a child tells of a step: the conditions it ran under, samples and moments, what a profiler saw."""
    told = {**conditions, "load_end": load(), "warm_up": WARM_UP}
    seen = None if ops is None else asdict(ops)
    return {"conditions": told, "plain": timed.plain, "moments": timed.moments, "ops": seen}


@dataclass(frozen=True)
class FrameworkTimer:
    """How models of one framework are timed.

    `timed`: times the step of a file's model, and its ops where these are asked for; ``folder`` is for its traces.
    `lacks_memory`: tells whether the step did not fit into memory.
    """

    timed: Callable[..., Mapping[str, object]]
    lacks_memory: Callable[[BaseException], bool]


def timing_result(timer: FrameworkTimer, path: Path, request: Request, **options: Any) -> Mapping[str, object]:
    """Time a file's model; what keeps it from being timed is told in the result."""
    try:
        with tempfile.TemporaryDirectory(prefix="fomkit-") as folder:
            return {"timed": timer.timed(path, request, folder=folder, **options)}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent tells it
        told = explain_exception(error, request.where, path)
        if told is not error and timer.lacks_memory(error):
            what = f"does not fit into the memory here ({told.what}). Measure a smaller step with --batch."
            told = FomkitError(told.where, what)
        return told_error(told)


def run_timing(timer: FrameworkTimer) -> None:
    """Run one request, as a file's profile is asked for."""
    run_file_request(partial(timing_result, timer))
