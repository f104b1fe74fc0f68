"""Writing a workbook for one vendor, and saying which free texts go along with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fomkit.workbook.records import SheetModel

_SHOWN = 8
"""Texts of one sort that are shown; the others stand in the workbook."""


def write_and_report(sheet_model: SheetModel, path: Path, only: str | None) -> None:
    """Write a workbook; of a copy for one target, list its free texts, which no program can judge."""
    from fomkit.workbook.vendor import free_texts
    from fomkit.workbook.write import write_workbook

    shown = write_workbook(sheet_model, path, only)
    if only is None:
        return
    typer.echo(f"free texts that go along in {path}; read them before you send it:", err=True)
    for sort, texts in free_texts(shown).items():
        more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
        typer.echo(f"  {sort}: {'; '.join([*texts[:_SHOWN], *more])}", err=True)
