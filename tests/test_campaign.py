"""Campaigns: the lecture's million models, phases by hand, sums that are whole or unknown, and what is refused."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Phase, Workflow
from fomkit.frontends.config import profile_config
from fomkit.merit.campaign import FEW, CampaignCost, PhaseCost
from fomkit.merit.measured_steps import Explained
from fomkit.merit.one_off_costs import inference_of
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.profiles.campaigns import CampaignFileRecord, find_profile, list_profiles, load_campaign
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, save_model

MACHINE = """schema: fomkit/machine/1
name: mine
device:
  peak: [{dtype: fp32, engine: vector, rate: 10 TFLOP/s, low: 8 TFLOP/s, high: 11 TFLOP/s, source: example}]
  memory: {bandwidth: 500 GB/s, capacity: 16 GiB, source: example}
  launch: {per_op: 5 us, low: 3 us, high: 10 us, basis: assumed}
node: {devices: 4}
system: {nodes: 10, availability: 0.8}
energy:
  scope: chip
  process: 12 nm
  idle: {power: 40 W, source: example}
  per_flop: [{dtype: fp32, energy: 6 pJ/flop, source: example}]
  per_byte: {energy: 40 pJ/B, source: example}
"""
CAMPAIGN = """schema: fomkit/campaign/1
name: two
phases:
  - {name: search, model: candle/p1b3, epochs: 5, batch: 100, runs: 5000, basis: assumed, source: an example}
  - {name: unsure, model: candle/p1b3, mode: infer, batch: 100, samples: 1000000, runs: 2000, basis: assumed,
     source: an example}
"""
LINE = "  - {name: lines, suite: lecture, line: P1, runs: 1000000, basis: estimated, source: the lecture}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.yaml").write_text(MACHINE, encoding="utf-8")
    (tmp_path / "two.campaign.yaml").write_text(CAMPAIGN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str):
    return CliRunner().invoke(app, ["campaign", *words])


def content(*words: str) -> dict:
    done = run(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_a_million_p1_models() -> None:
    found = content("candle-example", "-t", "titan", "-t", "a")
    days = [one["phases"][0]["days"]["value"] for one in found["machines"]]
    assert days == [pytest.approx(133.776, abs=5e-4), pytest.approx(1.77305, abs=5e-6)]
    assert [one["phases"][0]["order_of_magnitude"] for one in found["machines"]] == [2, 0]
    assert [one["phases"][0]["basis"] for one in found["machines"]] == ["estimated", "estimated"]


def test_the_sizes_of_the_example_are_those_that_the_lecture_prints() -> None:
    campaign = load_campaign("candle-example")
    assert [one.runs for one in campaign.phases] == [1e6, 1e4, 1e6 * 1e4, 1e7]
    assert [one.conditions.samples for one in campaign.phases] == [None, None, None, 100]
    assert all(one.basis == "estimated" and "lecture 10" in one.source for one in campaign.phases)
    assert "is an example" in campaign.notes[0]


def test_a_model_on_every_data_set_costs_what_so_many_models_do() -> None:
    (titan,) = content("candle-example", "-t", "titan")["machines"]
    _, search, sets, inferences = titan["phases"]
    assert sets["run_s"] == search["run_s"]
    assert sets["days"]["value"] * sets["unit_per_day"]["value"] == pytest.approx(1e10)
    assert inferences["runs"] == 1e7


@pytest.mark.usefixtures("folder")
def test_phases_by_hand() -> None:
    (machine,) = content("two.campaign.yaml", "-t", "mine.yaml", "--price", "36 USD/h per node, 2024-01-01")[
        "machines"
    ]
    search, unsure = machine["phases"]
    mine, p1b3 = load_machine("mine.yaml"), load_model("candle/p1b3")
    epoch_s = estimate(p1b3, mine, Options()).run_time.epoch_s.value
    assert search["run_s"]["value"] == pytest.approx(5 * epoch_s)
    # 40 devices that are up 80 % of the time.
    assert search["days"]["value"] == pytest.approx(5000 * 5 * epoch_s / 86_400 / (40 * 0.8))
    assert search["unit_per_day"]["value"] * search["days"]["value"] == pytest.approx(5000)
    assert search["money"]["value"] == pytest.approx(search["days"]["value"] * 24 * 36 * 10)
    forward_s = inference_of(estimate(p1b3, mine, Options(100)), 1_000_000).run_time.run_s.value
    assert unsure["run_s"]["value"] == pytest.approx(forward_s)
    assert unsure["days"]["value"] == pytest.approx(2000 * forward_s / 86_400 / 32)
    assert any("dropout" in said for said in unsure["deviations"])
    for name in ("days", "money", "energy_j"):
        for end in ("low", "value", "high"):
            assert machine[name][end] == pytest.approx(sum(one[name][end] for one in machine["phases"]))
        assert machine[name]["low"] < machine[name]["value"] < machine[name]["high"]
    assert machine["order_of_magnitude"] == math.floor(math.log10(machine["days"]["value"]))


@pytest.mark.usefixtures("folder")
def test_energy_and_carbon_of_phases() -> None:
    words = ("two.campaign.yaml", "-t", "mine.yaml", "--carbon", "0.36 kg/kWh, me")
    (unknown,) = content(*words)["machines"]
    assert unknown["energy_scope"] == "chip"
    assert unknown["carbon"]["kg"] is None
    assert "carbon: unknown; the energy is of scope chip" in run(*words).stdout
    (known,) = content(*words, "--to-wall", "2, me", "--pue", "1.5, me")["machines"]
    assert known["carbon"]["kg"]["value"] == pytest.approx(known["energy_j"]["value"] * 2 * 1.5 * 1e-7)
    mine, p1b3 = load_machine("mine.yaml"), load_model("candle/p1b3")
    from fomkit.plan.energy import energy_of_estimate

    one = inference_of(estimate(p1b3, mine, Options(100)), 1_000_000)
    each = energy_of_estimate(one).run.energy_j.value
    assert known["phases"][1]["energy_j"]["value"] == pytest.approx(2000 * each)


@pytest.mark.usefixtures("folder")
def test_a_power_limit_bounds_the_energy_of_a_campaign() -> None:
    words = ("two.campaign.yaml", "-t", "h100-sxm", "--scope", "device", "--carbon", "0.36 kg/kWh, me")
    (only,) = content(*words, "--to-wall", "2, me", "--pue", "1.5, me")["machines"]
    # 700 W for the upper end of every run, one after the other on one device.
    by_hand = sum(700 * phase["run_s"]["high"] * phase["runs"] for phase in only["phases"])
    assert only["energy_at_most_j"] == pytest.approx(by_hand)
    assert sum(phase["energy_at_most_j"] for phase in only["phases"]) == pytest.approx(by_hand)
    assert only["carbon"]["at_most_kg"] == pytest.approx(by_hand * 2 * 1.5 * 1e-7)
    shown = " ".join(run(*words, "--to-wall", "2, me").stdout.split())
    assert re.search(
        r"energy in all: at most \S+ \S+ .*, by the power limit of the chips; its mean is unknown;", shown
    )
    assert "carbon in all: at most" in shown
    (unknown,) = content(*words)["machines"]
    assert unknown["carbon"]["at_most_kg"] is None


def test_few_runs_last_as_long_as_one(folder) -> None:
    few = CAMPAIGN.replace("runs: 5000", "runs: 3").replace("runs: 2000", "runs: 32")
    (folder / "few.campaign.yaml").write_text(few)
    (machine,) = content("few.campaign.yaml", "-t", "mine.yaml")["machines"]
    search, unsure = machine["phases"]
    assert search["days"]["value"] == pytest.approx(search["run_s"]["value"] / 86_400)
    assert FEW in search["deviations"]
    # 32 of 40 devices are up: here rate and one run agree.
    assert unsure["days"]["value"] == pytest.approx(unsure["run_s"]["value"] / 86_400)


def test_a_given_line_of_few_units_lasts_as_long_as_one(folder) -> None:
    (folder / "one.campaign.yaml").write_text(
        "schema: fomkit/campaign/1\nname: one\nphases:\n" + LINE.replace("1000000", "2")
    )
    (titan,) = content("one.campaign.yaml", "-t", "titan")["machines"]
    assert titan["phases"][0]["days"]["value"] == pytest.approx(60 / 24)


def test_a_sum_without_a_phase_is_unknown(folder) -> None:
    (folder / "two.campaign.yaml").write_text(CAMPAIGN + LINE)
    done = run("two.campaign.yaml", "-t", "mine.yaml")
    assert done.exit_code == 1
    assert "no duration for lines: no time given for 'mine'" in done.stdout
    assert "duration in all: unknown, because the duration of some phases is unknown" in done.stdout
    whole = json.loads(run("two.campaign.yaml", "-t", "mine.yaml", "--json").stdout)["machines"][0]
    assert whole["days"] is whole["energy_j"] is None
    assert whole["phases"][0]["days"]["value"] > 0


def test_phases_as_a_table(folder) -> None:
    content("two.campaign.yaml", "-t", "mine.yaml", "-o", "out.csv")
    with (folder / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(one["target"], one["name"], one["runs"]) for one in rows] == [
        ("mine", "search", "5000.0"), ("mine", "unsure", "2000.0")
    ]  # fmt: skip
    assert float(rows[0]["days.value"]) > 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema: fomkit/campaign/1", "schema: fomkit/suite/1", "Expected: 'schema: fomkit/campaign/1'"),
        ("runs: 5000", "runs: 0", r"two.campaign.yaml:4: phases\[0\].runs is 0"),
        ("runs: 5000, ", "", r"phases\[0\].runs is missing"),
        (", source: an example}\n  - {name: unsure", "}\n  - {name: unsure", r"phases\[0\].source is missing"),
        ("basis: assumed, source", "basis: guess, source", r"phases\[0\].basis is 'guess'"),
        ("name: unsure", "name: search", r"two.campaign.yaml:5: phase 'search' is listed twice"),
        ("model: candle/p1b3, epochs: 5, batch: 100, ", "", "needs either 'model', or 'suite' and 'line'"),
        ("model: candle/p1b3, epochs", "model: p1b3, suite: lecture, line: P1, epochs", "needs either 'model'"),
        ("model: candle/p1b3, epochs", "suite: lecture, line: P1, epochs", "Leave the conditions out"),
        ("model: candle/p1b3, epochs: 5, batch: 100", "suite: lecture", "needs either 'model', or 'suite'"),
        ("samples: 1000000, ", "", "is inference: give 'samples'"),
        ("mode: infer, ", "mode: infer, epochs: 2, ", "is inference: give 'samples'"),
        ("mode: infer", "mode: dream", r"phases\[1\].mode is 'dream'"),
        ("epochs: 5", "epoch: 5", r"phases\[0\].epoch is not a known key"),
    ],
)  # fmt: skip
def test_bad_campaigns(folder, old, new, said) -> None:
    assert old in CAMPAIGN
    path = folder / "two.campaign.yaml"
    path.write_text(CAMPAIGN.replace(old, new, 1))
    with pytest.raises(FomkitError, match=said):
        load_campaign(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["two.campaign.yaml", "-t", "v100"], "does not state the scope 'system'"),
        (["two.campaign.yaml", "-t", "mine.yaml", "--price", "5 USD per node"], "which has no time"),
        (["two.campaign.yaml", "-t", "mine.yaml", "--pue", "1.2, me"], "is for carbon"),
        (["two.campaign.yaml", "-t", "mine.yaml", "-o", "x.pdf"], "Use .json or .csv"),
        (
            ["twoo", "-t", "mine.yaml"],
            "no such file, and no campaign of this name. Known names: 'candle-example'.",
        ),
        (["line.campaign.yaml", "-t", "titan"], "'P9' is not a line of suite 'lecture'. Its lines: P1, P2, P3"),
        (["good.campaign.yaml", "-t", "titan", "-t", "titan"], "titan: is given twice among the machines"),
        (
            ["good.campaign.yaml", "-t", "titan", "--scope", "node"],
            "gives rates of the scope 'system', not of 'node'. Give --scope system",
        ),
    ],
)
def test_bad_input_is_told(folder, words, said) -> None:
    head = "schema: fomkit/campaign/1\nname: line\nphases:\n"
    (folder / "line.campaign.yaml").write_text(head + LINE.replace("P1", "P9"))
    (folder / "good.campaign.yaml").write_text(head + LINE)
    done = run(*words)
    assert isinstance(done.exception, FomkitError), (done.output, done.exception)
    assert said in str(done.exception)
    assert done.stdout == ""


def test_campaigns_are_no_models() -> None:
    from fomkit.profiles.models import model_names

    assert not any("campaign" in name for name in model_names())
    from fomkit.cli.choices import complete_campaign, complete_model

    assert complete_campaign("candle") == ["candle-example"]
    assert not any("campaign" in name for name in complete_model(""))


def test_a_campaign_is_listed_and_told_from_a_profile() -> None:
    with pytest.raises(FomkitError, match=r"is a campaign, .*'fomkit campaign candle-example --target MACHINE'"):
        find_profile("candle-example")
    assert ("campaign", "candle-example") in [(one.what, one.name) for one in list_profiles()]


def fields(record: type[BaseModel], prefix: str = ""):
    for name, info in record.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        inner = next((one for one in getattr(info.annotation, "__args__", ())
                      if isinstance(one, type) and issubclass(one, BaseModel)), None)  # fmt: skip
        if inner is None:
            yield path, "yes" if info.is_required() else "no"
        else:
            yield from fields(inner, f"{path}[].")


def test_every_field_is_explained_and_the_example_loads(root, tmp_path) -> None:
    page = (root / "docs" / "cost.md").read_text(encoding="utf-8").split("## Campaigns")[1]
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    assert {row[0]: row[1] for row in rows} == dict(fields(CampaignFileRecord))
    (block,) = re.findall(r'^```yaml title="example.campaign.yaml"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.campaign.yaml").write_text(block, encoding="utf-8")
    found = load_campaign(tmp_path / "example.campaign.yaml")
    assert [one.mode for one in found.phases] == ["train", "train", "infer"]


def test_a_sum_says_what_carries_no_spread() -> None:
    (titan,) = content("candle-example", "-t", "titan")["machines"]
    known = titan["no_spread"]["days"]
    assert known["phases"] == ["a million P1 models"]
    assert known["share"] == pytest.approx(titan["phases"][0]["days"]["value"] / titan["days"]["value"], rel=1e-12)
    assert titan["no_spread"]["money"] is titan["no_spread"]["energy_j"] is None
    assert titan["lower_bound"] == [one["name"] for one in titan["phases"][1:]]
    text = run("candle-example", "-t", "titan").stdout
    days = "duration in all: 7967 days (no interval: no spread is stated for a million P1 models, 1.68% of it)"
    assert f"{days}, a lower bound" in text
    assert "money: no price; add --price" in text
    assert re.search(
        r"energy in all: at most .*, by the power limit of the chips; its mean is unknown; the line", text
    )
    assert not any(word in text for word in ("7967 (6", "10^   money", "energy\n"))


@pytest.mark.usefixtures("folder")
def test_a_sum_of_spreads_has_an_interval_and_large_money_no_cents() -> None:
    words = ("two.campaign.yaml", "-t", "mine.yaml", "--price", "36000 USD/h per node, 2024-01-01")
    (mine,) = content(*words)["machines"]
    assert mine["no_spread"]["days"] == {"phases": [], "share": 0.0}
    text = run(*words).stdout
    (line,) = [one for one in text.splitlines() if one.startswith("money in all: ")]
    assert re.match(r"money in all: [\d,]+ \([\d,]+ … [\d,]+\) USD, a lower bound; 3.6e\+04 USD/h", line), line


def test_of_phases_with_days_those_whose_runs_the_device_explains_less_than_half_are_named() -> None:
    def cost(name: str, days: Span | None, share: float | None) -> PhaseCost:
        held = None if share is None else Explained(name, "titan", share, "")
        return PhaseCost(Phase(name, 1.0, "assumed", "", "p1b3"), None, days, explained=held)

    days = Span.exact(2.0)
    phases = (
        cost("little", days, 0.49),
        cost("half", days, 0.5),
        cost("no days", None, 0.1),
        cost("no run", days, None),
    )
    whole = CampaignCost(
        Workflow("w", "w", tuple(one.phase for one in phases)), load_machine("titan"), Options(), None, phases
    )
    assert [one.line for one in whole.little_explained] == ["little"]


def test_what_is_typed_is_assumed() -> None:
    from fomkit.profiles.declared import parse_intensity, parse_price

    price = parse_price("3 USD/h per node, 2018-04-01").per_s
    assert (price.basis, price.source) == ("assumed", "stated by the user")
    assert parse_intensity("0.4 kg/kWh, me").basis == "assumed"


def test_serving_on_a_group_of_devices_is_two_phases(folder: Path, root: Path) -> None:
    """A phase lasts as many steps as its samples fill batches."""
    config = root / "model_profiles" / "today" / "llama3-8b.config.json"
    save_model(profile_config(config, mode="prefill", batch=4, sizes={"seq": 512}), folder / "prompt.yaml")
    common = "mode: infer, runs: 1, nodes: 1, layout: {tensor: 8}, basis: assumed, source: made up"
    (folder / "serve.campaign.yaml").write_text(
        "schema: fomkit/campaign/1\nname: serve\nphases:\n"
        f"  - {{name: prompts, model: prompt.yaml, samples: 4000, batch: 4, {common}}}\n"
        f"  - {{name: answers, model: llama3-8b-decode, samples: 64000, batch: 64, sizes: {{cache: 600}},"
        f" {common}}}\n"
    )
    found = content(str(folder / "serve.campaign.yaml"), "-t", "h100-sxm", "--scope", "node")
    job = {"nodes": 1, "layout": "tensor=8"}
    prompt = fomkit.estimate(folder / "prompt.yaml", "h100-sxm", batch=4, **job)
    answer = fomkit.estimate("llama3-8b-decode", "h100-sxm", batch=64, sizes={"cache": 600}, **job)
    days = [phase["days"]["value"] for phase in found["machines"][0]["phases"]]
    assert days == pytest.approx([one.step.value * 1000 / 86_400 for one in (prompt, answer)])
