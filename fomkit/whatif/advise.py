"""Advice on one model on one machine (``fomkit/advise/1``): use, memory, and the findings of the rules."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypedDict

import numpy as np

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown
from fomkit.core.interval import Span
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.ops.resize import resize_ops
from fomkit.plan.content import INTERVAL_MEANING, Condition, Ends, as_content, conditions_content
from fomkit.plan.coverage import uses_of
from fomkit.plan.estimate import estimate
from fomkit.plan.memory import standing_memory
from fomkit.plan.memory_of import in_formats
from fomkit.plan.options import Options
from fomkit.plan.step import device_time
from fomkit.prediction.rates import rates
from fomkit.whatif.advice_case import WORTH, Case, Finding, State, beats_its_floor, one_at_a_time
from fomkit.whatif.advice_rules import RULES, Rule
from fomkit.whatif.slow_ops import SlowOp

WELL, POORLY = 0.462, 0.213
"""Shares of the peak in large trainings, the highest and the lowest of a published table: PaLM 46.2 %, GPT-3
21.3 % (Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, table 3)."""

Engine = TypedDict("Engine", {"dtype": str, "engine": str, "flop": float, "flop_per_s": float, "basis": str,
                              "source": str})  # fmt: skip
Fastest = TypedDict("Fastest", {"dtype": str, "engine": str, "flop_per_s": float, "source": str,
                                "peak_fraction": Ends | None})  # fmt: skip
Use = TypedDict("Use", {
    "verdict": str, "at_peak_s": float | None, "peak_fraction": Ends | None, "above_peak": str | None,
    "engines": list[Engine], "fastest": Fastest | None, "step_bound": str, "bounds": dict[str, Ends],
})  # fmt: skip
Structure = TypedDict("Structure", {"structure": str, "byte": float, "modules": int, "mostly": str})
Carriers = TypedDict("Carriers", {
    "known": str, "peak_byte": float | None, "roles": dict[str, float], "structures": list[Structure],
    "capacity_byte": float | None, "formats": str,
})  # fmt: skip
Stake = TypedDict("Stake", {"time_s": Ends, "share": Ends, "unit_per_day": Ends | None,
                            "probability": float | None, "at_most": bool})  # fmt: skip
Found = TypedDict("Found", {
    "rule": str, "question": str, "state": State, "urgent": bool, "says": str, "do": str, "sure": str,
    "surety": str | None, "rejected": str, "stake": Stake | None, "column": str, "ops": list[SlowOp],
})  # fmt: skip
Least = TypedDict("Least", {"device_s": float, "share_of_device": float, "share_without_bound": float})
AdviceContent = TypedDict("AdviceContent", {
    "schema": str, "fomkit": str, "model": str, "title": str, "target": str, "sizes": dict[str, int],
    "precision": str, "interval": float, "interval_covers": str, "step_s": Ends, "device_s": Ends,
    "unit_per_day": Ends | None, "unit": str, "coverage": dict[str, float], "excludes": list[str], "use": Use,
    "memory": Carriers, "best": int | None, "least": Least | None, "overlap": str, "findings": list[Found],
    "deviations": list[str], "conditions": dict[str, Condition],
})  # fmt: skip


def _at_peak(case: Case) -> tuple[float, list[Engine]]:
    """Return the time of all products at their engines' peaks [s] (NaN if one is unknown), and the engines."""
    ops = case.ops[case.ops["kind"].isin(PRODUCT_KINDS)]
    found, total_s = list[Engine](), 0.0
    for (dtype, engine), rows in ops.groupby(["dtype", "engine"], observed=True):
        flop = float((rows["flop"] * rows["count"]).sum(skipna=False))
        rate = rates(case.fitted, str(dtype), str(engine)).flop_per_s
        total_s += np.nan if rate is None else flop / rate.value
        if rate is not None:
            found.append(as_content(Engine, rate, dtype=dtype, engine=engine, flop=flop, flop_per_s=rate.value))
    return total_s, sorted(found, key=lambda one: -one["flop"])


def _bounds(case: Case) -> dict[str, Ends]:
    """Return the shares of the step in ops of each bound, and that in which the device waits, with intervals."""
    ops, step = case.before.ops, case.before.step_time
    level, uses = case.before.step.level, uses_of(case.machine)
    names = [str(name) for name in ops.loc[ops["time_s"].notna(), "bound"].unique() if name]
    parts = [device_time(ops[ops["bound"] == name], level, uses) for name in names]
    parts = [part if part.low > 0 else Span.exact(part.value, level) for part in parts]
    other_terms = [span for span in (step.host_term_s, step.input_s) if span is not None]
    all_terms = [*parts, *other_terms, step.extra_s]

    def wall(at: list[float]) -> float:
        device, others, extra = at[: len(parts)], at[len(parts) : -1], at[-1]
        return max(sum(device), *others, 0.0) + extra

    def share_of(place: int, at: list[float]) -> float:
        return at[place] / wall(at)

    shares: dict[str, Ends] = {}
    for place, name in enumerate(names):
        if parts[place].value > 0:
            share = one_at_a_time(all_terms, partial(share_of, place), level)
            shares[name] = {"value": share.value, "low": share.low, "high": min(share.high, 1.0)}
    if case.before.step.value > case.device_s:
        busy = one_at_a_time(all_terms, lambda at: sum(at[: len(parts)]) / wall(at), level)
        shares["waiting"] = {"value": 1 - busy.value, "low": max(0.0, 1 - busy.high), "high": 1 - busy.low}
    return dict(sorted(shares.items(), key=lambda item: -item[1]["value"]))


def use_content(case: Case) -> Use:
    """Return how well the step uses the device: its share of the peak, and the shares of its time by bound."""
    at_peak_s, engines = _at_peak(case)
    step = case.before.step
    share = step.per(at_peak_s) if at_peak_s > 0 else None
    with_fractions = [peak for peak in case.machine.device.peaks if "int" not in peak.dtype]
    fastest = max(with_fractions, key=lambda peak: peak.rate.value, default=None)
    flop = sum(engine["flop"] for engine in engines)
    of_fastest = None if fastest is None or share is None else step.per(flop / fastest.rate.value)
    rate = fastest and as_content(
        Fastest, fastest, fastest.rate, flop_per_s=fastest.rate.value, peak_fraction=of_fastest
    )
    verdict, why_above = "unknown", ""
    if share is not None:
        verdict = "well" if share.value >= WELL else "poorly" if share.value < POORLY else "partly"
    if share is not None and share.value > 1:  # the products take less time than their flop take at the peak
        why_above = "the rates in the measurements exceed the stated rates"
        if "conv" in set(case.ops.loc[beats_its_floor(case.ops), "kind"].astype("str")):
            why_above = "Winograd and FFT convolutions need fewer flop than the direct ones, which are counted"
    return as_content(
        Use, verdict=verdict, at_peak_s=share and at_peak_s, peak_fraction=share, engines=engines,
        above_peak=why_above, fastest=rate,
        step_bound=case.before.step_time.bound, bounds=_bounds(case),
    )  # fmt: skip


STRUCTURES = 3
"""Number of structures that are listed."""

_NUMBERED = re.compile(r"\d+[a-z]?(?=\.|$)")


def structure(module: str) -> str:
    """Return the name of a module without its numbers, which is the same for all modules of a structure.

    >>> structure("blocks.11.feed_forward.expand"), structure("stage2a.conv"), structure("head")
    ('blocks.*.feed_forward.expand', 'stage*.conv', 'head')
    """
    return _NUMBERED.sub("*", module)


def _structures(pieces: Any) -> list[Structure]:
    named = pieces.assign(structure=pieces["module"].map(structure))
    found: list[Structure] = []
    for name, own in named.groupby("structure"):
        by_role = own.groupby("role")["byte"].sum().sort_values(ascending=False)
        found.append({"structure": str(name), "byte": float(own["byte"].sum()),
                      "modules": int(own["module"].nunique()), "mostly": str(by_role.index[0])})  # fmt: skip
    largest = sorted(found, key=lambda one: one["byte"], reverse=True)[:STRUCTURES]
    return [one for one in largest if one["byte"] >= WORTH * pieces["byte"].sum()]


def memory_carriers(case: Case) -> Carriers:
    """Return the memory in use at the peak of the step, by role and by structure.

    In the dict, ``known`` is whole, standing (the memory that does not depend on the order of the ops) or nothing.
    """
    capacity = case.machine.device.capacity_byte
    room = None if capacity is None else capacity.value
    narrowed = in_formats(case.model, case.before.sizes, case.before.formats) is None
    formats = "of the trace, which are wider" if narrowed and case.model.order is not None else "of the trace"
    formats = formats if case.followed is case.model else f"of {case.of_formats}"
    if case.memory is not None:
        peak = case.memory.peak_id
        roles = {role: byte for role, byte in case.memory.by_role(peak).items() if byte}
        return {
            "known": "whole", "peak_byte": case.memory.peak_byte,
            "roles": dict(sorted(roles.items(), key=lambda item: -item[1])),
            "structures": _structures(case.memory.standing(peak)), "capacity_byte": room, "formats": formats,
        }  # fmt: skip
    sizes = case.before.sizes
    if case.held is not None:
        held = dict(sorted(case.held.items(), key=lambda item: -item[1]))
        return {"known": "whole", "roles": held, "peak_byte": case.peak_byte, "structures": [],
                "capacity_byte": room, "formats": formats}  # fmt: skip
    standing = standing_memory(resize_ops(case.model.ops, sizes, case.model.name), case.model.parameters_total)
    roles = {} if standing is None else {role: byte for role, byte in standing._asdict().items() if byte > 0}
    return {"known": "nothing" if standing is None else "standing", "roles": roles, "peak_byte": None,
            "structures": [], "capacity_byte": room, "formats": formats}  # fmt: skip


SCHEMA = "fomkit/advise/1"

SURE, LIKELY = 0.95, 0.8
"""Probabilities of any saving from which on a finding is sure, or likely."""


@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """Recommended changes, and their savings; the content is ``fomkit/advise/1``."""

    content: AdviceContent = field()

    @property
    def findings(self) -> list[Found]:
        """The findings that are advice: urgent ones first, then those with the largest saving."""
        return [finding for finding in self.content["findings"] if finding["state"] == "advice"]


def _surety(finding: Finding) -> str | None:
    if finding.saving is None:
        return None
    if finding.at_most:
        return "bound"
    chance = finding.saving.chance
    return "sure" if chance >= SURE else "likely" if chance >= LIKELY else "unsure"


def _stake(finding: Finding) -> Stake | None:
    saving = finding.saving
    if saving is None:
        return None
    probability = None if finding.at_most else saving.chance
    return as_content(Stake, saving, finding, time_s=saving.step_s, probability=probability)


def _content(rule: Rule, finding: Finding) -> Found:
    return as_content(
        Found, finding, rule=rule.name, question=rule.question, surety=_surety(finding), stake=_stake(finding),
        rejected=finding.why_rejected, ops=finding.rows,
    )  # fmt: skip


def _finding_order(one: Found) -> tuple[int, bool, float]:
    place = ("advice", "rejected", "not_applicable").index(one["state"])
    return place, not one["urgent"], -one["stake"]["time_s"]["value"] if one["stake"] else 0.0


def _least_time(case: Case) -> Least | None:
    """Return the time of the step with every op at its floor, and the share of it for which no floor is a bound.

    If an op beats its floor, the floor is no bound: another algorithm does less, or a cache holds its bytes.
    """
    ops = case.ops[case.ops["time_s"].notna()]
    if ops["floor_s"].isna().all():
        return None
    least_s = float((np.fmin(ops["floor_s"], ops["time_s"]) * ops["count"]).sum())
    unbounded = beats_its_floor(ops) | ops["floor_s"].isna()
    return {
        "device_s": least_s, "share_of_device": least_s / case.device_s,
        "share_without_bound": float(ops.loc[unbounded, "seconds"].sum()) / case.device_s,
    }  # fmt: skip


def advise(model: ModelProfile, machine: Machine, options: Options) -> Advice:
    """Evaluate every rule for one model on one machine."""
    options = replace(options, allow_uncovered=True)
    before = estimate(model, machine, options)
    if before.ops["time_s"].isna().all():
        raise FomkitError(
            f"{model.name} on {machine.name}",
            "no op has a time, so there is nothing to advise on. Add the machine's bandwidth and peak, or "
            "timings.",
        )
    case = Case(model, machine, options, before)
    findings = sorted((_content(rule, one) for rule in RULES for one in rule.findings(case)), key=_finding_order)
    sure = (place for place, one in enumerate(findings) if one["state"] == "advice" and one["stake"]
            and not one["stake"]["at_most"])  # fmt: skip
    content = as_content(
        AdviceContent, before, schema=SCHEMA, fomkit=__version__, model=model.name, title=model.title,
        target=machine.name, interval=options.interval, interval_covers=INTERVAL_MEANING, step_s=before.step,
        device_s=before.step_time.device_s, unit=model.unit.name, use=use_content(case),
        memory=memory_carriers(case), best=next(sure, None),
        least=_least_time(case), findings=findings, conditions=conditions_content(before),
        overlap="findings overlap: they may save the same time, so no sum is given",
    )  # fmt: skip
    return Advice(content)
