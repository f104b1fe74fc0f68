"""The sheets and tables of a workbook: what the writer puts where, and what the reader looks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from openpyxl.utils import get_column_letter

Role = Literal["input", "condition", "text", "formula", "issued", "state", "idle"]
"""input: for the vendor to change. condition: set by the suite. issued: Python's value when it was written.

idle is no column's role, but that of cells for input on which no headline of their workbook hangs.
"""

SHEETS = (
    "Read me", "Summary", "Workloads", "Machines", "Ops", "Timings", "Assumptions", "Checks", "Provenance",
    "History",
)  # fmt: skip
UNKNOWN = "unknown"
_WORDS = ("last_batch", "basis", "party", "source", "evidence")
"""Columns of inputs and conditions that hold no numbers."""
AS_ISSUED = "as issued"
CHANGED = "changed"


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in code, its header with the unit, role, width and number format."""

    key: str
    header: str
    role: Role = "text"
    width: float = 12.0
    form: str = "General"


@dataclass(frozen=True)
class Table:
    """A table: a title in column A, a row of headers below it, then its rows up to the first empty one."""

    sheet: str
    title: str
    columns: tuple[Column, ...]

    def is_number(self, column: Column) -> bool:
        """Tell whether a column of inputs or conditions holds numbers; choices hold either."""
        return column.role in ("input", "condition") and column.key not in _WORDS and self.title != "Assumptions"

    def letter(self, key: str) -> str:
        """Name the column of a key."""
        return get_column_letter(self.position(key))

    def row(self, number: int) -> dict[str, str]:
        """Name the cells of a row as its own sheet does, by the keys of their columns."""
        return {
            column.key: f"{get_column_letter(place)}{number}" for place, column in enumerate(self.columns, start=1)
        }

    def position(self, key: str) -> int:
        """Give the 1-based position of a key's column."""
        return next(index for index, column in enumerate(self.columns, start=1) if column.key == key)


@dataclass(frozen=True)
class Placed:
    """A table at its place: the numbers of its first and last row, and what each row is about."""

    table: Table
    first: int
    last: int
    rows: tuple[Any, ...] = ()

    def at(self, key: str, index: int) -> str:
        """Name one cell as other sheets do, by its 0-based row."""
        return f"{self.table.sheet}!${self.table.letter(key)}${self.first + index}"

    def of(self, row: Any, key: str) -> str:
        """Name one cell as other sheets do, by what its row is about."""
        return self.at(key, self.rows.index(row))

    def column(self, key: str) -> str:
        """Name the cells of a column as its own sheet does."""
        letter = self.table.letter(key)
        return f"{letter}{self.first}:{letter}{self.last}"

    def block(self, key: str, start: int = 0, stop: int | None = None) -> str:
        """Name the cells of a column from row ``start`` to before ``stop`` as other sheets do."""
        letter = self.table.letter(key)
        last = self.last if stop is None else self.first + stop - 1
        return f"{self.table.sheet}!${letter}${self.first + start}:${letter}${last}"


PLAIN, FINE, TIME = "[=0]0;[<0.1]0.000E+00;#,##0.0###", "0.000000E+00", "0.000E+00"
COUNT, SHARE, RATIO = "#,##0", "0.0%", "0.0000"


def _words(role: Role = "text", /, **widths: float) -> tuple[Column, ...]:
    """Make columns of words that are headed by what they are."""
    return tuple(Column(key, key.replace("_", " "), role, width) for key, width in widths.items())


def _numbers(role: Role, form: str, *pairs: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(Column(key, header, role, 13.0, form) for key, header in pairs)


_AS_ISSUED = _numbers(
    "issued", PLAIN, ("was", "as issued: value"), ("was_low", "as issued: low"), ("was_high", "as issued: high")
)

FACTS = Table("Machines", "Facts", (
    *_words(machine=22, fact=20),
    Column("what", "number format or name", width=14),
    Column("where", "engine or per", width=10),
    *_numbers("input", PLAIN, ("value", "value [unit beside]")),
    *_words(unit=9),
    *_numbers("input", PLAIN, ("low", "low end [same unit]"), ("high", "high end [same unit]")),
    *_words("input", basis=11, party=10, source=50),
    *_numbers("formula", FINE, ("si", "value [SI]"), ("si_low", "low [SI]"), ("si_high", "high [SI]")),
    *_AS_ISSUED,
    *_words("state", state=10),
))  # fmt: skip

_RUN = (
    ("batch", "batch [samples/step]"), ("train", "training samples [1/epoch]"),
    ("validation", "validation samples [1/epoch]"), ("last_batch", "last, smaller batch"),
    ("epochs", "epochs [1/run]"), ("runs", "runs per unit of work"), ("devices", "devices per run"),
    ("weight", "weight in weighted means"),
)  # fmt: skip
WORKLOADS = Table("Workloads", "Workloads", (
    *_words(workload=24),
    Column("title", "what it is", width=40),
    Column("unit", "unit of work", width=16),
    *(Column(key, header, "condition", 13, COUNT) for key, header in _RUN),
    *_words(required=9),
    Column("category", "class", width=10),
    *_words(basis=10, party=10),
    *_numbers("formula", COUNT, ("steps", "steps per epoch"), ("validation_steps", "validation steps per epoch")),
    *(Column(f"was_{key}", f"as issued: {header}", "issued", 12, COUNT) for key, header in _RUN),
    *_words("state", state=10),
))  # fmt: skip
RUN_KEYS = tuple(key for key, _ in _RUN)

GIVEN = Table("Workloads", "Given times", (
    *_words(workload=24, machine=24),
    *_numbers("input", PLAIN, ("hours", "time of one unit [h]"), ("low", "low end [h]"), ("high", "high end [h]")),
    *_words("input", basis=11, party=11, source=30),
    *_numbers("formula", COUNT, ("at_once", "units at once")),
    *_numbers("formula", PLAIN, ("rate", "units [1/day]"), ("rate_low", "units, low [1/day]"),
              ("rate_high", "units, high [1/day]")),
    *_numbers("issued", PLAIN, ("was", "as issued: time [h]"), ("was_low", "as issued: low [h]"),
              ("was_high", "as issued: high [h]"), ("was_rate", "as issued: units [1/day]")),
    *_words("state", state=10),
))  # fmt: skip

JOB_KEYS = (
    Column("devices", "devices per run", "condition", 12, COUNT),
    Column("at_once", "runs at once", "condition", 12, COUNT),
    Column("steps", "steps [1/run]", "condition", 12, COUNT),
    Column("calculation", "calculation [s/step]", "input", 13, FINE),
    Column("exposed", "waits for links [s/step]", "input", 13, FINE),
    Column("bubble", "waits for other stages [s/step]", "input", 13, FINE),
    Column("beside", "waits for input, and overheads [s/step]", "input", 13, FINE),
    Column("rest", "validation, start-up and overheads [s/run]", "input", 13, FINE),
    Column("low", "low end / time of a run", "input", 9, RATIO),
    Column("high", "high end / time of a run", "input", 9, RATIO),
)
JOBS = Table("Workloads", "Runs on many devices", (
    *_words(workload=24, machine=24),
    *JOB_KEYS,
    *_words("input", basis=11, party=11, source=50),
    *_numbers("formula", PLAIN, ("step", "step [s]"), ("run", "run [h]"), ("rate", "units [1/day]"),
              ("rate_low", "units, low [1/day]"), ("rate_high", "units, high [1/day]")),
    *(Column(f"was_{one.key}", f"as issued: {one.header}", "issued", 12, one.form) for one in JOB_KEYS),
    *_words("state", state=10),
))  # fmt: skip

_OP_INPUTS = (
    Column("count", "executions [1/step]", "condition", 12, COUNT),
    Column("launches", "kernel starts [1/execution]", "condition", 12, PLAIN),
    Column("flop", "arithmetic [FLOP]", "condition", 12, TIME),
    Column("byte", "traffic [byte]", "condition", 12, TIME),
    Column("utilisation", "utilisation (floor over kernel time)", "input", 12, RATIO),
    Column("starts", "starts inside the time", "condition", 9, PLAIN),
    Column("time", "time of one execution [s]", "input", 14, FINE),
    Column("low", "low end / time", "input", 9, RATIO),
    Column("high", "high end / time", "input", 9, RATIO),
)
OP_KEYS = tuple(column.key for column in _OP_INPUTS)
OPS = Table("Ops", "Ops", (
    *_words(workload=18, machine=18, op=26),
    Column("sizes", "kind and sizes", width=46),
    *_words(dimensions=20, kind=11),
    Column("dtype", "number format", width=9),
    *_words(engine=8),
    Column("pass_name", "pass", width=15),
    *_OP_INPUTS[:4],
    *_numbers("formula", TIME, ("peak", "peak [FLOP/s]"), ("bandwidth", "bandwidth [byte/s]"),
              ("launch", "launch cost [s]")),
    *_OP_INPUTS[4:],
    *_numbers("formula", FINE, ("total", "time [s/step]"), ("total_low", "low [s/step]"),
              ("total_high", "high [s/step]")),
    *_numbers("formula", PLAIN, ("step_starts", "kernel starts [1/step]")),
    *_words(time_source=13, bound=10),
    Column("made", "how the time is made", width=44),
    *_words("input", basis=11, party=10),
    Column("evidence", "source of utilisation or time", "input", 80),
    *(Column(f"was_{one.key}", f"as issued: {one.header}", "issued", 12, one.form) for one in _OP_INPUTS),
    *_words("state", state=10),
))  # fmt: skip

FAMILIES = Table("Timings", "Time by kind and source", (
    *_words(workload=24, machine=22, kind=34, time_source=14),
    *_numbers("formula", FINE, ("value", "step [s]"), ("low", "step, low [s]"), ("high", "step, high [s]"),
              ("forward", "forward [s]"), ("forward_low", "forward, low [s]"),
              ("forward_high", "forward, high [s]")),
    *_numbers("formula", SHARE, ("share", "share of the device's time")),
))  # fmt: skip
TERMS = Table("Timings", "From ops to units a day", (
    *_words(workload=24, machine=22, term=34, unit=14),
    *_numbers("formula", PLAIN, ("value", "value"), ("low", "low"), ("high", "high")),
    *_AS_ISSUED,
    *_words("state", state=12),
    Column("how", "how it is made", width=60),
))  # fmt: skip

RATIOS = Table("Summary", "Ratios", (
    *_words(workload=44),
    Column("machine", "target", width=22),
    Column("of", "rate of", width=18),
    *_numbers("formula", PLAIN, ("value", "ratio to the baseline"), ("low", "ratio, low"),
              ("high", "ratio, high")),
    *_numbers("formula", SHARE, ("weight", "weight in the FOM")),
    *_numbers("formula", PLAIN, ("line_weight", "weight of the line")),
    Column("was", "as issued: ratio", "issued", 13, PLAIN),
    *_words("state", state=12),
    *_numbers("formula", PLAIN, ("new", "target [unit of C]"), ("new_low", "target, low"),
              ("new_high", "target, high"), ("old", "baseline [unit of C]"), ("old_low", "baseline, low"),
              ("old_high", "baseline, high"), ("minus", "ratio − low"), ("plus", "high − ratio")),
))  # fmt: skip
MERITS = Table("Summary", "Figure of merit", (
    *_words(what=44),
    Column("machine", "target", width=22),
    *_words(unit=18),
    *_numbers("formula", PLAIN, ("value", "value"), ("low", "low"), ("high", "high")),
    *_AS_ISSUED,
    *_words("state", state=12),
))  # fmt: skip
ANSWERS = Table("Summary", "Answers", (
    *_words(workload=26, machine=22),
    Column("precision", "number formats", width=18),
    *_numbers("formula", PLAIN, ("step", "step [ms]"), ("step_low", "step, low [ms]"),
              ("step_high", "step, high [ms]"), ("rate", "units [1/day]"),
              ("rate_low", "units, low [1/day]"), ("rate_high", "units, high [1/day]")),
    Column("was", "as issued: step [ms]", "issued", 13, PLAIN),
    Column("was_rate", "as issued: units [1/day]", "issued", 13, PLAIN),
    *_words("state", state=12),
    Column("left_out", "left out (units/day are then upper bounds)", width=26),
))  # fmt: skip
PARETO = Table("Workloads", "Longest ops", (
    Column("rank", "workload and rank", width=24),
    Column("label", "op", width=40),
    *_numbers("formula", PLAIN, ("total", "time [ms/step]")),
    *_numbers("formula", SHARE, ("share", "share of the device's time"), ("together", "shares so far")),
))  # fmt: skip
ASSUMPTIONS = Table("Assumptions", "Assumptions", (
    Column("name", "assumption", width=30),
    Column("value", "value", "condition", 24, "General"),
    Column("means", "what it means", width=100),
))  # fmt: skip
CHECKS = Table("Checks", "Checks", (
    Column("what", "check", width=60),
    *_words(of=44),
    *_numbers("formula", PLAIN, ("found", "found"), ("expected", "expected")),
    *_words("state", state=12),
))  # fmt: skip
PROVENANCE = Table("Provenance", "Provenance", (
    *_words(what=30, name=30),
    Column("said", "source or note", width=120),
))  # fmt: skip
HISTORY = Table("History", "Rounds", (
    *_words(round=10),
    Column("what", "what happened", width=140),
))  # fmt: skip
INPUT_TABLES = (FACTS, WORKLOADS, GIVEN, JOBS, OPS, ASSUMPTIONS)
"""The tables that a reader takes a sheet model from."""
