"""Money, what is paid once, inference, carbon and epochs to a target: by hand, by law, and what is refused."""

from __future__ import annotations

import csv
import doctest
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Device, Fact, Machine
from fomkit.core.model import Data, EpochsToTarget
from fomkit.core.units import parse_money_rate
from fomkit.merit.campaign import combine, money, money_of_run, paid_units
from fomkit.merit.footprint import carbon_kg, energy_at_wall
from fomkit.merit.one_off_costs import amortised_share, inference_of, parse_once, times_for_share, with_once
from fomkit.ops.tables import EPOCHS
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.plan.run import epochs_at
from fomkit.profiles.campaigns import load_epochs
from fomkit.profiles.declared import parse_claims, parse_intensity, parse_price, parse_pue, parse_to_wall
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.verbs.cost import Cost, Declared, cost

MACHINE = """schema: fomkit/machine/1
name: mine
device:
  peak: [{dtype: fp32, engine: vector, rate: 10 TFLOP/s, low: 8 TFLOP/s, high: 11 TFLOP/s, source: example}]
  memory: {bandwidth: 500 GB/s, capacity: 16 GiB, source: example}
  launch: {per_op: 5 us, low: 3 us, high: 10 us, basis: assumed}
node: {devices: 4}
system: {nodes: 10, availability: 0.8}
overheads:
  - {name: start-up, per: run, time: 30 s, low: 20 s, high: 50 s, source: example}
  - {name: input, per: step, time: 2 ms, source: example}
  - {name: checkpoint, per: epoch, time: 1 s, source: example}
energy:
  scope: SCOPE
  devices: 4
  idle: {power: 40 W, source: example}
  average: [{workload: p1b3, power: 200 W, low: 150 W, high: 260 W, source: example}]
price: {rate: 4.56 USD/h, low: 4 USD/h, high: 5 USD/h, per: node, date: 2018-04-01, source: an example}
"""
CURVE = """batch,epochs,low,high,metric,target,source
50,15,14,17,validation loss,0.1,made up
400,30,27,35,validation loss,0.1,made up
"""
PRICE = "3600 USD/h per node, 2018-04-01"
spans = st.tuples(st.floats(1e-3, 1e6), st.floats(0.3, 1), st.floats(1, 3)).map(
    lambda one: Span(one[0], one[0] * one[1], one[0] * one[2])
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chip = MACHINE.replace("SCOPE", "chip").replace("  devices: 4\n  idle", "  idle")
    (tmp_path / "mine.yaml").write_text(chip, encoding="utf-8")
    (tmp_path / "wall.yaml").write_text(MACHINE.replace("SCOPE", "wall"), encoding="utf-8")
    (tmp_path / "epochs.csv").write_text(CURVE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def machine(folder: Path) -> Machine:
    return load_machine(folder / "mine.yaml")


@pytest.fixture
def p1b3():
    return load_model("candle/p1b3")


def told(*words: str) -> str:
    done = CliRunner().invoke(app, ["cost", "candle/p1b3", "-t", "mine.yaml", *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def content(*words: str) -> dict:
    return json.loads(told(*words, "--json"))


def of(p1b3, machine: Machine, options: Options | None = None, **declared: object) -> Cost:
    return cost(p1b3, machine, options or Options(), Declared(**declared))  # type: ignore[arg-type]


def fact(value: float, low: float | None = None, high: float | None = None) -> Fact:
    return Fact(value, low or value, high or value, "published", "by hand")


# --- goldens ---------------------------------------------------------------------------------------------------


def test_the_dawnbench_entry() -> None:
    price = parse_price("4.56 USD/h per node, 2018-04-01, DAWNBench")
    assert round(money(price, Span.exact(243.9995 * 3600)).value, 2) == 1112.64


def test_decoding_is_paid_by_tokens_other_inference_by_samples() -> None:
    price = "3 USD/h per device, 2026-11-01"
    decode = fomkit.cost("llama3-8b-decode", "h100-sxm", price=price).summary()
    assert "tokens/s\n  a million tokens cost" in decode
    assert "samples/s\n  a million samples cost" in fomkit.cost("resnet50", "v100", price=price).summary()


@pytest.mark.usefixtures("folder")
def test_the_naive_product_stands_beside_the_modelled_speedup_only() -> None:
    claims = [f"--claimed={name}={factor}" for name, factor in zip("abcde", (1.25, 3.1, 3, 29, 3), strict=True)]
    text = told("--baseline", "p100", *claims)
    modelled = next(line for line in text.splitlines() if line.startswith("modelled speed-up over p100"))
    assert text.splitlines().index(modelled) + 1 == next(
        place
        for place, line in enumerate(text.splitlines())
        if "naive: 1.25 × 3.1 × 3 × 29 × 3 = 1,011.375" in line
    )
    speedup = content("--baseline", "p100", *claims)["speedup"]
    assert speedup["naive_product"] == pytest.approx(1011.375)
    assert speedup["modelled"]["low"] < speedup["modelled"]["value"] < speedup["modelled"]["high"]
    assert content("--baseline", "p100")["speedup"]["naive_product"] is None
    done = CliRunner().invoke(app, ["cost", "candle/p1b3", "-t", "mine.yaml", *claims])
    assert "shown only beside the modelled one" in str(done.exception)


def test_layers_of_a_stack_amortise() -> None:
    """DLoBD: 15.5 % + 18.1 % become 4.8 % at ten times the job; here by the lengths that `cost` gives."""
    found = fomkit.cost("p1b3-lecture", "x86-lecture", once={"scheduler": "15.5 %", "job layer": "18.1 %"})
    scheduler, job = found.once
    assert (scheduler.share, job.share) == (pytest.approx(0.155), pytest.approx(0.181))
    together = scheduler.lengths.times.value + job.lengths.times.value
    assert together == pytest.approx(times_for_share([0.155, 0.181], 0.01))
    assert amortised_share([0.155, 0.181], together) == pytest.approx(0.01)
    assert amortised_share([0.155, 0.181], 10) == pytest.approx(0.048, abs=5e-4)
    assert found.content["once"]["together"]["once_share"] == pytest.approx(0.336)
    # The lecture's P1B3 trains for 20 epochs of 8,001 steps.
    assert scheduler.lengths.epochs.value == pytest.approx(20 * scheduler.lengths.times.value)
    assert scheduler.lengths.steps.value == pytest.approx(20 * 8001 * scheduler.lengths.times.value)


# --- what is paid once -----------------------------------------------------------------------------------------


def test_a_time_is_one_percent_at_its_length(machine, p1b3) -> None:
    one = of(p1b3, machine, once=parse_once(["compile=40 s"]))
    by_name = {term.name: term for term in one.once}
    assert list(by_name) == ["start-up", "compile"]
    term, run = by_name["compile"], one.estimate.run_time
    work_s = run.epoch_s.value * one.estimate.model.run.epochs
    assert 40 / (40 + term.lengths.times.value * work_s) == pytest.approx(0.01)
    assert 40 / (40 + term.lengths.epochs.value * run.epoch_s.value) == pytest.approx(0.01)
    assert 40 / (40 + term.lengths.steps.value * one.estimate.step.value) == pytest.approx(0.01)
    assert run.run_s.value == pytest.approx(work_s + 30 + 40)
    assert term.share == pytest.approx(40 / run.run_s.value)
    # The time's own error is in its lengths, as that of the work is.
    narrow, wide = (by_name[name].lengths.times for name in ("compile", "start-up"))
    assert wide.high / wide.value > narrow.high / narrow.value > 1


def test_a_share_is_one_of_the_job_with_its_other_times(machine, p1b3) -> None:
    one = of(p1b3, machine, once=parse_once(["compile=40 s", "scheduler=15.5 %"]))
    scheduler = next(term for term in one.once if term.name == "scheduler")
    assert scheduler.share == pytest.approx(0.155)
    assert scheduler.time_s.value == pytest.approx(0.155 * one.estimate.run_time.run_s.value)


def test_a_share_of_the_epochs_never_falls(folder) -> None:
    text = (folder / "mine.yaml").read_text().replace(
        "overheads:\n", "overheads:\n  - {name: log, per: run, share: 1 %, source: example}\n"
    )  # fmt: skip
    (folder / "mine.yaml").write_text(text)
    term = next(each for each in content()["once"]["terms"] if each["name"] == "log")
    assert term["grows"]
    assert term["times_for_one_percent"] is term["steps_for_one_percent"] is None
    assert "no length" in told()
    assert content()["once"]["together"] is None  # one term that falls is not together with anything


def test_what_may_take_nothing_has_a_length(folder, p1b3) -> None:
    text = (folder / "mine.yaml").read_text().replace("low: 20 s, high: 50 s", "low: 0 s, high: 50 s")
    (folder / "mine.yaml").write_text(text)
    (term,) = of(p1b3, load_machine("mine.yaml")).once
    assert term.lengths.times.low == 0 < term.lengths.times.value < term.lengths.times.high


def test_without_a_run_a_time_has_steps_and_a_share_is_refused(machine) -> None:
    model = load_model("candle/p3b2")
    assert model.data.train_samples is None
    one = of(model, machine, once=parse_once(["compile=40 s"]))
    assert all(
        term.lengths.times is None and term.lengths.epochs is None and term.lengths.steps.value > 0
        for term in one.once
    )
    assert one.content["money"]["run"] is None
    assert "does not define a run" in one.summary()
    with pytest.raises(FomkitError, match=r"--once scheduler: is a share of a job, and p3b2 does not define"):
        of(model, machine, once=parse_once(["scheduler=10 %"]))


@given(st.lists(st.floats(1e-3, 0.2), min_size=1, max_size=4))
def test_shares_stay_what_was_said(shares) -> None:
    empty = Machine("mine", "", "published", Device(), pd.DataFrame())
    paid = parse_once([f"layer {place}={100 * share!r} %" for place, share in enumerate(shares)])
    added = with_once(empty, paid).overheads
    total = 1 + sum(one.share.value for one in added)
    assert [one.share.value / total for one in added] == pytest.approx(shares)


# --- money -----------------------------------------------------------------------------------------------------


@given(spans, st.floats(0.01, 100), st.integers(1, 1000))
def test_money_is_linear_and_keeps_the_interval(time_s, rate, units) -> None:
    price = parse_price(f"{rate!r} EUR/h per node, 2024-02-29")
    one, many = money(price, time_s), money(price, time_s, units)
    assert one.value == pytest.approx(rate * time_s.value / 3600)
    assert many.value == pytest.approx(units * one.value)
    assert (one.low / one.value, one.high / one.value) == pytest.approx(
        (time_s.low / time_s.value, time_s.high / time_s.value)
    )


@given(spans)
def test_the_spread_of_a_price_widens(time_s) -> None:
    stated = parse_price("4 USD/h per node, 2024-01-01, 3 USD/h to 6 USD/h, offer")
    plain = parse_price("4 USD/h per node, 2024-01-01, offer")
    assert stated.per_s.source == plain.per_s.source == "offer"
    wide, narrow = money(stated, time_s), money(plain, time_s)
    assert wide.low < narrow.low <= narrow.value <= narrow.high < wide.high


def test_another_level_of_the_interval(machine, p1b3, folder) -> None:
    curve = load_epochs(folder / "epochs.csv")
    narrow, wide = (
        of(p1b3, machine, Options(interval=level), epochs=curve, once=parse_once(["compile=40 s"]))
        for level in (0.5, 0.95)
    )
    for pick in (
        lambda one: one.run_money,
        lambda one: one.inference_money,
        lambda one: one.to_target.time_s,
        lambda one: one.to_target.epochs,
        lambda one: one.once[1].lengths.steps,
    ):
        assert pick(wide).low < pick(narrow).low < pick(narrow).high < pick(wide).high
        assert pick(wide).value == pytest.approx(pick(narrow).value)


def test_nodes_are_paid_whole(machine) -> None:
    price = parse_price(PRICE)
    alone = money_of_run(price, machine, "device", 1, Span.exact(10.0))
    shared = money_of_run(price, machine, "node", 4, Span.exact(10.0))
    assert (alone.value, shared.value) == (pytest.approx(10.0), pytest.approx(2.5))
    # A system of ten nodes is up 80 % of the time, and paid all of it.
    everywhere = money_of_run(price, machine, "system", 40, Span.exact(10.0))
    assert everywhere.value == pytest.approx(10 * 10 / 40 / 0.8)
    assert paid_units(replace(price, per="device"), machine, "system") == 40
    whole = replace(price, per="system")
    assert paid_units(whole, machine, "system") == 1
    with pytest.raises(FomkitError, match=r"price: is per system, but the scope is 'node'"):
        paid_units(whole, machine, "node")


def test_a_unit_of_work_costs_the_day_over_its_units(machine, p1b3) -> None:
    for scope in ("device", "node", "system"):
        one = of(p1b3, machine, Options(scope=scope), price=parse_price(PRICE))
        nodes = 10 if scope == "system" else 1
        per_day = one.estimate.unit_per_day.value
        assert one.content["money"]["unit"]["value"] == pytest.approx(nodes * 86_400 / per_day)


def test_the_profile_has_a_price_and_the_option_goes_first(machine, folder) -> None:
    assert content()["money"]["price"] == {
        "value": pytest.approx(4.56), "low": pytest.approx(4), "high": pytest.approx(5), "basis": "published",
        "source": "an example", "currency": "USD", "per": "node", "date": "2018-04-01",
    }  # fmt: skip
    assert content("--price", "1 EUR/h per device, 2024-01-01")["money"]["currency"] == "EUR"
    assert "3 devices of a node are idle" in told()
    (folder / "again").mkdir()
    save_machine(machine, folder / "again" / "mine.yaml")
    assert load_machine(folder / "again" / "mine.yaml").price == machine.price
    shown = CliRunner().invoke(app, ["show", "mine.yaml"]).stdout
    assert re.search(r"price per node, 2018-04-01 +4\.56 \(4 … 5\) USD/h", shown)
    unpriced = CliRunner().invoke(app, ["cost", "candle/p1b3", "-t", "p100"]).stdout
    assert "money: no price; add --price" in unpriced


# --- inference -------------------------------------------------------------------------------------------------


def test_inference_is_the_forward_pass_without_the_training_input(machine, p1b3) -> None:
    one = of(p1b3, machine)
    step, infer = one.estimate.step_time, one.inference.step_time
    assert step.input_s.value == 2e-3
    assert infer.input_s is None
    assert "input" in one.inference.excludes
    assert infer.device_s.ends == pytest.approx(step.passes["forward"].ends, rel=1e-12)
    assert set(infer.passes) == {"forward"}
    assert infer.wall_s.value == pytest.approx(max(infer.device_s.value, infer.host_launch_s.value))
    assert "dropout" in one.content["inference"]["deviations"][-1]


def test_a_million_samples_by_hand(machine, p1b3) -> None:
    one = of(p1b3, machine, infer_batch=8, price=parse_price(PRICE))
    found = one.content["inference"]
    latency_s = estimate(p1b3, machine, Options(8))
    assert found["batch"] == 8
    assert found["latency_s"]["value"] == inference_of(latency_s).step.value
    assert found["sample_per_s"]["value"] == pytest.approx(8 / found["latency_s"]["value"])
    assert found["money_per_million"]["value"] == pytest.approx(1e6 / found["sample_per_s"]["value"])
    full = of(p1b3, machine, Options(scope="node"), infer_batch=8, price=parse_price(PRICE)).content["inference"]
    assert full["sample_per_s"]["value"] == pytest.approx(4 * found["sample_per_s"]["value"])
    assert full["money_per_million"]["value"] == pytest.approx(found["money_per_million"]["value"] / 4)


def test_inference_over_samples_is_a_run(machine, p1b3) -> None:
    one = inference_of(estimate(p1b3, machine, Options()), 1050)
    assert one.run_time.steps_per_epoch == 11  # the last batch of 50 counts as a full one
    assert one.run_time.run_s.value == pytest.approx(11 * one.step.value + 30)
    assert one.unit_per_day.value == pytest.approx(86_400 / one.run_time.run_s.value)


def test_a_profile_of_inference_is_its_own(machine, p1b3) -> None:
    ops = p1b3.ops[p1b3.ops["pass_name"] == "forward"].reset_index(drop=True)
    traced = {**p1b3.traced_with, "mode": "infer"}
    alone = replace(p1b3, ops=ops, traced_with=traced, data=Data(), run=replace(p1b3.run, epochs=None), order=None)
    one = of(alone, machine, price=parse_price(PRICE))
    assert one.run_money is None
    assert one.inference.step == of(p1b3, machine).inference.step
    assert not any("dropout" in said for said in one.content["inference"]["deviations"])
    assert one.content["inference"]["money_per_million"]["value"] > 0


def test_a_profile_without_a_forward_pass_has_no_inference(machine, p1b3) -> None:
    backward = replace(p1b3, ops=p1b3.ops.assign(pass_name="update"))
    assert of(backward, machine).content["inference"] is None
    assert "inference: unknown" in of(backward, machine).summary()
    with pytest.raises(FomkitError, match=r"has no forward pass"):
        of(backward, machine, infer_batch=1)


# --- energy and carbon -----------------------------------------------------------------------------------------


def test_carbon_by_hand() -> None:
    grid = parse_intensity("0.36 kg CO2e/kWh, operator")
    assert grid.value == pytest.approx(1e-7)
    assert parse_intensity("360 g/kWh, operator") == grid
    assert carbon_kg(Span.exact(1e9), grid, None).value == pytest.approx(100.0)
    assert carbon_kg(Span.exact(1e9), grid, parse_pue("1.5, operator")).value == pytest.approx(150.0)
    factor = parse_to_wall("1.6, 1.4 to 1.9, meter, beside NVML")
    assert (factor.low, factor.high, factor.source) == (1.4, 1.9, "meter, beside NVML")
    assert energy_at_wall(Span.exact(10.0), "node", factor).value == pytest.approx(16.0)
    assert energy_at_wall(Span.exact(10.0), "wall", None) == Span.exact(10.0)
    assert energy_at_wall(Span.exact(10.0), "node", None) is None


@pytest.mark.usefixtures("folder")
def test_a_chip_is_never_taken_for_the_wall() -> None:
    grid = ("--carbon", "0.4 kg/kWh, operator")
    found = content(*grid)
    assert found["energy_j"]["scope"] == "chip"
    assert found["carbon"]["kg"] == found["carbon"]["wall_j"] == {"run": None, "unit": None}
    assert "carbon: unknown; the energy is of scope chip, which is less than at the wall" in told(*grid)
    declared = content(*grid, "--to-wall", "1.6, 1.4 to 1.9, a meter")
    run_j = declared["energy_j"]["run"]["value"]
    assert declared["carbon"]["kg"]["run"]["value"] == pytest.approx(1.6 * run_j / 3.6e6 * 0.4)
    assert "no --pue is given" in declared["carbon"]["notes"][0]
    more = content(*grid, "--to-wall", "1.6, a meter", "--pue", "1.2, operator")["carbon"]
    assert more["kg"]["run"]["value"] == pytest.approx(1.2 * declared["carbon"]["kg"]["run"]["value"])
    assert more["notes"] == []


@pytest.mark.usefixtures("folder")
def test_energy_at_the_wall_needs_no_factor() -> None:
    wall = ["cost", "candle/p1b3", "-t", "wall.yaml", "--carbon", "0.4 kg/kWh, operator"]
    done = CliRunner().invoke(app, [*wall, "--json"])
    found = json.loads(done.stdout)
    assert found["carbon"]["wall_j"]["run"] == found["energy_j"]["run"]
    refused = CliRunner().invoke(app, [*wall, "--to-wall", "1.6, a meter"])
    assert "the machine's energy is already at the wall. Leave it out" in str(refused.exception)


@pytest.mark.usefixtures("folder")
def test_nothing_stated_is_unknown_carbon() -> None:
    done = CliRunner().invoke(app, ["cost", "candle/p1b3", "-t", "p100", "--carbon", "0.4 kg/kWh, operator"])
    assert done.exit_code == 0
    assert "carbon: unknown; neither idle power nor energy per flop or byte is stated" in done.stdout
    assert "Give --to-wall FACTOR, SOURCE" in done.stdout


@pytest.mark.usefixtures("folder")
def test_the_limit_of_a_chip_bounds_carbon_too() -> None:
    declared = ["--carbon", "0.4 kg/kWh, operator", "--to-wall", "1.5, 1.4 to 1.6, meter", "--pue", "1.2, owner"]
    done = CliRunner().invoke(app, ["cost", "candle/p1b3", "-t", "p100", *declared, "--json"])
    content = json.loads(done.stdout)
    energy, carbon = content["energy_j"], content["carbon"]
    assert energy["run_at_most"] == pytest.approx(250 * content["run_s"]["high"])
    assert carbon["run_at_most_kg"] == pytest.approx(energy["run_at_most"] / 3.6e6 * 0.4 * 1.6 * 1.2)
    assert (energy["run"], carbon["kg"]["run"]) == (None, None)
    told = CliRunner().invoke(app, ["cost", "candle/p1b3", "-t", "p100", *declared]).stdout
    assert f"carbon of a run: at most {carbon['run_at_most_kg']:.4f}" in told


# --- epochs to a target ----------------------------------------------------------------------------------------

curves = st.dictionaries(st.integers(1, 100_000), spans, min_size=1, max_size=6).map(
    lambda found: EpochsToTarget(dict(sorted(found.items())), "loss", 0.1, "example")
)


@given(curves, st.floats(0, 1))
def test_a_curve_is_met_at_its_rows_and_stays_between_them(curve, share) -> None:
    known = list(curve.epochs)
    for batch, epochs in curve.epochs.items():
        assert epochs_at(curve, batch, 0.8) == epochs
    batch = round(known[0] + share * (known[-1] - known[0]))
    found = epochs_at(curve, batch, 0.8)
    below = max(one for one in known if one <= batch)
    above = min(one for one in known if one >= batch)
    for end in ("low", "value", "high"):
        ends = sorted(getattr(curve.epochs[one], end) for one in (below, above))
        assert ends[0] * (1 - 1e-9) <= getattr(found, end) <= ends[1] * (1 + 1e-9)
    assert found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)


@given(curves, st.integers(1, 200_000))
def test_nothing_is_extrapolated(curve, batch) -> None:
    known = list(curve.epochs)
    if known[0] <= batch <= known[-1]:
        assert epochs_at(curve, batch, 0.8).value > 0
    else:
        with pytest.raises(FomkitError, match=r"are not extrapolated"):
            epochs_at(curve, batch, 0.8)


def test_a_curve_says_from_which_batch_to_which_it_was_measured() -> None:
    curve = EpochsToTarget({batch: Span.exact(float(batch)) for batch in (50, 100, 400)}, "loss", 0.1, "example")
    assert curve.covers == (50, 400)


def test_time_and_money_to_an_accuracy(folder, machine, p1b3) -> None:
    one = of(p1b3, machine, epochs=load_epochs(folder / "epochs.csv"), price=parse_price(PRICE))
    found, run = one.to_target, one.estimate.run_time
    assert found.epochs.value == pytest.approx(15 * 2 ** (1 / 3))
    assert found.time_s.value == pytest.approx(found.epochs.value * run.epoch_s.value + 30)
    assert found.time_s.low < found.time_s.value < found.time_s.high
    assert found.money.value == pytest.approx(found.time_s.value)
    # At a batch of the curve its own row counts, and the interval holds both errors.
    exact = of(p1b3, machine, Options(50), epochs=load_epochs(folder / "epochs.csv"))
    assert exact.to_target.epochs == Span(15.0, 14.0, 17.0)
    assert exact.content["to_target"]["notes"] == []
    assert "to validation loss 0.1 at batch 100" in told("--to-accuracy", "epochs.csv")
    with pytest.raises(FomkitError, match=r"epochs.csv: covers batches 50 to 400, but the batch is 800"):
        of(p1b3, machine, Options(800), epochs=load_epochs(Path("epochs.csv")))
    with pytest.raises(FomkitError, match=r"does not state its batch or the samples"):
        of(load_model("candle/p3b2"), machine, epochs=load_epochs(Path("epochs.csv")))


@pytest.mark.usefixtures("folder")
def test_more_nodes_may_need_more_epochs() -> None:
    words = ["scaling", "candle/p1b3", "-t", "a100-sxm", "--nodes", "1,2,16", "--replica-batch", "10",
             "--mode", "weak", "--link", "system, 10 us, 25 GB/s, each", "--to-accuracy", "epochs.csv", "--once",
             "compile=40 s"]  # fmt: skip
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)
    near, far, outside = found["points"]
    assert near["to_target"]["epochs"]["value"] < far["to_target"]["epochs"]["value"]
    assert outside["to_target"]["to_target_s"] is None
    assert "covers batches 50 to 400, but the batch is 1,280" in outside["to_target"]["why"]
    model = load_model("candle/p1b3")
    forward = estimate(model, load_machine("a100-sxm"), Options(10)).step_time.passes["forward"].value
    validation = model.data.validation_samples // near["batch"] * forward  # each device has its share of a batch
    epoch_s = near["system"]["steps_per_epoch"] * near["step_s"]["value"] + validation
    expected = near["to_target"]["epochs"]["value"] * epoch_s + 40
    assert near["to_target"]["to_target_s"]["value"] == pytest.approx(expected)
    assert near["system"]["run_s"]["value"] == pytest.approx(20 * epoch_s + 40)
    assert "validation" not in near["system"]["excludes"]
    assert "start_up" not in near["system"]["excludes"]
    text = CliRunner().invoke(app, words).stdout
    assert "a training to validation loss 0.1 (made up)" in text
    assert "paid once, and in each run above: compile 40.00 s" in text


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price", "4.56/h per node, 2018-04-01"], "which has no currency"),
        (["--price", "$4.56/h per node, 2018-04-01"], "which is not a price per time"),
        (["--price", "4.56 $/h per node, 2018-04-01"], "'$' is not a currency code"),
        (["--price", "4.56 USD per node, 2018-04-01"], "which has no time"),
        (["--price", "4.56 USD/month per node, 2018-04-01"], "'month' is not one of h, d, min, s"),
        (["--price", "4.56 USD/h, 2018-04-01"], "does not state what the price is for"),
        (["--price", "4.56 USD/h per rack, 2018-04-01"], "'rack' has no price"),
        (["--price", "4.56 USD/h per node"], "has no date; prices change"),
        (["--price", "4.56 USD/h per node, April"], "the price's date is 'April'"),
        (["--price", "4.56 USD/h per node, 2018-02-30"], "the price's date is '2018-02-30'"),
        (["--price", "0 USD/h per node, 2018-04-01"], "Give a finite amount above 0"),
        (["--price", "4 USD/h per node, 2018-04-01, 5 USD/h to 6 USD/h"], "low ≤ value ≤ high"),
        (["--price", "4 USD/h per node, 2018-04-01, 3 EUR/h to 6 EUR/h"], "low or high is in another currency"),
        (["--price", "4 USD/h per system, 2018-04-01"], "Add '--scope system'"),
        (["--once", "compile"], "is not a new name with a share or a time"),
        (["--price", "4 XXZ/h per node, 2018-04-01"], "'XXZ' is not a current currency code of ISO 4217"),
        (["--price", "4 USD/h per node, 2099-04-01"], "the price's date is 2099-04-01, which is in the future"),
        (["--once", "compile=40"], "'40' has no unit. Write a time, such as compile=40s, or a share"),
        (["--once", "compile=40 epochs"], "'epochs' is not a unit of time"),
        (["--once", "start-up=40 s"], "is stated by mine already"),
        (["--carbon", "0.4, operator"], "which has no unit"),
        (["--carbon", "0.4 kg/kWh"], "has no source"),
        (["--carbon", "0 kg/kWh, operator"], "Give a value above 0"),
        (["--pue", "1.2, operator"], "is for carbon. Add --carbon"),
        (["--to-wall", "1.2, meter"], "is for carbon. Add --carbon"),
        (["--carbon", "0.4 kg/kWh, me", "--pue", "0.9, me"], "Give 1 or more"),
        (["--carbon", "0.4 kg/kWh, me", "--pue", "nan, me"], "'nan' is not a number"),
        (["--carbon", "0.4 kg/kWh, me", "--pue", "1e999, me"], "'1e999' is not a number"),
        (["--carbon", "0.4 kg/kWh, me", "--to-wall", "1.6, 2 to 3, me"], "low ≤ value ≤ high"),
        (["--carbon", "0.4 kg/kWh, me", "--to-wall", "much, me"], "'much' is not a number"),
        (["--carbon", "0.4 kg/kWh, me", "--pue", "1e300, me"], "more than 100"),
        (["--claimed", "fast"], "is not a new name with a factor"),
        (["--claimed", "fast=-2", "--baseline", "p100"], "Give a factor of 1e-06 to 1e+06"),
        (["--baseline", "mine.yaml"], "is the baseline and the target"),
        (["--batch", "800", "--to-accuracy", "epochs.csv"], "covers batches 50 to 400"),
        (["--to-accuracy", "absent.csv"], "cannot be read"),
        (["-o", "cost.pdf"], "Use .json or .csv"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_bad_input_is_told(words, said) -> None:
    done = CliRunner().invoke(app, ["cost", "candle/p1b3", "-t", "mine.yaml", *words])
    assert isinstance(done.exception, FomkitError), (done.output, done.exception)
    assert said in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rate: 4.56 USD/h", "rate: 4.56", r"mine.yaml:\d+: price.rate is 4.56, which is not a price per time"),
        ("rate: 4.56 USD/h", "rate: 4.56 USD", "which has no time"),
        (", date: 2018-04-01", "", "price.date is missing"),
        ("date: 2018-04-01", "date: 2018", "price.date is 2018"),
        ("date: 2018-04-01", "date: last week", r"mine.yaml:\d+: the price's date is 'last week'"),
        (
            "date: 2018-04-01",
            "date: 2099-04-01",
            r"mine.yaml:\d+: the price's date is 2099-04-01, which is in the future",
        ),
        ("low: 4 USD/h, high: 5 USD/h", "low: 4 XXZ/h, high: 5 XXZ/h", "low or high is in another"),
        (
            "rate: 4.56 USD/h, low: 4 USD/h, high: 5 USD/h",
            "rate: 4.56 XXZ/h",
            r"mine.yaml:\d+: 'XXZ' is not a current currency",
        ),
        ("low: 4 USD/h", "low: 4 EUR/h", "low or high is in another currency"),
        ("high: 5 USD/h", "high: 4.5 USD/h", "low ≤ value ≤ high"),
        ("per: node", "per: rack", "price.per is 'rack'"),
        (", source: an example}", "}", "price.source is missing"),
    ],
)
def test_a_bad_price_in_a_profile(folder, old, new, said) -> None:
    text = (folder / "mine.yaml").read_text()
    assert old in text
    (folder / "mine.yaml").write_text(text.replace(old, new))
    with pytest.raises(FomkitError, match=said):
        load_machine("mine.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch,epochs\n1,2\n", "the column 'metric' is missing"),
        (CURVE.replace("50,15,14,17", "50,15,16,17"), r"e.csv:2: must have low ≤ epochs ≤ high"),
        (CURVE.replace("50,15,14,17", "50,15,14,"), r"e.csv:2: must have low ≤ epochs ≤ high"),
        (CURVE.replace("400,30", "50,30"), r"e.csv:3: batch 50 is listed twice"),
        (
            CURVE.replace("0.1,made up\n400", "0.2,made up\n400"),
            r"e.csv:3: the target is 0.1, but 0.2 in the first row",
        ),
        (CURVE.replace("50,15", "50.5,15"), "Expected a whole number"),
        (CURVE.replace("50,15", "50,-15"), "epochs is -15"),
        (CURVE.replace("50,15", "50,1e999"), "too large a number"),
        (CURVE.splitlines()[0], "has a header and no rows"),
    ],
)
def test_bad_curves(tmp_path, text, said) -> None:
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(FomkitError, match=said):
        load_epochs(tmp_path / "e.csv")


@given(
    st.text(max_size=40)
    | st.from_regex(r"[0-9.e+-]{1,6} ?[A-Z$€]{0,3} ?/?[a-z]{0,3}( per [a-z]{0,6})?(, .{0,12}){0,3}")
)
def test_any_text_is_read_or_refused(text) -> None:
    for parse in (parse_price, parse_intensity, parse_pue, parse_to_wall, lambda one: parse_claims([one]),
                  lambda one: parse_once([one]), lambda one: parse_money_rate(one, "", "")):  # fmt: skip
        with suppress(FomkitError):
            parse(text)


def test_claims_need_names() -> None:
    with pytest.raises(FomkitError, match=r"--claimed 'a=2': is not a new name"):
        parse_claims(["a=1", "a=2"])
    assert combine({}, Span.exact(2.0)).naive == 1


# --- files and pages -------------------------------------------------------------------------------------------


def test_figures_as_a_table(folder) -> None:
    words = ("--to-accuracy", "epochs.csv", "--carbon", "0.4 kg/kWh, me", "--to-wall", "1.6, me")
    told(*words, "-o", "out.csv")
    told(*words, "-o", "out.json")
    with (folder / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert found["schema"] == "fomkit/cost/1"
    values = {(one["figure"], one["unit"]): float(one["value"]) for one in rows}
    assert values["run", "USD"] == found["money"]["run"]["value"]
    assert values["carbon of a run", "kg"] == found["carbon"]["kg"]["run"]["value"]
    assert values["to the target", "s"] == found["to_target"]["to_target_s"]["value"]
    assert all(float(one["low"]) <= float(one["value"]) <= float(one["high"]) for one in rows)


@pytest.mark.usefixtures("folder")
def test_in_python() -> None:
    found = fomkit.cost("candle/p1b3", "mine.yaml", price=PRICE, to_accuracy="epochs.csv", infer_batch=1)
    assert found.run_money.value == pytest.approx(found.estimate.run_time.run_s.value)
    assert found.summary().startswith("p1b3 on mine, batch 100")
    with pytest.raises(FomkitError, match=r"infer_batch: is 0. Give a whole number"):
        fomkit.cost("candle/p1b3", "mine.yaml", infer_batch=0)


def test_the_page_runs_and_its_curve_loads(root, tmp_path) -> None:
    failed, tried = doctest.testfile(str(root / "docs" / "cost.md"), module_relative=False)
    assert tried >= 12
    assert failed == 0
    page = (root / "docs" / "cost.md").read_text(encoding="utf-8")
    (block,) = re.findall(r'^```csv title="epochs.csv"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    (tmp_path / "epochs.csv").write_text(block, encoding="utf-8")
    assert load_epochs(tmp_path / "epochs.csv").epochs[50] == Span(15.0, 14.0, 17.0)
    section = page.split("## Time to an accuracy")[1].split("```csv")[0]
    named = {name for line in section.splitlines() if line.startswith("| `")
             for name in re.findall(r"`(\w+)`", line.split("|")[1])}  # fmt: skip
    assert named == {column.name for column in EPOCHS}
