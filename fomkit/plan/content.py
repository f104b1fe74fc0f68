"""An estimate as plain content: what JSON, terminal and page all show."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, overload

import numpy as np

from fomkit.core.interval import Span, divide_independent, left_out_alone
from fomkit.core.machine import Fact, Machine, Price
from fomkit.core.model import CACHE, OF_SIZES
from fomkit.core.units import UNITS, format_quantity
from fomkit.ops.tables import SOURCES
from fomkit.plan.coverage import TABLES, uses_of
from fomkit.plan.energy import Spent, energy_of_estimate
from fomkit.plan.step import INPUT, Ops, ops_of
from fomkit.prediction.estimates import cached
from fomkit.prediction.rates import bounds

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.model import EpochsToTarget, ModelProfile
    from fomkit.plan.estimate import Estimate


Range = TypedDict("Range", {"low": float, "high": float})
Ends = TypedDict("Ends", {"value": float, "low": float, "high": float})
MaybeEnds = TypedDict("MaybeEnds", {"value": float, "low": float | None, "high": float | None})
AnyEnds = Ends | MaybeEnds
Stated = TypedDict("Stated", {"value": float, "low": float, "high": float, "basis": str, "source": str})
Priced = TypedDict("Priced", {"value": float, "low": float, "high": float, "basis": str, "source": str,
                              "currency": str, "per": str, "date": str})  # fmt: skip
Targeted = TypedDict("Targeted", {"metric": str, "target": float, "covers": list[int], "source": str})
EnergyUsed = TypedDict("EnergyUsed", {
    "step": Ends | None, "epoch": Ends | None, "run": Ends | None, "unit": Ends | None, "scope": str | None,
    "basis": str | None, "method": str | None, "from": str | None, "process_m": float | None, "devices": int,
    "idle_share": float | None, "terms_step": dict[str, Ends], "step_at_most": float | None,
    "limit_w": float | None, "missing": list[str], "notes": list[str],
})  # fmt: skip
Terms = TypedDict("Terms", {
    "passes_s": dict[str, Ends], "device_s": Ends, "host_launch_s": Ends | None, "input_s": Ends | None,
    "steps_per_epoch": int | None, "partial_step": bool, "validation_s": Ends | None, "start_up_s": Ends | None,
})  # fmt: skip
OfJob = TypedDict("OfJob", {
    "devices": int, "nodes": int | None, "layout": str, "replicas": int, "batch": int, "microbatches": int,
    "runs_at_once": int, "step_s": Ends, "compute_s": Ends, "busy_s": Ends, "exposed_s": Ends, "bubble_s": Ends,
    "run_s": Ends | None, "coverage": dict[str, float], "notes": list[str],
})  # fmt: skip
Condition = TypedDict("Condition", {"is": Literal["modelled", "stated", "not considered"], "what": str})
Compared = TypedDict("Compared", {"baseline": str, "of": str, "value": float, "low": float, "high": float,
                                  "excludes_alone": dict[str, list[str]]})  # fmt: skip
Estimated = TypedDict("Estimated", {
    "model": str, "target": str, "evidence": str, "party": str, "device_of": NotRequired[str],
    "token_per_s": NotRequired[Ends],
    "batch": int | None, "sizes": dict[str, int], "precision": str, "precision_means": str, "scope": str,
    "runs_at_once": int, "unit": str, "step_s": Ends, "epoch_s": Ends | None, "run_s": Ends | None,
    "unit_per_day": Ends | None, "energy_j": EnergyUsed | None, "terms": Terms, "coverage": dict[str, float],
    "bound": str, "fits": bool | None, "excludes": list[str], "deviations": list[str],
    "conditions": dict[str, Condition], "job": NotRequired[OfJob], "ratio": NotRequired[Compared],
})  # fmt: skip


def _span(spent: Spent | None) -> Ends | None:
    return None if spent is None else span_content(spent.energy_j)


def energy_content(estimate: Estimate) -> EnergyUsed | None:
    """Put the energy of an estimate in the form of the block ``energy_j``; None where the machine states none."""
    found, stated = energy_of_estimate(estimate), estimate.machine.energy
    if found is None:
        return None
    method, step = found.method, found.step
    share = step.terms["idle power"].value / step.energy_j.value if step and "idle power" in step.terms else None
    return {
        "step": _span(step), "epoch": _span(found.epoch), "run": _span(found.run), "unit": _span(found.unit),
        "scope": method.scope if method else stated.scope if stated else None,
        "basis": method.basis if method else None, "method": method.name if method else None,
        "from": method.message if method else None, "process_m": method.process_m if method else None,
        "devices": found.devices, "idle_share": share,
        "terms_step": {name: span_content(term) for name, term in step.terms.items()} if step else {},
        "step_at_most": found.most_step_j, "limit_w": found.limit_w, "missing": list(found.missing),
        "notes": list(found.notes),
    }  # fmt: skip


BASES_BY_TRUST = ("measured", "published", "simulated", "modelled", "committed", "estimated", "assumed")
INTERVAL_MEANING = (
    "repeats on the stated machine with the stated software; not other software, batch, precision or problem, "
    "nor excluded terms"
)


def known_number(value: float) -> float | None:
    """Give a number as JSON has it; None where it is unknown, NaN in tables."""
    return None if isnan(value) else float(value)


@overload
def span_content(span: Span) -> Ends: ...
@overload
def span_content(span: Span | None) -> Ends | None: ...
def span_content(span: Span | None) -> Ends | None:
    """Put a span in the form of the JSON output; None where it is unknown."""
    return None if span is None else {"value": span.value, "low": span.low, "high": span.high}


@overload
def stated_content(span: Span) -> MaybeEnds: ...
@overload
def stated_content(span: Span | None) -> MaybeEnds | None: ...
def stated_content(span: Span | None) -> MaybeEnds | None:
    """Put a span in the form of the JSON output, without ends where nobody stated a spread.

    >>> stated_content(Span(2.0, 2.0, 2.0))
    {'value': 2.0, 'low': None, 'high': None}
    """
    if span is None:
        return None
    low, high = (span.low, span.high) if span.low < span.high else (None, None)
    return {"value": span.value, "low": low, "high": high}


@overload
def fact_content(fact: Fact, scale: float = 1.0) -> Stated: ...
@overload
def fact_content(fact: Fact | None, scale: float = 1.0) -> Stated | None: ...
def fact_content(fact: Fact | None, scale: float = 1.0) -> Stated | None:
    """Put a fact in the form of the JSON output, ``scale`` times its SI value; None where it is unknown."""
    if fact is None:
        return None
    return {"value": fact.value * scale, "low": fact.low * scale, "high": fact.high * scale,
            "basis": fact.basis, "source": fact.source}  # fmt: skip


def price_content(price: Price) -> Priced:
    """Put a price in the form of the JSON output, by the hour."""
    return {**fact_content(price.per_s, UNITS["time_s"]["h"]), "currency": price.currency, "per": price.per,
            "date": price.date}  # fmt: skip


def curve_content(curve: EpochsToTarget) -> Targeted:
    """Put what a curve of epochs says of itself in the form of the JSON output."""
    batches = list(curve.epochs)
    return {"metric": curve.metric, "target": curve.target, "covers": [batches[0], batches[-1]],
            "source": curve.source}  # fmt: skip


def evidence_of(machine: Machine, coverage: Mapping[str, float] | None = None) -> str:
    """Say in two words what the machine is known by, or what an estimate of this coverage rests on."""
    if len(machine.timings) and (coverage is None or any(coverage[name] > 0 for name in TABLES)):
        return "timing table" if machine.device.peaks else "timing table only"
    return "datasheet only"


def _terms(estimate: Estimate) -> Terms:
    step, run = estimate.step_time, estimate.run_time
    return {
        "passes_s": {name: span_content(span) for name, span in step.passes.items()},
        "device_s": span_content(step.device_s), "host_launch_s": span_content(step.host_launch_s),
        "input_s": span_content(step.input_s), "steps_per_epoch": run.steps_per_epoch,
        "partial_step": run.partial_step, "validation_s": span_content(run.validation_s),
        "start_up_s": span_content(run.startup_s),
    }  # fmt: skip


def job_content(estimate: Estimate) -> OfJob | None:
    """Put the step of a run on several devices in plain form; None on one device."""
    step = estimate.job
    if step is None:
        return None
    from fomkit.parallel.layout import describe_layout  # most work has none

    return {
        "devices": step.devices, "nodes": estimate.machine.nodes_of(step.devices) or None,
        "layout": describe_layout(step.layout), "replicas": step.replicas, "batch": step.samples,
        "microbatches": step.microbatches, "runs_at_once": estimate.runs_at_once,
        "step_s": span_content(step.wall_s), "compute_s": span_content(step.compute_s),
        "busy_s": span_content(step.busy_s), "exposed_s": span_content(step.exposed_s),
        "bubble_s": span_content(step.bubble_s), "run_s": span_content(estimate.run_time.run_s),
        "coverage": dict(step.coverage), "notes": list(step.notes),
    }  # fmt: skip


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


def _behind(estimate: Estimate, ops: Ops) -> tuple[float, float]:
    """Give the shares of the time behind which timings of ops stand, and measured rows of them alone."""
    shares, step = estimate.coverage, estimate.step_time
    if estimate.job is None:
        return sum(shares[name] for name in TABLES), shares["measured"]
    seconds, measured = ops.seconds[0], ops.sources == SOURCES["measured"]  # coverage holds measured links too
    scale = step.device_s.value / (step.wall_s.value * float(seconds.sum()) or 1.0)
    return float(seconds[ops.of_table].sum() * scale), float(seconds[measured].sum() * scale)


def _beside_work(estimate: Estimate) -> str:
    """Say what a step is made of beside the device's work; "" where that is all."""
    step, job = estimate.step_time, estimate.job
    worked, whole, extra = step.device_s.value, step.wall_s.value, step.extra_s.value
    late = {"launch": "launches", "input": "input"}.get(step.bound)
    found = {"overheads": extra, **({late: whole - worked - extra} if late else {})}
    if job is not None:
        found |= {"links": job.exposed_s.value, "other stages": job.bubble_s.value}
    said = [f"{spent / whole:.0%} {name}" for name, spent in found.items() if spent > (1 - OF_ALL) * whole]
    return f"; of a step {worked / whole:.0%} is work, {', '.join(said)}" if said else ""


def _libraries(timings: pd.DataFrame, kinds: frozenset[str]) -> list[str]:
    """Name the libraries of timings of some kinds, with versions, those of most rows first."""
    words = [timings[name].fillna("").astype("str") for name in ("library", "library_version") if name in timings]
    if len(words) < 2 or timings.empty:
        return []
    found = words[0].str.cat(words[1], sep=" ")[(words[1] != "") & timings["kind"].isin(kinds)]
    return [str(name) for name in found.value_counts().index]


def _versions(estimate: Estimate, ops: Ops) -> Said:
    traced, timings = estimate.model.traced_with, estimate.machine.timings
    framework = f"{traced.get('framework') or 'an unnamed framework'} {traced.get('version', '')}".rstrip()
    kinds = frozenset(kind for kind, tabled in zip(ops.kinds, ops.of_table[:, 0], strict=True) if tabled)
    if not kinds <= set(timings["kind"]) and len(estimate.model.parts):  # such ops are timed by their parts
        kinds |= frozenset(estimate.model.parts["kind"])
    known = cached(timings, None, f"libraries of {sorted(kinds)}", partial(_libraries, timings, kinds))
    said = f"ops as {framework} runs them"
    if not known:
        unknown = "no timing here states its library's version"
        return "not considered", f"{said}; {unknown if kinds else 'the time rests on no timing of this machine'}"
    of = " and ".join([*known[:2], *([f"{len(known) - 2} more"] if len(known) > 2 else [])])
    return "stated", f"{said}; timings of {of}; what other versions change is in no term"


def _runs_both_ways(model: ModelProfile) -> bool:
    """Tell whether a recurrent layer runs backwards too: timings are of one way, and libraries may join two."""
    return any(str(ways).removesuffix(".0") == "2" for ways in model.ops.get("directions", ()))


def _said_of_rates(estimate: Estimate, tabled: float, measured: float) -> tuple[Said, Said]:
    """Say how a time comes from the bandwidth and from the share of the rates that ops reach."""
    by_traffic, utilisation = _utilisation(estimate)
    rate, devices = estimate.machine.device.byte_per_s, 1 if estimate.job is None else estimate.job.devices
    contain = f"timings behind {tabled:.0%} of the time contain it"
    bandwidth: Said = ("not considered", f"nobody states it; {contain}")
    if rate is not None:
        bandwidth = ("modelled", f"{format_quantity(rate.value, 'byte_per_s')}, {rate.basis}")
        if measured >= OF_ALL:
            bandwidth = ("not considered", f"{contain}; {bandwidth[1]}, is in no term")
        elif not np.isnan(by_traffic):
            bandwidth = ("modelled", f"{bandwidth[1]}; traffic bounds {by_traffic:.0%} of the device's time")
    reached = "" if np.isnan(utilisation) else f", {utilisation:.0%} over the step"
    known = f"as in measured rows behind {measured:.0%} of the time" if measured > 1 - OF_ALL else ""
    own = "each op at its own share of the device's rates" if measured < OF_ALL else ""
    each = ", else ".join(filter(None, [known, own]))
    alone = f"a run has {devices:,} devices" if devices > 1 else "a run has a device"
    turns = "; both ways of a recurrent layer run one after the other" if _runs_both_ways(estimate.model) else ""
    return bandwidth, ("modelled", f"{each}{reached}{_beside_work(estimate)}{turns}; {alone} to itself")


def _said_of_sizes(estimate: Estimate) -> Said:
    sizes, model, job, whose = dict(estimate.sizes), estimate.model, estimate.job, ""
    if job is not None:
        sizes["batch"], each = job.samples // job.replicas // job.microbatches, f"{job.microbatches:,}"
        whose = f", a microbatch on one of {job.devices:,} devices; a step has {each} for each replica"
    listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items()) or "those of the profile"
    resized = model.resized(sizes) if model.transformer is None else ()
    traced = ", ".join(f"{name} {model.sizes.get(name, 'unknown')}" for name in resized)
    return "modelled", f"each op at {listed}{f', traced at {traced}' if traced else ''}{whose}"


def conditions_content(estimate: Estimate) -> dict[str, Condition]:
    """Say of each source of a time's variability whether it is modelled or stated, and by what, or left out."""
    ops = estimate.timed.rows.ops if "timed" in estimate.detail.made else ops_of(estimate.ops)
    tabled, measured = _behind(estimate, ops)
    bandwidth, occupancy = _said_of_rates(estimate, tabled, measured)
    reuse: Said = ("not considered", "each op moves its operands once between device and memory")
    if tabled:
        wider = "; the interval holds what caches change in a step" if uses_of(estimate.machine) else ""
        rest = "; elsewhere operands move once" if tabled < OF_ALL else ""
        reuse = ("modelled", f"as in the timings behind {tabled:.0%} of the time{rest}{wider}")
    loaded: Said = ("not considered", "nobody states what loading this step's data takes; it is left out")
    if INPUT not in estimate.excludes:
        own = estimate.step_time.input_s
        told = "in the step's time" if own is None else f"{format_quantity(own.value, 'time_s')} a step"
        loaded = ("stated", told)
    found = {"bandwidth": bandwidth, "occupancy": occupancy, "sizes": _said_of_sizes(estimate), "reuse": reuse,
             "input": loaded, "versions": _versions(estimate, ops)}  # fmt: skip
    return {name: {"is": how, "what": what} for name, (how, what) in found.items()}


def token_per_s(estimate: Estimate) -> Span | None:
    """Give the tokens that one device trains on, reads or makes; None but of a transformer by its sizes [1/s]."""
    sizes, job = estimate.sizes, estimate.job
    if estimate.model.traced_with.get("device") != OF_SIZES or not sizes.keys() & {CACHE, "seq"}:
        return None
    samples, devices = (sizes["batch"], 1) if job is None else (job.samples, job.devices)
    return estimate.step.per(samples * (1 if CACHE in sizes else sizes["seq"]) / devices)


def estimate_content(estimate: Estimate, reference: Estimate | None = None) -> Estimated:
    """Put one estimate in the form of an entry of ``models``, with its ratio to a reference where there is one."""
    content: Estimated = {
        "model": estimate.model.name, "target": estimate.machine.name,
        "evidence": evidence_of(estimate.machine, estimate.coverage),
        "party": estimate.machine.party, "device_of": estimate.machine.device_of,
        "batch": estimate.sizes.get("batch"), "sizes": dict(estimate.sizes), "precision": estimate.precision,
        "precision_means": estimate.formats.message, "scope": estimate.scope,
        "runs_at_once": estimate.runs_at_once, "unit": estimate.model.unit.name,
        "step_s": span_content(estimate.step), "epoch_s": span_content(estimate.run_time.epoch_s),
        "run_s": span_content(estimate.run_time.run_s), "unit_per_day": span_content(estimate.unit_per_day),
        "energy_j": energy_content(estimate), "terms": _terms(estimate), "coverage": dict(estimate.coverage),
        "bound": estimate.step_time.bound, "fits": estimate.fit.fits, "excludes": list(estimate.excludes),
        "deviations": list(estimate.deviations), "conditions": conditions_content(estimate),
    }  # fmt: skip
    if (tokens := token_per_s(estimate)) is not None:
        content["token_per_s"] = span_content(tokens)
    if not estimate.machine.device_of:
        del content["device_of"]
    if (job := job_content(estimate)) is not None:
        content["job"] = job
    if reference is not None:
        ours, theirs = estimate.unit_per_day, reference.unit_per_day
        step = divide_independent(reference.step, estimate.step)
        ratio = divide_independent(ours, theirs) if ours is not None and theirs is not None else step
        content["ratio"] = {
            "baseline": reference.machine.name,
            "of": "steps per second" if ours is None else "units per day",
            **span_content(ratio),
            "excludes_alone": left_out_alone(
                [((reference.machine.name, reference.excludes), (estimate.machine.name, estimate.excludes))]
            ),
        }
    return content
