"""Parallel training: the golden figures, laws that no layout may break, and refusals by name."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fomkit.errors import FomkitError
from fomkit.hardware import Device, Link, Machine
from fomkit.parallel import Group, Layout, Network, check_layout
from fomkit.parallel.activations import activation_byte, state_byte
from fomkit.parallel.amortise import amortised_share
from fomkit.parallel.bandwidth import least_bandwidth
from fomkit.parallel.collectives import (
    Line,
    bus_factor,
    hierarchical_s,
    ingress_byte,
    parameter_server_s,
    ring_s,
    tree_s,
)
from fomkit.parallel.layout import microbatches_of
from fomkit.parallel.network import table_s
from fomkit.parallel.overlap import Bucket, overlapped
from fomkit.parallel.pipeline import bubble_fraction, check_schedule, pipeline_s
from fomkit.parallel.reliability import daly_s, useful_share, young_s
from fomkit.parallel.replicas import Traffic, replica_traffic
from fomkit.profiles import load_machine
from fomkit.tables import empty_table
from fomkit.workload import Transformer

GRADIENTS = 102_228_128.0
TEN = Line(0.0, 10e9)
LINKS = (Link("node", 5e-6, 300e9, "each", "test"), Link("system", 10e-6, 25e9, "each", "test"))
MACHINE = Machine("m", "m", "lab", Device(), empty_table("TIMINGS"), node_devices=8, links=LINKS)
SECONDS = st.floats(1e-6, 10.0)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")


@pytest.mark.parametrize(("ranks", "milliseconds"), [(1, 0.0), (2, 10.2228), (8, 17.8899), (64, 20.1262)])
def test_golden_ring(ranks, milliseconds):
    assert 1e3 * ring_s("all_reduce", GRADIENTS, ranks, TEN) == pytest.approx(milliseconds, abs=5e-5)


def test_golden_hierarchical_beside_flat():
    inside, outside = Line(0.0, 100e9), TEN
    assert 1e3 * hierarchical_s(GRADIENTS, 8, 4, inside, outside) == pytest.approx(3.7058, abs=5e-5)
    assert 1e3 * ring_s("all_reduce", GRADIENTS, 32, TEN) == pytest.approx(19.8067, abs=5e-5)
    assert hierarchical_s(GRADIENTS, 1, 1, inside, outside) == 0


def test_golden_bus_factors():
    for ranks in (2, 3, 8, 64):
        assert bus_factor("all_reduce", ranks) == pytest.approx(2 * (ranks - 1) / ranks)
        for one in ("reduce_scatter", "all_gather", "all_to_all"):
            assert bus_factor(one, ranks) == pytest.approx((ranks - 1) / ranks)
        assert bus_factor("broadcast", ranks) == 1


def test_golden_parameter_server():
    assert ingress_byte(240_771_232, 11) == pytest.approx(2.648e9, rel=5e-4)
    assert parameter_server_s(1e9, 1, 1, TEN) == 0
    assert parameter_server_s(1e9, 4, 1, TEN) == pytest.approx(0.8)
    # However many servers, each worker's own link carries the message both ways.
    assert parameter_server_s(1e9, 4, 100, TEN) == pytest.approx(0.2)


def test_golden_least_bandwidth():
    needed = least_bandwidth(GRADIENTS, 2, 0.3)
    assert needed == pytest.approx(340.76e6, rel=1e-5)
    for ranks in (2, 5, 64):
        needed = least_bandwidth(GRADIENTS, ranks, 0.3)
        assert needed == pytest.approx(2 * GRADIENTS / (ranks * 0.3))
        # There the sum takes exactly what the others gain.
        assert ring_s("all_reduce", GRADIENTS, ranks, Line(0.0, needed)) == pytest.approx((ranks - 1) * 0.3)
    assert least_bandwidth(GRADIENTS, 1, 0.3) is None
    assert least_bandwidth(GRADIENTS, 4, 1e-5, alpha_s=1e-5) is None


def test_golden_stack_overheads():
    assert amortised_share([0.155, 0.181], 10) == pytest.approx(0.048, abs=5e-4)
    assert amortised_share([0.155, 0.181], 1) == pytest.approx(0.336)


def test_golden_zero():
    """Of 7.5 billion parameters on 64 replicas, with sums of gradients in 4 bytes (SC 2020, figure 1 has 2)."""
    shares = [state_byte(7.5e9, Layout(zero=stage), 64) / 7.5e9 for stage in range(4)]
    assert shares == pytest.approx([18, 6 + 12 / 64, 2 + 16 / 64, 18 / 64])


def test_checkpoints():
    assert young_s(60, 12_000) == pytest.approx(1200)
    best = daly_s(60, 12_000)
    shares = [useful_share(60, 60, 12_000, every) for every in (best / 2, best, best * 2)]
    assert max(shares) == shares[1]
    # Few failures: what is lost is the checkpoints and half an interval a failure.
    assert useful_share(1, 0, 1e7, 1e4) == pytest.approx(1 - 1 / 1e4 - 5e3 / 1e7, abs=1e-6)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 6), SECONDS)
def test_the_bubble_of_equal_stages_is_exact(stages, microbatches, chunks, seconds):
    wall = pipeline_s([seconds] * stages, microbatches, chunks)
    work = microbatches * seconds
    assert wall / work - 1 == pytest.approx(bubble_fraction(stages, microbatches, chunks), abs=1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=8), st.integers(1, 16), st.integers(1, 4))
def test_a_pipeline_is_no_faster_than_its_slowest_stage(stages, microbatches, chunks):
    assert pipeline_s(stages, microbatches, chunks) >= microbatches * max(stages) * (1 - 1e-12)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1)), max_size=12), st.floats(1e6, 1e12))
def test_exposed_is_at_most_busy_and_falls_with_bandwidth(pieces, rate):
    buckets = [Bucket(byte, ready) for byte, ready in sorted(pieces, key=lambda one: one[1])]
    slow = overlapped(buckets, lambda byte: byte / rate, 1.0)
    fast = overlapped(buckets, lambda byte: byte / (2 * rate), 1.0)
    assert 0 <= slow.exposed_s <= slow.busy_s
    assert fast.exposed_s <= slow.exposed_s
    # All of it in one piece at the end hides nothing.
    total = sum(byte for byte, _ in pieces)
    assert overlapped([Bucket(total, 1.0)], lambda byte: byte / rate, 1.0).exposed_s >= slow.exposed_s - 1e-9


LAYOUTS = st.one_of(
    st.builds(
        Layout,
        algorithm=st.sampled_from(["auto", "ring", "tree", "hierarchical"]),
        zero=st.integers(0, 3),
        overlap=st.booleans(),
        compression=st.floats(0.01, 1.0),
    ),
    st.builds(
        Layout, algorithm=st.just("parameter_server"), servers=st.integers(1, 8), staleness=st.integers(0, 2)
    ),
)


@settings(deadline=None)
@given(LAYOUTS, st.integers(0, 6), st.lists(st.floats(1e3, 1e9), min_size=1, max_size=6), SECONDS, SECONDS)
def test_laws_of_replicas(layout, doublings, byte, forward, backward):
    check_layout(layout)
    ranks = 2**doublings
    buckets = [Bucket(one, backward * (at + 1) / len(byte)) for at, one in enumerate(byte)]
    network = Network(MACHINE)
    found = replica_traffic(layout, network, network.group(ranks), buckets, (forward, backward))
    if ranks == 1:
        assert (found.busy_s.value, found.exposed_s.value, found.sent_byte) == (0, 0, 0)
        return
    for end in ("value", "low", "high"):
        assert 0 <= getattr(found.exposed_s, end) <= getattr(found.busy_s, end) * (1 + 1e-9)
    assert found.busy_s.low <= found.busy_s.value <= found.busy_s.high
    assert found.exposed_s.low <= found.exposed_s.value <= found.exposed_s.high
    links = tuple(replace(link, byte_per_s=2 * link.byte_per_s) for link in LINKS)
    faster = Network(replace(MACHINE, links=links))
    again = replica_traffic(layout, faster, faster.group(ranks), buckets, (forward, backward))
    assert again.exposed_s.value <= found.exposed_s.value * (1 + 1e-9)
    assert again.busy_s.value <= found.busy_s.value


@given(st.sampled_from(COLLECTIVES), st.floats(1.0, 1e10))
def test_one_rank_adds_nothing(collective, byte):
    network = Network(MACHINE)
    for algorithm in ("auto", "ring", "tree", "hierarchical", "parameter_server"):
        assert network.collective(collective, byte, Group(1, 1), algorithm).value == 0
    assert ring_s(collective, byte, 1, Line(1e-6, 1e9)) == 0
    assert tree_s(byte, 1, Line(1e-6, 1e9)) == 0


def test_times_of_two_libraries_are_not_averaged():
    machine = load_machine("a100-sxm")
    rows = machine.timings[(machine.timings["collective"] == "all_reduce") & (machine.timings["ranks"] == 8)]
    both = pd.concat([rows, rows.assign(library="gloo", time_s=100 * rows["time_s"])], ignore_index=True)
    assert table_s(rows, "all_reduce", 2.0**24, 8) is not None
    with pytest.raises(FomkitError, match=r"has times of .* and gloo for 8 ranks"):
        table_s(both, "all_reduce", 2.0**24, 8)


def test_a_server_gives_parameters_back_as_they_are():
    network, passes = Network(MACHINE), (1e-3, 2e-3)

    def traffic(compression: float) -> Traffic:
        layout = Layout(algorithm="parameter_server", compression=compression, overlap=False)
        return replica_traffic(layout, network, network.group(16), [Bucket(1e9, 1e-3)], passes)

    whole, quarter = traffic(1.0), traffic(0.25)
    assert quarter.busy_s.value == pytest.approx(0.625 * whole.busy_s.value, rel=0.01)
    assert quarter.sent_byte == 0.25 * whole.sent_byte == 0.25e9


def test_measured_collectives_are_taken_inside_a_node():
    machine = load_machine("a100-sxm")
    rows = machine.timings[machine.timings["collective"] == "all_reduce"]
    one = rows[(rows["ranks"] == 8) & (rows["message_byte"] == 2**24)]
    assert table_s(machine.timings, "all_reduce", 2**24, 8) == pytest.approx(one["time_s"].mean())
    assert table_s(machine.timings, "all_reduce", 2**24, 5) is None
    above = table_s(machine.timings, "all_reduce", 2**31, 8)
    assert above == pytest.approx(4 * table_s(machine.timings, "all_reduce", 2**29, 8))
    network = Network(machine)
    assert network.collective("all_reduce", 2**24, Group(8, 1)).value == pytest.approx(one["time_s"].mean())
    ring = network.collective("all_reduce", 2**24, Group(8, 1), "ring").value
    assert ring == pytest.approx(ring_s("all_reduce", 2**24, 8, Line(9e-6, 300e9)))


def test_groups_fill_nodes():
    network = Network(MACHINE)
    assert network.group(4) == Group(4, 1)
    assert network.group(32) == Group(8, 4)
    assert network.group(16, apart=8) == Group(1, 16)
    assert network.group(4, apart=4) == Group(2, 2)
    assert network.group(12).ranks == 12


def test_a_link_of_both_directions_carries_half_each_way_and_a_host_packs():
    both = replace(MACHINE, links=(Link("node", 0.0, 20e9, "both", "test"),))
    assert Network(both).line("node").byte_per_s == pytest.approx(10e9)
    packed = Link("node", 1e-4, 10e9, "each", "test", "grpc", serialise_byte_per_s=2.5e9)
    assert Network(replace(MACHINE, links=(*LINKS, packed)), "grpc").line("node") == (1e-4, pytest.approx(2e9))
    with pytest.raises(FomkitError, match=r"states no link of tier 'system' of channel 'grpc'"):
        Network(replace(MACHINE, links=(*LINKS, packed)), "grpc").line("system")


@pytest.mark.parametrize(
    ("layout", "named"),
    [
        (Layout(expert=4), "expert parallelism is not modelled"),
        (Layout(interleave=2), "interleave"),
        (Layout(sequence=True), "sequence parallelism"),
        (Layout(algorithm="parameter_server", zero=1), "a parameter server and zero"),
        (Layout(algorithm="parameter_server", tensor=2), "a parameter server with tensor"),
        (Layout(optimizer="server"), "an update on the server"),
        (Layout(zero=3, pipeline=2), "zero 2 and 3 with a pipeline"),
        (Layout(zero=1, staleness=1), "stale gradients with zero"),
        (Layout(clip=True, staleness=1), "clipping"),
        (Layout(servers=2), "servers belong to"),
        (Layout(zero=4), "zero is 4"),
        (Layout(tensor=0), "tensor is 0"),
        (Layout(tensor=1.5), "tensor is 1.5"),
        (Layout(compression=0.0), "compression is 0"),
        (Layout(recompute="some"), "recompute 'some' is not one"),
    ],
)
def test_unsupported_layouts_are_refused_by_name(layout, named):
    with pytest.raises(FomkitError, match=f"layout: {named}"):
        check_layout(layout)


def test_layouts_that_do_not_divide():
    with pytest.raises(FomkitError, match=r"12 devices do not divide into copies of tensor 8"):
        Layout(tensor=8).replicas(12)
    with pytest.raises(FomkitError, match=r"96 blocks do not divide into pipeline 5"):
        check_schedule(5, 10, 1, 96)
    with pytest.raises(FomkitError, match=r"multiples of its 8 stages, and there are 12"):
        check_schedule(8, 12, 3, 96)
    with pytest.raises(FomkitError, match=r"no sample for each of 16 replicas"):
        microbatches_of(8, 16, None)
    with pytest.raises(FomkitError, match=r"does not divide into 4 replicas of microbatches of 3"):
        microbatches_of(64, 4, 3)


def test_activations_follow_the_technique():
    gpt = Transformer(hidden=6144, heads=64, blocks=48, seq=2048, vocabulary=51200)
    kept = [
        activation_byte(gpt, 4, Layout(tensor=8, **technique), 1)
        for technique in ({}, {"sequence": True}, {"recompute": "selective"}, {"recompute": "full"})
    ]
    assert kept == sorted(kept, reverse=True)
    fused = replace(gpt, attention="fused")
    assert activation_byte(fused, 4, Layout(tensor=8), 1) == pytest.approx(kept[2])
