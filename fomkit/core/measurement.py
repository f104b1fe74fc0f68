"""Measured steps of whole models with their conditions, and results that concern all timings of a machine.

The latter are whether timings are plausible (`Plausibility`), and the utilisation of each timed machine
(`TypicalTables`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from fomkit.core.interval import Span
from fomkit.core.units import agree, count_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.core.machine import Device, Link, Machine

MEASURED_LEVEL = 0.8
"""Level of the intervals of a table of measurements, as of all files."""


@dataclass(frozen=True)
class Measurement:
    """One row of a table of measurements.

    `quantity`: step_s, epoch_s, run_s or latency_s [s], sample_per_s [1/s], or energy_j [J].
    `value`, `low`, `high`: in the unit of ``quantity``; the bounds are those of the 80 % interval of repeats,
      equal to ``value`` if no spread is stated.
    `repeats`, `batch`, `devices`: None is unknown.
    `precision`, `scope`, `basis`, `party`, `framework`, `framework_version`, `date`, `source`, `note`: "" is
      unknown.
    `holds`: work in the figure besides the model's ops, in words; "" if none is stated.
    `record`: fields of the imported record that have no column here, as JSON; "" if there are none.
    """

    where: str
    model: str
    machine: str
    quantity: str
    value: float
    low: float
    high: float
    spread_stated: bool
    basis: str
    repeats: int | None = None
    batch: int | None = None
    precision: str = ""
    devices: int | None = None
    scope: str = ""
    party: str = ""
    framework: str = ""
    framework_version: str = ""
    date: str = ""
    source: str = ""
    note: str = ""
    holds: str = ""
    record: str = ""

    @property
    def span(self) -> Span:
        """The measured value with its interval, in the unit of ``quantity``."""
        return Span(self.value, self.low, self.high, MEASURED_LEVEL)


Clock = Literal["process", "wall", "device"]
"""Source of a time: the processor time of all threads, a wall clock, or events on an accelerator."""

SHARED = 1.05
"""Wall time over processor time of one thread from which a processor counts as shared."""


@dataclass(frozen=True)
class Repeated:
    """The time of something that was repeated.

    `median_s`, `p25_s`, `p75_s`: median and quartiles of the repeats [s].
    `low_s`, `high_s`: bounds of the 95 % interval of the median [s], by order statistics; None if repeats are few.
    `p10_s`, `p90_s`: tenth and ninetieth percentile of the repeats [s], the 80 % interval in a table of
      measurements.
    """

    median_s: float
    p25_s: float
    p75_s: float
    low_s: float | None = None
    high_s: float | None = None
    p10_s: float | None = None
    p90_s: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Interval of the median [s]; the quartiles if there are too few repeats."""
        if self.low_s is None or self.high_s is None:
            return self.p25_s, self.p75_s
        return self.low_s, self.high_s


@dataclass(frozen=True)
class StepTimes:
    """The time of one step by each clock that was read."""

    repeats: int
    process: Repeated | None = None
    wall: Repeated | None = None
    device: Repeated | None = None

    def by(self, clock: Clock) -> Repeated | None:
        """Return the times by one clock."""
        found: Repeated | None = getattr(self, clock)
        return found


NO_WORK, NO_ROW = "no work", "no row"
"""Why a time is in no row: the op does no work (views, allocation, the framework's own frames), or has no row."""


@dataclass(frozen=True)
class Unjoined:
    """Time in a profiler's trace that is in no row of the op table.

    `op`, `pass_name`: the profiler's name of the op; its pass, "" if unknown.
    `count`: executions in a step.
    `time_s`: of all of them together [s].
    `why`: `NO_WORK`, or what is missing.
    """

    op: str
    pass_name: str
    count: int
    time_s: float
    why: str


@dataclass(frozen=True)
class MeasuredOps:
    """A profiler's result for the ops of a step.

    `profiler`: its name and settings.
    `joined_s`: time of a step that is in the op table, as ``traced_time_s`` × ``count`` [s].
    `scaled_by`: divisor of all times of ops, by which they add up to the time of a processor that was shared; 1
      without.
    """

    profiler: str
    step: StepTimes
    joined_s: float
    unjoined: tuple[Unjoined, ...] = ()
    scaled_by: float = 1.0

    @property
    def total_s(self) -> float:
        """Time of all ops of a step [s], in the table or not."""
        return self.joined_s + sum(one.time_s for one in self.unjoined)


@dataclass(frozen=True)
class StepEnergy:
    """Energy of one plain step, by an instrument that was read while the steps were timed.

    `value_j`, `low_j`, `high_j`: mean of the timed steps [J], and the uncertainty of the instrument. All other
      load is included.
    `scope`: ``chip``, ``node`` or ``wall``: what the instrument covers.
    """

    value_j: float
    low_j: float
    high_j: float
    scope: Literal["chip", "node", "wall"]
    source: str


@dataclass(frozen=True)
class MeasuredRun:
    """A measured step of a model, with its conditions.

    `device`: ``cpu`` or ``gpu``; ``processor`` is its model.
    `threads`: of the framework, on the CPU.
    `warm_up`: steps that ran before; the first creates the optimizer's state.
    `step`: the plain step, without any profiler.
    `ops`: None if only the plain step was timed.
    `allocator`: environment variables that set an allocator, as found.
    `load_start`, `load_end`: processes waiting for the processor, mean of a minute; None if the system does not
      report it.
    `precision`: number format to which the step was changed (``bf16``, by autocast); "" for that of its file.
    `energy`: None if it was not measured; a note then says why.
    """

    clock: Clock
    device: Literal["cpu", "gpu"]
    processor: str
    threads: int
    sizes: Mapping[str, int]
    warm_up: int
    step: StepTimes
    ops: MeasuredOps | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    allocator: Mapping[str, str] = field(default_factory=dict)
    load_start: float | None = None
    load_end: float | None = None
    date: str = ""
    notes: tuple[str, ...] = ()
    precision: str = ""
    energy: StepEnergy | None = None

    @property
    def step_time(self) -> Repeated | None:
        """The time of the plain step by ``clock``."""
        return self.step.by(self.clock)

    @property
    def _plain_and_profiled(self) -> tuple[Repeated | None, Repeated | None]:
        return self.step_time, self.ops.step.by(self.clock) if self.ops is not None else None

    @property
    def overhead(self) -> float | None:
        """Share that the profiler added to the plain step; below 0 where the repeats scatter by more."""
        plain, profiled = self._plain_and_profiled
        return None if plain is None or profiled is None else profiled.median_s / plain.median_s - 1

    @property
    def ops_share(self) -> float | None:
        """Time of all ops over the plain step, both by ``clock``.

        None where times of ops were scaled to match (`MeasuredOps.scaled_by`): the ratio would check nothing.
        """
        plain = self.step_time
        if plain is None or self.ops is None or self.ops.scaled_by != 1:
            return None
        return self.ops.total_s / plain.median_s

    @property
    def overhead_ends(self) -> tuple[float, float] | None:
        """Bounds of the share that the profiler added, from the intervals of both medians.

        From the quartiles where repeats were too few for an interval. None where the profiler was not run.
        """
        plain, profiled = self._plain_and_profiled
        if plain is None or profiled is None:
            return None
        (low, high), (least, most) = plain.ends, profiled.ends
        return least / high - 1, most / low - 1


@dataclass(frozen=True, eq=False)
class Plausibility:
    """Result of the check of a machine's timings and facts (`fomkit.profiles.plausibility`).

    `quarantined`: descriptions of the impossible timings, which are left out of every answer.
    `given`, `left`: all timings, and those that remain.
    """

    quarantined: tuple[str, ...]
    suspicions: tuple[str, ...]
    given: pd.DataFrame = field(repr=False)
    left: pd.DataFrame = field(repr=False)
    device: Device = field(repr=False)
    links: tuple[Link, ...] = field(repr=False)

    def is_of(self, machine: Machine) -> bool:
        """Return whether a machine's timings and facts are those that were checked."""
        same = machine.timings is self.left and machine.device is self.device
        return same and machine.links == self.links

    def messages(self, name: str = "", most: int = 1) -> tuple[str, ...]:
        """Write a line for each sort of finding, after ``name`` if given, with at most ``most`` of the timings."""
        start = f"{name}: " if name else ""
        lines = [f"{start}{text}" for text in self.suspicions]
        if self.quarantined:
            count, listed = len(self.quarantined), "; ".join(self.quarantined[:most])
            more = f"; and {count - most:,} more (`fomkit show` lists them)" if count > most else ""
            are = agree(count, "is/are")
            lines.append(
                f"{start}{count:,} of {count_text(len(self.given), 'timing')} {are} physically impossible and "
                f"{are} excluded from every result: {listed}{more}"
            )
        return tuple(lines)


def verdict_on(machine: Machine, most: int = 1, *, named: bool = True) -> tuple[str, ...]:
    """Write what is implausible about a machine (`Plausibility`), with at most ``most`` left-out timings."""
    found = machine.plausibility
    return () if found is None else found.messages(machine.name if named else "", most)


class Surface(NamedTuple):
    """One timed machine's utilisation in one kind of work and number format, as a Gaussian-process fit.

    `balance`: log2 of the machine's flop per byte; NaN where it does not matter for the work.
    `mean`: mean of ln(utilisation).
    `form`: constants of products in tiles, to which the rows are relative; empty where they are relative to the
      floor.
    `errors`: errors of the other chips' surfaces here, in standard deviations: quantiles of equal probability.
    `rows` (n, 1 + p): a row per timed op: its weight in thousandths, then its features in hundredths.
    """

    machine: str
    architecture: str
    dtype: str
    balance: float
    mean: float
    errors: tuple[float, ...]
    rows: NDArray[np.int32]
    form: tuple[float, ...] = ()


class TimedWork(NamedTuple):
    """Surfaces of one kind of work, and the length of each of its features (p)."""

    length: NDArray[np.float64]
    known: tuple[Surface, ...]


def chip_words(architecture: str) -> list[str]:
    """Return vendor, generation and chip of an architecture, as many as are known, each as one word.

    >>> chip_words("NVIDIA Ada Lovelace AD102") == chip_words("NVIDIA Ada AD102")
    True
    """
    return (words := architecture.split())[:2] + words[2:][-1:]


_GPU = re.compile(r"\b(nvidia|tesla|geforce|quadro|radeon|instinct|gcn\d|[cr]dna\d?|gpu|cuda)\b")
_CPU = re.compile(r"\b(cpu|x86|xeon|epyc|ryzen|opteron|knights|phi|core|cortex|neoverse|graviton|arm|processor)\b")


def device_kind(machine: Machine) -> Literal["gpu", "cpu", ""]:
    """Return gpu or cpu by architecture, else by title; "" where neither text identifies one, or a text both."""
    for text in (machine.device.architecture, machine.title):
        is_gpu, is_cpu = (one.search(text.lower()) is not None for one in (_GPU, _CPU))
        if is_gpu is not is_cpu:
            return "gpu" if is_gpu else "cpu"
    return ""


def series_of(architecture: str) -> str:
    """Return vendor, generation and the chip's name without its last two digits: chips that run the same kernels.

    >>> series_of("NVIDIA Blackwell Ultra GB110"), series_of("NVIDIA Blackwell GB202")
    ('NVIDIA Blackwell GB1', 'NVIDIA Blackwell GB2')
    """
    words = chip_words(architecture)
    return " ".join([*words[:2], *(chip[:3] for chip in words[2:])])


ENGINE_ALIKE = 0.1
"""Difference in ln(rate of the matrix engine / rate of the vector units) up to which two chips are kin."""


def kin_of(architecture: str, others: Sequence[str], engines: Mapping[str, float]) -> list[bool]:
    """Return which architectures run the kernels of one: those of its series, else those with as large an engine.

    Chips of one generation may differ: what NVIDIA calls Blackwell are chips of data centres, whose matrix engines
    have instructions of their own, and chips of workstations with the processors of Ada. `engines`: see
    `TypicalTables`.

    >>> kin_of("NVIDIA Blackwell GB202", ["NVIDIA Blackwell GB100", "NVIDIA Ada AD102"],
    ...        {"NVIDIA Blackwell GB202": 3.99, "NVIDIA Ada AD102": 3.95})
    [False, True]
    """
    if len(known := series_of(architecture).split()) < 2:
        return [False] * len(others)
    # A generation without a chip is kin to all of its series.
    series = [all(a == b for a, b in zip(known, series_of(one).split(), strict=False)) for one in others]
    if any(series):
        return series
    own, *ratios = (engines.get(" ".join(chip_words(one)), math.nan) for one in (architecture, *others))
    return [abs(math.log(one / own)) < ENGINE_ALIKE for one in ratios]


def on_series(work: str, architecture: str, engine: str) -> str:
    """Name a kind of work by libraries that run on one series of chips only.

    >>> on_series("experts", "NVIDIA Blackwell Ultra GB110", "matrix")
    'experts on NVIDIA Blackwell GB1/matrix'
    """
    return f"{work} on {series_of(architecture)}/{engine}"


def kind_of_work(name: str) -> str:
    """Return the kind of a named work.

    >>> kind_of_work("experts/matrix"), kind_of_work("experts on NVIDIA Blackwell GB1/matrix")
    ('experts', 'experts')
    """
    return name.partition("/")[0].partition(" on ")[0]


@dataclass(frozen=True)
class TypicalTables:
    """Surfaces of timed machines, by kind of work such as ``gemm/matrix`` or ``conv/vector/forward``.

    Two are equal if their ``key`` is, a hash of their sources; results are cached by it. `years`: year of
    introduction of each generation, by vendor and generation, the first two words of an architecture. `engines`:
    the rate of a chip's whole matrix engine in 16 bits over that of its vector units in fp32, by `chip_words`.
    """

    key: str
    of: Mapping[str, TimedWork] = field(compare=False, repr=False)
    years: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)
    engines: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def makers(self) -> frozenset[str]:
        """The makers whose matrix engines were timed."""
        works = [work for name, work in self.of.items() if name.endswith("/matrix")]
        return frozenset(word for work in works for one in work.known for word in chip_words(one.architecture)[:1])
