"""Fixtures: reports that several tests open, written once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_names import hostile_estimate

import fomkit
from fomkit.plan.estimate import Estimate


@pytest.fixture(scope="session")
def resnet50() -> Estimate:
    """Estimate ResNet-50 on a V100."""
    return fomkit.estimate("resnet50", "v100")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory, resnet50: Estimate) -> Path:
    """Write the report of one estimate."""
    path = tmp_path_factory.mktemp("report") / "resnet50.html"
    fomkit.write_report(resnet50, path)
    return path


@pytest.fixture(scope="session")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of an estimate whose names are all code that an unescaped page would run."""
    path = tmp_path_factory.mktemp("report") / "hostile.html"
    fomkit.write_report(hostile_estimate(), path)
    return path
