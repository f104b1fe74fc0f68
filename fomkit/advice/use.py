"""The first question: does the training use the accelerator well."""

from __future__ import annotations

from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from fomkit.advice.case import Case, beats_its_floor
from fomkit.advice.spread import one_at_a_time
from fomkit.predict.engines import ARITHMETIC_KINDS
from fomkit.predict.rates import rates
from fomkit.rollup import device_time, uses_of
from fomkit.spans import Span
from fomkit.study.content import span_content

if TYPE_CHECKING:
    from fomkit.hardware import Machine, Peak

WELL, POORLY = 0.462, 0.213
"""Shares of the peak in large trainings at the ends of a published table: PaLM 46.2 %, GPT-3 21.3 % (Chowdhery et
al., "PaLM: Scaling Language Modeling with Pathways", 2022, table 3)."""

_INTEGERS = "int"


def fastest_peak(machine: Machine) -> Peak | None:
    """Give the fastest stated engine for numbers with a fraction; None where no peak is stated."""
    peaks = [peak for peak in machine.device.peaks if _INTEGERS not in peak.dtype]
    return max(peaks, key=lambda peak: peak.rate.value, default=None)


def _at_peak(case: Case) -> tuple[float, list[dict[str, Any]]]:
    """Give what the products would take at the peaks of their engines [s], NaN where one is unknown, and these."""
    ops = case.ops[case.ops["kind"].isin(ARITHMETIC_KINDS)]
    found, total_s = [], 0.0
    for (dtype, engine), rows in ops.groupby(["dtype", "engine"], observed=True):
        flop = float((rows["flop"] * rows["count"]).sum(skipna=False))
        rate = rates(case.fitted, str(dtype), str(engine)).flop_per_s
        total_s += np.nan if rate is None else flop / rate.value
        if rate is not None:
            one = {"dtype": str(dtype), "engine": str(engine), "flop": flop, "flop_per_s": rate.value}
            found.append({**one, "basis": rate.basis, "source": rate.source})
    return total_s, sorted(found, key=lambda one: -one["flop"])


def _bounds(case: Case) -> dict[str, Any]:
    """Give the shares of the step that go with ops of each bound, and that the device waits, with intervals."""
    ops, step = case.before.ops, case.before.step_time
    level, uses = case.before.step.level, uses_of(case.machine)
    names = [str(name) for name in ops.loc[ops["time_s"].notna(), "bound"].unique() if name]
    parts = [device_time(ops[ops["bound"] == name], level, uses) for name in names]
    parts = [part if part.low > 0 else Span.exact(part.value, level) for part in parts]
    beside = [span for span in (step.host_launch_s, step.input_s) if span is not None]
    beside_too = [*parts, *beside, step.extra_s]

    def wall(at: list[float]) -> float:
        device, others, extra = at[: len(parts)], at[len(parts) : -1], at[-1]
        return max(sum(device), *others, 0.0) + extra

    def share_of(place: int, at: list[float]) -> float:
        return at[place] / wall(at)

    shares: dict[str, Any] = {}
    for place, name in enumerate(names):
        if parts[place].value > 0:
            share = one_at_a_time(beside_too, partial(share_of, place), level)
            shares[name] = {"value": share.value, "low": share.low, "high": min(share.high, 1.0)}
    if case.before.step.value > case.device_s:
        busy = one_at_a_time(beside_too, lambda at: sum(at[: len(parts)]) / wall(at), level)
        shares["waiting"] = {"value": 1 - busy.value, "low": max(0.0, 1 - busy.high), "high": 1 - busy.low}
    return dict(sorted(shares.items(), key=lambda item: -item[1]["value"]))


def _verdict(share: float) -> str:
    if isnan(share):
        return "unknown"
    return "well" if share >= WELL else "poorly" if share < POORLY else "partly"


def _why_above_peak(case: Case) -> str:
    """Say how products can take less than the peak allows their flop."""
    if "conv" in set(case.ops.loc[beats_its_floor(case.ops), "kind"].astype("str")):
        return "Winograd and FFT convolutions do fewer operations than direct ones, which are what is counted"
    return "the rates that times were measured at are above the stated ones"


def use_content(case: Case) -> dict[str, Any]:
    """Say how well the step uses the device: its share of the peak, and what its time goes with."""
    at_peak_s, engines = _at_peak(case)
    step = case.before.step
    share = step.per(at_peak_s) if at_peak_s > 0 else None
    fastest = fastest_peak(case.machine)
    flop = sum(one["flop"] for one in engines)
    of_fastest = None if fastest is None or share is None else step.per(flop / fastest.rate.value)
    return {
        "verdict": _verdict(float("nan") if share is None else share.value),
        "at_peak_s": None if share is None else at_peak_s,
        "peak_fraction": span_content(share),
        "above_peak": None if share is None or share.value <= 1 else _why_above_peak(case),
        "engines": engines,
        "fastest": None if fastest is None else {
            "dtype": fastest.dtype, "engine": fastest.engine, "flop_per_s": fastest.rate.value,
            "source": fastest.rate.source, "peak_fraction": span_content(of_fastest),
        },
        "step_bound": case.before.step_time.bound,
        "bounds": _bounds(case),
    }  # fmt: skip
