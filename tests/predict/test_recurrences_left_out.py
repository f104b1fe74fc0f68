"""Recurrences by facts on DeepBench's machines: the fit of the constants, and their errors on other chips.

The protocol: every recurrence of a training or inference sheet; its machine knows facts alone, and of the rates
that others reach nothing of its own chip. Launches are told from the other chips, each chip and number format of
equal weight, by the least mean of |predicted / measured - 1|: one number for both walks, one for the weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from predict.machines import machine

from fomkit.ops.pricing import add_costs
from fomkit.prediction.cascade import add_times
from fomkit.prediction.composed import AT_ONCE, FUSED, WALKED
from fomkit.prediction.families import FamilyName, training_rows
from fomkit.profiles.machines import load_machine
from fomkit.validation.graphs import without_timings

MACHINES = ("gtx-1080-ti", "m40", "mi25", "p100", "titan-x-pascal", "titan-x", "v100", "vega-fe")
FORMATS = (("fp32", "vector"), ("fp16", "vector"), ("fp16", "matrix"))
TOLD = {"steps": ("forward", "backward_input"), "at once": ("backward_weight",)}
COLUMNS = [
    "op", "kind", "dtype", "engine", "pass_name", "count", "module", "cell", "batch", "steps", "input_size",
    "hidden_size", "layers", "directions", "flop", "byte", "launches", "least_flop",
]  # fmt: skip
CHOICES = np.arange(0, 40, 0.5)


def recurrences(name: str) -> pd.DataFrame:
    """Return a machine's recurrences with their measured times, and their times by facts without launch costs."""
    known = load_machine(f"machine_profiles/{name}.yaml")
    bare = replace(without_timings(known), typical=machine().typical)
    timings, found = add_costs(known.timings[known.timings["kind"] == "rnn"].reset_index(drop=True)), []
    for dtype, engine in FORMATS:
        for pass_name in (*TOLD["steps"], *TOLD["at once"]):
            rows = training_rows(timings, FamilyName("rnn", dtype, engine, pass_name)).reset_index(drop=True)
            if len(rows):
                timed = add_times(rows.assign(op="rnn", count=1.0, module="")[COLUMNS], bare)
                found.append(rows.assign(predicted=timed["time_s"], low=timed["low_s"], high=timed["high_s"]))
    return pd.concat(found).assign(chip=known.device.architecture, start_s=known.device.launch_s.value)


@pytest.fixture(scope="module")
def every() -> pd.DataFrame:
    rows = pd.concat(map(recurrences, MACHINES), ignore_index=True)
    walks = rows["pass_name"].isin(TOLD["steps"])
    rows["runs"] = np.where(walks, rows["steps"], 1.0)
    own = np.where(walks, WALKED[0], AT_ONCE[0])
    return rows.assign(
        products=rows["predicted"] - rows["runs"] * own * rows["start_s"], told=np.where(walks, *TOLD)
    )


def told_from(rows: pd.DataFrame) -> float:
    """Return the launches with the least mean error, with equal weight for each chip and number format."""
    weight = 1 / rows.groupby(["chip", "dtype"])["_time_s"].transform("size")
    errors = [(weight * abs(with_launches(rows, one) / rows["_time_s"] - 1)).sum() for one in CHOICES]
    return float(CHOICES[np.argmin(errors)])


def with_launches(rows: pd.DataFrame, launches: float) -> pd.Series:
    return rows["products"] + rows["runs"] * launches * rows["start_s"]


@pytest.mark.parametrize(("told", "constant"), [("steps", WALKED[0]), ("at once", AT_ONCE[0])])
def test_launches_are_those_that_all_chips_tell(told, constant, every):
    assert told_from(every[every["told"] == told]) == constant
    assert len(every) == 1569
    assert {*TOLD["steps"], *TOLD["at once"]} == {*FUSED}


def test_chips_left_out_are_told_by_the_others(every):
    """Weights are predicted within a tenth; walks only within a factor, which the interval includes."""
    for (told, chip), rows in every.groupby(["told", "chip"]):
        others = every[(every["told"] == told) & (every["chip"] != chip)]
        error = with_launches(rows, told_from(others)) / rows["_time_s"] - 1
        missed = f"{told}, {chip} left out: median {abs(error).median():.1%}, mean {abs(error).mean():.1%}"
        assert abs(error).median() < (0.2 if told == "at once" else 0.65), missed
    inside = (every["low"] <= every["_time_s"]) & (every["_time_s"] <= every["high"])
    assert inside.groupby(every["told"]).mean().between(0.75, 0.97).all()
