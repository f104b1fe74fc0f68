"""Compute rates of models × machines × frameworks × {train, infer}; grid and comparison as plain content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, at_level
from fomkit.core.machine import Machine
from fomkit.core.measurement import Measurement
from fomkit.core.model import ModelProfile, by_network
from fomkit.merit.fom import Rates, figure_of_merit, take_mean
from fomkit.plan.content import INTERVAL_MEANING, Ends, as_content, span_content
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.validation.cells import MEASURED, CellVerdict, ExtendedProjection, Summary, conflict_notes, summarise

Mode = Literal["train", "infer"]
LATENCY_S = 7e-3
"""The lecture's limit on the latency of inference [s]."""
BATCHES = tuple(2**power for power in range(13))
"""Batches that are tried in inference, up to 4,096."""


@dataclass(frozen=True)
class GridCell:
    """One model on one machine with one framework in one mode.

    `sample_per_s`: None if unknown; ``why`` has the reason.
    `latency_s`: latency of one batch in inference.
    `basis`: measured or modelled; "" for an empty cell.
    `excludes`: terms of a modelled step that are not stated, so its rate is an upper bound.
    `fits`: whether a modelled training step fits in the device's memory.
    `explained`: for modelled training, the device's time as a share of the time measured on the machine at the
      same batch, the smallest of several frameworks; None without a measurement.
    """

    model: str
    machine: str
    framework: str
    mode: Mode
    batch: int | None = None
    sample_per_s: Span | None = None
    latency_s: Span | None = None
    basis: str = ""
    why: str = ""
    excludes: tuple[str, ...] = ()
    fits: bool | None = None
    explained: float | None = None


def _infer(cell: GridCell, model: ModelProfile, machine: Machine, options: Options, limit_s: float) -> GridCell:
    """Find the largest batch, a power of two, whose forward pass stays within the limit."""
    best = cell
    for batch in BATCHES:
        one = estimate(model, machine, replace(options, batch=batch))
        forward = one.step_time.passes["forward"]  # of a training step: dropout and batch statistics are in it
        if forward.value > limit_s:
            slow = f"one sample takes {forward.value * 1e3:.3g} ms, more than {limit_s * 1e3:g} ms"
            return best if best.batch else replace(cell, why=slow)
        rate = forward.per(float(batch))
        best = replace(cell, batch=batch, sample_per_s=rate, latency_s=forward, basis="modelled",
                       excludes=one.step_time.excludes)  # fmt: skip
    return best


def _projected(
    cell: GridCell, model: ModelProfile, machine: Machine, options: Options, limit_s: float
) -> GridCell:
    try:
        if cell.mode == "infer":
            return _infer(cell, model, machine, options, limit_s)
        one = estimate(model, machine, options)
    except FomkitError as error:
        return replace(cell, why=error.what)
    if one.sample_per_s is None:
        return replace(cell, why="the profile does not state a batch")
    return replace(cell, batch=one.sizes["batch"], sample_per_s=one.sample_per_s, basis="modelled",
                   excludes=one.step_time.excludes, fits=one.fit.fits)  # fmt: skip


def _rate(row: Measurement, model: ModelProfile) -> Span | None:
    """Return the samples per second of a measured run; None if row and profile do not state the samples."""
    if row.quantity == "sample_per_s":
        return row.span
    if row.quantity in ("step_s", "latency_s") and row.batch:
        return row.span.per(float(row.batch))
    if row.quantity == "epoch_s" and model.data.train_samples:
        return row.span.per(float(model.data.train_samples))
    return None


def _measured(cell: GridCell, model: ModelProfile, rows: Sequence[Measurement], level: float) -> GridCell:
    """Fill a cell from measurements; in inference mode from the latency of a batch."""
    about = [
        row
        for row in rows
        if (row.model, row.machine) == (cell.model, cell.machine)
        and (row.quantity == "latency_s") == (cell.mode == "infer")
    ]
    if not about:
        return replace(cell, why=f"not measured, and no profile was traced with {cell.framework}")
    real = [row for row in about if row.basis == MEASURED]
    if not real:
        return replace(cell, why=f"only a measurement that is {about[0].basis}")
    one = next((row for row in real if row.devices in (None, 1)), None)
    if one is None:
        return replace(cell, why=f"only a measurement of {real[0].devices} devices")
    rate = _rate(one, model)
    if rate is None:
        return replace(cell, why=f"the samples of {'a batch' if cell.mode == 'infer' else 'an epoch'} are unknown")
    latency = at_level(one.span, level) if cell.mode == "infer" else None
    rate = at_level(rate, level)
    return replace(cell, batch=one.batch, sample_per_s=rate, basis=MEASURED, latency_s=latency)


def _with_explained_share(cell: GridCell, model: ModelProfile, rows: Sequence[Measurement]) -> GridCell:
    """Add the share of the measured time, on the machine at the same batch, that modelled training explains."""
    if cell.mode != "train" or cell.sample_per_s is None:
        return cell
    about = [row for row in rows if (row.model, row.machine, row.batch) == (cell.model, cell.machine, cell.batch)]
    rates = [
        _rate(row, model)
        for row in about
        if row.basis == MEASURED and row.scope in ("", "device") and row.devices in (None, 1)
        if row.quantity != "latency_s"
    ]
    shares = [rate.value / cell.sample_per_s.value for rate in rates if rate is not None]
    return replace(cell, explained=min(shares)) if shares else cell


def make_grid(
    models: Sequence[ModelProfile],
    machines: Sequence[Machine],
    rows: Sequence[Measurement],
    options: Options,
    limit_s: float = LATENCY_S,
    after_each: Callable[[], None] = lambda: None,
) -> tuple[GridCell, ...]:
    """Fill the grid: projected rates for the framework that traced a profile, else the measured ones of the table.

    `options`: training uses the profile's batch unless one is set here; `limit_s`: longest time of a batch in
    inference [s]; `after_each`: called after each model on each machine.
    """
    cells = []
    columns = dict.fromkeys(row.framework for row in rows if row.framework)
    for model, *twins in by_network(models):
        traced = {_column(one, columns): one for one in (model, *twins)}
        for machine in machines:
            for mode in ("train", "infer"):
                for framework in {**traced, **columns}:
                    cell = GridCell(model.name, machine.name, framework, mode)
                    about = [row for row in rows if row.framework == framework]
                    found = _measured(cell, model, about, options.interval)
                    if framework in traced:
                        projected = _projected(cell, traced[framework], machine, options, limit_s)
                        known = projected.sample_per_s or found.sample_per_s is None
                        found = _with_explained_share(projected, model, rows) if known else found
                    cells.append(found)
            after_each()
    return tuple(cells)


def _column(model: ModelProfile, columns: Iterable[str]) -> str:
    """Return a profile's framework by its name in the table of measurements, such as keras/tensorflow."""
    framework = model.traced_with.get("framework", "none")
    return next((one for one in columns if framework in one.split("/")), framework)


ExtendedContent = TypedDict("ExtendedContent", {"value": float, "low": float, "high": float, "told_by": str,
                                                "error": float, "inside": bool})  # fmt: skip
ComparedCell = TypedDict("ComparedCell", {
    "model": str, "machine": str, "batch": int | None, "quantity": str, "basis": str, "measured": Ends,
    "projected": Ends | None, "error": float | None, "inside": bool | None, "explained": float | None,
    "ratio": float | None, "projected_ratio": Ends | None, "ratio_agrees": str | None, "claim": str | None,
    "agrees": str | None, "cause": str, "holds": str | None, "calibrated": ExtendedContent | None,
    "with_host_term": ExtendedContent | None, "sources": list[str], "rows": list[str],
})  # fmt: skip
MachineFom = TypedDict("MachineFom", {"target": str, "count": int, "measured": float, "projected": Ends})
Summaries = TypedDict("Summaries", {"absolute": Summary | None, "ratio": Summary | None,
                                    "calibrated": Summary | None, "with_host_term": Summary | None})  # fmt: skip
ComparedContent = TypedDict("ComparedContent", {
    "schema": str, "fomkit": str, "interval": float, "interval_covers": str, "baseline": str | None,
    "foms": list[MachineFom], "cells": list[ComparedCell], "notes": list[str], "summary": Summaries,
})  # fmt: skip
CellContent = TypedDict("CellContent", {
    "model": str, "machine": str, "framework": str, "mode": str, "batch": int | None, "sample_per_s": Ends | None,
    "latency_s": Ends | None, "basis": str | None, "why": str | None, "excludes": list[str], "fits": bool | None,
    "explained": float | None,
})  # fmt: skip
GridContent = TypedDict("GridContent", {
    "schema": str, "fomkit": str, "interval": float, "latency_limit_s": float, "inference_is": str,
    "notes": list[str], "cells": list[CellContent],
})  # fmt: skip


def _extended_content(projection: ExtendedProjection) -> ExtendedContent:
    told_by = f"{projection.reference.model} on {projection.reference.machine}"
    return as_content(ExtendedContent, span_content(projection.projected), projection, told_by=told_by)


def _row(
    all_verdicts: CellVerdict, calibrated: Sequence[ExtendedProjection], hosted: Sequence[ExtendedProjection]
) -> ComparedCell:
    cell = all_verdicts.cell
    return as_content(
        ComparedCell, cell, all_verdicts, basis=cell.rows[0].basis, ratio_agrees=all_verdicts.ratio_agreement,
        error=None if cell.projected is None else cell.projected.value / cell.measured.value - 1,
        agrees=all_verdicts.agreement,
        calibrated=next((_extended_content(other) for other in calibrated if other.cell is cell), None),
        with_host_term=next((_extended_content(other) for other in hosted if other.cell is cell), None),
        sources=dict.fromkeys(row.source for row in cell.rows if row.source),
        rows=[row.where for row in cell.rows],
    )  # fmt: skip


def _extended_summary(
    extended: Sequence[ExtendedProjection], all_verdicts: Sequence[CellVerdict]
) -> Summary | None:
    """Summarise the extended projections, without the cells whose measured time is unexplained."""
    unexplained = {id(one.cell) for one in all_verdicts if one.claim == "unexplained"}
    counted = [one for one in extended if id(one.cell) not in unexplained]
    return summarise([(one.cell.measured.value, one.projected) for one in counted])


def _claimed_ratios(all_verdicts: Sequence[CellVerdict]) -> list[tuple[str, float, Span]]:
    """Return machine, measured and projected ratio of each cell whose ratio is claimed."""
    return [
        (one.cell.machine, one.ratio, one.projected_ratio)
        for one in all_verdicts
        if one.claim in ("absolute", "ratio") and one.ratio is not None and one.projected_ratio is not None
    ]


def _foms(all_verdicts: Sequence[CellVerdict], baseline: str | None) -> list[MachineFom]:
    """Compute, for each machine, the geometric means of the claimed ratios as measured and as projected."""
    by_machine: dict[str, dict[str, tuple[float, Span]]] = {}
    for place, (machine, ratio, span) in enumerate(_claimed_ratios(all_verdicts)):
        by_machine.setdefault(machine, {})[str(place)] = ratio, span
    found = list[MachineFom]()
    for machine, cells in by_machine.items():
        alone = Rates(str(baseline), "", {name: Span.exact(1.0, span.level) for name, (_, span) in cells.items()})
        merit = figure_of_merit(alone, Rates(machine, "", {name: span for name, (_, span) in cells.items()}))
        measured = take_mean("geometric", [ratio for ratio, _ in cells.values()], [1.0] * len(cells))
        projected = span_content(merit.others["geometric"])
        found.append({"target": machine, "count": len(cells), "measured": measured, "projected": projected})
    return found


def compare_content(
    all_verdicts: Sequence[CellVerdict],
    baseline: str | None,
    level: float,
    calibrated: Sequence[ExtendedProjection] = (),
    hosted: Sequence[ExtendedProjection] = (),
    notes: Sequence[str] = (),
) -> ComparedContent:
    """Return the verdicts of all cells as ``fomkit/compare/1``; ``notes`` are remarks on the rows read."""
    absolute = [
        (one.cell.measured.value, one.cell.projected)
        for one in all_verdicts
        if one.claim == "absolute" and one.cell.projected is not None
    ]
    ratios = [(measured, projected) for _, measured, projected in _claimed_ratios(all_verdicts)]
    return {
        "schema": "fomkit/compare/1", "fomkit": __version__, "interval": level,
        "interval_covers": INTERVAL_MEANING, "baseline": baseline, "foms": _foms(all_verdicts, baseline),
        "cells": [_row(one, calibrated, hosted) for one in all_verdicts],
        "notes": [*notes, *conflict_notes([one.cell for one in all_verdicts])],
        "summary": {
            "absolute": summarise(absolute), "ratio": summarise(ratios),
            "calibrated": _extended_summary(calibrated, all_verdicts),
            "with_host_term": _extended_summary(hosted, all_verdicts),
        },
    }  # fmt: skip


def grid_content(
    cells: Sequence[GridCell], level: float, limit_s: float, notes: Sequence[str] = ()
) -> GridContent:
    """Return a grid as ``fomkit/grid/1``."""
    inference = "the forward pass of the training step, at the largest power of two that keeps the limit"
    return as_content(
        GridContent, schema="fomkit/grid/1", fomkit=__version__, interval=level, latency_limit_s=limit_s,
        inference_is=inference, notes=notes, cells=cells,
    )  # fmt: skip
