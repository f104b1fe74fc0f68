"""Start-up time and rate of a link by size, placement of ranks, payloads, and batches of an input pipeline."""

from __future__ import annotations

import random

import pytest

from fomkit.bench.input_rate import Epoch, blocks_of, samples_of
from fomkit.bench.network_ranks import Place, meeting_of, place_of
from fomkit.harness.torch.cases import CannotTimeError
from fomkit.harness.torch.network import BUFFERS, SCHEMES, buffer_sizes, pack, unpack
from fomkit.readers.tables.links import Timed, fit_line, links_of

SIZES = [2.0**power for power in range(4, 25)]


def timed(alpha_s: float, rate: float, noise: float = 0.0, seed: int = 0) -> Timed:
    draw = random.Random(seed)
    times = [(alpha_s + byte / rate) * draw.lognormvariate(0.0, noise) for byte in SIZES]
    return Timed(SIZES, times, [1.96 * max(noise, 0.01)] * len(SIZES))


def test_what_was_put_in_is_found() -> None:
    links = links_of(timed(20e-6, 2e9), "node", "gloo", "here")
    assert [(link.least_byte, link.most_byte) for link in links] == [(2**18, 2**24), (4096, 2**18), (16, 4096)]
    for link in links:
        assert link.alpha_s == pytest.approx(20e-6, rel=0.01) or link.least_byte == 2**18
        assert link.byte_per_s == pytest.approx(2e9, rel=0.01)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    hits = [0, 0]
    for seed in range(200):
        line = fit_line(timed(20e-6, 2e9, 0.1, seed))
        assert line is not None
        for place, (found, truth) in enumerate(((line.alpha_s, 20e-6), (line.slope_s, 1 / 2e9))):
            hits[place] += found.low <= truth <= found.high
    assert 0.75 <= hits[0] / 200 <= 0.95
    assert 0.75 <= hits[1] / 200 <= 0.95


def test_short_messages_do_not_tell_a_rate() -> None:
    small = links_of(timed(20e-6, 100e9, 0.05), "node", "nccl", "here")[-1]
    assert "rate of all 21" in small.source
    assert small.byte_per_s == pytest.approx(100e9, rel=0.2)


def test_neither_is_below_nothing() -> None:
    line = fit_line(Timed([1e3, 2e3, 3e3], [1e-6, 3e-6, 5e-6], [0.01] * 3))
    assert line is not None
    assert line.alpha_s.value == 0.0
    assert line.slope_s.value > 0
    assert fit_line(Timed([1e3, 1e3, 2e3], [1e-6] * 3, [0.01] * 3)) is None
    assert links_of(Timed([], [], []), "node", "gloo", "here") == ()


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
            Place(3, 8, 1, 2, "torchrun"),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
             "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "SLURM_JOB_ID": "77"},
            Place(1, 4, 1, 4, "Open MPI", "77"),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, Place(0, 2, 0, 2, "MPICH")),
        (
            {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1",
             "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_JOB_ID": "9"},
            Place(5, 8, 1, 4, "Slurm", "9"),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "9"}, None),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_launcher_is_known_by_its_variables(environment: dict[str, str], place: Place | None) -> None:
    assert place_of(environment) == place


def test_ranks_meet_where_the_launcher_says() -> None:
    here = Place(0, 2, 0, 2, "Open MPI", "77")
    assert meeting_of(here, {}) == "tcp://127.0.0.1:29577"
    assert meeting_of(here, {"MASTER_ADDR": "a", "MASTER_PORT": "1"}) == "tcp://a:1"
    assert meeting_of(here._replace(launcher="torchrun"), {"MASTER_ADDR": "a", "MASTER_PORT": "1"}) == "env://"
    with pytest.raises(ValueError, match="MASTER_ADDR is not set"):
        meeting_of(here._replace(local_ranks=1), {})


def test_payloads() -> None:
    assert {len(buffer_sizes(scheme)) for scheme in SCHEMES} == {BUFFERS}
    assert len({*buffer_sizes("random")}) > 1
    assert buffer_sizes("random") == buffer_sizes("random")
    assert buffer_sizes("skew").count(1_000_000) == 6
    assert buffer_sizes("uniform")[:3] == [12, 10_000, 1_000_000]
    with pytest.raises(ValueError, match="not a scheme"):
        buffer_sizes("smooth")
    assert unpack(pack([b"a", b"bc"])) == [b"a", b"bc"]


def epoch(gaps: list[float], samples: list[int] | None = None) -> Epoch:
    moments = [sum(gaps[: place + 1]) for place in range(len(gaps))]
    return Epoch(0.0, moments, samples or [8] * len(gaps))


def test_batches_that_lay_ready_are_left_out() -> None:
    found = blocks_of([epoch([1.0, 0.001, 0.001, 0.001, 0.1, 0.1, 0.1, 0.1, 0.1])], 3, 0)
    assert [time_s for time_s, _ in found] == pytest.approx([0.1] * 5)


def test_blocks_hold_as_many_batches_of_each_worker() -> None:
    gaps = [1.0, *[0.2, 0.0] * 10]
    found = blocks_of([epoch(gaps)], 0, 2)
    assert [time_s for time_s, _ in found] == pytest.approx([0.1] * 10)


def test_an_epochs_last_batch_does_not_count() -> None:
    samples = [8] * 9 + [3]
    found = blocks_of([epoch([0.1] * 10, samples)] * 2, 0, 0)
    assert {count for _, count in found} == {8.0}
    assert blocks_of([epoch([0.1])], 0, 0) == []
    assert blocks_of([epoch([])], 0, 0) == []


def test_samples_of_a_batch() -> None:
    numpy = pytest.importorskip("numpy")
    assert samples_of([numpy.zeros((5, 2)), None], None) == 5
    assert samples_of({"a": (numpy.zeros(3),)}, None) == 3
    assert samples_of(numpy.zeros(()), 7) == 7
    with pytest.raises(CannotTimeError, match="hold a str first"):
        samples_of(["x"], None)
