"""Measuring between processes, from the first rank to the written profile."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.measure.journal import Journal, journal_path
from fomkit.measure.network_plan import PLANS, Case, NetworkPlan, cases
from fomkit.measure.network_ranks import LaunchedRank, LocalRanks, Ranks
from fomkit.measure.network_record import with_network
from fomkit.measure.ops import key_of
from fomkit.measure.written import begun_machine, write_machine
from fomkit.timings.measure_facts import read_facts, read_moment
from fomkit.timings.measure_ranks import Place

MENDS = 3
"""Times that lost ranks are started anew before the rest is given up."""
Tell = Callable[[str], None]
Key = tuple[str, ...]


@dataclass(frozen=True)
class NetworkAsked:
    """What the user asked of a measurement between processes.

    Attributes
    ----------
    output : Path
        Machine profile; with ``add`` one that is there and stays what it is besides.
    ranks : int
        Processes to start here, where no launcher started them.
    backends : tuple of str
        Of ``torch.distributed``.
    plan : str
        A key of `fomkit.measure.network_plan.PLANS`.
    place : Place or None
        Which of the launched processes this one is.
    environment : mapping
        Where the launcher says how the ranks meet.
    """

    output: Path
    ranks: int = 2
    backends: tuple[str, ...] = ("gloo",)
    plan: str = "default"
    add: bool = False
    resume: bool = False
    seed: int = 0
    name: str = ""
    place: Place | None = None
    environment: Mapping[str, str] | None = None

    @property
    def writes(self) -> bool:
        """Whether this process writes: only one of those that were launched does."""
        return self.place is None or self.place.rank == 0


@dataclass(frozen=True)
class NetworkMeasured:
    """What came of it: the machine, the files that were written, and whether the user ended it early."""

    machine: Machine
    files: tuple[Path, ...]
    interrupted: bool
    wall_s: float


def _open(asked: NetworkAsked, backend: str) -> Ranks:
    if asked.place is None:
        return LocalRanks(backend, asked.ranks)
    try:
        return LaunchedRank(backend, asked.place, asked.environment or {})
    except ValueError as error:
        raise FomkitError(f"measure --network ({asked.place.launcher})", str(error)) from error


def _journal(asked: NetworkAsked, backend: str, facts: Mapping[str, Any]) -> Journal:
    path = journal_path(asked.output.with_name(f"{asked.output.stem}.{backend}.yaml"))
    about = {"backend": backend, "ranks": len(facts["hosts"]), "torch": facts["library_version"]}
    journal = Journal(path, about)
    if asked.resume and asked.writes and path.exists():
        journal.resume()
    elif asked.writes:
        journal.begin()
    return journal


def ordered(plan: NetworkPlan, hosts: list[str], seed: int, done: Mapping[Key, int]) -> list[Case]:
    """Give the cases of a plan, all in random order and then all again, as often as its visits.

    Parameters
    ----------
    plan : NetworkPlan
    hosts : list of str
        Host of each rank.
    seed : int
    done : mapping
        Visits that an earlier run made, which are left out.
    """
    every, draw = cases(plan, hosts), random.Random(seed)  # noqa: S311 - an order, no secret
    found: list[Case] = []
    for visit in range(plan.visits):
        draw.shuffle(every)
        found += [one for one in every if done.get(key_of(one.cells), 0) <= visit]
    return found


def pooled(before: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Put what two visits gave together; a visit without times takes none away."""
    times = [*before.get("times", ()), *answer.get("times", ())]
    visits = {"visits": int(before.get("visits", 0)) + 1}
    return {**visits, "times": times} if times else {**visits, "reason": answer["reason"]}


def time_cases(ranks: Ranks, journal: Journal, wanted: list[Case], tell: Tell, *, keep: bool = True) -> None:
    """Have exchanges timed one after the other; lost ranks are mended, where they can be, and the next is asked.

    Each that cannot be timed keeps its reason; after `MENDS` losses all that is left does.
    """
    mends, gone = 0, ""
    for number, one in enumerate(wanted, 1):
        byte = float(one.cells["message_byte"])
        tell(f"{one.cells['collective']} of {byte:,.0f} bytes, {number} of {len(wanted)}")
        answer = {"reason": gone} if gone else ranks.ask(one.request)
        if keep:
            _, before = journal.answers.get(key_of(one.cells), ({}, {}))
            journal.keep(one.cells, pooled(before, answer))
        if answer.get("broken"):
            mends += 1
            if mends > MENDS or not ranks.mend():
                gone = f"the ranks were lost before ({answer['reason']})"


def _end_by_interrupt(*, launched: bool) -> None:
    """Let a launcher that ends its ranks, since one died, end them as the user would: what is there counts.

    Only the first time: what follows writes the profile.
    """
    if not launched:
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def _over(asked: NetworkAsked, backend: str, machine: Machine, tell: Tell) -> tuple[Machine, str, bool]:
    """Measure over one backend: the machine with it, why there is nothing, and whether the user ended it."""
    ranks, interrupted = _open(asked, backend), False
    try:
        if reason := ranks.facts.get("missing"):
            return machine, f"{backend}, not timed: {reason}", False
        journal = _journal(asked, backend, ranks.facts)
        # Launched ranks each go through the list, and only one of them knows what was kept.
        done = {key: answer["visits"] for key, (_, answer) in journal.answers.items() if "times" in answer}
        wanted = ordered(PLANS[asked.plan], ranks.facts["hosts"], asked.seed, {} if asked.place else done)
        try:
            _end_by_interrupt(launched=asked.place is not None)
            time_cases(ranks, journal, wanted, tell, keep=asked.writes)
        except KeyboardInterrupt:
            interrupted = True
    finally:
        ranks.close()
    if not asked.writes:
        return machine, "", interrupted
    launcher = asked.place.launcher if asked.place else "fomkit"
    found = with_network(machine, journal.answers.values(), backend, ranks.facts, launcher)
    if not interrupted:
        journal.close()
    return found, "", interrupted


def measure_network(asked: NetworkAsked, tell: Tell = lambda _text: None) -> NetworkMeasured | None:
    """Measure the links between processes and write them into a machine profile.

    Returns
    -------
    NetworkMeasured or None
        None in a launched process that does not write.

    Raises
    ------
    FomkitError
        When nothing at all can be exchanged here.
    """
    begun = time.monotonic()
    facts = read_facts()
    machine = begun_machine(asked.output, asked.name, facts.model or "measured network", add=asked.add)
    before, reasons, interrupted = read_moment().load, list[str](), False
    measured = False
    for backend in asked.backends:
        machine, reason, interrupted = _over(asked, backend, machine, tell)
        reasons += [reason] if reason else []
        measured |= not reason
        if interrupted:
            break
    if not measured:
        raise FomkitError("measure --network", f"nothing could be exchanged. {'; '.join(reasons)}.")
    if not asked.writes:
        return None
    load = read_moment().load
    if before is not None and load is not None:
        reasons.append(f"load around the network's measurement: {before:.2f} and {load:.2f} (/proc/loadavg)")
    files = write_machine(machine, asked.output, reasons)
    return NetworkMeasured(machine, tuple(files), interrupted, time.monotonic() - begun)
