"""Many variants of one study as arrays: a model on a machine whose sizes, rates and costs change (`scenarios`).

`blocks_of` sorts the rows of a table by their sizes, and times the ops of each block of sizes once, on the machine
as built. `_block` scales these times to the device of each row, adds them up, and rolls the rows up to runs. Last
among the axes of arrays are the shapes (u) of a block or its scenarios (s), before them the ops (n).
"""

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
from fomkit.core.machine import HOST, Machine, Scope, followers, nearest_parameter, peak_name
from fomkit.core.model import OF_A_RUN, ModelProfile
from fomkit.ops.columns import alike
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.ops.precision import Formats, choose_formats
from fomkit.ops.tables import SOURCES
from fomkit.plan.coverage import OF_TABLE, Uses, check_bounded, check_covered, check_work, host_source, uses_of
from fomkit.plan.estimate import compiled_ops, estimate
from fomkit.plan.memory_of import with_device_update, with_fresh_pages
from fomkit.plan.options import Options, change_machine, check_host, choose_scope, choose_sizes, terms, with_host
from fomkit.plan.run import roll_up_run, runs_at_once, runs_per_day
from fomkit.plan.shapes import StepOps, TimedOps, times_at
from fomkit.plan.step import DeviceTimes, Ops, Started, StepTime, device_times, same_ops, terms_beside
from fomkit.prediction.cascade import ROOFLINE, prepared
from fomkit.prediction.rates import floors, rates, same_rates, starts_within, value_of

Array = NDArray[np.float64]
Columns = Mapping[str, Array]
"""Sizes of some shapes (u), or parameters of some scenarios (s), by name."""

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
    cache: dict[tuple[tuple[str, bytes], ...], _OpTimes] = field(default_factory=dict, repr=False)
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
        least = float(values.min())
        if name in step_terms:
            if least < 0:
                raise FomkitError("scenarios", f"{name} is {least:g}. Expected 0 or more.")
        elif name in changes:
            machine.check_parameter(name, least)
        else:
            wrong = values[(values < 1) | (values != np.floor(values))]
            if len(wrong):
                raise FomkitError("scenarios", f"{name} is {wrong[0]:g}. Expected a whole number of 1 or more.")
            for value in (least, values.max()):
                choose_sizes(model, {name: int(value)})
    return sizes, changes


class _OpTimes(NamedTuple):
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


def _op_times(study: Study, timed: TimedOps) -> _OpTimes:
    """Derive the parts of timed ops that scale with the rates of a machine; see `_OpTimes`."""
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
    return _OpTimes(
        seconds, timed.sources, started.ops, started.kernels, measured, same, launched, compute, memory, kept
    )


def _rates(machine: Machine, pair: tuple[str, str]) -> tuple[float, float]:
    known = rates(machine, *pair)
    return value_of(known.flop_per_s), value_of(known.byte_per_s)


def _relative_times(study: Study, ops: _OpTimes, changes: Columns) -> Array:
    """Return the time of each op (n, s) on the changed machine of each scenario, relative to that as built.

    It equals `prediction.cascade.time_ratio`; all scenarios of a shape share the floors but for their rates.
    `changes`: rates and launch cost (s,), by name.
    """
    launch, follows = study.machine.device.launch_s, followers(study.machine.device)
    share = ops.launched
    if "launch_s" in changes and launch is not None and launch.value:
        share = share * (changes["launch_s"] / launch.value)
    share = share + ops.kept
    for pair, at in study.pairs.items():
        (built_peak, built_rate), name = _rates(study.machine, pair), peak_name(*pair)
        followed = changes.get(follows.get(name, ""), built_peak)
        peak, rate = 1.0 / changes.get(name, followed), 1.0 / changes.get("byte_per_s", built_rate)
        # An unknown rate is NaN and no floor here needs it: fmax ignores it. With both unknown the time stays.
        floors = np.fmax(ops.compute[at] * peak, ops.memory[at] * rate)
        share[at] += np.where(ops.kept[at] > 0, 0.0, floors)
    return share


def _span_of_variants(ends: Array, level: float) -> Span:
    """Return value, low and high (3, s) as one span of all scenarios."""
    value, low, high = (cast(float, end) for end in ends)
    return Span(value, low, high, level)


def ends_of(spans: Sequence[Span | None]) -> list[float]:
    """Return value, low and high of each span, in the order of `RESULTS`; NaN where it is unknown."""
    return [end for span in spans for end in ((np.nan,) * 3 if span is None else span.ends)]


class _Case(NamedTuple):
    """A model and a machine that some scenarios share: equal in all but sizes, rates and costs of starts."""

    model: ModelProfile
    machine: Machine
    scenarios: NDArray[np.intp]


def _cases(
    study: Study, machine: Machine, sizes: Columns, shape: NDArray[np.intp], values: Columns
) -> Iterator[_Case]:
    """Yield each model and machine that differ in `terms`, or in the cost of fresh pages at their sizes."""
    pages = machine.device.fresh_byte_per_s is not None
    keys = [*values.values(), *([shape.astype(np.float64)] if pages else [])]
    if not keys:
        yield _Case(study.model, machine, np.arange(len(shape)))
        return
    rows, case_of = np.unique(np.stack(keys, 1), axis=0, return_inverse=True)
    for number, row in enumerate(rows.tolist()):
        wanted = dict(zip(values, row, strict=False))
        changed = change_machine(machine, {name: wanted[name] for name in wanted if name not in OF_A_RUN})
        if pages:
            of_shape = {name: int(size[int(row[-1])]) for name, size in sizes.items()}
            changed = with_fresh_pages(changed, study.model, of_shape)
        yield _Case(study.model.with_run(wanted), changed, np.flatnonzero(case_of.ravel() == number))


class _Steps(NamedTuple):
    """The steps of some scenarios (s), of which only the terms beside the device are still missing.

    `device_s`, `forward_s` (3, s): value, low and high of all ops, and of the forward pass if validation needs it.
    `started`: what the host starts; `batch` (s,): None where the profile states none.
    """

    device_s: Array
    forward_s: Array | None
    started: Started
    batch: Array | None

    def of(self, at: NDArray[np.intp]) -> _Steps:
        """Return the steps of some of the scenarios."""
        forward_s, batch = (one if one is None else one[..., at] for one in (self.forward_s, self.batch))
        started = Started(self.started.units, *(column[:, at] for column in self.started[1:]))
        return _Steps(self.device_s[:, at], forward_s, started, batch)


def _figures_of(study: Study, case: _Case, steps: _Steps) -> Array:
    """Roll the scenarios (s) of one case up to `RESULTS` and waits that are assumed (10, s)."""
    model, machine, level = case.model, case.machine, study.options.interval
    device_s = _span_of_variants(steps.device_s, level)
    passes = {} if steps.forward_s is None else {FORWARD: _span_of_variants(steps.forward_s, level)}
    beside = terms_beside(steps.started, machine, device_s)
    wall_s = beside.wall(device_s)
    step = StepTime(passes, device_s, *beside, wall_s, "", ())
    batch = cast("int | None", steps.batch)
    run_s = roll_up_run(model, machine, step, batch, study.options.last_batch or model.data.last_batch).run_s
    per_day = None
    if run_s is not None:
        per_day = runs_per_day(model, machine, run_s, study.scope, runs_at_once(model, machine, study.scope))
    # Only a measured time of the host lets a step that waits for it count as measured.
    unsure = host_source(machine) != "measured"
    late = beside.paced_s.value - device_s.value if unsure and beside.paced_s is not None else 0.0
    ends = ends_of((wall_s, None if batch is None else wall_s.per(batch), per_day))
    return np.stack([np.broadcast_to(end, steps.device_s.shape[1:]) for end in (*ends, late)])


def _device_times(study: Study, ops: _OpTimes, which: NDArray[np.bool_]) -> DeviceTimes:
    """Add up a selection of the ops of each scenario (s)."""
    kinds, seconds, sources, same = study.step.kinds_and_passes[0], ops.seconds, ops.sources, ops.same
    if not which.all():
        kinds, seconds = tuple(compress(kinds, which)), seconds[:, which]
        sources, same = sources[which], same[which]
    chosen = Ops(kinds, seconds, sources, OF_TABLE[sources], same)
    return device_times(chosen, study.uses, study.options.interval)


def _started(study: Study, ops: _OpTimes, costs: Columns) -> tuple[Started, Machine]:
    """Return what the host starts in each scenario, and a machine with the cost of a start that serves all.

    Host time is starts times their cost: a cost that the scenarios change is 1 s there, and multiplies the starts.
    `costs` (s,): launch cost and host's time for an op, where scenarios change them [s].
    """
    machine = change_machine(study.machine, dict.fromkeys(costs, 1.0))
    of_op = "launch_s" if machine.host_op_s is None else HOST
    of_kernel = HOST if machine.device.launch_s is None else "launch_s"
    first, more = ops.ops * costs.get(of_op, 1.0), ops.kernels * costs.get(of_kernel, 1.0)
    return Started(study.step.units, first, more, study.step.unit_shares @ ops.seconds[0]), machine


def _block(
    study: Study, built: _OpTimes, sizes: Columns, changes: pd.DataFrame, shape: NDArray[np.intp]
) -> pd.DataFrame:
    """Estimate scenarios (s) of one block of shapes; `shape` (s,): the index of each scenario's shape."""
    values = {str(name): changes[name].to_numpy(np.float64) for name in changes.columns}
    of_step = terms(study.machine)  # parameters that change no op's time
    # The ops of each scenario, on its device.
    ops = built
    if len(shape) != built.ops.shape[1] or (shape != np.arange(len(shape))).any():
        ops = _OpTimes._make(column.take(shape, -1) for column in built)
    if of_device := {name: column for name, column in values.items() if name not in of_step}:
        seconds = ops.seconds * _relative_times(study, ops, of_device)
        ops = ops._replace(seconds=seconds, measured=np.zeros_like(ops.measured))
    # Their sum, and what the host starts.
    devices, forward_s = _device_times(study, ops, np.ones(len(ops.same), bool)), None
    is_forward = study.step.passes == FORWARD
    if study.model.data.validation_samples is not None and is_forward.any():
        forward_s = _device_times(study, ops, is_forward).ends
    started, machine = _started(study, ops, {name: values[name] for name in ("launch_s", HOST) if name in values})
    steps = _Steps(devices.ends, forward_s, started, sizes["batch"][shape] if "batch" in sizes else None)
    # Steps and runs, case by case.
    found = np.empty((len(RESULTS) + 1, len(shape)))
    of_cases = {name: column for name, column in values.items() if name in of_step and name != HOST}
    for case in _cases(study, machine, sizes, shape, of_cases):
        found[:, case.scenarios] = _figures_of(study, case, steps.of(case.scenarios))
    modelled = ~ops.measured | (found[-1] > 0)
    basis = pd.Categorical.from_codes(modelled.astype(np.int8), dtype=_BASIS)
    return pd.DataFrame({**dict(zip(RESULTS, found[:-1], strict=True)), "shared": devices.shared, "basis": basis})


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


def _op_times_at(study: Study, sizes: Columns) -> _OpTimes:
    """Time all ops on the machine as built, at each shape of a block; raise where work has no time."""
    key = tuple((name, values.tobytes()) for name, values in sizes.items())
    if key not in study.cache:
        timed = times_at(study.step, study.machine, sizes, study.options.interval)
        _check_priced(study, timed)
        study.cache.clear()
        study.cache[key] = _op_times(study, timed)
    return study.cache[key]


def _distinct_sizes(sizes: pd.DataFrame) -> tuple[Array, NDArray[np.intp]]:
    """Return the different rows of a table of sizes, and the index of each row's.

    They are sorted, so that equal sets of shapes make equal blocks (`Study.cache`).
    """
    if not len(sizes.columns):
        return np.empty((1, 0)), np.zeros(len(sizes), np.intp)
    rows = sizes.to_numpy(np.float64)
    ones, shape_of = alike(list(rows.T))
    order = np.lexsort(rows[ones].T[::-1])
    return rows[ones[order]], np.argsort(order)[shape_of]


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
    shapes, shape_of = _distinct_sizes(table[size_names])
    order = np.argsort(shape_of, kind="stable")
    begins = np.searchsorted(shape_of[order], np.arange(len(shapes) + 1))  # of each shape's scenarios in `order`
    most = min(max(1, CELLS // max(len(study.step.rows), 1)), SHAPES)
    for first in range(0, len(shapes), most):
        block = shapes[first : first + most]
        sizes = {name: np.full(len(block), float(value)) for name, value in base.items()}
        sizes |= dict(zip(size_names, block.T, strict=True))
        timed = _op_times_at(study, sizes)
        own = order[begins[first] : begins[first + len(block)]]
        for start in range(0, len(own), most):
            chosen = own[start : start + most]
            found = _block(study, timed, sizes, table[changes].iloc[chosen], shape_of[chosen] - first)
            yield found.set_axis(chosen)


def _one_by_one(
    study: Study, table: pd.DataFrame, size_names: list[str], changes: list[str]
) -> Iterator[pd.DataFrame]:
    for place, row in enumerate(table.to_dict("records")):
        machine = change_machine(study.given, {name: row[name] for name in changes if name not in OF_A_RUN})
        sizes = {**study.options.wanted_sizes, **{name: int(row[name]) for name in size_names}}
        model = study.model.with_run({name: row[name] for name in changes if name in OF_A_RUN})
        one = estimate(model, machine, replace(study.options, batch=None, sizes=sizes))
        ends = ends_of((one.step, one.sample_per_s, one.unit_per_day))
        yield pd.DataFrame([ends], [place], list(RESULTS)).assign(shared=one.step.shared, basis=one.basis)


def join_results(blocks: Iterable[pd.DataFrame], table: pd.DataFrame) -> pd.DataFrame:
    """Join the results of all blocks to their table, in its order; see `scenarios`."""
    found = list(blocks)
    if not found:
        return table.assign(**dict.fromkeys(RESULTS, np.nan), shared=1.0, basis="modelled")
    whole = found[0] if len(found) == 1 else pd.concat(found)
    return pd.concat([table, whole.sort_index().set_axis(table.index)], axis=1)


def _check_priced(study: Study, timed: TimedOps) -> None:
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
    if HOST in table:
        check_host(study.model, "scenarios")
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
