"""What usual libraries make of images on a device known by its facts: convolutions of a matrix engine, and norms.

A convolution is computed as a product without being one (implicit GEMM): its rows are positions of images, its
columns channels, its depth the channels and the kernel that a result is summed over. Tiles and waves are those
of `fomkit.prediction.tiles`; the traffic is that of the images and the kernel alone. Matrix engines take images
pixel by pixel, so one that lies channel by channel is turned on the way in, and on the way out.

Where each channel has a kernel of its own there is no product: vector units do it. The gradient of such a kernel
is summed by a block of threads for each of its weights, which reads both images anew.

A norm whose rows no processor holds reads them twice: for mean and spread, then to apply them; so does its
gradient.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fomkit.core.interval import half_width
from fomkit.core.machine import Machine
from fomkit.prediction import tiles, typical
from fomkit.prediction.estimates import Rows, Table, are, as_rows, item_bytes, numbers, same_texts
from fomkit.prediction.families import conv_output
from fomkit.prediction.gp import Flags, Matrix, Texts, significant
from fomkit.prediction.rates import floors, rates
from fomkit.prediction.typical import TypicalUtilisations

ARITHMETIC = 1.5
"""Time of a convolution's tiles over that at the stated peak. DeepBench's fp16 convolutions on a V100 take 1.47 to
1.58 by pass. A board whose engine is held back (`tiles.spare_of`) takes no longer than its stated peak says."""
TRAFFIC = 1.25
"""Time of the traffic over that at the stated bandwidth, as the forms of six machines' products have it (1.15 to
1.37)."""
TURNING = 1.6
"""Time of turning an image over that of its traffic; half of it where a kernel of 1 allows a product as they lie.
This and the next figures: steps of image networks on an RTX 3090 (docs/adr/0051)."""
GROUPED = 1.5
"""How much longer tiles and traffic of a convolution in groups take."""
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Parts into which a gradient's sum over all positions may be cut."""
LOAD_BYTE = 16.0
"""Channels of a pixel are filled up to a multiple of this many bytes."""
VECTOR_SHARE = 1 / 3
"""Share of the vector units' peak at which kernels of single channels calculate, beside their traffic."""
GRADIENT_SLOWER = 1.15
"""How much longer the gradient of such a kernel's input takes."""
BLOCKS = 8.0
"""Blocks of threads on a processor that are needed to keep memory busy."""
HELD = 16_384
"""Numbers of a row that a processor holds: 1024 threads of 16 registers each."""
PASSES = {True: 3 / 2, False: 5 / 3}
"""Bytes moved over the least, forward (reads twice, writes) and back (reads two tensors twice, writes)."""
SPREAD, ALONE_SPREAD = 0.3, 0.4
"""Standard deviations of ln(time): of convolutions as products on the V100 0.26 to 0.41 by kernel and pass."""


def _volume(rows: Table, *names: str) -> Matrix:
    return np.asarray(np.prod([numbers(rows, name, 1.0) for name in names], 0), np.float64)


class _Sizes:
    """A convolution's sizes (n); of a transposed one, those of the plain one whose gradient it is."""

    def __init__(self, rows: Table) -> None:
        batch, transposed = numbers(rows, "batch"), numbers(rows, "transposed", 0.0) > 0
        inside = _volume(rows, "depth", "height", "width")
        axes = (("depth", "d"), ("height", "h"), ("width", "w"))
        outside = np.prod([conv_output(rows, size, axis) for size, axis in axes], 0)
        stride = _volume(rows, "stride_d", "stride_h", "stride_w")
        channels = numbers(rows, "in_channels"), numbers(rows, "out_channels")
        self.groups = numbers(rows, "groups", 1.0)
        self.kernel = _volume(rows, "kernel_d", "kernel_h", "kernel_w")
        # The wide side is the input of a plain convolution and the output of a transposed one.
        self.wide_positions = batch * np.where(transposed, inside * stride, inside)
        self.positions = batch * np.where(transposed, inside, outside)
        self.wide = np.where(transposed, channels[1], channels[0])
        self.narrow = np.where(transposed, channels[0], channels[1])
        passes = [are(rows, "pass_name", "forward"), are(rows, "pass_name", "backward_input")]
        self.gathers = np.where(transposed, passes[1], passes[0])
        self.scatters = np.where(transposed, passes[0], passes[1])
        self.byte = item_bytes(rows) * (self.wide_positions * self.wide + self.positions * self.narrow)

    def product(self, rows: Table) -> pd.DataFrame:
        """Give the products that they are: the few channels as rows, so that narrow tiles serve them."""
        step = LOAD_BYTE / item_bytes(rows)
        wide, narrow = (np.ceil(one / self.groups / step) * step for one in (self.wide, self.narrow))
        m = np.where(self.gathers, narrow, np.where(self.scatters, wide, narrow))
        n = np.where(
            self.gathers, self.positions, np.where(self.scatters, self.wide_positions, wide * self.kernel)
        )
        work = self.positions * wide * narrow * self.kernel
        sizes = {"b": self.groups, "m": m, "n": n, "k": work / m / n}
        dtypes = as_rows(rows).text("dtype").cells()
        return pd.DataFrame({**sizes, "dtype": dtypes, "byte": self.byte})


def _as_products(rows: Rows, sizes: _Sizes, chip: tiles.Chip, spare: float) -> Matrix:
    """Give how long convolutions of several channels take [s]."""
    product = tiles.tiled(sizes.product(rows), chip, SPLITS, spare)
    slower = np.where(sizes.groups > 1, GROUPED, 1.0)
    arithmetic_s = product.arithmetic_s * max(ARITHMETIC / spare, 1.0)
    together = np.hypot(arithmetic_s, TRAFFIC * numbers(rows, "byte") / chip.byte_per_s)
    by_pixel = rows.text("layout").mapped([word.endswith("c") for word in rows.text("layout").words], bool)
    turned = np.where(sizes.kernel > 1, TURNING, TURNING / 2) * 2 * sizes.byte / chip.byte_per_s
    turned = np.where(by_pixel, 0.0, turned * (1 - 1 / (1 + (sizes.byte / chip.cache_byte) ** 2)))
    return np.asarray(slower * together + product.joining_s + turned, np.float64)


def _of_single_channels(rows: Rows, sizes: _Sizes, chip: tiles.Chip, vector_flop_per_s: float) -> Matrix:
    """Give how long convolutions of single channels take [s]."""
    beside = numbers(rows, "flop") / (VECTOR_SHARE * vector_flop_per_s)
    through = (numbers(rows, "byte") / chip.byte_per_s + beside) * np.where(sizes.scatters, GRADIENT_SLOWER, 1.0)
    weights = sizes.narrow * sizes.kernel
    read = 2 * item_bytes(rows) * sizes.positions * np.maximum(weights, BLOCKS * chip.units)
    return np.asarray(np.where(sizes.gathers | sizes.scatters, through, read / chip.byte_per_s), np.float64)


def _convolutions(rows: Rows, machine: Machine, dtype: str, interval: float) -> tuple[Matrix, Texts] | None:
    """Give utilisation with its ends (3, q) and sources of a matrix engine's convolutions in a number format."""
    known, device = rates(machine, dtype, "matrix"), machine.device
    vector = device.peak("fp32", "vector")
    if known.flop_per_s is None or known.byte_per_s is None or vector is None:
        return None
    flop_per_s, byte_per_s = known.flop_per_s.value, known.byte_per_s.value
    chip = tiles.chip_of(device, flop_per_s, byte_per_s)
    if chip is None:
        return None
    sizes = _Sizes(rows)
    alone = (sizes.groups > 1) & (sizes.groups == sizes.wide)
    seconds = np.where(
        alone,
        _of_single_channels(rows, sizes, chip, vector.rate.value),
        _as_products(rows, sizes, chip, tiles.spare_of(device, dtype)),
    )
    floor_s, _ = floors(
        np.ones(len(rows), bool), numbers(rows, "flop"), numbers(rows, "byte"), flop_per_s, byte_per_s
    )
    factor = np.exp(half_width(interval) * np.where(alone | (sizes.groups > 1), ALONE_SPREAD, SPREAD))
    reached = floor_s / seconds
    stated = f"{chip.units:.0f} processors"
    words = (f"channel by channel on vector units of {stated}", f"in tiles as a product on {stated}")
    return np.stack([reached, reached / factor, reached * factor]), np.where(alone, *words).astype(object)


def long_norms(rows: Table) -> Flags:
    """Tell which norms have rows that no processor holds."""
    return np.asarray(are(rows, "kind", "norm") & (numbers(rows, "row", 1.0) > HELD))


def _read_twice(rows: Rows, machine: Machine, interval: float) -> TypicalUtilisations:
    """Give the utilisation of norms that move their tensors as ops on single elements do, but more often."""
    times = np.where(are(rows, "pass_name", "forward"), PASSES[True], PASSES[False])
    moved = rows.assign(kind="pointwise", byte=numbers(rows, "byte") * times)
    found = typical.typical_utilisation(moved, machine, interval)
    sources = np.array([f"{source}, its rows read twice" for source in found.source], object)
    value, low, high = significant(np.stack([found.value, found.low, found.high]) / times)
    return TypicalUtilisations(value, low, high, sources, found.started)


def typical_utilisation(rows: Table, machine: Machine, interval: float) -> TypicalUtilisations:
    """Give what `typical.typical_utilisation` does, with convolutions in tiles and norms that read twice.

    Convolutions of a matrix engine go by tiles where processors and cache are stated, else as others are usual.
    """
    rows = as_rows(rows)
    conv = are(rows, "kind", "conv") & are(rows, "engine", "matrix") & ~are(rows, "pass_name", "backward")
    twice = long_norms(rows)
    if not (conv | twice).any():
        return typical.typical_utilisation(rows, machine, interval)
    ends, sources = np.full((3, len(rows)), np.nan), np.full(len(rows), "", object)
    started, rest = np.zeros(len(rows), bool), ~conv & ~twice
    groups, number = same_texts(rows.take(conv), "dtype")
    for at_group, (dtype,) in enumerate(groups):
        at = np.flatnonzero(conv)[number == at_group]
        found = _convolutions(rows.take(at), machine, dtype, interval)
        if found is None:
            rest[at] = True
        else:
            ends[:, at], sources[at] = significant(found[0]), found[1]
    for which, answer in ((twice, _read_twice), (rest, typical.typical_utilisation)):
        if which.any():
            got = answer(rows.take(which), machine, interval)
            ends[:, which] = got.value, got.low, got.high
            sources[which], started[which] = got.source, got.started
    return TypicalUtilisations(ends[0], ends[1], ends[2], sources, started)
