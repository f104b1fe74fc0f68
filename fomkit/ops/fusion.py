"""Kernel fusion of a model profile: how many kernels run norms, activations, positions, attention and the update.

Each rule states what an op reads and writes, as numbers per element, so that its traffic is counted; the flop of
products are the same in all. ``vendor`` is what training and serving libraries run: one kernel each. ``eager`` is
what a framework runs op by op, without a compiler, where the model's code states the formula: a root-mean-square
norm in fp32, a gate beside its activation, rotary positions by halves, scores that are written out, an update of
lists of tensors. ``compiled`` also has one kernel each. It joins the addition to the residual stream with the norm
after it, as a compiler joins pointwise ops and the sums that follow them, and leaves the update to the framework.
A norm with a mean is one kernel of the framework itself, also in eager.

`join_chains` finds chains in a recorded step that a compiler runs as one kernel. A pointwise op hands its only
output to the next op, which frees it. Where both work on equally many elements, their rows become one row that
neither writes nor reads the tensor between them, which saves twice its bytes. A tensor that a later op needs too
is written as before and ends the chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.ops.kinds import of_role
from fomkit.ops.resize import resize_ops

Fusion = Literal["eager", "compiled", "vendor"]


class Part(NamedTuple):
    """One kernel of an op.

    `op`: what follows the op's name. `reads`, `writes`: numbers per element, in the stream's format and in fp32.
    `share`: it handles 1/share of the elements. `tensors`: that it reads; 0: as many as numbers. `mask`: bytes of
    a dropout's mask that it reads and writes. `dtype`: "" = fp32 if it reads that, else the stream's.
    """

    op: str
    kind: str
    reads: tuple[float, int]
    writes: tuple[int, int]
    share: int = 1
    tensors: int = 0
    mask: tuple[float, float] = (0, 0)
    dtype: Literal["", "fp32", "stream"] = ""

    @property
    def casts(self) -> bool:
        """Whether the kernel only changes the number format, as its name says."""
        return "fp32" in self.op

    @property
    def wide(self) -> bool:
        """Whether its number format is fp32."""
        return self.dtype == "fp32" if self.dtype else self.reads[1] > 0

    @property
    def inputs(self) -> int:
        """The number of tensors that it reads."""
        return self.tensors or max(1, int(sum(self.reads)))


Kernels = tuple[tuple[Part, ...], tuple[Part, ...]]
"""The kernels of an op in the forward pass, and of its gradients."""


def _one(kind: str, forward: tuple[int, int], gradient: tuple[int, int], tensors: int = 0) -> Kernels:
    """Return one kernel for each pass, with the numbers that it reads and writes."""
    ahead, back = (Part("", kind, (read, 0), (write, 0)) for read, write in (forward, gradient))
    tensors = tensors or forward[0]
    return (ahead._replace(tensors=tensors),), (back._replace(op=", gradient", tensors=tensors + 1),)


_NORM = (
    Part("to fp32", "copy", (1, 0), (0, 1)),
    Part("squares", "pointwise", (0, 1), (0, 1)),
    Part("mean", "reduction", (0, 1), (0, 0)),
    Part("scaled", "pointwise", (0, 1), (0, 1)),
    Part("from fp32", "copy", (0, 1), (1, 0)),
    Part("weighted", "pointwise", (1, 0), (1, 0)),
)
_NORM_GRADIENT = (
    Part("weighted, gradient", "pointwise", (1, 0), (1, 0)),
    Part("weights, gradient", "pointwise", (2, 0), (1, 0)),
    Part("weights, summed", "reduction", (1, 0), (0, 0)),
    Part("from fp32, gradient", "copy", (1, 0), (0, 1)),
    Part("scaled, gradient", "pointwise", (0, 1), (0, 1)),
    Part("scale, gradient", "pointwise", (0, 2), (0, 1)),
    Part("scale, summed", "reduction", (0, 1), (0, 0)),
    Part("squares, gradient", "pointwise", (0, 1), (0, 1)),
    Part("gradients added", "pointwise", (0, 2), (0, 1)),
    Part("to fp32, gradient", "copy", (0, 1), (1, 0)),
)
_TURNED = (
    Part("times cosines", "pointwise", (1, 0), (1, 0)),
    Part("half negated", "pointwise", (1, 0), (1, 0), 2),
    Part("halves exchanged", "copy", (1, 0), (1, 0)),
    Part("times sines", "pointwise", (1, 0), (1, 0)),
    Part("turned", "pointwise", (2, 0), (1, 0)),
)
_GATED = (Part("activation", "pointwise", (1, 0), (1, 0)), Part("gated", "pointwise", (2, 0), (1, 0)))
_GATED_GRADIENT = (
    Part("gate, gradient", "pointwise", (2, 0), (1, 0)),
    Part("gated, gradient", "pointwise", (2, 0), (1, 0)),
    Part("activation, gradient", "pointwise", (2, 0), (1, 0)),
)

EAGER: dict[str, Kernels] = {
    "norm": (_NORM, _NORM_GRADIENT),
    "positions": (_TURNED, tuple(part._replace(op=f"{part.op}, gradient") for part in _TURNED)),
    "gated": (_GATED, _GATED_GRADIENT),
}
"""Ops that a framework runs kernel by kernel."""
ONE_KERNEL: dict[str, Kernels] = {
    "norm": _one("norm", (1, 1), (2, 1), 2),
    "norm with a mean": _one("norm", (1, 1), (2, 1), 2),
    "positions": _one("pointwise", (1, 1), (1, 1)),
    "gated": _one("pointwise", (2, 1), (3, 2)),
    "activation": _one("pointwise", (1, 1), (2, 1)),
    "added": _one("pointwise", (2, 1), (2, 1)),
    "both added": _one("pointwise", (3, 1), (2, 1)),
    "added and normalised": _one("norm", (2, 2), (3, 1), 3),
    "repeated": _one("copy", (1, 1), (1, 1)),
    "scaled": _one("pointwise", (1, 1), (1, 1)),
    "masked": ((Part("", "pointwise", (1, 0), (1, 0), tensors=2),), ()),
    "softmax": _one("softmax", (1, 1), (2, 1)),
    "trained router": (
        (Part("", "softmax", (1, 0), (0, 1)),),
        (Part("", "softmax", (0, 2), (1, 0), dtype="stream"),),
    ),
    "words": (
        (Part("", "embedding", (1, 0), (1, 0), tensors=2),),
        (Part(", by weight", "embedding", (2, 0), (1, 0)),),
    ),
    "loss": (
        (Part("logits to fp32", "copy", (1, 0), (0, 1)), Part("loss", "softmax", (0, 1), (0, 1))),
        (
            Part("loss, gradient", "softmax", (0, 2), (0, 1)),
            Part("logits from fp32", "copy", (0, 1), (1, 0), dtype="stream"),
        ),
    ),
}
"""Ops as current libraries run them: in one kernel, and their gradient in another."""


_NORM_WEIGHT = Part(", by weight", "reduction", (2, 0), (0, 0))
MEGATRON: dict[str, Kernels] = {
    # Its gradient runs by the same kernel.
    "positions": (ONE_KERNEL["positions"][0], ONE_KERNEL["positions"][0]),
    "norm": (ONE_KERNEL["norm"][0], (*ONE_KERNEL["norm"][1], _NORM_WEIGHT)),
    "dropout": (
        (Part("", "pointwise", (1, 0), (1, 0), mask=(0, 1)),),
        (Part("", "pointwise", (1, 0), (1, 0), mask=(1, 0)),),
    ),
    "added after dropout": (
        (Part("", "pointwise", (2, 0), (1, 0), mask=(0, 1)),),
        (*ONE_KERNEL["added"][1], Part(", dropout", "pointwise", (1, 0), (1, 0), mask=(1, 0))),
    ),
    # A causal kernel reads the lower triangle and writes the whole square.
    "scale, mask, softmax": (
        (Part("", "softmax", (0.5, 0), (1, 0)),),
        (Part("", "softmax", (2, 0), (1, 0)),),
    ),
    "words": (ONE_KERNEL["words"][0], (Part(", by weight", "embedding", (1, 1), (0, 1), dtype="stream"),)),
    "loss": (
        (
            Part("logits to fp32", "copy", (1, 0), (0, 1), dtype="fp32"),
            Part("largest logit", "reduction", (0, 1), (0, 0)),
            Part("less the largest", "pointwise", (0, 1), (0, 1)),
            Part("exponential", "pointwise", (0, 1), (0, 1)),
            Part("sum of these", "reduction", (0, 1), (0, 0)),
            Part("over the sum", "pointwise", (0, 1), (0, 1)),
        ),
        (Part("loss", "pointwise", (0, 1), (0, 1)), Part("logits from fp32", "copy", (0, 1), (1, 0))),
    ),
}
"""Ops as Megatron-LM runs them in training, with sums of their own for the gradients of weights."""
KERNELS: dict[str, dict[str, Kernels]] = {"eager": EAGER, "megatron": MEGATRON}
"""Ops that other libraries than those of `ONE_KERNEL` run in other kernels."""

IMPL: dict[Fusion, str] = {"eager": "foreach", "compiled": "foreach", "vendor": "fused"}
"""How Adam runs."""
NOTES: dict[Fusion, str] = {
    "eager": "fusion eager: norms without a mean, gates, positions, attention and Adam run op by op, as written "
    "in the model's code; products are joined as in libraries",
    "compiled": "fusion compiled: the residual addition and the norm after it are one kernel, Adam runs on "
    "lists of tensors; products are joined as in libraries",
    "vendor": "",
}

STARTS = (*of_role("elements"), "copy")
"""Kinds that start a chain or continue one."""
ENDS = (*STARTS, "norm", "softmax", "reduction")
"""Kinds that continue a chain; a kernel can reduce rows while it makes the elements."""
LONGEST = 200
"""Most characters of an expression in a table."""


def _executed(order: pd.DataFrame) -> dict[int, tuple[int, list[dict[Hashable, Any]]]]:
    """Return by id of an executed op its row and the memory that it made."""
    found: dict[int, tuple[int, list[dict[Hashable, Any]]]] = {}
    for line in order[(order["id"] > 0) & order["row"].notna()].to_dict("records"):
        outputs = found.setdefault(int(line["id"]), (int(line["row"]), []))[1]
        if str(line["output_byte"]) not in ("0", "0.0"):
            outputs.append(line)
    return found


def _chains(ops: pd.DataFrame, order: pd.DataFrame) -> list[tuple[list[int], list[object]]]:
    """Return the rows of each chain that ran, and the bytes that pass between them."""
    ran = _executed(order)
    kinds, numel = ops["kind"].tolist(), ops["numel"].astype("str").tolist()
    times = Counter(row for row, _ in ran.values())
    known = {row for row, count in enumerate(ops["count"].tolist()) if count == times[row]}
    found: list[tuple[list[int], list[object]]] = []
    open_until = 0
    for place in sorted(ran):
        row, outputs = ran[place]
        next_row = ran.get(place + 1, (row, []))[0]
        joins = (
            place + 1 in ran and {row, next_row} <= known and kinds[row] in STARTS and kinds[next_row] in ENDS
            and numel[row] == numel[next_row] and len(outputs) == 1
            and outputs[0]["role"] == "temporary" and outputs[0]["freed_by"] == place + 1
        )  # fmt: skip
        if joins and open_until == place:
            found[-1][0].append(next_row)
            found[-1][1].append(outputs[0]["output_byte"])
        elif joins:
            found.append(([row, next_row], [outputs[0]["output_byte"]]))
        open_until = place + 1 if joins else open_until
    return found


def _without_passed(cells: list[object], passed: list[object]) -> float | str:
    """Sum cells and subtract the bytes passed: a number if all are numbers, else an expression."""
    if all(isinstance(cell, int | float) for cell in (*cells, *passed)):
        return float(sum(cells) - sum(passed))  # type: ignore[arg-type]
    text = [f"{cell:.0f}" if isinstance(cell, float) else str(cell) for cell in cells]
    return " - ".join([" + ".join(text), *(f"({cell})" for cell in passed)])


def join_chains(model: ModelProfile) -> ModelProfile:
    """Join the rows of a recorded step's ops that pass each other tensors no other op needs.

    The count of each op falls by its executions in chains; rows of the chains are appended. The joined step's
    memory is unknown.
    """
    if model.order is None:
        what = "has no order of its ops, so the ops that a compiler would fuse are unknown"
        raise FomkitError(model.name, f"{what}. Trace it from its code, or leave `fusion` out.")
    ops, of_model = model.ops, (model.sizes, model.name)
    many: Counter[tuple[int, ...]] = Counter()
    made: dict[tuple[int, ...], dict[Hashable, Any]] = {}
    columns = {name: ops[name].tolist() for name in ("op", "read_byte", "write_byte")}
    for rows, passed in _chains(ops, model.order):
        key = tuple(rows)
        read, write = (
            _without_passed([columns[name][row] for row in rows], passed) for name in ("read_byte", "write_byte")
        )
        if max(len(str(cell)) for cell in (read, write)) <= LONGEST:
            many[key] += 1
            name = " + ".join(str(columns["op"][row]) for row in rows)
            made[key] = {**ops.iloc[rows[-1]].to_dict(), "op": name, "read_byte": read, "write_byte": write}
    less = Counter(row for key, times in many.items() for row in key for _ in range(times))
    left = ops.assign(
        count=[float(now) - less[row] if row in less else now for row, now in enumerate(ops["count"])]
    )
    left = left[[row not in less or now > 0 for row, now in enumerate(left["count"])]]
    of_chains = pd.DataFrame(
        [{**row, "count": float(many[key])} for key, row in made.items()], columns=ops.columns
    )
    joined = pd.concat([left, of_chains], ignore_index=True) if made else ops
    place = {old: new for new, old in enumerate(left.index)}
    parts = model.parts.assign(of=model.parts["of"].map(place)) if len(model.parts) else model.parts
    sized = (resize_ops(table, *of_model) for table in (ops, joined))
    by_elements = (table[table["kind"].isin(ENDS)] for table in sized)
    before, after = (float(((own["read_byte"] + own["write_byte"]) * own["count"]).sum()) for own in by_elements)
    note = (
        f"fusion compiled: {many.total():,} chains of element-wise ops run as one kernel each, which saves "
        f"{1 - after / before:.0%} of the bytes that such ops move; its effect on memory is not computed"
    )
    return replace(model, ops=joined, parts=parts, order=None, notes=(*model.notes, note))
