"""What memory costs besides its traffic: pages that are fresh, and the way from the host to a device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from fomkit.timings.measure_watch import Watch

POWERS = range(20, 27)
"""Sizes as powers of two; glibc gives back what is above 2^25 bytes at once, at most."""
PRIMED_BYTE = 31 * 2**20
"""Freed once before: glibc raises its limits by what it sees freed, so that what ran before would decide."""
FRESH_SHARE = 0.7
"""Share of the largest tensors' cost a byte from which tensors of a size count as fresh each time."""
REPEATS = 9
HOST_BYTE = 2**27


def _over(watch: Watch, run: Callable[[], Any]) -> float:
    watch.measure(run, 1)
    return median(watch.measure(run, 1) for _ in range(REPEATS))


def fresh_pages(watch: Watch, limits: range = POWERS) -> dict[str, float]:
    """Measure what a tensor of fresh pages costs besides being written.

    Returns
    -------
    dict
        ``above_byte``, the size from which each new tensor has fresh pages (a power of two), and ``s_per_byte``,
        what a byte of them takes; empty where tensors cost no more when they are new.
    """
    import torch

    torch.empty(PRIMED_BYTE // 4)
    found = []
    for power in limits:
        numel = 2**power // 4 + 4096
        same_s = _over(watch, partial(torch.zeros(numel).fill_, 1.0))
        fresh_s = _over(watch, partial(torch.full, (numel,), 1.0))
        found.append((2.0**power, (fresh_s - same_s) / (4 * numel), fresh_s > 2 * same_s))
    largest = found[-1]
    if not largest[2]:
        return {}
    # From the largest size downwards, as long as new tensors are dear: smaller ones may be so by chance.
    dear = [rate > FRESH_SHARE * largest[1] for _, rate, _ in found]
    first = next(place for place in range(len(found)) if all(dear[place:]))
    return {"above_byte": found[first][0], "s_per_byte": median(rate for _, rate, _ in found[first:])}


def to_device(watch: Watch, torch: Any) -> dict[str, float]:
    """Measure the way from the host's memory to the device, pinned and pageable [byte/s]."""
    numel = HOST_BYTE // 4
    there = torch.empty(numel, device="cuda")
    found = {}
    for name, pinned in (("pinned", True), ("pageable", False)):
        here = torch.empty(numel, pin_memory=pinned)
        found[name] = HOST_BYTE / _over(watch, partial(there.copy_, here, non_blocking=True))
    return found
