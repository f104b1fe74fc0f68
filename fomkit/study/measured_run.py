"""What was measured of a profile, as plain content and as a row of a table of measurements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fomkit.costs import add_costs
from fomkit.errors import FomkitError
from fomkit.measurement import SHARED, Clock, MeasuredRun, Measurement
from fomkit.measurements import read_measurements
from fomkit.profiles import load_machine, load_model
from fomkit.profiles.locate import locate
from fomkit.resize import resize_ops
from fomkit.study.device_kind import DeviceKind, device_kind
from fomkit.workload import ModelProfile


def run_content(run: MeasuredRun) -> dict[str, Any]:
    """Put what was measured, and what follows from it, in plain values; times in seconds."""
    ends = run.overhead_ends
    joined = None if run.ops is None or not run.ops.total_s else run.ops.joined_s / run.ops.total_s
    return {
        **asdict(run),
        "sizes": dict(run.sizes),
        "profiler_overhead": run.overhead,
        "profiler_overhead_low": None if ends is None else ends[0],
        "profiler_overhead_high": None if ends is None else ends[1],
        "ops_share_of_step": run.ops_share,
        "joined_share_of_ops": joined,
    }


def _format_of(model: ModelProfile) -> str:
    """Name the number format of most of the arithmetic, as an estimate does."""
    ops = add_costs(resize_ops(model.ops, model.sizes, model.name))
    return str((ops["flop"] * ops["count"]).groupby(ops["dtype"]).sum().idxmax())


def measurement_of(model: ModelProfile, machine: str, where: str) -> Measurement:
    """Give a measured profile's step as a row of a table of measurements.

    Parameters
    ----------
    model : ModelProfile
    machine : str
        Name of the machine profile that stands for where it ran.
    where : str
        The profile's file.

    Raises
    ------
    FomkitError
        When nothing was measured, or on another kind of device than the machine's.
    """
    run = model.measured
    if run is None:
        raise FomkitError(where, "has no measured times. Make it with: fomkit profile model.py --measure step")
    clock = _exported_clock(run)
    step = run.step.by(clock)
    if step is None:
        raise FomkitError(where, f"has no times by the clock {clock!r}. Measure it again.")
    notes = [_conditions(run, clock), *_said_of_machine(run, machine, where)]
    low, high = (step.median_s if end is None else end for end in (step.p10_s, step.p90_s))
    framework = model.traced_with.get("framework", "")
    return Measurement(
        where, model.name, machine, "step_s", step.median_s, low, high,
        spread_stated=step.p10_s is not None, basis="measured", repeats=run.step.repeats, batch=model.batch,
        precision=run.precision or _format_of(model), devices=1, scope="device", party="lab", framework=framework,
        framework_version=run.software.get(framework, ""), date=run.date,
        source=f"fomkit profile --measure {'step' if run.ops is None else 'ops'}, {where}", note="; ".join(notes),
    )  # fmt: skip


def rows_to_export(source: str | Path | ModelProfile, machine: str | None, chosen: str) -> tuple[Measurement, ...]:
    """Give the measurements that are to be written: those of a table, or the step of a measured profile.

    Parameters
    ----------
    source : name, path or profile
    machine : str or None
        Of a model profile: the machine profile that stands for where it ran.
    chosen : str
        What is to be written, measurements or benchmarker.

    Raises
    ------
    FomkitError
        When a profile comes without a machine, a table with one, or a table is to be written as what it is.
    """
    if isinstance(source, ModelProfile) or Path(source).suffix in (".yaml", ".yml"):
        model = source if isinstance(source, ModelProfile) else load_model(source)
        where = model.name if isinstance(source, ModelProfile) else str(source)
        if machine is None:
            raise FomkitError(
                where, "does not say which machine profile stands for where it ran. Add --machine NAME."
            )
        return (measurement_of(model, machine, where),)
    if machine is not None:
        raise FomkitError("--machine", "names where a model profile was measured; a table says it. Leave it out.")
    if chosen == "measurements":
        raise FomkitError(str(source), "is a table of measurements already. Write, for example, '-o record.json'.")
    return read_measurements(locate(str(source), "measurements"))


def _exported_clock(run: MeasuredRun) -> Clock:
    """Choose the clock of the row: the wall's, which ``step_s`` means, unless others took the processor away."""
    wall, process = run.step.wall, run.step.process
    if run.clock == "process" and wall is not None and process is not None:
        return "process" if wall.median_s > SHARED * process.median_s else "wall"
    return run.clock


def _said_of_machine(run: MeasuredRun, machine: str, where: str) -> list[str]:
    """Check that a machine may be the one that it ran on, and say where its profile does not tell.

    Raises
    ------
    FomkitError
        When it ran on a processor and the machine is a GPU, or the other way around.
    """
    kind = _kind_of(machine)
    if not kind:
        return [f"whether {machine} has a CPU or a GPU is not known, it ran on a {run.device.upper()}"]
    if kind != run.device:
        raise FomkitError(
            where,
            f"was measured on a {run.device.upper()} ({run.processor}), and the machine profile {machine} is of a "
            f"{kind.upper()}. Name the profile of the machine that it ran on.",
        )
    return []


def _kind_of(machine: str) -> DeviceKind:
    try:
        locate(machine, "machine_profiles")
    except FomkitError:
        return ""  # a name that only the table of measurements has
    return device_kind(load_machine(machine))


def _conditions(run: MeasuredRun, clock: Clock) -> str:
    load = "" if run.load_start is None else f"; load {run.load_start:g} to {run.load_end or run.load_start:g}"
    threads = "" if run.device == "gpu" else f"; {run.threads} thread{'s' * (run.threads > 1)}"
    shared = ", as others shared the processor" if clock == "process" else ""
    return f"{run.processor}{threads}; {clock} time{shared}{load}"
