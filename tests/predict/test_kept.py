"""Results prepared from a table are stored with it, and never used for another table."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

import fomkit
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.prediction import estimates
from fomkit.prediction.cascade import original
from fomkit.prediction.estimates import _CACHE, PAIRS, TABLES, cached


@pytest.fixture
def limits_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty cache with the product's limits, instead of the tests' common one (`KEPT` in `read_once`)."""
    monkeypatch.setattr(estimates, "_CACHE", OrderedDict())
    monkeypatch.setattr(estimates, "TABLES", TABLES)
    monkeypatch.setattr(estimates, "PAIRS", PAIRS)


@pytest.mark.usefixtures("limits_of_users")
def test_a_result_is_made_once_for_each_table_and_forgotten_with_old_tables() -> None:
    made: list[int] = []
    tables = [pd.DataFrame({"a": [float(number)]}) for number in range(TABLES + 1)]

    def cached_number(number: int) -> float:
        def make() -> float:
            made.append(number)
            return float(tables[number]["a"].iloc[0])

        return cached(tables[number], None, "a", make)

    assert [cached_number(0), cached_number(0), cached_number(1)] == [0.0, 0.0, 1.0]
    assert made == [0, 1]
    for number in range(TABLES + 1):
        assert cached_number(number) == number
    assert cached_number(0) == 0.0
    assert made.count(0) == 2


def test_other_arguments_are_other_results() -> None:
    table, one, other = pd.DataFrame({"a": [1.0]}), [1], [2]
    assert cached(table, one, "sum", lambda: 1) == 1
    assert cached(table, other, "sum", lambda: 2) == 2
    assert cached(table, one, "more", lambda: 3) == 3
    assert cached(table, one, "sum", lambda: 4) == 1


@pytest.mark.usefixtures("limits_of_users")
def test_a_table_keeps_no_more_than_so_many_results_with_other_arguments() -> None:
    table, others, made = pd.DataFrame({"a": [1.0]}), [[number] for number in range(PAIRS + 1)], list[int]()
    cached(table, None, "alone", lambda: made.append(-1))
    for other in (*others, others[1], others[-1], others[0]):
        cached(table, other, "pair", partial(made.append, other[0]))
    cached(table, None, "alone", lambda: made.append(-1))
    assert made == [-1, *range(PAIRS + 1), 0]


def test_a_machine_that_is_changed_again_and_again_keeps_one_table_as_built() -> None:
    machine = fomkit.machine("p100-pcie-16gb")
    stated = machine.timings.assign(party=["vendor", *[""] * (len(machine.timings) - 1)])
    machine = replace(machine, timings=stated)
    changed = [machine.with_(bandwidth=7e11 + number * 1e9) for number in range(5)]
    built = {id(original(one).timings) for one in changed}
    assert len(built) == 1
    assert original(changed[0]).device is machine.device
    assert len(original(changed[0]).timings) == len(stated) - 1
    assert original(machine) is machine
    _, alone, with_others = _CACHE[id(stated)]
    assert (len(alone), len(with_others)) == (1, 0)


def test_an_estimate_says_the_same_twice_and_another_table_is_seen() -> None:
    model, machine = fomkit.model("p1b3"), fomkit.machine("v100")
    first, second = (estimate(model, machine, Options(batch=64)) for _ in range(2))
    pd.testing.assert_frame_equal(first.ops, second.ops)
    products = machine.timings[machine.timings["kind"] == "gemm"]  # a fit of these alone takes a quarter as long
    slow = products.assign(time_s=products["time_s"] * 2)
    slower = estimate(model, replace(machine, timings=slow, timings_key="", fits={}), Options(batch=64))
    assert slower.step.value > 1.3 * first.step.value


def test_fits_of_another_table_are_never_served(tmp_path, monkeypatch) -> None:
    """``replace(machine, timings=…)`` is all that a user writes; what was fitted to the old table goes with it."""
    monkeypatch.setenv("FOMKIT_CACHE", str(tmp_path))
    model, machine = fomkit.model("p1b3"), fomkit.machine("v100")
    before = estimate(model, machine, Options())
    table = machine.timings
    products = table[table["kind"] == "gemm"]
    for changed in (products[np.arange(len(products)) % 7 != 0], products.assign(time_s=0.5 * products["time_s"])):
        found = estimate(model, replace(machine, timings=changed), Options())
        fresh = estimate(model, replace(machine, timings=changed, fits={}, timings_key=""), Options())
        pd.testing.assert_frame_equal(found.ops, fresh.ops)
        assert found.step == fresh.step != before.step
    none = replace(machine, timings=table.iloc[:0])
    assert estimate(model, none, Options()).coverage["roofline"] == 1.0
