"""The order of a walked and derived step: what each op makes, and the last op that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fomkit.trace.calls import BACKWARD, Array, Dimensions, TracedOp
from fomkit.trace.onnx_backward import BackwardPass
from fomkit.trace.onnx_gradients import Derived
from fomkit.trace.order_table import ORDER_LINE
from fomkit.trace.update_copies import COPIES
from fomkit.workload import STATE_TENSORS


@dataclass(frozen=True)
class Memory:
    """What stands in memory before a step, and what stays until its end.

    Attributes
    ----------
    inputs : list of Array
    weights : mapping
        Array and module of each weight by name.
    others : list of Array
        Stored tensors that are no weights.
    results : list of Array
        The graph's outputs, which a training loop holds through the backward pass.
    rule : str
        Of the optimizer; "" for no update.
    """

    inputs: Sequence[Array]
    weights: Mapping[str, tuple[Array, str]]
    others: Sequence[Array]
    results: Sequence[Array]
    rule: str


def _line(number: int, role: str, byte: int, module: str = "", *, row: int = -1, freed_by: int = -1) -> TracedOp:
    """Make a line; ``row`` and ``freed_by`` only where there is one."""
    # What runs and has no row is the loss, which hands its gradients in.
    pass_name = BACKWARD if number and row < 0 else ""
    where: Dimensions = {"row": row} if row >= 0 else {}
    end: Dimensions = {"freed_by": freed_by} if freed_by >= 0 else {}
    sizes: Dimensions = {"id": number, **where, "role": role, "output_byte": byte, **end}
    return TracedOp("", ORDER_LINE, sizes, "", pass_name, module)


def order_of(
    memory: Memory, forward: Sequence[Derived], backward: BackwardPass, update: Sequence[TracedOp]
) -> list[TracedOp]:
    """Give the lines of the order.

    Parameters
    ----------
    memory : Memory
    forward : list of Derived
    backward : BackwardPass
    update : list of TracedOp
        Its rows, which come last.
    """
    steps = [*forward, *backward.steps]
    firsts, number = [], 1
    for step in steps:
        firsts.append(number)
        number += max(len(step.rows), 1)
    executed = number - 1
    end_of_forward = firsts[len(forward)] - 1 if len(forward) < len(steps) else executed
    last: dict[int, int] = {}
    for first, step in zip(firsts, steps, strict=True):
        for array in (*step.written, *step.read):
            last[array.storage] = max(first + max(len(step.rows), 1) - 1, last.get(array.storage, 0))
    last.update((array.storage, executed) for array in memory.results)
    stays = {array.storage for array in backward.gradients.values()}
    lines = list(_before(memory))
    row = 0
    for first, step in zip(firsts, steps, strict=True):
        lines += _lines_of(step, first, row, last, stays, end_of_forward if backward.steps else 0)
        row += len(step.rows)
    return [*lines, *_update_lines(memory, backward, update, executed, row)]


def _before(memory: Memory) -> Iterator[TracedOp]:
    for array, module in memory.weights.values():
        yield _line(0, "parameter", array.byte, module)
    for array in memory.others:
        yield _line(0, "buffer", array.byte)
    for array in memory.inputs:
        yield _line(0, "input", array.byte)


def _lines_of(
    step: Derived, first: int, row: int, last: Mapping[int, int], stays: set[int], end_of_forward: int
) -> Iterator[TracedOp]:
    """Give the lines of one step: one for each tensor that it makes, one at least for each of its rows."""
    made = list({array.storage: array for array in step.written if array.byte}.values())
    place = row if step.rows else -1
    for array in made:
        if array.storage in stays:
            yield _line(first, "gradient", array.byte, row=place)
            continue
        freed = last[array.storage]
        role = "activation" if first <= end_of_forward < freed else "temporary"
        yield _line(first, role, array.byte, row=place, freed_by=freed)
    if not made:
        yield _line(first, "", 0, row=place)
    for at in range(1, len(step.rows)):
        yield _line(first + at, "", 0, row=row + at)


def _update_lines(
    memory: Memory, backward: BackwardPass, update: Sequence[TracedOp], executed: int, row: int
) -> Iterator[TracedOp]:
    updated = [(one, module) for one, module in memory.weights.values() if one.storage in backward.trained]
    for at, op in enumerate(update):
        arrays = [(array, module) for array, module in updated if array.dtype == op.dtype]
        for array, module in arrays:
            if states := STATE_TENSORS[memory.rule]:
                yield _line(0, "state", states * array.byte, module)
        number = executed + 1 + at
        byte = COPIES[memory.rule].listed * sum(array.byte for array, _ in arrays)
        if byte:
            yield _line(number, "temporary", byte, row=row + at, freed_by=number)
        else:
            yield _line(number, "", 0, row=row + at)
