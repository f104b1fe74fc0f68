"""Make predictions monotone: more rows take no less time, and a larger batch uses a device no less.

A fit goes up and down between timings, and so does the share of the bandwidth that other machines reach. So each
product is compared with the same product at other sizes of the side that a batch makes larger (`growing_axes`).
Where the fit predicts less time for the larger, one of both is wrong, more likely the one farther from the
timings. Both are moved, the nearer one less (weighted isotonic regression). A *rung* is a size at which a product
is predicted, a *ladder* the rungs of one octave of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from fomkit.ops.columns import alike
from fomkit.prediction.estimators import Answers, Rows, is_in, numbers
from fomkit.prediction.gp import NO_GRID, Flags, Matrix, Places, Texts

SIDES = ("b", "m", "n", "k")
GROWING = ("b", "m", "k")
"""Sides that grow with a batch (`growing_axes`)."""
STEPS = 8
"""Rungs in an octave; below this size every integer is a rung."""
CACHE_SIZE = 100_000
"""Rungs, ladders and lines that are cached for the next batch."""
PARTS = 4.0 ** np.arange(1, 10)  # numbers of parts into which a batch is divided (`used_as_in_parts`)
MOVED = 1e-3  # smallest change of a time that its evidence mentions
FROM_MEMORY = 0.84  # share of the bandwidth that decoding of any size reaches from memory (docs/adr/0094)


class Falls(NamedTuple):
    """Pairs of timings of one product in a table, neighbours in size, of which the larger took less time.

    `first`, `second` (n,): their positions in the table, the smaller first.
    `axis` (n,): the side in which they differ, as a position in `SIDES`.
    `start`, `end` (n,): ln of its two sizes.
    `log_ratio` (n,): ln(the larger's time / the smaller's), below 0.
    """

    first: Places
    second: Places
    axis: Places
    start: Matrix
    end: Matrix
    log_ratio: Matrix


class Surroundings(NamedTuple):
    """The fit of products, as this module uses it.

    `trust`: 1 over the variance of a prediction, up to a factor.
    `is_covered`: returns which rows are near the timings at these positions.
    `found`: cache of rungs, ladders and lines for the next batch.
    """

    timed: Rows
    falls: Falls
    predict: Callable[[Rows], Answers]
    trust: Callable[[Rows], Matrix]
    is_covered: Callable[[Rows, Places], Flags]
    found: dict[tuple[Any, ...], Any]


def growing_axes(rows: Rows) -> Places:
    """Return the side of each product that grows with a batch: a stack's b, a weight gradient's k, else m.

    Where both gradients have the pass backward, the weights' is the one that reads its first operand transposed.
    """
    b, m, k = map(SIDES.index, GROWING)
    deep = is_in(rows, "pass_name", "backward_weight") | (
        is_in(rows, "pass_name", "backward") & (numbers(rows, "trans_a") > 0)
    )
    return np.where(numbers(rows, "b") > 1, b, np.where(deep, k, m))


def sizes_along(rows: Rows, axes: Places) -> Matrix:
    """Return the size of each product along its axis."""
    return np.asarray(np.choose(axes, [numbers(rows, name) for name in SIDES]), np.float64)


def resized(rows: Rows, axes: Places, sizes: Matrix) -> Rows:
    """Return products with another size along their axes, and with flop and byte scaled to it."""
    before = {name: numbers(rows, name) for name in SIDES}
    after = {name: np.where(axes == at, sizes, before[name]) for at, name in enumerate(SIDES)}
    flop, numel = [], []
    for b, m, n, k in ([one[name] for name in SIDES] for one in (before, after)):
        flop.append(b * m * n * k)
        numel.append(b * (m * k + k * n + m * n))
    return rows.assign(
        **after, flop=numbers(rows, "flop") * flop[1] / flop[0], byte=numbers(rows, "byte") * numel[1] / numel[0]
    )


def lines(rows: Rows, axes: Places) -> tuple[Places, Places, list[bytes]]:
    """Group products that differ along their axis alone into lines: first product of each, line of each, names."""
    cells = [numbers(rows, name) for name in (*SIDES, "trans_a", "trans_b")]
    cells = [np.where(axes == at, np.nan, column) for at, column in enumerate(cells)]
    # Timings of one number format and engine do not limit those of another.
    texts = (rows.text(name) for name in ("pass_name", "dtype", "engine") if rows.has(name))
    cells += [one.mapped([crc32(word.encode()) for word in one.words], float) for one in texts]
    first, line = alike(cells)
    return first, line, [key.tobytes() for key in np.column_stack([column[first] for column in cells])]


def _shown(rows: Rows, axes: Places, known: Surroundings) -> list[tuple[Matrix, Matrix]]:
    """Return how far the time of each product may fall with size: ln of sizes, and ln of the fall up to each.

    A timed fall counts where the product, resized to both sizes, is near both timings. Of several over the same
    sizes the steepest counts.
    """
    falls, nothing = known.falls, (np.zeros(1), np.zeros(1))
    of, pair = np.nonzero(falls.axis[None, :] == axes[:, None])
    good = np.ones(len(of), bool)
    for places, size in ((falls.first, falls.start), (falls.second, falls.end)):
        at = np.flatnonzero(good)
        if not len(at):
            return [nothing] * len(rows)
        there = resized(rows.take(of[at]), axes[of[at]], np.asarray(np.round(np.exp(size[pair[at]])), np.float64))
        good[at] = known.is_covered(there, places[pair[at]])
    found = []
    for number in range(len(rows)):
        pairs = pair[good & (of == number)]
        if not len(pairs):
            found.append(nothing)
            continue
        start, end = falls.start[pairs], falls.end[pairs]
        ends = np.unique([start, end])
        inside = (start <= ends[:-1, None]) & (ends[1:, None] <= end)
        slope = np.where(inside, falls.log_ratio[pairs] / (end - start), 0.0).min(1)
        found.append((ends, np.append(0.0, np.cumsum(slope * np.diff(ends)))))
    return found


def _rungs(size: Matrix, most: Matrix) -> tuple[Matrix, Places]:
    """Return each product's rungs: powers of two up to the largest timing, and the steps of its octave.

    With fewer rungs for a smaller size, the times of two sizes would not be consistent.

    Returns an array (n, rungs), NaN where a product needs none, and the position of the last power of two that is
    not larger than the size.
    """
    octave = np.floor(np.log2(np.maximum(size, 1.0)))
    start = (2.0**octave)[:, None]
    top = np.maximum(np.ceil(np.log2(most)), octave + (size > start[:, 0]))
    powers = 2.0 ** np.arange(max(top.max(), octave.max() + 1) + 1)[None, :]
    powers = np.where(powers <= 2.0 ** top[:, None], powers, np.nan)
    steps, inside = np.minimum(start, STEPS), np.arange(1.0, STEPS)[None, :]
    needed = (inside < steps) & (size[:, None] > start)
    finer = np.where(needed, start * (1 + inside / steps), np.nan)
    return np.column_stack([powers, finer]), octave.astype(np.intp)


def _pooled(values: Matrix, weight: Matrix) -> Matrix:
    """Return the rising values with the least weighted squared change: neighbours that fall share their mean.

    Pool adjacent violators (Best & Chakravarti 1990), as in `scipy.optimize.isotonic_regression`, whose import
    takes longer than pricing a model.
    """
    blocks: list[tuple[float, float, int]] = []
    for value, own in zip(values.tolist(), weight.tolist(), strict=True):
        mean, total, count = value, own, 1
        while blocks and blocks[-1][0] >= mean:
            before, also, number = blocks.pop()
            mean, total, count = (before * also + mean * total) / (also + total), also + total, count + number
        blocks.append((mean, total, count))
    return np.repeat([mean for mean, _, _ in blocks], [count for _, _, count in blocks])


def _rising(logs: Matrix, weight: Matrix) -> Matrix:
    """Return the rising values nearest to those of each line (n, rungs), NaN where a line has no such rung."""
    found = logs.copy()
    has = ~np.isnan(logs)
    falling = (logs < np.fmax.accumulate(logs, 1)).any(1)
    for line in np.flatnonzero(falling).tolist():
        at = has[line]
        found[line, at] = _pooled(logs[line, at], weight[line, at])
    return found


def _climbed(log_s: Matrix, weight: Matrix, most: Matrix, octave: Places) -> Matrix:
    """Return the times at the steps of each octave (n, `STEPS` + 1), from ln of the predictions for its rungs."""
    powers = 1 - STEPS
    # Rungs beyond the timings must not move those below: their number depends on the query.
    timed = np.arange(log_s.shape[1] + powers)[None, :] <= np.ceil(np.log2(most))[:, None]
    risen = _rising(np.where(timed, log_s[:, :powers], np.nan), weight[:, :powers])
    risen = np.fmax.accumulate(np.where(timed, risen, log_s[:, :powers]), 1)
    at = np.arange(len(octave))
    bottom, top = risen[at, octave][:, None], risen[at, np.minimum(octave + 1, risen.shape[1] - 1)][:, None]
    within = _rising(log_s[:, powers:], weight[:, powers:])
    within = np.fmax.accumulate(np.column_stack([bottom, np.clip(within, bottom, top)]), 1)
    return np.asarray(np.exp(np.column_stack([within, top])), np.float64)


def _between_steps(times: Matrix, of: Places, size: Matrix) -> Matrix:
    """Interpolate the time of each product linearly between two steps (`_climbed`) of its octave."""
    start = 2.0 ** np.floor(np.log2(size))
    steps = np.minimum(start, STEPS)
    place = (size / start - 1) * steps
    below, above = np.floor(place).astype(np.intp), np.ceil(place).astype(np.intp)
    left, right = times[of, below], times[of, np.where(above == steps, STEPS, above)]
    return np.asarray(left + (right - left) * (place - below), np.float64)


def _within_timings(time_s: Matrix, size: Matrix, sizes: Matrix, timed_s: Matrix) -> Matrix:
    """Clip times of one product to its timings: no less than any with fewer rows, no more than any with more.

    Where a timing of more rows is the shorter, the fall is shown, and any time between both is allowed.
    """
    order = np.argsort(sizes, kind="stable")
    sizes, timed_s = sizes[order], timed_s[order]
    least = np.append(0.0, np.minimum.accumulate(timed_s[::-1])[::-1])
    most = np.append(np.maximum.accumulate(timed_s), np.inf)
    low, high = least[np.searchsorted(sizes, size, "right")], most[np.searchsorted(sizes, size, "left")]
    return np.asarray(np.clip(time_s, low, high), np.float64)


def _timed_on_a_line(query: Rows, axis: str, timed: Rows) -> tuple[Matrix, Matrix] | None:
    """Return sizes and times of the timings that differ from a product along its axis alone; None without any."""
    names = [name for name in (*SIDES, "trans_a", "trans_b") if name != axis and timed.has(name)]
    same = np.logical_and.reduce([timed.number(name) == query.number(name)[0] for name in names])
    return (timed.number(axis)[same], timed.number("_time_s")[same]) if same.any() else None


def _cached_values(
    keys: Sequence[tuple[Any, ...]], known: Surroundings, make: Callable[[Any], Iterable[Any]]
) -> list[Any]:
    """Return the cached values of keys; ``make`` computes the missing ones from their positions."""
    if len(known.found) > CACHE_SIZE:
        known.found.clear()
    places = np.array([place for place, key in enumerate(keys) if key not in known.found], np.intp)
    if len(places):
        known.found.update(zip([keys[place] for place in places], make(places), strict=True))
    return [known.found[key] for key in keys]


def _ladders(
    rows: Rows, axes: Places, size: Matrix, shown: Sequence[tuple[Matrix, Matrix]], known: Surroundings
) -> Matrix:
    """Return the times at the steps of each product's octave, without the falls that timings show (``shown``)."""
    most = np.array([numbers(known.timed, name).max() for name in SIDES])[axes]
    sizes, octaves = _rungs(size, most)
    needed = ~np.isnan(sizes)
    of, rung = np.nonzero(needed)
    _, line, names = lines(rows, axes)
    one, back = alike([line[of], sizes[of, rung]])
    on, length = of[one], sizes[of, rung][one]

    def predicted(at: Places) -> Iterable[tuple[float, float]]:
        tried = resized(rows.take(on[at]), axes[on[at]], length[at])
        return zip(np.log(known.predict(tried).time_s).tolist(), known.trust(tried).tolist(), strict=True)

    keys = [(names[number], one_size) for number, one_size in zip(line[on].tolist(), length.tolist(), strict=True)]
    log_s, weight = np.full((2, *sizes.shape), np.nan)
    log_s[needed], weight[needed] = np.array(_cached_values(keys, known, predicted))[back].T
    for number, (ends, fall) in enumerate(shown):
        log_s[number] -= np.interp(np.log(sizes[number]), ends, fall)
    return _climbed(log_s, weight, most, octaves)


def _times(rows: Rows, axes: Places, size: Matrix, known: Surroundings) -> Matrix:
    """Return the times of products from their ladders; products in one octave of a line share a ladder."""
    first, line, names = lines(rows, axes)
    start = 2.0 ** np.floor(np.log2(size))
    one, ladder = alike([line, start, size > start])

    def beside(at: Places) -> Iterable[tuple[Any, ...]]:
        base = first[at]
        timed = [_timed_on_a_line(rows.take(place[None]), SIDES[axes[place]], known.timed) for place in base]
        return zip(_shown(rows.take(base), axes[base], known), timed, strict=True)

    of_lines = _cached_values([(name,) for name in names], known, beside)

    def climbed(at: Places) -> Matrix:
        base = one[at]
        shown = [of_lines[number][0] for number in line[base].tolist()]
        return _ladders(rows.take(base), axes[base], size[base], shown, known)

    cells = (line[one].tolist(), start[one].tolist(), (size > start)[one].tolist())
    keys = [(names[number], *octave) for number, *octave in zip(*cells, strict=True)]
    time_s = _between_steps(np.array(_cached_values(keys, known, climbed)), ladder, size)
    for number, ((ends, fall), timed) in enumerate(of_lines):
        own = line == number
        time_s[own] *= np.exp(np.interp(np.log(size[own]), ends, fall))
        if timed is not None:
            time_s[own] = _within_timings(time_s[own], size[own], *timed)
    return time_s


def never_falling(rows: Rows, known: Surroundings) -> Answers:
    """Predict products so that one with more rows takes no less time, unless two timings show that it does.

    The fit's predictions of the same product at powers of two, up to the largest timing, are made to rise; so are
    those at the steps of the product's octave, between its two powers. Time is linear between two steps. Beyond
    the largest timing a product takes at least the longest of the smaller ones. A fall between two timings of a
    product applies to products near both, between their sizes and by their ratio at most. A timing of the same
    product bounds the times of fewer and of more rows.
    """
    axes = growing_axes(rows)
    size = sizes_along(rows, axes)
    answers = known.predict(rows)
    factor = _times(rows, axes, size, known) / answers.time_s

    def evidence(place: int) -> str:
        moved = factor[place] - 1
        words = f"adjusted by {moved:+.1%} so that fewer rows never take longer; "
        return f"{words if abs(moved) > MOVED else ''}{answers.evidence(place)}"

    return Answers(rows.index, answers.times * factor, answers.source, answers.limit, evidence)


Found = tuple[Matrix, str | Texts] | None
"""Median and bounds of the utilisation of ops (3, q), and their sources; None where nothing is known."""


def used_as_in_parts(rows: Rows, warm: Matrix, predict: Callable[[Rows], Found]) -> Found:
    """Predict the utilisation of ops so that a larger batch is used no less than a smaller one.

    An op with a batch can run as several with parts of the batch, one after the other. Other machines were timed
    with large batches of small ops only, and far from its timings a surface returns to its mean. So an op has the
    highest utilisation of itself and of its parts (`in_parts`).

    `warm` (n): parts of this batch are no faster than memory (`families.warm_part`).
    """
    found = predict(rows)
    divided = None if found is None else in_parts(rows)
    of_parts = None if divided is None else predict(divided.rows)
    if found is None or divided is None or of_parts is None:
        return found
    held = np.where(divided.rows.number("batch") <= warm[divided.of], FROM_MEMORY / of_parts[0][0], 1.0)
    used = of_parts[0] * np.minimum(held, 1.0)
    utilisation, sources, part = found[0], np.full(len(rows), found[1], object), divided.best(used[0])
    at = np.flatnonzero((part >= 0) & (used[0, part] > utilisation[0]))
    utilisation[:, at] = used[:, part[at]]
    sources[at] = np.full(len(divided.of), of_parts[1], object)[part[at]]
    sources[at] += np.array([*map(as_at, divided.rows.number("batch")[part[at]])], object)
    return utilisation, sources


class Divided(NamedTuple):
    """Ops in parts (p): the parts, the op of each, and which op (n) has a part of which number of them (c, n)."""

    rows: Rows
    of: Places
    has: Flags

    def best(self, value: Matrix) -> Places:
        """Return the part of each op with the largest value, of equal ones the largest; -1 without parts."""
        values, places = np.full(self.has.shape, -np.inf), np.full(self.has.shape, -1)
        values[self.has], places[self.has] = value, np.arange(len(value))
        return np.asarray(places[values.argmax(0), np.arange(self.has.shape[1])], np.intp)


def _sizes_of_parts(batch: Matrix) -> tuple[Matrix, Flags]:
    """Return the batch of the parts of ops in each number of `PARTS` (c, n), and which ops have such parts.

    Batches that are powers of two have parts of the same sizes, 1, 4, 16, …: else a batch of 8, in parts of 2,
    could be slower than one of 4 in ones.
    """
    counts = PARTS[batch.max(initial=0.0) * 2 >= PARTS][:, None]
    divided = batch * (1 + np.floor(np.log2(np.maximum(batch, 1.0))) % 2)
    return np.floor(np.maximum(divided / counts, 1.0)), divided >= counts


def in_parts(rows: Rows) -> Divided | None:
    """Divide ops with a batch into each number of `PARTS`; None where no op can be divided.

    A part has the share of the batch, and the same share of flop and byte.
    """
    batch = numbers(rows, "batch", 0.0)
    if batch.max(initial=0.0) < 2:
        return None
    sizes, has = _sizes_of_parts(batch)
    of, part = has.nonzero()[1], sizes[has]
    one = rows.take(of)
    scaled = {name: numbers(one, name) * (part / batch[of]) for name in ("flop", "byte")}
    return Divided(one.assign(batch=part, **scaled), of, has)


def as_at(batch: float) -> str:
    """Say that an op is predicted from a part with this batch; "" for 0."""
    return f", as at batch {batch:g}" if batch else ""


def _corrections(
    rows: Rows, sizes: Iterable[str], moving: Flags, correct: Callable[[Rows, Places], Matrix]
) -> Iterator[tuple[Places, Matrix, Flags, Matrix]]:
    """Yield ops at some batches, `_sizes_of_parts` of these, and the correction of each part.

    Ops at the same batches are in one array: their parts have few sizes, each of which is corrected once per op.
    """
    batch, rest = numbers(rows, "batch", 0.0), moving.copy()
    grid = NO_GRID if rows.varies(sizes) else rows.grid()
    grid = grid[:, moving[grid].any(0)]
    lines = [line.tobytes() for line in batch[grid] if len(line)]
    for same in dict.fromkeys(lines):
        at = grid[[line == same for line in lines]]
        parts, has = _sizes_of_parts(batch[at[0]])
        once, place = np.unique(parts, return_inverse=True)
        queries = np.arange(len(at) * len(once)).reshape(len(at), -1)
        tried = rows.take(at[:, 0].repeat(len(once))).assign(batch=np.tile(once, len(at)))
        found = correct(tried, queries)[queries]
        yield at, parts, has, np.moveaxis(found[:, place.reshape(parts.shape)], 1, 0)
    rest[grid] = False
    if rest.any():
        at = rest.nonzero()[0]
        parts, has = _sizes_of_parts(batch[at])
        found = correct(rows.take(np.tile(at, len(parts))).assign(batch=parts.ravel()), NO_GRID)
        yield at[None], parts, has, found.reshape(len(parts), 1, -1)


def no_longer_than_parts(
    rows: Rows, log_s: Matrix, far: Matrix, sizes: Iterable[str], means: Callable[[], tuple[Matrix, Matrix]],
    correct: Callable[[Rows, Places], Matrix], warm: Matrix | float = 0.0,
) -> tuple[Matrix, Matrix]:  # fmt: skip
    """Predict ops far from every timing to take no longer than their parts, one after the other.

    `used_as_in_parts` for a machine's own table, whose fit returns to its mean far from its timings too. Of a mean
    time all but the start is proportional to the batch with its flop and byte.

    `log_s` (n): ln(time); `far` (n): from 0 at an interpolated op to 1 where nothing timed is similar; `sizes`:
    the columns of a kind's sizes; `means`: returns start and rest of the mean times [s] (n); `correct`: returns ln
    of the correction of rows, of which some are a grid (`Rows.grid`); `warm`: see `used_as_in_parts`. Returns
    ln(time), and the batch of the part that gives it, 0 for none.
    """
    found, of_part, batch = log_s.copy(), np.zeros(len(rows)), numbers(rows, "batch", 0.0)
    moving, warm = (far > MOVED) & (batch >= 2), warm + np.zeros(len(rows))
    if not moving.any():
        return found, of_part
    start_s, rest_s = means()
    for at, parts, has, corrections in _corrections(rows, sizes, moving, correct):
        start, rest, alone, share = (column[at] for column in (start_s, rest_s, log_s, far))
        size = parts[:, None]
        in_turn = np.log(start * (batch[at[0]] / size) + rest) + corrections
        gain = share * (alone - in_turn)
        steps = np.where(has[:, None] & (size > warm[at]), np.round(gain / MOVED), -np.inf)
        best = steps.argmax(0)  # of equal ones the largest part, which comes first
        op, size_at = np.arange(len(best))[:, None], np.arange(best.shape[1])
        most, gained = (column[best, op, size_at] for column in (steps, gain))
        gains = moving[at] & (gained > MOVED) & (most > -np.inf)
        found[at[gains]] -= gained[gains]
        of_part[at[gains]] = parts[best, size_at][gains]
    return found, of_part
