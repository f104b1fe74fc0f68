"""Fixtures: real machines, and scripts of benchmarks/."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
from predict.machines import loaded

from fomkit.ops.pricing import add_costs
from fomkit.prediction.calibration import fit_timings

# The first two use the shipped fits: test_machine_profiles.py refits their tables and compares.


@pytest.fixture(scope="session")
def v100(root):
    return loaded(root / "machine_profiles" / "v100.yaml")


@pytest.fixture(scope="session")
def p100(root):
    return loaded(root / "machine_profiles" / "p100.yaml")


@pytest.fixture(scope="session")
def x86(root):
    machine = loaded(root / "machine_profiles" / "x86-lecture.yaml")
    return replace(machine, fits=fit_timings(add_costs(machine.timings)))


def script(root, name):
    spec = importlib.util.spec_from_file_location(name, root / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def left_out(root):
    return script(root, "left_out_errors")


@pytest.fixture(scope="session")
def typical_script(root):
    return script(root, "usual_utilisation")
