"""One training step from its op times: device, host and input work at the same time, the longest decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.hardware import Machine
from fomkit.rollup.many import Ops, device_times, ops_of
from fomkit.rollup.overheads import INPUT, overheads
from fomkit.rollup.use import Uses, uses_of
from fomkit.schema import PASSES
from fomkit.spans import Span, add_common, latest

if TYPE_CHECKING:
    import pandas as pd

_ALONE: Uses = {}


@dataclass(frozen=True)
class StepTime:
    """The time of one step and what it is made of.

    Attributes
    ----------
    passes : mapping
        Device time [s] of forward, backward and update.
    device_s : Span
        Their sum: the device runs one op after the other.
    host_launch_s : Span or None
        What the host needs to start all kernels; None where the machine does not say.
    input_s : Span or None
        What the input pipeline needs for one step; None where the machine does not say.
    extra_s : Span
        The machine's other overheads per step.
    wall_s : Span
        The longest of device, host and input, plus the overheads.
    bound : str
        compute, memory, launch or input: what the step waits for.
    excludes : tuple of str
        Terms left out because nobody stated them; the wall time is then a lower bound.
    """

    passes: Mapping[str, Span]
    device_s: Span
    host_launch_s: Span | None
    input_s: Span | None
    extra_s: Span
    wall_s: Span
    bound: str
    excludes: tuple[str, ...]


def device_time(timed: pd.DataFrame, level: float, uses: Uses = _ALONE) -> Span:
    """Add up ops that a device runs one after the other; rows without a time are left out.

    Parameters
    ----------
    timed : DataFrame
        A TIMED table.
    level : float
        The level of its intervals.
    uses : mapping
        What use in a step adds to the error of single kernels (`fomkit.rollup.use`); nothing by default.
    """
    return _device_span(ops_of(timed), uses, level)


def _device_span(ops: Ops, uses: Uses, level: float) -> Span:
    value, low, high = device_times(ops, uses, level)[:, 0].tolist()
    return Span(value, low, high, level)


def _host_launch(starts: float, machine: Machine, level: float) -> Span | None:
    launch = machine.device.launch_s
    return None if launch is None else Span(launch.value, launch.low, launch.high, level).scaled(starts)


class Terms(NamedTuple):
    """What a step is put together from besides the device's time; None where the machine does not say."""

    host_s: Span | None
    input_s: Span | None
    extra_s: Span

    def wall(self, device_s: Span) -> Span:
        """Give the longest of device, host and input, plus the overheads."""
        known = [span for span in (device_s, self.host_s, self.input_s) if span is not None]
        return add_common([latest(known), self.extra_s])


def step_terms(timed: pd.DataFrame, machine: Machine, device_s: Span) -> Terms:
    """Give the terms of a step beside its device time; overheads may be shares of that."""
    return terms_beside(
        float(np.nansum(timed["launches"].to_numpy() * timed["count"].to_numpy())), machine, device_s
    )


def terms_beside(starts: float, machine: Machine, device_s: Span) -> Terms:
    """Give the terms of a step of so many launches, beside its device time."""
    stated = overheads(machine, "step", device_s)
    input_s = stated.pop(INPUT, None)
    extra_s = add_common([Span.exact(0.0, device_s.level), *stated.values()])
    return Terms(_host_launch(starts, machine, device_s.level), input_s, extra_s)


def _device_bound(timed: pd.DataFrame, ops: Ops) -> str:
    totals: dict[str, float] = {}
    for bound, time_s in zip(timed["bound"].tolist(), ops.seconds[0, :, 0].tolist(), strict=True):
        totals[bound] = totals.get(bound, 0.0) + time_s
    return max(sorted(totals), key=lambda bound: totals[bound], default="unknown")


def roll_up_step(timed: pd.DataFrame, machine: Machine, level: float, uses: Uses | None = None) -> StepTime:
    """Add up one step.

    Parameters
    ----------
    timed : DataFrame
        A TIMED table; rows without a time are left out (see `check_covered`).
    machine : Machine
        For the launch cost and the overheads per step.
    level : float
        The level of the intervals in ``timed``.
    uses : mapping, optional
        What use in a step adds to the errors of single kernels; default: what the machine's table calls for.
    """
    ops, words = ops_of(timed), np.array([name.partition("_")[0] for name in timed["pass_name"]], object)
    names = [name for name in PASSES if "_" not in name and (words == name).any()]
    uses = uses_of(machine) if uses is None else uses
    device_s = _device_span(ops, uses, level)
    terms = step_terms(timed, machine, device_s)
    host, input_s = terms.host_s, terms.input_s
    together = [(_device_bound(timed, ops), device_s), ("launch", host), ("input", input_s)]
    known = [(bound, span) for bound, span in together if span is not None]
    excluded = [name for name, span in (("host_launch", host), ("input", input_s)) if span is None]
    return StepTime(
        passes={name: _device_span(ops.chosen(words == name), uses, level) for name in names},
        device_s=device_s,
        host_launch_s=host,
        input_s=input_s,
        extra_s=terms.extra_s,
        wall_s=terms.wall(device_s),
        bound=max(known, key=lambda term: term[1].value)[0],
        excludes=tuple(excluded),
    )
