"""The JSON content of an estimate: its typed dictionaries, and the functions that fill them.

`estimate_content` makes the entry of one estimate; `as_content` converts objects to a typed dictionary.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, TypeVar

import numpy as np

from fomkit.core.interval import Span, divide, left_out_alone, share_that_cancels
from fomkit.core.machine import Machine, Price
from fomkit.core.model import CACHE, OF_SIZES
from fomkit.core.units import UNITS, count_text, format_quantity
from fomkit.ops.columns import cached
from fomkit.ops.tables import SOURCES
from fomkit.plan.coverage import STEP, TABLES, VERSIONS_SPREAD, runs_software, uses_of
from fomkit.plan.energy import Spent, energy_of_estimate
from fomkit.plan.step import INPUT, Ops, ops_of
from fomkit.prediction.rates import bounds

if TYPE_CHECKING:
    import pandas as pd

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
    "run_at_most": float | None, "limit_w": float | None, "missing": list[str], "notes": list[str],
})  # fmt: skip
Terms = TypedDict("Terms", {
    "passes_s": dict[str, Ends], "device_s": Ends, "host_launch_s": Ends | None, "paced_s": Ends | None,
    "input_s": Ends | None,
    "steps_per_epoch": int | None, "partial_step": bool, "validation_s": Ends | None, "start_up_s": Ends | None,
})  # fmt: skip
OfJob = TypedDict("OfJob", {
    "devices": int, "nodes": int | None, "layout": str, "replicas": int, "batch": int, "microbatches": int,
    "runs_at_once": int, "step_s": Ends, "compute_s": Ends, "busy_s": Ends, "exposed_s": Ends, "bubble_s": Ends,
    "run_s": Ends | None, "coverage": dict[str, float], "notes": list[str],
})  # fmt: skip
Part = TypedDict("Part", {"devices": int, "nodes": int | None, "layout": str, "replicas": int, "batch": int,
                          "microbatch": int, "microbatches": int})  # fmt: skip
"""The part of a job of which a device's memory or time is shown."""
Condition = TypedDict("Condition", {"is": Literal["modelled", "stated", "not considered"], "what": str})
Compared = TypedDict("Compared", {"baseline": str, "of": str, "value": float, "low": float, "high": float,
                                  "excludes_alone": dict[str, list[str]],
                                  "errors_cancel": NotRequired[float]})  # fmt: skip
Estimated = TypedDict("Estimated", {
    "model": str, "target": str, "evidence": str, "party": str, "device_of": NotRequired[str],
    "token_per_s": NotRequired[Ends],
    "batch": int | None, "sizes": dict[str, int], "precision": str, "precision_means": str, "scope": str,
    "runs_at_once": int, "unit": str, "step_s": Ends, "epoch_s": Ends | None, "run_s": Ends | None,
    "unit_per_day": Ends | None, "energy_j": EnergyUsed | None, "terms": Terms, "coverage": dict[str, float],
    "bound": str, "fits": bool | None, "excludes": list[str], "deviations": list[str],
    "conditions": dict[str, Condition], "job": NotRequired[OfJob], "ratio": NotRequired[Compared],
})  # fmt: skip


def energy_content(estimate: Estimate) -> EnergyUsed | None:
    """Return the block ``energy_j`` of an estimate; None where the machine profile states no energy."""
    found, stated = energy_of_estimate(estimate), estimate.machine.energy
    if found is None:
        return None
    method, step = found.method, found.step
    spent: Mapping[str, Spent | None] = {"step": step, "epoch": found.epoch, "run": found.run, "unit": found.unit}
    share = step.terms["idle power"].value / step.energy_j.value if step and "idle power" in step.terms else None
    return as_content(
        EnergyUsed, {name: one and one.energy_j for name, one in spent.items()}, found,
        **{"from": method and method.message}, process_m=method and method.process_m,
        scope=method.scope if method else stated.scope if stated else None, basis=method and method.basis,
        method=method and method.name, idle_share=share, terms_step=step.terms if step else {},
        step_at_most=found.most_step_j, run_at_most=found.most_run_j,
    )  # fmt: skip


BASES_BY_TRUST = ("measured", "published", "simulated", "modelled", "committed", "estimated", "assumed")
INTERVAL_MEANING = (
    "repeats on the stated machine with the stated software; other software, batch sizes, precisions or "
    "problems, and excluded terms, are not covered"
)

Content = TypeVar("Content")
_NOTHING = object()


@cache
def _converter_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that converts a value to the type of a key; converted values stay as they are."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is MaybeEnds:
        return lambda value: value if isinstance(value, Mapping) else stated_content(value)
    if typing.is_typeddict(kind):
        return lambda value: value if isinstance(value, Mapping) else as_content(kind, value)
    if type(None) in inner:  # a union of three types needs no conversion
        put = _converter_of(inner[0]) if len(inner) == 2 else lambda value: value
        return lambda value: None if value is None or value == "" or value != value else put(value)
    if origin is list:
        put = _converter_of(inner[0])
        return lambda values: [put(value) for value in values]
    if origin in (dict, Mapping):
        put = _converter_of(inner[1])
        return lambda values: {name: put(value) for name, value in values.items()}
    return lambda value: float(value) if kind is float and isinstance(value, np.floating) else value


@cache
def _key_converters(kind: Any) -> Mapping[str, Callable[[Any], Any]]:
    return {key: _converter_of(one) for key, one in typing.get_type_hints(kind).items()}


def as_content(kind: type[Content], /, *nouns: object, **given: object) -> Content:
    """Convert nouns to a form of the JSON output: its keys in their order, each value converted to the key's type.

    The value of a key is the one in `given`, else the attribute or key of that name in the first noun that has it.
    Where a key may be None, "" and NaN (unknown) become None. An optional key without a value, or with None, is
    left out. A TypeError is raised where a required key has no value, or `given` has a key that the form lacks.

    >>> as_content(Range, Span(2.0, 1.0, 4.0))
    {'low': 1.0, 'high': 4.0}
    """
    form, content = typing.cast("Any", kind), dict[str, object]()
    if unknown := [key for key in given if key not in _key_converters(form)]:
        raise TypeError(f"{form.__name__}: has no {', '.join(unknown)}")
    for key, put in _key_converters(form).items():
        held = (noun.get(key, _NOTHING) if isinstance(noun, Mapping) else getattr(noun, key, _NOTHING)
                for noun in (given, *nouns))  # fmt: skip
        value = next((one for one in held if one is not _NOTHING), _NOTHING)
        if key in form.__optional_keys__ and (value is None or value is _NOTHING):
            continue
        if value is _NOTHING:
            raise TypeError(f"{form.__name__}: nothing is given for {key!r}, and no noun has it")
        content[key] = put(value)
    return typing.cast("Content", content)


def span_content(span: Span) -> Ends:
    """Convert a span to the form of the JSON output."""
    return as_content(Ends, span)


def stated_content(span: Span) -> MaybeEnds:
    """Convert a span to the form of the JSON output, with low and high None where no spread is stated.

    >>> stated_content(Span(2.0, 2.0, 2.0))
    {'value': 2.0, 'low': None, 'high': None}
    """
    low, high = (span.low, span.high) if span.low < span.high else (None, None)
    return {"value": span.value, "low": low, "high": high}


def price_content(price: Price) -> Priced:
    """Convert a price to the form of the JSON output, per hour."""
    return as_content(Priced, price.per_s.scaled(UNITS["time_s"]["h"]), price)


def evidence_of(machine: Machine, coverage: Mapping[str, float] | None = None) -> str:
    """Name in two or three words the evidence for a machine, or for an estimate on it with this coverage."""
    if not len(machine.timings):
        return "datasheet only"
    if coverage is None or any(coverage[name] > 0 for name in TABLES):
        return "timing table" if machine.device.peaks else "timing table only"
    return "datasheet; its timings not used"


def job_content(estimate: Estimate) -> OfJob | None:
    """Return the JSON block of a step on several devices; None on one device."""
    step = estimate.job
    if step is None:
        return None
    from fomkit.parallel.step import describe_layout  # imported here because most estimates have no layout

    return as_content(
        OfJob, step, nodes=estimate.machine.nodes_of(step.devices) or None, layout=describe_layout(step.layout),
        batch=step.samples, runs_at_once=estimate.runs_at_once, step_s=step.wall_s, run_s=estimate.run_time.run_s,
    )  # fmt: skip


OF_ALL = 0.995
"""Share of a time from which on it counts as the whole, 100 %."""
ConditionText = tuple[Literal["modelled", "stated", "not considered"], str]


def _utilisation(estimate: Estimate) -> tuple[float, float]:
    """Return the share of device time bounded by traffic, and the ratio of floors to time; NaN if unknown."""
    if estimate.detail.timed is None:
        return np.nan, np.nan
    rows, priced = estimate.timed.rows, estimate.timed.priced
    seconds = rows.ops.seconds[0, :, 0]
    floor_s = bounds(priced.rows, estimate.machine).floor_s * priced.executions[:, 0]
    known = np.isfinite(floor_s) & (seconds > 0)
    traffic = seconds[[bound == "memory" for bound in rows.bounds]].sum()
    with np.errstate(invalid="ignore"):
        return float(traffic / seconds.sum()), float(floor_s[known].sum() / seconds[known].sum())


def _other_terms_text(estimate: Estimate) -> str:
    """Describe the terms of a step beside the device's work; "" where there are none."""
    step, job = estimate.step_time, estimate.job
    device_s, whole, extra = step.device_s.value, step.wall_s.value, step.extra_s.value
    late = {"launch": "launches", "input": "input"}.get(step.bound)
    found = {"overheads": extra, **({late: whole - device_s - extra} if late else {})}
    if job is not None:
        found |= {"links": job.exposed_s.value, "other stages": job.bubble_s.value}
    parts = [f"{spent / whole:.0%} {name}" for name, spent in found.items() if spent > (1 - OF_ALL) * whole]
    return f"; {device_s / whole:.0%} of a step is work, {', '.join(parts)}" if parts else ""


def _libraries(timings: pd.DataFrame, kinds: frozenset[str]) -> list[str]:
    """Name the libraries of the timings of these kinds, with versions, those with the most rows first."""
    words = [timings[name].fillna("").astype("str") for name in ("library", "library_version") if name in timings]
    if len(words) < 2 or timings.empty:
        return []
    found = words[0].str.cat(words[1], sep=" ")[(words[1] != "") & timings["kind"].isin(kinds)]
    return [str(name) for name in found.value_counts().index]


def _version_condition(estimate: Estimate, ops: Ops) -> ConditionText:
    traced, timings = estimate.model.traced_with, estimate.machine.timings
    framework = f"{traced.get('framework') or 'an unnamed framework'} {traced.get('version', '')}".rstrip()
    kinds = frozenset(kind for kind, tabled in zip(ops.kinds, ops.of_table[:, 0], strict=True) if tabled)
    if not kinds <= set(timings["kind"]) and len(estimate.model.parts):  # such ops are priced by their parts
        kinds |= frozenset(estimate.model.parts["kind"])
    known = cached(timings, None, f"libraries of {sorted(kinds)}", partial(_libraries, timings, kinds))
    text = f"ops as {framework} runs them"
    if not known:
        unknown = "no timing states the version of its library"
        return "not considered", f"{text}; {unknown if kinds else 'no timing of this machine is used'}"
    of = " and ".join([*known[:2], *([f"{len(known) - 2} more"] if len(known) > 2 else [])])
    effect = "the effect of other versions is not modelled"
    if STEP in uses_of(estimate.machine):
        same = runs_software(timings, estimate.machine.software)
        more = f"the interval includes {VERSIONS_SPREAD:.0%} for other versions"
        effect = "steps run the same, as the machine states" if same else more
    return "stated", f"{text}; timings of {of}; {effect}"


def _rate_conditions(estimate: Estimate, tabled: float, measured: float) -> tuple[ConditionText, ConditionText]:
    """Describe how the time depends on the bandwidth, and on the share of the peak rates that ops reach."""
    by_traffic, utilisation = _utilisation(estimate)
    rate, devices = estimate.machine.device.byte_per_s, 1 if estimate.job is None else estimate.job.devices
    contain = f"the timings used for {tabled:.0%} of the time include it"
    bandwidth: ConditionText = ("not considered", f"not stated; {contain}")
    if rate is not None:
        bandwidth = ("modelled", f"{format_quantity(rate.value, 'byte_per_s')}, {rate.basis}")
        if measured >= OF_ALL:
            bandwidth = ("not considered", f"{contain}; the stated {bandwidth[1]}, is not used")
        elif not np.isnan(by_traffic):
            bandwidth = ("modelled", f"{bandwidth[1]}; traffic bounds {by_traffic:.0%} of the device's time")
    reached = "" if np.isnan(utilisation) else f", {utilisation:.0%} over the step"
    known = f"as in the measured rows used for {measured:.0%} of the time" if measured > 1 - OF_ALL else ""
    own = "each op at its own share of the device's rates" if measured < OF_ALL else ""
    each = ", else ".join(filter(None, [known, own]))
    alone = f"a run has {devices:,} devices" if devices > 1 else "a run has a device"
    # Timings of recurrent layers are of one direction; a library may run two at once.
    both_ways = any(str(ways).removesuffix(".0") == "2" for ways in estimate.model.ops.get("directions", ()))
    order = "; both ways of a recurrent layer run one after the other" * both_ways
    return bandwidth, ("modelled", f"{each}{reached}{_other_terms_text(estimate)}{order}; {alone} to itself")


def _size_condition(estimate: Estimate) -> ConditionText:
    sizes, model, job, replica_text = dict(estimate.sizes), estimate.model, estimate.job, ""
    if job is not None:
        sizes["batch"], each = job.samples // job.replicas // job.microbatches, f"{job.microbatches:,}"
        replica_text = (
            f", a microbatch on one of {count_text(job.devices, 'device')}; a step has {each} for each replica"
        )
    listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items()) or "those of the profile"
    resized = () if model.trains_by_sizes else model.resized(sizes)
    traced = ", ".join(f"{name} {model.sizes.get(name, 'unknown')}" for name in resized)
    return "modelled", f"each op at {listed}{f', traced at {traced}' if traced else ''}{replica_text}"


def conditions_content(estimate: Estimate) -> dict[str, Condition]:
    """State for each source of a time's variability whether it is modelled, stated or left out, and by what."""
    ops = ops_of(estimate.ops) if estimate.detail.timed is None else estimate.timed.rows.ops
    # The shares of the time that rest on timings of ops, and on their measured rows alone.
    tabled, measured = sum(estimate.coverage[name] for name in TABLES), estimate.coverage["measured"]
    if estimate.job is not None:  # its coverage includes measured links, too
        seconds, step = ops.seconds[0], estimate.step_time
        scale = step.device_s.value / (step.wall_s.value * float(seconds.sum()) or 1.0)
        masks = ops.of_table, ops.sources == SOURCES["measured"]
        tabled, measured = (float(seconds[mask].sum() * scale) for mask in masks)
    bandwidth, occupancy = _rate_conditions(estimate, tabled, measured)
    reuse: ConditionText = ("not considered", "each op moves its operands once between device and memory")
    if tabled:
        wider = "; the interval includes the effect of caches in a step" if uses_of(estimate.machine) else ""
        rest = "; elsewhere operands move once" if tabled < OF_ALL else ""
        reuse = ("modelled", f"as in the timings used for {tabled:.0%} of the time{rest}{wider}")
    loaded: ConditionText = ("not considered", "the time to load the step's data is not stated, so it is excluded")
    if INPUT not in estimate.excludes:
        own = estimate.step_time.input_s
        input_text = "in the step's time" if own is None else f"{format_quantity(own.value, 'time_s')} a step"
        loaded = ("stated", input_text)
    found = {"bandwidth": bandwidth, "occupancy": occupancy, "sizes": _size_condition(estimate), "reuse": reuse,
             "input": loaded, "versions": _version_condition(estimate, ops)}  # fmt: skip
    return {name: {"is": how, "what": what} for name, (how, what) in found.items()}


def token_per_s(estimate: Estimate) -> Span | None:
    """Return the tokens that a device trains on, reads or generates [1/s]; None unless priced by sizes."""
    sizes, job, model = estimate.sizes, estimate.job, estimate.model
    seq = 1 if CACHE in sizes else sizes.get("seq", model.transformer.seq if model.transformer else None)
    if model.traced_with.get("device") != OF_SIZES or seq is None:
        return None
    samples, devices = (sizes["batch"], 1) if job is None else (job.samples, job.devices)
    return estimate.step.per(samples * seq / devices)


def estimate_content(estimate: Estimate, reference: Estimate | None = None) -> Estimated:
    """Return the entry of an estimate in ``models``, with its ratio to the reference if one is passed."""
    step, run, model, machine = estimate.step_time, estimate.run_time, estimate.model, estimate.machine
    content = as_content(
        Estimated, estimate, model=model.name, target=machine.name, party=machine.party, job=None,
        evidence=evidence_of(machine, estimate.coverage), device_of=machine.device_of or None,
        batch=estimate.sizes.get("batch"), precision_means=estimate.formats.message, unit=model.unit.name,
        step_s=estimate.step, epoch_s=run.epoch_s, run_s=run.run_s, energy_j=energy_content(estimate),
        terms=as_content(Terms, step, run, passes_s=step.passes, start_up_s=run.startup_s), bound=step.bound,
        fits=estimate.fit.fits,
        conditions=conditions_content(estimate),
    )  # fmt: skip
    if (tokens := token_per_s(estimate)) is not None:
        content["token_per_s"] = span_content(tokens)
    if (job := job_content(estimate)) is not None:
        content["job"] = job
    if reference is not None:
        ours, theirs = estimate.unit_per_day, reference.unit_per_day
        pair = (reference.step, estimate.step) if ours is None or theirs is None else (ours, theirs)
        sides = (reference.machine.name, reference.excludes_in_ratio), (machine.name, estimate.excludes_in_ratio)
        content["ratio"] = as_content(
            Compared, divide(*pair), baseline=reference.machine.name, excludes_alone=left_out_alone([sides]),
            of="steps per second" if ours is None else "units per day",
            errors_cancel=share_that_cancels(*pair) or None,
        )  # fmt: skip
    return content
