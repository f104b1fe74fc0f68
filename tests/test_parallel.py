"""Parallel training: golden figures, laws for all layouts, and refusals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from statistics import median

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.job import Layout
from fomkit.core.machine import Device, Link, Machine
from fomkit.core.transformer import Transformer
from fomkit.merit.one_off_costs import amortised_share
from fomkit.ops.tables import empty_table
from fomkit.parallel.kernels import Split
from fomkit.parallel.step import (
    check_layout,
    check_schedule,
    microbatches_of,
    pipeline_s,
    step_coverage,
)
from fomkit.parallel.traffic import (
    Bucket,
    Waits,
    overlapped,
    replica_traffic,
)
from fomkit.parallel.transformer import training_rows
from fomkit.plan.job import daly_s, useful_share, young_s
from fomkit.plan.memory import activation_byte, split_standing
from fomkit.plan.options import change_machine
from fomkit.plan.scaling import QUICKEST, least_rate, with_user_links
from fomkit.prediction.exchange import MEASURED, Network, table_time
from fomkit.prediction.links import (
    BRIDGED,
    FORMULA,
    SHARE,
    STATED,
    Group,
    Line,
    around,
    bus_factor,
    ends_of,
    ingress_byte,
    link_notes,
    parameter_server_s,
    pipelined_s,
    ring_s,
    tree_s,
)
from fomkit.profiles.machines import load_machine

GRADIENTS = 102_228_128.0
TEN = Line(0.0, 10e9)
LINKS = (Link("node", 5e-6, 300e9, "each", "test"), Link("system", 10e-6, 25e9, "each", "test"))
MACHINE = Machine("m", "m", "lab", Device(), empty_table("TIMINGS"), node_devices=8, links=LINKS)
SECONDS = st.floats(1e-6, 10.0)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")


def bubble_fraction(stages: int, microbatches: int, chunks: int = 1) -> float:
    """Return the idle time of a stage over its work, for equal stages (Narayanan et al., SC 2021, section 2.2)."""
    return (stages - 1) / (microbatches * chunks)


def test_the_bubble_of_equal_stages_is_as_published():
    assert (bubble_fraction(8, 64), round(bubble_fraction(8, 64, 3), 6)) == (0.109375, 0.036458)


@pytest.mark.parametrize(("ranks", "milliseconds"), [(1, 0.0), (2, 10.2228), (8, 17.8899), (64, 20.1262)])
def test_golden_ring(ranks, milliseconds):
    assert 1e3 * ring_s("all_reduce", GRADIENTS, ranks, TEN) == pytest.approx(milliseconds, abs=5e-5)


def test_golden_hierarchical_beside_flat():
    inside = Link("node", 0.0, 100e9, "each", "test", basis="measured")
    network = Network(replace(MACHINE, links=(inside, Link("system", 0.0, 10e9, "each", "test"))))
    found = network.exchange("all_reduce", GRADIENTS, Group(8, 4), "hierarchical")
    assert 1e3 * found.time.value == pytest.approx(3.7058, abs=5e-5)
    assert [link.tier for link in found.links] == ["system", "node"]
    assert 1e3 * ring_s("all_reduce", GRADIENTS, 32, TEN) == pytest.approx(19.8067, abs=5e-5)
    assert network.collective("all_reduce", GRADIENTS, Group(1, 1), "hierarchical").value == 0


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


@pytest.mark.parametrize("ranks", [2, 5, 64])
def test_golden_least_bandwidth(ranks):
    """The rate at which the exchange takes exactly the time that the other ranks save, by the pricing formula."""
    room = (ranks - 1) * 0.3
    ways = {
        "ring": (partial(ring_s, "all_reduce", GRADIENTS, ranks), 2 * GRADIENTS / (ranks * 0.3)),
        "tree": (partial(tree_s, GRADIENTS, ranks), 2 * GRADIENTS / room),
        "server": (partial(parameter_server_s, GRADIENTS, ranks, 1), 2 * ranks * GRADIENTS / room),
        "servers": (partial(parameter_server_s, GRADIENTS, ranks, 100), 2 * GRADIENTS / room),
    }
    for name, (way, by_hand) in ways.items():
        needed = least_rate(lambda rate, way=way: way(Line(0.0, rate)), room)
        assert needed == pytest.approx(by_hand), name
        slower = least_rate(lambda rate, way=way: way(Line(1e-4, rate)), room)
        assert slower > needed
        assert way(Line(1e-4, slower)) == pytest.approx(room)


def test_least_bandwidth_of_a_ring_by_hand():
    """A ring whose gradients may take as long as a step needs ``2S/(n·t)``."""

    def needed(ranks, step_s, alpha_s=0.0):
        def taken_s(rate):
            return ring_s("all_reduce", GRADIENTS, ranks, Line(alpha_s, rate))

        return least_rate(taken_s, (ranks - 1) * step_s)

    assert needed(2, 0.3) == pytest.approx(340.76e6, rel=1e-5)
    assert needed(2, 0.3) == pytest.approx(2 * GRADIENTS / (2 * 0.3))
    assert needed(4, 1e-5, alpha_s=1e-5) is None


def test_no_rate_is_enough_where_starting_takes_too_long():
    assert least_rate(lambda rate: ring_s("all_reduce", GRADIENTS, 4, Line(1e-5, rate)), 6e-5) is None
    assert least_rate(lambda rate: ring_s("all_reduce", GRADIENTS, 4, Line(0.0, rate)), -1.0) is None
    assert least_rate(lambda rate: ring_s("all_reduce", GRADIENTS, 1, Line(0.0, rate)), 1.0) == 0.0


def test_a_rate_on_a_bent_line_is_found_in_few_steps():
    """Each step prices an exchange at both ends of its interval; halving alone takes 46."""
    asked = []

    def taken(rate):
        asked.append(rate)
        return max(1e8 / rate, 1e-3 + 5e7 / rate)

    assert least_rate(taken, 0.3) == pytest.approx(1e8 / 0.3, rel=1e-12)
    assert len(asked) < 10


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1, 1e12)), min_size=1, max_size=5), st.floats(1e-6, 1e6))
def test_the_least_rate_takes_the_room_whatever_the_ways(ways, room):
    """The least rate follows from the best of several algorithms, each with a start-up time and bytes."""

    def taken(rate):
        return min(start + byte / rate for start, byte in ways)

    needed = least_rate(taken, room)
    if needed is None:
        assert taken(QUICKEST) >= room * (1 - 1e-9)
    elif needed:
        assert taken(needed) == pytest.approx(room, rel=1e-9)


def test_golden_stack_overheads():
    assert amortised_share([0.155, 0.181], 10) == pytest.approx(0.048, abs=5e-4)
    assert amortised_share([0.155, 0.181], 1) == pytest.approx(0.336)


def test_golden_zero():
    """Of 7.5 billion parameters on 64 replicas, with sums of gradients in 4 bytes (SC 2020, figure 1 has 2)."""
    shares = [split_standing(7.5e9, Layout(zero=stage), 64).byte / 7.5e9 for stage in range(4)]
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
    slow = overlapped(buckets, lambda one: one.byte / rate, 1.0)
    fast = overlapped(buckets, lambda one: one.byte / (2 * rate), 1.0)
    assert 0 <= slow.exposed_s <= slow.busy_s
    assert fast.exposed_s <= slow.exposed_s
    # All of it in one piece at the end hides nothing.
    total = sum(byte for byte, _ in pieces)
    assert overlapped([Bucket(total, 1.0)], lambda one: one.byte / rate, 1.0).exposed_s >= slow.exposed_s - 1e-9


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
        assert (found.busy.value, found.exposed.value, found.sent_byte) == (0, 0, 0)
        return
    for end in ("value", "low", "high"):
        assert 0 <= getattr(found.exposed, end) <= getattr(found.busy, end) * (1 + 1e-9)
    assert found.busy.low <= found.busy.value <= found.busy.high
    assert found.exposed.low <= found.exposed.value <= found.exposed.high
    links = tuple(replace(link, byte_per_s=2 * link.byte_per_s) for link in LINKS)
    faster = Network(replace(MACHINE, links=links))
    again = replica_traffic(layout, faster, faster.group(ranks), buckets, (forward, backward))
    assert again.exposed.value <= found.exposed.value * (1 + 1e-9)
    assert again.busy.value <= found.busy.value


@given(st.sampled_from(COLLECTIVES), st.floats(1.0, 1e10))
def test_one_rank_adds_nothing(collective, byte):
    network = Network(MACHINE)
    for algorithm in ("auto", "ring", "tree", "hierarchical", "parameter_server"):
        assert network.collective(collective, byte, Group(1, 1), algorithm).value == 0
    assert ring_s(collective, byte, 1, Line(1e-6, 1e9)) == 0
    assert tree_s(byte, 1, Line(1e-6, 1e9)) == 0


# --- measured collectives and links ------------------------------------------------------------------------------


def collectives(library: str, times: dict[int, tuple[float, float, float]], ranks: int = 4) -> pd.DataFrame:
    """All-reduces inside a node: bytes to median and quartiles."""
    rows = [
        {"kind": "collective", "collective": "all_reduce", "ranks": float(ranks), "link": "node",
         "library": library, "message_byte": float(byte), "time_s": middle, "p25_s": low, "p75_s": high}
        for byte, (middle, low, high) in times.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


GLOO = collectives("gloo", {1024: (1e-4, 0.9e-4, 1.2e-4), 2**20: (1e-3, 0.95e-3, 1.1e-3)})
NCCL = collectives("NCCL 2.0 MPI", {1024: (1e-5, 0.9e-5, 1.2e-5), 2**20: (1e-4, 0.95e-4, 1.1e-4)})


def test_times_of_two_libraries_are_not_averaged_and_a_channel_chooses_one():
    both = pd.concat([GLOO, NCCL], ignore_index=True)
    with pytest.raises(
        FomkitError, match=r"has times of gloo and nccl for 4 ranks. Choose one: --layout channel="
    ):
        table_time(both, "all_reduce", 1024, 4)
    assert table_time(both, "all_reduce", 1024, 4, "gloo").value == pytest.approx(1e-4)
    assert table_time(both, "all_reduce", 1024, 4, "nccl").value == pytest.approx(1e-5)
    assert table_time(both, "all_reduce", 1024, 4, "mpi") is None
    machine = replace(MACHINE, timings=both, links=(*LINKS, replace(LINKS[0], channel="gloo")))
    found = Network(machine, "gloo").exchange("all_reduce", 1024, Group(4, 1))
    assert (found.time.value, found.source) == (pytest.approx(1e-4), "measured")


@pytest.mark.parametrize("name", ["h100-sxm", "a100-sxm"])
def test_a_timed_collective_keeps_its_share_of_a_changed_link(name):
    machine, known = load_machine(name), ("all_reduce", 2.0**26, Group(8, 1))
    link = next(one for one in machine.links if one.tier == "node")
    built = Network(machine).exchange(*known)
    same = change_machine(machine, {"node_link_byte_per_s": link.byte_per_s})
    assert Network(same).exchange(*known) == built
    twice = change_machine(
        machine, {"node_link_byte_per_s": 2 * link.byte_per_s, "node_link_alpha_s": link.alpha_s / 2}
    )
    found = Network(twice).exchange(*known)
    assert found.time.value == pytest.approx(built.time.value / 2, rel=1e-9)
    assert found.time.high / found.time.value == pytest.approx(built.time.high / built.time.value)
    assert (built.source, found.source) == ("measured", "transferred")
    # Changed a second time, the timings are still those of the link as built.
    back = change_machine(twice, {"node_link_byte_per_s": link.byte_per_s, "node_link_alpha_s": link.alpha_s})
    assert Network(back).exchange(*known) == built
    # The same of a row: a model's step with collectives among its ops.
    row = pd.DataFrame([{"kind": "collective", "collective": "all_reduce", "dtype": "bf16", "engine": "vector",
                         "message_byte": 2.0**26, "ranks": 8.0, "link": "node"}])  # fmt: skip
    times = [fomkit.predict(row, one).table for one in (machine, twice)]
    assert times[1]["time_s"][0] == pytest.approx(times[0]["time_s"][0] / 2, rel=1e-9)
    assert [one["time_source"][0] for one in times] == ["interpolated", "transferred"]


def test_timings_of_a_link_do_not_answer_for_the_users_link():
    machine, known = load_machine("l40s"), ("all_gather", 2.0**28, Group(8, 1))
    own = replace(next(one for one in machine.links if one.tier == "node"), byte_per_s=20e9)
    found = Network(with_user_links(machine, [own])).exchange(*known)
    assert found.time.value == pytest.approx(around(own, "all_gather", 2.0**28, 8).value)
    assert found.time.value < 0.1 * Network(machine).exchange(*known).time.value
    # A link between nodes, or of another transport, leaves them.
    for other in (replace(own, tier="system"), replace(own, channel="gloo")):
        assert Network(with_user_links(machine, [other])).exchange(*known).source == "measured"


def test_a_link_that_does_not_limit_a_timed_collective_changes_nothing():
    """Eight L40S were timed at an 18th of their links' formula: twice the rate would not help them."""
    machine = load_machine("l40s")
    twice = change_machine(machine, {"node_link_byte_per_s": 64e9})
    sums = [Network(one).exchange("all_reduce", 2.0**26, Group(8, 1)) for one in (machine, twice)]
    assert sums[0] == sums[1]
    pairs = [Network(one).exchange("all_reduce", 2.0**26, Group(2, 1)).time.value for one in (machine, twice)]
    assert pairs[1] < 0.6 * pairs[0]


def test_only_a_node_that_was_timed_far_below_its_links_is_noted():
    def noted(name: str) -> str:
        return Network(load_machine(name)).slow_note(16)

    assert noted("l40s").startswith(
        "collectives of 8 devices of l40s were timed in one server, and take 18 times as"
    )
    assert not any(map(noted, ("a100-sxm", "h100-sxm", "b200-sxm", "gtx-1080-ti", "mi300x")))
    assert not Network(load_machine("l40s")).slow_note(2)


def test_a_table_without_messages_has_no_time_of_one():
    """A table that was written again keeps empty columns of words, and loses empty columns of numbers."""
    written = pd.DataFrame([{"kind": "gemm", "collective": None, "link": None, "time_s": 1e-3}])
    assert table_time(written, "all_reduce", 1024, 4) is None
    assert table_time(written.iloc[:0], "all_reduce", 1024, 4) is None


def test_a_measured_collective_has_the_interval_of_its_repeats():
    """Quartiles are 50 %: the same normal errors at 80 % are 1.2816/0.6745 = 1.9 times as far in logarithms."""
    at_size = table_time(GLOO, "all_reduce", 2**20, 4)
    assert at_size.low == pytest.approx(1e-3 * 0.95**1.9, rel=1e-3)
    assert at_size.high == pytest.approx(1e-3 * 1.1**1.9, rel=1e-3)
    between = table_time(GLOO, "all_reduce", 2**15, 4)
    assert between.value == pytest.approx(1e-4 + 9e-4 * (2**15 - 2**10) / (2**20 - 2**10))
    # Halfway the repeats err as those of both sizes do in the mean; the error of a size left out comes on top.
    low, high = 1.9 * math.log(0.9 * 0.95) / 2, 1.9 * math.log(1.2 * 1.1) / 2
    assert math.log(between.value / between.low) == pytest.approx(math.hypot(low, math.log(MEASURED[0])), rel=1e-3)
    assert math.log(between.high / between.value) == pytest.approx(
        math.hypot(high, math.log(MEASURED[1])), rel=1e-3
    )
    bare = table_time(GLOO.drop(columns=["p25_s", "p75_s"]), "all_reduce", 2**20, 4)
    assert (bare.low / bare.value, bare.high / bare.value) == pytest.approx(MEASURED)


def classes(tier: str = "node", channel: str = "gloo") -> tuple[Link, ...]:
    """Three links as `fomkit measure --network` writes them, long messages first."""
    sizes = ((2**18, 2**26, 5e-4, 2e9), (2**12, 2**18, 1e-4, 1e9), (16, 2**12, 5e-5, 1e8))
    return tuple(
        Link(tier, alpha, rate, "each", "measured", channel, float(least), float(most), (alpha / 2, alpha * 2),
             (rate / 2, rate * 1.25), "measured")
        for least, most, alpha, rate in sizes
    )  # fmt: skip


@pytest.mark.parametrize(
    ("byte", "alpha_s"),
    [
        (1, 5e-5),
        (16, 5e-5),
        (4095, 5e-5),
        (4096, 1e-4),
        (2**17, 1e-4),
        (2**18, 5e-4),
        (2**26, 5e-4),
        (2**32, 5e-4),
    ],
)
def test_the_class_of_a_messages_size_is_taken(byte, alpha_s):
    network = Network(replace(MACHINE, links=classes()), "gloo")
    assert network.ends("node", byte).value.alpha_s == alpha_s
    # A ring sends a rank's share at a time, a tree and a server the whole.
    assert network.collective("all_reduce", byte, Group(1, 1)).value == 0
    ring = network.collective("all_reduce", 8.0 * byte, Group(8, 1), "ring")
    line = network.ends("node", byte).value
    assert ring.value == pytest.approx(ring_s("all_reduce", 8.0 * byte, 8, line))
    tree = network.collective("all_reduce", float(byte), Group(8, 1), "tree")
    assert tree.value == pytest.approx(tree_s(byte, 8, line))
    served = network.collective("all_reduce", float(byte), Group(8, 1), "parameter_server")
    assert served.value == pytest.approx(parameter_server_s(byte, 8, 1, line))


def test_a_link_has_its_own_interval_and_a_formula_s_where_none_was_measured():
    network = Network(replace(MACHINE, links=classes()), "gloo")
    byte = 2.0**30
    found = network.collective("all_gather", byte, Group(4, 1), "ring")
    (alpha_low, alpha_high), (slow, quick) = (2.5e-4, 1e-3), (1e9, 2.5e9)
    link = next(one for one in classes() if one.range_byte_per_s == (slow, quick))

    def wider(own: float, end: float) -> float:
        return math.exp(math.hypot(math.log(own), math.log(end)))

    starts = (
        link.alpha_s / wider(link.alpha_s / alpha_low, 1 / FORMULA[0]),
        link.alpha_s * wider(alpha_high / link.alpha_s, FORMULA[1]),
    )
    rates = (
        link.byte_per_s * wider(quick / link.byte_per_s, 1 / FORMULA[0]),
        link.byte_per_s / wider(link.byte_per_s / slow, FORMULA[1]),
    )
    assert found.low == pytest.approx(3 * starts[0] + 0.75 * byte / rates[0])
    assert found.high == pytest.approx(3 * starts[1] + 0.75 * byte / rates[1])
    for group, ends in ((Group(4, 1), STATED), (Group(1, 4), FORMULA)):
        stated = Network(MACHINE).collective("all_gather", byte, group, "ring")
        assert (stated.low / stated.value, stated.high / stated.value) == pytest.approx(ends)
    both = replace(classes()[0], direction="both", serialise_byte_per_s=1e9)
    slow = ends_of(both).high
    wire = both.byte_per_s / wider(both.byte_per_s / 1e9, FORMULA[1]) / 2
    assert slow.byte_per_s == pytest.approx(1 / (1 / wire + 1 / 1e9))


def test_start_up_with_an_end_of_nothing_is_no_mistake():
    link = replace(classes()[0], alpha_range_s=(0.0, 1e-3))
    for level in (0.8, 0.95):
        network = Network(replace(MACHINE, links=(link,)), level=level)
        assert network.ends("node", 2**20).low.alpha_s == 0
        assert network.collective("all_reduce", 2.0**20, Group(4, 1)).low > 0


def test_one_channel_is_taken_and_said_and_of_several_none():
    one = replace(MACHINE, links=(LINKS[1], *classes()))
    assert Network(one).ends("node", 2**20).value.alpha_s == 5e-4
    assert link_notes(one, "")[0] == "links of tier node: using gloo, the only channel stated"
    assert "up to 67,108,864 byte" in link_notes(one, "")[1]
    assert link_notes(MACHINE, "") == []
    several = replace(MACHINE, links=(*classes(), *classes(channel="nccl")))
    with pytest.raises(FomkitError, match=r"m: has links of tier 'node' for 2 channels, and no channel is given"):
        Network(several).ends("node", 1024)
    assert Network(several, "nccl").ends("node", 1024).value.alpha_s == 5e-5
    with pytest.raises(
        FomkitError, match=r"no link of tier 'node' of channel 'mpi', only --layout channel=gloo or"
    ):
        Network(several, "mpi").ends("node", 1024)
    # A link that names no channel stands for all that do.
    assert Network(replace(several, links=(*several.links, LINKS[0]))).ends("node", 1024).value.alpha_s == 5e-6


@given(st.floats(1.0, 1e10), st.sampled_from(["ring", "tree", "hierarchical", "parameter_server", "auto"]))
def test_ends_stand_around_the_value_whatever_the_links(byte, algorithm):
    machine = replace(MACHINE, links=(*classes(), *classes("system")))
    for group in (Group(8, 1), Group(8, 4), Group(1, 5)):
        found = Network(machine).collective("all_reduce", byte, group, algorithm)
        assert 0 < found.low <= found.value <= found.high


def test_a_network_at_another_rate_keeps_its_start_up_and_the_shape_of_its_interval():
    link = Link("system", 1e-5, 1e9, "each", "", range_byte_per_s=(5e8, 2e9), alpha_range_s=(5e-6, 3e-5))
    machine = replace(MACHINE, links=(LINKS[0], link))
    changed = Network(machine).at_rate("system", 1e10)
    assert changed.machine.links == (LINKS[0], replace(link, byte_per_s=1e10, range_byte_per_s=(5e9, 2e10)))
    assert changed.machine.links[1].alpha_s == 1e-5
    started = Network(machine).at_rate("system", 1e10, starts=False).machine.links[1]
    assert (started.alpha_s, started.alpha_range_s) == (0.0, None)


def test_a_link_of_another_start_up_keeps_its_rate_and_the_shape_of_its_interval():
    link = Link("system", 1e-5, 1e9, "each", "", range_byte_per_s=(5e8, 2e9), alpha_range_s=(5e-6, 3e-5))
    (slower,) = change_machine(replace(MACHINE, links=(link,)), {"link_alpha_s": 4e-5}).links
    assert slower.alpha_range_s == pytest.approx((2e-5, 1.2e-4))
    assert slower == replace(link, alpha_s=4e-5, alpha_range_s=slower.alpha_range_s)


def test_shares_of_a_step_sum_to_one():
    found = step_coverage(
        {"measured": 0.25, "roofline": 0.7, "unpriced": 0.05}, 2.0, {"alpha_beta": 0.5, "measured": 1.5}
    )
    assert sum(found.values()) == pytest.approx(1)
    assert found["measured"] == pytest.approx(2.0 / 4)


# --- experts -----------------------------------------------------------------------------------------------------

MIXED = Transformer(
    hidden=512, heads=8, blocks=4, seq=256, vocabulary=1000, experts=8, top_k=2, capacity_factor=1.25
)


def test_experts_by_hand():
    """2 samples of 256 tokens, each to 2 of 8 experts with a quarter more places: 80 of a sample and expert."""
    assert MIXED.expert_slots == 80
    assert replace(MIXED, capacity_factor=1.1).expert_slots == 71  # 70.4, and a place is whole
    assert replace(MIXED, top_k=1, capacity_factor=1.0, experts=256).expert_slots == 1
    one = 2 * 512 * 2048 + 2048 + 512
    assert MIXED.block_parameters() == 4 * 512**2 + 8 * 512 + 8 * one + 512 * 8
    assert MIXED.block_parameters() - MIXED.block_parameters(4) == 6 * one
    rows = training_rows(MIXED, Split(2, 1, False, "bf16", expert=4))[0]
    by_name = {row["op"]: row for row in rows if row["pass_name"] == "forward"}
    # Two experts of this device, each with the places of 4 devices' 2 samples.
    assert [by_name["feed-forward in"][name] for name in ("b", "m", "n", "k")] == [2, 640, 2048, 512]
    assert [by_name["feed-forward out"][name] for name in ("b", "m", "n", "k")] == [2, 640, 512, 2048]
    assert [by_name["router"][name] for name in ("b", "m", "n", "k")] == [1, 512, 8, 512]
    assert by_name["tokens to experts"]["read_byte"] == 2 * 2 * 8 * 80 * 512
    assert by_name["tokens from experts"]["read_byte"] == 2 * 2 * 512 * 512


def test_sharing_experts_leaves_the_work_of_a_device_and_moves_their_parameters():
    def flop(expert: int) -> float:
        rows = training_rows(MIXED, Split(2, 1, False, "bf16", expert))[0]
        products = [
            row for row in rows if row["op"].startswith(("feed-forward", "router")) and row["kind"] == "gemm"
        ]
        return sum(row["b"] * row["m"] * row["n"] * row["k"] for row in products)

    assert flop(1) == flop(2) == flop(8)
    # Per token twice a feed-forward layer and a quarter more, three times over, and the router.
    assert flop(1) == 3 * 512 * (2 * 1.25 * 2 * 512 * 2048 + 512 * 8)


def test_what_experts_keep_for_the_backward_pass():
    """Of a device's 512 tokens: the dense equations less the wide activations, then the experts' own."""
    dense = replace(MIXED, experts=0, top_k=1, capacity_factor=1.0)
    without, with_experts = (
        activation_byte(one, 2, Layout(recompute="selective"), 1)[0] for one in (dense, MIXED)
    )
    places = 8 * 80 * 2
    own = places * (2 * 512 + 2 * 512 + 2 * 2 * 2048) + 512 * 4 * 8
    assert with_experts - without == pytest.approx(4 * (own - 512 * 2 * 2 * 2048))


def test_a_server_gives_parameters_back_as_they_are():
    network, passes = Network(MACHINE), (1e-3, 2e-3)

    def traffic(compression: float) -> Waits:
        layout = Layout(algorithm="parameter_server", compression=compression, overlap=False)
        return replica_traffic(layout, network, network.group(16), [Bucket(1e9, 1e-3)], passes)

    whole, quarter = traffic(1.0), traffic(0.25)
    assert quarter.busy.value == pytest.approx(0.625 * whole.busy.value, rel=0.01)
    assert quarter.sent_byte == 0.25 * whole.sent_byte == 0.25e9


def test_measured_collectives_are_taken_inside_a_node():
    machine = load_machine("a100-sxm")
    rows = machine.timings.query("collective == 'all_reduce' and op == ''")  # not serving's own
    one = rows[(rows["ranks"] == 8) & (rows["message_byte"] == 2**24)]
    assert table_time(machine.timings, "all_reduce", 2**24, 8).value == pytest.approx(one["time_s"].mean())
    assert table_time(machine.timings, "all_reduce", 2**24, 5) is None
    half, last, above = (table_time(machine.timings, "all_reduce", size, 8) for size in (2**28, 2**29, 2**31))
    assert above.value == pytest.approx(last.value + 6 * (last.value - half.value))  # on their line
    # The width grows with the distance: to the time at the last rate, and as far below (docs/adr/0103).
    assert above.high == pytest.approx(MEASURED[1] * 4 * last.value)
    assert above.low == pytest.approx(MEASURED[0] * above.value**2 / (4 * last.value))
    assert last.high / last.low < above.high / above.low
    network = Network(machine)
    assert network.collective("all_reduce", 2**24, Group(8, 1)).value == pytest.approx(one["time_s"].mean())
    ring = network.collective("all_reduce", 2**24, Group(8, 1), "ring").value
    assert ring == pytest.approx(pipelined_s("all_reduce", 2**24, 8, Line(9e-6, SHARE * 300e9)))


def test_a_rack_takes_at_least_as_long_as_a_node_of_it():
    network = Network(load_machine("gb200"))
    for collective, size in itertools.product(
        ("all_to_all", "all_reduce", "reduce_scatter"), (2**24, 2**28, 2**33)
    ):
        inside, *more = (network.collective(collective, size, network.group(ranks)) for ranks in (4, 8, 16))
        assert all(one.value >= inside.value and one.high >= inside.high for one in more), (collective, size)


@pytest.mark.parametrize("name", ["a100-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "gb200"])
def test_a_stated_rate_inside_a_node_is_what_nccl_makes_of_it(name):
    """For the machines behind the constants: this test pins them, benchmarks/stated_links.py validates them."""
    machine = load_machine(name)
    network = Network(machine)
    timed = machine.timings[(machine.timings["kind"] == "collective") & (machine.timings["message_byte"] >= 2**24)]
    errors = {"": [], "textbook": []}
    for row in timed.itertuples():
        stated = network.collective(row.collective, row.message_byte, Group(int(row.ranks), 1), "ring").value
        link = next(one for one in machine.links if one.tier == "node")
        ring = ring_s(row.collective, row.message_byte, int(row.ranks), Line(link.alpha_s, link.byte_per_s))
        errors[""].append(abs(stated / row.time_s - 1))
        errors["textbook"].append(abs(ring / row.time_s - 1))
    assert median(errors[""]) <= 0.1 < 0.25 <= median(errors["textbook"])


def test_only_what_a_sheet_states_of_links_inside_is_lessened():
    def rate(**changes):
        return pytest.approx(ends_of(replace(LINKS[0], **changes)).value.byte_per_s / LINKS[0].byte_per_s)

    assert [rate(), rate(channel="nccl"), rate(basis="assumed")] == [SHARE] * 3
    assert rate(direction="both") == SHARE / 2
    assert [rate(basis="measured"), rate(range_byte_per_s=(2e11, 4e11)), rate(channel="gloo")] == [1] * 3
    assert [rate(tier="system"), rate(tier="system", joins=72)] == [1, SHARE]
    assert ends_of(replace(LINKS[1], joins=256)).value.byte_per_s == LINKS[1].byte_per_s
    sent = Network(MACHINE).send(3e8, "node").value
    assert sent == pytest.approx(5e-6 + 3e8 / (SHARE * 300e9))


def test_a_rack_is_no_quicker_than_the_trays_in_it():
    network = Network(load_machine("gb300"))
    for byte in (1e3, 1e6, 1e9):
        inside, rack = (
            network.collective("all_reduce", byte, group).value for group in (Group(4, 1), Group(4, 2))
        )
        assert inside < rack


@given(
    st.sampled_from(COLLECTIVES), st.integers(2, 72), st.floats(0, 1e11), st.floats(0, 1e-4), st.floats(1e6, 1e13)
)
def test_steps_in_one_kernel_take_longer_for_more(collective, ranks, byte, alpha_s, rate):
    def taken(**changes):
        asked = {"message_byte": byte, "ranks": ranks, **changes}
        return pipelined_s(collective, line=Line(alpha_s, rate), **asked)

    assert taken() <= taken(message_byte=2 * byte) <= 2 * taken() + 1e-12
    assert taken() <= taken(ranks=2 * ranks) * (1 + 1e-12)
    assert pipelined_s(collective, byte, 1, Line(alpha_s, rate)) == 0


def test_groups_fill_nodes():
    network = Network(MACHINE)
    assert network.group(4) == Group(4, 1)
    assert network.group(32) == Group(8, 4)
    assert network.group(16, apart=8) == Group(1, 16)
    assert network.group(4, apart=4) == Group(2, 2)
    assert (network.group(12), network.group(9)) == (Group(6, 2), Group(3, 3))  # as many in each node


NEAR, FAR = Line(5e-6, 300e9), Line(10e-6, 25e9)
TIMED = replace(MACHINE, links=tuple(replace(link, basis="measured") for link in LINKS))
"""What `LINKS` says, and a machine whose links were measured: a textbook's formulas take them as they are."""


@pytest.mark.parametrize(
    ("algorithm", "collective", "group", "seconds"),
    [
        ("ring", "all_reduce", Group(8, 2), ring_s("all_reduce", 1e8, 16, FAR)),
        ("hierarchical", "all_reduce", Group(8, 1), ring_s("all_reduce", 1e8, 8, NEAR)),
        (
            "hierarchical",
            "all_reduce",
            Group(8, 2),
            1e8 * 7 / 4 / 300e9 + 14 * 5e-6 + ring_s("all_reduce", 1e8 / 8, 2, FAR),
        ),
        ("hierarchical", "all_reduce", Group(1, 4), ring_s("all_reduce", 1e8, 4, FAR)),
        # Half of what is gathered comes from the other node, then all of it is handed round inside.
        ("hierarchical", "all_gather", Group(2, 2), 10e-6 + 1e8 / 2 / 2 / 25e9 + 5e-6 + 1e8 / 2 / 300e9),
        ("hierarchical", "all_gather", Group(1, 2), 10e-6 + 1e8 / 2 / 25e9),
    ],
)
def test_a_named_algorithm_is_the_one_that_is_priced(algorithm, collective, group, seconds):
    found = Network(TIMED).collective(collective, 1e8, group, algorithm).value
    assert found == pytest.approx(seconds, rel=1e-9)


def test_a_link_of_both_directions_carries_half_each_way_and_a_host_packs():
    both = replace(MACHINE, links=(Link("system", 0.0, 20e9, "both", "test"),))
    assert Network(both).ends("system", 1e6).value.byte_per_s == pytest.approx(10e9)
    packed = Link("node", 1e-4, 10e9, "each", "test", "grpc", serialise_byte_per_s=2.5e9)
    grpc = Network(replace(MACHINE, links=(*LINKS, packed)), "grpc")
    assert grpc.ends("node", 1e6).value == (1e-4, pytest.approx(2e9))
    with pytest.raises(FomkitError, match=r"states no link of tier 'system' of channel 'grpc'"):
        grpc.ends("system", 1e6)


@pytest.mark.parametrize(
    ("layout", "named"),
    [
        (Layout(expert=0), "expert is 0"),
        (Layout(expert=4, algorithm="parameter_server"), "a parameter server with expert parallelism"),
        (Layout(interleave=2), "interleave"),
        (Layout(sequence=True), "sequence parallelism"),
        (Layout(algorithm="parameter_server", zero=1), "a parameter server and zero"),
        (Layout(algorithm="parameter_server", tensor=2), "a parameter server with tensor"),
        (Layout(optimizer="server"), "an update on the server"),
        (Layout(zero=3, pipeline=2), "zero 2 and 3 with a pipeline"),
        (Layout(zero=1, staleness=1), "stale gradients with zero"),
        (Layout(clip=True, staleness=1), "clipping"),
        (Layout(servers=2), "servers require"),
        (Layout(zero=4), "zero is 4"),
        (Layout(tensor=0), "tensor is 0"),
        (Layout(tensor=1.5), "tensor is 1.5"),
        (Layout(compression=0.0), "compression is 0"),
        (Layout(recompute="some"), "'some' is not a value of recompute"),
    ],
)
def test_unsupported_layouts_are_refused_by_name(layout, named):
    with pytest.raises(FomkitError, match=f"layout: {named}"):
        check_layout(layout)


def test_layouts_that_do_not_divide():
    with pytest.raises(FomkitError, match=r"12 devices cannot be divided into copies of tensor 8"):
        Layout(tensor=8).replicas(12)
    with pytest.raises(FomkitError, match=r"6 replicas on 12 devices do not divide into groups of expert 4"):
        Layout(tensor=2, expert=4).replicas(12)
    assert Layout(tensor=2, expert=4).replicas(16) == 8
    with pytest.raises(FomkitError, match=r"96 blocks are fewer than pipeline 50 × interleave 2 = 100 chunks"):
        check_schedule(50, 100, 2, 96)
    with pytest.raises(FomkitError, match=r"multiples of its 8 stages, but there are 12"):
        check_schedule(8, 12, 3, 96)
    with pytest.raises(FomkitError, match=r"fewer samples than the 16 replicas"):
        microbatches_of(8, 16, None)
    with pytest.raises(FomkitError, match=r"does not divide into 4 replicas of microbatches of 3"):
        microbatches_of(64, 4, 3)


def test_activations_follow_the_technique():
    gpt = Transformer(hidden=6144, heads=64, blocks=48, seq=2048, vocabulary=51200)
    kept = [
        activation_byte(gpt, 4, Layout(tensor=8, **technique), 1)[0]
        for technique in ({}, {"sequence": True}, {"recompute": "selective"}, {"recompute": "full"})
    ]
    assert kept == sorted(kept, reverse=True)
    fused = replace(gpt, attention="fused")
    assert activation_byte(fused, 4, Layout(tensor=8), 1)[0] == pytest.approx(kept[2])


def test_how_much_longer_a_bridge_takes_is_what_its_table_says() -> None:
    bridged = load_machine("l40s")
    rows = bridged.timings[(bridged.timings["ranks"] > 2) & (bridged.timings["message_byte"] >= 2**20)]
    ratios = [
        row["time_s"] / around(bridged.links[0], row["collective"], row["message_byte"], int(row["ranks"])).value
        for row in rows.to_dict("records")
    ]
    assert round(max(ratios)) == BRIDGED


def test_a_block_of_another_feed_forward_width_keeps_its_own_tensors() -> None:
    """Of each element of the stream 10 bytes, 8 of attention, and 4 of each element between the two products."""
    narrow = Transformer(
        hidden=512, heads=8, blocks=4, seq=256, vocabulary=1000, feed_forward=1536, attention="fused"
    )
    (found,) = activation_byte(narrow, 2, Layout(), 1, head=False)
    assert found == 4 * 2 * 256 * 512 * (10 + 8 + 4 * 3)


def test_a_group_uses_the_lanes_to_its_own_members_alone() -> None:
    """Of eight boards with a link from each to each, two have one of seven lanes and all eight the whole rate."""
    meshed = Link("node", 0.0, 7e9, "each", "made", lanes=7, basis="measured")
    board = replace(load_machine("mi300x"), links=(meshed,))
    network, switched = Network(board), Network(replace(board, links=(replace(meshed, lanes=None),)))
    for ranks, share in ((2, 1 / 7), (4, 3 / 7), (8, 1.0)):
        slow, quick = (one.collective("all_reduce", 1e9, Group(ranks, 1)).value for one in (network, switched))
        assert slow * share == pytest.approx(quick)
    assert network.send(7e9, "node").value == pytest.approx(7.0)
    assert switched.send(7e9, "node").value == pytest.approx(1.0)
    known = load_machine("mi300x").links[0]
    floor_s = 17.18e9 / (known.byte_per_s / 7)
    assert Network(load_machine("mi300x")).collective("all_reduce", 17.18e9, Group(2, 1)).low > 0.9 * floor_s
