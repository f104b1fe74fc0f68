"""Rules of ops whose work is traffic: which tensors they really read and write, and how long a row is."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.calls import Array, Call, Dimensions, Rule, Work, arrays_in, on_rows, traffic


def for_each(kind: str) -> Rule:
    """Make the rule of an op on a list of tensors, which is one kernel for all of them."""

    def rule(call: Call) -> list[Work]:
        tensors = list(arrays_in([call.arguments["self"]]))
        read = list(arrays_in(call.arguments.values()))
        numel = sum(array.numel for array in tensors)
        row = numel // len(tensors) if kind == "reduction" else 0
        found = traffic(numel, read, tensors if call.op.endswith("_") else call.results, row=row)
        return [Work(kind, {**found, "inputs": len(read) // len(tensors)}, tensors[0].dtype)]

    return rule


def copy_into(call: Call) -> list[Work]:
    """Rule of ``copy_(self, src)``: what stood in self before is not read."""
    source = call.arguments.get("src")
    read = [source] if isinstance(source, Array) else []
    return [Work("copy", traffic(calls.most_elements(call.written), read, call.written), call.dtype)]


def softmax_along(name: str) -> Rule:
    """Make the rule of a softmax over axis ``dim`` of the named argument, forward or back."""

    def rule(call: Call) -> list[Work]:
        values = call.array(name)
        return on_rows("softmax", call, values, values.shape[int(call.arguments["dim"])] if values.shape else 1)

    return rule


def batch_norm(call: Call) -> list[Work]:
    """Rule of batch normalisation, forward or back: a row is all values of one channel."""
    values = call.array("input")
    return calls.per_channel(call, values, values.shape[1] if len(values.shape) > 1 else 1)


def layer_norm(call: Call) -> list[Work]:
    """Rule of layer and root-mean-square normalisation, forward or back: a row is the normalised shape."""
    return on_rows("norm", call, call.array("input"), prod(call.arguments["normalized_shape"]))


def group_norm(call: Call) -> list[Work]:
    """Rule of group normalisation, forward or back: a row is the values of one group of one sample."""
    return calls.per_channel(call, call.array("input"), int(call.arguments["N"]) * int(call.arguments["group"]))


def weight_norm(call: Call) -> list[Work]:
    """Rule of weight normalisation, forward or back: a row is the weights that share one length."""
    weight = call.array("v" if "v" in call.arguments else "saved_v")
    lengths = call.array("g" if "g" in call.arguments else "saved_g")
    return calls.per_channel(call, weight, lengths.numel)


def _pool_reads(call: Call) -> list[Array]:
    """Leave out the input that a backward call is handed for its shape only."""
    backward = "grad_output" in call.arguments
    return [array for array in call.read if not (backward and array == call.array("self"))]


def window_pool(call: Call) -> list[Work]:
    """Rule of pooling with a kernel: each result looks at one window, so numel = results × window."""
    kernel = list(call.arguments["kernel_size"])
    spatial = 3 if "3d" in call.op else 2
    window = prod(kernel * spatial if len(kernel) == 1 else kernel)
    results = call.array("grad_output").numel if "grad_output" in call.arguments else call.results[0].numel
    found = traffic(results * window, _pool_reads(call), call.written, row=window)
    return [Work("pool", found, call.dtype)]


def adaptive_pool(call: Call) -> list[Work]:
    """Rule of pooling to a given size: the windows tile the larger side, which is numel."""
    pooled = call.array("grad_output") if "grad_output" in call.arguments else call.results[0]
    fewer, numel = sorted((call.array("self").numel, pooled.numel))
    found = traffic(numel, _pool_reads(call), call.written, row=numel // max(fewer, 1))
    return [Work("pool", found, call.dtype)]


def gather_from(table: str, kind: str) -> Rule:
    """Make the rule of a lookup in the named table: only the elements looked up are read, not the table."""

    def rule(call: Call) -> list[Work]:
        source, picked = call.array(table), call.results[0]
        return calls.on_picked(kind, call, source, picked.numel, picked.shape[-1] if kind == "embedding" else 0)

    return rule


def embedding_bag(call: Call) -> list[Work]:
    """Rule of a lookup that sums its rows: every row looked up is read, one row a bag is written."""
    table, indices = call.array("weight"), call.array("indices")
    width = table.shape[-1]
    bags = replace(call, results=call.results[:1])
    return calls.on_picked("embedding", bags, table, indices.numel * width, width)


def embedding_backward(call: Call) -> list[Work]:
    """Rule of a lookup's gradient: reads what came back, writes the gradient of the whole table."""
    gradient = call.array("grad_output" if "grad_output" in call.arguments else "grad")
    return on_rows("embedding", call, gradient, gradient.shape[-1])


def embedding_bag_backward(call: Call) -> list[Work]:
    """Rule of that sum's gradient: each row looked up gets its bag's gradient; of maxima, each element its own."""
    gradient, largest = call.array("grad"), int(call.arguments["mode"]) == 2
    names = {0: "indices offset2bag per_sample_weights", 1: "indices offset2bag bag_size", 2: "maximum_indices"}
    read = [gradient, *arrays_in(call.arguments.get(name) for name in names[int(call.arguments["mode"])].split())]
    width = gradient.shape[-1]
    numel = gradient.numel if largest else call.array("indices").numel * width
    return [Work("embedding", traffic(numel, read, call.written, row=width), gradient.dtype)]


def scatter(call: Call) -> list[Work]:
    """Rule of writing values to indexed places; in place only those places are touched, else all is copied."""
    target = call.array("self")
    read = [array for array in call.read if array != target]
    in_place = any(array.storage == target.storage for array in call.results)
    touched = max((array.numel for array in read), default=0)
    if not in_place:
        return [Work("copy", traffic(touched, call.read, call.written), target.dtype)]
    dimensions: Dimensions = {"numel": touched, "inputs": len(read), "read_byte": calls.total_byte(read)}
    return [Work("copy", {**dimensions, "write_byte": touched * target.item_byte}, target.dtype)]


def picked_loss(call: Call) -> list[Work]:
    """Rule of the negative log-likelihood: one probability per target is read, whatever the classes."""
    numel = call.array("target").numel
    return calls.on_picked("reduction", call, call.array("self"), numel, numel)


def picked_loss_backward(call: Call) -> list[Work]:
    """Rule of its gradient: a whole tensor of zeros with one value per target."""
    probabilities = call.array("self")
    read = [array for array in call.read if array != probabilities]
    return [Work("copy", traffic(probabilities.numel, read, call.written), probabilities.dtype)]
