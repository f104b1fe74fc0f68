"""The memory in use at each moment of a step, and the memory of a device's part of a split transformer.

The first follows the order of a trace, the second the sizes and the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isnan, nan
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.model import OF_SIZES, STATE_TENSORS, TO_SHORT
from fomkit.core.units import ITEM_BYTE
from fomkit.ops.tables import ROLES

if TYPE_CHECKING:
    from fomkit.core.job import Layout
    from fomkit.core.model import ModelProfile
    from fomkit.core.transformer import Transformer

BLOCK_BYTE = 512
"""Memory is allocated in blocks of this size [byte] (PyTorch's CUDACachingAllocator, kMinBlockSize)."""
_MOST_GAPS = 1000
"""Largest number of executed ops per line of an order table; the usual number is about one."""

WORKSPACE = "workspace"
Held = Mapping[str, float]
"""A device's memory at the peak of a step, by role [byte]."""


MOST = 2**24
"""Largest batch that is tried [samples]."""


def largest_that_fits(fits: Callable[[int], bool], most: int = MOST) -> int:
    """Find by bisection the largest whole number up to ``most`` that fits, if all smaller ones do; 0 for none.

    >>> largest_that_fits(lambda batch: batch * 3 <= 100)
    33
    """
    low, high = 0, 1
    while high < most and fits(high):
        low, high = high, min(2 * high, most)
    if high == most and fits(most):
        return most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Use:
    """The memory use of a step.

    `live_byte`: bytes in use while each op runs, by its id; id 0 is before the step.
    `workspace_byte`: of these, the workspace of the op itself.
    `moments`: op, module and pass of each id; empty for id 0.
    `pieces`: each piece of memory: ``role``, ``module``, ``byte``, first and last id at which it lives.
    """

    live_byte: NDArray[np.float64]
    workspace_byte: NDArray[np.float64]
    moments: pd.DataFrame
    pieces: pd.DataFrame

    @property
    def peak_id(self) -> int:
        """The first id at which most memory is in use."""
        return int(self.live_byte.argmax())

    @property
    def peak_byte(self) -> float:
        """The largest memory in use at one time [byte]."""
        return float(self.live_byte.max())

    def peak_of(self, pass_name: str) -> int | None:
        """Return the id of the peak of one pass: forward, backward or update; None where it has no op."""
        ids = np.flatnonzero(self.moments["pass_name"].str.partition("_")[0] == pass_name)
        return int(ids[self.live_byte[ids].argmax()]) if len(ids) else None

    def standing(self, moment: int) -> pd.DataFrame:
        """Return the pieces in use at an id, including the workspace of its op."""
        pieces = self.pieces
        found = pieces[(pieces["first"] <= moment) & (pieces["last"] >= moment)]
        if not self.workspace_byte[moment]:
            return found
        module = self.moments["module"].iloc[moment]
        own = {"role": WORKSPACE, "module": module, "byte": self.workspace_byte[moment]}
        return pd.concat([found, pd.DataFrame([{**own, "first": moment, "last": moment}])], ignore_index=True)

    def by_role(self, moment: int) -> dict[str, float]:
        """Add up the memory in use at an id by role [byte]."""
        sums = self.standing(moment).groupby("role")["byte"].sum()
        return {role: float(sums.get(role, 0.0)) for role in (*ROLES, WORKSPACE)}

    @cached_property
    def over_time(self) -> pd.DataFrame:
        """The memory in use while each op runs [byte]; one column for each role that uses any."""
        count, found = len(self.live_byte), {}
        for role in ROLES:
            own = self.pieces[self.pieces["role"] == role]
            byte = own["byte"].to_numpy(np.float64)
            made = np.bincount(own["first"].to_numpy(int), byte, count + 1)
            freed = np.bincount(own["last"].to_numpy(int) + 1, byte, count + 1)
            found[role] = (made - freed).cumsum()[:-1]
        found[WORKSPACE] = self.workspace_byte
        return pd.DataFrame({role: byte for role, byte in found.items() if byte.any()})

    def held(self, of_role: Mapping[str, float], *, accumulates: bool = False) -> Held:
        """Return the memory by role at the peak of a device that holds some roles only in part.

        `of_role`: the shares of those roles; `accumulates`: whether all gradients are there from the beginning, as
        from the second microbatch on.
        """
        roles, used = self.over_time.columns.tolist(), self.over_time.to_numpy()
        if accumulates and "gradient" in roles:
            used = np.where(np.array(roles) == "gradient", self.total("gradient"), used)
        used = used * [of_role.get(role, 1.0) for role in roles]
        at_peak = used[used.sum(axis=1).argmax()].tolist()
        return {role: byte for role, byte in zip(roles, at_peak, strict=True) if byte}

    def total(self, role: str) -> float:
        """Add up all memory of one role over the step [byte]; temporary memory is never all in use at once."""
        return float(self.pieces.loc[self.pieces["role"] == role, "byte"].sum())


def _check_places(order: pd.DataFrame, ops: pd.DataFrame, where: str) -> None:
    """Raise where the order refers to missing ops, or frees memory before it is made."""
    row = order["row"]
    if (row >= len(ops)).any():
        raise FomkitError(where, f"refers to row {row.max():g} of {len(ops)} ops. The tables do not match.")
    last = float(np.nanmax(order[["id", "freed_by"]].to_numpy(np.float64)))
    if last > _MOST_GAPS * len(order):
        raise FomkitError(
            where, f"refers to op {last:,.0f}, but has {len(order):,} lines. Profile the model again."
        )
    if (order["freed_by"] < order["id"]).any():
        place = int((order["freed_by"] < order["id"]).to_numpy().argmax())
        raise FomkitError(f"{where}: row {place}", "memory is freed before it is allocated. Profile again.")


def _moments(order: pd.DataFrame, ops: pd.DataFrame, count: int) -> pd.DataFrame:
    first = order[order["id"] > 0].drop_duplicates("id")
    rows = first["row"].to_numpy(np.float64)
    known = ~np.isnan(rows)
    texts: Mapping[str, str] = {"op": "", "module": "module", "pass_name": "pass_name"}
    found = {}
    for name, own in texts.items():
        column = np.array(first[own] if own else [""] * len(first), dtype=object)
        if name in ops.columns:
            column[known] = ops[name].astype("object").fillna("").to_numpy()[rows[known].astype(int)]
        whole = np.full(count, "", dtype=object)
        whole[first["id"].to_numpy(int)] = column
        found[name] = whole
    return pd.DataFrame(found)


def memory_use(
    order: pd.DataFrame, ops: pd.DataFrame, workspace_byte: NDArray[np.float64], where: str,
    block_byte: int = BLOCK_BYTE,
) -> Use:  # fmt: skip
    """Trace the memory use of a step.

    `order`: an ORDER table whose sizes are numbers; `ops`: the OPS table of the same step; `workspace_byte`:
    workspace of each row of ``ops`` while it runs [byte]; `where`: name of the profile, for error messages;
    `block_byte`: every piece is rounded up to a multiple of this [byte].

    >>> order = pd.DataFrame({"id": [0.0, 1.0, 2.0], "row": [float("nan"), 0.0, 1.0], "output_byte": [512.0] * 3,
    ...     "role": ["parameter", "temporary", "temporary"], "freed_by": [float("nan"), 1.0, 2.0], "module": "",
    ...     "pass_name": ""})
    >>> ops = pd.DataFrame({"op": ["mm", "relu"], "module": "", "pass_name": "forward"})
    >>> memory_use(order, ops, np.zeros(2), "net").live_byte.tolist()
    [512.0, 1024.0, 1024.0]
    """
    _check_places(order, ops, where)
    last = int(order["id"].max())
    moments = _moments(order, ops, last + 1)
    ids = order["id"].to_numpy(int)
    ends = np.minimum(order["freed_by"].fillna(last).to_numpy(np.float64), last).astype(int)
    byte = np.ceil(order["output_byte"].to_numpy(np.float64) / block_byte) * block_byte
    change = np.bincount(ids, byte, last + 2) - np.bincount(ends + 1, byte, last + 2)
    rows = order["row"].to_numpy(np.float64)
    has_row = ~np.isnan(rows)
    working = np.zeros(last + 1)
    working[ids[has_row]] = workspace_byte[rows[has_row].astype(int)]
    module = np.where(ids > 0, moments["module"].to_numpy(object)[ids], order["module"].to_numpy(object))
    pieces = pd.DataFrame({"role": order["role"].astype("object"), "module": module, "byte": byte,
                           "first": ids, "last": ends})  # fmt: skip
    return Use(change.cumsum()[:-1] + working, working, moments, pieces[byte > 0].reset_index(drop=True))


SHORT_BYTE = 2
"""Bytes of a number in 16 bits."""


class Standing(NamedTuple):
    """Bytes of the trained parameters, of their gradients and of the optimizer's state (NaN: unknown)."""

    parameter: float
    gradient: float
    state: float

    @property
    def byte(self) -> float:
        """The sum of those that are known [byte]."""
        return sum(byte for byte in self if not isnan(byte))


def kept_by_update(byte: float, state_byte: float, short: float = 0.0) -> Standing:
    """Return the memory of what an update changes: parameters, gradients of their size, and the optimizer's state.

    `byte`: of the parameters that the update changes; `short`: how many of them, in fp32, products read as copies
    in 16 bits; what the update changes then counts with the state. With Adam these are 18 bytes of a parameter
    with such a copy, and 16 of one without (NVIDIA, Megatron Core user guide, "Distributed Optimizer": bf16
    parameters with fp32 gradients 18, fp32 parameters 16).

    >>> kept_by_update(4.0, 8.0), kept_by_update(4.0, 8.0, short=1)
    (Standing(parameter=4.0, gradient=4.0, state=8.0), Standing(parameter=2.0, gradient=4.0, state=12.0))
    """
    wide = ITEM_BYTE["fp32"] * short
    return Standing(byte - wide + SHORT_BYTE * short, byte, state_byte + wide)


def standing_memory(ops: pd.DataFrame, parameters: int | None = None) -> Standing | None:
    """Add up the memory that every step needs, from the rows of the update; None where it is unknown.

    `ops`: an OPS table whose sizes are numbers. `parameters`: how many the model has; used without an update, in
    the format of the ops where all ops have one format.

    >>> import pandas as pd
    >>> standing_memory(pd.DataFrame({"kind": ["optimizer"], "rule": ["adam"], "dtype": ["fp32"],
    ...                               "numel": [100.0], "count": [1.0]}))
    Standing(parameter=400.0, gradient=400.0, state=800.0)
    """
    updates = ops[ops["kind"] == "optimizer"]
    if updates.empty:
        formats = ops["dtype"].unique()
        if parameters is None or len(formats) != 1:
            return None
        return Standing(parameters * ITEM_BYTE[str(formats[0])], nan, nan)
    byte = updates["numel"] * updates["count"] * updates["dtype"].map(ITEM_BYTE).astype(float)
    # An unknown rule makes the sum unknown.
    state = (byte * updates["rule"].map(STATE_TENSORS).astype(float)).sum(skipna=False)
    copies = ops[ops["op"] == TO_SHORT] if "op" in ops.columns else ops[:0]
    short = float((copies["numel"] * copies["count"]).sum())
    return kept_by_update(float(byte.sum()), float(state), short)


def how_to_follow(model: ModelProfile, *, by_sizes: bool) -> str:
    """Say how the memory of a step becomes known where the profile has no order of its ops.

    `by_sizes`: whether it is counted by the sizes of a transformer in other formats.
    """
    if model.traced_with.get("device") != OF_SIZES:
        return (
            "the profile has no order of its ops, as in any profile of a running program. 'fomkit profile "
            "FILE.py' writes it, for a file with the model, its inputs and its loss"
        )
    known = (
        f"a config.json has no order of ops; only trainings of decoders are counted by their sizes, in {IN_SIZES}"
    )
    if by_sizes:
        return f"{known}. Add, for example, --precision bf16"
    return f"{known}. For others give a Python file with the model, its inputs and its loss"


LOW_BY_SIZES = ("fp8", "fp8_block", "mxfp8", "nvfp4")
BY_SIZES: Mapping[str | None, str] = {
    None: "bf16", "bf16": "bf16", "mixed": "fp16", **dict.fromkeys(LOW_BY_SIZES, "bf16"),
}  # fmt: skip
"""Precisions in which a transformer is priced by its sizes, with the format of its activations; None: default."""
IN_SIZES = f"bf16, mixed, {', '.join(LOW_BY_SIZES)}"
"""The same in words."""


def activation_byte(
    shape: Transformer, samples: float, layout: Layout, microbatches: int, *, head: bool = True
) -> list[float]:
    """Return the activation memory of a device of each stage that differs, in order [byte].

    The first holds the activations of ``p`` microbatches in flight, the next of one less, each of its own blocks;
    with interleaving ``1 + (p - 1)/(p·v)`` times as many, fewer if the step has fewer. With `head` the last
    also holds the scores of words of one microbatch.
    """
    from fomkit.parallel.step import stages_of  # most memory is of a trace
    from fomkit.parallel.transformer import kept_byte

    one = replace(shape, blocks=shape.dense_blocks + 1)
    blocks, scores = kept_byte(one, layout.tensor, sequence=layout.sequence, whole_experts=layout.whole_experts)
    if layout.recompute == "full":
        blocks = [(2.0 * shape.seq * shape.hidden / (layout.tensor if layout.sequence else 1), 0.0)] * len(blocks)
    each = [samples * (rest + core * (layout.recompute == "none")) for rest, core in blocks]
    scores *= samples
    count, chunks, found, at = layout.pipeline, layout.interleave, list[float](), 0
    more = 1 + (count - 1) / (count * chunks) if chunks > 1 else 1.0
    for stage in stages_of(shape, layout):
        in_flight = min((count - at) * more, microbatches if microbatches < count else inf)
        found.append(sum(map(mul, stage.blocks, each)) * in_flight + scores * (head and stage.last))
        at += stage.many
    return found


def split_standing(parameters: float, layout: Layout, replicas: int) -> Standing:
    """Return a device's memory of parameters, gradients and optimizer state, sharded by the level of zero.

    Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter models", SC 2020, figure 1.

    >>> from fomkit.core.job import Layout
    >>> split_standing(7.5e9, Layout(zero=1), 64).byte / 1e9
    46.40625
    """
    shared = [1 if layout.zero < stage else replicas for stage in (3, 2, 1)]
    own = parameters / layout.model_devices
    byte = ITEM_BYTE["fp32"] * own
    kept = kept_by_update(byte, STATE_TENSORS["adam"] * byte, short=own)
    return Standing(*(byte / by for byte, by in zip(kept, shared, strict=True)))


def _whole_units_byte(shape: Transformer, layout: Layout, microbatches: int) -> float:
    """Return the bytes of whole units on a device beside its shard: with zero 3 two blocks and the root.

    The gradients of one block and of the root wait to be scattered; those of all blocks wait if they are scattered
    in the last microbatch only.
    """
    from fomkit.parallel.step import block_parameters

    block = max(map(sum, block_parameters(shape, layout)))
    root = shape.architecture.outside_parameters / layout.tensor
    whole = 2 * block + root if layout.zero == 3 else 0.0
    waiting = shape.blocks if layout.scatter == "last" and microbatches > 1 else 1
    return SHORT_BYTE * whole + layout.gradient_byte * (waiting * block + root)


def part_held(shape: Transformer, layout: Layout, samples: float, microbatches: int, replicas: int) -> Held:
    """Return the memory by role of a device of the stage that needs most [byte].

    `samples`: a device's share of a microbatch; `replicas`: devices that share gradients.

    >>> from fomkit.core.job import Layout
    >>> from fomkit.core.transformer import Transformer
    >>> gpt = Transformer(hidden=512, heads=8, blocks=4, seq=256, vocabulary=1000)
    >>> held = part_held(gpt, Layout(), 1, 1, 1)
    >>> held["state"] / held["parameter"], round(sum(held.values()))
    (6.0, 268431360)
    """
    from fomkit.parallel.step import stage_parameters  # most memory is of a trace

    sharded, copies = layout.zero > 1 and replicas > 1, layout.model_devices
    gathered = {"temporary": _whole_units_byte(shape, layout, microbatches)} if sharded else {}
    kept, found = activation_byte(shape, samples, layout, microbatches), list[Held]()
    for held, activation in zip(stage_parameters(shape, layout), kept, strict=True):
        rest = split_standing(held.rest * copies, layout, replicas)
        of_experts = split_standing(held.experts * copies, layout, replicas // layout.expert_replicas)
        standing = {name: of + getattr(of_experts, name) for name, of in rest._asdict().items()}
        found.append({**standing, **gathered, "activation": activation})
    return max(found, key=lambda one: sum(one.values()))
