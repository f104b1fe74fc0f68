"""One step of a parallel training: what devices do, wait for, send and hold; and the schedule of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common
from fomkit.core.job import Layout
from fomkit.parallel.traffic import Sent, Traffic
from fomkit.prediction.exchange import Exchange


class Notes(Sequence[str]):
    """Notes that are made when somebody reads them: of a thousand points nobody does."""

    def __init__(self, make: Callable[[], tuple[str, ...]]) -> None:
        self._made = cache(make)

    def __getitem__(self, at: Any) -> Any:
        return self._made()[at]

    def __len__(self) -> int:
        return len(self._made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made() == tuple(other)


@dataclass(frozen=True)
class ParallelStep:
    """A step of all devices.

    `samples`: of all replicas together.
    `compute_s`: what the busiest device calculates, and waits for its host or its data.
    `busy_s`, `exposed_s`: what its links are busy, and what nothing hides of that.
    `bubble_s`: what it waits for other stages of the pipeline.
    `replicas_s`: of what is exposed, what it waits for the other replicas.
    `wall_s`: from the beginning to the end.
    `passes`: device time [s] of its passes, as far as nothing of them waits for other devices and they are known.
    `sent_byte`: bytes that a device sends, by purpose.
    `memory_byte`: what a device must hold at most; None where nobody knows.
    `coverage`: shares of its time by time source; they sum to 1. A bubble counts as the work that it waits for.
    `excludes`: terms that are not in it, though they may take time.
    `notes`: what was done differently from what was asked or is usual.
    `precision`: number formats of its products, in a word.
    """

    layout: Layout
    devices: int
    replicas: int
    samples: int
    microbatches: int
    compute_s: Span
    busy_s: Span
    exposed_s: Span
    bubble_s: Span
    replicas_s: Span
    wall_s: Span
    passes: Mapping[str, Span] = field(default_factory=dict)
    sent_byte: Mapping[str, float] = field(default_factory=dict)
    memory_byte: float | None = None
    coverage: Mapping[str, float] = field(default_factory=dict)
    excludes: tuple[str, ...] = ()
    notes: Sequence[str] = ()
    precision: str = ""

    @property
    def sample_per_s(self) -> Span:
        """Samples of all replicas a second."""
        return self.wall_s.per(self.samples)

    @property
    def longest(self) -> str:
        """Which part of it is the longest."""
        parts = {"calculation": self.compute_s, "communication": self.exposed_s, "pipeline": self.bubble_s}
        return max(parts, key=lambda name: parts[name].value)


def step_coverage(work: Mapping[str, float], work_s: float, waits: Mapping[str, float]) -> dict[str, float]:
    """Give shares of a step by time source: its work as that is covered, and its waits for links.

    `work`: shares of the work by time source; sum to 1; `work_s`: what it takes [s]; `waits`: exposed time [s] by
    time source.

    >>> step_coverage({"measured": 0.5, "roofline": 0.5}, 3.0, {"measured": 0.5, "alpha_beta": 0.5})
    {'measured': 0.5, 'roofline': 0.375, 'alpha_beta': 0.125}
    """
    whole = work_s + sum(waits.values())
    seconds = {name: share * work_s for name, share in work.items()}
    for name, waited in waits.items():
        seconds[name] = seconds.get(name, 0.0) + waited
    return {name: spent / whole for name, spent in seconds.items()}


@dataclass(frozen=True)
class Waits:
    """Busy and exposed time of links [s]; ``sources``: the exposed time by time source."""

    busy: Span
    exposed: Span
    sources: Mapping[str, float] = field(default_factory=dict)

    def scaled(self, times: float) -> Waits:
        """Have the same so many times."""
        sources = {name: seconds * times for name, seconds in self.sources.items()}
        return Waits(self.busy.scaled(times), self.exposed.scaled(times), sources)


def bare(exchange: Exchange) -> Waits:
    """Give an exchange that hides behind nothing."""
    return Waits(exchange.time, exchange.time, {exchange.source: exchange.time.value})


def of_traffic(traffic: Traffic) -> Waits:
    """Give what replicas send each other."""
    return Waits(traffic.busy_s, traffic.exposed_s, {traffic.source: traffic.exposed_s.value})


def add_waits(parts: Iterable[Waits]) -> Waits:
    """Add waits one after the other; the errors of links go up and down together."""
    found = list(parts)
    sources: dict[str, float] = {}
    for one in found:
        for name, seconds in one.sources.items():
            sources[name] = sources.get(name, 0.0) + seconds
    return Waits(add_common(one.busy for one in found), add_common(one.exposed for one in found), sources)


def waits_for(
    sent: Iterable[Sent], times: Mapping[str, Exchange], one_s: Mapping[str, float], level: float
) -> Waits:
    """Add up what is sent, each less the time of the op that hides it.

    `times`: each collective's exchange; `one_s`: time of one execution of each op [s]; `level`: of the intervals.

    >>> sum_ = Exchange(Span(3.0, 2.0, 5.0), "measured")
    >>> waits_for([Sent("all_reduce", "product")] * 2, {"all_reduce": sum_}, {"product": 2.5}, 0.8).exposed
    Span(value=1.0, low=0.0, high=5.0, level=0.8)
    """
    zero = Span.exact(0.0, level)
    found = [Waits(zero, zero)]
    for one in sent:
        exchange = times[one.collective]
        time = exchange.time
        hidden = float(one_s[one.hidden_by]) if one.hidden_by else 0.0
        value, low, high = (max(0.0, end - hidden) for end in (time.value, time.low, time.high))
        found.append(Waits(time, Span(value, low, high, level), {exchange.source: value}))
    return add_waits(found)


def check_schedule(stages: int, microbatches: int, chunks: int, blocks: int) -> None:
    """Raise where the schedule cannot be made.

    Raises FomkitError when blocks do not divide into chunks, or an interleaved schedule lacks full groups of
    microbatches.
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

    `stage_s`: what each stage takes for one microbatch, forward and backward [s].

    >>> pipeline_s([1.0] * 4, 8), pipeline_s([1.0] * 4, 8, 3)
    (11.0, 9.0)
    """
    slowest = max(stage_s)
    return microbatches * slowest + (sum(stage_s) - slowest) / chunks
