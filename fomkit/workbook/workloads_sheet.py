"""The sheet Workloads: what one run of each workload is, and the times that were given instead of estimated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.ledger import Ledger, Values, WorkloadFacts
from fomkit.quantities import DAY_S
from fomkit.workbook.cells import Formula, Value, known
from fomkit.workbook.layout import AS_ISSUED, CHANGED, GIVEN, RUN_KEYS, WORKLOADS, Placed
from fomkit.workbook.machines_sheet import MachineCells, state_of_inputs
from fomkit.workbook.page import Page

HOUR_S = 3600


@dataclass(frozen=True)
class WorkloadCells:
    """Where the workloads and the given times stand."""

    placed: Placed
    names: tuple[str, ...]
    given: Placed | None
    given_keys: tuple[tuple[str, str], ...]

    def at(self, workload: str, key: str) -> str:
        """Name a cell of a workload."""
        return self.placed.at(key, self.names.index(workload))

    def given_at(self, workload: str, machine: str, key: str) -> str:
        """Name a cell of a given time."""
        if self.given is None:
            raise KeyError(workload)
        return self.given.at(key, self.given_keys.index((workload, machine)))


def run_values(one: WorkloadFacts) -> tuple[Value, ...]:
    """Give the conditions of a run in the order of their columns."""
    data, run = one.data, one.run
    numbers = (one.batch, data.train_samples, data.validation_samples)
    return (
        *(known(number) for number in numbers),
        data.last_batch,
        known(run.epochs),
        one.unit.runs,
        run.devices_per_run,
        one.weight,
    )


def _steps(samples: str, number: int) -> str:
    batch, last = (f"{WORKLOADS.letter(key)}{number}" for key in ("batch", "last_batch"))
    partial = f'IF(AND({last}="keep",MOD({samples},{batch})>0),1,0)'
    return f'IF(AND(ISNUMBER({samples}),ISNUMBER({batch})),QUOTIENT({samples},{batch})+{partial},"unknown")'


def _steps_value(samples: int | None, one: WorkloadFacts) -> float | str:
    if samples is None or one.batch is None:
        return known(None)
    full, rest = divmod(samples, one.batch)
    return full + (one.data.last_batch == "keep" and rest > 0)


def _row(number: int, one: WorkloadFacts) -> Iterator[Value]:
    values = run_values(one)
    yield from (one.name, one.title, one.unit.name, *values)
    yield from ("yes" if one.required else "no", one.category, one.basis, one.party)
    for key, samples in (("train", one.data.train_samples), ("validation", one.data.validation_samples)):
        yield Formula(_steps(f"{WORKLOADS.letter(key)}{number}", number), _steps_value(samples, one))
    yield from values
    pairs = [(f"{WORKLOADS.letter(key)}{number}", f"{WORKLOADS.letter(f'was_{key}')}{number}") for key in RUN_KEYS]
    yield Formula(state_of_inputs(pairs), AS_ISSUED)


def devices_formula(ledger: Ledger, machine: str, machines: MachineCells) -> str:
    """Write the number of devices at the scope of the ledger."""
    per_node, nodes = machines.si(machine, "devices per node"), machines.si(machine, "nodes")
    return {"device": "1", "node": per_node, "system": f"{per_node}*{nodes}"}[ledger.scope]


def up_share_formula(ledger: Ledger, machine: str, machines: MachineCells) -> str:
    """Write the factor by which a system that is down at times does less; "" at other scopes."""
    return f"*{machines.si(machine, 'availability')}" if ledger.scope == "system" else ""


def _given_row(
    number: int, key: tuple[str, str], ledger: Ledger, values: Values, machines: MachineCells
) -> Iterator[Value]:
    one, machine = ledger.workload(key[0]), key[1]
    facts, given, rate = ledger.machine(machine), one.given[machine].unit_s, values.unit_per_day[key]
    hours, *ends = (float(f"{end / HOUR_S:.15g}") for end in (given.value, given.low, given.high))
    at_once = facts.devices(ledger.scope) * (facts.availability if ledger.scope == "system" else 1.0)
    cell = {column.key: f"{GIVEN.letter(column.key)}{number}" for column in GIVEN.columns}
    yield from (*key, hours)
    for end in ends:
        yield Formula(cell["hours"], hours, is_input=True) if end == hours else end
    yield from (one.given[machine].basis, one.given[machine].party, one.given[machine].source)
    count = devices_formula(ledger, machine, machines) + up_share_formula(ledger, machine, machines)
    yield Formula(count, at_once)
    for divisor, rated in zip(("hours", "high", "low"), (rate.value, rate.low, rate.high), strict=True):
        yield Formula(f"{DAY_S:.0f}*{cell['at_once']}/({cell[divisor]}*{HOUR_S})", rated)
    yield from (hours, *ends, rate.value)
    pairs = [(cell["hours"], cell["was"]), (cell["low"], cell["was_low"]), (cell["high"], cell["was_high"])]
    same = ",".join(f"{now}={was}" for now, was in pairs)
    changed = f'COUNTIF({machines.states(machine)},"{CHANGED}")'
    yield Formula(f'IF(AND({same},{changed}=0),"{AS_ISSUED}","{CHANGED}")', AS_ISSUED)


def write_workloads(page: Page, ledger: Ledger, values: Values, machines: MachineCells) -> WorkloadCells:
    """Write the workloads and, where there are any, the given times."""
    page.line("What one run of each workload is. Grey cells are set: a change of one is a deviation, and said so.")
    page.gap()
    first = page.first_row()
    rows = [list(_row(first + index, one)) for index, one in enumerate(ledger.workloads)]
    placed = page.table(WORKLOADS, rows)
    keys = tuple((one.name, machine) for one in ledger.workloads for machine in one.given)
    given = None
    if keys:
        first = page.first_row()
        given = page.table(
            GIVEN,
            [list(_given_row(first + index, key, ledger, values, machines)) for index, key in enumerate(keys)],
            conditions={index for index, (_, machine) in enumerate(keys) if machine not in ledger.targets},
        )
    return WorkloadCells(placed, tuple(one.name for one in ledger.workloads), given, keys)
