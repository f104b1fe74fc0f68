"""A sweep: one model on one machine at many points of its parameters, worked out a stretch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import pandas as pd

from fomkit.errors import FomkitError
from fomkit.hardware import Machine, Scope
from fomkit.parallel import Layout
from fomkit.predict.interpolate import threads
from fomkit.study.estimate import estimate
from fomkit.study.options import Options, choose_scope
from fomkit.study.scenarios import RESULTS, Study, blocks_of, in_order, prepare_study
from fomkit.whatif.points import Plan, Way, make_plan
from fomkit.whatif.sweep_axes import Given, make_axis
from fomkit.whatif.sweep_columns import ENERGY, Objective, add_energy, device_seconds, objectives_of, per_of
from fomkit.whatif.sweep_memory import FITS, PEAK_BYTE, Memory, add_fits, add_memory, follow_memory
from fomkit.whatif.sweep_money import COST, Bill, Per, add_cost, bill_of, with_prices
from fomkit.whatif.sweep_nodes import OnNodes, check_nodes
from fomkit.whatif.sweep_parameters import NODES, OF_DEVICE, POWER, check_names, kinds_of
from fomkit.workload import ModelProfile

CHUNK = 16_384
"""Points of a stretch: what is worked out, sent and written at once; bounds the memory."""
CHUNK_OF_NODES = 64
NO_RUN = "the profile does not say what a run is: samples, epochs or batch"
NO_BATCH = "the profile does not say its batch"
NO_POWER = "no power: add, for example, --vary 'power_w=300 W'"
ENERGY_UNUSED = (
    "the energy that the machine states is of single ops, which a sweep does not keep; fomkit estimate has it at "
    "one point, or give a mean power: --vary 'power_w=300 W'"
)


@dataclass(frozen=True)
class Sweep:
    """What is swept, checked.

    Attributes
    ----------
    plan : Plan
    layout : Layout
        How a training is spread over nodes, where they are varied.
    memory : Memory
        Peaks of a step, by its sizes.
    known : tuple of str
        Results that have a number at the ends of every axis; the others are left out.
    absent : mapping
        Results that are not known, with the reason.
    bill : Bill or None
        What is paid, by which price; None where there is no price, or it is not of what the points use.
    excludes : tuple of str
        Terms that nobody stated: times are lower bounds, rates upper ones.
    """

    model: ModelProfile
    machine: Machine
    options: Options
    plan: Plan
    memory: Memory
    layout: Layout = field(default_factory=Layout)
    known: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    objectives: tuple[Objective, ...] = ()
    bill: Bill | None = None
    excludes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order of the columns."""
        return tuple(axis.name for axis in self.plan.axes)

    @property
    def on_nodes(self) -> bool:
        """Whether points go through scaling, one after the other."""
        return NODES in self.names

    @property
    def scope(self) -> Scope:
        """What of the machine does the work."""
        return "system" if self.on_nodes else choose_scope([self.machine], self.options.scope)

    @property
    def per(self) -> Per:
        """What cost and energy are of."""
        return per_of(self.known)

    @cached_property
    def _study(self) -> Study:
        return prepare_study(self.model, self.machine, self.options)

    def stretches(self) -> list[tuple[int, int]]:
        """Cut the points into stretches, first and last plus one, always the same."""
        chunk = CHUNK_OF_NODES if self.on_nodes else CHUNK
        return [(start, min(start + chunk, self.plan.points)) for start in range(0, self.plan.points, chunk)]

    def _estimated(self, points: pd.DataFrame) -> pd.DataFrame:
        """Estimate points: all of `RESULTS`, devices of a job and jobs at once, memory where it is known."""
        asked = points[[name for name in points.columns if name not in OF_DEVICE]]
        # Where PyArrow is installed pandas keeps text in its arrays, which are slower on tables of this size.
        with threads().limit(limits=1), pd.option_context("mode.string_storage", "python"):
            if self.on_nodes:
                found = OnNodes(self.model, self.machine, self.layout, self.options).estimate(asked)
            else:
                found = in_order(blocks_of(self._study, asked), asked)[[*RESULTS, "basis"]]
                found = found.assign(devices=self.model.run.devices_per_run, jobs=self._study.at_once)
                found = add_memory(found, points, self.memory)
        capacity = self.machine.device.capacity_byte
        return add_fits(found, None if capacity is None else capacity.value)

    def _up_share(self) -> float:
        return self.machine.availability if self.scope == "system" and self.per == "unit of work" else 1.0

    def stretch(self, start: int, stop: int) -> pd.DataFrame:
        """Estimate the points from ``start`` up to ``stop``: their parameters, and beside them what is known."""
        points = self.plan.table(start, stop)
        found = self._estimated(points)
        if self.bill is not None:
            found = add_cost(found, points, self.bill, self.per)
        if POWER in points:
            seconds = device_seconds(found, self.per, found["devices"], found["jobs"])
            found = add_energy(found, points, seconds, self._up_share())
        found = found.assign(basis=found["basis"].astype(str))
        return pd.concat([points, found[[name for name in self.columns if name in found]]], axis=1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the results, those of the parameters left out."""
        spans = [name for name in RESULTS if name.removesuffix("_low").removesuffix("_high") in self.known]
        spent = [f"{name}{end}" for name in (COST, ENERGY) if name in self.known for end in ("", "_low", "_high")]
        return (*spans, *spent, *(name for name in (PEAK_BYTE, FITS) if name in self.known), "basis")

    def blocks(self) -> Iterator[pd.DataFrame]:
        """Estimate all points, a stretch at a time, in their order."""
        for start, stop in self.stretches():
            yield self.stretch(start, stop)


def _excludes(sweep: Sweep, found: pd.DataFrame) -> tuple[str, ...]:
    """Name the terms that nobody stated; the same at all sizes, so one point tells them."""
    if sweep.on_nodes:
        return tuple(dict.fromkeys(name for names in found["excludes"] for name in names))
    sizes = {axis.name: int(axis.ends[0]) for axis in sweep.plan.axes if axis.kind.whole}
    options = replace(sweep.options, batch=None, sizes={**sweep.options.wanted_sizes, **sizes})
    return estimate(sweep.model, sweep.machine, options).excludes


def _billed(sweep: Sweep, currency: str) -> tuple[Bill | None, str]:
    """Choose what is paid, or say why nothing is."""
    try:
        bill = bill_of(sweep.machine, sweep.scope, currency, sweep.options.interval, on_nodes=sweep.on_nodes)
    except FomkitError as error:
        return None, f"the machine's price {error.what}"
    return bill, "no price: add, for example, --vary 'price_per_h=2.50 USD/h'"


def _probed(sweep: Sweep, currency: str) -> Sweep:
    """Estimate both ends of every axis: what cannot be shows before the work, and what is not known."""
    ends = pd.DataFrame({axis.name: list(axis.ends) for axis in sweep.plan.axes})
    found = sweep._estimated(ends)
    names = [name for name in ("step_s", "sample_per_s", "unit_per_day", PEAK_BYTE) if name in found]
    known = [name for name in names if bool(found[name].notna().all())]
    if FITS in found and (not sweep.on_nodes or bool(found[FITS].notna().any())):
        known.append(FITS)
    bill, why_free = _billed(sweep, currency)
    known += [name for name, has in ((COST, bill is not None), (ENERGY, POWER in sweep.names)) if has]
    why = {
        "sample_per_s": NO_BATCH,
        "unit_per_day": NO_RUN,
        COST: why_free,
        ENERGY: NO_POWER if sweep.machine.energy is None else ENERGY_UNUSED,
        PEAK_BYTE: sweep.memory.why_not or "nobody knows the memory of this step",
    }
    absent = {name: reason for name, reason in why.items() if name not in known}
    objectives = objectives_of(known, per_of(known), "" if bill is None else bill.price.currency)
    return replace(
        sweep,
        known=tuple(known),
        absent=absent,
        objectives=objectives,
        bill=bill,
        excludes=_excludes(sweep, found),
    )


def make_sweep(
    model: ModelProfile,
    machine: Machine,
    vary: Mapping[str, Given],
    *,
    way: Way = "grid",
    points: int | None = None,
    seed: int = 0,
    options: Options | None = None,
    layout: Layout | None = None,
) -> Sweep:
    """Check what is to be swept, and try it at both ends of every axis.

    Parameters
    ----------
    model : ModelProfile
    machine : Machine
    vary : mapping
        Parameter (`fomkit.whatif.sweep_parameters.kinds_of`) to its values: numbers in SI units, or text with
        units, a list or a range (`fomkit.whatif.sweep_axes.make_axis`). One value holds it there.
    way, points, seed
        See `fomkit.whatif.points.make_plan`.
    options : Options, optional
        What holds at every point.
    layout : Layout, optional
        How a training is spread over nodes; it needs ``nodes`` among what is varied.

    Raises
    ------
    FomkitError
        When a parameter is unknown, a value cannot be one of it, there are too many points, or the ends of the
        axes cannot be estimated.
    """
    options, given = options or Options(), cast("object", vary)  # a notebook may give anything
    if not isinstance(given, Mapping):
        raise FomkitError(
            "vary", f"is a {type(given).__name__}. Give a mapping, for example {{'batch': [16, 32]}}."
        )
    kinds = kinds_of(model, machine)
    check_names(vary, kinds, f"{model.name} on {machine.name}")
    vary, currency = with_prices(vary, machine.price)
    for name in {**options.sizes, **({} if options.batch is None else {"batch": 0})}:
        if name in vary:
            raise FomkitError(name, "is varied and given as one value too. Give it once.")
    plan = make_plan([make_axis(name, given, kinds[name]) for name, given in vary.items()], way, points, seed)
    on_nodes = check_nodes(tuple(axis.name for axis in plan.axes), machine, plan.points)
    if layout not in (None, Layout()) and not on_nodes:
        raise FomkitError(
            "layout", "is of a training on nodes, and none are varied. Add, say, --vary nodes=1,8,64."
        )
    memory = Memory() if on_nodes else follow_memory(model, machine, plan.axes, options)
    return _probed(Sweep(model, machine, options, plan, memory, layout or Layout()), currency)
