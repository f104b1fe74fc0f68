"""Convolutions by every method, on numbers that count the operations on them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

Program = Callable[[Sequence["Counted"]], list["Counted"]]
PHASES: list[Counter[str]] = [Counter()]
"""The counters; the last one is in use."""


class Counted:
    """An exact number; sums and products with it are counted, changes of sign are free."""

    def __init__(self, value: Fraction | int) -> None:
        self.value = Fraction(value)

    def __add__(self, other: Counted) -> Counted:
        PHASES[-1]["additions"] += 1
        return Counted(self.value + other.value)

    def __sub__(self, other: Counted) -> Counted:
        PHASES[-1]["additions"] += 1
        return Counted(self.value - other.value)

    def __mul__(self, other: Counted | Fraction | int) -> Counted:
        PHASES[-1]["multiplications"] += 1
        return Counted(self.value * (other.value if isinstance(other, Counted) else other))

    def __neg__(self) -> Counted:
        return Counted(-self.value)


def counting(work: Callable[[], object]) -> tuple[object, Counter[str]]:
    PHASES.append(Counter())
    try:
        return work(), PHASES[-1]
    finally:
        PHASES.pop()


def counted(values: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda value: Counted(int(value)), otypes=[object])(values)


def plain(values: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda one: float(one.value), otypes=[float])(values)


# One transform along one axis each, for Lavin & Gray's matrices of F(2, 3) and F(4, 3): Bᵀ, G, Aᵀ.
HALF, SIXTH = Fraction(1, 2), Fraction(1, 6)
MATRICES = {
    ("data", 2): [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    ("filter", 2): [[1, 0, 0], [HALF, HALF, HALF], [HALF, -HALF, HALF], [0, 0, 1]],
    ("result", 2): [[1, 1, 1, 0], [0, 1, -1, -1]],
    ("data", 4): [
        [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
    ],
    ("filter", 4): [
        [Fraction(1, 4), 0, 0], [-SIXTH, -SIXTH, -SIXTH], [-SIXTH, SIXTH, -SIXTH],
        [Fraction(1, 24), Fraction(1, 12), SIXTH], [Fraction(1, 24), -Fraction(1, 12), SIXTH], [0, 0, 1],
    ],
    ("result", 4): [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
}  # fmt: skip


def data_2(d):
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def filter_2(g):
    ends, middle = (g[0] + g[2]) * HALF, g[1] * HALF
    return [g[0], ends + middle, ends - middle, g[2]]


def result_2(m):
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def filter_2_mirrored(m):
    even = (m[1] + m[2]) * HALF
    return [m[0] + even, (m[1] - m[2]) * HALF, even + m[3]]


def result_2_mirrored(y):
    return [y[0], y[0] + y[1], y[0] - y[1], -y[1]]


def data_4(d):
    a, b, c, e = d[4] - d[2] * 4, d[3] - d[1] * 4, d[4] - d[2], (d[3] - d[1]) * 2
    return [d[0] * 4 - d[2] * 5 + d[4], a + b, a - b, c + e, c - e, d[1] * 4 - d[3] * 5 + d[5]]


def filter_4(g):
    quarter = g[0] * Fraction(1, 4)
    ends, middle = (g[0] + g[2]) * -SIXTH, g[1] * SIXTH
    outer, half = (quarter + g[2]) * SIXTH, middle * HALF
    return [quarter, ends - middle, ends + middle, outer + half, outer - half, g[2]]


def result_4(m):
    near, odd, far, twice = m[1] + m[2], m[1] - m[2], m[3] + m[4], (m[3] - m[4]) * 2
    return [m[0] + near + far, odd + twice, near + far * 4, odd + twice * 4 + m[5]]


def filter_4_mirrored(m):
    ends, outer = (m[1] + m[2]) * -SIXTH, (m[3] + m[4]) * SIXTH
    middle = m[2] - m[1] + (m[3] - m[4]) * HALF
    return [(m[0] + outer) * Fraction(1, 4) + ends, middle * SIXTH, m[5] + ends + outer]


def result_4_mirrored(y):
    even, odd = y[0] + y[2], y[1] + y[3]
    four, eight = y[2] * 4 + y[0], (y[3] * 4 + y[1]) * 2
    return [y[0], even + odd, even - odd, four + eight, four - eight, y[3]]


PROGRAMS: dict[tuple[str, int], Program] = {
    ("data", 2): data_2, ("filter", 2): filter_2, ("result", 2): result_2,
    ("data", 4): data_4, ("filter", 4): filter_4, ("result", 4): result_4,
}  # fmt: skip
MIRRORED: dict[tuple[str, int], Program] = {
    ("filter", 2): filter_2_mirrored, ("result", 2): result_2_mirrored,
    ("filter", 4): filter_4_mirrored, ("result", 4): result_4_mirrored,
}  # fmt: skip
"""The transposed transforms."""


def matrix(name: str, tile: int, mirrored: bool) -> list[list[Fraction | int]]:
    rows = MATRICES[name, tile]
    return [list(column) for column in zip(*rows, strict=True)] if mirrored else rows


def by_program(program: Program, tile: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Transform a tile of counted numbers along each axis in turn."""
    for axis in axes:
        lines = np.moveaxis(tile, axis, -1)
        flat = [program(list(line)) for line in lines.reshape(-1, lines.shape[-1])]
        made = np.empty((len(flat), len(flat[0])), object)
        for row, line in enumerate(flat):
            made[row] = line
        tile = np.moveaxis(made.reshape(*lines.shape[:-1], -1), -1, axis)
    return tile


def direct(image: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """Correlate a padded image (n, c, h, w) with filters (k, c, r, s) by the definition."""
    (many, _, height, width), (made, _, rows, columns) = image.shape, filters.shape
    found = np.empty((many, made, height - rows + 1, width - columns + 1), object)
    for n, k, y, x in np.ndindex(*found.shape):
        patch = image[n, :, y : y + rows, x : x + columns]
        terms = [a * b for a, b in zip(patch.ravel(), filters[k].ravel(), strict=True)]
        found[n, k, y, x] = sum(terms[1:], terms[0])
    return found


def tiles_of(image: np.ndarray, tile: tuple[int, int], points: tuple[int, int], out: tuple[int, int]):
    """Cut a padded image (…, h, w) into overlapping tiles of points, each for a tile of outputs."""
    counts = [-(-length // part) for length, part in zip(out, tile, strict=True)]
    rest = [count * part + span - part - size for count, part, span, size in
            zip(counts, tile, points, image.shape[-2:], strict=True)]  # fmt: skip
    padded = np.pad(image, [(0, 0)] * (image.ndim - 2) + [(0, rest[0]), (0, rest[1])], constant_values=Counted(0))
    for y, x in itertools.product(range(counts[0]), range(counts[1])):
        top, left = y * tile[0], x * tile[1]
        yield (top, left), padded[..., top : top + points[0], left : left + points[1]]


def shapes(kernel: tuple[int, int], m: int) -> tuple[tuple[int, int], tuple[int, int], list[int]]:
    """Return the outputs of a tile, its points, and the axes that are transformed."""
    tile = tuple(m if length == 3 else 1 for length in kernel)
    points = tuple(part + length - 1 for part, length in zip(tile, kernel, strict=True))
    return tile, points, [axis for axis, length in enumerate(kernel) if length == 3]


def winograd(image: np.ndarray, filters: np.ndarray, m: int, transform: Counter[str]) -> np.ndarray:
    """Correlate by F(m, 3); operations of transforms are added to ``transform``, products stay in the phase."""
    (many, channels, *_), (made, _, *kernel) = image.shape, filters.shape
    out = tuple(size - length + 1 for size, length in zip(image.shape[-2:], kernel, strict=True))
    tile, points, axes = shapes(tuple(kernel), m)

    def changed(name: str, values: np.ndarray) -> np.ndarray:
        found, work = counting(lambda: by_program(PROGRAMS[name, m], values, axes))
        transform.update(work)
        return found

    spread = {(k, c): changed("filter", filters[k, c]) for k in range(made) for c in range(channels)}
    found = np.empty((many, made, out[0] + tile[0], out[1] + tile[1]), object)
    for n in range(many):
        for (top, left), part in tiles_of(image[n], tile, points, out):
            seen = [changed("data", part[c]) for c in range(channels)]
            for k in range(made):
                terms = [seen[c] * spread[k, c] for c in range(channels)]
                block = changed("result", sum(terms[1:], terms[0]))
                found[n, k, top : top + tile[0], left : left + tile[1]] = block
    return found[:, :, : out[0], : out[1]]


def winograd_weight(image: np.ndarray, gradient: np.ndarray, m: int, transform: Counter[str]) -> np.ndarray:
    """Return the filters' gradient from a padded image and the gradient of the output, in tiles of m outputs."""
    channels, made = image.shape[1], gradient.shape[1]
    kernel = tuple(size - length + 1 for size, length in zip(image.shape[-2:], gradient.shape[-2:], strict=True))
    tile, points, axes = shapes(kernel, m)

    def changed(program: Program, values: np.ndarray) -> np.ndarray:
        found, work = counting(lambda: by_program(program, values, axes))
        transform.update(work)
        return found

    sums: dict[tuple[int, int], np.ndarray] = {}
    for n in range(len(image)):
        cut = tiles_of(gradient[n], tile, tile, gradient.shape[-2:])
        for (_, part), (_, slope) in zip(tiles_of(image[n], tile, points, gradient.shape[-2:]), cut, strict=True):
            seen = [changed(PROGRAMS["data", m], part[c]) for c in range(channels)]
            spread = [changed(MIRRORED["result", m], slope[k]) for k in range(made)]
            for k, c in itertools.product(range(made), range(channels)):
                term = spread[k] * seen[c]
                sums[k, c] = term if (k, c) not in sums else sums[k, c] + term
    found = np.empty((made, channels, *kernel), object)
    for (k, c), total in sums.items():
        found[k, c] = changed(MIRRORED["filter", m], total)
    return found


def fft(values: list[tuple[Counted, Counted]]) -> list[tuple[Counted, Counted]]:
    """Transform complex numbers by radix 2; every twiddle factor is multiplied out, also by 1.

    The factors are rounded to fractions: this counts, and leaves being right to numpy.
    """
    length = len(values)
    if length == 1:
        return values
    even, odd = fft(values[0::2]), fft(values[1::2])
    first, second = [], []
    for place, ((a, b), (c, d)) in enumerate(zip(even, odd, strict=True)):
        angle = -2 * np.pi * place / length
        cosine, sine = Fraction(float(np.cos(angle))), Fraction(float(np.sin(angle)))
        real, imaginary = c * cosine - d * sine, c * sine + d * cosine
        first.append((a + real, b + imaginary))
        second.append((a - real, b - imaginary))
    return first + second


def spectrum_points(lengths: Sequence[int]) -> int:
    """Count the points of a real spectrum without conjugates of other points."""
    places = itertools.product(*(range(length) for length in lengths))
    return len({min(one, tuple(-a % b for a, b in zip(one, lengths, strict=True))) for one in places})
