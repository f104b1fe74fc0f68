"""Sparse products, products of bytes and all-reduces: verbatim or between timed ones, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import BASE, gemm, table
from predict.machines import device, fact, loaded, machine, timings

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Link
from fomkit.ops.pricing import add_costs
from fomkit.prediction.calibration import fit_timings
from fomkit.prediction.cascade import add_times
from fomkit.prediction.exact import SERIES, row_major
from fomkit.prediction.exchange import Network, table_time
from fomkit.prediction.families import training_rows
from fomkit.prediction.links import Group

SERVERS = ("gtx-1080-ti", "titan-x-pascal")
REDUCERS = (*SERVERS, "p100", "m40", "titan-x", "knl-7250")


@pytest.fixture(scope="module")
def shipped(root):
    return {name: loaded(root / "machine_profiles" / f"{name}.yaml") for name in REDUCERS}


def sparse(m, n, k, density, **more):
    return {**gemm(m, n, k), "kind": "sparse_gemm", "density": density, **more}


def reduce(message_byte, ranks, link="node", **more):
    sizes = {"message_byte": float(message_byte), "ranks": float(ranks), "link": link}
    return {**BASE, "kind": "collective", "collective": "all_reduce", **sizes, **more}


def timed(known, *rows):
    return add_times(add_costs(table(*rows)), known)


@pytest.mark.parametrize("name", SERVERS)
def test_a_timed_sparse_product_is_given_verbatim_and_others_between(shipped, name):
    known = shipped[name]
    found = timed(
        known, sparse(7680, 1500, 2560, 0.05), sparse(7680, 2000, 2560, 0.05), sparse(7680, 1500, 2560, 0.3)
    )
    row = known.timings[(known.timings["kind"] == "sparse_gemm") & (known.timings["n"] == 1500)].iloc[0]
    assert (found["time_source"].iloc[0], found["time_s"].iloc[0]) == ("measured", row["time_s"])
    assert set(found["time_source"].iloc[1:]) == {"interpolated"}
    # A third more columns take about a third longer, and six times the elements several times as long.
    assert 1.15 < found["time_s"].iloc[1] / found["time_s"].iloc[0] < 1.6
    assert 1.5 < found["time_s"].iloc[2] / found["time_s"].iloc[0] < 12
    width = found["high_s"] / found["low_s"]
    assert width.iloc[0] < width.iloc[1] < width.iloc[2]


def test_a_sparse_product_is_not_turned_around():
    blas = {**sparse(7680, 2, 2560, 0.05), "layout": "column_major", "op": "", "time_s": 1e-3}
    assert row_major(timings(blas))[["m", "n"]].values.tolist() == [[7680, 2]]
    assert row_major(timings({**blas, "kind": "gemm"}))[["m", "n"]].values.tolist() == [[2, 7680]]


def test_sparse_products_without_a_table_take_what_is_usual_for_sparse_products():
    known = machine(device(bandwidth=fact(1e12), fp32_vector=1e13))
    found = timed(known, sparse(7680, 1500, 2560, 0.05), sparse(7680, 1500, 2560, 0.05, engine="matrix"))
    assert found["evidence"].str.contains("typical of sparse_gemm/vector").all()
    # Libraries reach a hundredth of the peak there, far from what dense products do.
    assert (found["flop"] / found["time_s"] < 0.05 * 1e13).all()


@pytest.mark.parametrize("name", SERVERS)
def test_products_of_bytes_have_a_fit_of_their_own(shipped, name):
    known = shipped[name]
    assert {"gemm/int8/vector", "conv/int8/vector/forward"} <= set(known.fits)
    # As a framework asks for it: 1500 samples by 2560×7680 weights.
    query = [gemm(1500, 7680, 2560, dtype=dtype, trans_a=0.0, trans_b=0.0) for dtype in ("int8", "fp32")]
    found = timed(known, *query, gemm(1600, 7680, 2560, dtype="int8", trans_a=0.0, trans_b=0.0))
    assert found["time_source"].tolist() == ["measured", "measured", "interpolated"]
    assert 3 < found["time_s"].iloc[1] / found["time_s"].iloc[0] < 4.5
    assert found["time_s"].iloc[2] == pytest.approx(found["time_s"].iloc[0] * 1600 / 1500, rel=0.2)


@pytest.mark.parametrize("name", REDUCERS)
def test_timed_all_reduces_are_verbatim_with_an_interval_of_their_deviation(shipped, name):
    known = shipped[name]
    rows = known.timings[known.timings["kind"] == "collective"]
    query = [reduce(row.message_byte, row.ranks, row.link) for row in rows.itertuples()]
    found = timed(known, *query)
    assert (found["time_source"] == "measured").all()
    assert found["time_s"].tolist() == rows["time_s"].tolist()
    noisy = rows["p75_s"].to_numpy() > rows["time_s"].to_numpy()
    assert noisy.sum() > len(rows) / 2
    assert (found["high_s"] > found["time_s"])[noisy].all()


@pytest.mark.parametrize("name", REDUCERS)
def test_messages_of_other_sizes_lie_between_timed_ones(shipped, name):
    known = shipped[name]
    rows = known.timings[(known.timings["kind"] == "collective") & (known.timings["ranks"] == 4)]
    link = rows["link"].iloc[0]
    found = timed(known, *(reduce(size, 4, link) for size in (4e5, 2e7, 5e7, 2.58e8)))
    assert found["time_source"].tolist() == ["measured", "interpolated", "interpolated", "measured"]
    assert found["time_s"].is_monotonic_increasing
    assert found["bound"].tolist() == ["measured"] * 4


def test_ranks_links_and_collectives_that_nobody_timed_stay_unpriced(shipped):
    known = shipped["m40"]
    gathers = reduce(2e7, 8, collective="all_gather")
    others = [reduce(2e7, 3), reduce(2e7, 64, "system"), reduce(2e7, 8, "system"), gathers]
    found = timed(known, reduce(2e7, 8), *others)
    assert found["time_s"].notna().tolist() == [True, False, False, False, False]
    assert timed(replace(known, timings=known.timings.iloc[:0], fits={}), reduce(2e7, 8))["time_s"].isna().all()


@pytest.mark.parametrize("name", ["a100-sxm", "h200-sxm"])
def test_collectives_are_priced_by_alpha_beta_where_only_their_link_is_stated(root, name):
    """All 504 collectives of the table, predicted without timings; the large ones are within their intervals."""
    known = loaded(root / "machine_profiles" / f"{name}.yaml")
    rows = known.timings.query("kind == 'collective' and op == ''")
    bare = replace(known, timings=known.timings.iloc[:0], fits={}, timings_key="")
    found = timed(
        bare,
        *(reduce(row.message_byte, row.ranks, row.link, collective=row.collective) for row in rows.itertuples()),
    )
    assert len(found) == 504
    assert (found["time_source"] == "alpha_beta").all()
    assert (found["bound"] == "network").all()
    large = (rows["message_byte"] >= 2**20).to_numpy()
    held = found["low_s"].to_numpy() <= rows["time_s"].to_numpy()
    held &= rows["time_s"].to_numpy() <= found["high_s"].to_numpy()
    assert held[large].mean() > 0.7


def test_a_collective_by_hand_on_a_stated_link():
    links = (Link("node", 1e-5, 100e9, "each", "test"), Link("system", 2e-5, 20e9, "both", "test"))
    known = machine(links=links, node_devices=8)
    found = timed(
        known, reduce(1e9, 8), reduce(1e3, 8), reduce(1e9, 4, collective="all_gather"),
        reduce(1e9, 16, "system"), reduce(1e9, 16, ""), reduce(1e9, 8, collective="sendrecv"),
    )  # fmt: skip

    def inside(sent_byte, own_byte, steps):
        """NCCL reaches 0.85 of the rate, a further step is 0.14 of a start, and 0.6 of the own share moves."""
        starts, moved = 1e-5 * (1 + 0.14 * (steps - 1)), (sent_byte + 0.6 * own_byte) / 85e9
        return starts + (starts * moved) ** 0.5 + moved

    ring, short = inside(1.75e9, 1e9 / 8, 14), inside(1.75e3, 1e3 / 8, 14)
    # An eighth of the message goes between two nodes; a link that states both directions together gives each half.
    stages = 2 * inside(0.875e9, 1e9 / 8, 7) + 2 * 2e-5 + 1e9 / 8 / 10e9
    gather = inside(0.75e9, 1e9 / 4, 3)
    assert found["time_s"].tolist()[:5] == pytest.approx([ring, short, gather, stages, stages])
    assert found["time_s"].isna().tolist() == [False] * 5 + [True]
    assert (found["low_s"] < found["time_s"])[:5].all()
    assert (found["time_s"] < found["high_s"])[:5].all()
    assert "over 8 ranks around a ring" in found["evidence"].iloc[0]
    assert found["evidence"].iloc[3].endswith("over 16 ranks in stages, 8 inside each of 2 nodes")
    # Without the link inside a node, and with one rank a node, it is flat: the quicker of a ring and two trees.
    flat = [reduce(1e9, 16, "system"), reduce(1e3, 16, "system")]
    wide, narrow = 30 * 2e-5 + 2 * 15 / 16 * 1e9 / 10e9, 8 * 2e-5 + 2e3 / 10e9
    assert timed(replace(known, links=links[1:]), *flat)["time_s"].tolist() == pytest.approx([wide, narrow])
    apart = timed(known, reduce(1e9, 8, "system"), reduce(1e3, 8, "system"))["time_s"].tolist()
    assert apart == pytest.approx([14 * 2e-5 + 1.75e9 / 10e9, 6 * 2e-5 + 2e3 / 10e9])


CLASSES = (
    Link("node", 4e-6, 50e9, "each", "test", "nccl", most_byte=2**20, alpha_range_s=(3e-6, 6e-6)),
    Link("node", 9e-6, 200e9, "each", "test", "nccl", 2**20, range_byte_per_s=(150e9, 220e9)),
    Link("system", 2e-5, 20e9, "both", "test", serialise_byte_per_s=80e9),
)


@pytest.mark.parametrize(
    "links", [(Link("node", 5e-6, 300e9, "each", "test"), Link("system", 5e-6, 25e9, "each", "test")), CLASSES]
)
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_a_collective_has_one_price_in_op_tables_and_in_scaling(links, collective):
    """Ring, trees and stages, in one node, in two and in many, evenly filled or not, small and large."""
    known = machine(links=links, node_devices=8)
    sizes = [(byte, ranks) for byte in (64.0, 3e4, 2.5e6, 120.4e6, 4e9) for ranks in (2, 3, 8, 12, 16, 64, 1024)]
    found = timed(known, *(reduce(*size, "", collective=collective) for size in sizes))
    network = Network(known)
    same = [network.collective(collective, byte, network.group(ranks)) for byte, ranks in sizes]
    for column, name in (("time_s", "value"), ("low_s", "low"), ("high_s", "high")):
        assert found[column].tolist() == pytest.approx([getattr(one, name) for one in same], rel=1e-12)
    ways = {text.split(" ranks ")[1].split(",")[0] for text in found["evidence"]}
    staged = {"in stages"} if collective in ("all_reduce", "all_gather", "reduce_scatter") else set()
    own = {"all_reduce": {"in two trees"}, "all_to_all": {"between and inside nodes at the same time"}}
    assert ways == {"around a ring", *staged, *own.get(collective, ())}


def test_the_gradients_of_two_nodes_cost_in_a_table_what_they_cost_in_scaling(root):
    """120.4 MB over two nodes of eight go in stages, by the table inside a node, not in 9.18 ms in one ring."""
    known = loaded(root / "machine_profiles" / "a100-sxm.yaml")
    known = replace(known, links=(*known.links, Link("system", 5e-6, 25e9, "each", "test")))
    found = timed(known, reduce(120.4e6, 16, "system")).iloc[0]
    waited = Network(known).collective("all_reduce", 120.4e6, Group(8, 2))
    assert (found["time_s"], found["low_s"], found["high_s"]) == pytest.approx(
        (waited.value, waited.low, waited.high)
    )
    between = 2 * 5e-6 + 120.4e6 / 8 / 25e9
    inside = [table_time(known.timings, one, 120.4e6, 8).value for one in ("reduce_scatter", "all_gather")]
    assert found["time_s"] == pytest.approx(between + sum(inside))
    assert found["time_s"] < 2e-3
    assert (found["time_source"], found["bound"]) == ("alpha_beta", "network")
    assert "inside a node from its table" in found["evidence"]


def test_too_few_timings_for_a_fit_tell_a_row_what_they_tell_scaling():
    few = timings(*({**reduce(byte, 4), "op": "", "time_s": byte / 1e9} for byte in (1e6, 4e6)))
    known = replace(machine(links=(Link("node", 1e-5, 100e9, "each", "test"),), node_devices=8), timings=few)
    found = timed(known, reduce(2e6, 4), reduce(2e6, 8))
    network = Network(known)
    both = [network.collective("all_reduce", 2e6, Group(ranks, 1)).value for ranks in (4, 8)]
    assert found["time_s"].tolist() == pytest.approx(both)
    assert found["time_source"].tolist() == ["interpolated", "alpha_beta"]


def test_the_table_of_a_machine_comes_before_its_links(shipped):
    known = replace(shipped["m40"], links=(Link("node", 1e-5, 1e9, "each", "test"),))
    found = timed(known, reduce(2e7, 8), reduce(2e7, 3), reduce(2e7, 64, "system"))
    assert found["time_source"].tolist() == ["interpolated", "alpha_beta", ""]


def test_a_collective_is_the_same_in_each_pass(shipped):
    found = timed(shipped["m40"], *(reduce(2e7, 8, pass_name=word) for word in ("backward", "update")))
    assert found["time_s"].iloc[0] == found["time_s"].iloc[1] > 0


def line_between_neighbours(rows):
    """ln of the time on the line through the logs of the two nearest message sizes of the same ranks and link."""
    found = pd.Series(np.nan, rows.index)
    for _, same in rows.groupby(["ranks", "link"]):
        for at in same.index:
            known = np.log(same.drop(at)[["message_byte", "_time_s"]].sort_values("message_byte").to_numpy())
            query = np.log(same.at[at, "message_byte"])
            first = min(max(np.searchsorted(known[:, 0], query) - 1, 0), len(known) - 2)
            (x0, y0), (x1, y1) = known[first : first + 2]
            found[at] = y0 + (y1 - y0) / (x1 - x0) * (query - x0)
    return np.exp(found)


def test_left_out_all_reduces_beat_lines_and_scaling_on_the_average_machine(shipped, left_out):
    """Whole message sizes are left out. Scaling by the size alone, at a constant rate, has the better median."""
    found = {}
    for name, known in shipped.items():
        family, rows = next(pair for pair in left_out.tables(known) if pair[0].kind == "collective")
        line = 100 * (line_between_neighbours(rows) / rows["_time_s"] - 1).abs().mean()
        found[name] = {**left_out.errors(left_out.predicted(known, family, rows, folds=5)), "line_mean": line}
    errors = pd.DataFrame(found).T
    assert errors["mean"].mean() < 0.9 * errors["nearest_mean"].mean()
    assert errors["mean"].mean() < 0.8 * errors["line_mean"].mean()
    assert (errors["median"] < 15).all()
    assert (errors["hit_rate"] > 0.6).all()


@pytest.mark.parametrize("name", SERVERS)
def test_left_out_sparse_matrices(shipped, name, left_out):
    known = shipped[name]
    family, rows = next(pair for pair in left_out.tables(known) if pair[0].kind == "sparse_gemm")
    found = left_out.errors(left_out.predicted(known, family, rows, folds=5))
    assert found["median"] < min(20, found["nearest_median"])
    assert found["mean"] < 1.25 * found["nearest_mean"]
    assert 0.6 <= found["hit_rate"] <= 0.92


def test_phones_have_few_rows_and_fit_what_they_can(root):
    known = loaded(root / "machine_profiles" / "iphone-6.yaml")
    assert sorted(known.fits) == ["gemm/int8/vector", "rates", "sparse_gemm/int8/vector"]
    found = timed(known, gemm(1500, 3072, 1024, dtype="int8"), gemm(1500, 3072, 1024))
    assert found["time_source"].tolist() == ["measured", "roofline"]


def test_fewer_ops_than_a_fit_needs_leave_the_roofline():
    few = timings(*({**sparse(64 * at, 8, 64, 0.5), "op": "", "time_s": 1e-4 * at} for at in range(1, 8)))
    assert fit_timings(add_costs(few)) == {}
    known = machine(device(bandwidth=fact(1e12), fp32_vector=1e13), few)
    assert timed(known, sparse(65, 8, 64, 0.5))["time_source"].tolist() == ["roofline"]


def test_sparse_products_stored_otherwise_are_other_ops():
    rows = [{**sparse(64, 8, 64, 0.5, trans_a=float(at)), "op": "", "time_s": 1e-4} for at in (0, 1, 1)]
    from fomkit.prediction.families import FamilyName

    family = FamilyName("sparse_gemm", "fp32", "vector", "")
    assert len(training_rows(pd.DataFrame(timings(*rows)), family)) == 2


@pytest.mark.parametrize("row", [sparse(64, 8, 64, 0.0), reduce(0, 8)])
def test_products_without_elements_and_messages_without_length_are_no_ops(row):
    with pytest.raises(FomkitError, match="Expected a finite number above 0"):
        timed(machine(), row)


def alpha_beta(sizes: list[float]) -> pd.DataFrame:
    rows = [reduce(size, ranks, time_s=1e-5 * ranks + size / 1e10) for size in sizes for ranks in (2, 4)]
    return timings(*rows).assign(harness="x", op="")


SIZES = [4.0**power for power in range(5, 18)]


@pytest.mark.parametrize(
    ("sizes", "straight"),
    [(SIZES, True), (SIZES[:SERIES], True), (SIZES[: SERIES - 1], False), ([*SIZES[:6], *SIZES[7:]], False)],
)
def test_between_sizes_of_a_long_series_time_goes_straight(sizes, straight):
    """With few sizes, or across a wide gap, the process is used, which includes other numbers of ranks."""
    rows = alpha_beta(sizes)
    known = machine(table=rows, fits=fit_timings(add_costs(rows)))
    between = np.array([1.5, 3.0]) * SIZES[5]
    found = timed(known, *(reduce(size, 4) for size in between))
    assert np.allclose(found["time_s"], between / 1e10 + 4e-5, rtol=1e-9) == straight
    assert set(found["time_source"]) == {"interpolated"}
