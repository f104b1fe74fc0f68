"""Energy of steps timed by another process: readings during the steps, or the reason why there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fomkit.bench.power import CounterMeter, EnergyLog, Meter, SampledMeter, energy_of_step, watch_energy
from fomkit.core.errors import FomkitError
from fomkit.harness.energy_gpu import CannotReadError


def logged(meter: Meter, moments: list[float]) -> EnergyLog:
    """Read an instrument at given moments."""
    clock = iter(moments)
    log = EnergyLog(meter, lambda: next(clock))
    for _ in moments:
        log.read()
    return log


def counter(*joule: float, most: float = 1e5) -> CounterMeter:
    values = iter(joule)
    return CounterMeter(lambda: [next(values)], [most], "a counter", 1e-3, limit_w=65.0)


def test_a_step_takes_the_mean_power_of_its_time() -> None:
    # 10 W until 1 s, 30 W while steps run, 10 W again.
    log = logged(counter(0, 10, 25, 40, 50), [0.0, 1.0, 1.5, 2.0, 3.0])
    found = energy_of_step(log, [(0.9, 2.1)], steps=4)
    assert found.value_j == pytest.approx(30.0 * 1.2 / 4)
    # Counters lag a millisecond at both ends of the second that was read.
    assert found.high_j / found.value_j - 1 == pytest.approx(2e-3, rel=1e-3)
    assert (found.scope, found.source) == ("chip", "a counter")


def test_both_halves_count_and_what_ran_between_does_not() -> None:
    log = logged(counter(0, 20, 920, 940), [0.0, 1.0, 2.0, 3.0])
    assert energy_of_step(log, [(0.0, 1.0), (2.0, 3.0)], steps=4).value_j == pytest.approx(10.0)


def test_a_counter_may_come_round() -> None:
    log = logged(counter(990, 5, 20, most=1000.0), [0.0, 0.25, 0.5])
    assert energy_of_step(log, [(0.0, 0.5)], steps=1).value_j == pytest.approx(30.0)


def test_power_is_summed_where_there_is_no_counter() -> None:
    powers = iter((50.0, 70.0, 70.0))
    log = logged(SampledMeter(lambda: next(powers), "a power", error_w=5.0), [0.0, 1.0, 2.0])
    found = energy_of_step(log, [(0.0, 2.0)], steps=10)
    assert found.value_j == pytest.approx((60 + 70) / 10)
    assert found.high_j == pytest.approx((130 + 10 + 10) / 10)


@pytest.mark.parametrize(
    ("joule", "moments", "said"),
    [((0, 10), [0.0, 5.0], "was read only once while steps ran"), ((7, 7, 7), [0.0, 0.1, 0.2], "did not move"),
     ((0, 2e5, 2e5 + 1), [0.0, 0.1, 0.2], "The reading is not used")],
)  # fmt: skip
def test_what_tells_nothing_is_no_energy(joule: tuple[float, ...], moments: list[float], said: str) -> None:
    with pytest.raises((CannotReadError, FomkitError), match=said):
        energy_of_step(logged(counter(*joule), moments), [(0.0, 1.0)], steps=1)


def test_without_permission_steps_are_timed_and_the_reason_is_told() -> None:
    def refused(device: str) -> Meter:
        raise CannotReadError(f"{device}: no permission to read")

    with watch_energy(refused) as energy:
        assert energy("cpu", [(0.0, 1.0)], 5) == "cpu: no permission to read"
        assert energy("gpu", [(0.0, 1.0)], 5) == "cuda: no permission to read"


def test_an_instrument_that_fails_in_between_is_told_and_ends() -> None:
    def gone() -> list[float]:
        raise CannotReadError("the counter is gone")

    with watch_energy(lambda _: CounterMeter(gone, [1.0], "a counter", 1e-3)) as energy:
        while (said := energy("cpu", [(0.0, 1.0)], 5)) != "the counter is gone":
            assert "was read only 0 times" in str(said)


NARROW = """
import time
import torch
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 4))
batch_size = 4
inputs = lambda batch: torch.randn(batch, 16)
def loss_fn(out, inputs):
    if not out.is_meta:
        time.sleep(0.02)
        if out.dtype != torch.bfloat16:
            raise ValueError(f"ran in {out.dtype}")
    return out.float().square().mean()
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "model.py"
    path.write_text(NARROW)
    return path


def test_a_step_under_autocast_says_so_and_has_its_energy(model: Path, tmp_path: Path) -> None:
    import time

    from fomkit.bench.measured_run import measure_profile, measurement_of, run_content
    from fomkit.frontends.profile import profile_file
    from fomkit.output.explained import measured_lines
    from fomkit.profiles.models import load_model, save_model

    found = profile_file(model)
    at_40_w = CounterMeter(lambda: [40.0 * time.monotonic()], [1e12], "a counter", 1e-3)
    with watch_energy(lambda _: at_40_w) as energy:
        energy_of = {"energy": lambda *arguments: energy("cpu", *arguments[1:])}
        run = measure_profile(found, model, ops=False, threads=1, precision="bf16", **energy_of)
    measured = run.measured
    assert measured is not None
    assert measured.precision == "bf16"
    assert measurement_of(run, "a-machine-of-mine", "m.yaml").precision == "bf16"
    wall = measured.step.wall
    assert wall is not None
    assert measured.energy is not None
    assert 40.0 * wall.p25_s * 0.9 < measured.energy.value_j < 40.0 * wall.p75_s * 3
    assert "autocast to bf16" in "\n".join(measured_lines(run_content(measured)))
    assert "a step, scope chip, a counter" in "\n".join(measured_lines(run_content(measured)))
    with pytest.raises(FomkitError, match=r"ran in torch\.float32"):
        measure_profile(found, model, ops=False, threads=1)
    save_model(run, tmp_path / "m.yaml")
    assert load_model(tmp_path / "m.yaml").measured == measured


def test_autocast_is_of_pytorch(tmp_path: Path) -> None:
    from fomkit.bench.model_steps import check_timed

    path = tmp_path / "model.py"
    path.write_text("import keras\n")
    with pytest.raises(FomkitError, match="mixed_bfloat16"):
        check_timed(path, "bf16")
