"""The copy of a ledger that one vendor may see: its own machine, and what it is compared with without a name."""

from __future__ import annotations

from dataclasses import replace

from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Device, Machine
from fomkit.ledger import Given, Ledger, WorkloadFacts, evaluate
from fomkit.profiles.locate import profile_names
from fomkit.quantities import DAY_S
from fomkit.spans import Span
from fomkit.workbook.nameless import without_names

BASELINE = "baseline"


def _nameless(ledger: Ledger) -> Machine:
    """Give the machine to compare with: one device that does all its units of work."""
    timings = ledger.machines[0].timings
    title = "the machine that the suite compares with, known by its units a day"
    return Machine(BASELINE, title, "lab", Device(), timings, node_devices=1, system_nodes=1)


def _given(one: WorkloadFacts, target: str, rate: Span | None) -> WorkloadFacts:
    own = {name: replace(time, source="") for name, time in one.given.items() if name == target}
    if rate is not None:
        own[BASELINE] = Given(rate.per(DAY_S), one.basis or "modelled", "lab", "the lab's figure for the baseline")
    return replace(one, given=own)


def for_target(ledger: Ledger, target: str) -> Ledger:
    """Leave out everything that belongs to other machines; of the baseline its units a day stay, without its name.

    Raises
    ------
    FomkitError
        When the machine is no target.
    """
    if target not in ledger.targets:
        raise FomkitError(f"--for {target}", f"is no target here. {nearest_names(target, ledger.targets)}")
    values, old = evaluate(ledger), ledger.baseline
    rates = {one.name: values.unit_per_day.get((one.name, str(old))) for one in ledger.workloads}
    rated = any(rate is not None for rate in rates.values())
    own = replace(ledger.machine(target), notes=())
    others = {*(one.name for one in ledger.machines), *profile_names("machine_profiles")} - {target, BASELINE}
    shown = replace(
        ledger,
        machines=(own, _nameless(ledger)) if rated else (own,),
        workloads=tuple(_given(one, target, rates[one.name]) for one in ledger.workloads),
        widened=tuple(name for name in ledger.widened if name == target),
        cases=tuple(one for one in ledger.cases if one.machine == target),
        targets=(target,),
        baseline=BASELINE if rated else None,
        deviations=tuple(one for one in ledger.deviations if one[0] == target),
        notes=(),
        rounds=tuple(said for said in ledger.rounds if said.startswith(f"{target}:")),
    )
    # What an op's time rests on may name the machines that it was told from.
    return without_names(shown, others)
