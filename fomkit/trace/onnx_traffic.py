"""Rules of ONNX's ops whose work is traffic: which tensors they really read and write, and how long a row is."""

from __future__ import annotations

from math import prod

from fomkit.trace.calls import Array, Call, Rule, Work
from fomkit.trace.traffic import most_elements, traffic


def _first(call: Call) -> Array:
    return call.read[0]


def picked(call: Call) -> list[Work]:
    """Rule of data that is cut or picked out of a tensor: only what is taken is read of it."""
    source, results = _first(call), call.written
    read = [array for array in call.read if array != source]
    taken = sum(array.numel for array in results) * source.item_byte
    found = traffic(most_elements(results), read, results, extra_byte=taken)
    return [Work("copy", {**found, "inputs": len(read) + 1}, call.dtype)]


def gather(call: Call) -> list[Work]:
    """Rule of a lookup along an axis; in a table of rows, which is the first axis, it is an embedding."""
    works = picked(call)
    source = _first(call)
    if int(call.arguments.get("axis", 0)) % max(len(source.shape), 1) or len(source.shape) != 2:
        return works
    # A row that is told by a number is cut out; rows that other data tell are looked up.
    if not isinstance(call.arguments.get("indices"), Array):
        return works
    return [Work("embedding", {**one.dimensions, "row": source.shape[-1]}, one.dtype) for one in works]


def put(call: Call) -> list[Work]:
    """Rule of values written to indexed places of a copy."""
    values = call.read[-1]
    return [Work("copy", traffic(values.numel, call.read, call.written), call.dtype)]


def batch_norm(call: Call) -> list[Work]:
    """Rule of batch normalisation: a row is all values of one channel."""
    values = _first(call)
    channels = values.shape[1] if len(values.shape) > 1 else 1
    return _norm(call, values.numel // max(channels, 1))


def _norm(call: Call, row: int) -> list[Work]:
    values = _first(call)
    return [Work("norm", traffic(values.numel, call.read, call.written, row=row), values.dtype)]


def instance_norm(call: Call) -> list[Work]:
    """Rule of instance normalisation: a row is one channel of one sample."""
    return _norm(call, prod(_first(call).shape[2:]))


def group_norm(call: Call) -> list[Work]:
    """Rule of group normalisation: a row is one group of channels of one sample."""
    values = _first(call)
    groups = int(call.arguments.get("num_groups", 1)) * values.shape[0]
    return _norm(call, values.numel // max(groups, 1))


def layer_norm(call: Call) -> list[Work]:
    """Rule of layer and root-mean-square normalisation: a row is all from ``axis`` on."""
    values = _first(call)
    axis = int(call.arguments.get("axis", -1)) % max(len(values.shape), 1)
    return _norm(call, prod(values.shape[axis:]))


def axis_norm(call: Call) -> list[Work]:
    """Rule of scaling to length 1 along one axis, or to mean 0 over some."""
    values = _first(call)
    axes = call.arguments.get("axes") or [call.arguments.get("axis", -1)]
    return _norm(call, prod(values.shape[int(axis)] for axis in axes))


def softmax_of(default: int) -> Rule:
    """Make the rule of a softmax over one axis; before version 13 of the ops, over all from ``axis`` on."""

    def rule(call: Call) -> list[Work]:
        values = _first(call)
        axis = int(call.arguments.get("axis", default)) % max(len(values.shape), 1)
        row = values.shape[axis] if values.shape else 1
        return [Work("softmax", traffic(values.numel, call.read, call.written, row=row), values.dtype)]

    return rule


def window_pool(call: Call) -> list[Work]:
    """Rule of pooling with a kernel: each result looks at one window, so numel = results × window."""
    window = prod(int(one) for one in call.arguments["kernel_shape"])
    found = traffic(call.results[0].numel * window, call.read, call.written, row=window)
    return [Work("pool", found, call.dtype)]


def global_pool(call: Call) -> list[Work]:
    """Rule of pooling everything into one."""
    values = _first(call)
    row = values.numel // max(call.results[0].numel, 1)
    return [Work("pool", traffic(values.numel, call.read, call.written, row=row), call.dtype)]


def picked_loss(call: Call) -> list[Work]:
    """Rule of the negative log-likelihood: one probability per target is read, whatever the classes."""
    source, target = call.read[:2]
    read = [array for array in call.read if array != source]
    found = traffic(target.numel, read, call.written, row=target.numel, extra_byte=target.numel * source.item_byte)
    return [Work("reduction", {**found, "inputs": len(read) + 1}, source.dtype)]


def softmax_loss(call: Call) -> list[Work]:
    """Rule of a softmax and the loss of it in one op: all scores are read."""
    values = _first(call)
    row = values.shape[1] if len(values.shape) > 1 else 1
    return [Work("softmax", traffic(values.numel, call.read, call.written, row=row), values.dtype)]
