"""What a sweep varies: a parameter and its values, listed or as a range, as a user writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fomkit.errors import FomkitError
from fomkit.quantities import EXAMPLES, parse_quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SPACINGS = ("linear", "log")


Given: TypeAlias = "str | float | Sequence[float] | NDArray[np.float64]"
"""Values as a user gives them: text with units, or numbers in SI units."""


class Kind(NamedTuple):
    """What values of a parameter are: a dimension of `fomkit.quantities.UNITS`, or "" a plain number."""

    dimension: str = ""
    whole: bool = False

    @property
    def example(self) -> str:
        """Two values of it, as text."""
        return "16,32" if self.whole else f"{EXAMPLES.get(self.dimension, '2.5')},…"


@dataclass(frozen=True)
class Axis:
    """A parameter and the values that it takes.

    Attributes
    ----------
    values : tuple of float
        Listed values in SI units; empty where a range is given.
    low, high : float
        Ends of the range, both in it.
    steps : int or None
        Values of a grid in the range; None is any value of it, of a whole number each of them.
    log : bool
        Whether ratios are even, not differences.
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
        """The least and the largest value."""
        return (min(self.values), max(self.values)) if self.values else (self.low, self.high)

    @property
    def count(self) -> int | None:
        """How many values there are at most; None where a range is continuous."""
        if self.values:
            return len(self.values)
        if self.steps is None and self.kind.whole:
            return int(self.high - self.low) + 1
        return self.steps

    def _spread(self, share: Array) -> Array:
        """Give the values at shares (0 to 1) of the range."""
        if self.log:
            found = self.low * (self.high / self.low) ** share
        else:
            found = self.low + (self.high - self.low) * share
        # Rounding must not step over the ends, nor miss them.
        found = np.where(share == 1, self.high, np.clip(found, self.low, self.high))
        return np.round(found) if self.kind.whole else found

    def grid(self) -> Array:
        """Give every value, in rising order where it is a range.

        Examples
        --------
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
        """Give a value for each random number from 0 up to 1: of a list or steps each as often, of a range any."""
        if self.values or self.steps is not None:
            known = self.grid()
            chosen: Array = known[np.minimum((share * len(known)).astype(np.intp), len(known) - 1)]
            return chosen
        if self.kind.whole and not self.log:
            return np.minimum(self.low + np.floor(share * (self.high - self.low + 1)), self.high)
        return self._spread(share)


def _value(text: str, kind: Kind, where: str, name: str) -> float:
    if kind.dimension:
        return parse_quantity(text.strip(), kind.dimension, where, name)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return _checked(value, kind, where, name, repr(text.strip()))


def _checked(value: float, kind: Kind, where: str, name: str, shown: str) -> float:
    if kind.whole and not (math.isfinite(value) and value == math.floor(value) and 1 <= value <= 2**53):
        raise FomkitError(where, f"{name} is {shown}. Expected a whole number of 1 or more.")
    if not math.isfinite(value) or value < 0:
        raise FomkitError(where, f"{name} is {shown}. Expected a finite number of 0 or more.")
    return value


def _range(name: str, kind: Kind, text: str, rest: Sequence[str], where: str) -> Axis:
    low_text, _, high_text = text.partition("..")
    low, high = (_value(end, kind, where, name) for end in (low_text, high_text))
    if not low < high:
        raise FomkitError(where, f"the range of {name} does not rise. Give LOW..HIGH.")
    words = [word.strip() for word in rest]
    spacing = words.pop() if words and words[-1] in SPACINGS else SPACINGS[0]
    if len(words) > 1 or not all(word.isascii() and word.isdigit() and len(word) < 16 for word in words):
        raise FomkitError(
            where, f"{':'.join(rest)!r} is no number of steps. Write LOW..HIGH:8 or LOW..HIGH:8:log."
        )
    steps = int(words[0]) if words else None
    if steps is not None and steps < 2:
        raise FomkitError(where, f"a range of {steps} steps has not both its ends. Give 2 or more.")
    if spacing == "log" and low <= 0:
        raise FomkitError(
            where, f"{name} begins at {low:g}, which has no logarithm. Begin above 0, or take linear."
        )
    return Axis(name, kind, (), low, high, steps, spacing == "log")


def make_axis(name: str, given: Given, kind: Kind) -> Axis:
    """Make an axis of what a user gave: text with units, or numbers in SI units.

    Raises
    ------
    FomkitError
        When a value cannot be one of the parameter, or the text is no list and no range.

    Examples
    --------
    >>> make_axis("byte_per_s", "0.5 TB/s..4 TB/s:8:log", Kind("byte_per_s")).grid().tolist()[::7]
    [500000000000.0, 4000000000000.0]
    >>> make_axis("batch", "16,32", Kind(whole=True)).values
    (16.0, 32.0)
    """
    where = f"--vary {name}"
    if not isinstance(given, str):
        numbers: Sequence[object] = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float | np.number):
                raise FomkitError(where, f"{name} is {number!r}. Give text with units, or numbers in SI units.")
        values = [_checked(float(str(number)), kind, where, name, f"{number}") for number in numbers]
    else:
        body, *rest = given.split(":")
        if ".." in body:
            return _range(name, kind, body, rest, where)
        if rest:
            raise FomkitError(where, f"{given!r} has steps but no range. Write LOW..HIGH:{rest[0]}.")
        values = [_value(text, kind, where, name) for text in body.split(",")]
    if not values:
        raise FomkitError(where, f"has no value. Write, for example, '{name}={kind.example}'.")
    if len(set(values)) < len(values):
        raise FomkitError(where, f"{name} has a value twice. Give each once.")
    return Axis(name, kind, tuple(values))
