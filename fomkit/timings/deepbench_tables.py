"""What else DeepBench workbooks say, and what they say wrongly, as literal tables: to cover more, add an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PADDED_HEADER = "padded kernels"
PASSED_OVER = (
    "p",
    "q",
    "total time",
    "forward algorithm",
    "gigabytes sec",
    "speedup wrt dense",
    "source",
    "platform",
)
"""Headers of known columns that are not read, because they follow from the others, are wrong in places or remark
on them; so is every rate, which has "flops" in its header. Any other column is reported."""

NO_TIME = ("", "n/a", "n/a*", "na", "not available", "not supported", "#n/a", "#value!", "#div/0!", "-")
"""What stands in a time cell for "not measured"."""

DEVICE_SPECS = ("GPU Model", "CPU Model", "CPU")
"""The Specs that name the device; the first that is there wins."""


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
HARNESS_CONSTANTS: Mapping[tuple[str, str], Mapping[str, str]] = {("conv", "int8"): {"layout": "nhwc"}}
"""By kind and number format: what differs from the section's constants; cuDNN convolves bytes in this order."""

NOTES = (
    "DeepBench times are means over repeats that the workbook does not count. The NVIDIA and AMD programs cut "
    "them to whole microseconds: a time may be up to 1 us longer than the table says.",
    "Matrix products are BLAS calls: m, n, k as printed, column-major. They add to their result, which is read "
    "as well as written. Recurrent layers are timed without biases and without the input projection: input_size "
    "is 0.",
)
