"""From nothing to a profile that other verbs read: facts, rates, timings, notes; interrupted and resumed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from simple_machine import Simple

import fomkit
from fomkit.errors import FomkitError
from fomkit.measure import Asked, measure
from fomkit.rollup.use import MEASURED_SPREAD
from fomkit.study import Options


def asked(tmp_path: Path, **changes: object) -> Asked:
    options = {"plan": "quick", "models": ("candle/p1b3",), "options": Options(batch=4), **changes}
    return Asked(tmp_path / "here.yaml", **options)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Simple]:
    folder, timer = tmp_path_factory.mktemp("measured"), Simple()
    found = measure(asked(folder), start=lambda _setup: timer)
    assert not found.interrupted
    return folder, timer


def test_a_profile_comes_of_it_and_the_journal_goes(measured: tuple[Path, Simple]) -> None:
    folder, _ = measured
    assert {one.name for one in folder.iterdir()} == {"here.yaml", "here.timings.csv", "here.fits.json"}
    machine = fomkit.machine(folder / "here.yaml")
    assert machine.fits
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
    (update,) = [one for one in measured[1].asked if one["kind"] == "optimizer"]
    lengths = [int(one) for one in update["lengths"].split()]
    assert sum(lengths) == 30_088_701
    assert len(lengths) == 10
    assert max(lengths) == 29_532_000


def test_the_notes_tell_noise_drift_load_and_the_machine(measured: tuple[Path, Simple]) -> None:
    notes = fomkit.machine(measured[0] / "here.yaml").notes
    for word in ("a machine of the mind", "noise: of", "drift: the reference", "throttling:"):
        assert any(word in note for note in notes), word


def test_an_interrupt_keeps_what_was_measured_and_a_resume_goes_on(tmp_path: Path) -> None:
    def interrupt(number: int, _cells: object) -> None:
        if number == 20:
            raise KeyboardInterrupt

    broken, whole = Simple(interrupt), Simple()
    found = measure(asked(tmp_path), start=lambda _setup: broken)
    assert found.interrupted
    some = len(fomkit.machine(tmp_path / "here.yaml").timings)
    assert 0 < some < 20
    again = measure(asked(tmp_path, resume=True), start=lambda _setup: whole)
    assert not again.interrupted
    assert len(again.machine.timings) > some
    assert len(whole.asked) < len(again.machine.timings)
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_mistake_is_told_before_anything_is_timed(tmp_path: Path) -> None:
    timer = Simple()
    with pytest.raises(FomkitError, match="nosuch"):
        measure(asked(tmp_path, models=("nosuch",)), start=lambda _setup: timer)
    with pytest.raises(FomkitError, match="nothing can be resumed"):
        measure(asked(tmp_path, resume=True), start=lambda _setup: timer)
    assert not timer.asked
    assert not list(tmp_path.iterdir())
