"""A review reports a vendor's tricks: intervals, bulk changes, claims of measurement, white text, other charts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest
from libreoffice import resaved
from openpyxl import Workbook
from openpyxl.formatting.rule import Rule
from openpyxl.styles import Color, Font, PatternFill
from openpyxl.styles.differential import DifferentialStyle
from returns import ACME, Edit, content, fact, op, returned
from sheets import find

from fomkit.core.interval import probability_above
from fomkit.files.xlsx import contrast, is_legible, palette_of
from fomkit.output.decisions import format_review
from fomkit.output.screen import Screen
from fomkit.workbook.layout import FACTS, OPS
from fomkit.workbook.records import evaluate
from fomkit.workbook.review import review

NARROW = Screen(80)


def every_op(change: Callable[[str, float], float], *keys: str, said: tuple[str, str, str] | None = None) -> Edit:
    """Change figures of all ops of acme-1, with or without other texts."""

    def edit(book: Workbook) -> None:
        sheet = book["Ops"]
        for row in range(5, sheet.max_row + 1):
            if sheet.cell(row, OPS.position("machine")).value != "acme-1":
                continue
            cells = {key: sheet.cell(row, OPS.position(key)) for key in keys}
            figures = {key: cell for key, cell in cells.items() if isinstance(cell.value, int | float)}
            for key, cell in figures.items():
                cell.value = change(key, float(str(cell.value)))
            for key, word in zip(("basis", "party", "evidence"), (said or ()) if figures else (), strict=False):
                sheet.cell(row, OPS.position(key)).value = word

    return edit


def narrow(key: str, _: float) -> float:
    return {"low": 0.999, "high": 1.001}[key]


def test_narrower_intervals_move_the_interval_and_the_chance(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, every_op(narrow, "low", "high"))
    found = content(issued, path)
    effect = next(one for one in found["together"] if one["figure"] == "FOM of acme-1")
    after = evaluate(review(path, issued).after).merits["acme-1"].value
    assert effect["new"] == effect["old"]
    assert effect["change"] == 0
    assert (effect["new_low"], effect["new_high"]) == pytest.approx((after.low, after.high), rel=1e-12)
    assert effect["new_low"] > effect["old_low"]
    assert effect["new_high"] < effect["old_high"]
    assert effect["new_probability"] == pytest.approx(probability_above(after, found["threshold"]), abs=1e-12)
    assert effect["new_probability"] != effect["old_probability"]
    text = format_review(found)
    assert "moves nothing" not in text
    assert re.search(r"all together: FOM of acme-1 [\d.]+ \([\d.]+ … [\d.]+ → [\d.]+ … [\d.]+\)", text)
    assert re.search(r"P\(FOM of acme-1 ≥ 11\.?0*\) [\d.]+% → [\d.]+%", text)


def test_a_bulk_change_is_one_line_for_each_column(issued: Path, tmp_path: Path) -> None:
    words = ("measured", "vendor", "our lab")
    path = returned(issued, tmp_path, every_op(lambda _, value: value * 1.06, "utilisation", said=words))
    found = content(issued, path)
    (group,) = found["groups"]
    assert (group["sheet"], group["machine"]) == ("Ops", "acme-1")
    assert group["column"] == "utilisation (floor over kernel time)"
    assert group["count"] == len(group["where"]) == len(found["changes"]) == 10
    assert (group["factor_low"], group["factor_high"]) == pytest.approx((1.06, 1.06))
    assert group["basis"][0] == {"old": "modelled", "new": "measured", "count": 10}
    assert group["alone"] == found["together"]
    assert group["alone"][0]["change"] > 0.005
    narrow = format_review(found, NARROW).splitlines()
    assert max(len(line) for line in narrow if len(line.split()) > 1) <= NARROW.width
    lines = format_review(found).splitlines()
    assert len([line for line in lines if line.startswith("Ops!")]) == 1
    assert lines[1].endswith("acme-1, utilisation (floor over kernel time): 10 cells × 1.060")
    assert lines[2] == "  basis modelled → measured, party published → vendor; our lab"
    told = [line for line in lines if line.startswith("to discuss: ")]
    assert len(told) == 1
    assert "And 9 more cells of this column" in told[0]


def test_words_without_figures_are_one_line_too(issued: Path, tmp_path: Path) -> None:
    def edit(book: Workbook) -> None:
        for row in range(5, 12):
            book["Ops"].cell(row, OPS.position("basis")).value = "measured"

    found = content(issued, returned(issued, tmp_path, edit))
    assert len(found["findings"]) == 6  # one was measured before
    lines = format_review(found).splitlines()
    assert lines[1] == "Ops!AE5 … AE11: acme-1, basis: 6 cells"
    assert lines[2].startswith("  basis modelled → measured (5), not stated → measured (1), party published")
    assert len([line for line in lines if line.startswith("to discuss: ")]) <= 2


def test_different_things_to_say_of_one_column_stay_apart(issued: Path, tmp_path: Path) -> None:
    found = content(issued, returned(issued, tmp_path, every_op(narrow, "low", "high"), op("low", 1.5, "conv")))
    lines = [line for line in format_review(found).splitlines() if line.startswith("to discuss: ")]
    assert any("(range)" in line and "does not contain the value 1" in line for line in lines)
    assert any("(basis)" in line and "more cells of this column" in line for line in lines)


@pytest.mark.parametrize(
    ("edit", "was"),
    [
        (fact(1700, said=False), ""),
        (op("utilisation", 0.6, "conv", said=False), "but was modelled"),
        (op("time", 2e-6, "norm", said=False), "as issued"),
    ],
)
def test_who_calls_a_changed_figure_measured_is_asked_for_evidence(
    issued: Path, tmp_path: Path, edit: Edit, was: str
) -> None:
    def labelled(book: Workbook) -> None:
        for kind in ("conv", "norm"):
            find(book, OPS, "basis", **ACME, workload="net-a", kind=kind).value = "measured"
            find(book, OPS, "evidence", **ACME, workload="net-a", kind=kind).value = "our lab"

    found = content(issued, returned(issued, tmp_path, edit, labelled))
    questions = [one["said"] for one in found["findings"] if one["kind"] == "evidence"]
    assert len(questions) == bool(was)
    if was:
        assert f"a changed figure is labelled measured, {was}. Ask for the measurement" in questions[0]


def test_a_change_that_moves_nothing_is_told_so_and_kept(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, fact(20, "memory capacity"))
    found = content(issued, path)
    (change,) = found["changes"]
    assert (change["moves_nothing"], change["alone"], found["together"]) == (True, [], [])
    assert "alone: no effect: no result depends on it" in format_review(found)
    kept = review(path, issued).after.machine("acme-1").device.capacity_byte
    assert kept is not None
    assert kept.value == pytest.approx(20 * 2**30)


def test_ends_that_nobody_was_asked_for_keep_their_ratio(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, fact(3200))
    assert content(issued, path)["findings"] == []
    bandwidth = review(path, issued).after.machine("acme-1").device.byte_per_s
    assert bandwidth is not None
    assert (bandwidth.value, bandwidth.low, bandwidth.high) == pytest.approx((3.2e12, 2.8e12, 3.6e12))


def ink(**colour: object) -> Edit:
    return lambda book: setattr(book["Ops"]["S6"], "font", Font(color=Color(**colour)))  # type: ignore[arg-type]


def painted(**colours: str) -> Edit:
    def edit(book: Workbook) -> None:
        cell = book["Summary"]["D7"]
        cell.font = Font(color=colours["text"])
        cell.fill = PatternFill("solid", fgColor=colours["ground"])

    return edit


def condition(style: DifferentialStyle) -> Edit:
    def edit(book: Workbook) -> None:
        rule = Rule("expression", formula=["TRUE"], dxf=style)
        book["Summary"].conditional_formatting.add("D7:F9", rule)

    return edit


UNREADABLE: dict[str, tuple[Edit, str]] = {
    "white": (ink(rgb="FFFFFFFF"), "Ops!S6: cannot be read: its text has the colour FFFFFF on"),
    "nearly": (ink(rgb="FFFFFDF0"), "Ops!S6: cannot be read: its text has the colour FFFDF0 on"),
    "theme": (ink(theme=0), "Ops!S6: cannot be read: its text has the colour FFFFFF on"),
    "theme with a tint": (ink(theme=1, tint=0.97), "Ops!S6: cannot be read"),
    "indexed": (ink(indexed=9), "Ops!S6: cannot be read: its text has the colour FFFFFF on"),
    "on its own colour": (painted(text="FF1F3864", ground="FF203864"), "Summary!D7: cannot be read"),
    "small": (lambda book: setattr(book["Summary"]["D7"], "font", Font(size=1)), "font size is 1 points"),
    "condition": (
        condition(DifferentialStyle(font=Font(color="FFFFFFFF"))),
        "Summary!D7: a conditional format makes cells unreadable: its text has the colour FFFFFF on FFFFFF",
    ),
    "condition, ground": (
        condition(DifferentialStyle(fill=PatternFill("solid", bgColor="FF000000"))),
        "Summary!D7: a conditional format makes cells unreadable: its text has the colour 000000 on 000000",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_text_that_nobody_can_read_is_told(issued: Path, tmp_path: Path, case: str) -> None:
    edit, said = UNREADABLE[case]
    found = content(issued, returned(issued, tmp_path, edit))
    told = [f"{one['where']}: {one['said']}" for one in found["findings"] if one["kind"] == "hidden"]
    assert len(told) == 1, found["findings"]
    assert said in told[0]


def test_words_beside_the_tables_in_white_are_told_twice(issued: Path, tmp_path: Path) -> None:
    def edit(book: Workbook) -> None:
        book["Machines"]["Z5"].value = "only with our software"
        book["Machines"]["Z5"].font = Font(color="FFFFFFFF")

    kinds = {one["kind"] for one in content(issued, returned(issued, tmp_path, edit))["findings"]}
    assert kinds == {"label", "hidden"}


def test_colours_stated_in_any_way() -> None:
    palette = palette_of(None)
    assert palette.colour({"theme": "0"}, "000000") == "FFFFFF"
    assert palette.colour({"theme": "1", "tint": "0.5"}, "") == "808080"
    assert palette.colour({"indexed": "64"}, "") == "000000"
    assert palette.colour({"rgb": "FF1F3864"}, "") == "1F3864"
    assert palette.colour({"auto": "1"}, "000000") == "000000"
    assert palette.colour({"rgb": "no colour"}, "000000") == palette.colour({"theme": "99"}, "000000") == "000000"
    assert contrast("000000", "FFFFFF") == pytest.approx(21)
    assert is_legible("7F7F7F", "FFFFFF")
    assert not is_legible("E0E0E0", "FFFFFF")


def redirected(book: Workbook) -> None:
    """Make the bars of the first chart read the column of upper bounds."""
    chart = book["Summary"]._charts[0]  # type: ignore[attr-defined]
    reference = chart.series[0].val.numRef
    reference.f = reference.f.replace("$D$", "$F$")


def shifted(book: Workbook) -> None:
    """Let the error bars read other cells."""
    bars = book["Summary"]._charts[0].series[0].errBars  # type: ignore[attr-defined]
    bars.plus.numRef.f = bars.minus.numRef.f


@pytest.mark.parametrize("edit", [redirected, shifted])
def test_a_chart_that_reads_other_cells_is_told(issued: Path, tmp_path: Path, edit: Edit) -> None:
    (finding,) = content(issued, returned(issued, tmp_path, edit))["findings"]
    assert (finding["where"], finding["kind"]) == ("Summary", "chart")
    assert re.match(r"a chart reads SUMMARY![A-Z]+\d+:[A-Z]+\d+; SUMMARY!", finding["said"])


def test_a_chart_that_is_gone_is_told(issued: Path, tmp_path: Path) -> None:
    path = returned(issued, tmp_path, lambda book: book["Workloads"]._charts.clear())  # type: ignore[attr-defined]
    (finding,) = content(issued, path)["findings"]
    assert (finding["where"], finding["kind"]) == ("Workloads", "chart")


def test_what_libreoffice_saved_again_is_clean(issued: Path, tmp_path: Path) -> None:
    found = content(issued, resaved(returned(issued, tmp_path), tmp_path))
    assert (found["changes"], found["findings"]) == ([], [])


def test_a_redirected_chart_is_told_after_libreoffice_saved_it(issued: Path, tmp_path: Path) -> None:
    path = resaved(returned(issued, tmp_path, redirected, ink(rgb="FFFFFFFF")), tmp_path)
    kinds = [one["kind"] for one in content(issued, path)["findings"]]
    assert sorted(kinds) == ["chart", "hidden"]


def test_a_note_of_an_idle_cell_is_not_taken_for_a_comment(issued: Path) -> None:
    cell = find(openpyxl.load_workbook(issued), FACTS, "value", **ACME, fact="memory capacity")
    assert cell.comment is not None
    assert content(issued, issued)["findings"] == []
