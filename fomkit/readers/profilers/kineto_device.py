"""Join kernels and other events on the accelerator to the calls that launched them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fomkit.core.units import ITEM_BYTE
from fomkit.frontends.step_spread import busiest
from fomkit.readers.profilers.kineto_nesting import Nesting
from fomkit.readers.profilers.kineto_stream import Events

_COLLECTIVES = (
    ("reduce_scatter", "reducescatter"), ("all_reduce", "allreduce"), ("all_gather", "allgather"),
    ("all_to_all", "alltoall"), ("broadcast", "broadcast"), ("reduce", "reduce"), ("send_recv", "sendrecv"),
    ("send", "send"), ("recv", "recv"), ("gather", "gather"), ("scatter", "scatter"),
)  # fmt: skip
"""fomkit's words for collectives, and their spelling in names of NCCL and RCCL, longer words first."""
_TO_INPUT = re.compile(r"dgrad|bwd_?data|backward_?data", re.IGNORECASE)
_TO_WEIGHT = re.compile(r"wgrad|bwd_?weight|wrw|backward_?(filter|weight)", re.IGNORECASE)
_TF32 = re.compile(r"tf32|s1688gemm|s1688cudnn", re.IGNORECASE)
_MATRIX = re.compile(r"^Cijk.*_(MI\d+x\d+|MFMA)")
"""Products of AMD's Tensile that use matrix instructions, in fp32 too."""


def collective_word(name: str) -> str:
    """Return the collective for a name of NCCL, RCCL or PyTorch; "" if it is none.

    >>> collective_word("ncclDevKernel_AllReduce_Sum_f32(ncclDevComm*)"), collective_word("_allgather_base")
    ('all_reduce', 'all_gather')
    """
    letters = re.sub(r"[^a-z]", "", name.partition("(")[0].lower())
    return next((word for word, spelling in _COLLECTIVES if spelling in letters), "")


def is_collective(kernel: str) -> bool:
    """Return whether a kernel is one of NCCL or RCCL."""
    return kernel.lower().startswith(("nccl", "rccl", "mscclkernel"))


def is_copy(kernel: str) -> bool:
    """Return whether a device event is a copy or a fill of memory."""
    return kernel.lower().startswith(("memcpy", "memset", "copyhosttodevice", "copydevicetohost", "filldevice"))


@dataclass
class DeviceTimes:
    """Times on the device [µs].

    `of_row`: sum of the kernels of each row; NaN if it launched none.
    `unit_s`: time of kernels, copies and fills [s] by device; the other fields are of ``unit``, the busiest.
    `elsewhere`: rows whose kernels all ran on another device.
    `loose`, `loose_host`: device event, and the host event that launched it (-1 for none), of kernels outside all
      priced rows and of collectives.
    `gradients`: row of a backward convolution to the times of kernels for its input's and its weight's gradient.
    `units`: rows whose kernels' names show the arithmetic unit: tf32, or matrix.
    `occupied`: row to the sums of occupancy [share] × time, and of time [µs], of its kernels with an occupancy.
    `occupancy`: achieved occupancy [share], weighted by time; NaN if no kernel states it.
    `occupancy_share`: share of the kernels' time for which it is stated.
    """

    of_row: NDArray[np.float64]
    unit_s: dict[str, float] = field(default_factory=dict)
    unit: str = ""
    elsewhere: set[int] = field(default_factory=set)
    loose: array[int] = field(default_factory=lambda: array("i"))
    loose_host: array[int] = field(default_factory=lambda: array("i"))
    gradients: dict[int, list[float]] = field(default_factory=dict)
    units: dict[int, str] = field(default_factory=dict)
    occupied: dict[int, list[float]] = field(default_factory=dict)
    occupancy: float = float("nan")
    occupancy_share: float = 0.0


class _Launches:
    """The host event in which each kernel was launched.

    Found by the correlation with the launch and the innermost call around it, else by the call's number.
    """

    def __init__(self, nesting: Nesting, events: Events) -> None:
        self._host = array("i", [-1]) * len(events.launch_start)
        correlations = np.frombuffer(events.launch_correlation, "q") if len(self._host) else np.zeros(0, "q")
        self._order = np.argsort(correlations, kind="stable")
        self._correlations = correlations[self._order]
        if len(self._host) and len(events.start):
            self._find_hosts(nesting, events)
        self._events = events
        places = range(len(events.device_time))
        wanted = {events.device_external[place] for place in places if self._launched_in(place) < 0} - {-1, 0}
        numbered = enumerate(events.external) if wanted else ()
        self._by_number = {number: event for event, number in numbered if number in wanted}

    def _find_hosts(self, nesting: Nesting, events: Events) -> None:
        order = nesting.order
        thread = np.frombuffer(events.thread, events.thread.typecode)[order]
        starts = np.frombuffer(events.start, "d")[order]
        launched = np.frombuffer(events.launch_thread, events.launch_thread.typecode)
        at = np.frombuffer(events.launch_start, "d")
        for line in np.unique(launched):
            first, last = np.searchsorted(thread, (line, line + 1))
            places = np.flatnonzero(launched == line)
            before = first + np.searchsorted(starts[first:last], at[places], side="right") - 1
            for place, candidate in zip(places, before, strict=True):
                if candidate >= first:
                    around = nesting.around(int(order[candidate]))
                    self._host[place] = next((one for one in around if events.end[one] >= at[place]), -1)

    def _launched_in(self, device: int) -> int:
        correlation = self._events.device_correlation[device]
        place = int(np.searchsorted(self._correlations, correlation))
        if correlation < 0 or place == len(self._correlations) or self._correlations[place] != correlation:
            return -1
        return self._host[int(self._order[place])]

    def host(self, device: int) -> int:
        """Return the host event of a device event; -1 if unknown."""
        found = self._launched_in(device)
        return found if found >= 0 else self._by_number.get(self._events.device_external[device], -1)


def join_device(events: Events, nesting: Nesting) -> DeviceTimes:
    """Join kernels to rows: by correlation to the launch and the call around it, else by the call's own number."""
    times = DeviceTimes(np.full(len(nesting.rows.event), np.nan))
    if not len(events.device_time):
        return times
    taken = _busiest_unit(events, times)
    launches = _Launches(nesting, events)
    names = events.names.values
    facts: dict[int, tuple[bool, int, str]] = {}
    for device, name in enumerate(events.device_name):
        host = launches.host(device)
        if name not in facts:
            part = 0 if _TO_INPUT.search(names[name]) else 1 if _TO_WEIGHT.search(names[name]) else -1
            unit = "tf32" if _TF32.search(names[name]) else "matrix" if _MATRIX.search(names[name]) else ""
            facts[name] = is_collective(names[name]), part, unit
        collective, part, unit = facts[name]
        row = -1 if collective else nesting.row_around(host)
        if events.device_unit[device] != taken:
            times.elsewhere.add(row)
            continue
        if row < 0:
            times.loose.append(device)
            times.loose_host.append(host)
            continue
        time = events.device_time[device]
        share = events.device_occupancy[device] / 100
        if share > 0:
            sums = times.occupied.setdefault(row, [0.0, 0.0])
            sums[0] += share * time
            sums[1] += time
        times.of_row[row] = time + (0.0 if np.isnan(times.of_row[row]) else times.of_row[row])
        if part >= 0:
            times.gradients.setdefault(row, [0.0, 0.0])[part] += time
        if unit:
            times.units[row] = unit
    times.elsewhere = {row for row in times.elsewhere if row >= 0 and np.isnan(times.of_row[row])}
    _occupancy(events, times, np.frombuffer(events.device_unit, events.device_unit.typecode) == taken)
    return times


def _busiest_unit(events: Events, times: DeviceTimes) -> int:
    """Find the device with the most time, and return its place among the events' devices."""
    names = [str(unit) for unit in events.units.values]
    spent = np.bincount(np.frombuffer(events.device_unit, events.device_unit.typecode), events.device_time)
    times.unit_s = dict(sorted(zip(names, (spent / 1e6).tolist(), strict=True)))
    times.unit = busiest(times.unit_s)
    return names.index(times.unit)


def _occupancy(events: Events, times: DeviceTimes, taken: NDArray[np.bool_]) -> None:
    share = np.frombuffer(events.device_occupancy, "d")[taken]
    time = np.frombuffer(events.device_time, "d")[taken]
    # Copies have none; the profiler writes 0 if it does not know.
    recorded = share > 0
    if time[recorded].sum() > 0:
        times.occupancy = float((share * time)[recorded].sum() / time[recorded].sum() / 100)
        times.occupancy_share = float(time[recorded].sum() / time.sum())


def message_of(details: Sequence[Mapping[str, Any]]) -> tuple[str, float, int, str]:
    """Return collective, bytes on each rank, ranks and number format, each from the first event that states it.

    Unknown values are "", NaN, 0 and "". For gathers and scatters the whole message counts, as in nccl-tests.
    """
    word, byte, ranks, dtype = "", float("nan"), 0, ""
    for detail in details:
        word = word or collective_word(str(detail.get("Collective name", "")))
        dtype = dtype or _DTYPES.get(str(detail.get("dtype", "")).lower().removeprefix("c10::"), "")
        lengths = [detail.get(key) for key in ("In msg nelems", "Out msg nelems")]
        whole = [length for length in lengths if type(length) is int and 0 < length < 1e15]
        if dtype and whole and byte != byte:
            byte = max(whole) * ITEM_BYTE[dtype]
        size = detail.get("Group size")
        ranks = ranks or (size if type(size) is int and 1 < size < 1e9 else 0)
    return word, byte, ranks, dtype


_DTYPES = {
    "double": "fp64", "float64": "fp64", "float": "fp32", "float32": "fp32", "half": "fp16", "float16": "fp16",
    "bfloat16": "bf16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "long": "int64", "int64": "int64",
    "int": "int32", "int32": "int32", "short": "int16", "int16": "int16", "char": "int8", "int8": "int8",
    "byte": "uint8", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
"""Names of number formats in the profiler's details of collectives, in lower case."""
