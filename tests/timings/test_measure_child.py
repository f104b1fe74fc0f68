"""The timing process may die, hang or refuse: the op is skipped with the reason, and the next op is timed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fomkit.bench.libraries import Child
from fomkit.core.errors import FomkitError
from fomkit.files.child_process import child_command
from fomkit.harness.torch import times as measure_times
from fomkit.harness.torch import worker
from fomkit.harness.torch.cases import Case, Watch

SETUP = {"device": "cpu", "threads": 1, "cache_byte": 1e6}
FAKE = """
import json, os, signal, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    do = asked.get("cells", {}).get("do", "")
    if do == "die": os.kill(os.getpid(), signal.SIGKILL)
    if do == "abort": os.abort()
    if do == "exit": os._exit(7)
    if do == "hang": time.sleep(60)
    print(json.dumps({"pid": os.getpid(), "library_version": "1"}), flush=True)
"""
PRODUCT = {"kind": "gemm", "dtype": "fp32", "engine": "vector", "b": "1", "m": "32", "n": "32", "k": "32"}
EFFORT = {"target": 1.0, "least": 6, "most": 6, "limit_s": 0.1}


def request_of(cells: dict[str, str]) -> dict[str, Any]:
    return {"cells": cells, "effort": EFFORT, "cold": True}


def test_a_dead_child_is_replaced() -> None:
    with Child([sys.executable, "-c", FAKE], SETUP) as child:
        first = child.time_op(request_of({"do": "time"}), 20)["pid"]
        assert "SIGKILL, perhaps for lack of memory" in child.time_op(request_of({"do": "die"}), 20)["reason"]
        assert "SIGABRT" in child.time_op(request_of({"do": "abort"}), 20)["reason"]
        assert "exit code 7" in child.time_op(request_of({"do": "exit"}), 20)["reason"]
        assert "longer than 0 s" in child.time_op(request_of({"do": "hang"}), 0.3)["reason"]
        assert child.time_op(request_of({"do": "time"}), 20)["pid"] != first


def test_the_time_of_processes_that_ended_counts_too() -> None:
    spend = "import json, sys, time\n" + (
        "for line in sys.stdin:\n"
        "    if 'cells' in json.loads(line):\n"
        "        while time.process_time() < 0.3: pass\n"
        "    print(json.dumps({'spent_s': time.process_time()}), flush=True)\n"
    )
    with Child([sys.executable, "-c", spend], SETUP) as child:
        before = child.spent_s()
        assert "spent_s" not in child.time_op(request_of({"do": "time"}), 20)
        assert 0.3 <= child.spent_s() < 2.0
        assert child.spent_s() > before
        spent = child.spent_s()
        child.close()
        assert child.spent_s() >= spent
        child.time_op(request_of({"do": "time"}), 20)
        assert child.spent_s() >= spent + 0.3


def test_a_child_that_cannot_start_is_one_message() -> None:
    with (
        pytest.raises(FomkitError, match="cannot start: it ended with exit code 3"),
        Child([sys.executable, "-c", "raise SystemExit(3)"], SETUP),
    ):
        pass


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with Child(child_command("fomkit.harness.torch.worker"), SETUP) as one:
        yield one


def test_the_worker_tells_its_library_and_threads(child: Child) -> None:
    assert child.facts["threads"] == 1
    assert child.facts["library_version"]


def test_an_op_comes_back_with_repeats_of_both_states_and_its_error(child: Child) -> None:
    answer = child.time_op(request_of(PRODUCT), 60)
    assert len(answer["warm"]) == len(answer["cold"]) == 6
    assert all(one > 0 for one in (*answer["warm"], *answer["cold"]))
    assert 0 <= answer["error"] < 1e-4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dtype": "fp8"}, "fp8"),
        ({"m": "100000000", "k": "100000000"}, "memory|alloc|overflow"),
        ({"kind": "collective"}, "not timed here"),
        ({"m": ""}, "missing"),
    ],
)
def test_what_cannot_be_timed_comes_back_with_its_reason(child: Child, change: dict[str, str], said: str) -> None:
    import re

    reason = child.time_op(request_of({**PRODUCT, **change}), 60)["reason"]
    assert re.search(said, reason, re.IGNORECASE), reason
    assert "\n" not in reason
    assert "warm" in child.time_op(request_of(PRODUCT), 60)


def test_the_host_takes_something_for_each_op(child: Child) -> None:
    cost = child.time_op({}, 60)
    assert 0 <= cost["host_s"] <= cost["op_s"]


def test_a_fast_wrong_kernel_is_no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    wrong = Case(lambda: None, lambda _result: 0.3)
    monkeypatch.setattr(measure_times, "make_case", lambda *_: wrong)
    watch = Watch(lambda *_: 1e-6, 0.0, lambda: None)
    answer = worker.time_op(request_of(PRODUCT), "cpu", watch)
    assert answer == {"reason": "its result is wrong by 3.0e-01 of the largest value"}
