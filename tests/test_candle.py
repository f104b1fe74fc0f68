"""The eleven CANDLE benchmarks: parameters, work and runs computed by layers; the lecture's P1B3 step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from test_cli import fail, succeed

from fomkit.cli.choices import complete_model
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.profiles.campaigns import find_profile
from fomkit.profiles.locate import is_shipped, locate
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, models_named

FACTS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "data" / "candle_models.yaml").read_text())
PRODUCTS = ("gemm", "conv")
# P3B1 is traced in the first of its three networks; the facts' per-sample work is the mean of the three.
FIRST_TASK = {"forward": 22_111_200, "train": 64_413_600, "layers": 5}
# Keras runs the recurrent product's input gradient for the initial zeros too; nobody reads it.
NEVER_RUN = {"p3b2": 2 * 64 * 256}
# The benchmark ends each of its 60 frames with half a batch: 60 × 48 steps in the place of 2,850.
FRAME_BY_FRAME = {"p2b1": 2_880 - 2_850}


def products(model: ModelProfile, batch: int = 1) -> pd.DataFrame:
    ops = add_costs(resize_ops(model.ops, {**model.sizes, "batch": batch}, model.name))
    return ops[ops["kind"].isin(PRODUCTS)]


def work(ops: pd.DataFrame) -> float:
    return float((ops["flop"] * ops["count"]).sum())


def test_they_are_eleven(root: Path) -> None:
    assert {path.stem for path in (root / "model_profiles" / "candle").glob("*.yaml")} == set(FACTS)
    sources = {path.stem for path in (root / "model_profiles" / "src" / "candle").glob("*.py")}
    assert sources == {*FACTS, "candle_parts"}


@pytest.mark.parametrize("name", FACTS)
def test_parameters_equal_the_golden_ones(name: str) -> None:
    model, facts = load_model(f"candle/{name}"), FACTS[name]
    assert model.parameters_total == model.parameters_trainable
    assert model.parameters_total + facts["statistics"] == facts["parameters"]
    assert model.layers is not None
    layers = model.layers["parameters"]
    assert layers.sum() == model.parameters_total
    known = sorted(parameters for parameters, _ in facts["layers"] if parameters)
    if name == "p3b2":  # one recurrent layer there, its two products here
        assert sorted([layers[layers > 0].iloc[:2].sum(), layers.iloc[-1]]) == known
    else:
        assert sorted(layers[layers > 0]) == known


@pytest.mark.parametrize("name", FACTS)
def test_a_run_is_that_of_the_benchmark(name: str) -> None:
    model, facts = load_model(name), FACTS[name]
    assert model.batch == facts["batch"]
    assert model.data.train_samples == facts["train_samples"]
    assert model.data.validation_samples == facts["validation_samples"]
    assert model.run.epochs == facts["epochs"]
    assert model.optimizer["rule"] == facts["optimizer"]
    assert not model.unsupported


@pytest.mark.parametrize("name", FACTS)
def test_work_of_a_sample_equals_the_layers(name: str) -> None:
    facts = {**FACTS[name], **(FIRST_TASK if name == "p3b1" else {})}
    ops = products(load_model(name))
    assert work(ops[ops["pass_name"] == "forward"]) == facts["forward"]
    assert work(ops) == facts["train"] - NEVER_RUN.get(name, 0)


@pytest.mark.parametrize("name", [name for name in FACTS if name != "p3b2"])
def test_each_layers_work_stands_in_its_row(name: str) -> None:
    ops = products(load_model(name))
    forward = ops[ops["pass_name"] == "forward"]
    found = (forward["flop"] * forward["count"]).groupby(forward["module"]).sum()
    layers = FACTS[name]["layers"][: FIRST_TASK["layers"] if name == "p3b1" else None]
    assert sorted(found) == sorted(2 * products for _, products in layers if products)


@pytest.mark.parametrize("name", FACTS)
def test_steps_of_an_epoch(name: str) -> None:
    one = estimate(load_model(name), load_machine("v100"), Options())
    steps = FACTS[name]["steps_per_epoch"]
    assert one.run_time.steps_per_epoch == (steps and steps - FRAME_BY_FRAME.get(name, 0))
    assert (one.unit_per_day is None) == (steps is None)
    short = name in ("p3b1", "p3b2")  # the device needs no longer for a step than an eager program starts its ops
    assert one.step_time.excludes == ("framework", "input")[not short :]


def test_work_of_an_epoch_holds_the_validation() -> None:
    """The facts' epoch of P1B1, 3,451,601,520,000 flop, is 2,700 samples trained and 300 validated."""
    facts = FACTS["p1b1"]
    trained, validated = facts["train_samples"] * facts["train"], facts["validation_samples"] * facts["forward"]
    assert trained + validated == 3_451_601_520_000
    run_time = estimate(load_model("p1b1"), load_machine("v100"), Options()).run_time
    assert run_time.validation_s is not None
    assert run_time.validation_s.value > 0


def test_p3b1_updates_one_of_its_three_networks() -> None:
    ops = load_model("p3b1").ops
    updated = float(ops.loc[ops["kind"] == "optimizer", "numel"].iloc[0])
    assert updated == sum(parameters for parameters, _ in FACTS["p3b1"]["layers"][:5]) == 11_062_813


def test_uno_and_combo_run_both_drugs_through_one_tower() -> None:
    for name, towers in (("uno", 2), ("combo", 1)):
        ops = products(load_model(name))
        forward = ops[(ops["pass_name"] == "forward") & ops["module"].str.startswith("towers.drug")]
        assert forward["count"].tolist() == [2] * 3 * towers, name


LECTURE_SHAPES = """-1x29532, 29532x1000 | -1x29532, 100x1000 | 100x1000, 1000x500 | 100x1000, 100x500
100x500, 1000x500 | 100x500, 500x100 | 100x500, 100x100 | 100x100, 500x100 | 100x100, 100x50 | 100x50, 100x50
100x50, 50x1 | 100x50, 100x1 | 100x1, 50x1"""
"""Operands of the matrix products as the lecture prints them; the batch of the data is not bound (-1) there."""


def operands(row: Any) -> str:
    """Print a product of a dense layer as TensorFlow's profiler does: the operands as they are stored."""
    rows, columns, length = (int(row[size]) for size in ("m", "n", "k"))
    first, second = {
        "forward": ((rows, length), (length, columns)),
        "backward_input": ((rows, length), (columns, length)),  # the gradient and the kernel
        "backward_weight": (
            (length, columns),
            (length, rows),
        ),  # the input and the gradient
    }[row["pass_name"]]
    batch = -1 if first[1] == 29_532 else first[0]
    return f"{batch}x{first[1]}, {second[0]}x{second[1]}"


def test_p1b3_runs_the_lectures_thirteen_shapes_and_not_the_fourteenth() -> None:
    ops = products(load_model("p1b3"), 100)
    runs: dict[str, float] = {}
    for _, row in ops.iterrows():
        runs[operands(row)] = runs.get(operands(row), 0) + row["count"]
    assert set(runs) == set(LECTURE_SHAPES.replace("\n", " | ").split(" | "))
    assert len(runs) == 13
    assert {shape for shape, count in runs.items() if count != 1} == {"100x100, 100x50"}
    assert runs["100x100, 100x50"] == 2
    assert "100x1000, 29532x1000" not in runs
    assert work(ops) == 12_145_830_000


def test_p1b3_writes_the_bytes_that_the_lecture_prints() -> None:
    model = load_model("p1b3")
    ops = add_costs(resize_ops(model.ops, model.sizes, "p1b3"))
    matrices = ops[ops["kind"] == "gemm"]
    assert (4 * matrices["m"] * matrices["n"] * matrices["count"]).sum() == 121_668_600  # MatMul
    biases = ops[(ops["op"] == "aten::sum") & ops["module"].str.startswith("dense")]
    assert (biases["write_byte"] * biases["count"]).sum() == 6_604  # BiasAddGrad
    dropped = ops[ops["op"] == "aten::native_dropout"]
    assert (4 * dropped["numel"] * dropped["count"]).sum() == 660_000  # RandomUniform
    update = ops[ops["kind"] == "optimizer"]
    assert 4 * update["numel"].sum() == 120_354_804  # Add: every parameter once
    assert 4 * update["numel"].sum() + 660_400 == 121_015_204  # Mul: and what passes the dropouts and the loss


def test_a_name_a_path_and_a_folder_are_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    file = Path("model_profiles") / "candle" / "nt3.yaml"
    for name in ("nt3", "nt3.yaml", "candle/nt3", "model_profiles/candle/nt3.yaml"):
        assert locate(name, "model_profiles").resolve() == file.resolve(), name
    assert complete_model("nt") == ["nt3", "nt3-keras"]
    assert {Path(path).stem for path in models_named("candle")} == set(FACTS)
    assert models_named("nt3") == ["nt3"]
    assert models_named("nt3\0") == ["nt3\0"]
    listed = succeed("show", "--json", cwd=root)
    assert all(f'"name": "{name}"' in listed for name in FACTS)


def test_a_name_that_two_folders_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "other"):
        (tmp_path / "model_profiles" / folder).mkdir(parents=True)
        (tmp_path / "model_profiles" / folder / "twin.yaml").write_text("schema: fomkit/model/1\n")
    with pytest.raises(FomkitError, match=r"several have this name: one/twin.yaml, other/twin.yaml. Give one"):
        locate("twin", "model_profiles")
    assert locate("one/twin", "model_profiles") == Path("model_profiles/one/twin.yaml")
    assert [name for name in complete_model("") if "twin" in name] == ["one/twin", "other/twin"]


def test_a_file_that_happens_to_lie_here_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stray file ./a.yaml had replaced the shipped machine of that name in every suite that rates it."""
    monkeypatch.chdir(tmp_path)
    for stray in ("a.yaml", "a", "resnet50.yaml", "mine.yaml", "lecture.suite.yaml", "candle/p1b1.yaml"):
        Path(stray).parent.mkdir(exist_ok=True)
        Path(stray).write_text("schema: fomkit/other/1\n", encoding="utf-8")
    for name, folder, kind in (
        ("a", "machine_profiles", ""), ("resnet50", "model_profiles", ""), ("candle/p1b1", "model_profiles", ""),
        ("lecture", "model_profiles", "suite"),
    ):  # fmt: skip
        assert is_shipped(locate(name, folder, kind), folder)
    assert all(is_shipped(Path(one), "model_profiles") for one in models_named("candle"))
    for path in ("resnet50.yaml", "./resnet50.yaml", "./resnet50"):
        assert locate(path, "model_profiles").resolve() == Path("resnet50.yaml").resolve()
    hint = r"To use the file in the working folder, give its path: './mine\.yaml'\."
    with pytest.raises(FomkitError, match=rf"^mine: no model profile of this name\. {hint}"):
        locate("mine", "model_profiles")
    with pytest.raises(FomkitError, match=rf"^mine: no model or machine profile of this name\. {hint}"):
        find_profile("mine")
    Path("mine.yaml").rename("mine.csv")
    for looked_for in (lambda: locate("mine", "model_profiles"), lambda: find_profile("mine")):
        with pytest.raises(
            FomkitError, match=r"profile of this name\. (Known|The nearest) names"
        ):  # no table of measurements
            looked_for()
    with pytest.raises(FomkitError, match=r"give its path: './mine\.csv'"):
        locate("mine", "measurements")


def test_a_folder_of_models_is_estimated(root: Path) -> None:
    told = succeed("estimate", "candle", "--target", "v100", cwd=root)
    assert {line.split()[0] for line in told.splitlines() if " fp32 " in line} == set(FACTS)
    assert "no model profile of this name" in fail("estimate", "candel", "--target", "v100", cwd=root)


def test_the_facts_are_those_of_the_shared_data(shared: Path) -> None:
    known = yaml.safe_load((shared / "data" / "candle_models.yaml").read_text(encoding="utf-8"))["benchmarks"]
    assert [one["name"].lower() for one in known] == list(FACTS)
    for one in known:
        facts = FACTS[one["name"].lower()]
        assert (facts["parameters"], facts["batch"], facts["train_samples"], facts["steps_per_epoch"]) == (
            one["parameters"], one["batch_size"], one["samples_per_epoch"], one["steps_per_epoch"],
        )  # fmt: skip
        learned = [layer["params"] - layer.get("non_trainable_params", 0) for layer in one["layers"]]
        assert [parameters for parameters, _ in facts["layers"] if parameters] == [n for n in learned if n]
