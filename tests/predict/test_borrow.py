"""One Gaussian process over all machines: transfer from other tables to a machine's small table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from costs.op_tables import gemm, table
from predict.machines import as_answers, device, fact, machine

from fomkit.core.machine import Link
from fomkit.ops.pricing import add_costs
from fomkit.prediction import calibration, families, gp, interpolate
from fomkit.prediction.calibration import fit_timings
from fomkit.prediction.cascade import rescale_answers
from fomkit.prediction.donors import Others, Process, _own_share, _site_noise, condition, levels_of
from fomkit.prediction.estimators import Timed, as_rows
from fomkit.prediction.exact import row_major
from fomkit.prediction.exchange import Network, _group
from fomkit.prediction.families import FamilyName, training_rows
from fomkit.profiles.evidence import others_of, with_fits
from fomkit.profiles.machines import load_machine

FORWARD = FamilyName("conv", "fp32", "vector", "forward")
NAMES = ["NVIDIA Pascal GP100", "NVIDIA Pascal GP102", "AMD GCN5 Vega10"]


@pytest.fixture
def small():
    """Three machines that timed most of seven ops, as numbers that anybody can work out."""
    draw = np.random.default_rng(3)
    log_s = draw.normal(size=(3, 7))
    log_s[1, 2] = log_s[2, :2] = np.nan
    process = Process(np.array([1.0, 2.0]), np.array([0.3, 0.2, 0.1, 0.2]), np.array([0.1, 0.05, 0.0, 0.02]),
                      np.array([1.0, 0.7, 1.3]), np.array([0.1, 0.2, 0.4]), 0.05, 0.03, np.ones(3),
                      draw.normal(size=(3, 7)))  # fmt: skip
    alike = levels_of(["NVIDIA Pascal GP102"], NAMES)[:, 0]
    features = draw.normal(size=(7, 2))
    return Others(features, log_s, np.arange(7), [process] * 8, alike, levels_of(NAMES, NAMES), None)


def dense(small, own, target, noise, query, variance):
    """The posterior as the textbook has it: one matrix of all rows (Rasmussen & Williams, eq. 2.23 and 2.24)."""
    process = small.processes[-1]
    machine, op = np.nonzero(~np.isnan(small.log_s))
    who = np.concatenate([machine, np.full(len(own), 3)])
    where = np.concatenate([small.features[op], own])
    names = [*NAMES, "NVIDIA Pascal GP102"]
    level = levels_of(names, names)
    scale = np.append(process.scale, np.average(process.scale, weights=4.0 ** small.alike.sum(0)))
    own_variance = variance / scale[-1] ** 2 - process.level.sum()
    shared = np.tensordot(process.level, level, 1) + np.diag(np.append(process.own, own_variance))
    constant = np.tensordot(process.offset, level, 1) + process.own_offset * np.eye(4)
    shared *= np.outer(scale, scale)

    def covariance(a, x, b, y):
        apart = gp.correlation(gp.distances(x, y, process.length))
        return shared[np.ix_(a, b)] * apart + constant[np.ix_(a, b)]

    seen = covariance(who, where, who, where) + process.noise * np.eye(len(who))
    seen[-len(own) :, -len(own) :] += np.diag(noise)
    asked = np.full(len(query), 3)
    cross = covariance(asked, query, who, where)
    known = np.concatenate([(small.log_s - process.log_mean)[machine, op], target])
    left = covariance(asked, query, asked, query) - cross @ np.linalg.solve(seen, cross.T)
    return cross @ np.linalg.solve(seen, known), np.diag(left)


def test_the_condensed_process_is_the_dense_one(small):
    draw = np.random.default_rng(0)
    own = np.concatenate([small.features[:2], draw.normal(size=(3, 2))])
    target, noise, query = draw.normal(size=5), np.full(5, 0.01), draw.normal(size=(20, 2))
    found = condition(small, -1, np.zeros(7, bool), own, target, noise)
    rows = np.concatenate([own, found.elsewhere])
    assert len(found.elsewhere) == 5
    ready = gp.precompute(rows, found.target, found.noise - found.hyper.noise, found.hyper)
    mean, _ = dense(small, own, target, noise, query, found.hyper.variance)
    assert gp.posterior(ready, query).mean + found.offset == pytest.approx(mean, abs=1e-8)
    _, left = dense(small, own, target, noise, rows, found.hyper.variance)
    assert gp.posterior(ready, rows).variance - found.hyper.noise == pytest.approx(left, rel=0.15)


def test_an_own_row_is_reproduced_within_its_noise(small):
    process = small.processes[-1]._replace(noise=1e-6)
    exact = small._replace(processes=[process])
    own, target = small.features[:3] + 0.3, np.array([2.0, -1.0, 0.5])
    found = condition(exact, -1, np.zeros(7, bool), own, target, np.full(3, 1e-6))
    ready = gp.precompute(
        np.concatenate([own, found.elsewhere]), found.target, found.noise - found.hyper.noise, found.hyper
    )
    assert gp.posterior(ready, own).mean + found.offset == pytest.approx(target, abs=0.01)


def test_hidden_ops_tell_nothing(small):
    hidden = np.arange(7) == 4
    other = small.log_s.copy()
    other[:, 4] += 5.0
    own = (small.features[:2], np.array([1.0, 0.0]), np.zeros(2))
    first, second = (condition(one, -1, hidden, *own) for one in (small, small._replace(log_s=other)))
    assert first.target == pytest.approx(second.target)
    assert first.offset == pytest.approx(second.offset)
    third = condition(small._replace(log_s=other), -1, np.zeros(7, bool), *own)
    assert abs(third.offset - first.offset) > 1e-3


def errors(machine, count, told):
    """Return the errors of the rows of two seeds with so many known rows, with and without other machines."""
    rows = training_rows(add_costs(row_major(machine.timings)), FORWARD)
    found = []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(len(rows))
        known, query = (rows.iloc[part].reset_index(drop=True) for part in (order[:count], order[-18:]))
        knowing = replace(machine, timings=known, fits=fit_timings(known, told))
        times = interpolate.estimate(query, knowing, 0.8)
        found.append(times.time_s / query["_time_s"].to_numpy() - 1)
    return np.abs(np.concatenate(found))


@pytest.mark.parametrize(("name", "few", "many"), [("m40", 0.05, 0.04), ("p100", 0.11, 0.09)])
def test_others_tell_much_and_more_own_rows_are_no_worse(name, few, many):
    machine = load_machine(name)
    told = {str(FORWARD): others_of(machine)[str(FORWARD)]}
    twenty, most = (np.median(errors(machine, count, told)) for count in (18, 72))
    assert twenty < few
    assert most < many
    assert most < twenty + 0.01
    assert twenty < 0.85 * np.median(errors(machine, 18, {}))


def test_a_short_table_of_ones_own_hears_the_shipped_ones():
    machine = load_machine("m40")
    rows = machine.timings[(machine.timings["kind"] == "conv") & (machine.timings["pass_name"] == "forward")]
    mine = replace(machine, name="mine", timings=rows.head(20).reset_index(drop=True), fits={}, timings_key="")
    assert len(others_of(mine)[str(FORWARD)].log_s) == len(others_of(machine)[str(FORWARD)].log_s) + 1 == 9
    stored = with_fits(mine).fits[str(FORWARD)]
    assert len(stored["elsewhere"]) > 60
    assert len(stored["residual"]) == len(stored["row_noise"]) == len(stored["elsewhere"]) + 20


def test_a_large_table_of_ones_own_is_told_of_tiles_not_of_others(monkeypatch):
    for module in (calibration, families):
        monkeypatch.setattr(module, "LIMIT", 60)
    machine = load_machine("m40")
    rows = add_costs(machine.timings[machine.timings["kind"] == "conv"])
    found = [
        fit_timings(rows.groupby("pass_name").head(count), others_of(machine))[str(FORWARD)] for count in (60, 70)
    ]
    assert ["elsewhere" in one for one in found] == [True, False]
    assert len(found[1]["length"]) == len(found[0]["length"]) + 3


def test_others_of_the_vendor_tell_more_where_they_timed_a_seventh_of_all_and_more(small):
    assert not small.tell_more(small.features[1:])  # one of seven is 14 %
    assert small.tell_more(small.features[2:])
    assert not small.tell_more(small.features + 1e-7)
    assert small.tell_more(small.features + 1e-5)
    strange = replace_alike(small, vendor=False)
    assert not strange.tell_more(small.features[2:])


def replace_alike(small: Others, *, vendor: bool) -> Others:
    alike = small.alike.copy()
    alike[1:] = vendor
    return small._replace(alike=alike)


def test_a_shape_group_is_the_first_size_and_of_a_convolution_all_but_its_batch(small):
    moved = small.features[[3, 5]] + [[0.0, 9.0], [1e-3, 0.0]]
    assert small.groups(moved).tolist() == [3, -1]
    convolutions = small._replace(features=np.random.default_rng(1).normal(size=(4, 9)))
    for column, group in ((0, 2), (7, 2), (8, -1), (1, -1)):
        other = convolutions.features[[2]].copy()
        other[0, column] += 1.0
        assert convolutions.groups(other).tolist() == [group]


def test_the_noise_of_a_site_leaves_the_variance_that_was_asked_for():
    places = np.linspace(0, 3, 5)[:, None]
    among = 0.8 * gp.correlation(gp.distances(places, places, np.ones(1)))
    wanted = np.array([0.1, 0.2, 0.05, 0.3, 0.2])
    left = np.diag(among - among @ np.linalg.inv(among + np.diag(_site_noise(among, wanted))) @ among)
    assert left == pytest.approx(wanted, rel=1e-3)
    # No site can leave more than was there.
    most = _site_noise(np.eye(1), np.array([2.0]))
    assert 1 - 1 / (1 + most[0]) == pytest.approx(0.999, rel=1e-3)


def test_a_machine_goes_its_own_way_as_far_as_its_rows_say_beside_a_wide_prior():
    """Errors of 1/8 of the usual variance; of one error of 1/16 the prior, a factor of e³ wide, leaves 1/8."""
    assert _own_share(lambda share: share * np.eye(200), np.full(200, np.sqrt(0.25)), 2.0) == 0.25
    assert _own_share(lambda share: share * np.eye(1), np.array([0.25]), 1.0) == 0.125
    assert _own_share(lambda share: share * np.eye(0), np.empty(0), 3.0) == 3.0


@pytest.mark.parametrize(("missing", "tells"), [(3, True), (2, False)])
def test_others_tell_a_table_that_lacks_a_seventh_of_what_they_timed(small, missing, tells):
    """3 of 20 ops are 15 %; machines of another vendor are not used."""
    features = np.random.default_rng(1).normal(size=(20, 2))
    others = small._replace(features=features)
    assert others.tell_more(features[missing:]) == tells
    assert others.tell_more(features[missing:] + 1e-7) == tells  # the same ops, rounded otherwise
    strangers = others._replace(alike=np.array([[True] * 3, *[[False] * 3] * 3]))
    assert not strangers.tell_more(features[missing:])


NODE, SYSTEM = (Link(tier, 1e-6, 1e11, "each", "made") for tier in ("node", "system"))


@pytest.mark.parametrize(
    ("links", "devices", "ranks", "link", "group"),
    [
        # Inside a node where a row says so, or where so many stand in one; else in filled nodes.
        ([NODE, SYSTEM], 8, 8, "", (8, 1)), ([NODE, SYSTEM], 8, 16, "", (8, 2)),
        ([NODE, SYSTEM], 8, 9, "", (3, 3)), ([NODE, SYSTEM], 8, 16, "node", (16, 1)),
        ([NODE, SYSTEM], 8, 16, "system", (8, 2)),
        # Of so few in several nodes each stands in its own, as where nobody says how large one is.
        ([NODE, SYSTEM], 8, 8, "system", (1, 8)), ([NODE, SYSTEM], None, 16, "", (1, 16)),
        ([NODE, SYSTEM], None, 4, "node", (4, 1)), ([SYSTEM], 8, 16, "", (1, 16)),
        # Without the link nothing is known.
        ([SYSTEM], 8, 8, "", None), ([SYSTEM], 8, 4, "node", None), ([NODE], 8, 16, "", None),
        ([NODE], 8, 4, "system", None),
    ],
)  # fmt: skip
def test_ranks_of_a_row_stand_in_as_few_nodes_as_it_leaves_open(links, devices, ranks, link, group):
    network = Network(machine(links=tuple(links), node_devices=devices))
    assert _group(network, ranks, link) == group


@pytest.mark.parametrize(
    ("before", "after", "time_us", "bound"),
    [(2e-6, 4e-6, 10.8, "launch"), (2e-6, 0.0, 9.2, "memory"), (2e-6, None, 10.0, "launch"),
     (None, 4e-6, 10.0, "memory"), (0.0, 4e-6, 10.0, "memory")],
)  # fmt: skip
def test_launches_grow_with_their_cost_where_both_are_known(before, after, time_us, bound):
    """Of 10 µs a launch of 2 makes 0.8 longer (`starts_within`); the rest is the kernel, which stays."""
    one, other = (
        device(None if cost is None else fact(cost), fact(1e12), fp32_vector=1e14) for cost in (before, after)
    )
    answers = as_answers({0: Timed(10e-6, 9e-6, 12e-6, "roofline", "memory", "")})
    rows = as_rows(add_costs(table(gemm(64, 64, 64))))
    found = rescale_answers(rows, answers, machine(one).changed(other))
    assert found.time_s.tolist() == pytest.approx([time_us * 1e-6])
    assert found[0].bound == bound
