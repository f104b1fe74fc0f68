"""The sections of DeepBench workbooks and what they mean here, as a literal table: to cover more, add an entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

from fomkit.timings.deepbench_precision import SINGLE, Precision
from fomkit.timings.deepbench_values import amount, density, size, text, transpose, whole

FLOAT_BYTE = 4.0
NORMAL_QUARTILE = NormalDist().inv_cdf(0.75)
"""Quartiles of a normal distribution, in standard deviations from its mean."""


@dataclass(frozen=True)
class Dimension:
    """What one column of a section holds, and the headers under which it stands, the preferred one first.

    Attributes
    ----------
    column : str
        The TIMINGS column, or a name that the section's `Section.complete` understands.
    headers : tuple of str
        As `fomkit.timings.deepbench_words.heading` gives them.
    read : function
        From a cell to its value; None where the cell holds none.
    right_of : str
        Another dimension: where no header fits, this one stands right of that one in a column without a header.
    optional : bool
        True where the section, and each of its rows, may do without.
    """

    column: str
    headers: tuple[str, ...]
    read: Callable[[object], float | str | None] = size
    right_of: str = ""
    optional: bool = False


Cells = dict[str, float | str]
"""What one row says, by column."""


def _as_read(cells: Cells, _time_s: float) -> Cells:
    return cells


@dataclass(frozen=True)
class Section:
    """One kind of op in a section: its dimensions, its times by pass [ms], and what is the same in all its rows.

    Attributes
    ----------
    times : mapping
        Pass to headers; of these a section needs only those that its table has, but at least one.
    scope : str
        Whose precision it has, a value of `fomkit.timings.deepbench_precision.SCOPES`; that of the kind when "".
    precision : Precision or None
        The precision where the section implies one.
    dtypes : tuple of str
        The only number formats in which the section is this kind of op; any when empty.
    harness : str
        The program that timed it.
    complete : function
        From what a row says and its time [s] to TIMINGS columns.
    """

    kind: str
    dimensions: tuple[Dimension, ...]
    times: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, float | str] = field(default_factory=dict)
    scope: str = ""
    precision: Precision | None = None
    dtypes: tuple[str, ...] = ()
    harness: str = "DeepBench"
    complete: Callable[[Cells, float], Cells] = _as_read


_PRODUCT = (
    Dimension("m", ("m",)),
    Dimension("n", ("n",)),
    Dimension("k", ("k",)),
    Dimension("trans_a", ("a transpose",), transpose),
    Dimension("trans_b", ("b transpose",), transpose),
)
# The benchmark calls BLAS, which counts m and n in column-major order.
_BLAS: Mapping[str, float | str] = {"b": 1.0, "layout": "column_major"}
_GEMM = Section(kind="gemm", dimensions=_PRODUCT, times={"": ("time",)}, constants=_BLAS)
# The left factor is the sparse one, by rows: its place is part of the op, so nothing is turned around.
_SPARSE = Section(
    kind="sparse_gemm",
    dimensions=(*_PRODUCT, Dimension("density", ("sparsity",), density)),
    times={"": ("sparse time", "time")},
    constants={"b": 1.0},
)
# The same product without its zeros. On ARM it is Eigen's product of bytes, which nobody would call where gemmlowp
# is, and gemmlowp's stand in the section of dense products.
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
        Dimension("width", ("w",)),
        Dimension("height", ("h",)),
        Dimension("in_channels", ("c",)),
        Dimension("batch", ("n",)),
        Dimension("out_channels", ("k",)),
        Dimension("kernel_w", ("s",)),
        Dimension("kernel_h", ("r",)),
        Dimension("pad_w", ("pad w",), whole),
        Dimension("pad_h", ("pad h",), whole),
        Dimension("stride_w", ("horizontal stride",)),
        Dimension("stride_h", ("vertical stride",)),
    ),
    times={
        "forward": ("forward",),
        "backward_input": ("wrt inputs",),
        "backward_weight": ("wrt parameters",),
    },
    constants={
        "depth": 1.0, "kernel_d": 1.0, "stride_d": 1.0, "pad_d": 0.0,
        "dilation_d": 1.0, "dilation_h": 1.0, "dilation_w": 1.0, "groups": 1.0,
        "layout": "nchw", "transposed": 0.0,
    },
)  # fmt: skip


def _recurrent(cell: str) -> Section:
    """Describe a recurrent section; ``input_size`` 0 says that the timing has no input projection.

    The harness hands the cell inputs that are already projected, and the printed rate counts
    2 · gates · hidden² · batch · steps, the recurrent product alone.
    """
    return Section(
        kind="rnn",
        dimensions=(
            # Where the header says only "Input", the printed rate tells that it is the hidden state's size.
            Dimension("hidden_size", ("hidden units", "input")),
            Dimension("batch", ("n",)),
            Dimension("steps", ("timesteps",)),
        ),
        times={
            "forward": ("time forward",),
            # A bare "Time Backward" never contains the weight gradient.
            "backward_input": ("time backward wrt inputs", "time backward"),
            "backward_weight": ("time backward wrt weights",),
        },
        constants={"cell": cell, "input_size": 0.0, "layers": 1.0, "directions": 1.0},
    )


def complete_all_reduce(cells: Cells, time_s: float) -> Cells:
    """Turn what a row of an all-reduce says into TIMINGS columns.

    Each rank reduces a message of so many floats: the printed rate is 4 byte · floats · ranks / time. Ranks of one
    node talk over the node's link, those of several over the system's.

    Examples
    --------
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
        # One process on each of the Xeon Phi's nodes: their number is that of the ranks as well.
        Dimension("ranks", ("chips accelerator cards", "nodes")),
        Dimension("nodes", ("nodes",), right_of="ranks", optional=True),
        Dimension("library", ("selected algorithm",), text, optional=True),
        Dimension("deviation_ms", ("std dev all reduce time",), amount, optional=True),
    ),
    times={"": ("mean all reduce time", "time")},
    constants={"collective": "all_reduce"},
    precision=SINGLE,
    # Other programs with another clock than the one that times the ops.
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
