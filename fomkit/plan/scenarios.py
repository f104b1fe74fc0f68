"""Many variants of one study as arrays: a model on a machine whose sizes, rates and costs change (`scenarios`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import HOST, Machine, Scope, nearest_parameter, peak_name
from fomkit.core.model import OF_A_RUN, ModelProfile
from fomkit.ops.columns import alike
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.ops.precision import Formats, choose_formats
from fomkit.ops.tables import SOURCES
from fomkit.plan.coverage import OF_TABLE, Uses, check_bounded, check_covered, check_work, host_source, uses_of
from fomkit.plan.estimate import compiled_ops, estimate
from fomkit.plan.memory_of import with_device_update, with_fresh_pages
from fomkit.plan.options import Options, change_machine, choose_scope, choose_sizes, terms, with_host
from fomkit.plan.run import roll_up_run, runs_at_once, runs_per_day
from fomkit.plan.shapes import StepOps, Timed, times_at
from fomkit.plan.step import DeviceTimes, Ops, Started, StepTime, device_times, same_ops, terms_beside
from fomkit.prediction.cascade import prepared
from fomkit.prediction.donors import ROOFLINE
from fomkit.prediction.rates import floors, rates, same_rates, starts_within, value_of

Array = NDArray[np.float64]

FORWARD = "forward"
CELLS, SHAPES = 100_000, 2_000
"""Most ops times variants, and variants, that are computed at once; they bound the memory, and fit a cache."""
HELD_BYTE = 2**24
"""More than the size of any array of a block [byte]. The largest piece that was ever mapped and freed determines
how much freed memory glibc keeps for the next block; the rest is fetched from the system page by page again."""

_SPANS = ("step_s", "sample_per_s", "unit_per_day")
RESULTS = tuple(f"{name}{end}" for name in _SPANS for end in ("", "_low", "_high"))
_BASIS = pd.CategoricalDtype(["measured", "modelled"])


@dataclass(frozen=True)
class Study:
    """The data that all scenarios share (`prepare_study`)."""

    model: ModelProfile
    given: Machine
    machine: Machine
    options: Options
    step: StepOps
    scope: Scope
    at_once: int
    uses: Uses
    formats: Formats
    pairs: Mapping[tuple[str, str], NDArray[np.intp]]
    cache: dict[tuple[tuple[str, bytes], ...], _Shapes] = field(default_factory=dict, repr=False)
    """The last block of shapes as built: a search, or a sweep, evaluates many machines at the same shapes."""


def _split_columns(model: ModelProfile, machine: Machine, table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Split the columns into sizes of the model and other parameters, and check all values."""
    sizes = [name for name in table.columns if name in model.sizes or name == "batch"]
    changes = [name for name in table.columns if name not in sizes]
    step_terms = terms(machine)
    for name in table.columns if len(table) else ():
        values = table[name].to_numpy(np.float64)
        if not np.isfinite(values).all():
            raise FomkitError("scenarios", f"{name} has missing or infinite values. Correct them.")
        if name in step_terms:
            if not values.min() >= 0:
                raise FomkitError("scenarios", f"{name} is {values.min():g}. Expected 0 or more.")
            continue
        if name in changes:
            machine.check_parameter(name, float(values.min()))
            continue
        wrong = values[(values < 1) | (values != np.floor(values))]
        if len(wrong):
            raise FomkitError("scenarios", f"{name} is {wrong[0]:g}. Expected a whole number of 1 or more.")
        for value in (values.min(), values.max()):
            choose_sizes(model, {name: int(value)})
    return sizes, changes


class _Shapes(NamedTuple):
    """The ops (n) of some shapes (u) on the machine as built, and how their times change with its rates.

    `seconds` (3, n, u): value, low and high of all executions [s], 0 where unpriced.
    `sources` (n, u); `ops`, `kernels` (g, u): what the host starts in each unit (`Started`); `measured` (u,): true
      where every op was timed.
    `same` (n, u): index of the distinct op of a row.
    `launched` (n, u): share of launches in a time that lists them separately.
    `compute`, `memory` (n, u): flop and byte for each second of the floor, times the share of the time without
      launches; 0 where the floor is unknown.
    `kept` (n, u): that share where the floor is unknown, in which case it does not change; else 0.
    """

    seconds: Array
    sources: NDArray[np.int8]
    ops: Array
    kernels: Array
    measured: NDArray[np.bool_]
    same: NDArray[np.intp]
    launched: Array
    compute: Array
    memory: Array
    kept: Array


def _shapes_of(study: Study, timed: Timed) -> _Shapes:
    """Derive the parts of timed ops that scale with the rates of a machine; see `_Shapes`."""
    rows, launch = study.step.rows, study.machine.device.launch_s
    arithmetic, floor_s = rows["kind"].isin(PRODUCT_KINDS).to_numpy(bool)[:, None], np.empty(timed.flop.shape)
    for pair, at in study.pairs.items():
        built = _rates(study.machine, pair)
        floor_s[at] = floors(arithmetic[at], timed.flop[at], timed.byte[at], *built)[0]
    starts_s = timed.launches * (launch.value if launch is not None else 0.0)
    named = (timed.sources == SOURCES[ROOFLINE]) & (starts_s > 0) & (timed.times[0] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        launched = np.where(named, starts_within(timed.times[0], starts_s) / timed.times[0], 0.0)
        compute, memory = timed.flop / floor_s, timed.byte / floor_s
    compute = np.where(np.isnan(compute) & ~arithmetic, 0.0, compute)
    known, rest = np.isfinite(compute) & np.isfinite(memory), 1 - launched
    compute, memory = (np.where(known, one * rest, 0.0) for one in (compute, memory))
    measured = ((timed.sources == SOURCES["measured"]) | (timed.executions == 0)).all(0)
    seconds = timed.times * timed.executions
    seconds[np.isnan(seconds)] = 0.0
    started = study.step.started(timed.launches, timed.executions, seconds[0])
    same = same_ops(*study.step.kinds_and_passes, timed.sources, timed.times[0])
    kept = np.where(known, 0.0, rest)
    return _Shapes(
        seconds, timed.sources, started.ops, started.kernels, measured, same, launched, compute, memory, kept
    )


def _rates(machine: Machine, pair: tuple[str, str]) -> tuple[float, float]:
    known = rates(machine, *pair)
    return value_of(known.flop_per_s), value_of(known.byte_per_s)


def _relative_times(study: Study, here: _Shapes, changes: Mapping[str, Array]) -> Array:
    """Return the time of each op (n, s) on the changed machine of each scenario, relative to that as built.

    It equals `fomkit.prediction.donors.time_ratio`; all scenarios of a shape share the floors but for their rates.
    """
    launch = study.machine.device.launch_s
    share = here.launched
    if "launch_s" in changes and launch is not None and launch.value:
        share = share * (changes["launch_s"] / launch.value)
    share = share + here.kept
    for pair, at in study.pairs.items():
        peak, rate = (
            1.0 / changes.get(name, built)
            for name, built in zip((peak_name(*pair), "byte_per_s"), _rates(study.machine, pair), strict=True)
        )
        # An unknown rate is NaN and not needed by any floor here: fmax ignores it. With both unknown the time
        # stays.
        floors = np.fmax(here.compute[at] * peak, here.memory[at] * rate)
        share[at] += np.where(here.kept[at] > 0, 0.0, floors)
    return share


def _span_of_variants(ends: Array, level: float) -> Span:
    """Return value, low and high (3, s) as one span of all scenarios."""
    value, low, high = (cast(float, end) for end in ends)
    return Span(value, low, high, level)


def ends_of(spans: Sequence[Span | None]) -> list[float]:
    """Return value, low and high of each span, in the order of `RESULTS`; NaN where it is unknown."""
    return [end for span in spans for end in ((np.nan,) * 3 if span is None else span.ends)]


def _figures_of(
    study: Study, case: _Case, device_s: Span, forward_s: Span | None, started: Started, batch: Array | None
) -> Array:
    """Roll the scenarios (s) of one model on one machine up to `RESULTS` and waits that are assumed (10, s)."""
    model, machine = case.model, case.machine
    beside = terms_beside(started, machine, device_s)
    passes = {} if forward_s is None else {FORWARD: forward_s}
    wall_s = beside.wall(device_s)
    step = StepTime(passes, device_s, *beside, wall_s, "", ())
    last_batch = study.options.last_batch or model.data.last_batch
    samples = None if batch is None else cast(int, batch)
    run_s = roll_up_run(model, machine, step, samples, last_batch).run_s
    rate = None if samples is None else wall_s.per(samples)
    per_day = None
    if run_s is not None:
        per_day = runs_per_day(model, machine, run_s, study.scope, runs_at_once(model, machine, study.scope))
    # Only a measured time of the host lets a step that waits for it count as measured.
    unsure = host_source(machine) != "measured"
    late = beside.paced_s.value - device_s.value if unsure and beside.paced_s is not None else 0.0
    many, ends = started.ops.shape[1:], ends_of((wall_s, rate, per_day))
    return np.stack([np.broadcast_to(end, many) for end in (*ends, late)])


def _device_times(study: Study, here: _Shapes, which: NDArray[np.bool_]) -> DeviceTimes:
    """Add up a selection of the ops of each scenario (s)."""
    kinds, seconds, sources, same = study.step.kinds_and_passes[0], here.seconds, here.sources, here.same
    if not which.all():
        kinds, seconds = tuple(compress(kinds, which)), seconds[:, which]
        sources, same = sources[which], same[which]
    ops = Ops(kinds, seconds, sources, OF_TABLE[sources], same)
    return device_times(ops, study.uses, study.options.interval)


def _roll_up(
    study: Study, here: _Shapes, batches: Array | None, cases: Iterable[_Case], costs: Mapping[str, Array]
) -> pd.DataFrame:
    """Roll up all scenarios; `costs`: launch cost and host's time for an op, where scenarios change them."""
    rows, level = study.step.rows, study.options.interval
    devices, forwards = _device_times(study, here, np.ones(len(rows), bool)), None
    is_forward = study.step.passes == FORWARD
    if study.model.data.validation_samples is not None and is_forward.any():
        forwards = _device_times(study, here, is_forward).ends
    found, late = np.empty((len(RESULTS), here.ops.shape[1])), np.empty(here.ops.shape[1])
    device_s = study.step.unit_shares @ here.seconds[0]
    # Host time is starts times their cost: with a cost of 1 s and scaled starts, one machine serves all.
    has_launch = study.machine.device.launch_s is not None or "launch_s" in costs
    ops, kernels = (
        here.ops * costs.get(HOST, 1.0),
        here.kernels * costs.get("launch_s" if has_launch else HOST, 1.0),
    )
    for case in cases:
        at = case.scenarios
        case = case._replace(machine=change_machine(case.machine, dict.fromkeys(costs, 1.0)))
        by_launch = case.machine.host_op_s is None and "launch_s" in costs
        own = (here.ops * costs["launch_s"] if by_launch else ops)[:, at]
        started = Started(study.step.units, own, kernels[:, at], device_s[:, at])
        forward_s = None if forwards is None else _span_of_variants(forwards[:, at], level)
        batch = None if batches is None else batches[at]
        device = _span_of_variants(devices.ends[:, at], level)
        figures = _figures_of(study, case, device, forward_s, started, batch)
        found[:, at], late[at] = figures[:-1], figures[-1]
    modelled = ~here.measured | (late > 0)
    basis = pd.Categorical.from_codes(modelled.astype(np.int8), dtype=_BASIS)
    return pd.DataFrame({**dict(zip(RESULTS, found, strict=True)), "shared": devices.shared, "basis": basis})


def _by_scenario(shapes: _Shapes, shape: NDArray[np.intp]) -> _Shapes:
    if len(shape) == shapes.ops.shape[1] and (shape == np.arange(len(shape))).all():
        return shapes
    return _Shapes._make(column.take(shape, -1) for column in shapes)


def prepare_study(model: ModelProfile, machine: Machine, options: Options) -> Study:
    """Compute once what all scenarios of a model on a machine with its fits share; see `scenarios`."""
    check_work(model.ops, model.name)
    given, model = with_host(machine, model), with_device_update(model, machine)
    machine = prepared(given)
    formats = choose_formats(options.precision, model.traced_with.get("framework", ""), machine, model.ops)
    scope = choose_scope([machine], options.scope)
    step = compiled_ops(model, given, choose_sizes(model, {}), formats)
    at_once = runs_at_once(model, machine, scope)
    pairs = same_rates(step.rows)
    return Study(model, given, machine, options, step, scope, at_once, uses_of(machine), formats, pairs)


def _timed_shapes(study: Study, sizes: Mapping[str, Array]) -> _Shapes:
    """Time all ops on the machine as built, at each shape of a block; raise where work has no time."""
    key = tuple((name, values.tobytes()) for name, values in sizes.items())
    if key not in study.cache:
        timed = times_at(study.step, study.machine, sizes, study.options.interval)
        _check_priced(study, timed)
        study.cache.clear()
        study.cache[key] = _shapes_of(study, timed)
    return study.cache[key]


def blocks_of(study: Study, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Estimate many scenarios in blocks; see `scenarios`.

    Yields a DataFrame: results of some scenarios, by position in ``table``; equal shapes are in one block.
    """
    size_names, changes = _split_columns(study.model, study.machine, table)
    if study.machine.origin is not None:  # its times are already transferred from another device
        yield from _one_by_one(study, table, size_names, changes)
        return
    np.empty(HELD_BYTE, np.uint8)  # freed at once; see HELD_BYTE
    base = choose_sizes(study.model, study.options.wanted_sizes)
    shapes, shape_of = np.empty((1, 0)), np.zeros(len(table), np.intp)
    if size_names:
        columns = table[size_names].to_numpy(np.float64)
        ones, shape_of = alike(list(columns.T))
        order = np.lexsort(columns[ones].T[::-1])  # sorted, so that equal sets of shapes make equal blocks
        shapes, shape_of = columns[ones[order]], np.argsort(order)[shape_of]
    order = np.argsort(shape_of, kind="stable")
    most = min(max(1, CELLS // max(len(study.step.rows), 1)), SHAPES)
    for first in range(0, len(shapes), most):
        block = shapes[first : first + most]
        sizes = {name: np.full(len(block), float(value)) for name, value in base.items()}
        sizes |= {name: block[:, column] for column, name in enumerate(size_names)}
        timed = _timed_shapes(study, sizes)
        own = order[np.searchsorted(shape_of[order], first) : np.searchsorted(shape_of[order], first + len(block))]
        for start in range(0, len(own), most):
            chosen = own[start : start + most]
            yield _block(study, timed, sizes, table[changes].iloc[chosen], shape_of[chosen] - first).set_axis(
                chosen
            )


def _one_by_one(
    study: Study, table: pd.DataFrame, size_names: list[str], changes: list[str]
) -> Iterator[pd.DataFrame]:
    for place, row in enumerate(table.to_dict("records")):
        machine = change_machine(study.given, {name: row[name] for name in changes if name not in OF_A_RUN})
        sizes = {**study.options.wanted_sizes, **{name: int(row[name]) for name in size_names}}
        model = study.model.with_run({name: row[name] for name in changes if name in OF_A_RUN})
        one = estimate(model, machine, replace(study.options, batch=None, sizes=sizes))
        batch = one.sizes.get("batch")
        ends = ends_of((one.step, None if batch is None else one.step.per(batch), one.unit_per_day))
        yield pd.DataFrame([ends], [place], list(RESULTS)).assign(shared=one.step.shared, basis=one.basis)


def join_results(blocks: Iterable[pd.DataFrame], table: pd.DataFrame) -> pd.DataFrame:
    """Join the results of all blocks to their table, in its order; see `scenarios`."""
    found = list(blocks)
    if not found:
        return table.assign(**dict.fromkeys(RESULTS, np.nan), shared=1.0, basis="modelled")
    whole = found[0] if len(found) == 1 else pd.concat(found)
    return pd.concat([table, whole.sort_index().set_axis(table.index)], axis=1)


def _block(
    study: Study, shapes: _Shapes, sizes: Mapping[str, Array], changes: pd.DataFrame, shape: NDArray[np.intp]
) -> pd.DataFrame:
    """Estimate scenarios of one block of shapes; `shape`: the index of each scenario's shape."""
    here = _by_scenario(shapes, shape)
    values = {str(name): changes[name].to_numpy(np.float64) for name in changes.columns}
    step_terms = terms(study.machine) - {HOST}
    costs = {name: values[name] for name in ("launch_s", HOST) if name in values}
    rates_of = {name: column for name, column in values.items() if name not in {*step_terms, HOST}}
    if rates_of:
        seconds = here.seconds * _relative_times(study, here, rates_of)
        here = here._replace(seconds=seconds, measured=np.zeros_like(here.measured))
    batches = sizes["batch"][shape] if "batch" in sizes else None
    cases = _cases(study, sizes, shape, {name: column for name, column in values.items() if name in step_terms})
    return _roll_up(study, here, batches, cases, costs)


class _Case(NamedTuple):
    """A model and a machine that some scenarios share: equal in all but sizes, rates and launch cost."""

    model: ModelProfile
    machine: Machine
    scenarios: NDArray[np.intp]


def _cases(
    study: Study, sizes: Mapping[str, Array], shape: NDArray[np.intp], values: Mapping[str, Array]
) -> Iterator[_Case]:
    """Yield each model and machine that differ in `terms`, or in the cost of fresh pages at their sizes."""
    pages = study.machine.device.fresh_byte_per_s is not None
    keys = [*values.values(), *([shape.astype(np.float64)] if pages else [])]
    if not keys:
        yield _Case(study.model, study.machine, np.arange(len(shape)))
        return
    rows, case_of = np.unique(np.stack(keys, 1), axis=0, return_inverse=True)
    for number, row in enumerate(rows.tolist()):
        wanted = dict(zip(values, row, strict=False))
        model = study.model.with_run(wanted)
        machine = change_machine(
            study.machine, {name: value for name, value in wanted.items() if name not in OF_A_RUN}
        )
        if pages:
            of_shape = {name: int(size[int(row[-1])]) for name, size in sizes.items()}
            machine = with_fresh_pages(machine, study.model, of_shape)
        yield _Case(model, machine, np.flatnonzero(case_of.ravel() == number))


def _check_priced(study: Study, timed: Timed) -> None:
    """Raise where a shape executes nothing, or has work without a time."""
    executions, lacking = timed.executions.sum(0), np.isnan(timed.times[0]).any(0)
    if not executions.all():
        idle = timed.executions[:, int(executions.argmin())]
        check_work(study.step.rows.assign(count=idle), study.model.name)
    unsure = lacking.any() or study.model.unsupported or study.model.bounded
    if study.options.allow_uncovered or not unsure:
        return
    at = int(lacking.argmax())
    priced = study.step.rows.assign(time_s=timed.times[0, :, at], count=timed.executions[:, at])
    where = f"{study.model.name} on {study.machine.name}"
    check_covered(priced, study.model.unsupported, where)
    if study.model.bounded:
        check_bounded(priced, study.model.bounded, where)


def columns_of(model: ModelProfile, machine: Machine) -> frozenset[str]:
    """Return the allowed columns of a table of scenarios: sizes of the model, parameters of machine and run."""
    return frozenset({*model.sizes, "batch", *machine.parameters, *terms(machine)})


def scenarios(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """Estimate one model on one machine in many scenarios.

    The numbers equal those of `fomkit.plan.estimate` with `fomkit.plan.options.change_machine`. Scenarios of the
    same sizes share the utilisation of every op; a changed machine keeps it, and the time follows the roofline.

    `table`: columns are those of `columns_of`, in SI units; other values stay as in the profiles and options.
    Returns a DataFrame: the table with step_s [s], sample_per_s [1/s] and unit_per_day [1/day], each with _low and
    _high, NaN where the profile does not state them; ``shared``: the share of the variance of their errors that is
    common to other work on the machine; ``basis``: measured where every op was timed and no machine changed, else
    modelled; and ``why``: the reason why a scenario has no figures, which are then NaN.
    """
    known = columns_of(study.model, study.given)
    if unknown := [str(name) for name in table.columns if name not in known]:
        raise FomkitError(unknown[0], f"is not a column of a scenario. {nearest_parameter(unknown[0], known)}")
    return _where_possible(study, table)


def _where_possible(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """Estimate all scenarios; halve the table until only those that fail are left without figures."""
    try:
        return join_results(blocks_of(study, table), table).assign(why="")
    except FomkitError as error:
        if len(table) == 1:
            return join_results((), table).assign(basis="", why=str(error))
        half = len(table) // 2  # at least one scenario fails; the others may not
        return pd.concat([_where_possible(study, part) for part in (table.iloc[:half], table.iloc[half:])])
