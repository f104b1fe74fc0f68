"""The rates that timings imply, over the peak and bandwidth that facts state, and the limits of these ratios.

Where timings and facts are inconsistent, `best_slips` finds the slip that explains this best: a wrong unit of the
times, of a peak or of the bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.core.units import format_quantity
from fomkit.prediction.estimators import Table, as_rows, is_in, numbers, same_texts
from fomkit.prediction.gp import Flags, Indices, Matrix, Places
from fomkit.prediction.rates import CACHED_BYTE
from fomkit.prediction.typical import typical_utilisation

LIMITS: Mapping[str, float] = {"gemm": 2.0, "sparse_gemm": 2.0, "rnn": 2.0, "attention": 3.0, "conv": 5.5,
                                "experts": 2.0}  # fmt: skip
"""Multiples of the peak above which a timing is impossible, by clocks above the datasheet's, masks, Winograd."""
BOOST = 1.25
"""Multiple of the peak above which a product is suspected: the largest that any machine reached is 1.07."""
OTHER_LIMIT = 2.0
UNSTATED_PEAK = 64.0
"""Limit for a format without a stated peak, over the largest stated peak: it may be narrow, on a matrix engine."""
CACHED = {"gpu": 5.0, "cpu": 40.0, "": 40.0}
"""Multiples of the bandwidth above which ops that fit a cache are impossible; CPU caches are fast and private."""
UNCACHED = 1.5
"""Multiple of the bandwidth above which an op that no cache holds is impossible."""
SUSTAINED = 4.0
"""Factor on a limit where the rate itself was measured: what a busy machine sustained is no physical limit."""
LAUNCHES = 50.0
"""No op is this many times shorter than a launch."""
EXCHANGED = 1.5
"""Multiple of the memory bandwidth above which an exchange cannot move its message, as memory must read it."""


class Slip(NamedTuple):
    """A possible mistake (``of`` times, peak or bandwidth) and the factor that corrects it; peaks by position."""

    of: str
    factor: float
    peaks: tuple[int, ...] = ()


class Claims(NamedTuple):
    """The times that each timing is compared with: of its arithmetic, traffic and launches by the facts.

    ``printed`` are times plus the clock step; ``seconds`` the same less the harness, NaN where nothing remains;
    ``against`` is the position of the peak that a timing is compared with, -1 without one; ``stated`` is true
    where that peak is of the timing's own format.
    """

    printed: Matrix
    harness: Matrix
    seconds: Matrix
    compute_s: Matrix
    traffic_s: Matrix
    launch_s: Matrix
    most_compute: Matrix
    most_traffic: Matrix
    against: Indices
    exchanged: Flags
    stated: Flags

    def take(self, at: Places) -> Claims:
        """Select some timings, by position."""
        return Claims._make(column[at] for column in self)

    def without(self, slip: Slip) -> Claims:
        """Return the claims with a slip corrected."""
        seconds = self.printed * (slip.factor if slip.of == "times" else 1.0) - self.harness
        peak = np.where(np.isin(self.against, slip.peaks), slip.factor if slip.of == "peak" else 1.0, 1.0)
        return self._replace(
            seconds=np.where(seconds > 0, seconds, np.nan),
            compute_s=self.compute_s / peak,
            traffic_s=self.traffic_s / (slip.factor if slip.of == "bandwidth" else 1.0),
        )

    @property
    def compute(self) -> Matrix:
        """Rate [flop/s] over the peak."""
        return self.compute_s / self.seconds

    @property
    def traffic(self) -> Matrix:
        """Rate [byte/s] over the bandwidth."""
        return self.traffic_s / self.seconds

    @property
    def launch(self) -> Matrix:
        """Time of its launches over the time."""
        return self.launch_s / self.seconds

    @property
    def impossible(self) -> Flags:
        """Whether each timing is impossible."""
        fast = (self.compute > self.most_compute) | (self.traffic > self.most_traffic) | (self.launch > LAUNCHES)
        return np.asarray(fast | np.isnan(self.seconds))

    @property
    def slowness(self) -> Matrix:
        """Time over the sum of launches and floor; NaN where it is unknown, and for exchanges."""
        floor_s = np.fmax(self.compute_s, self.traffic_s)
        known = (floor_s > 0) & ~self.exchanged
        return np.where(known, self.seconds / (np.nan_to_num(self.launch_s) + floor_s), np.nan)


def peak_for(device: Device, dtype: str, engine: str) -> tuple[int, bool]:
    """Return the position of a format's own peak, else of the largest, and whether it is its own; -1 if none."""
    own = [place for place, one in enumerate(device.peaks) if (one.dtype, one.engine) == (dtype, engine)]
    if own or not device.peaks:
        return (own or [-1])[0], bool(own)
    return max(range(len(device.peaks)), key=lambda place: device.peaks[place].rate.value), False


def _looser(rate: Fact) -> float:
    """Return the factor by which a limit is looser than for a datasheet's rate."""
    return SUSTAINED if rate.basis in ("measured", "simulated", "modelled") else 1.0


def claims_of(timings: Table, own: pd.DataFrame, device: Device, kind_of_device: str) -> Claims:
    """Compute the claims of COSTED timings; ``own`` is the table with `fomkit.prediction.rates.own_times`."""
    count = len(timings)
    time_s = numbers(timings, "time_s")
    printed, harness = time_s + own["_step_s"].to_numpy(), time_s - own["_time_s"].to_numpy()
    against, rate, most = np.full(count, -1), np.full(count, np.nan), np.full(count, OTHER_LIMIT)
    stated = np.zeros(count, bool)
    kinds, kind_of = same_texts(timings, "kind")
    for number, (kind,) in enumerate(kinds):
        most[kind_of == number] = LIMITS.get(kind, OTHER_LIMIT)
    pairs, pair_of = same_texts(timings, "dtype", "engine")
    for number, (dtype, engine) in enumerate(pairs):
        at, (place, is_own) = pair_of == number, peak_for(device, dtype, engine)
        against[at], stated[at] = place, is_own
        if place >= 0:
            rate[at] = device.peaks[place].rate.high
            most[at] *= _looser(device.peaks[place].rate)
        if not is_own:
            most[at] = UNSTATED_PEAK
    # Named ops may do less than their sizes say: attention over a window, experts without gates or not all in use.
    less = is_in(timings, "kind", "attention", "experts") & ~is_in(timings, "op", "")
    exchanged = np.array([kind == "collective" for (kind,) in kinds], bool)[kind_of]
    byte = np.where(exchanged, numbers(timings, "message_byte"), numbers(timings, "byte"))
    # What a cache holds is not read from memory; the rest is, at the bandwidth.
    held = UNCACHED * byte / np.maximum(byte - CACHED_BYTE, 1.0)
    looser = 1.0 if device.byte_per_s is None else _looser(device.byte_per_s)
    launch_s = device.launch_s.low if device.launch_s is not None else np.nan
    return Claims(
        printed=printed,
        harness=harness,
        seconds=np.where(own["_time_s"] > 0, printed - harness, np.nan),
        compute_s=np.where(exchanged | less, np.nan, numbers(timings, "flop") / rate),
        traffic_s=np.where(less, np.nan, byte) / (np.nan if device.byte_per_s is None else device.byte_per_s.high),
        launch_s=np.where(exchanged, np.nan, numbers(timings, "launches") * launch_s),
        most_compute=most,
        most_traffic=np.where(exchanged, EXCHANGED, looser * np.minimum(CACHED[kind_of_device], held)),
        against=against,
        exchanged=exchanged,
        stated=stated,
    )


SAMPLE = 200
"""Rows of a family that are compared with similar machines, and used to compare slips."""
BAND = 3.0
"""If the median of every family is within this factor of similar machines, no slip by a power of ten exists."""
MUST_EXPLAIN, MUST_GAIN = 0.6, 1.0
"""Largest share of the badness that a slip may leave, and the least badness (e-folds) that it must remove."""
FEW = 3
"""Number of impossible rows from which a family, or a fact, is wrong."""
SIMILAR_SCORE = 0.7
"""Difference in badness (e-folds) up to which two slips explain it nearly equally; then both are named."""
RIDGES: Mapping[str, tuple[float, float]] = {"vector": (0.1, 1500.0), "matrix": (1.0, 2e4)}
"""flop/byte of peak over bandwidth; shipped machines have 0.6 to 115 (vector) and 9.6 to 848 (matrix)."""
_FP64_LEAST = 0.03
_UNITS: Mapping[int, str] = {3: "milliseconds", 6: "microseconds", 9: "nanoseconds"}
_KEY = ("kind", "pass_name", "dtype", "engine")


class Family(NamedTuple):
    """Timings of one kind, pass, number format and engine, by position."""

    name: tuple[str, ...]
    at: Places

    def __str__(self) -> str:
        kind, pass_name, dtype, engine = self.name
        return "/".join(part for part in (kind, dtype, engine, pass_name) if part)


class Words(NamedTuple):
    """Text about a slip: where it is, its cause, its size, and the remedy."""

    where: str
    cause: str
    size: str
    remedy: str


Families = Sequence[Family]


def families_of(timings: Table) -> list[Family]:
    """Return the families of a table."""
    names, numbers_of = same_texts(timings, *_KEY)
    order = np.argsort(numbers_of, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(numbers_of, minlength=len(names)))[:-1])
    return [Family(name, part) for name, part in zip(names, parts, strict=False)]  # one empty part if no rows


def median(values: Matrix) -> float:
    """Return the median of the finite values; NaN where there is none."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


def some(at: Places) -> Places:
    """Select at most `SAMPLE` rows, evenly."""
    return at[:: -(-len(at) // SAMPLE)] if len(at) else at


def utilisation_at(timings: Table, machine: Machine, at: Places) -> Matrix:
    """Return the utilisation that similar machines reach at some rows, 1 where none is similar."""
    device, pairs = machine.device, same_texts(timings, "dtype", "engine")[0]
    found = [(dtype, engine, *peak_for(device, dtype, engine)) for dtype, engine in pairs]
    substitute_peaks = [
        replace(device.peaks[place], dtype=dtype, engine=engine)
        for dtype, engine, place, is_own in found
        if place >= 0 and not is_own
    ]
    whole = replace(machine, device=replace(device, peaks=(*device.peaks, *substitute_peaks)), fits={})
    utilisation = typical_utilisation(as_rows(timings).take(at), whole, 0.8).value
    return np.where(np.isnan(utilisation), 1.0, utilisation)


def beside_others(seen: Claims, utilisation: Matrix) -> Matrix:
    """Return the times over those by the typical utilisation, without launches."""
    starts = np.nan_to_num(np.minimum(seen.launch, 0.5))
    slower = (1 - starts) * utilisation / np.fmax(seen.compute, seen.traffic)
    return np.where(seen.exchanged, np.nan, slower)


def apart_from_others(timings: Table, seen: Claims, machine: Machine, at: Places) -> Matrix:
    """Return some timings over the times on similar machines."""
    return beside_others(seen.take(at), utilisation_at(timings, machine, at))


def ridges(peak: Peak) -> tuple[float, float]:
    """Return the bounds of flop per byte between which a peak is plausible."""
    least, most = RIDGES[peak.engine]
    return (min(least, _FP64_LEAST) if peak.dtype == "fp64" else least), most


def _penalty(device: Device, slip: Slip) -> float:
    """Return how far the ratios of peaks to bandwidth are from those of existing machines, in e-folds."""
    found = [0.0]
    for place, peak in enumerate(device.peaks if device.byte_per_s is not None else ()):
        rate = device.byte_per_s.value if device.byte_per_s is not None else math.nan
        rate *= slip.factor if slip.of == "bandwidth" else 1.0
        ridge = peak.rate.value * (slip.factor if place in slip.peaks else 1.0) / rate
        least, most = ridges(peak)
        found.append(max(math.log(least / ridge), math.log(ridge / most)))
    return max(found)


def _tried(device: Device) -> Iterator[Slip]:
    """Yield the slips to try: of the times, of each peak, of equal peaks, of all peaks, of the bandwidth."""
    factors = [10.0**power for power in (*range(-9, 0), *range(1, 10))]
    yield from (Slip("times", factor) for factor in factors)
    every = range(len(device.peaks))
    equal = [
        tuple(place for place in every if device.peaks[place].rate.value == rate)
        for rate in {peak.rate.value for peak in device.peaks}
    ]
    groups = [(place,) for place in every] + sorted(group for group in equal if len(group) > 1)
    for group in dict.fromkeys([*groups, tuple(every)] if len(every) else groups):
        yield from (Slip("peak", factor, group) for factor in factors)
    if device.byte_per_s is not None:
        yield from (Slip("bandwidth", factor) for factor in (1 / 8, 8.0, *factors))


def best_slips(timings: Table, seen: Claims, families: Families, machine: Machine, *, wrong: bool) -> list[Slip]:
    """Return the slip that makes timings and facts most consistent, and a second nearly as good; maybe none.

    The badness of a slip is the sum of the shares of impossible rows, of the distances of families from similar
    machines (in e-folds), and of the distances of peaks from existing machines. If nothing is ``wrong`` and all
    families are within `BAND` of similar machines, no slip is tried.
    """
    if not families:
        return []
    chosen = [some(family.at) for family in families]
    at, ends = np.concatenate(chosen), np.cumsum([0, *map(len, chosen)])
    utilisation, part = utilisation_at(timings, machine, at), seen.take(at)
    spans = [slice(*pair) for pair in pairwise(ends.tolist())]

    def apart(claimed: Claims) -> list[float]:
        slower = beside_others(claimed, utilisation)
        middles = [median(slower[span]) for span in spans]
        return [abs(math.log(middle)) for middle in middles if middle > 0]

    def badness(slip: Slip) -> float:
        fixed = part.without(slip)
        impossible = fixed.impossible
        total = _penalty(machine.device, slip) + sum(apart(fixed))
        total += 10 * sum(float(impossible[span].mean()) for span in spans)
        # Times are wrong by whole prefixes; facts by any factor, as with a peak of another format.
        whole = round(math.log10(slip.factor), 6) % 3 == 0
        return total + (0.0 if slip.factor == 1 else 0.2 if whole else 3.0 if slip.of == "times" else 0.5)

    if not wrong and max(apart(part), default=0.0) < math.log(BAND):
        return []
    # Facts too low or times too short show in impossible rows; a family that is merely fast has a large cache.
    fast = int(seen.impossible.sum()) >= FEW
    scores = {slip: badness(slip) for slip in _tried(machine.device) if fast or slip.factor < 1}
    now = badness(Slip("times", 1.0))
    order = sorted(
        (slip for slip in scores if scores[slip] < min(MUST_EXPLAIN * now, now - MUST_GAIN)),
        key=scores.__getitem__,
    )
    if not order:
        return []
    best = _least([slip for slip in order if scores[slip] < scores[order[0]] + SIMILAR_SCORE], seen)
    others = [slip for slip in order if slip.of != best.of and scores[slip] < scores[order[0]] + SIMILAR_SCORE]
    return [best, *others[:1]]


def _least(similar: Sequence[Slip], seen: Claims) -> Slip:
    """Return, of equally good slips of one fact, the smallest that leaves no more impossible rows."""
    best = similar[0]
    left = {slip: seen.without(slip).impossible.sum() for slip in similar if slip[::2] == best[::2]}
    least = [slip for slip in left if left[slip] <= left[best]]
    return min(least, key=lambda slip: abs(math.log(slip.factor)))


def words_of(slip: Slip | None, device: Device) -> Words:
    """Write where a slip is, its cause, its size, and the remedy."""
    if slip is None:
        remedy = "Correct or remove the rows; their ops, formats or engines may be wrong."
        return Words("timings", "timings and facts disagree, and no single mistake explains it", "", remedy)
    factor, unit = max(slip.factor, 1 / slip.factor), _UNITS.get(abs(round(math.log10(slip.factor))), "")
    about = f"about {factor:,.0f} ×"
    if slip.of == "times" and slip.factor < 1:
        like = f"the times seem to be in {unit}" if unit else "the times are too long"
        return Words("timings", like, f"{about} too long", "Write seconds into time_s.")
    if slip.of == "times":
        like = f", as if seconds had been read as {unit}" if unit else ""
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
    bits = ", bits instead of bytes?" if slip.factor == 8 else ""
    size = f"{about}{bits}: with {likely} the timings agree with the other facts"
    return Words("facts", cause, size, f"Correct {field}.")
