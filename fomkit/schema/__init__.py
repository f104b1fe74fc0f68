"""The tables that flow through fomkit: their columns, and the check at each entrance."""

from fomkit.schema.check import check_table, row_place
from fomkit.schema.columns import (
    BASES,
    BOUNDS,
    COSTS,
    DIMENSIONS,
    HUGE,
    KIND_DIMENSIONS,
    LAYERS,
    LINE,
    MEASUREMENTS,
    OPS,
    OPTIONAL_DIMENSIONS,
    ORDER,
    PASSES,
    PLAIN_TABLES,
    ROLES,
    SIZED,
    TABLES,
    TIME_SOURCES,
    TIMES,
    TIMINGS,
    column_names,
)

__all__ = [
    "BASES", "BOUNDS", "COSTS", "DIMENSIONS", "HUGE", "KIND_DIMENSIONS", "LAYERS", "LINE", "MEASUREMENTS",
    "OPS", "OPTIONAL_DIMENSIONS", "ORDER", "PASSES", "PLAIN_TABLES", "ROLES", "SIZED", "TABLES", "TIMES",
    "TIME_SOURCES", "TIMINGS", "check_table", "column_names", "row_place",
]  # fmt: skip
