"""A returned workbook is compared cell by cell: old, new, reason, effect, and points to discuss."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
from libreoffice import resaved
from made_ledgers import sheet_model
from returns import ACME, Edit, content, fact, op, returned
from sheets import find
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.plan.coverage import uses_of
from fomkit.profiles.machines import load_machine
from fomkit.workbook.layout import FACTS, GIVEN, TERMS, WORKLOADS
from fomkit.workbook.records import evaluate
from fomkit.workbook.review import review
from fomkit.workbook.write import write_workbook


def test_nothing_changed(issued: Path, tmp_path: Path) -> None:
    found = content(issued, returned(issued, tmp_path))
    assert (found["changes"], found["together"], found["findings"]) == ([], [], [])


def test_each_change_has_its_effect_alone_and_all_together(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, fact(1700), op("utilisation", 0.6, "conv"))
    found = content(issued, path)
    assert found["findings"] == []
    first, second = found["changes"]
    assert (first["where"], first["what"]) == ("Machines!E7", "acme-1 memory bandwidth")
    assert (first["old"], first["new"], first["unit"]) == (1600, 1700, "GB/s")
    assert (first["basis"], first["party"], first["source"]) == ("committed", "vendor", "contract, annex 2")
    assert second["what"].startswith("net-a acme-1 aten::conv")
    made = sheet_model()
    device = made.machines[0].device
    assert device.byte_per_s is not None
    faster = replace(device, byte_per_s=replace(device.byte_per_s, value=1.7e12))
    after = evaluate(replace(made, machines=(replace(made.machines[0], device=faster), *made.machines[1:])))
    effects = {one["figure"]: one for one in first["alone"]}
    assert effects["FOM of acme-1"]["new"] == pytest.approx(after.merits["acme-1"].value.value, rel=1e-12)
    rate = effects["units/day of net-a on acme-1"]["new"]
    assert rate == pytest.approx(after.unit_per_day["net-a", "acme-1"].value, rel=1e-12)
    together = {one["figure"]: one["change"] for one in found["together"]}
    alone = [{one["figure"]: one["change"] for one in change["alone"]} for change in found["changes"]]
    figure = "units/day of net-a on acme-1"
    assert together[figure] > max(one[figure] for one in alone) > 0
    assert not any("rival" in name for name in together)


def test_the_same_after_libreoffice_saved_it(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, fact(1700), op("time", 1e-5, "norm"))
    direct, again = content(issued, path), content(issued, resaved(path, tmp_path))
    for one, other in zip(direct["changes"], again["changes"], strict=True):
        assert [effect["figure"] for effect in other["alone"]] == [effect["figure"] for effect in one["alone"]]
        assert one["alone"]
        for ours, theirs in zip(one["alone"], other["alone"], strict=True):
            figures = [[effect[key] for key in ("old", "new", "change")] for effect in (ours, theirs)]
            assert figures[1] == pytest.approx(figures[0], rel=1e-9)
        assert (other["where"], other["new"]) == (one["where"], pytest.approx(one["new"]))
    assert again["findings"] == direct["findings"] == []


FINDINGS: dict[str, tuple[Edit, str, str]] = {
    "unit": (fact(1.7, key="value"), "unit", "the cell is in GB/s and was 1600; 1.7 is 0.00106 times that"),
    "unit beside": (lambda book: fact("TB/s", key="unit", said=False)(book), "unit", "unit was 'GB/s', is 'TB/s'"),
    "precision": (
        lambda book: setattr(find(book, FACTS, "what", **ACME, fact="peak"), "value", "tf32"),
        "precision",
        "number format or name was 'fp32', is 'tf32'",
    ),
    "range": (fact(-3.0), "range", "is -3, and more than 0 was expected"),
    "whole": (fact(2.5, "devices per node"), "range", "is 2.5, and a whole number was expected"),
    "share": (fact(1.2, "availability"), "range", "a share up to 1 was expected"),
    "order": (fact(50, "launch cost"), "range", "the interval 3 … 10 does not contain the value 50"),
    "emptied": (fact("unknown"), "range", "was a figure and is now unknown"),
    "above peak": (op("utilisation", 1.25, "conv"), "above peak", "1.25 times as fast as the stated peak"),
    "measured above peak": (op("time", 1e-6, "norm"), "above peak", "times as fast as the stated peak"),
    "sparse peak": (
        lambda book: setattr(find(book, FACTS, "value", **ACME, what="fp16"), "value", 360),
        "sparse peak",
        "acme-1 peak fp16 matrix: 360 TFLOP/s is twice the issued one: a rate with sparsity? Ask for the dense",
    ),
    "no ground": (fact(1700, said=False), "basis", "the figure was changed, and basis, party and source were not"),
    "basis": (op("utilisation", 0.6, "conv", said=False), "basis", "basis, party and source were not"),
    "condition": (
        lambda book: setattr(find(book, WORKLOADS, "epochs", workload="TC1"), "value", 200),
        "condition",
        "TC1, epochs [1/run] is fixed for all vendors; a change is a deviation",
    ),
    "formula": (
        lambda book: setattr(find(book, TERMS, "value", **ACME, workload="net-a", term="step"), "value", 0.001),
        "formula",
        "0.001 is found. It is ignored",
    ),
    "figure over a prediction": (op("time", 1e-6, "conv", said=False), "formula", "is found. It is ignored"),
}


@pytest.mark.parametrize("case", FINDINGS)
def test_what_has_to_be_talked_about(issued: Path, tmp_path: Path, case: str) -> None:
    edit, kind, said = FINDINGS[case]
    found = content(issued, returned(issued, tmp_path, edit))
    matching = [one for one in found["findings"] if one["kind"] == kind and said in one["said"]]
    assert matching, found["findings"]
    assert "!" in matching[0]["where"]
    if kind == "formula":
        assert found["together"] == []  # nothing that was computed there counts


def test_an_impossible_figure_ends_in_a_finding_not_in_a_traceback(issued: Path, tmp_path: Path) -> None:
    found = content(issued, returned(issued, tmp_path, fact(0), fact(1, "devices per node")))
    assert {"range"} <= {one["kind"] for one in found["findings"]}


def given(hours: object) -> Edit:
    return lambda book: setattr(find(book, GIVEN, "hours", **ACME, workload="chem"), "value", hours)


CANNOT: dict[str, tuple[Edit, str]] = {
    "unknown bandwidth": (fact("unknown"), "acme-1 memory bandwidth is unknown"),
    "blank utilisation": (op("utilisation", None, "conv"), "utilisation (floor over kernel time) is unknown"),
    "negative peak": (fact(-5, "peak"), "acme-1 peak fp32 vector is impossible"),
    "hours of nothing": (given(1e-300), "chem acme-1 is impossible"),
    "hours of a microsecond": (given(1e-9), "chem acme-1 is impossible"),
    "nodes without end": (fact(1e300, "nodes"), "acme-1 nodes is impossible"),
    "interval beside": (fact(50, "launch cost"), "acme-1 launch cost is impossible"),
}


@pytest.mark.parametrize("case", CANNOT)
def test_a_figure_that_cannot_be_has_no_effect(issued: Path, tmp_path: Path, case: str) -> None:
    edit, said = CANNOT[case]
    path = returned(issued, tmp_path, edit, fact(0.9, "availability"))
    found = content(issued, path)
    first = next(one for one in found["changes"] if one["not_computed"])
    assert first["not_computed"].endswith(said)
    assert first["alone"] is None
    assert found["together"] is None
    assert next(one for one in found["changes"] if "availability" in one["what"])["alone"]
    text = run(path, "--issued", issued)[1]
    assert f"alone: cannot be computed: {first['not_computed']}" in text
    assert f"all together: cannot be computed: {first['where']}: impossible" in text


def test_a_better_basis_alone_is_told(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, fact("measured", key="basis", said=False))
    (finding,) = content(issued, path)["findings"]
    assert finding["kind"] == "basis"
    assert "was 'published', is 'measured', but no figure changed" in finding["said"]


def test_plain_counts_have_no_unit(issued: Path, tmp_path: Path) -> None:
    out = run(returned(issued, tmp_path, fact(120, "nodes")), "--issued", issued)[1]
    assert "acme-1 nodes: 100 → 120\n" in out


def test_moved_rows_are_refused(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, lambda book: book["Machines"].delete_rows(6))
    with pytest.raises(
        FomkitError, match="sheet Machines, cell B6: 'memory bandwidth' is found, 'peak' was issued"
    ):
        review(path, issued)
    path = returned(issued, tmp_path, lambda book: book["Ops"].delete_rows(46))
    with pytest.raises(FomkitError, match=r"sheet Ops: the table 'Ops' has 41 rows, 42 were issued"):
        review(path, issued)


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["review", *map(str, words)])
    if isinstance(result.exception, FomkitError):
        return 2, result.stdout, str(result.exception)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_and_the_round_it_keeps(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, fact(1700), op("utilisation", 0.6, "conv"))
    kept = tmp_path / "round2.yaml"
    code, out, _ = run(path, "--issued", issued, "-o", kept)
    assert code == 0
    assert "Machines!E7: acme-1 memory bandwidth: 1600 → 1700 GB/s" in out
    assert "basis committed, party vendor; contract, annex 2" in out
    assert "alone: FOM of acme-1" in out
    machine = load_machine(kept)
    assert (machine.name, machine.party) == ("acme-1", "vendor")
    assert machine.device.byte_per_s is not None
    assert machine.device.byte_per_s.value == 1.7e12
    assert machine.device.byte_per_s.basis == "committed"
    assert (machine.node_devices, machine.system_nodes, machine.availability) == (4, 100, 0.95)
    assert len(machine.overheads) == 4
    (row,) = machine.timings.to_dict("records")
    assert (row["kind"], row["party"], row["basis"], row["in_channels"]) == ("conv", "vendor", "simulated", 4)
    assert row["time_s"] == pytest.approx(3e10 / 1.8e14 / 0.6)
    assert [note for note in machine.notes if note.startswith("round 1: ")] == list(machine.notes)
    assert "1600 → 1700 GB/s (committed, vendor, contract, annex 2)" in machine.notes[0]
    assert run(path, "--issued", issued, "-o", kept)[0] == 2  # never over a file without --force
    assert run(path, "--issued", issued, "-o", kept, "--force")[0] == 0


def test_rounds_stand_in_the_next_workbook(issued: Path, tmp_path: Path) -> None:
    path, kept = returned(issued, tmp_path, fact(1700)), tmp_path / "round2.yaml"
    assert run(path, "--issued", issued, "-o", kept)[0] == 0
    from fomkit.workbook.from_studies import rounds_of

    said = rounds_of([load_machine(kept)])
    write_workbook(replace(sheet_model(), rounds=said), tmp_path / "next.xlsx", "acme-1")
    sheet = openpyxl.load_workbook(tmp_path / "next.xlsx")["History"]
    texts = [str(cell.value) for row in sheet.iter_rows() for cell in row]
    assert any("round 1: Machines!E7" in text and "1600 → 1700 GB/s" in text for text in texts)


def test_exit_codes_and_json(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, fact(-3.0))
    code, out, _ = run(path, "--issued", issued, "--json")
    assert code == 1
    assert json.loads(out)["schema"] == "fomkit/review/1"
    code, out, said = run(path, "--issued", issued, "-o", tmp_path / "no.yaml")
    assert code == 2
    assert "is not written, because Machines!E7 is impossible" in said
    assert not (tmp_path / "no.yaml").exists()
    code, _, said = run(tmp_path / "absent.xlsx", "--issued", issued)
    assert code == 2
    assert "absent.xlsx: cannot be read" in said


def test_a_vendors_timing_leaves_the_table_what_it_is() -> None:
    """The error of use in a step is added as before, although one row has no harness now."""
    base = load_machine("v100")
    row = {"kind": "gemm", "dtype": "fp32", "engine": "vector", "time_s": 1e-3, "party": "vendor", "harness": ""}
    stated = pd.concat([base.timings, pd.DataFrame([row])], ignore_index=True)
    assert uses_of(base)
    assert uses_of(replace(base, timings=stated)) == uses_of(base)
    assert not uses_of(replace(base, timings=stated.iloc[-1:]))


@pytest.mark.parametrize("model", ["tc1", "resnet50"])
def test_a_kept_round_estimates_what_its_review_said(model: str, tmp_path: Path) -> None:
    """For a machine with a table, measured ops keep their times, the others their utilisation."""
    sent, back, kept = (tmp_path / name for name in ("sent.xlsx", "back.xlsx", "round2.yaml"))
    arguments = ["estimate", model, "-t", "v100", "--baseline", "p100", "-o", str(sent)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    book = openpyxl.load_workbook(sent)
    sheet, cell = book.defined_names["target_bandwidth"].attr_text.replace("$", "").split("!")
    book[sheet][cell].value = 1100
    book.save(back)
    code, out, _ = run(back, "--issued", sent, "-o", kept, "--json")
    assert code == 1  # the basis was not changed with the figure
    (effect,) = (one for one in json.loads(out)["together"] if one["figure"].startswith("units/day"))
    machine = load_machine(kept)
    assert machine.origin is not None
    now = fomkit.estimate(model, machine)
    assert now.unit_per_day is not None
    assert now.unit_per_day.value == pytest.approx(effect["new"], rel=1e-8)
    assert effect["new"] > effect["old"]
    assert set(now.ops["time_source"]) <= {"measured", "transferred", "roofline"}
