"""Having ops timed within a time, those first that make predictions surer, and what it takes to trust them."""

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
from fomkit.core.machine import Machine
from fomkit.harness.torch.worker import Answer
from fomkit.ops.pricing import add_costs
from fomkit.prediction.cascade import add_times
from fomkit.profiles.evidence import with_fits

Array = NDArray[np.float64]


OVERHEAD_S = 0.05
"""Time [s] that an op takes besides its repeats: to be made, checked and made warm."""
EXECUTIONS = 4
"""Executions of an op besides its repeats: one to check, one to compare, two to warm up."""
UNKNOWN_RATIO = 100.0
"""Ratio of the ends of an interval that is taken where nothing is predicted."""


class Outlook(NamedTuple):
    """What is expected of ops (n) before they are timed.

    `time_s`, `low_s`, `high_s` (n,): predicted time of one execution; NaN where nothing is known.
    `byte` (n,): memory traffic of one execution; its operands take no more.
    """

    time_s: Array
    low_s: Array
    high_s: Array
    byte: Array


def look_ahead(ops: Sequence[Wanted], machine: Machine) -> Outlook:
    """Predict ops on a machine as far as it is known."""
    if not ops:
        return Outlook(*np.empty((4, 0)))
    costed = add_costs(as_table([one.cells for one in ops]))
    timed = add_times(costed, with_fits(machine))
    return Outlook(*(timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s", "byte")))


def cost_s(time_s: Array, limit_s: float, most: int, flush_s: float) -> Array:
    """Give the time [s] that the repeats of ops are expected to take, with warm and with cold caches."""
    repeats = np.clip(limit_s / (time_s + flush_s), 6, most)
    return OVERHEAD_S + (EXECUTIONS + 6) * time_s + repeats * (time_s + flush_s)


def gains(ops: Sequence[Wanted], outlook: Outlook) -> Array:
    """Give what is won by timing each op: the width of its interval, by its weight.

    For ops of models that is the share of a step that their intervals span. Ops of the design have no step: their
    widths count as ratios; an op of a model
    of which nothing is known counts as the whole step. What a timing tells of ops near it is left out, nobody
    knows that beforehand.
    """
    known = ~np.isnan(outlook.time_s)
    width = np.where(known, outlook.high_s - outlook.low_s, 0.0)
    ratio = np.log(np.where(known, outlook.high_s / outlook.low_s, UNKNOWN_RATIO))
    weight = np.array([one.weight for one in ops])
    of_model = np.array([bool(one.models) for one in ops], bool)
    return np.where(of_model, np.where(known, weight * width, 1.0), weight * ratio)


def best_first(gain: Array, cost: Array) -> list[int]:
    """Order ops by what they win per second, best first; equals in the order given."""
    return [int(place) for place in np.argsort(-gain / cost, kind="stable")]


class Plan(NamedTuple):
    """How much is measured.

    `budget_s`: time [s] of everything, by the clock that times the ops (`fomkit.bench.journal.clocks_of`).
    `target`: half the 95 % interval of a median, as a share of it, that is narrow enough.
    `most`: repeats of an op at most.
    `limit_s`: time [s] by that clock that the repeats of one op may take, in each state of the caches.
    `op_s`: time [s] of one execution above which no op of the design is asked for.
    `shapes`: shapes of each kind in the design; the hour of the full plan holds twice as many.
    """

    name: str
    budget_s: float
    target: float
    most: int
    limit_s: float
    op_s: float
    shapes: int

    def effort(self) -> dict[str, float | int]:
        """Give what the process that times is told; see `fomkit.harness.torch.times.Effort`."""
        return {"target": self.target, "least": 6, "most": self.most, "limit_s": self.limit_s}


PLANS: Mapping[str, Plan] = {
    "quick": Plan("quick", 110.0, 0.03, 15, 0.25, 0.02, 48),
    "default": Plan("default", 560.0, 0.02, 30, 0.6, 0.06, 48),
    "full": Plan("full", 3600.0, 0.01, 60, 1.5, 0.2, 96),
}
"""The plans by name; ``quick`` takes 2 minutes, ``default`` 10, where nobody else uses the machine."""


def square(side: int, dtype: str, engine: str) -> Cells:
    """Give the cells of a product of two squares."""
    size = str(side)
    return {"kind": "gemm", "dtype": dtype, "engine": engine, "b": "1", "m": size, "n": size, "k": size,
            "trans_a": "0", "trans_b": "0"}  # fmt: skip


REFERENCE = square(512, "fp32", "vector")
"""An op that is timed again and again: what it takes must stay the same."""
EVERY_S = 20.0
"""Time [s] between two looks at the reference, the load and throttling."""
MEMORY_SHARE = 0.25
"""Share of the memory that the operands of one op may take; the check takes twice as much again."""
PATIENCE = 10.0
"""An op may take so many times as long as its repeats are allowed to, before its process is given up."""
ROUND = 0.5
"""Predictions are made anew when the timings have grown by this share: a fit takes seconds."""
FEWEST_A_ROUND = 8
FLUSH_S = 0.01
"""Time [s] that it is taken to need to make the caches cold."""


@dataclass
class Session:
    """A run of timings on one machine.

    `ends`: moment of `clock`, the one that times the ops, after which no op begins.
    `seed`: of the random order.
    `advance`: told before each op, for whoever watches.
    `around`: runs the timing of an op, and may watch it (`fomkit.bench.power`).
    `wall`, `gives_up`: the clock on the wall, and its moment after which no op begins however little of the budget
      is spent.
    `wanted`: the ops that were asked for so far, to judge by what became of them.
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
        """Give the time [s] that is left for ops, by the clock that times them; 0 once the wall time is over."""
        return 0.0 if self.wall_is_over() else self.ends - self.clock()

    def wall_is_over(self) -> bool:
        """Tell whether the wall time is over."""
        return self.wall() >= self.gives_up

    def measure_op(self, cells: Cells) -> Answer:
        """Have an op timed, whatever is known of it already."""
        if key_of(cells) not in self._byte:
            self._weigh([cells])
        cold = not self._byte[key_of(cells)] <= self.subject.near_byte
        request = {"cells": dict(cells), "effort": self.plan.effort(), "cold": cold}
        answer = self.timer.time_op(request, 30.0 + PATIENCE * self.plan.limit_s)
        return answer if "reason" in answer else {**answer, "state": "cold" if cold else "warm"}

    def _weigh(self, ops: Sequence[Cells]) -> None:
        """Find out how many bytes ops move; all at once, because a table costs as much for one as for many."""
        if ops:
            byte = add_costs(as_table(ops))["byte"].to_numpy(np.float64)
            self._byte.update(zip(map(key_of, ops), byte.tolist(), strict=True))

    def host(self) -> None:
        """Find out once what the framework takes for each op of a step."""
        if not self.journal.marked("host"):
            answer = self.timer.time_op({}, 60.0)
            if "reason" in answer:
                self.journal.say(f"launch cost: not timed, {answer['reason']}")
            else:
                self.journal.mark("host", **answer)

    def memory(self) -> None:
        """Have fresh pages and the way to a device measured, once; what is not known here comes back empty."""
        for name in ("allocator", "from_host"):
            if not self.journal.marked(name):
                answer = self.timer.time_op({"ask": name}, 60.0)
                if answer and "reason" not in answer:
                    self.journal.mark(name, **answer)

    def time_one(self, wanted: Wanted) -> None:
        """Have an op timed and keep what comes of it; look at the reference now and then."""
        if self.clock() - self._looked > EVERY_S:
            self.look()
        what = f"{wanted.cells['kind']} {wanted.cells['dtype']} {wanted.cells.get('pass_name', '')}".rstrip()
        self.advance(f"{what}; at most {max(0.0, self.left_s()):.0f} s of its own time left")
        self.journal.keep(wanted.cells, self.around(lambda: self.measure_op(wanted.cells)))

    def look(self) -> None:
        """Time the reference again, and read load and throttling."""
        moment = read_moment()
        self.journal.mark("moment", load=moment.load, throttled=moment.throttled)
        answer = self.measure_op(REFERENCE)
        if "reason" not in answer:
            self.journal.mark("reference", answer=answer)
        self._looked = self.clock()

    def pending(self, ops: Sequence[Wanted]) -> list[Wanted]:
        """Give the ops that nothing was heard of yet."""
        return [one for one in ops if key_of(one.cells) not in self.journal.answers]

    def time_all(self, ops: Sequence[Wanted]) -> None:
        """Have ops timed in random order, as far as the time goes."""
        self._time_shuffled(self.pending(ops), self.seed)

    def _time_shuffled(self, ops: list[Wanted], seed: int) -> None:
        self._weigh([one.cells for one in ops])
        random.Random(seed).shuffle(ops)  # noqa: S311 - an order, no secret
        for one in ops:
            if self.left_s() <= 0:
                return
            self.time_one(one)

    def _fitting(self, ops: list[Wanted]) -> tuple[list[Wanted], Outlook]:
        """Leave out ops whose operands the memory does not hold, and say so."""
        outlook = look_ahead(ops, machine_of(self.journal, self.subject))
        memory = self.subject.facts.get("memory_byte") or self.subject.host.memory_byte or np.inf
        large = outlook.byte > MEMORY_SHARE * memory
        for one, too_large, byte in zip(ops, large.tolist(), outlook.byte.tolist(), strict=True):
            if too_large:
                reason = f"its operands take {byte / 1e9:.3g} GB, more than a quarter of the memory"
                self.journal.keep(one.cells, {"reason": reason})
        return self.pending(ops), Outlook(*(column[~large] for column in outlook))

    def time_best(self, ops: Sequence[Wanted]) -> None:
        """Have ops timed that win most per second, best first, and predict anew as timings come in.

        Within a round the order is random: a machine that grows slower must not make one kind of op slow.
        """
        rounds = 0
        while (waiting := self.pending(ops)) and self.left_s() > 0:
            waiting, outlook = self._fitting(waiting)
            times = np.nan_to_num(outlook.time_s, nan=1e-3)
            costs = cost_s(times, self.plan.limit_s, self.plan.most, FLUSH_S)
            order = best_first(gains(waiting, outlook), costs)
            known = sum("reason" not in answer for _, answer in self.journal.answers.values())
            many = max(FEWEST_A_ROUND, round(ROUND * known))
            chosen: list[Wanted] = []
            spent = 0.0
            for place in order:
                if len(chosen) >= many or (chosen and spent + costs[place] > self.left_s()):
                    break
                chosen.append(waiting[place])
                spent += float(costs[place])
            self._time_shuffled(chosen, self.seed + rounds)
            rounds += 1
