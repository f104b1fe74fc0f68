"""Energy while ops are timed: fake files of counters, recorded readings, a GPU library made up here.

No counter of a real machine is read: none is readable where these tests run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from simple_machine import Simple, make_session

from fomkit.bench.libraries import Wanted
from fomkit.bench.power import CounterMeter, SampledMeter, energy_of, gpu_meter, rapl_meter, start_watching
from fomkit.bench.record import machine_of
from fomkit.bench.session import REFERENCE
from fomkit.core.machine import TIMED_OPS
from fomkit.harness.energy_gpu import CannotReadError, by_nvml, by_smi, find_zones
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine

MOST_UJ = 262_143_328_850


def zone(root: Path, place: str, name: str, energy_uj: int | str = 0, most: int | str = MOST_UJ) -> Path:
    folder = root / "sys/class/powercap" / f"intel-rapl:{place}"
    folder.mkdir(parents=True)
    for file, content in (("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", most)):
        (folder / file).write_text(f"{content}\n", encoding="ascii")
    return folder


# --- RAPL --------------------------------------------------------------------------------------------------------


def test_packages_and_memory_are_counted_once(tmp_path: Path) -> None:
    for place, name in (("0", "package-0"), ("0:0", "core"), ("0:1", "dram"), ("1", "psys")):
        zone(tmp_path, place, name)
    assert [one.name for one in find_zones(tmp_path)] == ["package-0", "dram"]


def test_a_counter_read_twice_and_once_round(tmp_path: Path) -> None:
    folder, now = zone(tmp_path, "0", "package-0", MOST_UJ - 5_000_000), 0.0
    (folder / "constraint_0_max_power_uw").write_text("65000000\n")
    meter = rapl_meter(tmp_path)
    meter.clock = lambda: now
    meter.begin()
    (folder / "energy_uj").write_text("15000000\n")
    now = 0.5
    reading = meter.end()
    assert reading.wall_s == 0.5
    assert reading.energy_j.value == pytest.approx(20.0)
    # A counter moves on every millisecond, at both ends: 2 of 500 ms.
    assert reading.energy_j.high - reading.energy_j.value == pytest.approx(20.0 * 2 / 500)
    assert (meter.limit_w, meter.scope, meter.source) == (65.0, "chip", "RAPL counters package-0")


def test_two_sockets_are_a_node(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0")
    zone(tmp_path, "1", "package-1")
    assert rapl_meter(tmp_path).scope == "node"


@pytest.mark.parametrize(
    ("energy_uj", "most", "said"),
    [("garbage", MOST_UJ, "a number of microjoules was expected"), ("-5", MOST_UJ, "was expected"),
     ("", MOST_UJ, "was expected"), (0, "nan", "was expected")],
)  # fmt: skip
def test_files_that_say_nothing(tmp_path: Path, energy_uj: int | str, most: int | str, said: str) -> None:
    zone(tmp_path, "0", "package-0", energy_uj, most)
    with pytest.raises(CannotReadError, match=said):
        rapl_meter(tmp_path)


def test_no_permission_says_who_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = zone(tmp_path, "0", "package-0"), Path.read_text

    def refused(path: Path, *arguments: Any, **options: Any) -> str:
        if path == folder / "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(CannotReadError, match=r"energy_uj: no permission to read \(.*root"):
        rapl_meter(tmp_path)


def test_no_counter_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CannotReadError, match=r"powercap: no counter of a processor package"):
        rapl_meter(tmp_path)


# --- NVIDIA ------------------------------------------------------------------------------------------------------


class Nvml:
    """A library with NVML's functions: a board at 70 W, and a counter that may not be there."""

    class NVMLError(Exception):
        pass

    def __init__(self, *missing: str) -> None:
        self.missing, self.energy_mj = missing, 1_000_000

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> Any:
            if name in self.missing:
                raise self.NVMLError("Not Supported")
            return {"nvmlDeviceGetPowerUsage": 70_000, "nvmlDeviceGetTotalEnergyConsumption": self.energy_mj,
                    "nvmlDeviceGetPowerManagementDefaultLimit": 300_000}.get(name)  # fmt: skip

        return call


def test_the_energy_counter_goes_before_power_and_states_five_watts() -> None:
    library, now = Nvml(), 0.0
    meter = gpu_meter(by_nvml(library, "0"))
    assert isinstance(meter, CounterMeter)
    meter.clock = lambda: now
    meter.begin()
    library.energy_mj += 700_000
    now = 10.0
    reading = meter.end()
    assert reading.energy_j.value == pytest.approx(700.0)
    # 5 W over 10 s, and a tenth of a second at both ends.
    assert reading.energy_j.high - 700.0 == pytest.approx(5 * 10 + 700 * 0.2 / 10)
    assert meter.limit_w == 300.0


def test_power_is_sampled_where_there_is_no_counter() -> None:
    meter = gpu_meter(by_nvml(Nvml("nvmlDeviceGetTotalEnergyConsumption"), "GPU-1234"))
    assert isinstance(meter, SampledMeter)
    moments = iter((0.0, 1.0, 2.0, 4.0))
    powers = iter((70.0, 70.0, 90.0, 90.0))
    meter.clock, meter.power_w, meter.period_s = lambda: next(moments), lambda: next(powers), 1e9
    meter.begin()
    meter.log.read()
    meter.log.read()
    reading = meter.end()
    assert reading.energy_j.value == pytest.approx(70 + 80 + 180)
    assert reading.energy_j.high == pytest.approx(330 + 10 + 5 * 4)


def test_neither_power_nor_energy_is_told() -> None:
    with pytest.raises(CannotReadError, match="NVML: Not Supported"):
        by_nvml(Nvml("nvmlDeviceGetPowerUsage"), "0")


@pytest.mark.parametrize(
    ("answer", "said"), [("[N/A]\n", "power.draw is '\\[N/A\\]'"), ("", "no number"), ("\x00\n", "no number")]
)
def test_words_of_nvidia_smi_that_are_no_power(answer: str, said: str) -> None:
    with pytest.raises(CannotReadError, match=said):
        by_smi("0", lambda _: answer)


def test_nvidia_smi_is_asked_for_one_gpu() -> None:
    commands: list[Sequence[str]] = []

    def answer(command: Sequence[str]) -> str:
        commands.append(command)
        return "71.25\n"

    gpu = by_smi("1", answer)
    assert gpu.power_w() == 71.25
    assert gpu.limit_w == 71.25
    assert commands[0][:3] == ["nvidia-smi", "-i", "1"]
    with pytest.raises(CannotReadError, match="nvidia-smi"):
        by_smi("0", lambda _: (_ for _ in ()).throw(CannotReadError("nvidia-smi: No such file")))


# --- in a run ----------------------------------------------------------------------------------------------------


def watched(tmp_path: Path, power_w: float = 30.0, idle_w: float = 10.0, ops: int = 20) -> Any:
    """Time ops on a simulated machine whose energy counter follows its clock."""
    timer = Simple()
    session = make_session(tmp_path, timer)
    meter = CounterMeter(
        lambda: [10.0 + idle_w * waited[0] + power_w * timer.now], [1e9], "a counter", 1e-3, limit_w=65.0,
        clock=lambda: timer.now + waited[0],
    )  # fmt: skip
    waited = [0.0]

    def sleep(seconds: float) -> None:
        waited[0] += seconds

    session.around = start_watching(session.journal, "cpu", sleep, lambda _: meter)
    session.time_all([Wanted({**REFERENCE, "m": str(16 + number)}, 1.0) for number in range(ops)])
    return session


def test_a_profile_has_idle_power_and_that_of_timed_ops(tmp_path: Path) -> None:
    session = watched(tmp_path)
    machine = machine_of(session.journal, session.subject)
    energy = machine.energy
    assert energy is not None
    assert energy.idle_w is not None
    assert energy.idle_w.value == pytest.approx(10.0)
    assert energy.idle_w.low < 10.0 < energy.idle_w.high
    (average,) = energy.average
    assert average.workload == TIMED_OPS
    assert average.power_w.value == pytest.approx(30.0)
    assert average.power_w.low < 30.0 < average.power_w.high
    assert "20 timings" in average.power_w.source
    assert (energy.scope, energy.process_m, energy.limit_w and energy.limit_w.value) == ("chip", None, 65.0)
    save_machine(machine, tmp_path / "here.yaml")
    again = load_machine(tmp_path / "here.yaml").energy
    assert again is not None
    assert again.average[0].power_w.value == pytest.approx(30.0)


def test_without_an_instrument_the_reason_stands_in_the_profile_once(tmp_path: Path) -> None:
    def none(_: str) -> Any:
        raise CannotReadError("/sys/…/energy_uj: no permission to read")

    session = make_session(tmp_path, Simple())
    for _ in range(2):
        session.around = start_watching(session.journal, "cpu", lambda _: None, none)
    session.time_all([Wanted({**REFERENCE, "m": "17"}, 1.0)])
    machine = machine_of(session.journal, session.subject)
    assert machine.energy is None
    assert len(machine.timings) == 1
    said = [note for note in machine.notes if note.startswith("energy:")]
    assert said == ["energy: not measured, /sys/…/energy_uj: no permission to read"]


def test_a_reading_that_fails_costs_no_timing(tmp_path: Path) -> None:
    session = make_session(tmp_path, Simple())
    ticks = iter(range(9))
    meter = CounterMeter(lambda: [5.0 * next(ticks)], [100.0], "a counter", 1e-3, clock=lambda: next(clock))
    clock = iter((0.0, 1e-3))
    session.around = start_watching(session.journal, "cpu", lambda _: None, lambda _: meter)

    def broken() -> list[float]:
        raise CannotReadError("the counter is gone")

    meter.read = broken
    session.time_all([Wanted({**REFERENCE, "m": str(16 + number)}, 1.0) for number in range(3)])
    machine = machine_of(session.journal, session.subject)
    assert len(machine.timings) == 3
    assert "energy: 3 readings failed, the last: the counter is gone" in machine.notes


def test_a_counter_that_stands_still_is_no_instrument(tmp_path: Path) -> None:
    session = make_session(tmp_path, Simple())
    meter = CounterMeter(lambda: [50.0], [100.0], "a counter", 1e-3)
    start_watching(session.journal, "cpu", lambda _: None, lambda _: meter)
    machine = machine_of(session.journal, session.subject)
    assert machine.energy is None
    assert "energy: not measured, a counter: did not move in 3 s" in machine.notes


def test_an_interrupt_stops_the_instrument(tmp_path: Path) -> None:
    session = make_session(tmp_path, Simple())
    meter = SampledMeter(lambda: 70.0, "a power", period_s=1e-3)

    def interrupted() -> Any:
        raise KeyboardInterrupt

    around = start_watching(session.journal, "cuda", lambda _: None, lambda _: meter)
    with pytest.raises(KeyboardInterrupt):
        around(interrupted)
    assert not meter.log.thread.is_alive()


def test_what_was_read_is_there_after_an_interrupt(tmp_path: Path) -> None:
    from fomkit.bench.journal import Journal

    session = watched(tmp_path, ops=3)
    again = Journal(session.journal.path, session.journal.about)
    again.resume()
    assert energy_of(again, "cpu") == energy_of(session.journal, "cpu")


def test_ops_that_were_not_timed_are_not_counted(tmp_path: Path) -> None:
    timer = Simple(lambda *_: {"reason": "out of memory"})
    session = make_session(tmp_path, timer)
    meter = CounterMeter(lambda: [timer.now], [1e9], "a counter", 1e-3, clock=lambda: timer.now)
    session.around = start_watching(session.journal, "cpu", lambda _: None, lambda _: meter)
    session.time_all([Wanted({**REFERENCE, "m": "17"}, 1.0)])
    assert not session.journal.marked("power")
