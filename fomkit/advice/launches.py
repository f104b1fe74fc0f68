"""Steps that wait for the host to start kernels, or whose kernels are hardly longer than their start."""

from __future__ import annotations

from fomkit.advice.case import Case
from fomkit.advice.evidence import evidence, seconds_of
from fomkit.advice.finding import Finding, does_not_apply
from fomkit.advice.saving import changed_rows, saving
from fomkit.quantities import format_quantity
from fomkit.study.changes import change_machine

IN_A_GRAPH_S = 0.5e-6
"""What a kernel costs beside its own time in a replayed CUDA graph [s]: 3.4 µs each where the kernel took 2.9
(A. Gray, "Getting Started with CUDA Graphs", NVIDIA Technical Blog, 2019; on a V100)."""


def launch_bound(case: Case) -> list[Finding]:
    """Find out what starting kernels costs, by replaying them from a graph."""
    launch, host = case.machine.device.launch_s, case.before.step_time.host_launch_s
    if launch is None or host is None:
        return [does_not_apply("the machine does not state what a kernel launch costs")]
    if launch.value <= IN_A_GRAPH_S:
        return [does_not_apply("the machine starts kernels as fast as a graph does")]
    starts = host.value / launch.value
    machine = change_machine(case.machine, {"launch_s": IN_A_GRAPH_S})
    after = case.again(machine=machine)
    rows = case.ops["seconds"].notna() & changed_rows(case.before.ops, after.ops)[0]
    host_text, device_text = (format_quantity(time_s, "time_s", 3) for time_s in (host.value, case.device_s))
    waits = (
        "the device waits for it"
        if host.value > case.device_s
        else "the device is busy meanwhile, but short ops hardly hide it"
    )
    return [
        Finding(
            says=f"{starts:,.0f} kernels are started in a step, which takes the host {host_text}; {waits} "
            f"(its own work: {device_text}).",
            do="Replay the step from a graph (torch.compile(mode='reduce-overhead'), torch.cuda.graphs), let a "
            "compiler join kernels, or take a larger batch.",
            sure="Each op without a timing of its own is estimated with its launch. The launch cost is "
            f"{launch.basis}: {launch.source or 'no source'}. In a graph a kernel is taken to cost "
            f"{format_quantity(IN_A_GRAPH_S, 'time_s', 2)}.",
            saving=saving(case.before, after.ops, machine, errors="launch"),
            column="launches; device.launch of the machine",
            rows=evidence(case, rows, seconds_of(after.ops)),
        )
    ]
