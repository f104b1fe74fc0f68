"""Time the step of a user's model in a child process, for any framework.

`time_file` starts the child and returns its timings. In the child, `time_steps` repeats the plain step and,
between the two halves of the repeats, the step under the framework's profiler. All available clocks are read:
process time, wall time, and events on an accelerator.
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
from fomkit.files.child_process import MEASURED, MEASURED_KERAS, error_content, error_in, run_child
from fomkit.frontends.drafting import Request, run_file_request
from fomkit.frontends.model_file import Framework, explain_exception, framework_of_file
from fomkit.frontends.step_spread import Spent
from fomkit.harness.torch.cases import order_statistics, processor_clock
from fomkit.readers.profilers.xplane import JoinedNodes

TIME_LIMIT_S = 300.0
MEMORY_LIMIT_BYTE = 16e9
"""Memory limit of the child: a measured model really runs, with weights and data."""
MOST_SHARED = 1.5
"""Wall over processor time above which no op times are kept: one common factor would be wrong for every op."""

NO_ENERGY = "energy: not measured, "
"""Prefix of the note that has the reason."""


@dataclass(frozen=True)
class Timed:
    """The timings of a model.

    `run`: the measured run, without its ops.
    `profiled`: the step under the profiler; None if only the plain step was requested.
    `spent`: all times that the profiler recorded in one step.
    `joined`: the same already joined to the rows of the op table by nodes of the graph; ``rows`` are those rows.
    `scaled_by`: divisor of the op times, if they shared a processor.
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
    """Summarise the times of repeats [s], rounded to six digits.

    >>> found = repeated([5.0, 1.0, 3.0, 2.0, 4.0, 6.0])
    >>> found.median_s, found.p25_s, found.p75_s, found.low_s, found.high_s
    (3.5, 2.25, 4.75, 1.0, 6.0)
    >>> repeated([1.0, 2.0, 3.0]).low_s is None
    True
    """
    ordered = sorted(round_quantity(one, "time_s") for one in times_s)
    several, ranks = len(ordered) > 1, order_statistics(len(ordered))
    p25, median, p75 = quantiles(ordered, n=4, method="inclusive") if several else ordered * 3
    tenths = quantiles(ordered, n=10, method="inclusive") if several else ordered * 9
    low, high = (ordered[rank - 1] for rank in ranks) if ranks else (None, None)
    percentiles = (median, p25, p75, tenths[0], tenths[-1])
    median, p25, p75, p10, p90 = (round_quantity(one, "time_s") for one in percentiles)
    return Repeated(median, p25, p75, low, high, p10, p90)


def step_times(samples: Sequence[Mapping[str, float]]) -> StepTimes:
    """Summarise the samples of a step, each with a time [s] by clock."""
    clocks = {
        name: [sample[name] for sample in samples] for name in ("process", "wall", "device") if name in samples[0]
    }
    return StepTimes(len(samples), **{name: repeated(times) for name, times in clocks.items()})


def _wall_over_processor(timed: Timed, covered: float) -> float:
    """Return the ratio of op times, which profilers read from the wall clock, to one thread's processor time.

    Only the sum over ops can be compared with the clock.
    """
    process = None if timed.profiled is None else timed.profiled.process
    if timed.run.clock != "process" or process is None or not timed.whole_s or not 0 < covered <= 1:
        return 1.0
    return timed.whole_s / (covered * process.median_s)


def by_processor(timed: Timed, covered: float) -> Timed:
    """Convert op times from wall time to processor time, if one thread shared the processor with other work.

    First the times of the least disturbed steps are used. The remaining excess is removed by one factor for all
    ops, which is wrong for each: a short op ran mostly undisturbed, a long op never. If the factor is large, the
    error is unknown and no op times are kept.

    `timed`: timings with op times by the wall clock; `covered`: share of the profiled step in which some op ran.
    """
    if _wall_over_processor(timed, covered) < SHARED:
        return timed  # op times do not exceed processor time, so nothing else disturbed them
    timed = _least_disturbed(timed)
    factor = _wall_over_processor(timed, covered)
    if factor < SHARED:
        return timed
    if factor > MOST_SHARED:
        why = f"the wall time of its ops was {factor:.3g} times their processor time, so no op times are kept"
        text = f"the processor was shared: {why}; run again when it is idle, or with --measure step"
        return Timed(_with_note(timed.run, text))
    text = f"op times are wall times divided by {factor:.3g}, so that their sum is processor time"
    run = _with_note(timed.run, f"the processor was shared: {text}")
    spent = tuple(replace(one, time_s=one.time_s / factor) for one in timed.spent)
    joined = None if timed.joined is None else timed.joined.faster(factor)
    return replace(timed, run=run, spent=spent, joined=joined, scaled_by=factor)


def _least_disturbed(timed: Timed) -> Timed:
    """Use the op times of the least disturbed steps, if the profiler distinguishes steps."""
    if not timed.spent or any(math.isnan(one.calm_s) for one in timed.spent):
        return timed
    text = "the time of each op is of the quarter of profiled steps in which it was least disturbed"
    spent = tuple(replace(one, time_s=one.calm_s) for one in timed.spent if one.calm_s > 0)
    return replace(timed, run=_with_note(timed.run, f"the processor was shared: {text}"), spent=spent)


def _with_note(run: MeasuredRun, text: str) -> MeasuredRun:
    return replace(run, notes=(*run.notes, text))


def _timed_by_child(result: Mapping[str, Any]) -> Timed:
    """Make timings from the result of a child (`timed_step`)."""
    conditions = dict(result["conditions"])
    notes = tuple(conditions.pop("notes"))
    # The clock least disturbed by other work; several threads use processor time while waiting for each other.
    on_processor: Clock = "process" if processor_clock(conditions["threads"]) is time.process_time else "wall"
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
        return replace(timed, run=_with_note(run, f"{NO_ENERGY}{found}"))
    return replace(timed, run=replace(run, energy=found))


def check_timed(path: Path, precision: str = "") -> Framework:
    """Return a file's framework; raise FomkitError if its model cannot be timed, or not at this precision."""
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
            f"--precision {precision} is PyTorch's autocast. Set Keras's policy in the file: "
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
    """Time the step of a ``model.py``, on an accelerator if PyTorch finds one.

    `path`: a trusted file, because it is run; `mode`: ``train`` or ``infer``; `sizes`: named sizes of the step;
    `ops`: whether its ops are also timed, under the profiler; `threads`: threads of the framework on the CPU,
    default: the framework's; `precision`: ``bf16`` for a step under autocast, "" for the step as the file has it;
    `energy`: returns the energy of a step from the moments of the plain steps; `time_limit_s`,
    `memory_limit_byte`: limits on wall time [s] and resident memory [byte].
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
    sample = {"process": time.process_time() - process, "wall": time.perf_counter() - wall}
    return {name: sample[name] for name in sample if name == "wall" or processor_clock(1) is time.process_time}


def stopwatch(cuda: Any = None) -> Callable[[Callable[[], Any]], Sample]:
    """Return a function that times one step.

    `cuda`: ``torch.cuda`` if the step runs on an accelerator: events record its begin and end there, and the wall
    clock waits for the end.
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
"""Least and largest number of repeats of the plain step; fewer than six have no interval of their median."""
LEAST_PROFILED, MOST_PROFILED = 3, 10
PLAIN_S, PROFILED_S = 15.0, 10.0
"""Time limits [s] for all plain and all profiled repeats, which the least number of repeats may exceed."""


@dataclass(frozen=True)
class TimedSteps:
    """Samples of the plain step, of the profiled step if requested, and the last result.

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

    `step`: runs a step and returns its result; `watch`: times a step; `profiled`: times profiled steps, which run
    between two halves of the plain steps, so that a machine that slows down affects both; `check_first`: raises if
    the first result is unusable.
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
    """A profiler's record of a step's ops.

    `profiled`: samples of the profiled step.
    `spent`: time by op; `covered`: share of the profiled step in which some op ran.
    `joined`: instead, times already joined to the op table by nodes; ``rows`` are op, pass and module of its rows.
    """

    profiler: str
    profiled: list[Sample]
    spent: Sequence[Spent] = ()
    covered: float = math.nan
    joined: JoinedNodes | None = None
    rows: Sequence[Sequence[str]] = ()


def timed_step(timed: TimedSteps, ops: ProfiledOps | None, **conditions: Any) -> Mapping[str, object]:
    """Return a child's result for a step: its conditions, samples and moments, and the profiler's record."""
    recorded = {**conditions, "load_end": load(), "warm_up": WARM_UP}
    seen = None if ops is None else asdict(ops)
    return {"conditions": recorded, "plain": timed.plain, "moments": timed.moments, "ops": seen}


Timing = Callable[..., Mapping[str, object]]
LacksMemory = Callable[[BaseException], bool]


def timing_result(
    time_model: Timing, lacks_memory: LacksMemory, path: Path, request: Request, **options: Any
) -> Mapping[str, object]:
    """Time a file's model; an error that prevents it is part of the result.

    `time_model`: times the model's step, and its ops if requested; ``folder`` is for its traces; `lacks_memory`:
    returns whether an error means that the step did not fit in memory.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="fomkit-") as folder:
            return {"timed": time_model(path, request, folder=folder, **options)}
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent reports it
        explained = explain_exception(error, request.where, path)
        if explained is not error and lacks_memory(error):
            what = f"does not fit into the memory ({explained.what}). Measure a smaller step with --batch."
            explained = FomkitError(explained.where, what)
        return error_content(explained)


def run_timing(time_model: Timing, lacks_memory: LacksMemory) -> None:
    """Answer one request to time a file's model."""
    run_file_request(partial(timing_result, time_model, lacks_memory))
