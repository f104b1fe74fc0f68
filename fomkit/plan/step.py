"""The time of one training step: the longest of device, host and input time, which overlap, plus the overheads.

`roll_up_step` adds up one step and `device_times` the ops of many variants at once. `steps_if_timed` returns the
interval that a step would have if some of its ops were timed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common, longest_of
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.core.measurement import chip_words
from fomkit.core.model import OF_SIZES, ModelProfile
from fomkit.core.units import format_quantity, sums_by_key
from fomkit.ops.tables import PASSES, SOURCES
from fomkit.plan.coverage import OF_TABLE, TABLES, Uses, use_widths, uses_of
from fomkit.prediction.rates import power_shortfall

Array = NDArray[np.float64]

INPUT = "input"
"""Name of the overhead per step that is the input pipeline, which runs beside the device."""

HOST_OP_S = Fact(
    51e-6, 44e-6, 67e-6, "assumed",
    "layers of Megatron-DeepSpeed that wait for the host of an A100 (vTrain)",
)  # fmt: skip
"""Default host time to start one op of a training step, eagerly, where a machine states none (docs/parallel.md).

It is longer than a kernel's launch: it includes Python, autograd and the framework's checks of the op [s]."""


def with_host(machine: Machine, model: ModelProfile) -> Machine:
    """Return the machine with a default `host_op_s`, if it has none, for a training whose ops a rule made.

    The ops of a traced network are finer than these, and those of a compiled one need no Python; they start at
    the launch cost.
    """
    made = model.traced_with
    others = made.get("device") != OF_SIZES or made.get("mode") == "infer" or made.get("fusion") == "compiled"
    if others or machine.host_op_s is not None:
        return machine
    return replace(machine, host_op_s=HOST_OP_S)


def host_waited(host: Fact) -> str:
    """Say that a step's device waits for its host, and how long that needs to start an op."""
    each = format_quantity(host.value, "time_s")
    return f"the device waits for its host, which needs {each} per op ({host.source})"


def overhead_span(overhead: Overhead, of: Span) -> Span:
    """Return the time [s] of one overhead on top of ``of``."""
    if overhead.time_s is not None:
        return overhead.time_s.span(of.level)
    if overhead.share is None:
        raise FomkitError(f"overhead {overhead.name}", "states neither a time nor a share. Give one of them.")
    return of.scaled(overhead.share.value)


def overheads(machine: Machine, per: str, of: Span) -> dict[str, Span]:
    """Return the machine's overheads per run, epoch or step, by name."""
    return {overhead.name: overhead_span(overhead, of) for overhead in machine.overheads if overhead.per == per}


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
    return COMMON_OF.get((kind, source), COMMON_BY_TABLE if source in TABLES else COMMON)


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
    return Ops(kinds, seconds, sources, OF_TABLE[sources], same_ops(kinds, passes, sources, times[0]))


def ops_of(timed: pd.DataFrame) -> Ops:
    """Read the ops of a TIMED table as one variant."""
    times = np.stack([timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s")])[:, :, None]
    kinds, passes = (tuple(timed[name]) for name in ("kind", "pass_name"))
    sources = np.array([SOURCES[word] for word in timed["time_source"]], np.intp)[:, None]
    counts = timed["count"].to_numpy(np.float64)[:, None]
    return ops_in(kinds, passes, sources, times, np.nan_to_num(times * counts))


class StepRows(NamedTuple):
    """The ops of one variant, and the other columns from which a step is added up, one entry per op.

    `passes`: of `PASSES`; `bounds`: what bounds each op; `starts`: launches of all executions; `formats`: the
      number formats of the ops.
    """

    ops: Ops
    passes: tuple[str, ...]
    bounds: Sequence[str]
    starts: Array
    formats: tuple[str, ...]

    @property
    def bound(self) -> str:
        """The bound of the ops that take most of the time: compute, memory, launch, or unknown."""
        totals = sums_by_key(zip(self.bounds, self.ops.seconds[0, :, 0].tolist(), strict=True))
        return max(sorted(totals), key=lambda bound: totals[bound], default="unknown")


def starts_of(ops: pd.DataFrame) -> float:
    """Count the launches of all executions of ops; ops with unknown launches are left out."""
    return float(np.nansum(ops["launches"].to_numpy(np.float64) * ops["count"].to_numpy(np.float64)))


def step_rows(timed: pd.DataFrame) -> StepRows:
    """Read the rows of a TIMED table."""
    starts = timed["launches"].to_numpy(np.float64) * timed["count"].to_numpy(np.float64)
    formats = tuple(sorted(set(timed["dtype"])))
    return StepRows(ops_of(timed), tuple(timed["pass_name"]), timed["bound"].tolist(), starts, formats)


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


def device_times(ops: Ops, uses: Uses, level: float, bare: int = 0) -> DeviceTimes:
    """Add up the ops of each variant, which a device runs one after the other.

    Ops of one kind and time source form a family, priced by one estimator. A part of the errors in a family is
    common and adds up linearly (`common_of`). The rest is each op's own and adds in quadrature, as do the errors
    of different families and the error of use in a step.

    `uses`: error that use in a step adds to kernel timings (`fomkit.plan.coverage`); `level`: of the intervals;
    `bare`: how many of the last variants are without the error of use.
    """
    seconds, (first, shares), distinct = ops.seconds, _families(ops.kinds), ops.same.max(0, initial=-1) + 1
    width, family = seconds.shape[2], first + ops.sources
    families, share = _sum_cells(family, width), shares[family]
    same = _sum_cells(ops.same, width) if (distinct < len(ops.same)).any() else None
    value, common, squares, common_root, own_root = seconds[0].sum(0), [], [], np.sqrt(share), np.sqrt(1 - share)
    for sides in (seconds[0] - seconds[1], seconds[2] - seconds[0]):
        alone = own_root * sides
        own = np.einsum("ns,ns->s", alone, alone) if same is None else _squared_sums(same, len(ops.same), alone)
        common.append(_squared_sums(families, len(shares), common_root * sides))
        squares.append(common[-1] + own)
    below, above = squares
    in_use = slice(0, width - bare)
    for less, more in use_widths(ops.kinds, seconds[0, :, in_use], ops.of_table, uses, level):
        below[in_use] += less**2
        above[in_use] += more**2
    whole, part = (np.sqrt(two).sum(0) for two in (squares, common))
    shared = np.divide(part, whole, out=np.ones(width), where=whole > 0) ** 2
    return DeviceTimes(np.array([value, value - np.sqrt(below), value + np.sqrt(above)]), shared)


_ALONE: Uses = {}


@dataclass(frozen=True)
class StepTime:
    """The time of one step and its terms.

    `passes`: device time [s] of forward, backward and update.
    `device_s`: their sum: the device runs one op after the other.
    `host_launch_s`: time of the host to start all kernels; None where the machine does not state it.
    `input_s`: time of the input pipeline for one step; None where the machine does not state it.
    `extra_s`: the machine's other overheads per step.
    `wall_s`: the longest of device, host and input, plus the overheads.
    `bound`: compute, memory, launch or input: what the step waits for.
    `excludes`: terms left out because they are not stated; the wall time is then a lower bound.
    """

    passes: Mapping[str, Span]
    device_s: Span
    host_launch_s: Span | None
    input_s: Span | None
    extra_s: Span
    wall_s: Span
    bound: str
    excludes: tuple[str, ...]


def device_time(timed: pd.DataFrame, level: float, uses: Uses = _ALONE) -> Span:
    """Add up ops that a device runs one after the other; rows without a time are left out.

    `timed`: a TIMED table; `level`: the level of its intervals; `uses`: the error that use in a step adds to
    timings of single kernels (`fomkit.plan.coverage`); nothing by default.
    """
    return _spans(device_times(ops_of(timed), uses, level), level)[0]


def _spans(found: DeviceTimes, level: float) -> list[Span]:
    columns = zip(*found.ends.tolist(), found.shared.tolist(), strict=True)
    return [Span(value, low, high, level, shared) for value, low, high, shared in columns]


ON_ONE_CHIP: Mapping[str, tuple[str, ...]] = {
    "facts": ("roofline",), "similar timings": ("interpolated", "extrapolated", "transferred"),
}  # fmt: skip
"""Time sources whose errors boards of a chip have in common, by name. Facts and timings have none in common."""
_IN_COMMON = np.array([[source in names for source in SOURCES] for names in ON_ONE_CHIP.values()])


def chip_of(machine: Machine) -> str:
    """Return the chip whose boards err alike, "" if unknown; a board short of power is unlike one that is not."""
    chip = chip_words(machine.device.architecture)
    return f"{' '.join(chip)}{' short of power' * bool(power_shortfall(machine))}" if len(chip) > 2 else ""


def _common_on_chip(
    ends: Array, width_s: float, chip: str, work: str, rows: StepRows
) -> tuple[tuple[str, float], ...]:
    """Return the shares of a device's error that boards of its chip have in common (`Span.common`), by name.

    Only steps of the same work in equal number formats have any: errors were compared op by op, and those of a
    product in two formats have little in common. What use in a step adds counts as the board's own, because no two
    boards of one chip showed it.

    `ends` (3, names): the time of the ops of each name, without use in a step; `width_s`: of the interval of the
    device time [s].
    """
    names = (f"{name} of {chip}, {work}, {' '.join(rows.formats)}" for name in ON_ONE_CHIP)
    return tuple(zip(names, (((ends[2] - ends[1]) / width_s) ** 2).tolist(), strict=True))


def _host_launch(starts: float, machine: Machine, level: float) -> Span | None:
    launch = machine.host_op_s or machine.device.launch_s
    return None if launch is None else launch.span(level).scaled(starts)


class Terms(NamedTuple):
    """The terms of a step beside the device's time; None where the machine does not state a term."""

    host_s: Span | None
    input_s: Span | None
    extra_s: Span

    def wall(self, device_s: Span) -> Span:
        """Return the longest of device, host and input, plus the overheads."""
        known = [span for span in (device_s, self.host_s, self.input_s) if span is not None]
        return add_common([longest_of(known), self.extra_s])


def terms_beside(starts: float, machine: Machine, device_s: Span) -> Terms:
    """Return the terms beside the device time of a step of ``starts`` launches; overheads may be shares of it."""
    stated = overheads(machine, "step", device_s)
    input_s = stated.pop(INPUT, None)
    extra_s = add_common([Span.exact(0.0, device_s.level), *stated.values()])
    return Terms(_host_launch(starts, machine, device_s.level), input_s, extra_s)


def roll_up_step(
    timed: pd.DataFrame | StepRows, machine: Machine, level: float, uses: Uses | None = None, work: str = ""
) -> StepTime:
    """Add up one step.

    `timed`: a TIMED table, or its ops; rows without a time are left out (see `check_covered`); `machine`: for the
    launch cost and the overheads per step; `level`: the level of the intervals in ``timed``; `uses`: the error
    that use in a step adds to timings of single kernels; default: `uses_of` the machine; `work`: the name of what
    is timed, of which two boards of one chip have errors in common.
    """
    rows = step_rows(timed) if isinstance(timed, pd.DataFrame) else timed
    names, which = _pass_masks(rows.passes)
    uses = uses_of(machine) if uses is None else uses
    chip = chip_of(machine) if work else ""
    if chip:
        which = np.concatenate([which, _IN_COMMON[:, rows.ops.sources[:, 0]]])
    bare = len(ON_ONE_CHIP) if chip else 0
    found = device_times(rows.ops._replace(seconds=rows.ops.seconds * which.T), uses, level, bare)
    device_s, *of_passes = _spans(found, level)[: 1 + len(names)]
    if chip and (width_s := device_s.high - device_s.low):
        device_s = replace(device_s, common=_common_on_chip(found.ends[:, -bare:], width_s, chip, work, rows))
    whole = partial(replace, shared=device_s.shared, common=device_s.common)
    terms = terms_beside(float(np.nansum(rows.starts)), machine, device_s)
    host, input_s = terms.host_s, terms.input_s
    together = [(rows.bound, device_s), ("launch", host), ("input", input_s)]
    known = [(bound, span) for bound, span in together if span is not None]
    excluded = [name for name, span in (("host_launch", host), ("input", input_s)) if span is None]
    return StepTime(
        passes={name: whole(span) for name, span in zip(names, of_passes, strict=True)},
        device_s=device_s,
        host_launch_s=host,
        input_s=input_s,
        extra_s=terms.extra_s,
        wall_s=terms.wall(device_s),
        bound=max(known, key=lambda term: term[1].value)[0],
        excludes=tuple(excluded),
    )


AT_ONCE = 64
"""Number of groups of ops that `steps_if_timed` evaluates at once, each in a variant of the step."""


def steps_if_timed(timed: pd.DataFrame, groups: pd.Series[int], machine: Machine, level: float) -> dict[int, Span]:
    """Return the step's wall time, group by group, as if the ops of that group took exactly their predicted time.

    The ops of the group then have no error, neither of their own nor that of their family (one kind and time
    source); the rest adds up as in `device_times`. The error of their use in the step remains. A timing would also
    inform about similar ops, and may differ from the prediction; both are unknown beforehand and left out.

    `timed`: a TIMED table; `groups`: a number for each row; rows of one number share a measurement; `machine`: for
    the terms beside the device; `level`: of the intervals in ``timed``. Returns the step's wall time [s] by group.
    """
    known = timed["time_s"].notna().to_numpy()
    rows, numbers = timed[known], groups[known].to_numpy()
    ops, uses, distinct, starts = ops_of(rows), uses_of(machine), np.unique(numbers), starts_of(timed)
    steps = {}
    for first in range(0, len(distinct), AT_ONCE):
        some = distinct[first : first + AT_ONCE]
        seconds = np.where(numbers[:, None] == some, ops.seconds[:1], ops.seconds)
        found = device_times(ops._replace(seconds=seconds), uses, level).ends.T.tolist()
        for number, (value, low, high) in zip(some.tolist(), found, strict=True):
            device_s = Span(value, low, high, level)
            steps[number] = terms_beside(starts, machine, device_s).wall(device_s)
    return steps
