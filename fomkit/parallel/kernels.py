"""The rows of a step's ops, as they are added: products, attention, ops of elements, collectives, the update.

An op is added once. In training its gradients are stated beside it, and run after the forward pass in reverse; so
are the tensors that it keeps for them.
Sizes are numbers, or expressions in named sizes. So one statement of a model makes the op table of a profile,
which holds for every batch and length, and the ops of one device of a layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.machine import Tier
from fomkit.core.model import CACHE, TO_SHORT
from fomkit.core.transformer import ATTENTION, UPDATE, Attention, Block, Experts, Transformer
from fomkit.core.units import ITEM_BYTE
from fomkit.ops.fusion import KERNELS, ONE_KERNEL, Fusion, Part
from fomkit.ops.precision import BLOCKS
from fomkit.ops.tables import column_names

Mode = Literal["train", "infer", "decode"]
Row = dict[str, Any]
Cell = int | float | str
_WITH_ROWS = ("norm", "softmax", "reduction", "embedding")
"""Kinds whose ops state the length of their rows."""


class Many(NamedTuple):
    """A factor times named sizes, as a table's cell has it: ``3*batch*seq``; or a number."""

    factor: float
    of: str = ""

    def times(self, factor: Cell) -> Many:
        """Multiply by a number or, named sizes, by an expression."""
        if not isinstance(factor, str):
            return Many(self.factor * factor, self.of)
        bare = " " not in factor or factor.startswith("(")
        return Many(self.factor, f"{self.of}*{factor}" if bare else f"{self.of}*({factor})")

    def share(self, devices: int) -> Many:
        """Return the largest part of one of some devices; of named sizes in whole numbers."""
        if devices == 1 or not self.of:
            return Many(self.factor / devices, self.of)
        return Many(1, f"(({self.cell} + {devices - 1})//{devices})")

    @property
    def cell(self) -> Cell:
        """The text or number of the table's cell."""
        if not self.of:
            return self.factor
        return self.of if self.factor == 1 else f"{self.factor:.0f}*{self.of}"


class Stream(NamedTuple):
    """The tokens of a device.

    `samples`: sequences, each of ``length``. `own`: tokens in norms and in the stream between layers; `routed`:
    those that it sends to experts. `context`: devices that share each sequence.
    """

    samples: Many
    length: int | str
    own: Many
    routed: Many
    context: int = 1

    @classmethod
    def whole(cls, samples: Many, length: int | str) -> Stream:
        """Return a stream that no devices share."""
        return cls(samples, length, samples.times(length), samples.times(length))

    @property
    def tokens(self) -> Many:
        """The tokens of all layers that a tensor group splits."""
        return self.samples.times(self.length)


class Split(NamedTuple):
    """The part of one microbatch that is on one device of a tensor group.

    ``samples``: its tokens, in whole samples; ``context``: devices that share each sequence;
    ``sequence``: norms, dropouts and residuals are split too; ``dtype``: of activations and products;
    ``expert``: devices that share the experts, which are ``whole_experts`` or split too;
    ``low``: number format of the linear layers of blocks, "" = dtype.
    """

    samples: float
    tensor: int
    sequence: bool
    dtype: str
    expert: int = 1
    low: str = ""
    context: int = 1
    whole_experts: bool = False

    def slots(self, shape: Transformer) -> float:
        """Return the slots for tokens that a device sends to the experts, and receives for its own experts."""
        return self.samples / (self.tensor if self.whole_experts else 1) * shape.experts * shape.expert_slots


class Sharing(NamedTuple):
    """Devices that share a step, and the tier of the links between them."""

    ranks: int = 1
    link: Tier = "node"


ALONE = Sharing()


@dataclass
class Step:
    """A step's ops under construction.

    `hidden`: width of the stream. `kernels`: which ops are one kernel, or ``megatron``: a training as Megatron-LM
    runs it. `sizes`: values of the named sizes. `norms`: of the stream, ``rms`` or another. `low`: number format
    of blocks' linear layers, "" = `dtype`. `unfused`: whether scores of attention are written out. `narrow`: share
    of the blocks with a window that have it. `capacity`: slots of an expert over its even share of the tokens.
    `group`: the devices that share the step. `apart`: those that share whole experts, and exchange their tokens;
    among them are the group's, each with a part of the group's tokens. `kept`: bytes that gradients
    read, those of attention's core apart. `count`, `module`: of the ops added next.
    """

    dtype: str
    mode: Mode
    hidden: int = 0
    kernels: Fusion | Literal["megatron"] = "vendor"
    sizes: Mapping[str, int] = field(default_factory=dict)
    norms: str = "rms"
    low: str = ""
    unfused: bool = False
    narrow: float = 1.0
    capacity: float = 1.0
    group: Sharing = ALONE
    apart: Sharing = ALONE
    rows: list[Row] = field(default_factory=list)
    gradients: list[list[Row]] = field(default_factory=list)
    kept: list[Many] = field(default_factory=list)
    kept_in_core: list[Many] = field(default_factory=list)
    count: int = 1
    module: str = ""

    @property
    def trains(self) -> bool:
        """Whether gradients are computed."""
        return self.mode == "train"

    @property
    def megatron(self) -> bool:
        """Whether it is a training as Megatron-LM runs it."""
        return self.kernels == "megatron"

    def close(self) -> None:
        """Add the gradients of all ops since the last call, in reverse order."""
        self.rows += [row for group in reversed(self.gradients) for row in group]
        self.gradients.clear()

    def keep(self, numel: Many, byte: int = 0) -> None:
        """Note a tensor that gradients read; ``byte``: of an element; default: of the step's format."""
        self.kept.append(numel.times(byte or ITEM_BYTE[self.dtype]))

    def row(self, op: str, kind: str, way: str, cells: Mapping[str, Any]) -> Row:
        """Make the row of an op; ``way``: its pass."""
        fixed = {"dtype": self.dtype, "engine": "matrix", "count": self.count, "module": self.module}
        return {"op": op, "kind": kind, "pass_name": way, **fixed, **cells}

    def add(self, op: str, kind: str, **cells: Any) -> None:
        """Add an op of the forward pass."""
        self.rows.append(self.row(op, kind, "forward", cells))

    def exchange(self, op: str, collective: str, numel: Many, among: Sharing | None = None) -> None:
        """Add a collective of the group, or ``among`` others, in a replayed graph; ``numel``: of the message."""
        ranks, link = among or self.group
        if ranks > 1:
            byte = numel.times(ITEM_BYTE[self.dtype]).cell
            self.add(op, "collective", engine="vector", collective=collective, ranks=ranks, link=link,
                     message_byte=byte)  # fmt: skip

    def product(self, op: str, tokens: Many, wide: int, reduced: int, *, bias: bool = False,
                own: Many | None = None, batches: int = 1, experts: int = 0, reads: Many | None = None,
                low: bool = True) -> None:  # fmt: skip
        """Add (tokens × reduced)·(reduced × wide), or one such product per expert.

        In training, the gradient by weight is added to a sum in fp32. The timed product writes 2 bytes of a number
        where the sum is read and written in 4; this traffic is a row of its own. `own`: tokens whose gradients a
        bias sums; default: all. `reads`: elements of the input that are kept; default: all. `low`: whether a layer
        takes the low format, if both sides of its weights divide into the format's blocks of scales.
        """
        low = low and self.low != "" and not (wide % BLOCKS[self.low] or reduced % BLOCKS[self.low])
        many, back = experts or batches, list[Row]()
        self.keep(tokens.times(many * reduced) if reads is None else reads)
        if self.trains and self.dtype != "fp32":
            summed = Part(", to the fp32 sum", "pointwise", (0, 1), (0, 0), mask=(0, 2))
            back.append(self.kernel(op, summed, "backward", Many(many * wide * reduced)))
        if self.trains and bias:
            summed = Part(", by bias", "reduction", (1, 0), (0, 0))
            back.append(self.kernel(op, summed, "backward", (own or tokens).times(many * wide), wide))
        cells = {"dtype": self.low if low else self.dtype, "experts": experts or None}
        self.multiply(op, (many, tokens.cell, wide, reduced), ("by input", "by weight"), back, cells=cells)

    def multiply(
        self, op: str, sizes: tuple[Cell, Cell, Cell, Cell], factors: tuple[str, str], back: Sequence[Row] = (), *,
        trans_b: int = 1, cells: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Add b products (m × k)·(k × n) of ``sizes`` (b, m, n, k), and their gradients by both factors."""
        b, m, n, k = sizes

        def row(op: str, way: str, m: Cell, n: Cell, k: Cell, trans_a: int, trans_b: int) -> Row:
            own = {"b": b, "m": m, "n": n, "k": k, "trans_a": trans_a, "trans_b": trans_b}
            return self.row(op, "gemm", way, {**own, **(cells or {})})

        self.rows.append(row(op, "forward", m, n, k, 0, trans_b))
        if self.trains:
            sides = (n, k) if trans_b else (k, n)
            self.gradients.append([row(f"{op}, {factors[0]}", "backward", m, k, n, 0, 1 - trans_b),
                                   row(f"{op}, {factors[1]}", "backward", *sides, m, 1, 0), *back])  # fmt: skip

    def kernel(self, op: str, part: Part, way: str, numel: Many, row: Cell = 0) -> Row:
        """Make the row of a kernel that goes over elements, in rows of length ``row``."""
        item, some = ITEM_BYTE[self.dtype], numel.times(1 / part.share)
        moved = zip((part.reads, part.writes), part.mask, strict=True)
        read, write = (some.times(item * short + 4 * wide + byte).cell for (short, wide), byte in moved)
        name = f"{op}: {part.op}" if op and part.op[:1] not in ("", ",") else op + part.op
        cells = {"dtype": "fp32" if part.wide else self.dtype, "engine": "vector", "numel": some.cell,
                 "row": (row or None) if part.kind in _WITH_ROWS else None, "inputs": part.inputs,
                 "read_byte": read, "write_byte": write}  # fmt: skip
        return self.row(name, part.kind, way, cells)

    def stream(self, op: str, kind: str, numel: Many, moved: tuple[int, int], *, back: bool = False) -> None:
        """Add an op that reads and writes ``moved`` numbers per element; ``back``: to the gradients."""
        part = Part("", kind, (moved[0], 0), (moved[1], 0))
        if not back:
            self.rows.append(self.kernel(op, part, "forward", numel))
        elif self.trains:
            self.gradients.append([self.kernel(op, part, "backward", numel)])

    def run(self, op: str, rule: str, numel: Many, row: Cell = 0) -> None:
        """Add the kernels of an op as `fomkit.ops.fusion` states them, and in training those of its gradient."""
        passes = KERNELS.get(self.kernels, {}).get(rule) or ONE_KERNEL[rule]
        parts = [[part for part in one if not (part.casts and self.dtype == "fp32")] for one in passes]
        self.rows += [self.kernel(op, part, "forward", numel, row) for part in parts[0]]
        if self.trains:
            self.gradients.append([self.kernel(op, part, "backward", numel, row) for part in parts[1]])

    def norm(self, op: str, tokens: Many, row: int) -> None:
        """Add a norm of ``row`` numbers per token; with a mean it is one op of the frameworks."""
        self.keep(tokens.times(row))
        self.run(op, "norm" if self.norms == "rms" else "norm with a mean", tokens.times(row), row)

    def attend(self, op: str, one: Attention, stream: Stream, heads: tuple[int, int, int], *,
               source: Stream | None = None, shared: int = 0) -> None:  # fmt: skip
        """Add attention of heads, heads of keys, and their width, to the stream itself or another ``source``.

        `shared`: width that values share with the keys.
        """
        module, self.module = self.module, self.module + ATTENTION * self.megatron
        length = stream.length
        queries = length / stream.context if isinstance(length, int) and stream.context > 1 else length
        for keys, causal, share in _keys_seen(self, one, source or stream):
            if self.unfused:
                _scores(self, op, (stream.samples, queries, keys), heads, masked=causal, shared=shared)
                continue
            cells = {"batch": stream.samples.times(stream.context).cell, "heads": heads[0], "kv_heads": heads[1],
                     "head_dim": heads[2], "q_len": queries, "kv_len": keys, "causal": int(causal),
                     "shared_dim": shared or None, "count": round(self.count * share, 9)}  # fmt: skip
            self.add(op, "attention", **cells)
            if self.trains:
                self.gradients.append([self.row(op, "attention", "backward", cells)])
        self.module = module


def _keys_seen(step: Step, one: Attention, stream: Stream) -> list[tuple[Cell, bool, float]]:
    """List the sorts of attention: keys that queries see, whether only earlier ones, and the share of the blocks.

    A window that is shorter than the sequence counts as that many keys, all of them earlier, for each query.
    """
    if step.mode == "decode" and one.causal:
        narrow = one.window and one.window <= step.sizes[CACHE]
        return [(one.window if narrow else f"{CACHE} + 1", False, 1.0)]
    length = stream.length if isinstance(stream.length, int) else step.sizes.get(stream.length, 0)
    share = step.narrow if 0 < one.window < length else 0.0
    sorts: list[tuple[Cell, bool, float]] = [
        (stream.length, one.causal, 1 - share),
        (one.window, one.causal, share),
    ]
    return [sort for sort in sorts if sort[2]]


def _scores(step: Step, op: str, sizes: tuple[Many, Cell, Cell], heads: tuple[int, int, int], *,
            masked: bool, shared: int = 0) -> None:  # fmt: skip
    """Add attention op by op: keys and values of shared heads are repeated; scores are scaled, masked, normalised.

    A cache that holds keys and values in one tensor is not repeated: a sample's heads are rows of one product.
    `sizes`: samples, queries and keys.
    """
    (samples, queries, keys), (many, kv_heads, width) = sizes, heads
    of_key, of_value = (2 * width - shared, shared) if shared else (width, width)
    b, m = (samples.cell, many) if shared else (samples.times(many).cell, queries)
    if kv_heads != many and not shared:
        step.run(f"{op}: keys and values repeated", "repeated", samples.times(keys).times(2 * many * width))
    step.multiply(f"{op}: scores", (b, m, keys, of_key), ("by queries", "by keys"))
    if step.megatron:  # before and after the dropout, and its mask
        step.kept_in_core.append(samples.times(5 * many).times(queries).times(keys))
    for rule in ("scale, mask, softmax", "dropout") if step.megatron else ("scaled", "masked", "softmax"):
        if masked or rule != "masked":
            step.run(f"{op}: {rule}", rule, samples.times(many).times(queries).times(keys), keys)
    step.multiply(f"{op}: values", (b, m, of_value, keys), ("by scores", "by values"), trans_b=0)


def update_rows(
    parameters: float, tensors: float, *, clip: bool, low: str = "", of_low: float = 0.0, impl: str = "fused",
    dtype: str = "bf16",
) -> list[Row]:  # fmt: skip
    """List the ops of Adam in mixed precision: gradients, moments and a copy of the parameters in fp32.

    Bytes are those of Megatron-LM's optimizer with apex kernels: unscale and check, norm and clip, fused Adam,
    copy to the short format, set the sums of gradients to zero. ``low``: format to which ``of_low`` weights are
    quantised, along rows and columns; ``impl``: how Adam goes over tensors; ``dtype``: in fp32 it is Adam alone.
    """
    step, many = Step("fp32", "train", module=UPDATE), Many(parameters)
    parts = [
        Part("gradient unscale, check", "pointwise", (1, 0), (1, 0)),
        Part(TO_SHORT, "copy", (1, 0), (0, 0), mask=(0, 2)),
        Part("gradients to zero", "pointwise", (0, 0), (1, 0)),
    ]
    if clip:
        parts += [Part("gradient norm", "reduction", (1, 0), (0, 0)),
                  Part("gradient clip", "pointwise", (1, 0), (1, 0))]  # fmt: skip
    rows = [step.kernel("", part, "update", many, parameters) for part in parts]
    if low:
        part = Part("weights quantised", "copy", (0, 0), (0, 0), mask=(2, 2 * ITEM_BYTE[low]))
        rows.append(step.kernel("", part, "update", Many(of_low)))
    adam = step.row("Adam", "optimizer", "update", {"engine": "vector", "rule": "adam", "impl": impl,
                                                    "numel": parameters, "tensors": tensors})  # fmt: skip
    return [adam] if dtype == "fp32" else [*rows, adam]


def tensors_of(block: Block, of_norm: int, expert: int = 1) -> int:
    """Count the parameter tensors of a block, ``of_norm`` of each norm; `expert` devices share those of experts.

    Queries, keys and values are one product, and so are gate and up.

    >>> from fomkit.core.transformer import FeedForward
    >>> tensors_of(Block(Attention(8, 8, 64, (True, True)), FeedForward(2048, gated=False, bias=True)), 2)
    12
    """
    found, feed = block.norms * of_norm, block.feed
    for one in (block.attention, *([block.cross] if block.cross else [])):
        found += 2 + sum(one.bias) + 2 * (one.head_norm > 0) + (one.per_head > 0)
        if one.latent is not None:  # what compresses keys and values, and a norm; the same of queries
            found += 3 + 2 * (one.latent.query_rank > 0)
    if block.cross is not None:  # its queries are a product of their own
        found += 1 + block.cross.bias[0]
    if not isinstance(feed, Experts):
        return found + 2 + 2 * feed.bias
    found += 1 + (feed.router_bias > 0) + (2 if feed.shared else 0)
    return found + feed.count // expert * (2 + 2 * feed.each.bias)


def as_table(rows: list[Row]) -> pd.DataFrame:
    """Make an OPS table of rows whose cells are numbers; `fomkit.ops.tables.table_of_rows` makes it of any."""
    numbers = {*column_names("OPS", "number")}
    return pd.DataFrame(
        {
            name: np.array([row.get(name, np.nan) for row in rows], np.float64)
            if name in numbers
            else np.array([row.get(name, "") for row in rows], object)
            for name in dict.fromkeys(name for row in rows for name in row)
        }
    )
