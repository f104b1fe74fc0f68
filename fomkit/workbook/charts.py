"""Native charts: the ratio of each workload with its interval, and the longest ops of each workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fomkit.ledger import Case, Ledger, Values
from fomkit.workbook.cells import Formula, Value
from fomkit.workbook.layout import PARETO, UNKNOWN, Placed
from fomkit.workbook.ops_sheet import OpCells
from fomkit.workbook.page import Page
from fomkit.workbook.summary_sheet import SummaryCells
from fomkit.workbook.terms import DEVICE
from fomkit.workbook.timings_sheet import TermCells

if TYPE_CHECKING:
    from openpyxl.chart import BarChart

LONGEST = 12
"""Ops in a chart."""
_HEIGHT_CM, _WIDTH_CM, _ROWS = 8.5, 22.0, 18


def _bars(title: str, axis: str, horizontal: bool = False) -> BarChart:
    from openpyxl.chart import BarChart

    chart = BarChart()
    chart.type = "bar" if horizontal else "col"
    chart.title = title
    chart.y_axis.title = axis
    chart.legend = None
    chart.height, chart.width = _HEIGHT_CM, _WIDTH_CM  # type: ignore[assignment]  # the stubs want whole numbers
    # Spreadsheet programs hide an axis that does not say it is kept.
    chart.x_axis.delete = chart.y_axis.delete = False
    chart.y_axis.scaling.min = 0
    chart.gapWidth = 60
    if horizontal:
        chart.x_axis.scaling.orientation = "maxMin"
    return chart


def _reference(page: Page, placed: Placed, key: str, start: int, stop: int) -> Any:
    from openpyxl.chart import Reference

    column = placed.table.position(key)
    return Reference(page.sheet, min_col=column, min_row=placed.first + start, max_row=placed.first + stop - 1)


def add_ratio_charts(page: Page, summary: SummaryCells) -> None:
    """Put one chart for each target below the tables of the first page."""
    from openpyxl.chart import Series
    from openpyxl.chart.data_source import NumDataSource, NumRef
    from openpyxl.chart.error_bar import ErrorBars
    from openpyxl.chart.shapes import GraphicalProperties

    placed, keys = summary.ratios, summary.ratio_keys
    for target in dict.fromkeys(key[1] for key in keys):
        if placed is None:
            return
        own = [index for index, key in enumerate(keys) if key[1] == target]
        span = (own[0], own[-1] + 1)
        chart = _bars(f"{target}: ratio to the baseline, with intervals", "times the baseline")
        series = Series(_reference(page, placed, "value", *span), title="ratio")
        series.errBars = ErrorBars(
            errDir="y",
            errBarType="both",
            errValType="cust",
            plus=NumDataSource(numRef=NumRef(f=placed.block("plus", *span))),
            minus=NumDataSource(numRef=NumRef(f=placed.block("minus", *span))),
        )
        chart.series.append(series)
        # Unseen bars up to the high ends: programs scale an axis by its bars and would cut the error bars off.
        room = Series(_reference(page, placed, "high", *span), title="high end")
        room.graphicalProperties = GraphicalProperties(noFill=True)
        room.graphicalProperties.line.noFill = True
        chart.series.append(room)
        chart.overlap = 100
        chart.set_categories(_reference(page, placed, "workload", *span))
        page.sheet.add_chart(chart, f"A{page.row}")
        page.row += _ROWS


def _pareto_rows(number: int, case: Case, values: Values, ops: OpCells, terms: TermCells) -> Iterator[list[Value]]:
    key = (case.workload, case.machine)
    spans, device = values.cases[key].ops, values.cases[key].step.device_s.value
    start = ops.starts[key][0]
    together = 0.0
    priced = [index for index, span in enumerate(spans) if span is not None][:LONGEST]
    for rank, index in enumerate(priced):
        line, span = case.ops[index], spans[index]
        total = span.value * line.count if span is not None else 0.0
        together += total / device
        row = number + rank
        share = f"{PARETO.letter('total')}{row}/(1000*{terms.at(*key, DEVICE)})"
        so_far = f"{PARETO.letter('share')}${number}:{PARETO.letter('share')}{row}"
        yield [
            f"{case.workload} {rank + 1}",
            f"{line.sizes} ({line.pass_name})"[:60],
            Formula(f"1000*{ops.placed.at('total', start + index)}", 1000 * total),
            Formula(share, total / device),
            Formula(f"SUM({so_far})", together),
        ]


def add_op_charts(page: Page, ledger: Ledger, values: Values, ops: OpCells, terms: TermCells) -> None:
    """Put the longest ops of each workload on each target below the workloads, each table with its chart."""
    from openpyxl.chart import Series

    for case in ledger.cases:
        if case.machine not in ledger.targets:
            continue
        rows = list(_pareto_rows(page.first_row(), case, values, ops, terms))
        if not rows or rows[0][2] == UNKNOWN:
            continue
        title = f"Longest ops of {case.workload} on {case.machine}, in the order as issued"
        start = page.row
        placed = page.table(PARETO, rows, title)
        chart = _bars(title, "ms per step", horizontal=True)
        series = Series(_reference(page, placed, "total", 0, len(rows)), title="time per step")
        chart.series.append(series)
        chart.set_categories(_reference(page, placed, "label", 0, len(rows)))
        page.sheet.add_chart(chart, f"G{start}")
        page.row = max(page.row, start + _ROWS)
