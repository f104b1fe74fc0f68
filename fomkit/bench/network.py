"""Measure exchanges between processes and write the links to a machine profile; write a Slurm job for it.

`measure_network` runs the whole measurement; `slurm_job` writes a job script that runs it on a cluster.
"""

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
from fomkit.bench.record import base_machine, read_facts, read_moment, write_machine
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.harness.torch.network import FORMS, SCHEMES, SEND, SERVER, STREAM, buffer_sizes, op_of
from fomkit.harness.torch.worker import Answer

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
ITEM_BYTE = 4
"""Byte of one number in a message, fp32."""
MIN_REPEATS = 12
"""Least number of repeats of an exchange, in all visits together."""


class NetworkPlan(NamedTuple):
    """The extent of a measurement between processes.

    `sizes`: messages [byte].
    `target`: half the 95 % interval of a median, relative to the median, at which repeats stop.
    `most`: largest number of repeats, in all visits together.
    `schemes`: payloads of several buffers that are also sent.
    `visits`: number of separate visits to each exchange. A disturbance of the machine outlasts a few successive
      repeats, which would then agree with each other and all be wrong.
    """

    sizes: tuple[int, ...]
    target: float
    most: int
    limit_s: float
    schemes: tuple[str, ...] = SCHEMES
    collectives: tuple[str, ...] = COLLECTIVES
    visits: int = 3

    def effort(self) -> dict[str, float | int]:
        """Return the effort of each rank at one visit; see `fomkit.harness.torch.times.Effort`."""
        least, most = ceil(MIN_REPEATS / self.visits), ceil(self.most / self.visits)
        return {"target": self.target, "least": least, "most": most, "limit_s": self.limit_s / self.visits}


PLANS: Mapping[str, NetworkPlan] = {
    "quick": NetworkPlan(tuple(4**power for power in range(2, 13)), 0.03, 30, 0.3),
    "default": NetworkPlan(tuple(2**power for power in range(4, 27)), 0.02, 60, 1.0),
    "full": NetworkPlan(tuple(2**power for power in range(2, 29)), 0.01, 100, 2.0),
}
"""The plans by name: messages up to 16, 64 and 256 MiB."""


class Case(NamedTuple):
    """An exchange to time: its cells of a row of timings, and the request to the ranks."""

    cells: Cells
    request: Mapping[str, Any]


def _exchange_cells(collective: str, byte: float, ranks: int, link: str, op: str) -> Cells:
    return {
        "kind": "collective", "op": op, "dtype": "fp32", "engine": "vector", "collective": collective,
        "message_byte": cell(byte), "ranks": cell(ranks), "link": link,
    }  # fmt: skip


def _peers_of_first(hosts: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the tier and the peer of rank 0: one peer on its own node and one on another, if there are any."""
    for tier, same in (("node", True), ("system", False)):
        found = [rank for rank in range(1, len(hosts)) if (hosts[rank] == hosts[0]) is same]
        if found:
            yield tier, found[0]


def cases(plan: NetworkPlan, hosts: list[str]) -> list[Case]:
    """List the exchanges of a plan between ranks on these hosts, by size; `ordered` draws their order in a run."""
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


MAX_RESTARTS = 3
"""Largest number of restarts of lost ranks; at the next loss the remaining exchanges are given up."""
Reporter = Callable[[str], None]
Key = tuple[str, ...]


@dataclass(frozen=True)
class NetworkSpec:
    """The options of a measurement between processes.

    `output`: machine profile; with ``add`` an existing one, whose other content is kept.
    `ranks`: number of processes to start here, if no launcher started them.
    `place`: this process among the launched ones.
    `environment`: environment variables in which the launcher states how the ranks meet.
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
        """Whether this process writes files: of launched processes only rank 0 does."""
        return self.place is None or self.place.rank == 0


@dataclass(frozen=True)
class NetworkMeasured:
    """The result: the machine, the files written, and whether the user ended the measurement early."""

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
    """Return the cases of a plan, each visit in a new random order, without those of an earlier run (``done``)."""
    every, draw = cases(plan, hosts), random.Random(seed)  # noqa: S311 - an order, no secret
    found: list[Case] = []
    for visit in range(plan.visits):
        draw.shuffle(every)
        found += [one for one in every if done.get(key_of(one.cells), 0) <= visit]
    return found


def pooled(before: Mapping[str, Any], answer: Mapping[str, Any]) -> Answer:
    """Add the times of a visit to those of earlier ones; a visit without times leaves those in place."""
    times = [*before.get("times", ()), *answer.get("times", ())]
    visits = {"visits": int(before.get("visits", 0)) + 1}
    return {**visits, "times": times} if times else {**visits, "reason": answer["reason"]}


def time_cases(ranks: Ranks, journal: Journal, wanted: list[Case], report: Reporter, *, keep: bool = True) -> None:
    """Time exchanges in turn; after a loss restart the ranks, if possible, and go on with the next exchange.

    An exchange that cannot be timed has its reason recorded; so have all that follow a loss after which the ranks
    cannot be restarted, or after `MAX_RESTARTS` restarts.
    """
    restarts, gone = 0, ""
    for number, one in enumerate(wanted, 1):
        byte = float(one.cells["message_byte"])
        report(f"{one.cells['collective']} of {byte:,.0f} bytes, {number} of {len(wanted)}")
        answer = {"reason": gone} if gone else ranks.run_exchange(one.request)
        if keep:
            _, before = journal.answers.get(key_of(one.cells), ({}, {}))
            journal.keep(one.cells, pooled(before, answer))
        if answer.get("broken"):
            restarts += 1
            if restarts > MAX_RESTARTS or not ranks.restart():
                gone = f"the ranks were lost before ({answer['reason']})"


def _end_by_interrupt(*, launched: bool) -> None:
    """Handle the first SIGTERM as an interrupt by the user, so that the profile is written with the times so far.

    A launcher sends it to all ranks when one died. Later ones are ignored while the profile is written.
    """
    if not launched:
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def _measure(spec: NetworkSpec, backend: str, machine: Machine, report: Reporter) -> tuple[Machine, str, bool]:
    """Measure over one backend; return the machine with links, why there are none, whether the user ended it."""
    ranks, interrupted = _open(spec, backend), False
    try:
        if reason := ranks.facts.get("missing"):
            return machine, f"{backend}, not timed: {reason}", False
        journal = _journal(spec, backend, ranks.facts)
        # Launched ranks must all run the same list, and only one of them has the journal.
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
    """Measure the links between processes and write them into a machine profile; None in processes that do not."""
    begun = time.monotonic()
    facts = read_facts()
    machine = base_machine(spec.output, spec.name, facts.model or "measured network", add=spec.add)
    before, reasons, interrupted = read_moment().load, list[str](), False
    measured = False
    for backend in spec.backends:
        machine, reason, interrupted = _measure(spec, backend, machine, report)
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
"""Time requested from Slurm [min], by plan, including the start of PyTorch on many nodes."""


def slurm_job(nodes: int, ranks: int, plan: str, backends: Sequence[str], output: str, *, add: bool) -> str:
    """Write the script; ``sbatch FILE`` submits it.

    `nodes`, `ranks`: number of nodes, and of processes on all of them together; `plan`: quick, default or full;
    `backends`: backends of ``torch.distributed``; `output`: path of the machine profile that rank 0 writes,
    relative to the job's folder; `add`: whether the job adds to an existing profile.

    >>> text = slurm_job(2, 8, "quick", ["nccl"], "here.yaml", add=False)
    >>> [line for line in text.splitlines() if "tasks-per-node" in line or line.startswith("srun")]
    ['#SBATCH --ntasks-per-node=4', 'srun fomkit measure --network --quick --backend nccl -o here.yaml']
    """
    if ranks % nodes or ranks < 2:
        raise FomkitError(
            f"--ranks {ranks} --nodes {nodes}", "each node needs the same number of ranks, in all at "
                                                        "least 2. Give, for example, '--nodes 2 --ranks 8'.",
        )  # fmt: skip
    command = [
        "fomkit", "measure", "--network", *([] if plan == "default" else [f"--{plan}"]),
        *(word for backend in backends for word in ("--backend", backend)), "-o", output, *["--add"] * add,
    ]  # fmt: skip
    tasks, minutes = ranks // nodes, MINUTES[plan]
    gpus = [f"#SBATCH --gpus-per-node={tasks}"] if "nccl" in backends else []
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=fomkit-network",
        f"#SBATCH --nodes={nodes}",
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
        f"srun {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"
