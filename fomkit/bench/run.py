"""Measure a machine and write its profile: first peak rates, bandwidth and launch cost, then the ops."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fomkit.bench import journal as journals
from fomkit.bench import libraries
from fomkit.bench.design import design, seeds
from fomkit.bench.journal import DESIGN, WALL_FACTOR, Clocks, Ended, Journal, Verdict, clocks_of, design_share
from fomkit.bench.libraries import LIBRARIES, Cells, Child, Wanted, cells_of, choose_library, distinct, key_of
from fomkit.bench.power import start_watching
from fomkit.bench.record import BF16_FLAGS, MATRIX_FLAGS, Subject, machine_of, read_facts
from fomkit.bench.session import PLANS, Plan, Session, square
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.files.child_process import child_command
from fomkit.frontends.model_file import check_installed
from fomkit.ops.kinds import PASS_FREE_KINDS, UNNAMED_KINDS
from fomkit.ops.precision import formats_named
from fomkit.ops.tables import empty_table
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.options import Options
from fomkit.prediction.exact import settled_ops
from fomkit.profiles.evidence import with_fits, write_fits
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model

SQUARES = (512, 1024, 2048)
"""Sides of the square products that determine the peak rates; on a GPU also larger ones."""
AMPERE = (8, 0)
VOLTA = (7, 0)


def formats_here(subject: Subject) -> list[tuple[str, str]]:
    """Return the number formats that the device multiplies, each with its engine."""
    found = [("fp32", "vector"), ("fp64", "vector")]
    if subject.device == "cuda":
        capability = tuple(subject.facts["capability"])
        found += [("fp16", "matrix")] if capability >= VOLTA else []
        return found + ([("tf32", "matrix"), ("bf16", "matrix")] if capability >= AMPERE else [])
    flags = subject.host.flags
    if flags & set(BF16_FLAGS):
        found.append(("bf16", "matrix" if flags & set(MATRIX_FLAGS) else "vector"))
    return found


def probe(session: Session, formats: list[tuple[str, str]]) -> None:
    """Time the products that determine the peaks, a stream through memory, the launch cost and fresh memory."""
    session.look()
    large = (4096, 8192) if session.subject.device == "cuda" else ()
    session.time_all([Wanted(square(side, *pair), 1.0) for pair in formats for side in (*SQUARES, *large)])
    if not session.journal.marked("bandwidth"):
        stream = LIBRARIES[session.subject.framework].stream
        answer = session.measure_op(stream)
        if "reason" not in answer:
            byte = sum(float(stream[f"{way}_byte"]) for way in ("read", "write"))
            session.journal.mark("bandwidth", byte=byte, answer=answer)
    session.host()
    session.memory()


def _tensor_lengths(estimated: Estimate, row: Mapping[str, object]) -> str:
    """Return the elements of each tensor that an update changes; "" if the layers do not add up to the row."""
    layers = estimated.model.layers
    if layers is None or not len(layers):
        return ""
    weights = (layers["parameters"] - layers["bias"]).to_numpy(np.float64)
    lengths = [int(size) for size in (*weights, *layers["bias"].to_numpy(np.float64)) if size > 0]
    tensors = row["tensors"] if row["kind"] == "optimizer" else len(lengths)
    agrees = sum(lengths) == float(str(row["numel"])) and len(lengths) == float(str(tensors))
    return " ".join(map(str, lengths)) if agrees else ""


def _wanted_of_rows(estimated: Estimate, rows: pd.DataFrame, knows_op: Callable[[Cells], bool]) -> list[Wanted]:
    found = []
    counts = rows["count"].to_numpy(np.float64)
    records = ({str(name): value for name, value in row.items()} for row in rows.to_dict("records"))
    for row, count in zip(records, counts.tolist(), strict=True):
        cells = cells_of(row)
        if cells["kind"] in UNNAMED_KINDS or not knows_op(cells):
            cells.pop("op", None)
        if cells["kind"] in PASS_FREE_KINDS:
            cells.pop("pass_name", None)
        if cells["kind"] == "optimizer" and (lengths := _tensor_lengths(estimated, row)):
            cells["lengths"] = lengths
        found.append(Wanted(cells, count / estimated.step.value, estimated.model.name))
    return found


FLUSH_FACTOR = 1.5
"""Bytes written to make caches cold, as a multiple of the largest cache."""
LEAST_FLUSH_BYTE = 48e6
"""Least number of these bytes: a virtual machine does not always see the cache that it shares."""
SLOW_KINDS = ("sparse_gemm",)
"""Kinds that the quick plan leaves out: their timings serve few models."""
FIT_S = {"quick": 12.0, "default": 30.0, "full": 120.0}
"""Time [s] of the budget reserved for the last fit."""


@dataclass(frozen=True)
class MeasureSpec:
    """The options of a measurement.

    `models`: profiles whose ops are timed; empty for ops that fill the space of sizes.
    `apart`: shapes (`libraries.shape_of`) excluded from the ops that fill the space of sizes, so that predictions
      of them are predictions of unseen shapes.
    `budget_s`: time budget [s] by the clock that times the ops; default: the plan's. Wall time may reach
      `WALL_FACTOR` times the budget if other work uses the machine.
    `library`: key of `LIBRARIES`; "" for PyTorch, or TensorFlow if only TensorFlow is installed.
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
    """The result of a measurement.

    `files`: the files written.
    `interrupted`: true if the user ended it; its timings are kept, and it can be resumed.
    `verdict`: whether the measurement is sufficient.
    """

    machine: Machine
    files: tuple[Path, ...]
    interrupted: bool
    wall_s: float
    verdict: Verdict


def _project(spec: MeasureSpec) -> Callable[[str, Machine], Estimate]:
    options = replace(spec.options, allow_uncovered=True)
    return lambda name, machine: estimate(load_model(name), machine, options)


def _check_models(spec: MeasureSpec, subject: Subject) -> None:
    """Raise FomkitError before anything is timed where a model has no step in the stated sizes and formats."""
    precision, known = spec.options.precision, {dtype for dtype, _ in formats_here(subject)}
    if precision is not None and (lacking := sorted(formats_named(precision).computed - known)):
        what = f"{precision} needs products in {' and '.join(lacking)}, which are not timed here"
        raise FomkitError(
            "precision", f"{what}; products are timed in {', '.join(sorted(known))}. Choose another one."
        )
    rate, traffic = (Fact.exact(value, "assumed", "until it is measured") for value in (1e12, 2e10))
    device = Device(tuple(Peak(*pair, rate) for pair in formats_here(subject)), byte_per_s=traffic)
    here = Machine(subject.name, subject.name, "lab", device, empty_table("TIMINGS"))
    for name in spec.models:
        _project(spec)(name, here)


def _time_ops(session: Session, spec: MeasureSpec, plan: Plan) -> None:
    formats = formats_here(session.subject)
    probe(session, formats)
    machine, library = machine_of(session.journal, session.subject), LIBRARIES[session.subject.framework]
    if spec.models:
        estimates = [_project(spec)(name, machine) for name in spec.models]
        found: list[Wanted] = []
        for estimated in estimates:
            settled = settled_ops(estimated.ops, machine)
            found += _wanted_of_rows(estimated, settled[settled["kind"] != "other"], library.knows_op)
        session.wanted = distinct(found)
        session.time_best(session.wanted)
        return
    rates = {(peak.dtype, peak.engine): peak.rate.value for peak in machine.device.peaks}
    bandwidth = machine.device.byte_per_s
    chosen = [pair for pair in formats if pair in rates][: 1 if plan.name == "quick" else None]
    ops = design(chosen, plan.shapes, plan.op_s, rates, bandwidth.value if bandwidth else 1e9)
    if plan.name == "quick":
        ops = [one for one in ops if one.cells["kind"] not in SLOW_KINDS]
    ops, missing = libraries.in_words_of(library, ops)
    session.journal.say(*missing)
    ops = [one for one in ops if libraries.shape_of(one.cells) not in spec.apart]
    session.wanted = ops
    session.time_all(seeds(ops))
    session.time_best(ops)


def _journal(spec: MeasureSpec, subject: Subject) -> Journal:
    facts = subject.facts
    library = f"{subject.framework} {facts['library_version']}"
    about = {"device": subject.title, "threads": facts["threads"], "library": library}
    journal = Journal(journals.journal_path(spec.output), about)
    if spec.resume:
        journal.resume()
    else:
        journal.begin()
    return journal


def start_child(setup: Mapping[str, Any]) -> Child:
    """Make the timing process, a context manager that starts when it is entered."""
    return Child(child_command(LIBRARIES[setup["library"]].worker), setup)


def resume_command(spec: MeasureSpec) -> str:
    """Return the command that resumes a measurement."""
    options, words = spec.options, ["fomkit", "measure", "--resume"]
    words += [f"--{spec.plan}"] if spec.plan != "default" else []
    words += [word for name in spec.models for word in ("--for", name)]
    words += ["--batch", str(options.batch)] if options.batch else []
    words += [word for name, size in options.sizes.items() for word in ("--set", f"{name}={size}")]
    words += ["--precision", options.precision] if options.precision else []
    words += ["--device", spec.device] if spec.device != "cpu" else []
    words += ["--threads", str(spec.threads)] if spec.threads != 1 else []
    words += ["--library", spec.library] if spec.library else []
    words += ["--name", spec.name] if spec.name else []
    return shlex.join([*words, "-o", str(spec.output)])


def _verdict_on(
    session: Session, spec: MeasureSpec, clocks: Clocks, begun: tuple[float, float], ended: Ended
) -> Verdict:
    """Return the verdict on a written profile, from the machine as an estimate would load it."""
    machine = with_fits(load_machine(spec.output))
    shares = journals.model_shares(spec.models, machine, _project(spec)) if spec.models else {}
    shares = shares or {DESIGN: design_share(session.wanted, machine)}
    answers = session.journal.answers
    received = [answers[key_of(one.cells)][1] for one in session.wanted if key_of(one.cells) in answers]
    waiting = ended == "interrupted" or len(received) < len(session.wanted)
    return Verdict(
        shares=shares,
        wanted=len(session.wanted),
        timed=sum("reason" not in answer for answer in received),
        own_s=clocks.own() - begun[0],
        wall_s=clocks.wall() - begun[1],
        budget_s=spec.budget_s or PLANS[spec.plan].budget_s,
        clock=clocks.name,
        ended=ended if waiting else "done",
        resume=resume_command(spec) if waiting else "",
    )


def measure(
    spec: MeasureSpec,
    advance: Callable[[str], None] = lambda _text: None,
    start: Callable[[Mapping[str, Any]], Child] = start_child,
    choose_clocks: Callable[[MeasureSpec, Child], Clocks] = (
        lambda spec, child: clocks_of(spec.device, spec.threads, child.spent_s)
    ),
) -> Measured:
    """Measure this machine and write its profile, with the fits of its timings.

    The budget is counted by the clock that times the ops, so that other work on the machine prolongs the run but
    costs no timings; by wall time the run ends after `WALL_FACTOR` times the budget. An interrupt
    (KeyboardInterrupt) ends it early: the profile then has the timings so far, and `MeasureSpec.resume` continues.

    `advance`: called with a message before each op; `start`: makes the timing process, which has ``facts`` once it
    is entered; `choose_clocks`: returns the clocks that count the time.
    """
    plan = PLANS[spec.plan]
    budget_s = spec.budget_s or plan.budget_s
    library, why = choose_library(spec.library, spec.device)
    if start is start_child:
        check_installed(library.name, "measure")
    for name in spec.models:
        load_model(name)  # report its mistakes before anything is timed
    host = read_facts()
    ended: Ended = "budget"
    flush = max(FLUSH_FACTOR * host.last_cache_byte, LEAST_FLUSH_BYTE)
    name = spec.name or spec.output.name.removesuffix(".yaml")
    subject = Subject(name, spec.device, host, {}, library.name)
    if spec.device == "cpu":
        _check_models(spec, subject)  # of a GPU only the process that times knows the number formats
    setup = {"device": spec.device, "threads": spec.threads, "cache_byte": flush, "library": library.name}
    with start(setup) as child:
        clocks = choose_clocks(spec, child)
        begun = clocks.own(), clocks.wall()
        subject = replace(subject, facts=child.facts)
        _check_models(spec, subject)
        journal = _journal(spec, subject)
        journal.say(why, *library.notes)
        ends = begun[0] + budget_s - FIT_S[plan.name]
        session = Session(
            plan, journal, subject, child, ends, spec.seed, advance, clock=clocks.own, wall=clocks.wall,
            gives_up=begun[1] + WALL_FACTOR * budget_s,
        )  # fmt: skip
        try:
            session.around = start_watching(journal, spec.device)
            _time_ops(session, spec, plan)
            ended = "wall" if session.wall_is_over() else "budget"
            session.look()
        except KeyboardInterrupt:
            ended = "interrupted"
    return _write_result(session, spec, clocks, begun, ended)


def _write_result(
    session: Session, spec: MeasureSpec, clocks: Clocks, begun: tuple[float, float], ended: Ended
) -> Measured:
    """Write the profile with its verdict; delete the journal if the measurement need not be resumed."""
    machine = machine_of(session.journal, session.subject)
    save_machine(machine, spec.output)
    files = write_fits(load_machine(spec.output), spec.output)
    verdict = _verdict_on(session, spec, clocks, begun, ended)
    machine = replace(machine, notes=(*machine.notes, *verdict.lines()))
    files = [*save_machine(machine, spec.output), *files]
    if not verdict.resume or (verdict.sufficient and ended != "interrupted"):
        session.journal.close()
    return Measured(machine, tuple(files), ended == "interrupted", verdict.wall_s, verdict)
