"""Check whether a machine's timings and facts are plausible, by peaks, bandwidth and similar machines.

`check_timings` compares each timing with its limits (`claims`), which no algorithm, cache or clock exceeds; a time
hundreds of times longer than other timed machines need for such ops is impossible too. Single rows are left out,
each with the reason. A family that is wrong as a whole is refused, with the slip that explains it best: of the
times, peaks or the bandwidth, by a power of ten. `check_facts` compares the facts with each other.

All limits are judgements, beyond the most extreme of the 69,000 timings of the shipped machines: products at
1.07 × the peak, Winograd at 4.42 ×, attention at 1.35 ×, caches at 2.5 × the bandwidth (3.5 × elsewhere),
recurrent layers 333 × slower than peak and bandwidth, convolutions of a Raspberry Pi 128 × slower than elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Device, Fact, Link, Machine, Peak
from fomkit.core.units import agree, count_text, exact_quantity, format_number, format_quantity
from fomkit.ops.groups import describe_sizes
from fomkit.prediction.estimators import Table, as_rows, numbers
from fomkit.prediction.gp import Flags
from fomkit.prediction.rates import own_times
from fomkit.profiles import claims
from fomkit.profiles.claims import Claims, Families, Family, Slip

SLOW = 350.0
"""Multiple of similar machines' times from which timings are impossible: kernels of large tables reach 212."""
SLOW_IN_FAMILY = 30.0
"""The same, over the family's own median."""
LOOK = 50.0
"""Multiple of the floor from which a family's median is compared with similar machines."""
LOOK_AT_ROW = 200.0
FAST, FAST_IN_FAMILY = 0.05, 0.01
"""Share of similar machines' times, and of its family's median, below which a single timing is impossible."""
BULK = 0.2
"""Share of impossible rows, with at least `FEW`, from which the family as a whole is wrong, not single rows."""
SOME, SOME_FEW = 0.02, 10
"""Share and number of impossible rows of a table from which a fact that explains them is wrong, not the rows."""
MOST_MEDIAN, LEAST_BEST, LONG_S = 0.9, 0.2, 1e-4
"""Share of the peak that the median product of a table is below, and share that the fastest exceeds if any product
takes this time at the peak [s]; on shipped machines 0.80 at most and 0.49 at least."""
SLOW_FEW = 5
"""Rows from which a slow family is wrong as a whole; fewer are left out singly, unless all families are slow."""
SLOW_SMALL = 150.0
"""Multiple of similar machines' times from which families of fewer rows are suspected."""
SLOW_EXCHANGE_S, SLOW_EXCHANGE = 3e-3, 1e9
"""Exchanges that all take longer [s] and move less [byte/s] are of a slow network, or in milliseconds."""
SLOWEST_PRODUCT, FASTEST_PRODUCT = 1e7, 1e17
"""Bounds [flop/s] of a device's fastest product in all known timings; for tables without facts."""

_IMPOSSIBLE_RIDGE = 1000.0
"""Factor beyond the limits of `RIDGES` from which a fact is refused without any timing."""
_FILL_S = (1e-4, 15.0)
"""Bounds of the time to read all memory once [s]; shipped machines take 19 ms to 0.3 s."""
_ON_CHIP = 5e12
"""Bandwidth [byte/s] from which small memories are on the chip."""
_LAUNCH_S = (2e-8, 1e-3)
_FASTEST: Mapping[str, tuple[float, str]] = {
    "vector": (163.4e12, "mi300x"), "matrix": (15e15, "gb300"), "memory": (8e12, "b200-sxm"),
    "links": (9 * 1e11, "b200-sxm"),
}  # fmt: skip
"""The highest peaks [flop/s], bandwidth and rate of a link [byte/s] of shipped machines, and one with each."""
_UNLIKE_ANY = 10.0
"""Multiple of these from which a rate is suspected: device bandwidth grew tenfold in nine years (P100, B200)."""
_NO_DEVICE = {"flop_per_s": 1e19, "byte_per_s": 1e18}
"""Rates that no device can have: 100 kW at a tenth of the energy of today's narrowest formats (0.1 pJ/flop) and of
memories on the chip (1 pJ/byte)."""

Rate = Fact | Link

Slow = Sequence[tuple[Family, float]]
"""Each family with its time over similar machines' if it is slow, else NaN."""


class Verdict(NamedTuple):
    """Text on each impossible timing, by position, and suspicions."""

    impossible: Mapping[int, str]
    suspicions: tuple[str, ...] = ()


def _times(factor: float) -> str:
    return f"{factor:,.0f} ×" if factor >= 100 else f"{format_number(factor, 3)} ×"


def _claims(family: Family, seen: Claims, bad: Flags, slow: float | None) -> str:
    """Describe what is wrong with a family: it is slow, or rows of it are impossible."""
    count, own = len(family.at), family.at
    if slow is not None:
        return f"{family}: {_times(slow)} as long as on similar machines"
    fastest, parts = [np.nanmax(one[own], initial=0.0) for one in (seen.compute, seen.traffic, seen.launch)], []
    if fastest[0] > np.nanmin(seen.most_compute[own]):
        parts.append(f"up to {format_number(float(fastest[0]), 3)} × the peak")
    if fastest[1] > np.nanmin(seen.most_traffic[own], initial=np.inf):
        parts.append(f"up to {format_number(float(fastest[1]), 3)} × the bandwidth")
    if fastest[2] > claims.LAUNCHES:
        parts.append(f"down to 1/{format_number(float(fastest[2]), 3)} of a launch")
    if none := int(np.isnan(seen.seconds[own]).sum()):
        parts.append(f"{none:,} {agree(none, 'does/do')} not exceed the overhead of their harness")
    many = int(bad[own].sum())
    what = f"{many:,} of {count_text(count, 'timing')} {agree(many, 'is/are')} physically impossible"
    return f"{family}: {what}, {', '.join(parts)}"


def _finding(found: Sequence[str], slips: Sequence[Slip], machine: Machine) -> tuple[str, str]:
    """Write where the likely slip is, and a text of cause, size, example and remedy."""
    words = claims.words_of(slips[0] if slips else None, machine.device)
    several = f"{len(found)} families, for example " if len(found) > 1 else ""
    size = "; ".join(part for part in (words.size, f"{several}{found[0]}" if found else "") if part)
    if len(slips) < 2:
        return words.where, f"{words.cause} ({size}). {words.remedy}"
    other = claims.words_of(slips[1], machine.device)
    remedy = "Compare both with their sources, and correct the one that is wrong."
    return "timings or facts", f"{words.cause}, or {other.cause} ({size}; or {other.size}). {remedy}"


def _reason(seen: Claims, place: int) -> str:
    """Write why one timing is impossible."""
    if math.isnan(seen.seconds[place]):
        return "does not exceed the overhead of its harness"
    if seen.compute[place] > seen.most_compute[place]:
        return f"implies {format_number(float(seen.compute[place]), 3)} × the peak"
    if seen.traffic[place] > seen.most_traffic[place]:
        return f"implies {format_number(float(seen.traffic[place]), 3)} × the bandwidth"
    return f"is 1/{format_number(float(seen.launch[place]), 3)} of the time of its launches"


def _named(timings: pd.DataFrame, place: int, why: str) -> str:
    """Describe a timing by its row, sizes and source."""
    row = {str(name): cell for name, cell in timings.iloc[place].items()}
    places = (row.get(name) for name in ("source_file", "source_sheet"))
    source, line = [str(one) for one in places if one and one == one], row.get("source_row")
    if isinstance(line, float) and not math.isnan(line):
        source.append(f"row {line:g}")
    from_where = f" ({', '.join(source)})" if source else ""
    words = " ".join(str(row.get(name) or "") for name in ("kind", "dtype", "pass_name")).split()
    taken = format_quantity(float(row["time_s"]), "time_s")
    number = int(timings.index[place]) + 1
    return f"row {number}, {' '.join(words)} {describe_sizes(row)}{from_where}: {taken} {why}"


def _without_facts(timings: Table, seen: Claims, families: Families) -> Iterator[str]:
    """Find families of products, on devices without peak and bandwidth, with a rate outside all known timings."""
    flop = numbers(timings, "flop")
    slowness = seen.slowness
    for family in families:
        own = family.at
        if family.name[0] not in claims.LIMITS or not np.isnan(slowness[own]).all():
            continue
        best = float(np.nanmax(flop[own] / seen.seconds[own], initial=0.0))
        if len(own) >= SLOW_FEW and best and not SLOWEST_PRODUCT <= best <= FASTEST_PRODUCT:
            rate = format_quantity(best, "flop_per_s")
            yield f"{family}: the fastest of {len(own):,} timings reaches {rate}, outside the plausible range"


def _slow_families(timings: Table, seen: Claims, machine: Machine, families: Families) -> Slow:
    """Find slow families, by the median of their times over similar machines'."""
    found, slowness = list[tuple[Family, float]](), seen.slowness
    for family in families:
        middle, least = math.nan, SLOW if len(family.at) >= SLOW_FEW else SLOW_SMALL
        if claims.median(slowness[family.at]) > LOOK:
            middle = claims.median(claims.apart_from_others(timings, seen, machine, claims.some(family.at)))
        found.append((family, middle if middle > least else math.nan))
    return found


def _odd_rows(timings: Table, seen: Claims, machine: Machine, families: Families) -> Iterator[tuple[int, str]]:
    """Find single rows that are far slower, or faster, than their family and than similar machines."""
    slowness = seen.slowness
    for family in families:
        own = slowness[family.at]
        looked = family.at[(own > LOOK_AT_ROW) | (own < FAST * claims.median(own))]
        if len(own) < SLOW_FEW or not len(looked):
            continue
        at = np.concatenate([looked, claims.some(family.at)])
        slower = claims.apart_from_others(timings, seen, machine, at)
        middle = claims.median(slower[len(looked) :])
        for place, times in zip(looked.tolist(), slower.tolist(), strict=False):
            if times > max(SLOW, SLOW_IN_FAMILY * middle) or times < min(FAST, FAST_IN_FAMILY * middle):
                yield place, f"is {_times(times)} as long as on similar machines, unlike its family"


def _slow_exchanges(timings: Table, seen: Claims) -> Iterator[str]:
    seconds, moved = seen.seconds[seen.exchanged], numbers(timings, "message_byte")[seen.exchanged]
    if len(seconds) >= SLOW_FEW and seconds.min() > SLOW_EXCHANGE_S and (moved / seconds).max() < SLOW_EXCHANGE:
        least = format_quantity(seconds.min(), "time_s")
        most = format_quantity((moved / seconds).max(), "byte_per_s")
        yield (
            f"no exchange of {len(seconds):,} takes less than {least} or moves more than {most}; time_s may be in "
            "milliseconds"
        )


def check_timings(timings: pd.DataFrame, machine: Machine, kind_of_device: str = "") -> Verdict:
    """Return the impossible timings of a machine.

    `timings`: COSTED timings, checked; `machine`: with the facts of these timings; `kind_of_device`: gpu, cpu, or
    "" if unknown. Returns single rows to leave out, and suspicions. Raises FomkitError with the likely slip where
    a family as a whole, or a fact, is inconsistent with the other figures.
    """
    with np.errstate(all="ignore"):
        rows = as_rows(timings)  # so that its text columns are read once
        seen = claims.claims_of(rows, own_times(timings), machine.device, kind_of_device)
        families = claims.families_of(rows)
        slow, impossible = _slow_families(rows, seen, machine, families), seen.impossible
        wrong = [*_wrong_families(seen, slow), *_without_facts(rows, seen, families)]
        several = impossible.sum() >= SOME_FEW and impossible.mean() >= SOME
        is_wrong = bool(wrong) or impossible.sum() >= claims.FEW
        slips = claims.best_slips(rows, seen, families, machine, wrong=is_wrong)
        affected = [_claims(family, seen, impossible, None) for family in families if impossible[family.at].any()]
        is_fact = bool(slips) and slips[0].of != "times"
        if wrong or (several and is_fact):
            where, what = _finding(wrong or affected, slips, machine)
            raise FomkitError(f"{machine.name}: {where}", what)
        suspicions = [
            *_slow_exchanges(rows, seen),
            *(
                f"the {len(family.at)} timings of {family} take {_times(times)} as long as on similar machines; "
                "check the unit of time_s"
                for family, times in slow
                if times <= SLOW  # suspicious, but possible
            ),
        ]
        if is_fact:
            # Rows that are impossible because of one wrong fact stay in the table.
            suspicions.append(_finding(_different(rows, seen, machine, families) or affected, slips, machine)[1])
            seen = seen.without(slips[0])
        suspicions += _unlike_peak(seen, families)
        why = dict(_odd_rows(rows, seen, machine, families))
        for family, times in slow:
            reason = f"is of {family}, {_times(times)} as long as on similar machines"
            why |= dict.fromkeys(family.at.tolist() if times > SLOW else (), reason)
        why |= {int(place): _reason(seen, int(place)) for place in np.flatnonzero(seen.impossible)}
    named = {place: _named(timings, place, why[place]) for place in sorted(why)}
    return Verdict(named, tuple(suspicions))


def _wrong_families(seen: Claims, slow: Slow) -> Iterator[str]:
    """Describe each family that is wrong as a whole."""
    impossible = seen.impossible
    most = impossible.sum() >= claims.FEW and impossible.mean() >= 0.5
    lone = all(times > SLOW for _, times in slow)
    many = any(times > SLOW and len(family.at) >= SLOW_FEW for family, times in slow)
    for family, times in slow:
        own = impossible[family.at]
        if (own.sum() >= claims.FEW and own.mean() >= BULK) or (most and own.any()):
            yield _claims(family, seen, impossible, None)
        elif times > SLOW and (lone or many):
            yield _claims(family, seen, impossible, times)


def _unlike_peak(seen: Claims, families: Families) -> Iterator[str]:
    """Describe products above their peak by more than clocks explain, all near it, or none, but possible."""
    for family in families:
        own = family.at[~seen.impossible[family.at] & seen.stated[family.at]]
        if family.name[0] != "gemm" or not len(own):
            continue
        count, rates = len(family.at), seen.compute[own]
        most, middle = float(rates.max()), claims.median(rates * claims.LIMITS["gemm"] / seen.most_compute[own])
        above = rates > claims.BOOST / claims.LIMITS["gemm"] * seen.most_compute[own]
        long = (seen.compute_s[own] > LONG_S) & ~(seen.compute_s[own] < seen.traffic_s[own])
        if many := int(above.sum()):
            yield (
                f"{family}: {many:,} of {count_text(count, 'product')} {agree(many, 'exceeds/exceed')} the peak, "
                f"up to {format_number(most, 3)} ×: halved times, a peak stated too low, or boost clocks?"
            )
        if count >= SOME_FEW and middle > MOST_MEDIAN:
            yield (
                f"{family}: half of {count:,} products reach {middle:.0%} of the peak (on shipped machines 80% at "
                "most): calculated instead of measured, or only the fastest?"
            )
        if count >= SOME_FEW and long.any() and most < LEAST_BEST:
            yield (
                f"{family}: the fastest of {count:,} products reaches {most:.0%} of the peak (on shipped machines "
                "49% at least): a peak of another unit or format, or times that include other work?"
            )


def _different(timings: Table, seen: Claims, machine: Machine, families: Families) -> list[str]:
    """Describe the families that differ from similar machines, the most different first."""
    found = {}
    for family in families:
        middle = claims.median(claims.apart_from_others(timings, seen, machine, claims.some(family.at)))
        if middle > claims.BAND or middle < 1 / claims.BAND:
            found[f"{family}: {_times(middle)} as long as on similar machines"] = abs(math.log(middle))
    return sorted(found, key=found.__getitem__, reverse=True)


def check_facts(device: Device, name: str, links: Sequence[Link] = (), *, refuse: bool = True) -> tuple[str, ...]:
    """Return suspicions about facts; impossible facts raise FomkitError if ``refuse`` (false for what-ifs)."""
    rate, room, launch_s = map(_positive, (device.byte_per_s, device.capacity_byte, device.launch_s))
    peaks = [peak for peak in device.peaks if _positive(peak.rate) and rate]
    ratios = [*_strange_peaks(peaks, rate, name, refuse=refuse)]
    # A message on peaks relative to the bandwidth describes the slip better.
    alone: list[tuple[str, str, Rate]] = []
    if not ratios:
        alone += [
            (f"the peak of {one.dtype} on the {one.engine} engine", one.engine, one.rate) for one in device.peaks
        ]
        alone += [("the memory bandwidth", "memory", device.byte_per_s)] if device.byte_per_s is not None else []
    ends = {(link.tier, link.byte_per_s): (f"the link of tier {link.tier}", "links", link) for link in links}
    messages = [*ratios, *_unlike_any((*alone, *ends.values()), name, refuse=refuse)]
    fill_s = room / rate if room and rate else math.nan
    if (fill_s < _FILL_S[0] and rate < _ON_CHIP) or fill_s > _FILL_S[1]:
        messages.append(
            f"a memory of {exact_quantity(room, 'byte')} at {format_quantity(rate, 'byte_per_s')} is read once "
            f"in {format_quantity(fill_s, 'time_s')} (shipped machines: 19 ms to 0.3 s); check the units of "
            "memory.capacity and memory.bandwidth"
        )
    if launch_s and not _LAUNCH_S[0] <= launch_s <= _LAUNCH_S[1]:
        shown = format_quantity(launch_s, "time_s")
        messages.append(f"a launch of {shown} is implausible (machines take 1 to 50 us); check launch.per_op")
    return tuple(messages)


_KEYS = {"memory": "device.memory.bandwidth", "links": "links"}


def _unlike_any(rates: Iterable[tuple[str, str, Rate]], name: str, *, refuse: bool) -> Iterator[str]:
    """Compare each rate (description, key of `_FASTEST`, fact) with the highest of shipped machines."""
    for what, of, rate in rates:
        value = rate.byte_per_s if isinstance(rate, Link) else rate.value
        unit, key = "byte_per_s" if of in _KEYS else "flop_per_s", _KEYS.get(of, "device.peak")
        fastest, where = _FASTEST[of]
        if value <= _UNLIKE_ANY * fastest or math.isinf(value):
            continue
        most, stated = (format_quantity(one, unit) for one in (fastest, value))
        text = f"{what}, {stated}, is {_times(value / fastest)} the highest of shipped machines, {most} ({where})"
        if refuse and value > _NO_DEVICE[unit]:
            limit = format_quantity(_NO_DEVICE[unit], unit)
            raise FomkitError(f"{name}: facts", f"{text}; no device reaches {limit}. Correct {key}.")
        yield f"{text}; check the unit of {key}"


def _positive(fact: Fact | None) -> float:
    """Return a fact's value; 0 where it is not stated, or is refused elsewhere."""
    return fact.value if fact is not None and 0 < fact.value < math.inf else 0.0


def _strange_peaks(peaks: Sequence[Peak], rate: float, name: str, *, refuse: bool) -> Iterator[str]:
    """Compare each peak with the bandwidth; if all deviate in the same direction, the bandwidth may be wrong."""
    shown = format_quantity(rate, "byte_per_s")
    off = [_excess(peak, peak.rate.value / rate) for peak in peaks]
    together = len(off) > 1 and all(off) and len({by > 0 for by in off}) == 1
    if together:
        peaks_look, rate_looks = ("low", "high") if off[0] < 0 else ("high", "low")
        every = "both" if len(off) == 2 else f"all {len(off)}"
        yield (
            f"{every} peaks look too {peaks_look}, or the memory bandwidth of {shown} too {rate_looks}, by a "
            f"factor of {min(map(abs, off)):,.0f} or more; check the units of both"
        )
    for peak, by in zip(peaks, off, strict=True):
        stated, ridge = format_quantity(peak.rate.value, "flop_per_s"), format_number(peak.rate.value / rate, 3)
        reference = "2.9 to 106 in fp32" if peak.engine == "vector" else "9.6 to 848"
        more, less = ("low", "high") if by < 0 else ("high", "low")
        text = (
            f"the peak of {peak.dtype} on the {peak.engine} engine, {stated}, is {ridge} flop a byte of the "
            f"memory's {shown}; shipped machines have {reference} there, so the peak looks too {more}, or the "
            f"bandwidth too {less}; check the units of both"
        )
        if refuse and abs(by) > _IMPOSSIBLE_RIDGE:
            raise FomkitError(f"{name}: facts", f"{text}. Correct device.peak or device.memory.bandwidth.")
        if by and not together:
            yield text


def _excess(peak: Peak, ridge: float) -> float:
    """Return the factor by which a ridge point is above the plausible range, negative if it is below; 0 within."""
    least, most = claims.ridges(peak)
    return ridge / most if ridge > most else -least / ridge if ridge < least else 0.0
