"""Which measurement would shrink an interval most: each taken as known exactly, and everything rolled up again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NotRequired, TypedDict

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, shrinks
from fomkit.core.machine import Fact, Machine, change_fact
from fomkit.core.model import ModelProfile
from fomkit.plan.content import Ends, span_content
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.evidence import ops_to_time
from fomkit.plan.memory_of import device_kind
from fomkit.plan.options import Options, change_overhead, overhead_name
from fomkit.plan.step import steps_if_timed
from fomkit.prediction.exact import settle_engines
from fomkit.whatif.parameters import Parameter

TOP = 10
"""Single ops that are listed."""
OUT = "-o here.yaml"
MEASUREMENTS_NOTE = (
    "each is taken as known exactly at its predicted value, and everything rolled up again; that a timing also "
    "tells of similar ops, differs from the prediction, or has a spread of its own, is left out"
)


def _exact(fact: Fact | None) -> Fact:
    if fact is None:
        raise FomkitError("measurement", "is of a fact that nobody states. State it first.")
    return replace(fact, low=fact.value, high=fact.value)


def _known(machine: Machine, name: str) -> Machine:
    """Give the machine with one of its facts known without error."""
    overheads = tuple(
        change_overhead(overhead, _exact) if overhead_name(overhead) == name else overhead
        for overhead in machine.overheads
    )
    of_overhead = name.startswith("overhead/")
    device = machine.device if of_overhead else change_fact(machine.device, name, _exact)
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
    """Give what a measurement would make of a figure, ``of``, step_s or fom, as plain content."""
    ends, less = span_content(then), shrinks(now, then)
    if of == "fom":
        return {"kind": kind, "what": what, "fom": ends, "shrinks": less, "command": command}
    return {"kind": kind, "what": what, "step_s": ends, "shrinks": less, "command": command}


def ranked(found: Iterable[Measurable], without: Sequence[str] | None = None) -> ToMeasure:
    """Give measurements, best first, the facts ``without`` a spread where known, and what is said of all."""
    best_first = sorted(found, key=lambda entry: -entry["shrinks"])
    if without is None:
        return {"measurements": best_first, "measurements_say": MEASUREMENTS_NOTE}
    return {"measurements": best_first, "no_spread_stated": list(without), "measurements_say": MEASUREMENTS_NOTE}


def measure_command(model: ModelProfile, machine: Machine, options: Options) -> str:
    """Write the command that times the ops of a model at their sizes, on the machine that it is run on."""
    sizes = {**model.sizes, **options.wanted_sizes}
    words = ["fomkit measure", f"--for {model.name}"]
    if "batch" in sizes:
        words.append(f"--batch {sizes.pop('batch')}")
    words += [f"--set {name}={size}" for name, size in sizes.items() if size != model.sizes.get(name)]
    words += [f"--precision {options.precision}"] if options.precision else []
    words += ["--device cuda"] if device_kind(machine) == "gpu" else []
    return " ".join([*words, OUT])


def _of_ops(estimated: Estimate, command: str, top: int) -> Iterator[Measurable]:
    """Give single ops, the ops of each kind together, and all ops."""
    for timed in ops_to_time(estimated, top)["measurements"]:
        yield {"kind": "op", "what": timed["sizes"], "step_s": timed["step_s"], "shrinks": timed["shrinks"],
               "command": command, "executions": timed["executions"], "share": timed["share"],
               "line": timed["line"]}  # fmt: skip
    ops = settle_engines(estimated.ops.reset_index(drop=True), estimated.machine)[0]
    numbers, kinds = pd.factorize(ops["kind"])
    if len(kinds) > 1:
        together = steps_if_timed(ops, pd.Series(numbers, ops.index), estimated.machine, estimated.step.level)
        for number, step in together.items():
            yield measurement("kind of op", f"all ops of kind {kinds[number]}", estimated.step, step, command)
    whole = steps_if_timed(ops, pd.Series(0, ops.index), estimated.machine, estimated.step.level)
    for step in whole.values():
        yield measurement("all ops", "every op, alone", estimated.step, step, command)


def _fact_command(name: str) -> str:
    if name == "overhead/step/input":
        return f"fomkit measure --input loader.py {OUT} --add"
    return "" if name.startswith("overhead/") else f"fomkit measure --quick {OUT}"


def _of_facts(estimated: Estimate, options: Options, parameters: tuple[Parameter, ...]) -> Iterator[Measurable]:
    for parameter in parameters:
        if parameter.of == "machine" and parameter.has_interval:
            known = _known(estimated.machine, parameter.name)
            step = estimate(estimated.model, known, options).step
            yield measurement("fact", parameter.name, estimated.step, step, _fact_command(parameter.name))


def measurements(
    estimated: Estimate, options: Options, parameters: tuple[Parameter, ...], top: int = TOP
) -> ToMeasure:
    """Rank what could be measured on the machine by how much narrower the interval of the step would be.

    `estimated`: on the machine with its fits; `options`: those of the estimate; `parameters`: the facts of the
    machine whose spread may go; `top`: single ops to list. Gives a dict: ``measurements``, best first: kind (step,
    all ops, kind of op, op, fact), what, ``step_s`` with it known, ``shrinks`` [share of the width now], command;
    of an op its executions, share of the device's time, and the cells of a row of ops. ``no_spread_stated`` names
    facts whose measurement could only move the estimate; ``measurements_say`` what is left out.
    """
    command, now = measure_command(estimated.model, estimated.machine, options), estimated.step
    step = "fomkit profile model.py --measure step -o measured.yaml"
    found = [
        measurement("step", "a whole step", now, Span.exact(now.value, now.level), step),
        *_of_ops(estimated, command, top),
        *_of_facts(estimated, options, parameters),
    ]
    without = [one.name for one in parameters if one.of == "machine" and not one.has_interval]
    return ranked(found, without)
