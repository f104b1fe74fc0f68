"""A sweep: one model on one machine, or on its nodes, at many points of its parameters, estimated in stretches.

A stretch is a range of points that are estimated at once. `make_sweep` checks a sweep; `Sweep.blocks` runs it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.core.job import Layout
from fomkit.core.machine import HOST, Energy, Link, Machine, Scope, nearest_parameter
from fomkit.core.model import ModelProfile
from fomkit.plan.estimate import estimate
from fomkit.plan.job import NodesJob
from fomkit.plan.options import (
    LINK_ALPHA,
    LINK_RATE,
    NODES,
    Options,
    change_machine,
    check_host,
    choose_scope,
)
from fomkit.plan.scaling import with_user_links
from fomkit.plan.scenarios import RESULTS, Study, blocks_of, ends_of, join_results, prepare_study
from fomkit.prediction.exchange import Network
from fomkit.prediction.interpolate import one_thread
from fomkit.profiles.evidence import with_fits
from fomkit.whatif import sweep_axes as axes
from fomkit.whatif import sweep_figures as figures

MOST_WITH_NODES = 200_000
"""Largest number of points of a sweep over nodes. About a hundred a second are estimated where the device varies
too, a thousand where it does not (benchmarks/sweeps.py), so this takes half an hour at most."""


def with_own_link(machine: Machine, channel: str, wanted: Mapping[str, float]) -> Machine:
    """Return the machine; if it states no link between nodes, with one of the wanted figures, if any is given.

    Raises FomkitError if only one of rate and latency is given.
    """
    lacking = [name for name in (LINK_ALPHA, LINK_RATE) if name not in wanted]
    if len(lacking) == 2 or any((link.tier, link.channel) == ("system", channel) for link in machine.links):
        return machine
    if lacking:
        raise FomkitError(
            machine.name,
            f"states no link of tier 'system', so its rate and latency are both needed. Add --vary {lacking[0]}=…",
        )
    alpha_s, byte_per_s, source = wanted[LINK_ALPHA], wanted[LINK_RATE], "given by the user"
    return with_user_links(
        machine, [Link("system", alpha_s, byte_per_s, "each", source, channel, basis="assumed")]
    )


def check_nodes(names: tuple[str, ...], machine: Machine, points: int) -> bool:
    """Return whether points are estimated on nodes, by scaling; raise where that is not possible."""
    if not any(name in axes.OF_LAYOUT for name in names):
        return False
    if NODES not in names:
        raise FomkitError(
            "sweep", "varies a link between nodes, but no nodes are given. Add, for example, --vary nodes=1,8,64."
        )
    if points > MOST_WITH_NODES:
        raise FomkitError(
            "sweep",
            f"asks for {points:,} points with nodes, which are computed one by one, about a hundred per second; "
            f"at most {MOST_WITH_NODES:,} are possible. Give fewer steps, or sample: --way sobol --points 4096.",
        )
    _ = Network(machine).node_devices  # raises where it is not stated
    return True


def _point(job: NodesJob, nodes: int) -> dict[str, object]:
    step, run = job.at(nodes)
    spans = ends_of((step.wall_s, step.sample_per_s, None if run is None else run.unit_per_day))
    return {
        **dict(zip(RESULTS, spans, strict=True)),
        "excludes": step.excludes if run is None else run.time.excludes,
        "peak_byte": math.nan if step.memory_byte is None else step.memory_byte,
        "devices": step.devices,
        "jobs": 1 if run is None else run.at_once,
        "basis": "modelled",
    }


MOST_JOBS = 256
"""Number of jobs whose device work is cached for points that differ in links and nodes only."""


def estimate_on_nodes(
    model: ModelProfile, machine: Machine, layout: Layout, options: Options, table: pd.DataFrame,
    built: dict[Hashable, NodesJob],
) -> pd.DataFrame:  # fmt: skip
    """Estimate points: results, peak_byte [byte], devices, jobs at once; ``built``: jobs of other tables."""
    if len(built) > MOST_JOBS:
        built.clear()
    jobs: dict[Hashable, NodesJob] = {}
    found = []
    for row in table.to_dict("records"):
        nodes, key = int(row.pop(NODES)), tuple(row.values())
        if key not in jobs:
            of_links = {str(name): row.pop(name) for name in (LINK_RATE, LINK_ALPHA) if name in row}
            values, of_device = {str(name): value for name, value in row.items()}, tuple(row.values())
            own = [name for name in values if name == "batch" or name in model.sizes]
            sizes = {name: int(values.pop(name)) for name in own}
            linked = with_own_link(machine, layout.channel, of_links)
            changed = change_machine(linked, {**values, **of_links}, layout.channel)
            job = NodesJob(model, changed, layout, replace(options, sizes={**options.sizes, **sizes}))
            first = built.setdefault(of_device, job)
            jobs[key] = job if first is job else replace(job, like=first)
        found.append(_point(jobs[key], nodes))
    return pd.DataFrame(found, index=table.index)


CHUNK = 16_384
"""Points of a stretch, which are estimated, sent and written at once; it bounds the memory."""
CHUNK_OF_NODES = 64
NO_RUN = "the profile does not define a run: samples, epochs or batch"
NO_BATCH = "the profile states no batch"
NO_POWER = "no power: add, for example, --vary 'power_w=300 W'"
_MEAN_POWER = "give a mean power: --vary 'power_w=300 W'"


def _why_no_energy(energy: Energy | None) -> str:
    """Return the reason why points have no energy, from what the machine states of it."""
    if energy is None:
        return NO_POWER
    if energy.per_flop or energy.byte_j is not None:
        what = "the machine states the energy of single ops, which a sweep does not store"
        return f"{what}; use fomkit estimate for one point, or {_MEAN_POWER}"
    if energy.average:
        return f"each mean power of the machine is of one workload; {_MEAN_POWER}"
    limit = "the power limit of a chip, which is not a mean" if energy.limit_w else "idle power"
    return f"the machine states only {limit}; {_MEAN_POWER}"


@dataclass(frozen=True)
class Sweep:
    """A checked sweep.

    `layout`: how a training is spread over nodes, where they are varied.
    `known`: results that have a number at the ends of every axis; the others are left out.
    `absent`: results that are not known, with the reason.
    `bill`: the paid units and their price; None where there is no price, or it does not apply to the points.
    `excludes`: terms that are not stated: times are lower bounds, rates upper ones.
    """

    model: ModelProfile
    machine: Machine
    options: Options
    plan: axes.Plan
    memory: figures.Memory
    layout: Layout = field(default_factory=Layout)
    known: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    objectives: tuple[figures.Objective, ...] = ()
    bill: figures.Bill | None = None
    excludes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of the columns."""
        return tuple(axis.name for axis in self.plan.axes)

    @property
    def on_nodes(self) -> bool:
        """Whether points are estimated by scaling, one after the other."""
        return NODES in self.names

    @property
    def scope(self) -> Scope:
        """The scope of the machine that does the work."""
        return "system" if self.on_nodes else choose_scope([self.machine], self.options.scope)

    @property
    def least_sizes(self) -> dict[str, int]:
        """The varied sizes of the model, each at its least."""
        own = {"batch", *self.model.sizes}
        return {axis.name: int(axis.ends[0]) for axis in self.plan.axes if axis.name in own}

    @property
    def options_at_least(self) -> Options:
        """The options at the least of each varied size."""
        return replace(self.options, batch=None, sizes={**self.options.wanted_sizes, **self.least_sizes})

    @property
    def machines_at_ends(self) -> list[Machine]:
        """The machine with each varied fact at its most, and with each at its least."""
        others = {"batch", *self.model.sizes, *axes.OF_DEVICE}
        varied = {axis.name: axis.ends for axis in self.plan.axes if axis.name not in others}
        values = [{name: ends[at] for name, ends in varied.items()} for at in (1, 0)]
        return [change_machine(self.machine, one) for one in (values if varied else [{}])]

    @property
    def per(self) -> figures.Per:
        """What the cost and energy of a point are for."""
        return figures.per_of(self.known)

    @cached_property
    def _study(self) -> Study:
        return prepare_study(self.model, with_fits(self.machine), self.options)

    @cached_property
    def _jobs(self) -> dict[Hashable, NodesJob]:
        return {}

    def stretches(self) -> list[tuple[int, int]]:
        """Return the stretches of the points, each as first and last plus one; they are always the same."""
        chunk = CHUNK_OF_NODES if self.on_nodes else CHUNK
        return [(start, min(start + chunk, self.plan.points)) for start in range(0, self.plan.points, chunk)]

    def _estimated(self, points: pd.DataFrame) -> pd.DataFrame:
        """Estimate points: all of `RESULTS`, devices of a job and jobs at once, memory where it is known."""
        wanted = points[[name for name in points.columns if name not in axes.OF_DEVICE]]
        # If PyArrow is installed, pandas stores text in its arrays, which are slower on tables of this size.
        with one_thread(), pd.option_context("mode.string_storage", "python"):
            if self.on_nodes:
                found = estimate_on_nodes(self.model, self.machine, self.layout, self.options, wanted, self._jobs)
            else:
                found = join_results(blocks_of(self._study, wanted), wanted)[[*RESULTS, "basis"]]
                found = found.assign(devices=self.model.run.devices_per_run, jobs=self._study.at_once)
                found = figures.add_memory(found, points, self.memory)
        capacity = self.machine.device.capacity_byte
        return figures.add_fits(found, None if capacity is None else capacity.value)

    def stretch(self, start: int, stop: int) -> pd.DataFrame:
        """Estimate the points from ``start`` up to ``stop``: their parameters and the known results."""
        points = self.plan.table(start, stop)
        found = self._estimated(points)
        if self.bill is not None:
            found = figures.add_cost(found, points, self.bill, self.per)
        if axes.POWER in points:
            found = figures.add_energy(found, points, self.per, self.machine.up_share(self.scope))
        found = found.assign(basis=found["basis"].astype(str))
        return pd.concat([points, found[[name for name in self.columns if name in found]]], axis=1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the results, without those of the parameters."""
        spans = ("step_s", "sample_per_s", "unit_per_day", figures.COST, figures.ENERGY)
        found = [f"{name}{end}" for name in spans if name in self.known for end in figures.ENDS]
        return (*found, *(name for name in (figures.PEAK_BYTE, figures.FITS) if name in self.known), "basis")

    def blocks(self, first: int = 0) -> Iterator[pd.DataFrame]:
        """Yield the estimates of all points from stretch `first` on, one stretch at a time, in order."""
        for start, stop in self.stretches()[first:]:
            yield self.stretch(start, stop)

    @property
    def key(self) -> str:
        """A hash of everything that determines the points and their results."""
        model, machine = self.model, self.machine
        tables = [model.ops, model.parts, machine.timings, *([] if model.order is None else [model.order])]
        hashes = [pd.util.hash_pandas_object(table.astype("str"), index=False).sum() for table in tables]
        facts = (model.name, model.sizes, model.data, model.run, model.unit, model.optimizer, model.unsupported,
                 machine.name, machine.device, machine.links, machine.overheads, machine.node_devices,
                 machine.system_nodes, machine.availability, machine.price, machine.host_op_s, machine.origin,
                 machine.excluded, machine.reserve_byte, machine.software)  # fmt: skip
        numbers = [int(one) for one in hashes]
        asked = (__version__, self.plan, self.options, self.layout, self.known, facts, numbers)
        return hashlib.sha256(repr(asked).encode()).hexdigest()


def _with_probe(sweep: Sweep, currency: str) -> Sweep:
    """Estimate both ends of every axis, to find errors before the work starts, and results that are unknown."""
    ends = pd.DataFrame({axis.name: list(axis.ends) for axis in sweep.plan.axes})
    found = sweep._estimated(ends)
    names = [name for name in ("step_s", "sample_per_s", "unit_per_day", figures.PEAK_BYTE) if name in found]
    known = [name for name in names if bool(found[name].notna().all())]
    if figures.FITS in found and (not sweep.on_nodes or bool(found[figures.FITS].notna().any())):
        known.append(figures.FITS)
    bill, why_no_cost = None, "no price: add, for example, --vary 'price_per_h=2.50 USD/h'"
    try:
        bill = figures.bill_of(
            sweep.machine, sweep.scope, currency, sweep.options.interval, on_nodes=sweep.on_nodes
        )
    except FomkitError as error:
        why_no_cost = f"the machine's price {error.what}"
    known += [figures.COST] * (bill is not None) + [figures.ENERGY] * (axes.POWER in sweep.names)
    why = {
        "sample_per_s": NO_BATCH,
        "unit_per_day": NO_RUN,
        figures.COST: why_no_cost,
        figures.ENERGY: _why_no_energy(sweep.machine.energy),
        figures.PEAK_BYTE: sweep.memory.why_not or "the memory of this step is unknown",
    }
    absent = {name: reason for name, reason in why.items() if name not in known}
    if sweep.on_nodes:
        excludes = tuple(dict.fromkeys(name for names in found["excludes"] for name in names))
    else:  # a short step may be without a term that a long one is not, so its least sizes are estimated
        ends_of_rates = [estimate(sweep.model, one, sweep.options_at_least) for one in sweep.machines_at_ends]
        excludes = tuple(dict.fromkeys(name for one in ends_of_rates for name in one.excludes))
    objectives = figures.objectives_of(known, figures.per_of(known), "" if bill is None else bill.price.currency)
    return replace(sweep, known=tuple(known), absent=absent, objectives=objectives, bill=bill, excludes=excludes)


def make_sweep(
    model: ModelProfile,
    machine: Machine,
    vary: Mapping[str, axes.Given],
    *,
    way: axes.Way = "grid",
    points: int | None = None,
    seed: int = 0,
    options: Options | None = None,
    layout: Layout | None = None,
) -> Sweep:
    """Check a sweep, and estimate both ends of every axis.

    `vary`: parameter (`fomkit.whatif.sweep_axes.kinds_of`) to its values: numbers in SI units, or text with units,
    a list or a range (`fomkit.whatif.sweep_axes.make_axis`). One value keeps the parameter fixed. `way`, `points`,
    `seed`: see `fomkit.whatif.sweep_axes.make_plan`. `options`: apply at every point. `layout`: how a training is
    spread over nodes; it needs ``nodes`` among the varied parameters.
    """
    options, given = options or Options(), cast("object", vary)  # a notebook may pass any object
    if not isinstance(given, Mapping):
        raise FomkitError(
            "vary", f"is of type {type(given).__name__}. Give a mapping, for example {{'batch': [16, 32]}}."
        )
    nodes = layout and layout.whole_nodes(machine.node_devices)
    if layout not in (None, Layout()) and nodes and NODES not in vary:
        vary = {**vary, NODES: [nodes]}
    kinds = axes.kinds_of(model, machine)
    for name in vary:
        if name not in kinds:
            where = f"{model.name} on {machine.name}"
            raise FomkitError(where, f"{name!r} is not a parameter of it. {nearest_parameter(name, kinds)}")
    if HOST in vary:
        check_host(model, f"--vary {HOST}", (layout or Layout()).launch)
    currency = ""
    if axes.PRICE in vary:
        prices, currency = figures.read_prices(vary[axes.PRICE], machine.price)
        vary = {**vary, axes.PRICE: prices}
    for name in {**options.sizes, **({} if options.batch is None else {"batch": 0})}:
        if name in vary:
            raise FomkitError(name, "is both varied and given as one value. Give it once.")
    plan = axes.make_plan(
        [axes.make_axis(name, given, kinds[name]) for name, given in vary.items()], way, points, seed
    )
    on_nodes = check_nodes(tuple(axis.name for axis in plan.axes), machine, plan.points)
    if layout not in (None, Layout()) and not on_nodes:
        raise FomkitError(
            "layout", "is for runs on nodes, but no nodes are varied. Add, for example, --vary nodes=1,8,64."
        )
    memory = figures.Memory() if on_nodes else figures.follow_memory(model, machine, plan.axes, options)
    return _with_probe(Sweep(model, machine, options, plan, memory, layout or Layout()), currency)
