"""A copy for one target has that target's texts unchanged, and no record of any other machine."""

from __future__ import annotations

import re
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import openpyxl
import pytest
from made_ledgers import LAUNCH, machine, op, sheet_model

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Machine
from fomkit.core.model import Unit
from fomkit.merit.fom import MEAN
from fomkit.workbook.layout import FACTS, GIVEN, JOBS, OPS
from fomkit.workbook.read import read_book
from fomkit.workbook.read_sheet_model import sheet_model_from
from fomkit.workbook.records import (
    Case,
    Given,
    JobTerms,
    OpLine,
    SheetModel,
    WorkloadFacts,
    evaluate,
    own_use,
)
from fomkit.workbook.vendor import VISIBLE_FIELDS, for_target
from fomkit.workbook.write import write_workbook

NAMES = ("v100", "V100S", "tesla", "titan", "titan-x", "a", "datasheet")
"""Names that are words or parts of each other, and of what data sheets are called."""


def secret(name: str) -> str:
    return f"kept-back-{NAMES.index(name)}x"


def rich(name: str) -> Machine:
    """Make a machine whose texts contain the names of other machines, and a text of its own."""
    one = machine(name, 1.0 + NAMES.index(name), LAUNCH)
    peaks = tuple(
        replace(
            peak,
            rate=replace(peak.rate, source=f"NVIDIA Tesla V100 datasheet, a titan of a page, {secret(name)}"),
        )
        for peak in one.device.peaks
    )
    title = f"NVIDIA Tesla V100S, a datasheet titan-x {secret(name)}"
    return replace(one, title=title, device=replace(one.device, peaks=peaks), notes=(f"note {secret(name)}",))


def named(target: str) -> SheetModel:
    """Every machine is a target except the last of the others, which is the baseline."""
    machines = tuple(rich(name) for name in NAMES)
    old = next(name for name in reversed(NAMES) if name != target)
    given = {
        name: Given(Span(3600.0 + place, 3000.0, 4000.0), "estimated", "lab", secret(name))
        for place, name in enumerate(NAMES)
    }
    jobs = {
        name: JobTerms(3.0, 0.4, 0.2, 0.0, 20.0, 7.0, 0.9, 1.3, 8, 50, "modelled", "lab", secret(name))
        for name in NAMES
    }
    others = " and ".join(secret(name) for name in NAMES if name != target)
    lines = (
        op(
            "gemm",
            evidence=f"20 TFLOP/s; utilisation 0.5, typical of gemm/vector on {others} and similar machines",
        ),
        op("conv", time_source="transferred", evidence=f"as 3 other tables, mostly {others}, follow 9"),
        op("norm", time_source="transferred", utilisation=None, time_s=1e-4, evidence=f"as {others}"),
        op("softmax", time_source="measured", utilisation=None, time_s=1e-4, evidence="NV_V100 a.xlsx, row 4"),
    )
    work = sheet_model().workloads[0]
    made_with = (("framework", "torch"), ("device", others), ("parameters", "3"))
    return replace(
        sheet_model(),
        machines=machines,
        workloads=(
            replace(work, made_with=made_with),
            replace(sheet_model().workloads[2], jobs=jobs),
            replace(sheet_model().workloads[3], given=given),
        ),
        cases=tuple(
            Case(work.name, one.name, lines, "fp32: as traced", ("input",), (f"of {secret(one.name)}",))
            for one in machines
        ),
        targets=tuple(name for name in NAMES if name != old),
        baseline=old,
        widened=NAMES,
        deviations=tuple((name, f"deviates {secret(name)}") for name in NAMES),
        notes=(f"note {others}",),
        rounds=tuple((name, f"round 1: {secret(name)}") for name in NAMES),
    )


def words(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return "".join(archive.read(name).decode("utf-8") for name in archive.namelist())


@pytest.mark.parametrize("target", NAMES)
def test_its_own_words_stand_and_no_others_do(tmp_path: Path, target: str) -> None:
    path = tmp_path / "for.xlsx"
    write_workbook(named(target), path, target)
    text, own = words(path), secret(target)
    assert set(re.findall(r"kept-back-\d+x", text)) == {own}
    assert "another machine" not in text
    for said in (
        f"NVIDIA Tesla V100S, a datasheet titan-x {own}",
        f"NVIDIA Tesla V100 datasheet, a titan of a page, {own}",
        f"deviates {own}",
        f"{target}: round 1: {own}",
        "NV_V100 a.xlsx, row 4",
        "framework torch, parameters 3",
    ):
        assert said in text, said
    book = openpyxl.load_workbook(path)
    for table in (FACTS, GIVEN, JOBS, OPS):
        column, sheet = table.position("machine"), book[table.sheet]
        start = next(row for row in range(1, sheet.max_row) if sheet.cell(row, 1).value == table.title) + 2
        names = set()
        while sheet.cell(start, 1).value:
            names.add(sheet.cell(start, column).value)
            start += 1
        assert names
        assert names <= {target, "baseline"}


def test_a_source_that_may_be_others_is_said_from_its_own_figures() -> None:
    lines = for_target(named("titan"), "titan").cases[0].ops
    assert [line.evidence for line in lines] == [
        "rates of this machine; utilisation 0.5, typical of gemm/vector on timed machines",
        "predicted from timed ops; equals a utilisation of 0.5 here",
        "predicted by the lab from times of norm/vector on timed machines",
        "NV_V100 a.xlsx, row 4",
    ]


MADE_ANEW = {
    SheetModel: {
        "machines",
        "workloads",
        "cases",
        "targets",
        "baseline",
        "uses",
        "widened",
        "deviations",
        "caveats",
        "rounds",
    },
    Machine: set(),
    WorkloadFacts: {"given", "jobs", "made_with"},
    JobTerms: set(),
    Case: {"ops"},
    OpLine: {"evidence"},
}
KEPT_BACK = {
    SheetModel: {"notes"},
    Machine: {
        "host_op_s", "links", "timed_links", "fits", "timings_key", "excluded", "reserve_byte", "software",
        "notes", "origin", "energy", "price", "device_of",
        "plausibility", "asked_as", "typical", "year", "stated",
    },
    WorkloadFacts: set(), JobTerms: set(), Case: set(), OpLine: set(),
}  # fmt: skip


@pytest.mark.parametrize("record", VISIBLE_FIELDS)
def test_whoever_adds_a_field_decides_whether_the_target_sees_it(record: type) -> None:
    decided = [set(VISIBLE_FIELDS[record]), MADE_ANEW[record], KEPT_BACK[record]]
    assert set.union(*decided) == {one.name for one in fields(record)}
    assert sum(map(len, decided)) == len(fields(record))


def test_the_work_is_the_same_and_so_is_the_answer() -> None:
    from fomkit.workbook.records import evaluate

    whole = named("a")
    shown = for_target(whole, "a")
    assert shown.mean == MEAN
    ours, theirs = (evaluate(one).merits["a"].value for one in (shown, whole))
    assert ours.ends == pytest.approx(theirs.ends, rel=1e-12)


def test_a_target_cannot_be_called_as_copies_call_the_baseline() -> None:
    book = sheet_model()
    target = replace(book.machines[0], name="baseline")
    whole = replace(book, machines=(target, *book.machines[1:]), targets=("baseline",))
    with pytest.raises(FomkitError, match="is the baseline's name in copies"):
        for_target(whole, "baseline")


def test_use_in_a_step_of_other_machines_stays_behind() -> None:
    whole = sheet_model()
    ends = (0.9, 1.1)
    both = {own_use("library", name): ends for name in ("acme-1", "oldlab-3")}
    own = for_target(replace(whole, uses={**whole.uses, **both}), "acme-1")
    assert own.uses == {**whole.uses, own_use("library", "acme-1"): ends}


def test_names_that_hold_an_on_are_told_apart(tmp_path: Path) -> None:
    """Work ``a on b`` on machine ``c``, and work ``a`` on machine ``b on c``."""
    pairs = {("a on b", "c"): 0.25, ("a on b", "b on c"): 0.5, ("a", "c"): 0.75, ("a", "b on c"): 0.125}
    workloads = tuple(
        WorkloadFacts(
            work, unit=Unit("run", 1.0), basis="estimated", party="lab",
            given={
                name: Given(Span(7200, 3600, 9000, 0.8, share), "estimated", "lab")
                for (whose, name), share in pairs.items() if whose == work
            },
        )
        for work in ("a on b", "a")
    )  # fmt: skip
    machines = (machine("c", 2.0), machine("b on c", 3.0))
    uses = {**sheet_model().uses, own_use("library", "b on c"): (0.5, 2.0)}
    whole = replace(sheet_model(), machines=machines, workloads=workloads, cases=(), targets=("c",),
                    baseline="b on c", uses=uses, widened=("c",))  # fmt: skip
    write_workbook(whole, tmp_path / "all.xlsx")
    read = sheet_model_from(read_book(tmp_path / "all.xlsx"))
    shares = {(one.name, name): given.unit_s.shared for one in read.workloads for name, given in one.given.items()}
    assert shares == pytest.approx(pairs)
    assert (set(read.uses_on("b on c")), set(read.uses_on("c"))) == ({"library"}, set(sheet_model().uses))
    assert not for_target(whole, "c").uses.keys() & {own_use("library", "b on c")}


def test_a_copy_does_not_say_that_its_baseline_is_a_board_of_the_targets_chip(tmp_path: Path) -> None:
    """So its errors count as independent there, and the interval is wider than in the study's own workbook."""
    whole = sheet_model(chip="NVIDIA Hopper GH100")
    copy = for_target(whole, "acme-1")
    write_workbook(copy, tmp_path / "copy.xlsx")
    read = sheet_model_from(read_book(tmp_path / "copy.xlsx"))
    known, told, again = (evaluate(one).merits["acme-1"].value for one in (whole, copy, read))
    assert told.value == pytest.approx(known.value)
    assert told.high / told.low > known.high / known.low
    assert (again.low, again.high) == pytest.approx((told.low, told.high))
    with zipfile.ZipFile(tmp_path / "copy.xlsx") as archive:
        assert not any(b"Hopper" in archive.read(name) for name in archive.namelist())
