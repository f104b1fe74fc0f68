"""More data makes no prediction worse: whole models with a device's own table, and with its facts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
import pytest

from fomkit.core.machine import Machine
from fomkit.profiles.machines import load_machine
from fomkit.readers.tables.neusight import read_neusight
from fomkit.validation.graphs import LabelFolder, predict_graphs, shipped_labels, without_timings
from fomkit.validation.neusight import model_scores, outcomes

WORSE = 0.003
"""How much larger a mean error may be with the table than without (whole models of one device)."""
FLOOR = {"T4": 0.11}
"""Mean errors below which few rows differ from facts by luck: the measured calls of a model on the T4, whose clock
follows what ran before, add up to 11 % above to 9 % below its measured pass (docs/adr/0013)."""
DEVICES = ("A100-PCIe-40GB", "P100-PCIe-16GB", "T4", "V100-PCIe-32GB")
SENSITIVE = ("A100-PCIe-40GB", "V100-PCIe-32GB")
"""Devices so fast, or with so short training steps, that the host's work in their rows shows in whole models."""
FOLDER = LabelFolder(shipped_labels())
ALONE = ("kind", "op", "note")
"""What NeuSight timed apart: the op, and of products whether they came as a layer or as a batch."""


ROUTED = {"A100-PCIe-40GB": "switch"}
"""Mixtures of experts of which a device is not asked: how many tokens meet an expert is data, which no graph tells
(docs/accuracy.md). With two of them the A100's mean is 3.9 % by its table 3.5 by facts; without 2.9 and 3.3."""


def errors(machine: Machine, device: str, without: str = "") -> dict[str, float]:
    """Return the mean absolute errors of whole models and of the passes of training steps, by name."""
    labels = FOLDER.whole_models
    known = labels["graph"].isin(FOLDER.ops["graph"].unique())
    if without:
        known &= ~labels["graph"].str.startswith(without)
    rows = labels[known & (labels["device"] == device) & (labels["option"] == "") & (labels["flag"] == "")]
    timed = predict_graphs(FOLDER.ops[FOLDER.ops["graph"].isin(set(rows["graph"]))], machine)
    found = outcomes(rows, timed, 0.8)
    assert len(found) >= 5
    return {line.what: line.mean for line in model_scores(found, "", device) if line.what != "inference"}


def assert_no_worse(with_rows: dict[str, float], by_facts: dict[str, float], floor: float = 0.0) -> None:
    most = {what: max(mean + WORSE, floor) for what, mean in by_facts.items()}
    worse = {what: (mean, by_facts[what]) for what, mean in with_rows.items() if mean > most[what]}
    assert with_rows.keys() == by_facts.keys()
    assert not worse


def thinned(machine: Machine, count: int) -> Machine:
    """Return a machine whose only timings are so many rows of each op, drawn by their sizes."""
    timings = machine.timings
    sizes = timings[["b", "m", "n", "k", "numel", "row"]].fillna(0).astype(int).to_numpy().tolist()
    order = pd.Series([crc32(" ".join(map(str, row)).encode()) for row in sizes], timings.index)
    parts = [timings[name].fillna("") for name in ALONE]
    kept = order.groupby(parts).rank(method="first") <= count
    few = replace(machine, timings=timings[kept].reset_index(drop=True), fits={}, timings_key="")
    return replace(few, excluded=(machine.device.architecture,))


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    machine = load_machine(FOLDER.profiles[request.param].own)
    return request.param, machine, errors(without_timings(machine), request.param, ROUTED.get(request.param, ""))


def test_a_devices_own_table_makes_whole_models_no_worse_than_its_facts(device) -> None:
    name, machine, by_facts = device
    assert_no_worse(errors(machine, name, ROUTED.get(name, "")), by_facts)


def test_few_rows_of_its_own_table_make_them_no_worse(device) -> None:
    name, machine, by_facts = device
    assert_no_worse(errors(thinned(machine, 50), name, ROUTED.get(name, "")), by_facts, FLOOR.get(name, 0.0))


def only_long(path: Path, device: str, target: Path) -> Path:
    """Write the rows of a device that are from models: none of them is as short as the harness."""
    rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows[(rows["device"] == device) & (rows["split"] == "test")].to_csv(target, index=False)
    return target


@pytest.mark.slow
def test_a_table_without_short_rows_makes_them_no_worse(device, kernels_of, tmp_path) -> None:
    """Tables of devices that NeuSight was not trained on are like this: they count host work as kernel time."""
    name, machine, by_facts = device
    if name not in SENSITIVE:
        return
    imported = read_neusight(only_long(kernels_of[name], name, tmp_path / "kernels.csv"), name)
    alone = replace(machine, timings=imported.timings, fits={}, timings_key="")
    alone = replace(alone, excluded=(machine.device.architecture,))
    assert_no_worse(errors(alone, name, ROUTED.get(name, "")), by_facts)
    told, shown = (
        one[one["kind"] == "pointwise"].groupby("op")["harness_s"].mean()
        for one in (imported.timings, machine.timings)
    )
    # The kinds of rows were timed at different times, P100's by a host that took two thirds as long.
    assert np.abs(np.log(told / shown)).median() < 0.45
