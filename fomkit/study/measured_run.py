"""What was measured of a profile, as plain content and as a row of a table of measurements."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fomkit.costs import add_costs
from fomkit.errors import FomkitError
from fomkit.measurement import MeasuredRun, Measurement
from fomkit.resize import resize_ops
from fomkit.workload import ModelProfile


def run_content(run: MeasuredRun) -> dict[str, Any]:
    """Put what was measured, and what follows from it, in plain values; times in seconds."""
    joined = None if run.ops is None or not run.ops.total_s else run.ops.joined_s / run.ops.total_s
    return {
        **asdict(run),
        "sizes": dict(run.sizes),
        "profiler_overhead": run.overhead,
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
        When nothing was measured.
    """
    run = model.measured
    step = None if run is None else run.step_time
    if run is None or step is None:
        raise FomkitError(where, "has no measured times. Make it with: fomkit profile model.py --measure step")
    low, high = (step.median_s if end is None else end for end in (step.p10_s, step.p90_s))
    framework = model.traced_with.get("framework", "")
    return Measurement(
        where, model.name, machine, "step_s", step.median_s, low, high,
        spread_stated=step.p10_s is not None, basis="measured", repeats=run.step.repeats, batch=model.batch,
        precision=_format_of(model), devices=1, scope="device", party="lab", framework=framework,
        framework_version=run.software.get(framework, ""), date=run.date,
        source=f"fomkit profile --measure, {where}", note=_conditions(run),
    )  # fmt: skip


def _conditions(run: MeasuredRun) -> str:
    load = "" if run.load_start is None else f"; load {run.load_start:g} to {run.load_end or run.load_start:g}"
    threads = "" if run.device == "gpu" else f"; {run.threads} thread{'s' * (run.threads > 1)}"
    return f"{run.processor}{threads}; {run.clock} time{load}"
