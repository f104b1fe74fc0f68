"""Chains of a recorded step that a compiler runs as one kernel: what passes between their ops touches no memory.

An op by elements hands its only output to the op that runs next and frees it: then that one reads it. Where both
work on as many elements, their rows become one that neither writes nor reads what passes between them. Saved are
two times its bytes. Tensors that a later op needs too are written as before, so that nothing is joined over them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.ops.kinds import of_role
from fomkit.ops.resize import resize_ops

STARTS = (*of_role("elements"), "copy")
"""Kinds that begin a chain or go on with one."""
ENDS = (*STARTS, "norm", "softmax", "reduction")
"""Kinds that go on with a chain; sums over rows are made while the elements are."""
LONGEST = 200
"""Characters that an expression of a table may have."""


def _executed(order: pd.DataFrame) -> dict[int, tuple[int, list[dict[Hashable, Any]]]]:
    """Give by id the row that ran, and the memory that it made."""
    found: dict[int, tuple[int, list[dict[Hashable, Any]]]] = {}
    for line in order[(order["id"] > 0) & order["row"].notna()].to_dict("records"):
        outputs = found.setdefault(int(line["id"]), (int(line["row"]), []))[1]
        if str(line["output_byte"]) not in ("0", "0.0"):
            outputs.append(line)
    return found


def _chains(ops: pd.DataFrame, order: pd.DataFrame) -> list[tuple[list[int], list[object]]]:
    """List the rows of each chain that ran, and the bytes that pass between them."""
    ran = _executed(order)
    kinds, numel = ops["kind"].tolist(), ops["numel"].astype("str").tolist()
    times = Counter(row for row, _ in ran.values())
    known = {row for row, count in enumerate(ops["count"].tolist()) if count == times[row]}
    found: list[tuple[list[int], list[object]]] = []
    open_until = 0
    for place in sorted(ran):
        row, outputs = ran[place]
        then = ran.get(place + 1, (row, []))[0]
        joins = (
            place + 1 in ran and {row, then} <= known and kinds[row] in STARTS and kinds[then] in ENDS
            and numel[row] == numel[then] and len(outputs) == 1
            and outputs[0]["role"] == "temporary" and outputs[0]["freed_by"] == place + 1
        )  # fmt: skip
        if joins and open_until == place:
            found[-1][0].append(then)
            found[-1][1].append(outputs[0]["output_byte"])
        elif joins:
            found.append(([row, then], [outputs[0]["output_byte"]]))
        open_until = place + 1 if joins else open_until
    return found


def _sum(cells: list[object], passed: list[object]) -> float | str:
    """Add cells and take off what passes: a number where all are, else an expression."""
    if all(isinstance(cell, int | float) for cell in (*cells, *passed)):
        return float(sum(cells) - sum(passed))  # type: ignore[arg-type]
    text = [f"{cell:.0f}" if isinstance(cell, float) else str(cell) for cell in cells]
    return " - ".join([" + ".join(text), *(f"({cell})" for cell in passed)])


def join_chains(model: ModelProfile) -> ModelProfile:
    """Join the rows of a recorded step's ops that pass each other what no other op needs.

    Each op counts as often less as it is part of a chain, and the chains follow. The memory of the joined step is
    not known. Raises FomkitError where nobody recorded the order of the ops.
    """
    if model.order is None:
        what = "has no order of its ops, so that nobody knows which of them a compiler would join"
        raise FomkitError(model.name, f"{what}. Trace it from its code, or leave fusion out.")
    ops, of_model = model.ops, (model.sizes, model.name)
    many: Counter[tuple[int, ...]] = Counter()
    made: dict[tuple[int, ...], dict[Hashable, Any]] = {}
    columns = {name: ops[name].tolist() for name in ("op", "read_byte", "write_byte")}
    for rows, passed in _chains(ops, model.order):
        key = tuple(rows)
        read, write = (_sum([columns[name][row] for row in rows], passed) for name in ("read_byte", "write_byte"))
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
    before, after = (_moved(resize_ops(table, *of_model)) for table in (ops, joined))
    note = (
        f"fusion compiled: {many.total():,} chains of ops by elements run as one kernel each, which saves "
        f"{1 - after / before:.0%} of what such ops move; memory is not followed"
    )
    return replace(model, ops=joined, parts=parts, order=None, notes=(*model.notes, note))


def _moved(ops: pd.DataFrame) -> float:
    """Add up what ops by elements and sums over rows read and write [byte]."""
    own = ops[ops["kind"].isin(ENDS)]
    return float(((own["read_byte"] + own["write_byte"]) * own["count"]).sum())
