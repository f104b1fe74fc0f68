"""Steps that fill the device's memory, or do not fit."""

from __future__ import annotations

from fomkit.advice.case import Case
from fomkit.advice.finding import Finding, does_not_apply
from fomkit.quantities import format_mebibyte
from fomkit.study.memory_of import largest_batch

ROOM = 0.9
"""Share of the memory that a step should fill at most: the framework's context and libraries (0.5 to 1 GiB of
16 GiB) and gaps between pieces come on top of what is counted."""


def memory_full(case: Case) -> list[Finding]:
    """Find out whether the step leaves room in the device's memory."""
    capacity = case.machine.device.capacity_byte
    if capacity is None:
        return [does_not_apply("the machine states no memory capacity")]
    if case.memory is None:
        return [does_not_apply("nobody recorded the order of the ops, so the memory of the step is unknown")]
    share = case.memory.peak_byte / capacity.value
    if share < ROOM:
        return [does_not_apply(f"the step fills {share:.0%} of the device's memory")]
    fits = "does not fit" if share > 1 else "leaves little room"
    most = largest_batch(case.model, case.before.sizes, ROOM * capacity.value)
    room = f" The largest batch that leaves {1 - ROOM:.0%} free is {most:,}." if most else ""
    return [
        Finding(
            says=f"The step {fits}: {format_mebibyte(case.memory.peak_byte)} MiB at its peak, {share:.0%} of the "
            f"device's memory, before the framework's own.{room}",
            do="Take a smaller batch and add gradients up over several, compute activations again in the backward "
            "pass (torch.utils.checkpoint, about one forward pass more), or use a 16-bit format.",
            sure="The memory was followed op by op in the formats of the trace; gaps between pieces are not "
            "counted. What is at stake is the run, not a share of its time.",
            urgent=True,
            column="output_byte and freed_by of the order; device.memory.capacity",
        )
    ]
