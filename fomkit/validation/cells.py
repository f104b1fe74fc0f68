"""Compare projections with measurements: one cell for each measured model, machine and set of conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, at_level, divide
from fomkit.core.machine import Machine
from fomkit.core.measurement import Measurement
from fomkit.core.model import ModelProfile
from fomkit.merit.measured_steps import explained_share, median_of, quantity_of
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
    """Predict the quantity that each row of a table of measurements measured.

    `options`: the batch is replaced by each row's own; `load_model`, `load_machine`: return the profile of a name;
    `after_each`: called after each cell, for progress output.
    """
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
    for cell in cells:
        if len(cell.rows) > 1:
            values = [row.value for row in cell.rows]
            differ = [
                words for name, words in _CONDITIONS.items() if len({getattr(row, name) for row in cell.rows}) > 1
            ]
            notes.append(
                f"{cell.model} on {cell.machine}, {cell.quantity}: lines {', '.join(map(_line, cell.rows))} state "
                f"{min(values):g} … {max(values):g}; their median counts, its interval covers them all"
                + (f"; they are of different {', '.join(differ)}" if differ else "")
            )
    return tuple(notes)
