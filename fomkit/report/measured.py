"""What was measured of a model's step, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.quantities import format_quantity

_CLOCKS = {"process": "processor time", "wall": "wall time", "device": "time on the device"}
MOST_LISTED = 5
_WIDE = 0.5
"""Width of the interval of the profiler's overhead, as a share of the step, from which no figure is told."""


def _time(value: float) -> str:
    return format_quantity(value, "time_s")


def _step(run: Mapping[str, Any], clock: str) -> str:
    times = run["step"][clock]
    quartiles = f"quartiles {_time(times['p25_s'])} to {_time(times['p75_s'])}"
    ends = (times["low_s"], times["high_s"])
    interval = "" if None in ends else f", 95 % interval of it {_time(ends[0])} to {_time(ends[1])}"
    return (
        f"{_time(times['median_s'])} {_CLOCKS[clock]}, median of {run['step']['repeats']}{interval}, {quartiles}"
    )


def _conditions(run: Mapping[str, Any]) -> str:
    threads = "" if run["device"] == "gpu" else f", {run['threads']} thread{'s' * (run['threads'] > 1)}"
    load = "" if run["load_start"] is None else f", load {run['load_start']:g} to {run['load_end']:g}"
    allocator = ", ".join(f"{name}={text}" for name, text in run["allocator"].items()) or "as it comes"
    precision = f", autocast to {run['precision']}" if run["precision"] else ""
    return f"on: {run['processor']}{threads}{precision}{load}, allocator {allocator}"


def energy_text(energy: Mapping[str, Any]) -> str:
    """Write the energy of a step, with its interval, scope and instrument."""
    step, low, high = (format_quantity(energy[name], "energy_j") for name in ("value_j", "low_j", "high_j"))
    return f"{step} ({low} to {high}) a step, scope {energy['scope']}, {energy['source']}"


def _overhead(run: Mapping[str, Any]) -> list[str]:
    """Say what the profiler added; only between what, where the repeats leave more than half of a step open."""
    if run["profiler_overhead"] is None:
        return []
    least, most = run["profiler_overhead_low"], run["profiler_overhead_high"]
    beside = f"on the plain step by {_CLOCKS[run['clock']]}"
    if most - least > _WIDE:
        return [f"profiler: overhead unknown, {least:+.0%} to {most:+.0%} {beside}"]
    return [f"profiler: {run['profiler_overhead']:+.1%} {beside}, interval {least:+.1%} to {most:+.1%}"]


def _ops(run: Mapping[str, Any]) -> list[str]:
    ops, share = run["ops"], run["ops_share_of_step"]
    lines = _overhead(run)
    if share is not None:
        lines.append(f"ops: their times add up to {share:.1%} of the plain step by {_CLOCKS[run['clock']]}")
    if ops["scaled_by"] != 1:
        lines.append(
            f"ops: their times were divided by {ops['scaled_by']:.3g} to add up to processor time; the sum checks "
            "nothing, and a single op may be off by as much"
        )
    lines.append("ops: no spread of their times is kept; intervals shown beside them are of predictions alone")
    if run["joined_share_of_ops"] is not None:
        lines.append(f"ops: {run['joined_share_of_ops']:.1%} of their time stands in rows of the table")
    listed = ops["unjoined"]
    if listed:
        shown = ", ".join(f"{one['op']} {_time(one['time_s'])} ({one['why']})" for one in listed[:MOST_LISTED])
        more = f", and {len(listed) - MOST_LISTED} more in the profile" if len(listed) > MOST_LISTED else ""
        lines.append(f"not in rows: {shown}{more}")
    return lines


def measured_lines(run: Mapping[str, Any]) -> list[str]:
    """Say what was measured: the step, what the profiler adds and how far the ops explain it.

    Parameters
    ----------
    run : mapping
        ``measured`` of ``fomkit/show/1``.
    """
    others = [name for name in _CLOCKS if name != run["clock"] and run["step"][name] is not None]
    lines = [f"measured step: {_step(run, run['clock'])}"]
    lines += [f"  by another clock: {_step(run, name)}" for name in others]
    return [
        *lines,
        _conditions(run),
        *([f"energy: {energy_text(run['energy'])}"] if run["energy"] else []),
        *(_ops(run) if run["ops"] else []),
        *(f"note: {one}" for one in run["notes"]),
    ]
