"""The tables of fomkit: their columns, units and meaning.

CSV files, formulas, YAML and reports use the same names. A dimension that a kind of op does not have is empty
(NaN); unknown is empty too, never 0, -1 or "?". Rows have a defined order (`in_order`), so that no result depends
on the order of a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fomkit.core.units import ENGINES, ITEM_BYTE

if TYPE_CHECKING:
    import pandas as pd

ColumnType = Literal["number", "text"]


@dataclass(frozen=True)
class Column:
    """One column of a table: its name, unit ("" for a plain count or text), type, meaning and allowed values.

    `words`: the allowed texts; empty if any is allowed.
    """

    name: str
    unit: str
    dtype: ColumnType
    doc: str
    least: float = -inf
    most: float = inf
    whole: bool = False
    words: tuple[str, ...] = ()


TINY = 1e-15
"""Smallest number above 0; no op is faster than a femtosecond."""
HUGE = 1e15
"""Largest number: integers are exact below it, and no product of dimensions overflows."""
LINE = "line"
"""Name of the index of a table whose rows are numbered by the lines of their file."""


def _size_columns(names: str, doc: str, least: float = 1.0) -> tuple[Column, ...]:
    return tuple(Column(name, "", "number", doc, least, HUGE, whole=True) for name in names.split())


def _text_columns(names: str, doc: str) -> tuple[Column, ...]:
    return tuple(Column(name, "", "text", doc) for name in names.split())


def _flag(name: str, doc: str) -> Column:
    return Column(name, "", "number", doc, 0.0, 1.0, whole=True)


def _amount_column(name: str, unit: str, doc: str, least: float = 0.0) -> Column:
    return Column(name, unit, "number", doc, least, HUGE)


PASSES = ("forward", "backward", "backward_input", "backward_weight", "update")
TIME_SOURCES = (
    "measured", "interpolated", "extrapolated", "transferred", "roofline", "alpha_beta", "assumed",
)  # fmt: skip
SOURCES: Mapping[str, int] = {name: number for number, name in enumerate(("", *TIME_SOURCES))}
"""Codes of time sources in arrays; 0 where there is no time."""
BOUNDS = ("compute", "memory", "launch", "network", "input", "measured")
_PADDING, _OUTPUT_PADDING = "pad_d pad_h pad_w", "output_pad_d output_pad_h output_pad_w"

TRAFFIC = ("read_byte", "write_byte")
"""Columns of the bytes that an op moves."""
PRODUCT_LAYOUTS = ("row_major", "column_major")
"""Storage orders of the factors of a product; an empty cell means the first."""

DIMENSIONS: tuple[Column, ...] = (
    *_size_columns("b", "independent products of a batched matrix product"),
    *_size_columns("m", "rows of the product (m×k)·(k×n)"),
    *_size_columns("n", "columns of the product (m×k)·(k×n)"),
    *_size_columns("k", "reduction length of the product (m×k)·(k×n)"),
    _flag("trans_a", "1 where the left factor is stored transposed, else 0"),
    _flag("trans_b", "1 where the right factor is stored transposed, else 0"),
    Column("density", "", "number", "share of non-zeros of the left factor", TINY, 1.0),
    Column(
        "weight_share", "", "number", "share of its bytes that the right factor is stored in; empty = 1", TINY, 1.0
    ),
    *_size_columns("batch", "samples of one execution"),
    *_size_columns("in_channels out_channels", "channels of a convolution's input and output"),
    *_size_columns(
        "depth height width", "size of a convolution's input; depth 1 in two dimensions, height 1 too in one"
    ),
    *_size_columns("kernel_d kernel_h kernel_w", "size of a convolution's kernel"),
    *_size_columns("stride_d stride_h stride_w", "steps of a convolution's kernel"),
    *_size_columns(_PADDING, "padding on each side of a convolution's input", 0.0),
    *_size_columns("dilation_d dilation_h dilation_w", "distance of a kernel's elements; 1 = side by side"),
    *_size_columns("groups", "groups of a convolution's channels that do not mix; depthwise: as many as channels"),
    *_text_columns(
        "layout", "memory order: nchw or nhwc of a convolution; column_major of a BLAS product, else empty"
    ),
    _flag("transposed", "1 for a transposed convolution, else 0"),
    *_size_columns(_OUTPUT_PADDING, "positions that a transposed convolution adds at the far end; empty = 0", 0.0),
    Column("cell", "", "text", "recurrent cell: vanilla, lstm or gru"),
    *_size_columns("steps", "length of a recurrent layer's sequence"),
    *_size_columns("input_size", "features of a recurrent layer's input; 0 = the recurrent half only", 0.0),
    *_size_columns("hidden_size", "features of a recurrent layer's state"),
    *_size_columns("layers", "recurrent layers that run as one call"),
    *_size_columns("directions", "2 where a recurrent layer also runs backwards, else 1"),
    *_size_columns("heads", "query heads of an attention"),
    *_size_columns("kv_heads", "key and value heads, fewer where queries share them"),
    *_size_columns("q_len kv_len", "queries and keys of one sample"),
    _amount_column("head_dim", "", "width of one head; the mean of keys and values where these differ", TINY),
    _amount_column(
        "shared_dim", "", "numbers of a key that are its value too, read once (latent attention); empty = 0"
    ),
    _flag("causal", "1 where each query sees only earlier keys, else 0"),
    *_size_columns(
        "experts", "experts that a mixture's router chooses from, on all devices; b is those held here"
    ),
    *_size_columns("top_k", "experts that each token is sent to"),
    _amount_column("numel", "", "elements the op works on"),
    _amount_column("row", "", "length of the reduced or normalised axis"),
    _amount_column("inputs", "", "tensors read"),
    _amount_column("read_byte", "byte", "bytes read from device memory, each tensor once"),
    _amount_column("write_byte", "byte", "bytes written to device memory, each tensor once"),
    Column("rule", "", "text", "optimizer rule: sgd, momentum, adam, …"),
    Column("impl", "", "text", "optimizer implementation: per_tensor, foreach or fused"),
    _amount_column("tensors", "", "parameter tensors that the optimizer updates"),
    Column("collective", "", "text", "collective operation: all_reduce, all_gather, …"),
    _amount_column("message_byte", "byte", "bytes of the collective's message on each rank", TINY),
    *_size_columns("ranks", "processes that take part in the collective"),
    Column("link", "", "text", "tier of the link the collective runs on"),
)

_IDENTITY = (
    Column("kind", "", "text", "kind of work, a key of KINDS"),
    Column("dtype", "", "text", "number format of the factors", words=tuple(ITEM_BYTE)),
    Column("engine", "", "text", "arithmetic unit: vector or matrix", words=ENGINES),
    Column("pass_name", "", "text", "forward, backward, backward_input, backward_weight or update", words=PASSES),
)

OPS: tuple[Column, ...] = (
    Column("op", "", "text", "the framework's name of the op"),
    *_IDENTITY,
    _amount_column("count", "", "executions per training step", TINY),
    Column("module", "", "text", "path of the module that ran the op"),
    Column("code_line", "", "text", "lines of the user's code that run the op, as FILE:LINE FUNCTION"),
    _amount_column("traced_time_s", "s", "time of one execution as the trace gives it"),
    Column(
        "traced_occupancy",
        "",
        "number",
        "threads that ran of those the accelerator can hold, mean over that time",
        0.0,
        1.0,
    ),
    *DIMENSIONS,
)
COSTS: tuple[Column, ...] = (
    Column("flop", "flop", "number", "arithmetic of one execution; one fused multiply-add is 2"),
    Column("byte", "byte", "number", "compulsory device-memory traffic of one execution"),
    Column("launches", "", "number", "kernels the host starts for one execution"),
    Column(
        "least_flop", "flop", "number", "arithmetic by the cheapest known algorithm; below flop in convolutions"
    ),
)
TIMES: tuple[Column, ...] = (
    Column("time_s", "s", "number", "predicted time of one execution; empty = unpriced"),
    Column("low_s", "s", "number", "lower end of the interval"),
    Column("high_s", "s", "number", "upper end of the interval"),
    Column("time_source", "", "text", f"how the time was made: {', '.join(TIME_SOURCES)}"),
    Column("bound", "", "text", f"what limits the op: {', '.join(BOUNDS)}"),
    Column("evidence", "", "text", "nearest measured row and its distance, or the rates used"),
)
TIMINGS: tuple[Column, ...] = (
    *_IDENTITY,
    Column("op", "", "text", "the only framework op this timing stands for; empty = any op of the kind"),
    Column("accumulate_dtype", "", "text", "number format of the sums"),
    _amount_column("time_s", "s", "median time of one execution", TINY),
    _amount_column("p25_s", "s", "first quartile of the repeats"),
    _amount_column("p75_s", "s", "third quartile of the repeats"),
    _amount_column("repeats", "", "timed executions", 1.0),
    Column("harness", "", "text", "program that timed it"),
    Column("harness_s", "s", "number", "fixed cost that the harness adds to every timing"),
    Column("padded", "", "number", "1 where sizes were padded before timing, else 0"),
    Column("library", "", "text", "library that ran the kernel"),
    Column("library_version", "", "text", "its version"),
    *_text_columns("source_file source_sheet", "file that the figure was read from, and its sheet"),
    Column("source_row", "", "number", "row of that sheet"),
    Column("note", "", "text", "correction made to the figure as printed, with the raw value"),
    *_text_columns("basis party", "ground and author of the figure; empty = measured, by the machine's party"),
    *DIMENSIONS,
)
ACTS = ("input", "always", "training", "never")
LAYER_SIZES: tuple[Column, ...] = (
    _amount_column("output_numel", "", "elements of one call's output"),
    _amount_column("output_byte", "byte", "bytes of one call's output"),
)
LAYERS: tuple[Column, ...] = (
    Column("layer", "", "text", "type of the layer: conv, linear, relu, pool, …, else the framework's name"),
    Column("module", "", "text", "path of the module that is the layer or runs it"),
    Column("op", "", "text", "the framework's name of a function's op; empty for a module"),
    _amount_column("count", "", "calls in one forward pass; 0 = holds parameters only"),
    Column(
        "acts", "", "text", "when it changes its input: always, in training, never; input = the data", words=ACTS
    ),
    _amount_column("parameters", "", "learned numbers that no earlier layer has"),
    _amount_column("parameter_byte", "byte", "bytes of these"),
    _amount_column("bias", "", "those of them that are added to the output"),
    *LAYER_SIZES,
    _amount_column("readers", "", "layers that read the output"),
    _flag("in_place", "1 where the output takes the place of an input, else 0"),
)
ROLES = ("parameter", "buffer", "input", "state", "gradient", "activation", "temporary")
ORDER: tuple[Column, ...] = (
    *_size_columns("id", "executed op, counted from 1; 0 = in memory before the step", 0.0),
    *_size_columns("row", "position of the op in the op table; empty where it has no row", 0.0),
    Column("role", "", "text", "what the memory is for; empty where the op makes none", words=("", *ROLES)),
    LAYER_SIZES[1],
    *_size_columns("freed_by", "id after which it is free again; empty = the step's end", 0.0),
    *_text_columns("module pass_name", "where an op without a row ran, or which module uses the memory"),
)
"""The ops of one step in the order in which they ran, and the memory that they allocate."""
QUANTITIES = ("step_s", "epoch_s", "run_s", "sample_per_s", "latency_s", "energy_j")
BASES = ("measured", "simulated", "modelled", "estimated", "committed", "published", "assumed")
MEASUREMENTS: tuple[Column, ...] = (
    Column("model", "", "text", "name of the model profile that was run"),
    Column("machine", "", "text", "name of the machine profile it ran on"),
    Column("quantity", "", "text", "what was measured", words=QUANTITIES),
    _amount_column("value", "", "the figure [s; 1/s for sample_per_s, J for energy_j]", TINY),
    _amount_column("low", "", "lower end of the 80 % interval of repeats", TINY),
    _amount_column("high", "", "upper end of that interval", TINY),
    *_size_columns("repeats", "times it was measured"),
    *_size_columns("batch", "samples in one step"),
    Column("precision", "", "text", "number formats of the step, as an estimate names them"),
    *_size_columns("devices", "devices that the run occupied"),
    Column("scope", "", "text", "what the figure counts", words=("device", "node", "system", "chip", "wall")),
    Column("basis", "", "text", "kind of figure; only measured figures count as measurements", words=BASES),
    Column("party", "", "text", "who states the figure", words=("lab", "vendor", "published")),
    *_text_columns(
        "framework framework_version date source note", "where the figure is from, in the user's words"
    ),
    *_text_columns("holds", "work in the figure besides the model's ops, in the user's words"),
    Column("record", "", "text", "fields of the imported record that have no column, as JSON"),
)
"""Measurements of whole models."""
EPOCHS: tuple[Column, ...] = (
    *_size_columns("batch", "samples in one step of the whole training"),
    _amount_column("epochs", "", "epochs until the target is reached", TINY),
    _amount_column(
        "low", "", "lower end of the 80 % interval of repeats; empty with high = no spread stated", TINY
    ),
    _amount_column("high", "", "upper end of that interval", TINY),
    Column("metric", "", "text", "what is reached, the same in all rows"),
    Column("target", "", "number", "value of the metric that is reached, the same in all rows", -HUGE, HUGE),
    *_text_columns("source", "where the figures are from"),
)
"""Epochs that a training requires to reach a target, by batch."""
SIZED = ("count", *(column.name for column in (*DIMENSIONS, *LAYER_SIZES) if column.dtype == "number"))
"""Columns whose cells may be expressions in named sizes, except in tables of measurements."""
PLAIN_TABLES = ("TIMINGS", "MEASUREMENTS", "EPOCHS")
"""Tables of measurements, which contain only numbers."""
TABLES: Mapping[str, tuple[Column, ...]] = {
    "OPS": OPS, "COSTED": OPS + COSTS, "TIMED": OPS + COSTS + TIMES, "TIMINGS": TIMINGS, "LAYERS": LAYERS,
    "ORDER": ORDER, "MEASUREMENTS": MEASUREMENTS, "EPOCHS": EPOCHS,
}  # fmt: skip

TITLES: Mapping[str, str] = {
    "OPS": "ops", "COSTED": "ops", "TIMED": "ops", "TIMINGS": "timings", "LAYERS": "layers",
    "ORDER": "ops in running order", "MEASUREMENTS": "measurements", "EPOCHS": "epochs to a target",
}  # fmt: skip
"""Content of each table, for messages."""


def column_names(table: str, dtype: ColumnType | None = None) -> list[str]:
    """Return the columns of a table in file order, all or only those of one type."""
    return [column.name for column in TABLES[table] if dtype in (None, column.dtype)]


def in_order(timings: pd.DataFrame) -> pd.DataFrame:
    """Sort timings by all columns of the schema, in its order.

    A sum of floats depends on the order of its terms, and so do rules that select the first of equal rows or every
    tenth row. Rows that agree in every column are interchangeable, so every order of a table leads to the same
    result.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"kind": ["gemm", "conv", "gemm"], "m": [2.0, float("nan"), 1.0]})
    >>> in_order(rows)["m"].tolist()
    [nan, 1.0, 2.0]
    """
    import numpy as np
    import pandas as pd

    numbers = timings.select_dtypes("number")  # at once: a column each takes longer than to sort a small table
    cells = numbers.to_numpy(np.float64)
    vary = ~((cells == cells[:1]) | np.isnan(cells) & np.isnan(cells[:1])).all(axis=0)
    keys = {name: cells[:, at] for at, name in enumerate(numbers.columns) if vary[at]}
    for name in filter(timings.columns.__contains__, column_names("TIMINGS", "text")):
        codes, words = pd.factorize(timings[name].to_numpy(object))
        if len(words) > 1 or (codes < 0).any():  # an empty cell has the code -1
            keys[name] = np.unique([*map(str, words), ""], return_inverse=True)[1][codes]
    last_first = [keys[name] for name in reversed(column_names("TIMINGS")) if name in keys]
    order = np.lexsort(last_first) if last_first else np.arange(len(timings))
    if np.array_equal(order, np.arange(len(timings))):
        return timings
    return timings.take(order).reset_index(drop=True)


_BETWEEN = "; "
_TIMES = re.compile(r" ×(\d{1,12})$")
_PLACE = re.compile(r":(\d{1,9})(?: (\S+))?$")


class CodeLine(NamedTuple):
    """One line of code.

    `file`: path as in the profile; a text in another form counts as file.
    `function`: with its class; "" if unknown.
    `times`: executions of the op by this line; None for all that the other lines leave.
    """

    file: str
    line: int | None
    function: str
    times: int | None


def code_line(file: str, line: int, function: str) -> str:
    """Write one line of code.

    >>> code_line("model.py", 12, "Block.forward")
    'model.py:12 Block.forward'
    """
    plain = (text.replace(";", ",").replace("×", "x") for text in (file, function))
    return f"{next(plain)}:{line} {next(plain).replace(' ', '_')}"


def join_lines(lines: Mapping[str, int], count: int | str) -> str:
    """Write the cell of a row.

    `lines`: executions by line of code; `count`: executions of the row; if it is an expression in named sizes, the
    executions of each line are unknown.

    >>> join_lines({"model.py:12 f": 2}, 2), join_lines({"model.py:12 f": 2, "model.py:14 f": 1}, 3)
    ('model.py:12 f', 'model.py:12 f ×2; model.py:14 f ×1')
    """
    if isinstance(count, str) or list(lines.values()) == [count]:
        return _BETWEEN.join(lines)
    return _BETWEEN.join(f"{line} ×{times}" for line, times in lines.items())


def split_code_lines(cell: str) -> list[CodeLine]:
    """Read the cell of a row; any text is accepted.

    >>> split_code_lines("model.py:12 Block.forward ×2; model.py:14")
    [CodeLine(file='model.py', line=12, function='Block.forward', times=2), \
CodeLine(file='model.py', line=14, function='', times=None)]
    """
    return [_code_line(text.strip()) for text in cell.split(_BETWEEN.strip()) if text.strip()]


def _code_line(text: str) -> CodeLine:
    times = _TIMES.search(text)
    text = text[: times.start()] if times else text
    count = int(times[1]) if times else None
    place = _PLACE.search(text)
    if place is None or not place.start():
        return CodeLine(text, None, "", count)
    return CodeLine(text[: place.start()], int(place[1]), place[2] or "", count)


def cell_dtype(cells: list[float | str], number: bool) -> str:
    """Return the type of a column's array: numbers, unless an expression occurs among them."""
    return "float64" if number and not any(isinstance(cell, str) for cell in cells) else "object"


def table_of_rows(rows: Sequence[Mapping[str, Any]], table: str, extra: Collection[str] = ()) -> pd.DataFrame:
    """Make a table with the ``extra`` number columns, then every column of ``table``; missing values are empty.

    Number columns are float64, or objects where an expression occurs.
    """
    import pandas as pd

    numbers, columns = {*column_names(table, "number"), *extra}, {}
    for name in (*extra, *column_names(table)):
        values: list[Any] = [row.get(name) for row in rows]
        if name in numbers:
            values = [one if isinstance(one, str) else nan if one is None else float(one) for one in values]
        else:
            values = ["" if one is None else one for one in values]
        columns[name] = pd.Series(values, dtype=cell_dtype(values, name in numbers))
    return pd.DataFrame(columns)


def empty_table(table: str) -> pd.DataFrame:
    """Make a table without rows."""
    return _without_rows(table).copy()


@cache
def _without_rows(table: str) -> pd.DataFrame:
    return table_of_rows((), table)
