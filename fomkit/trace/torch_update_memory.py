"""The memory of an update: the optimizer's state, and what an unfused update makes for a moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from fomkit.trace.calls import TracedOp
from fomkit.trace.torch_optimizers import RULES, kernels_before, with_gradients
from fomkit.trace.torch_order import Line
from fomkit.trace.update_copies import COPIES as COPIES
from fomkit.trace.update_copies import byte_in_turn
from fomkit.workload import STATE_TENSORS


def made_byte(group: Mapping[str, Any], rule: str, impl: str, sizes: Sequence[int]) -> int:
    """Give the most memory that an update makes for itself at once [byte].

    Parameters
    ----------
    group : mapping
        The optimizer's switches.
    rule, impl : str
    sizes : list of int
        Bytes of each parameter in order.
    """
    if impl == "fused":
        return 0
    copies = COPIES[rule]
    changes_gradients = any(name == "maximize" or inputs > 1 for name, inputs in kernels_before(group, rule))
    if impl == "foreach":
        return sum(sizes) * (copies.listed_decayed if changes_gradients else copies.listed)
    return int(byte_in_turn(copies, sizes, int(changes_gradients)))


def update_lines(
    optimizer: torch.optim.Optimizer | None,
    stand_ins: Mapping[int, torch.Tensor],
    rows: Sequence[TracedOp],
    modules: Mapping[int, str],
    executed: int,
) -> Iterator[Line]:
    """Give the lines of an update.

    Parameters
    ----------
    optimizer : Optimizer or None
    stand_ins : mapping
        For the ``id`` of each of the optimizer's parameters the traced one.
    rows : list of TracedOp
        The rows of the update.
    modules : mapping
        Path of the module of each traced parameter by its ``id``.
    executed : int
        Ops executed before.
    """
    waiting = list(enumerate(rows, executed + 1))
    rule_of = RULES.get(type(optimizer)) if optimizer is not None else None
    if optimizer is None or rule_of is None:
        return
    for group, by_dtype in with_gradients(optimizer, stand_ins):
        rule = rule_of(group)
        for dtype, parameters in by_dtype.items():
            sizes = [one.numel() * one.element_size() for one in parameters]
            for parameter, byte in zip(parameters, sizes, strict=True):
                if states := STATE_TENSORS[rule]:
                    yield Line(0, None, modules.get(id(parameter), ""), "", None, states * byte, "state")
            number, row = next(one for one in waiting if one[1].kind == "optimizer" and one[1].dtype == dtype)
            waiting.remove((number, row))
            byte = made_byte(group, rule, str(row.dimensions["impl"]), sizes)
            yield Line(number, row, "", "", None, byte, "temporary" if byte else "", number if byte else None)
    for number, row in waiting:
        yield Line(number, row, "", "")
