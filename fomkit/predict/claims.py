"""What timings claim beside the facts: flop/s over the peak and byte/s over the bandwidth, and how much can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.predict.bounds import CACHED_BYTE
from fomkit.predict.rows import Table, are, numbers, same_texts

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.hardware import Device, Fact

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]

LIMITS: Mapping[str, float] = {"gemm": 2.0, "sparse_gemm": 2.0, "rnn": 2.0, "attention": 3.0, "conv": 5.5}
"""Times the peak beyond which a timing cannot be: clocks above the sheet's, a masked half, Winograd."""
BOOST = 1.25
"""Times the peak beyond which a product is suspected: the largest that any machine reached is 1.07."""
OTHER_LIMIT = 2.0
UNSTATED_PEAK = 64.0
"""Times the largest peak of any format that a format without a stated one may reach: narrow ones on an engine."""
CACHED = {"gpu": 5.0, "cpu": 40.0, "": 40.0}
"""Times the bandwidth beyond which an op that fits a cache cannot be; those of processors are fast and private."""
UNCACHED = 1.5
"""Times the bandwidth beyond which an op that no cache holds cannot be."""
SUSTAINED = 4.0
"""How much more may be where a rate was measured itself: what a busy machine sustained is no physical limit."""
LAUNCHES = 50.0
"""No op is so many times shorter than a launch."""
EXCHANGED = 1.5
"""Times the bandwidth beyond which an exchange cannot move its message, which memory reads."""


class Slip(NamedTuple):
    """What may be wrong (times, peak, bandwidth), and how many times as large it fits; peaks by their places."""

    of: str
    factor: float
    peaks: tuple[int, ...] = ()


class Claims(NamedTuple):
    """What each timing claims beside the facts: its time, and that of its arithmetic, traffic and launches.

    ``printed`` holds times to the end of the clock's step, ``seconds`` the same less the harness, NaN where
    nothing remains; ``against`` is the place of the peak that a timing is held against, -1 where none is stated;
    ``stated`` tells where the peak is that of the timing's own format.
    """

    printed: Array
    harness: Array
    seconds: Array
    compute_s: Array
    traffic_s: Array
    launch_s: Array
    most_compute: Array
    most_traffic: Array
    against: NDArray[np.int64]
    exchanged: Flags
    stated: Flags

    def take(self, at: NDArray[np.intp]) -> Claims:
        """Give what some timings claim, by position."""
        return Claims._make(column[at] for column in self)

    def without(self, slip: Slip) -> Claims:
        """Give what would be claimed without a slip."""
        seconds = self.printed * (slip.factor if slip.of == "times" else 1.0) - self.harness
        peak = np.where(np.isin(self.against, slip.peaks), slip.factor if slip.of == "peak" else 1.0, 1.0)
        return self._replace(
            seconds=np.where(seconds > 0, seconds, np.nan),
            compute_s=self.compute_s / peak,
            traffic_s=self.traffic_s / (slip.factor if slip.of == "bandwidth" else 1.0),
        )

    @property
    def compute(self) -> Array:
        """flop/s over the peak."""
        return self.compute_s / self.seconds

    @property
    def traffic(self) -> Array:
        """byte/s over the bandwidth."""
        return self.traffic_s / self.seconds

    @property
    def launch(self) -> Array:
        """What its launches take over the time."""
        return self.launch_s / self.seconds

    @property
    def impossible(self) -> Flags:
        """Tell which timings cannot be."""
        fast = (self.compute > self.most_compute) | (self.traffic > self.most_traffic) | (self.launch > LAUNCHES)
        return np.asarray(fast | np.isnan(self.seconds))

    @property
    def slowness(self) -> Array:
        """Time over launches and the longer of arithmetic and traffic; NaN where unknown, and of exchanges."""
        floor_s = np.fmax(self.compute_s, self.traffic_s)
        known = (floor_s > 0) & ~self.exchanged
        return np.where(known, self.seconds / (np.nan_to_num(self.launch_s) + floor_s), np.nan)


def peak_for(device: Device, dtype: str, engine: str) -> tuple[int, bool]:
    """Give the place of the peak that a format is held against, and whether it is its own; -1 where none is."""
    own = [place for place, one in enumerate(device.peaks) if (one.dtype, one.engine) == (dtype, engine)]
    if own or not device.peaks:
        return (own or [-1])[0], bool(own)
    return max(range(len(device.peaks)), key=lambda place: device.peaks[place].rate.value), False


def _looser(rate: Fact) -> float:
    """Give by how much a limit is looser than beside a datasheet's rate."""
    return SUSTAINED if rate.basis in ("measured", "simulated", "modelled") else 1.0


def claims_of(timings: Table, own: pd.DataFrame, device: Device, kind_of_device: str) -> Claims:
    """Say what each COSTED timing claims; ``own`` is the table with `fomkit.predict.clock.own_times`."""
    count = len(timings)
    printed, harness = numbers(timings, "time_s") + own["_step_s"].to_numpy(), numbers(timings, "harness_s", 0.0)
    against, rate, most = np.full(count, -1), np.full(count, np.nan), np.full(count, OTHER_LIMIT)
    stated = np.zeros(count, bool)
    kinds, kind_of = same_texts(timings, "kind")
    for number, (kind,) in enumerate(kinds):
        most[kind_of == number] = LIMITS.get(kind, OTHER_LIMIT)
    pairs, pair_of = same_texts(timings, "dtype", "engine")
    for number, (dtype, engine) in enumerate(pairs):
        at, (place, is_own) = pair_of == number, peak_for(device, dtype, engine)
        against[at], stated[at] = place, is_own
        if place >= 0:
            rate[at] = device.peaks[place].rate.high
            most[at] *= _looser(device.peaks[place].rate)
        if not is_own:
            most[at] = UNSTATED_PEAK
    # Attention that names its op may be another: over a window only, it does less than its sizes say.
    windowed = are(timings, "kind", "attention") & ~are(timings, "op", "")
    exchanged = np.array([kind == "collective" for (kind,) in kinds], bool)[kind_of]
    byte = np.where(exchanged, numbers(timings, "message_byte"), numbers(timings, "byte"))
    # What lies in a cache is not read; the rest is, at the bandwidth.
    held = UNCACHED * byte / np.maximum(byte - CACHED_BYTE, 1.0)
    looser = 1.0 if device.byte_per_s is None else _looser(device.byte_per_s)
    launch_s = device.launch_s.low if device.launch_s is not None else np.nan
    return Claims(
        printed=printed,
        harness=harness,
        seconds=np.where(own["_time_s"] > 0, printed - harness, np.nan),
        compute_s=np.where(exchanged | windowed, np.nan, numbers(timings, "flop") / rate),
        traffic_s=np.where(windowed, np.nan, byte)
        / (np.nan if device.byte_per_s is None else device.byte_per_s.high),
        launch_s=np.where(exchanged, np.nan, numbers(timings, "launches") * launch_s),
        most_compute=most,
        most_traffic=np.where(exchanged, EXCHANGED, looser * np.minimum(CACHED[kind_of_device], held)),
        against=against,
        exchanged=exchanged,
        stated=stated,
    )
