"""Score predictions against measurements, and compare the scores with ``validation/aims.csv``.

`Cases` holds measured and predicted values, `score` computes their errors and the quality of their intervals,
`check_aims` compares the figures with their targets and tolerances. A target is the range where a figure should
be. A tolerance is the present figure with room for the noise of a refit: outside it a figure has regressed and
the command fails. A figure outside its target is only printed as missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, Span, half_width, op_half_width
from fomkit.plan.content import as_content
from fomkit.readers.tables.foreign import read_columns

Vector = NDArray[np.float64]

Level = Literal["op", "model", "ratio"]


class Errors(NamedTuple):
    """Median and mean absolute error, relative to the truth."""

    median: float
    mean: float


@dataclass(frozen=True)
class Cases:
    """Measured and predicted values of n cases, each with its interval; times [s] or ratios.

    `truth`, `value`, `low`, `high` (n,): all above 0.
    `weight` (n,): number of occurrences of each case, for the sum of all.
    `fold` (n,): cases of one fold were predicted from the same other cases; 0 without folds.
    `constant_score` (n,): interval score of one band of constant factors; NaN if not computed.
    `term` (n,): contribution of each case to the sum of all, which differs from `value` where errors are skewed.
    """

    truth: Vector
    value: Vector
    low: Vector
    high: Vector
    weight: Vector
    fold: NDArray[np.int64]
    constant_score: Vector
    term: Vector

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def log_error(self) -> Vector:
        """ln(predicted / measured)."""
        return np.asarray(np.log(self.value / self.truth), np.float64)


def make_cases(
    truth: Vector,
    value: Vector,
    low: Vector,
    high: Vector,
    *,
    weight: Vector | None = None,
    fold: NDArray[np.integer[Any]] | None = None,
    term: Vector | None = None,
) -> Cases:
    """Make cases of arrays; the defaults are weight 1, fold 0 (no folds), and the value as the term."""
    weight = np.ones(len(truth)) if weight is None else weight
    numbers = np.zeros(len(truth), np.int64) if fold is None else np.asarray(fold, np.int64)
    return Cases(
        truth, value, low, high, weight, numbers, np.full(len(truth), np.nan), value if term is None else term
    )


def cases_of_spans(truth: Sequence[float], spans: Sequence[Span]) -> Cases:
    """Make cases of measured values and their predictions."""
    ends = (np.array([getattr(span, end) for span in spans]) for end in ("value", "low", "high"))
    return make_cases(np.array(truth), *ends)


def cases_of_table(timed: pd.DataFrame, truth: Vector, **more: Any) -> Cases:
    """Make cases of the rows of a predicted table; ``more`` is passed to `make_cases`."""
    return make_cases(truth, *(timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s")), **more)


def join_cases(parts: Iterable[Cases]) -> Cases:
    """Concatenate the cases of several comparisons."""
    found = list(parts)
    return Cases(*(np.concatenate([getattr(part, name.name) for part in found]) for name in fields(Cases)))


@dataclass(frozen=True)
class Score:
    """One line of a comparison.

    `level`: op, model or ratio.
    `machine`: profile, or sheet of a machine's table, or a group of them.
    `median`, `mean`: absolute error, relative to the truth.
    `bias`: mean signed error; positive if predictions are too long.
    `total`: signed error of the sum of all values; for ratios, of their geometric mean.
    `hit_rate`: share of intervals that contain the truth.
    `interval_score`: mean interval score on log values (Gneiting & Raftery, Journal of the American Statistical
      Association 102, 2007, eq. 43): width plus 2/(1 − level) times the distance of the truth from the interval
      (0 inside). Smaller is better.
    `half_width`: median over the cases of sqrt(high / low).
    `constant_score`: the interval score of a band of two constant factors around the same values, estimated from
      the other folds.
    `peers`: median and mean absolute error of other predictors on the same cases.
    `hit_rates`: hit rates at other levels, by level, each interval converted to that level (`hits_at`).
    `brier`: Brier score of the probability of reaching a threshold, by the ratio of threshold to truth: the mean
      squared difference from the outcome (Brier, Monthly Weather Review 78, 1950); empty if not computed.
    `wrong_verdicts`: share of predicted values on the wrong side of the same thresholds.
    `medians`: for a line of medians, the median of each sheet, machine or table.
    """

    comparison: str
    level: Level
    machine: str
    what: str
    cases: int
    median: float
    mean: float
    bias: float
    total: float
    hit_rate: float
    interval_score: float
    half_width: float
    constant_score: float
    peers: Mapping[str, Errors] = field(default_factory=dict)
    hit_rates: Mapping[str, float] = field(default_factory=dict)
    brier: Mapping[str, float] = field(default_factory=dict)
    wrong_verdicts: Mapping[str, float] = field(default_factory=dict)
    medians: Mapping[str, float] = field(default_factory=dict)

    def content(self) -> ScoreContent:
        """Return the line as plain content; unknown is None."""
        return as_content(ScoreContent, self)


ScoreContent = TypedDict("ScoreContent", {
    "comparison": str, "level": str, "machine": str, "what": str, "cases": int, "median": float | None,
    "mean": float | None, "bias": float | None, "total": float | None, "hit_rate": float | None,
    "interval_score": float | None, "half_width": float | None, "constant_score": float | None,
    "peers": dict[str, tuple[float, float]], "hit_rates": dict[str, float], "brier": dict[str, float],
    "wrong_verdicts": dict[str, float], "medians": dict[str, float],
})  # fmt: skip


def interval_scores(truth: Vector, low: Vector, high: Vector, level: float = DEFAULT_LEVEL) -> Vector:
    """Compute the interval score of each interval on a log scale.

    >>> e = np.exp(1.0)
    >>> interval_scores(np.array([1.0, 1.0]), np.array([1 / e, e]), np.array([e, e * e])).round(6).tolist()
    [2.0, 11.0]
    """
    inside, below, above = np.log(truth), np.log(low), np.log(high)
    outside = np.maximum(below - inside, 0.0) + np.maximum(inside - above, 0.0)
    return np.asarray(above - below + 2 / (1 - level) * outside, np.float64)


def constant_band(cases: Cases, level: float = DEFAULT_LEVEL) -> Cases:
    """Add the interval scores of a simple baseline: one band for all cases from the errors of the other folds."""
    scores = np.full(len(cases), np.nan)
    for number in np.unique(cases.fold):
        out = cases.fold == number
        if out.all():
            break
        ends = np.quantile(-cases.log_error[~out], [0.5 - level / 2, 0.5 + level / 2])
        low, high = (cases.value[out] * np.exp(end) for end in ends)
        scores[out] = interval_scores(cases.truth[out], low, high, level)
    return replace(cases, constant_score=scores)


def mixed(parts: Sequence[Sequence[Cases]], level: float = DEFAULT_LEVEL) -> Cases:
    """Join equally many evenly spaced cases of each part; add the score of one band fitted to the other sheets.

    `parts`: for each kind of evidence the cases, sheet by sheet.
    """
    numbered, first = list[Cases](), 0
    for part in parts:
        sheets = [replace(cases, fold=np.full(len(cases), first + at)) for at, cases in enumerate(part)]
        numbered.append(join_cases(sheets))
        first += len(part)
    many = min(len(part) for part in numbered)
    places = [np.linspace(0, len(part) - 1, many).round().astype(np.intp) for part in numbered]
    some = [Cases(*(getattr(part, name.name)[at] for name in fields(Cases)))
            for part, at in zip(numbered, places, strict=True)]  # fmt: skip
    return constant_band(join_cases(some), level)


def errors_of(truth: Vector, value: Vector) -> Errors:
    """Return the errors of one predictor.

    >>> errors_of(np.array([1.0, 1.0, 2.0]), np.array([1.5, 1.0, 2.0]))
    Errors(median=0.0, mean=0.16666666666666666)
    """
    error = np.abs(value / truth - 1)
    return Errors(float(np.median(error)), float(error.mean()))


def needed(error: Vector, own: Vector, weight: Vector, share: float) -> float:
    """Return the independent spread that widens a bound enough to cover the given share of the errors.

    `error` (n,): ln(measured / predicted), positive towards this bound; `own` (n,): log distance of the present
    bound, to which the spread is added in quadrature; `weight` (n,): above 0.

    >>> error, weight = np.array([0.0, 0.1, 0.5, 0.2]), np.ones(4)
    >>> [round(needed(error, np.full(4, 0.3), weight, share), 6) for share in (0.75, 1.0)]
    [0.0, 0.4]
    """
    beyond = np.sqrt(np.maximum(error, own) ** 2 - own**2)
    order = np.argsort(beyond, kind="stable")
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(beyond[order][min(int(np.searchsorted(reached, share - 1e-12)), len(order) - 1)])


def peer_errors(cases: Cases, by_peer: Mapping[str, list[float]]) -> dict[str, Errors]:
    """Return the errors of each published predictor that has a value for every case."""
    columns = {peer: np.array(times) for peer, times in by_peer.items()}
    return {peer: errors_of(cases.truth, values) for peer, values in columns.items() if np.isfinite(values).all()}


LEVELS = (0.5, 0.95, 0.99)
"""Levels, besides the requested one, at which hits are counted."""


def hits_at(cases: Cases, interval: float, of: Level) -> dict[str, float]:
    """Return the hit rates at `LEVELS`; widths are scaled by `op_half_width` for single ops, else as log-normal.

    >>> two = make_cases(*map(np.array, ([1.0, 2.0], [1.0, 1.0], [0.5, 0.5], [1.7, 1.7])))
    >>> hits_at(two, 0.8, "model")
    {'50%': 0.5, '95%': 1.0, '99%': 1.0}
    """
    outside, reach = -cases.log_error, op_half_width if of == "op" else half_width
    ends = np.where(outside > 0, np.log(cases.high / cases.value), np.log(cases.value / cases.low))
    factors = {level: reach(level) / reach(interval) for level in LEVELS}
    return {f"{level:.0%}": float((np.abs(outside) <= ends * factor).mean()) for level, factor in factors.items()}


def score(
    cases: Cases,
    comparison: str,
    level: Level,
    machine: str,
    what: str,
    peers: Mapping[str, Errors] | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Score:
    """Score predictions of one comparison.

    >>> two = make_cases(*map(np.array, ([1.0, 2.0], [1.1, 1.8], [0.9, 1.9], [1.3, 2.1])))
    >>> one = score(two, "made up", "op", "m", "gemm")
    >>> round(one.mean, 6), round(one.bias, 6), round(one.total, 6), one.hit_rate
    (0.1, 0.0, -0.033333, 1.0)
    """
    error = cases.value / cases.truth - 1
    sums = (cases.term * cases.weight).sum() / (cases.truth * cases.weight).sum()
    total = np.exp(cases.log_error.mean()) if level == "ratio" else sums
    return Score(
        comparison=comparison,
        level=level,
        machine=machine,
        what=what,
        cases=len(cases),
        median=float(np.median(np.abs(error))),
        mean=float(np.abs(error).mean()),
        bias=float(error.mean()),
        total=float(total - 1),
        hit_rate=float(((cases.low <= cases.truth) & (cases.truth <= cases.high)).mean()),
        interval_score=float(interval_scores(cases.truth, cases.low, cases.high, interval).mean()),
        half_width=float(np.median(np.sqrt(cases.high / cases.low))),
        constant_score=float(cases.constant_score.mean()),
        peers=dict(peers or {}),
        hit_rates=hits_at(cases, interval, level),
    )


INTERVAL_GAIN = "interval_gain"
"""Relative improvement of the interval score over that of one constant band."""
BRIER = "brier"
"""The mean of the Brier scores of all thresholds."""
FIGURES = ("median", "mean", "bias", "total", "hit_rate", "half_width", "interval_score", INTERVAL_GAIN, BRIER)
_KEYS = ("comparison", "level", "machine", "what", "figure")
_ENDS = ("target_least", "target_most", "tolerance_least", "tolerance_most")


class Range(NamedTuple):
    """Least and largest value, both included; signed figures are compared by absolute value."""

    least: float
    most: float

    def holds(self, value: float) -> bool:
        """Return whether a value is in the range; NaN is not."""
        return self.least <= value <= self.most


class Aim(NamedTuple):
    """Target and tolerance of a figure, which is identified by its line and column."""

    comparison: str
    level: str
    machine: str
    what: str
    figure: str
    target: Range
    tolerance: Range


class Verdict(NamedTuple):
    """An aim with the computed figure."""

    aim: Aim
    value: float

    @property
    def met(self) -> bool:
        """True where the target is reached."""
        return self.aim.target.holds(self.value)

    @property
    def kept(self) -> bool:
        """True where the figure is not past its tolerance."""
        return self.aim.tolerance.holds(self.value)


AimContent = TypedDict("AimContent", {
    "comparison": str, "level": str, "machine": str, "what": str, "figure": str, "target": tuple[float, float],
    "tolerance": tuple[float, float], "value": float | None, "met": bool, "kept": bool,
})  # fmt: skip


def read_aims(path: Path) -> list[Aim]:
    """Read the table of targets and tolerances."""
    table = read_columns(path, _KEYS, _ENDS)
    aims = []
    for line, row in zip(table.index.tolist(), table.to_dict("records"), strict=True):
        if row["figure"] not in FIGURES:
            raise FomkitError(f"{path}:{line}", f"{row['figure']!r} is unknown. Expected {', '.join(FIGURES)}.")
        ends = [float(row[name]) for name in _ENDS]
        words = {name: str(row[name]) for name in _KEYS}
        aims.append(Aim(**words, target=Range(*ends[:2]), tolerance=Range(*ends[2:])))
    return aims


def figure_of(line: Score, figure: str) -> float:
    """Return the absolute value of one column of a line."""
    if figure == INTERVAL_GAIN:
        return 1 - line.interval_score / line.constant_score
    if figure == BRIER:
        return float(np.mean([*line.brier.values()])) if line.brier else float("nan")
    return abs(float(getattr(line, figure)))


def check_aims(lines: Iterable[Score], aims: Iterable[Aim]) -> list[Verdict]:
    """Return a verdict for each aim whose line was computed."""
    known = {(line.comparison, str(line.level), line.machine, line.what): line for line in lines}
    keyed = [(aim, known.get((aim.comparison, aim.level, aim.machine, aim.what))) for aim in aims]
    return [Verdict(aim, figure_of(line, aim.figure)) for aim, line in keyed if line is not None]
