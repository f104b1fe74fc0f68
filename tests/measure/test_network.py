"""Exchanges between real processes over gloo: timings, lost ranks, launchers, the written profile."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.bench import network
from fomkit.bench.journal import Journal
from fomkit.bench.libraries import key_of
from fomkit.bench.network_ranks import LocalRanks, with_network
from fomkit.bench.record import base_machine
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError

pytest.importorskip("torch", reason="PyTorch is not installed")

SIZES = (64, 1024, 4096, 2**20, 2**23)
TINY = network.NetworkPlan(SIZES, 0.5, 12, 0.05, visits=2)
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ranks():
    """Start two ranks that serve all tests of this file, and are lost only in the last test."""
    found = LocalRanks("gloo", 2, limit_s=20.0)
    yield found
    found.close()


@pytest.fixture(scope="module")
def answers(ranks, tmp_path_factory: pytest.TempPathFactory):
    """Time all exchanges; repeat if other work on the machine hides the dependence of time on size."""
    for _ in range(3):
        journal = Journal(tmp_path_factory.mktemp("network") / "kept.jsonl", {"ranks": 2})
        journal.begin()
        network.time_cases(ranks, journal, network.ordered(TINY, ranks.facts["hosts"], 0, {}), lambda _text: None)
        empty = base_machine(Path("here.yaml"), "", "a machine", add=False)
        if with_network(empty, journal.answers.values(), "gloo", ranks.facts, "fomkit").links:
            break
    return journal.answers


def test_every_exchange_is_timed_and_right(answers) -> None:
    assert len(answers) == 5 * (2 + 4) + 3 * 2 * 2
    wrong = {key: answer for key, (_, answer) in answers.items() if "times" not in answer}
    assert not wrong
    assert all(answer["visits"] == 2 and len(answer["times"]) >= 12 for _, answer in answers.values())
    assert all(0 < one < 5 for _, answer in answers.values() for one in answer["times"])


@pytest.fixture(scope="module")
def machine(answers, ranks):
    empty = base_machine(Path("here.yaml"), "", "a machine", add=False)
    return with_network(empty, answers.values(), "gloo", ranks.facts, "fomkit")


def test_timings_say_what_was_sent(machine) -> None:
    rows = machine.timings
    assert set(rows["kind"]) == {"collective"}
    assert set(rows["library"]) == {"gloo"}
    assert set(rows["link"]) == {"node"}
    reduced = rows[rows["collective"] == "all_reduce"]
    assert set(reduced["op"]) == {""}
    assert sorted(reduced["message_byte"]) == list(SIZES)
    payload = rows[rows["op"] == "parameter_server/skew/pickled"].iloc[0]
    assert "10 buffers of 12, 10,000, 1,000,000 bytes, skew, pickled" in payload["note"]
    assert "exchanges/s of 2 ranks, one of them the server" in payload["note"]
    assert set(rows.loc[rows["collective"] == "broadcast", "op"]) == {"c10d::broadcast_"}


def test_links_are_fitted_and_survive_the_file(machine, tmp_path: Path) -> None:
    from fomkit.bench.record import write_machine

    assert machine.links
    for link in machine.links:
        assert (link.tier, link.channel, link.direction, link.basis) == ("node", "gloo", "each", "measured")
        low, high = link.alpha_range_s
        assert 0 <= low <= link.alpha_s <= high < 1
        assert link.range_byte_per_s[0] <= link.byte_per_s <= link.range_byte_per_s[1]
    write_machine(machine, tmp_path / "here.yaml", [])
    assert fomkit.machine(tmp_path / "here.yaml").links == machine.links


def test_a_second_measurement_replaces_the_first_and_nothing_else(machine, answers, ranks) -> None:
    again = with_network(machine, answers.values(), "gloo", ranks.facts, "fomkit")
    assert len(again.timings) == len(machine.timings)
    assert again.links == machine.links
    other = with_network(machine, answers.values(), "nccl", ranks.facts, "fomkit")
    assert len(other.timings) == 2 * len(machine.timings)
    assert len(other.links) == 2 * len(machine.links)


def test_a_killed_rank_costs_its_exchange_only(ranks, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "kept.jsonl", {})
    journal.begin()
    one, two, *_ = network.cases(TINY._replace(schemes=()), ranks.facts["hosts"])
    long = one._replace(
        request={
            **one.request,
            "message_byte": 4e6,
            "effort": {"target": 0.0, "least": 10**6, "most": 10**6, "limit_s": 60.0},
        }
    )
    victim = ranks.children[1]._process.pid
    threading.Timer(0.5, os.kill, (victim, signal.SIGKILL)).start()
    begun = time.monotonic()
    network.time_cases(ranks, journal, [long, two], lambda _text: None)
    assert time.monotonic() - begun < 30
    lost, kept = journal.answers[key_of(one.cells)][1], journal.answers[key_of(two.cells)][1]
    assert lost["reason"] == "rank 1: the process that timed it was ended by SIGKILL, perhaps for lack of memory"
    assert kept["times"]


class Broken:
    """Ranks that lose each other at every exchange and finally cannot be restarted."""

    def __init__(self) -> None:
        self.exchanges, self.facts = 0, {"hosts": ["a", "a"]}

    def run_exchange(self, _request):
        self.exchanges += 1
        return {"reason": "Timed out waiting 20000ms", "broken": True}

    def restart(self) -> bool:
        return True

    def close(self) -> None:
        pass


def test_what_is_lost_again_and_again_is_given_up(tmp_path: Path) -> None:
    journal, ranks = Journal(tmp_path / "kept.jsonl", {}), Broken()
    wanted = network.cases(TINY, ["a", "a"])
    network.time_cases(ranks, journal, wanted, lambda _text: None)
    assert ranks.exchanges == 4
    reasons = [answer["reason"] for _, answer in journal.answers.values()]
    assert reasons[0] == "Timed out waiting 20000ms"
    assert reasons[-1] == "the ranks were lost before (Timed out waiting 20000ms)"
    facts = {**ranks.facts, "library_version": "9.9"}
    machine = with_network(
        base_machine(Path("x.yaml"), "", "x", add=False), journal.answers.values(), "gloo", facts, "fomkit"
    )
    assert not len(machine.timings)
    assert any(note.startswith("gloo, not timed: ") and "Timed out" in note for note in machine.notes)


def test_visits_are_pooled_and_a_lost_one_takes_nothing_away() -> None:
    first = network.pooled({}, {"times": [1.0, 2.0]})
    assert network.pooled(first, {"reason": "lost"}) == {"visits": 2, "times": [1.0, 2.0]}
    assert network.pooled(first, {"times": [3.0]})["times"] == [1.0, 2.0, 3.0]
    assert network.pooled({}, {"reason": "lost"}) == {"visits": 1, "reason": "lost"}


def test_ranks_of_two_nodes_are_measured_within_and_between() -> None:
    listed = network.cases(TINY, ["a", "a", "b", "b"])
    sent = {(one.cells["link"], one.request["peer"]) for one in listed if one.cells["collective"] == "send_recv"}
    assert sent == {("node", 1), ("system", 2)}
    reduced = [one for one in listed if one.cells["collective"] == "all_reduce"]
    assert {(one.cells["link"], one.cells["ranks"]) for one in reduced} == {("system", "4")}
    gathered = [one for one in network.cases(TINY, ["a"] * 3) if one.cells["collective"] == "all_gather"]
    assert all(int(one.cells["message_byte"]) % 12 == 0 for one in gathered)


def test_a_missing_backend_is_told(tmp_path: Path) -> None:
    with pytest.raises(FomkitError, match=r"nothing could be exchanged\. mpi, not timed: .* without mpi"):
        network.measure_network(network.NetworkSpec(tmp_path / "here.yaml", backends=("mpi",)))
    assert not list(tmp_path.iterdir())


def _free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def _launch(folder: Path, **more: str) -> list[subprocess.CompletedProcess[str]]:
    """Run two ranks as Open MPI's mpirun does: by its variables."""
    shared = {
        **os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_PORT": _free_port(),
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **more,
    }  # fmt: skip
    command = [sys.executable, str(HERE / "network_rank.py"), "measure", "--network", "--quick", "-o", "here.yaml"]
    started = [
        subprocess.Popen(
            command,
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**shared, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    told = [one.communicate(timeout=120) for one in started]
    return [
        subprocess.CompletedProcess(command, one.returncode, *texts)
        for one, texts in zip(started, told, strict=True)
    ]


def test_launched_by_mpirun_rank_0_alone_writes_and_a_dead_rank_leaves_what_was_timed(tmp_path: Path) -> None:
    first, second = _launch(tmp_path, DIES="1")
    assert (first.returncode, second.returncode) == (0, 1), first.stderr
    assert "2 ranks on 1 node, started by Open MPI" in first.stdout
    assert second.stdout == ""
    assert {one.name for one in tmp_path.iterdir()} <= {"here.yaml", "here.timings.csv"}
    machine = fomkit.machine(tmp_path / "here.yaml")
    assert any("not timed: " in note and "all_reduce" in note for note in machine.notes)
    assert len(machine.timings) + sum("not timed" in note for note in machine.notes) >= 3


def _printed(*words: str) -> str:
    result = CliRunner().invoke(app, ["measure", *words])
    if isinstance(result.exception, FomkitError):
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_slurm_job_is_a_script(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    said = _printed(
        "--network", "--slurm", str(path), "--nodes", "2", "--ranks", "16", "--full", "-o", "my machine.yaml",
        *("--backend", "nccl", "--backend", "nccl"),  # of the same backend one measurement is enough
    )  # fmt: skip
    assert f"sbatch {path}" in said
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text()
    for line in ("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=8", "#SBATCH --gpus-per-node=8",
                 "#SBATCH --time=01:00:00",
                 "srun fomkit measure --network --full --backend nccl -o 'my machine.yaml'"):  # fmt: skip
        assert line in text.splitlines()
    assert text.startswith("#!/bin/bash\n")
    assert "gpus" not in network.slurm_job(2, 2, "quick", ["gloo"], "x.yaml", add=False)
    with pytest.raises(FomkitError, match="each node needs the same number of ranks"):
        network.slurm_job(2, 3, "quick", ["gloo"], "x.yaml", add=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ranks", "4"), "--ranks: needs --network"),
        (("--network", "--for", "p1b3"), "--for: is for ops, and the network is measured"),
        (("--network", "--threads", "4"), "--threads: is for ops"),
        (("--network", "--batch", "4"), "--batch: is for ops"),
        (("--input", "x.py", "--precision", "fp32"), "--precision: is for ops, and an input pipeline"),
        (("--network", "--nodes", "2"), "--nodes: needs a job script"),
        (("--workers", "2"), "--workers: needs an input pipeline"),
        (("--add",), "--add: needs --network or --input"),
        (("--network", "--input", "x.py"), "are two measurements"),
        (("--network", "--add"), "is not there, so nothing can be added"),
        (("--input", "nowhere.py"), "nowhere.py: is not a file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in _printed(*words, "-o", str(tmp_path / "here.yaml"))


def test_plans_grow() -> None:
    sizes = [len(one.sizes) for one in network.PLANS.values()]
    assert sizes == sorted(sizes)
