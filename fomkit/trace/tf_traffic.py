"""Rules of TensorFlow's ops whose work is traffic: normalisation, softmax, pooling, lookups and their gradient."""

from __future__ import annotations

from math import prod

from fomkit.trace.calls import Array, Call, Rule, Work, arrays_in
from fomkit.trace.traffic import reduction, traffic


def sum_of_rows(call: Call) -> list[Work]:
    """Rule of reductions; one over no axis, or over axes of length 1, changes nothing and is pruned."""
    values = next(arrays_in(call.arguments.values()))
    return [] if values.numel == call.results[0].numel else reduction(call)


def softmax(call: Call) -> list[Work]:
    """Rule of softmax and of the cross-entropies with one inside: a row is the last axis."""
    values = next(arrays_in(call.arguments.values()))
    row = values.shape[-1] if values.shape else 1
    return [Work("softmax", traffic(values.numel, call.read, call.written, row=row), values.dtype)]


def batch_norm(call: Call) -> list[Work]:
    """Rule of fused batch normalisation, forward or back: a row is all values of one channel."""
    values = call.array("x")
    channels = values.shape[1] if str(call.arguments["data_format"]).startswith("NC") else values.shape[-1]
    row = values.numel // max(channels, 1)
    return [Work("norm", traffic(values.numel, call.read, call.written, row=row), values.dtype)]


def pool(call: Call) -> list[Work]:
    """Rule of pooling with a kernel, forward or back: each pooled value looks at one window."""
    window = prod(call.arguments["ksize"])
    gradient = call.arguments.get("grad")
    pooled = gradient if isinstance(gradient, Array) else call.results[0]
    found = traffic(pooled.numel * window, call.read, call.written, row=window)
    return [Work("pool", found, call.dtype)]


def gather_from(table: str) -> Rule:
    """Make the rule of a lookup in the named table: only the elements looked up are read, not the table."""

    def rule(call: Call) -> list[Work]:
        picked = call.results[0]
        source = call.arguments.get(table)
        read = [array for array in call.read if array != source]
        row = picked.shape[-1] if picked.shape else 1
        found = traffic(picked.numel, read, call.written, row=row, extra_byte=picked.byte)
        return [Work("embedding", {**found, "inputs": len(read) + 1}, picked.dtype)]

    return rule


def add_by_index(call: Call) -> list[Work]:
    """Rule of a lookup's gradient: reads what came back, writes the gradient of the whole table."""
    values = call.array("data" if "data" in call.arguments else "updates")
    row = values.shape[-1] if values.shape else 1
    return [Work("embedding", traffic(values.numel, call.read, call.written, row=row), values.dtype)]
