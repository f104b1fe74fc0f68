"""NeuSight's labels against predictions: calls, whole models and ratios, device by device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fomkit.rollup import Uses, widen_calls
from fomkit.validate.calls import call_scores, cases_of_calls, scored_calls
from fomkit.validate.folder import NO_PROFILES, LabelFolder
from fomkit.validate.in_use import calls_by_group, learn_uses
from fomkit.validate.machines import profile_of, without_timings
from fomkit.validate.models import Outcome, cases_of, chosen, model_scores, outcomes
from fomkit.validate.predicted import predict_graphs
from fomkit.validate.ratios import ratio_cases, ratio_scores
from fomkit.validate.scores import Cases, Score

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.hardware import Machine

OWN, OTHER, FACTS = "own table", "another board's table", "facts only"
ALL, WORST = "all counted", "worst counted"
SAME_BOARD = 0.05
"""Tables of one chip whose products differ by more than this are of different boards, clocks or libraries."""
T = TypeVar("T")


@dataclass
class Found:
    """What the comparisons with NeuSight's labels gave.

    Attributes
    ----------
    scores : list of Score
    outcomes : dict
        By comparison and device: the labels that were scored.
    calls : dict
        By device: its scored calls.
    left_out : list of (str, int, str)
        What is not scored, how often, and why.
    said : list of str
        Warnings about where tables come from.
    """

    scores: list[Score] = field(default_factory=list)
    outcomes: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)
    calls: dict[str, Cases] = field(default_factory=dict)
    left_out: list[tuple[str, int, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def _usable(folder: LabelFolder, device: str, found: Found) -> pd.DataFrame | None:
    """Give the labels of a device that can be scored, and say why others cannot."""
    labels = folder.whole_models
    if labels is None:
        return None
    rows = labels[labels["device"] == device]
    reasons = {
        "label flagged as doubtful": rows["flag"] != "",
        "measured with an option that no op graph has": rows["option"] != "",
        "no op graph of this model and size": ~rows["graph"].isin(folder.ops["graph"].unique()),
    }
    kept = rows["graph"] != ""
    for reason, wrong in reasons.items():
        if count := int((kept & wrong).sum()):
            found.left_out.append((f"labels of {device}", count, reason))
        kept &= ~wrong
    return rows[kept] if kept.any() else None


class Asked(NamedTuple):
    """Level of the intervals, and what use in a step adds to them as other devices tell."""

    level: float
    uses: Uses


def _ops_of(folder: LabelFolder, device: str, labels: pd.DataFrame | None) -> pd.DataFrame:
    """Give the kernels of the op graphs that a device has labels of, whole ones and of calls."""
    names = set() if labels is None else set(labels["graph"])
    calls = _calls_of(folder, device)
    names |= set() if calls is None else set(calls["graph"])
    return folder.ops[folder.ops["graph"].isin(names)]


def known_calls(folder: LabelFolder, machines: Mapping[str, Machine | None]) -> dict[str, pd.DataFrame]:
    """Give the calls of each counted device beside what its own table predicts: what tells of use in a step."""
    known = {}
    for device, machine in counted_devices(machines, folder).items():
        labels = _calls_of(folder, device)
        if machine is not None and labels is not None:
            timed = predict_graphs(_ops_of(folder, device, None), machine)
            known[device] = calls_by_group(labels, timed)
    return known


def _calls_of(folder: LabelFolder, device: str) -> pd.DataFrame | None:
    """Give the labels of a device's calls; None where it has none."""
    labels = folder.single_calls
    return None if labels is None or not (labels["device"] == device).any() else labels[labels["device"] == device]


def _score_calls(folder: LabelFolder, device: str, timed: pd.DataFrame, asked: Asked, found: Found) -> None:
    labels = _calls_of(folder, device)
    if labels is None:
        return
    scored, reasons = scored_calls(labels, widen_calls(timed, asked.uses, asked.level))
    found.scores += call_scores(scored, OWN, device)
    if len(scored):
        found.calls[device] = cases_of_calls(scored)
    found.left_out += [(f"calls of {device}", count, reason) for reason, count in reasons.items()]


def _compare(
    folder: LabelFolder, device: str, machine: Machine, comparison: str, asked: Asked, found: Found
) -> pd.DataFrame | None:
    labels = _usable(folder, device, found if comparison != OTHER else Found())
    ops = _ops_of(folder, device, labels)
    if not len(ops):
        return None
    timed = predict_graphs(ops, machine, asked.level)
    if comparison == OWN:
        _score_calls(folder, device, timed, asked, found)
    if labels is not None:
        models = outcomes(labels, timed, asked.level, asked.uses)
        if unpriced := sum(one.spans["step"] is None for one in models):
            found.left_out.append((f"labels of {device}, {comparison}", unpriced, "work without a time"))
        found.outcomes.setdefault(comparison, {})[device] = models
        found.scores += model_scores(models, comparison, device)
    return timed


def _warn_of_another_board(device: str, own: pd.DataFrame, name: str, other: pd.DataFrame, found: Found) -> None:
    """Say so where two tables of one chip disagree about its products; nothing is corrected."""
    products = own["kind"] == "gemm"
    ratio = float((other["time_s"][products] / own["time_s"][products]).median())
    if abs(ratio - 1) > SAME_BOARD:
        found.said.append(
            f"Provenance: by the table of {name}, products of these models take {ratio:.2f} times as long as by "
            f"that of {device}: another board, clock or library. Nothing is corrected; the intervals must hold it."
        )


def counted_devices(devices: Mapping[str, T], folder: LabelFolder) -> dict[str, T]:
    """Leave out the devices whose figures are reported apart."""
    return {
        device: found for device, found in devices.items() if not folder.profiles.get(device, NO_PROFILES).apart
    }


def _worst(scores: list[Score], comparison: str, counted: set[str]) -> list[Score]:
    """Give the line of the device with the largest mean error."""
    lines = [
        line for line in scores
        if (line.comparison, line.level, line.what) == (comparison, "model", "all") and line.machine in counted
    ]  # fmt: skip
    return [replace(max(lines, key=lambda line: line.mean), machine=WORST)] if lines else []


def _together(found: Found, folder: LabelFolder) -> None:
    """Score all devices of a comparison together, but for those that are reported apart."""
    for comparison, devices in found.outcomes.items():
        counted = counted_devices(devices, folder)
        everything = [one for models in counted.values() for one in models]
        found.scores += model_scores(everything, comparison, ALL)
        found.scores += _worst(found.scores, comparison, set(counted))
        found.scores += ratio_scores(counted, comparison)


def compare_labels(folder: LabelFolder, level: float) -> Found:
    """Predict every labelled model on every labelled device, and score.

    Each device is predicted from its own table and from another board's, where there are any, and from its facts
    as if nobody had timed its chip. What use in a step adds to the intervals is told from the other devices'
    calls.

    Raises
    ------
    FomkitError
        When a table of the folder cannot be read.
    """
    found = Found()
    machines = {device: folder.own_machine(device) for device in folder.devices}
    calls = known_calls(folder, machines)
    for device, own in machines.items():
        others = {name: rows for name, rows in calls.items() if name != device}
        asked = Asked(level, learn_uses(others))
        stated = folder.facts(device) if own is None else own
        facts = None if stated is None else without_timings(stated, folder.architecture(device))
        timed = None if own is None else _compare(folder, device, own, OWN, asked, found)
        if facts is None:
            count = sum(
                int((table["device"] == device).sum())
                for table in (folder.whole_models, folder.single_calls)
                if table is not None
            )
            found.left_out.append((f"labels of {device}", count, "no profile and no facts of this device"))
        else:
            _compare(folder, device, facts, FACTS, asked, found if own is None else _quiet(found))
        names = folder.profiles.get(device, NO_PROFILES)
        other = profile_of(names.other)
        if other is not None:
            # Its table alone: what the device's own timings say is usual would help where it has none.
            other = replace(other, unheard=(names.own,))
            also = _compare(folder, device, other, OTHER, asked, found)
            if timed is not None and also is not None:
                _warn_of_another_board(device, timed, other.name, also, found)
    _together(found, folder)
    return found


def _quiet(found: Found) -> Found:
    """Give the same lists but for what was said to be left out already."""
    return Found(found.scores, found.outcomes, found.calls, [], found.said)


def label_cases(found: Found, folder: LabelFolder) -> list[Cases]:
    """Give the labels of devices with their own table, passes apart, and their ratios, for pooled figures."""
    counted = counted_devices(found.outcomes.get(OWN, {}), folder)
    kept = [(chosen(models, name, None), name) for models in counted.values() for name in ("forward", "backward")]
    return [*(cases_of(labels, name) for labels, name in kept if labels), *ratio_cases(counted)]
