"""A machine with a short table is given the shipped machines to borrow from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fomkit.files.op_csv import fill_defaults
from fomkit.prediction.cascade import add_times
from fomkit.profiles import evidence
from fomkit.profiles.evidence import own_fits, with_fits
from fomkit.profiles.machines import load_machine


@pytest.fixture
def short(root):
    """Twenty of M40's convolutions as somebody's own table, under another name."""
    machine = load_machine(root / "machine_profiles" / "m40.yaml")
    forward = machine.timings[(machine.timings["kind"] == "conv") & (machine.timings["pass_name"] == "forward")]
    known = forward.sample(20, random_state=0)
    mine = replace(machine, name="mine", timings=known.reset_index(drop=True), fits={}, timings_key="")
    return mine, forward.drop(index=known.index).reset_index(drop=True)


def test_a_short_table_borrows_from_shipped_machines(short, root, monkeypatch):
    mine, others = short
    donor = own_fits(load_machine(root / "machine_profiles" / "titan-x.yaml"))
    monkeypatch.setattr(evidence, "shipped_donors", lambda: (donor, replace(donor, name="mine")))
    machine = with_fits(mine)
    assert [one.name for one in machine.donors] == ["titan-x"]
    timed = add_times(costed(others), machine)
    told = timed["time_source"] == "transferred"
    assert told.sum() > 70
    assert timed.loc[~told, "time_source"].eq("measured").all()
    assert timed.loc[told, "evidence"].str.contains("titan-x").all()
    assert np.median(np.abs(timed["time_s"] / others["time_s"] - 1)) < 0.1


def costed(timings):
    from fomkit.ops.pricing import add_costs
    from fomkit.ops.tables import TABLES

    names = [column.name for column in TABLES["OPS"] if column.name in timings.columns]
    return add_costs(fill_defaults(timings[names].assign(op="conv"))[0])


def test_long_tables_and_none_are_left_alone(root):
    for name in ("v100", "a"):
        machine = load_machine(root / "machine_profiles" / f"{name}.yaml")
        assert evidence.with_donors(machine) is machine


def test_shipped_lenders_have_convolutions():
    for machine in evidence.shipped_donors():
        assert any(key.startswith("conv/") for key in machine.fits)
