"""What simple predictors reach on DeepBench's sheets, whole shape groups left out; from the notes on the data."""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.validate.scores import Errors

_NAMES = (
    "datasheet roofline", "one efficiency", "calibrated roofline", "nearest, scaled", "and 3 neighbours",
    "and Gaussian process",
)  # fmt: skip


def _peers(*errors: tuple[float, float]) -> dict[str, Errors]:
    return {name: Errors(median / 100, mean / 100) for name, (median, mean) in zip(_NAMES, errors, strict=True)}


SIMPLE: Mapping[str, Mapping[str, Errors]] = {
    "gemm": _peers((37, 42), (23, 32), (11, 19), (7, 18), (6.8, 13), (6.4, 12)),
    "conv forward": _peers((51, 47), (35, 49), (28, 33), (27, 45), (13, 21), (11, 16)),
    "conv backward_input": _peers((55, 53), (42, 65), (39, 43), (32, 57), (20, 29), (13, 21)),
    "conv backward_weight": _peers((62, 59), (38, 57), (25, 32), (29, 49), (14, 21), (14, 19)),
}
"""Kind and pass to predictors: medians over the eleven sheets of median and mean absolute error."""
