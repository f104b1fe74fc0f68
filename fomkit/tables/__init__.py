"""CSV tables as doors: strangers' text in, checked; our tables out, exact and without live text."""

from fomkit.tables.defaults import fill_defaults, fill_dimensions
from fomkit.tables.read import read_numbered_table, read_table
from fomkit.tables.write import empty_table, format_as_given, format_table

__all__ = [
    "empty_table",
    "fill_defaults",
    "fill_dimensions",
    "format_as_given",
    "format_table",
    "read_numbered_table",
    "read_table",
]
