"""Measuring a machine from the first process to the written profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fomkit.hardware import Machine
from fomkit.measure.design import design, seeds
from fomkit.measure.journal import Journal, journal_path
from fomkit.measure.libraries import LIBRARIES, Library, choose_library, in_words_of
from fomkit.measure.ops import Wanted, shape_of
from fomkit.measure.plans import PLANS, Plan
from fomkit.measure.power import start_watching
from fomkit.measure.probes import formats_here, probe
from fomkit.measure.record import Subject, machine_of
from fomkit.measure.session import Session
from fomkit.measure.wanted import ops_of_models
from fomkit.profiles import load_model, save_machine
from fomkit.study import Options, estimate
from fomkit.study.fits import make_fits
from fomkit.timings.measure_child import Child
from fomkit.timings.measure_facts import read_facts
from fomkit.trace.child_process import child_command
from fomkit.trace.doors import check_installed

CACHES = 1.5
"""Bytes that make caches cold, as a multiple of the largest."""
LEAST_FLUSH_BYTE = 48e6
"""And at least so many: a guest is not always told the cache it shares."""
SLOW_KINDS = ("sparse_gemm",)
"""Kinds that the quick plan leaves out: their timings serve few models."""
FIT_S = {"quick": 12.0, "default": 30.0, "full": 120.0}
"""Time [s] that is kept for the last fit."""


@dataclass(frozen=True)
class Asked:
    """What the user asked of a measurement.

    Attributes
    ----------
    output : Path
        Of the machine profile.
    plan : str
        A key of `PLANS`.
    models : tuple of str
        Profiles whose ops are timed; empty for ops that fill the space of sizes.
    device : str
        ``cpu`` or ``cuda``.
    apart : frozenset
        Shapes (`fomkit.measure.ops.shape_of`) that are left out of the ops that fill the space of sizes, so that
        a prediction of them is one of unseen shapes.
    budget_s : float or None
        Wall time [s] at most; default: the plan's.
    library : str
        What runs the ops, of `LIBRARIES`; "" for PyTorch, or TensorFlow where only that is here.
    """

    output: Path
    plan: str = "default"
    models: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    device: str = "cpu"
    threads: int = 1
    seed: int = 0
    resume: bool = False
    name: str = ""
    apart: frozenset[tuple[str, ...]] = frozenset()
    budget_s: float | None = None
    library: str = ""


@dataclass(frozen=True)
class Measured:
    """What came of a measurement.

    Attributes
    ----------
    machine : Machine
    files : tuple of Path
        Written.
    interrupted : bool
        Where the user ended it; what was measured is kept, and can be resumed.
    """

    machine: Machine
    files: tuple[Path, ...]
    interrupted: bool
    wall_s: float


def _wanted_of_models(session: Session, asked: Asked) -> list[Wanted]:
    machine = machine_of(session.journal, session.subject)
    options = asked.options
    estimates = [
        estimate(load_model(name), machine, Options(batch=options.batch, sizes=options.sizes,
                                                    precision=options.precision, allow_uncovered=True))
        for name in asked.models
    ]  # fmt: skip
    return ops_of_models(estimates, machine, LIBRARIES[session.subject.framework].knows_op)


def _time_ops(session: Session, asked: Asked, plan: Plan) -> None:
    formats = formats_here(session)
    probe(session, formats)
    if asked.models:
        session.time_best(_wanted_of_models(session, asked))
        return
    machine = machine_of(session.journal, session.subject)
    rates = {(peak.dtype, peak.engine): peak.rate.value for peak in machine.device.peaks}
    bandwidth = machine.device.byte_per_s
    chosen = [pair for pair in formats if pair in rates][: 1 if plan.name == "quick" else None]
    ops = design(chosen, plan.shapes, plan.op_s, rates, bandwidth.value if bandwidth else 1e9)
    if plan.name == "quick":
        ops = [one for one in ops if one.cells["kind"] not in SLOW_KINDS]
    ops, missing = in_words_of(LIBRARIES[session.subject.framework], ops)
    _say(session.journal, missing)
    ops = [one for one in ops if shape_of(one.cells) not in asked.apart]
    session.time_all(seeds(ops))
    session.time_best(ops)


def _say(journal: Journal, lines: Iterable[str]) -> None:
    """Add lines to the notes, each once, also when a run goes on."""
    said = {one["said"] for one in journal.marked("said")}
    for line in lines:
        if line and line not in said:
            journal.mark("said", said=line)


def _subject(asked: Asked, child: Child, library: Library) -> Subject:
    name = asked.name or asked.output.name.removesuffix(".yaml")
    return Subject(name, asked.device, read_facts(), child.facts, library.name)


def _journal(asked: Asked, subject: Subject) -> Journal:
    facts = subject.facts
    library = f"{subject.framework} {facts['library_version']}"
    about = {"device": subject.title, "threads": facts["threads"], "library": library}
    journal = Journal(journal_path(asked.output), about)
    if asked.resume:
        journal.resume()
    else:
        journal.begin()
    return journal


def start_child(setup: Mapping[str, Any]) -> Child:
    """Make the process that times ops, to be entered."""
    return Child(child_command(LIBRARIES[setup["library"]].worker), setup)


def measure(
    asked: Asked,
    advance: Callable[[str], None] = lambda _text: None,
    start: Callable[[Mapping[str, Any]], Child] = start_child,
) -> Measured:
    """Measure this machine and write its profile, with the fits of its timings.

    An interrupt (KeyboardInterrupt) ends it early: the profile then holds what was measured, and `Asked.resume`
    goes on from there.

    Parameters
    ----------
    asked : Asked
    advance : function of a text
        Told before each op.
    start : function of the setup
        Makes what times ops, and has ``facts`` once it is entered.

    Raises
    ------
    FomkitError
        When nothing can be timed here, or there is nothing to resume.
    """
    begun, plan = time.monotonic(), PLANS[asked.plan]
    library, why = choose_library(asked.library, asked.device)
    if start is start_child:
        check_installed(library.name, "measure")
    for name in asked.models:
        load_model(name)  # a mistake in it is told before anything is timed
    host, interrupted = read_facts(), False
    flush = max(CACHES * host.last_cache_byte, LEAST_FLUSH_BYTE)
    setup = {"device": asked.device, "threads": asked.threads, "cache_byte": flush, "library": library.name}
    with start(setup) as child:
        subject = _subject(asked, child, library)
        journal = _journal(asked, subject)
        _say(journal, [why, *library.said])
        ends = begun + (asked.budget_s or plan.budget_s) - FIT_S[plan.name]
        session = Session(plan, journal, subject, child, ends, asked.seed, advance)
        try:
            session.around = start_watching(journal, asked.device)
            _time_ops(session, asked, plan)
            session.look()
        except KeyboardInterrupt:
            interrupted = True
    machine = machine_of(journal, subject)
    files = save_machine(machine, asked.output)
    files += _fits(asked.output)
    if not interrupted:
        journal.close()
    return Measured(machine, tuple(files), interrupted, time.monotonic() - begun)


def _fits(output: Path) -> list[Path]:
    from fomkit.profiles import load_machine

    machine = load_machine(output)
    if not len(machine.timings):
        return []
    path = output.with_name(f"{output.stem}.fits.json")
    make_fits(machine, path)
    return [path]
