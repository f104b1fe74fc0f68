"""Check the whole chain on this machine: measure ops, estimate the steps of ten models, and time those steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple, TypedDict

from fomkit import __version__
from fomkit.bench.model_steps import NO_ENERGY
from fomkit.bench.record import BF16_FLAGS, read_facts, read_moment
from fomkit.bench.run import Measured, MeasureSpec, measure
from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span
from fomkit.core.machine import Machine
from fomkit.core.measurement import MeasuredRun, StepEnergy
from fomkit.core.units import Precision, agree, count_text
from fomkit.frontends.model_file import check_installed
from fomkit.frontends.profile import profile_file
from fomkit.plan.content import as_content
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.profiles.machines import load_machine
from fomkit.validation import here_scores
from fomkit.validation.here_scores import SOURCES, Compared, Trace, Traced, cases_of, shapes_of, step_of, time_step
from fomkit.validation.scores import Aim, AimContent, Range, ScoreContent, check_aims, score

QUICK_RATIO = ("multilayer_perceptron", "convolutional", "autoencoder", "p1b3")
"""Models that the quick plan also times on two threads: products and convolutions use both threads."""
QUICK_NARROW = ("multilayer_perceptron", "convolutional", "encoder")
"""Models that the quick plan also times in a narrower number format."""
NARROW: Precision = "bf16"
THREADS = 2
MIN_FREE_CORES = 0.5
"""Cores that must be free, by the mean load of a minute, before threads are timed; our own load is about 1."""
BUDGET_S = {"quick": 240.0, "default": 900.0}
"""Time budget [s] of each profile; more than the plans have, because ten models have more ops than one."""
Reporter = Callable[[str], None]


class Tools(NamedTuple):
    """Functions that touch the machine; tests replace them."""

    trace: Trace = profile_file
    time_step: Callable[[Traced, int, str], MeasuredRun] = time_step
    measure: Callable[[MeasureSpec, Reporter], Measured] = measure
    cores: Callable[[], int] = lambda: read_facts().cores or 1
    load: Callable[[], float | None] = lambda: read_moment().load
    narrow: Callable[[], bool] = lambda: bool(read_facts().flags & set(BF16_FLAGS))


@dataclass(frozen=True)
class Ratio:
    """Ratio of a model's plain step to its step on more threads or in a narrower format, projected and timed."""

    name: str
    timed: float
    projected: float
    threads: int = 1
    precision: str = ""


@dataclass(frozen=True)
class Proof:
    """The result of a check on this machine.

    `exact`, `unseen`: the same steps, estimated from a profile with the ops' exact shapes, and from one without.
    `drift`: median step after all measurements over median step before them, less 1, by model.
    `widths`: half the 95 % interval of the median step before, relative to the median; None if unknown.
    `seconds`: wall time [s] of each part of the check.
    `skipped` (str, str): what was left out, and why.
    `energy`: energy of a model's step, if an instrument could be read.
    """

    exact: tuple[Compared, ...]
    unseen: tuple[Compared, ...]
    ratios: tuple[Ratio, ...] = ()
    drift: dict[str, float] = field(default_factory=dict)
    widths: dict[str, float | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    level: float = DEFAULT_LEVEL
    energy: dict[str, StepEnergy] = field(default_factory=dict)


def _steps(
    traced: Sequence[Traced], machine: Machine, *, unseen: bool, precision: Precision | None = None
) -> Iterator[tuple[str, Span]]:
    # Without the harness name, so that intervals are not widened by the errors of these same models.
    bare = replace(machine, timings=machine.timings.assign(harness=""))
    for one in traced:
        found = estimate(one.model, bare, Options(interval=DEFAULT_LEVEL, precision=precision))
        if unseen and (hits := found.ops["time_source"].tolist().count("measured")):
            raise FomkitError(
                one.model.name,
                f"{hits} of its ops have their exact shape in the profile that must have none. Report this.",
            )
        yield one.model.name, found.step


def _compared(
    traced: Sequence[Traced], machine: Machine, timed: dict[str, float], *, unseen: bool
) -> tuple[Compared, ...]:
    spans = _steps(traced, machine, unseen=unseen)
    steps = [Compared(name, timed[name], span) for name, span in spans if name in timed]
    return tuple(here_scores.widen_leave_one_out(steps))


PARTS = 9
"""Parts of the check: traces, steps before and after, two profiles, a profile and steps for each of two ratios."""


class _Proving:
    """State of a running check: its tools, the time spent and the skipped parts."""

    def __init__(self, folder: Path, quick: bool, tools: Tools, tell: Reporter) -> None:
        self.folder, self.plan, self.tools, self._tell = folder, "quick" if quick else "default", tools, tell
        self.seconds: dict[str, float] = {}
        self.skipped: list[tuple[str, str]] = []

    def tell(self, text: str) -> None:
        """Report what is done now, and the number of this part."""
        self._tell(f"part {len(self.seconds) + 1} of {PARTS}: {text}")

    def spent(self, what: str, since: float) -> None:
        self.seconds[what] = time.monotonic() - since

    def times(
        self, traced: Sequence[Traced], when: str, threads: int = 1, precision: str = ""
    ) -> dict[str, MeasuredRun]:
        """Time the steps; a step that fails is left out and its reason recorded."""
        begun, found = time.monotonic(), dict[str, MeasuredRun]()
        for one in traced:
            self.tell(f"timing the step of {one.model.name}, {when}")
            try:
                found[one.model.name] = self.tools.time_step(one, threads, precision)
            except FomkitError as error:
                self.skipped.append((one.model.name, error.what))
        self.spent(f"steps, {when}", begun)
        return found

    def machine(self, name: str, **settings: object) -> Machine:
        begun, path = time.monotonic(), self.folder / f"{name}.yaml"
        wanted = MeasureSpec(path, plan=self.plan, name=name, budget_s=BUDGET_S[self.plan], **settings)  # type: ignore[arg-type]
        self.tools.measure(wanted, lambda text: self.tell(f"{name} profile: {text}"))
        self.spent(f"profile, {name}", begun)
        return load_machine(path)


def _medians(runs: dict[str, MeasuredRun]) -> dict[str, float]:
    return {name: step_of(run, name).median_s for name, run in runs.items()}


def _width(run: MeasuredRun, name: str) -> float | None:
    found = step_of(run, name)
    if found.low_s is None or found.high_s is None:
        return None
    return (found.high_s - found.low_s) / 2 / found.median_s


class _Other(NamedTuple):
    """The second machine of a ratio: this machine with other threads or another number format."""

    name: str
    quick: Sequence[str]
    threads: int = 1
    precision: Precision | None = None


def _ratios(
    proving: _Proving, traced: Sequence[Traced], one: Machine, timed: dict[str, float], other: _Other
) -> Iterator[Ratio]:
    """Yield ratios of the plain step to the step on the other machine, projected from both profiles and timed."""
    if proving.plan == "quick":
        traced = [some for some in traced if some.model.name in other.quick]
    models, precision = tuple(str(some.path) for some in traced), other.precision or ""
    if not models:
        return
    options = Options(precision=other.precision)
    machine = proving.machine(other.name, models=models, threads=other.threads, options=options)
    runs = _medians(proving.times(traced, other.name, other.threads, precision))
    ours = dict(_steps(traced, one, unseen=False))
    theirs = dict(_steps(traced, machine, unseen=False, precision=other.precision))
    for name, time_s in runs.items():
        if name in timed:
            projected = ours[name].value / theirs[name].value
            yield Ratio(name, timed[name] / time_s, projected, other.threads, precision)


def _over_threads(
    proving: _Proving, traced: Sequence[Traced], machine: Machine, timed: dict[str, float]
) -> Iterator[Ratio]:
    """Yield ratios of one thread to `THREADS`, unless there are too few free cores."""
    cores, load = proving.tools.cores(), proving.tools.load()
    if cores < THREADS:
        proving.skipped.append(("ratio of threads", f"there {agree(cores, 'is/are')} {count_text(cores, 'core')}"))
    elif load is not None and load > cores - MIN_FREE_CORES:
        why = f"the load is {load:.2g} on {count_text(cores, 'core')}: threads would wait for other processes"
        proving.skipped.append(("ratio of threads", why))
    else:
        yield from _ratios(proving, traced, machine, timed, _Other("two-threads", QUICK_RATIO, THREADS))


def _over_narrow(
    proving: _Proving, traced: Sequence[Traced], machine: Machine, timed: dict[str, float]
) -> list[Ratio]:
    """Return ratios of the plain step to the step under autocast; on an error record the reason instead."""
    why = f"the processor does not multiply {NARROW} numbers"
    if proving.tools.narrow():
        try:
            return list(_ratios(proving, traced, machine, timed, _Other(NARROW, QUICK_NARROW, precision=NARROW)))
        except FomkitError as error:
            why = str(error)
    proving.skipped.append((f"ratio of fp32 and {NARROW}", why))
    return []


def _prove(proving: _Proving, names: Sequence[str]) -> Proof:
    begun = time.monotonic()
    traced = here_scores.trace_models(names, proving.folder, proving.tell, proving.tools.trace)
    proving.spent("tracing", begun)
    before = proving.times(traced, "before")
    apart = frozenset().union(*(shapes_of(one.model) for one in traced))
    unseen = proving.machine("unseen", apart=apart)
    exact = proving.machine("exact", models=tuple(str(one.path) for one in traced))
    after = proving.times(traced, "after")
    first, last = _medians(before), _medians(after)
    timed = {name: geometric_mean([first[name], last[name]]) for name in first if name in last}
    ratios = (*_over_threads(proving, traced, exact, timed), *_over_narrow(proving, traced, exact, timed))
    energy = {name: run.energy for name, run in before.items() if run.energy is not None}
    why = [note for run in before.values() for note in run.notes if note.startswith(NO_ENERGY)]
    if why and not energy:
        proving.skipped.append(("energy", why[0].removeprefix(NO_ENERGY)))
    return Proof(
        exact=_compared(traced, exact, timed, unseen=False),
        unseen=_compared(traced, unseen, timed, unseen=True),
        ratios=ratios,
        drift={name: last[name] / first[name] - 1 for name in timed},
        widths={name: _width(before[name], name) for name in timed},
        seconds=proving.seconds,
        skipped=tuple(proving.skipped),
        notes=exact.notes,
        energy=energy,
    )


def prove_here(
    *,
    quick: bool = False,
    names: Sequence[str] = SOURCES,
    tell: Reporter = lambda _text: None,
    tools: Tools | None = None,
) -> Proof:
    """Measure this machine, estimate the steps of ten models and time them.

    `quick`: use the quick plan of ``fomkit measure``, and fewer models on two threads; `names`: sources below
    ``model_profiles/src``; `tell`: called with a message before each part; `tools`: trace, measure and time
    models, default: on this machine. Raises FomkitError when PyTorch is missing, nothing can be timed, or the
    profile without the models' shapes has one of them.
    """
    if tools is None:
        check_installed("torch", "measure")
    with tempfile.TemporaryDirectory(prefix="fomkit-") as folder:
        proving = _Proving(Path(folder), quick, tools or Tools(), tell)
        found = _prove(proving, names)
    if not found.exact:
        why = found.skipped[0][1] if found.skipped else "none was requested"
        raise FomkitError("validate --here", f"no step could be timed: {why}")
    return found


SCHEMA = "fomkit/here/1"
EXACT, UNSEEN = "exact shapes", "unseen shapes"
TARGETS = {EXACT: (0.06, 0.15), UNSEEN: (0.15, 0.40)}
"""Median error expected of a quiet core, and the error above which the command fails; busy cores have more."""

StepContent = TypedDict("StepContent", {"value_s": float, "low_s": float, "high_s": float, "error": float,
                                        "hit": bool, "interval_score": float})  # fmt: skip
StepJoule = TypedDict(
    "StepJoule", {"value_j": float, "low_j": float, "high_j": float, "scope": str, "source": str}
)
ModelContent = TypedDict("ModelContent", {
    "model": str, "timed_s": float, "half_width": float | None, "drift": float | None, "exact": StepContent,
    "unseen": StepContent, "energy": StepJoule | None,
})  # fmt: skip
RatioContent = TypedDict("RatioContent", {"model": str, "threads": int, "precision": str | None, "timed": float,
                                          "projected": float, "error": float})  # fmt: skip
Skipped = TypedDict("Skipped", {"what": str, "reason": str})
HereContent = TypedDict("HereContent", {
    "schema": str, "fomkit": str, "interval": float, "regressed": bool, "models": list[ModelContent],
    "lines": list[ScoreContent], "ratios": list[RatioContent], "aims": list[AimContent],
    "seconds": dict[str, float], "skipped": list[Skipped], "notes": list[str],
})  # fmt: skip


def _step(compared: Compared) -> StepContent:
    ends = dict(zip(("value_s", "low_s", "high_s"), compared.span.ends, strict=True))
    return as_content(StepContent, ends, compared, interval_score=compared.score)


def content_of(proof: Proof) -> HereContent:
    """Return everything as plain content (``fomkit/here/1``)."""
    groups = ((EXACT, proof.exact), (UNSEEN, proof.unseen))
    lines = [score(cases_of(steps), name, "model", "here", "step", interval=proof.level) for name, steps in groups]
    aims = [
        Aim(name, "model", "here", "step", "median", Range(0.0, target), Range(0.0, tolerance))
        for name, (target, tolerance) in TARGETS.items()
    ]
    verdicts = check_aims(lines, aims)
    models = [
        as_content(
            ModelContent, exact, model=exact.name, half_width=proof.widths[exact.name],
            drift=proof.drift[exact.name], exact=_step(exact), unseen=_step(unseen),
            energy=proof.energy.get(exact.name),
        )
        for exact, unseen in zip(proof.exact, proof.unseen, strict=True)
    ]  # fmt: skip
    ratios = [as_content(RatioContent, one, model=one.name, error=one.projected / one.timed - 1)
              for one in proof.ratios]  # fmt: skip
    return as_content(
        HereContent, proof, schema=SCHEMA, fomkit=__version__, interval=proof.level, models=models, lines=lines,
        regressed=not all(verdict.kept for verdict in verdicts), ratios=ratios,
        aims=[as_content(AimContent, verdict, verdict.aim) for verdict in verdicts],
        seconds={name: round(time_s, 1) for name, time_s in proof.seconds.items()},
        skipped=[{"what": what, "reason": why} for what, why in proof.skipped],
    )  # fmt: skip
