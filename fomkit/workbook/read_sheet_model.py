"""Build the sheet model from the inputs of a workbook that was read back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, cast, get_args

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Basis, Device, Fact, Machine, Overhead, Party, Peak, Scope
from fomkit.core.model import Data, Run, Unit
from fomkit.core.units import by_key
from fomkit.ops.tables import DIMENSIONS, empty_table
from fomkit.workbook.input_sheets import (
    ASSUMPTION_ENDS,
    CAVEAT,
    CHIP,
    NONE,
    SCHEMA,
    SHARE,
    USE,
    WIDENED,
    from_unit,
)
from fomkit.workbook.layout import ASSUMPTIONS, FACTS, GIVEN, JOB_KEYS, JOBS, OPS, WORKLOADS
from fomkit.workbook.op_sheets import HOUR_S
from fomkit.workbook.read import Book, Entry
from fomkit.workbook.records import Case, Given, JobTerms, OpLine, SheetModel, WorkloadFacts, case_name
from fomkit.workbook.summary_sheet import MEANS

Row = Mapping[str, Entry]
_NUMBERS = {column.name for column in DIMENSIONS if column.dtype == "number"}


def _number_in(row: Row, key: str) -> float | None:
    value = row.get(key)
    return value if isinstance(value, float) else None


def _count_in(row: Row, key: str) -> int | None:
    value = _number_in(row, key)
    return None if value is None else int(value)


def _text_in(row: Row, key: str) -> str:
    value = row.get(key)
    return "" if value is None else str(value)


def _value_with_ends(row: Row, key: str, unit: Callable[[float], float]) -> tuple[float, float, float] | None:
    """Return a value with its bounds, converted from the unit of its row; missing bounds equal the value."""
    value = _number_in(row, key)
    if value is None:
        return None
    low, high = (end if isinstance(end := row.get(name), float) else value for name in ("low", "high"))
    return unit(value), unit(low), unit(high)


def _fact(row: Row) -> Fact | None:
    ends = _value_with_ends(row, "value", partial(from_unit, _text_in(row, "fact")))
    return None if ends is None else Fact(*ends, cast("Basis", _text_in(row, "basis")), _text_in(row, "source"))


def _machine(name: str, rows: list[Row], chip: str) -> Machine:
    facts = {(_text_in(row, "fact"), _text_in(row, "what"), _text_in(row, "where")): _fact(row) for row in rows}

    def stated(fact: str) -> Fact | None:
        return facts.get((fact, "", ""))

    def whole(fact: str) -> int | None:
        found = stated(fact)
        return None if found is None else int(found.value)

    up = stated("availability")
    return Machine(
        name=name,
        title=name,
        party=cast("Party", _text_in(rows[0], "party")),
        device=Device(
            tuple(Peak(key[1], key[2], one) for key, one in facts.items() if key[0] == "peak" and one is not None),
            stated("memory capacity"),
            stated("memory bandwidth"),
            stated("launch cost"),
            architecture=chip,
        ),
        timings=empty_table("TIMINGS"),
        node_devices=whole("devices per node"),
        system_nodes=whole("nodes"),
        availability=1.0 if up is None else up.value,
        overheads=tuple(
            Overhead(key[1], cast("Any", key[2]), *((one, None) if key[0] == "overhead" else (None, one)))
            for key, one in facts.items()
            if key[0] in ("overhead", "overhead share")
        ),
    )


def _job(row: Row) -> JobTerms | None:
    found = [_number_in(row, key) for key in JOB_KEYS]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    devices, at_once, steps, calculation, exposed, bubble, beside, rest, low, high = known
    basis, party, source = (_text_in(row, key) for key in ("basis", "party", "source"))
    terms = (calculation, exposed, bubble, beside, steps, rest, low, high, devices, at_once)
    return JobTerms(*terms, basis, party, source)


def _facts_in(row: Row, given: Iterable[Row], jobs: Iterable[Row], level: float, chosen: Row) -> WorkloadFacts:
    times = {}
    for one in (one for one in given if one.get("workload") == row.get("workload")):
        if (ends := _value_with_ends(one, "hours", lambda hours: hours * HOUR_S)) is not None:
            basis, party, source = (_text_in(one, key) for key in ("basis", "party", "source"))
            machine = _text_in(one, "machine")
            share = chosen.get(f"{SHARE}{case_name(_text_in(one, 'workload'), machine)}")
            shared = share if isinstance(share, float) else 1.0
            times[machine] = Given(Span(*ends, level, shared), basis, party, source)
    own = (one for one in jobs if one.get("workload") == row.get("workload"))
    terms = {_text_in(one, "machine"): job for one in own if (job := _job(one)) is not None}
    last: Literal["drop", "keep"] = "keep" if _text_in(row, "last_batch") == "keep" else "drop"
    return WorkloadFacts(
        name=_text_in(row, "workload"), title=_text_in(row, "title"), batch=_count_in(row, "batch"),
        data=Data(_count_in(row, "train"), _count_in(row, "validation"), last),
        run=Run(_count_in(row, "epochs"), _count_in(row, "devices") or 1),
        unit=Unit(_text_in(row, "unit"), _number_in(row, "runs") or 1.0), given=times, jobs=terms,
        weight=1.0 if (weight := _number_in(row, "weight")) is None else weight,
        required=_text_in(row, "required") != "no", category=_text_in(row, "category"),
        basis=_text_in(row, "basis"), party=_text_in(row, "party"),
    )  # fmt: skip


def _op(row: Row) -> OpLine:
    words = {key: _text_in(row, key) for key in ("op", "kind", "sizes", "dtype", "engine", "pass_name", "bound")}
    work = (_number_in(row, key) for key in ("count", "launches", "flop", "byte"))
    count, launches, flop, byte = (math.nan if one is None else one for one in work)
    source, utilisation = _text_in(row, "time_source"), _number_in(row, "utilisation")
    pairs = (word.partition("=") for word in _text_in(row, "dimensions").split())
    return OpLine(
        **words, count=count, launches=launches, flop=flop, byte=byte,
        time_source="" if source == "unknown" else source, evidence=_text_in(row, "evidence"),
        utilisation=utilisation, starts=_number_in(row, "starts") or 0.0,
        time_s=None if utilisation is not None else _number_in(row, "time"),
        low=_number_in(row, "low") or 1.0, high=_number_in(row, "high") or 1.0,
        dimensions=tuple((name, float(size) if name in _NUMBERS else size) for name, _, size in pairs),
    )  # fmt: skip


def _uses(chosen: Row) -> dict[str, tuple[float, float]]:
    names = [name.removeprefix(USE).removesuffix(", low") for name in chosen if name.startswith(USE)]
    found = {}
    for group in (name for name in names if not name.endswith(", high")):
        low, high = (chosen.get(f"{USE}{group}, {end}") for end in ASSUMPTION_ENDS)
        if isinstance(low, float) and isinstance(high, float):
            found[group] = (low, high)
    return found


def _check_choices(book: Book, chosen: Row) -> None:
    machines = {row.get("machine") for row in book.rows(FACTS)}
    level = chosen.get("interval level")
    allowed: list[tuple[str, bool, str]] = [
        ("schema", chosen.get("schema") == SCHEMA, repr(SCHEMA)),
        ("interval level", isinstance(level, float) and 0 < level < 1, "a share between 0 and 1"),
        ("scope", chosen.get("scope") in get_args(Scope), "device, node or system"),
        ("mean", chosen.get("mean") in MEANS, f"one of {', '.join(MEANS)}"),
        ("baseline", chosen.get("baseline") in {*machines, NONE}, "a machine of this workbook, or none"),
        ("target", chosen.get("target") in machines, "a machine of this workbook"),
    ]
    for name, is_right, expected in allowed:
        if not is_right:
            message = f"{name} is {chosen.get(name)!r}. {expected} was expected."
            raise FomkitError(f"{book.path}, sheet Assumptions", message)


def sheet_model_from(book: Book) -> SheetModel:
    """Build the sheet model from a workbook's inputs."""
    book.check()
    choices = [(_text_in(row, "name"), row.get("value")) for row in book.rows(ASSUMPTIONS)]
    chosen = dict(reversed(choices))
    _check_choices(book, chosen)
    level = float(cast("float", chosen["interval level"]))
    machines = by_key((_text_in(row, "machine"), row) for row in book.rows(FACTS))
    baseline, threshold = str(chosen["baseline"]), chosen.get("threshold")
    ops = by_key(((_text_in(row, "workload"), _text_in(row, "machine")), _op(row)) for row in book.rows(OPS))
    return SheetModel(
        title=str(chosen.get("title")),
        scope=cast("Scope", str(chosen["scope"])),
        machines=tuple(_machine(name, rows, _text_in(chosen, f"{CHIP}{name}")) for name, rows in machines.items()),
        workloads=tuple(
            _facts_in(row, book.rows(GIVEN), book.rows(JOBS), level, chosen) for row in book.rows(WORKLOADS)
        ),
        cases=tuple(Case(workload, machine, tuple(lines)) for (workload, machine), lines in ops.items()),
        targets=tuple(str(value) for name, value in choices if name == "target"),
        baseline=None if baseline == NONE else baseline,
        level=level,
        mean=str(chosen["mean"]),
        threshold=threshold if isinstance(threshold, float) else None,
        worst_basis=str(chosen.get("worst basis")),
        caveats=tuple(("", str(value)) for name, value in choices if name == CAVEAT),
        uses=_uses(chosen),
        widened=tuple(str(value) for name, value in choices if name == WIDENED),
    )
