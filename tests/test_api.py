"""The Python interface: its surface, and an estimate as a person writes it in a notebook."""

from __future__ import annotations

import pytest

import fomkit


def test_the_public_surface() -> None:
    assert sorted(fomkit.__all__) == [
        "Conditions", "FomkitError", "Workload", "__version__", "advise", "compare_measured",
        "convolution_methods", "cost", "estimate", "machine", "model", "predict_ops", "profile", "rate_suite",
        "sensitivity", "solve", "sweep",
    ]  # fmt: skip
    for name in fomkit.__all__:
        assert getattr(fomkit, name) is not None
    with pytest.raises(AttributeError, match="It has: Conditions"):
        _ = fomkit.nothing


def test_a_machine_is_a_function_before_and_after_other_calls() -> None:
    assert fomkit.machine("titan").name == "titan"
    fomkit.estimate("p1b3-lecture", "x86-lecture")
    assert fomkit.machine("titan").name == "titan"


def test_an_estimate_carries_every_table_and_tells_itself() -> None:
    one = fomkit.estimate(fomkit.model("resnet50"), fomkit.machine("v100"), batch=64)
    assert one.sizes["batch"] == 64
    assert {"flop", "byte", "time_s", "low_s", "high_s", "time_source", "evidence"} <= set(one.ops.columns)
    assert one.step.low < one.step.value < one.step.high
    assert one.summary().startswith("coverage")
    page = one._repr_html_()
    assert page.startswith("<table>")
    assert "resnet50" in page


def test_a_larger_batch_takes_longer_a_step_and_less_a_sample() -> None:
    small, large = (fomkit.estimate("resnet50", "v100", batch=batch).step.value for batch in (16, 64))
    assert small < large < 4 * small


def test_names_in_a_page_stay_text() -> None:
    from dataclasses import replace

    hostile = replace(fomkit.model("p1b3-lecture"), name="<script>alert(1)</script>")
    assert "<script>" not in fomkit.estimate(hostile, "x86-lecture")._repr_html_()


def test_a_wider_level_gives_a_wider_interval() -> None:
    narrow, wide = (fomkit.estimate("alexnet", "v100", interval=level).step for level in (0.5, 0.95))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_suite_and_its_proposals() -> None:
    rated = fomkit.rate_suite("lecture", "a")
    assert rated.summary().splitlines()[0].startswith("lecture, version 1")
    with pytest.raises(fomkit.FomkitError, match="is given"):
        fomkit.rate_suite("lecture", "a", proposals={"P1": fomkit.Conditions(batch=2)})
    with pytest.raises(fomkit.FomkitError, match="no line of it"):
        fomkit.rate_suite("lecture", "a", proposals={"P9": fomkit.Conditions(batch=2)})


def test_measured_and_projected_stand_in_one_table() -> None:
    table = fomkit.compare_measured()
    tc1 = table[(table["model"] == "tc1") & (table["machine"] == "v100")].iloc[0]
    assert tc1["measured_value"] == 44
    assert tc1["projected_low"] < tc1["projected_value"] < tc1["projected_high"]
