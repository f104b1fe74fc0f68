"""Counts of the code may only fall; additions by later changes are listed (docs/adr/0047)."""

from __future__ import annotations

import csv

import pytest
from house_counts import ADDED, CEILINGS, ceilings, circles, counts


def test_no_count_is_above_its_ceiling() -> None:
    now, most = counts(), ceilings()
    assert now.keys() == most.keys()
    above = {name: (value, most[name]) for name, value in now.items() if value > most[name]}
    assert not above, (
        f"count, ceiling: {above}. Make the change smaller; a ceiling is never raised, and only a step adds."
    )


def test_a_ceiling_follows_its_count_down() -> None:
    slack = {
        name: (value, ceilings()[name]) for name, value in counts().items() if value < 0.97 * ceilings()[name]
    }
    assert not slack, f"count, ceiling: {slack}. Write the lower ceiling into {CEILINGS.name}."


def test_ceilings_only_go_down() -> None:
    with CEILINGS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert float(row["at_most"]) <= float(row["at_first"]), row["count"]


def test_what_was_added_has_a_step_and_a_reason() -> None:
    with ADDED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with CEILINGS.open(encoding="utf-8", newline="") as file:
        known = {row["count"] for row in csv.DictReader(file)}
    assert {row["step"] for row in rows} <= {"3 of 6", "4 of 6", "5 of 6", "6 of 6"}
    assert {row["count"] for row in rows} <= known - {"folders over 20 modules", "modules in circles"}
    assert all(row["what"] and float(row["added"]) > 0 for row in rows)


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
