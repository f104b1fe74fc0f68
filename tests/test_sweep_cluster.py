"""The same sweep on a Dask cluster: two workers, one killed; one that always dies; none at all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

import pandas as pd
import pytest

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.whatif import sweep as sweep_module
from fomkit.whatif import sweep_result as cluster
from fomkit.whatif.sweep import Sweep, make_sweep
from fomkit.whatif.sweep_result import blocks_on

if TYPE_CHECKING:
    from distributed import LocalCluster

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of processes that were killed


@pytest.fixture(scope="module", autouse=True)
def environment_of_this_process() -> Iterator[None]:
    """Keep to this file what who starts workers sets for itself (``MALLOC_TRIM_THRESHOLD_`` and more)."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture(scope="module")
def two_workers() -> Iterator[LocalCluster]:
    """Start two worker processes that restart when they are killed, for all tests in turn."""
    import dask  # not while tests are collected, which both processes do
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.admin.log-length": 0,
        "distributed.worker.multiprocessing-method": "forkserver",  # forks of one with its modules
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made,
    ):
        patch.setattr(sweep_module, "CHUNK", 500)
        yield made


def sweep_of(points: int = 6_000) -> Sweep:
    vary = {"batch": "1..8", "byte_per_s": "0.1 TB/s..4 TB/s", "price_per_h": "2 USD/h"}
    return make_sweep(fomkit.model("p1b3"), fomkit.machine("v100"), vary, way="sobol", points=points, seed=2)


def test_without_workers_a_sweep_ends(monkeypatch) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr(cluster, "WITHOUT_WORKERS_S", 0.5)
    with LocalCluster(n_workers=0, processes=True, dashboard_address=None) as made:
        begun = time.monotonic()
        with pytest.raises(FomkitError, match=r"has no worker; none connected within 0\.5 s"):
            list(blocks_on(sweep_of(10), made.scheduler_address))
        assert time.monotonic() - begun < 10


def test_a_mistake_on_a_worker_is_its_message(two_workers, monkeypatch) -> None:
    monkeypatch.setattr(cluster, "__version__", "0.0.0")
    with pytest.raises(FomkitError, match=r"this session 0\.0\.0\. Install the same there"):
        list(blocks_on(sweep_of(10), two_workers.scheduler_address))


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(two_workers) -> None:
    from distributed import Client

    one = sweep_of()
    expected = pd.concat(one.blocks())
    blocks = blocks_on(one, two_workers.scheduler_address)
    found = [next(blocks)]
    with Client(two_workers, set_as_default=False) as client:
        client.wait_for_workers(2)
        pids = client.run(os.getpid)
        assert len(set(pids.values())) == 2
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    found += blocks
    # Every point, in order, bit for bit; a worker may keep text in other arrays.
    texts = {name: kind for name, kind in expected.dtypes.items() if kind.kind not in "fiub"}
    done = pd.concat(found).astype(texts)
    pd.testing.assert_frame_equal(done, expected, check_exact=True, check_column_type=False)


@dataclass(frozen=True)
class Deadly(Sweep):
    """A sweep whose second block kills its worker, as running out of memory does."""

    def stretch(self, start: int, stop: int) -> pd.DataFrame:
        if start:
            os._exit(1)
        return super().stretch(start, stop)


@pytest.mark.slow
def test_a_worker_that_keeps_dying_is_one_message(two_workers) -> None:
    one = Deadly(**{name: value for name, value in vars(sweep_of(1_500)).items() if name != "_study"})
    with pytest.raises(FomkitError, match="workers died repeatedly at the same points"):
        list(blocks_on(one, two_workers.scheduler_address))
