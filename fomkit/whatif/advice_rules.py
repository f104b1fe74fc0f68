"""The rules of the advisor (`RULES`), in the order in which they are evaluated; those on ops are in `slow_ops`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fomkit.core.model import BATCH
from fomkit.core.units import format_quantity, memory_text
from fomkit.ops.resize import sizes_used
from fomkit.plan.coverage import counts_by_kind
from fomkit.plan.estimate import Estimate
from fomkit.plan.memory_of import largest_batch, reserve_of, reserve_text, room_byte
from fomkit.plan.options import change_machine, with_host
from fomkit.plan.run import eager_text
from fomkit.plan.step import INPUT, started_of
from fomkit.whatif.advice_case import Case, Finding, changed_rows, does_not_apply, saving
from fomkit.whatif.slow_ops import (
    evidence,
    expensive_ops,
    faster_engine,
    low_use,
    misaligned,
    seconds_of,
    unfused_update,
)


def input_bound(case: Case) -> Finding:
    """Check whether the input pipeline is slower than the rest of the step."""
    step = case.before.step_time
    if step.input_s is None:
        return does_not_apply(
            "the time of the input pipeline is not stated, so it is unknown, not 0 (machine profile, overheads, "
            "name: input)"
        )
    known = [span.value for span in (step.device_s, step.paced_s) if span is not None]
    input_text, other_text = (
        format_quantity(time_s, "time_s", 3) for time_s in (step.input_s.value, max(known, default=0.0))
    )
    if step.input_s.value <= max(known):
        return does_not_apply(f"the input takes {input_text} of a step and is hidden by {other_text} of work")
    ready = replace(
        case.machine,
        overheads=tuple(
            overhead for overhead in case.machine.overheads if (overhead.name, overhead.per) != (INPUT, "step")
        ),
    )
    return Finding(
        says=f"The input pipeline takes {input_text} of each step, the device and host {other_text}: the "
        "device waits for data.",
        do="Load with more workers, decode and augment on the device, or store the data decoded and on a "
        "local disk (DataLoader(num_workers=...), tf.data prefetch).",
        sure="As reliable as the stated time of the input; the saving is for an input that is hidden by the "
        "other work.",
        saving=saving(case.before, case.before.ops, ready),
        column="overheads of the machine, named input",
    )


IN_A_GRAPH_S = 0.5e-6
"""Cost of a kernel besides its own time in a replayed CUDA graph [s]: 3.4 µs each where the kernel took 2.9 (A.
Gray, "Getting Started with CUDA Graphs", NVIDIA Technical Blog, 2019; on a V100)."""


def launch_bound(case: Case) -> Finding:
    """Estimate the cost of starting kernels, by replaying them from a graph."""
    launch, host = case.machine.device.launch_s, case.before.step_time.host_launch_s
    if launch is None or host is None:
        return does_not_apply("the machine does not state the cost of a kernel launch")
    if launch.value <= IN_A_GRAPH_S:
        return does_not_apply("the machine launches kernels as fast as a graph")
    started, per_op = started_of(case.before.ops), with_host(case.machine, case.model).host_op_s
    starts = float((started.ops + started.kernels).sum())
    cost, cost_of = (launch, "launch cost") if per_op is None else (per_op, "host's time for an op")
    machine = replace(change_machine(case.machine, {"launch_s": IN_A_GRAPH_S}), host_op_s=None)
    after = case.again(machine=machine)
    rows = case.ops["seconds"].notna() & changed_rows(case.before.ops, after.ops)[0]
    host_text, device_text = (format_quantity(time_s, "time_s", 3) for time_s in (host.value, case.device_s))
    waits = "the device waits for it" if host.value > case.device_s else "parts of the step wait for it"
    if case.before.step_time.late_s <= 0:
        waits = "the device is busy meanwhile, but short ops hide little of it"
    framework = eager_text(case.before.step_time)
    return Finding(
        says=f"{starts:,.0f} kernels are started in a step, which takes the host {host_text}; {waits} "
        f"(its own work: {device_text}){framework and f'. But {framework}'}.",
        do="Replay the step from a graph (torch.compile(mode='reduce-overhead'), torch.cuda.graphs), let a "
        "compiler fuse kernels, or use a larger batch.",
        sure=f"Each op without a timing of its own is estimated with its launch. The {cost_of} is "
        f"{cost.basis}: {cost.source or 'no source'}. In a graph, the assumed cost of a kernel is "
        f"{format_quantity(IN_A_GRAPH_S, 'time_s', 2)}.",
        saving=saving(case.before, after, machine, errors="launch"),
        column="launches; device.launch of the machine",
        rows=evidence(case, rows, seconds_of(after.ops)),
    )


def unpriced_ops(case: Case) -> Finding:
    """Find ops without a rule or without a time."""
    missing = case.before.ops[case.before.ops["time_s"].isna()]
    if not len(missing) and not case.model.unsupported:
        return does_not_apply("every op has a rule and a time")
    sentences, columns = [], []
    if len(missing):
        sentences.append(f"Without a time on {case.machine.name}: {counts_by_kind(missing)}.")
        columns.append("time_s")
    if case.model.unsupported:
        sentences.append(f"Without a rule: {', '.join(case.model.unsupported)}.")
        columns.append("unsupported of the model profile")
    return Finding(
        says=" ".join(sentences),
        do="Time these ops on the machine and add the timings to its profile, or state its peak and bandwidth "
        "(docs/profiles.md).",
        sure="Their time is unknown, so every time here is a lower bound.",
        urgent=True,
        column=", ".join(columns),
    )


def memory_full(case: Case) -> Finding:
    """Check whether the step leaves the device's memory that the framework and its libraries need."""
    capacity, reserve, room = case.machine.device.capacity_byte, reserve_of(case.machine), room_byte(case.machine)
    if capacity is None or reserve is None or room is None:
        return does_not_apply("the machine states no memory capacity")
    if case.peak_byte is None:
        return does_not_apply("the profile has no op order, so the memory of the step is unknown")
    share = case.peak_byte / capacity.value
    if case.peak_byte <= room:
        return does_not_apply(f"the step fills {share:.0%} of the device's memory")
    fits = "does not fit" if share > 1 else "fits only without the reserve"
    most = largest_batch(case.followed, case.before.sizes, room)
    largest = f" The largest batch that leaves the reserve is {most:,}." if most else ""
    do = "Use a smaller batch and accumulate gradients over several, recompute activations in the backward pass " \
         "(torch.utils.checkpoint, about one forward pass more), or use a 16-bit format."  # fmt: skip
    if case.model.traced_with.get("mode") == "infer":
        do = "Use a smaller batch, store the weights in fewer bytes (--precision fp8 or int8), or split the " \
             "model over devices (fomkit memory --layout tensor=N)."  # fmt: skip
    elif case.held is not None:
        do = "Share it among more devices (--layout; fomkit memory names the smallest that fits), use a smaller " \
             "batch, or recompute activations (--layout recompute=full)."  # fmt: skip
    counted = "The memory was counted by the transformer's sizes" if case.held is not None else (
        f"The memory was followed op by op in {case.of_formats}")  # fmt: skip
    return Finding(
        says=f"The step {fits}: {memory_text(case.peak_byte)} at its peak, {share:.0%} of the device's "
        f"memory. The framework and its libraries take about {reserve_text(reserve)}.{largest}",
        do=do,
        sure=f"{counted}; gaps between allocations are not counted. Without enough memory the run fails.",
        urgent=True,
        column="output_byte and freed_by of the order; device.memory.capacity",
    )


DOUBLINGS = 4
"""Largest number of doublings of the batch: beyond 16 times it, learning rates and epochs are another training."""

ENOUGH = 0.01
"""Smallest relative saving of a further doubling; below it, the smaller batch is chosen."""


def _fastest(case: Case, most: int) -> Estimate | None:
    """Return the estimate at the batch with most samples a second; of nearly equal ones the smaller batch."""
    best, now = None, case.before.sizes[BATCH]
    least = case.before.step.value / now * (1 - ENOUGH)
    for batch in (now * 2**times for times in range(1, DOUBLINGS + 1) if now * 2**times <= most):
        other = case.again(batch=batch, sizes={**case.options.sizes, BATCH: batch})
        if case.lacks_times(other):
            return best
        each = other.step.value / batch
        if best is None or each < least:
            best, least = other, each * (1 - ENOUGH)
    return best


def _why_not(case: Case) -> str:
    capacity, model = case.machine.device.capacity_byte, case.model
    if BATCH not in case.before.sizes or BATCH not in sizes_used(model.ops):
        return "the profile is fixed at its batch"
    if case.before.step_time.input_s is not None:
        return "the input pipeline is stated for this batch only"
    if capacity is None:
        return "the machine states no memory capacity"
    if case.held is not None:
        return ""
    if case.memory is None or model.order is None or BATCH not in sizes_used(model.order):
        return "the profile has no op order, so it is unknown which batch fits (see 'fomkit memory')"
    return ""


def larger_batch(case: Case) -> Finding:
    """Estimate the saving for each sample of a larger batch that fits."""
    why, room = _why_not(case), room_byte(case.machine)
    if why or room is None:
        return does_not_apply(why)
    most = largest_batch(case.followed, case.before.sizes, room) or 0
    batch = case.before.sizes[BATCH]
    samples = case.model.data.train_samples
    best = _fastest(case, min(most, samples) if samples is not None else most)
    if best is None:
        return does_not_apply(
            f"twice the batch does not fit or has no time; the largest that leaves the reserve is {most:,}"
        )
    chosen = best.sizes[BATCH]
    trains = case.before.ops["pass_name"].ne("forward").any()
    return Finding(
        says=f"The device's memory has room for a larger batch: {most:,} leaves the reserve. "
        f"The estimate is for batch {chosen:,} instead of {batch:,} and the same samples.",
        do=f"Train with batch {chosen:,} and a learning rate to match; check that the epochs stay the same, "
        "which is assumed."
        if trains
        else f"Run with batch {chosen:,}; check that the latency of a step is still acceptable.",
        sure="The whole step was estimated again. The errors at the two batches are assumed independent, "
        f"which widens the interval; memory is for {case.of_formats}.",
        saving=saving(case.before, best.ops, samples=chosen / batch),
        column="the named size batch",
    )


class Rule(NamedTuple):
    """A question about a study, and the function that answers it."""

    name: str
    question: str
    find: Callable[[Case], Finding | list[Finding]]

    def findings(self, case: Case) -> list[Finding]:
        """Return the answers; most rules have one."""
        found = self.find(case)
        return found if isinstance(found, list) else [found]


RULES = (
    Rule("faster engine", "Has the machine a faster engine for another number format?", faster_engine),
    Rule("misaligned", "Can the matrix engine load the rows of the products whole?", misaligned),
    Rule("launch bound", "Does the step wait for the host to start kernels?", launch_bound),
    Rule("input bound", "Does the step wait for its data?", input_bound),
    Rule("larger batch", "Would a larger batch that fits take less time a sample?", larger_batch),
    Rule("update", "Would a fused update save time?", unfused_update),
    Rule("expensive ops", "Does one op take much of the step?", expensive_ops),
    Rule("low use", "Which ops stay far above the least time?", low_use),
    Rule("memory full", "Does the step leave room in the device's memory?", memory_full),
    Rule("unknown work", "Is there work that no figure counts?", unpriced_ops),
)
