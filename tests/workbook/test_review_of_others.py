"""A baseline that is the lab's own machine: its rows are conditions, and nothing of it is stored."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest
from made_ledgers import sheet_model
from openpyxl import Workbook
from returns import Edit, content, fact, returned
from sheets import find
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.workbook.layout import FACTS, GIVEN, OPS, Table
from fomkit.workbook.write import write_workbook

OWN = {"machine": "oldlab-3"}


def own(table: Table, key: str, value: object, **place: str) -> Edit:
    def edit(book: Workbook) -> None:
        for column, entry in ((key, value), ("basis", "measured"), ("party", "lab")):
            find(book, table, column, **OWN, **place).value = entry  # type: ignore[assignment]

    return edit


EDITS = {
    "hours": own(GIVEN, "hours", 80.0, workload="chem"),
    "availability": own(FACTS, "value", 0.5, fact="availability"),
    "devices": own(FACTS, "value", 2, fact="devices per node"),
    "bandwidth": own(FACTS, "value", 400.0, fact="memory bandwidth"),
    "utilisation": own(OPS, "utilisation", 0.1, workload="net-a", kind="conv"),
    "time": own(OPS, "time", 1e-3, workload="net-a", kind="norm"),
    "words": own(FACTS, "source", "annex 9", fact="nodes"),
}


@pytest.mark.parametrize("case", EDITS)
def test_a_change_of_the_labs_own_machine_is_a_deviation_and_left_out(
    issued: Path, tmp_path: Path, case: str
) -> None:
    found = content(issued, returned(issued, tmp_path, EDITS[case], fact(1700)))
    said = [one["said"] for one in found["findings"] if one["kind"] == "condition"]
    assert said
    assert all("fixed for all vendors; a change is a deviation; it is ignored" in one for one in said)
    alone = content(issued, returned(issued, tmp_path, fact(1700)))
    assert found["together"] == alone["together"] != []


def test_its_cells_are_grey(issued: Path) -> None:
    book = openpyxl.load_workbook(issued)
    places = [
        (FACTS, "value", {"fact": "memory bandwidth"}),
        (FACTS, "source", {"fact": "memory bandwidth"}),
        (GIVEN, "hours", {}),
        (OPS, "utilisation", {"kind": "conv"}),
    ]
    for table, key, place in places:
        ours, theirs = (find(book, table, key, machine=name, **place) for name in ("oldlab-3", "acme-1"))
        assert ours.fill.fgColor.rgb != theirs.fill.fgColor.rgb, key
        assert ours.number_format == theirs.number_format
        assert ours.style.startswith("condition")


def keep(path: Path, issued: Path, kept: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["review", str(path), "--issued", str(issued), "-o", str(kept)])
    if isinstance(result.exception, FomkitError):
        return 2, str(result.exception)
    return result.exit_code, result.stderr


def test_nothing_is_kept_of_a_machine_that_is_no_target(issued: Path, tmp_path: Path) -> None:
    kept = tmp_path / "round2.yaml"
    code, said = keep(returned(issued, tmp_path, EDITS["bandwidth"]), issued, kept)
    assert code == 2
    assert "changes oldlab-3, which is not a target. Nothing is stored" in said
    sent = tmp_path / "for.xlsx"
    write_workbook(sheet_model(), sent, "acme-1")
    edit: Edit = lambda book: setattr(  # noqa: E731
        find(book, FACTS, "value", machine="baseline", fact="memory bandwidth"), "value", 5.0
    )
    code, said = keep(returned(sent, tmp_path, edit), sent, kept)
    assert code == 2
    assert "changes baseline, which is not a target" in said
    assert not kept.exists()


def test_given_times_are_not_kept_and_that_is_said(issued: Path, tmp_path: Path) -> None:
    def edit(book: Workbook) -> None:
        for key, entry in (("hours", 3.5), ("basis", "measured"), ("party", "vendor"), ("source", "run 7")):
            find(book, GIVEN, key, machine="acme-1", workload="chem").value = entry  # type: ignore[assignment]

    kept = tmp_path / "round2.yaml"
    code, said = keep(returned(issued, tmp_path, edit, fact(1700)), issued, kept)
    assert code == 1  # who calls a changed figure measured is asked for the measurement
    links, given = said.splitlines()  # of no profile found by the name acme-1
    assert links.startswith("not stored: links, energy, price and timings; put the profile of the machine into")
    assert given == "not stored: 1 change of given times; they belong in the suite"
    text = kept.read_text("utf-8")
    assert "round 1: Machines!E7" in text
    assert "Workloads!" not in text
