"""The memory of a sweep's points: peaks where sizes are few, else the largest batch that fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fomkit.errors import FomkitError
from fomkit.precision import choose_formats
from fomkit.study.memory_of import BATCH, largest_batch, step_memory
from fomkit.study.options import choose_sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Machine
    from fomkit.study.options import Options
    from fomkit.whatif.sweep_axes import Axis
    from fomkit.workload import ModelProfile

    Values = tuple[float, ...]
    Array = NDArray[np.float64]

MOST_FOLLOWED = 256
"""Sizes whose step is followed op by op; each takes some hundredths of a second."""
MOST_SEARCHED = 16
"""Combinations of other sizes for each of which the largest batch is sought: about twenty steps each."""
PEAK_BYTE, FITS = "peak_byte", "fits"
NO_CAPACITY = "the machine does not state the memory of its device"


class Memory(NamedTuple):
    """What is known of the memory of a sweep's points.

    Attributes
    ----------
    sizes : tuple of str
        Sizes that are varied.
    peaks : mapping
        Peak [byte] by the values of these, NaN where it is not known; empty where none is.
    why_not : str
        Why there are no peaks, or some are not known.
    largest : mapping
        The largest batch that fits, by the values of the sizes beside it; where there are too many for peaks.
    unchecked : str
        Why nobody knows of all points whether they fit; "" where it is known.
    """

    sizes: tuple[str, ...] = ()
    peaks: Mapping[Values, float] = {}
    why_not: str = ""
    largest: Mapping[Values, int] = {}
    unchecked: str = ""


def _combinations(axes: Sequence[Axis]) -> Iterator[tuple[Values, dict[str, int]]]:
    """Give every combination of sizes: its values, and these by name."""
    for values in itertools.product(*(axis.grid().tolist() for axis in axes)):
        yield values, {axis.name: int(value) for axis, value in zip(axes, values, strict=True)}


def _count(axes: Sequence[Axis]) -> int:
    return math.prod(axis.count or 0 for axis in axes)


def _peaks(model: ModelProfile, base: Mapping[str, int], axes: Sequence[Axis]) -> tuple[dict[Values, float], str]:
    """Follow every step; where one cannot be, its peak is NaN and the last reason is told."""
    peaks, why = {}, ""
    for values, sizes in _combinations(axes):
        try:
            use = step_memory(model, {**base, **sizes})
        except FomkitError as error:
            use, why = None, error.what
        peaks[values] = math.nan if use is None else use.peak_byte
    return peaks, why


def _largest(
    model: ModelProfile, base: Mapping[str, int], axes: Sequence[Axis], capacity_byte: float
) -> tuple[dict[Values, int], str]:
    """Seek the largest batch that fits, at every combination of the other sizes."""
    rest = [axis for axis in axes if axis.name != BATCH]
    if len(rest) == len(axes) or _count(rest) > MOST_SEARCHED:
        return {}, (
            f"{_count(axes):,} sizes are too many to follow each; list {MOST_FOLLOWED} or fewer, or vary the "
            f"batch with at most {MOST_SEARCHED} combinations of other sizes"
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
    """Learn what the sizes that a sweep can meet need of the device's memory, as far as it can be known."""
    own = [axis for axis in axes if axis.name in model.sizes or axis.name == BATCH]
    names = tuple(axis.name for axis in own)
    formats = choose_formats(options.precision, model.traced_with.get("framework", ""), machine, model.ops)
    why = "" if model.order is not None else "the profile has no order of its ops"
    if formats.stream not in ("", "fp32"):
        why = f"the order of ops is of the traced formats, not of {formats.name}"
    if why:
        return Memory(names, {}, why, {}, why)
    base, capacity = choose_sizes(model, options.wanted_sizes), machine.device.capacity_byte
    if _count(own) <= MOST_FOLLOWED:
        peaks, why = _peaks(model, base, own)
        known = peaks if any(not math.isnan(one) for one in peaks.values()) else {}
        return Memory(names, known, why, {}, NO_CAPACITY if capacity is None else why)
    why = f"{_count(own):,} sizes would each be followed op by op; list {MOST_FOLLOWED} or fewer to have it"
    if capacity is None:
        return Memory(names, {}, why, {}, NO_CAPACITY)
    return Memory(names, {}, why, *_largest(model, base, own, capacity.value))


def _rows(points: pd.DataFrame, names: Sequence[str]) -> Iterator[Values]:
    return points[list(names)].itertuples(index=False, name=None) if names else itertools.repeat((), len(points))


def add_memory(found: pd.DataFrame, points: pd.DataFrame, memory: Memory) -> pd.DataFrame:
    """Add the peak of each point's sizes [byte], or whether its batch fits."""
    if memory.peaks:
        peaks = np.array([memory.peaks[tuple(one)] for one in _rows(points, memory.sizes)])
        return found.assign(**{PEAK_BYTE: peaks})
    if not memory.largest:
        return found
    rest = [name for name in memory.sizes if name != BATCH]
    most = np.array([memory.largest.get(tuple(one), math.nan) for one in _rows(points, rest)])
    return found.assign(**{FITS: _compared(points[BATCH].to_numpy(np.float64), most, found.index)})


def _compared(needed: Array, most: Array | float, index: pd.Index) -> pd.Series:
    """Tell yes, no or not known."""
    told = pd.Series(needed <= most, index=index, dtype="boolean")
    return told.mask(np.isnan(needed) | np.isnan(most))


def add_fits(found: pd.DataFrame, capacity_byte: float | None) -> pd.DataFrame:
    """Say whether a device holds a step, where its peak tells; <NA> where that is not known."""
    if capacity_byte is None or PEAK_BYTE not in found:
        return found
    return found.assign(**{FITS: _compared(found[PEAK_BYTE].to_numpy(np.float64), capacity_byte, found.index)})
