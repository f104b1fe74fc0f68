"""Pipelines: what the stages wait for at both ends of a step."""

from __future__ import annotations

from collections.abc import Sequence

from fomkit.errors import FomkitError


def bubble_fraction(stages: int, microbatches: int, chunks: int = 1) -> float:
    """Give the idle time of a stage over its work, for equal stages (Narayanan et al., SC 2021, section 2.2).

    Examples
    --------
    >>> bubble_fraction(8, 64), round(bubble_fraction(8, 64, 3), 6)
    (0.109375, 0.036458)
    """
    return (stages - 1) / (microbatches * chunks)


def check_schedule(stages: int, microbatches: int, chunks: int, blocks: int) -> None:
    """Raise where the schedule cannot be made.

    Raises
    ------
    FomkitError
        When blocks do not divide into chunks, or an interleaved schedule lacks full groups of microbatches.
    """
    if blocks % (stages * chunks):
        raise FomkitError(
            "layout",
            f"{blocks} blocks do not divide into pipeline {stages} × interleave {chunks} = {stages * chunks} "
            "chunks. Choose divisors.",
        )
    if chunks > 1 and microbatches % stages:
        raise FomkitError(
            "layout",
            f"an interleaved pipeline needs microbatches in multiples of its {stages} stages, and there are "
            f"{microbatches}. Change batch, microbatch or interleave.",
        )


def pipeline_s(stage_s: Sequence[float], microbatches: int, chunks: int = 1) -> float:
    """Give the time of forward and backward of all microbatches under 1F1B [s].

    The slowest stage works all the time but for filling and draining, which take one microbatch of each other
    stage, or one chunk of it where stages are interleaved. For equal stages this is exact:
    ``(m + (p - 1)/v) · t``.

    Parameters
    ----------
    stage_s : sequence
        What each stage takes for one microbatch, forward and backward [s].
    microbatches, chunks : int

    Examples
    --------
    >>> pipeline_s([1.0] * 4, 8), pipeline_s([1.0] * 4, 8, 3)
    (11.0, 9.0)
    """
    slowest = max(stage_s)
    return microbatches * slowest + (sum(stage_s) - slowest) / chunks
