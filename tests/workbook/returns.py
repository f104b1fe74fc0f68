"""Issue, edit, save and review workbooks, as when a vendor returns one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
from openpyxl import Workbook
from sheets import find

from fomkit.workbook.layout import FACTS, OPS
from fomkit.workbook.review import review, review_content

Edit = Callable[[Workbook], None]
ACME = {"machine": "acme-1"}


def returned(issued: Path, folder: Path, *edits: Edit) -> Path:
    book = openpyxl.load_workbook(issued)
    for edit in edits:
        edit(book)
    path = folder / "vendor.xlsx"
    book.save(path)
    return path


def fact(value: object, name: str = "memory bandwidth", key: str = "value", said: bool = True) -> Edit:
    def edit(book: Workbook) -> None:
        find(book, FACTS, key, **ACME, fact=name).value = value  # type: ignore[assignment]
        if said:
            for column, word in (("basis", "committed"), ("party", "vendor"), ("source", "contract, annex 2")):
                find(book, FACTS, column, **ACME, fact=name).value = word

    return edit


def op(key: str, value: object, kind: str, said: bool = True) -> Edit:
    def edit(book: Workbook) -> None:
        find(book, OPS, key, **ACME, workload="net-a", kind=kind).value = value  # type: ignore[assignment]
        if said:
            for column, word in (("basis", "simulated"), ("party", "vendor"), ("evidence", "simulator 3.1")):
                find(book, OPS, column, **ACME, workload="net-a", kind=kind).value = word

    return edit


def content(issued: Path, path: Path) -> dict[str, Any]:
    return review_content(review(path, issued))
