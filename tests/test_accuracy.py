"""docs/accuracy.md equals the command's output, and the sets that are scored besides DeepBench's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from terminal import in_this_process

from fomkit.core.interval import Span
from fomkit.output.docs import accuracy_page, chapter
from fomkit.profiles.locate import shipped_folder
from fomkit.validation import deepbench_scores as ops
from fomkit.validation import published_steps, validate
from fomkit.validation.neusight import FACTS, OTHER, OWN, Outcome
from fomkit.validation.scores import Score, check_aims, hits_at, make_cases, read_aims, score

VALIDATION = shipped_folder("validation")
PAGE = (Path(__file__).resolve().parent.parent / "docs" / "accuracy.md").read_text(encoding="utf-8")
SETS = {*published_steps.SETS, ops.GROUPED, ops.FEW, ops.HELD_OUT, ops.TABLES, ops.BEFORE, ops.AFTER, ops.EIE,
        OWN, OTHER, FACTS, validate.MERITS, published_steps.MEGATRON, validate.POOLED,
        published_steps.VISION}  # fmt: skip


def content_of(lines: Iterable[Score], published: tuple[published_steps.Compared, ...] = ()) -> dict[str, Any]:
    """Return the content of a run with these lines only."""
    found = tuple(lines)
    verdicts = check_aims((*found, *(published_steps.megatron_scores([*published]) if published else ())),
                          read_aims(VALIDATION / "aims.csv"))  # fmt: skip
    return validate.Validation(found, tuple(verdicts), published, (), (), 0.8, full=False).content()


@cache
def vision() -> list[Score]:
    return published_steps.vision_scores()


# --- the page ----------------------------------------------------------------------------------------------------


def test_every_set_has_its_text_and_its_chapter() -> None:
    texts = validate.read_sets(VALIDATION / "sets.md")
    assert {one["set"] for one in texts if one["set"]} == SETS
    assert texts[0]["title"] == ""
    for one in texts:
        assert one["text"] in PAGE
        assert len(one["text"]) > 80
        assert not one["title"] or f"\n## {one['title']}\n" in PAGE


@pytest.mark.parametrize(
    ("sets", "content"),
    [
        ({published_steps.MEGATRON}, lambda: content_of((), tuple(published_steps.megatron_figures()))),
        ({ops.EIE}, lambda: content_of(ops.dense_layer_scores())),
        ({published_steps.VISION}, lambda: content_of(vision())),
        ({ops.BEFORE, ops.AFTER}, lambda: content_of(ops.piece_scores(0.8))),
        pytest.param(
            {*published_steps.SETS}, lambda: content_of(published_steps.step_scores()), marks=pytest.mark.slow
        ),
        pytest.param({ops.TABLES}, lambda: content_of(ops.table_scores()), marks=pytest.mark.slow),
    ],
)
def test_the_committed_page_is_what_the_command_writes(sets: set[str], content: Callable[[], Any]) -> None:
    """Each of these sets is scored again; write the page with: fomkit validate -o docs/accuracy.md --force.

    Whole models are compared in test_validate.py, which scores them for the tolerances, too.
    """
    found = content()
    for name in sets:
        parts = list(chapter(name, found))
        assert parts
        for part in parts:
            assert part in PAGE, name


def test_networks_that_chose_no_rule_are_scored_apart() -> None:
    lines = {line.what: line for line in vision()}
    steps = (VALIDATION / "vision" / "steps.csv").read_text(encoding="utf-8").splitlines()
    assert lines["all"].cases == len(steps) - 1
    assert lines[published_steps.LATER].cases >= 40
    assert lines["all"].median == pytest.approx(0.07, abs=0.03)
    assert lines[published_steps.LATER].mean < 0.13


def test_the_short_answer_and_history_name_the_same_figures() -> None:
    headlines = published_steps.read_texts(VALIDATION / "headlines.csv")
    header = (VALIDATION / "history.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert header == ["date", "version", *(row["name"] for row in headlines)]
    first = PAGE.index("\n## ")
    for row in headlines:
        assert 0 < PAGE.index(f"| {row['words']} |") < first
    history = PAGE[PAGE.index("\n## History\n") :]
    for row in validate.read_history(VALIDATION / "history.csv"):
        assert f"| {row['date']}, {row['version']} |" in history
        assert 0 < min(row["figures"].values()) < max(row["figures"].values()) < 1
    assert "| this page, " in history


def test_a_page_of_few_lines_has_their_chapters_only() -> None:
    line = score(make_cases(*map(np.array, ([1.0, 2.0], [1.1, 2.0], [0.9, 1.0], [1.2, 3.0]))), OWN, "op", "m", "x")
    page = accuracy_page(content_of([line]))
    assert "| m: x | 2 | 5.0 | 5.0 | +5.0 | 100 | 50 / 100 / 100 | ×1.44 | – |" in page
    assert "## Whole models, from the device's own table\n" in page
    assert "## Figures of merit" not in page
    assert "## History" not in page
    assert "## What it ran on\n" in page


def test_the_page_of_here_is_refused_before_anything_is_timed(tmp_path: Path) -> None:
    done = in_this_process("validate", "--here", "-o", "a.md", cwd=tmp_path)
    assert done.returncode == 2
    assert "a.md: is for public comparisons, and --here is none" in done.stderr


# --- figures of merit --------------------------------------------------------------------------------------------


def outcomes(factor: float, spread: float, *, predicted: float = 1.0) -> list[Outcome]:
    """Five models, measured as 1 to 5 times a factor, predicted as that times another, with a spread."""
    return [
        Outcome({"graph": f"g{size}", "option": "", "mode": "inference", "forward": size * factor},
                {"step": Span(size * factor * predicted, size * factor * predicted / spread,
                              size * factor * predicted * spread)})
        for size in range(1, 6)
    ]  # fmt: skip


def test_suites_are_three_to_five_lines_and_always_the_same() -> None:
    drawn = validate._drawn_suites([f"g{size}" for size in range(9)], "a / b")
    assert drawn == validate._drawn_suites([f"g{size}" for size in range(9)], "a / b")
    assert drawn != validate._drawn_suites([f"g{size}" for size in range(9)], "b / a")
    assert len(set(drawn)) == validate.SUITE_DRAWS
    assert {len(set(suite)) for suite in drawn} <= {3, 4, 5}
    assert validate._drawn_suites(["g1", "g2"], "a / b") == []


def test_the_measured_figure_of_merit_is_hit_where_the_prediction_is_right_and_missed_where_it_is_not() -> None:
    """The target takes half the time: 2; twice too long a prediction makes 1, with an interval of 1.5 times."""
    right = list(
        validate.rated_suites({"a": outcomes(1.0, 1.5), "b": outcomes(0.5, 1.5)}, validate.BOTH_PREDICTED)
    )
    assert [round(one.truth, 9) for one in right] == [2.0] * validate.SUITE_DRAWS
    assert all(one.span.value == pytest.approx(2.0) for one in right)
    # Lines go together on a machine, the two machines do not.
    assert right[0].span.high / 2 == pytest.approx(math.exp(math.hypot(math.log(1.5), math.log(1.5))))
    wrong = {"a": outcomes(1.0, 1.5), "b": outcomes(0.5, 1.5, predicted=2.0)}
    both = list(validate.rated_suites(wrong, validate.BASELINE_MEASURED))
    assert len(both) == 2 * validate.SUITE_DRAWS
    missed, held = both[: validate.SUITE_DRAWS], both[validate.SUITE_DRAWS :]
    assert all(one.span.value == pytest.approx(1.0) for one in missed)
    assert all(one.span.high == pytest.approx(1.5) for one in missed)
    assert all(one.span.value == pytest.approx(one.truth) for one in held)


def test_brier_scores_punish_a_sure_wrong_verdict() -> None:
    sure = [validate.Rated(1.0, Span(2.0, 1.99, 2.01))]
    unsure = [validate.Rated(1.0, Span(2.0, 0.5, 8.0))]
    for ratio in ("1.05", "1.25"):
        assert validate.brier_scores(sure)[0][ratio] == pytest.approx(1.0)
        assert validate.brier_scores(unsure)[0][ratio] < validate.brier_scores(sure)[0][ratio]
        assert validate.brier_scores(sure)[1][ratio] == 1.0
    assert validate.brier_scores(sure)[0]["0.8"] == pytest.approx(0.0)


# --- pieces and tables -------------------------------------------------------------------------------------------


def test_pieces_are_predicted_without_the_rows_of_their_own_model() -> None:
    """The imported rows are of other models only, without products, so products are predicted from facts."""
    rows = ops.read_pieces()
    assert len(rows) > 2500
    assert set(rows["what"]) == set(ops.PIECES.values())
    known = rows[(rows["machine"] == "h100-sxm") & (rows["model"] == "phi-2") & (rows["kind"] != "gemm")]
    machine = ops._with_imported(ops.load_machine("h100-sxm"), known)
    assert len(machine.timings) == len(known)
    assert set(machine.timings["harness"]) == {"Vidur"}
    assert not machine.fits
    assert rows["time_s"].min() >= 10e-6


def test_hits_at_a_level_widen_sums_as_a_log_normal_and_ops_as_they_are_predicted() -> None:
    """80 % is 1.2816 deviations, 95 % 1.96: ends of 1.2 times reach 1.3216 times there, of ops 1.425."""
    cases = make_cases(*(np.array([one] * 2) for one in (1.0, 1.0, 1 / 1.2, 1.2)))
    for factor, held in ((1.32, 1.0), (1.33, 0.0)):
        moved = make_cases(cases.truth * factor, cases.value, cases.low, cases.high)
        assert hits_at(moved, 0.8, "model")["95%"] == held
    for factor, held in ((1.424, 1.0), (1.426, 0.0)):
        moved = make_cases(cases.truth * factor, cases.value, cases.low, cases.high)
        assert hits_at(moved, 0.8, "op")["95%"] == held
    narrow = make_cases(cases.truth * 1.32, cases.value, cases.low, cases.high)
    assert hits_at(narrow, 0.95, "ratio")["95%"] == 0.0


def test_the_shipped_pieces_and_steps_are_what_the_converter_makes(shared: Path, root: Path) -> None:
    import gzip
    import importlib.util

    spec = importlib.util.spec_from_file_location("tables", root / "benchmarks" / "validation_tables.py")
    assert spec is not None
    assert spec.loader is not None
    converter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(converter)
    for name, made in (
        ("vidur/pieces.csv.gz", converter.vidur_table),
        ("steps/steps.csv.gz", converter.step_table),
    ):
        known = (VALIDATION / name).read_bytes()
        assert gzip.decompress(known) == gzip.decompress(made(shared)), name
        assert len(known) < 1_000_000
