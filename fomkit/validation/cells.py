"""Compare projections with measurements: a cell for each measured model, machine and set of conditions.

`cell_verdicts` decides what a device model may claim of each cell, and whether the measurement agrees.
`calibrated_on` and `host_extended_from` correct projections of cells by the measurement of another cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common, at_level, divide, half_width
from fomkit.core.machine import Machine
from fomkit.core.measurement import Measurement
from fomkit.core.model import ModelProfile
from fomkit.merit.measured_steps import COMPARABLE, ENOUGH, explained_share, median_of, quantity_of
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.options import Options

MEASURED = "measured"


@dataclass(frozen=True)
class Cell:
    """One model on one machine under one set of conditions.

    `rows`: the measurements behind the figure, all of one basis: estimates are never averaged with measurements.
    `measured`: median of the rows, from the lowest low to the highest high, in the unit of their quantity.
    `projected`: the predicted quantity; None if the profile does not state the samples of an epoch.
    `estimate`: None if nothing could be predicted; ``missing`` has the reason.
    """

    model: str
    machine: str
    quantity: str
    batch: int | None
    rows: tuple[Measurement, ...]
    measured: Span
    estimate: Estimate | None
    projected: Span | None
    missing: str = ""

    @property
    def is_measured(self) -> bool:
        """False if the figure is an estimate by its author."""
        return self.rows[0].basis == MEASURED

    @property
    def holds(self) -> str:
        """What the measured figure includes besides the model's ops, in the words of its table."""
        return "; ".join(dict.fromkeys(row.holds for row in self.rows if row.holds))

    @property
    def explained(self) -> float | None:
        """The projected time as a share of the measured time; None if either is unknown."""
        return explained_share(self.quantity, self.projected, self.measured.value)

    @property
    def inside(self) -> bool | None:
        """Whether the measured figure is in the projected interval."""
        return None if self.projected is None else self.projected.contains(self.measured.value)


def ratio_to(cell: Cell, baseline: Cell) -> tuple[float, Span | None]:
    """Return the speed of a cell relative to the baseline's cell, measured and projected.

    For epochs of unknown length the projected ratio is that of the steps: both machines run equally many.
    """
    measured = baseline.measured.value / cell.measured.value
    if cell.estimate is None or baseline.estimate is None:
        return measured, None
    if cell.quantity == "sample_per_s":
        measured = 1 / measured
    if cell.projected is not None and baseline.projected is not None and cell.quantity != "sample_per_s":
        return measured, divide(baseline.projected, cell.projected)
    return measured, divide(baseline.estimate.step, cell.estimate.step)


def _grouped(rows: Sequence[Measurement]) -> Mapping[tuple[str, str, str, int | None, int], list[Measurement]]:
    """Group rows by model, machine, quantity, batch and devices; keep only measured rows if there are any.

    Without measured rows a group keeps those of its first row's basis. Energy is not a time and is left out.
    """
    groups: dict[tuple[str, str, str, int | None, int], list[Measurement]] = {}
    for row in (row for row in rows if row.quantity != "energy_j"):
        groups.setdefault((row.model, row.machine, row.quantity, row.batch, row.devices or 1), []).append(row)
    return {
        key: [row for row in group if row.basis == MEASURED]
        or [row for row in group if row.basis == group[0].basis]
        for key, group in groups.items()
    }


def make_cells(
    rows: Sequence[Measurement],
    options: Options,
    load_model: Callable[[str], ModelProfile],
    load_machine: Callable[[str], Machine],
    after_each: Callable[[], None] = lambda: None,
) -> tuple[Cell, ...]:
    """Predict the quantity that each row of a table of measurements measured, at the row's own batch."""
    models = {name: load_model(name) for name in dict.fromkeys(row.model for row in rows)}
    machines: dict[str, Machine | None] = {}
    cells = []
    for (model, machine, quantity, batch, _), group in _grouped(rows).items():
        if machine not in machines:
            try:
                machines[machine] = load_machine(machine)
            except FomkitError as error:
                if "no machine profile of this name" not in error.what:
                    raise
                machines[machine] = None  # its cells get no projection
        figure = at_level(median_of([row.span for row in group]), options.interval)
        cell = Cell(model, machine, quantity, batch, tuple(group), figure, None, None)
        cells.append(_projected(cell, models[model], machines[machine], options))
        after_each()
    return tuple(cells)


def _projected(cell: Cell, model: ModelProfile, machine: Machine | None, options: Options) -> Cell:
    if machine is None:
        return replace(cell, missing=f"no machine profile is named {cell.machine}")
    scope = cell.rows[0].scope
    if scope not in ("", "device"):
        return replace(cell, missing=f"the measurement is of a {scope}, but an epoch is projected for one device")
    many = [row.devices for row in cell.rows if row.devices not in (None, 1)]
    if many:
        return replace(cell, missing=f"the measurement is of {many[0]} devices, but a step is projected for one")
    try:
        one = estimate(model, machine, replace(options, batch=cell.batch, scope="device"))
    except FomkitError as error:
        return replace(cell, missing=str(error))
    return replace(cell, estimate=one, projected=quantity_of(one, cell.quantity))


def _line(row: Measurement) -> str:
    return row.where.rpartition(":")[2]


def counted_once(rows: Sequence[Measurement]) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Drop rows that copy an earlier row; return the others and a note for each copy."""
    first: dict[Measurement, Measurement] = {}
    notes = []
    for row in rows:
        known = first.setdefault(replace(row, where=""), row)
        if known is not row:
            notes.append(f"{row.where} is a copy of line {_line(known)} and counts once")
    return tuple(first.values()), tuple(notes)


_CONDITIONS: Mapping[str, str] = {
    "precision": "precisions", "devices": "numbers of devices", "framework": "frameworks", "scope": "scopes"
}  # fmt: skip


def conflict_notes(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return a note for each cell of several rows: how they were combined, and in which conditions they differ."""
    notes = []
    for cell in (cell for cell in cells if len(cell.rows) > 1):
        values = [row.value for row in cell.rows]
        differ = [word for name, word in _CONDITIONS.items() if len({getattr(row, name) for row in cell.rows}) > 1]
        notes.append(
            f"{cell.model} on {cell.machine}, {cell.quantity}: lines {', '.join(map(_line, cell.rows))} state "
            f"{min(values):g} … {max(values):g}; their median counts, its interval covers them all"
            + (f"; they are of different {', '.join(differ)}" if differ else "")
        )
    return tuple(notes)


Claim = Literal["absolute", "ratio", "start-up bound", "host bound", "unexplained"]
"""What a device model may claim of a cell: its time, only its ratio to another machine, or neither and why."""

STEP_HOST_S = 10e-3
"""Longest time that a framework's training loop spends on one step besides its kernels [s]."""
FEW_STEPS, START_UP_S = 100, 60.0
"""In epochs of at most this many steps, time beside the device's of at most this length [s] may be start-up."""
SLOWER_RATIO = 0.95
"""A machine counts as slower than another below this measured ratio of speeds; above it they count as equal."""


def _slower_where_faster(cells: Sequence[Cell]) -> str:
    """Describe a machine measured as slower than another although its device is faster (low > 1); "" for none."""
    for cell in cells:
        for other in cells:
            measured, projected = ratio_to(cell, other)
            if projected is not None and projected.low > 1 and measured < SLOWER_RATIO:
                return f"{cell.machine} is slower than {other.machine}, though its device is faster"
    return ""


def _rest_s(cell: Cell) -> float | None:
    """Return the measured epoch less the projected epoch [s]; None if unknown or not an epoch."""
    if cell.projected is None or cell.quantity != "epoch_s":
        return None
    return cell.measured.value - cell.projected.value


def _fixed_cost(cell: Cell, estimate: Estimate, *, of_epoch: bool) -> str:
    """Describe time that the device does not explain as a cost of each step, else of an epoch; "" if too long."""
    steps, rest = estimate.run_time.steps_per_epoch, _rest_s(cell)
    if rest is None or not steps:
        return ""
    if rest / steps <= STEP_HOST_S:
        return f"{rest / steps * 1e3:.2g} ms a step are not explained by the device"
    if of_epoch and steps <= FEW_STEPS and rest <= START_UP_S:
        return f"{rest:.2g} s an epoch of {steps} steps are not explained by the device"
    return ""


def _little_explained(cell: Cell, estimate: Estimate, slower: str) -> tuple[Claim, str]:
    device = f"the device explains {cell.explained:.1%}"
    if fixed := _fixed_cost(cell, estimate, of_epoch=True):
        return "start-up bound", f"{device}; {fixed}"
    if slower:
        return "host bound", f"{device}; {slower}"
    return "unexplained", f"{device}; the cause of the rest is unknown"


def cause_of(cell: Cell, estimate: Estimate, same_model: Sequence[Cell]) -> tuple[Claim, str]:
    """Return the claim that a measured time allows, and the cause: what the step waited for."""
    bound, share = estimate.step_time.bound, cell.explained
    if bound in ("launch", "input"):
        return "host bound", f"the step waits for the host ({bound}), not for the device"
    slower = _slower_where_faster(same_model)
    if share is None:
        unknown: tuple[Claim, str] = ("ratio", f"the samples of an epoch are unknown; bound by {bound}")
        return ("host bound", slower) if slower else unknown
    if share < COMPARABLE:
        return _little_explained(cell, estimate, slower)
    if share < ENOUGH and not cell.holds and (fixed := _fixed_cost(cell, estimate, of_epoch=False)):
        return "start-up bound", f"the device explains {share:.1%}; {fixed}"
    if cell.holds:
        return "ratio", f"the measurement includes {cell.holds}; the device explains {share:.0%}, bound by {bound}"
    short = "" if share >= ENOUGH else f"; a verdict of fom needs {ENOUGH:.0%}"
    return "absolute", f"the device explains {share:.0%}, bound by {bound}{short}"


Agreement = Literal["inside", "ambiguous", "outside"]
AMBIGUOUS_LEVEL = 0.95
"""Outside its interval but inside that of this level, a cell is ambiguous: the model neither holds nor fails."""


@dataclass(frozen=True)
class CellVerdict:
    """A cell with the claim made of it.

    `claim`: None if the figure is not a measurement, or nothing could be predicted.
    `cause`: what the measured time waited for, in figures.
    `agreement`: of the time if the claim is absolute, of the ratio if the claim is the ratio; else None.
    `ratio`, `projected_ratio`: speed relative to the baseline, measured and projected; None for the baseline
      itself and without a baseline.
    """

    cell: Cell
    claim: Claim | None
    cause: str
    agreement: Agreement | None = None
    ratio: float | None = None
    projected_ratio: Span | None = None
    ratio_agreement: Agreement | None = None


def agreement(value: float, low: float, high: float, span: Span) -> Agreement:
    """Return whether a measured value is in a projected interval; low and high are the value's own spread."""
    if span.contains(value):
        return "inside"
    wide = at_level(span, max(AMBIGUOUS_LEVEL, span.level))
    touches = low <= span.high and high >= span.low
    return "ambiguous" if touches or wide.contains(value) else "outside"


def _ratio(cell: Cell, baseline: Cell | None) -> tuple[float | None, Span | None, Agreement | None]:
    if baseline is None or baseline.machine == cell.machine or not baseline.is_measured:
        return None, None, None
    measured, projected = ratio_to(cell, baseline)
    if projected is None:
        return measured, None, None
    spread = math.hypot(*(math.log(one.measured.high / one.measured.low) for one in (cell, baseline))) / 2
    ends = measured * math.exp(-spread), measured * math.exp(spread)
    return measured, projected, agreement(measured, *ends, projected)


def _cell_verdict(cell: Cell, same_model: Sequence[Cell], baseline: Cell | None) -> CellVerdict:
    one = cell.estimate
    if not cell.is_measured:
        return CellVerdict(cell, None, f"the value is {cell.rows[0].basis}, not measured")
    if one is None:
        return CellVerdict(cell, None, cell.missing)
    ratio, projected_ratio, ratio_agrees = _ratio(cell, baseline)
    claim, cause = cause_of(cell, one, same_model)
    agrees: Agreement | None = None
    if claim == "absolute" and cell.projected is not None:
        agrees = agreement(cell.measured.value, cell.measured.low, cell.measured.high, cell.projected)
    elif claim == "ratio":
        agrees = ratio_agrees
    return CellVerdict(cell, claim, cause, agrees, ratio, projected_ratio, ratio_agrees)


def cell_verdicts(cells: Sequence[Cell], baseline: str | None) -> tuple[CellVerdict, ...]:
    """Return a verdict for each cell, with ratios to ``baseline``'s cell under the same conditions."""
    found = []
    for cell in cells:
        key = (cell.model, cell.quantity, cell.batch)
        similar = [one for one in cells if (one.model, one.quantity, one.batch) == key]
        comparable = [one for one in similar if one.is_measured and one.estimate is not None]
        base = next((one for one in similar if one.machine == baseline), None)
        found.append(_cell_verdict(cell, comparable, base))
    return tuple(found)


class Summary(TypedDict):
    """Errors of the cells of one claim.

    `mean_factor`: geometric mean of measured over projected, times or ratios.
    `inside`: number of cells whose measured figure is in the projected interval.
    """

    count: int
    mean_factor: float
    mean_error: float
    inside: int


def summarise(pairs: Sequence[tuple[float, Span]]) -> Summary | None:
    """Summarise pairs of a measured and a projected figure; None without any."""
    if not pairs:
        return None
    logs = [math.log(measured / projected.value) for measured, projected in pairs]
    errors = [abs(projected.value / measured - 1) for measured, projected in pairs]
    inside = sum(projected.contains(measured) for measured, projected in pairs)
    factor, error = math.exp(math.fsum(logs) / len(pairs)), math.fsum(errors) / len(pairs)
    return {"count": len(pairs), "mean_factor": factor, "mean_error": error, "inside": inside}


MIN_MODELS = 3
"""Fewest models from which the difference of host terms between two machines is estimated."""


@dataclass(frozen=True)
class ExtendedProjection:
    """A cell's projection corrected by the measurement of another cell.

    `cell`: the corrected cell; its own measurement is not used.
    `projected`: in the unit of the cell's quantity.
    """

    cell: Cell
    projected: Span
    reference: Cell

    @property
    def error(self) -> float:
        """Projected over measured, less 1."""
        return self.projected.value / self.cell.measured.value - 1

    @property
    def inside(self) -> bool:
        """Whether the measured figure is in the projected interval."""
        return self.projected.contains(self.cell.measured.value)


def _times(all_verdicts: Iterable[CellVerdict], claims: Collection[Claim]) -> list[Cell]:
    return [
        one.cell
        for one in all_verdicts
        if one.claim in claims and one.cell.projected is not None and one.cell.quantity == "epoch_s"
    ]


def calibrated_on(all_verdicts: Sequence[CellVerdict], model: str) -> tuple[ExtendedProjection, ...]:
    """Multiply each projection by measured over projected time of ``model``, measured on the same machine.

    Only cells that do not wait for the host are used. The errors of the two projections are treated as
    independent, which makes the intervals of similar models too wide.
    """
    known = _times(all_verdicts, ("absolute", "unexplained"))
    cells_by_key = {one.machine: one for one in known if one.model == model}
    if not cells_by_key:
        raise FomkitError(model, "has no measured epoch, so nothing can be calibrated on it. Name another model.")
    found = []
    for one in known:
        reference = cells_by_key.get(one.machine)
        if one.model == model or reference is None or reference.projected is None or one.projected is None:
            continue
        ratio = divide(one.projected, reference.projected)
        found.append(ExtendedProjection(one, ratio.scaled(reference.measured.value), reference))
    return tuple(found)


def host_epoch_s(cell: Cell) -> float | None:
    """Return measured less projected epoch [s], the host's part; None if unknown or not positive."""
    rest = _rest_s(cell)
    return rest if rest is not None and rest > 0 else None


def _difference(cells: Sequence[Cell], old: str, new: str, but: str) -> float | None:
    """Return the deviation of ln(host term on new / on old) over all models but one; None for too few."""
    terms = {(cell.model, cell.batch, cell.machine): host_epoch_s(cell) for cell in cells if cell.model != but}
    logs = []
    for (model, batch, machine), there in terms.items():
        here = terms.get((model, batch, old))
        if machine == new and there is not None and here is not None:
            logs.append(math.log(there / here))
    # About 0, not about the mean: the term is added to the other machine unchanged.
    return math.sqrt(math.fsum(log * log for log in logs) / len(logs)) if len(logs) >= MIN_MODELS else None


def host_extended_from(all_verdicts: Sequence[CellVerdict], machine: str) -> tuple[ExtendedProjection, ...]:
    """Add to each projection the host's part of the same model's epoch as measured on ``machine``.

    Cells whose claim is absolute are left out: their time is the device's own. The difference of host terms
    between two machines is estimated from their other models; the model itself has no influence on its interval.
    """
    known = _times(all_verdicts, ("start-up bound", "host bound", "ratio", "unexplained"))
    cells_by_key = {(one.model, one.batch): one for one in known if one.machine == machine}
    if not cells_by_key:
        raise FomkitError(
            machine, "has no epoch that is host bound, so no host term can be transferred. Name another machine."
        )
    found = []
    for one in known:
        reference = cells_by_key.get((one.model, one.batch))
        host = host_epoch_s(reference) if reference is not None else None
        if one.machine == machine or reference is None or host is None or one.projected is None:
            continue
        deviation = _difference(known, machine, one.machine, one.model)
        if deviation is None:
            continue
        level = one.projected.level
        factor = math.exp(half_width(level) * deviation)
        term = Span(host, host / factor, host * factor, level)
        found.append(ExtendedProjection(one, add_common([one.projected, term]), reference))
    return tuple(found)
