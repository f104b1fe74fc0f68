"""Steps, epochs and runs: every term by name, unknown terms reported as excluded, missing work refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Device, Fact, Machine, Overhead
from fomkit.core.model import Data, ModelProfile, Run, Unit
from fomkit.merit.content import method_steps
from fomkit.ops.tables import empty_table
from fomkit.plan import shapes
from fomkit.plan.content import estimate_content
from fomkit.plan.coverage import check_covered, coverage
from fomkit.plan.run import roll_up_run, run_notes, steps_per_epoch
from fomkit.plan.step import roll_up_step

NONE = empty_table("TIMINGS")
LAUNCH = Fact(5e-6, 3e-6, 10e-6, "assumed", "")


def timed(**changes: list[object]) -> pd.DataFrame:
    columns: dict[str, list[object]] = {
        "op": ["mm", "mm", "add", "sgd"],
        "kind": ["gemm", "gemm", "pointwise", "optimizer"],
        "dtype": ["fp32"] * 4,
        "pass_name": ["forward", "backward_weight", "forward", "update"],
        "count": [2.0, 1.0, 10.0, 1.0],
        "launches": [1.0, 1.0, 1.0, 4.0],
        "time_s": [1e-3, 2e-3, 1e-4, 5e-4],
        "low_s": [0.5e-3, 1e-3, 0.9e-4, 4e-4],
        "high_s": [2e-3, 4e-3, 2e-4, 6e-4],
        "time_source": ["interpolated", "interpolated", "roofline", "roofline"],
        "bound": ["compute", "compute", "memory", "memory"],
    }
    return pd.DataFrame({**columns, **changes})


def machine(*overheads: Overhead, launch: Fact | None = LAUNCH) -> Machine:
    return Machine("m", "m", "lab", Device(launch_s=launch), NONE, overheads=overheads)


def model(**changes: object) -> ModelProfile:
    base = ModelProfile("net", "net", empty_table("OPS"), empty_table("OPS"), {"batch": 100}, {})
    return replace(base, data=Data(800_121, 0), run=Run(20), **changes)


def stated(name: str, per: str, seconds: float) -> Overhead:
    return Overhead(name, per, Fact(seconds, seconds, seconds, "measured", ""), None)  # type: ignore[arg-type]


def test_step_is_the_sum_of_its_passes() -> None:
    step = roll_up_step(timed(), machine(), 0.8)
    assert step.device_s.value == pytest.approx(2e-3 + 2e-3 + 1e-3 + 5e-4)
    assert {name: span.value for name, span in step.passes.items()} == pytest.approx(
        {"forward": 3e-3, "backward": 2e-3, "update": 5e-4}
    )
    assert step.wall_s == step.device_s
    assert step.bound == "compute"
    assert step.excludes == ("input",)


def test_ops_of_one_family_err_together_in_part_and_families_do_not() -> None:
    one_family = timed(kind=["gemm"] * 4, time_source=["roofline"] * 4)
    together, apart = 4e-3 + 4e-3 + 2e-3 + 6e-4, roll_up_step(timed(), machine(), 0.8).device_s.high
    assert apart < roll_up_step(one_family, machine(), 0.8).device_s.high < together


def test_the_host_can_be_slower_than_the_device() -> None:
    slow = Fact(1e-3, 1e-3, 1e-3, "measured", "")
    step = roll_up_step(timed(), machine(launch=slow), 0.8)
    assert step.host_launch_s is not None
    assert step.wall_s.value == pytest.approx((2 + 1 + 10 + 4) * 1e-3)
    assert step.bound == "launch"


def test_the_input_pipeline_runs_beside_the_device_and_other_overheads_add() -> None:
    step = roll_up_step(timed(), machine(stated("input", "step", 0.1), stated("log", "step", 0.02)), 0.8)
    assert step.wall_s.value == pytest.approx(0.12)
    assert step.bound == "input"
    assert step.excludes == ()


def test_unknown_launch_cost_is_said_to_be_excluded() -> None:
    assert roll_up_step(timed(), machine(launch=None), 0.8).excludes == ("host_launch", "input")


def test_coverage_is_shares_of_time_and_sums_to_one() -> None:
    shares = coverage(timed())
    assert shares["interpolated"] == pytest.approx(4 / 5.5)
    assert sum(shares.values()) == pytest.approx(1)
    partly = timed(time_s=[1e-3, 2e-3, math.nan, 5e-4])
    assert coverage(partly)["unpriced"] == pytest.approx(10 / 14)
    assert sum(coverage(partly).values()) == pytest.approx(1)
    for nothing in (timed(time_s=[math.nan] * 4), timed()[:0]):
        shares = coverage(nothing)
        assert (shares["unpriced"], sum(shares.values())) == (1, 1)


def test_work_without_a_time_is_refused_by_kind() -> None:
    with pytest.raises(
        FomkitError,
        match=r"10 of 14 op .* no time; kinds: pointwise \(10\), all in fp32\. Add .*, choose another --precision",
    ):
        check_covered(timed(time_s=[1e-3, 2e-3, math.nan, 5e-4]), (), "net on m")
    narrow = timed(time_s=[1e-3, 2e-3, math.nan, 5e-4]).assign(dtype="bf16")
    with pytest.raises(
        FomkitError, match=r"pointwise \(10\), all in bf16\. Add .*, choose another --precision, or"
    ):
        check_covered(narrow, (), "net on m")
    with pytest.raises(FomkitError, match=r"aten::fft ×3"):
        check_covered(timed(), ("aten::fft ×3",), "net on m")
    check_covered(timed(), (), "net on m")


def test_partial_batches_are_an_explicit_switch() -> None:
    assert steps_per_epoch(800_121, 100, "drop") == (8001, False)
    assert steps_per_epoch(800_121, 100, "keep") == (8002, True)
    assert steps_per_epoch(800, 100, "keep") == (8, False)


def test_a_run_that_leaves_a_good_part_of_the_samples_out_says_so() -> None:
    step, small = roll_up_step(timed(), machine(), 0.8), replace(model(), data=Data(2700, 0))

    def said(batch: int, last_batch: str) -> list[str]:
        return run_notes(small, roll_up_run(small, machine(), step, batch, last_batch), {"batch": batch})

    assert said(1351, "drop") == [
        "50% of an epoch's samples do not fill a batch and are dropped: a run has that much less work"
    ]
    assert said(1350, "drop") == said(269, "drop") == []  # 10 of 2,700 are too few to matter
    assert said(1351, "keep") == ["the partial last batch is priced as a full step"]


def test_a_run_is_epochs_of_steps_with_validation_and_start_up_apart() -> None:
    step = roll_up_step(timed(), machine(), 0.8)
    run = roll_up_run(model(), machine(), step, 100, "drop")
    assert run.run_s is not None
    assert run.run_s.value == pytest.approx(20 * 8001 * step.wall_s.value)
    assert run.excludes == ("input", "start_up")
    validated = replace(model(), data=Data(800_121, 1000))
    longer = roll_up_run(validated, machine(stated("start_up", "run", 60.0)), step, 100, "drop")
    assert longer.run_s is not None
    assert longer.run_s.value == pytest.approx(run.run_s.value + 20 * 10 * step.passes["forward"].value + 60)
    assert longer.excludes == ("input",)


@pytest.mark.parametrize(("samples", "seconds"), [(0, 0.0), (None, None), (200, None)])
def test_without_a_forward_pass_only_no_validation_is_known(samples: int | None, seconds: float | None) -> None:
    step = roll_up_step(timed(pass_name=["update"] * 4), machine(), 0.8)
    of = replace(model(), data=Data(800_121, samples))
    found = roll_up_run(of, machine(), step, 100, "drop").validation_s
    assert (None if found is None else found.value) == seconds


def test_without_samples_or_epochs_the_roll_up_stops() -> None:
    step = roll_up_step(timed(), machine(), 0.8)
    assert roll_up_run(replace(model(), data=Data()), machine(), step, 100, "drop").epoch_s is None
    no_epochs = roll_up_run(replace(model(), run=Run()), machine(), step, 100, "drop")
    assert no_epochs.epoch_s is not None
    assert no_epochs.run_s is None


def test_steps_of_a_study_say_what_a_profile_lacks_of_a_run() -> None:
    """The last five of twelve are for an epoch, a run, its days and its units, and the ratio."""
    model = fomkit.model("p1b3")
    for known, lacking in ((Data(), 4), (replace(model.data, validation_samples=0), 3)):
        one = fomkit.estimate(replace(model, data=known, run=replace(model.run, epochs=None)), "v100")
        cells = [cell for _, cell in method_steps(one, None, None, [], lambda _span, _unit: "…")]
        assert len(cells) == 12
        assert cells[-1] == "needs --baseline"
        unknown = (
            "unknown: p1b3 does not state train_samples and epochs" if lacking == 4 else "unknown: p1b3 does not"
        )
        assert [cell.startswith(unknown) for cell in cells[:-1]] == [False] * (11 - lacking) + [True] * lacking
    assert cells[7].endswith("(800,121 samples ÷ 100, 21 left over)")


def test_a_ratio_says_what_it_is_of() -> None:
    # Runs where the profile says what a run is, else steps.
    model, old, new = fomkit.model("p1b3"), "p100", "v100"
    unknown = replace(model, run=replace(model.run, epochs=None))
    for one, of in ((model, "units per day"), (unknown, "steps per second")):
        found = estimate_content(fomkit.estimate(one, new), fomkit.estimate(one, old))
        assert found["ratio"]["of"] == of


BARE = "schema: fomkit/model/1\nname: bare\nsizes: {batch: 64}\nops: ops.csv\n"
OPS = "op,kind,dtype,engine,pass_name,count,b,m,n,k\nmm,gemm,fp32,vector,forward,2,1,1024,batch,1024\n"


def test_a_run_that_no_profile_says_is_priced_with_what_is_given(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bare.yaml").write_text(BARE, encoding="utf-8")
    Path("ops.csv").write_text(OPS, encoding="utf-8")
    alone = fomkit.estimate("bare.yaml", "v100")
    assert alone.run_time.run_s is None
    assert "does not define a run: add --samples, --epochs or both" in alone.summary()
    one = fomkit.estimate("bare.yaml", "v100", epochs=3, samples=6_400, unit="fine-tuned model")
    assert one.step == alone.step
    assert one.run_time.steps_per_epoch == 100
    assert one.run_time.run_s.value == pytest.approx(300 * one.step.value)
    assert one.unit_per_day.value == pytest.approx(86_400 / one.run_time.run_s.value)
    assert "fine-tuned models a day" in one.summary()
    note = "stated by you: epochs 3, samples 6400, unit 'fine-tuned model'"
    assert note not in alone.deviations
    assert one.deviations[0] == note
    assert f"note: bare on v100: {note}" in one.summary()
    given = {"epochs": 3, "samples": 6_400, "unit": "fine-tuned model"}
    both = fomkit.estimate_all(["bare.yaml"], ["v100"], baseline="p100", **given)
    assert len(both.merits) == 1
    words = [
        "estimate",
        "bare.yaml",
        "-t",
        "v100",
        "--baseline",
        "p100",
        "--epochs",
        "3",
        "--samples",
        "6400",
        "--unit",
    ]
    assert CliRunner().invoke(app, [*words, "fine-tuned model"]).stdout == both.summary()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--epochs", "0"], "--epochs: is 0. Give a whole number of 1 or more."),
        (["--samples", "-5"], "--samples: is -5. Give a whole number of 1 or more."),
        (["--epochs", "many"], "--epochs: is many. A whole number was expected."),
        (["--unit", " "], "--unit: is ' '. State what one run produces, for example 'trained model'."),
        (["--samples", "5"], "--samples: is 5, but p1b3 states 800121. Leave --samples out"),
        (["--epochs", "7"], "p1b3 states 20. Leave --epochs out. To change it, edit a line of a suite"),
    ],
)
def test_a_run_that_cannot_be_is_one_message(given, said) -> None:
    done = CliRunner().invoke(app, ["estimate", "p1b3", "-t", "v100", *given])
    assert said in str(done.exception)
    assert done.stdout == ""


def test_what_a_profile_says_may_be_repeated() -> None:
    said, known = fomkit.estimate("p1b3", "v100", epochs=20), fomkit.estimate("p1b3", "v100")
    assert (said.run_time, said.deviations) == (known.run_time, known.deviations)
    with pytest.raises(FomkitError, match=r"unit: is 'thing', but kepler states"):
        fomkit.estimate(replace(fomkit.model("p1b3"), name="kepler", unit=Unit("drug", 2)), "v100", unit="thing")


def test_a_long_table_is_priced_as_a_short_one(monkeypatch) -> None:
    """In a long table, rows that differ only in their place are merged first."""
    model, machine = fomkit.model("gpt2"), fomkit.machine("v100")
    found = []
    for few in (len(model.ops), 1):
        monkeypatch.setattr(shapes, "FEW", few)
        # A table of its own: what was worked out of another stays with that.
        found.append(fomkit.estimate(replace(model, ops=model.ops.copy()), machine))
    short, long = found
    assert long.step == short.step
    pd.testing.assert_frame_equal(long.ops, short.ops)
