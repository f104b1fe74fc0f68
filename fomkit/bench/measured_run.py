"""What was measured of a profile, as plain content and as a row of a table of measurements.

A model profile with what was measured of it: its step, and the times of its ops in the op table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fomkit.bench.model_steps import Timed, time_file
from fomkit.core.errors import FomkitError
from fomkit.core.measurement import SHARED, Clock, MeasuredOps, MeasuredRun, Measurement
from fomkit.core.model import ModelProfile
from fomkit.core.units import round_quantity
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.plan.memory_of import DeviceKind, device_kind
from fomkit.profiles.locate import locate
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.measurements import read_measurements
from fomkit.readers.profilers.joined_times import Joined, join_times
from fomkit.readers.profilers.xplane import with_node_times


def run_content(run: MeasuredRun) -> Mapping[str, object]:
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


def measurement_of(model: ModelProfile, machine: str, where: str) -> Measurement:
    """Give a measured profile's step as a row of a table of measurements.

    `machine`: name of the machine profile that stands for where it ran; `where`: the profile's file. Raises
    FomkitError when nothing was measured, or on another kind of device than the machine's.
    """
    run = model.measured
    if run is None:
        raise FomkitError(where, "has no measured times. Make it with: fomkit profile model.py --measure step")
    clock = _exported_clock(run)
    step = run.step.by(clock)
    if step is None:
        raise FomkitError(where, f"has no times by the clock {clock!r}. Measure it again.")
    notes = [_conditions_text(run, clock), *_machine_notes(run, machine, where)]
    if not (precision := run.precision):  # the number format of most of the arithmetic, as an estimate names it
        ops = add_costs(resize_ops(model.ops, model.sizes, model.name))
        precision = str((ops["flop"] * ops["count"]).groupby(ops["dtype"]).sum().idxmax())
    low, high = (step.median_s if end is None else end for end in (step.p10_s, step.p90_s))
    framework = model.traced_with.get("framework", "")
    return Measurement(
        where, model.name, machine, "step_s", step.median_s, low, high,
        spread_stated=step.p10_s is not None, basis="measured", repeats=run.step.repeats, batch=model.batch,
        precision=precision, devices=1, scope="device", party="lab", framework=framework,
        framework_version=run.software.get(framework, ""), date=run.date,
        source=f"fomkit profile --measure {'step' if run.ops is None else 'ops'}, {where}", note="; ".join(notes),
    )  # fmt: skip


def rows_to_export(source: str | Path | ModelProfile, machine: str | None, chosen: str) -> tuple[Measurement, ...]:
    """Give the measurements that are to be written: those of a table, or the step of a measured profile.

    `machine`: of a model profile: the machine profile that stands for where it ran; `chosen`: what is to be
    written, measurements or benchmarker. Raises FomkitError when a profile comes without a machine, a table with
    one, or a table is to be written as what it is.
    """
    if isinstance(source, ModelProfile) or Path(source).suffix in (".yaml", ".yml"):
        model = source if isinstance(source, ModelProfile) else load_model(source)
        where = model.name if isinstance(source, ModelProfile) else str(source)
        if machine is None:
            raise FomkitError(
                where, "does not say which machine profile stands for where it ran. Add `machine` NAME."
            )
        return (measurement_of(model, machine, where),)
    if machine is not None:
        raise FomkitError("machine", "names where a model profile was measured; a table says it. Leave it out.")
    if chosen == "measurements":
        raise FomkitError(str(source), "is a table of measurements already. Write, for example, '-o record.json'.")
    return read_measurements(locate(str(source), "measurements"))


def _exported_clock(run: MeasuredRun) -> Clock:
    """Choose the clock of the row: the wall's, which ``step_s`` means, unless others took the processor away."""
    wall, process = run.step.wall, run.step.process
    if run.clock == "process" and wall is not None and process is not None:
        return "process" if wall.median_s > SHARED * process.median_s else "wall"
    return run.clock


def _machine_notes(run: MeasuredRun, machine: str, where: str) -> list[str]:
    """Check that a machine may be the one that it ran on, and say where its profile does not tell.

    Raises FomkitError when it ran on a processor and the machine is a GPU, or the other way around.
    """
    try:
        locate(machine, "machine_profiles")
    except FomkitError:  # a name that only the table of measurements has
        kind: DeviceKind = ""
    else:
        kind = device_kind(load_machine(machine))
    if not kind:
        return [f"whether {machine} has a CPU or a GPU is not known, it ran on a {run.device.upper()}"]
    if kind != run.device:
        raise FomkitError(
            where,
            f"was measured on a {run.device.upper()} ({run.processor}), and the machine profile {machine} is of a "
            f"{kind.upper()}. Name the profile of the machine that it ran on.",
        )
    return []


def _conditions_text(run: MeasuredRun, clock: Clock) -> str:
    load = "" if run.load_start is None else f"; load {run.load_start:g} to {run.load_end or run.load_start:g}"
    threads = "" if run.device == "gpu" else f"; {run.threads} thread{'s' * (run.threads > 1)}"
    shared = ", as others shared the processor" if clock == "process" else ""
    return f"{run.processor}{threads}; {clock} time{shared}{load}"


def _join_notes(model: ModelProfile, joined: Joined) -> Iterator[str]:
    if joined.miscounted:
        yield f"{joined.miscounted} rows ran another number of times than the table counts; they have that time"
    missing = int(joined.time_s.isna().sum())
    if missing:
        yield f"{missing} of {len(model.ops)} rows have no time: nothing ran by their name, or another row has it"
    recorded = {str(one) for one in model.ops["impl"] if one}
    if joined.impls and recorded and joined.impls != recorded:
        ran, in_table = (" and ".join(sorted(names)) for names in (joined.impls, recorded))
        yield f"the update ran {ran} here, where the table has {in_table}"
    if joined.parted:
        yield f"the times of both gradients were told as one, and parted by their work: {joined.parted} rows"


def _joined_times(model: ModelProfile, timed: Timed) -> Joined:
    """Put times on rows: by the nodes of the graph where these told theirs, else by what ops are."""
    sized = resize_ops(model.ops, model.sizes, model.name)
    by_node = timed.joined
    if by_node is None:
        return join_times(sized, timed.spent)
    rows = tuple(sized[["op", "pass_name", "module"]].itertuples(index=False, name=None))
    if rows != timed.rows:
        raise FomkitError(
            model.name,
            "another step ran than was profiled: its ops are not those of the table. Let the file build the same "
            "model each time.",
        )
    times = with_node_times(sized, sized["count"].astype("float64").tolist(), by_node)
    listed = tuple(replace(one, time_s=float(f"{one.time_s:.6g}")) for one in by_node.unjoined)
    return Joined(times["traced_time_s"], by_node.joined_s, listed, miscounted=0)


def with_times(model: ModelProfile, timed: Timed) -> ModelProfile:
    """Put what was timed into a profile.

    `model`: its op table stays, but for ``traced_time_s``; `timed`: of the same model at the same sizes.
    """
    if timed.profiled is None:
        return replace(model, measured=timed.run)
    joined = _joined_times(model, timed)
    joined_s = round_quantity(joined.joined_s, "time_s")
    factor = float(f"{timed.scaled_by:.6g}")
    seen = MeasuredOps(timed.profiler, timed.profiled, joined_s, joined.unjoined, factor)
    run = replace(timed.run, ops=seen, notes=(*timed.run.notes, *_join_notes(model, joined)))
    ops = model.ops.assign(traced_time_s=joined.time_s.map(lambda time: float(f"{time:.6g}")))
    return replace(model, ops=ops, measured=run)


def measure_profile(model: ModelProfile, path: Path, **options: Any) -> ModelProfile:
    """Time the model of a file that was profiled, at the profile's sizes.

    `model`: of that file; `options`: as `fomkit.bench.model_steps.time_file` takes them; ``energy`` is of
    `fomkit.bench.power`. Raises FomkitError when the model does not run, does not fit, or its loss is no
    finite number.
    """
    return with_times(model, time_file(path, mode=model.traced_with["mode"], sizes=model.sizes, **options))
