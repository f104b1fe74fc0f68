"""What DeepBench workbooks say and what it means here, as literal tables: to cover more, add an entry.

Headers and labels are compared in lower case with single spaces; `SECTIONS` keys are what stands in column A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def whole(value: object) -> float | None:
    """Read a whole number of 0 or more; None when the cell holds something else.

    Examples
    --------
    >>> whole(1760), whole(78.5), whole("N/A*")
    (1760.0, None, None)
    """
    number = as_number(value)
    return number if number is not None and number >= 0 and number.is_integer() else None


def size(value: object) -> float | None:
    """Read a whole number of 1 or more; None when the cell holds something else."""
    number = whole(value)
    return number if number else None


def transpose(value: object) -> float | None:
    """Read the N or T of a factor as 0 or 1; None when the cell holds something else."""
    return {"N": 0.0, "T": 1.0}.get(value) if isinstance(value, str) else None


def as_number(value: object) -> float | None:
    """Read a finite number; None when the cell holds something else, a truth value included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Dimension:
    """A TIMINGS column, the headers under which it stands, and how its cells are read."""

    column: str
    headers: tuple[str, ...]
    read: Callable[[object], float | None] = size


@dataclass(frozen=True)
class Section:
    """One kind of section: its dimensions, its times by pass [ms], and what is the same in all its rows.

    Of ``times`` a section needs only the passes that its header has, but at least one.
    """

    kind: str
    dimensions: tuple[Dimension, ...]
    times: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, float | str] = field(default_factory=dict)


_GEMM = Section(
    kind="gemm",
    dimensions=(
        Dimension("m", ("m",)),
        Dimension("n", ("n",)),
        Dimension("k", ("k",)),
        Dimension("trans_a", ("a transpose",), transpose),
        Dimension("trans_b", ("b transpose",), transpose),
    ),
    times={"": ("time (msec)",)},
    # The benchmark calls BLAS, which counts m and n in column-major order.
    constants={"b": 1.0, "layout": "column_major"},
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
        Dimension("kernel_w", ("s", "s (filter width)", "s (fitler width)")),
        Dimension("kernel_h", ("r", "r (filter height)")),
        Dimension("pad_w", ("pad_w",), whole),
        Dimension("pad_h", ("pad_h",), whole),
        Dimension("stride_w", ("horizontal stride",)),
        Dimension("stride_h", ("vertical stride",)),
    ),
    times={
        "forward": ("forward (msec)",),
        "backward_input": ("wrt inputs (msec)",),
        "backward_weight": ("wrt parameters (msec)",),
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
            Dimension("hidden_size", ("hidden units",)),
            Dimension("batch", ("n",)),
            Dimension("steps", ("timesteps",)),
        ),
        times={
            "forward": ("time forward (msec)",),
            # A bare "Time Backward" never contains the weight gradient.
            "backward_input": ("time backward wrt inputs (msec)", "time backward (msec)"),
            "backward_weight": ("time backward wrt weights (msec)",),
        },
        constants={"cell": cell, "input_size": 0.0, "layers": 1.0, "directions": 1.0},
    )


SECTIONS: Mapping[str, Section] = {
    "dense matrix multiplication": _GEMM,
    "convolution": _CONV,
    "recurrent layers - vanilla": _recurrent("vanilla"),
    "recurrent layers - lstm": _recurrent("lstm"),
    "recurrent layers - gru": _recurrent("gru"),
}
SKIPPED = ("sparse matrix multiplication", "all-reduce")
"""Sections that are known and not covered yet; their rows are counted as skipped."""

PADDED_HEADER = "padded kernels"
NO_TIME = ("", "n/a", "n/a*", "not supported", "#value!", "-")
"""What stands in a time cell for "not measured"."""


@dataclass(frozen=True)
class Precision:
    """Number format of the factors, the arithmetic unit, and the number format of the sums."""

    dtype: str
    engine: str
    accumulate_dtype: str


PRECISIONS: Mapping[str, Precision] = {
    "float": Precision("fp32", "vector", "fp32"),
    "single precision": Precision("fp32", "vector", "fp32"),
    # The tensor core; no workbook calls it so.
    "16 bit inputs, 16 bit multiplication, 32 bit addition": Precision("fp16", "matrix", "fp32"),
    # "Pseudo fp16": stored in 16 bits, calculated at the rate of fp32.
    "16 bit inputs, 32 bit multiplication, 32 bit addition": Precision("fp16", "vector", "fp32"),
}
PRECISION_SCOPES: Mapping[str, str] = {"gemm": "gemm", "conv": "conv", "rnn": "rnn", "sparse ops": "sparse_gemm"}
"""Words before the colon of a precision that holds for some sections only, and the kind they mean."""

_NETWORK_LIBRARIES = (
    ("cuDNN", {"Cudnn Version": "", "CUDA Version": "CUDA "}),
    ("MIOpen", {"MIOpen Version": "", "ROCm Version": "ROCm "}),
    ("MKL or LIBXSMM", {"Intel MKL Version": "", "LIBXSMM Version": "LIBXSMM "}),
)
LIBRARIES: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = {
    "gemm": (
        ("cuBLAS", {"CUDA Version": "CUDA "}),
        ("ROCm", {"ROCm Version": ""}),
        ("MKL", {"Intel MKL Version": ""}),
    ),
    "conv": _NETWORK_LIBRARIES,
    "rnn": _NETWORK_LIBRARIES,
}
"""By kind: a library, and the Specs that give its version with a word before each; the first that has any wins."""
DEVICE_SPECS = ("GPU Model", "CPU Model", "CPU")


@dataclass(frozen=True)
class Correction:
    """A figure that the workbooks print and that is not what ran; ``device`` "" means every workbook."""

    kind: str
    column: str
    printed: float
    actual: float
    device: str = ""


CORRECTIONS = (
    # Older lists of kernels print 1530 for the depth of a layer of 1536 units; the harness always ran 1536.
    Correction("gemm", "k", 1530.0, 1536.0),
    # The workbook copied an old list for three of its four products with n = 7133.
    Correction("gemm", "n", 6574.0, 7133.0, "Nvidia TitanX"),
    Correction("gemm", "n", 10376.0, 7133.0, "Nvidia TitanX"),
    Correction("gemm", "n", 8935.0, 7133.0, "Nvidia TitanX"),
)
HARNESS_PADDING: Mapping[tuple[str, str], tuple[tuple[str, ...], int]] = {
    ("conv", "matrix"): (("in_channels", "out_channels"), 8),
}
"""By kind and engine: dimensions that the harness rounds up to a multiple before timing, without printing it."""
NOTES = (
    "DeepBench times are means over repeats that the workbook does not count. The NVIDIA and AMD programs cut "
    "them to whole microseconds: a time may be up to 1 us longer than the table says.",
    "Matrix products are BLAS calls: m, n, k as printed, column-major. They add to their result, which is read "
    "as well as written. Recurrent layers are timed without biases and without the input projection: input_size "
    "is 0.",
)
