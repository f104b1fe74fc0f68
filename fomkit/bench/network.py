"""Measuring between processes, from the first rank to the written profile; a Slurm job script that does it."""

from __future__ import annotations

import random
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from fomkit.bench.journal import Journal, journal_path
from fomkit.bench.libraries import Cells, cell, key_of
from fomkit.bench.network_ranks import LaunchedRank, LocalRanks, Place, Ranks, with_network
from fomkit.bench.record import begun_machine, read_facts, read_moment, write_machine
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.harness.torch.network import FORMS, SCHEMES, SEND, SERVER, STREAM, buffer_sizes, op_of
from fomkit.harness.torch.worker import Answer

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
ITEM_BYTE = 4
"""Of the numbers that are sent: fp32."""
LEAST_REPEATS = 12
"""In all visits together."""


class NetworkPlan(NamedTuple):
    """How much is measured between processes.

    `sizes`: messages [byte].
    `target`: half the 95 % interval of a median, as a share of it, that is narrow enough.
    `most`: repeats at most, in all visits together.
    `limit_s`: wall time [s] that these may take.
    `schemes`: payloads of several buffers that are sent too.
    `visits`: times that each exchange comes round. What disturbs a machine lasts for longer than a few repeats in
      a row, which then agree with each other and are all wrong.
    """

    sizes: tuple[int, ...]
    target: float
    most: int
    limit_s: float
    schemes: tuple[str, ...] = SCHEMES
    collectives: tuple[str, ...] = COLLECTIVES
    visits: int = 3

    def effort(self) -> dict[str, float | int]:
        """Give what each rank is told at one visit; see `fomkit.harness.torch.times.Effort`."""
        least, most = ceil(LEAST_REPEATS / self.visits), ceil(self.most / self.visits)
        return {"target": self.target, "least": least, "most": most, "limit_s": self.limit_s / self.visits}


PLANS: Mapping[str, NetworkPlan] = {
    "quick": NetworkPlan(tuple(4**power for power in range(2, 13)), 0.03, 30, 0.3),
    "default": NetworkPlan(tuple(2**power for power in range(4, 27)), 0.02, 60, 1.0),
    "full": NetworkPlan(tuple(2**power for power in range(2, 29)), 0.01, 100, 2.0),
}
"""The plans by name: messages up to 16, 64 and 256 MiB."""


class Case(NamedTuple):
    """An exchange to time: its cells of a row of timings, and what the ranks are asked."""

    cells: Cells
    request: Mapping[str, Any]


def _exchange_cells(collective: str, byte: float, ranks: int, link: str, op: str) -> Cells:
    return {
        "kind": "collective", "op": op, "dtype": "fp32", "engine": "vector", "collective": collective,
        "message_byte": cell(byte), "ranks": cell(ranks), "link": link,
    }  # fmt: skip


def _peers_of_first(hosts: list[str]) -> Iterator[tuple[str, int]]:
    """Give whom rank 0 exchanges messages with: one on its own node, one on another, as far as there are."""
    for tier, same in (("node", True), ("system", False)):
        found = [rank for rank in range(1, len(hosts)) if (hosts[rank] == hosts[0]) is same]
        if found:
            yield tier, found[0]


def cases(plan: NetworkPlan, hosts: list[str]) -> list[Case]:
    """List the exchanges of a plan between ranks on these hosts, short messages first.

    An interruption then leaves all kinds of exchange, and the start-up times of all.
    """
    ranks, effort = len(hosts), plan.effort()
    tier = "node" if len(set(hosts)) == 1 else "system"
    found = []
    for size in plan.sizes:
        for link, peer in _peers_of_first(hosts):
            for collective in (SEND, STREAM):
                request = {"collective": collective, "message_byte": size, "peer": peer, "effort": effort}
                found.append(Case(_exchange_cells(collective, size, 2, link, op_of(collective)), request))
        for collective in plan.collectives:
            part = max(ITEM_BYTE, round(size / ranks / ITEM_BYTE) * ITEM_BYTE)
            byte = part * ranks if collective in ("all_gather", "reduce_scatter") else size
            request = {"collective": collective, "message_byte": byte, "effort": effort}
            found.append(Case(_exchange_cells(collective, byte, ranks, tier, op_of(collective)), request))
    return found + list(_payloads(plan, hosts, tier))


def _payloads(plan: NetworkPlan, hosts: list[str], tier: str) -> Iterator[Case]:
    for scheme in plan.schemes:
        byte = sum(buffer_sizes(scheme))
        for form in FORMS:
            shared = {"scheme": scheme, "form": form, "effort": plan.effort()}
            for link, peer in _peers_of_first(hosts):
                cells = _exchange_cells(SEND, byte, 2, link, f"{SEND}/{scheme}/{form}")
                yield Case(cells, {**shared, "collective": SEND, "peer": peer})
            cells = _exchange_cells(SERVER, byte, len(hosts), tier, f"{SERVER}/{scheme}/{form}")
            yield Case(cells, {**shared, "collective": SERVER})


MENDS = 3
"""Times that lost ranks are started anew before the rest is given up."""
Reporter = Callable[[str], None]
Key = tuple[str, ...]


@dataclass(frozen=True)
class NetworkSpec:
    """What the user asked of a measurement between processes.

    `output`: Machine profile; with ``add`` one that is there and stays what it is besides.
    `ranks`: processes to start here, where no launcher started them.
    `backends`: of ``torch.distributed``.
    `plan`: a key of `fomkit.bench.network.PLANS`.
    `place`: which of the launched processes this one is.
    `environment`: where the launcher says how the ranks meet.
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


def _open(spec: NetworkSpec, backend: str) -> Ranks:
    if spec.place is None:
        return LocalRanks(backend, spec.ranks)
    try:
        return LaunchedRank(backend, spec.place, spec.environment or {})
    except ValueError as error:
        raise FomkitError(f"measure --network ({spec.place.launcher})", str(error)) from error


def _journal(spec: NetworkSpec, backend: str, facts: Mapping[str, Any]) -> Journal:
    path = journal_path(spec.output.with_name(f"{spec.output.stem}.{backend}.yaml"))
    about = {"backend": backend, "ranks": len(facts["hosts"]), "torch": facts["library_version"]}
    journal = Journal(path, about)
    if spec.resume and spec.writes and path.exists():
        journal.resume()
    elif spec.writes:
        journal.begin()
    return journal


def ordered(plan: NetworkPlan, hosts: list[str], seed: int, done: Mapping[Key, int]) -> list[Case]:
    """Give the cases of a plan, all in random order and then all again, as often as its visits.

    `hosts`: host of each rank; `done`: visits that an earlier run made, which are left out.
    """
    every, draw = cases(plan, hosts), random.Random(seed)  # noqa: S311 - an order, no secret
    found: list[Case] = []
    for visit in range(plan.visits):
        draw.shuffle(every)
        found += [one for one in every if done.get(key_of(one.cells), 0) <= visit]
    return found


def pooled(before: Mapping[str, Any], answer: Mapping[str, Any]) -> Answer:
    """Put what two visits gave together; a visit without times takes none away."""
    times = [*before.get("times", ()), *answer.get("times", ())]
    visits = {"visits": int(before.get("visits", 0)) + 1}
    return {**visits, "times": times} if times else {**visits, "reason": answer["reason"]}


def time_cases(ranks: Ranks, journal: Journal, wanted: list[Case], report: Reporter, *, keep: bool = True) -> None:
    """Have exchanges timed one after the other; lost ranks are mended, where they can be, and the next is asked.

    Each that cannot be timed keeps its reason; after `MENDS` losses all that is left does.
    """
    mends, gone = 0, ""
    for number, one in enumerate(wanted, 1):
        byte = float(one.cells["message_byte"])
        report(f"{one.cells['collective']} of {byte:,.0f} bytes, {number} of {len(wanted)}")
        answer = {"reason": gone} if gone else ranks.run_exchange(one.request)
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


def _over(spec: NetworkSpec, backend: str, machine: Machine, report: Reporter) -> tuple[Machine, str, bool]:
    """Measure over one backend: the machine with it, why there is nothing, and whether the user ended it."""
    ranks, interrupted = _open(spec, backend), False
    try:
        if reason := ranks.facts.get("missing"):
            return machine, f"{backend}, not timed: {reason}", False
        journal = _journal(spec, backend, ranks.facts)
        # Launched ranks each go through the list, and only one of them knows what was kept.
        done = {key: answer["visits"] for key, (_, answer) in journal.answers.items() if "times" in answer}
        wanted = ordered(PLANS[spec.plan], ranks.facts["hosts"], spec.seed, {} if spec.place else done)
        try:
            _end_by_interrupt(launched=spec.place is not None)
            time_cases(ranks, journal, wanted, report, keep=spec.writes)
        except KeyboardInterrupt:
            interrupted = True
    finally:
        ranks.close()
    if not spec.writes:
        return machine, "", interrupted
    launcher = spec.place.launcher if spec.place else "fomkit"
    found = with_network(machine, journal.answers.values(), backend, ranks.facts, launcher)
    if not interrupted:
        journal.close()
    return found, "", interrupted


def measure_network(spec: NetworkSpec, report: Reporter = lambda _text: None) -> NetworkMeasured | None:
    """Measure the links between processes and write them into a machine profile.

    Gives None in a launched process that does not write.
    """
    begun = time.monotonic()
    facts = read_facts()
    machine = begun_machine(spec.output, spec.name, facts.model or "measured network", add=spec.add)
    before, reasons, interrupted = read_moment().load, list[str](), False
    measured = False
    for backend in spec.backends:
        machine, reason, interrupted = _over(spec, backend, machine, report)
        reasons += [reason] if reason else []
        measured |= not reason
        if interrupted:
            break
    if not measured:
        raise FomkitError("measure --network", f"nothing could be exchanged. {'; '.join(reasons)}.")
    if not spec.writes:
        return None
    load = read_moment().load
    if before is not None and load is not None:
        reasons.append(f"load around the network's measurement: {before:.2f} and {load:.2f} (/proc/loadavg)")
    files = write_machine(machine, spec.output, reasons)
    return NetworkMeasured(machine, tuple(files), interrupted, time.monotonic() - begun)


MINUTES = {"quick": 10, "default": 20, "full": 60}
"""Time that is asked of Slurm [min], by plan; starting PyTorch on many nodes takes a part of it."""


class Job(NamedTuple):
    """What the job is to run on.

    `nodes`, `ranks`: nodes, and processes on all of them together.
    `plan`: quick, default or full.
    `output`: Machine profile that rank 0 writes, as the job's folder sees it.
    `add`: whether it adds to a profile that is there.
    """

    nodes: int
    ranks: int
    plan: str
    backends: tuple[str, ...]
    output: str
    add: bool


def _command(job: Job) -> str:
    words: Sequence[str] = (
        "fomkit", "measure", "--network", *([] if job.plan == "default" else [f"--{job.plan}"]),
        *(word for backend in job.backends for word in ("--backend", backend)), "-o", job.output,
        *(["--add"] if job.add else []),
    )  # fmt: skip
    return " ".join(map(shlex.quote, words))


def slurm_job(job: Job) -> str:
    """Write the script; ``sbatch FILE`` submits it.

    >>> text = slurm_job(Job(2, 8, "quick", ("nccl",), "here.yaml", False))
    >>> [line for line in text.splitlines() if "tasks-per-node" in line or line.startswith("srun")]
    ['#SBATCH --ntasks-per-node=4', 'srun fomkit measure --network --quick --backend nccl -o here.yaml']
    """
    if job.ranks % job.nodes or job.ranks < 2:
        raise FomkitError(
            f"--ranks {job.ranks} --nodes {job.nodes}", "each node needs as many ranks as the others, 2 at least "
            "in all. Give, for example, '--nodes 2 --ranks 8'.",
        )  # fmt: skip
    tasks = job.ranks // job.nodes
    gpus = [f"#SBATCH --gpus-per-node={tasks}"] if "nccl" in job.backends else []
    minutes = MINUTES[job.plan]
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=fomkit-network",
        f"#SBATCH --nodes={job.nodes}",
        f"#SBATCH --ntasks-per-node={tasks}",
        *gpus,
        "#SBATCH --exclusive",
        f"#SBATCH --time={minutes // 60:02d}:{minutes % 60:02d}:00",
        "#SBATCH --output=%x-%j.log",
        "",
        "# Made by 'fomkit measure --network --slurm'. Add your account and partition above, and here what makes",
        "# fomkit and PyTorch available on the nodes, for example: source .venv/bin/activate",
        "",
        "set -euo pipefail",
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        'MASTER_PORT="$((29500 + SLURM_JOB_ID % 2000))"',
        "export MASTER_ADDR MASTER_PORT OMP_NUM_THREADS=1",
        f"srun {_command(job)}",
    ]
    return "\n".join(lines) + "\n"
