"""Estimator: the machine's table has a few ops of the kind, and other machines have timed many.

Libraries of one maker choose their algorithms by the same shapes, so the ratio of two machines' times is smoother
than either. With 20 rows of a DeepBench sheet known, convolutions of the forward pass are off by 8 % in the middle
instead of 14.

Times on a machine that nobody built: what is known of the one it changes, at the same utilisation.

Estimator: a collective on links that the machine states, priced as in a step of many devices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import half_width
from fomkit.core.machine import Link, Machine
from fomkit.core.units import format_quantity
from fomkit.prediction import estimates, gp, interpolate
from fomkit.prediction.estimates import Answers, are, as_rows, cached, join_answers, numbers, opened_by, places_of
from fomkit.prediction.exchange import Exchange, Group, Network
from fomkit.prediction.families import ONE_WAY, FamilyName, families, look_at, servable, training_rows
from fomkit.prediction.gp import Matrix
from fomkit.prediction.links import Collective
from fomkit.prediction.rates import bounds, starts_within

if TYPE_CHECKING:
    from fomkit.prediction.estimates import Rows, Table


KINDS = ("conv",)
"""Kinds of which few rows are told by other machines; DeepBench's products are predicted as well by themselves."""
FEWEST, MOST = 8, 40
"""Timed ops from which other machines can be compared with this one, and beyond which it needs none of them."""
STEADY = 0.35
"""Standard deviation of ln(ratio) from which others' tables tell nothing: DeepBench's devices of one maker follow
each other within 0.05 to 0.3, its processor follows none of them (0.25 to 0.7) and is better told by itself."""
POWER = 4.0
"""How fast a donor's share falls with the variance of ln(this machine's time / its own)."""
NOISE = 0.1
"""Share of the ratio's variance that no size explains."""


_Donor = tuple[str, interpolate.Family]
"""A machine and its fit of the family that serves, with what that learnt from."""


def _own(machine: Machine, name: FamilyName) -> pd.DataFrame:
    """Give the distinct ops of a family in a machine's own table."""
    make = partial(training_rows, machine.timings, name)
    return cached(machine.timings, None, f"distinct ops of {name}", make)


def _donors(machine: Machine, name: FamilyName) -> list[_Donor]:
    """Find tables of the same number format, engine and pass that have more than a few ops."""
    families_of = ((donor.name, interpolate.family_of(donor, name)) for donor in machine.donors)
    return [(donor, one) for donor, one in families_of if one is not None and len(one.training) > MOST]


def _variance(log_ratio: Matrix) -> Matrix:
    """Give the variance around the median along the last axis; one odd op counts as a factor of e at most."""
    apart = np.abs(log_ratio - np.median(log_ratio, -1, keepdims=True))
    return np.asarray((np.minimum(apart, 1.0) ** 2).mean(-1) + 1e-4, np.float64)


def _shares(log_ratio: Matrix) -> Matrix:
    """Give each donor's share by how steadily it follows.

    `log_ratio` (donors, n).
    """
    variance = _variance(log_ratio)
    share = (variance.min() / variance) ** POWER
    return np.asarray(share / share.sum())


def _hyper(features: Matrix, target: Matrix) -> gp.Hyper:
    """Give a process that no fit has to find: twenty rows tell its variance, not the length of each feature."""
    varying = max(int((np.ptp(features, axis=0) > 0).sum()), 1)
    variance = float(_variance(target))
    return gp.Hyper(np.full(features.shape[1], 2 * np.sqrt(varying)), variance, NOISE * variance)


def _typical_error(features: Matrix, target: Matrix, noise: Matrix, hyper: gp.Hyper, interval: float) -> float:
    """Give the factor on the process's deviation that holds this share of its own left-out rows.

    Left out one by one (Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 5.10–5.12).
    """
    smooth = hyper.variance * gp.correlation(gp.distances(features, features, hyper.length))
    inverse = np.linalg.inv(smooth + np.diag(hyper.noise + noise))
    errors = np.abs(inverse @ target) / np.sqrt(np.diag(inverse))
    return float(np.quantile(errors, min(interval * (1 + 1 / len(target)), 1.0)))


def _log_times(donors: list[_Donor], rows: Table, kind: str) -> tuple[Matrix, Matrix]:
    """Give ln(time) on each donor (donors × n), and its variance less what repeating the op would show too."""
    found = [interpolate.predict_log_time(family, rows, kind) for _, family in donors]
    pairs = zip(donors, found, strict=True)
    variance = [there.variance - family.fit.hyper.noise for (_, family), (_, there) in pairs]
    return np.array([log_s for log_s, _ in found]), np.maximum(variance, 0.0)


class _Followed(NamedTuple):
    """How a table of a few rows follows its donors, ready for queries.

    `share` (donors,).
    `offset`: median of ln(own time / the donors').
    `ratio`: what the ratio adds to that, by the sizes.
    `features` (n, p): of the own timings.
    """

    donors: list[_Donor]
    share: Matrix
    offset: float
    ratio: gp.Precomputed
    features: Matrix


def _follow(training: pd.DataFrame, donors: list[_Donor], kind: str) -> _Followed | None:
    """Compare a table with its donors'; None where it does not follow them."""
    known_s = np.log(training["_time_s"].to_numpy(np.float64))
    theirs, _ = _log_times(donors, training, kind)
    share = _shares(known_s - theirs)
    ratio = known_s - share @ theirs
    if _variance(ratio) > STEADY**2:
        return None
    offset = float(np.median(ratio))
    known = look_at(training, kind, len(training))
    rest = ratio - offset
    precomputed = gp.precompute(known, rest, interpolate.row_noise(training), _hyper(known, rest))
    return _Followed(donors, share, offset, precomputed, known)


def _answers(rows: Rows, training: pd.DataFrame, followed: _Followed, kind: str, interval: float) -> Answers:
    donors, share, offset, precomputed, known = followed
    query = look_at(rows, kind, len(training))
    correction = gp.posterior(precomputed, query)
    there, unsure = _log_times(donors, rows, kind)
    log_s = share @ there + offset + correction.mean
    # What the donors do not know of an op that they never timed comes on top of how well they are followed.
    factor = _typical_error(known, precomputed.target, precomputed.noise, precomputed.hyper, interval)
    own = factor * np.sqrt(correction.variance)
    width = np.hypot(own, half_width(interval) * np.sqrt(share @ unsure))
    first, _ = donors[int(share.argmax())]
    evidence = f"as {len(donors)} other tables, mostly {first}, follow {len(training)} own timings"
    times = np.exp([log_s, log_s - width, log_s + width])
    return Answers(rows.index, times, "transferred", "measured", lambda _: evidence)


def estimate_from_donors(rows: Table, machine: Machine, interval: float) -> Answers:
    """Predict rows of a small family from the tables of the machine's donors and its own few timings.

    time = geometric mean of the donors' predictions, the steadiest weighing most, times a ratio: the usual one of
    the machine's own timings, corrected by a Gaussian process in the sizes.

    `rows`: COSTED rows; `machine`: without donors, or costs of its timings (flop, byte), nothing is transferred;
    `interval`: share of intervals that should contain the truth, taken from own timings left out one by one. Gives
    an Answers: rows of `KINDS` of which the table has `FEWEST` to `MOST` distinct ops, and donors that follow
    have more.
    """
    if not machine.donors or not {"flop", "byte"} <= set(machine.timings.columns):
        return join_answers([])
    rows, found = as_rows(rows), []
    # Matrices of a few dozen rows: threads would wait for each other.
    with interpolate.one_thread():
        for name, at in families(rows):
            if name.kind not in KINDS:
                continue
            chosen = rows.take(at)
            chosen = chosen.take(servable(chosen, name.kind))
            training = _own(machine, name)
            if not len(chosen) or not FEWEST <= len(training) <= MOST:
                continue
            donors = _donors(machine, name)
            make = partial(_follow, training, donors, name.kind)
            followed = cached(machine.timings, machine.donors, f"donors of {name}", make) if donors else None
            if followed is not None:
                found.append(_answers(chosen, training, followed, name.kind, interval))
    return join_answers(found).rounded()


ROOFLINE = "roofline"
"""The time source that names the cost of launches apart; a table's times hold them unseparated."""
FROM_TABLE = ("measured", "interpolated", "extrapolated")
"""Time sources that become transferred: nobody timed anything on the changed machine."""


def original(machine: Machine) -> Machine:
    """Give the machine that timings and utilisations are of; its table is the same object in every call."""
    return cached(machine.timings, machine, "as built", machine.as_built)


def stated(machine: Machine) -> Machine:
    """Give the changed machine with the timings that were stated for it."""
    rows = cached(machine.timings, None, "stated", lambda: machine.timings[machine.stated_rows()])
    return replace(machine, timings=rows)


def factor(
    time_s: Matrix, starts_s: Matrix, floor_s: Matrix, changed_floor_s: Matrix, launches: Matrix | float
) -> Matrix:
    """Give the time on the changed machine as a share of the original's.

    Launches that a time names apart scale with the launch cost. The rest is the kernel, whose utilisation
    floor / time is kept, so it scales with the floor. Where a floor is unknown the kernel stays. All arguments
    broadcast. Workbooks compute the same (`fomkit.workbook.records`).

    `time_s`: on the original machine; `starts_s`: cost of the op's launches there, 0 where the time does not name
    it apart; `floor_s`, `changed_floor_s`: on both machines; `launches`: launch cost as a share of the original's.

    >>> ones = np.ones(1)
    >>> factor(10 * ones, 2 * ones, 4 * ones, 2 * ones, 1.0).round(9).tolist()  # 2 + 8 / 2 of 10
    [0.6]
    """
    fixed_s = starts_within(time_s, starts_s)
    fixed_share = np.nan_to_num(fixed_s / time_s)
    ratio = changed_floor_s / floor_s
    return np.asarray(fixed_share * launches + (1 - fixed_share) * np.where(np.isnan(ratio), 1.0, ratio))


def rescale_answers(rows: Rows, answers: Answers, machine: Machine) -> Answers:
    """Carry what is known of the original machine over to the changed one.

    `rows`: COSTED rows; `answers`: their times on the original machine; `machine`: the changed one.
    """
    built = original(machine)
    rows = rows.take(places_of(answers.index, rows.index))
    before, after = bounds(rows, built), bounds(rows, machine)
    launch = built.device.launch_s
    launches_s = np.nan_to_num(numbers(rows, "launches")) * (launch.value if launch is not None else 0.0)
    starts_s = np.where(answers.source.are(ROOFLINE), launches_s, 0.0)
    costs = [None if one is None else one.value for one in (launch, machine.device.launch_s)]
    changed_launch = costs[1] / costs[0] if costs[0] and costs[1] is not None else 1.0
    share = factor(answers.time_s, starts_s, before.floor_s, after.floor_s, changed_launch)
    sources = estimates.choose_words(answers.source.are(*FROM_TABLE), "transferred", answers.source)
    launched = launches_s * changed_launch > after.floor_s
    names = estimates.choose_words(
        np.isnan(after.floor_s), answers.limit, estimates.choose_words(launched, "launch", after.names)
    )

    def evidence(place: int) -> str:
        return f"{share[place]:.3g} × that on {built.name} as built, same utilisation ({answers.evidence(place)})"

    return Answers(answers.index, answers.times * share, sources, names, evidence)


AROUND = ("all_reduce", "broadcast", *ONE_WAY)
"""Collectives that the formulas know."""


def _group(network: Network, ranks: int, link: str) -> Group | None:
    """Place the ranks of a row: inside a node, else in filled nodes if the link inside is stated, else one a node.

    None where the machine does not state the row's link, or it is open which.
    """
    devices = network.machine.node_devices
    if link == "node" or (not link and devices is not None and ranks <= devices):
        return Group(ranks, 1) if network.states("node") else None
    if not network.states("system"):
        return None
    filled = devices is not None and ranks > devices and network.states("node")
    return network.group(ranks) if filled else Group(1, ranks)


def _words(link: Link) -> str:
    rate, start = format_quantity(link.byte_per_s, "byte_per_s"), format_quantity(link.alpha_s, "time_s", 3)
    return f"link of tier {link.tier}: {start} a start, {rate} {link.direction}"


def _evidence(collective: str, ranks: int, found: Exchange) -> str:
    known = [_words(link) for link in found.links]
    tiers = {link.tier for link in found.links}
    known += ["inside a node by its table"] if tiers == {"system"} and found.way.startswith("in stages") else []
    return "; ".join([*known, f"{collective} over {ranks} ranks {found.way}"])


def _exchange(network: Network, collective: str, message_byte: float, ranks: int, link: str) -> Exchange | None:
    """Give the quickest way of a collective; None where the machine leaves open what it takes."""
    group = _group(network, ranks, link)
    if group is None:
        return None
    try:
        return network.exchange(cast("Collective", collective), message_byte, group)
    except FomkitError:
        # Its table has times of several libraries, and a row does not say whose is asked for.
        return None


@opened_by(
    lambda rows, machine: (
        are(rows, "kind", "collective") & are(rows, "collective", *(AROUND if machine.links else ()))
    )
)
def estimate_collective(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Price collectives of two or more ranks whose link the machine states (an `Estimator`)."""
    words = {name: rows.text(name).cells() for name in ("collective", "link")}
    message, ranks = numbers(rows, "message_byte"), numbers(rows, "ranks")
    network = Network(machine, level=interval)
    found: dict[int, tuple[Exchange, str]] = {}
    for at in np.flatnonzero((ranks >= 2) & (message > 0)).tolist():
        collective, devices = words["collective"][at], int(ranks[at])
        one = _exchange(network, collective, float(message[at]), devices, words["link"][at])
        if one is not None:
            found[at] = one, _evidence(collective, devices, one)
    chosen = np.fromiter(found, np.intp, len(found))
    times = np.array([(one.time.value, one.time.low, one.time.high) for one, _ in found.values()]).reshape(-1, 3).T
    # What a scaling takes from a table of too few timings for a fit is near none of them for sure.
    of_table = np.array([one.source == "measured" for one, _ in found.values()], bool)
    source, bound = (estimates.Words(of_table.astype(np.intp), words)
                     for words in (("alpha_beta", "extrapolated"), ("network", "measured")))  # fmt: skip
    texts = [note for _, note in found.values()]
    return Answers(np.asarray(rows.index)[chosen], times, source, bound, texts.__getitem__)
