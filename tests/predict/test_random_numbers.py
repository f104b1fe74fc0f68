"""`further_work`: the time of a dropout besides its traffic, and of a second kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from costs.op_tables import table
from predict.machines import device, fact, machine, timings

from fomkit.core.machine import Machine
from fomkit.ops.pricing import add_costs
from fomkit.prediction.cascade import add_times
from fomkit.prediction.composed import DRAW_S, TWO_KERNELS
from fomkit.profiles.machines import load_machine

NUMEL, UNITS = 2.0**25, 100.0
DROPOUT = "aten::native_dropout"
FACTS = replace(device(bandwidth=fact(1e12), fp32_vector=1e13), units=fact(UNITS))


def row(op: str) -> dict[str, object]:
    """Return an op that reads a tensor and writes it and a byte for each of its elements."""
    return {
        "kind": "pointwise", "op": op, "dtype": "fp32", "engine": "vector", "pass_name": "forward", "count": 1.0,
        "numel": NUMEL, "row": 1024.0, "inputs": 1.0, "read_byte": 4 * NUMEL, "write_byte": 5 * NUMEL,
    }  # fmt: skip


def times(of: Machine, *ops: str, interval: float = 0.8) -> list[dict[str, float]]:
    costed = add_costs(table(*(row(op) for op in ops)))
    return add_times(costed, of, interval=interval).to_dict("records")


@pytest.mark.parametrize("of", [machine(FACTS), load_machine("v100-pcie-32gb")], ids=["facts", "table"])
def test_a_number_drawn_adds_its_share_of_a_processor_to_what_moves_as_much(of: Machine) -> None:
    units = of.device.units
    assert units is not None
    drawn, same = times(of, DROPOUT, "aten::masked_scale")
    added, _, most = (NUMEL * end / units.value for end in DRAW_S[:, 0])
    assert drawn["time_s"] - same["time_s"] == pytest.approx(added)
    assert drawn["high_s"] > same["time_s"] + most
    assert drawn["time_s"] > drawn["low_s"] > same["low_s"]
    assert drawn["time_source"] == ("roofline" if same["time_source"] == "roofline" else "transferred")
    assert f"{drawn['time_s'] / same['time_s']:.2f} × an op of this traffic" in str(drawn["evidence"])


def test_a_wider_interval_reaches_farther() -> None:
    (eight,), (nine,) = (times(machine(FACTS), DROPOUT, interval=level) for level in (0.8, 0.95))
    assert nine["time_s"] == pytest.approx(eight["time_s"])
    assert nine["low_s"] < eight["low_s"] < eight["high_s"] < nine["high_s"]


def test_a_device_of_unknown_processors_and_one_that_timed_it_take_what_is_known() -> None:
    drawn, same = times(machine(replace(FACTS, units=None)), DROPOUT, "aten::masked_scale")
    assert drawn["time_s"] == same["time_s"]
    (found,) = times(machine(FACTS, timings({**row(DROPOUT), "time_s": 7e-4})), DROPOUT)
    assert (found["time_s"], found["time_source"]) == (7e-4, "measured")


@pytest.mark.parametrize("units", [UNITS, None])
def test_a_softmax_gradient_on_a_gpu_is_two_kernels_of_its_traffic(units: float | None) -> None:
    """The first multiplies gradient and result; a copy that the op makes before is one kernel everywhere."""
    of = machine(FACTS if units else replace(FACTS, units=None))
    moved = {"pass_name": "backward", "inputs": 2.0, "read_byte": 8 * NUMEL, "write_byte": 4 * NUMEL}
    two, one = ({**row(op), **moved, "kind": "softmax"} for op in (TWO_KERNELS, "aten::_safe_softmax"))
    rows = [two, one, {**row("aten::mul"), **moved}, {**two, "kind": "copy"}, {**one, "kind": "copy"}]
    found = add_times(add_costs(table(*rows)), of, interval=0.8)["time_s"].tolist()
    assert found[0] == pytest.approx(found[1] + (found[2] if units else 0.0))
    assert found[3] == found[4]
