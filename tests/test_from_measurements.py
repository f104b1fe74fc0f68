"""Measured baseline × predicted ratio: numbers by hand, both methods equal where they must be, refusals."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import fail, succeed

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Basis, EnergyScope, Fact, Overhead, Party, Scope
from fomkit.core.measurement import Measurement
from fomkit.core.model import Data
from fomkit.merit.content import _recorded_time
from fomkit.merit.measured_steps import MeasuredRuns, explained_models, read_row
from fomkit.ops.tables import MEASUREMENTS
from fomkit.output.explained import format_from_measurements
from fomkit.plan.estimate import Estimate, with_step
from fomkit.plan.options import Options
from fomkit.readers.measurements import read_measurements
from fomkit.verbs.compare import Comparison, compare
from fomkit.verbs.from_measurements import from_measurements, measured_content

HEADER = "model,machine,quantity,value,low,high,repeats,batch,precision,devices,scope,basis"
ROW = "resnet50,p100,step_s,0.15,0.14,0.16,20,32,fp32,1,device,measured"


@cache
def predicted(batch: int | None = None) -> Comparison:
    return compare(
        [fomkit.model("resnet50")], [fomkit.machine("v100")], fomkit.machine("p100"), Options(batch=batch)
    )


def worked(baseline: Span, target: Span, *, passes: tuple[str, ...] = ()) -> Comparison:
    """Replace predicted steps by figures for hand calculation; a run is 2 epochs of 3 steps."""
    result = predicted()

    def at(one: Estimate, step: Span) -> Estimate:
        model = replace(one.model, data=Data(96, 0), run=replace(one.model.run, epochs=2))
        one = replace(one, model=model)
        kept = {name: span for name, span in one.step_time.passes.items() if not passes or name in passes}
        one = replace(one, step_time=replace(one.step_time, wall_s=step, passes=kept))
        terms = one.step_time.excludes
        rolled = with_step(one, step)
        return replace(rolled, step_time=replace(rolled.step_time, excludes=terms))

    return Comparison((at(result.estimates[0], target),), (at(result.baseline[0], baseline),), ())


def row(value: float, quantity: str = "step_s", **changes: object) -> Measurement:
    stated = {"low": value, "high": value, "spread_stated": False, "batch": 32, "precision": "fp32", "devices": 1}
    known = {**stated, "scope": "device", "basis": "measured", **changes}
    return Measurement("m.csv:2", "resnet50", "p100", quantity, value, **known)  # type: ignore[arg-type]


def test_by_hand() -> None:
    """2 s predicted and 3 s measured on the baseline, 1 s predicted on the target: 1.5 s, and 6 steps a run."""
    found = from_measurements(worked(Span.exact(2.0), Span(1.0, 0.5, 2.0)), [row(3.0)], "m.csv")
    way = found.ways[0]
    assert way.ratio.value == 0.5
    assert way.factor == 1.5
    assert (way.scaled.step.value, way.scaled.step.low, way.scaled.step.high) == pytest.approx((1.5, 0.75, 3.0))
    assert way.scaled.run_time.run_s is not None
    assert way.scaled.run_time.run_s.value == pytest.approx(9.0)
    assert way.scaled.unit_per_day is not None
    assert way.scaled.unit_per_day.value == pytest.approx(86_400 / 9)
    assert found.merits[0].value.value == pytest.approx(2.0)
    assert found.merits[0].baseline.unit_per_day["resnet50"].value == pytest.approx(86_400 / 18)


def test_three_independent_errors_by_hand() -> None:
    """Factors of 2, 2 and 2 either side: 2 to the square root of 3; at 50 % the table's stays one of 80 %."""
    wide = Span(2.0, 1.0, 4.0)
    measured = row(2.0, low=1.0, high=4.0, spread_stated=True)
    step = from_measurements(worked(wide, wide), [measured], "m.csv").ways[0].scaled.step
    assert (step.low, step.high) == pytest.approx((2 / 2**3**0.5, 2 * 2**3**0.5))
    half = Span(2.0, 1.0, 4.0, 0.5)
    narrow = from_measurements(worked(half, half), [measured], "m.csv").ways[0].scaled.step
    z = [NormalDist().inv_cdf(0.5 + level / 2) for level in (0.5, 0.8)]
    assert math.log2(narrow.high / 2) == pytest.approx(math.sqrt(1 + 1 + (z[0] / z[1]) ** 2))
    assert narrow.level == 0.5


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_a_measurement_that_equals_the_prediction_changes_nothing(baseline: float, target: float) -> None:
    result = worked(Span(baseline, baseline / 2, baseline * 2), Span(target, target / 3, target * 2))
    way = from_measurements(result, [row(baseline)], "m.csv").ways[0]
    assert way.factor == 1
    assert way.scaled.step.value == way.predicted.step.value
    assert way.scaled.run_time.run_s.value == way.predicted.run_time.run_s.value
    assert way.scaled.unit_per_day.value == way.predicted.unit_per_day.value
    assert way.scaled.step.low < way.predicted.step.low
    assert (way.verdict, way.baseline_holds) == ("agree", True)


def test_a_measurement_of_the_real_prediction_agrees_to_the_last_digit() -> None:
    result = predicted()
    way = from_measurements(result, [row(result.baseline[0].step.value)], "m.csv").ways[0]
    for name in ("step", "unit_per_day"):
        assert getattr(way.scaled, name).value == getattr(way.predicted, name).value
    assert way.scaled.run_time.epoch_s.value == way.predicted.run_time.epoch_s.value


@pytest.mark.parametrize(
    ("measured", "verdict", "inside"),
    [(2.1, "agree", True), (2.3, "ambiguous", False), (3.5, "disagree", False)],
)
def test_verdicts(measured: float, verdict: str, inside: bool) -> None:
    """Both predictions hold within 10 %, so the product of both holds within 14 %."""
    result = worked(Span(2.0, 2 / 1.1, 2.2), Span(1.0, 1 / 1.1, 1.1))
    way = from_measurements(result, [row(measured)], "m.csv").ways[0]
    assert (way.verdict, way.baseline_holds) == (verdict, inside)
    assert way.overlap is (verdict != "disagree")


def test_exact_predictions_agree_with_nothing_but_themselves() -> None:
    exact = worked(Span.exact(0.3), Span.exact(0.1))
    assert from_measurements(exact, [row(0.3)], "m.csv").ways[0].verdict == "agree"
    assert from_measurements(exact, [row(0.31)], "m.csv").ways[0].verdict == "disagree"


def test_of_several_rows_the_median_counts_and_their_spread_widens() -> None:
    rows = [row(3.0), row(2.0, low=1.9, high=2.2, spread_stated=True), row(2.5)]
    found = from_measurements(worked(Span.exact(2.0), Span.exact(1.0)), rows, "m.csv")
    measured = found.baselines[0].measured
    assert measured is not None
    assert measured.step == Span(2.5, 1.9, 3.0, 0.8)
    assert not measured.spread_stated
    assert len(measured_content(found, "m.csv")["baselines"][0]["used"]) == 3


@pytest.mark.parametrize(
    ("quantity", "value", "message"),
    [
        ("sample_per_s", 16.0, "a batch of 32 per step"),
        ("epoch_s", 6.0, "epoch_s of the profile's 3 steps"),
        ("run_s", 12.0, "run_s of the profile's 2 epochs of 3 steps, including the unknown time of start_up"),
        ("step_s", 2.0, "unchanged"),
    ],
)
def test_every_quantity_becomes_the_same_step(quantity: str, value: float, message: str) -> None:
    found = from_measurements(worked(Span.exact(2.0), Span.exact(1.0)), [row(value, quantity)], "m.csv")
    reading = found.baselines[0].readings[0]
    assert reading.message == message
    assert reading.step is not None
    assert reading.step.value == pytest.approx(2.0, rel=1e-15)
    assert ("start_up" in found.ways[0].excludes) is (quantity != "run_s")
    assert ("start_up" in found.ways[0].unpredicted) is (quantity == "run_s")
    assert "input" in found.ways[0].unpredicted


def test_a_rate_is_slowest_where_the_step_is_longest() -> None:
    reading = read_row(
        row(16.0, "sample_per_s", low=8.0, high=32.0, spread_stated=True),
        worked(Span.exact(2.0), Span.exact(1.0)).baseline[0],
    )
    assert reading.step == Span(2.0, 1.0, 4.0, 0.8)


def test_latency_is_of_a_forward_pass() -> None:
    whole, forward = (
        worked(Span.exact(2.0), Span.exact(1.0), passes=passes).baseline[0] for passes in ((), ("forward",))
    )
    assert read_row(row(2.0, "latency_s"), whole).message.startswith("latency_s is of a forward pass")
    assert read_row(row(2.0, "latency_s"), forward).step == Span.exact(2.0)
    # Nor does it tell how much of a training step the device's work explains.
    runs = MeasuredRuns([row(4.0, "latency_s")], {"p100": whole.machine}.__getitem__)
    assert explained_models([whole], Options(), runs) == ()
    assert [one.share for one in explained_models([forward], Options(), runs)] == [pytest.approx(0.5)]
    recorded = [_recorded_time(one, [row(4.0, "latency_s")]) for one in (whole, forward)]
    assert recorded[0].startswith("none recorded")
    assert recorded[1].endswith("of which the device explains 50.0%")


def test_an_epoch_with_priced_validation_is_its_steps_and_forward_passes() -> None:
    """3 steps of 2 s and 2 forward passes: the epoch as predicted gives the step as predicted."""
    one = worked(Span.exact(2.0), Span.exact(1.0)).baseline[0]
    validated = with_step(replace(one, model=replace(one.model, data=Data(96, 64))), Span.exact(2.0))
    assert validated.run_time.epoch_s is not None
    epoch_s = validated.run_time.epoch_s.value
    assert epoch_s > 6.0
    for factor in (1.0, 3.0):
        reading = read_row(row(factor * epoch_s, "epoch_s"), validated)
        assert reading.step is not None
        assert reading.step.value == pytest.approx(2.0 * factor)
        assert "3 steps and 64 samples of validation that take as long as" in reading.message
        again = with_step(validated, reading.step).run_time.epoch_s
        assert again is not None
        assert again.value == pytest.approx(factor * epoch_s)


def test_an_epoch_with_stated_overheads_is_no_sum_of_steps() -> None:
    one = worked(Span.exact(2.0), Span.exact(1.0)).baseline[0]
    saving = Overhead("checkpoint", "epoch", Fact(5.0, 5.0, 5.0, "measured", ""), None)
    with_saving = with_step(replace(one, machine=replace(one.machine, overheads=(saving,))), Span.exact(2.0))
    reading = read_row(row(11.0, "epoch_s"), with_saving)
    assert reading.step is None
    assert reading.message == "epoch_s includes epoch overheads besides steps; measure step_s"


def test_the_lecture_s_epochs_of_p1b3_are_read() -> None:
    """Its validation samples are known, 200,030; P100 3,060 s and V100 5,987 s an epoch are printed."""
    from fomkit.profiles.locate import locate
    from fomkit.profiles.machines import load_machine
    from fomkit.profiles.models import load_model
    from fomkit.readers.measurements import read_measurements

    machines = load_machine("v100"), load_machine("p100")
    result = compare([load_model("candle/p1b3")], machines[:1], machines[1], Options())
    rows = read_measurements(locate("candle-lecture", "measurements"))
    (way,) = from_measurements(result, rows, "candle-lecture").ways
    assert way.measured.step.value * 8001 < 3060 < way.measured.step.value * 8001 * 1.15
    assert way.scaled.run_time.epoch_s is not None


def test_a_start_up_that_the_target_states_is_told_to_count_twice() -> None:
    result = worked(Span.exact(2.0), Span.exact(1.0))
    start = Overhead("start_up", "run", Fact(5.0, 5.0, 5.0, "measured", ""), None)
    target = replace(result.estimates[0], machine=replace(result.estimates[0].machine, overheads=(start,)))
    found = from_measurements(replace(result, estimates=(target,)), [row(12.0, "run_s")], "m.csv")
    assert found.ways[0].counted_twice == ("start_up",)
    assert found.ways[0].scaled.run_time.run_s == Span.exact(11.0)
    assert "added again: start_up" in format_from_measurements(measured_content(found, "m.csv"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"basis": "estimated"}, "its basis is estimated, not measured"),
        ({"batch": 64}, "its batch is 64, the estimate's is 32"),
        ({"batch": None}, "its batch is not stated; the estimate's is 32"),
        ({"precision": "mixed"}, "its precision is mixed, the estimate's is fp32"),
        ({"scope": "node"}, "its scope is node, the estimate's is device"),
        ({"devices": 8}, "its devices is 8, the estimate's is 1"),
    ],
)
def test_rows_that_do_not_match_are_set_aside_by_name(changes: dict[str, object], message: str) -> None:
    other = row(9.0, **changes)
    found = from_measurements(predicted(), [row(0.15), other], "m.csv")
    assert found.ways[0].measured.step.value == 0.15
    aside = measured_content(found, "m.csv")["baselines"][0]["set_aside"]
    assert [one["said"] for one in aside] == [message]
    with pytest.raises(
        FomkitError, match=r"no row is a measurement of this estimate on p100\. Set aside: m\.csv:2"
    ):
        from_measurements(predicted(), [other], "m.csv")


def test_another_size_than_the_profiles_is_not_known_to_be_measured() -> None:
    one = predicted().baseline[0]
    longer = replace(one, sizes={**one.sizes, "seq": 512}, model=replace(one.model, sizes={"batch": 32, "seq": 9}))
    assert (
        read_row(row(1.0), longer).message
        == "it does not state seq, and the estimate differs from the profile there"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine": "p10"}, "no row is of the baseline 'p100'. The nearest name is 'p10'."),
        ({"model": "resnet"}, "no row of p100 is of resnet50. The nearest name is 'resnet'."),
    ],
)
def test_a_table_about_something_else_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(FomkitError) as caught:
        from_measurements(predicted(), [replace(row(1.0), **changes)], "m.csv")
    assert str(caught.value) == f"m.csv: {message}"


def test_without_a_baseline_there_is_nothing_to_hold_against() -> None:
    with pytest.raises(FomkitError, match="none is named"):
        from_measurements(replace(predicted(), baseline=()), [row(1.0)], "m.csv")


def test_models_without_a_measurement_stay_predicted_and_have_no_merit() -> None:
    result = predicted()
    other = replace(result.baseline[0], model=replace(result.baseline[0].model, name="other"))
    target = replace(result.estimates[0], model=other.model)
    both = Comparison((*result.estimates, target), (*result.baseline, other), ())
    found = from_measurements(both, [row(0.15)], "m.csv")
    assert [way.predicted.model.name for way in found.ways] == ["resnet50"]
    assert found.merits == ()
    told = format_from_measurements(measured_content(found, "m.csv"))
    assert "other on p100: no measurement" in told
    assert "no FOM from measurements" in told


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",0.14,", ",,", "2: states one bound of its interval. Give low and high, or neither."),
        ("0.14,0.16", "0.16,0.14", "2: value 0.15 is not between low 0.16 and high 0.14. Correct them."),
        ("step_s", "step_ms", "2: quantity is 'step_ms'. Expected one of step_s, epoch_s, run_s, sample_per_s,"),
        ("0.15,", "0,", "2: value is 0. Expected a finite number above 0"),
        ("0.15,", ",", "2: value is empty. Expected a finite number above 0"),
        (",32,", ",2*batch,", "2: batch is '2*batch'. Expected a number."),
        (",32,", ",1.5,", "2: batch is 1.5. Expected a whole number"),
        ("measured", "guessed", "2: basis is 'guessed'. Expected one of measured,"),
        (",scope,", ",scopes,", "1: the column 'scopes' is not a column of a table of measurements."),
    ],
)
def test_slips_in_the_table_are_one_message_with_the_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(f"{HEADER}\n{ROW}\n".replace(old, new, 1))
    with pytest.raises(FomkitError) as caught:
        read_measurements(path)
    assert str(caught.value).startswith(f"{path}:{message}")


def test_words_of_the_table_are_those_of_machines() -> None:
    words = {column.name: set(column.words) for column in MEASUREMENTS if column.words}
    assert words["basis"] == set(get_args(Basis))
    assert words["party"] == set(get_args(Party))
    assert words["scope"] == {*get_args(Scope), *get_args(EnergyScope)}


def test_the_command(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(f"{HEADER}\n{ROW}\n{ROW.replace('measured', 'published')}\n{ROW.replace('p100', 'm40')}\n")
    arguments = ("estimate", "resnet50", "--target", "v100", "--baseline", "p100", "--from", str(path))
    content = json.loads(succeed(*arguments, "--json", cwd=root))
    block = content["from_measurements"]
    way = block["models"][0]
    assert block["baselines"][0]["measured_step_s"] == {"value": 0.15, "low": 0.14, "high": 0.16}
    predicted_baseline, target = (one["step_s"]["value"] for one in content["models"])
    assert way["factor"] == pytest.approx(0.15 / predicted_baseline)
    assert way["measured_times_ratio"]["step_s"]["value"] == pytest.approx(target * 0.15 / predicted_baseline)
    assert way["predicted"]["step_s"] == content["models"][1]["step_s"]
    assert block["rows_of_others"] == 1
    told = succeed(*arguments, "-o", str(tmp_path / "both.csv"), cwd=root)
    with (tmp_path / "both.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    name = "from_measurements.measured_times_ratio.step_s.value"
    assert (first[name], float(second[name])) == ("", way["measured_times_ratio"]["step_s"]["value"])
    for words in ("measured × ratio", "not used", "its basis is published, not measured", "assumed independent"):
        assert words in told


def test_the_command_needs_a_baseline(root: Path, tmp_path: Path) -> None:
    told = fail("estimate", "resnet50", "--target", "v100", "--from", str(tmp_path / "m.csv"), cwd=root)
    assert "needs the machine that was measured. Add, for example, '--baseline p100'." in told
