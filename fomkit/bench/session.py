"""Time ops within a budget, those first that narrow predictions most per second.

A `Session` sends ops to the timing process and records the answers in its journal; `PLANS` holds the budgets and
the precision to reach.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fomkit.bench.journal import Journal
from fomkit.bench.libraries import Cells, Child, Wanted, as_table, key_of
from fomkit.bench.record import Subject, machine_of, read_moment
from fomkit.core.units import memory_text
from fomkit.harness.torch.worker import Answer
from fomkit.ops.pricing import add_costs
from fomkit.prediction.cascade import add_times
from fomkit.profiles.evidence import with_fits

Array = NDArray[np.float64]

OVERHEAD_S = 0.05
"""Time [s] of an op besides its executions: to make its operands, check it and warm it up."""
EXECUTIONS = 4
"""Executions of an op besides its repeats: one to check, one to compare, two to warm up."""
UNKNOWN_RATIO = 100.0
"""Assumed ratio of high to low of an op without a prediction."""


class Outlook(NamedTuple):
    """Predictions for n ops before they are timed.

    `time_s`, `low_s`, `high_s` (n,): predicted time of one execution; NaN if unknown.
    `byte` (n,): memory traffic of one execution; the size of its operands is not larger.
    """

    time_s: Array
    low_s: Array
    high_s: Array
    byte: Array


def cost_s(time_s: Array, limit_s: float, most: int, flush_s: float) -> Array:
    """Return the expected cost [s] of timing each op, with its repeats and the flushes of the caches."""
    repeats = np.clip(limit_s / (time_s + flush_s), 6, most)
    return OVERHEAD_S + (EXECUTIONS + 6) * time_s + repeats * (time_s + flush_s)


def gains(ops: Sequence[Wanted], outlook: Outlook) -> Array:
    """Return the gain from timing each op: the width of its interval times its weight.

    For ops of models this is the share of a step that the interval spans; an op of a model without a prediction
    counts as the whole step. Ops of the design have no step: for them the width is the log ratio of high to low.
    The effect of a timing on predictions of similar ops is ignored, because it is not known beforehand.
    """
    known = ~np.isnan(outlook.time_s)
    width = np.where(known, outlook.high_s - outlook.low_s, 0.0)
    ratio = np.log(np.where(known, outlook.high_s / outlook.low_s, UNKNOWN_RATIO))
    weight = np.array([one.weight for one in ops])
    of_model = np.array([bool(one.models) for one in ops], bool)
    return np.where(of_model, np.where(known, weight * width, 1.0), weight * ratio)


def best_first(gain: Array, cost: Array) -> list[int]:
    """Return the order of ops by falling gain per second; ties keep the given order."""
    return [int(place) for place in np.argsort(-gain / cost, kind="stable")]


class Plan(NamedTuple):
    """The extent of a measurement.

    `budget_s`: total time [s] by the clock that times the ops (`fomkit.bench.journal.clocks_of`).
    `target`: half the 95 % interval of a median, relative to the median, at which repeats stop.
    `limit_s`: time [s] by that clock for the repeats of one op, in each state of the caches.
    `op_s`: longest time [s] of one execution of an op of the design.
    `shapes`: shapes of each kind in the design; the hour of the full plan has time for twice as many.
    """

    name: str
    budget_s: float
    target: float
    most: int
    limit_s: float
    op_s: float
    shapes: int

    def effort(self) -> dict[str, float | int]:
        """Return the effort that the timing process receives; see `fomkit.harness.torch.times.Effort`."""
        return {"target": self.target, "least": 6, "most": self.most, "limit_s": self.limit_s}


PLANS: Mapping[str, Plan] = {
    "quick": Plan("quick", 110.0, 0.03, 15, 0.25, 0.02, 48),
    "default": Plan("default", 560.0, 0.02, 30, 0.6, 0.06, 48),
    "full": Plan("full", 3600.0, 0.01, 60, 1.5, 0.2, 96),
}
"""The plans by name; on an otherwise idle machine ``quick`` takes 2 minutes, ``default`` 10."""


def square(side: int, dtype: str, engine: str) -> Cells:
    """Return the cells of a product of two square matrices."""
    size = str(side)
    return {"kind": "gemm", "dtype": dtype, "engine": engine, "b": "1", "m": size, "n": size, "k": size,
            "trans_a": "0", "trans_b": "0"}  # fmt: skip


REFERENCE = square(512, "fp32", "vector")
"""Reference op, timed repeatedly to detect drift."""
CHECK_PERIOD_S = 20.0
"""Time [s] between two checks of the reference op, the load and throttling."""
MEMORY_SHARE = 0.25
"""Share of the memory that the operands of one op may use; checking its result needs twice as much again."""
TIME_LIMIT_FACTOR = 10.0
"""Multiple of the time allowed for an op's repeats, plus 30 s, after which its process is given up."""
REFIT_GROWTH = 0.5
"""Predictions are recomputed when the timings have grown by this share, because a fit takes seconds."""
MIN_PER_REFIT = 8
FLUSH_S = 0.01
"""Assumed time [s] to make the caches cold."""


@dataclass
class Session:
    """A run of timings on one machine.

    `ends`: moment of `clock`, which times the ops, after which no op begins.
    `seed`: seed of the random order; `advance`: called with a message before each op.
    `around`: runs the timing of an op, and may read its energy (`fomkit.bench.power`).
    `wall`, `gives_up`: the wall clock, and its moment after which no op begins, however little of the budget is
      used.
    `wanted`: the ops requested so far, from which the verdict is derived.
    """

    plan: Plan
    journal: Journal
    subject: Subject
    timer: Child
    ends: float
    seed: int = 0
    advance: Callable[[str], None] = lambda _text: None
    clock: Callable[[], float] = time.monotonic
    around: Callable[[Callable[[], Answer]], Answer] = lambda run: run()
    wall: Callable[[], float] = time.monotonic
    gives_up: float = np.inf
    wanted: list[Wanted] = field(default_factory=list)
    _looked: float = field(default=-np.inf)
    _byte: dict[tuple[str, ...], float] = field(default_factory=dict)

    def left_s(self) -> float:
        """Return the time [s] left for ops, by the clock that times them; 0 after the wall time is over."""
        return 0.0 if self.wall_is_over() else self.ends - self.clock()

    def wall_is_over(self) -> bool:
        """Return whether the wall time is over."""
        return self.wall() >= self.gives_up

    def measure_op(self, cells: Cells) -> Answer:
        """Time an op, even if it has a timing already."""
        if key_of(cells) not in self._byte:
            self._compute_traffic([cells])
        cold = not self._byte[key_of(cells)] <= self.subject.near_byte
        request = {"cells": dict(cells), "effort": self.plan.effort(), "cold": cold}
        answer = self.timer.time_op(request, 30.0 + TIME_LIMIT_FACTOR * self.plan.limit_s)
        return answer if "reason" in answer else {**answer, "state": "cold" if cold else "warm"}

    def _compute_traffic(self, ops: Sequence[Cells]) -> None:
        """Compute the traffic of ops, all in one table, which costs as much for one op as for many."""
        if ops:
            byte = add_costs(as_table(ops))["byte"].to_numpy(np.float64)
            self._byte.update(zip(map(key_of, ops), byte.tolist(), strict=True))

    def host(self) -> None:
        """Measure once the framework's time per op of a step."""
        if not self.journal.marked("host"):
            answer = self.timer.time_op({}, 60.0)
            if "reason" in answer:
                self.journal.say(f"launch cost: not timed, {answer['reason']}")
            else:
                self.journal.mark("host", **answer)

    def memory(self) -> None:
        """Measure once fresh pages and transfers to a device; an empty answer means not applicable here."""
        for name in ("allocator", "from_host"):
            if not self.journal.marked(name):
                answer = self.timer.time_op({"ask": name}, 60.0)
                if answer and "reason" not in answer:
                    self.journal.mark(name, **answer)

    def time_one(self, wanted: Wanted) -> None:
        """Time an op and record the answer; every `CHECK_PERIOD_S` first check the reference op."""
        if self.clock() - self._looked > CHECK_PERIOD_S:
            self.look()
        what = f"{wanted.cells['kind']} {wanted.cells['dtype']} {wanted.cells.get('pass_name', '')}".rstrip()
        self.advance(f"{what}; at most {max(0.0, self.left_s()):.0f} s of its own time left")
        self.journal.keep(wanted.cells, self.around(lambda: self.measure_op(wanted.cells)))

    def look(self) -> None:
        """Time the reference op again, and read load and throttling."""
        moment = read_moment()
        self.journal.mark("moment", load=moment.load, throttled=moment.throttled)
        answer = self.measure_op(REFERENCE)
        if "reason" not in answer:
            self.journal.mark("reference", answer=answer)
        self._looked = self.clock()

    def pending(self, ops: Sequence[Wanted]) -> list[Wanted]:
        """Return the ops without an answer yet."""
        return [one for one in ops if key_of(one.cells) not in self.journal.answers]

    def time_all(self, ops: Sequence[Wanted]) -> None:
        """Time ops in random order until the time is over."""
        self._time_shuffled(self.pending(ops), self.seed)

    def _time_shuffled(self, ops: list[Wanted], seed: int) -> None:
        self._compute_traffic([one.cells for one in ops])
        random.Random(seed).shuffle(ops)  # noqa: S311 - an order, no secret
        for one in ops:
            if self.left_s() <= 0:
                return
            self.time_one(one)

    def _fitting_memory(self, ops: list[Wanted]) -> tuple[list[Wanted], Outlook]:
        """Return the ops whose operands fit in memory, with their predictions; record a reason for the others."""
        costed = add_costs(as_table([one.cells for one in ops]))
        timed = add_times(costed, with_fits(machine_of(self.journal, self.subject)))
        outlook = Outlook(*(timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s", "byte")))
        memory = self.subject.facts.get("memory_byte") or self.subject.host.memory_byte or np.inf
        large = outlook.byte > MEMORY_SHARE * memory
        for one, too_large, byte in zip(ops, large.tolist(), outlook.byte.tolist(), strict=True):
            if too_large:
                reason = f"its operands take {memory_text(byte)}, more than a quarter of the memory"
                self.journal.keep(one.cells, {"reason": reason})
        return self.pending(ops), Outlook(*(column[~large] for column in outlook))

    def time_best(self, ops: Sequence[Wanted]) -> None:
        """Time the ops with the largest gain per second first, in rounds; predict again before each round.

        Within a round the order is random, so that a machine that slows down does not slow one kind of op only.
        """
        rounds = 0
        while (waiting := self.pending(ops)) and self.left_s() > 0:
            waiting, outlook = self._fitting_memory(waiting)
            times = np.nan_to_num(outlook.time_s, nan=1e-3)
            costs = cost_s(times, self.plan.limit_s, self.plan.most, FLUSH_S)
            order = best_first(gains(waiting, outlook), costs)
            known = sum("reason" not in answer for _, answer in self.journal.answers.values())
            many = max(MIN_PER_REFIT, round(REFIT_GROWTH * known))
            chosen: list[Wanted] = []
            spent = 0.0
            for place in order:
                if len(chosen) >= many or (chosen and spent + costs[place] > self.left_s()):
                    break
                chosen.append(waiting[place])
                spent += float(costs[place])
            self._time_shuffled(chosen, self.seed + rounds)
            rounds += 1
