"""Workbooks built for one test each, and the fourteen real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deepbench_cells import write_workbook

Maker = Callable[..., Path]


@pytest.fixture
def make_workbook(tmp_path: Path) -> Maker:
    """Give a function that writes sheets (name to rows) as a workbook."""
    return lambda sheets, name="made.xlsx": write_workbook(sheets, tmp_path / name)


@pytest.fixture(scope="session")
def deepbench(shared: Path) -> Path:
    """The folder of the real workbooks, in train/ and inference/."""
    return shared / "data" / "deepbench"


@pytest.fixture(scope="session")
def train(deepbench: Path) -> Path:
    """The folder of the nine training workbooks."""
    return deepbench / "train"
