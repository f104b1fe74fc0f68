"""Advice on one model on one machine (``fomkit/advise/1``): three questions, then what the rules found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fomkit import __version__
from fomkit.advice.carriers import memory_carriers
from fomkit.advice.case import Case, beats_its_floor
from fomkit.advice.finding import Finding
from fomkit.advice.rules import RULES, Rule
from fomkit.advice.use import use_content
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.shown import Shown
from fomkit.study.content import INTERVAL_MEANING, span_content
from fomkit.study.estimate import estimate
from fomkit.study.options import Options
from fomkit.workload import ModelProfile

SCHEMA = "fomkit/advise/1"

SURE, LIKELY = 0.95, 0.8
"""Probabilities of any saving from which a finding is sure, or likely."""


@dataclass(frozen=True)
class Advice(Shown):
    """What to change, and what is at stake.

    Attributes
    ----------
    content : mapping
        ``fomkit/advise/1``.
    """

    content: Mapping[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What is worth doing: first what cannot wait, then most time at stake first."""
        return [one for one in self.content["findings"] if one["state"] == "advice"]

    def summary(self, *, tried: bool = False) -> str:
        """Write it as the text that the command line prints, with what was tried in vain if asked for."""
        return self._view.text(self, tried=tried)


def _surety(finding: Finding) -> str | None:
    if finding.saving is None:
        return None
    if finding.at_most:
        return "bound"
    chance = finding.saving.chance
    return "sure" if chance >= SURE else "likely" if chance >= LIKELY else "unsure"


def _stake(finding: Finding) -> dict[str, Any] | None:
    saving = finding.saving
    if saving is None:
        return None
    per_day = saving.unit_per_day
    return {
        "time_s": saving.step_s._asdict(),
        "share": saving.share._asdict(),
        "unit_per_day": None if per_day is None else per_day._asdict(),
        "probability": None if finding.at_most else saving.chance,
        "at_most": finding.at_most,
    }


def _content(rule: Rule, finding: Finding) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "question": rule.question,
        "state": finding.state,
        "urgent": finding.urgent,
        "says": finding.says,
        "do": finding.do,
        "sure": finding.sure,
        "surety": _surety(finding),
        "rejected": finding.why_rejected,
        "stake": _stake(finding),
        "column": finding.column,
        "ops": list(finding.rows),
    }


def _order(one: Mapping[str, Any]) -> tuple[int, bool, float]:
    place = ("advice", "rejected", "not_applicable").index(one["state"])
    return place, not one["urgent"], -one["stake"]["time_s"]["value"] if one["stake"] else 0.0


def _best(findings: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Take the advice with most time at stake whose changed step was estimated, not bounded."""
    tried = [one for one in findings if one["state"] == "advice" and one["stake"] and not one["stake"]["at_most"]]
    return tried[0] if tried else None


def _least(case: Case) -> dict[str, Any] | None:
    """Say what the step would take with every op at its floor, and for which share of it no floor is a bound.

    An op that beats its floor shows that it is none: another algorithm does less, or a cache holds its bytes.
    """
    ops = case.ops[case.ops["time_s"].notna()]
    if ops["floor_s"].isna().all():
        return None
    least_s = float((np.fmin(ops["floor_s"], ops["time_s"]) * ops["count"]).sum())
    unbounded = beats_its_floor(ops) | ops["floor_s"].isna()
    return {
        "device_s": least_s,
        "share_of_device": least_s / case.device_s,
        "share_without_bound": float(ops.loc[unbounded, "seconds"].sum()) / case.device_s,
    }


def advise(model: ModelProfile, machine: Machine, options: Options) -> Advice:
    """Ask every rule about one model on one machine.

    Raises
    ------
    FomkitError
        When no op has a time, or the estimate cannot be made.
    """
    options = replace(options, allow_uncovered=True)
    before = estimate(model, machine, options)
    if before.ops["time_s"].isna().all():
        raise FomkitError(
            f"{model.name} on {machine.name}",
            "no op has a time, so there is nothing to advise on. Add the machine's bandwidth and peak, or "
            "timings.",
        )
    case = Case(model, machine, options, before)
    findings = sorted((_content(rule, one) for rule in RULES for one in rule.find(case)), key=_order)
    best = _best(findings)
    return Advice(
        {
            "schema": SCHEMA,
            "fomkit": __version__,
            "model": model.name,
            "title": model.title,
            "target": machine.name,
            "sizes": dict(before.sizes),
            "precision": before.precision,
            "interval": options.interval,
            "interval_covers": INTERVAL_MEANING,
            "step_s": span_content(before.step),
            "device_s": span_content(before.step_time.device_s),
            "unit_per_day": span_content(before.unit_per_day),
            "unit": model.unit.name,
            "coverage": dict(before.coverage),
            "excludes": list(before.excludes),
            "use": use_content(case),
            "memory": memory_carriers(case),
            "best": None if best is None else findings.index(best),
            "least": _least(case),
            "overlap": "findings overlap: what one saves another cannot save again, so no sum is given",
            "findings": findings,
            "deviations": list(before.deviations),
        }
    )
