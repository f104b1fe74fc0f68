"""The time of one op of a ledger, by the formula that stands in its cell."""

from __future__ import annotations

import math

from fomkit.hardware import Device
from fomkit.ledger.records import OpLine
from fomkit.spans import Span


def _seconds(work: float, rate: float) -> float:
    # Somebody may type a rate or a utilisation of 0 into a workbook.
    return work / rate if rate else math.inf


def floor_s(line: OpLine, device: Device) -> float:
    """Give the longer of arithmetic and traffic at the machine's rates [s]; NaN where neither is known.

    Examples
    --------
    >>> from fomkit.hardware import Fact
    >>> line = OpLine("mm", "gemm", "", "fp32", "vector", "forward", 1, 1, 2e9, 3e6, "roofline", "", "")
    >>> floor_s(line, Device(byte_per_s=Fact(1e9, 1e9, 1e9, "assumed", "")))
    0.003
    """
    terms: list[float] = []
    peak = device.peak(line.dtype, line.engine)
    if peak is not None and not math.isnan(line.flop):
        terms.append(_seconds(line.flop, peak.rate.value))
    if device.byte_per_s is not None and not math.isnan(line.byte):
        terms.append(_seconds(line.byte, device.byte_per_s.value))
    return max(terms) if terms else math.nan


def op_time(line: OpLine, device: Device, level: float) -> Span | None:
    """Give the time of one execution [s]; None where nothing is known of it."""
    if line.utilisation is not None:
        start_s = device.launch_s.value if device.launch_s is not None else 0.0
        value = _seconds(floor_s(line, device), line.utilisation) + line.starts * start_s
    elif line.time_s is not None:
        value = line.time_s
    else:
        return None
    return Span(value, value * line.low, value * line.high, level)
