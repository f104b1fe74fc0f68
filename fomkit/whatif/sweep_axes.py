"""The axes of a sweep, parsed from the user's text, and its points: a grid, random numbers or a Sobol sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.machine import HOST, PEAK, Machine
from fomkit.core.model import ModelProfile
from fomkit.core.units import EXAMPLES, parse_quantity
from fomkit.plan.options import LINK_ALPHA, LINK_RATE, NODES

Array = NDArray[np.float64]
SPACINGS = ("linear", "log")

Given: TypeAlias = "str | float | Sequence[float] | Sequence[str] | NDArray[np.float64]"
"""Values as a user gives them: text with units, or numbers in SI units."""


class Kind(NamedTuple):
    """The type of a parameter's values: a dimension of `fomkit.core.units.UNITS`, or "" for a plain number."""

    dimension: str = ""
    whole: bool = False

    @property
    def example(self) -> str:
        """Two example values, as text."""
        return "16,32" if self.whole else f"{EXAMPLES.get(self.dimension, '2.5')},…"


@dataclass(frozen=True)
class Axis:
    """A parameter and its values.

    `values`: listed values in SI units; empty where a range is given.
    `low`, `high`: ends of the range, both included.
    `steps`: number of values of a grid in the range; None allows any value, or any whole number.
    `log`: whether ratios of neighbours are equal instead of differences.
    """

    name: str
    kind: Kind
    values: tuple[float, ...] = ()
    low: float = math.nan
    high: float = math.nan
    steps: int | None = None
    log: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return (min(self.values), max(self.values)) if self.values else (self.low, self.high)

    @property
    def count(self) -> int | None:
        """The largest possible number of values; None where a range is continuous."""
        if self.values:
            return len(self.values)
        if not self.kind.whole:
            return self.steps
        whole = int(self.high - self.low) + 1
        return whole if self.steps is None else min(self.steps, whole)

    def _spread(self, share: Array) -> Array:
        """Return the values at shares (0 to 1) of the range."""
        if self.log:
            found = self.low * (self.high / self.low) ** share
        else:
            found = self.low + (self.high - self.low) * share
        # Rounding must neither exceed the ends nor miss them.
        found = np.where(share == 1, self.high, np.clip(found, self.low, self.high))
        return np.round(found) if self.kind.whole else found

    def grid(self) -> Array:
        """Return every value, in rising order where it is a range.

        >>> Axis("batch", Kind(whole=True), low=16, high=128, steps=4, log=True).grid().tolist()
        [16.0, 32.0, 64.0, 128.0]
        """
        if self.values:
            return np.array(self.values)
        count = self.count
        if count is None:
            raise FomkitError(
                f"--vary {self.name}", "is a range without steps, which a grid cannot take. Add them, for example "
                f"'{self.name}=LOW..HIGH:8', or choose --way sobol.",
            )  # fmt: skip
        if self.kind.whole and self.steps is None:
            return np.arange(self.low, self.high + 1)
        found = self._spread(np.arange(count) / max(count - 1, 1))
        return np.unique(found) if self.kind.whole else found

    def drawn(self, share: Array) -> Array:
        """Return a value for each random number in [0, 1): any of a range, listed ones and steps equally often."""
        if self.values or self.steps is not None:
            known = self.grid()
            chosen: Array = known[np.minimum((share * len(known)).astype(np.intp), len(known) - 1)]
            return chosen
        if self.kind.whole and not self.log:
            return np.minimum(self.low + np.floor(share * (self.high - self.low + 1)), self.high)
        return self._spread(share)


def _parsed_value(text: str, kind: Kind, where: str, name: str) -> float:
    if kind.dimension:
        return parse_quantity(text.strip(), kind.dimension, where, name)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return _checked(value, kind, where, name, repr(text.strip()))


def _checked(value: float, kind: Kind, where: str, name: str, shown: str) -> float:
    if kind.whole and not (math.isfinite(value) and value == math.floor(value) and 1 <= value <= 2**53):
        raise FomkitError(where, f"{name} is {shown}. Expected a whole number of 1 or more, at most 9e+15.")
    if not math.isfinite(value) or value < 0:
        raise FomkitError(where, f"{name} is {shown}. Expected a finite number of 0 or more.")
    return value


def _range_axis(name: str, kind: Kind, text: str, rest: Sequence[str], where: str) -> Axis:
    low_text, _, high_text = text.partition("..")
    low, high = (_parsed_value(end, kind, where, name) for end in (low_text, high_text))
    if not low < high:
        raise FomkitError(where, f"the range of {name} is not ascending. Give LOW..HIGH.")
    words = [word.strip() for word in rest]
    spacing = words.pop() if words and words[-1] in SPACINGS else SPACINGS[0]
    if len(words) > 1 or not all(word.isascii() and word.isdigit() and len(word) < 16 for word in words):
        raise FomkitError(
            where, f"{':'.join(rest)!r} is not a number of steps. Write LOW..HIGH:8 or LOW..HIGH:8:log."
        )
    steps = int(words[0]) if words else None
    if steps is not None and steps < 2:
        raise FomkitError(where, "a range of fewer than two steps does not include both bounds. Give 2 or more.")
    if spacing == "log" and low <= 0:
        raise FomkitError(
            where, f"{name} begins at {low:g}, which has no logarithm. Begin above 0, or use linear."
        )
    return Axis(name, kind, (), low, high, steps, spacing == "log")


def read_vary(texts: str | Sequence[str]) -> dict[str, str]:
    """Parse parameters such as ``batch=16,32``.

    >>> read_vary(["batch=16,32", "byte_per_s=0.5 TB/s..4 TB/s:8"])
    {'batch': '16,32', 'byte_per_s': '0.5 TB/s..4 TB/s:8'}
    """
    found: dict[str, str] = {}
    for text in [texts] if isinstance(texts, str) else texts:
        name, _, values = (part.strip() for part in str(text).partition("="))
        if not name or not values:
            raise FomkitError(f"vary {text}", "is not NAME=VALUES. Write, for example, --vary batch=16,32,64.")
        if name in found:
            raise FomkitError(f"vary {text}", f"{name} is given twice. Put all its values into one.")
        found[name] = values
    return found


def make_axis(name: str, given: Given, kind: Kind) -> Axis:
    """Make an axis from the user's values: text with units, or numbers in SI units.

    >>> make_axis("byte_per_s", "0.5 TB/s..4 TB/s:8:log", Kind("byte_per_s")).grid().tolist()[::7]
    [500000000000.0, 4000000000000.0]
    >>> make_axis("batch", "16,32", Kind(whole=True)).values
    (16.0, 32.0)
    """
    where = f"--vary {name}"
    if isinstance(given, list | tuple) and given and all(isinstance(one, str) for one in given):
        given = ",".join(given)
    if not isinstance(given, str):
        numbers: Sequence[object] = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float | np.number):
                raise FomkitError(where, f"{name} is {number!r}. Give text with units, or numbers in SI units.")
        values = [_checked(float(str(number)), kind, where, name, f"{number}") for number in numbers]
    else:
        body, *rest = given.split(":")
        if ".." in body:
            return _range_axis(name, kind, body, rest, where)
        if rest:
            raise FomkitError(where, f"{given!r} has steps but no range. Write LOW..HIGH:{rest[0]}.")
        values = [_parsed_value(text, kind, where, name) for text in body.split(",")]
    if not values:
        raise FomkitError(where, f"has no value. Write, for example, '{name}={kind.example}'.")
    if len(set(values)) < len(values):
        raise FomkitError(where, f"{name} has a value twice. Give each once.")
    return Axis(name, kind, tuple(values))


OF_LAYOUT = (NODES, LINK_RATE, LINK_ALPHA)
"""Parameters that need `fomkit.plan.scaling`: nodes of a job, rate and start-up time of the link between them."""
PRICE, POWER = "price_per_h", "power_w"
OF_DEVICE = (PRICE, POWER)
"""Parameters that change no time: a device's price for an hour, in any currency, and its mean power [W]."""

_DIMENSIONS = {
    "byte_per_s": "byte_per_s", "launch_s": "time_s", HOST: "time_s", LINK_RATE: "byte_per_s",
    LINK_ALPHA: "time_s", POWER: "power_w",
}  # fmt: skip


def kinds_of(model: ModelProfile, machine: Machine) -> dict[str, Kind]:
    """Return the kind of values of every parameter of a model on a machine.

    >>> from fomkit.profiles.machines import load_machine
    >>> from fomkit.profiles.models import load_model
    >>> list(kinds_of(load_model("vgg16"), load_machine("titan")))[:3]
    ['batch', 'byte_per_s', 'launch_s']
    """
    kinds = {name: Kind(whole=True) for name in sorted({*model.sizes, "batch"})}
    for name in machine.parameters:
        kinds.setdefault(name, Kind(PEAK if name.startswith(PEAK) else _DIMENSIONS[name]))
    for name in (HOST, *OF_LAYOUT, *OF_DEVICE):
        kinds.setdefault(name, Kind(_DIMENSIONS.get(name, ""), whole=name == NODES))
    return kinds


Way = Literal["grid", "random", "sobol"]
WAYS: tuple[Way, ...] = get_args(Way)
MOST_POINTS = 10_000_000
"""Largest number of points; they take about an hour on one core of 2020."""
DRAWN = 4_096
"""Default number of points of a random or Sobol sweep."""


@dataclass(frozen=True)
class Plan:
    """The axes and the points of a sweep.

    `axes`: whole numbers first, so that neighbours on a grid share the sizes of a model.
    `seed`: of the random numbers, or of the scrambling of the Sobol sequence; a grid does not use it.
    """

    axes: tuple[Axis, ...]
    way: Way
    points: int
    seed: int = 0

    def table(self, start: int, stop: int) -> pd.DataFrame:
        """Return the points from ``start`` up to ``stop``, a column for each axis; calls are independent.

        >>> from fomkit.whatif.sweep_axes import Kind, make_axis
        >>> plan = make_plan([make_axis("batch", "1..3", Kind(whole=True)), make_axis("x", "5,6", Kind())], "grid")
        >>> plan.table(1, 4).to_numpy().tolist()
        [[1.0, 6.0], [2.0, 5.0], [2.0, 6.0]]
        """
        if self.way == "grid":
            grids = [axis.grid() for axis in self.axes]
            places = np.unravel_index(np.arange(start, stop), [len(grid) for grid in grids])
            columns = [grid[place] for grid, place in zip(grids, places, strict=True)]
        else:
            shares = self._shares(start, stop - start)
            columns = [axis.drawn(shares[:, place]) for place, axis in enumerate(self.axes)]
        names = [axis.name for axis in self.axes]
        whole = [column.astype(np.int64) if axis.kind.whole else column
                 for axis, column in zip(self.axes, columns, strict=True)]  # fmt: skip
        return pd.DataFrame(dict(zip(names, whole, strict=True)), index=pd.RangeIndex(start, stop))

    def _shares(self, start: int, count: int) -> NDArray[np.float64]:
        """Return numbers in [0, 1) (count, axes) for a part of the sequence."""
        width = len(self.axes)
        if self.way == "random":
            # The generator draws once for each number, so a part begins where the part before it ends.
            generator = np.random.Generator(np.random.PCG64(self.seed).advance(start * width))
            return generator.random((count, width))
        from scipy.stats import qmc

        engine = qmc.Sobol(width, scramble=True, seed=np.random.default_rng(self.seed))
        if start:
            engine.fast_forward(start)
        # Draw up to a power of two, for which the sequence is made; else scipy warns on the first part.
        found: NDArray[np.float64] = engine.random(2 ** math.ceil(math.log2(max(count, 1))))[:count]
        return found


def _check_count(points: int, way: Way, axes: Sequence[Axis]) -> None:
    if points <= MOST_POINTS:
        return
    of = "" if way != "grid" else f" ({' × '.join(f'{axis.count:,} {axis.name}' for axis in axes)})"
    raise FomkitError(
        "sweep",
        f"asks for {points:,} points{of}; at most {MOST_POINTS:,} are possible. Give fewer steps, or sample: "
        "--way sobol --points 100000.",
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_way(way: str, points: Any, seed: int) -> None:
    """Raise where the points cannot be drawn in a way, which is known before there is a model."""
    if way not in WAYS:
        raise FomkitError("--way", f"is {way!r}. Give grid, random or sobol.")
    if not _is_whole(seed) or not 0 <= seed < 2**63:
        raise FomkitError("--seed", f"is {seed!r}. Give a whole number of 0 or more.")
    if points is None:
        return
    if way == "grid":
        what = "is for --way random or sobol; the values of a grid define its points"
        raise FomkitError("--points", f"{what}. Leave it out, or add --way random.")
    if not _is_whole(points) or not points > 0:
        raise FomkitError("--points", f"is {points!r}. Give a whole number of 1 or more.")


def make_plan(axes: Sequence[Axis], way: Way = "grid", points: int | None = None, seed: int = 0) -> Plan:
    """Check the axes of a sweep and count its points: all of a grid, else ``points`` (4,096) that are drawn."""
    names = [axis.name for axis in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FomkitError(f"--vary {twice}", "is given twice. Put all its values into one.")
    if not axes:
        raise FomkitError("sweep", "varies nothing. Add, for example, --vary batch=16,32,64.")
    check_way(way, points, seed)
    ordered = tuple(sorted(axes, key=lambda axis: not axis.kind.whole))
    if way == "grid":
        counts = [axis.count if axis.count is not None else len(axis.grid()) for axis in ordered]
        _check_count(math.prod(counts), way, ordered)
        # Rounding to whole numbers may make some steps of a range equal.
        return Plan(ordered, way, math.prod(len(axis.grid()) for axis in ordered), int(seed))
    wanted = DRAWN if points is None else points
    _check_count(int(wanted), way, ordered)
    return Plan(ordered, way, int(wanted), int(seed))
