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
    replicas_s : Span
        Of what is exposed, what it waits for the other replicas.
    wall_s : Span
        From the beginning to the end.
    sent_byte : mapping
        Bytes that a device sends, by purpose.
    memory_byte : float or None
        What a device must hold at most; None where nobody knows.
    coverage : mapping
        Shares of its time by time source; they sum to 1. A bubble counts as the work that it waits for.
    excludes : tuple of str
        Terms that are not in it, though they may take time.
    notes : tuple of str
        What was done differently from what was asked or is usual.
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
    sent_byte: Mapping[str, float] = field(default_factory=dict)
    memory_byte: float | None = None
    coverage: Mapping[str, float] = field(default_factory=dict)
    excludes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sample_per_s(self) -> Span:
        """Samples of all replicas a second."""
        return self.wall_s.per(self.samples)


def step_coverage(work: Mapping[str, float], work_s: float, waits: Mapping[str, float]) -> dict[str, float]:
    """Give shares of a step by time source: its work as that is covered, and its waits for links.

    Parameters
    ----------
    work : mapping
        Shares of the work by time source; sum to 1.
    work_s : float
        What it takes [s].
    waits : mapping
        Exposed time [s] by time source.

    Examples
    --------
    >>> step_coverage({"measured": 0.5, "roofline": 0.5}, 3.0, {"measured": 0.5, "alpha_beta": 0.5})
    {'measured': 0.5, 'roofline': 0.375, 'alpha_beta': 0.125}
    """
    whole = work_s + sum(waits.values())
    seconds = {name: share * work_s for name, share in work.items()}
    for name, waited in waits.items():
        seconds[name] = seconds.get(name, 0.0) + waited
    return {name: spent / whole for name, spent in seconds.items()}
