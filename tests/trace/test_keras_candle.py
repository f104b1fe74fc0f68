"""CANDLE's networks in Keras compared with the shipped tables of their PyTorch twins, kind by kind."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from traced_work import convolutions, flop, numbers

from fomkit.core.model import ModelProfile
from fomkit.files.op_csv import format_table
from fomkit.frontends.profile import profile_workload
from fomkit.ops.pricing import add_costs
from fomkit.profiles.models import load_model

MODELS = Path(__file__).resolve().parents[2] / "model_profiles"
NETWORKS = sorted(path.stem for path in (MODELS / "candle").glob("*.yaml"))
SHIPPED = sorted(path.stem for path in (MODELS / "candle-keras").glob("*.yaml"))
TABLE = Path(__file__).resolve().parents[1] / "data" / "candle_in_keras.csv"
EQUAL = ("conv", "embedding", "optimizer", "pool")
"""Kinds of equal work in both; products, too, but where a recurrent layer is written out."""
STATISTICS = {"p2b1": 2_000}
"""Running statistics of the normalisation, which Keras counts among the parameters."""
NETWORKS_IN_TURN = {"p3b1": 3}
"""Networks that the twin's parameters are of; both trace the first."""
WRITTEN_OUT = ("p3b2",)
"""Twins whose recurrent layer is written out, for the hard sigmoids; in Keras it is one row."""
WHY = {
    "addition of biases": "TensorFlow adds a bias by an op of its own, PyTorch inside the product",
    "dropout": "Keras makes dropout of several ops: random numbers, a comparison, a selection; biases, too",
    "written out": "Keras's recurrent layer is one row, PyTorch's is written out step by step",
    "normalisation": "Keras takes this normalisation apart into means, squares and products",
    "loss": "another spelling of the loss: means, clipping, labels, gradients of logarithms and penalties",
}
"""Reasons in the table; docs/frontends.md says them, too."""


def profile_of(name: str) -> ModelProfile:
    """Profile the Keras source of a network, in this process and without data."""
    import keras

    from fomkit.frontends.keras.profile import check_workload, weights_without_data
    from fomkit.frontends.model_file import run_file, take_workload

    # Layers are numbered from the start, as in a process of their own; garbage is not searched for.
    keras.utils.clear_session(free_memory=False)
    source = MODELS / "src" / "candle_keras" / f"{name}_keras.py"
    with weights_without_data():
        workload = take_workload(run_file(source), str(source), check_workload)
        return profile_workload(workload, name=f"{name}-keras")


@pytest.fixture(scope="module")
def profiles(keras: Any) -> dict[str, ModelProfile]:
    assert keras.backend.backend() == "tensorflow"
    return {name: profile_of(name) for name in NETWORKS}


def work(profile: ModelProfile) -> dict[tuple[str, str], float]:
    """Add up flop by pass and kind."""
    ops = add_costs(numbers(profile))
    totals = (ops["flop"] * ops["count"]).groupby([ops["pass_name"].str.partition("_")[0], ops["kind"]]).sum()
    return {key: float(value) for key, value in totals.items() if value}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_table_is_that_of_the_shipped_twin(profiles: dict[str, ModelProfile], name: str) -> None:
    twin, profile = load_model(f"candle/{name}"), profiles[name]
    assert not profile.unsupported
    assert profile.optimizer["rule"] == twin.optimizer["rule"]
    assert (profile.data, profile.run.epochs, profile.batch) == (twin.data, twin.run.epochs, twin.batch)
    assert flop(numbers(profile), "forward") == flop(numbers(twin), "forward")
    parameters = profile.parameters_trainable * NETWORKS_IN_TURN.get(name, 1)
    assert parameters == pytest.approx(twin.parameters_total, rel=1e-3 if name in NETWORKS_IN_TURN else 0.0)
    assert profile.parameters_total == profile.parameters_trainable + STATISTICS.get(name, 0)
    assert profile.layers is not None
    assert profile.layers["parameters"].sum() == profile.parameters_trainable
    if name in WRITTEN_OUT:
        # The gradient of the first state, which is zeros: one of twenty steps, which the twin leaves out.
        more = flop(numbers(profile), "backward") - flop(numbers(twin), "backward")
        assert more == 2 * twin.batch * 64 * 4 * 64
    else:
        assert convolutions(profile) == convolutions(twin)
        assert flop(numbers(profile), "backward") == flop(numbers(twin), "backward")


def rows(profiles: dict[str, ModelProfile]) -> list[dict[str, str]]:
    """List what differs between the twins: flop by pass and kind."""
    found = []
    for name, profile in profiles.items():
        ours, theirs = work(profile), work(load_model(f"candle/{name}"))
        for key in sorted({*ours, *theirs}):
            pair = theirs.get(key, 0.0), ours.get(key, 0.0)
            if pair[0] != pair[1]:
                found.append([name, *key, *(f"{value:.0f}" for value in pair)])
    return [dict(zip(("network", "pass", "kind", "torch", "keras"), row, strict=True)) for row in found]


def test_what_differs_is_listed_with_its_reason(profiles: dict[str, ModelProfile]) -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        listed = list(csv.DictReader(file))
    reasons = [row.pop("why") for row in listed]
    assert rows(profiles) == listed
    assert set(reasons) == set(WHY)
    for row in listed:
        assert row["kind"] not in EQUAL
        assert row["kind"] != "gemm" or row["network"] in WRITTEN_OUT


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_what_its_source_gives(profiles: dict[str, ModelProfile], name: str) -> None:
    fresh, shipped = profiles[name.removesuffix("-keras")], load_model(name)
    assert fresh.order is not None
    assert shipped.order is not None
    # The line that made a layer is noted where files are profiled, in a child.
    ours, theirs = (format_table(one.ops.assign(code_line=""), "OPS") for one in (fresh, shipped))
    assert ours == theirs
    assert format_table(fresh.order, "ORDER") == format_table(shipped.order, "ORDER")
    said = ("name", "data", "run", "sizes", "optimizer", "parameters_total", "unsupported", "missing")
    assert [getattr(fresh, one) for one in said] == [getattr(shipped, one) for one in said]
