"""Repeats of one timing: order statistics, when there are enough of them, clocks, and cold operands."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from fomkit.harness.torch import cases
from fomkit.harness.torch.cases import (
    CannotTimeError,
    Case,
    Watch,
    by_clock,
    by_events,
    order_statistics,
    summarise,
)
from fomkit.harness.torch.times import Effort, time_case, time_run


@pytest.mark.parametrize(
    ("repeats", "ranks"),
    # Tables of the sign test's interval for the median, 95 % (Conover, Practical Nonparametric Statistics).
    [(1, None), (5, None), (6, (1, 6)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15)), (30, (10, 21)), (100, (40, 61))],
)
def test_order_statistics_are_those_of_the_sign_test(repeats: int, ranks: tuple[int, int] | None) -> None:
    assert order_statistics(repeats) == ranks


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    import numpy as np

    drawn = np.sort(np.random.default_rng(1).lognormal(size=(4000, 30)), axis=1)
    held = (drawn[:, 9] <= 1.0) & (drawn[:, 20] >= 1.0)
    assert 0.94 < held.mean() < 0.97


def test_outliers_are_kept_and_counted() -> None:
    found = summarise([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 9.0])
    assert found.outliers == 1
    assert found.longest_s == 9.0
    assert found.repeats == 8
    assert found.median_s == 1.0


def test_five_repeats_have_no_interval() -> None:
    found = summarise([1.0, 1.1, 1.2, 1.3, 1.4])
    assert found.low_s is found.high_s is None
    assert found.width == float("inf")


class FakeEvent:
    """An event of a device that takes 2 ms for each run that was started between two of them."""

    runs = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = FakeEvent.runs

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, end: FakeEvent) -> float:
        assert end.waited
        return 2.0 * (end.at - self.at)


def test_a_gpu_is_timed_by_its_events_and_by_no_clock_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> float:
        raise AssertionError("the host's clock was read")

    for name in ("perf_counter", "process_time", "monotonic", "time"):
        monkeypatch.setattr(time, name, never)

    class Cuda:
        Event = FakeEvent

    def run() -> None:
        FakeEvent.runs += 1

    assert by_events(Cuda)(run, 3) == pytest.approx(6e-3)


def test_one_thread_is_timed_by_process_time_and_several_by_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    read: list[str] = []
    for name in ("process_time", "perf_counter"):
        monkeypatch.setattr(cases.time, name, lambda name=name: read.append(name) or 0.0)
    for threads, clock in ((1, "process_time"), (2, "perf_counter")):
        read.clear()
        monkeypatch.setattr(cases.torch, "get_num_threads", lambda threads=threads: threads)
        cases.make_watch("cpu")
        assert set(read) == {clock}


def scripted(seconds: Any, log: list[str] | None = None) -> Watch:
    """Make a watch that returns these times one by one."""

    def measure(run: Any, times: int) -> float:
        run()
        return float(next(seconds)) * times

    return Watch(measure, 0.0, lambda: log.append("flush") if log is not None else None)


def test_repeats_end_when_the_median_is_known() -> None:
    steady = time_run(lambda: None, scripted(1.0 for _ in count()), Effort(target=0.01, most=50))
    assert len(steady.warm) == 6
    noisy = time_run(lambda: None, scripted(iter([1.0, 2.0] * 100)), Effort(target=0.01, most=50))
    assert len(noisy.warm) == 50
    assert not noisy.cold


def test_short_ops_run_several_times_in_a_repeat() -> None:
    runs: list[int] = []

    def measure(_run: Any, times: int) -> float:
        runs.append(times)
        return 1e-5 * times

    time_run(lambda: None, Watch(measure, 0.0, lambda: None), Effort())
    assert runs[-1] == 20


def test_cold_repeats_flush_and_run_the_op_on_other_operands_first() -> None:
    log: list[str] = []
    watch = scripted((1.0 for _ in count()), log)
    found = time_run(lambda: log.append("run"), watch, Effort(), other=lambda: log.append("other"), cold=True)
    assert len(found.cold) == 6
    assert not found.warm
    assert "".join(one[0] for one in log).endswith("for" * 6)


def test_what_an_op_does_besides_is_taken_off() -> None:
    case = Case(lambda: "both", lambda _result: 0.0, lambda: "besides")
    watch = Watch(lambda run, times: {"both": 5.0, "besides": 3.0}[run()] * times, 0.0, lambda: None)
    assert set(time_case(case, watch, Effort()).warm) == {2.0}
    watch = Watch(lambda run, times: {"both": 3.01, "besides": 3.0}[run()] * times, 0.0, lambda: None)
    with pytest.raises(CannotTimeError, match="too short to be measured"):
        time_case(case, watch, Effort())


def test_a_clock_counts_what_ran() -> None:
    moments = iter([1.0, 4.5])
    assert by_clock(lambda: next(moments))(lambda: None, 1) == 3.5
