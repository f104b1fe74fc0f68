"""Fixtures that every room's tests share."""

from __future__ import annotations

import gc
import gzip
import itertools
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from read_once import Readers, profiles_are_read_once
from ready_children import children_started_anew, ready_children

# Doctests are collected everywhere; a conftest is loaded by pytest itself and would be imported twice, the
# training programs would train, a user's model would be built, and the folders of the adapter and of stand-ins for
# libraries would stay on the path, as if they were installed.
collect_ignore_glob = [
    "*/conftest.py", "data/scripts/*", "data/toy_adapter/*", "data/trainers/*", "golden/inputs/*",
]  # fmt: skip
# Test machines are shared and slow at times; how long an example takes says nothing of the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
ROOT = Path(__file__).resolve().parent.parent


IN_KERAS = re.compile(
    r"/test_(keras_\w+|\w+_tensorflow|doors_agree|frontends_page|libraries|measured_step|random_networks)\.py::"
)
"""Tests that import TensorFlow, here or in a child that waits with it."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests that import TensorFlow to one process: it takes each that does, and its children, seconds."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "TensorFlow" if IN_KERAS.search(nodeid) else str(super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests: at the end one process would wait for the other's last one.

    Before them come the tests of one process, which are many, last the examples of docstrings, which are short.
    The order of files is else their own, so that those of a folder find what one another's children loaded.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (IN_KERAS.search(item.nodeid) is None, item.path not in slow))


def pytest_collection_finish() -> None:
    """Let the collector of garbage leave alone what stays: frameworks and 5,000 tests are a million objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout, with machine_profiles/ and model_profiles/."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; tests that need it are skipped by name without it."""
    folder = Path(os.environ.get("FOMKIT_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"the real data is not here: {folder.name}/data beside the checkout, or FOMKIT_SHARED")
    return folder


@pytest.fixture(scope="session")
def unsized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the lecture's P1B3 as it was printed: sums of ops that nobody says the sizes of."""
    from fomkit.profiles.models import load_model, save_model

    model = load_model("p1b3-lecture")
    ops = model.ops.assign(**dict.fromkeys(("numel", "read_byte", "write_byte"), float("nan")))
    path = tmp_path_factory.mktemp("unsized") / "p1b3-lecture.yaml"
    return save_model(replace(model, ops=ops), path)[0]


@pytest.fixture(scope="session")
def kernels_of(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """NeuSight's table of kernels as one file for each device: nobody reads 400,000 lines for one of them."""
    folder = tmp_path_factory.mktemp("kernels")
    with gzip.open(shared / "data" / "neusight" / "kernels.csv.gz", "rt", encoding="utf-8") as file:
        header, *lines = file
    found = {}
    for device, rows in itertools.groupby(sorted(lines, key=_device), _device):
        found[device] = folder / f"{device}.csv"
        found[device].write_text(header + "".join(rows), encoding="utf-8")
    return found


def _device(line: str) -> str:
    return line.partition(",")[0]


@pytest.fixture(scope="session", autouse=True)
def read_each_time() -> Iterator[Readers]:
    """Share the shipped machines and models; gives the readers that this replaces."""
    with profiles_are_read_once() as readers:
        yield readers


@pytest.fixture(scope="session", autouse=True)
def children_are_ready() -> Iterator[None]:
    """Spare each child process the seconds that its framework takes to load; see `ready_children`."""
    if not hasattr(socket, "recv_fds"):
        yield
        return
    with ready_children():
        yield


@pytest.fixture
def started_anew(children_are_ready: None) -> Iterator[None]:  # noqa: ARG001 - it is undone
    """Start the children of a test as for a user: for what is said of the process itself."""
    with children_started_anew():
        yield
