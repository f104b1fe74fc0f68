"""The suite noun: lines of work, their conditions, what was stated of them, what a ratio's sides leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from fomkit.core.interval import Span
from fomkit.core.job import Job
from fomkit.core.machine import Basis, Party, Scope
from fomkit.core.units import Precision

Category = Literal["baseline", "ported", "optimized"]
MeanName = Literal["ratio_of_harmonic_means", "weighted_harmonic", "harmonic", "geometric", "arithmetic"]

OPTIMIZED: Category = "optimized"


@dataclass(frozen=True)
class Conditions:
    """What a line of work fixes, or a proposal changes; None where nobody states it.

    `batch`: samples in one step.
    `precision`: number formats of the step.
    `epochs`, `samples`: epochs of one run, training samples of one epoch.
    `quality`: what the trained model must reach, as text: ``validation accuracy 0.95``.
    `sizes`: other named sizes of the model.
    """

    batch: int | None = None
    precision: Precision | None = None
    epochs: int | None = None
    samples: int | None = None
    quality: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def stated(self) -> dict[str, int | str]:
        """Give what is stated, by name; a named size stands under its own."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "sizes"}
        return {**{name: value for name, value in plain.items() if value is not None}, **self.sizes}


@dataclass(frozen=True)
class GivenTime:
    """The time of one run of a line on one machine's device set, as somebody stated it.

    `run_s`: the ends equal the value where nobody stated a spread [s].
    `relative_rate`: instead of a time, how many times faster than a reference one device is; ``run_s`` is then a
      day divided by it, so that a rate is a multiple of the reference's.
    `basis`, `party`: what kind of figure it is, and whose.
    `category`: whether the run used the line's own code, a ported or an optimized one.
    `conditions`: those under which it holds, as far as they are stated.
    `utilisation_gain`, `precision_gain`: stated factors on the machine's rate, from keeping more of it busy and
      from arithmetic in narrower formats.
    """

    run_s: Span
    basis: Basis
    party: Party
    category: Category
    conditions: Conditions = field(default_factory=Conditions)
    source: str = ""
    relative_rate: float | None = None
    utilisation_gain: float = 1.0
    precision_gain: float = 1.0


@dataclass(frozen=True)
class SuiteLine:
    """One line of a suite: a unit of work, given per machine, estimated from a model profile, or both.

    `unit`: what one unit of work is.
    `runs`: runs of the workload in one unit.
    `weight`: weight in the weighted means.
    `given`: stated times by machine; they go before an estimate.
    `model`: model profile to estimate where no time is given.
    `job`: how a run is spread over nodes; None where the line does not say.
    """

    name: str
    required: bool
    category: Category
    basis: Basis
    party: Party
    unit: str = "run"
    runs: float = 1.0
    weight: float = 1.0
    given: Mapping[str, GivenTime] = field(default_factory=dict)
    model: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    job: Job | None = None

    @property
    def is_relative(self) -> bool:
        """True where rates are multiples of a reference's, and no times."""
        return any(one.relative_rate is not None for one in self.given.values())


@dataclass(frozen=True)
class FrozenRate:
    """Units per day of one line on the baseline, as they were when the version was frozen.

    `precision`: number formats of most of the arithmetic; "" for a given time.
    `work`: hash of what an estimated line ran (`fomkit.merit.rated_lines.work_hash`); "" for a given time.
    `excludes`: what an estimated line leaves out because nobody stated it; None where the file does not say.
    """

    unit_per_day: Span
    basis: Basis
    precision: str = ""
    work: str = ""
    excludes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Campaign:
    """A number of units of one line to be done on the whole machine."""

    name: str
    line: str
    units: float


@dataclass(frozen=True)
class Suite:
    """Lines of work over which a figure of merit is taken.

    `threshold`: the figure of merit that a proposal has to reach.
    `frozen`: the baseline's rates of this version by line; empty where nobody froze them.
    """

    name: str
    title: str
    version: int
    baseline: str
    scope: Scope
    lines: tuple[SuiteLine, ...]
    mean: MeanName = "ratio_of_harmonic_means"
    threshold: float | None = None
    notes: tuple[str, ...] = ()
    frozen: Mapping[str, FrozenRate] = field(default_factory=dict)
    campaigns: tuple[Campaign, ...] = ()


@dataclass(frozen=True)
class Phase:
    """One phase of a workflow: so many runs of a model, or units of a suite's line.

    `runs`: trainings, passes over the samples of inference, or units of the line.
    `basis`, `source`: what kind of figure the number of runs is, and where it is from.
    `model`: model profile; None where ``suite`` and ``line`` name the work.
    `mode`: train, or infer: one run is then one pass over ``conditions.samples``.
    `job`: how each training is spread over devices; None takes those that the model's run says.
    """

    name: str
    runs: float
    basis: Basis
    source: str
    model: str | None = None
    mode: Literal["train", "infer"] = "train"
    conditions: Conditions = field(default_factory=Conditions)
    suite: str = ""
    line: str = ""
    job: Job | None = None


@dataclass(frozen=True)
class Workflow:
    """Phases that a campaign does one after the other, each on the whole machine."""

    name: str
    title: str
    phases: tuple[Phase, ...]
    notes: tuple[str, ...] = ()
