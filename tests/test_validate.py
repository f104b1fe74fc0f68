"""The public comparisons: kernels by the framework's rules, no fitting to labels, figures within tolerance."""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from json_figures import sorted_out
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.output.comparisons import aim_range
from fomkit.output.docs import chapter
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.profiles.metrics import METRICS
from fomkit.validation import deepbench_folds as folds
from fomkit.validation import graphs
from fomkit.validation import scores as scoring
from fomkit.validation.deepbench_scores import EIE as DENSE
from fomkit.validation.deepbench_scores import SheetScores, dense_layer_scores, median_line, score_sheets
from fomkit.validation.framework import FORWARD, accumulate, backward, backward_alone
from fomkit.validation.graphs import LabelFolder, predict_graphs, shipped_labels
from fomkit.validation.labels import GraphRow, read_single_calls, read_whole_models
from fomkit.validation.neusight import FACTS, OTHER, OWN, compare_labels, scored_calls
from fomkit.validation.published_steps import megatron_figures, megatron_scores
from fomkit.validation.scores import Aim, Range, check_aims, make_cases, read_aims
from fomkit.validation.validate import MERITS, Validation, validate

SHEET = "v100 fp32/vector"
"""One sheet stands for all: the whole takes minutes, and `fomkit validate` runs it."""


def call(name: str, opname: str, forward: list, *, inputs: tuple, output: tuple, before: str = "") -> GraphRow:
    return GraphRow(name, opname, 1.0, tuple(forward), (), (), inputs, output, before)


# --- what the framework runs -------------------------------------------------------------------------------------


def test_a_linear_layer_is_one_product_and_its_gradient_two_and_a_sum() -> None:
    row = call("fc1", "Linear", [("Linear", [4096, 1024, 4096])], inputs=((8, 512, 1024),), output=(8, 512, 4096))
    row = row._replace(accumulate=(("VECadd", (1, 1024 * 4096)), ("VECadd", (1, 4096))))
    (forward,) = FORWARD["Linear"](row)
    assert [forward[name] for name in ("b", "m", "n", "k", "trans_b")] == [1, 4096, 4096, 1024, 1]
    of_input, of_weights, of_bias = backward(row)
    assert [of_input[name] for name in ("m", "n", "k")] == [4096, 1024, 4096]
    assert [of_weights[name] for name in ("m", "n", "k", "trans_a")] == [4096, 1024, 4096, 1]
    assert (of_bias["kind"], of_bias["numel"], of_bias["write_byte"]) == ("reduction", 4096 * 4096, 4 * 4096)
    weights, bias = accumulate(row)
    assert (weights["read_byte"], weights["write_byte"]) == (8 * 1024 * 4096, 4 * 1024 * 4096)
    assert bias["numel"] == 4096


@pytest.mark.parametrize(
    ("name", "before", "batch", "copies"),
    [
        ("matmul", "transpose", 8, 2),
        ("matmul_1", "dropout", 8, 1),
        ("matmul", "transpose", 1, 0),
        ("bmm", "x", 8, 0),
    ],
)
def test_matmul_copies_permuted_operands(name: str, before: str, batch: int, copies: int) -> None:
    shapes = ((batch, 16, 512, 64), (batch, 16, 64, 512))
    sizes = [batch * 16, 512, 64, 512]
    row = call(name, "BMM", [("BMM", sizes)], inputs=shapes, output=(batch, 16, 512, 512), before=before)
    works = FORWARD["BMM"](row)
    assert [work["kind"] for work in works] == ["copy"] * copies + ["gemm"]
    assert [works[-1][key] for key in ("b", "m", "n", "k")] == [batch * 16, 512, 512, 64]


def test_a_mask_is_read_once_while_the_cache_holds_it() -> None:
    """BERT's mask is repeated row by row, OPT's head by head: 50 MB pass between two of its uses."""
    bert = call("add_7", "VECadd", [("VECadd", [131072, 512])], inputs=((16, 16, 512, 512), (16, 1, 1, 512)),
                output=(16, 16, 512, 512))  # fmt: skip
    opt = call("add_6", "VECadd", [("VECadd", [131072, 2048])], inputs=((2, 32, 2048, 2048), (2, 1, 2048, 2048)),
               output=(2, 32, 2048, 2048))  # fmt: skip
    (once,), (again,) = FORWARD["VECadd"](bert), FORWARD["VECadd"](opt)
    assert once["read_byte"] == 4 * (16 * 16 * 512 * 512 + 16 * 512)
    assert again["read_byte"] == 2 * again["write_byte"]


def test_gradients_follow_the_framework() -> None:
    softmax = call("softmax", "VECsoftmax", [("VECsoftmax", [8, 4])], inputs=((8, 4),), output=(8, 4))
    # Its first kernel, gradient × result, is priced with it on a GPU.
    assert [work["read_byte"] + work["write_byte"] for work in backward(softmax)] == [3 * 128]
    added = call("add", "VECadd", [("VECadd", [8, 4])], inputs=((8, 4), (8, 4)), output=(8, 4))
    assert backward(added) == []
    dropout = call("drop", "dropout", [("MEM", [[8, 4], [8, 4]])], inputs=((8, 4),), output=(8, 4))
    (work,) = backward(dropout)
    assert work["read_byte"] + work["write_byte"] == 9 * 32
    # Timed alone, gradients are recorded and it is made of three kernels: 5, 8 and 12 bytes an element.
    assert [one["read_byte"] + one["write_byte"] for one in backward_alone(dropout)] == [5 * 32, 8 * 32, 12 * 32]
    assert backward_alone(softmax) == []
    assert FORWARD["dropout"](dropout._replace(forward=())) == []


def test_filling_out_of_place_copies_first() -> None:
    filled, in_place = (
        FORWARD["misc"](call(name, "misc", [], inputs=((8, 4), (8, 4)), output=(8, 4)))
        for name in ("masked_fill_1", "masked_fill_")
    )
    assert [work["op"] for work in filled] == ["aten::clone", "aten::masked_fill_"]
    assert filled[1]["read_byte"] == (4 + 1) * 32
    assert [work["op"] for work in in_place] == ["aten::masked_fill"]


def test_calls_that_only_look_at_a_tensor_run_nothing() -> None:
    for name, opname in (("view", "misc"), ("transpose", "misc"), ("getitem", "getitem"), ("size", "misc")):
        assert FORWARD[opname](call(name, opname, [], inputs=((8, 4),), output=(8, 4))) == []
    kept = call("contiguous", "contiguous", [("MEM", [[8, 4], [8, 4]])], inputs=((8, 4),), output=(8, 4))
    assert FORWARD["contiguous"](kept._replace(before="lm_head")) == []
    assert len(FORWARD["contiguous"](kept._replace(before="transpose_3"))) == 1


def test_a_call_without_a_rule_is_work_without_a_time() -> None:
    row = call("mixer", "StateSpace", [], inputs=((8, 4),), output=(8, 4))
    ops = graphs.ops_of([("mamba-inf-1024-1", row)])
    assert list(ops["kind"]) == ["other"]
    assert predict_graphs(ops, load_machine("v100"))["time_s"].isna().all()


def test_every_kernel_of_the_shipped_graphs_is_priced() -> None:
    folder = LabelFolder(shipped_labels())
    machine = folder.facts("H100")
    assert machine is not None
    timed = predict_graphs(folder.ops, machine)
    assert timed["time_s"].notna().all()
    assert (timed["low_s"] <= timed["time_s"]).all()
    # GPT-2 large, forward, at 4 × 1,024 tokens: 2 flop per weight and token, and the attention's products.
    one = timed[(timed["graph"] == "gpt2_large-inf-1024-4")]
    per_layer = 2 * 4096 * 1280 * 1280 * 12 + 2 * 2 * 4 * 20 * 1024 * 1024 * 64
    products = (one["flop"] * one["count"])[one["kind"] == "gemm"].sum()
    assert products == 36 * per_layer + 2 * 4096 * 1280 * 50257


# --- nothing that is scored was fitted ---------------------------------------------------------------------------


def small_folder(target: Path, *, whole_models: bool = True, factor: float = 1.0) -> LabelFolder:
    """Labels of two devices for one model, whole ones wrong by a factor."""
    target.mkdir()
    labels = pd.read_csv(shipped_labels() / "e2e.csv", keep_default_na=False)
    labels = labels[labels["device"].isin(["MI100", "V100-PCIe-32GB"]) & (labels["model"] == "bert_large")]
    if whole_models:
        scaled = {name: labels[name].astype(float) * factor for name in ("measured_fw_ms", "measured_bw_ms")}
        labels.assign(**scaled).to_csv(target / "e2e.csv", index=False)
    calls = pd.read_csv(shipped_labels() / "oplabels.csv.gz", keep_default_na=False)
    kept = calls["device"].isin(["MI100", "V100-PCIe-32GB"]) & calls["graph"].str.startswith("bert_large")
    calls[kept].to_csv(target / "oplabels.csv", index=False)
    return LabelFolder(target)


def test_deleting_the_labels_of_models_changes_no_prediction(tmp_path: Path) -> None:
    with_them = compare_labels(small_folder(tmp_path / "with"), 0.8)
    doubled = compare_labels(small_folder(tmp_path / "doubled", factor=2.0), 0.8)
    without = compare_labels(small_folder(tmp_path / "without", whole_models=False), 0.8)
    assert set(with_them.calls) == {"V100-PCIe-32GB"}
    for other in (doubled, without):
        for device, cases in with_them.calls.items():
            assert np.array_equal(cases.value, other.calls[device].value)
            assert np.array_equal(cases.high, other.calls[device].high)
    said = [[one.spans["step"] for one in found.outcomes[OWN]["V100-PCIe-32GB"]] for found in (with_them, doubled)]
    assert said[0] == said[1]
    means = [
        next(line.mean for line in found.scores if (line.machine, line.what) == ("V100-PCIe-32GB", "training"))
        for found in (with_them, doubled)
    ]
    assert means[1] > 0.4 > means[0]


@pytest.fixture(scope="module")
def gemm_part():
    sheet = next(one for one in folds.read_sheets(shipped_folder("validation") / "deepbench" / "sheets.csv")
                 if one.title == SHEET)  # fmt: skip
    machine = load_machine(sheet.machine)
    part = next(part for part in folds.parts(sheet, machine) if part.what == "gemm")
    return machine, part


def test_folds_hold_whole_groups_and_nine_workbooks_have_eleven_sheets(gemm_part) -> None:
    _, part = gemm_part
    assert part.rows.assign(fold=part.fold).groupby(["n", "k"])["fold"].nunique().max() == 1
    assert sorted(set(part.fold)) == list(range(10))
    sheets = folds.read_sheets(shipped_folder("validation") / "deepbench" / "sheets.csv")
    assert len(sheets) == 11
    assert len({sheet.machine for sheet in sheets}) == 9
    assert len(part.rows) == 160


def test_a_row_that_is_scored_does_not_teach(gemm_part) -> None:
    """Neither the values of the quick way nor the intervals of the full way use the scored row."""
    machine, part = gemm_part
    rows = part.rows[part.fold < 3].reset_index(drop=True)
    fold = folds.group_folds(rows, "gemm")
    out = fold == fold[0]
    wrong = rows.assign(_time_s=rows["_time_s"].where(~out, rows["_time_s"] * 7))
    true, shifted = (folds.cross_validate(one, "gemm", fold, machine) for one in (rows, wrong))
    assert np.array_equal(true.value[out], shifted.value[out])
    assert not np.array_equal(true.value[~out], shifted.value[~out])
    known = [one.assign(time_s=one["_time_s"]) for one in (rows, wrong)]
    true, shifted = (folds.nested_validate(one, fold, machine) for one in known)
    assert np.array_equal(true.high[out], shifted.high[out])
    assert not np.array_equal(true.high[~out], shifted.high[~out])


def test_the_quick_way_predicts_what_the_product_would(gemm_part) -> None:
    """Values are the same; the full way derives its intervals from folds inside the known folds."""
    machine, part = gemm_part
    few = part.rows.reset_index(drop=True)  # of 120 rows or fewer, their errors enter the values
    fold = folds.group_folds(few, "gemm")
    quick, slow = folds.cross_validate(few, "gemm", fold, machine), folds.nested_validate(few, fold, machine)
    assert np.allclose(quick.value, slow.value, rtol=1e-9)
    assert 0.3 < np.median(np.log(slow.high / slow.low) / np.log(quick.high / quick.low)) < 3


def test_twenty_known_rows_are_not_scored(gemm_part) -> None:
    machine, part = gemm_part
    assert [len(cases) for cases in folds.few_rows_cases(part, machine, 0.8)] == [
        len(part.rows) - folds.KNOWN_ROWS
    ] * 5


def test_dense_layers_of_another_source_are_met_within_two_sources_noise() -> None:
    """EIE's layers at batch 1 and 64: medians within 1.35 times and 7 of 10 in their interval."""
    found = {line.what: line for line in dense_layer_scores()}
    assert {name: line.cases for name, line in found.items()} == {"batch 1": 9, "batch 64": 9, "all": 18}
    assert max(line.median for line in found.values()) < 0.35
    assert found["all"].hit_rate >= 0.7
    aims = [aim for aim in read_aims(shipped_folder("validation") / "aims.csv") if aim.comparison == DENSE]
    assert len(aims) == 3
    assert all(one.kept for one in check_aims(found.values(), aims))


# --- scores and aims ---------------------------------------------------------------------------------------------


def test_interval_scores_punish_width_and_misses() -> None:
    truth = np.ones(3)
    scores = scoring.interval_scores(truth, np.exp([-1.0, -0.1, 0.1]), np.exp([1.0, 0.1, 0.3]))
    assert scores.round(9).tolist() == [2.0, 0.2, 1.2]


def test_a_constant_band_never_sees_the_fold_it_scores() -> None:
    errors = np.array([0.1, -0.1, 0.2, 5.0])
    cases = make_cases(np.exp(-errors), np.ones(4), np.ones(4), np.ones(4), fold=np.array([0, 0, 0, 1]))
    scores = scoring.constant_band(cases).constant_score
    band = np.quantile([-0.1, 0.1, -0.2], [0.1, 0.9])
    assert scores[3] == pytest.approx(np.ptp(band) + 10 * (band[0] + 5.0))
    assert scores[0] > 10


def test_past_its_tolerance_is_regressed_and_past_its_target_missed() -> None:
    line = scoring.score(make_cases(*(np.array([one]) for one in (1.0, 1.05, 0.9, 1.2))), "c", "op", "m", "gemm")
    aims = [Aim("c", "op", "m", "gemm", "bias", Range(0, target), Range(0, most)) for target, most in
            ((0.1, 0.1), (0.01, 0.1), (0.01, 0.02))]  # fmt: skip
    assert [(one.met, one.kept) for one in check_aims([line], aims)] == [
        (True, True),
        (False, True),
        (False, False),
    ]
    assert check_aims([line], [aims[0]._replace(what="conv")]) == []
    assert not scoring.Verdict(aims[0], float("nan")).kept


def test_published_steps_that_move_are_a_regression() -> None:
    """The tolerances of the four steps hold, and fail if each step takes a tenth longer."""
    figures = megatron_figures()
    aims = read_aims(shipped_folder("validation") / "aims.csv")
    now = check_aims(megatron_scores(figures), aims)
    assert len(now) == 4
    assert all(one.kept and one.met for one in now)
    slower = [one._replace(projected=one.projected.scaled(1.1)) if one.unit == "s" else one for one in figures]
    missed = [one.aim for one in check_aims(megatron_scores(slower), aims) if not one.kept]
    assert [aim.what for aim in missed if aim.figure == "mean"] == ["steps", "worst step"]


def test_every_aim_is_of_a_line_that_exists_and_no_tolerance_is_closer_than_its_target_needs() -> None:
    aims = read_aims(shipped_folder("validation") / "aims.csv")
    assert len({aim[:5] for aim in aims}) == len(aims) > 30
    assert all(aim.tolerance.least <= aim.tolerance.most for aim in aims)


def test_an_interval_score_has_a_ceiling_and_a_gain_a_floor() -> None:
    """When errors fall, one band improves more than our widths, so the gain falls together with the score."""
    aims = {
        one.figure: one for one in read_aims(shipped_folder("validation") / "aims.csv") if "a third" in one.what
    }
    assert aim_range(aims["interval_score"].tolerance, "interval_score") == "≤ 1.160"
    assert aim_range(aims["interval_gain"].tolerance, "interval_gain") == "≥ 13.0 %"
    assert not aims["interval_score"].tolerance.holds(1.163)


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sheets_are_scored_once() -> Iterator[None]:
    """Score a sheet, which takes ten seconds, once for the commands that compare different labels."""
    known: dict[str, SheetScores] = {}

    def scored(sheets: Sequence[folds.Sheet], level: float, **how: bool) -> SheetScores:
        asked = repr((sheets, level, how))
        if asked not in known:
            known[asked] = score_sheets(sheets, level, **how)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fomkit.validation.deepbench_scores.score_sheets", scored)
        yield


@pytest.fixture(scope="module")
def of_one_sheet(sheets_are_scored_once: None) -> Validation:  # noqa: ARG001 - the command's test finds it scored
    """All comparisons with one sheet: 15 s."""
    return validate(sheets=[SHEET])


@pytest.mark.slow
@pytest.mark.parametrize("name", [OWN, OTHER, FACTS, MERITS])
def test_whole_models_on_the_committed_page_are_what_the_command_writes(
    name: str, of_one_sheet: Validation
) -> None:
    """As in test_accuracy.py for the other sets; write the page with: fomkit validate -o docs/accuracy.md."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "accuracy.md").read_text(encoding="utf-8")
    parts = list(chapter(name, of_one_sheet.content()))
    assert parts
    assert all(part in page for part in parts)


@pytest.mark.slow
def test_figures_are_not_past_their_tolerance(of_one_sheet: Validation) -> None:
    """A regression of one sheet, of labels or of ratios fails here; ``fomkit validate`` runs all sheets."""
    found = of_one_sheet
    past = [
        f"{one.aim.machine} {one.aim.what} {one.aim.figure}: {one.value:.3g}"
        for one in found.verdicts
        if not one.kept
    ]
    assert not past
    assert len(found.verdicts) >= 15
    neusight = next(line for line in found.lines if (line.comparison, line.machine, line.what) ==
                    (OWN, "all counted", "all")).peers["NeuSight"]  # fmt: skip
    # The paper's figure without P4 on the same labels.
    assert neusight.mean == pytest.approx(0.083, abs=0.001)


def score_one(value: float) -> scoring.Score:
    """Score one prediction of 1 s."""
    cases = make_cases(*(np.array([one]) for one in (1.0, value, 0.8, 1.2)))
    return scoring.score(cases, "made up", "op", f"sheet {value}", "gemm")


@pytest.mark.slow
@pytest.mark.usefixtures("sheets_are_scored_once")
def test_the_command_prints_writes_and_fails_past_a_tolerance(tmp_path: Path) -> None:
    folder = small_folder(tmp_path / "labels", factor=2.0).path
    arguments = ["validate", "--data", str(folder), "--sheet", SHEET, "-o", str(tmp_path / "v.json")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "REGRESSED" in done.output
    content = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))
    assert content["schema"] == "fomkit/validate/1"
    assert content["regressed"] is True
    assert {line["level"] for line in content["lines"]} == {"op", "model", "ratio"}
    of_steps = [one for one in content["published"] if one["unit"] == "s"]
    assert [one["published"] for one in of_steps] == [1.42, 1.10, 18.13, 13.75]
    assert "Megatron-LM as published" in done.output
    # Medians over sheets stand where all sheets ran.
    two = [score_one(1.1), score_one(0.9)]
    content["lines"].append(median_line(two, "made up", "gemm", {}).content())
    known, unknown = sorted_out(content, "validate")
    assert not unknown
    assert known == {one.name for one in METRICS if "validate" in one.by.split()}


@pytest.mark.parametrize(
    ("files", "said"),
    [({}, "has no labels"), ({"e2e.csv": "device\nV100\n"}, "lacks the column"),
     ({"oplabels.csv": "device,graph,name,opname,count,fw_ms,bw_ms,acc_ms\na,b,c,d,1,x,0,0\n"}, "fw_ms is 'x'")],
)  # fmt: skip
def test_a_folder_that_is_none_is_one_message(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FomkitError, match=said):
        compare_labels(LabelFolder(tmp_path), 0.8)


def test_a_device_nobody_knows_is_said_not_guessed(tmp_path: Path) -> None:
    labels = pd.read_csv(shipped_labels() / "e2e.csv", keep_default_na=False)
    labels[labels["device"] == "P4"].assign(device="Z9000").to_csv(tmp_path / "e2e.csv", index=False)
    found = compare_labels(LabelFolder(tmp_path), 0.8)
    assert not found.scores
    assert ("labels of Z9000", 3, "no profile and no facts of this device") in found.not_scored


def test_a_device_without_a_profile_is_predicted_from_facts(tmp_path: Path) -> None:
    labels = pd.read_csv(shipped_labels() / "e2e.csv", keep_default_na=False)
    labels[labels["device"] == "T4"].assign(device="H100").to_csv(tmp_path / "e2e.csv", index=False)
    found = compare_labels(LabelFolder(tmp_path), 0.8)
    assert {line.comparison for line in found.scores} == {"facts only"}
    machine = graphs.facts_only("H100", shipped_labels() / "devices.csv")
    assert machine is not None
    assert graphs.nearest_device("H100", ["Tesla T4"]) is None
    assert machine.device.peaks[0].rate.value == 66.908e12
    assert machine.energy is not None
    assert machine.energy.limit_w is not None
    assert (machine.energy.limit_w.value, machine.energy.process_m) == (700.0, pytest.approx(4e-9))
    amd = graphs.facts_only("MI100", shipped_labels() / "devices.csv")  # of which the list states neither
    assert amd is not None
    assert amd.energy is None
    chips = [graphs.facts_only(name, shipped_labels() / "devices.csv") for name in ("MI100", "P4")]
    assert [(one.device.units.value, one.device.cache_byte.value) for one in chips] == [(120, 8e6), (20, 2e6)]
    listed = (shipped_labels() / "devices.csv").read_text()
    for gone, units in (("real_sm", 40), ("L2Cache", None)):
        (tmp_path / "devices.csv").write_text(listed.replace(gone, "unread"))
        found = graphs.facts_only("P4", tmp_path / "devices.csv").device.units
        assert (found and found.value) == units


def test_labels_are_seconds_less_their_harness() -> None:
    calls = read_single_calls(shipped_labels() / "oplabels.csv.gz")
    one = calls[(calls["device"] == "V100-PCIe-32GB") & (calls["graph"] == "bert_large-train-512-8")]
    query = one[(one["call"] == "bert_encoder_layer_0_attention_self_query") & (one["label"] == "bw")].iloc[0]
    assert query["seconds"] == pytest.approx(1.522e-3 - query["harness_s"])
    assert 6e-6 < query["harness_s"] < 12e-6
    whole = read_whole_models(shipped_labels() / "e2e.csv")
    train = whole[(whole["device"] == "V100-PCIe-32GB") & (whole["graph"] == "bert_large-train-512-8")].iloc[0]
    assert (train["forward"], train["backward"]) == pytest.approx((0.29874, 0.54239))


def test_what_only_a_call_alone_runs_is_no_part_of_a_step() -> None:
    ops = LabelFolder(shipped_labels()).ops
    dropped = ops[(ops["class"] == "dropout") & (ops["pass_name"] == "backward")]
    in_step = dropped.groupby("in_step")["op"].agg(lambda names: set(names))
    assert in_step[True] == {"aten::native_dropout_backward"}
    assert in_step[False] == {"aten::_to_copy", "aten::mul"}
    assert set(dropped[dropped["in_step"]]["label"]) == {""}
    timed = dropped[dropped["graph"] == dropped["graph"].iloc[0]].assign(
        time_s=1e-6, low_s=1e-6, high_s=1e-6, time_source="roofline", bound="memory"
    )
    whole = graphs.per_pass(timed, timed["graph"].iloc[0], "backward", 0.8)
    assert whole is not None
    assert whole.value == pytest.approx(1e-6 * timed[timed["in_step"]]["count"].sum())


def test_short_and_doubtful_calls_are_not_scored() -> None:
    folder = LabelFolder(shipped_labels())
    assert folder.single_calls is not None
    labels = folder.single_calls[folder.single_calls["device"] == "A100-PCIe-40GB"]
    machine = folder.facts("A100-PCIe-40GB")
    assert machine is not None
    timed = predict_graphs(folder.ops[folder.ops["graph"].isin(labels["graph"])], machine)
    scored, reasons = scored_calls(labels, timed)
    assert len(scored) + sum(reasons.values()) == len(labels)
    assert (scored["flag"] == "").all()
    assert (scored["seconds"] >= 3 * scored["harness_s"]).all()


def test_the_shipped_tables_are_what_the_converter_makes(shared: Path, root: Path) -> None:
    path = root / "benchmarks" / "validation_tables.py"
    spec = importlib.util.spec_from_file_location("validation_tables", path)
    assert spec is not None
    assert spec.loader is not None
    converter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(converter)
    for name, content in converter.tables(shared).items():
        known = (shipped_labels() / name).read_bytes()
        # Packed sizes differ between versions of zlib, what is packed does not.
        unpack = gzip.decompress if name.endswith(".gz") else bytes
        assert unpack(known) == unpack(content), name


def test_the_shipped_folder_is_small_and_a_copy_of_it_reads_alike(tmp_path: Path) -> None:
    folder = shipped_folder("validation")
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 5_000_000
    shutil.copytree(shipped_labels(), tmp_path / "copy")
    assert LabelFolder(tmp_path / "copy").devices == LabelFolder(shipped_labels()).devices
    assert replace(LabelFolder(shipped_labels())).profiles["P4"].apart


def test_a_device_left_out_takes_the_other_boards_of_its_chip_with_it(tmp_path: Path) -> None:
    v100 = graphs.without_timings(load_machine("v100"))
    assert not len(v100.timings)
    assert not v100.fits
    assert v100.excluded == (load_machine("v100-pcie-32gb").device.architecture,)
    chips = tmp_path / "chips.csv"
    chips.write_text("word,architecture\na100,NVIDIA Ampere GA100\nl4,NVIDIA Ada AD104\n")
    assert graphs.architecture_of("A100-PCIe-40GB", chips) == load_machine("a100-sxm").device.architecture
    assert graphs.architecture_of("L40S", chips) == ""


def test_every_labelled_device_has_a_chip_and_its_profile_says_the_same() -> None:
    folder = LabelFolder(shipped_labels())
    for device in folder.devices:
        own = folder.profiles.get(device, graphs.Profiles()).own
        assert folder.architecture(device), device
        if own:
            assert load_machine(own).device.architecture == folder.architecture(device)
