"""The figures: charts of tables with hostile names, many rows and unknown cells, and in a notebook."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fomkit
from fomkit.ops import kinds
from fomkit.output.charts import COLOURS, KINDS, decades
from fomkit.output.charts import compared as draw_compared
from fomkit.output.charts import roofline as draw_roofline
from fomkit.output.charts import scaling as draw_scaling
from fomkit.plan.evidence import op_frame, roof_frame
from fomkit.plan.op_tables import MOMENTS, _shown_moments, composition_table, memory_table, pareto_table


def all_values(spec: Any) -> list[dict[str, Any]]:
    """Return every row of data that a chart holds, each table once."""
    return [row for rows in spec["datasets"].values() for row in rows]


@pytest.mark.parametrize("name", ["roofline", "pareto", "composition", "memory"])
def test_an_estimate_draws_itself(resnet50, name) -> None:
    spec = getattr(resnet50.plot, name)().to_dict()
    assert spec["width"] == 640
    assert all_values(spec)
    json.dumps(spec, allow_nan=False)


def test_the_roofline_has_every_op_and_the_machines_rates(resnet50) -> None:
    ops = op_frame(resnet50)
    shown = [row for row in all_values(resnet50.plot.roofline().to_dict()) if "intensity" in row]
    assert len(shown) == int(((ops["intensity"] > 0) & (ops["flop_per_s"] > 0)).sum())
    roofs = roof_frame(resnet50, ops)
    assert roofs["flop_per_s"].tolist() == [15.7e12]
    assert roofs["byte_per_s"].tolist() == [900e9]
    first = shown[0]
    assert first["intensity"] == pytest.approx(ops["flop"][0] / ops["byte"][0])
    assert first["flop_per_s"] == pytest.approx(ops["flop"][0] / ops["time_s"][0])


def test_the_table_of_ops_adds_up_to_the_device_time(resnet50) -> None:
    ops = op_frame(resnet50)
    assert ops["time_s"].sum() == pytest.approx(resnet50.step_time.device_s.value)
    assert ops["share"].sum() == pytest.approx(1)
    assert ops["time_s"].is_monotonic_decreasing
    parts = composition_table(resnet50)
    for name, span in resnet50.step_time.passes.items():
        assert parts.loc[parts["pass"] == name, "time_s"].sum() == pytest.approx(span.value)
    longest = pareto_table(ops, 10_000).drop_duplicates("name")
    assert longest["reached"].iloc[-1] == pytest.approx(1)
    assert pareto_table(ops, 3)["name"].nunique() == 3


def test_memory_over_the_step_is_that_of_the_command(resnet50) -> None:
    from fomkit.plan.memory_of import step_memory

    live = memory_table(resnet50)
    use = step_memory(resnet50.model, resnet50.sizes)
    assert use is not None
    assert live["all_byte"].max() == use.peak_byte
    assert live.groupby("id")["byte"].sum().to_numpy() == pytest.approx(use.live_byte)
    over, moment = use.over_time, use.peak_id
    for role, byte in use.by_role(moment).items():
        assert (over[role].iloc[moment] if role in over else 0.0) == byte


def test_a_long_step_keeps_its_peak_when_thinned() -> None:
    one = fomkit.estimate("gpt2", "a100-sxm")
    live = memory_table(one)
    moments = live["id"].nunique()
    assert moments <= MOMENTS + 2
    from fomkit.plan.memory_of import step_memory

    use = step_memory(one.model, one.sizes)
    assert use is not None
    assert live["all_byte"].max() == use.peak_byte


def test_moments_of_a_long_step_are_the_fullest_of_each_stretch_with_the_first_and_the_last() -> None:
    live = np.tile([1.0, 3.0, 2.0], MOMENTS)  # each stretch of three is fullest in its middle
    assert _shown_moments(live[:MOMENTS]) == list(range(MOMENTS))
    assert _shown_moments(live) == [0, *range(1, 3 * MOMENTS, 3), 3 * MOMENTS - 1]


def test_without_an_order_or_arithmetic_the_message_says_so(resnet50) -> None:
    lecture = fomkit.estimate("p1b3-lecture", "x86-lecture")
    with pytest.raises(fomkit.FomkitError, match="no order of its ops"):
        lecture.plot.memory()
    moving = replace(
        resnet50.model, ops=resnet50.model.ops.query("kind == 'copy'").reset_index(drop=True), order=None
    )
    with pytest.raises(fomkit.FomkitError, match="no roofline to draw"):
        fomkit.estimate(moving, "v100").plot.roofline()
    with pytest.raises(fomkit.FomkitError, match="Give one of: kind, time_source, bound"):
        lecture.plot.composition("colour")


def test_a_missing_library_is_one_message(resnet50, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(fomkit.FomkitError, match=r'Run: pip install "altair>=.*" "itables'):
        resnet50.plot.pareto()


def test_more_rows_than_the_library_usually_takes() -> None:
    ops = pd.DataFrame(
        {"op": "mm", "kind": "gemm", "sizes": "gemm", "pass_name": "forward", "module": "", "time_s": 1e-3,
         "low_s": 1e-3, "high_s": 2e-3, "share": 1e-4, "intensity": 5.0, "flop_per_s": 1e12,
         "time_source": "roofline", "bound": "compute"}, index=range(6000)
    )  # fmt: skip
    roofs = pd.DataFrame({"roof": ["r"], "flop_per_s": [1e13], "byte_per_s": [1e12]})
    spec = draw_roofline(ops, roofs).to_dict(validate=False)
    assert sum("intensity" in row for row in all_values(spec)) == 6000


def test_names_are_data_and_never_part_of_the_figure(resnet50) -> None:
    name = '"});alert(1)//'
    hostile = replace(resnet50.model, ops=resnet50.model.ops.assign(op=name))
    spec = fomkit.estimate(hostile, "v100").plot.pareto().to_dict()
    rest = json.dumps({key: value for key, value in spec.items() if key not in ("datasets", "layer")})
    assert "alert" not in rest
    for layer in spec["layer"]:
        layer.pop("data", None)
        assert "alert" not in json.dumps(layer)


def test_every_kind_has_its_own_mark() -> None:
    assert set(KINDS) == set(kinds.KINDS)
    assert len(set(KINDS.values())) == len(KINDS)
    assert {mark.colour for mark in KINDS.values()} <= set(COLOURS)


@given(st.floats(1e-9, 1e9), st.floats(1.0, 1e12))
def test_lines_of_a_logarithmic_axis_lie_on_it(low, factor) -> None:
    found = decades(low, low * factor)
    assert all(low * (1 - 1e-9) <= line <= low * factor * (1 + 1e-9) for line in found)
    assert len(found) <= 22


def test_scaling_and_measured_figures_draw() -> None:
    points = pd.DataFrame(
        {"mode": ["weak scaling"] * 2, "devices": [1, 2], "speedup": [1.0, 1.8], "low": [1.0, 1.7],
         "high": [1.0, 1.9], "efficiency": [1.0, 0.9], "step_s": [0.1, 0.11], "ideal": [1.0, 2.0],
         "limit": ["device"] * 2}
    )  # fmt: skip
    assert len(all_values(draw_scaling(points).to_dict())) >= 2
    figures = pd.DataFrame(
        {"name": ["v100, epoch"] * 2, "what": ["projected", "measured"], "time_s": [1.0, 1.2], "low_s": [0.8, 1.2],
         "high_s": [1.3, 1.2], "said": ["its time"] * 2}
    )  # fmt: skip
    assert [row["time"] for row in all_values(draw_compared(figures).to_dict())][:2] == [
        "1.00 s (800 ms to 1.30 s)", "1.20 s (no spread stated)",
    ]  # fmt: skip
