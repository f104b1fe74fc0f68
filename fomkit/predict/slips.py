"""The slip that explains best why timings and facts do not fit: of the times, of peaks, of the bandwidth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.hardware import Device, Machine, Peak
from fomkit.predict.claims import Claims, Slip, peak_for
from fomkit.predict.rows import Table, as_rows, same_texts
from fomkit.predict.usual import usual_utilisation
from fomkit.quantities import format_quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SAMPLE = 200
"""Rows of a family that are compared with like machines, and with which slips are told apart."""
BAND = 3.0
"""Times what like machines take within which the median of every family hides no slip by a power of ten."""
MUST_EXPLAIN, MUST_GAIN = 0.6, 1.0
"""Share of what is bad that a slip may leave, and e-folds that it must mend."""
FEW = 3
"""Number of impossible rows from which a family, or a fact, is wrong."""
ALIKE = 0.7
"""e-folds by which two slips explain what is bad nearly alike; then both are named."""
RIDGES: Mapping[str, tuple[float, float]] = {"vector": (0.1, 1500.0), "matrix": (1.0, 2e4)}
"""flop/byte of peak over bandwidth; shipped machines have 0.6 to 115 (vector) and 9.6 to 848 (matrix)."""
_FP64_LEAST = 0.03
_UNITS: Mapping[int, str] = {3: "milliseconds", 6: "microseconds", 9: "nanoseconds"}
_KEY = ("kind", "pass_name", "dtype", "engine")


class Family(NamedTuple):
    """Timings of one kind, pass, number format and engine, by position."""

    name: tuple[str, ...]
    at: NDArray[np.intp]

    def __str__(self) -> str:
        kind, pass_name, dtype, engine = self.name
        return "/".join(part for part in (kind, dtype, engine, pass_name) if part)


class Words(NamedTuple):
    """Where a slip is, what it looks like, how large it is, and what to do about it."""

    where: str
    cause: str
    size: str
    remedy: str


def families_of(timings: Table) -> list[Family]:
    """Give the families of a table."""
    names, numbers_of = same_texts(timings, *_KEY)
    order = np.argsort(numbers_of, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(numbers_of, minlength=len(names)))[:-1])
    return [Family(name, part) for name, part in zip(names, parts, strict=True)]


def median(values: Array) -> float:
    """Give the median of the finite values; NaN where there is none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


def some(at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Choose at most `SAMPLE` rows, evenly."""
    return at[:: -(-len(at) // SAMPLE)] if len(at) else at


def usual_of(timings: Table, machine: Machine, at: NDArray[np.intp]) -> Array:
    """Give the utilisation that like machines reach at some rows, 1 where none is like."""
    device, pairs = machine.device, same_texts(timings, "dtype", "engine")[0]
    found = [(dtype, engine, *peak_for(device, dtype, engine)) for dtype, engine in pairs]
    lent = [
        replace(device.peaks[place], dtype=dtype, engine=engine)
        for dtype, engine, place, is_own in found
        if place >= 0 and not is_own
    ]
    whole = replace(machine, device=replace(device, peaks=(*device.peaks, *lent)), fits={})
    usual = usual_utilisation(as_rows(timings).take(at), whole, 0.8).value
    return np.where(np.isnan(usual), 1.0, usual)


def beside_others(seen: Claims, usual: Array) -> Array:
    """Give how many times as long timings take as the usual utilisation says, launches aside."""
    starts = np.nan_to_num(np.minimum(seen.launch, 0.5))
    slower = (1 - starts) * usual / np.fmax(seen.compute, seen.traffic)
    return np.where(seen.exchanged, np.nan, slower)


def ridges(peak: Peak) -> tuple[float, float]:
    """Give the ends of flop per byte between which a peak is plausible."""
    least, most = RIDGES[peak.engine]
    return (min(least, _FP64_LEAST) if peak.dtype == "fp64" else least), most


def _penalty(device: Device, slip: Slip) -> float:
    """Give how far peaks lie beside the bandwidth from those of machines that exist, in e-folds."""
    found = [0.0]
    for place, peak in enumerate(device.peaks if device.byte_per_s is not None else ()):
        rate = device.byte_per_s.value if device.byte_per_s is not None else math.nan
        rate *= slip.factor if slip.of == "bandwidth" else 1.0
        ridge = peak.rate.value * (slip.factor if place in slip.peaks else 1.0) / rate
        least, most = ridges(peak)
        found.append(max(math.log(least / ridge), math.log(ridge / most), 0.0))
    return max(found)


def _tried(device: Device) -> Iterator[Slip]:
    """Give the slips to try: of the times, of each peak, of equal peaks, of all peaks, of the bandwidth."""
    factors = [10.0**power for power in (*range(-9, 0), *range(1, 10))]
    yield from (Slip("times", one) for one in factors)
    every = range(len(device.peaks))
    equal = [
        tuple(place for place in every if device.peaks[place].rate.value == rate)
        for rate in {peak.rate.value for peak in device.peaks}
    ]
    groups = [(place,) for place in every] + sorted(group for group in equal if len(group) > 1)
    for group in dict.fromkeys([*groups, tuple(every)] if len(every) else groups):
        yield from (Slip("peak", one, group) for one in factors)
    if device.byte_per_s is not None:
        yield from (Slip("bandwidth", one) for one in (1 / 8, 8.0, *factors))


def best_slips(
    timings: Table, seen: Claims, families: Sequence[Family], machine: Machine, *, wrong: bool
) -> list[Slip]:
    """Find the slip that makes timings and facts fit best, and another that does nearly so; none where none does.

    It is as bad as its shares of impossible rows, as families lie apart from like machines (in e-folds), and as
    peaks lie apart from those of machines that exist. Where nothing is ``wrong`` and all families lie within the
    band of like machines, none is tried.
    """
    chosen = [some(family.at) for family in families]
    at, ends = np.concatenate(chosen), np.cumsum([0, *map(len, chosen)])
    usual, part = usual_of(timings, machine, at), seen.take(at)
    spans = [slice(*pair) for pair in pairwise(ends.tolist())]

    def apart(claimed: Claims) -> list[float]:
        slower = beside_others(claimed, usual)
        middles = [median(slower[span]) for span in spans]
        return [abs(math.log(middle)) for middle in middles if middle > 0]

    def badness(slip: Slip) -> float:
        fixed = part.without(slip)
        impossible = fixed.impossible
        total = _penalty(machine.device, slip) + sum(apart(fixed))
        total += 10 * sum(float(impossible[span].mean()) for span in spans)
        # Times slip by whole prefixes; facts by any factor, as a format's peak taken for another's.
        whole = round(math.log10(slip.factor), 6) % 3 == 0
        return total + (0.0 if slip.factor == 1 else 0.2 if whole else 3.0 if slip.of == "times" else 0.5)

    if not wrong and max(apart(part), default=0.0) < math.log(BAND):
        return []
    # Whatever is too low, or too short, shows in rows that cannot be; a fast family alone has a large cache.
    fast = int(seen.impossible.sum()) >= FEW
    scores = {slip: badness(slip) for slip in _tried(machine.device) if fast or slip.factor < 1}
    now = badness(Slip("times", 1.0))
    order = sorted(
        (slip for slip in scores if scores[slip] < min(MUST_EXPLAIN * now, now - MUST_GAIN)),
        key=scores.__getitem__,
    )
    if not order:
        return []
    best = _least([slip for slip in order if scores[slip] < scores[order[0]] + ALIKE], seen)
    others = [slip for slip in order if slip.of != best.of and scores[slip] < scores[order[0]] + ALIKE]
    return [best, *others[:1]]


def _least(alike: Sequence[Slip], seen: Claims) -> Slip:
    """Choose, of the slips of one fact that explain alike, the least that leaves no more impossible rows."""
    best = alike[0]
    left = {slip: seen.without(slip).impossible.sum() for slip in alike if slip[::2] == best[::2]}
    least = [slip for slip in left if left[slip] <= left[best]]
    return min(least, key=lambda slip: abs(math.log(slip.factor)))


def words_of(slip: Slip | None, device: Device) -> Words:
    """Say where a slip is, what it is, how large, and what to do about it."""
    if slip is None:
        remedy = "Correct the rows, or leave them out; they may be of other ops, formats or engines than they say."
        return Words("timings", "timings and facts do not fit, and no single slip explains it", "", remedy)
    factor, unit = max(slip.factor, 1 / slip.factor), _UNITS.get(abs(round(math.log10(slip.factor))), "")
    about = f"about {factor:,.0f} ×"
    if slip.of == "times" and slip.factor < 1:
        like = f"the times look like {unit}" if unit else "the times are too long"
        return Words("timings", like, f"{about} too long", "Write seconds into time_s.")
    if slip.of == "times":
        like = f", as if seconds had been taken for {unit}" if unit else ""
        return Words("timings", f"the times are too short{like}", about, "Write seconds into time_s.")
    more = "low" if slip.factor > 1 else "high"
    fact, dimension, field = device.byte_per_s, "byte_per_s", "device.memory.bandwidth"
    if slip.of == "peak":
        fact, dimension, field = device.peaks[slip.peaks[0]].rate, "flop_per_s", "device.peak"
    value = math.nan if fact is None else fact.value
    stated, likely = (format_quantity(value * by, dimension) for by in (1.0, slip.factor))
    shown = [f"{one.dtype} on the {one.engine} engine" for one in (device.peaks[at] for at in slip.peaks)]
    if len(shown) > 1:
        every = f"all {len(shown)} peaks"
        if len(shown) < len(device.peaks):
            every = f"the peaks of {' and '.join(shown)}"
        cause = f"{every}, the first of {stated}, look too {more}"
    else:
        name = f"the peak of {shown[0]}" if shown else "the memory bandwidth"
        cause = f"{name}, {stated}, looks too {more}"
    bits = ", bits for bytes?" if slip.factor == 8 else ""
    size = f"{about}{bits}: with {likely} the timings fit the other facts"
    return Words("facts", cause, size, f"Correct {field}.")
