"""The result of a sweep: its points as a table, their Pareto front, and its content, ``fomkit/sweep/1``.

On an existing Dask cluster its stretches are tasks (`blocks_on`), and results are returned in their order.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown, install_hint
from fomkit.core.measurement import verdict_on
from fomkit.core.units import by_key
from fomkit.ops.precision import choose_formats
from fomkit.plan.content import INTERVAL_MEANING, Condition, as_content, conditions_content
from fomkit.plan.estimate import estimate
from fomkit.plan.job import NodesJob
from fomkit.plan.memory_of import fit_in
from fomkit.plan.options import NODES
from fomkit.plan.run import left_out_note, left_out_share, steps_per_epoch
from fomkit.prediction.exchange import Network
from fomkit.profiles.evidence import without_implausible
from fomkit.whatif.sweep import Sweep
from fomkit.whatif.sweep_axes import POWER, PRICE, Axis
from fomkit.whatif.sweep_figures import FITS, PEAK_BYTE, Objective, lower_is_better, pareto_front

Blocks = Iterable[pd.DataFrame]


class Tally:
    """Ranges, best points and front of the points so far.

    `too_large`: points whose step a device does not hold; they are neither best nor on the front.
    `not_checked`: points for which it is unknown whether they fit; they are compared like points that do.
    `front`: one point for each set of objectives that no other point dominates, the first of equal ones.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.seen = 0
        self.too_large = 0
        self.not_checked = 0
        self.front = pd.DataFrame()
        self.ranges: dict[str, tuple[float, float]] = {}

    def add(self, block: pd.DataFrame) -> None:
        """Add some points to the tally."""
        self.seen += len(block)
        for name in block.columns:
            if block[name].dtype.kind == "f" and block[name].notna().any():
                low, high = self.ranges.get(str(name), (math.inf, -math.inf))
                self.ranges[str(name)] = min(low, float(block[name].min())), max(high, float(block[name].max()))
        if FITS in block:
            self.not_checked += int(block[FITS].isna().sum())
            held = block[FITS].fillna(True).to_numpy(bool)
            self.too_large += int((~held).sum())
            block = block[held]
        else:
            self.not_checked += len(block)
        both = pd.concat([self.front, block]) if len(self.front) else block
        values = lower_is_better(both, self.sweep.objectives)
        best = both[pareto_front(values)]
        self.front = best.drop_duplicates([objective.column for objective in self.sweep.objectives])

    def sorted_front(self, objective: Objective | None = None) -> pd.DataFrame:
        """Return the front, the best by one objective first; default: by time."""
        if not len(self.front):
            return self.front
        first = objective or self.sweep.objectives[0]
        order = [first, *(objective for objective in self.sweep.objectives if objective != first)]
        return self.front.iloc[np.lexsort(lower_is_better(self.front, order).T[::-1])]


SCHEMA = "fomkit/sweep/1"
UNCHECKED = "the memory of this step is unknown"
FRONT_LISTED = 200
"""Number of points of the front that are listed; the table of the sweep has them all."""
_UNITS = {"byte_per_s": "byte/s", "flop_per_s": "flop/s", "time_s": "s", "power_w": "W"}
ASSUMED = {
    "machine": "on a machine with other rates every op keeps its utilisation on the machine as built; intervals "
    "keep their relative width, but how far this holds has not been measured",
    PRICE: "a device costs its price in every hour, whether the machine is up or not; the date of the price is "
    "not stated",
    POWER: "a device uses this power all the time that it works, and nothing else is counted",
    "nodes": "each copy of the model has the batch of the point (weak scaling), as in fomkit scaling",
    "best": "values are compared, not intervals: points whose intervals overlap may swap ranks",
    "sizes": "a run has the same number of samples at any size, although the samples differ in size",
    FITS: "a point whose step does not fit the device's memory is neither best nor on the front",
}


def points_content(points: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield points with their results; None is unknown."""
    for row in points.to_dict("records"):
        yield {str(name): None if pd.isna(value) else value for name, value in row.items()}


AxisContent = TypedDict("AxisContent", {"name": str, "unit": str, "least": float, "most": float,
                                        "count": int | None, "spacing": str})  # fmt: skip
PriceOf = TypedDict("PriceOf", {"currency": str, "per": str, "date": str, "source": str})
ObjectiveContent = TypedDict("ObjectiveContent", {"name": str, "column": str, "better": str, "unit": str})
EndsOfRange = TypedDict("EndsOfRange", {"least": float, "most": float})
Best = TypedDict("Best", {"objective": str, "point": dict[str, object] | None})
Front = TypedDict("Front", {"size": int, "points": list[dict[str, object]]})
SweepContent = TypedDict("SweepContent", {
    "schema": str, "fomkit": str, "model": str, "target": str, "sizes": dict[str, int], "precision": str,
    "scope": str, "interval": float, "interval_covers": str, "way": str, "seed": int | None, "points": int,
    "too_large": int | None, "not_checked": int, "why_not_checked": str | None, "excludes": list[str],
    "price": PriceOf | None, "varied": list[AxisContent], "per": str, "unit": str,
    "objectives": list[ObjectiveContent], "ranges": dict[str, EndsOfRange], "best": list[Best], "front": Front,
    "absent": dict[str, str], "assumed": list[str], "notes": list[str], "conditions": dict[str, Condition],
})  # fmt: skip


def _axis_content(axis: Axis, sweep: Sweep) -> AxisContent:
    low, high = axis.ends
    plain = "count" if axis.kind.whole else "number"
    if axis.name == PRICE and sweep.bill is not None:
        plain = f"{sweep.bill.price.currency}/h"
    return {
        "name": axis.name, "unit": _UNITS.get(axis.kind.dimension, plain),
        "least": int(low) if axis.kind.whole else low, "most": int(high) if axis.kind.whole else high,
        "count": axis.count, "spacing": "listed" if axis.values else "log" if axis.log else "linear",
    }  # fmt: skip


def _sweep_assumed(sweep: Sweep) -> list[str]:
    machine_facts = any(name.startswith(("byte_per_s", "launch_s", "flop_per_s")) for name in sweep.names)
    sizes = any(axis.kind.whole and axis.name not in ("batch", "nodes") for axis in sweep.plan.axes)
    holds = {
        "machine": machine_facts, PRICE: PRICE in sweep.names, POWER: POWER in sweep.names,
        "nodes": sweep.on_nodes, "best": True,
        "sizes": sizes and sweep.per == "unit of work", FITS: FITS in sweep.known,
    }  # fmt: skip
    return [text for name, text in ASSUMED.items() if holds[name]]


def _sweep_conditions(sweep: Sweep) -> dict[str, Condition]:
    """State what a time varies with, for the given machine and least sizes, and what each point varies."""
    options, sizes = sweep.options_at_least, sweep.least_sizes
    if sweep.on_nodes:
        nodes = next(int(axis.ends[0]) for axis in sweep.plan.axes if axis.name == NODES)
        found = NodesJob(sweep.model, sweep.machine, sweep.layout, options).conditions(nodes)
    else:
        found = conditions_content(estimate(sweep.model, sweep.machine, options))
    if "byte_per_s" in sweep.names:
        found["bandwidth"] = {"is": "modelled", "what": "that of each point, as it is varied here"}
    if sizes:
        found["sizes"] = {"is": "modelled", "what": f"each op at the {' and '.join(sizes)} of each point"}
    return found


def _left_out_notes(sweep: Sweep, firsts: Iterable[pd.DataFrame]) -> Iterator[str]:
    """Yield notes on best points whose runs leave a notable share of the samples out."""
    if sweep.per != "unit of work":
        return
    model, last_batch = sweep.model, sweep.options.last_batch or sweep.model.data.last_batch
    sizes = {**model.sizes, **sweep.options.wanted_sizes}
    for first in firsts:
        for point in points_content(first):
            at: dict[str, Any] = {"train_samples": model.data.train_samples, **sizes, **point}
            batch, samples = int(at["batch"]), int(at["train_samples"])
            if sweep.on_nodes:
                batch *= sweep.layout.replicas(int(at[NODES]) * Network(sweep.machine).node_devices)
            share = left_out_share(samples, steps_per_epoch(samples, batch, last_batch)[0], batch)
            if note := left_out_note(share):
                yield f"a best point, with {batch:,} samples in a step: {note}"


def _tight(sweep: Sweep, firsts: Iterable[tuple[Objective, pd.DataFrame]]) -> list[str]:
    """Return a note on each best point that leaves no room for the device's reserve, with what it is best in."""
    best = [(one.name, first[PEAK_BYTE].iloc[0]) for one, first in firsts if len(first) and PEAK_BYTE in first]
    fits = by_key((fit_in(sweep.machine, peak).warning, name) for name, peak in best if peak > 0)
    return [f"best {' and '.join(names)}: its step {warning}" for warning, names in fits.items() if warning]


def sweep_content(sweep: Sweep, tally: Tally) -> SweepContent:
    """Return the content of a sweep, ``fomkit/sweep/1``, once all its points are in the tally."""
    front = tally.sorted_front()
    formats = choose_formats(
        sweep.options.precision, sweep.model.traced_with.get("framework", ""), sweep.machine, sweep.model.ops
    )
    sizes = {**sweep.model.sizes, **sweep.options.wanted_sizes}
    firsts = [(objective, tally.sorted_front(objective).head(1)) for objective in sweep.objectives]
    left_out = dict.fromkeys(_left_out_notes(sweep, [first for _, first in firsts]))
    way, price = sweep.plan.way, sweep.bill and sweep.bill.price
    return as_content(
        SweepContent, sweep, tally, schema=SCHEMA, fomkit=__version__, model=sweep.model.name,
        target=sweep.machine.name, sizes={name: size for name, size in sizes.items() if name not in sweep.names},
        precision=formats.name, interval=sweep.options.interval, interval_covers=INTERVAL_MEANING, way=way,
        seed=None if way == "grid" else sweep.plan.seed, points=tally.seen,
        too_large=tally.too_large if FITS in sweep.known else None,
        why_not_checked=(sweep.memory.unchecked or UNCHECKED) if tally.not_checked else None,
        price=price and as_content(PriceOf, price, price.per_s), unit=sweep.model.unit.name,
        varied=[_axis_content(axis, sweep) for axis in sweep.plan.axes],
        ranges={name: {"least": low, "most": high} for name, (low, high) in tally.ranges.items()
                if name not in sweep.names},
        best=[{"objective": one.name, "point": next(points_content(first), None)} for one, first in firsts],
        front={"size": len(front), "points": list(points_content(front.head(FRONT_LISTED)))},
        assumed=_sweep_assumed(sweep), conditions=_sweep_conditions(sweep),
        notes=[*verdict_on(without_implausible(sweep.machine)), *left_out, *_tight(sweep, firsts)],
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """All points of a sweep.

    `table`: a row for each point: its parameters (SI units), step_s [s], sample_per_s [1/s] and unit_per_day
      [1/day] with low and high, cost and energy_j [J], peak_byte [byte], fits and basis, as far as they are known.
    `front`: the rows of the table that no other row dominates, one of each set of equals.
    `content`: ``fomkit/sweep/1``.
    """

    table: pd.DataFrame = field()
    front: pd.DataFrame
    content: SweepContent = field()

    @property
    def best(self) -> pd.Series:
        """The point with the least time a unit of work, of those whose step the memory holds."""
        return self.front.iloc[0]


def run_sweep(
    sweep: Sweep, scheduler: str | None = None, after_each: Callable[[], None] = lambda: None, *,
    keep: bool = True, first: int = 0, through: Callable[[Blocks], Blocks] = lambda blocks: blocks,
) -> Swept:  # fmt: skip
    """Run a sweep; ``through`` may write its stretches and prepend those before ``first``."""
    tally, tables, blocks = Tally(sweep), list[pd.DataFrame](), sweep.blocks(first)
    if scheduler is not None:
        blocks = blocks_on(sweep, scheduler, first)
    for block in through(blocks):
        tally.add(block)
        tables.append(block if keep else block.iloc[:0].copy())
        after_each()
    return Swept(pd.concat(tables), tally.sorted_front(), sweep_content(sweep, tally))


CONNECT_S = 5.0
"""Time limit for the scheduler to answer."""
WITHOUT_WORKERS_S = 30.0
"""Time limit for a worker to appear when there is none."""
AHEAD = 4
"""Number of submitted stretches for each thread of the workers; results that are early wait there, not here."""
_LOUD = ("distributed", "tornado", "asyncio")
_ONE_AT_A_TIME = threading.Lock()


def _receive(sweep: Sweep, version: str) -> Sweep:
    """Receive a sweep on a worker; this is a task of its own, so that another worker can repeat it."""
    if version != __version__:
        raise FomkitError("worker", f"has fomkit {__version__}, this session {version}. Install the same there.")
    return sweep


def _run_stretch(sweep: Sweep, start: int, stop: int) -> pd.DataFrame:
    # Threads of one worker would only wait for each other, and they share the caches of the sweep.
    with _ONE_AT_A_TIME:
        return sweep.stretch(start, stop)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's own reports of lost connections: our error states once what they mean."""
    import logging

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOUD]
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://[^/\s]+:[0-9]{1,5}/?")


def check_scheduler(address: str) -> None:
    """Raise before connecting, because the library does not clean up its client after an invalid address."""
    if _ADDRESS.fullmatch(address) is None:
        raise FomkitError(
            f"--scheduler {address}",
            "is not a scheduler address. Write, for example, tcp://10.0.0.1:8786, as 'dask scheduler' prints it.",
        )
    if find_spec("distributed") is None:
        raise FomkitError(
            f"--scheduler {address}", f"needs Dask, which is not installed. Run: {install_hint('cluster')}"
        )


@contextmanager
def _client(address: str) -> Iterator[Any]:
    import dask
    from distributed import Client

    # A machine with a large table is sent once to each worker, whatever the library's limit of size is.
    with _quiet(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise FomkitError(
                f"--scheduler {address}",
                f"no scheduler answers there within {CONNECT_S:g} s. Check the address and that it runs "
                "('dask scheduler' prints it), or leave --scheduler out.",
            ) from error
        try:
            yield client
        finally:
            client.close(timeout=CONNECT_S)


def _wait(client: Any, address: str) -> int:
    """Wait until there is a worker, and return the number of threads of all workers."""
    end = time.monotonic() + WITHOUT_WORKERS_S
    while True:
        threads: int = sum(client.nthreads().values())
        if threads:
            return threads
        if time.monotonic() > end:
            raise FomkitError(
                f"--scheduler {address}",
                f"has no worker; none connected within {WITHOUT_WORKERS_S:g} s. Start one: dask worker {address}.",
            )
        time.sleep(0.2)


def _lost_scheduler(address: str) -> FomkitError:
    return FomkitError(f"--scheduler {address}", "was lost during the sweep. Restart it and the sweep.")


def _future_result(client: Any, future: Any, address: str) -> pd.DataFrame:
    """Wait for one stretch, as long as there are workers."""
    import asyncio
    from concurrent import futures

    from distributed import KilledWorker

    while True:
        try:
            found: pd.DataFrame = future.result(timeout=2.0)
        except TimeoutError:
            if client.status != "running":
                raise _lost_scheduler(address) from None
            _wait(client, address)
        except (asyncio.CancelledError, futures.CancelledError):
            raise _lost_scheduler(address) from None
        except KilledWorker as error:
            raise FomkitError(
                f"--scheduler {address}",
                "workers died repeatedly at the same points. Check their memory limit and logs, or leave "
                "--scheduler out.",
            ) from error
        else:
            return found


def blocks_on(sweep: Sweep, address: str, first: int = 0) -> Iterator[pd.DataFrame]:
    """Yield a sweep's estimates from stretch `first` on, in order, on the cluster of a scheduler (tcp://…).

    The stretches are those of `Sweep.blocks`, and so are the results, bit for bit where the workers' processor and
    libraries are those of this machine. If a worker dies, another repeats its running and finished stretches.
    """
    check_scheduler(address)
    with _client(address) as client:
        ahead = AHEAD * _wait(client, address)
        there = client.submit(_receive, sweep, __version__, pure=False)
        waiting: deque[Any] = deque()
        for start, stop in sweep.stretches()[first:]:
            waiting.append(client.submit(_run_stretch, there, start, stop, pure=False))
            if len(waiting) >= ahead:
                yield _future_result(client, waiting.popleft(), address)
        while waiting:
            yield _future_result(client, waiting.popleft(), address)
