"""Carrying what one measurement tells to other cells: a factor between models, a host term between machines."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from fomkit.compare.causes import Claim
from fomkit.compare.cells import Cell
from fomkit.compare.judged import Judged
from fomkit.errors import FomkitError
from fomkit.spans import Span, add_common, divide_independent

FEWEST = 3
"""Models that it takes to tell how much host terms differ between two machines."""


@dataclass(frozen=True)
class Carried:
    """A cell's projection after something was carried to it.

    Attributes
    ----------
    cell : Cell
        The cell it is carried to, whose own measurement took no part.
    projected : Span
        In the unit of the cell's quantity.
    told_by : Cell
        The cell whose measurement was carried.
    """

    cell: Cell
    projected: Span
    told_by: Cell

    @property
    def error(self) -> float:
        """Projected over measured, less 1."""
        return self.projected.value / self.cell.measured.value - 1

    @property
    def inside(self) -> bool:
        """Whether the measured figure lies in the projected interval."""
        return self.projected.low <= self.cell.measured.value <= self.projected.high


def _times(judged: Iterable[Judged], claims: Collection[Claim]) -> list[Cell]:
    return [
        one.cell
        for one in judged
        if one.claim in claims and one.cell.projected is not None and one.cell.quantity == "epoch_s"
    ]


def calibrated_on(judged: Sequence[Judged], model: str) -> tuple[Carried, ...]:
    """Multiply each projection by how far off one model was on the same machine.

    Only cells that do not wait for the host take part. The errors of the two projections are taken as independent,
    which is on the wide side for models alike.

    Parameters
    ----------
    judged : sequence of Judged
    model : str
        The model that was measured on each machine.

    Raises
    ------
    FomkitError
        When the model has no measured epoch.
    """
    known = _times(judged, ("absolute", "unexplained"))
    told = {one.machine: one for one in known if one.model == model}
    if not told:
        raise FomkitError(model, "has no measured epoch, so nothing can be calibrated on it. Name another model.")
    found = []
    for one in known:
        teller = told.get(one.machine)
        if one.model == model or teller is None or teller.projected is None or one.projected is None:
            continue
        ratio = divide_independent(one.projected, teller.projected)
        exact = Span.exact(teller.measured.value, ratio.level)
        found.append(Carried(one, ratio.scaled(exact.value), teller))
    return tuple(found)


def host_epoch_s(cell: Cell) -> float | None:
    """Give the part [s] of a measured epoch that the projection of the device leaves over; None where none is."""
    if cell.projected is None:
        return None
    rest = cell.measured.value - cell.projected.value
    return rest if rest > 0 else None


def _difference(cells: Sequence[Cell], old: str, new: str, but: str) -> float | None:
    """Give the deviation of ln(host term on new / on old) over the models other than one; None for too few."""
    terms = {(one.model, one.batch, one.machine): host_epoch_s(one) for one in cells if one.model != but}
    logs = []
    for (model, batch, machine), there in terms.items():
        here = terms.get((model, batch, old))
        if machine == new and there is not None and here is not None:
            logs.append(math.log(there / here))
    # About 0, not about their mean: the term is carried as it is.
    return math.sqrt(math.fsum(log * log for log in logs) / len(logs)) if len(logs) >= FEWEST else None


def host_carried_from(judged: Sequence[Judged], machine: str) -> tuple[Carried, ...]:
    """Add to each projection the host's part of the same model's epoch on another machine.

    Cells whose time is the device's own take no part. How much the term differs from machine to machine is told by
    the other models of the same two machines; the model itself takes no part in its interval.

    Parameters
    ----------
    judged : sequence of Judged
    machine : str
        The machine whose measurements give the host's part.

    Raises
    ------
    FomkitError
        When no epoch was measured there.
    """
    known = _times(judged, ("start-up bound", "host bound", "ratio", "unexplained"))
    told = {(one.model, one.batch): one for one in known if one.machine == machine}
    if not told:
        raise FomkitError(
            machine, "has no epoch that waits for its host, so no host term can be carried. Name another machine."
        )
    found = []
    for one in known:
        teller = told.get((one.model, one.batch))
        host = host_epoch_s(teller) if teller is not None else None
        if one.machine == machine or teller is None or host is None or one.projected is None:
            continue
        deviation = _difference(known, machine, one.machine, one.model)
        if deviation is None:
            continue
        level = one.projected.level
        factor = math.exp(NormalDist().inv_cdf(0.5 + level / 2) * deviation)
        found.append(
            Carried(one, add_common([one.projected, Span(host, host / factor, host * factor, level)]), teller)
        )
    return tuple(found)
