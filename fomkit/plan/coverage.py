"""Coverage of a predicted time by source, checks for ops without a time, and errors of a whole step.

Three are here: the error that use in a step adds, that of a maker's library that nobody timed, and the errors that
boards of one chip have in common.

A benchmark repeats one kernel on its own operands. In a step, the caches hold the data of the op before, the clock
follows the mean load, and the library may find its operands at other addresses. Tables of single kernels do not
show the size of this effect. ``benchmarks/use_in_steps.py`` estimates it from calls inside models on several
machines, as the part of their errors beyond the intervals of the tables (`USES`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, half_width
from fomkit.core.machine import Machine
from fomkit.core.measurement import chip_words, device_kind
from fomkit.core.units import agree, sums_by_key
from fomkit.ops.columns import cached
from fomkit.ops.groups import column_texts
from fomkit.ops.tables import SOURCES, TIME_SOURCES
from fomkit.prediction.rates import power_shortfall

Array = NDArray[np.float64]

UNPRICED = "unpriced"


def coverage(timed: pd.DataFrame) -> dict[str, float]:
    """Return the share of the predicted time of a TIMED table by time source and ``unpriced``; see `shares_of`."""
    count, time_s = (timed[name].to_numpy(np.float64) for name in ("count", "time_s"))
    return shares_of(count, time_s, timed["time_source"].tolist())


def shares_of(count: Array, time_s: Array, sources: Sequence[str]) -> dict[str, float]:
    """Return the share of the predicted time by time source; ops take `time_s` [s] each, NaN is unpriced.

    Work without a time has no share of a time; ``unpriced`` is its share of the op executions, and the other
    shares are scaled so that all sum to 1.
    """
    seconds = sums_by_key(zip(sources, np.nan_to_num(time_s * count).tolist(), strict=True))
    total = sum(seconds.values())
    if not total:
        return {**dict.fromkeys(TIME_SOURCES, 0.0), UNPRICED: 1.0}
    unpriced = float(count[np.isnan(time_s)].sum() / count.sum())
    shares = {source: (1 - unpriced) * seconds.get(source, 0.0) / total for source in TIME_SOURCES}
    return {**shares, UNPRICED: unpriced}


WIDE = 5.0
"""Ratio of the bounds of a step above which a note says which ops are the reason."""


def wide_notes(step: Span, timed: Callable[[], pd.DataFrame], machine: Machine) -> tuple[str, ...]:
    """Return notes on the width of a step's interval: what most of a wide one is from, and `library_notes`."""
    notes = library_notes(machine)
    if step.high > WIDE * step.low:
        ops, factor = timed(), step.high / step.low
        words = (
            ops["kind"] + " (" + ops["pass_name"].str.replace("_", " ") + "), time source " + ops["time_source"]
        )
        most = ((ops["high_s"] - ops["low_s"]) * ops["count"]).groupby(words).sum().idxmax()
        notes = (f"the bounds of a step differ by a factor of {factor:.1f}: most of it is from {most}", *notes)
    return notes


def check_work(timed: pd.DataFrame, where: str) -> None:
    """Raise when a step executes nothing, because it would take 0 s; counts that are expressions are work."""
    counts = timed["count"].tolist() if len(timed) else []
    if any(isinstance(count, str) or count > 0 for count in counts):
        return
    found = f"{len(timed):,} ops, each executed 0 times" if len(timed) else "no ops"
    raise FomkitError(where, f"its step has {found}. Expected executed ops. Trace the model again.")


def counts_by_kind(ops: pd.DataFrame) -> str:
    """List the kinds of a table of ops and how often each runs in a step, the most frequent first."""
    counts = ops.groupby("kind")["count"].sum().sort_values(ascending=False)
    return ", ".join(f"{kind} ({count:,.0f})" for kind, count in counts.items())


def check_covered(timed: pd.DataFrame, unsupported: tuple[str, ...], where: str) -> None:
    """Raise when an op of the step has no time, or the profile lists an op without a rule."""
    untimed = np.isnan(timed["time_s"].to_numpy(np.float64))
    bound = "or pass --allow-uncovered for a lower bound of the time."
    if untimed.any():
        missing = timed[untimed]
        runs, total = missing["count"].sum(), timed["count"].sum()
        formats = missing["dtype"].unique().tolist()
        listed, facts, other = counts_by_kind(missing), "facts", ""
        if len(formats) == 1:
            listed, other = f"{listed}, all in {formats[0]}", ", choose another --precision"
            facts = f"facts, such as a device.peak of {formats[0]},"
        raise FomkitError(
            where,
            f"{runs:,.0f} of {total:,.0f} op executions {agree(runs, 'has/have')} no time; kinds: {listed}. Add "
            f"timings or {facts} to the machine profile{other}, {bound}",
        )
    if unsupported:
        listed = ", ".join(unsupported)
        raise FomkitError(
            where,
            f"the profile lists ops without a rule, which have no time: {listed}. Write what each does as rows of "
            f"its table of ops and take the name out of 'unsupported', {bound}",
        )


MOST_BOUNDED = 0.05
"""Largest share of a step's time that ops priced by a lower bound may have."""


def check_bounded(timed: pd.DataFrame, bounded: tuple[str, ...], where: str) -> None:
    """Raise where the ops of these names, priced by a lower bound, take over `MOST_BOUNDED` of a step."""
    spent = timed["time_s"] * timed["count"]
    own = timed["op"].astype("str").isin(bounded)
    share = float(spent[own].sum() / spent.sum())
    if share > MOST_BOUNDED:
        raise FomkitError(
            where,
            f"{share:.0%} of the step is ops whose predicted times are lower bounds ({', '.join(bounded)}), by "
            f"their bytes or flop. Expected {MOST_BOUNDED:.0%} at most. Pass --allow-uncovered to use them.",
        )


def host_source(machine: Machine) -> str:
    """Return the time source of waits for the host: measured where the host's time was, else assumed."""
    host = machine.host_op_s or machine.device.launch_s
    return "measured" if host is not None and host.basis == "measured" else "assumed"


def shares_with_wait(
    shares: Mapping[str, float], device_s: float, late_s: float, machine: Machine
) -> dict[str, float]:
    """Return the shares of a device's time by source, with its wait for the host [s] as a time of its own."""
    if late_s <= 0:
        return dict(shares)
    kept, source = device_s / (device_s + late_s), host_source(machine)
    found = {name: share if name == UNPRICED else share * kept for name, share in shares.items()}
    found[source] += (1 - kept) * (1 - shares.get(UNPRICED, 0.0))
    return found


class Spread(NamedTuple):
    """Standard deviations of ln(time) towards shorter and longer times."""

    faster: float
    slower: float

    def widen(self, value: float, low: float, high: float, level: float) -> tuple[float, float]:
        """Widen an interval by this independent error, each side by its own deviation.

        >>> [round(end, 3) for end in Spread(0.0, 0.1).widen(1.0, 0.9, 1.0, 0.8)]
        [0.9, 1.137]
        """
        z = half_width(level)
        below = math.hypot(math.log(value / low), z * self.faster)
        above = math.hypot(math.log(high / value), z * self.slower)
        return value * math.exp(-below), value * math.exp(above)


class Use(NamedTuple):
    """Spread of one call, and of the sum of all calls of a group in one pass, in which errors partly cancel."""

    call: Spread
    whole: Spread


Uses = Mapping[str, Use]
GROUPS: Mapping[str, str] = {
    "pointwise": "element", "copy": "element", "optimizer": "element", "embedding": "element",
    "norm": "row", "softmax": "row", "reduction": "row", "pool": "row",
    "gemm": "library", "conv": "library", "rnn": "library", "attention": "library", "sparse_gemm": "library",
    "experts": "library",
}  # fmt: skip
"""The group of each kind for errors in use: element-wise ops, ops over rows, and library products. Of library
products, only dense ones were observed in models. Collectives have no group: links are a separate matter."""
TABLES = ("measured", "interpolated", "extrapolated", "transferred")
"""Time sources based on timings of single kernels. The other intervals, from typical utilisation on public
machines, are already as wide as use in a step makes them."""
OF_TABLE = np.array([name in TABLES for name in SOURCES], bool)
"""The same as an array indexed by the number of a time source."""
BENCHMARKS = ("DeepBench", "NeuSight", "aiconfigurator")
"""Prefixes of the names of harnesses that time single kernels. Timings taken inside a step need no widening."""

STEP = "step"
"""The group of all ops together: a board runs a whole step at another clock than its calls one by one, its caches
hold other data, and its software may differ from the table's. It applies where any op rests on a table."""
SAME_SOFTWARE: Uses = {
    "element": Use(Spread(0.000, 0.097), Spread(0.000, 0.064)),
    "library": Use(Spread(0.032, 0.119), Spread(0.009, 0.036)),
    "row": Use(Spread(0.069, 0.187), Spread(0.055, 0.152)),
    STEP: Use(Spread(0.000, 0.000), Spread(0.030, 0.023)),
}
"""The errors of steps that run the software of the table's kernels, estimated from 647 calls on three boards. The
values of `STEP` are estimated from the ratio of 24 whole passes of long calls on four boards to the sum of their
calls (labels of NeuSight; Lee et al., ASPLOS 2025), with equal weight for each board. Power-limited boards
(`power_shortfall`), such as the T4, are left out."""
OTHER_MAKER = "library of another maker"
"""The group of library products priced from facts on a matrix engine whose maker has none that was timed: they are
predicted as on others' engines, though the maker's library may reach another part of its own. The error is common
to all products of a machine."""
OTHER_MAKER_USES: Uses = {OTHER_MAKER: Use(Spread(0.10, 0.25), Spread(0.10, 0.25))}
"""Products on such terms take 1.3 times as long as predicted on two boards of AMD and 1.05 times on one of Intel;
rates that AMD states as sustained are 0.75, 0.89 and 1.10 of the predicted ones (docs/adr/0102)."""
VERSIONS_SPREAD = 0.04
"""Standard deviation of ln(time of long kernels by one version of a library / by another): sums of products and of
attention under SGLang 0.5.10 and 0.5.14 on two boards (docs/adr/0089)."""


def _wider(use: Use, part: float) -> Use:
    """Add an independent error to both sides of the spread of one call and of a sum."""
    return Use(*(Spread(math.hypot(one.faster, part), math.hypot(one.slower, part)) for one in use))


def other_software(uses: Uses) -> Uses:
    """Return the errors of steps whose software is not that of the table's kernels, or is not stated."""
    return {**uses, STEP: Use(uses[STEP].call, _wider(uses[STEP], VERSIONS_SPREAD).whole)}


USES: Uses = other_software(SAME_SOFTWARE)
"""The errors of steps on a machine that states no software."""

MEASURED = "fomkit measure"
"""Prefix of the harness of `fomkit measure`, which times ops as in a step, framework time included."""
MEASURED_SPREAD = Spread(0.0, 0.056)
"""Spread beyond the intervals of ops and of fresh pages, estimated from steps of ten models
(`fomkit validate --here` estimates it for each model from the others)."""
_SAME = Use(MEASURED_SPREAD, MEASURED_SPREAD)
MEASURED_USES: Uses = dict.fromkeys(GROUPS.values(), _SAME)

LIBRARY = "library"
"""The group of library products."""
TABLE_LEAVES = 1 / 3
"""Fraction of the power risk that remains where kernels of the board were timed, on both sides: a judgement."""


def limited(uses: Uses, machine: Machine) -> Uses:
    """Widen the error of use in a step by the time that a power-limited machine may lose in long products.

    The loss depends on the preceding work, which a table of kernels covers only in part: at `DEFAULT_LEVEL` the
    interval reaches `TABLE_LEAVES` of `power_shortfall` farther on both sides. Times from facts include it.
    """
    part = TABLE_LEAVES * power_shortfall(machine) / half_width(DEFAULT_LEVEL)
    if not part or LIBRARY not in uses:
        return uses
    return {**uses, LIBRARY: _wider(uses[LIBRARY], part)}


def uses_of(machine: Machine) -> Uses:
    """Return the error that use in a step adds to a machine's times, by their harness; none for others."""
    known = cached(machine.timings, None, "uses", partial(_uses_of, machine.timings))
    if known is MEASURED_USES:
        return known
    if known is USES and runs_software(machine.timings, machine.software):
        known = SAME_SOFTWARE
    return {**limited(known, machine), **OTHER_MAKER_USES} if untimed_maker(machine) else limited(known, machine)


def untimed_maker(machine: Machine) -> str:
    """Return the maker of a board's matrix engine if none of its engines was timed, here or elsewhere; else "".

    A CPU's engines are not meant: from facts its intervals are wide, as most of its work runs on vector units.
    """
    maker, makers = machine.device.architecture.partition(" ")[0], timed_makers(machine)
    with_engine = any(one.engine == "matrix" for one in machine.device.peaks)
    if not maker or not makers or maker in makers or not with_engine or device_kind(machine) == "cpu":
        return ""
    timed = cached(machine.timings, None, "engines", lambda: frozenset(column_texts(machine.timings, "engine")))
    return "" if "matrix" in timed else maker


def timed_makers(machine: Machine) -> frozenset[str]:
    """Return the makers whose matrix engines were timed; none before a machine has typical utilisations."""
    return frozenset() if machine.typical is None else machine.typical.makers


_WORD = re.compile(r"[^\s,;]+")


def runs_software(timings: pd.DataFrame, software: str) -> bool:
    """Return whether a table's kernels ran the software: each row's library and version contain all its words.

    >>> table = pd.DataFrame({"kind": ["gemm"], "library": ["PyTorch"], "library_version": ["2.1, CUDA 12.1"]})
    >>> [runs_software(table, software) for software in ("PyTorch 2.1", "pytorch 2.3", "")]
    [True, False, False]
    """
    wanted = set(_WORD.findall(software.lower()))
    return bool(wanted) and all(
        wanted <= own for own in cached(timings, None, "software", partial(_software, timings))
    )


def library_notes(machine: Machine) -> tuple[str, ...]:
    """Return a note where a machine's products run in libraries that nobody timed, or others than its table's."""
    software = machine.software
    if maker := untimed_maker(machine):
        spread = OTHER_MAKER_USES[OTHER_MAKER].whole
        return (
            f"no matrix engine of {maker} is timed: products and attention of {machine.name} are predicted as on "
            f"those of {', '.join(sorted(timed_makers(machine)))}, so intervals of steps and sums include "
            f"{spread.slower:.0%} for a library that reaches less of its engine, {spread.faster:.0%} for one that "
            "reaches more",
        )
    if not software or STEP not in uses_of(machine) or runs_software(machine.timings, software):
        return ()
    what = f"not every kernel of {machine.name}'s table ran {software}, which the machine states"
    return (f"{what}: intervals of steps include {VERSIONS_SPREAD:.0%} for other versions",)


def _software(timings: pd.DataFrame) -> list[set[str]]:
    """Return the words of each library and version in a table of kernels; links are a separate matter."""
    kernels = timings[timings["kind"].isin(GROUPS)]
    names = [column_texts(kernels, name) for name in ("library", "library_version")]
    return [set(_WORD.findall(text.lower())) for text in (names[0] + " " + names[1]).unique().tolist()]


def _uses_of(timings: pd.DataFrame) -> Uses:
    if "harness" not in timings.columns or not len(timings):
        return {}
    # A row without a harness is a stated figure; the other rows decide.
    harnesses = [str(name) for name in timings["harness"].unique().tolist() if name]
    if harnesses and all(name.startswith(MEASURED) for name in harnesses):
        return MEASURED_USES
    of_benchmarks = harnesses and all(name.startswith((*BENCHMARKS, "nccl")) for name in harnesses)
    return USES if of_benchmarks else {}


ON_ONE_CHIP: Mapping[str, tuple[str, ...]] = {
    "facts": ("roofline",), "similar timings": ("interpolated", "extrapolated", "transferred"),
}  # fmt: skip
"""Time sources whose errors boards of a chip have in common, by name. Facts and timings have none in common."""
IN_COMMON = np.array([[source in names for source in SOURCES] for names in ON_ONE_CHIP.values()])


def chip_of(machine: Machine) -> str:
    """Return the chip whose boards err alike, "" if unknown; a board short of power is unlike one that is not."""
    chip = chip_words(machine.device.architecture)
    return f"{' '.join(chip)}{' short of power' * bool(power_shortfall(machine))}" if len(chip) > 2 else ""


def common_on_chip(ends: Array, width_s: float, chip: str, work: str) -> tuple[tuple[str, float], ...]:
    """Return the shares of a device's error that boards of its chip have in common (`Span.common`), by name.

    Only steps of the same work in equal number formats have any: errors were compared op by op, and those of a
    product in two formats have little in common. What use in a step adds counts as the board's own, because no two
    boards of one chip showed it.

    `ends` (3, names): the time of the ops of each name, without use in a step; `width_s`: of the interval of the
    device time [s]; `work`: what was timed, and the number formats of its ops.
    """
    names = (f"{name} of {chip}, {work}" for name in ON_ONE_CHIP)
    return tuple(zip(names, (((ends[2] - ends[1]) / width_s) ** 2).tolist(), strict=True))


def group_of(kind: str, source: str) -> str:
    """Return the group of an op by the source of its time, "" for none; a machine's `Uses` may not have it."""
    if source in TABLES:
        return GROUPS.get(kind, "")
    return OTHER_MAKER if GROUPS.get(kind) == LIBRARY else ""


def groups_of(timed: pd.DataFrame) -> pd.Series[str]:
    """Return the group of each row; "" where its time does not rest on a table."""
    groups = timed["kind"].astype("str").map(GROUPS).fillna("")
    return groups.where(timed["time_source"].isin(TABLES), "")


def widen_calls(timed: pd.DataFrame, uses: Uses, level: float) -> pd.DataFrame:
    """Widen the interval of each row of a TIMED table by the error of one call inside a step."""
    low, high = timed["low_s"].to_numpy(np.float64, copy=True), timed["high_s"].to_numpy(np.float64, copy=True)
    value = timed["time_s"].to_numpy(np.float64)
    for at, group in enumerate(map(group_of, timed["kind"], timed["time_source"])):
        if group in uses and value[at] > 0:
            low[at], high[at] = uses[group].call.widen(value[at], low[at], high[at], level)
    return timed.assign(low_s=low, high_s=high)


@lru_cache(maxsize=32)
def _group_masks(kinds: tuple[str, ...]) -> dict[str, Array]:
    """Return for each group an array over the ops: 1 for ops in the group, 0 for others."""
    groups = [GROUPS.get(kind, "") for kind in kinds]
    return {group: np.array([float(one == group) for one in groups]) for group in dict.fromkeys(groups)}


def use_widths(
    kinds: tuple[str, ...], seconds: Array, of_table: NDArray[np.bool_], uses: Uses, level: float
) -> dict[str, tuple[Array, Array]]:
    """Return the error that use in a step adds to the sum of all ops, below and above [s], by group.

    The errors of different groups are independent. In a group, errors of calls partly cancel, so the sum has a
    spread of its own. So has the step as a whole (`STEP`).

    `kinds` (n,); `seconds` (n, s): times of n ops in each of s variants of a step, all executions of an op
    together; 0 where unknown; `of_table` (n, s) or (n, 1): true where the time rests on timings of single kernels
    (`TABLES`); `uses`: from `uses_of`; `level`: of the intervals. Returns pairs of arrays (s,) by group.
    """
    timed, masks = seconds * of_table, _group_masks(kinds)
    totals = {group: own @ timed for group, own in masks.items() if group in uses}
    if STEP in uses and totals:
        totals[STEP] = seconds.sum(0) * (np.sum([*totals.values()], axis=0) > 0)
    if OTHER_MAKER in uses and LIBRARY in masks:
        totals[OTHER_MAKER] = masks[LIBRARY] @ (seconds - timed)
    ends = {group: uses[group].whole.widen(1.0, 1.0, 1.0, level) for group in totals}
    return {group: (totals[group] * (1 - low), totals[group] * (high - 1)) for group, (low, high) in ends.items()}


def work_per_pass(costed: pd.DataFrame) -> dict[str, float]:
    """Add up the flop of forward, backward (both gradients) and update of a COSTED table; NaN without a formula.

    >>> import pandas as pd
    >>> passes = ["forward", "backward_input", "backward_weight"]
    >>> work_per_pass(pd.DataFrame({"pass_name": passes, "flop": [2.0, 3.0, 4.0], "count": [1.0, 2.0, 1.0]}))
    {'forward': 2.0, 'backward': 10.0}
    """
    work = (costed["flop"] * costed["count"]).groupby(costed["pass_name"].str.split("_").str[0]).sum(skipna=False)
    return {name: float(work[name]) for name in ("forward", "backward", "update") if name in work.index}
