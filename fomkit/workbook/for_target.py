"""The copy of a ledger that one vendor may see: its own machine, the work, and the baseline's units a day.

Nothing is looked for in texts. `SEEN` lists the fields that go along as they are, of the target's records and of
the work; what other records say is left out, or made anew from figures of the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Device, Machine
from fomkit.ledger import Case, Given, Ledger, OpLine, WorkloadFacts, evaluate
from fomkit.quantities import DAY_S
from fomkit.spans import Span

Record = TypeVar("Record")
BASELINE = "baseline"
SEEN: Mapping[type, tuple[str, ...]] = {
    Ledger: ("title", "scope", "level", "mean", "threshold", "worst_basis", "uses"),
    Machine: (
        "name", "title", "party", "device", "timings", "node_devices", "system_nodes", "availability", "overheads",
    ),
    WorkloadFacts: (
        "name", "title", "batch", "data", "run", "unit", "weight", "required", "category", "basis", "party",
    ),
    Case: ("workload", "machine", "precision", "excludes", "unfit", "deviations"),
    OpLine: (
        "op", "kind", "sizes", "dtype", "engine", "pass_name", "count", "launches", "flop", "byte", "time_source",
        "bound", "utilisation", "starts", "time_s", "low", "high", "dimensions",
    ),
}  # fmt: skip
"""Fields that the target may see as they are, by record; every other field keeps its default or is made anew."""
_MADE_WITH = ("framework", "version", "mode", "parameters")
"""What of a model's making goes along; the device that it ran on may be somebody else's."""
_OWN_TABLE = ("measured", "interpolated", "extrapolated", "assumed")
"""Time sources that name rows of the machine's own table and nothing else."""


def _allowed(record: Record, **own: object) -> Record:
    kept = {name: getattr(record, name) for name in SEEN[type(record)]}
    return cast("Record", cast("Any", type(record))(**kept, **own))


def _nameless(ledger: Ledger) -> Machine:
    """Give the machine to compare with: one device that does all its units of work."""
    timings = ledger.machines[0].timings
    title = "the machine that the suite compares with, known by its units a day"
    return Machine(BASELINE, title, "lab", Device(), timings, node_devices=1, system_nodes=1)


def _workload(one: WorkloadFacts, target: str, rate: Span | None) -> WorkloadFacts:
    times = {
        name: Given(time.unit_s, time.basis, time.party) for name, time in one.given.items() if name == target
    }
    if rate is not None:
        times[BASELINE] = Given(
            rate.per(DAY_S), one.basis or "modelled", "lab", "the lab's figure for the baseline"
        )
    made_with = tuple((key, said) for key, said in one.made_with if key in _MADE_WITH)
    return _allowed(one, given=times, made_with=made_with)


def _evidence(line: OpLine) -> str:
    """Say what an op's time rests on; where other machines may be part of it, from the target's figures alone."""
    if line.time_source in ("", *_OWN_TABLE):
        return line.evidence
    op = f"{line.kind}/{line.engine}"
    if line.utilisation is None:
        return f"carried over by the lab from what timed machines take for {op}"
    if line.time_source == "roofline":
        return f"rates of this machine; utilisation {line.utilisation:.2g}, usual for {op} on timed machines"
    return f"carried over from timed ops; comes to a utilisation of {line.utilisation:.2g} here"


def _case(case: Case) -> Case:
    return _allowed(case, ops=tuple(_allowed(line, evidence=_evidence(line)) for line in case.ops))


def for_target(ledger: Ledger, target: str) -> Ledger:
    """Leave out everything that belongs to other machines; of the baseline its units a day stay, without its name.

    Raises
    ------
    FomkitError
        When the machine is no target, or is called as the machine to compare with is called in copies.
    """
    if target not in ledger.targets:
        raise FomkitError(f"--for {target}", f"is no target here. {nearest_names(target, ledger.targets)}")
    if target == BASELINE:
        said = "is what copies call the machine to compare with. Give the target another name in its profile."
        raise FomkitError(f"--for {target}", said)
    values, old = evaluate(ledger), ledger.baseline
    rates = {one.name: values.unit_per_day.get((one.name, str(old))) for one in ledger.workloads}
    rated = any(rate is not None for rate in rates.values())
    own = _allowed(ledger.machine(target))
    return _allowed(
        ledger,
        machines=(own, _nameless(ledger)) if rated else (own,),
        workloads=tuple(_workload(one, target, rates[one.name]) for one in ledger.workloads),
        cases=tuple(_case(one) for one in ledger.cases if one.machine == target),
        targets=(target,),
        baseline=BASELINE if rated else None,
        widened=tuple(name for name in ledger.widened if name == target),
        deviations=tuple(one for one in ledger.deviations if one[0] == target),
        caveats=tuple(one for one in ledger.caveats if one[0] in ("", target)),
        rounds=tuple(one for one in ledger.rounds if one[0] == target),
    )
