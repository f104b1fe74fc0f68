"""Write a sheet model as a workbook: inputs are cells, everything else is formulas, saved with their values.

Charts show the headlines, and defined names refer to them independently of the sheets' layout.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from openpyxl import Workbook
from openpyxl.chart import BarChart, Reference, Series, data_source, error_bar, shapes
from openpyxl.workbook.defined_name import DefinedName
from openpyxl.worksheet.header_footer import HeaderFooter, HeaderFooterItem, _HeaderFooterPart
from openpyxl.worksheet.properties import PageSetupProperties

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.files.write import write_whole
from fomkit.files.xlsx import MAX_ROWS
from fomkit.workbook import input_sheets, layout
from fomkit.workbook.cells import LEGEND, Formula, Page, Value, add_styles
from fomkit.workbook.layout import PARETO, SHEETS, Placed
from fomkit.workbook.op_sheets import write_ops, write_workloads
from fomkit.workbook.read import mark_idle
from fomkit.workbook.records import Case, SheetModel, evaluate
from fomkit.workbook.summary_sheet import FOM, SummaryCells, own_rows, write_checks, write_summary
from fomkit.workbook.timings_sheet import DEVICE, Sheets, write_timings
from fomkit.workbook.vendor import for_target

_FORMULA = re.compile(r'<c r="([A-Z]+\d+)"([^>]*)><f>([^<]*)</f><v\s*/?>(?:</v>)?</c>')
_START = (1980, 1, 1, 0, 0, 0)
"""Time stamp of every part, so that workbooks with the same content have the same bytes."""


def _with_values(xml: str, values: Mapping[str, float | str]) -> str:
    def written(found: re.Match[str]) -> str:
        address, attributes, formula = found.groups()
        value = values[address]
        if isinstance(value, str):
            return f'<c r="{address}"{attributes} t="str"><f>{formula}</f><v>{escape(value)}</v></c>'
        return f'<c r="{address}"{attributes}><f>{formula}</f><v>{value!r}</v></c>'

    return _FORMULA.sub(written, xml)


LONGEST = 12
"""Largest number of ops in a chart."""
_HEIGHT_CM, _WIDTH_CM, _ROWS = 8.5, 22.0, 18
_OPS_CM, _OPS_ROWS = 11.5, 23
"""Height of a chart of ops: spreadsheet programs leave out names that have no room."""


def _bars(title: str, axis: str, horizontal: bool = False) -> BarChart:
    chart = BarChart()
    chart.type = "bar" if horizontal else "col"
    chart.title = title
    chart.y_axis.title = axis
    chart.legend = None
    chart.height, chart.width = _HEIGHT_CM, _WIDTH_CM  # type: ignore[assignment]  # the stubs want whole numbers
    # Spreadsheet programs hide an axis unless ``delete`` is explicitly false.
    chart.x_axis.delete = chart.y_axis.delete = False
    chart.y_axis.scaling.min = 0
    chart.gapWidth = 60
    if horizontal:
        chart.x_axis.scaling.orientation = "maxMin"
        chart.x_axis.tickLblSkip = 1
        chart.height = _OPS_CM
    return chart


def _block_reference(page: Page, placed: Placed, key: str, start: int, stop: int) -> Reference:
    column = placed.table.position(key)
    return Reference(page.sheet, min_col=column, min_row=placed.first + start, max_row=placed.first + stop - 1)


def _add_ratio_charts(page: Page, placed: Placed, targets: Iterable[str]) -> None:
    """Add one chart of the ratios for each target below the tables of the first page."""
    for target in targets:
        span = own_rows(placed, target)
        chart = _bars(f"{target}: ratio to the baseline, with intervals", "times the baseline")
        series = Series(_block_reference(page, placed, "value", *span), title="ratio")
        ends = (data_source.NumRef(f=placed.block(key, *span)) for key in ("plus", "minus"))
        plus, minus = (data_source.NumDataSource(numRef=end) for end in ends)
        series.errBars = error_bar.ErrorBars("y", "both", "cust", plus=plus, minus=minus)
        chart.series.append(series)
        # Invisible bars up to the high bounds: programs scale an axis by its bars and would cut error bars off.
        room = Series(_block_reference(page, placed, "high", *span), title="high end")
        room.graphicalProperties = shapes.GraphicalProperties(noFill=True)
        room.graphicalProperties.line.noFill = True
        chart.series.append(room)
        chart.overlap = 100
        chart.set_categories(_block_reference(page, placed, "workload", *span))
        page.sheet.add_chart(chart, f"A{page.row}")
        page.row += _ROWS


def _pareto_rows(number: int, case: Case, sheets: Sheets) -> Iterator[list[Value]]:
    spans, device = sheets.values.cases[case.key].ops, sheets.values.cases[case.key].step.device_s.value
    start, together = sheets.ops.starts[case.key][0], 0.0
    priced = [index for index, span in enumerate(spans) if span is not None][:LONGEST]
    for rank, index in enumerate(priced):
        line, span = case.ops[index], spans[index]
        total = span.value * line.count if span is not None else 0.0
        together += total / device
        row = number + rank
        share = f"{PARETO.letter('total')}{row}/(1000*{sheets.terms.at(*case.key, DEVICE)})"
        so_far = f"{PARETO.letter('share')}${number}:{PARETO.letter('share')}{row}"
        yield [
            f"{case.workload} {rank + 1}",
            f"{line.sizes} ({line.pass_name})"[:60],
            Formula(f"1000*{sheets.ops.placed.at('total', start + index)}", 1000 * total),
            Formula(share, total / device),
            Formula(f"SUM({so_far})", together),
        ]


def _add_op_charts(page: Page, sheets: Sheets) -> None:
    """Add a table and a chart of the longest ops of each workload on each target, below the workloads."""
    for case in sheets.sheet_model.cases:
        if case.machine not in sheets.sheet_model.targets:
            continue
        rows = list(_pareto_rows(page.first_row(), case, sheets))
        if not rows:
            continue
        title = f"Longest ops of {case.name}, in the issued order"
        start = page.row
        placed = page.table(PARETO, rows, title)
        chart = _bars(title, "ms per step", horizontal=True)
        series = Series(_block_reference(page, placed, "total", 0, len(rows)), title="time per step")
        chart.series.append(series)
        chart.set_categories(_block_reference(page, placed, "label", 0, len(rows)))
        page.sheet.add_chart(chart, f"G{start}")
        page.row = max(page.row, start + _OPS_ROWS)


def name_of(*words: str) -> str:
    """Make a defined name from words: other characters become ``_``.

    A single word may look like a cell address, as TC1 or V100 do, so callers put another word before it.

    >>> name_of("unit_per_day", "gpt-2 small")
    'unit_per_day_gpt_2_small'
    """
    return "_".join(re.sub(r"[^A-Za-z0-9_]", "_", word) for word in words)[:250]


def _defined_names(
    sheet_model: SheetModel, machines: input_sheets.MachineCells, summary: SummaryCells
) -> Iterator[tuple[str, str]]:
    """Yield name and cell of each headline; those of the first target have the short names."""
    for place, target in enumerate(sheet_model.targets):
        end = () if place == 0 else (target,)
        if (target, FOM) in summary.merits.rows:
            yield name_of("fom", *end), summary.merits.of((target, FOM), "value")
        for word, fact in (("target_nodes", "nodes"), ("target_bandwidth", "memory bandwidth")):
            if (index := machines.find(target, fact)) is not None:
                yield name_of(word, *end), machines.placed.at("value", index)
        for workload in sheet_model.workloads:
            if (workload.name, target) in summary.answers.rows:
                cell = summary.answers.of((workload.name, target), "rate")
                yield name_of("unit_per_day", workload.name, *end), cell


def unique_names(pairs: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Make names distinct by a number at the end; spreadsheet programs ignore the case of letters."""
    names: dict[str, str] = {}
    for name, cell in pairs:
        taken = {known.lower() for known in names}
        chosen, number = name, 2
        while chosen.lower() in taken:
            chosen, number = f"{name}_{number}", number + 1
        names[chosen] = cell
    return names


_MAX_OPS = MAX_ROWS - 100
"""Largest number of ops in a sheet that `fomkit review` can read back, with room for its other rows."""


def _fill_book(book: Workbook, sheet_model: SheetModel, only: str | None) -> dict[str, Page]:
    values = evaluate(sheet_model)
    pages = {name: Page(book.create_sheet(name)) for name in SHEETS}
    machines = input_sheets.write_machines(pages["Machines"], sheet_model)
    workloads = write_workloads(pages["Workloads"], sheet_model, values, machines)
    ops = write_ops(pages["Ops"], sheet_model, values, machines)
    assumptions = input_sheets.write_assumptions(pages["Assumptions"], sheet_model)
    sheets = write_timings(pages["Timings"], sheet_model, values, assumptions, machines, workloads, ops)
    summary = write_summary(pages["Summary"], sheets)
    _add_op_charts(pages["Workloads"], sheets)
    if summary.ratios is not None:
        targets = (target for target in sheet_model.targets if any(key[1] == target for key in values.ratios))
        _add_ratio_charts(pages["Summary"], summary.ratios, targets)
    write_checks(pages["Checks"], sheets, summary)
    input_sheets.write_provenance(pages["Provenance"], sheet_model, __version__)
    input_sheets.write_history(pages["History"], sheet_model)
    input_sheets.write_read_me(pages["Read me"], sheet_model, only)
    mark_idle(pages, sheet_model, machines)
    for name, cell in unique_names(_defined_names(sheet_model, machines, summary)).items():
        book.defined_names[name] = DefinedName(name, attr_text=cell)
    return pages


_PAGES_WIDE = {"Ops": 2}
_FROZEN = {"Machines": "E5", "Workloads": "B5", "Ops": "D5", "Timings": "D1", "Summary": "B1"}


def _set_up(pages: dict[str, Page]) -> None:
    """Freeze panes and set up printing."""
    for name, page in pages.items():
        sheet = page.sheet
        sheet.freeze_panes = _FROZEN.get(name, "A2")
        sheet.page_setup.orientation = "landscape"
        sheet.page_setup.paperSize = 9  # A4
        sheet.page_setup.fitToWidth = _PAGES_WIDE.get(name, 1)
        sheet.page_setup.fitToHeight = {"Read me": 1}.get(name, 0)
        sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
        sheet.HeaderFooter = HeaderFooter(
            oddHeader=HeaderFooterItem(left=_HeaderFooterPart(name), right=_HeaderFooterPart("fomkit")),
            oddFooter=HeaderFooterItem(center=_HeaderFooterPart("page &P of &N")),
        )
        if name in ("Machines", "Ops"):
            sheet.print_title_rows = "4:4"
        if name in _PAGES_WIDE:
            sheet.print_title_cols = "A:D"
        sheet.sheet_view.zoomScale = 90
        sheet.sheet_view.showGridLines = False


def workbook_bytes(shown: SheetModel, only: str | None = None) -> bytes:
    """Return the workbook of a sheet model as bytes; ``only``: its single target."""
    rows = sum(len(case.ops) for case in shown.cases)
    if rows > _MAX_OPS:
        raise FomkitError("workbook", f"{rows:,} ops do not fit a sheet. Write fewer models or targets in one.")
    book = Workbook()
    book.remove(book.worksheets[0])
    tables = [table for table in vars(layout).values() if isinstance(table, layout.Table)]
    pairs = {(column.role, column.form) for table in tables for column in table.columns}
    forms = {(role, form) for _, form in pairs for role in ("formula", "condition", "idle")}
    add_styles(book, pairs | forms | {(role, "General") for role in LEGEND})
    pages = _fill_book(book, shown, only)
    _set_up(pages)
    book.calculation.fullCalcOnLoad = True
    book.properties.creator, book.properties.title = "fomkit", shown.title[:200]
    saved = io.BytesIO()
    book.save(saved)
    parts = {f"xl/worksheets/sheet{number}.xml": page.cached for number, page in enumerate(pages.values(), 1)}
    result = io.BytesIO()  # with the value of every formula, for previews and readers that do not compute
    with zipfile.ZipFile(io.BytesIO(saved.getvalue())) as archive, zipfile.ZipFile(result, "w") as copy:
        for name in archive.namelist():
            data = archive.read(name)
            if name in parts:
                data = _with_values(data.decode("utf-8"), parts[name]).encode("utf-8")
            copy.writestr(zipfile.ZipInfo(name, _START), data, zipfile.ZIP_DEFLATED)
    return result.getvalue()


def write_workbook(sheet_model: SheetModel, path: Path, only: str | None = None) -> SheetModel:
    """Write a sheet model's workbook, or its target ``only``'s, whole or not at all; return what it shows."""
    shown = sheet_model if only is None else for_target(sheet_model, only)
    write_whole(path, workbook_bytes(shown, only))
    return shown
