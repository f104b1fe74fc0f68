"""Fixtures and the order of tests, for the tests of all rooms."""

from __future__ import annotations

import ctypes
import gc
import gzip
import itertools
import os
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from read_once import Readers, profiles_are_read_once
from ready_children import children_started_anew, ready_children

# Doctests are collected everywhere except here: a conftest is loaded by pytest itself and would be imported twice,
# training programs would train, a user's model would be built, and the folders of the adapter and of stand-ins for
# libraries would stay on the path, as if they were installed.
collect_ignore_glob = [
    "*/conftest.py", "data/scripts/*", "data/toy_adapter/*", "data/trainers/*", "golden/inputs/*",
]  # fmt: skip
# Test machines are shared and slow at times, so the time of an example says nothing about the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
ROOT = Path(__file__).resolve().parent.parent


IN_KERAS = re.compile(
    r"/test_(keras_\w+|\w+_tensorflow|doors_agree|frontends_page|libraries|measured_step|random_networks)\.py::"
)
"""Tests that import TensorFlow, in their own process or in a waiting child process."""


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """Search no doctests in the tests themselves: looking takes each process two seconds."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign all tests that import TensorFlow to one process, because importing it takes each process seconds."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "TensorFlow" if IN_KERAS.search(nodeid) else str(super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests: TensorFlow's first, which all run in one process, then files with slow tests, then others.

    A slow test at the end would make the other process wait. Otherwise the order of files is kept: doctests, which
    are short, are last, and tests of a folder can use child processes that already loaded a framework.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (IN_KERAS.search(item.nodeid) is None, item.path not in slow))


def pytest_collection_finish() -> None:
    """Exclude the existing objects from garbage collection: frameworks and 5,000 tests are a million objects."""
    assert "tensorflow" not in sys.modules, "collecting imported TensorFlow, which takes each process four seconds"
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the checkout, with machine_profiles/ and model_profiles/."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real data next to the checkout; skip tests that need it if it is missing."""
    folder = Path(os.environ.get("FOMKIT_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"the real data is not here: {folder.name}/data beside the checkout, or FOMKIT_SHARED")
    return folder


@pytest.fixture(scope="session")
def unsized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the lecture's P1B3 as printed: sums of ops without their sizes."""
    from fomkit.profiles.models import load_model, save_model

    model = load_model("p1b3-lecture")
    ops = model.ops.assign(**dict.fromkeys(("numel", "read_byte", "write_byte"), float("nan")))
    path = tmp_path_factory.mktemp("unsized") / "p1b3-lecture.yaml"
    return save_model(replace(model, ops=ops), path)[0]


@pytest.fixture(scope="session")
def kernels_of(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write NeuSight's table of kernels as one file per device, so that no test reads all 400,000 lines."""
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
    """Share the shipped machines and models among tests; yield the replaced readers."""
    with profiles_are_read_once() as readers:
        yield readers


@pytest.fixture(scope="session", autouse=True)
def children_are_ready() -> Iterator[None]:
    """Start child processes as forks that have their framework loaded, to save seconds; see `ready_children`."""
    if not hasattr(socket, "recv_fds"):
        yield
        return
    with ready_children():
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_leave_the_process_alone() -> Iterator[None]:
    """Print no progress of commands that are slow because the machine is busy, and keep the limits of collection.

    A command lowers them for its process; after the first one tests would search for garbage ten times as often.
    """
    from fomkit.cli import choices, main  # not while tests are collected

    choices.SPARSE_S = 1e6
    with mock.patch.object(main, "gc"):
        yield


@pytest.fixture(scope="module", autouse=True)
def memory_is_kept() -> Iterator[None]:
    """Undo what TensorFlow's datasets set: the C library then returns each freed 128 kB to the system.

    In the tests that come later, arrays of some MB would take two to three times as long (docs/adr/0062).
    """
    yield
    if "tensorflow" in sys.modules and sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):  # not every C library has it
            for trim_or_mmap_threshold in (-1, -3):  # as in its malloc.h
                library.mallopt(trim_or_mmap_threshold, 1 << 28)


@pytest.fixture
def started_anew(children_are_ready: None) -> Iterator[None]:  # noqa: ARG001 - it is undone
    """Start a test's child processes as for a user, for tests of the process itself."""
    with children_started_anew():
        yield
