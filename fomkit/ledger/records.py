"""The inputs of a workbook: machines, workloads, ops of each workload on each machine, and what is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fomkit.fom import MEAN
from fomkit.hardware import Machine, Scope
from fomkit.spans import DEFAULT_LEVEL, Span
from fomkit.workload import Data, Run, Unit


@dataclass(frozen=True)
class Given:
    """The time of one unit of work on one device set, as somebody stated it or as it was computed elsewhere."""

    unit_s: Span
    basis: str
    party: str
    source: str = ""


@dataclass(frozen=True)
class OpLine:
    """One op of a workload on a machine, or all ops that are alike.

    Its time is either ``max(flop / peak, byte / bandwidth) / utilisation + starts · launch cost``, which moves
    with the machine's facts, or ``time_s``, which does not. With neither the op is unpriced.

    Attributes
    ----------
    sizes : str
        Kind and dimensions as text.
    dtype, engine : str
        Those of the peak that bounds it.
    count : float
        Executions per step.
    launches : float
        Kernels the host starts for one execution; NaN is unknown.
    flop, byte : float
        Work of one execution [flop, byte]; NaN is unknown.
    utilisation : float or None
        Floor over kernel time; None where the time is an input.
    starts : float
        Kernel starts that its time holds beside the kernel itself.
    time_s : float or None
        Time of one execution as an input [s].
    low, high : float
        Ends of the interval as ratios to the time.
    evidence : str
        What the utilisation or the time rests on.
    dimensions : tuple of (name, size)
        Those of the table of ops, as many as the kind has.
    """

    op: str
    kind: str
    sizes: str
    dtype: str
    engine: str
    pass_name: str
    count: float
    launches: float
    flop: float
    byte: float
    time_source: str
    bound: str
    evidence: str
    utilisation: float | None = None
    starts: float = 0.0
    time_s: float | None = None
    low: float = 1.0
    high: float = 1.0
    dimensions: tuple[tuple[str, float | str], ...] = ()

    @property
    def phase(self) -> str:
        """forward, backward or update."""
        return self.pass_name.partition("_")[0]


@dataclass(frozen=True)
class WorkloadFacts:
    """A line of work: what makes one run of it and one unit, and times that were given for it.

    Attributes
    ----------
    batch : int or None
        Samples in one step.
    given : mapping
        Stated times by machine; empty where it is estimated.
    weight : float
        Weight in the weighted means.
    category, basis, party : str
        As in a suite; "" elsewhere.
    made_with : tuple of (what, text)
        What traced its model, and the parameters of it.
    """

    name: str
    title: str = ""
    batch: int | None = None
    data: Data = field(default_factory=Data)
    run: Run = field(default_factory=Run)
    unit: Unit = field(default_factory=Unit)
    given: Mapping[str, Given] = field(default_factory=dict)
    weight: float = 1.0
    required: bool = True
    category: str = ""
    basis: str = ""
    party: str = ""
    made_with: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Case:
    """One workload on one machine: its ops, and what was said of them.

    Attributes
    ----------
    precision : str
        Name and meaning of the number formats.
    excludes, deviations : tuple of str
        What the estimate leaves out, and what it did differently from what was asked.
    unfit : str
        That no device holds its step, in words; "" where one does or nobody knows.
    """

    workload: str
    machine: str
    ops: tuple[OpLine, ...]
    precision: str = ""
    excludes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    unfit: str = ""


@dataclass(frozen=True)
class Ledger:
    """All inputs of a workbook.

    Attributes
    ----------
    machines : tuple of Machine
        Facts only, the baseline last; their tables of timings stay behind.
    cases : tuple of Case
        Those that are estimated; a workload with given times has none.
    targets : tuple of str
        Machines to rate, the first of which the defined names are about.
    baseline : str or None
        Machine to compare with.
    mean : str
        A key of `fomkit.fom.means.MEANS`.
    threshold : float or None
        The figure of merit to reach.
    worst_basis : str
        The weakest basis that a figure of merit rests on; "" where there is none.
    deviations : tuple of (machine, text)
        What differs from what the lines fix.
    caveats : tuple of (machine, text)
        What the headline must not be read without: what rates leave out, steps that no device holds, what
        measured runs say; "" for the machine where it is of no single one.
    uses : mapping
        What use in a step adds to the sum of a group of ops whose times rest on a table of single kernels: ends of
        its interval as ratios to the sum.
    widened : tuple of str
        The machines with such tables.
    rounds : tuple of (machine, text)
        What happened to the figures before, oldest first.
    """

    title: str
    scope: Scope
    machines: tuple[Machine, ...]
    workloads: tuple[WorkloadFacts, ...]
    cases: tuple[Case, ...]
    targets: tuple[str, ...]
    baseline: str | None = None
    level: float = DEFAULT_LEVEL
    mean: str = MEAN
    threshold: float | None = None
    worst_basis: str = ""
    deviations: tuple[tuple[str, str], ...] = ()
    caveats: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    rounds: tuple[tuple[str, str], ...] = ()
    uses: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    widened: tuple[str, ...] = ()

    def machine(self, name: str) -> Machine:
        """Find a machine by name."""
        return next(one for one in self.machines if one.name == name)

    def workload(self, name: str) -> WorkloadFacts:
        """Find a workload by name."""
        return next(one for one in self.workloads if one.name == name)
