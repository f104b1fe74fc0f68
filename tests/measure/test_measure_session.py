"""Choice, duration and order of timings, and the timings that survive a failure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from simple_machine import Simple, make_session

from fomkit.bench.design import design, log_sizes, seeds
from fomkit.bench.journal import Journal
from fomkit.bench.libraries import Wanted, as_table, key_of
from fomkit.bench.record import Moment, machine_of
from fomkit.bench.run import FIT_S, MeasureSpec, measure, probe
from fomkit.bench.session import (
    MEMORY_SHARE,
    PLANS,
    REFERENCE,
    TIME_LIMIT_FACTOR,
    Outlook,
    best_first,
    cost_s,
    gains,
)
from fomkit.core.errors import FomkitError
from fomkit.ops.pricing import add_costs


@pytest.fixture
def timer() -> Simple:
    return Simple()


PEAK = {("fp32", "vector"): 1e11}


def product(side: int, weight: float = 1.0, models: str = "") -> Wanted:
    return Wanted({**REFERENCE, "m": str(side)}, weight, models)


def products(count: int) -> list[Wanted]:
    return [product(17 + 4 * number) for number in range(count)]


def test_the_op_that_wins_most_per_second_comes_first() -> None:
    ops = [product(1, 1.0, "a"), product(2, 10.0, "a"), product(3, 1.0, "a"), product(4, 1.0, "a")]
    outlook = Outlook(*np.array([[1e-3, 1e-3, 1e-3, np.nan], [5e-4, 5e-4, 9.9e-4, np.nan],
                                 [2e-3, 2e-3, 1.01e-3, np.nan], [1e3] * 4]))  # fmt: skip
    gain = gains(ops, outlook)
    assert gain[:3] == pytest.approx([1.5e-3, 1.5e-2, 2e-5])
    assert best_first(gain, np.ones(4)) == [3, 1, 0, 2]
    # What takes a hundred times as long is left for later, whatever it wins.
    assert best_first(gain, np.array([1.0, 100.0, 1.0, 1e6])) == [0, 1, 2, 3]


def test_an_op_costs_its_repeats_and_what_surrounds_them() -> None:
    short, long = cost_s(np.array([1e-6, 1.0]), limit_s=0.25, most=15, flush_s=0.01)
    assert short == pytest.approx(0.05 + 15 * 0.01, rel=0.01)
    assert long == pytest.approx(0.05 + 10 + 6 * 1.01)


def test_no_op_begins_after_the_end(tmp_path: Path, timer: Simple) -> None:
    session = make_session(tmp_path, timer, budget_s=2.0)
    session.time_all(products(100))
    assert 2.0 <= timer.now < 2.3
    assert len(session.journal.answers) < 25


def test_the_order_is_random_and_the_same_for_one_seed(tmp_path: Path) -> None:
    orders = []
    for seed in (1, 1, 2):
        timer = Simple()
        make_session(tmp_path, timer, seed=seed).time_all(products(20))
        orders.append([one["m"] for one in timer.requested if one != REFERENCE])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) != orders[0]


def test_the_reference_is_timed_through_the_run(
    tmp_path: Path, timer: Simple, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fomkit.bench.session.CHECK_PERIOD_S", 2.0)
    session = make_session(tmp_path, timer)
    session.time_all(products(70))
    assert timer.requested.count(REFERENCE) == len(session.journal.marked("reference")) >= 3


def test_nothing_is_asked_twice(tmp_path: Path, timer: Simple) -> None:
    session = make_session(tmp_path, timer)
    session.time_all(products(5))
    session.time_all(products(8))
    requested = [key_of(one) for one in timer.requested if one != REFERENCE]
    assert len(requested) == len(set(requested)) == 8


def test_predictions_choose_and_every_op_is_timed_once(tmp_path: Path, timer: Simple) -> None:
    session = make_session(tmp_path, timer)
    probe(session, [("fp32", "vector")])
    ops = design([("fp32", "vector")], 4, 1e-3, PEAK, 1e10)
    session.time_best(ops)
    assert not session.pending(ops)
    requested = [key_of(one) for one in timer.requested if one != REFERENCE]
    assert len(requested) == len(set(requested))


def test_what_the_memory_does_not_hold_is_skipped_with_the_reason(tmp_path: Path, timer: Simple) -> None:
    session = make_session(tmp_path, timer)
    huge = Wanted({**REFERENCE, "m": "2000000000"}, 1.0)
    session.time_best([huge, product(64)])
    assert "more than a quarter of the memory" in session.journal.answers[key_of(huge.cells)][1]["reason"]
    assert any("more than a quarter" in note for note in machine_of(session.journal, session.subject).notes)
    assert len(session.journal.answers) == 2


def test_trouble_with_one_op_is_kept_beside_the_times_of_the_rest(tmp_path: Path) -> None:
    timer = Simple(lambda number, _: {"reason": "out of memory"} if number == 3 else None)
    session = make_session(tmp_path, timer)
    session.time_all(products(6))
    machine = machine_of(session.journal, session.subject)
    assert len(machine.timings) == 5
    assert "not timed: 1 gemm of fp32, out of memory" in machine.notes


# --- the journal -------------------------------------------------------------------------------------------------


def test_a_journal_is_taken_up_where_it_was_cut(tmp_path: Path, timer: Simple) -> None:
    session = make_session(tmp_path, timer)
    session.time_all(products(4))
    path = session.journal.path
    path.write_text(path.read_text() + '{"cells": {"kind": "ge', encoding="utf-8")
    again = Journal(path, session.journal.about)
    again.resume()
    assert again.answers == session.journal.answers
    assert again.marks == session.journal.marks
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "nothing can be resumed"),
        ("", "is not a measurement's record"),
        ("garbage\n", "is not a measurement's record"),
        ('{"schema": "other/1"}\n', "does not state schema"),
        (
            '{"schema": "fomkit/measuring/1", "about": {"device": "Other"}}\n',
            "was measured on Other, and this is Here",
        ),
    ],
)
def test_what_cannot_be_resumed_says_so(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "here.measuring.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FomkitError, match=said):
        Journal(path, {"device": "Here"}).resume()


# --- conditions --------------------------------------------------------------------------------------------------


def notes_of(session) -> tuple[str, ...]:
    return machine_of(session.journal, session.subject).notes


def test_a_busy_machine_is_told_with_its_load_its_drift_and_its_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fomkit.bench.session.CHECK_PERIOD_S", 1.0)
    loads = iter([0.5, *[7.5] * 99])
    monkeypatch.setattr("fomkit.bench.session.read_moment", lambda: Moment(next(loads), None))

    def noisy(number: int, _cells: object) -> dict:
        slow = 1.0 + 0.1 * number  # others take more and more of the core
        times = [slow * (1 + 0.1 * step) for step in range(10)]
        return {"warm": times, "cold": times, "error": 0.0, "empty_s": 0.0}

    timer = Simple(noisy)
    session = make_session(tmp_path, timer)
    for one in products(6):
        timer.now += 2.0
        session.time_one(one)
    said = notes_of(session)
    assert "load while measuring: 0.50 to 7.50 (/proc/loadavg), about 1 of it is ours" in said
    assert any(note.startswith("drift: ") and "not steady" in note for note in said)
    assert any("of 6 timings" in note and "6 are wider than ±10 %" in note for note in said)
    assert len(machine_of(session.journal, session.subject).timings) == 6


@pytest.mark.parametrize(("counts", "said"), [((40, 43), "throttling: 3 more events while measuring"),
                                              ((None, None), "throttling: not readable")])  # fmt: skip
def test_throttling_is_told_and_costs_no_timing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timer: Simple, counts: tuple[int | None, ...], said: str
) -> None:
    monkeypatch.setattr("fomkit.bench.session.CHECK_PERIOD_S", 1.0)
    found = iter(counts)
    monkeypatch.setattr("fomkit.bench.session.read_moment", lambda: Moment(None, next(found)))
    session = make_session(tmp_path, timer)
    for one in products(2):
        timer.now += 2.0
        session.time_one(one)
    assert said in notes_of(session)
    assert not any(note.startswith("load") for note in notes_of(session))
    assert len(machine_of(session.journal, session.subject).timings) == 2


# --- the design --------------------------------------------------------------------------------------------------


def test_sizes_fill_their_ranges_evenly_and_some_are_round() -> None:
    found = [one["m"] for one in log_sizes(64, {"m": (16.0, 4096.0), "n": (1.0, 9.0)}, (64, 1))]
    logs = np.log2(found)
    assert 4 <= logs.min() < 4.5
    assert 11.5 < logs.max() <= 12.05
    counts, _ = np.histogram(logs, bins=4, range=(4, 12.1))
    assert counts.min() >= 12
    assert 16 <= sum(one % 64 == 0 for one in found) <= 40


def test_a_design_has_every_kind_that_can_be_timed_and_no_long_op() -> None:
    from fomkit.harness.torch.times import MAKERS, knows_op

    ops = design([("fp32", "vector"), ("bf16", "vector")], 24, 0.01, {**PEAK, ("bf16", "vector"): 2e11}, 1e10)
    assert {one.cells["kind"] for one in ops} == set(MAKERS)
    assert {one.cells["dtype"] for one in ops} == {"fp32", "bf16"}
    assert all(knows_op(one.cells) for one in ops if one.cells.get("op"))
    assert len({key_of(one.cells) for one in ops}) == len(ops)
    passes = {one.cells["pass_name"] for one in ops if one.cells["kind"] == "conv"}
    assert passes == {"forward", "backward_input", "backward_weight"}
    first = seeds(ops)
    assert len(first) < len(ops)
    assert {one.cells["kind"] for one in first} == set(MAKERS)


@pytest.mark.parametrize("name", list(PLANS))
def test_a_plan_holds_its_design(name: str) -> None:
    """At 100 Gflop/s and 10 GB/s no op exceeds limits of time or memory, and the plan fits its budget or is cut.

    The full plan reaches its end: its hour holds all of its ops, twice as many as the default plan's.
    """
    plan = PLANS[name]
    rates = {**PEAK, ("fp64", "vector"): 5e10, ("bf16", "vector"): 2e11}
    ops = design(list(rates), plan.shapes, plan.op_s, rates, 1e10)
    costs = add_costs(as_table([one.cells for one in ops]))
    flop, byte = (costs[word].fillna(0.0).to_numpy(np.float64) for word in ("flop", "byte"))
    speed = np.array([rates[one.cells["dtype"], one.cells["engine"]] for one in ops])
    time_s = flop / speed + byte / 1e10
    # Made, checked and warmed up twice, repeated six times in each state, on other operands before each.
    assert 30 * time_s.max() < 30.0 + TIME_LIMIT_FACTOR * plan.limit_s
    assert byte.max() < MEMORY_SHARE * 16e9
    whole_s = cost_s(time_s, plan.limit_s, plan.most, 0.01).sum()
    assert (whole_s < plan.budget_s - FIT_S[name]) == (name != "quick")
    assert sum(one.cells["dtype"] == "fp32" for one in ops) > len(ops) / 2
    if name == "full":
        assert len(ops) > 1.8 * len(design(list(rates), PLANS["default"].shapes, plan.op_s, rates, 1e10))


def test_the_full_plan_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fomkit.bench.run.design", lambda *requested: design(*requested)[::60])
    timer = Simple()
    found = measure(MeasureSpec(tmp_path / "here.yaml", "full"), start=lambda _setup: timer)
    assert not found.interrupted
    assert {"fp32", "fp64"} <= set(found.machine.timings["dtype"])
    assert "sparse_gemm" in set(found.machine.timings["kind"])
    assert not [note for note in found.machine.notes if note.startswith("not timed")]
