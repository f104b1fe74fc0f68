"""A larger batch, where the device's memory has room for one."""

from __future__ import annotations

from collections.abc import Iterator

from fomkit.advice.case import Case
from fomkit.advice.finding import Finding, does_not_apply
from fomkit.advice.memory_room import ROOM
from fomkit.advice.saving import saving
from fomkit.resize import sizes_used
from fomkit.study.estimate import Estimate
from fomkit.study.memory_of import BATCH, largest_batch

DOUBLINGS = 4
"""How often the batch is doubled at most: beyond 16 times it, learning rates and epochs are another training."""

ENOUGH = 0.01
"""A further doubling has to save so large a share, or the smaller batch is taken."""


def _larger(case: Case, most: int) -> Iterator[int]:
    batch = case.before.sizes[BATCH]
    yield from (batch * 2**times for times in range(1, DOUBLINGS + 1) if batch * 2**times <= most)


def _fastest(case: Case, most: int) -> Estimate | None:
    """Take the batch of most samples a second; the smaller one where they are about equal."""
    best, least = None, case.before.step.value / case.before.sizes[BATCH] * (1 - ENOUGH)
    for batch in _larger(case, most):
        other = case.again(batch=batch, sizes={**case.options.sizes, BATCH: batch})
        if case.lacks_times(other):
            return best
        each = other.step.value / batch
        if best is None or each < least:
            best, least = other, each * (1 - ENOUGH)
    return best


def _why_not(case: Case) -> str:
    capacity, model = case.machine.device.capacity_byte, case.model
    if BATCH not in case.before.sizes or BATCH not in sizes_used(model.ops):
        return "the profile is fixed at its batch"
    if case.before.step_time.input_s is not None:
        return "the input pipeline is stated for this batch only"
    if capacity is None:
        return "the machine states no memory capacity"
    if case.memory is None or model.order is None or BATCH not in sizes_used(model.order):
        return "nobody recorded the order of the ops, so what fits is unknown ('fomkit profile' records it)"
    return ""


def larger_batch(case: Case) -> list[Finding]:
    """Find out what a larger batch that fits saves for each sample."""
    why = _why_not(case)
    capacity = case.machine.device.capacity_byte
    if why or capacity is None:
        return [does_not_apply(why)]
    most = largest_batch(case.model, case.before.sizes, ROOM * capacity.value) or 0
    batch = case.before.sizes[BATCH]
    samples = case.model.data.train_samples
    best = _fastest(case, min(most, samples) if samples is not None else most)
    if best is None:
        return [
            does_not_apply(
                f"twice the batch does not fit or has no time; the largest that leaves room is {most:,}"
            )
        ]
    chosen = best.sizes[BATCH]
    return [
        Finding(
            says=f"The device's memory has room for a larger batch: {most:,} leaves {1 - ROOM:.0%} of it free. "
            f"Taken is batch {chosen:,} instead of {batch:,}; the time is for the same samples.",
            do=f"Train with batch {chosen:,} and a learning rate to match; check that the epochs stay the same, "
            "which is assumed.",
            sure="The whole step was estimated again. The errors at the two batches are taken as independent, "
            "which is the wide side; memory is that of the trace's formats.",
            saving=saving(case.before, best.ops, samples=chosen / batch),
            column="the named size batch",
        )
    ]
