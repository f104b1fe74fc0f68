"""Memory, cost and energy of a sweep's points, the objectives by which points are compared, and their front."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Fact, Machine, Price, Scope
from fomkit.core.model import BATCH, ModelProfile
from fomkit.core.units import DAY_S, UNITS, parse_money_rate
from fomkit.files.csv import is_number
from fomkit.merit.campaign import money, paid_units
from fomkit.ops.precision import choose_formats
from fomkit.plan.memory_of import in_formats, largest_batch, peak_byte
from fomkit.plan.options import Options, choose_sizes
from fomkit.whatif.sweep_axes import POWER, PRICE, Array, Axis, Given

Values = tuple[float, ...]
MOST_FOLLOWED = 256
"""Largest number of sizes whose step is traced op by op; each takes some hundredths of a second."""
MOST_SEARCHED = 16
"""Largest number of combinations of other sizes for which the largest batch is searched, in about 20 steps."""
PEAK_BYTE, FITS = "peak_byte", "fits"
NO_CAPACITY = "the machine does not state the memory of its device"


class Memory(NamedTuple):
    """The known memory of a sweep's points.

    `peaks`: peak [byte] by the values of `sizes`, NaN where it is not known; empty where none is.
    `why_not`: why there are no peaks, or some are not known.
    `largest`: the largest batch that fits, by the values of the other sizes; used if too many for peaks.
    `unchecked`: why it is unknown for some points whether they fit; "" where it is known for all.
    """

    sizes: tuple[str, ...] = ()
    peaks: Mapping[Values, float] = {}
    why_not: str = ""
    largest: Mapping[Values, int] = {}
    unchecked: str = ""


def _combinations(axes: Sequence[Axis]) -> Iterator[tuple[Values, dict[str, int]]]:
    """Yield every combination of sizes: its values, and these by name."""
    for values in itertools.product(*(axis.grid().tolist() for axis in axes)):
        yield values, {axis.name: int(value) for axis, value in zip(axes, values, strict=True)}


def _how_many(axes: Sequence[Axis]) -> int:
    return math.prod(axis.count or 0 for axis in axes)


def _followed_peaks(
    model: ModelProfile, base: Mapping[str, int], axes: Sequence[Axis]
) -> tuple[dict[Values, float], str]:
    """Return the peak of every step, NaN where it cannot be traced, and the last reason for that."""
    peaks, why = {}, ""
    for values, sizes in _combinations(axes):
        try:
            peak = peak_byte(model, {**base, **sizes})
        except FomkitError as error:
            peak, why = None, error.what
        peaks[values] = math.nan if peak is None else peak
    return peaks, why


def _largest(
    model: ModelProfile, base: Mapping[str, int], axes: Sequence[Axis], capacity_byte: float
) -> tuple[dict[Values, int], str]:
    """Find the largest batch that fits, at every combination of the other sizes."""
    rest = [axis for axis in axes if axis.name != BATCH]
    if len(rest) == len(axes) or _how_many(rest) > MOST_SEARCHED:
        return {}, (
            f"{_how_many(axes):,} sizes are too many to compute the memory of each; list {MOST_FOLLOWED} or "
            f"fewer, or vary the batch with at most {MOST_SEARCHED} combinations of other sizes"
        )
    found, why = {}, ""
    for values, sizes in _combinations(rest):
        try:
            largest = largest_batch(model, {**base, **sizes}, capacity_byte)
        except FomkitError as error:
            largest, why = None, error.what
        if largest is None:
            why = why or "the order of ops is fixed at its batch"
        else:
            found[values] = largest
    return found, why


def follow_memory(model: ModelProfile, machine: Machine, axes: Sequence[Axis], options: Options) -> Memory:
    """Compute the memory of all sizes that a sweep can have, as far as it can be known."""
    own = [axis for axis in axes if axis.name in model.sizes or axis.name == BATCH]
    names = tuple(axis.name for axis in own)
    formats = choose_formats(options.precision, model.traced_with.get("framework", ""), machine, model.ops)
    base, capacity = choose_sizes(model, options.wanted_sizes), machine.device.capacity_byte
    followed = in_formats(model, base, formats)
    if followed is None:
        why = f"the op order is for the traced formats, not for {formats.name}"
        why = why if model.order is not None else "the profile has no op order"
        return Memory(names, {}, why, {}, why)
    model = followed
    if _how_many(own) <= MOST_FOLLOWED:
        peaks, why = _followed_peaks(model, base, own)
        known = peaks if any(not math.isnan(peak) for peak in peaks.values()) else {}
        return Memory(names, known, why, {}, NO_CAPACITY if capacity is None else why)
    why = f"{_how_many(own):,} sizes would each be followed op by op; list {MOST_FOLLOWED} or fewer"
    if capacity is None:
        return Memory(names, {}, why, {}, NO_CAPACITY)
    return Memory(names, {}, why, *_largest(model, base, own, capacity.value))


def _size_rows(points: pd.DataFrame, names: Sequence[str]) -> Iterator[Values]:
    return points[list(names)].itertuples(index=False, name=None) if names else itertools.repeat((), len(points))


def add_memory(found: pd.DataFrame, points: pd.DataFrame, memory: Memory) -> pd.DataFrame:
    """Add the peak of each point's sizes [byte], or whether its batch fits."""
    if memory.peaks:
        peaks = np.array([memory.peaks[tuple(row)] for row in _size_rows(points, memory.sizes)])
        return found.assign(**{PEAK_BYTE: peaks})
    if not memory.largest:
        return found
    rest = [name for name in memory.sizes if name != BATCH]
    most = np.array([memory.largest.get(tuple(row), math.nan) for row in _size_rows(points, rest)])
    return found.assign(**{FITS: _fits_in(points[BATCH].to_numpy(np.float64), most, found.index)})


def _fits_in(needed: Array, most: Array | float, index: pd.Index) -> pd.Series:
    """Return true, false or <NA> where unknown."""
    fits = pd.Series(needed <= most, index=index, dtype="boolean")
    return fits.mask(np.isnan(needed) | np.isnan(most))


def add_fits(found: pd.DataFrame, capacity_byte: float | None) -> pd.DataFrame:
    """Add whether a device holds a step, where its peak is known; else <NA>."""
    if capacity_byte is None or PEAK_BYTE not in found:
        return found
    return found.assign(**{FITS: _fits_in(found[PEAK_BYTE].to_numpy(np.float64), capacity_byte, found.index)})


Per = Literal["unit of work", "sample", "step"]
HOUR_S = UNITS["time_s"]["h"]
COST = "cost"
ENDS = ("", "_low", "_high")


class Bill(NamedTuple):
    """The price, whether its rate is varied, and the paid units; None units follow from the nodes of a point.

    ``level`` is that of the intervals, ``up_share`` the share of time that a system is up, 1 below its scope.
    """

    price: Price
    varied: bool
    units: int | None
    level: float
    up_share: float
    node_devices: int


def _hourly(text: str, own: str, where: str) -> tuple[str, str]:
    """Parse one price: the number for an hour, and its currency."""
    if is_number(text):
        if not own:
            raise FomkitError(
                where, f"is {text!r}, which has no currency, and the machine states no price. Write, for example, "
                f"--vary '{PRICE}=2.50 USD/h'.",
            )  # fmt: skip
        return text, own
    per_s, currency = parse_money_rate(text, where, PRICE)
    return f"{per_s * HOUR_S:.12g}", currency


def read_prices(given: Given, own: Price | None) -> tuple[Given, str]:
    """Remove the currency from prices; plain numbers for an hour remain, which `make_axis` reads.

    >>> read_prices("1.50 USD/h..3 USD/h:4", None)
    ('1.5..3:4', 'USD')
    """
    where, known = f"--vary {PRICE}", own.currency if own else ""
    if not isinstance(given, str):
        return given, _hourly(str(np.ravel(given)[0]) if np.size(given) else "0", known, where)[1]
    body, colon, steps = given.partition(":")
    parts = re.split(r"(\.\.|,)", body)
    read = [_hourly(part.strip(), known, where) for part in parts[::2]]
    currencies = sorted({currency for _, currency in read})
    if len(currencies) > 1:
        raise FomkitError(where, f"is in {' and '.join(currencies)}. Write all in one currency.")
    parts[::2] = [number for number, _ in read]
    return "".join(parts) + colon + steps, currencies[0]


def bill_of(machine: Machine, scope: Scope, currency: str, level: float, *, on_nodes: bool) -> Bill | None:
    """Return the bill by the requested price (in ``currency``), else the machine's; None without a price."""
    if not currency and machine.price is None:
        return None
    requested = Price(Fact.exact(1.0, "assumed", "given by the user"), currency, "device", "")
    price = requested if currency or machine.price is None else machine.price
    units = None if on_nodes else paid_units(price, machine, scope)
    return Bill(price, bool(currency), units, level, machine.up_share(scope), machine.node_devices or 1)


def _units(bill: Bill, found: pd.DataFrame) -> pd.Series | float:
    """Return the paid units at each point; for nodes, those of all jobs at once."""
    if bill.units is not None:
        return float(bill.units)
    devices_per_unit = {"device": 1, "node": bill.node_devices}.get(bill.price.per)
    return 1.0 if devices_per_unit is None else found["devices"] * found["jobs"] / devices_per_unit


def _seconds_each(found: pd.DataFrame, per: Per, factor: pd.Series | float) -> dict[str, pd.Series]:
    """Return the time of one unit, sample or step times a factor [s]: value, low, high; of a rate swapped."""
    if per == "step":
        return {end: factor * found[f"step_s{end}"] for end in ENDS}
    rate = "sample_per_s" if per == "sample" else "unit_per_day"
    return {end: factor / found[f"{rate}{at}"] for end, at in zip(ENDS, ("", "_high", "_low"), strict=True)}


def add_cost(found: pd.DataFrame, points: pd.DataFrame, bill: Bill, per: Per) -> pd.DataFrame:
    """Add the cost of one unit of work, sample or step, as in `fomkit.merit.campaign.money_of_run`."""
    units = _units(bill, found)
    # A unit's rate already includes the jobs at once, and the share of time that they are up.
    spent = units * DAY_S if per == "unit of work" else units / (found["jobs"] * bill.up_share)
    paid_s = _seconds_each(found, per, spent)
    if bill.varied:
        # A price without a spread only scales: the interval is that of the time.
        return found.assign(**{f"{COST}{end}": points[PRICE] / HOUR_S * paid_s[end] for end in ENDS})
    times = zip(*(paid_s[end].tolist() for end in ENDS), strict=True)
    spans = [money(bill.price, Span(value, low, high, bill.level)) for value, low, high in times]
    return found.assign(
        **{COST: [span.value for span in spans], f"{COST}_low": [span.low for span in spans],
           f"{COST}_high": [span.high for span in spans]}
    )  # fmt: skip


ENERGY = "energy_j"


class Objective(NamedTuple):
    """One objective by which points are compared."""

    name: str
    column: str
    better: Literal["higher", "lower"]
    unit: str


def per_of(known: Sequence[str]) -> Per:
    """Select what cost and energy are for: unit of work, else sample, else step, the first with a known rate."""
    if "unit_per_day" in known:
        return "unit of work"
    return "sample" if "sample_per_s" in known else "step"


def add_energy(found: pd.DataFrame, points: pd.DataFrame, per: Per, up_share: float) -> pd.DataFrame:
    """Add the energy [J] of the varied power; that of a unit of work is drawn while the machine is up."""
    devices, up_share = found["devices"], up_share if per == "unit of work" else 1.0
    seconds = _seconds_each(found, per, devices * found["jobs"] * DAY_S if per == "unit of work" else devices)
    return found.assign(**{f"{ENERGY}{end}": points[POWER] * seconds[end] * up_share for end in ENDS})


def objectives_of(known: Sequence[str], per: Per, currency: str) -> tuple[Objective, ...]:
    """Return the objectives: time, cost, energy and memory, as far as they are known."""
    time = {
        "unit of work": Objective("time", "unit_per_day", "higher", "1/day"),
        "sample": Objective("time", "sample_per_s", "higher", "1/s"),
        "step": Objective("time", "step_s", "lower", "s"),
    }[per]
    others = (
        Objective("cost", COST, "lower", f"{currency} a {per}"),
        Objective("energy", ENERGY, "lower", f"J a {per}"),
        Objective("memory", PEAK_BYTE, "lower", "byte"),
    )
    return (time, *(other for other in others if other.column in known))


Mask = NDArray[np.bool_]
BLOCK = 512
"""Number of points that are compared at once; it bounds the memory."""


def _front_of_two(values: Array) -> Mask:
    """Sort by the first column, then scan with the least second value so far: n log n."""
    order = np.lexsort((values[:, 1], values[:, 0]))
    first, second = values[order].T
    starts = np.r_[True, first[1:] != first[:-1]]  # of groups with equal first values
    least, group = second[starts], np.cumsum(starts) - 1
    before = np.r_[np.inf, np.minimum.accumulate(least)[:-1]]
    found = np.zeros(len(values), bool)
    found[order] = (least < before)[group] & (second == least[group])
    return found


def _dominated(values: Array, by: Array) -> Mask:
    """Return which of distinct ``values`` another point of ``by`` dominates, being nowhere worse."""
    found = np.zeros(len(values), bool)
    for start in range(0, len(by), BLOCK):
        others = by[start : start + BLOCK]
        nowhere_worse = (others[:, None, :] <= values[None, :, :]).all(2)
        differs = (others[:, None, :] != values[None, :, :]).any(2)
        found |= (nowhere_worse & differs).any(0)
    return found


def _front_of_many(values: Array) -> Mask:
    """Scan distinct points by the sum of their ranks: a point that dominates another comes before it."""
    ranks = sum(np.unique(column, return_inverse=True)[1] for column in values.T)
    order = np.argsort(ranks, kind="stable")
    front_places = np.empty(0, np.intp)
    for start in range(0, len(order), BLOCK):
        own = order[start : start + BLOCK]
        own = own[~_dominated(values[own], values[front_places])]
        own = own[~_dominated(values[own], values[own])]
        front_places = np.r_[front_places, own]
    found = np.zeros(len(values), bool)
    found[front_places] = True
    return found


def pareto_front(values: Array) -> Mask:
    """Return a mask of points that no other dominates: at least as good in all and better in one objective.

    `values` (n, k): lower is better in each of k ≥ 1 objectives. A point with NaN is never on the front and
    dominates none; equal points are on it together. Returns an array (n,) of bool. One objective takes n steps,
    two take n log n; more are compared in blocks, at most n times the size of the front.

    >>> pareto_front(np.array([[1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [4.0, 1.0]])).tolist()
    [True, True, False, True]
    """
    found = np.zeros(len(values), bool)
    known = np.flatnonzero(~np.isnan(values).any(1))
    if not len(known):
        return found
    own = values[known]
    if own.shape[1] == 1:
        found[known] = own[:, 0] == own[:, 0].min()
    elif own.shape[1] == 2:
        found[known] = _front_of_two(own)
    else:
        distinct, place = np.unique(own, axis=0, return_inverse=True)
        found[known] = _front_of_many(distinct)[place.ravel()]
    return found


def lower_is_better(table: pd.DataFrame, objectives: Iterable[Objective]) -> Array:
    """Return the objectives of each point (n, k), with signs so that lower is better in all."""
    columns = [
        table[objective.column].to_numpy(np.float64) * (-1.0 if objective.better == "higher" else 1.0)
        for objective in objectives
    ]
    return np.stack(columns, axis=1)
