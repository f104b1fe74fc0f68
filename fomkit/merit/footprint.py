"""Energy at the wall and its carbon, as far as declared; energy from readings of power and of counters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, multiply_independent
from fomkit.core.machine import EnergyScope, Fact
from fomkit.core.units import KWH_J
from fomkit.plan.content import Ends, Stated, as_content


def energy_at_wall(energy_j: Span, scope: EnergyScope, to_wall: Fact | None) -> Span | None:
    """Return energy [J] of a scope as a wall meter would count it; None where it needs a factor that is unknown.

    >>> energy_at_wall(Span.exact(10.0), "chip", None) is None
    True
    """
    if scope == "wall":
        return energy_j
    return None if to_wall is None else multiply_independent(to_wall.span(energy_j.level), energy_j)


def carbon_kg(wall_j: Span, kg_per_j: Fact, pue: Fact | None) -> Span:
    """Return the carbon dioxide equivalent [kg] of a machine's energy at the wall, with its building's by the PUE.

    10 kWh at 0.4 kg/kWh in a building of PUE 1.5:

    >>> grid, pue = (Fact.exact(one, "published", "example") for one in (0.4 / 3.6e6, 1.5))
    >>> round(carbon_kg(Span.exact(3.6e7), grid, pue).value, 9)
    6.0
    """
    kg = multiply_independent(kg_per_j.span(wall_j.level), wall_j)
    return kg if pue is None else multiply_independent(pue.span(wall_j.level), kg)


WITHOUT_PUE = "without the building's own energy (cooling, supply): no --pue is given"


@dataclass(frozen=True)
class Grid:
    """What a user declares for carbon; None where a figure is not declared.

    `kg_per_j`: carbon dioxide equivalent of the grid's energy [kg/J].
    `to_wall`: energy at the wall over that of the narrower scope of the machine's figures.
    `pue`: energy of the building over that of its machines.
    """

    kg_per_j: Fact | None = None
    to_wall: Fact | None = None
    pue: Fact | None = None


def check_grid(grid: Grid) -> None:
    """Raise when a factor is declared that is not used, because no carbon is computed."""
    for name, fact in (("--pue", grid.pue), ("--to-wall", grid.to_wall)):
        if fact is not None and grid.kg_per_j is None:
            raise FomkitError(
                name, "is for carbon. Add --carbon, for example --carbon '0.38 kg/kWh, grid operator 2024'."
            )


def footprint(energy_j: Span | None, scope: EnergyScope | None, grid: Grid) -> tuple[Span | None, Span | None]:
    """Return the energy at the wall [J] and its carbon [kg CO2e]; each is None where unknown.

    Raises FomkitError when a factor to the wall is declared for energy that is measured there.
    """
    if scope == "wall" and grid.to_wall is not None:
        raise FomkitError("--to-wall", "is given, but the machine's energy is already at the wall. Leave it out.")
    wall = None if energy_j is None or scope is None else energy_at_wall(energy_j, scope, grid.to_wall)
    return wall, None if wall is None or grid.kg_per_j is None else carbon_kg(wall, grid.kg_per_j, grid.pue)


def missing_for_wall(scope: EnergyScope | None, missing: Iterable[str], grid: Grid) -> list[str]:
    """Return the reasons why energy is not known at the wall."""
    lacking = list(missing)
    if scope not in (None, "wall") and grid.to_wall is None:
        lacking.append(
            f"the energy is of scope {scope}, which is less than at the wall. Give --to-wall FACTOR, SOURCE"
        )
    return lacking


GridStated = TypedDict("GridStated", {"kg_per_kwh": Stated | None, "to_wall": Stated | None, "pue": Stated | None,
                                      "notes": list[str]})  # fmt: skip
Carbon = TypedDict("Carbon", {
    "wall_j": dict[str, Ends | None], "kg": dict[str, Ends | None], "run_at_most_kg": float | None,
    "from_scope": str | None, "missing": list[str], "kg_per_kwh": Stated | None, "to_wall": Stated | None,
    "pue": Stated | None, "notes": list[str],
})  # fmt: skip


def grid_content(grid: Grid) -> GridStated:
    """Convert the declarations for carbon to the form of the JSON output."""
    notes = [] if grid.pue is not None else [WITHOUT_PUE]
    return as_content(GridStated, grid, kg_per_kwh=grid.kg_per_j and grid.kg_per_j.scaled(KWH_J), notes=notes)


def most_kg(most_j: float | None, grid: Grid, level: float) -> float | None:
    """Return the most carbon [kg CO2e] of at most this energy of chips [J], at the upper end of each factor."""
    if most_j is None or grid.kg_per_j is None or grid.to_wall is None:
        return None
    factors = (grid.kg_per_j, grid.to_wall, grid.pue)
    return most_j * math.prod(one.span(level).high for one in factors if one is not None)


def carbon_content(
    energies: Mapping[str, Span | None], scope: EnergyScope | None, missing: Iterable[str], grid: Grid,
    most_run_j: float | None = None, level: float = DEFAULT_LEVEL,
) -> Carbon | None:  # fmt: skip
    """Return the block ``carbon``; None where no carbon of the grid is declared.

    `energies`: energy [J], by what uses it: run, unit; `scope`: of these, or None; `missing`: why there are none;
    `most_run_j`: the most energy of a run's chips [J]; its carbon takes the upper end of each factor, at `level`.
    """
    if grid.kg_per_j is None:
        return None
    both = {name: footprint(energy, scope, grid) for name, energy in energies.items()}
    return as_content(
        Carbon, grid_content(grid), wall_j={name: wall for name, (wall, _) in both.items()}, from_scope=scope,
        kg={name: kg for name, (_, kg) in both.items()},
        run_at_most_kg=most_kg(most_run_j, grid, level),
        missing=missing_for_wall("chip" if scope is None and most_run_j else scope, missing, grid),
    )  # fmt: skip


GAP = 3.0
"""Multiple of the median distance of readings above which two neighbours have a gap between them."""


@dataclass(frozen=True)
class Sample:
    """A reading of power [W] at a moment [s]."""

    moment_s: float
    power_w: float


@dataclass(frozen=True)
class Gap:
    """Time [s] without a reading, from a moment on."""

    moment_s: float
    length_s: float


@dataclass(frozen=True)
class Integral:
    """Energy over a time."""

    energy_j: Span
    wall_s: float
    period_s: float
    gaps: tuple[Gap, ...]

    @property
    def power_w(self) -> Span:
        """Mean power [W]."""
        return self.energy_j.scaled(1 / self.wall_s)


def _interpolated(sample: Sample, other: Sample, moment_s: float) -> Sample:
    share = (moment_s - sample.moment_s) / (other.moment_s - sample.moment_s)
    return Sample(moment_s, sample.power_w + share * (other.power_w - sample.power_w))


def _cut(samples: Sequence[Sample], start_s: float, end_s: float) -> list[Sample]:
    """Cut readings to a time, with readings interpolated at its ends."""
    inside: list[Sample] = []
    for one, other in pairwise(samples):
        if other.moment_s <= start_s or one.moment_s >= end_s:
            continue
        first = one if one.moment_s >= start_s else _interpolated(one, other, start_s)
        last = other if other.moment_s <= end_s else _interpolated(one, other, end_s)
        inside += [last] if inside else [first, last]
    return inside


def _integral_ends(samples: Sequence[Sample], start_s: float | None, end_s: float | None) -> tuple[float, float]:
    """Check readings, and return the bounds of the integral [s]; by default the first and the last reading."""
    if len(samples) < 2:
        raise FomkitError("power", f"was read {len(samples)} times; energy needs two readings. Read longer.")
    for one, other in pairwise(samples):
        if not other.moment_s > one.moment_s:
            raise FomkitError(
                "power", f"was read at {one.moment_s:g} s and then at {other.moment_s:g} s. Sort the readings."
            )
    if not all(math.isfinite(sample.power_w) and sample.power_w >= 0 for sample in samples):
        raise FomkitError("power", "is below 0 or not a number in a reading. Remove that reading.")
    first, last = samples[0].moment_s, samples[-1].moment_s
    start, end = first if start_s is None else start_s, last if end_s is None else end_s
    if not start < end:
        raise FomkitError("power", f"the end, {end:g} s, is not after the start, {start:g} s. Swap them.")
    if start < first or end > last:
        raise FomkitError(
            "power",
            f"was read from {first:.15g} to {last:.15g} s, and {start:.15g} to {end:.15g} s are requested. "
            "Nothing is extrapolated; choose a time inside.",
        )
    return start, end


def integrate(
    samples: Sequence[Sample], start_s: float | None = None, end_s: float | None = None, error_w: float = 0.0
) -> Integral:
    """Integrate readings of power by the trapezoid rule.

    Between two readings, power may have stayed at either for the whole time; in a gap, it may have been anywhere
    between the smallest and the largest reading. This and the instrument's own error make the interval.

    `samples`: in order of time; `start_s`, `end_s`: bounds of the integral [s]; default: the first and the last
    reading; `error_w`: the instrument's stated error, ± [W]. Raises FomkitError when there are fewer than two
    readings, they are out of order or below 0, or the time extends beyond them.

    >>> integrate([Sample(0.0, 10.0), Sample(1.0, 20.0), Sample(2.0, 20.0)]).energy_j
    Span(value=35.0, low=30.0, high=40.0, level=0.8)
    """
    start, end = _integral_ends(samples, start_s, end_s)
    period = median(other.moment_s - one.moment_s for one, other in pairwise(samples))
    inside = _cut(samples, start, end)
    least, most = (choose(one.power_w for one in inside) for choose in (min, max))
    value, below, above, gaps = [], [], [], []
    for one, other in pairwise(inside):
        length = other.moment_s - one.moment_s
        mean, half = (one.power_w + other.power_w) / 2, abs(other.power_w - one.power_w) / 2
        value.append(mean * length)
        if length > GAP * period:
            gaps.append(Gap(one.moment_s, length))
            below.append((mean - least) * length)
            above.append((most - mean) * length)
        else:
            below.append(half * length)
            above.append(half * length)
    energy, error = math.fsum(value), error_w * (end - start)
    low, high = energy - math.fsum(below) - error, energy + math.fsum(above) + error
    return Integral(Span(energy, max(low, 0.0), high), end - start, period, tuple(gaps))


MOST_W = 2000.0
"""More than the power of one processor [W]: a counter that may have wrapped unseen at this power is not used."""


def counted(before: float, after: float, most: float, wall_s: float) -> float:
    """Return how far a counter [J] advanced between two readings, with at most one wrap.

    `before`, `after`: readings [J]; `most`: where the counter wraps to 0 [J]; `wall_s`: time between the readings
    [s]. Raises FomkitError if a reading is out of range, or the counter may have wrapped more often.

    >>> counted(10.0, 25.0, 100.0, 1e-2), counted(90.0, 5.0, 100.0, 1e-2)
    (15.0, 15.0)
    """
    for reading in (before, after):
        if not 0 <= reading <= most:
            raise FomkitError(
                "energy counter", f"reads {reading:g} J, outside 0 to {most:g} J. The reading is not used."
            )
    forward = after - before if after >= before else after - before + most
    # At MOST_W the counter could have wrapped once more than `forward` includes.
    if wall_s * MOST_W - forward >= most:
        message = f"wraps every {most:g} J and was not read for {wall_s:.3g} s: it may have wrapped once more"
        raise FomkitError("energy counter", f"{message}. Measure for a shorter time.")
    return forward
