"""Compare NeuSight's labels with predictions: calls, whole models and ratios of machines, device by device.

`compare_labels` runs all comparisons. `fit_uses` estimates from calls inside models the error that use in a step
adds to single kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import NormalDist
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.interval import DEFAULT_LEVEL, Span, divide
from fomkit.core.machine import Machine
from fomkit.plan.coverage import (
    SAME_SOFTWARE,
    STEP,
    USES,
    Spread,
    Use,
    Uses,
    groups_of,
    limited,
    other_software,
    runs_software,
    widen_calls,
)
from fomkit.plan.step import device_time
from fomkit.prediction.rates import power_shortfall
from fomkit.profiles.machines import load_machine
from fomkit.validation.graphs import LabelFolder, Profiles, per_call, per_pass, predict_graphs, without_timings
from fomkit.validation.labels import MIN_HARNESS_MULTIPLE, PEERS, whole_over_calls
from fomkit.validation.scores import (
    Cases,
    Score,
    cases_of_spans,
    cases_of_table,
    constant_band,
    needed,
    peer_errors,
    score,
)

Vector = NDArray[np.float64]

PASS_OF_LABEL = {"fw": "forward", "bw": "backward", "acc": "accumulation"}
MIN_COUNT = 2
"""Fewest calls of a class for a line of its own; fewest machines from which a use is fitted."""
_CALL = ["graph", "call", "label"]


def scored_calls(labels: pd.DataFrame, timed: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Join the labels of a device's calls with their predictions; return also the number not scored, by reason."""
    doubtful = labels["flag"] != ""
    started = labels.join(timed.groupby(_CALL).size().rename("started"), on=_CALL)["started"].fillna(1)
    short = ~doubtful & (labels["seconds"] < MIN_HARNESS_MULTIPLE * started * labels["harness_s"])
    rows = labels[~doubtful & ~short]
    joined = rows.join(per_call(timed), on=_CALL)
    unknown = joined["time_s"].isna()
    reasons = {
        "label flagged as doubtful": int(doubtful.sum()),
        f"label below {MIN_HARNESS_MULTIPLE:g} times its harness for each op": int(short.sum()),
        "no kernel by the rules, or no time": int(unknown.sum()),
    }
    return joined[~unknown], {reason: count for reason, count in reasons.items() if count}


def cases_of_calls(rows: pd.DataFrame) -> Cases:
    """Return the calls as cases; the calls of one model are a fold."""
    truth, weight = (rows[name].to_numpy(np.float64) for name in ("seconds", "count"))
    return constant_band(
        cases_of_table(rows, truth, weight=weight, fold=rows.groupby("graph").ngroup().to_numpy())
    )


def call_scores(scored: pd.DataFrame, comparison: str, machine: str) -> Iterator[Score]:
    """Score the calls of one machine, all together and by class and pass."""
    if not len(scored):
        return
    yield score(cases_of_calls(scored), comparison, "op", machine, "all")
    for (name, label), rows in scored.groupby(["class", "label"], sort=True):
        if len(rows) >= MIN_COUNT:
            yield score(cases_of_calls(rows), comparison, "op", machine, f"{name}, {PASS_OF_LABEL[str(label)]}")


_ENDS = ["time_s", "low_s", "high_s"]


def calls_by_group(labels: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Return the scored calls of a device with the group of each call's longest kernel.

    `labels`: rows of `fomkit.validation.labels.read_single_calls` of one device; `timed`: the table of
    `fomkit.validation.graphs.predict_graphs`. Returns ``graph, label, count, seconds, time_s, low_s, high_s,
    group``, and the kernel's ``kind, time_source``; calls without a group are left out.
    """
    by_time = timed.assign(group=groups_of(timed)).sort_values("time_s", kind="stable")
    longest = by_time.groupby(_CALL)[["group", "kind", "time_source"]].last()
    scored, _ = scored_calls(labels, timed)
    found = scored.join(longest, on=_CALL)
    return found[found["group"].fillna("") != ""]


def _pass_totals(of_group: pd.DataFrame) -> pd.DataFrame:
    """Sum the calls of each pass, with intervals combined as for the ops of a step."""
    rows = []
    for (machine, _, _), own in of_group.assign(pass_name="").groupby(["machine", "graph", "label"]):
        rows.append((machine, (own["seconds"] * own["count"]).sum(), *device_time(own, DEFAULT_LEVEL).ends))
    return pd.DataFrame(rows, columns=["machine", "seconds", *_ENDS])


def _spread(cases: pd.DataFrame) -> Spread:
    """Estimate both sides of the spread from cases of several machines, each machine with the same weight."""
    share = 0.5 + DEFAULT_LEVEL / 2
    truth, value, low, high = (np.log(cases[name].to_numpy(np.float64)) for name in ("seconds", *_ENDS))
    weight = (1 / cases.groupby("machine")["seconds"].transform("size")).to_numpy(np.float64)
    z = NormalDist().inv_cdf(share)
    return Spread(
        needed(value - truth, value - low, weight, share) / z,
        needed(truth - value, high - value, weight, share) / z,
    )


def fit_uses(calls: Mapping[str, pd.DataFrame], wholes: Mapping[str, Vector] = MappingProxyType({})) -> Uses:
    """Fit the errors that use in a step adds, from calls and whole passes of several machines.

    `calls`: machine to the table of `calls_by_group`; `wholes`: machine to the ratios of `whole_over_calls`.
    Returns the uses, of steps with the tables' software; groups on under `MIN_COUNT` machines keep shipped values.
    """
    if len(calls) < MIN_COUNT:
        return SAME_SOFTWARE
    every, found = pd.concat([rows.assign(machine=name) for name, rows in calls.items()]), dict(SAME_SOFTWARE)
    for group, cases in every.groupby("group", sort=True):
        if cases["machine"].nunique() >= MIN_COUNT:
            found[str(group)] = Use(_spread(cases), _spread(_pass_totals(cases)))
    if len(wholes) >= MIN_COUNT:
        ratios = pd.concat(
            [pd.DataFrame({"machine": name, "seconds": np.exp(own)}) for name, own in wholes.items()]
        )
        found[STEP] = Use(SAME_SOFTWARE[STEP].call, _spread(ratios.assign(**dict.fromkeys(_ENDS, 1.0))))
    return found


PASSES: Mapping[str, str | None] = {"step": None, "forward": "forward", "backward": "backward"}


class Outcome(NamedTuple):
    """One label and its predictions.

    `label`: a row of `fomkit.validation.labels.read_whole_models`.
    `spans`: predicted time [s] of step, forward and backward; None if a kernel has no time or the pass is absent.
    """

    label: Mapping[str, object]
    spans: Mapping[str, Span | None]

    def seconds(self, pass_name: str, who: str = "") -> float:
        """Return the measured time [s] of a pass, or a peer's prediction; NaN if there is none."""
        prefix = f"{who} " if who else ""
        passes = {name: float(str(self.label.get(f"{prefix}{name}", np.nan))) for name in ("forward", "backward")}
        step = passes["forward"] + passes["backward"] if self.label["mode"] == "training" else passes["forward"]
        return {**passes, "step": step}[pass_name]


def outcomes(labels: pd.DataFrame, timed: pd.DataFrame, level: float, uses: Uses = USES) -> list[Outcome]:
    """Join the scored labels of one device with their predictions, which have every graph of them."""
    found, rows_of = [], dict(iter(timed.groupby("graph", sort=False)))
    for row in labels.to_dict("records"):
        label = {str(name): value for name, value in row.items()}
        graph = str(label["graph"])
        spans = {name: per_pass(rows_of[graph], graph, word, level, uses) for name, word in PASSES.items()}
        found.append(Outcome(label, spans))
    return found


def outcomes_of(found: list[Outcome], pass_name: str, mode: str | None) -> list[tuple[Outcome, Span]]:
    """Return the labels with a measured and a predicted time of a pass, of one mode or all."""
    of_mode = ((one, one.spans[pass_name]) for one in found if mode in (None, one.label["mode"]))
    return [(one, span) for one, span in of_mode if span is not None and one.seconds(pass_name) > 0]


def cases_of(predicted: list[tuple[Outcome, Span]], pass_name: str) -> Cases:
    """Return measured and predicted times of a pass as cases."""
    return cases_of_spans([one.seconds(pass_name) for one, _ in predicted], [span for _, span in predicted])


MODEL_LINES: tuple[tuple[str, str, str | None], ...] = (
    ("all", "step", None),
    ("inference", "forward", "inference"),
    ("training", "step", "training"),
    ("training, forward", "forward", "training"),
    ("training, backward", "backward", "training"),
)
"""The lines of whole models: name, pass and mode."""


def model_scores(found: list[Outcome], comparison: str, machine: str) -> Iterator[Score]:
    """Score whole models of one machine or of several, all together and by mode and pass."""
    for what, pass_name, mode in MODEL_LINES:
        predicted = outcomes_of(found, pass_name, mode)
        if predicted:
            cases = cases_of(predicted, pass_name)
            by_peer = {peer: [one.seconds(pass_name, peer) for one, _ in predicted] for peer in PEERS}
            yield score(cases, comparison, "model", machine, what, peer_errors(cases, by_peer))


ALL_PAIRS = "all pairs"


class Pair(NamedTuple):
    """One model on two machines: the measured ratio, the predicted one, and those of peers."""

    truth: float
    span: Span
    peers: Mapping[str, float]


def pairs(one: list[Outcome], other: list[Outcome]) -> Iterator[Pair]:
    """Yield the ratio of each model that was measured and predicted on both machines."""
    known = {(found.label["graph"], found.label["option"]): found for found in other}
    for left in one:
        right = known.get((left.label["graph"], left.label["option"]))
        above, below = left.spans["step"], right.spans["step"] if right is not None else None
        if right is None or above is None or below is None:
            continue
        peers = {peer: left.seconds("step", peer) / right.seconds("step", peer) for peer in PEERS}
        yield Pair(left.seconds("step") / right.seconds("step"), divide(above, below), peers)


def _pair_cases(found: list[Pair]) -> Cases:
    return cases_of_spans([pair.truth for pair in found], [pair.span for pair in found])


def ratio_scores(machines: Mapping[str, list[Outcome]], comparison: str) -> Iterator[Score]:
    """Score the ratios of each pair of machines, and of all pairs together."""
    every = {
        f"{one} / {other}": list(pairs(machines[one], machines[other])) for one, other in combinations(machines, 2)
    }
    every[ALL_PAIRS] = [pair for found in every.values() for pair in found]
    for machine, found in every.items():
        if found:
            cases, by_peer = _pair_cases(found), {peer: [pair.peers[peer] for pair in found] for peer in PEERS}
            yield score(cases, comparison, "ratio", machine, "all", peer_errors(cases, by_peer))


OWN, OTHER, FACTS = "own table", "another board's table", "facts only"
ALL, WORST = "all counted", "worst counted"
SOFTWARE = "PyTorch 2.1"
"""The library that ran the labelled models and NeuSight's tables of kernels (AMD: 2.4.1)."""
SAME_BOARD = 0.05
"""Tables of one chip whose products differ by more than this are from different boards, clocks or libraries."""
T = TypeVar("T")


@dataclass
class Found:
    """Results of the comparisons with NeuSight's labels.

    `not_scored` (str, int, str): what is not scored, the number of cases, the reason.
    `notes`: warnings about the origin of tables.
    """

    scores: list[Score] = field(default_factory=list)
    outcomes: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)
    calls: dict[str, Cases] = field(default_factory=dict)
    not_scored: list[tuple[str, int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _usable(folder: LabelFolder, device: str, found: Found) -> pd.DataFrame | None:
    """Return the labels of a device that can be scored; record in ``found`` why others cannot."""
    labels = folder.whole_models
    if labels is None:
        return None
    rows = labels[labels["device"] == device]
    reasons = {
        "label flagged as doubtful": rows["flag"] != "",
        "measured with an option that no op graph has": rows["option"] != "",
        "no op graph of this model and size": ~rows["graph"].isin(folder.ops["graph"].unique()),
    }
    usable = rows["graph"] != ""
    for reason, wrong in reasons.items():
        if count := int((usable & wrong).sum()):
            found.not_scored.append((f"labels of {device}", count, reason))
        usable &= ~wrong
    return rows[usable] if usable.any() else None


def _ops_of(folder: LabelFolder, device: str, labels: pd.DataFrame | None) -> pd.DataFrame:
    """Return the kernels of the op graphs for which a device has labels, of whole models or of calls."""
    names = set() if labels is None else set(labels["graph"])
    calls = _calls_of(folder, device)
    names |= set() if calls is None else set(calls["graph"])
    return folder.ops[folder.ops["graph"].isin(names)]


def known_calls(folder: LabelFolder, machines: Mapping[str, Machine | None]) -> dict[str, pd.DataFrame]:
    """Return the calls of each counted device with predictions from its own table, to fit the uses in a step.

    A board short of power (`power_shortfall`) has errors for another reason and is left out.
    """
    known = {}
    for device, machine in counted_devices(machines, folder).items():
        labels = _calls_of(folder, device)
        if machine is not None and labels is not None and not power_shortfall(machine):
            timed = predict_graphs(_ops_of(folder, device, None), machine)
            known[device] = calls_by_group(labels, timed)
    return known


def known_wholes(folder: LabelFolder, machines: Mapping[str, Machine | None]) -> dict[str, Vector]:
    """Return ln(whole pass / sum of its calls) of each counted device, without boards short of power."""
    if folder.whole_models is None or folder.single_calls is None:
        return {}
    found = counted_devices(whole_over_calls(folder.whole_models, folder.single_calls), folder)
    stated = {device: machines[device] or folder.facts(device) for device in found}
    return {device: own for device, own in found.items() if (of := stated[device]) and not power_shortfall(of)}


def _calls_of(folder: LabelFolder, device: str) -> pd.DataFrame | None:
    """Return the labels of a device's calls; None if it has none."""
    labels = folder.single_calls
    return None if labels is None or not (labels["device"] == device).any() else labels[labels["device"] == device]


def _compare(
    folder: LabelFolder, device: str, machine: Machine, comparison: str, level: float, uses: Uses, found: Found
) -> pd.DataFrame | None:
    """Score a device's labels on a machine, with errors of use that were fitted to other devices."""
    uses = uses if runs_software(machine.timings, SOFTWARE) else other_software(uses)
    labels = _usable(folder, device, found if comparison != OTHER else Found())
    ops = _ops_of(folder, device, labels)
    if not len(ops):
        return None
    timed = predict_graphs(ops, machine, level)
    if comparison == OWN and (calls := _calls_of(folder, device)) is not None:
        scored, reasons = scored_calls(calls, widen_calls(timed, uses, level))
        found.scores += call_scores(scored, OWN, device)
        if len(scored):
            found.calls[device] = cases_of_calls(scored)
        found.not_scored += [(f"calls of {device}", count, reason) for reason, count in reasons.items()]
    if labels is not None:
        models = outcomes(labels, timed, level, uses)
        if unpriced := sum(model.spans["step"] is None for model in models):
            found.not_scored.append((f"labels of {device}, {comparison}", unpriced, "work without a time"))
        found.outcomes.setdefault(comparison, {})[device] = models
        found.scores += model_scores(models, comparison, device)
    return timed


def _warn_of_another_board(device: str, own: pd.DataFrame, name: str, other: pd.DataFrame, found: Found) -> None:
    """Add a note if two tables of one chip disagree about its products; nothing is corrected."""
    products = own["kind"] == "gemm"
    ratio = float((other["time_s"][products] / own["time_s"][products]).median())
    if abs(ratio - 1) > SAME_BOARD:
        found.notes.append(
            f"Provenance: by the table of {name}, products of these models take {ratio:.2f} times as long as by "
            f"that of {device}: another board, clock or library. Nothing is corrected; intervals must cover it."
        )


def counted_devices(devices: Mapping[str, T], folder: LabelFolder) -> dict[str, T]:
    """Return the devices without those whose figures are reported separately."""
    return {
        device: found for device, found in devices.items() if not folder.profiles.get(device, Profiles()).apart
    }


def _score_all_devices(found: Found, folder: LabelFolder) -> None:
    """Score all devices of a comparison together, except those reported separately."""
    for comparison, devices in found.outcomes.items():
        counted = counted_devices(devices, folder)
        everything = [model for models in counted.values() for model in models]
        found.scores += model_scores(everything, comparison, ALL)
        lines = [
            line for line in found.scores
            if (line.comparison, line.level, line.what) == (comparison, "model", "all") and line.machine in counted
        ]  # fmt: skip
        if lines:
            found.scores.append(replace(max(lines, key=lambda line: line.mean), machine=WORST))
        found.scores += ratio_scores(counted, comparison)


def compare_labels(folder: LabelFolder, level: float) -> Found:
    """Predict every labelled model on every labelled device, and score.

    Each device is predicted from its own table and from another board's, if there are any, and from its facts
    without any timings of its chip. The error that use in a step adds is fitted to the other devices' calls.
    """
    found = Found()
    machines = {device: folder.own_machine(device) for device in folder.devices}
    calls, wholes = known_calls(folder, machines), known_wholes(folder, machines)
    for device, own in machines.items():
        others = {name: rows for name, rows in calls.items() if name != device}
        stated = folder.facts(device) if own is None else own
        uses = fit_uses(others, {name: ratios for name, ratios in wholes.items() if name != device})
        uses = uses if stated is None else limited(uses, stated)
        facts = None if stated is None else without_timings(stated, folder.architecture(device))
        timed = None if own is None else _compare(folder, device, own, OWN, level, uses, found)
        if facts is None:
            tables = [table for table in (folder.whole_models, folder.single_calls) if table is not None]
            count = sum(int((table["device"] == device).sum()) for table in tables)
            found.not_scored.append((f"labels of {device}", count, "no profile and no facts of this device"))
        else:
            _compare(
                folder, device, facts, FACTS, level, uses, found if own is None else replace(found, not_scored=[])
            )
        names = folder.profiles.get(device, Profiles())
        if names.other:
            # The other board's table alone: typical utilisation from the device's own timings would help it.
            other = replace(load_machine(names.other), excluded=(names.own,))
            by_other = _compare(folder, device, other, OTHER, level, uses, found)
            if timed is not None and by_other is not None:
                _warn_of_another_board(device, timed, other.name, by_other, found)
    _score_all_devices(found, folder)
    return found


def label_cases(found: Found, folder: LabelFolder) -> list[Cases]:
    """Return labels of devices with their own table, by pass, and their ratios as cases, for pooled figures."""
    counted = counted_devices(found.outcomes.get(OWN, {}), folder)
    predicted = [
        (outcomes_of(models, name, None), name) for models in counted.values() for name in ("forward", "backward")
    ]
    ratios = [pair for one, other in combinations(counted, 2) for pair in pairs(counted[one], counted[other])]
    cases = [cases_of(labels, name) for labels, name in predicted if labels]
    return [*cases, _pair_cases(ratios)] if ratios else cases
