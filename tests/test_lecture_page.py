"""The lecture on one page: twelve steps, for any model, whose arithmetic can be checked by a pocket calculator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

import fomkit
from fomkit.core.machine import Fact, Overhead
from fomkit.core.model import Unit
from fomkit.merit.content import equation, method_steps
from fomkit.output.screen import Screen
from fomkit.output.values import format_interval
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.measurements import all_measured
from fomkit.verbs.compare import Comparison
from fomkit.verbs.views import answer_of

STUDIES = (
    (["p1b3-lecture"], "v100", "x86-lecture", {}),
    (["resnet50", "gpt2"], "v100", "p100", {}),
    (["candle/p1b3"], "a", "titan", {"scope": "system", "last_batch": "keep"}),
    (["candle/p3b2"], "knl-7250", None, {}),
)
NUMBER = re.compile(r"[\d,]+(?:\.\d+)?")


def cells(found: Comparison) -> Iterator[list[str]]:
    """Yield each row of the pages of a study: its title, and a cell for each machine."""
    over, merit = {one.model.name: one for one in found.baseline}, found.merits[0] if found.merits else None
    for one in found.estimates:
        rows = all_measured()[0].rows
        yield from map(list, method_steps(one, over.get(one.model.name), merit, rows, format_interval))


def calculated(left: str) -> float:
    """Type the left side of an equation into a pocket calculator, from left to right."""
    total, sign = 0.0, "+"
    for word in left.split():
        if word in ("+", "×", "÷"):
            sign = word
        elif sign and NUMBER.fullmatch(word):
            one = float(word.replace(",", ""))
            total = total + one if sign == "+" else total * one if sign == "×" else total / one
            sign = ""
    return total


@pytest.mark.parametrize(("models", "target", "baseline", "options"), STUDIES)
def test_a_pocket_calculator_gives_every_result(models, target, baseline, options) -> None:
    checked = 0
    for row in cells(fomkit.estimate_all(models, [target], baseline=baseline, **options)):
        for part in (part for cell in row[1:] for part in re.split("[;(:]|, ", cell) if " = " in part):
            left, _, right = part.rpartition(" = ")
            shown = right.split()[0].rstrip("%")
            places = len(shown.partition(".")[2])
            units = (1, 1e-3, 100)  # ms of which the sum is in s; GFLOP a ms are TFLOP/s; a share in percent
            results = [f"{calculated(left) * unit:,.{places}f}" for unit in units]
            assert f"{float(shown.replace(',', '')):,.{places}f}" in results, part
            checked += 1
    assert checked >= (4 if baseline is None else 15 * len(models))


@pytest.mark.parametrize(("models", "target", "baseline", "options"), STUDIES)
def test_the_page_has_twelve_steps_and_a_column_for_each_machine(models, target, baseline, options) -> None:
    found = fomkit.estimate_all(models, [target], baseline=baseline, **options)
    rows = list(cells(found))
    assert len(rows) == 12 * len(models)
    assert {len(row) for row in rows} == {2 if baseline is None else 3}
    words = set(found.summary(explain=True).split())
    for width in (80, 100, 140):
        narrow = answer_of(found).write(found.content, Screen(width), explain=True)
        page = narrow[narrow.index("in twelve steps") :]
        assert set(page.split()) - {"─" * width} <= words | {"─" * len(line) for line in page.splitlines()}
        assert "not shown" not in page


def test_the_lectures_own_model_reaches_the_last_step() -> None:
    found = fomkit.estimate_all(["p1b3-lecture"], ["v100"], baseline="x86-lecture")
    told = [" | ".join(row[1:]) for row in cells(found)]
    for place, words in (
        (2, "115.528 MatMul + 73.6500 Assign + 61.4600 Mul + 22.3100 Add = 272.95 ms"),
        (2, "272.95 ms ÷ 287.29 ms = 95.01%"),
        (3, "14 rows, 12.146 GFLOP ÷ 115.53 ms = 0.1051 TFLOP/s"),
        (6, "update = 287.2917 ms"),
        (7, "287.2917 ms × 8001 steps = 2298.62 s (800,121 samples ÷ 100, 21 left over)"),
        (8, "2298.621 s × 20 epochs = 45,972.4 s; 45,972.4 s ÷ 3600 = 12.770 h"),
        (9, "24 h ÷ 12.77012 h = 1.87939 runs a day"),
        (10, "1.879388 × 1 at once on a device = 1.87939 trained models per day"),
    ):  # fmt: skip
        assert words in told[place]
    ratio = found.merits[0].value
    assert f"÷ 1.8794 = {ratio.value:.2f} times ({ratio.low:.1f} … {ratio.high:.1f})" in told[11]
    headline = found.summary().partition("\n")[0]
    assert "but only v100 excludes work that is not in the profile, which favours it; only x86-lecture" in headline
    # Each side leaves something out that the other counts: the ratio is a bound in neither direction.
    assert "only v100 excludes work that is not in the profile; only x86-lecture excludes host" in told[11]
    assert "at most" not in told[11]
    assert told[5].startswith("nothing | ")
    # The update alone reads and writes more than the products' operands: it is the larger part on a GPU.
    parts = found.estimates[0].step_time.passes
    assert parts["update"].value > parts["forward"].value + parts["backward"].value


def test_work_without_a_time_is_named(unsized) -> None:
    found = fomkit.estimate_all([unsized], ["v100"], baseline="p100", allow_uncovered=True)
    last = list(cells(found))
    assert "no time for 48.1% of the executions: Assign, Mul, Add, Sub" in last[5][2]
    assert not last[11][2].startswith("at ")  # both machines lack the same ops


def test_without_epochs_the_ratio_is_of_steps() -> None:
    model = load_model("p1b3")
    model = replace(model, run=replace(model.run, epochs=None))
    found = fomkit.estimate_all([model], ["v100"], baseline="p100")
    said = list(cells(found))[11][2]
    figures = re.fullmatch(r"(\S+) ms a step ÷ (\S+) ms a step = (\S+) times .*", said.partition(";")[0])
    assert figures is not None, said
    before_s, after_s = found.baseline[0].step.value, found.estimates[0].step.value
    assert list(map(float, figures.groups())) == pytest.approx(
        [1000 * before_s, 1000 * after_s, before_s / after_s], rel=1e-3
    )


@pytest.mark.parametrize(("target", "baseline", "words"), [
    ("v100", "x86-lecture", "at least "), ("x86-lecture", "v100", "at most "), ("v100", "p100", ""),
])  # fmt: skip
def test_what_one_side_alone_leaves_out_makes_the_ratio_a_bound(target: str, baseline: str, words: str) -> None:
    last = list(cells(fomkit.estimate_all(["p1b3"], [target], baseline=baseline)))[11][2]
    assert last.startswith(words)
    assert ("only x86-lecture excludes host_launch" in last) == bool(words)
    assert ("at least" in last) + ("at most" in last) == bool(words)


def test_what_was_recorded_stands_beside_what_is_projected() -> None:
    first = next(cells(fomkit.estimate_all(["candle/p1b3"], ["v100"], baseline="p100")))
    assert first[1:] == [
        "3060 s an epoch (2018-10), of which the device explains 0.8%",
        "5987 s an epoch (2018-10), of which the device explains 0.2%",
    ]
    other = next(cells(fomkit.estimate_all(["candle/p1b3"], ["v100"], baseline="p100", batch=50)))
    assert other[1] == "none recorded at this batch, precision and scope, 1 at others"


def test_what_waits_beside_the_device_is_said() -> None:
    reading = Overhead("input", "step", Fact(0.5, 0.4, 0.6, "assumed", "a test"), None)
    saving = Overhead("checkpoint", "epoch", Fact(9.0, 9.0, 9.0, "assumed", "a test"), None)
    queue = Overhead("queue", "run", Fact(60.0, 60.0, 60.0, "assumed", "a test"), None)
    machine = replace(load_machine("titan"), overheads=(reading, saving, queue), availability=0.5)
    model = replace(load_model("p1b3"), unit=Unit("pair", 2))
    told = [row[1] for row in cells(fomkit.estimate_all([model], [machine], scope="system"))]
    assert "update = 7.182613 ms of the device; host " in told[6]
    assert "input 500 ms, other overheads 0 ms: the longest plus overheads take 500.0000 ms" in told[6]
    assert "500.0000 ms × 8001 steps = 4000.50 s" in told[7]
    assert "+ 9.000000 s overheads = " in told[7]
    assert "× 20 epochs + 60.00000 s start-up = " in told[8]
    assert "× 0.5000000 of the time up ÷ 2 runs a pair = " in told[10]


def test_what_a_run_is_may_be_unknown() -> None:
    rows = list(cells(fomkit.estimate_all(["candle/p3b2"], ["knl-7250"])))
    assert [row[1] for row in rows[7:11]] == ["unknown: p3b2 does not state train_samples"] * 4
    assert rows[11][1] == "needs --baseline"


def test_an_equation_has_the_digits_that_its_result_needs() -> None:
    terms = [("", 1.00049, ""), ("×", 1000, "")]
    assert equation(terms, 1000.49, "", 4).strip() == "1.0005 × 1000 = 1000"
    assert equation([("", 1 / 3, "h"), ("+", 2 / 3, "h")], 1.0, "h", 3) == "0.3333 h + 0.6667 h = 1.00 h"
    assert equation([("", 23, ""), ("÷", 50_000, "")], 0.00046, "", 2).strip() == "23 ÷ 50,000 = 0.00046"


def test_the_sizes_of_the_lectures_sums_are_those_that_it_prints() -> None:
    ops, parameters = load_model("p1b3-lecture").ops.set_index("op"), 30_088_701
    outputs = 100 * (1000 + 500 + 100 + 50 + 1)
    printed = {
        "Add": 120_354_804,
        "RandomUniform": 660_000,
        "RealDiv": 660_400,
        "BiasAddGrad": 6_604,
        "Fill": 660_000,
    }
    assert {name: ops.loc[name, "write_byte"] for name in printed} == printed
    # One Mul of each parameter makes a tensor, the other and Sub write over the gradient: 0 bytes are printed.
    assert ops.loc["Mul", "write_byte"] == 121_015_204 + 4 * parameters == 8 * parameters + 4 * outputs
    assert ops.loc["Sub", "write_byte"] == 4 * parameters
