"""A spreadsheet program computes from a workbook's cells what Python computes from its sheet model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pytest
from libreoffice import recalculated
from made_ledgers import sheet_model
from sheets import find

from fomkit.core.interval import share_that_cancels
from fomkit.workbook.layout import ANSWERS, CHECKS, FACTS, GIVEN, JOBS, MERITS, OPS, RATIOS, TERMS, WORKLOADS
from fomkit.workbook.read import read_book
from fomkit.workbook.read_sheet_model import sheet_model_from
from fomkit.workbook.records import SheetModel, Values, evaluate
from fomkit.workbook.vendor import for_target
from fomkit.workbook.write import write_workbook

NEAR = 1e-9
ACME = {"machine": "acme-1"}
PERTURBED = [
    (FACTS, "value", {**ACME, "fact": "memory bandwidth"}, 1234.5),
    (FACTS, "value", {**ACME, "fact": "peak", "what": "fp32"}, 17.25),
    (FACTS, "value", {**ACME, "fact": "launch cost"}, 7.5),
    (FACTS, "value", {**ACME, "fact": "nodes"}, 77),
    (FACTS, "value", {**ACME, "fact": "overhead", "what": "checkpoint"}, 4.25),
    (FACTS, "value", {"machine": "oldlab-3", "fact": "availability"}, 0.8),
    (WORKLOADS, "epochs", {"workload": "TC1"}, 123),
    (WORKLOADS, "train", {"workload": "net-a"}, 98_765),
    (OPS, "utilisation", {**ACME, "workload": "net-a", "kind": "conv"}, 0.61),
    (OPS, "time", {**ACME, "workload": "TC1", "kind": "norm"}, 9.9e-5),
    (OPS, "high", {**ACME, "workload": "TC1", "kind": "gemm"}, 2.5),
    (OPS, "count", {**ACME, "workload": "net-a", "kind": "pointwise"}, 55),
    (GIVEN, "hours", {**ACME, "workload": "chem"}, 3.75),
    (JOBS, "exposed", {**ACME, "workload": "GPT"}, 0.55),
    (JOBS, "steps", {"machine": "oldlab-3", "workload": "GPT"}, 25),
    (WORKLOADS, "runs", {"workload": "GPT"}, 2),
]  # fmt: skip


def ends(values: object) -> list[float]:
    return [getattr(values, end) for end in ("value", "low", "high")]


def expected(book: SheetModel, values: Values) -> Iterator[tuple[str, list[object], list[float]]]:
    """Yield the places of cells and the figures that Python computes for them."""
    for (workload, name), one in values.cases.items():
        place = {"workload": workload, "machine": name}
        run = one.run
        terms = [
            ("device", one.step.device_s),
            ("step", one.step.wall_s),
            ("epoch", run.epoch_s),
            ("run", run.run_s),
        ]
        terms += [("units of work", one.unit_per_day), ("validation of an epoch", run.validation_s)]
        for term, span in terms:
            if span is not None:
                yield f"{place} {term}", [TERMS, ("value", "low", "high"), {**place, "term": term}], ends(span)
    for (workload, name), span in values.unit_per_day.items():
        place = {"workload": workload, "machine": name}
        yield f"rate {place}", [ANSWERS, ("rate", "rate_low", "rate_high"), place], ends(span)
    for (workload, name), span in values.ratios.items():
        place = {"workload": workload, "machine": name}
        yield f"ratio {place}", [RATIOS, ("value", "low", "high"), place], ends(span)
    for name, merit in values.merits.items():
        place = {"what": f"figure of merit ({book.mean})", "machine": name}
        yield f"fom {name}", [MERITS, ("value", "low", "high"), place], ends(merit.value)
        by = "weighted " * (book.mean == "weighted_harmonic")
        for side, rate in merit.mean_rates.items():
            place = {"what": f"{side}'s {by}harmonic mean rate", "machine": name}
            yield f"{side} {name}", [MERITS, ("value",), place], (rate,)
        for mean, span in merit.others.items():
            assert span.low < span.value < span.high, mean
            place = {"what": f"by the mean {mean}", "machine": name}
            yield f"{mean} {name}", [MERITS, ("value", "low", "high"), place], ends(span)


def assert_agrees(path: Path, book: SheetModel) -> None:
    computed = openpyxl.load_workbook(path, data_only=True)
    rows = list(expected(book, evaluate(book)))
    assert len(rows) > 20
    for said, (table, keys, place), figures in rows:
        found = [find(computed, table, key, **place).value for key in keys]  # type: ignore[arg-type,attr-defined]
        assert found == pytest.approx(figures, rel=NEAR), said


def states(path: Path) -> set[str]:
    sheet = openpyxl.load_workbook(path, data_only=True)[CHECKS.sheet]
    found = {str(row[CHECKS.position("state") - 1].value) for row in sheet.iter_rows(min_row=6)}
    return found - {"None"}


KINDS = [
    ("node", "weighted_harmonic", False, "A B C", 0.8), ("system", "ratio_of_harmonic_means", False, "", 0.8),
    ("node", "geometric", True, "", 0.8),
    ("device", "geometric", False, "", 0.95),  # stated bounds of launch costs and overheads are those of 80 %
]  # fmt: skip


ONE = [(FACTS, "value", {**ACME, "fact": "memory bandwidth"}, 2400)]


@pytest.fixture(scope="module")
def workbooks(issued: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """Write a workbook of each of `KINDS`, `PERTURBED` and `ONE`, and compute all anew in one go."""
    folder = tmp_path_factory.mktemp("anew")
    paths = [folder / f"{number}.xlsx" for number in range(len(KINDS) + 2)]
    for (scope, mean, for_vendor, chip, level), path in zip(KINDS, paths, strict=False):
        model = sheet_model(scope, mean, chip, level)
        # In a vendor's copy the baseline's predicted rates are given, and what their errors share goes along.
        write_workbook(for_target(model, "acme-1") if for_vendor else model, path)
    for cells, path in zip((PERTURBED, ONE), paths[len(KINDS) :], strict=True):
        book = openpyxl.load_workbook(issued)
        for table, key, place, value in cells:
            cell = find(book, table, key, **place)
            assert cell.value != value
            cell.value = value
        book.save(path)
    return list(zip(paths, recalculated(paths, folder), strict=True))


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_every_formula_gives_pythons_value(workbooks: list[tuple[Path, Path]], number: int) -> None:
    (scope, mean, for_vendor, chip, level), (path, anew) = KINDS[number], workbooks[number]
    model = sheet_model(scope, mean, chip, level)
    cancels = [share_that_cancels(span, span) for span in evaluate(model).unit_per_day.values()]
    assert any(cancels) == bool(chip)
    fom, again = (evaluate(one).merits["acme-1"].value for one in (model, sheet_model_from(read_book(path))))
    assert ends(again) == pytest.approx(ends(fom), rel=NEAR)
    shown = openpyxl.load_workbook(path, data_only=True)
    formulas = openpyxl.load_workbook(path)
    computed = openpyxl.load_workbook(anew, data_only=True)
    count = 0
    for sheet in formulas:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    count += 1
                    place = shown[sheet.title][cell.coordinate].value
                    again = computed[sheet.title][cell.coordinate].value
                    value = place if isinstance(place, str) else pytest.approx(place, rel=NEAR)
                    assert again == value, f"{sheet.title}!{cell.coordinate} {cell.value}"
    assert count > 500
    if not for_vendor:
        assert_agrees(path, model)
    assert "error" not in states(path)


def test_it_follows_its_inputs(workbooks: list[tuple[Path, Path]]) -> None:
    path, after = workbooks[len(KINDS)]
    changed = sheet_model_from(read_book(path))
    assert_agrees(after, changed)
    before = evaluate(sheet_model()).merits["acme-1"].value.value
    assert evaluate(changed).merits["acme-1"].value.value != pytest.approx(before, rel=0.01)
    assert "error" not in states(after)
    assert "changed" in states(after)
    assert "as issued" not in {
        find(
            openpyxl.load_workbook(after, data_only=True), TERMS, "state", workload="net-a", machine="acme-1"
        ).value
    }


def test_only_what_hangs_on_a_change_is_called_changed(issued: Path, workbooks: list[tuple[Path, Path]]) -> None:
    computed = openpyxl.load_workbook(workbooks[-1][1], data_only=True)
    found = {
        (row["workload"], row["machine"]): find(computed, ANSWERS, "state", **row).value
        for name in ("acme-1", "rival-9", "oldlab-3")
        for row in ({"workload": "net-a", "machine": name}, {"workload": "TC1", "machine": name})
    }
    assert {key for key, state in found.items() if state == "changed"} == {("net-a", "acme-1"), ("TC1", "acme-1")}
    assert find(computed, MERITS, "state", machine="acme-1").value == "changed"
    assert find(computed, MERITS, "state", machine="rival-9").value == "as issued"
    place, before = {"workload": "net-a", "machine": "acme-1"}, openpyxl.load_workbook(issued, data_only=True)
    for kind, faster in (("norm", 1.0), ("pointwise", 1.5)):  # a measured op, and one that waits for bytes
        old, new = (find(one, OPS, "total", kind=kind, **place).value for one in (before, computed))
        assert old / new == pytest.approx(faster, rel=0.2 if faster > 1 else NEAR), kind
    made = find(before, OPS, "made", kind="norm", **place).value
    assert made == "an input: measured, does not change with peak or bandwidth"
    assert find(before, OPS, "total", kind="embedding", **place).value == "unknown"
