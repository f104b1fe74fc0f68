"""The command line: what it prints, its exit codes, and what it imports; as a real process where that matters."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import in_this_process

from fomkit.profiles import locate


def fomkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fomkit", *arguments]
    # Readline, which pytest imports, tells children a width that os.environ does not show.
    known = {**os.environ}
    return subprocess.run(command, cwd=cwd, env=known, capture_output=True, text=True, timeout=300, check=False)


def succeed(*arguments: str, cwd: Path) -> str:
    done = in_this_process(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fail(*arguments: str, cwd: Path) -> str:
    done = in_this_process(*arguments, cwd=cwd)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_the_lecture_step_by_step(root: Path) -> None:
    done = fomkit("estimate", "p1b3-lecture", "--target", "x86-lecture", "--explain", cwd=root)
    assert done.returncode == 0, done.stderr
    told = done.stdout
    assert told.startswith("p1b3-lecture on x86-lecture: 12.8 hours a run (under 1 % wide), 1.88 trained models")
    assert "\ncoverage, share of predicted time: x86-lecture (timing table only): measured 100%" in told
    for number in (
        "287.2917 ms",
        "8001 steps",
        "2298.62 s",
        "12.770 h",
        "1.87939 trained models per day",
        "95.01%",
    ):
        assert number in told


def test_the_partial_last_batch_is_a_switch(root: Path) -> None:
    arguments = ("estimate", "p1b3-lecture", "--target", "x86-lecture", "--json", "--last-batch")
    kept = json.loads(succeed(*arguments, "keep", cwd=root))["models"][0]
    dropped = json.loads(succeed(*arguments, "drop", cwd=root))["models"][0]
    assert (dropped["terms"]["steps_per_epoch"], kept["terms"]["steps_per_epoch"]) == (8001, 8002)
    assert "the partial last batch is priced as a full step" in kept["deviations"]
    assert "the partial last batch is priced as a full step" not in dropped["deviations"]


def test_the_lecture_figure_of_merit(root: Path) -> None:
    content = json.loads(succeed("fom", "model_profiles/lecture.suite.yaml", "--json", cwd=root))
    assert content["schema"] == "fomkit/fom/1"
    fom = content["fom"]
    assert fom["value"] == pytest.approx(229_125 / 2_774, rel=1e-14)
    assert fom["mean"] == "ratio_of_harmonic_means"
    assert fom["scope"] == "system"
    assert fom["other_means"] == pytest.approx(
        {
            "weighted_harmonic": 229_125 / 2_774,  # all weights are 1
            "harmonic": 88.331106,
            "geometric": 103.213445,
            "arithmetic": 125.749144,
        }
    )
    assert fom["rates"] == pytest.approx({"baseline": 224_256 / 13, "target": 27_072_000 / 19})
    assert fom["value_with_rates_cut_to_whole_units"] == pytest.approx(82.599032, abs=5e-7)
    assert fom["worst_basis"] == "estimated"
    assert [line["name"] for line in content["lines"]] == ["P1", "P2", "P3"]
    swapped = json.loads(succeed("fom", "lecture", "--baseline", "a", "--target", "titan", "--json", cwd=root))
    assert swapped["fom"]["value"] * fom["value"] == pytest.approx(1, rel=1e-12)


def unfrozen(root: Path) -> str:
    """Write the lecture's suite without its frozen baseline, so that it can be changed."""
    return (root / "model_profiles" / "lecture.suite.yaml").read_text().partition("frozen:")[0]


def test_halving_the_third_unit(root: Path, tmp_path: Path) -> None:
    text = unfrozen(root)
    halved = tmp_path / "halved.suite.yaml"
    halved.write_text(text.replace("{titan: 12 h, a: 0.25 h}", "{titan: 6 h, a: 0.125 h}"))
    content = json.loads(succeed("fom", str(halved), "--json", cwd=root))
    assert content["fom"]["value"] == pytest.approx(78.304, abs=5e-4)


def test_less_than_one_unit_a_day_has_no_rate_in_whole_units(root: Path, tmp_path: Path) -> None:
    text = unfrozen(root)
    slow = tmp_path / "slow.suite.yaml"
    slow.write_text(text.replace("titan: 12 h", "titan: 1e9 h"))
    assert "rounded down to whole units" not in succeed("fom", str(slow), cwd=root)
    assert "rounded down to whole units" in succeed("fom", "lecture", cwd=root)


def test_main_job_over_all_shipped_models(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    machines = ("--target", "machine_profiles/v100.yaml", "--baseline", "machine_profiles/p100.yaml")
    told = succeed("estimate", *machines, "-o", str(output), cwd=root)
    assert told.startswith("coverage")
    content = json.loads(output.read_text())
    assert content["schema"] == "fomkit/estimate/1"
    on_target = {one["model"]: one for one in content["models"] if one["target"] == "v100"}
    models = {"alexnet", "vgg16", "googlenet", "resnet50-caffe", "resnet50", "gpt2", "p1b3-lecture"}
    assert set(on_target) == models
    for one in on_target.values():
        for quantity in ("step_s", "epoch_s", "run_s", "unit_per_day", "ratio"):
            assert 0 < one[quantity]["low"] < one[quantity]["value"] < one[quantity]["high"], (
                one["model"],
                quantity,
            )
        assert sum(one["coverage"].values()) == pytest.approx(1)
        assert "input" in one["excludes"]
        assert one["model"] in told
    assert content["fom"]["baseline"] == "p100"
    assert content["not_estimated"] == []


def test_work_without_a_time_is_named_where_it_is_allowed(root: Path, unsized: Path) -> None:
    assert "have no time; kinds: other (13)" in fail("estimate", str(unsized), "-t", "v100", cwd=root)
    arguments = ("estimate", str(unsized), "-t", "v100", "--allow-uncovered", "--json")
    one = json.loads(succeed(*arguments, cwd=root))["models"][0]
    assert one["coverage"]["unpriced"] == pytest.approx(13 / 27)
    assert "unpriced" in one["excludes"]
    assert "48% of the op executions have no time; all times are lower bounds" in one["deviations"]


def test_results_as_csv(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    succeed("estimate", "p1b3-lecture", "-t", "x86-lecture", "-o", str(output), cwd=root)
    row = next(csv.DictReader(output.read_text().splitlines()))
    assert float(row["step_s.value"]) == pytest.approx(0.2872917)
    assert row["excludes"] == "host_launch; input; start_up"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["estimate", "p1b3"], "estimate: --target is missing. Add, for example, '--target v100'."),
        (["estimate", "p1b3", "--target", "v10"], "The nearest names are 'v100'"),
        (["estimate", "p1b33", "--target", "v100"], "The nearest names are 'p1b3'"),
        (["estimate", "p1b3", "--target", "titan", "--scope", "node", "--baseline", "p100"], "Add node.devices"),
        (["estimate", "p1b3", "--target", "a", "-o", "out.docx"], "Use .json, .csv, .html or .xlsx"),
        (["estimate", "p1b3-lecture", "--target", "x86-lecture", "--batch", "7"], "fixed at batch 100"),
        (["estimate", "p1b3-lecture", "--target", "x86-lecture", "--scope", "system"], "Add system.nodes"),
        (["fom", "lecture", "--target", "v100"], "does not state the scope 'system'"),
        (["estimate", "p1b3", "--target", "v100", "--baseline", "v100"], "is the baseline and a target"),
        (["estimate", "p1b3", "--target", "v100", "--target", "v100"], "is given twice among the machines"),
        (
            ["cost", "p1b3", "-t", "v100", "--target", "titan"],
            "--target: is given twice. Give",
        ),
        (["memory", "alexnet", "--batch", "2", "--batch", "2"], "--batch: is given twice. Give it once."),
        (["fom", "nothing"], "no such file, and no suite of this name"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(arguments: list[str], words: str, root: Path) -> None:
    assert words in fail(*arguments, cwd=root)


def test_a_mistake_is_the_same_in_a_process_of_its_own(root: Path) -> None:
    arguments = ("estimate", "p1b3", "--target", "v10")
    alone = fomkit(*arguments, cwd=root)
    assert (alone.returncode, alone.stdout, alone.stderr) == (2, "", fail(*arguments, cwd=root))


def test_debug_shows_the_traceback(root: Path) -> None:
    done = fomkit("--debug", "estimate", "p1b3", cwd=root)
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("verb", [[], ["estimate"], ["fom"], ["profile"], ["import"]])
def test_every_verb_has_help_with_an_example(verb: list[str], root: Path) -> None:
    done = fomkit(*verb, "--help", cwd=root)
    assert done.returncode == 0, done.stderr
    told = done.stdout
    assert "Usage" in told
    assert not verb or f"fomkit {verb[0]} " in told


def imported(code: str, cwd: Path) -> set[str]:
    script = f"import sys\nsys.argv = ['fomkit']\n{code}\nprint(' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=cwd, capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n")[-2].split())


HEAVY = {"torch", "tensorflow", "sympy", "scipy", "matplotlib", "plotly", "openpyxl"}


def test_help_imports_almost_nothing(root: Path) -> None:
    code = "sys.argv.append('--help')\nfrom fomkit.cli.main import app\ntry: app()\nexcept SystemExit: pass"
    assert not imported(code, root) & (HEAVY | {"pandas", "numpy", "yaml", "pydantic", "rich.table"})


def test_an_estimate_on_shipped_profiles_imports_no_heavy_library(root: Path) -> None:
    code = (
        "sys.argv += ['estimate', 'resnet50', '--target', 'v100', '--baseline', 'p100']\n"
        "from fomkit.cli.main import app\ntry: app()\nexcept SystemExit: pass"
    )
    modules = imported(code, root)
    assert "pandas" in modules
    assert not modules & HEAVY


def test_importing_fomkit_costs_nothing(root: Path) -> None:
    assert not imported("import fomkit", root) & (HEAVY | {"pandas", "numpy", "yaml", "pydantic", "typer"})


def test_a_full_disk_is_one_message(root: Path) -> None:
    command = f'"{sys.executable}" -m fomkit show > /dev/full'
    done = subprocess.run(["sh", "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the output: cannot be read or written (No space left on device)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_output_is_no_traceback(root: Path) -> None:
    command = f'"{sys.executable}" -m fomkit show >&-'
    done = subprocess.run(["sh", "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert not done.returncode
    assert "Traceback" not in done.stderr


def test_messages_may_have_nowhere_to_go(root: Path) -> None:
    command = f'"{sys.executable}" -m fomkit estimate p1b3 --target v100 2>&-'
    done = subprocess.run(["sh", "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert not done.returncode
    assert done.stdout.startswith("p1b3 on v100: ")


@pytest.mark.parametrize(
    ("words", "to", "code"),
    [
        ("show", "", 0), ("-h", "", 0), ("show", "2>&1", 0), ("estimate zebra -t v100", "2>&1", 2),
        ("estimate zebra -t v100", "2>/dev/full", 2),
    ],
)  # fmt: skip
def test_an_output_that_nobody_reads_keeps_the_exit_code(words: str, to: str, code: int, root: Path) -> None:
    command = f'set -o pipefail; "{sys.executable}" -m fomkit {words} {to} | true'
    done = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


def test_what_follows_two_dashes_are_arguments_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fomkit.core.model import ModelProfile
    from fomkit.profiles.models import load_model
    from fomkit.verbs import profiles

    ran = []

    def run(path: Path, script: bool = False, arguments: tuple[str, ...] | None = None) -> ModelProfile:
        ran.append((path.name, script, arguments))
        return load_model("alexnet")

    monkeypatch.setattr(profiles, "profile", run)
    monkeypatch.setattr(profiles, "_readable_files", lambda _: [])
    monkeypatch.setenv("FOMKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.py").write_text("import torch")
    words = ("estimate", "train.py", "-t", "v100", "--batch", "4")
    given = ("--", "--batch", "8", "", "--")
    time.sleep(2 * locate._SETTLED_NS / 1e9)  # younger files are not cached
    for rest in (given, given, (), ("--", "--batch", "9")):
        assert "alexnet" in succeed(*words, *rest, cwd=tmp_path)
    other = ("--batch", "9")
    assert ran == [("train.py", True, given[1:]), ("train.py", False, None), ("train.py", True, other)]
    for wrong in (("resnet50",), ("train.py", "resnet50"), ()):
        said = fail("estimate", *wrong, "-t", "v100", "--", "--lr", "1", cwd=tmp_path)
        assert (
            "estimate: '--lr 1' after '--' are for a training program. Give one Python file before '--'." in said
        )
