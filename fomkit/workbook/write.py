"""A ledger as a workbook: inputs are cells, everything downstream is a formula, formulas carry their values."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit import __version__
from fomkit.errors import FomkitError
from fomkit.ledger import Ledger, evaluate
from fomkit.profiles.write import write_whole
from fomkit.tables.xlsx import MAX_ROWS
from fomkit.workbook import layout
from fomkit.workbook.assumptions_sheet import write_assumptions
from fomkit.workbook.cached import add_cached_values
from fomkit.workbook.charts import add_op_charts, add_ratio_charts
from fomkit.workbook.checks_sheet import write_checks
from fomkit.workbook.for_target import for_target
from fomkit.workbook.idle import mark_idle
from fomkit.workbook.layout import SHEETS
from fomkit.workbook.machines_sheet import write_machines
from fomkit.workbook.names import defined_names, unique_names
from fomkit.workbook.ops_sheet import write_ops
from fomkit.workbook.page import Page
from fomkit.workbook.provenance_sheet import write_history, write_provenance, write_read_me
from fomkit.workbook.styles import LEGEND, add_styles
from fomkit.workbook.summary_sheet import write_summary
from fomkit.workbook.timings_sheet import write_timings
from fomkit.workbook.workloads_sheet import write_workloads

if TYPE_CHECKING:
    from openpyxl import Workbook

_MAX_OPS = MAX_ROWS - 100
"""Ops that a sheet can hold and `fomkit review` reads back, with room for its other rows."""


def _check_size(ledger: Ledger) -> None:
    rows = sum(len(case.ops) for case in ledger.cases)
    if rows > _MAX_OPS:
        raise FomkitError("workbook", f"{rows:,} ops do not fit a sheet. Write fewer models or targets in one.")


def _fill(book: Workbook, ledger: Ledger, only: str | None) -> dict[str, Page]:
    from openpyxl.workbook.defined_name import DefinedName

    values = evaluate(ledger)
    pages = {name: Page(book.create_sheet(name)) for name in SHEETS}
    machines = write_machines(pages["Machines"], ledger)
    workloads = write_workloads(pages["Workloads"], ledger, values, machines)
    ops = write_ops(pages["Ops"], ledger, values, machines)
    assumptions = write_assumptions(pages["Assumptions"], ledger)
    terms = write_timings(pages["Timings"], ledger, values, (assumptions, machines, workloads, ops))
    summary = write_summary(pages["Summary"], ledger, values, assumptions, terms, workloads)
    add_op_charts(pages["Workloads"], ledger, values, ops, terms)
    add_ratio_charts(pages["Summary"], summary)
    write_checks(pages["Checks"], ledger, values, machines, ops, terms, summary)
    write_provenance(pages["Provenance"], ledger, __version__)
    write_history(pages["History"], ledger)
    write_read_me(pages["Read me"], ledger, only)
    mark_idle(pages, ledger, machines)
    for name, cell in unique_names(defined_names(ledger, machines, summary)).items():
        book.defined_names[name] = DefinedName(name, attr_text=cell)
    return pages


_PAGES_WIDE = {"Ops": 2}
_PAGES_HIGH = {"Read me": 1}
_FROZEN = {"Machines": "E5", "Workloads": "B5", "Ops": "D5", "Timings": "D1", "Summary": "B1"}


def _set_up(pages: dict[str, Page]) -> None:
    """Freeze panes and set up printing."""
    from openpyxl.worksheet.header_footer import HeaderFooter, HeaderFooterItem, _HeaderFooterPart
    from openpyxl.worksheet.properties import PageSetupProperties

    for name, page in pages.items():
        sheet = page.sheet
        sheet.freeze_panes = _FROZEN.get(name, "A2")
        sheet.page_setup.orientation = "landscape"
        sheet.page_setup.paperSize = 9  # A4
        sheet.page_setup.fitToWidth = _PAGES_WIDE.get(name, 1)
        sheet.page_setup.fitToHeight = _PAGES_HIGH.get(name, 0)
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


def _roles() -> set[tuple[str, str]]:
    tables = [table for table in vars(layout).values() if isinstance(table, layout.Table)]
    pairs = {(column.role, column.form) for table in tables for column in table.columns}
    forms = {(role, form) for _, form in pairs for role in ("formula", "condition", "idle")}
    return pairs | forms | {(role, "General") for role in LEGEND}


def workbook_bytes(shown: Ledger, only: str | None = None) -> bytes:
    """Make the workbook of a ledger.

    Parameters
    ----------
    shown : Ledger
    only : str, optional
        The one target that the ledger holds.
    """
    from openpyxl import Workbook

    _check_size(shown)
    book = Workbook()
    book.remove(book.worksheets[0])
    add_styles(book, _roles())
    pages = _fill(book, shown, only)
    _set_up(pages)
    book.calculation.fullCalcOnLoad = True
    book.properties.creator, book.properties.title = "fomkit", shown.title[:200]
    saved = io.BytesIO()
    book.save(saved)
    parts = {
        f"xl/worksheets/sheet{number}.xml": page.cached for number, page in enumerate(pages.values(), start=1)
    }
    return add_cached_values(saved.getvalue(), parts)


def write_workbook(ledger: Ledger, path: Path, only: str | None = None) -> Ledger:
    """Write the workbook of a ledger, whole or not at all, and give what it shows of the ledger.

    Parameters
    ----------
    only : str, optional
        The one target that the reader may see.

    Raises
    ------
    FomkitError
        When ``only`` is no target, the ops do not fit, or the file cannot be written.
    """
    shown = ledger if only is None else for_target(ledger, only)
    write_whole(path, workbook_bytes(shown, only))
    return shown
