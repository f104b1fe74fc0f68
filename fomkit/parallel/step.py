"""One step of a parallel training: what devices do, what they wait for, what they send and hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fomkit.parallel.layout import Layout
from fomkit.spans import Span


@dataclass(frozen=True)
class ParallelStep:
    """A step of all devices.

    Attributes
    ----------
    samples : int
        Of all replicas together.
    compute_s : Span
        What the busiest device calculates, and waits for its host or its data.
    busy_s, exposed_s : Span
        What its links are busy, and what nothing hides of that.
    bubble_s : Span
        What it waits for other stages of the pipeline.
    wall_s : Span
        From the beginning to the end.
    sent_byte : mapping
        Bytes that a device sends, by purpose.
    memory_byte : float or None
        What a device must hold at most; None where nobody knows.
    notes : tuple of str
        What was assumed.
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
    wall_s: Span
    sent_byte: Mapping[str, float] = field(default_factory=dict)
    memory_byte: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def sample_per_s(self) -> Span:
        """Samples of all replicas a second."""
        return self.wall_s.per(self.samples)
