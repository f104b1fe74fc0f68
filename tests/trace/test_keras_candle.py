"""CANDLE's networks in Keras beside the shipped tables of their PyTorch twins."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from candle_in_keras import NETWORKS
from test_keras_twins import products
from traced_work import flop, numbers, row_flop

from fomkit.profiles import load_model
from fomkit.trace import profile_workload
from fomkit.workload import ModelProfile, Workload

CANDLE = Path(__file__).resolve().parents[2] / "model_profiles" / "candle"
STATISTICS = {"p2b1": 2_000}
"""Running statistics of the normalisation, which Keras counts among the parameters."""
NETWORKS_IN_TURN = {"p3b1": 3}
"""Networks that the twin's parameters are of; both trace the first."""
WRITTEN_OUT = ("p3b2",)
"""Twins whose recurrent layer is written out, for the hard sigmoids; in Keras it is one row."""


def convolutions(profile: ModelProfile) -> Counter[tuple[Any, ...]]:
    """Count products, and convolutions by channels and work: the edge's zeros may be written in several ways."""
    found: Counter[tuple[Any, ...]] = Counter()
    for (kind, *sizes), count in products(profile).items():
        if kind != "conv":
            found[kind, *sizes] += count
    for _, row in numbers(profile, batch=12).query("kind == 'conv'").iterrows():
        sides = row[["batch", "in_channels", "out_channels", "groups", "transposed"]]
        found["conv", row["pass_name"], *sides, row_flop(row)] += row["count"]
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_the_table_is_that_of_the_shipped_twin(keras: Any, name: str) -> None:
    from fomkit.trace.keras_weights import weights_without_data

    twin = load_model(CANDLE / f"{name}.yaml")
    with weights_without_data():
        profile = profile_workload(Workload(NETWORKS[name](keras), None, batch_size=twin.batch))
    assert not profile.unsupported
    assert profile.optimizer["rule"] == twin.optimizer["rule"]
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
