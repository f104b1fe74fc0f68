"""Restrict a workbook to what one vendor may see, and make the pack of ops that a vendor is asked to time.

A vendor sees its own machine, the work, and the baseline's units a day. No text is searched for names.
`VISIBLE_FIELDS` lists the fields of the target's records and of the work that are copied unchanged; all other
fields are left out, or recomputed from figures of the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import pandas as pd

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import Span
from fomkit.core.machine import Device, Machine
from fomkit.core.units import DAY_S, by_key, sums_by_key
from fomkit.files.op_csv import format_as_given
from fomkit.harness.torch.cases import CannotTimeError
from fomkit.harness.torch.times import check_case, knows_op
from fomkit.ops.kinds import KINDS, PASS_FREE_KINDS
from fomkit.ops.tables import column_names
from fomkit.plan.estimate import Estimate
from fomkit.workbook.input_sheets import fact_rows
from fomkit.workbook.records import SHARED_USES, Case, Given, JobTerms, OpLine, SheetModel, WorkloadFacts, evaluate

Record = TypeVar("Record")
BASELINE = "baseline"
VISIBLE_FIELDS: Mapping[type, tuple[str, ...]] = {
    SheetModel: ("title", "scope", "level", "mean", "threshold", "worst_basis"),
    Machine: (
        "name", "title", "party", "device", "timings", "node_devices", "system_nodes", "availability", "overheads",
    ),
    WorkloadFacts: (
        "name", "title", "batch", "data", "run", "unit", "weight", "required", "category", "basis", "party",
    ),
    JobTerms: (
        "calculation_s", "exposed_s", "bubble_s", "other_s", "steps", "rest_s", "low", "high", "devices",
        "at_once", "basis", "party", "source", "excludes", "unfit",
    ),
    Case: ("workload", "machine", "precision", "excludes", "unfit", "deviations"),
    OpLine: (
        "op", "kind", "sizes", "dtype", "engine", "pass_name", "count", "launches", "flop", "byte", "time_source",
        "bound", "utilisation", "starts", "time_s", "low", "high", "dimensions",
    ),
}  # fmt: skip
"""Fields that the target may see unchanged, by record; every other field keeps its default or is recomputed."""
_MADE_WITH = ("framework", "version", "mode", "parameters")
"""Entries of a model's `made_with` that are copied; the device that traced it may belong to another vendor."""
_OWN_TABLE = ("measured", "interpolated", "extrapolated", "assumed")
"""Time sources that refer only to rows of the machine's own table."""


def _shown_copy(record: Record, **own: object) -> Record:
    shown_fields = {name: getattr(record, name) for name in VISIBLE_FIELDS[type(record)]}
    return cast("Record", cast("Any", type(record))(**shown_fields, **own))


def _workload_for(facts: WorkloadFacts, target: str, rate: Span | None) -> WorkloadFacts:
    times = {}
    if target in facts.given:
        time = facts.given[target]
        times[target] = Given(time.unit_s, time.basis, time.party)
    if rate is not None:
        source = "the lab's figure for the baseline"
        times[BASELINE] = Given(rate.per(DAY_S), facts.basis or "modelled", "lab", source)
    jobs = {target: _shown_copy(facts.jobs[target])} if target in facts.jobs else {}
    made_with = tuple((key, message) for key, message in facts.made_with if key in _MADE_WITH)
    return _shown_copy(facts, given=times, jobs=jobs, made_with=made_with)


def _time_source_text(line: OpLine) -> str:
    """Return the source of an op's time; where it may name other machines, derive it from the target alone."""
    if line.time_source in ("", *_OWN_TABLE):
        return line.evidence
    op = f"{line.kind}/{line.engine}"
    if line.utilisation is None:
        return f"predicted by the lab from times of {op} on timed machines"
    if line.time_source == "roofline":
        return f"rates of this machine; utilisation {line.utilisation:.2g}, typical of {op} on timed machines"
    return f"predicted from timed ops; equals a utilisation of {line.utilisation:.2g} here"


def check_target(only: str, targets: Sequence[str]) -> None:
    """Raise where the single machine that a workbook is for is no target, or has the baseline's name in copies."""
    if only not in targets:
        raise FomkitError(f"--for {only}", f"is not a target here. {nearest_names(only, targets)}")
    if only == BASELINE:
        message = "is the baseline's name in copies. Give the target another name in its profile."
        raise FomkitError(f"--for {only}", message)


def for_target(sheet_model: SheetModel, target: str) -> SheetModel:
    """Leave out everything that belongs to other machines; only the baseline's units a day stay, without its name.

    Raises FomkitError when the machine is no target, or has the name that copies use for the baseline.
    """
    check_target(target, sheet_model.targets)
    values, old = evaluate(sheet_model), sheet_model.baseline
    rates = {one.name: values.unit_per_day.get((one.name, str(old))) for one in sheet_model.workloads}
    rated = any(rate is not None for rate in rates.values())
    own = _shown_copy(sheet_model.machine(target))
    # The nameless baseline is one device that does all its units of work.
    title = "the machine that the suite compares with, known by its units a day"
    nameless = Machine(BASELINE, title, "lab", Device(), own.timings, node_devices=1, system_nodes=1)
    return _shown_copy(
        sheet_model,
        machines=(own, nameless) if rated else (own,),
        workloads=tuple(_workload_for(one, target, rates[one.name]) for one in sheet_model.workloads),
        cases=tuple(
            _shown_copy(case, ops=tuple(_shown_copy(line, evidence=_time_source_text(line)) for line in case.ops))
            for case in sheet_model.cases
            if case.machine == target
        ),
        targets=(target,),
        baseline=BASELINE if rated else None,
        uses={
            name: ends
            for name, ends in sheet_model.uses.items()
            if name in SHARED_USES or name.partition(" on ")[2] == target
        },
        widened=tuple(name for name in sheet_model.widened if name == target),
        deviations=tuple(one for one in sheet_model.deviations if one[0] == target),
        caveats=tuple(one for one in sheet_model.caveats if one[0] in ("", target)),
        rounds=tuple(one for one in sheet_model.rounds if one[0] == target),
    )


def _texts_by_sort(sheet_model: SheetModel) -> Iterator[tuple[str, str]]:
    yield "title of the study", sheet_model.title
    for workload in sheet_model.workloads:
        yield "line names", workload.name
        yield "what lines are", workload.title
        yield "what lines are", ", ".join(f"{key} {message}" for key, message in workload.made_with)
        yield "units of work", workload.unit.name
        yield "classes of lines", workload.category
        yield from (("sources of given times", one.source) for one in workload.stated.values())
    for machine in sheet_model.machines:
        yield "titles of machines", machine.title
        yield from (("notes on machines", note) for note in machine.notes)
        for row in fact_rows(machine):
            yield "names of overheads", row.what if row.name.startswith("overhead") else ""
            yield "sources of facts", row.fact.source if row.fact is not None else ""
    yield from (("deviations", message) for _, message in sheet_model.deviations)
    yield from (("caveats", message) for _, message in sheet_model.caveats)
    yield from (("notes", message) for message in sheet_model.notes)
    yield from (("notes", message) for case in sheet_model.cases for message in case.deviations)
    yield from (("history", message) for _, message in sheet_model.rounds)
    for case in sheet_model.cases:
        yield "number formats", case.precision
        yield from (("sources of ops (sheet Ops)", line.evidence) for line in case.ops)


def free_texts(sheet_model: SheetModel) -> dict[str, tuple[str, ...]]:
    """Return the texts that go into a workbook of a sheet model, by their subject, each once.

    >>> free_texts(SheetModel("spring offer", "device", (), (), (), ()))
    {'title of the study': ('spring offer',)}
    """
    found = by_key(pair for pair in dict.fromkeys(_texts_by_sort(sheet_model)) if pair[1])
    return {sort: tuple(texts) for sort, texts in found.items()}


DOMINANT = 0.95
"""Share of the predicted time that the ops of a pack reach together, as in the lecture's table."""


@dataclass(frozen=True)
class Pack:
    """The files of a request to time ops.

    `files`: texts by file name: the table to fill, the script that fills it, and instructions.
    `requested`, `timed`: share of each model's predicted step time that the table contains, and that the script
      can time.
    `lines`: the same in words, and the ops that the script cannot time, with the reason.
    """

    files: dict[str, str]
    requested: dict[str, float]
    timed: dict[str, float]
    lines: tuple[str, ...]


_IDENTITY = {"kind", "op", "dtype", "engine", "pass_name"}.union(*(kind.columns for kind in KINDS.values()))
_KEYS = [name for name in column_names("TIMINGS") if name in _IDENTITY]
"""Columns that identify ops."""


def _as_csv(rows: pd.DataFrame) -> list[dict[str, str]]:
    """Format rows as the script reads them from the table."""

    def cell(value: object) -> str:
        if value is None or value != value:
            return ""
        return value if isinstance(value, str) else f"{float(str(value)):.17g}"

    names = [str(name) for name in rows.columns]
    columns = [map(cell, rows[name].tolist()) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _refusals(rows: pd.DataFrame) -> list[str]:
    """Return for each row why the script cannot time it; "" where it can."""
    found = []
    for cells in _as_csv(rows):
        try:
            check_case(cells)
            found.append("")
        except CannotTimeError as reason:
            found.append(str(reason))
    return found


def dominant_ops(estimates: Sequence[Estimate]) -> pd.DataFrame:
    """Return the distinct ops that account for most of the predicted time of some estimates.

    `estimates`: on one machine. The longest ops of each, up to `DOMINANT` of its own step, are included, so that a
    short step is not lost beside a long one. Returns a TIMINGS table without times; ``note`` names the models and
    the share of their steps, ``shares`` (model to share) has the shares as numbers.
    """
    found = []
    for estimate in estimates:
        timed = estimate.ops[estimate.ops["time_s"].notna()]
        rows = timed.reindex(columns=_KEYS)
        # A name only if the script needs it, a pass only where it matters.
        named = pd.Series([knows_op(cells) for cells in _as_csv(rows)], rows.index, dtype=bool)
        passes = rows["pass_name"].mask(rows["kind"].isin(PASS_FREE_KINDS), "")
        seconds = timed["time_s"] * timed["count"]
        rows = rows.assign(op=rows["op"].where(named, ""), pass_name=passes, seconds=seconds)
        total = rows["seconds"].sum()
        grouped = rows.groupby(_KEYS, dropna=False, sort=False)["seconds"].sum().sort_values(ascending=False)
        before = (grouped.cumsum() - grouped) / total
        chosen = grouped[before < DOMINANT].reset_index()
        parts, model = (chosen["seconds"] / total).tolist(), estimate.model.name
        notes = [f"{model} {part:.1%}" for part in parts]
        shares = pd.Series([{model: part} for part in parts], chosen.index, dtype=object)
        found.append(chosen.assign(note=notes, shares=shares))
    if not any(map(len, found)):
        raise FomkitError("pack", "no op has a time, so none can be chosen. Choose another target.")
    together = pd.concat(found).groupby(_KEYS, dropna=False, sort=False)
    table = together.agg(
        note=("note", "; ".join), seconds=("seconds", "max"),
        shares=("shares", lambda shares: sums_by_key(one for each in shares for one in each.items())),
    )  # fmt: skip
    table = table.reset_index().sort_values("seconds", ascending=False, kind="stable").drop(columns="seconds")
    return table.reindex(columns=[*column_names("TIMINGS"), "shares"]).reset_index(drop=True)


_TO_FILL = ("time_s", "p25_s", "p75_s", "repeats", "harness", "library", "library_version", "note")
_PAGE = Path(__file__).with_name("pack.txt")
"""Instructions for the table to fill, as a template."""


def make_pack(estimates: Sequence[Estimate]) -> Pack:
    """Make a pack of the ops that account for most of the predicted time of some estimates."""
    table = dominant_ops(estimates)
    table = table.assign(refusal=_refusals(table[_KEYS]))
    requested, timed = ({estimate.model.name: 0.0 for estimate in estimates} for _ in range(2))
    for shares, refusal in zip(table["shares"], table["refusal"], strict=True):
        for model, share in shares.items():
            requested[model] += share
            timed[model] += 0.0 if refusal else share
    sized = [name for name in _KEYS if (table[name].notna() & (table[name] != "")).any()]
    template = "cases.csv covers {:.1%} of the predicted step time, time_ops.py can time {:.1%}"
    lines = [f"{model}: {template.format(share, timed[model])}" for model, share in requested.items()]
    refused = table[table["refusal"] != ""].groupby(["kind", "dtype", "refusal"], sort=False)
    for (kind, dtype, why), rows in refused:
        lines.append(f"time_ops.py cannot time: {len(rows)} {kind} of {dtype}, {why} ({'; '.join(rows['note'])})")
    shares = "\n".join(f"- {line}" for line in lines)
    page = _PAGE.read_text(encoding="utf-8").format(count=len(table), models=", ".join(requested), shares=shares)
    files = {
        "cases.csv": format_as_given(table[[*sized, *_TO_FILL]], "TIMINGS"),
        "time_ops.py": script_text(),
        "README.txt": page,
    }
    return Pack(files, requested, timed, tuple(lines))


PARTS = ("cases", "products", "traffic", "windows", "times")
"""The files of the script, in the order in which they use each other."""
_OWN_IMPORT = re.compile(
    r"^from fomkit\.harness\.torch\.\w+ import (?:\([^)]*\)|[^\n(]*)(?:  #[^\n]*)?\n", re.MULTILINE
)
_FUTURE = "from __future__ import annotations\n"


def script_text() -> str:
    """Return the source of a script that needs only Python and PyTorch."""
    folder = Path(__file__).parents[1] / "harness" / "torch"
    texts = [(folder / f"{part}.py").read_text(encoding="utf-8") for part in PARTS]
    bodies = [_OWN_IMPORT.sub("", text.partition(_FUTURE)[2]).lstrip() for text in texts]
    return texts[0].partition(_FUTURE)[0] + _FUTURE + "\n" + "\n\n".join(bodies)
