"""Workbooks that still compute: written from a ledger, and read back after somebody changed them."""

from fomkit.workbook.write import write_workbook

__all__ = ["write_workbook"]
