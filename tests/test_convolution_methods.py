"""``fomkit show MODEL --convolutions`` and its function: best methods, times by tables, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.ops.conv_methods import METHODS, method_costs
from fomkit.ops.pricing import add_costs
from fomkit.output.models import format_convolutions
from fomkit.output.screen import Screen
from fomkit.plan.options import Options
from fomkit.prediction.rates import BOOST
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.verbs.convolutions import add_floors, add_workspace, convolutions_content

LIMIT = 256 * 1024**2


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["show", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def alexnet() -> dict:
    return json.loads(run("alexnet", "--convolutions", "-t", "v100", "--workspace", "256MiB", "--json"))


def test_each_convolution_has_its_methods_the_best_and_the_tables_time(alexnet) -> None:
    assert (alexnet["schema"], alexnet["basis"]) == ("fomkit/convolutions/1", "modelled")
    assert alexnet["workspace_limit_byte"] == LIMIT
    assert sum(layer["count"] for layer in alexnet["layers"]) == 14
    for layer in alexnet["layers"]:
        known = {one["method"]: one for one in layer["methods"]}
        assert {one["title"] for one in known.values()}.isdisjoint(layer["absent"])
        assert len(known) + len(layer["absent"]) == len(METHODS)
        assert known[layer["best"]]["floor_s"] == min(one["floor_s"] for one in known.values())
        assert all(one["workspace_byte"] <= LIMIT for one in known.values())
        assert layer["time_s"]["low"] < layer["time_s"]["value"] < layer["time_s"]["high"]
        assert layer["time_source"] in ("interpolated", "extrapolated", "transferred")
        # A modelled floor is no timing, and no timing here beats it.
        assert layer["time_s"]["value"] > known[layer["best"]]["floor_s"]
    first = alexnet["layers"][0]
    assert (first["modules"], first["best"]) == (["conv1"], "direct")
    assert first["absent"]["FFT"].startswith("stride above 1")


def test_sums_are_those_of_the_layers(alexnet) -> None:
    layers, total = alexnet["layers"], alexnet["total"]
    floors = [{one["method"]: one["floor_s"] * layer["count"] for one in layer["methods"]} for layer in layers]
    assert total["direct_s"] == pytest.approx(sum(one["direct"] for one in floors))
    best = [one[layer["best"]] for one, layer in zip(floors, layers, strict=True)]
    assert total["best_s"] == pytest.approx(sum(best))
    assert total["best_s"] < total["time_s"]["value"] < total["direct_s"]
    assert sum(one["best_in"] for one in alexnet["methods"]) == 14
    by_name = {one["method"]: one for one in alexnet["methods"]}
    assert by_name["winograd_2"]["possible_in"] == 9
    assert by_name["winograd_2"]["absent"] == {
        "no transforms for this kernel": "3", "stride above 1": "2"
    }  # fmt: skip
    assert by_name["direct"]["largest_workspace_byte"] == 0


def test_equal_layers_stand_in_one_row_with_their_modules() -> None:
    found = convolutions_content(load_model("vgg16"), Options(batch=1))
    twin = next(layer for layer in found["layers"] if layer["shape"] == "1× 512→512 28×28 k3 p1")
    assert (twin["count"], twin["modules"]) == (2, ["conv4_2", "conv4_3"])
    direct = twin["methods"][0]
    assert (direct["multiply_adds"], direct["work_depth"]) == (1_849_688_064, 13)
    assert (found["target"], found["total"], twin["best"]) == (None, None, "winograd_4")
    assert "time_s" not in twin
    assert "floor_s" not in direct


def test_text_says_which_figures_are_modelled_and_narrow_screens_keep_the_answer() -> None:
    found = convolutions_content(load_model("alexnet"), Options(), load_machine("v100"), LIMIT)
    wide, narrow = format_convolutions(found), format_convolutions(found, Screen(80))
    assert "Floors are modelled" in wide
    assert "times are predicted from the machine's table" in wide
    assert "at most 256.00" in wide
    assert "direct floor 30.85 ms, best floor 11.55 ms, predicted 23.16 ms" in wide
    assert "; extrapolated 82%, interpolated 18%)" in wide
    header = next(line for line in narrow.splitlines() if line.startswith("convolution  "))
    assert header.split("  ")[-1] == "predicted"
    assert "best method" in header
    assert max(map(len, narrow.split("\n\n")[0].splitlines()[2:])) <= 80
    without = format_convolutions(convolutions_content(load_model("alexnet"), Options()))
    assert "best: the least arithmetic; name a machine" in without


def test_the_function_and_the_csv_file_have_one_row_for_each_method(tmp_path: Path) -> None:
    output = tmp_path / "methods.csv"
    run("alexnet", "--convolutions", "-t", "v100", "-o", str(output))
    with output.open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    found = fomkit.show("alexnet", machine="v100", convolutions=True).table
    assert len(written) == len(found) == 14 * len(METHODS)
    assert set(written[0]) == set(found.columns)
    assert found.groupby(["shape", "pass_name"])["best"].sum().eq(1).all()
    absent = found["absent"].notna()
    assert found.loc[absent, ["flop", "work_depth", "workspace_byte", "floor_s"]].isna().all(axis=None)
    assert found.loc[~absent, ["flop", "work_depth", "workspace_byte", "floor_s"]].notna().all(axis=None)
    cells = pd.Series([row["absent"] for row in written])
    assert (cells != "").tolist() == absent.tolist()


def test_rates_of_a_table_serve_and_what_is_unknown_is_said(tmp_path: Path) -> None:
    fitted = convolutions_content(
        load_model("candle/nt3"), Options(allow_uncovered=True), load_machine("x86-lecture")
    )
    assert all(layer["best"] for layer in fitted["layers"])
    assert any("rates are fitted" in said for said in fitted["deviations"])
    path = tmp_path / "bare.yaml"
    path.write_text("schema: fomkit/machine/1\nname: bare\nnode: {devices: 6}\n", encoding="utf-8")
    bare = convolutions_content(load_model("alexnet"), Options(allow_uncovered=True), load_machine(path))
    assert {layer["best"] for layer in bare["layers"]} == {None}
    assert bare["total"] == {
        "direct_s": None,
        "best_s": None,
        "time_s": None,
        "time_sources": {},
        "without_time": 14,
    }
    assert any("has no rate" in said for said in bare["deviations"])
    assert "unknown" in format_convolutions(bare)
    assert "missing" in format_convolutions(bare)


def test_a_precision_changes_engine_and_workspace() -> None:
    plain, mixed = (
        convolutions_content(load_model("vgg16"), Options(precision=word), load_machine("v100"))["layers"][1]
        for word in ("fp32", "mixed")
    )
    assert (mixed["dtype"], mixed["engine"]) == ("fp16", "matrix")
    byte = [next(one for one in layer["methods"] if one["method"] == "winograd_4")["workspace_byte"]
            for layer in (plain, mixed)]  # fmt: skip
    assert byte[0] == 2 * byte[1]


VIEW = ("alexnet", "--convolutions")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("p1b3", "--convolutions"), "p1b3: has no convolutions"),
        ((*VIEW, "--by", "op"), "--convolutions: cannot be combined with --by"),
        ((*VIEW, "--workspace", "256"), "--workspace 256: the workspace is '256', which has no unit"),
        ((*VIEW, "--workspace", "3 flop"), "and 'flop' is not a unit of memory"),
        (("alexnet", "--workspace", "1 GiB"), "--workspace: limits the methods of convolutions. Add --conv"),
        ((*VIEW, "--precision", "mixed"), "--precision: depends on the machine"),
        (("v100", "--convolutions"), "is a machine, and --convolutions is for models"),
        (("--convolutions",), "show: these options need a model"),
    ],
)
def test_mistakes_are_told(words, message) -> None:
    done = CliRunner().invoke(app, ["show", *words])
    assert isinstance(done.exception, FomkitError)
    assert message in str(done.exception)
    assert done.stdout == ""


def test_the_function_refuses_as_the_command_does() -> None:
    with pytest.raises(FomkitError, match="precision: depends on the machine"):
        fomkit.show("alexnet", convolutions=True, precision="mixed")
    with pytest.raises(FomkitError, match="workspace much: the workspace is 'much'"):
        fomkit.show("alexnet", convolutions=True, workspace="much")


@pytest.mark.parametrize(
    ("name", "timed", "below_direct", "below_best"),
    [("v100", 544, 63, 1), ("p100", 564, 139, 20), ("m40", 272, 20, 0), ("titan-x", 272, 25, 0),
     ("titan-x-pascal", 380, 43, 0), ("gtx-1080-ti", 389, 58, 0), ("mi25", 282, 42, 0), ("vega-fe", 282, 47, 0),
     ("knl-7250", 273, 0, 0), ("v100-pcie-32gb", 2000, 457, 0), ("p100-pcie-16gb", 2000, 421, 0),
     ("t4", 2000, 139, 0), ("p4", 2000, 239, 0)],
)  # fmt: skip
def test_timings_below_the_direct_floor_are_above_the_best_ones(name, timed, below_direct, below_best) -> None:
    """Of 11,258 timings 1,693 beat the direct floor, and 21 the best method's by more than boost clocks.

    20 of these are of the P100 in fp16, also for 1×1 kernels and strides, where no method saves arithmetic.
    """
    machine = load_machine(name)
    rows = machine.timings[machine.timings["kind"] == "conv"].reset_index(drop=True)
    costed = add_costs(rows)
    methods = add_workspace(method_costs(costed), costed["batch"], None)
    floors = add_floors(methods, costed, machine).pivot_table(index="of", columns="method", values="floor_s")
    assert len(rows) == timed
    assert int((costed["time_s"] < floors["direct"]).sum()) == below_direct
    assert int((costed["time_s"] * BOOST < floors.min(axis=1)).sum()) == below_best
