"""Costs, predictions, plans and merit equal the frozen tables; intended changes are written by `frozen.py`."""

from __future__ import annotations

import pytest
from golden.frozen import FIGURES, MACHINES, OPS, TIMES, Table, costs, differences, figures, kept, message, times
from golden.frozen_figures import QUESTIONS


def check(name: str, new: Table) -> None:
    changed = differences(name, kept(name), new)
    assert not changed, message(name, changed)


def test_costs_are_what_they_were() -> None:
    check(OPS, costs())


@pytest.mark.parametrize("machine", MACHINES)
def test_times_are_what_they_were(machine: str) -> None:
    check(f"{TIMES}/{machine}", times(machine))


@pytest.mark.parametrize("question", QUESTIONS)
def test_figures_are_what_they_were(question: str) -> None:
    check(f"{FIGURES}/{question}", figures(question))


def test_a_row_that_changed_is_named_with_the_command_that_writes_it() -> None:
    """Numbers may differ by rounding; a missing row, or a row with other texts, is reported."""
    old = [("op", "time [s]"), ("gemm 1", "1e-06"), ("gemm 2", "2e-06"), ("gemm 3", "3e-06")]
    assert differences("v100", old, [*old[:2], ("gemm 2", "2.0000000001e-06"), old[3]]) == []
    changed = differences("v100", old, [*old[:2], ("gemm 2", "2.1e-06")])
    assert changed == ["- gemm 2,2e-06\n+ gemm 2,2.1e-06", "- gemm 3,3e-06\n+ "]
    assert message("v100", changed).startswith(
        "2 rows of tests/golden/frozen/v100.csv differ. If they are meant to: "
    )
    assert message("v100", changed * 9).endswith("\nand 6 more")
