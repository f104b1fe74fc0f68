"""The parameters that a result may depend on, and the measurements that narrow its interval most.

Each parameter has a unit, a value and an interval. `measurements` ranks what could be measured: each candidate is
treated as known exactly, and everything is rolled up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Literal, NotRequired, TypedDict

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, shrinks
from fomkit.core.machine import HOST, RATES, Fact, Machine, change_fact, peak_name
from fomkit.core.measurement import device_kind
from fomkit.core.model import OF_A_RUN, ModelProfile
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.ops.resize import sizes_used
from fomkit.plan.content import Ends, as_content
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.evidence import ops_to_time, steps_if_timed
from fomkit.plan.options import NODES, Options, change_overhead, link_names, overhead_name
from fomkit.plan.step import INPUT
from fomkit.prediction.exact import settled_ops
from fomkit.profiles.evidence import with_fits

Unit = Literal["byte_per_s", "flop_per_s", "time_s", "share", "factor", "count"]
FEWER = ("epochs", "samples", "train_samples", "validation_samples")
"""Parameters of a model for which a smaller value makes a run shorter."""
PLAIN_RANGE = 0.1
"""Relative change by which a value is varied where no interval of it is stated."""

NotVaried = TypedDict("NotVaried", {"parameter": str, "why": str})


@dataclass(frozen=True)
class Parameter:
    """One parameter at its current value.

    `name`: ``byte_per_s``, ``launch_s``, ``host_op_s``, ``flop_per_s/DTYPE/ENGINE``, ``overhead/PER/NAME``,
      ``availability``, ``nodes``, ``node_devices``; of the link between nodes ``link_byte_per_s`` and
      ``link_alpha_s``, of the link inside them ``node_link_byte_per_s`` and ``node_link_alpha_s``; a named size of
      the model, ``epochs``, ``train_samples``, ``validation_samples``; in a suite ``LINE.batch``, and
      ``LINE.utilisation_gain`` and ``LINE.precision_gain`` of a given time.
    `unit`: a dimension of `fomkit.core.units`, share, factor or count.
    `value`: in SI units.
    `low`, `high`: bounds of its own interval; equal to the value where none is stated.
    `grain`: if above 0, the parameter is a whole number that changes by at least this much.
    """

    name: str
    unit: Unit
    value: float
    of: Literal["machine", "model", "line"]
    low: float
    high: float
    grain: int = 0
    basis: str = ""
    source: str = ""

    @property
    def has_interval(self) -> bool:
        """True where an interval of it is stated."""
        return self.low < self.value or self.value < self.high

    @property
    def better(self) -> int:
        """1 where more of it is never slower, -1 where less of it is never slower, 0 where it depends."""
        if self.of == "model":
            return -1 if self.name.rpartition(".")[2] in FEWER else 0
        return -1 if self.unit == "time_s" or self.name.startswith("overhead/") else 1

    @property
    def varied(self) -> str:
        """The range over which it is varied, in words."""
        if self.has_interval:
            return "its interval"
        if not self.grain:
            return f"±{PLAIN_RANGE:.0%}"
        away = self.ends[1] - self.value
        near = abs(away / self.value - PLAIN_RANGE) < PLAIN_RANGE / 10
        return f"±{PLAIN_RANGE:.0%}" if near else f"±{away:,.0f}"

    @property
    def ends(self) -> tuple[float, float]:
        """The range over which it is varied: its own interval, else ±10 %, a whole number by its grain or more."""
        if self.has_interval:
            return self.low, self.high
        low, high = (self.value * (1 + sign * PLAIN_RANGE) for sign in (-1, 1))
        if not self.grain:
            return low, (min(high, 1.0) if self.unit == "share" else high)
        away = self.grain * max(1, round(self.value * PLAIN_RANGE / self.grain))
        return max(float(min(self.grain, self.value)), self.value - away), self.value + away


def _of_fact(name: str, unit: Unit, fact: Fact) -> Parameter:
    return Parameter(name, unit, fact.value, "machine", fact.low, fact.high, 0, fact.basis, fact.source)


def whole(name: str, value: int, of: Literal["machine", "model"] = "model", grain: int = 1) -> Parameter:
    """Make a parameter that is a whole number."""
    return Parameter(name, "count", float(value), of, float(value), float(value), grain)


def peaks_in_use(estimates: Iterable[Estimate]) -> frozenset[str]:
    """Return the names of the peaks at which the arithmetic of some estimates runs."""
    found = set()
    for one in estimates:
        ops = settled_ops(one.ops, with_fits(one.machine))
        used = ops.loc[ops["kind"].isin(PRODUCT_KINDS), ["dtype", "engine"]].drop_duplicates()
        found |= {peak_name(str(dtype), str(engine)) for dtype, engine in used.itertuples(index=False)}
    return frozenset(found)


def device_parameters(machine: Machine, peaks: frozenset[str] | None = None) -> Iterator[Parameter]:
    """Yield the rates, launch cost, host and overheads of a machine; of its peaks the named ones, or all."""
    device = machine.device
    for name, fact in zip(RATES, (device.byte_per_s, device.launch_s), strict=True):
        if fact is not None:
            yield _of_fact(name, "time_s" if name == "launch_s" else "byte_per_s", fact)
    if machine.host_op_s is not None:
        yield _of_fact(HOST, "time_s", machine.host_op_s)
    for peak in device.peaks:
        name = peak_name(peak.dtype, peak.engine)
        if peaks is None or name in peaks:
            yield _of_fact(name, "flop_per_s", peak.rate)
    for overhead in machine.overheads:
        if overhead.time_s is not None:
            yield _of_fact(overhead_name(overhead), "time_s", overhead.time_s)
        elif overhead.share is not None:
            yield _of_fact(overhead_name(overhead), "share", overhead.share)


def unstated(machine: Machine, peaks: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the rates and terms that a machine does not state, with that reason; no result depends on them."""
    device, stated = machine.device, {peak_name(peak.dtype, peak.engine) for peak in machine.device.peaks}
    facts = zip(RATES, (device.byte_per_s, device.launch_s), strict=True)
    names = [*(name for name, fact in facts if fact is None), *sorted(peaks - stated)]
    if not any((overhead.per, overhead.name) == ("step", INPUT) for overhead in machine.overheads):
        names.append(f"overhead/step/{INPUT}")
    yield from ((name, f"{machine.name} does not state it") for name in names)


def fixed_sizes(model: ModelProfile) -> Iterator[tuple[str, str]]:
    """Yield the sizes at which the ops of a model are fixed, with that reason."""
    used = sizes_used(model.ops)
    yield from ((name, "the ops of the profile are fixed at it") for name in sorted(set(model.sizes) - used))


def link_parameters(machine: Machine, channel: str) -> Iterator[Parameter]:
    """Yield rate and start-up time of the first link of each tier with this transport."""
    seen = set()
    for link in machine.links:
        if link.channel != channel or link.tier in seen or link.tier == "device":
            continue
        seen.add(link.tier)
        rate, alpha = link_names(link)
        ends = link.range_byte_per_s or (link.byte_per_s, link.byte_per_s)
        yield Parameter(rate, "byte_per_s", link.byte_per_s, "machine", *ends, 0, link.basis, link.source)
        ends = link.alpha_range_s or (link.alpha_s, link.alpha_s)
        yield Parameter(alpha, "time_s", link.alpha_s, "machine", *ends, 0, link.basis, link.source)


def scope_parameters(machine: Machine, scope: str) -> Iterator[Parameter]:
    """Yield the parameters of the units/day of a node or a whole system besides their devices."""
    if scope != "device" and machine.node_devices is not None:
        yield whole("node_devices", machine.node_devices, "machine")
    if scope == "system" and machine.system_nodes is not None:
        yield whole(NODES, machine.system_nodes, "machine")
        up = machine.availability
        yield Parameter("availability", "share", up, "machine", up, up)


def model_parameters(model: ModelProfile, options: Options, replicas: int = 1) -> Iterator[Parameter]:
    """Yield the sizes that ops use, and those of a run: samples (in whole steps of all replicas) and epochs."""
    sizes = {**model.sizes, **options.wanted_sizes}
    for name in sorted(sizes_used(model.ops) & set(sizes)):
        yield whole(name, sizes[name])
    batch = sizes.get("batch")
    # Without gradients, samples and epochs only define the unit of work, such as a million tokens.
    if batch is None or model.data.train_samples is None or model.traced_with.get("mode") == "infer":
        return
    for name, samples in (
        ("train_samples", model.data.train_samples),
        ("validation_samples", model.data.validation_samples),
    ):
        if samples:
            yield whole(name, samples, grain=batch * replicas)
    if model.run.epochs is not None:
        yield whole("epochs", model.run.epochs)


def changed_model(
    model: ModelProfile, options: Options, values: Mapping[str, float]
) -> tuple[ModelProfile, Options]:
    """Return a model profile with other samples and epochs, and the options with other sizes."""
    sizes = {name: round(value) for name, value in values.items() if name not in OF_A_RUN}
    wanted = {**options.wanted_sizes, **sizes}
    return model.with_run(values), replace(options, batch=None, sizes=wanted)


TOP = 10
"""Number of single ops that are listed."""
OUT = "-o here.yaml"
MEASUREMENTS_NOTE = (
    "assumed: a measurement gives exactly the predicted value; not counted: a timing also improves similar ops, "
    "may differ from the prediction, and has a spread of its own"
)


def _exact_fact(fact: Fact | None) -> Fact:
    if fact is None:
        raise FomkitError("measurement", "is of a fact that is not stated. State it first.")
    return replace(fact, low=fact.value, high=fact.value)


def _with_exact_fact(machine: Machine, name: str) -> Machine:
    overheads = tuple(
        change_overhead(overhead, _exact_fact) if overhead_name(overhead) == name else overhead
        for overhead in machine.overheads
    )
    if name == HOST:
        return replace(machine, host_op_s=_exact_fact(machine.host_op_s))
    of_overhead = name.startswith("overhead/")
    device = machine.device if of_overhead else change_fact(machine.device, name, _exact_fact)
    return replace(machine, device=device, overheads=overheads)


Measurable = TypedDict("Measurable", {
    "kind": str, "what": str, "step_s": NotRequired[Ends], "fom": NotRequired[Ends], "shrinks": float,
    "command": str, "executions": NotRequired[float], "share": NotRequired[float],
    "line": NotRequired[dict[str, object]],
})  # fmt: skip
ToMeasure = TypedDict("ToMeasure", {
    "measurements": NotRequired[list[Measurable]], "no_spread_stated": NotRequired[list[str]],
    "measurements_say": NotRequired[str],
})  # fmt: skip


def measurement(kind: str, what: str, now: Span, then: Span, command: str, of: str = "step_s") -> Measurable:
    """Return the entry of a measurement: figure ``of`` (step_s or fom) with it, and how its interval shrinks."""
    return as_content(Measurable, {of: then}, kind=kind, what=what, shrinks=shrinks(now, then), command=command)


def rank_measurements(found: Iterable[Measurable], without: Sequence[str] | None = None) -> ToMeasure:
    """Return measurements, best first, the facts ``without`` a spread where known, and the note on all."""
    best = sorted(found, key=lambda entry: -entry["shrinks"])
    return as_content(ToMeasure, measurements=best, no_spread_stated=without, measurements_say=MEASUREMENTS_NOTE)


def measure_command(model: ModelProfile, machine: Machine, options: Options) -> str:
    """Write the command that times the ops of a model at their sizes, on the machine that executes it."""
    sizes = {**model.sizes, **options.wanted_sizes}
    words = ["fomkit measure", f"--for {quote(model.asked_as or model.name)}"]
    if "batch" in sizes:
        words.append(f"--batch {sizes.pop('batch')}")
    words += [f"--set {name}={size}" for name, size in sizes.items() if size != model.sizes.get(name)]
    words += [f"--precision {options.precision}"] if options.precision else []
    words += ["--device cuda"] if device_kind(machine) == "gpu" else []
    return " ".join([*words, OUT])


def _op_entries(estimated: Estimate, command: str) -> Iterator[Measurable]:
    """Yield the entries of single ops, of the ops of each kind together, and of all ops."""
    for timed in ops_to_time(estimated, TOP)["measurements"]:
        yield as_content(Measurable, timed, kind="op", what=timed["sizes"], command=command)
    ops = settled_ops(estimated.ops, estimated.machine)
    numbers, kinds = pd.factorize(ops["kind"])
    of_step = estimated.machine, estimated.step.level, estimated.model
    if len(kinds) > 1:
        together = steps_if_timed(ops, pd.Series(numbers, ops.index), *of_step)
        for number, step in together.items():
            yield measurement("kind of op", f"all ops of kind {kinds[number]}", estimated.step, step, command)
    whole = steps_if_timed(ops, pd.Series(0, ops.index), *of_step)
    for step in whole.values():
        yield measurement("all ops", "every op, alone", estimated.step, step, command)


def _per_fact(estimated: Estimate, options: Options, parameters: tuple[Parameter, ...]) -> Iterator[Measurable]:
    for name in (one.name for one in parameters if one.of == "machine" and one.has_interval):
        known = _with_exact_fact(estimated.machine, name)
        step = estimate(estimated.model, known, options).step
        command = f"fomkit measure --quick{' --device cuda' * (device_kind(known) == 'gpu')} {OUT}"
        if name == "overhead/step/input":
            command = f"fomkit measure --input loader.py {OUT} --add"
        elif name == HOST or name.startswith("overhead/"):
            command = ""
        yield measurement("fact", name, estimated.step, step, command)


def measurements(estimated: Estimate, options: Options, parameters: tuple[Parameter, ...]) -> ToMeasure:
    """Rank what could be measured on the machine by how much the interval of the step would shrink.

    `estimated`: on the machine with its fits; `options`: those of the estimate; `parameters`: the facts of the
    machine whose spread may be removed. Returns a dict: ``measurements``, best first: kind (step, all ops, kind of
    op, op, fact), what, ``step_s`` with it known, ``shrinks`` [share of the current width], command; for an op its
    executions, share of the device's time, and the cells of a row of ops. ``no_spread_stated`` names facts whose
    measurement could only move the estimate; ``measurements_say`` states what is left out.
    """
    command, now = measure_command(estimated.model, estimated.machine, options), estimated.step
    step = "fomkit profile model.py --measure step -o measured.yaml"
    found = [
        measurement("step", "a whole step", now, Span.exact(now.value, now.level), step),
        *_op_entries(estimated, command),
        *_per_fact(estimated, options, parameters),
    ]
    without = [one.name for one in parameters if one.of == "machine" and not one.has_interval]
    return rank_measurements(found, without)
