"""Rules of work that is traffic alone, in words of no framework."""

from __future__ import annotations

from collections.abc import Iterable

from fomkit.trace.calls import Array, Call, Dimensions, Work


def total_byte(arrays: Iterable[Array]) -> int:
    """Add up what stands in memory [byte]."""
    return sum(array.byte for array in arrays)


def traffic(
    numel: int, read: Iterable[Array], written: Iterable[Array], *, row: int = 0, extra_byte: int = 0
) -> Dimensions:
    """Give the dimensions of a traffic row; ``extra_byte`` is what is picked out of a larger tensor."""
    tensors = list(read)
    dimensions: Dimensions = {"numel": numel, "inputs": len(tensors)}
    if row:
        dimensions["row"] = row
    return {**dimensions, "read_byte": total_byte(tensors) + extra_byte, "write_byte": total_byte(written)}


def most_elements(arrays: Iterable[Array]) -> int:
    """Give the elements of the largest array."""
    return max((array.numel for array in arrays), default=0)


def pointwise(call: Call) -> list[Work]:
    """Rule of one operation per element: reads every argument, writes every result."""
    return [Work("pointwise", traffic(most_elements(call.written), call.read, call.written), call.dtype)]


def generate(call: Call) -> list[Work]:
    """Rule of fills and random numbers: nothing is read, the results are written."""
    return [Work("copy", traffic(most_elements(call.written), (), call.written), call.dtype)]


def copy(call: Call) -> list[Work]:
    """Rule of data that moves unchanged into new memory."""
    return [Work("copy", traffic(most_elements(call.written), call.read, call.written), call.dtype)]


def other(call: Call) -> list[Work]:
    """Rule of work with no formula of its own (sorting, scans): its compulsory traffic only."""
    return [
        Work("other", traffic(most_elements((*call.read, *call.written)), call.read, call.written), call.dtype)
    ]


def reduction(call: Call) -> list[Work]:
    """Rule of sums, means, extrema and losses: all elements in, few out."""
    numel, results = most_elements(call.read), most_elements(call.written)
    found = traffic(numel, call.read, call.written, row=numel // max(results, 1))
    return [Work("reduction", found, call.dtype)]


def upsample(call: Call) -> list[Work]:
    """Rule of interpolation, forward and back: as many operations as elements on the larger side."""
    numel = most_elements((*call.read, *call.written))
    return [Work("pointwise", traffic(numel, call.read, call.written), call.dtype)]
