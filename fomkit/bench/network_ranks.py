"""Run the ranks of a measurement, started here or by a launcher, and add their timings to a machine profile."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fomkit.bench.journal import in_order, noise_of, row_of_times, spread_notes
from fomkit.bench.libraries import Cells, Child
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Link, Machine, Tier
from fomkit.core.units import count_text
from fomkit.files.child_process import child_command
from fomkit.harness.torch.cases import Summary, summarise
from fomkit.harness.torch.network import BUFFERS, SEND, SERVER, SIZES_BYTE, Rank, op_of
from fomkit.harness.torch.worker import Answer
from fomkit.plan.coverage import MEASURED
from fomkit.readers.tables.links import Timed, links_of

Answers = Iterable[tuple[Cells, Mapping[str, Any]]]


def _exchange_note(cells: Cells, found: Summary) -> str:
    parts = [*spread_notes(found)]
    if "/" in cells["op"]:
        sizes = ", ".join(f"{byte:,}" for byte in SIZES_BYTE.values())
        _, scheme, form = cells["op"].split("/")
        parts.append(f"{BUFFERS} buffers of {sizes} bytes, {scheme}, {form}")
    if cells["collective"] == SERVER:
        rate = (float(cells["ranks"]) - 1) / found.median_s
        parts.append(f"{rate:.4g} exchanges/s of {cells['ranks']} ranks, one of them the server")
    return "; ".join(parts)


def link_of(answers: Answers, tier: Tier, channel: str, source: str) -> tuple[Link, ...]:
    """Fit the links of one tier to messages sent forth and back."""
    sent = (one for one in answers if one[0]["op"] == op_of(SEND) and one[0]["link"] == tier)
    found = [(float(cells["message_byte"]), summarise(one["times"])) for cells, one in sent if "times" in one]
    timed = [(byte, one.median_s, min(one.width, 1.0)) for byte, one in found]
    columns = list(zip(*timed, strict=True)) if timed else [(), (), ()]
    return links_of(Timed(*columns), tier, channel, source)


def _merged_rows(machine: Machine, channel: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the machine's timings with the new rows, which replace measured rows of the same exchange."""
    old = machine.timings
    if not len(old):
        return rows
    names = ["harness", "library", "kind"]
    own = pd.Series(True, old.index)
    for name, value in zip(names, (MEASURED, channel, "collective"), strict=True):
        own &= (old[name] == value) if name in old.columns else False
    if own.any():
        keys = ["collective", "op", "message_byte", "ranks", "link"]
        seen = pd.MultiIndex.from_frame(rows[keys])
        own &= pd.MultiIndex.from_frame(old[keys].fillna({"op": "", "collective": "", "link": ""})).isin(seen)
    return in_order(pd.concat([old[~own], rows], ignore_index=True))


def with_network(
    machine: Machine, answers: Answers, channel: str, facts: Mapping[str, Any], launcher: str
) -> Machine:
    """Add the timings of one channel to a machine; they replace an earlier measurement of the same exchanges.

    `answers` (cells, answer); `channel`: backend that carried the messages; `facts`: ``hosts``, ``devices`` and
    ``library_version``, as the ranks reported them; `launcher`: program that started the ranks.
    """
    answers = list(answers)
    hosts, version = facts["hosts"], str(facts["library_version"])
    nodes = len(set(hosts))
    where = f"{len(hosts)} ranks on {count_text(nodes, 'node')}, started by {launcher}"
    source = f"measured here, {channel} of torch {version}, {where}"
    library = {"library": channel, "library_version": f"torch {version}"}
    timed = [(cells, summarise(answer["times"])) for cells, answer in answers if "times" in answer]
    rows = [{**row_of_times(*one), **library, "note": _exchange_note(*one)} for one in timed]
    links = [one for tier in ("node", "system") for one in link_of(answers, tier, channel, source)]
    new = {(link.tier, link.channel) for link in links}
    kept = [link for link in machine.links if (link.tier, link.channel) not in new]
    count, noisy, width = noise_of(answer["times"] for _, answer in answers if "times" in answer)
    noise = (
        f"{channel}: noise: half of {count} exchanges have intervals within ±{width:.1%}; {noisy} are wider than "
        "±10 %"
    )
    notes = [f"network: {source}", noise if rows else ""]
    skipped = Counter((cells["collective"], str(one["reason"])) for cells, one in answers if "reason" in one)
    notes += [f"{channel}, not timed: {count} {which}, {reason}" for (which, reason), count in skipped.items()]
    if rows and not links:
        notes.append(f"{channel}, no link: its messages do not separate start-up time from rate")
    before = [
        note
        for note in machine.notes
        if not note.startswith((f"{channel}: noise", f"{channel}, not timed", f"{channel}, no link"))
    ]
    return replace(
        machine,
        timings=_merged_rows(machine, channel, pd.DataFrame(rows)) if rows else machine.timings,
        links=(*kept, *links),
        notes=tuple(dict.fromkeys(filter(None, (*before, *notes)))),
    )


BASE_PORT, PORTS = 29_500, 2_000
"""First port and number of ports for jobs without a stated port; the job's number selects one."""


class Place(NamedTuple):
    """The place of a process in a launch.

    `rank`, `ranks`: number of the process, from 0, and number of processes.
    `local_rank`, `local_ranks`: the same on its node.
    `launcher`: torchrun, Open MPI, MPICH or Slurm.
    `job`: number of the launch; "" if the launcher does not state it.
    """

    rank: int
    ranks: int
    local_rank: int
    local_ranks: int
    launcher: str
    job: str = ""


_LAUNCHERS: tuple[tuple[str, tuple[str, str, str, str], tuple[str, ...]], ...] = (
    ("torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("TORCHELASTIC_RUN_ID",)),
    (
        "Open MPI",
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
        ("SLURM_JOB_ID", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"),
    ),
    ("MPICH", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), ("SLURM_JOB_ID", "PMI_JOBID")),
    # A shell in an allocation also has SLURM_PROCID, but no SLURM_STEP_NUM_TASKS: only srun sets that.
    ("Slurm", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""), ("SLURM_JOB_ID",)),
)
"""Launchers, their variables for rank, ranks, local rank and local ranks, and for the number of the launch."""


def _variable(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else default


def place_of(environment: Mapping[str, str]) -> Place | None:
    """Read the place of this process from the environment; None if no launcher started it.

    >>> place_of({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    Place(rank=1, ranks=4, local_rank=1, local_ranks=2, launcher='torchrun', job='')
    >>> place_of({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}) is None
    True
    """
    for launcher, (rank, ranks, local, local_ranks), jobs in _LAUNCHERS:
        if environment.get(rank, "").isdigit() and environment.get(ranks, "").isdigit():
            number, count = int(environment[rank]), int(environment[ranks])
            # Slurm states the tasks of its nodes: 4(x2) is 4 on each of two.
            tasks = environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(",")[0].partition("(")[0]
            here = _variable(environment, local_ranks, 0) or (int(tasks) if tasks.isdigit() else count)
            job = next((environment[name] for name in jobs if environment.get(name)), "")
            return Place(number, count, _variable(environment, local, number), here, launcher, job)
    return None


def meeting_of(place: Place, environment: Mapping[str, str]) -> str:
    """Return the address at which the ranks of a launch meet, for ``torch.distributed``.

    Raises ValueError when they are on several nodes and MASTER_ADDR does not name the first one.
    """
    if place.launcher == "torchrun" and environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"):
        return "env://"
    address = environment.get("MASTER_ADDR", "")
    if not address and place.local_ranks < place.ranks:
        raise ValueError(
            "the ranks are on several nodes and MASTER_ADDR is not set. Set it to the name of the first node."
        )
    digits = "".join(letter for letter in place.job if letter.isdigit())
    port = environment.get("MASTER_PORT") or str(BASE_PORT + int(digits or "0") % PORTS)
    return f"tcp://{address or '127.0.0.1'}:{port}"


LIMIT_S = 60.0
"""Time [s] after which an exchange that does not end counts as failed."""
GONE = "the process that timed it"
"""Prefix of `Child`'s reason for a process without an answer."""
GRACE_S = 15.0
"""Additional time [s] to wait for a rank, so that the other ranks detect a failure first."""


class LocalRanks:
    """Ranks as processes on this machine; `restart` starts all of them again after a loss.

    `backend`: backend of ``torch.distributed``.
    `limit_s`: time [s] after which an exchange that does not end counts as failed.
    """

    def __init__(self, backend: str, ranks: int, limit_s: float = LIMIT_S) -> None:
        self._backend, self._ranks, self._limit_s = backend, ranks, limit_s
        self._folder = tempfile.TemporaryDirectory(prefix="fomkit-", ignore_cleanup_errors=True)
        self._starts = 0
        self.children: list[Child] = []
        self.facts: Answer = {}
        try:
            self._start()
        except BaseException:  # an interrupt too must not leave processes running
            self.close()
            raise

    def _start(self) -> None:
        meeting = Path(self._folder.name, f"meeting-{self._starts}").as_uri()
        self._starts += 1
        self.children = [
            Child(
                child_command("fomkit.harness.torch.network"),
                {"backend": self._backend, "rank": rank, "local_rank": rank, "ranks": self._ranks, "threads": 1,
                 "meeting": meeting, "limit_s": self._limit_s},
            )
            for rank in range(self._ranks)
        ]  # fmt: skip
        # The ranks meet while they start, so all must start at once.
        self._on_all_ranks(Child.__enter__)
        stated = [child.facts for child in self.children]
        self.facts = next((one for one in stated if "missing" in one), stated[0])

    def _on_all_ranks(self, act: Callable[[Child], Any]) -> list[Any]:
        with ThreadPoolExecutor(self._ranks) as pool:
            return list(pool.map(act, self.children))

    def run_exchange(self, request: Mapping[str, Any]) -> Answer:
        """Run an exchange on all ranks."""
        limit_s = self._limit_s + GRACE_S
        answers: list[Answer] = self._on_all_ranks(lambda child: child.time_op(request, limit_s))
        lost = [rank for rank, one in enumerate(answers) if one.get("reason", "").startswith(GONE)]
        if lost:
            return {"reason": f"rank {lost[0]}: {answers[lost[0]]['reason']}", "broken": True}
        failed = [answer for answer in answers if "reason" in answer]
        return failed[0] if failed else answers[0]

    def restart(self) -> bool:
        """Restart all ranks; return whether that worked."""
        self._end()
        try:
            self._start()
        except FomkitError:
            return False
        return "missing" not in self.facts

    def _end(self) -> None:
        for child in self.children:
            child.close()

    def close(self) -> None:
        """End all ranks."""
        self._end()
        self._folder.cleanup()


class LaunchedRank:
    """The current process as one of the ranks that torchrun, MPI or Slurm started.

    `environment`: environment variables in which the launcher states how the ranks meet.
    """

    def __init__(self, backend: str, place: Place, environment: Mapping[str, str]) -> None:
        self._rank = Rank(
            {"backend": backend, "rank": place.rank, "ranks": place.ranks, "local_rank": place.local_rank,
             "meeting": meeting_of(place, environment), "limit_s": LIMIT_S}
        )  # fmt: skip
        try:
            self.facts: Answer = self._rank.join()
        except (RuntimeError, OSError) as problem:
            self.facts = {"missing": f"the ranks did not meet ({str(problem).splitlines()[0][:160]})"}

    def run_exchange(self, request: Mapping[str, Any]) -> Answer:
        """Run this rank's part of an exchange."""
        return self._rank.time_exchange(request)

    def restart(self) -> bool:
        """Return False: only the launcher can restart ranks."""
        return False

    def close(self) -> None:
        """Leave the group of ranks."""
        self._rank.leave()


Ranks = LocalRanks | LaunchedRank
"""Ranks that time exchanges: answers have ``times`` or ``reason``, and ``broken`` if the ranks are lost."""
