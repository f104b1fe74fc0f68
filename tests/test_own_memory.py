"""Special properties of a step on a processor: its default update, and fresh memory pages."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

import fomkit
from fomkit.core.machine import Device, Fact, Machine
from fomkit.core.model import ModelProfile
from fomkit.plan.memory_of import NAME, NOT_COUNTED, UPDATED_ALONE, own_byte, with_device_update, with_fresh_pages
from fomkit.plan.options import Options
from fomkit.plan.scenarios import prepare_study, scenarios
from fomkit.profiles.evidence import with_fits

RATE, LARGEST = 2e9, 2.0**25
FRESH = Fact(RATE, RATE, RATE, "measured", "here")


def on_processor(machine: Machine) -> Machine:
    device = replace(machine.device, fresh_byte_per_s=FRESH, fresh_above_byte=LARGEST, architecture="")
    return replace(machine, device=device, title="AMD EPYC, 1 thread")


@pytest.fixture(scope="module")
def model() -> ModelProfile:
    return fomkit.model("alexnet")


def test_own_memory_is_what_a_step_makes_and_frees(model: ModelProfile) -> None:
    order = pd.DataFrame(
        {
            "id": [0.0, 1.0, 2.0, 2.0, 3.0],
            "row": [float("nan"), 0.0, 1.0, 1.0, 2.0],
            "role": ["parameter", "activation", "temporary", "gradient", "temporary"],
            "output_byte": [1024.0, 2048.0, 512.0, 4096.0, 2.0**26],
            "freed_by": [float("nan"), 2.0, 3.0, float("nan"), 3.0],
            "module": "",
            "pass_name": "",
        }
    )
    small = replace(model, order=order)
    # While op 2 runs: 2048 + 512 + 4096. The parameter stays, and the piece of 64 MiB has fresh pages each time.
    assert own_byte(small, small.sizes, LARGEST) == 6656.0
    assert own_byte(small, small.sizes, 2.0**27) == 2.0**26 + 512.0 + 4096.0
    assert own_byte(replace(model, order=None), model.sizes, LARGEST) is None


def test_half_of_it_is_fresh_and_all_but_a_tenth_are_in_the_interval(model: ModelProfile) -> None:
    machine = on_processor(fomkit.machine("x86-lecture"))
    byte = own_byte(model, model.sizes, LARGEST)
    assert byte is not None
    there = with_fresh_pages(machine, model, model.sizes)
    (mine,) = (one for one in there.overheads if one.name == NAME)
    assert mine.time_s is not None
    assert [mine.time_s.low, mine.time_s.value, mine.time_s.high] == pytest.approx(
        [share * byte / RATE for share in (0.1, 0.5, 0.9)]
    )
    assert (mine.per, mine.time_s.basis) == ("step", "modelled")
    assert with_fresh_pages(there, model, model.sizes) == there  # asked twice, counted once


def test_an_estimate_counts_them_and_says_so_where_it_cannot(model: ModelProfile) -> None:
    bare = fomkit.machine("knl-7250")
    machine = on_processor(bare)
    without, counted = fomkit.estimate(model, bare), fomkit.estimate(model, machine)
    byte = own_byte(model, model.sizes, LARGEST)
    assert byte is not None
    assert counted.step_time.extra_s.value == pytest.approx(byte / RATE / 2)
    assert counted.step.value > without.step.value + counted.step_time.extra_s.value  # large results besides
    assert counted.step.high - counted.step.low > without.step.high - without.step.low
    unordered = fomkit.estimate(replace(model, order=None), machine)
    assert NOT_COUNTED in unordered.deviations
    for known in (counted, without):  # on a device that says nothing of fresh pages none are left out
        assert NOT_COUNTED not in known.deviations


def test_a_sweep_counts_them_at_each_size() -> None:
    model, machine = fomkit.model("p1b3"), on_processor(fomkit.machine("x86-lecture"))
    batches = [50.0, 200.0, 50.0]
    study = prepare_study(model, with_fits(machine), Options())
    found = scenarios(study, pd.DataFrame({"batch": batches}))["step_s"]
    each = [fomkit.estimate(model, machine, batch=int(batch)).step.value for batch in batches]
    assert found.tolist() == pytest.approx(each, rel=1e-9)


def test_a_machine_without_the_figure_is_left_alone(model: ModelProfile) -> None:
    v100 = fomkit.machine("v100")
    assert with_fresh_pages(v100, model, model.sizes) is v100


def test_an_update_that_nobody_asked_for_runs_as_its_device_has_it(model: ModelProfile) -> None:
    requested = replace(model, optimizer={"rule": "sgd", "impl": "foreach"})
    default = replace(model, optimizer={**requested.optimizer, "impl_from": "default"})
    processor, board = on_processor(fomkit.machine("knl-7250")), fomkit.machine("v100")
    assert with_device_update(requested, processor) is requested
    assert with_device_update(default, board) is default
    there = with_device_update(default, processor)
    impl = there.ops.loc[there.ops["kind"] == "optimizer", "impl"]
    assert set(impl) == {"per_tensor"}
    assert UPDATED_ALONE in fomkit.estimate(default, processor).deviations
    assert UPDATED_ALONE not in fomkit.estimate(default, board).deviations


def test_a_trace_notes_whether_an_implementation_was_asked_for() -> None:
    torch = pytest.importorskip("torch")
    from fomkit.frontends.torch.order import trace_update

    parameter = torch.nn.Parameter(torch.zeros(4))
    parameter.grad = torch.zeros(4)
    found = [
        trace_update(torch.optim.SGD([parameter], lr=0.1, **requested), {}).optimizer.get("impl_from")
        for requested in ({}, {"foreach": True}, {"foreach": False})
    ]
    assert found == ["default", None, None]


def test_devices_without_words_are_no_processors(model: ModelProfile) -> None:
    nameless = replace(fomkit.machine("v100"), title="", device=Device())
    default = replace(model, optimizer={"rule": "sgd", "impl": "foreach", "impl_from": "default"})
    assert with_device_update(default, nameless) is default
