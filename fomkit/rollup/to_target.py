"""Epochs to a target at any batch that a measured curve covers, and at no other."""

from __future__ import annotations

import math

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.rollup.overheads import overheads
from fomkit.spans import Span, add_common, at_level, multiply_independent
from fomkit.workload import EpochsToTarget


def _between(low: float, high: float, share: float) -> float:
    return math.exp((1 - share) * math.log(low) + share * math.log(high))


def epochs_at(curve: EpochsToTarget, batch: int, level: float) -> Span:
    """Give the epochs to the target at a batch: measured there, or between two measured batches.

    Between two, the logarithm of the epochs is linear in the logarithm of the batch; so are its ends.

    Raises
    ------
    FomkitError
        When the curve does not cover the batch: how many epochs another one needs nobody knows.

    Examples
    --------
    >>> curve = EpochsToTarget({64: Span.exact(10.0), 256: Span.exact(40.0)}, "accuracy", 0.9, "example")
    >>> round(epochs_at(curve, 128, 0.8).value, 9)
    20.0
    """
    known = sorted(curve.epochs)
    if not known[0] <= batch <= known[-1]:
        covers = f"batch {known[0]:,} only" if len(known) == 1 else f"batches {known[0]:,} to {known[-1]:,}"
        raise FomkitError(
            curve.where,
            f"covers {covers}, and the batch is {batch:,}. Nothing is extrapolated: measure the epochs there and "
            "add the row, or take a batch that it covers.",
        )
    if batch in curve.epochs:
        return at_level(curve.epochs[batch], level)
    above = next(place for place, one in enumerate(known) if one > batch)
    first, last = known[above - 1], known[above]
    share = math.log(batch / first) / math.log(last / first)
    left, right = (at_level(curve.epochs[one], level) for one in (first, last))
    value, low, high = (
        _between(getattr(left, end), getattr(right, end), share) for end in ("value", "low", "high")
    )
    return Span(value, low, high, level)


def time_to_target(curve: EpochsToTarget, batch: int, epoch_s: Span, machine: Machine) -> tuple[Span, Span]:
    """Give the epochs to a target and their time [s] with the machine's overheads of a run.

    Errors of the epochs and of their time are independent.

    Raises
    ------
    FomkitError
        When the curve does not cover the batch.
    """
    epochs = epochs_at(curve, batch, epoch_s.level)
    trained = multiply_independent(epochs, epoch_s)
    return epochs, add_common([trained, *overheads(machine, "run", trained).values()])
