"""Estimates of several models on targets and a baseline: ratios, and a figure of merit over all models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from fomkit import __version__
from fomkit.core.errors import FomkitError, ManyFomkitError, Shown
from fomkit.core.interval import Span, left_out_alone
from fomkit.core.machine import Link, Machine, Scope
from fomkit.core.model import ModelProfile
from fomkit.core.units import ITEM_BYTE
from fomkit.merit.fom import FigureOfMerit, Rates, figure_of_merit
from fomkit.plan.content import INTERVAL_MEANING, Estimated, estimate_content
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.memory_of import IN_MEMORY, NO_BATCH, batch_that_fits
from fomkit.plan.options import Options, check_counts, choose_scope, options_of

if TYPE_CHECKING:
    from fomkit.core.job import Job
    from fomkit.core.measurement import Measurement
    from fomkit.merit.measured_steps import Explained, MeasuredRuns, Merit
    from fomkit.plan.job import Placed
    from fomkit.verbs.from_measurements import MeasuredWays


@dataclass(frozen=True)
class Placement:
    """How each run is placed on devices; stated links take precedence over those of a machine's profile."""

    job: Job | None = None
    links: Sequence[Link] = ()
    node_devices: int | None = None

    def on(self, machine: Machine) -> Machine:
        """Return the machine with the stated links and devices per node."""
        if not self.links and self.node_devices is None:
            return machine
        from fomkit.plan.scaling import with_user_links  # most studies have none

        return with_user_links(machine, self.links, self.node_devices)

    def scope(self, models: Sequence[ModelProfile], machines: list[Machine], wanted: Scope | None) -> Scope | None:
        """Choose one scope that holds a run of each model; None where the job states its devices."""
        if wanted is None and self.job is not None and self.job.states_devices:
            return None
        of_layout = 1 if self.job is None else self.job.layout.fewest_devices
        devices = max((model.run.devices_per_run for model in models), default=1)
        return choose_scope(machines, wanted, max(devices, of_layout))

    def _of_one_device(self, model: ModelProfile) -> bool:
        """Return whether a run uses one device; raise where links are stated for it."""
        of_one = self.job is None and model.run.devices_per_run == 1
        if of_one and self.links:
            raise FomkitError(
                "links", f"are for runs on several devices, and a run of {model.name} uses one. Add --nodes."
            )
        return of_one

    def place(self, model: ModelProfile, machine: Machine, options: Options) -> Placed | None:
        """Place a run on a machine that `on` returned; None where it runs on one device."""
        from fomkit.plan.job import place_job

        return None if self._of_one_device(model) else place_job(model, machine, self.job, options)

    def estimate(self, model: ModelProfile, machine: Machine, options: Options) -> Estimate:
        """Estimate a run on a machine that `on` returned."""
        if self._of_one_device(model):
            return estimate(model, machine, options)
        from fomkit.plan.job import time_job  # most work has none

        return time_job(model, machine, self.job, options)


AS_PROFILED = Placement()
"""Each run is placed as its model's profile states."""


def placement_of(
    nodes: object, layout: str | Path | Sequence[str], links: Sequence[str | Link], node_devices: int | None = None
) -> Placement:
    """Parse and check how runs are placed on devices; texts have the form of the command line."""
    check_counts(node_devices=node_devices)
    if nodes is None and not layout and not links:
        return Placement(node_devices=node_devices)
    from fomkit.profiles.declared import parse_job  # most studies need none

    return Placement(*parse_job(nodes, layout, links), node_devices)


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Estimates of the same models on the targets and on a baseline.

    `estimates`: ordered by target, then by model.
    `baseline`: the same models on the baseline; empty without one.
    `merits`: one for each target; empty without a baseline or without runs.
    `failures`: why some models have no estimate; only filled where failures are skipped.
    `explained`: for each target with a figure of merit, how much of each model's measured run the device explains.
    `rows`, `from_measurements`: measurements of the baseline, where they were given, and the block of
      ``fomkit/estimate/1`` with the targets predicted from them.
    """

    estimates: tuple[Estimate, ...]
    baseline: tuple[Estimate, ...]
    merits: tuple[FigureOfMerit, ...]
    failures: tuple[FomkitError, ...] = ()
    explained: Mapping[str, tuple[Explained, ...]] = field(default_factory=dict)
    rows: tuple[Measurement, ...] = ()
    from_measurements: MeasuredWays | None = None

    @property
    def unfit(self) -> tuple[str, ...]:
        """Messages about estimates that no device's memory holds: the machine, the reason, and what would fit."""
        every = (*self.baseline, *self.estimates)
        return unfit_named((f"{one.model.name} on {one.machine.name} ", one) for one in every)

    def alone(self, target: str) -> dict[str, list[str]]:
        """Return, by machine, the terms that only the target or only the baseline excludes from their ratio."""
        references = {one.model.name: one for one in self.baseline}
        return left_out_alone(
            ((old.machine.name, old.excludes_in_ratio), (target, one.excludes_in_ratio))
            for one in self.estimates
            if one.machine.name == target and (old := references.get(one.model.name)) is not None
        )

    @property
    def little_explained(self) -> tuple[str, ...]:
        """The models under a figure of merit whose measured runs the device explains by less than half."""
        from fomkit.merit.measured_steps import little_explained

        found = (
            little_explained(self.explained.get(merit.target.machine, ()), merit.ratios) for merit in self.merits
        )
        return tuple(dict.fromkeys(one.line for each in found for one in each))


def _what_fits(estimated: Estimate) -> str:
    """Return what would fit instead, after a semicolon; "" where unknown."""
    from fomkit.plan.scaling import smallest_layout  # most steps fit

    model, sizes = estimated.model, dict(estimated.sizes)
    others = {name: one for name, one in sizes.items() if name != "batch"}
    # Formats of less than two bytes store weights in fewer bytes.
    narrow: Any = estimated.precision if ITEM_BYTE.get(estimated.precision, 4) < 2 else None
    options = options_of(sizes.get("batch"), sizes=others, precision=narrow)
    found = smallest_layout(model, estimated.machine, options)
    batch = ""
    if estimated.job is None:
        batch = batch_that_fits(model, estimated.machine, sizes, estimated.formats)
    return "".join(f"; {one}" for one in (found, batch) if one and not (found and one == NO_BATCH))


def unfit_named(named: Iterable[tuple[str, Estimate | None]]) -> tuple[str, ...]:
    """Return a message for each step that no device holds: the name, the reason, and what would fit."""
    unfit = ((name, one) for name, one in named if one is not None and one.fit.message)
    return tuple(f"{name}{one.fit.message.removesuffix(IN_MEMORY)}{_what_fits(one)}" for name, one in unfit)


def unfit_of(estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """Return a message for each estimate whose step no device's memory holds."""
    unfit = (one for one in estimates if one.fit.message)
    return tuple(f"{one.model.name} on {one.machine.name} {one.fit.message}" for one in unfit)


def rates(estimates: Sequence[Estimate]) -> Rates:
    """Collect the units per day of several models on one machine."""
    units: dict[str, Span] = {}
    for estimated in estimates:
        if estimated.unit_per_day is None:
            raise FomkitError(
                estimated.model.name, "has no units per day; its profile lacks train_samples or epochs."
            )
        units[estimated.model.name] = estimated.unit_per_day
    return Rates(estimates[0].machine.name, estimates[0].scope, units)


def _estimates(
    models: Sequence[ModelProfile], machines: Sequence[Machine], options: Options, skip_failures: bool,
    after_each: Callable[[], None], placement: Placement,
) -> tuple[list[list[Estimate]], list[FomkitError]]:  # fmt: skip
    """Estimate model by model; a model that fails on one machine is left out on all, so that ratios stay fair."""
    by_machine: list[list[Estimate]] = [[] for _ in machines]
    failures: list[FomkitError] = []
    for model in models:
        try:
            row = []
            for machine in machines:
                row.append(placement.estimate(model, machine, options))
                after_each()
        except FomkitError as error:
            if not skip_failures:
                raise
            failures.append(error)
            continue
        for estimates, one in zip(by_machine, row, strict=True):
            estimates.append(one)
    return by_machine, failures


def check_distinct(models: Sequence[ModelProfile], targets: Sequence[Machine], baseline: Machine | None) -> None:
    """Raise where a model or a machine is named twice, or the baseline is a target."""
    for what, names in (
        ("model", [model.name for model in models]),
        ("machine", [target.name for target in targets]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            by = " with 'fomkit profile --name', or" if what == "model" else ""
            do = f"Name each {what} once; give different profiles different names{by} in the file."
            raise FomkitError(twice[0], f"is given twice among the {what}s. {do}")
    if baseline is not None and baseline.name in [target.name for target in targets]:
        raise FomkitError(
            baseline.name, "is the baseline and a target. Its ratio to itself is 1; name another machine."
        )


def compare(
    models: Sequence[ModelProfile], targets: Sequence[Machine], baseline: Machine | None, options: Options, *,
    skip_failures: bool = False, after_each: Callable[[], None] = lambda: None,
    measured: MeasuredRuns | None = None, placement: Placement = AS_PROFILED,
) -> Comparison:  # fmt: skip
    """Estimate every model on every machine at one scope, and compare where there is a baseline.

    `skip_failures`: leave out a model that cannot be estimated and store the reason, instead of raising;
    `after_each`: called after each estimate, for progress; `measured`: measured runs, if any, with which the
    models under a figure of merit are compared; `placement`: how each run is placed on devices. Raises FomkitError
    as `estimate` does, when the machines share no scope, and when no model can be estimated.
    """
    check_distinct(models, targets, baseline)
    machines = [placement.on(machine) for machine in (*targets, *([baseline] if baseline else []))]
    options = replace(options, scope=placement.scope(models, machines, options.scope))
    by_machine, failures = _estimates(models, machines, options, skip_failures, after_each, placement)
    if not by_machine[0]:
        raise ManyFomkitError(failures or [FomkitError("estimate", "no model profile was found. Name one.")])
    on_target = by_machine[: len(targets)]
    on_baseline = by_machine[-1] if baseline else []
    whole = all(one.unit_per_day is not None for one in on_baseline)
    rated = on_target if on_baseline and whole else []
    merits = [figure_of_merit(rates(on_baseline), rates(one)) for one in rated]
    explained: dict[str, tuple[Explained, ...]] = {}
    if merits:
        from fomkit.merit.measured_steps import NOTHING_MEASURED, explained_models

        explained = {
            merit.target.machine: explained_models([*on_baseline, *one], options, measured or NOTHING_MEASURED)
            for merit, one in zip(merits, on_target, strict=True)
        }
    estimates = tuple(estimated for one in on_target for estimated in one)
    return Comparison(estimates, tuple(on_baseline), tuple(merits), tuple(failures), explained)


Study = TypedDict("Study", {
    "schema": str, "fomkit": str, "interval": float, "interval_covers": str, "scope": str,
    "models": list[Estimated], "not_estimated": list[str], "fom": "Merit | None",
    "foms": NotRequired["list[Merit]"], "from_measurements": NotRequired["MeasuredWays"],
})  # fmt: skip


def merit_blocks(result: Comparison) -> list[Merit]:
    """Convert the figures of merit of a study to the form of the block ``fom``."""
    if not result.merits:
        return []
    from fomkit.merit.measured_steps import merit_content, worst_basis

    worst, blocks = worst_basis([*result.estimates, *result.baseline]), []
    for merit in result.merits:
        target = merit.target.machine
        under = [*result.baseline, *(one for one in result.estimates if one.machine.name == target)]
        blocks.append(
            merit_content(
                merit, worst, excludes=list(dict.fromkeys(term for one in under for term in one.excludes)),
                unfit=unfit_of(under), explained=result.explained.get(target, ()), alone=result.alone(target),
            )
        )  # fmt: skip
    return blocks


def estimates_content(result: Comparison) -> Study:
    """Convert a study to ``fomkit/estimate/1``."""
    estimates, baseline = result.estimates, result.baseline
    references = {one.model.name: one for one in baseline}
    blocks = merit_blocks(result)
    content: Study = {
        "schema": "fomkit/estimate/1", "fomkit": __version__, "interval": estimates[0].step.level,
        "interval_covers": INTERVAL_MEANING, "scope": estimates[0].scope,
        "models": [
            *(estimate_content(one) for one in baseline),
            *(estimate_content(estimate, references.get(estimate.model.name)) for estimate in estimates),
        ],
        "not_estimated": [str(error) for error in result.failures], "fom": blocks[0] if len(blocks) == 1 else None,
    }  # fmt: skip
    if len(blocks) > 1:
        content["foms"] = blocks
    if result.from_measurements is not None:
        content["from_measurements"] = result.from_measurements
    return content
