"""Remarks in the text and JSON of an estimate: why a figure is unknown, and the evidence of each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from costs.op_tables import rnn
from typer.testing import CliRunner
from what_if_cases import made_model

import fomkit
from fomkit.cli.main import app
from fomkit.plan.content import conditions_content
from fomkit.profiles.locate import shipped_folder


def said(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_many_models_say_of_which_no_run_is_known() -> None:
    text = said("estimate", "candle", "-t", "v100")
    assert "\np3b2, p3b3: the profile does not define a run: add --samples, --epochs or both\n" in text


def test_a_figure_of_merit_that_cannot_be_is_told() -> None:
    text = said("estimate", "p1b3", "p3b2", "-t", "v100", "--baseline", "p100")
    assert text.endswith("no FOM: no run is defined for p3b2; leave them out, or define their runs\n")
    assert "FOM" not in said("estimate", "p3b2", "-t", "v100")


def test_a_meaning_of_precisions_is_told_once_and_names_its_models() -> None:
    lines = said("estimate", "resnet50", "dit-xl-2", "-t", "h100-sxm", "--allow-oversize").splitlines()
    told = [line for line in lines if line.startswith("precision ")]
    assert told == [
        "precision fp32/tf32 (resnet50), fp32 (dit-xl-2): default of torch: fp32 conv, rnn in "
        "tf32, all else as traced"
    ]


def test_sizes_beside_the_batch_are_told() -> None:
    """A sequence matters as much as a batch; before, it was in the JSON only."""
    assert "\nsizes: seq 512\n" in said("estimate", "gpt2", "-t", "v100", "--set", "seq=512")
    assert "\nsizes: seq 1,024 (gpt2)\n" in said("estimate", "gpt2", "p1b3", "-t", "v100")
    assert "sizes:" not in said("estimate", "p1b3", "-t", "v100")


@pytest.mark.parametrize(("directions", "is_said"), [(1.0, False), (2.0, True)])
def test_that_both_ways_of_a_recurrent_layer_take_turns_is_a_condition(directions: float, is_said: bool) -> None:
    layer = {"op": "lstm", **rnn("lstm", 16.0, 20.0, 64.0, input_size=32.0, directions=directions)}
    found = conditions_content(fomkit.estimate(made_model(layer), "v100"))["occupancy"]["what"]
    assert ("; both ways of a recurrent layer run one after the other; a run has" in found) == is_said


def test_the_figure_of_one_model_is_its_ratio() -> None:
    one, two = (
        said("estimate", *names, "-t", "v100", "--baseline", "p100") for names in (["p1b3"], ["p1b3", "tc1"])
    )
    assert "  mean: ratio_of_harmonic_means (all means of one line are equal); scope: device" in one
    assert "\n  rates: p100 " in one
    for words in ("implied weights:", "other means of the ratios:", "harmonic mean rates:"):
        assert (words in one, words in two) == (False, True)


def test_the_evidence_is_that_of_the_estimate() -> None:
    content = json.loads(said("estimate", "resnet50", "llama3-8b-decode", "-t", "h100-sxm", "--json"))
    assert [one["evidence"] for one in content["models"]] == ["datasheet; its timings not used", "timing table"]
    assert content["models"][0]["coverage"]["roofline"] == 1


def test_down_time_is_told_where_rates_and_money_are_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (shipped_folder("machine_profiles") / "titan.yaml").read_text(encoding="utf-8")
    Path("mine.yaml").write_text(text.replace("availability: 1.0", "availability: 0.95"), encoding="utf-8")
    note = "titan is up 95.0% of the time: units/day are multiplied by it, and the cost of a run is divided by it"
    price = ["--price", "3 USD/h per node, 2018-04-01"]
    spread = ["--nodes", "2", "--link", "system,5us,25GB/s,each"]
    assert note in said("cost", "p1b3", "-t", "mine.yaml", *price, *spread)
    assert note in said("estimate", "p1b3", "-t", "mine.yaml", "--scope", "system")
    assert note not in said("cost", "p1b3", "-t", "mine.yaml", *price)  # of one device nobody says that it is down


def test_no_interval_is_called_one() -> None:
    from fomkit.output.values import NO_SPREAD, interval_words

    assert interval_words(0.8, {"low": 1.0, "high": 1.0}, None) == NO_SPREAD
    assert interval_words(0.8, {"low": 1.0, "high": 2.0}, None) == "80% interval 1.00 … 2.00"


def test_fp16_is_answered_by_what_it_is_called() -> None:
    done = CliRunner().invoke(app, ["estimate", "p1b3", "-t", "v100", "--precision", "fp16"])
    assert str(done.exception) == "--precision: 'fp16' is not one of its values. It is called 'mixed'."


def test_no_interval_is_said_to_be_certain() -> None:
    assert "\nintervals: 99.9%, for " in fomkit.estimate("p1b3", "v100", interval=0.999).summary()


def test_a_step_of_no_ops_is_refused() -> None:
    model = fomkit.model("p1b3")
    with pytest.raises(fomkit.FomkitError, match="p1b3"):
        fomkit.estimate(replace(model, ops=model.ops.iloc[:0]), "v100")
