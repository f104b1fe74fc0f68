"""The lecture's worked example, exact, and the properties of its mean."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fomkit.core.errors import FomkitError
from fomkit.core.interval import SAME_CHIP, Span
from fomkit.merit.fom import MEANS, OF_RATES, PROPOSAL, Rates, figure_of_merit, verdict
from fomkit.plan.run import unit_per_day

HOURS = {"titan": [60.0, 6.0, 12.0], "a": [4.0, 0.5, 0.25]}
NODES = {"titan": 18_688, "a": 94_000}


def rates(machine: str, hours: list[float] | None = None, scope: str = "system") -> Rates:
    units = [unit_per_day(Span.exact(3600 * hour), NODES[machine]) for hour in hours or HOURS[machine]]
    return Rates(machine, scope, dict(zip(["P1", "P2", "P3"], units, strict=True)))


def test_lecture_example_is_exact() -> None:
    merit = figure_of_merit(rates("titan"), rates("a"))
    assert merit.value.value == pytest.approx(float(Fraction(229_125, 2_774)), rel=1e-14)
    assert merit.mean_rates["baseline"] == pytest.approx(float(Fraction(224_256, 13)), rel=1e-14)
    assert merit.mean_rates["target"] == pytest.approx(float(Fraction(27_072_000, 19)), rel=1e-14)
    assert [rate.value for rate in merit.baseline.unit_per_day.values()] == pytest.approx([7475.2, 74_752, 37_376])
    assert [rate.value for rate in merit.target.unit_per_day.values()] == pytest.approx([564e3, 4512e3, 9024e3])
    assert list(merit.weights.values()) == pytest.approx([60 / 78, 6 / 78, 12 / 78])


def test_lecture_other_means_and_rounding() -> None:
    merit = figure_of_merit(rates("titan"), rates("a"))
    assert merit.other_means["harmonic"] == pytest.approx(88.331106, abs=5e-7)
    assert merit.other_means["geometric"] == pytest.approx(103.213445, abs=5e-7)
    assert merit.other_means["arithmetic"] == pytest.approx(125.749144, abs=5e-7)
    assert merit.with_whole_rates == pytest.approx(float(Fraction(68_509_785, 829_426)), rel=1e-14)


@pytest.mark.parametrize("mean", OF_RATES)
def test_a_figure_of_merit_by_a_mean_of_rates_is_the_ratio_of_the_two_that_are_shown(mean: str) -> None:
    merit = figure_of_merit(rates("titan"), rates("a"), mean, {"P1": 3.0, "P2": 1.0, "P3": 0.5})
    shown = merit.mean_rates["target"] / merit.mean_rates["baseline"]
    assert shown == pytest.approx(merit.value.value, rel=1e-12)


def test_halving_the_third_unit() -> None:
    merit = figure_of_merit(rates("titan", [60, 6, 6]), rates("a", [4, 0.5, 0.125]))
    assert merit.value.value == pytest.approx(78.304, abs=5e-4)


hours = st.lists(st.floats(0.01, 1e4), min_size=3, max_size=3)


@given(hours, hours)
def test_swapping_the_machines_inverts(old: list[float], new: list[float]) -> None:
    there = figure_of_merit(rates("titan", old), rates("a", new)).value.value
    back = figure_of_merit(rates("a", new), rates("titan", old)).value.value
    assert there * back == pytest.approx(1, rel=1e-12)


@given(hours, hours)
def test_value_lies_between_the_ratios_and_is_their_weighted_harmonic_mean(
    old: list[float], new: list[float]
) -> None:
    merit = figure_of_merit(rates("titan", old), rates("a", new))
    ratios = [ratio.value for ratio in merit.ratios.values()]
    assert min(ratios) * (1 - 1e-9) <= merit.value.value <= max(ratios) * (1 + 1e-9)
    assert sum(merit.weights.values()) == pytest.approx(1)
    weighted = 1 / sum(weight / ratio for weight, ratio in zip(merit.weights.values(), ratios, strict=True))
    assert merit.value.value == pytest.approx(weighted, rel=1e-9)


def test_scopes_and_lines_must_agree() -> None:
    with pytest.raises(FomkitError, match="per device"):
        figure_of_merit(rates("titan", scope="device"), rates("a"))
    short = Rates("a", "system", {"P1": Span.exact(1.0)})
    with pytest.raises(FomkitError, match=r"P2.*P3"):
        figure_of_merit(rates("titan"), short)


def test_one_pair_of_limits_judges_proposals_and_deliveries(root: Path) -> None:
    assert [verdict(chance, PROPOSAL) for chance in (1.0, 0.9, 0.89, 0.11, 0.1, 0.0)] == [
        "meets", "meets", "ambiguous", "ambiguous", "does not meet", "does not meet",
    ]  # fmt: skip
    limits = re.compile(r"0\.9, 0\.1\b")
    holders = [path.name for path in (root / "fomkit").rglob("*.py") if limits.search(path.read_text("utf-8"))]
    assert holders == ["fom.py"]


def spread_rates(shared: list[float], by: float = 1.2) -> Rates:
    """Return the lecture's target, each line with an interval of one factor to both sides."""
    spans = rates("a").unit_per_day
    values = zip(spans, (span.value for span in spans.values()), shared, strict=True)
    wide = {name: Span(value, value / by, value * by, shared=part) for name, value, part in values}
    return Rates("a", "system", wide)


@pytest.mark.parametrize("mean", MEANS)
def test_what_lines_do_not_share_adds_in_quadrature(mean: str) -> None:
    def width(shared: list[float]) -> float:
        value = figure_of_merit(
            rates("titan"), spread_rates(shared), mean, {"P1": 1.0, "P2": 2.0, "P3": 3.0}
        ).value
        return math.log(value.high / value.low) / 2

    together, half, apart = (width([part] * 3) for part in (1.0, 0.5, 0.0))
    assert together == pytest.approx(math.log(1.2))
    assert together**2 + apart**2 == pytest.approx(2 * half**2)
    # Of three lines one has at most the whole weight, and at least a third.
    assert together / math.sqrt(3) <= apart < together


@pytest.mark.parametrize("mean", MEANS)
def test_of_two_boards_of_a_chip_errors_cancel_line_by_line(mean: str) -> None:
    def side(names: list[str], shared: float) -> Rates:
        spans = zip(names, spread_rates([shared] * 3).unit_per_day.items(), strict=True)
        return Rates("a", "system", {line: replace(span, common=((name, 1.0),)) for name, (line, span) in spans})

    def width(names: list[str], shared: float) -> float:
        value = figure_of_merit(side(["facts"] * 3, shared), side(names, shared), mean).value
        return math.log(value.high / value.low)

    for shared in (1.0, 0.0):
        none, some, every = (width(["facts"] * count + ["other"] * (3 - count), shared) for count in (0, 1, 3))
        assert every == pytest.approx(none * math.sqrt(1 - SAME_CHIP))
        assert every < some < none


@pytest.mark.parametrize("mean", MEANS)
def test_narrow_lines_that_cancel_leave_the_error_of_a_wide_line_that_does_not(mean: str) -> None:
    """Nine lines are predicted on two boards of a chip; of the tenth, the baseline's time is given."""
    common, lines = (("facts", 1.0),), [f"P{place}" for place in range(10)]
    narrow, wide = (
        Span(1.0, math.exp(-0.02), math.exp(0.02), common=common),
        Span(1.0, math.exp(-0.4), math.exp(0.4)),
    )
    new = Rates("a", "system", {line: narrow if line != "P9" else wide for line in lines})
    old = Rates("b", "system", {line: narrow if line != "P9" else Span.exact(1.0) for line in lines})
    found = figure_of_merit(old, new, mean).value
    ours, theirs = 0.9 * 0.02 + 0.1 * 0.4, 0.9 * 0.02
    least = math.sqrt(ours**2 + theirs**2 - 2 * SAME_CHIP * ours * theirs)
    assert least <= math.log(found.high / found.low) / 2 <= math.hypot(ours, theirs)
    sides = (Rates("a", "system", {"P": replace(narrow, shared=part)}) for part in (0.9, 0.1))
    one = figure_of_merit(*sides, mean)
    assert one.value.ends == pytest.approx(one.ratios["P"].ends)


def test_a_line_of_its_own_is_as_wide_whatever_it_shares() -> None:
    """The other lines are exact, so one line's error cannot correlate with another."""
    for shared in (1.0, 0.5, 0.0):
        alone = spread_rates([shared, 1.0, 1.0])
        exact = {
            name: span if name == "P1" else Span.exact(span.value) for name, span in alone.unit_per_day.items()
        }
        value = figure_of_merit(rates("titan"), Rates("a", "system", exact), "geometric").value
        assert math.log(value.high / value.value) == pytest.approx(math.log(1.2) / 3)
