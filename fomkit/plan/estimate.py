"""The estimate of one model on one machine: its ops are sized, priced, timed, and rolled up to a step and a run.

`estimate` does all of this and returns an `Estimate`, which holds every intermediate table. Ops that were timed
before are reused (`_reused`): what-ifs evaluate one model on one machine again and again. The last part finds out
whether a smaller batch takes longer (`slower_products`). Only products can: a library may use another kernel for
sixteen rows than for thirty.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, cast

import numpy as np

from fomkit.core.errors import FomkitError, Shown
from fomkit.core.interval import Span
from fomkit.core.machine import Machine, Scope
from fomkit.core.measurement import verdict_on
from fomkit.core.model import PARTIAL, LastBatch, ModelProfile
from fomkit.core.units import agree, count_text, format_quantity
from fomkit.ops.check import check_table
from fomkit.ops.columns import Columns, cached
from fomkit.ops.precision import DEFAULTS, Formats, choose_formats, name_precision, restate_ops
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import evaluate, evaluate_many, names_in, resize_ops
from fomkit.ops.tables import TINY
from fomkit.plan.coverage import UNPRICED, check_bounded, check_covered, check_work, shares_with_wait, wide_notes
from fomkit.plan.memory_of import Fit, fit_of, processor_notes, with_device_update, with_fresh_pages
from fomkit.plan.options import Options, choose_scope, choose_sizes, host_waited, with_host
from fomkit.plan.run import RunTime, eager_notes, eager_step, rate_per_day, roll_up_run, run_notes, runs_at_once
from fomkit.plan.shapes import Priced, StepOps, TimedStep, price_at, step_ops
from fomkit.plan.step import StepTime, roll_up_step
from fomkit.prediction import interpolate
from fomkit.prediction.cascade import answers_on, original, prepared
from fomkit.prediction.estimators import repeated
from fomkit.prediction.exact import is_measured
from fomkit.prediction.monotone import SIDES
from fomkit.profiles.evidence import with_fits, without_implausible

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.parallel.step import ParallelStep
    from fomkit.verbs.views import Plots

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class Detail:
    """What only some readers of an estimate need; a function computes its part when it is first asked for.

    `fitted`: the machine with the fits of its timings, which priced the ops.
    `ops`, `coverage`, `fit`, `deviations`: of the properties of `Estimate` with these names.
    `timed`: the ops as arrays; None for a run on several devices, and for a forward pass alone.
    """

    fitted: Machine
    ops: Callable[[], pd.DataFrame]
    coverage: Callable[[], Mapping[str, float]]
    fit: Callable[[], Fit]
    deviations: Callable[[], tuple[str, ...]]
    timed: TimedStep | None = None


@dataclass(frozen=True)
class Estimate(Shown):
    """One model on one machine: the result and every intermediate table.

    `step_time`, `run_time`: the roll-up, term by term.
    `unit_per_day`: None where the profile does not define a run.
    `job`: the step of a run on several devices (ops are of one microbatch on one device); None on one.
    """

    model: ModelProfile
    machine: Machine
    sizes: Mapping[str, int]
    scope: Scope
    runs_at_once: int
    step_time: StepTime
    run_time: RunTime
    unit_per_day: Span | None
    formats: Formats
    detail: Detail
    job: ParallelStep | None = None

    @property
    def timed(self) -> TimedStep:
        """The ops as arrays; only estimates made by `estimate` have them."""
        return cast("TimedStep", self.detail.timed)

    @property
    def fitted(self) -> Machine:
        """The machine with the fits of its timings, which priced the ops."""
        return self.detail.fitted

    @property
    def ops(self) -> pd.DataFrame:
        """The priced ops: one row per distinct op with flop, byte, time, interval, source and evidence."""
        return self.detail.ops()

    @property
    def coverage(self) -> Mapping[str, float]:
        """Share of the predicted time by time source, waits for the host included; sums to 1."""
        return self.detail.coverage()

    @property
    def deviations(self) -> tuple[str, ...]:
        """Notes on what was done differently from the request or from the usual."""
        known, up = self.detail.deviations(), self.machine.up_share(self.scope)
        if up == 1:
            return known
        what = f"{self.machine.name} is up {up:.1%} of the time: units/day are multiplied by it, and the cost"
        return (*known, f"{what} of a run is divided by it")

    @property
    def fit(self) -> Fit:
        """Whether the step fits in a device's memory; if not, no device can reach the predicted rate."""
        return self.detail.fit()

    @property
    def step(self) -> Span:
        """Time of one step [s] with its interval."""
        return self.step_time.wall_s

    @property
    def sample_per_s(self) -> Span | None:
        """Samples of its steps per second [1/s]; None where the profile states no batch."""
        batch = self.sizes.get("batch")
        return self.step.per(float(batch)) if batch else None

    @property
    def excludes(self) -> tuple[str, ...]:
        """Terms that are not stated, and work without a row or time; they make units/day an upper bound."""
        unpriced = self.coverage[UNPRICED] > 0 or self.model.unsupported
        return tuple(
            dict.fromkeys((*self.run_time.excludes, *self.model.missing, *((UNPRICED,) if unpriced else ())))
        )

    @property
    def excludes_in_ratio(self) -> set[str]:
        """`excludes`, and the work that a partial profile lacks; the measured times of a step include it."""
        partial = self.basis == "modelled" and any(note.startswith(PARTIAL) for note in self.model.notes)
        return {*self.excludes, *(["work that is not in the profile"] if partial else [])}

    @property
    def basis(self) -> Literal["measured", "modelled"]:
        """Measured only where every op has a measured time."""
        return "measured" if self.coverage["measured"] > 1 - 1e-12 else "modelled"

    @property
    def precision(self) -> str:
        """The requested precision, else the number formats in which the products are priced."""
        if self.job is not None or self.formats.name not in DEFAULTS:
            return self.job.precision if self.job is not None else self.formats.name
        return name_precision(self.formats, self.ops if self.detail.timed is None else self.timed.products())

    @property
    def plot(self) -> Plots:
        """The figures of the report, one at a time: ``estimate.plot.roofline()``."""
        plots: Plots = self._view.figure(self)
        return plots

    def __repr__(self) -> str:
        value, low, high = (format_quantity(end, "time_s") for end in self.step.ends)
        return f"<{self.model.name} on {self.machine.name}: a step takes {value} ({low} … {high})>"


def check_one_device(estimates: Iterable[Estimate], what: str) -> None:
    """Raise where a run uses several devices, for which only times are known."""
    for one in estimates:
        if one.job is not None:
            where, many = f"{one.model.name} on {one.machine.name}", one.job.devices
            uses = "a layout" if many == 1 else f"{many:,} devices"
            only = f"its run uses {uses}, but {what} is for a step on one device without a layout"
            leave = "Leave it out, or --nodes and --layout, or set run.devices_per_run to 1."
            raise FomkitError(where, f"{only}. {leave}")


def estimate(model: ModelProfile, machine: Machine, options: Options) -> Estimate:
    """Estimate one model on one machine."""
    # What is estimated: the sizes, the number formats, and how many devices of a checked machine are counted.
    machine = without_implausible(machine)
    sizes = choose_sizes(model, options.wanted_sizes)
    framework, dtypes = model.traced_with.get("framework", ""), [peak.dtype for peak in machine.device.peaks]
    formats = cached(machine.timings, model.ops, f"formats {options.precision} {framework} {dtypes}",
                     partial(choose_formats, options.precision, framework, machine, model.ops))  # fmt: skip
    scope = choose_scope([machine], options.scope)
    at_once = runs_at_once(model, machine, scope)
    traced, model = model, with_device_update(model, machine)

    # The time of each op, from the fits of the machine's timings.
    fitted = with_fits(machine)
    timed = _timed(model, fitted, sizes, formats, options.interval)
    where = f"{model.name} on {machine.name}"
    if not options.allow_uncovered and (model.unsupported or np.isnan(timed.time_s[0]).any()):
        check_covered(timed.table, model.unsupported, where)
    if not options.allow_uncovered and model.bounded:
        check_bounded(timed.table, model.bounded, where)

    # From ops to a step, to a run, to units a day.
    machine = with_fresh_pages(with_host(machine, model), model, sizes)
    alone = roll_up_step(timed.rows, machine, options.interval, work=f"{model.name}, {sizes}")
    step = eager_step(alone, timed.rows.started, model, machine)
    run = roll_up_run(model, machine, step, sizes.get("batch"), options.last_batch or model.data.last_batch)
    per_day = rate_per_day(model, machine, run, scope, at_once)

    def coverage() -> Mapping[str, float]:
        return shares_with_wait(timed.coverage(), step.device_s.value, step.late_s, machine)

    def deviations() -> tuple[str, ...]:
        return _deviations(found, traced, options)

    detail = Detail(
        fitted, lambda: timed.table, cache(coverage), cache(partial(fit_of, model, machine, sizes, formats)),
        cache(deviations), timed,
    )  # fmt: skip
    found = Estimate(model, machine, sizes, scope, at_once, step, run, per_day, formats, detail)
    return found


def with_step(estimated: Estimate, wall_s: Span, last_batch: LastBatch | None = None) -> Estimate:
    """Recompute an estimate for another time of its step, with all terms in it; its passes are scaled alike."""
    factor = wall_s.value / estimated.step.value
    passes = {name: span.scaled(factor) for name, span in estimated.step_time.passes.items()}
    step = replace(estimated.step_time, wall_s=wall_s, passes=passes, excludes=())
    chosen = last_batch or estimated.model.data.last_batch
    run = roll_up_run(estimated.model, estimated.machine, step, estimated.sizes.get("batch"), chosen)
    per_day = rate_per_day(estimated.model, estimated.machine, run, estimated.scope, estimated.runs_at_once)
    return replace(estimated, step_time=step, run_time=run, unit_per_day=per_day)


Found = TypeVar("Found")
TIMED = 8
"""Number of steps of a model on a machine whose ops are cached; what-ifs evaluate one step again and again."""


def _reused(what: str, model: ModelProfile, machine: Machine, key: Hashable, make: Callable[[], Found]) -> Found:
    """Return what was made before for a model's ops and a machine's timings at this key, else make it.

    A result is stale where the machine has other fits of these timings, or the model other parts of these ops.
    """
    known: dict[Hashable, tuple[object, object, Found]] = cached(machine.timings, model.ops, what, OrderedDict)
    fits, parts, found = known.get(key, (None, None, None))
    if found is None or fits is not machine.fits or parts is not model.parts:
        while len(known) >= TIMED:
            known.pop(next(iter(known)))
        found = make()
        known[key] = (machine.fits, model.parts, found)
    return found


def compiled_ops(model: ModelProfile, machine: Machine, sizes: Mapping[str, int], formats: Formats) -> StepOps:
    """Collect the ops of a step on a machine as built (`step_ops`), once for all sizes."""
    make = partial(step_ops, model, machine, formats, sizes)
    return _reused("compiled ops", model, machine, (str(formats), machine.device), make)


def _timed(
    model: ModelProfile, machine: Machine, sizes: Mapping[str, int], formats: Formats, interval: float
) -> TimedStep:
    """Return the ops of a step with their times; ``machine``: with its fits."""
    of_step = (tuple(sorted(sizes.items())), str(formats), interval)
    # Times of collectives depend on links.
    sends = cached(model.ops, None, "sends", lambda: "ranks" in model.ops and model.ops["ranks"].notna().any())
    links = (machine.links, machine.timed_links) if sends else ()
    of_table = (machine.excluded, machine.timings_key, links)

    def timed() -> TimedStep:
        # What-ifs query many machines that are variants of one: their ops are priced once, on the original.
        device = machine.origin or machine.device
        priced = partial(_priced, model, machine, sizes, formats, interval)
        step, found, costed = _reused("priced ops", model, machine, (*of_step, device, *of_table), priced)
        answers = answers_on(found.rows, found.answers, machine, interval)
        return TimedStep(step, found, answers, machine.device, costed)

    return _reused("timed ops", model, machine, (*of_step, machine.device, machine.origin, *of_table), timed)


def _priced(
    model: ModelProfile, machine: Machine, sizes: Mapping[str, int], formats: Formats, interval: float
) -> tuple[StepOps, Priced, Callable[[], pd.DataFrame]]:
    """Price a step's ops on the machine as built; an error names the row and file of the fault."""
    built = original(machine)
    try:
        cached(model.ops, None, f"work of {model.name}", partial(check_work, model.ops, model.name))
        step = compiled_ops(model, built, sizes, formats)
        arrays = {name: np.array([float(size)]) for name, size in sizes.items()}
        found = price_at(step, built, arrays, interval)
        if any(evaluate(text, sizes, model.name) < TINY for _, text, _ in step.sized_counts):
            raise FomkitError(model.name, "executes an op less than once. Trace the model again.")
    except FomkitError:
        # The table identifies the row and the file of the fault, so its error is raised instead.
        _costed(model.ops, sizes, formats, model.name)
        raise
    return step, found, cache(partial(_costed, model.ops, sizes, formats, model.name))


def _costed(table: pd.DataFrame, sizes: Mapping[str, int], formats: Formats, where: str) -> pd.DataFrame:
    """Resize, restate and cost a table."""
    numeric = resize_ops(table, sizes, where)
    check_table(numeric, "OPS", where)
    return add_costs(restate_ops(numeric, formats), checked=True)


NOTABLE = 0.001
"""Smallest relative increase of a step's time at a smaller batch that is reported."""


def _deviations(estimated: Estimate, traced: ModelProfile, options: Options) -> tuple[str, ...]:
    """Return all notes of an estimate but the one on availability; `traced`: its model, as the profile has it."""
    model, machine, step = estimated.model, estimated.machine, estimated.step_time
    shares, timings = estimated.coverage, machine.timings
    notes = [*model.caveats]
    if machine.host_op_s is not None and step.late_s > NOTABLE * step.device_s.value:
        notes.append(host_waited(machine.host_op_s))
    notes += [*eager_notes(step), *estimated.fit.notes, *machine.caveats, *verdict_on(machine, named=False)]
    if not machine.device.peaks and len(timings) and shares["measured"] < 1:
        notes.append(f"{machine.name} states no peak; rates are fitted to its table")
    notes += run_notes(model, estimated.run_time, options.sizes)
    if shares[UNPRICED] > 0:
        notes.append(f"{shares[UNPRICED]:.0%} of the op executions have no time; all times are lower bounds")
    if options.allow_uncovered and model.unsupported:
        notes.append(f"excluded, no rule: {', '.join(model.unsupported)}")
    if stated := int((~is_measured(timings)).sum()):
        notes.append(
            f"{stated:,} of {machine.name}'s {count_text(len(timings), 'timing')} {agree(stated, 'was/were')} "
            "stated, not measured; times of similar ops depend on them"
        )
    if len(timings) and shares["roofline"] >= 1 - 1e-9:
        wanted, known = (set(table["dtype"].tolist()) for table in (estimated.ops, timings))
        if wanted.isdisjoint(known):
            notes.append(f"no row of the table of {machine.name} is used: it has no {', '.join(sorted(wanted))}")
    return (
        *notes,
        *wide_notes(estimated.step, lambda: estimated.ops, machine),
        *_smaller_batch_notes(estimated, traced),
        *processor_notes(traced, model, machine),
    )


class Slower(NamedTuple):
    """A smaller batch whose products take longer, and whether timings of nearby sizes show it."""

    batch: int
    shown: bool


def _batched_products(ops: pd.DataFrame) -> list[list[int]]:
    """Return the rows of products whose sizes depend on the batch, grouped by equal sizes."""
    products = np.flatnonzero(ops["kind"].eq("gemm")).tolist()
    present = [name for name in (*SIDES, "trans_a", "trans_b") if name in ops.columns]
    cells = [ops[name].to_numpy(object)[products].tolist() for name in present]
    found: dict[tuple[object, ...], list[int]] = {}
    for place, row in zip(products, zip(*cells, strict=True), strict=True):
        if any(isinstance(cell, str) and "batch" in names_in(cell) for cell in row[: len(SIDES)]):
            found.setdefault(row, []).append(place)
    return list(found.values())


def _sizes_at(ops: pd.DataFrame, at: NDArray[np.intp], sizes: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Evaluate the sizes of some products at several batches (products × batches)."""
    found = {}
    for name in SIDES:
        cells = ops[name].to_numpy(object)[at].tolist()
        values = [evaluate_many(cell, sizes, where) if isinstance(cell, str) else float(cell) for cell in cells]
        found[name] = np.array([np.broadcast_to(value, sizes["batch"].shape) for value in values])
    return found


def _numel(sides: Mapping[str, Array]) -> Array:
    b, m, n, k = (sides[name] for name in SIDES)
    return np.asarray(b * (m * k + k * n + m * n), np.float64)


def slower_products(
    model: ModelProfile, ops: pd.DataFrame, machine: Machine, sizes: Mapping[str, int], level: float
) -> Slower | None:
    """Find the smaller batch whose products take longer than this batch's by the largest time, if any.

    The batches tried are the next two smaller powers of two, this batch less one, and 1.

    `ops`: its COSTED ops at these sizes, in its table's order; `machine`: with fits; `level`: of the intervals.
    """
    batch = int(sizes.get("batch", 1))
    below = (1 << (batch - 1).bit_length()) // 2
    smaller = dict.fromkeys((below, below // 2, batch - 1, 1))
    batches = [batch, *(size for size in smaller if 0 < size < batch)]
    groups = _batched_products(model.ops) if len(batches) > 1 and machine.fits else []
    if not groups:
        return None
    at, counts = np.array([places[0] for places in groups]), ops["count"].to_numpy(np.float64)
    times = np.array([counts[places].sum() for places in groups])
    named = {name: np.full(len(batches), float(size)) for name, size in sizes.items()} | {
        "batch": np.array(batches)
    }
    sides, built = _sizes_at(model.ops, at, named, model.name), prepared(machine.as_built())
    here = {name: side[:, :1] for name, side in sides.items()}
    table = ops.iloc[at].reset_index(drop=True)
    flop = table[["flop"]].to_numpy(np.float64) * np.prod([sides[name] / here[name] for name in SIDES], 0)
    byte = table[["byte"]].to_numpy(np.float64) * _numel(sides) / _numel(here)
    found = interpolate.estimate(
        repeated(Columns(table), len(batches), **sides, flop=flop, byte=byte), built, level
    )
    spent, shown = np.full(flop.size, np.nan), np.zeros(flop.size, bool)
    spent[found.index], shown[found.index] = found.time_s, found.source.is_in("interpolated")
    spent, shown = spent.reshape(flop.shape).T * times, shown.reshape(flop.shape).T
    longer = np.nan_to_num(spent[1:] - spent[0])
    worst = int(longer.sum(1).argmax())
    if longer[worst].sum() <= 0:
        return None
    risen = np.maximum(longer[worst], 0.0)
    return Slower(batches[1 + worst], bool(risen[shown[1 + worst]].sum() > risen.sum() / 2))


def _smaller_batch_notes(estimated: Estimate, traced: ModelProfile) -> tuple[str, ...]:
    """Return a note on a smaller batch that takes longer, and the evidence for it; see `slower_products`."""
    model, machine, sizes, level = estimated.model, estimated.fitted, estimated.sizes, estimated.step.level
    # What-ifs evaluate one model again and again, on variants of a machine that share the fits of the original.
    device = machine.origin or machine.device
    name = (
        f"slower {sorted(sizes.items())} {estimated.formats} {model.optimizer} {level} {machine.excluded} {device}"
    )

    def products() -> Slower | None:
        return slower_products(model, estimated.ops, machine, sizes, level)

    found = cached(machine.timings, traced.ops, name, products)
    if found is None:
        return ()
    there = _timed(model, machine, {**sizes, "batch": found.batch}, estimated.formats, level)
    more = roll_up_step(there.rows, machine, level).wall_s.value / estimated.step.value - 1
    if more <= NOTABLE:
        return ()
    why = "shown by timings of similar products" if found.shown else "predicted, no similar timing shows it"
    return (f"a step of batch {found.batch:,} takes {more:.1%} longer than one of {sizes['batch']:,}: {why}",)
