"""The smallest DeepBench sheet, as rows of cells."""

from __future__ import annotations

PREAMBLE: list[list[object]] = [["Precision", "Float"], []]
GEMM: list[list[object]] = [
    ["Dense Matrix Multiplication", None, "M", "N", "K", "A Transpose", "B Transpose", None, "Time (msec)"],
    [None, None, 1760, 16, 1760, "N", "T", None, 0.059],
]
