"""An estimate as plain content: what JSON, terminal and page all show."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fomkit.core.interval import Span, divide_independent
from fomkit.core.machine import Fact, Machine, Price
from fomkit.core.units import UNITS, format_quantity
from fomkit.plan.coverage import TABLES, uses_of
from fomkit.plan.energy import Spent, energy_of_estimate
from fomkit.plan.step import INPUT
from fomkit.prediction.estimates import cached
from fomkit.prediction.rates import bounds

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.model import EpochsToTarget
    from fomkit.plan.estimate import Estimate


def _span(spent: Spent | None) -> dict[str, float] | None:
    return None if spent is None else span_content(spent.energy_j)


def energy_content(estimate: Estimate) -> dict[str, Any] | None:
    """Put the energy of an estimate in the form of the block ``energy_j``; None where the machine states none."""
    found = energy_of_estimate(estimate)
    if found is None:
        return None
    method, step = found.method, found.step
    share = step.terms["idle power"].value / step.energy_j.value if step and "idle power" in step.terms else None
    return {
        "step": _span(step),
        "epoch": _span(found.epoch),
        "run": _span(found.run),
        "unit": _span(found.unit),
        "scope": method.scope if method else estimate.machine.energy and estimate.machine.energy.scope,
        "basis": method.basis if method else None,
        "method": method.name if method else None,
        "from": method.message if method else None,
        "process_m": method.process_m if method else None,
        "devices": found.devices,
        "idle_share": share,
        "terms_step": {name: span_content(term) for name, term in step.terms.items()} if step else {},
        "step_at_most": found.most_step_j,
        "limit_w": found.limit_w,
        "missing": list(found.missing),
        "notes": list(found.notes),
    }  # fmt: skip


BASES_BY_TRUST = ("measured", "published", "simulated", "modelled", "committed", "estimated", "assumed")
INTERVAL_MEANING = (
    "repeats on the stated machine with the stated software; not other software, batch, precision or problem, "
    "nor excluded terms"
)


def span_content(span: Span | None) -> dict[str, float] | None:
    """Put a span in the form of the JSON output; None where it is unknown."""
    return None if span is None else {"value": span.value, "low": span.low, "high": span.high}


def fact_content(fact: Fact | None, scale: float = 1.0) -> dict[str, Any] | None:
    """Put a fact in the form of the JSON output, ``scale`` times its SI value; None where it is unknown."""
    if fact is None:
        return None
    ends = {name: getattr(fact, name) * scale for name in ("value", "low", "high")}
    return {**ends, "basis": fact.basis, "source": fact.source}


def price_content(price: Price | None) -> dict[str, Any] | None:
    """Put a price in the form of the JSON output, by the hour; None where there is none."""
    fact = fact_content(price.per_s if price else None, UNITS["time_s"]["h"])
    if price is None or fact is None:
        return None
    return {**fact, "currency": price.currency, "per": price.per, "date": price.date}


def curve_content(curve: EpochsToTarget) -> dict[str, Any]:
    """Put what a curve of epochs says of itself in the form of the JSON output."""
    batches = list(curve.epochs)
    return {"metric": curve.metric, "target": curve.target, "covers": [batches[0], batches[-1]],
            "source": curve.source}  # fmt: skip


def evidence_of(machine: Machine) -> str:
    """Say in two words what the machine is known by."""
    if len(machine.timings):
        return "timing table" if machine.device.peaks else "timing table only"
    return "datasheet only"


def _terms(estimate: Estimate) -> dict[str, Any]:
    step, run = estimate.step_time, estimate.run_time
    return {
        "passes_s": {name: span_content(span) for name, span in step.passes.items()},
        "device_s": span_content(step.device_s),
        "host_launch_s": span_content(step.host_launch_s),
        "input_s": span_content(step.input_s),
        "steps_per_epoch": run.steps_per_epoch,
        "partial_step": run.partial_step,
        "validation_s": span_content(run.validation_s),
        "start_up_s": span_content(run.startup_s),
    }


def job_content(estimate: Estimate) -> dict[str, Any] | None:
    """Put the step of a run on several devices in plain form; None on one device."""
    step = estimate.job
    if step is None:
        return None
    from fomkit.parallel.layout import describe_layout  # most work has none

    return {
        "devices": step.devices,
        "nodes": estimate.machine.nodes_of(step.devices) or None,
        "layout": describe_layout(step.layout),
        "replicas": step.replicas,
        "batch": step.samples,
        "microbatches": step.microbatches,
        "runs_at_once": estimate.runs_at_once,
        "step_s": span_content(step.wall_s),
        "compute_s": span_content(step.compute_s),
        "busy_s": span_content(step.busy_s),
        "exposed_s": span_content(step.exposed_s),
        "bubble_s": span_content(step.bubble_s),
        "run_s": span_content(estimate.run_time.run_s),
        "coverage": dict(step.coverage),
        "notes": list(step.notes),
    }


OF_ALL = 0.995
"""Share of a time that is said as 100 %."""
Said = tuple[Literal["modelled", "stated", "not considered"], str]


def _utilisation(estimate: Estimate) -> tuple[float, float]:
    """Give the share of the device's time that its traffic bounds, and what the floors are of it; NaN unknown."""
    if "timed" not in estimate.detail.made:  # of several devices, or of the forward pass alone
        return np.nan, np.nan
    rows, priced = estimate.timed.rows, estimate.timed.priced
    seconds = rows.ops.seconds[0, :, 0]
    floor_s = bounds(priced.rows, estimate.machine).floor_s * priced.executions[:, 0]
    known = np.isfinite(floor_s) & (seconds > 0)
    traffic = seconds[[bound == "memory" for bound in rows.bounds]].sum()
    with np.errstate(invalid="ignore"):
        return float(traffic / seconds.sum()), float(floor_s[known].sum() / seconds[known].sum())


def _libraries(timings: pd.DataFrame) -> list[str]:
    """Name the libraries of timings, with versions, those of most rows first."""
    words = [timings[name].fillna("").astype("str") for name in ("library", "library_version") if name in timings]
    if len(words) < 2 or timings.empty:
        return []
    found = words[0].str.cat(words[1], sep=" ")[words[1] != ""]
    return [str(name) for name in found.value_counts().index]


def _versions(estimate: Estimate, tabled: float) -> Said:
    traced = estimate.model.traced_with
    framework = f"{traced.get('framework') or 'an unnamed framework'} {traced.get('version', '')}".rstrip()
    timings = estimate.machine.timings
    known = cached(timings, None, "libraries", partial(_libraries, timings)) if tabled else []
    ops = f"ops as {framework} runs them"
    if not known:
        why = (
            "no timing here states its library's version"
            if tabled
            else "the time rests on no timing of this machine"
        )
        return "not considered", f"{ops}; {why}"
    more = f" and {len(known) - 2} more" if len(known) > 2 else ""
    return "stated", f"{ops}; timings of {' and '.join(known[:2])}{more}; what other versions change is in no term"


def conditions_content(estimate: Estimate) -> dict[str, dict[str, str]]:
    """Say of each source of a time's variability whether it is modelled or stated, and by what, or left out."""
    machine, step, shares = estimate.machine, estimate.step_time, estimate.coverage
    tabled = sum(shares[name] for name in TABLES)
    by_traffic, utilisation = _utilisation(estimate)
    rate = machine.device.byte_per_s
    bandwidth: Said = ("not considered", f"nobody states it; timings behind {tabled:.0%} of the time contain it")
    if rate is not None:
        bound = "" if np.isnan(by_traffic) else f"; traffic bounds {by_traffic:.0%} of the device's time"
        bandwidth = ("modelled", f"{format_quantity(rate.value, 'byte_per_s')}, {rate.basis}{bound}")
    reached = "" if np.isnan(utilisation) else f", {utilisation:.0%} over the step"
    devices = 1 if estimate.job is None else estimate.job.devices
    alone = f"a run has {devices:,} devices" if devices > 1 else "a run has a device"
    sizes = ", ".join(f"{name} {size:,}" for name, size in estimate.sizes.items()) or "those of the profile"
    resized = estimate.model.resized(estimate.sizes)
    traced = ", ".join(f"{name} {estimate.model.sizes.get(name, 'unknown')}" for name in resized)
    reuse: Said = ("not considered", "each op moves its operands once between device and memory")
    if tabled:
        wider = "; the interval holds what caches change in a step" if uses_of(machine) else ""
        rest = "; elsewhere operands move once" if tabled < OF_ALL else ""
        reuse = ("modelled", f"as in the timings behind {tabled:.0%} of the time{rest}{wider}")
    loaded: Said = ("not considered", "nobody states what loading this step's data takes; it is left out")
    if INPUT not in estimate.excludes:
        own = step.input_s
        loaded = (
            "stated",
            "in the step's time" if own is None else f"{format_quantity(own.value, 'time_s')} a step",
        )
    found: dict[str, Said] = {
        "bandwidth": bandwidth,
        "occupancy": ("modelled", f"each op at its own share of the device's rates{reached}; {alone} to itself"),
        "sizes": ("modelled", f"each op at {sizes}{f', traced at {traced}' if traced else ''}"),
        "reuse": reuse,
        "input": loaded,
        "versions": _versions(estimate, tabled),
    }
    return {name: {"is": how, "what": what} for name, (how, what) in found.items()}


def estimate_content(estimate: Estimate, reference: Estimate | None = None) -> dict[str, Any]:
    """Put one estimate in the form of an entry of ``models``, with its ratio to a reference where there is one."""
    content: dict[str, Any] = {
        "model": estimate.model.name,
        "target": estimate.machine.name,
        "evidence": evidence_of(estimate.machine),
        "party": estimate.machine.party,
        **({"device_of": estimate.machine.device_of} if estimate.machine.device_of else {}),
        "batch": estimate.sizes.get("batch"),
        "sizes": dict(estimate.sizes),
        "precision": estimate.precision,
        "precision_means": estimate.formats.message,
        "scope": estimate.scope,
        "runs_at_once": estimate.runs_at_once,
        "unit": estimate.model.unit.name,
        "step_s": span_content(estimate.step),
        "epoch_s": span_content(estimate.run_time.epoch_s),
        "run_s": span_content(estimate.run_time.run_s),
        "unit_per_day": span_content(estimate.unit_per_day),
        "energy_j": energy_content(estimate),
        "terms": _terms(estimate),
        "coverage": dict(estimate.coverage),
        "bound": estimate.step_time.bound,
        "fits": estimate.fit.fits,
        "excludes": list(estimate.excludes),
        "deviations": list(estimate.deviations),
        "conditions": conditions_content(estimate),
        **({} if estimate.job is None else {"job": job_content(estimate)}),
    }
    if reference is not None:
        ours, theirs = estimate.unit_per_day, reference.unit_per_day
        step = divide_independent(reference.step, estimate.step)
        ratio = divide_independent(ours, theirs) if ours is not None and theirs is not None else step
        content["ratio"] = {
            "baseline": reference.machine.name,
            "of": "steps per second" if ours is None else "units per day",
            **(span_content(ratio) or {}),
        }
    return content
