"""The smallest DeepBench sections as rows of cells, and a function that writes rows as a workbook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import openpyxl

Rows = list[list[object]]

PREAMBLE: Rows = [["Precision", "Float"], []]
GEMM: Rows = [
    ["Dense Matrix Multiplication", None, "M", "N", "K", "A Transpose", "B Transpose", None, "Time (msec)"],
    [None, None, 1760, 16, 1760, "N", "T", None, 0.059],
]
SPARSE: Rows = [
    [
        "Sparse Matrix Multiplication", None, "M", "N", "K", "A Transpose", "B Transpose", "Sparsity", None,
        "Sparse Time (msec)", "Dense Time (msec)",
    ],
    [None, None, 7680, 2, 2560, "N", "N", 0.95, None, 0.043, 0.255],
]  # fmt: skip
CONV: Rows = [
    ["Convolution"],
    [
        None, None, "W (input - time)", "H (input)", "C (channels)", "N (batch size)", "K  (number of filters)",
        "S (filter width)", "R (filter height)", "pad_w", "pad_h", "Horizontal Stride", "Vertical Stride",
        "Forward (msec)", "wrt Inputs (msec)", "wrt Parameters  (msec)",
    ],
    [None, None, 700, 161, 1, 4, 32, 20, 5, 0, 2, 3, 2, 0.2, "N/A*", 0.3],
]  # fmt: skip
LSTM: Rows = [
    [
        "Recurrent Layers - LSTM", None, "Hidden Units", "N", "Timesteps", None, "Time Forward (msec)",
        "Time Backward (msec)",
    ],
    [None, None, 512, 16, 25, None, 2.3, 3.1],
]  # fmt: skip
ALL_REDUCE: Rows = [
    [
        "All-Reduce", None, "Size # floats", "# chips / accelerator cards", None, None,
        "Mean All Reduce Time (msec)", None, "Gigabytes/sec", "Selected Algorithm",
        "Std Dev All Reduce Time (msec)",
    ],
    [],
    [None, None, 100000, 16, 2, None, 0.5, None, 12.8, "NCCL 2.0 MPI", 0.014],
]  # fmt: skip


def write_workbook(sheets: Mapping[str, Rows], path: Path) -> Path:
    """Write sheets (name to rows) as a workbook."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for number, row in enumerate(rows, start=1):
            for column, value in enumerate(row, start=1):
                if value is not None:
                    sheet.cell(number, column, value)
    book.save(path)
    return path
