"""The house only gets smaller: each count is at most its ceiling, and a ceiling is at most what it once was."""

from __future__ import annotations

import csv

import pytest
from house_counts import CEILINGS, ceilings, circles, counts


def test_no_count_is_above_its_ceiling() -> None:
    now, most = counts(), ceilings()
    assert now.keys() == most.keys()
    above = {name: (value, most[name]) for name, value in now.items() if value > most[name]}
    assert not above, f"count, ceiling: {above}. Make the change smaller; a ceiling is never raised."


def test_a_ceiling_follows_its_count_down() -> None:
    slack = {
        name: (value, ceilings()[name]) for name, value in counts().items() if value < 0.97 * ceilings()[name]
    }
    assert not slack, f"count, ceiling: {slack}. Write the lower ceiling into {CEILINGS.name}."


def test_ceilings_only_go_down() -> None:
    with CEILINGS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert float(row["at_most"]) <= float(row["at_first"]), row["count"]


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}}, [["d", "e"], ["a", "b", "c"]]),
    ],
)
def test_circles_are_found(edges: dict[str, set[str]], found: list[list[str]]) -> None:
    assert circles({name: frozenset(others) for name, others in edges.items()}) == found
