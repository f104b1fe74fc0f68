"""Write the sheets Assumptions, Machines, Provenance, History and Read me."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fomkit.core.interval import DEFAULT_LEVEL, SAME_CHIP, half_width
from fomkit.core.machine import Fact, Machine
from fomkit.core.units import UNITS, in_si
from fomkit.plan.coverage import GROUPS, OTHER_MAKER
from fomkit.plan.step import COMMON, COMMON_BY_TABLE, COMMON_OF
from fomkit.workbook.cells import LEGEND, Formula, Page, Value, known
from fomkit.workbook.layout import AS_ISSUED, ASSUMPTIONS, CHANGED, FACTS, HISTORY, PROVENANCE, UNKNOWN, Placed
from fomkit.workbook.records import SHARED_USES, Case, SheetModel, case_name, op_time

SCHEMA = "fomkit/workbook/1"
NONE = "none"
USE, WIDENED, SHARE = "use in a step, ", "widened for use in a step", "errors in common, "
CHIP = "chip of "
CAVEAT = "caveat"
ASSUMPTION_ENDS = ("low", "high")
_TEXTS = (
    ("time of a predicted op", "max(flop / peak, byte / bandwidth) / utilisation, and starts · launch cost where "
     "the op's row has starts. The utilisation is an input; its source is in the same row."),
    ("time of a measured op", "an input. It does not change with peak or bandwidth, and its row says so."),
    ("step", "the longest of device, host launch and input pipeline, plus the overheads of a step"),
    ("intervals of ops", f"{COMMON:.0%} of the variance of errors of one kind and time source is common "
     f"(by timings {COMMON_BY_TABLE:.0%}, "
     f"{', '.join(f'{kind} by {word} {share:.0%}' for (kind, word), share in COMMON_OF.items())}), so that "
     "half-widths add; the rest is independent for each op and adds in quadrature; so do kinds and sources"),
    ("intervals of means", "errors common to ops are also common to lines, so half-widths add; the rest of a "
     "line's error is independent and adds in quadrature, as do the errors of the two machines"),
    ("intervals of ratios", "errors of the two machines are log-normal, and independent unless both are boards of "
     f"one chip: then errors of ops by facts, and those by similar timings, have a correlation of {SAME_CHIP}"),
    ("units a day", "86,400 s · runs at once / (run · runs per unit)"),
    ("unknown", "unknown work has the word unknown and is excluded from sums; times are then lower bounds"),
)  # fmt: skip


def _choices(sheet_model: SheetModel) -> Iterator[tuple[str, Value, str]]:
    """Yield the choices that are needed to compute the same results: name, value, meaning."""
    yield "schema", SCHEMA, "the layout of this workbook; fomkit review reads it"
    yield "title", sheet_model.title, "the title of the study"
    yield "interval level", sheet_model.level, "probability that an interval contains the truth"
    yield "scope", sheet_model.scope, "scope of the rates: one device, one node or the whole system"
    yield "mean", sheet_model.mean, "how the figure of merit is computed from the lines"
    yield "baseline", sheet_model.baseline or NONE, "the machine to compare with"
    for target in sheet_model.targets:
        yield "target", target, "a machine to rate"
    threshold = NONE if sheet_model.threshold is None else sheet_model.threshold
    yield "threshold", threshold, "the figure of merit to reach"
    bounds = "bounds of the interval divided by the sum"
    for name, ends in sheet_model.uses.items():
        if name in SHARED_USES and not sheet_model.widened:
            continue
        kinds = ", ".join(kind for kind, group in GROUPS.items() if name.startswith(group)) or "all together"
        behaviour, of_makers = "the behaviour of a table's kernels inside a step", "libraries of other makers"
        what = f"{bounds}, from {of_makers if name.startswith(OTHER_MAKER) else behaviour}; kinds: {kinds}"
        for end, ratio in zip(ASSUMPTION_ENDS, ends, strict=True):
            yield f"{USE}{name}, {end}", ratio, what
    what = "its times are from a table of single kernels, so intervals of sums are widened for use in a step"
    for machine in sheet_model.widened:
        yield WIDENED, machine, what
    for one in sheet_model.workloads:
        for machine, share in one.common_shares.items():
            what = "share of the error variance of a given time that is common to lines of the machine"
            yield f"{SHARE}{case_name(one.name, machine)}", share, what
    for machine, chip in sheet_model.chips.items():
        yield f"{CHIP}{machine}", chip, "boards of one chip have a part of their errors in common"
    what = "the weakest basis of the figure of merit"
    yield "worst basis", sheet_model.worst_basis or UNKNOWN, what


def write_assumptions(page: Page, sheet_model: SheetModel) -> Placed:
    """Write the choices, then the rules, and what each estimate excludes."""
    page.intro("Assumptions behind all numbers. A change of a grey cell is a deviation.")
    rows: list[list[Value]] = [list(row) for row in _choices(sheet_model)]
    names = tuple(str(row[0]) for row in rows)
    rows += [[name, "rule", text] for name, text in _TEXTS]
    rows += [[CAVEAT, text, "caveat for reading the rates"] for _, text in sheet_model.caveats]
    for case in sheet_model.cases:
        rows.append([case.name, "number formats", case.precision])
        rows += [[case.name, "left out", term] for term in case.excludes]
    for one in sheet_model.workloads:
        for machine, stated in one.stated.items():
            rows += [[case_name(one.name, machine), "left out", term] for term in stated.excludes]
    return page.table(ASSUMPTIONS, rows, about=names)


UNIT_OF = {
    "peak": "TFLOP/s", "memory bandwidth": "GB/s", "memory capacity": "GiB", "launch cost": "us",
    "devices per node": "1", "nodes": "1", "availability": "share", "overhead": "s", "overhead share": "share",
}  # fmt: skip
"""Unit of each fact in the sheet."""
_DIMENSION = {"TFLOP/s": "flop_per_s", "GB/s": "byte_per_s", "GiB": "byte", "us": "time_s", "s": "time_s"}


@dataclass(frozen=True)
class FactRow:
    """One row of the table of facts, in SI units; ``fact`` is None where it is not stated."""

    machine: str
    name: str
    what: str
    where: str
    fact: Fact | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the columns that identify the row."""
        return self.machine, self.name, self.what, self.where


def scale_of(name: str) -> float:
    """Return the size of a fact's unit in SI.

    >>> scale_of("peak"), scale_of("launch cost"), scale_of("nodes")
    (1000000000000.0, 1e-06, 1.0)
    """
    unit = UNIT_OF[name]
    return UNITS[_DIMENSION[unit]][unit] if unit in _DIMENSION else 1.0


def from_unit(name: str, value: float) -> float:
    """Convert a value in the fact's unit to SI units, with the same rounding as the formula in the sheet."""
    return in_si(value, scale_of(name))


def _si_formula(name: str, cell: str, value: float | None) -> Formula:
    """Return the formula of `from_unit` for a cell that may hold a word."""
    found = known(None if value is None else from_unit(name, value))
    return Formula(f'IF(ISNUMBER({cell}),{cell}{_factor(name)},"unknown")', found)


def _si_bound(
    name: str, cells: tuple[str, str], shown: tuple[float | None, float | None], level: float
) -> Formula:
    """Return the formula of a bound at a level: stated bounds are those of 80 %, converted as by `Fact.span`.

    `cells`, `shown`: of the value and of the bound, in the fact's unit.
    """
    (at, bound), (value, end) = cells, shown
    if level == DEFAULT_LEVEL:
        return _si_formula(name, bound, end)
    times = half_width(level) / half_width(DEFAULT_LEVEL)
    converted = f"IF({at}>0,{at}*({bound}/{at})^{times!r},{bound})"
    found = value * (end / value) ** times if value and end is not None else end
    return Formula(
        f'IF(AND(ISNUMBER({at}),ISNUMBER({bound})),{converted}{_factor(name)},"unknown")',
        known(None if found is None else from_unit(name, found)),
    )


def _factor(name: str) -> str:
    """Return what a formula multiplies a value in the fact's unit with."""
    scale = scale_of(name)
    return "" if scale == 1 else f"*{scale:.0f}" if scale >= 1 else f"/{round(1 / scale)}"


def _count_fact(name: str, value: float | None, machine: Machine) -> FactRow:
    """Return a count as a fact without error."""
    ends, source = (0.0 if value is None else float(value),) * 3, f"profile of {machine.name}"
    return FactRow(machine.name, name, "", "", None if value is None else Fact(*ends, "published", source))


def fact_rows(machine: Machine) -> Iterator[FactRow]:
    """Yield every fact that is, or could be, stated for a machine."""
    device, name = machine.device, machine.name
    for peak in device.peaks:
        yield FactRow(name, "peak", peak.dtype, peak.engine, peak.rate)
    yield FactRow(name, "memory bandwidth", "", "", device.byte_per_s)
    yield FactRow(name, "memory capacity", "", "", device.capacity_byte)
    yield FactRow(name, "launch cost", "", "", device.launch_s)
    yield _count_fact("devices per node", machine.node_devices, machine)
    yield _count_fact("nodes", machine.system_nodes, machine)
    yield _count_fact("availability", machine.availability, machine)
    for one in machine.overheads:
        what = "overhead share" if one.time_s is None else "overhead"
        yield FactRow(name, what, one.name, one.per, one.time_s if one.time_s is not None else one.share)


MACHINE_ENDS = ("value", "low", "high")


@dataclass(frozen=True)
class MachineCells:
    """The cells of the facts."""

    placed: Placed
    rows: tuple[FactRow, ...]

    def find(self, machine: str, name: str, what: str = "", where: str = "") -> int | None:
        """Return the 0-based row of a fact; None where it has none."""
        key = (machine, name, what, where)
        return self.placed.rows.index(key) if key in self.placed.rows else None

    def si(self, machine: str, name: str, what: str = "", where: str = "", end: str = "value") -> str:
        """Return the cell of a fact in SI units."""
        return self.placed.at("si" if end == "value" else f"si_{end}", self.find(machine, name, what, where) or 0)

    def states(self, machine: str) -> str:
        """Return the cells that state which facts of a machine were changed."""
        own = [index for index, row in enumerate(self.rows) if row.machine == machine]
        return self.placed.block("state", own[0], own[-1] + 1)


def state_of_inputs(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the formula that compares inputs with the issued ones."""
    same = ",".join(f"{now}={was}" for now, was in pairs)
    return f'IF(AND({same}),"{AS_ISSUED}","{CHANGED}")'


def state_of_value(now: str, was: str) -> str:
    """Return the formula that compares a computed value with the issued one, where no input changed."""
    return f'IF(ABS({now}-{was})<=0.000000001*ABS({was}),"{AS_ISSUED}","error")'


def _fact_row(number: int, row: FactRow, party: str, level: float) -> Iterator[Value]:
    fact, cell, scale = row.fact, FACTS.row(number), scale_of(row.name)
    ends = () if fact is None else (fact.value, fact.low, fact.high)
    in_unit = (end / scale if scale >= 1 else end * round(1 / scale) for end in ends)
    shown: list[float | None] = [float(f"{end:.15g}") for end in in_unit] or [None] * 3
    value, low, high = (known(one) for one in shown)
    yield from (*row.key, value, UNIT_OF[row.name])
    # Without a stated spread the bounds are formulas that follow the value, until a number is written over them.
    for written in (low, high):
        yield Formula(cell["value"], value, is_input=True) if fact is not None and written == value else written
    yield from ("", party, "not stated") if fact is None else (fact.basis, party, fact.source)
    yield _si_formula(row.name, cell["value"], shown[0])
    for key, end in zip(MACHINE_ENDS[1:], shown[1:], strict=True):
        yield _si_bound(row.name, (cell["value"], cell[key]), (shown[0], end), level)
    yield from (value, low, high)
    pairs = zip(MACHINE_ENDS, ("was", "was_low", "was_high"), strict=True)
    yield Formula(state_of_inputs((cell[key], cell[was]) for key, was in pairs), AS_ISSUED)


_RATES = {"peak": "compute", "memory bandwidth": "memory"}
NEGLIGIBLE_SHARE = 0.001
"""Share of a step below which ops that do not follow a rate are not mentioned."""


def measured_share(case: Case, machine: Machine, row: FactRow) -> float:
    """Return the share of a case's op times that are inputs, which do not follow the rate that bounds them."""
    of_peak = (row.what, row.where) if row.name == "peak" else None
    stays = whole = 0.0
    for line in case.ops:
        span = op_time(line, machine.device, DEFAULT_LEVEL)
        spent = span.value * line.count if span else 0.0
        whole += spent
        if line.utilisation is None and line.bound == _RATES[row.name]:
            stays += spent * (of_peak in (None, (line.dtype, line.engine)))
    return stays / whole if whole else 0.0


def _unaffected_note(sheet_model: SheetModel, row: FactRow) -> str:
    """Return a note on ops that do not follow a changed rate, with their shares; "" where they are few or none."""
    if row.name not in _RATES or row.fact is None:
        return ""
    cases = [case for case in sheet_model.cases if case.machine == row.machine]
    shares = {case.workload: measured_share(case, sheet_model.machine(case.machine), row) for case in cases}
    listed = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share > NEGLIGIBLE_SHARE)
    if not listed:
        return ""
    return (
        f"Measured ops keep their times when this changes; their share of the ops' time: {listed}. fomkit sweep "
        "scales them too: at twice this value it predicts up to that share more units a day than this workbook."
    )


def write_machines(page: Page, sheet_model: SheetModel) -> MachineCells:
    """Write the facts of all machines."""
    page.intro(
        "Facts of the machines: change the yellow cells, in the unit beside them. "
        "Rows of the machine to compare with are grey. "
        "Cells in grey on white have no effect here; a note in the cell says why."
        + ("" if sheet_model.level == DEFAULT_LEVEL else " The low and high of a fact are the bounds of 80%.")
    )
    rows = tuple(row for machine in sheet_model.machines for row in fact_rows(machine))
    parties = {machine.name: machine.party for machine in sheet_model.machines}
    first = page.first_row()
    cells = [
        list(_fact_row(first + index, row, parties[row.machine], sheet_model.level))
        for index, row in enumerate(rows)
    ]
    own = {index for index, row in enumerate(rows) if row.machine not in sheet_model.targets}
    placed = page.table(FACTS, cells, conditions=own, about=[row.key for row in rows])
    for number, row in enumerate(rows, start=first):
        if text := _unaffected_note(sheet_model, row):
            page.note(number, FACTS.position("value"), text)
    return MachineCells(placed, rows)


def write_provenance(page: Page, sheet_model: SheetModel, version: str) -> None:
    """Write the origin of machines and workloads; the source of each figure is beside it."""
    page.intro("Each fact and each op has its own source in Machines and Ops; this sheet has the common sources.")
    rows: list[list[Value]] = [["made by", "fomkit", version]]
    for machine in sheet_model.machines:
        rows.append(["machine", machine.name, f"{machine.title} (party: {machine.party})"])
        rows += [["note on the machine", machine.name, note] for note in machine.notes]
    for one in sheet_model.workloads:
        made_with = ", ".join(f"{key} {value_text}" for key, value_text in one.made_with)
        rows.append(["workload", one.name, "; ".join(filter(None, (one.title, made_with))) or "given times"])
    page.table(PROVENANCE, rows)


def write_history(page: Page, sheet_model: SheetModel) -> None:
    """Write the changes of earlier rounds, then this issue."""
    page.intro("Changes of the figures, oldest first.")
    rounds = enumerate(sheet_model.rounds, 1)
    rows: list[list[Value]] = [[str(at), f"{name}: {what}"] for at, (name, what) in rounds]
    page.table(HISTORY, [*rows, ["this issue", "written by fomkit; 'fomkit review' finds changes"]])


def write_read_me(page: Page, sheet_model: SheetModel, only: str | None) -> None:
    """Write how to use the workbook, and what its intervals cover."""
    page.sheet.column_dimensions["A"].width = 110
    page.line("Read me", "headline")
    page.gap()
    text = Path(__file__).with_name("read_me.txt").read_text(encoding="utf-8")
    for paragraph in text.format(level=sheet_model.level).splitlines():
        page.line(paragraph, "prose")
        page.gap()
    if only is not None:
        page.line(f"This copy is for {only}: it contains no other target.", "prose")
        page.gap()
    page.line("Colours", "title")
    for role, meaning in LEGEND.items():
        page.line(f"{role}: {meaning}", role)
