"""A workbook is safe to open, shows numbers before any recalculation, and reveals no confidential data."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from made_ledgers import op, sheet_model
from sheets import find

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.plan.coverage import STEP as WHOLE
from fomkit.plan.coverage import Spread, Use, use_widths
from fomkit.plan.options import Options
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.verbs.compare import compare
from fomkit.workbook.from_studies import sheet_model_of_comparison
from fomkit.workbook.layout import ANSWERS, FACTS, INPUT_TABLES, OPS, SHEETS, WORKLOADS
from fomkit.workbook.records import Case, SheetModel, evaluate
from fomkit.workbook.timings_sheet import _use_row
from fomkit.workbook.write import name_of, unique_names, write_workbook

LIVE = ["=1+1", "+1", "-x", "@x", '=HYPERLINK("http://x","y")', "\tx", "=cmd|' /C calc'!A0"]


def parts(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}


def test_sheets_names_and_set_up(issued: Path) -> None:
    book = openpyxl.load_workbook(issued)
    assert tuple(book.sheetnames) == SHEETS
    assert book.calculation.fullCalcOnLoad
    for sheet in book:
        assert sheet.freeze_panes, sheet.title
        assert sheet.page_setup.orientation == "landscape"
        assert sheet.sheet_properties.pageSetUpPr.fitToPage
    names = {name: found.attr_text for name, found in book.defined_names.items()}
    assert {"fom", "target_nodes", "target_bandwidth", "unit_per_day_net_a", "unit_per_day_TC1"} <= set(names)
    assert "TC1" not in names
    shown = openpyxl.load_workbook(issued, data_only=True)

    def value(name: str) -> object:
        sheet, _, cell = names[name].partition("!")
        return shown[sheet][cell.replace("$", "")].value

    values = evaluate(sheet_model())
    assert value("fom") == pytest.approx(values.merits["acme-1"].value.value)
    assert value("fom_rival_9") == pytest.approx(values.merits["rival-9"].value.value)
    assert value("target_nodes") == 100
    assert value("target_bandwidth") == 1600
    assert value("unit_per_day_TC1") == pytest.approx(values.unit_per_day["TC1", "acme-1"].value)


def test_ends_that_nobody_stated_are_shown_as_a_word(tmp_path: Path) -> None:
    path = tmp_path / "lecture.xlsx"
    fomkit.write_workbook(fomkit.fom("lecture", "a"), path)
    summary = openpyxl.load_workbook(path)["Summary"]
    words = {
        (str(area.sqref), rule.formula[0])
        for area, rules in summary.conditional_formatting._cf_rules.items()
        for rule in rules
        if rule.dxf.numFmt is not None and rule.dxf.numFmt.formatCode == '"none stated"'
    }
    header = next(
        row for row in summary.iter_rows() if row[0].value == "workload" and row[4].value == "ratio, low"
    )
    first = header[0].row + 1
    low = f"AND(ISNUMBER($E{first}),$E{first}=$F{first})"
    assert {(f"{letter}{first}:{letter}{first + 2}", low) for letter in "EF"} <= words


def test_names_are_no_addresses_and_each_stands_once() -> None:
    assert name_of("unit_per_day", "V100") == "unit_per_day_V100"
    assert unique_names(iter([("a_b", "x"), ("A_B", "y"), ("a_b", "z")])) == {
        "a_b": "x",
        "A_B_2": "y",
        "a_b_3": "z",
    }


def test_inputs_are_cells_and_the_rest_are_formulas(issued: Path) -> None:
    book = openpyxl.load_workbook(issued)
    place = {"workload": "net-a", "machine": "acme-1"}
    time = find(book, OPS, "time", **place, kind="conv")
    row = time.row
    cell = {column.key: f"{OPS.letter(column.key)}{row}" for column in OPS.columns}
    assert (
        time.value
        == f"=MAX({cell['flop']}/{cell['peak']},{cell['byte']}/{cell['bandwidth']})/{cell['utilisation']}"
    )
    assert find(book, OPS, "time", **place, kind="norm").data_type == "n"
    for table in INPUT_TABLES[:1] + INPUT_TABLES[2:4]:
        for column in table.columns:
            formulas = {
                book[table.sheet][f"{column_cell}"].data_type
                for column_cell in [f"{table.letter(column.key)}{find(book, table, column.key).row}"]
            }
            if column.role in ("formula", "state"):
                assert formulas == {"f"}, column.header
    assert find(book, FACTS, "value", machine="acme-1", fact="peak").value == 20
    assert find(book, FACTS, "unit", machine="acme-1", fact="peak").value == "TFLOP/s"


def test_numbers_show_before_anything_is_computed(issued: Path) -> None:
    formulas, shown = openpyxl.load_workbook(issued), openpyxl.load_workbook(issued, data_only=True)
    for sheet in formulas:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    assert shown[sheet.title][cell.coordinate].value is not None, (
                        f"{sheet.title}!{cell.coordinate}"
                    )
    table = pd.read_excel(issued, sheet_name="Ops", header=3)
    assert table["time [s/step]"].notna().all()


def test_roles_are_seen_and_units_stand_in_headers(issued: Path) -> None:
    book = openpyxl.load_workbook(issued)
    fills = {
        role: find(book, table, key, machine="acme-1").fill.fgColor.rgb
        for role, table, key in (("input", FACTS, "value"), ("formula", FACTS, "si"), ("condition", OPS, "flop"))
    }
    assert len(set(fills.values())) == 3
    headers = [column.header for column in OPS.columns if column.key in ("flop", "byte", "time", "peak", "total")]
    assert all(re.search(r"\[.+\]", header) for header in headers)


def test_charts_are_native_and_read_cells(issued: Path) -> None:
    drawn = {name: text for name, text in parts(issued).items() if name.startswith("xl/charts/chart")}
    assert len(drawn) == 2 + 2 * 2  # a ratio of each target, the ops of two workloads on both
    ratio = [text for text in drawn.values() if "errBars" in text]
    assert len(ratio) == 2
    assert all("Summary" in text and "<c:plus>" in text.replace("<plus>", "<c:plus>") for text in ratio)
    assert all("tickLblSkip" in text for text in drawn.values() if text not in ratio)  # each op has its name


def test_every_header_is_shown_whole(issued: Path) -> None:
    book = openpyxl.load_workbook(issued)
    heads = [cell for sheet in book for row in sheet for cell in row if cell.fill.fgColor.rgb == "001F3864"]
    assert len(heads) > 100
    for cell in heads:
        width = cell.parent.column_dimensions[cell.column_letter].width
        lines = cell.parent.row_dimensions[cell.row].height / 13
        assert len(str(cell.value)) <= lines * width, cell.value


def hostile(text: str) -> SheetModel:
    book = sheet_model()
    lines = (replace(op("gemm"), op=text, sizes=text, evidence=text, bound=text), *book.cases[0].ops)
    first = replace(book.workloads[0], name=text, title=text)
    cases = tuple(
        replace(case, workload=text, ops=lines, deviations=(text,)) if case.workload == "net-a" else case
        for case in book.cases
    )
    facts = replace(book.machines[0], title=text, notes=(text,))
    return replace(
        book,
        workloads=(first, *book.workloads[1:]),
        cases=cases,
        machines=(facts, *book.machines[1:]),
        notes=(text,),
    )


@pytest.mark.parametrize("text", LIVE)
def test_text_never_becomes_a_formula(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostile.xlsx"
    write_workbook(hostile(text), path)
    mark = re.escape(text.lstrip("\t").replace("&", "&amp;").replace('"', "&quot;"))
    for name, part in parts(path).items():
        assert not re.search(rf"<f>[^<]*{mark[2:]}[^<]*</f>", part) or len(text) < 4, name
    book = openpyxl.load_workbook(path)
    found = [cell for row in book["Ops"].iter_rows() for cell in row if str(cell.value).endswith(text[1:])]
    assert found
    assert {cell.data_type for cell in found if cell.value == text} <= {"s"}
    assert {cell.data_type for cell in book["Workloads"]["A"] if cell.value == text} <= {"s"}


def test_unknown_is_a_word_and_long_text_is_cut_visibly(tmp_path: Path) -> None:
    path = tmp_path / "long.xlsx"
    write_workbook(hostile("x" * 40_000), path)
    book = openpyxl.load_workbook(path)
    text = str(book["Ops"]["C5"].value)
    assert len(text) == 32_767
    assert text.endswith("[cut, 40,000 characters]")
    assert find(book, OPS, "flop", kind="pointwise").value == "unknown"
    assert find(book, FACTS, "value", machine="rival-9", fact="launch cost").value == "unknown"
    assert find(book, WORKLOADS, "validation", workload="TC1").value == "unknown"
    for part in parts(path).values():
        assert not re.search(r"<v>(nan|inf|-inf|NaN)</v>", part)


def test_a_copy_for_one_target_names_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "for.xlsx"
    write_workbook(sheet_model(), path, "acme-1")
    values = evaluate(sheet_model())
    content = parts(path)
    words = "".join(content.values()).lower()
    for word in ("rival", "oldlab", "price", "usd", "eur"):
        assert word not in words, word
    others = [values.unit_per_day["net-a", "rival-9"].value, values.cases["net-a", "oldlab-3"].step.wall_s.value]
    numbers = {
        round(float(one), 12) for text in content.values() for one in re.findall(r"<v>(-?[\d.eE+-]+)</v>", text)
    }
    assert not numbers & {round(one, 12) for one in others}
    book = openpyxl.load_workbook(path, data_only=True)
    shown = find(book, ANSWERS, "rate", workload="net-a", machine="acme-1").value
    assert shown == pytest.approx(values.unit_per_day["net-a", "acme-1"].value)
    summary = str([cell.value for row in book["Summary"].iter_rows() for cell in row])
    fom = values.merits["acme-1"].value
    assert "baseline" in summary
    assert book["Summary"][
        openpyxl.load_workbook(path).defined_names["fom"].attr_text.split("!")[1].replace("$", "")
    ]
    assert any(
        isinstance(cell.value, float) and cell.value == pytest.approx(fom.high, rel=1e-9)
        for row in book["Summary"].iter_rows()
        for cell in row
    )
    with pytest.raises(FomkitError, match=r"--for acme-2: is not a target here\. The nearest name is 'acme-1'"):
        write_workbook(sheet_model(), path, "acme-2")


def test_sources_of_given_times_stay_behind(tmp_path: Path) -> None:
    book = sheet_model()
    lines = tuple(
        replace(one, given={name: replace(time, source="mail of the 3rd") for name, time in one.given.items()})
        for one in book.workloads
    )
    for only, stays in ((None, True), ("acme-1", False)):
        path = tmp_path / f"{only}.xlsx"
        shown = write_workbook(replace(book, workloads=lines), path, only)
        assert any("mail of the 3rd" in text for text in parts(path).values()) is stays
        assert shown.targets == (("acme-1", "rival-9") if only is None else (only,))


def test_a_copy_of_a_real_study_names_no_other_machine(tmp_path: Path, root: Path) -> None:
    """An op's time may depend on other machines, which its evidence names."""
    models = [load_model(name) for name in ("p1b3", "alexnet")]
    result = compare(models, [load_machine("mi25"), load_machine("v100")], load_machine("p100"), Options())
    whole, own = tmp_path / "whole.xlsx", tmp_path / "own.xlsx"
    write_workbook(sheet_model_of_comparison(result), whole)
    write_workbook(sheet_model_of_comparison(result), own, "mi25")
    names = [path.stem for path in (root / "machine_profiles").glob("*.yaml") if len(path.stem) > 1]
    words = re.compile(rf"(?<![\w-])(?:{'|'.join(names)}|nvidia)(?![\w-])", re.IGNORECASE)

    def named(path: Path) -> set[str]:
        # Addresses of cells look like machines; only texts count.
        sheets = {name: text for name, text in parts(path).items() if name.startswith("xl/worksheets/")}
        texts = [one for text in sheets.values() for one in re.findall(r"<t[^>]*>([^<]*)</t>", text)]
        texts += [text for name, text in parts(path).items() if name not in sheets]
        return {word.lower() for word in words.findall(" ".join(texts))}

    assert {"v100", "p100", "mi25"} < named(whole)
    assert named(own) == {"mi25"}


def test_same_content_gives_the_same_cells_and_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    write_workbook(sheet_model(), first)
    write_workbook(sheet_model(), second)
    sheets = [{name: text for name, text in parts(path).items() if "sheet" in name} for path in (first, second)]
    assert sheets[0] == sheets[1]
    before = first.read_bytes()
    broken = replace(sheet_model(), cases=(Case("net-a", "acme-1", (op("gemm"),) * 20_000),))
    with pytest.raises(FomkitError, match="20,000 ops do not fit a sheet"):
        write_workbook(broken, first)
    assert first.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xlsx", "b.xlsx"]


def test_a_rate_says_how_far_a_change_of_it_is_off(tmp_path: Path) -> None:
    """A sweep also changes measured ops, which are inputs here: a note next to the rate bounds the difference."""
    path = tmp_path / "decode.xlsx"
    found = fomkit.estimate_all(["today/llama3-8b-decode"], ["h100-sxm"])
    made = sheet_model_of_comparison(found)
    write_workbook(made, path)
    sheet = openpyxl.load_workbook(path)["Machines"]
    notes = {row[1].value: row[4].comment.text for row in sheet.iter_rows(min_row=5) if row[4].comment}
    (said,) = re.findall(r"llama3-8b-decode ([\d.]+)%\. fomkit sweep scales", notes["memory bandwidth"])
    device = made.machines[0].device
    twice = replace(device, byte_per_s=replace(device.byte_per_s, value=2 * device.byte_per_s.value))
    here = evaluate(replace(made, machines=(replace(made.machines[0], device=twice),)))
    rate = here.unit_per_day["llama3-8b-decode", "h100-sxm"].value
    swept = fomkit.sweep("today/llama3-8b-decode", "h100-sxm", vary=["byte_per_s=6.7TB/s"]).table
    off = swept["unit_per_day"].iloc[0] / rate - 1
    assert 0.6 * float(said) / 100 < off <= float(said) / 100
    assert "measured" not in notes.get("peak", "").lower()


def test_a_forward_pass_without_times_from_a_table_is_not_widened_by_use_in_a_step() -> None:
    """The plan widens a pass only if one of its own ops rests on a table; so does the workbook's formula."""

    def sums(seconds: float, forward: float) -> list[float]:
        return [seconds, seconds, seconds, 0.0, 0.0, forward, forward, forward, 0.0, 0.0]

    for forward in (0.0, 1.0):
        families = {("gemm", "interpolated"): sums(2.0, forward), ("pointwise", "roofline"): sums(3.0, 1.0)}
        row = _use_row(Case("net", "v100", ()), WHOLE, 5, families, (0.9, 1.2), ("B2", "C2"))
        of_step, of_forward = ([one.value for one in row[at : at + 2]] for at in (5, 8))
        seconds = np.array([[2.0, forward], [3.0, 1.0]])
        uses = {"library": Use(Spread(0.0, 0.0), Spread(0.0, 0.0)), WHOLE: Use(Spread(0.0, 0.0), Spread(0.1, 0.1))}
        found = use_widths(("gemm", "pointwise"), seconds, np.array([[True], [False]]), uses, 0.8)
        none, widths = found["library"][1], found[WHOLE][1]
        assert of_step == pytest.approx([5.0 * -0.1, 5.0 * 0.2])
        assert (of_forward == [0.0, 0.0]) == (widths[1] == 0.0) == (forward == 0.0)
        assert none.tolist() == [0.0, 0.0]
        assert row[8].text.startswith("IF(")
        assert row[8].text.endswith(",0)*(B2-1)")


def test_a_group_that_serves_a_model_is_in_a_workbook(tmp_path: Path) -> None:
    """The ops of one device, with its collectives, are the whole step; a node of 8 devices runs one group of 8."""
    path, job = tmp_path / "group.xlsx", {"layout": "tensor=8", "scope": "node"}
    found = fomkit.estimate_all(["llama3-70b-decode"], ["h200-sxm"], "h100-sxm", **job)
    made = sheet_model_of_comparison(found)
    values = evaluate(made)
    for one in (*found.estimates, *found.baseline):
        place = (one.model.name, one.machine.name)
        assert values.unit_per_day[place].ends == pytest.approx(one.unit_per_day.ends)
        assert values.cases[place].step.wall_s.ends == pytest.approx(one.step.ends)
    assert values.ratios["llama3-70b-decode", "h200-sxm"].value == pytest.approx(found.merits[0].value.value)
    write_workbook(made, path)
    book = openpyxl.load_workbook(path)
    assert find(book, WORKLOADS, "devices", workload="llama3-70b-decode").value == 8
    with pytest.raises(FomkitError, match="its run uses 8 devices, but a workbook is for a step on one device"):
        sheet_model_of_comparison(fomkit.estimate_all(["llama3-8b"], ["h100-sxm"], nodes=1, allow_uncovered=True))
