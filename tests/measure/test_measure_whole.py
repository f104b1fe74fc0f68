"""From nothing to a profile that other verbs read: facts, rates, timings, notes; interrupted and resumed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from json_figures import sorted_out
from simple_machine import Simple
from typer.testing import CliRunner

import fomkit
from fomkit.bench.design import design
from fomkit.bench.journal import DESIGN, ENOUGH, WALL_FACTOR, Clocks, Verdict, clocks_of
from fomkit.bench.run import Measured, MeasureSpec, measure
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.plan.coverage import MEASURED_SPREAD
from fomkit.plan.options import Options
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.metrics import METRICS


def requested(tmp_path: Path, **changes: object) -> MeasureSpec:
    options = {"plan": "quick", "models": ("candle/p1b3",), "options": Options(batch=4), **changes}
    return MeasureSpec(tmp_path / "here.yaml", **options)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Simple]:
    folder, timer = tmp_path_factory.mktemp("measured"), Simple()
    found = measure(requested(folder), start=lambda _setup: timer)
    assert not found.interrupted
    return folder, timer


def test_a_profile_comes_of_it_and_the_journal_goes(measured: tuple[Path, Simple]) -> None:
    folder, _ = measured
    assert {one.name for one in folder.iterdir()} == {"here.yaml", "here.timings.csv"}
    machine = fomkit.machine(folder / "here.yaml")
    assert with_fits(machine).fits
    assert machine.party == "lab"


def test_rates_are_those_that_were_reached(measured: tuple[Path, Simple]) -> None:
    device = fomkit.machine(measured[0] / "here.yaml").device
    peak = device.peak("fp32", "vector")
    assert peak is not None
    assert peak.rate.basis == "measured"
    assert peak.rate.source == "measured here, torch 9.9"
    assert peak.rate.low < peak.rate.value <= peak.rate.high
    assert peak.rate.value == pytest.approx(1e11 / 1.1, rel=0.01)
    assert device.byte_per_s is not None
    assert device.byte_per_s.value == pytest.approx(1e10 / 1.1, rel=0.01)
    assert device.launch_s is not None
    assert device.launch_s.value == 5e-6


def test_every_op_of_the_model_is_measured_there(measured: tuple[Path, Simple]) -> None:
    estimate = fomkit.estimate("candle/p1b3", fomkit.machine(measured[0] / "here.yaml"), batch=4)
    assert estimate.coverage["measured"] == pytest.approx(1.0)
    # The rule of the machine, by hand: the largest product, of cold operands, and what the framework adds.
    first = estimate.ops.iloc[0]
    assert first["time_s"] == pytest.approx(1.1 * 1.0045 * (first["byte"] / 1e10 + 1e-6) + 3e-6, rel=1e-6)


def test_a_step_is_less_sure_than_its_ops_are(measured: tuple[Path, Simple]) -> None:
    machine = fomkit.machine(measured[0] / "here.yaml")
    bare = replace(machine, timings=machine.timings.assign(harness=""))
    wide, narrow = (fomkit.estimate("candle/p1b3", one, batch=4).step for one in (machine, bare))
    assert wide.value == pytest.approx(narrow.value)
    # 80 % of a normal distribution lie within 1.2816; a part of the step is pages, which have ends of their own.
    of_use = math.exp(1.2816 * MEASURED_SPREAD.slower) - 1
    assert wide.high / wide.value > 1 + of_use / 2 > narrow.high / narrow.value


def test_rows_say_how_they_were_made(measured: tuple[Path, Simple]) -> None:
    timings = fomkit.machine(measured[0] / "here.yaml").timings
    assert set(timings["harness"]) == {"fomkit measure"}
    assert set(timings["library_version"]) == {"9.9"}
    cold = timings[timings["note"].str.startswith("operands cold; warm")]
    assert 0 < len(cold) < len(timings)
    assert timings["note"].str.contains("median within").all()
    updates = timings[timings["kind"] == "optimizer"]["note"]
    assert not updates.str.contains("of the framework").any()


def test_an_update_is_timed_with_the_models_own_tensors(measured: tuple[Path, Simple]) -> None:
    (update,) = [one for one in measured[1].requested if one["kind"] == "optimizer"]
    lengths = [int(one) for one in update["lengths"].split()]
    assert sum(lengths) == 30_088_701
    assert len(lengths) == 10
    assert max(lengths) == 29_532_000


def test_the_notes_tell_noise_drift_load_and_the_machine(measured: tuple[Path, Simple]) -> None:
    notes = fomkit.machine(measured[0] / "here.yaml").notes
    for word in ("a machine of the mind", "noise: half of", "drift: the reference", "throttling:"):
        assert any(word in note for note in notes), word


def test_an_interrupt_keeps_what_was_measured_and_a_resume_goes_on(tmp_path: Path) -> None:
    def interrupt(number: int, _cells: object) -> None:
        if number == 20:
            raise KeyboardInterrupt

    broken, whole = Simple(interrupt), Simple()
    found = measure(requested(tmp_path), start=lambda _setup: broken)
    assert found.interrupted
    some = len(fomkit.machine(tmp_path / "here.yaml").timings)
    assert 0 < some < 20
    again = measure(requested(tmp_path, resume=True), start=lambda _setup: whole)
    assert not again.interrupted
    assert len(again.machine.timings) > some
    assert len(whole.requested) < len(again.machine.timings)
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_mistake_is_told_before_anything_is_timed(tmp_path: Path) -> None:
    timer = Simple()
    with pytest.raises(FomkitError, match="nosuch"):
        measure(requested(tmp_path, models=("nosuch",)), start=lambda _setup: timer)
    with pytest.raises(FomkitError, match="nothing can be resumed"):
        measure(requested(tmp_path, resume=True), start=lambda _setup: timer)
    for wrong, said in (
        (Options(precision="fp8"), "precision: fp8 needs products in fp8"),
        (Options(sizes={"seq": 8}), "seq"),
    ):
        with pytest.raises(FomkitError, match=said):
            measure(requested(tmp_path, options=wrong), start=lambda _setup: timer)
    assert not timer.requested
    assert not list(tmp_path.iterdir())


# --- the budget and the verdict ----------------------------------------------------------------------------------


def by(timer: Simple, slower: float):
    """Return clocks of a machine that other work slows down by a factor in wall time."""
    return lambda _spec, _child: Clocks(lambda: timer.now, lambda: slower * timer.now, "process time")


def test_other_work_on_the_machine_costs_time_by_the_wall_and_no_timings(tmp_path: Path) -> None:
    quiet, busy = Simple(), Simple()
    found = [
        measure(
            requested(tmp_path, budget_s=20.0),
            start=lambda _setup, timer=timer: timer,
            choose_clocks=by(timer, slower),
        )
        for timer, slower in ((quiet, 1.0), (busy, 3.5))
    ]
    assert len(quiet.requested) == len(busy.requested)
    assert [one.verdict.sufficient for one in found] == [True, True]
    assert found[1].verdict.wall_s == pytest.approx(3.5 * found[1].verdict.own_s)
    assert any("s of process time" in line and "s of wall time" in line for line in found[1].verdict.lines())


def test_a_wall_time_of_several_budgets_ends_it_and_says_so(tmp_path: Path) -> None:
    timer = Simple()
    clocks = by(timer, 1e3)
    found = measure(
        requested(tmp_path, models=(), budget_s=60.0), start=lambda _setup: timer, choose_clocks=clocks
    )
    verdict = found.verdict
    assert verdict.ended == "wall"
    assert not verdict.sufficient
    assert timer.now < 5.0
    assert verdict.wall_s > WALL_FACTOR * 60.0
    assert any("the wall time reached 4 times the budget" in line for line in verdict.lines())
    assert any(note.startswith("not sufficient") for note in fomkit.machine(tmp_path / "here.yaml").notes)


def test_too_few_timings_are_not_enough_and_the_command_that_goes_on_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of an eighth of the design: each round of timings is fitted, which takes longer than all the rest.
    monkeypatch.setattr("fomkit.bench.run.design", lambda *of: design(*of)[::8])
    timer = Simple()
    wanted = requested(tmp_path, models=(), budget_s=16.0, threads=1, name="it")
    found = measure(wanted, start=lambda _setup: timer, choose_clocks=by(timer, 1.0))
    verdict = found.verdict
    assert (verdict.ended, verdict.sufficient) == ("budget", False)
    assert verdict.timed < verdict.wanted
    assert verdict.shares[DESIGN] < ENOUGH
    output = tmp_path / "here.yaml"
    assert verdict.resume == f"fomkit measure --resume --quick --batch 4 --name it -o {output}"
    assert (tmp_path / "here.measuring.jsonl").is_file()
    again = Simple()
    more = measure(
        requested(tmp_path, models=(), budget_s=1e4, name="it", resume=True),
        start=lambda _setup: again, choose_clocks=by(again, 1.0),
    )  # fmt: skip
    assert more.verdict.sufficient
    assert (more.verdict.ended, more.verdict.resume) == ("done", "")
    assert more.verdict.timed == more.verdict.wanted == verdict.wanted
    assert not (tmp_path / "here.measuring.jsonl").exists()


def test_the_share_is_that_of_the_models_predicted_step(measured: tuple[Path, Simple]) -> None:
    notes = fomkit.machine(measured[0] / "here.yaml").notes
    assert "measured or interpolated: 100.0% of the predicted step time of candle/p1b3" in notes
    assert "sufficient: 80% of each is sufficient" in notes


def test_one_thread_of_a_cpu_is_budgeted_by_process_time_and_all_else_by_the_wall() -> None:
    spent = [5.0]
    own = clocks_of("cpu", 1, lambda: spent[0])
    before = own.own()
    spent[0] += 100.0
    assert own.name == "process time"
    assert 100.0 <= own.own() - before < 101.0
    for device, threads in (("cpu", 2), ("cuda", 1)):
        assert clocks_of(device, threads, lambda: spent[0]).name == "wall time"


@pytest.mark.parametrize(("share", "code"), [(0.9, 0), (0.3, 1)])
def test_the_exit_code_and_the_json_say_whether_it_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, code: int
) -> None:
    verdict = Verdict(
        {"gpt2": share}, 20, 9, 98.0, 400.0, 110.0, "process time", "budget", "fomkit measure --resume"
    )
    found = Measured(fomkit.machine("p100"), (tmp_path / "here.yaml",), False, 400.0, verdict)
    monkeypatch.setattr("fomkit.bench.run.measure", lambda _spec, _tell: found)
    words = ["measure", "--quick", "--for", "gpt2", "-o", str(tmp_path / "here.yaml")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code
    assert ("to continue: fomkit measure --resume" in done.stdout) == bool(code)
    assert ("Next: fomkit estimate gpt2 --target " in done.stdout) == (not code)
    assert "measured: 9 of 20 ops timed in 98 s of process time (budget 110 s), 400 s of wall time" in done.stdout
    rests = f"{share:.1%} of the predicted step of gpt2 is based on timings"
    assert f"{rests}{': too little, 80% is required' * code}\n" in done.stdout
    content = json.loads((done := CliRunner().invoke(app, [*words, "--json"])).stdout)
    assert done.exit_code == code
    assert content["schema"] == "fomkit/measured/1"
    known, unknown = sorted_out(content, "measure")
    assert not unknown
    assert known == {one.name for one in METRICS if "measure" in one.by.split()}
    assert content["sufficient"] is (code == 0)
    assert content["shares"] == [{"of": "gpt2", "timed_share": share}]
    assert (content["measuring_s"], content["measuring_wall_s"], content["budget_s"]) == (98.0, 400.0, 110.0)
