"""A sweep on an existing Dask cluster: its stretches are tasks, and results are returned in their order."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError, install_hint
from fomkit.whatif.sweep import Sweep

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


def _check_scheduler(address: str) -> None:
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
    """Yield the estimates of all points of a sweep from stretch `first` on, on a cluster, in order.

    The stretches are those of `Sweep.blocks`, and so are the results, bit for bit where the workers' processor and
    libraries are those of this machine. If a worker dies, another repeats its running and finished stretches.

    `address`: the scheduler's, for example ``tcp://10.0.0.1:8786``.
    """
    _check_scheduler(address)
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
