"""How the steps and the devices of one trace differ, which of them are used, and the notes on it.

The notes report cold starts, spread between steps, contention, idle time, and steps of unequal work.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fomkit.core.errors import printable
from fomkit.core.model import DOUBTFUL
from fomkit.core.units import format_quantity
from fomkit.frontends.lowering.calls import Dimensions, TracedOp

COLD_FACTOR = 1.5
"""A first step longer than this many times the median of the others is cold: it loads, plans and allocates."""
MIN_STEPS = 3
"""Fewest steps among which a cold first step can be detected; of two steps it is open which one is typical."""
_RULE = f"a first step of more than {COLD_FACTOR} times the median of two or more others is excluded"


def is_cold(step_s: Sequence[float]) -> bool:
    """Return whether the first step takes much longer than the others, by the times of their ops.

    >>> is_cold([552e-6, 104e-6, 45e-6]), is_cold([110e-6, 104e-6, 100e-6]), is_cold([552e-6, 104e-6])
    (True, False, False)
    """
    return len(step_s) >= MIN_STEPS and step_s[0] > COLD_FACTOR * median(step_s[1:])


def step_sums(times: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the time [s] of equal executions in each step; executions without a time count 0.

    `times` (steps * count,): of all executions, step by step. `count`: executions in a step. If the times do not
    fill whole steps, count × mean stands for one step.
    """
    known = np.nan_to_num(np.asarray(times, dtype=np.float64))
    if count and len(known) and len(known) % count == 0:
        return np.asarray(known.reshape(-1, count).sum(axis=1))
    return np.array([known.mean() * count if len(known) else 0.0])


def _time_text(time_s: float) -> str:
    return format_quantity(time_s, "time_s", 3)


def cold_note(name: str, cold_s: float, step_s: Sequence[float]) -> str:
    """Return the note on a first step that was left out, with the rule."""
    return (
        f"{name} was left out as a cold start: its ops took {_time_text(cold_s)}, those of the others "
        f"{_time_text(median(step_s))} ({_RULE})"
    )


def spread_notes(timer: str, step_s: Sequence[float]) -> Iterator[str]:
    """Yield notes on the meaning of traced times and on the spread of the steps' times over all ops [s]."""
    if len(step_s) < 2:
        yield f"traced_time_s: mean time of {timer} in the one step, under the profiler; no spread is known"
        return
    mean = f"the mean time of {timer} in a step, under the profiler"
    yield f"traced_time_s: median over {len(step_s)} steps of {mean}"
    yield (
        f"ops of a step took {_time_text(median(step_s))} (median; {_time_text(min(step_s))} to "
        f"{_time_text(max(step_s))} over {len(step_s)} steps)"
    )


def sum_notes(sum_s: float, step_s: Sequence[float]) -> Iterator[str]:
    """Yield a note on the sum of an op table's times, which need not be the time of a step."""
    if len(step_s) > 1:
        whole = _time_text(sum_s)
        yield f"count × traced_time_s adds up to {whole}: medians of ops need not add up to the median of steps"


CONTENDED_SHARE = 0.2
"""Share of a trace's time beyond the medians of equal executions above which the trace is called contended."""
LEAST_BUSY_SHARE = 0.5
"""Busy share of a step's wall time below which a note names what the idle time may be."""
MIN_REPEATS = 3


def excess_share(times: Iterable[NDArray[np.float64]]) -> float:
    """Return the share of traced time that executions took beyond the median of equal executions.

    An op that has the machine for itself takes about its median each time. If other work shares the machine, some
    executions wait for it; a median hides their extra time, the time of the step does not.

    `times`: times [s] of equal executions; groups of fewer than three are ignored.

    >>> excess_share([np.array([1.0, 1.0, 2.0, 1.0])])
    0.2
    """
    beyond_s = all_s = 0.0
    for each in times:
        known = np.asarray(each, np.float64)
        known = known[~np.isnan(known)]
        if len(known) >= MIN_REPEATS:
            beyond_s += float(np.maximum(known - np.median(known), 0.0).sum())
            all_s += float(known.sum())
    return beyond_s / all_s if all_s else 0.0


def contention_notes(
    times: Iterable[NDArray[np.float64]], step_s: Sequence[float] = (), wall_s: Sequence[float] = ()
) -> Iterator[str]:
    """Yield notes on the busy share of the steps, and on other work that shared the machine.

    `times`: times [s] of equal executions; `step_s`, `wall_s`: time of all ops of each step, and from its begin to
    its end [s]; empty if the trace has no such times.
    """
    if sum(wall_s) > 0:
        # Kernels of one step may end in the next step, and several streams run at once.
        busy = min(sum(step_s) / sum(wall_s), 1.0)
        rest = (
            "; in the rest it waited for the host, for input or for other work" if busy < LEAST_BUSY_SHARE else ""
        )
        yield f"busy share: traced ops took {busy:.0%} of the wall time of the steps{rest}"
    if (excess := excess_share(times)) > CONTENDED_SHARE:
        yield (
            f"contended: {excess:.0%} of the traced time is beyond the median of equal executions, so other work "
            "shared the machine or its clock changed; trace it alone"
        )


DIFFERENT = 0.05
"""Relative difference in work between a program's steps above which its profile has a note."""


def rough_work(ops: Sequence[TracedOp]) -> float:
    """Return the product of sizes, or the elements, of the ops of a step: a measure to compare steps of a program.

    >>> rough_work([TracedOp("mm", "gemm", {"b": 1, "m": 2, "n": 3, "k": 5}, "fp32", "forward", "")])
    30.0
    """
    work = 0.0
    for op in ops:
        sizes = [op.dimensions.get(name, 1) for name in _FACTORS.get(op.kind, ("numel",))]
        each = float(np.prod([float(size) if isinstance(size, int | float) else 1.0 for size in sizes]))
        work += each * (op.count if isinstance(op.count, int) else 1)
    return work


_FACTORS = {
    "gemm": ("b", "m", "n", "k"), "sparse_gemm": ("b", "m", "n", "k"),
    "conv": ("batch", "in_channels", "out_channels", "depth", "height", "width", "kernel_d", "kernel_h",
             "kernel_w"),
    "rnn": ("batch", "steps", "hidden_size", "hidden_size", "layers", "directions"),
    "attention": ("batch", "heads", "q_len", "kv_len", "head_dim"),
    "experts": ("m", "n", "k", "top_k"),
}  # fmt: skip
"""Dimensions whose product is proportional to the work of a kind; for other kinds it is the elements."""


def difference_notes(works: Sequence[float], place: int) -> Iterator[str]:
    """Yield a note on the difference in work between recorded steps, if it exceeds `DIFFERENT`.

    >>> list(difference_notes([100.0, 104.0], 3)), len(list(difference_notes([100.0, 120.0], 3)))
    ([], 1)
    """
    if len(works) > 1 and min(works) > 0 and (spread := max(works) / min(works) - 1) > DIFFERENT:
        yield (
            f"{DOUBTFUL}: the {len(works)} steps that were recorded differ by {spread:.0%} in their work; this is "
            f"step {place}, and others are longer or shorter. Profile one of usual sizes, or several"
        )


def doubt_of_axis(shapes: Sequence[Sequence[int]]) -> str:
    """Return a note if inputs begin with different lengths, so that the axis of the samples is open; else "".

    Lengths of 1 are broadcast and ignored. A batch is one of the first two axes, so a single length that all
    inputs have there settles it.

    >>> doubt_of_axis([(20, 35), (20,)]), doubt_of_axis([(20, 35), (2, 20, 200)])
    ('', '')
    >>> doubt_of_axis([(35, 20), (2, 20, 200)])[:62]
    'doubtful: the batch of 35 is the first axis of the first input'
    """
    batched = [tuple(shape) for shape in shapes if shape and shape[0] != 1]
    firsts = list(dict.fromkeys(shape[0] for shape in batched))
    if len(firsts) < 2:
        return ""
    shared = sorted(set.intersection(*({*shape[:2]} - {1} for shape in batched)))
    if shared == [firsts[0]]:
        return ""
    all_of = f"; {' or '.join(map(str, shared))} is an axis of all of them" if shared else ""
    return (
        f"{DOUBTFUL}: the batch of {firsts[0]} is the first axis of the first input, and other inputs begin with "
        f"{' and '.join(map(str, firsts[1:]))}{all_of}. Where another axis counts the samples, write its length "
        "as 'batch' under sizes in the profile"
    )


@dataclass(frozen=True)
class Spent:
    """Time of equal ops in one step.

    `op`, `kind`, `dtype`, `pass_name`: as in the op table; ``kind`` is "" for an op without work.
    `time_s`: of all executions together [s], the median of steps.
    `calm_s`: the same in the least disturbed quarter of steps [s]; NaN where steps are not distinguished.
    `halved`: whether it is half of one time that the trace has for both gradients.
    """

    op: str
    kind: str
    dtype: str
    pass_name: str
    dimensions: Dimensions
    count: int
    time_s: float
    calm_s: float = math.nan
    halved: bool = False


MAX_NAMED = 8
_K = TypeVar("_K", bound=Hashable)


def busiest(times: Mapping[_K, float]) -> _K:
    """Return the key with the longest time, the first among equals."""
    return max(times, key=lambda time: times[time])


def busiest_notes(what: str, times_s: Mapping[str, float], taken: str) -> Iterator[str]:
    """Yield a note that names the busiest of several devices or processes, which was used, and the others."""
    if len(times_s) < 2:
        return
    listed = [f"{printable(name)} ({_time_text(time_s)})" for name, time_s in times_s.items() if name != taken]
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    yield (
        f"partial: the trace is of {len(times_s)} {what}; the busiest is used, {printable(taken)} "
        f"({_time_text(times_s[taken])}), and left out: {', '.join(listed[:MAX_NAMED])}{more}"
    )
