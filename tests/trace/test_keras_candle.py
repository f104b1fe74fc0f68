"""CANDLE's networks in Keras beside the shipped tables of their PyTorch twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from candle_in_keras import NETWORKS
from traced_work import convolutions, flop, numbers

from fomkit.core.model import Workload
from fomkit.frontends.profile import profile_workload
from fomkit.profiles.models import load_model

CANDLE = Path(__file__).resolve().parents[2] / "model_profiles" / "candle"
STATISTICS = {"p2b1": 2_000}
"""Running statistics of the normalisation, which Keras counts among the parameters."""
NETWORKS_IN_TURN = {"p3b1": 3}
"""Networks that the twin's parameters are of; both trace the first."""
WRITTEN_OUT = ("p3b2",)
"""Twins whose recurrent layer is written out, for the hard sigmoids; in Keras it is one row."""


@pytest.mark.parametrize("name", NETWORKS)
def test_the_table_is_that_of_the_shipped_twin(keras: Any, name: str) -> None:
    from fomkit.frontends.keras.profile import weights_without_data

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
