"""Table of the sections of DeepBench workbooks and their meaning as TIMINGS: to cover more, add an entry.

Titles, headers and labels are compared by their words alone. The first rows of a sheet state a section's
precision. Each function that reads a cell returns None if it holds something else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from fomkit.core.errors import FomkitError
from fomkit.core.interval import half_width
from fomkit.files.xlsx import Sheet

MILLISECONDS = ("msec", "ms", "milliseconds")
_TIME_UNITS = (*MILLISECONDS, "usec", "us", "µs", "microseconds", "nsec", "ns", "sec", "s", "seconds")
_WORD_REMARK = re.compile(r"\(([^()]*)\)")
_LONG_ENOUGH = 6
_NEAR = 0.88


def plain(value: object) -> str:
    """Return a cell's text in lower case with single spaces; "" for anything but text.

    >>> plain("Time Forward  (msec) "), plain(1760.0)
    ('time forward (msec)', '')
    """
    return " ".join(value.split()).casefold() if isinstance(value, str) else ""


def words(value: object) -> str:
    """Return the words of a cell's text alone, without punctuation.

    >>> words("All-Reduce"), words("Recurrent Layers - LSTM"), words("# chips / accelerator cards")
    ('all reduce', 'recurrent layers lstm', 'chips accelerator cards')
    """
    return " ".join(re.findall(r"[^\W_]+", plain(value)))


class Heading(NamedTuple):
    """The words of a column's header, and its unit of time in lower case; "" if it states none."""

    name: str
    unit: str


def heading(value: object) -> Heading:
    """Read a header; text in brackets is the unit of a time or a remark.

    >>> heading("wrt Parameters  (msec)"), heading("S (Fitler width)").name, heading("pad_w").name
    (Heading(name='wrt parameters', unit='msec'), 's', 'pad w')
    """
    text = plain(value)
    units = [found.strip() for found in _WORD_REMARK.findall(text) if found.strip() in _TIME_UNITS]
    return Heading(words(_WORD_REMARK.sub(" ", text)), units[0] if units else "")


def near(name: str, known: Collection[str]) -> str | None:
    """Return the known name that a name misspells, both of six letters or more; None if there is none.

    >>> near("hiden units", ["hidden units", "timesteps"]), near("r", ["s"])
    ('hidden units', None)
    """
    candidates = [one for one in known if len(one) >= _LONG_ENOUGH]
    found = get_close_matches(name, candidates, n=1, cutoff=_NEAR) if len(name) >= _LONG_ENOUGH else []
    return found[0] if found else None


@dataclass(frozen=True)
class Precision:
    """Number format of the factors, the arithmetic unit, and the number format of the sums."""

    dtype: str
    engine: str
    accumulate_dtype: str


SINGLE = Precision("fp32", "vector", "fp32")
# No workbook has 8-bit products on a matrix engine: Pascal multiplies four bytes at a time in its vector lanes
# (dp4a), and so does gemmlowp on ARM.
_BYTES = Precision("int8", "vector", "int32")
PRECISIONS: Mapping[str, Precision] = {
    "float": SINGLE,
    "single precision": SINGLE,
    # The tensor core, under another name.
    "16 bit inputs, 16 bit multiplication, 32 bit addition": Precision("fp16", "matrix", "fp32"),
    # "Pseudo fp16": stored in 16 bits, computed at the rate of fp32.
    "16 bit inputs, 32 bit multiplication, 32 bit addition": Precision("fp16", "vector", "fp32"),
    "int8 multiplication, 32 bit accumulation": _BYTES,
    "int8 inputs 32 bit math": _BYTES,
}
"""Texts in column B of the first rows and their precision; compared by their words alone."""

SCOPES: Mapping[str, str] = {
    "gemm": "gemm", "conv": "conv", "convolution": "conv", "rnn": "rnn", "sparse ops": "sparse_gemm",
    "sparse gemm": "sparse_gemm",
}  # fmt: skip
"""Words that limit a precision to some sections, and the kind of these."""

_KNOWN = {words(text): precision for text, precision in PRECISIONS.items()}
_PRECISION_REMARK = re.compile(r"(?P<scope>[a-z ]+) results are (still )?in (?P<text>[^,]+)")


def _stated_precisions(sheet: Sheet, first: int) -> dict[str, str]:
    """Collect the precision of each kind, and under "" that of all others, from the rows before ``first``."""
    texts: dict[str, str] = {}
    for number in range(1, first):
        scope, colon, rest = plain(sheet.cell(number, 2)).partition(":")
        kinds = [SCOPES.get(words(word), "") for word in scope.split(",")]
        if colon and all(kinds):
            texts |= dict.fromkeys(kinds, rest.strip())
        elif scope:
            texts.setdefault("", scope + colon + rest)
    # A remark to the right of the statement excludes a section: "Convolution results are still in float, …".
    for row in sheet.rows[: first - 1]:
        for found in filter(None, (_PRECISION_REMARK.match(plain(value)) for value in row[2:])):
            if found["scope"] in SCOPES:
                texts[SCOPES[found["scope"]]] = found["text"].strip()
    return texts


def find_precision(sheet: Sheet, first: int, scope: str, where: str) -> Precision:
    """Return a section's precision from the rows before row ``first``; `scope`: a value of `SCOPES`."""
    texts = _stated_precisions(sheet, first)
    text = texts.get(scope, texts.get("", ""))
    if words(text) not in _KNOWN:
        unknown = f"states the precision {text!r}, which is not known"
        message = unknown if text else f"states no precision for {scope}"
        listed = "; ".join(PRECISIONS)
        raise FomkitError(where, f"{message}. One of these was expected in column B of the first rows: {listed}.")
    return _KNOWN[words(text)]


DENSITY_DIGITS = 9


def whole(value: object) -> float | None:
    """Read a whole number of 0 or more; None if the cell holds something else.

    >>> whole(1760), whole(78.5), whole("N/A*")
    (1760.0, None, None)
    """
    number = as_number(value)
    return number if number is not None and number >= 0 and number.is_integer() else None


def size(value: object) -> float | None:
    """Read a whole number of 1 or more; None if the cell holds something else."""
    return whole(value) or None


def transpose(value: object) -> float | None:
    """Read the N or T of a factor as 0 or 1; None if the cell holds something else."""
    return {"N": 0.0, "T": 1.0}.get(value) if isinstance(value, str) else None


def as_number(value: object) -> float | None:
    """Read a finite number; None if the cell holds something else, even a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def amount(value: object) -> float | None:
    """Read a number of 0 or more; None if the cell holds something else."""
    number = as_number(value)
    return number if number is not None and number >= 0 else None


def density(value: object) -> float | None:
    """Convert the printed share of zeros to the share of non-zeros; None if the cell holds something else.

    >>> density(0.95), density(95), density(1), density("high")
    (0.05, None, None, None)
    """
    share = as_number(value)
    return round(1 - share, DENSITY_DIGITS) if share is not None and 0 <= share < 1 else None


def text(value: object) -> str | None:
    """Read one or more words; None if the cell holds something else."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


FLOAT_BYTE = 4.0
NORMAL_QUARTILE = half_width(0.5)
"""Quartile of a normal distribution, in standard deviations from its mean."""


@dataclass(frozen=True)
class Dimension:
    """The content of one column of a section, and its possible headers, the preferred one first.

    `column`: the TIMINGS column, or a name that the section's `Section.complete` understands.
    `headers`: as `fomkit.readers.tables.deepbench_sections.heading` returns them.
    `read`: converts a cell to its value; None if the cell holds none.
    `right_of`: another dimension: if no header fits, this one is in the headerless column to its right.
    `optional`: whether the section, and each of its rows, may lack it.
    """

    column: str
    headers: tuple[str, ...]
    read: Callable[[object], float | str | None] = size
    right_of: str = ""
    optional: bool = False


Cells = dict[str, float | str]
"""The values of one row, by column."""


@dataclass(frozen=True)
class Section:
    """One kind of op in a section: its dimensions, its times by pass [ms], and constants of all its rows.

    `times`: pass to headers; a section needs at least one of them.
    `scope`: whose precision it has, a value of `SCOPES`; that of the kind when "".
    `precision`: the precision if the section implies one.
    `dtypes`: the only number formats in which the section is this kind of op; any when empty.
    `complete`: converts a row's values and its time [s] to TIMINGS columns.
    """

    kind: str
    dimensions: tuple[Dimension, ...]
    times: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, float | str] = field(default_factory=dict)
    scope: str = ""
    precision: Precision | None = None
    dtypes: tuple[str, ...] = ()
    harness: str = "DeepBench"
    complete: Callable[[Cells, float], Cells] = lambda cells, _time_s: cells


def _plain_sizes(**headers: str) -> tuple[Dimension, ...]:
    """Make the dimensions that are plain sizes, by column, each with its header."""
    return tuple(Dimension(column, (header,)) for column, header in headers.items())


_PRODUCT = (
    *_plain_sizes(m="m", n="n", k="k"),
    Dimension("trans_a", ("a transpose",), transpose),
    Dimension("trans_b", ("b transpose",), transpose),
)
# The benchmark calls BLAS, which counts m and n in column-major order.
_BLAS: Mapping[str, float | str] = {"b": 1.0, "layout": "column_major"}
_GEMM = Section(kind="gemm", dimensions=_PRODUCT, times={"": ("time",)}, constants=_BLAS)
# The left factor is the sparse one, by rows; its place is part of the op, so the factors are not exchanged.
_SPARSE = Section(
    kind="sparse_gemm",
    dimensions=(*_PRODUCT, Dimension("density", ("sparsity",), density)),
    times={"": ("sparse time", "time")},
    constants={"b": 1.0},
)
# The same product without its zeros. On ARM it is Eigen's product of bytes, which is no reference where gemmlowp
# exists; gemmlowp's products are in the section of dense products.
_DENSE_BESIDE_SPARSE = Section(
    kind="gemm",
    dimensions=_PRODUCT,
    times={"": ("dense time",)},
    constants=_BLAS,
    scope="sparse_gemm",
    dtypes=("fp32",),
)
# The columns P and Q are not read: half of the workbooks store them swapped and with fractions. The output size
# follows from the input size. The column of the forward algorithm was copied from device to device.
_CONV = Section(
    kind="conv",
    dimensions=(
        *_plain_sizes(width="w", height="h", in_channels="c", batch="n", out_channels="k"),
        *_plain_sizes(kernel_w="s", kernel_h="r"),
        Dimension("pad_w", ("pad w",), whole),
        Dimension("pad_h", ("pad h",), whole),
        *_plain_sizes(stride_w="horizontal stride", stride_h="vertical stride"),
    ),
    times={"forward": ("forward",), "backward_input": ("wrt inputs",), "backward_weight": ("wrt parameters",)},
    constants={
        "depth": 1.0, "kernel_d": 1.0, "stride_d": 1.0, "pad_d": 0.0,
        "dilation_d": 1.0, "dilation_h": 1.0, "dilation_w": 1.0, "groups": 1.0,
        "layout": "nchw", "transposed": 0.0,
    },
)  # fmt: skip


def _recurrent(cell: str) -> Section:
    """Describe a recurrent section; ``input_size`` 0 means that the timing has no input projection.

    The harness passes inputs that are already projected, and the printed rate counts 2 · gates · hidden² · batch ·
    steps, the recurrent product alone.
    """
    return Section(
        kind="rnn",
        dimensions=(
            # Where the header is only "Input", the printed rate shows that it is the size of the hidden state.
            Dimension("hidden_size", ("hidden units", "input")),
            *_plain_sizes(batch="n", steps="timesteps"),
        ),
        times={
            "forward": ("time forward",),
            # A bare "Time Backward" never includes the weight gradient.
            "backward_input": ("time backward wrt inputs", "time backward"),
            "backward_weight": ("time backward wrt weights",),
        },
        constants={"cell": cell, "input_size": 0.0, "layers": 1.0, "directions": 1.0},
    )


def complete_all_reduce(cells: Cells, time_s: float) -> Cells:
    """Convert a row of an all-reduce to TIMINGS columns.

    Each rank reduces a message of ``floats`` numbers: the printed rate is 4 byte · floats · ranks / time. Ranks of
    one node use the node's link, those of several nodes the system's.

    >>> row = {"floats": 100000.0, "ranks": 16.0, "nodes": 2.0, "deviation_ms": 0.01}
    >>> columns = complete_all_reduce(row, 0.5e-3)
    >>> columns["message_byte"], columns["link"], columns["note"]
    (400000.0, 'system', '16 ranks on 2 nodes; quartiles from the printed standard deviation of 0.01 ms')
    """
    ranks, nodes = float(cells["ranks"]), float(cells.get("nodes", 1.0))
    notes = [f"{ranks:g} ranks on {nodes:g} node{'s' if nodes > 1 else ''}"]
    columns: Cells = {
        "message_byte": FLOAT_BYTE * float(cells["floats"]),
        "ranks": ranks,
        "link": "node" if nodes == 1 else "system",
    }
    if "library" in cells:
        columns["library"] = cells["library"]
    if "deviation_ms" in cells:
        half_s = NORMAL_QUARTILE * float(cells["deviation_ms"]) / 1000
        columns |= {"p25_s": max(time_s - half_s, 0.0), "p75_s": time_s + half_s}
        notes.append(f"quartiles from the printed standard deviation of {cells['deviation_ms']:g} ms")
    return columns | {"note": "; ".join(notes)}


_ALL_REDUCE = Section(
    kind="collective",
    dimensions=(
        Dimension("floats", ("size floats",)),
        # The Xeon Phi's nodes run one process each, so their number is that of the ranks, too.
        Dimension("ranks", ("chips accelerator cards", "nodes")),
        Dimension("nodes", ("nodes",), right_of="ranks", optional=True),
        Dimension("library", ("selected algorithm",), text, optional=True),
        Dimension("deviation_ms", ("std dev all reduce time",), amount, optional=True),
    ),
    times={"": ("mean all reduce time", "time")},
    constants={"collective": "all_reduce"},
    precision=SINGLE,
    # These are other programs with another clock than the program that times the ops.
    harness="DeepBench all-reduce",
    complete=complete_all_reduce,
)
SECTIONS: Mapping[str, tuple[Section, ...]] = {
    "dense matrix multiplication": (_GEMM,),
    "sparse matrix multiplication": (_SPARSE, _DENSE_BESIDE_SPARSE),
    "convolution": (_CONV,),
    "recurrent layers vanilla": (_recurrent("vanilla"),),
    "recurrent layers lstm": (_recurrent("lstm"),),
    "recurrent layers gru": (_recurrent("gru"),),
    "all reduce": (_ALL_REDUCE,),
}
"""By the words of the title in column A: the kinds of op that the section's table times."""
