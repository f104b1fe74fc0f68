"""The time of one training step: the longest of device, host and input time, which overlap, plus the overheads.

`roll_up_step` adds up one step and `device_times` the ops of many variants at once. `Started` says what waits for
the host by itself: each block of a transformer whose ops a rule made, or the step as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.interval import Span, add_common, longest_of
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.core.transformer import ATTENTION, UPDATE
from fomkit.core.units import sums_by_key
from fomkit.ops.tables import PASSES, SOURCES
from fomkit.plan import coverage
from fomkit.plan.options import overheads, waits_by_block

Array = NDArray[np.float64]

INPUT = "input"
"""Name of the overhead per step that is the input pipeline, which runs beside the device."""

COMMON = 0.5
"""Share of the variance of an op's error that is common to all ops of its kind and time source on a machine; the
rest is the op's own. Estimated from tables of held-out machines (docs/adr/0048)."""
COMMON_BY_TABLE = 0.2
"""The same share for times based on timings of the machine: 0.01 to 0.2 for products inside models on five boards,
and for element-wise ops and ops over rows (docs/adr/0058)."""
COMMON_OF: Mapping[tuple[str, str], float] = {("conv", "roofline"): 0.2, ("gemm", "roofline"): 0.35}
"""The same share for kinds priced from facts, estimated with chips held out: for products of 31 sheets 0.23 from
20 µs on and 0.41 from 1 ms on; for convolutions, whose three passes are kernels of their own, 0.16 to 0.24."""


def common_of(kind: str, source: str) -> float:
    """Return the share of the variance of an op's error that is common to all ops of its kind and time source."""
    return COMMON_OF.get((kind, source), COMMON_BY_TABLE if source in coverage.TABLES else COMMON)


class Ops(NamedTuple):
    """The times of n ops in each of s variants of a step.

    `kinds` (n,).
    `seconds` (3, n, s): value, low and high of all executions of an op [s]; 0 where it has no time.
    `sources` (n, s), or (n, 1) where they are the same in all variants: number of the time source.
    `of_table`, of the same shape: true where the time rests on timings of single kernels.
    `same` (n, s) or (n, 1): index of the distinct op of a row (`same_ops`), whose rows have the same error.
    """

    kinds: tuple[str, ...]
    seconds: Array
    sources: NDArray[np.integer[Any]]
    of_table: NDArray[np.bool_]
    same: NDArray[np.intp]


@lru_cache(maxsize=32)
def _kind_pass_numbers(kinds: tuple[str, ...], passes: tuple[str, ...]) -> NDArray[np.int64]:
    """Return a number for each row (n, 1) that identifies its kind and pass."""
    words = list(zip(kinds, passes, strict=True))
    number = {word: at for at, word in enumerate(dict.fromkeys(words))}
    return np.array([number[word] for word in words], np.int64)[:, None]


def same_ops(
    kinds: tuple[str, ...], passes: tuple[str, ...], sources: NDArray[np.integer[Any]], times: Array
) -> NDArray[np.intp]:
    """Return the index of each row's distinct op in each variant (n, s).

    Rows of one kind, pass and source with equal times are one op. Times are compared to twelve digits: one may
    have been read from a file, or divided by its count.

    `kinds`, `passes` (n,); `sources` (n, s); `times` (n, s): of one execution [s].

    >>> source, times = np.ones((3, 2), int), np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 1.0]])
    >>> same_ops(("gemm", "gemm", "conv"), ("forward",) * 3, source, times).T.tolist()
    [[0, 0, 1], [0, 1, 2]]
    """
    words = _kind_pass_numbers(kinds, passes) * len(SOURCES) + sources
    # The bits of positive numbers sort like the numbers: 40 of the fraction are twelve digits. One integer for all
    # sorts five times as fast as several columns.
    key = (words << 52) + (np.ascontiguousarray(times, np.float64).view(np.int64) >> 12)
    order = key.argsort(0)
    found, ordered = np.zeros(key.shape, np.intp), np.take_along_axis(key, order, 0)
    np.put_along_axis(found, order[1:], (np.diff(ordered, axis=0) > 1).cumsum(0), 0)
    return found


def ops_in(
    kinds: tuple[str, ...],
    passes: tuple[str, ...],
    sources: NDArray[np.integer[Any]],
    times: Array,
    seconds: Array,
) -> Ops:
    """Make ops from their time sources (n, s), and the times of one and of all executions (3, n, s) [s]."""
    return Ops(kinds, seconds, sources, coverage.OF_TABLE[sources], same_ops(kinds, passes, sources, times[0]))


def ops_of(timed: pd.DataFrame) -> Ops:
    """Read the ops of a TIMED table as one variant."""
    times = np.stack([timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s")])[:, :, None]
    kinds, passes = (tuple(timed[name]) for name in ("kind", "pass_name"))
    sources = np.array([SOURCES[word] for word in timed["time_source"]], np.intp)[:, None]
    counts = timed["count"].to_numpy(np.float64)[:, None]
    return ops_in(kinds, passes, sources, times, np.nan_to_num(times * counts))


class StepRows(NamedTuple):
    """The ops of one variant, and the other columns from which a step is added up, one entry per op.

    `passes`: of `PASSES`; `bounds`: what bounds each op; `started`: what the host starts; `formats`: the number
      formats of the ops.
    """

    ops: Ops
    passes: tuple[str, ...]
    bounds: Sequence[str]
    started: Started
    formats: tuple[str, ...]

    @property
    def bound(self) -> str:
        """The bound of the ops that take most of the time: compute, memory, launch, or unknown."""
        totals = sums_by_key(zip(self.bounds, self.ops.seconds[0, :, 0].tolist(), strict=True))
        return max(sorted(totals), key=lambda bound: totals[bound], default="unknown")


class Started(NamedTuple):
    """What the host starts in each of g units of a step, in each of s variants.

    A unit waits for its host by itself. `units`: their names.
    `ops` (g, s): executions of ops that start a kernel; `kernels` (g, s): their further kernels, which need no
      work of the framework.
    `device_s` (g, s): what the device needs for the unit [s].
    """

    units: tuple[str, ...]
    ops: Array
    kernels: Array
    device_s: Array

    def host_s(self, machine: Machine, level: float) -> Array | None:
        """Return value, low and high of the host's time for each unit (3, g, s) [s]; None where it is unknown."""
        launch = machine.device.launch_s
        first = machine.host_op_s or launch
        if first is None:
            return None
        one, more = (np.array(fact.span(level).ends)[:, None, None] for fact in (first, launch or first))
        return np.asarray(one * self.ops + more * self.kernels, np.float64)

    def paced_s(self, host_s: Array, device_s: Span) -> Array:
        """Return value, low and high (3, s) of the device's time with its waits for the host [s].

        Each unit takes the longer of its ops, whose sum is ``device_s``, and of the host's time for it. The low
        end is that of a host which starts the next unit while the device still has work, up to the update.
        """
        whole = np.maximum(self.device_s.sum(0), np.finfo(np.float64).tiny)  # unpriced ops may have no time at all
        value, low, high = (self.device_s * (end / whole) for end in device_s.ends)
        last = np.array([name == UPDATE for name in self.units])
        ahead = [np.maximum(host_s[1, own].sum(0), low[own].sum(0)) for own in (~last, last)]
        paced = (np.maximum(host_s[0], value).sum(0), ahead[0] + ahead[1], np.maximum(host_s[2], high).sum(0))
        return np.array(paced)

    def without(self, unit: str, share: float) -> Started:
        """Return it with a share of a unit's device time; with none, its host's time is left out, too."""
        own = np.array([share if name == unit else 1.0 for name in self.units])[:, None]
        runs = own > 0
        return Started(self.units, self.ops * runs, self.kernels * runs, self.device_s * own)


WHOLE = ""
"""The unit of a step that waits for its host as a whole."""


def units_of(modules: Sequence[str], model: ModelProfile | None) -> list[str]:
    """Return the unit of each op, by its module: a block of each kind, the words, the head, the update."""
    if model is None or not waits_by_block(model):
        return [WHOLE] * len(modules)
    return [str(module).removesuffix(ATTENTION) for module in modules]


def shares_of_units(
    rows: pd.DataFrame, of_row: NDArray[np.intp], many: int, model: ModelProfile
) -> tuple[tuple[str, ...], Array]:
    """Return the units of a step, and the share of each of ``many`` ops' executions in each unit."""
    if not waits_by_block(model) or "module" not in rows.columns:
        return (WHOLE,), np.ones((1, many))
    number, names = pd.factorize(np.array(units_of(rows["module"].tolist(), model), object))
    runs = np.zeros((len(names), many))
    np.add.at(runs, (number, of_row), rows["count"].to_numpy(np.float64))  # counts of these ops are numbers
    total = runs.sum(0)
    return tuple(names), np.divide(runs, total, out=np.zeros_like(runs), where=total > 0)


def started_by(units: Sequence[str], launches: Array, runs: Array, seconds: Array) -> Started:
    """Add up by unit what the host starts: ``launches`` of each op (n,), how often it runs, and its time [s]."""
    which, names = pd.factorize(np.array(units or [WHOLE], object))
    which, known = which[: len(units)], np.nan_to_num(launches)
    columns = (np.minimum(known, 1.0) * runs, np.maximum(known - 1.0, 0.0) * runs, np.nan_to_num(seconds))
    sums = np.array([np.bincount(which, column, len(names))[:, None] for column in columns])
    return Started(tuple(names), *sums)


def started_of(timed: pd.DataFrame, model: ModelProfile | None = None) -> Started:
    """Return what the host starts in the ops of a TIMED table of a model; without one, as a single unit."""
    launches, count, time_s = (timed[name].to_numpy(np.float64) for name in ("launches", "count", "time_s"))
    known = model is not None and "module" in timed.columns
    units = units_of(timed["module"].tolist() if known else [WHOLE] * len(timed), model)
    return started_by(units, launches, count, time_s * count)


def step_rows(timed: pd.DataFrame, model: ModelProfile | None = None) -> StepRows:
    """Read the rows of a TIMED table of a model."""
    formats = tuple(sorted(set(timed["dtype"])))
    started = started_of(timed, model)
    return StepRows(ops_of(timed), tuple(timed["pass_name"]), timed["bound"].tolist(), started, formats)


@lru_cache(maxsize=32)
def _pass_masks(passes: tuple[str, ...]) -> tuple[list[str], NDArray[np.bool_]]:
    """Return the names of the passes that occur, and masks (m, n) of all rows and of the rows of each pass."""
    words = [name.partition("_")[0] for name in passes]
    names = [name for name in PASSES if name in words]
    which = [[True] * len(words), *([word == name for word in words] for name in names)]
    return names, np.array(which, bool)


def _sum_cells(numbers: NDArray[np.intp], width: int) -> NDArray[np.intp]:
    """Return the cell of each row (n, 1) or (n, s) and variant in a flat array of sums."""
    return np.asarray((numbers * width + np.arange(width)).ravel(), np.intp)


def _squared_sums(cells: NDArray[np.intp], many: int, values: Array) -> Array:
    """Add up the rows (n, s) of each sum, then the squares of these sums; return an array (s,)."""
    width = values.shape[1]
    sums = np.bincount(cells, values.ravel(), many * width).reshape(many, width)
    return np.asarray(np.einsum("ns,ns->s", sums, sums), np.float64)


@lru_cache(maxsize=32)
def _families(kinds: tuple[str, ...]) -> tuple[NDArray[np.intp], Array]:
    """Return the index of each op's first family (n, 1), that without a source, and every family's `common_of`."""
    number = {kind: at * len(SOURCES) for at, kind in enumerate(dict.fromkeys(kinds))}
    shares = np.array([common_of(kind, source) for kind in number for source in SOURCES])
    return np.array([number[kind] for kind in kinds], np.intp)[:, None], shares


class DeviceTimes(NamedTuple):
    """The device time of the ops in each of s variants of a step.

    `ends` (3, s): value, low and high [s]; `shared` (s,): share of the variance that is common to families of ops,
    and so to other work on the machine.
    """

    ends: Array
    shared: Array


def device_times(ops: Ops, uses: coverage.Uses, level: float, bare: int = 0) -> DeviceTimes:
    """Add up the ops of each variant, which a device runs one after the other.

    Ops of one kind and time source form a family, priced by one estimator. A part of the errors in a family is
    common and adds up linearly (`common_of`). The rest is each op's own and adds in quadrature, as do the errors
    of different families and the error of use in a step.

    `uses`: error that use in a step adds to kernel timings (`fomkit.plan.coverage`); `level`: of the intervals;
    `bare`: how many of the last variants are without the error of use.
    """
    seconds, width = ops.seconds, ops.seconds.shape[2]
    first, shares = _families(ops.kinds)
    family = first + ops.sources
    families, share = _sum_cells(family, width), shares[family]
    common_root, own_root = np.sqrt(share), np.sqrt(1 - share)
    # Rows of one op have the same error, so they are added up before they are squared.
    same = _sum_cells(ops.same, width) if (ops.same.max(0, initial=-1) + 1 < len(ops.same)).any() else None
    common, squares = [], []
    for sides in (seconds[0] - seconds[1], seconds[2] - seconds[0]):
        alone = own_root * sides
        own = np.einsum("ns,ns->s", alone, alone) if same is None else _squared_sums(same, len(ops.same), alone)
        common.append(_squared_sums(families, len(shares), common_root * sides))
        squares.append(common[-1] + own)
    in_use = slice(0, width - bare)
    widths = coverage.use_widths(ops.kinds, seconds[0, :, in_use], ops.of_table, uses, level)
    for group, pair in widths.items():
        for sums in (squares, common) if group == coverage.OTHER_MAKER else (squares,):
            for side, width_s in zip(sums, pair, strict=True):
                side[in_use] += width_s**2
    value = seconds[0].sum(0)
    whole, part = (np.sqrt(two).sum(0) for two in (squares, common))
    shared = np.divide(part, whole, out=np.ones(width), where=whole > 0) ** 2
    return DeviceTimes(np.array([value, value - np.sqrt(squares[0]), value + np.sqrt(squares[1])]), shared)


_ALONE: coverage.Uses = {}


@dataclass(frozen=True)
class StepTime:
    """The time of one step and its terms.

    `passes`: device time [s] of forward, backward and update.
    `device_s`: their sum: the device runs one op after the other.
    `host_launch_s`: time of the host to start all kernels; None where the machine does not state it.
    `paced_s`: the longer of device and host, unit by unit (`Started`); None where the host's time is unknown.
    `input_s`: time of the input pipeline for one step; None where the machine does not state it.
    `extra_s`: the machine's other overheads per step.
    `wall_s`: the longest of device, device with its host, and input, plus the overheads.
    `bound`: compute, memory, launch or input: what the step waits for.
    `excludes`: terms left out because they are not stated; the wall time is then a lower bound.
    `framework_s`: what an eager host may need to start all ops, where that is left out (`run.eager_step`).
    """

    passes: Mapping[str, Span]
    device_s: Span
    host_launch_s: Span | None
    paced_s: Span | None
    input_s: Span | None
    extra_s: Span
    wall_s: Span
    bound: str
    excludes: tuple[str, ...]
    framework_s: Span | None = None

    @property
    def late_s(self) -> float:
        """Time that the device waits for its host [s]."""
        return 0.0 if self.paced_s is None else max(0.0, self.paced_s.value - self.device_s.value)

    @property
    def host_term_s(self) -> Span | None:
        """The time that the host sets: with the device's, where only some units wait; else the host's own."""
        return self.paced_s if self.late_s > 0 else self.host_launch_s


def device_time(timed: pd.DataFrame, level: float, uses: coverage.Uses = _ALONE) -> Span:
    """Add up the ops of a TIMED table, which a device runs one after the other; unpriced rows are left out."""
    return _spans(device_times(ops_of(timed), uses, level), level)[0]


def _spans(found: DeviceTimes, level: float) -> list[Span]:
    columns = zip(*found.ends.tolist(), found.shared.tolist(), strict=True)
    return [Span(value, low, high, level, shared) for value, low, high, shared in columns]


def device_spans(
    ops: Ops, which: NDArray[np.bool_], machine: Machine, level: float, uses: coverage.Uses, work: str
) -> list[Span]:
    """Return the device time of sets of ops, the first of which are all; they share the errors of the whole.

    `ops`: one variant of n ops; `which` (m, n): the ops of each set; `work`: name and number formats of what is
    timed, of which two boards of one chip have errors in common; "" for none.
    """
    bare, chip = 0, coverage.chip_of(machine) if work else ""
    if chip:
        which, bare = np.concatenate([which, coverage.IN_COMMON[:, ops.sources[:, 0]]]), len(coverage.ON_ONE_CHIP)
    found = device_times(ops._replace(seconds=ops.seconds * which.T), uses, level, bare)
    sets = _spans(found, level)[: len(which) - bare]
    width_s = sets[0].high - sets[0].low
    common = coverage.common_on_chip(found.ends[:, -bare:], width_s, chip, work) if chip and width_s > 0 else ()
    return [replace(span, shared=sets[0].shared, common=common) for span in sets]


class Terms(NamedTuple):
    """The terms of a step beside the device's time (`StepTime`); None where the machine does not state a term."""

    host_s: Span | None
    paced_s: Span | None
    input_s: Span | None
    extra_s: Span

    def wall(self, device_s: Span) -> Span:
        """Return the longest of device, device with its host, and input, plus the overheads."""
        known = [span for span in (device_s, self.paced_s, self.input_s) if span is not None]
        return add_common([longest_of(known), self.extra_s])


def with_waits(started: Started, machine: Machine, device_s: Span) -> tuple[Span | None, Span | None]:
    """Return the host's time to start all ops, and the device's time with its waits for it [s]."""
    level, many = device_s.level, not isinstance(device_s.value, float)

    def span(ends: Array) -> Span:
        value, low, high = ends if many else ends[:, 0].tolist()
        return Span(value, low, high, level)

    if (host_s := started.host_s(machine, level)) is None:
        return None, None
    host = span(host_s.sum(1))
    return host, (
        longest_of([device_s, host]) if len(started.units) == 1 else span(started.paced_s(host_s, device_s))
    )


def terms_of(machine: Machine, device_s: Span) -> tuple[Span | None, Span]:
    """Return the input pipeline's time, and the other overheads of a step, which may be shares of the device's."""
    stated = overheads(machine, "step", device_s)
    input_s = stated.pop(INPUT, None)
    return input_s, add_common([Span.exact(0.0, device_s.level), *stated.values()])


def terms_beside(started: Started, machine: Machine, device_s: Span) -> Terms:
    """Return the terms beside the device time of a step."""
    return Terms(*with_waits(started, machine, device_s), *terms_of(machine, device_s))


def roll_up_step(
    timed: pd.DataFrame | StepRows,
    machine: Machine,
    level: float,
    uses: coverage.Uses | None = None,
    work: str = "",
) -> StepTime:
    """Add up one step.

    `timed`: a TIMED table, or its ops; rows without a time are left out (see `check_covered`); `machine`: for the
    launch cost and the overheads per step; `level`: the level of the intervals in ``timed``; `uses`: the error
    that use in a step adds to timings of single kernels; default: `uses_of` the machine; `work`: the name of what
    is timed, of which two boards of one chip have errors in common.
    """
    rows = step_rows(timed) if isinstance(timed, pd.DataFrame) else timed
    names, which = _pass_masks(rows.passes)
    uses, work = coverage.uses_of(machine) if uses is None else uses, work and f"{work}, {' '.join(rows.formats)}"
    device_s, *of_passes = device_spans(rows.ops, which, machine, level, uses, work)
    terms = terms_beside(rows.started, machine, device_s)
    together = [(rows.bound, device_s), ("launch", terms.host_s), (INPUT, terms.input_s)]
    known = [(bound, span) for bound, span in together if span is not None]
    excluded = tuple(
        name for name, span in (("host_launch", terms.host_s), (INPUT, terms.input_s)) if span is None
    )
    bound = max(known, key=lambda term: term[1].value)[0]
    return StepTime(
        dict(zip(names, of_passes, strict=True)), device_s, *terms, terms.wall(device_s), bound, excluded
    )
