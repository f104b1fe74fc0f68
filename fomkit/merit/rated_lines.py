"""One line of a suite on one machine: its conditions, and its rate: frozen, given, estimated or missing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, at_level
from fomkit.core.job import OPTIMIZED, Category, Conditions, Job, Suite, SuiteLine
from fomkit.core.machine import Basis, Machine, Party
from fomkit.core.measurement import verdict_on
from fomkit.core.model import ModelProfile
from fomkit.core.units import count_text
from fomkit.files.op_csv import format_table
from fomkit.ops.columns import cached
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.memory_of import UNKNOWN_FIT, Fit
from fomkit.plan.options import Options
from fomkit.plan.run import unit_per_day

if TYPE_CHECKING:
    from fomkit.parallel.step import ParallelStep


def fixed_conditions(wanted: Conditions, model: ModelProfile | None) -> Conditions:
    """Return the fixed conditions of a line: those that it states, else the values of its model profile."""
    if model is None:
        return wanted
    sizes = {name: size for name, size in model.sizes.items() if name != "batch"}
    own = Conditions(model.batch, None, model.run.epochs, model.data.train_samples, sizes=sizes)
    return changed_conditions(own, wanted)


def changed_conditions(fixed: Conditions, proposed: Conditions) -> Conditions:
    """Return the conditions under which a line runs when a proposal changes some of them.

    The quality is only what the proposal demonstrates; what the line requires is not demonstrated by that.
    """
    stated = {name: value for name, value in vars(proposed).items() if value not in (None, "")}
    return replace(fixed, **{**stated, "quality": proposed.quality, "sizes": {**fixed.sizes, **proposed.sizes}})


def line_per_day(estimated: Estimate, line: SuiteLine) -> Span | None:
    """Return the units of a line a day, of which each has runs of the model; None where a run is unknown."""
    rate = estimated.unit_per_day
    return None if rate is None else rate.scaled(estimated.model.unit.runs / line.runs)


def deviations(fixed: Conditions, proposed: Conditions) -> tuple[str, ...]:
    """Return each difference between a line's fixed conditions and a proposal; open conditions do not count.

    >>> deviations(Conditions(batch=20, epochs=400), Conditions(batch=256))
    ('batch 20 → 256 (quality not shown)',)
    """
    required, found = fixed.stated(), proposed.stated()
    found.pop("quality", None)
    shown = "quality not shown" if proposed.quality is None else f"quality: {proposed.quality}"
    return tuple(
        f"{name} {required.get(name, 'as the framework does')} → {value} ({shown})"
        for name, value in found.items()
        if value != required.get(name) and (name in required or name == "precision")
    )


def unstated(fixed: Conditions, found: Conditions) -> tuple[str, ...]:
    """Return the fixed conditions of a line that a stated time does not state.

    >>> unstated(Conditions(batch=20, epochs=4), Conditions(epochs=4))
    ('batch not stated (the line fixes 20)',)
    """
    known = found.stated()
    return tuple(
        f"{name} not stated (the line fixes {value})"
        for name, value in fixed.stated().items()
        if name not in known
    )


def under_conditions(model: ModelProfile, conditions: Conditions) -> ModelProfile:
    """Return a model profile with the samples and epochs of a line; batch and sizes are options."""
    stated = {"train_samples": conditions.samples, "epochs": conditions.epochs}
    return model.with_run({name: count for name, count in stated.items() if count is not None})


Load = Callable[[str], ModelProfile]


@dataclass(frozen=True)
class RatedLine:
    """One line of a suite on one machine.

    `unit_per_day`: None where no time is given and none could be estimated; ``missing`` states why.
    `category`: ``optimized`` where a condition of the line was changed.
    `deviations`: each condition that differs from the line's.
    `estimate`: the estimate of an estimated rate, on one device or as a job on several.
    `precision`: number formats of most of the arithmetic, as far as they are known.
    `work`: hash of the work of an estimated line.
    `excludes`: terms that its rate leaves out because they are not stated; None where unknown for a frozen rate.
    """

    line: SuiteLine
    unit_per_day: Span | None
    basis: Basis
    party: Party
    category: Category
    source: str
    deviations: tuple[str, ...] = ()
    estimate: Estimate | None = None
    missing: str = ""
    kind: Literal["given", "frozen", "estimated", "missing"] = "given"
    precision: str = ""
    work: str = ""
    excludes: tuple[str, ...] | None = ()

    @property
    def job(self) -> ParallelStep | None:
        """The step of a run on several devices."""
        return None if self.estimate is None else self.estimate.job

    @property
    def alone(self) -> Estimate | None:
        """The estimate of a run on one device."""
        return self.estimate if self.job is None else None

    @property
    def fit(self) -> Fit:
        """Whether its step fits in a device's memory."""
        return UNKNOWN_FIT if self.estimate is None else self.estimate.fit

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of its estimate on the run: samples that fill no batch, ops without a time, and the like.

        Notes on the machine and on the memory are left out: the result of a suite shows them once.
        """
        if self.estimate is None:
            return ()
        machine = self.estimate.machine
        shown_elsewhere = (*machine.caveats, *verdict_on(machine, named=False), self.fit.message)
        return tuple(text for text in self.estimate.deviations if text not in shown_elsewhere)

    @property
    def is_modelled(self) -> bool:
        """True where the rate was computed by a model: now, or when it was frozen."""
        return self.kind == "estimated" or (self.kind == "frozen" and bool(self.work))

    @property
    def unfit(self) -> str:
        """What does not fit in the device's memory, in words; "" where it fits or this is unknown."""
        return self.fit.message


def _missing(line: SuiteLine, source: str, why: str) -> RatedLine:
    return RatedLine(line, None, line.basis, line.party, line.category, source, missing=why, kind="missing")


def rates_of(side: Iterable[RatedLine]) -> dict[str, Span]:
    """Return the units a day of the lines that have a rate, by line."""
    return {one.line.name: one.unit_per_day for one in side if one.unit_per_day is not None}


def work_hash(model: ModelProfile, conditions: Conditions) -> str:
    """Hash a model's ops with the conditions, data and unit of a line.

    Titles, notes, layers and lines of code do not count.
    """
    facts = {
        "conditions": conditions.stated(),
        "data": asdict(model.data),
        "run": asdict(model.run),
        "unit": asdict(model.unit),
    }

    def tables() -> list[str]:
        ops, parts = (table.drop(columns="code_line", errors="ignore") for table in (model.ops, model.parts))
        return [format_table(ops, "OPS"), format_table(parts, "OPS", ("of",)) if len(parts) else ""]

    text = "\x1e".join([json.dumps(facts, sort_keys=True), *cached(model.ops, model.parts, "tables", tables)])
    return hashlib.sha256(text.encode()).hexdigest()


NO_RUN = "{} does not define a run: no train_samples or epochs"


def time_work(model: ModelProfile, machine: Machine, options: Options, job: Job | None) -> Estimate:
    """Time a model's run at the scope of the options: on one device, or on those of a job, else of its profile."""
    if job is None and model.run.devices_per_run == 1:
        return estimate(model, machine, options)
    from fomkit.plan.job import time_job  # imported here because most work has no job

    return time_job(model, machine, job, options)


@dataclass(frozen=True)
class LineRating:
    """What is needed to rate a line: the suite, the machine, and the proposals for its lines."""

    suite: Suite
    machine: Machine
    options: Options
    load: Load
    proposals: Mapping[str, Conditions] = field(default_factory=dict)

    def _given(self, line: SuiteLine) -> RatedLine:
        given = line.given[self.machine.name]
        other_party = given.party != line.party
        deviating = deviations(line.conditions, given.conditions) + (
            unstated(line.conditions, given.conditions) if other_party else ()
        )
        gains = {"utilisation": given.utilisation_gain, "precision": given.precision_gain}
        deviating += tuple(f"times a stated {kind} gain of {gain:g}" for kind, gain in gains.items() if gain != 1)
        run_s = at_level(given.run_s, self.options.interval)
        at_once = self.machine.up_devices(self.suite.scope) * prod(gains.values())
        return RatedLine(
            line, unit_per_day(run_s.scaled(line.runs), at_once), given.basis, given.party,
            OPTIMIZED if deviating else given.category, given.source or "given", deviating,
            precision=given.conditions.precision or "",
        )  # fmt: skip

    def _estimated(self, line: SuiteLine, name: str) -> RatedLine:
        model = self.load(name)
        fixed = fixed_conditions(line.conditions, model)
        frozen = self.suite.frozen.get(line.name)
        work = work_hash(model, fixed)
        if frozen is not None and frozen.work and frozen.work != work:
            raise FomkitError(
                line.name,
                f"the model profile {name!r} differs from version {self.suite.version} of {self.suite.name!r}, "
                "which is frozen. Restore it, or make the next version: fomkit fom SUITE --freeze NEW.suite.yaml.",
            )
        proposed = self.proposals.get(line.name, Conditions())
        if unknown := sorted(set(proposed.sizes) - set(fixed.sizes)):
            known = ", ".join(["batch", "precision", "epochs", "samples", "quality", *fixed.sizes])
            raise FomkitError(line.name, f"{', '.join(unknown)} is not fixed by the line. It fixes: {known}.")
        deviating = deviations(fixed, proposed)
        run = changed_conditions(fixed, proposed)
        options = replace(
            self.options, batch=run.batch, scope=self.suite.scope, sizes=run.sizes, precision=run.precision
        )
        category = OPTIMIZED if deviating else line.category
        rated = RatedLine(line, None, "modelled", "lab", category, name, deviating, kind="missing", work=work)
        try:
            one = time_work(under_conditions(model, run), self.machine, options, line.job)
        except FomkitError as error:
            # The advice of an estimate may name its options, which a suite does not have.
            options_of = " (options of fomkit estimate)" * bool(re.search(r"(?<!\S)--[a-z]", str(error)))
            return replace(rated, missing=f"{error}{options_of}")
        if (rate := line_per_day(one, line)) is None:
            return replace(rated, missing=NO_RUN.format(name))
        return replace(
            rated,
            unit_per_day=rate,
            kind="estimated",
            precision=one.precision,
            excludes=one.excludes,
            basis=one.basis,
            estimate=one,
            source=name if one.job is None else f"{name} on {count_text(one.job.devices, 'device')}",
        )

    def _frozen(self, line: SuiteLine) -> RatedLine:
        if line.name in self.proposals:
            raise FomkitError(
                line.name,
                f"{self.machine.name} is the frozen baseline, which no proposal changes. Name another target.",
            )
        frozen = self.suite.frozen.get(line.name)
        source = f"frozen in version {self.suite.version}"
        if frozen is None:
            return _missing(line, source, f"version {self.suite.version} froze no rate")
        rate = at_level(frozen.unit_per_day, self.options.interval)
        return RatedLine(
            line, rate, frozen.basis, line.party, line.category, source, kind="frozen",
            precision=frozen.precision, work=frozen.work, excludes=frozen.excludes if frozen.work else (),
        )  # fmt: skip

    def rate(self, line: SuiteLine) -> RatedLine:
        """Rate one line: as frozen, else as given, else as estimated, else as missing."""
        if self.machine.name == self.suite.baseline and self.suite.frozen:
            return self._frozen(line)
        if self.machine.name in line.given:
            if line.name in self.proposals:
                raise FomkitError(
                    line.name,
                    f"its time on {self.machine.name} is given, so a proposal cannot change it. State the "
                    "conditions with the given time.",
                )
            return self._given(line)
        if line.model is not None:
            return self._estimated(line, line.model)
        given = ", ".join(f"'{name}'" for name in line.given)
        why = f"no time given for '{self.machine.name}', only for {given}"
        return _missing(line, "given", why)
