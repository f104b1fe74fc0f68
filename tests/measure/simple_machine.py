"""A simulated machine that needs no time to be measured: the time of each op follows a simple rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fomkit.bench.journal import Journal
from fomkit.bench.libraries import as_table
from fomkit.bench.record import HostFacts, Subject
from fomkit.bench.session import PLANS, Session
from fomkit.ops.pricing import add_costs

FACTS = {"library_version": "9.9", "threads": 1, "about": "a machine of the mind", "python": "3", "cuda": ""}
HOST = HostFacts(model="Example 9000", cores=2, cache_byte={2: 1e6, 3: 3e7}, memory_byte=16e9)


Trouble = Callable[[int, Mapping[str, Any]], dict[str, Any] | None]


@cache
def seconds(cells: tuple[tuple[str, str], ...]) -> float:
    costs = add_costs(as_table([dict(cells)]), checked=True).iloc[0]
    return float(max(costs["flop"] / 1e11, costs["byte"] / 1e10)) + 1e-6


class Simple:
    """Replaces the timing process: 100 Gflop/s, 10 GB/s and 1 µs per op, and a clock that follows."""

    def __init__(
        self, trouble: Callable[[int, Mapping[str, Any]], dict[str, Any] | None] = lambda *_: None
    ) -> None:
        self.facts, self.requested, self.now, self._trouble = FACTS, list[Mapping[str, Any]](), 0.0, trouble

    def __enter__(self) -> Simple:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def spent_s(self) -> float:
        return self.now

    def time_op(self, request: Mapping[str, Any], _limit_s: float) -> dict[str, Any]:
        if "ask" in request:
            return {}
        if "cells" not in request:
            return {"op_s": 5e-6, "host_s": 3e-6}
        self.requested.append(request["cells"])
        if trouble := self._trouble(len(self.requested), request["cells"]):
            return trouble
        once = seconds(tuple(sorted(request["cells"].items())))
        self.now += 10 * once + 0.1
        warm = [once * (1 + 0.001 * number) for number in range(10)]
        return {"warm": warm, "cold": [1.1 * one for one in warm], "error": 1e-7, "empty_s": 0.0}


def make_session(path: Path, timer: Simple, *, budget_s: float = 1e9, seed: int = 0) -> Session:
    journal = Journal(path / "here.measuring.jsonl", {"device": "Example 9000"})
    journal.begin()
    subject = Subject("here", "cpu", HOST, FACTS)
    return Session(PLANS["quick"], journal, subject, timer, budget_s, seed, clock=lambda: timer.now)
