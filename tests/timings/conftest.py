"""Fixtures: workbooks built for a test, and the folders of the fourteen real workbooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deepbench_cells import write_workbook

Maker = Callable[..., Path]


@pytest.fixture
def make_workbook(tmp_path: Path) -> Maker:
    """Return a function that writes sheets (name to rows) as a workbook."""
    return lambda sheets, name="made.xlsx": write_workbook(sheets, tmp_path / name)


@pytest.fixture(scope="session")
def deepbench(shared: Path) -> Path:
    """Return the folder of the real workbooks, in train/ and inference/."""
    return shared / "data" / "deepbench"


@pytest.fixture(scope="session")
def train(deepbench: Path) -> Path:
    """Return the folder of the nine training workbooks."""
    return deepbench / "train"
