"""Framework-free records that tracers and rules share: arrays, calls, works and traced ops.

A tracer describes each executed op as a `Call`. A rule turns the call into `Work`s: kind, dimensions and number
format. The functions below are the building blocks of rules; `aten`, `onnx` and `tf` hold the tables of rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from fomkit.core.units import by_key, default_engine

Dimensions = dict[str, int | float | str]
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
INPUT_GRADIENT, WEIGHT_GRADIENT = "backward_input", "backward_weight"
"""Names of the passes; the two gradients have names of their own where the rule is certain which one runs."""

_DTYPES: Mapping[str, str] = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8", "complex128": "complex128", "complex64": "complex64", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
_BY_WIDTH = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


def format_name(name: str, item_byte: int) -> str:
    """Return fomkit's name of a framework's number format; a rare format is named as the integer of its width."""
    return _DTYPES.get(name) or _BY_WIDTH[item_byte]


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor without its data: shape, strides [elements], dtype, element size [byte] and its storage's id."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    item_byte: int
    storage: int
    offset: int = 0

    @property
    def numel(self) -> int:
        """Elements; a repeated element counts each time."""
        return prod(self.shape)

    @property
    def packed(self) -> bool:
        """Whether elements are stored in the order of the axes, without gaps."""
        axes = zip(self.shape, self.stride, packed_strides(self.shape), strict=True)
        return all(step == plain for size, step, plain in axes if size > 1)

    @property
    def byte(self) -> int:
        """Bytes in memory; a broadcast or overlapping element counts once.

        >>> Array((5, 4), (0, 1), "fp32", 4, storage=1).byte
        16
        """
        if not self.numel:
            return 0
        axes = list(zip(self.shape, self.stride, strict=True))
        distinct = prod(size for size, step in axes if step)
        span = 1 + sum((size - 1) * abs(step) for size, step in axes)
        return min(distinct, span) * self.item_byte


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor stored row by row without gaps [elements].

    >>> packed_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


AXES = ("d", "h", "w")
LENGTHS = ("depth", "height", "width")
"""Axes of a convolution: as suffixes of kernel, stride, padding and dilation; as names of the input's lengths."""


def arrays_in(values: Iterable[Any]) -> Iterator[Array]:
    """Yield the arrays among values and in nested lists and tuples, in order."""
    for value in values:
        if isinstance(value, Array):
            yield value
        elif isinstance(value, list | tuple):
            yield from arrays_in(value)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a framework's op.

    `arguments`: by the names of the op's schema; tensors as `Array`.
    `results`: tensors returned, and arguments written in place.
    """

    op: str
    arguments: Mapping[str, Any]
    results: tuple[Array, ...]

    def array(self, name: str) -> Array:
        """Return an argument that must be a tensor; raise TypeError if it is not."""
        value = self.arguments[name]
        if not isinstance(value, Array):
            raise TypeError(f"{self.op}: {name} is not a tensor")
        return value

    @property
    def read(self) -> tuple[Array, ...]:
        """The distinct tensors among the arguments."""
        return tuple(dict.fromkeys(arrays_in(self.arguments.values())))

    @property
    def written(self) -> tuple[Array, ...]:
        """The distinct tensors among the results."""
        return tuple(dict.fromkeys(self.results))

    @property
    def dtype(self) -> str:
        """Number format of the first floating-point tensor, results before arguments; else of the first tensor."""
        arrays = [*self.results, *arrays_in(self.arguments.values())]
        floating = (array.dtype for array in arrays if array.dtype[:2] in ("fp", "bf"))
        return next(floating, arrays[0].dtype if arrays else "fp32")


@dataclass(frozen=True, slots=True)
class Work:
    """Kind, dimensions and number format of a row; ``pass_name`` is "" if the time of the call determines it."""

    kind: str
    dimensions: Dimensions
    dtype: str
    pass_name: str = ""


Rule = Callable[[Call], list[Work]]


def works_of(call: Call, rule: Rule) -> list[Work]:
    """Apply a rule; an op on no elements does no work."""
    if not any(array.numel for array in (*call.read, *call.written)):
        return []
    return rule(call)


def each(rule: Rule | None, names: str) -> dict[str, Rule | None]:
    """Map each name in a string of names to the same rule."""
    return dict.fromkeys(names.split(), rule)


Count = int | float | str
"""Executions in a step: a number, a share where not every step runs the op, or an expression in named sizes."""


def add_counts(one: Count, other: Count) -> Count:
    """Add two counts, numbers or expressions.

    >>> add_counts(2, 3), add_counts(0, "seq"), add_counts(1, "seq - 1")
    (5, 'seq', '1 + seq - 1')
    """
    if not isinstance(one, str) and not isinstance(other, str):
        return one + other
    return other if one == 0 else f"{one} + {other}"


def add_lines(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    """Add the executions of lines of code, by line.

    >>> add_lines({"a.py:1 f": 1}, {"a.py:1 f": 2, "a.py:3 f": 1})
    {'a.py:1 f': 3, 'a.py:3 f': 1}
    """
    return {line: one.get(line, 0) + other.get(line, 0) for line in (*one, *other)}


@dataclass(slots=True)
class TracedOp:
    """One executed op with its pass and module; ``parts`` are the ops inside a row that is found at the call.

    ``input_gradient`` is False where the op reads data, whose gradient is not computed. Once equal executions are
    joined, ``count`` is above 1 or an expression in named sizes. ``lines`` are the lines of the user's code that
    run the op, with the number of executions of each.
    """

    op: str
    kind: str
    dimensions: Dimensions
    dtype: str
    pass_name: str
    module: str
    parts: list[TracedOp] = field(default_factory=list)
    input_gradient: bool = True
    count: Count = 1
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        """The arithmetic unit that the framework uses by default."""
        return default_engine(self.kind, self.dtype)

    @property
    def identity(self) -> tuple[str, ...]:
        """What two executions must share, besides their dimensions, to become one row."""
        return (self.op, self.kind, self.dtype, self.engine, self.pass_name, self.module)

    @property
    def key(self) -> tuple[object, ...]:
        """Key by which executions are equal: identity and dimensions."""
        return (self.identity, tuple(self.dimensions.items()))


def gemm_sizes(b: int, m: int, n: int, k: int, trans_a: int = 0, trans_b: int = 0) -> Dimensions:
    """Return the dimensions of b products of m×k and k×n matrices; the flags say which are stored transposed."""
    return {"b": b, "m": m, "n": n, "k": k, "trans_a": trans_a, "trans_b": trans_b}


def rnn_sizes(
    cell: str, batch: int, steps: int, widths: Sequence[int], *, layers: int = 1, directions: int = 1
) -> Dimensions:
    """Return the dimensions of a recurrent layer's row; ``widths`` are those of the input and of the state."""
    found: Dimensions = {"cell": cell, "batch": batch, "steps": steps, "input_size": widths[0]}
    return {**found, "hidden_size": widths[1], "layers": layers, "directions": directions}


def attention_sizes(
    batch: int, heads: Sequence[int], lengths: Sequence[int], widths: Sequence[int], *, causal: object
) -> Dimensions:
    """Return the dimensions of an attention's row.

    `heads`, `lengths`: of queries, then of keys; `widths`: of keys, then of values. The flop of a row are
    4·batch·heads·q_len·kv_len·head_dim forward and twice that backward, causal or not: plain products compute the
    whole square. If values are wider or narrower than keys, head_dim is the mean of both, so that the flop are
    right.
    """
    both = sum(widths)
    found: Dimensions = {"batch": batch, "heads": heads[0], "kv_heads": heads[1], "q_len": lengths[0]}
    width = both / 2 if both % 2 else both // 2
    return {**found, "kv_len": lengths[1], "head_dim": width, "causal": int(bool(causal))}


def attention_of_shapes(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *, causal: object
) -> Dimensions:
    """Return `attention_sizes` for shapes (…, heads, length, width); shapes of up to three axes have no heads."""
    batch = prod(query[:-3] if len(query) > 3 else query[:-2])
    heads = [one[-3] if len(one) > 3 else 1 for one in (query, key)]
    return attention_sizes(batch, heads, (query[-2], key[-2]), (query[-1], value[-1]), causal=causal)


def update_rows(op: str, rule: str, impl: str, updated: Iterable[tuple[str, int]]) -> list[TracedOp]:
    """Return one row per number format for one update of tensors, given as (number format, elements)."""
    shared: Dimensions = {"rule": rule, "impl": impl}
    return [
        TracedOp(op, "optimizer", {**shared, "numel": sum(each), "tensors": len(each)}, dtype, UPDATE, "")
        for dtype, each in by_key(updated).items()
    ]


def total_byte(arrays: Iterable[Array]) -> int:
    """Sum the bytes in memory of some arrays [byte]."""
    return sum(array.byte for array in arrays)


def traffic(
    numel: int, read: Iterable[Array], written: Iterable[Array], *, row: int = 0, extra_byte: int = 0
) -> Dimensions:
    """Return the dimensions of a traffic row; ``extra_byte`` is read from a larger tensor, in part."""
    tensors = list(read)
    dimensions: Dimensions = {"numel": numel, "inputs": len(tensors)}
    if row:
        dimensions["row"] = row
    return {**dimensions, "read_byte": total_byte(tensors) + extra_byte, "write_byte": total_byte(written)}


def row_work(kind: str, call: Call, values: Array, row: int) -> list[Work]:
    """Price an op on rows of some values: all its arguments are read, all its results are written."""
    return [Work(kind, traffic(values.numel, call.read, call.written, row=row), values.dtype)]


def part_work(
    kind: str, call: Call, source: Array, numel: int, row: int = 0, *, picked: int | None = None, dtype: str = ""
) -> list[Work]:
    """Price an op that reads only ``picked`` elements (default: ``numel``) of one argument."""
    read = [array for array in call.read if array != source]
    byte = (numel if picked is None else picked) * source.item_byte
    found = traffic(numel, read, call.written, row=row, extra_byte=byte)
    return [Work(kind, {**found, "inputs": len(read) + 1}, dtype or source.dtype)]


def per_channel(call: Call, values: Array, channels: int) -> list[Work]:
    """Price a normalisation whose rows hold all values of one channel, or of another such group."""
    return row_work("norm", call, values, values.numel // max(channels, 1))


def most_elements(arrays: Iterable[Array]) -> int:
    """Return the number of elements of the largest array."""
    return max((array.numel for array in arrays), default=0)


def _moving(kind: str, *, reads: bool = True, larger_side: bool = False) -> Rule:
    """Make the rule of an op whose arguments are read and whose results are written once each.

    `reads`: whether the arguments are read. `larger_side`: whether numel is that of the largest argument or
    result; otherwise numel is that of the largest result.
    """

    def rule(call: Call) -> list[Work]:
        numel = most_elements((*call.read, *call.written) if larger_side else call.written)
        return [Work(kind, traffic(numel, call.read if reads else (), call.written), call.dtype)]

    return rule


pointwise = _moving("pointwise")
"""Rule of one operation per element."""
generate = _moving("copy", reads=False)
"""Rule of fills and random numbers: only the result is written."""
copy = _moving("copy")
"""Rule of data that moves unchanged into new memory."""
other = _moving("other", larger_side=True)
"""Rule of work without a formula of its own (sorting, scans): its compulsory traffic only."""
upsample = _moving("pointwise", larger_side=True)
"""Rule of interpolation, forward and backward: one operation per element of the larger side."""


def for_each(kind: str) -> Rule:
    """Make the rule of an op on a list of tensors, which runs as one kernel for all of them."""

    def rule(call: Call) -> list[Work]:
        tensors = list(arrays_in([call.arguments["self"]]))
        read = list(arrays_in(call.arguments.values()))
        numel = sum(array.numel for array in tensors)
        row = numel // len(tensors) if kind == "reduction" else 0
        found = traffic(numel, read, tensors if call.op.endswith("_") else call.results, row=row)
        return [Work(kind, {**found, "inputs": len(read) // len(tensors)}, tensors[0].dtype)]

    return rule


def reduction(call: Call) -> list[Work]:
    """Price sums, means, extrema and losses: many elements are read, few are written."""
    numel, results = most_elements(call.read), most_elements(call.written)
    found = traffic(numel, call.read, call.written, row=numel // max(results, 1))
    return [Work("reduction", found, call.dtype)]


_MAY_BE_HEAVY = re.compile(
    r"mm(?![a-z])|mv|conv|attention|linalg|rnn|lstm|gru|linear|einsum|cholesky|svd|solve|inverse|qr(?!t)|eig|"
    r"(?<![a-z])lu_|\blu\b|triangular|det(?!a)|cdist|pdist|ctc|sparse|spgemm|quantized|matrix|bag|expm(?!1)",
    re.IGNORECASE,
)
"""Words in PyTorch's names of ops that may do more arithmetic than their bytes suggest, or many steps in turn."""


def has_bound(name: str) -> bool:
    """Return whether an op of PyTorch without a rule takes little more than its traffic.

    >>> has_bound("unique_dim"), has_bound("glu_jvp"), has_bound("_cudnn_ctc_loss"), has_bound("_foreach_mm")
    (True, True, False, False)
    """
    return not _MAY_BE_HEAVY.search(name)


def branch_note(count: int) -> str:
    """Return the note on branches whose side depends on data."""
    return f"branches that depend on data: {count}; each step takes the larger side"


def alignment_states(targets: Sequence[int], batch: int) -> int:
    """Count the states of a CTC loss in one frame: the labels of a target, with a blank around each.

    `targets`: shape of the labels, one row per sample, or all in one axis, then assumed to be of equal length.

    >>> alignment_states((4, 10), 4), alignment_states((40,), 4)
    (21, 21)
    """
    return 2 * (targets[1] if len(targets) > 1 else -(-targets[0] // max(batch, 1))) + 1


def alignment(call: Call) -> list[Work]:
    """Price a CTC loss, forward or backward: sums over the paths of a sample's labels through its frames.

    Each of the T frames needs the sums of the frame before (Graves et al., ICML 2006, eq. 6 and 10). The work is
    thus T executions in sequence, each of batch × (2·L + 1) states: a probability and a sum are read, a sum is
    written. Backward also writes the gradient of all scores. The losses of cuDNN and MIOpen compute both passes in
    one call. All frames count: none is taken for padding.
    """
    scores = call.array("log_probs")
    frames, batch, _ = scores.shape
    numel = batch * alignment_states(call.array("targets").shape, batch)
    moved = {"read_byte": 2 * numel * scores.item_byte, "write_byte": numel * scores.item_byte}
    at_once = "deterministic" in call.arguments
    works = [Work("other", {"numel": numel, "inputs": 2, **moved}, scores.dtype)] * (frames * (1 + at_once))
    if at_once or "grad" in call.arguments:
        works.append(Work("pointwise", traffic(scores.numel, [scores], [scores]), scores.dtype))
    return works


def sparse_product(call: Call, left: Array, right: Array) -> list[Work]:
    """Price a product of a sparse and a dense matrix; the sparse one is given as the numbers that it stores."""
    (rows, columns), is_left = call.results[0].shape[-2:], len(left.shape) == 1
    stored, dense = (left, right) if is_left else (right, left)
    m, n, k = (rows, columns, dense.shape[-2]) if is_left else (columns, rows, dense.shape[-1])
    sizes: Dimensions = {"b": 1, "m": m, "n": n, "k": k, "density": stored.numel / (m * k)}
    return [Work("sparse_gemm", sizes, dense.dtype)]


def euclidean(call: Call) -> list[Work]:
    """Price distances of points by a product whose factors have two more columns: squared lengths and ones."""
    first, second = call.array("x1"), call.array("x2")
    b, (m, k), n = prod(first.shape[:-2]), first.shape[-2:], second.shape[-2]
    return [Work("gemm", gemm_sizes(b, m, n, k + 2, 0, 1), first.dtype)]


def distances(call: Call) -> list[Work]:
    """Price the distances of two sets of points, or of all pairs of a set, one by one.

    Every difference is an element, a row sums to one distance.
    """
    first = call.array("x1" if "x1" in call.arguments else "self")
    others = call.array("x2").shape[-2] if "x2" in call.arguments else (first.shape[0] - 1) / 2
    found = traffic(round(first.numel * others), call.read, call.written, row=first.shape[-1])
    return [Work("reduction", found, first.dtype)]


def split_gradients(op: TracedOp) -> list[TracedOp]:
    """Split a recurrent backward row into input gradient and weight gradient; return other rows unchanged.

    Where the layer reads data, no input gradient is computed: the row of the input gradient then has input_size 0.
    """
    if op.kind != "rnn" or op.pass_name != BACKWARD:
        return [op]
    rows = []
    for pass_name in (INPUT_GRADIENT, WEIGHT_GRADIENT):
        wanted = pass_name == WEIGHT_GRADIENT
        parts = [part for part in op.parts if (part.pass_name == WEIGHT_GRADIENT) == wanted]
        for part in parts:
            part.pass_name = pass_name
        if parts:
            sizes = op.dimensions if wanted or op.input_gradient else {**op.dimensions, "input_size": 0}
            rows.append(replace(op, dimensions=sizes, pass_name=pass_name, parts=parts))
    return rows
