"""How much of what was measured of a model the device's work explains: the rest is what nobody stated."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.measurement import Measurement
from fomkit.quantities import format_number, format_quantity
from fomkit.study.conditions import fixed_conditions, under_conditions
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.measured_steps import explained_share, mismatch, quantity_of
from fomkit.study.options import Options
from fomkit.study.rated_lines import Load, RatedLine
from fomkit.workload import ModelProfile

ENOUGH = 0.5
"""Share of a measured time from which on a verdict may rest on the device's work: it is then the larger part."""
COMPARABLE = 1 / 3
"""Share from which on a projected time may be held against the measured one (`fomkit.compare`): less than
``ENOUGH``, because this decides nothing, and a projection may be too short by its own error as well."""


@dataclass(frozen=True)
class Explained:
    """The measured run of a line of which the device explains least.

    Attributes
    ----------
    line : str
        Of a suite, else the model.
    machine : str
    share : float
        The projected time over the measured one.
    said : str
        The same in figures, with the source.
    """

    line: str
    machine: str
    share: float
    said: str


class MeasuredRuns(NamedTuple):
    """Runs that somebody measured, and what gives the machine of a name that they ran on."""

    rows: Sequence[Measurement]
    machine: Callable[[str], Machine]


NOTHING_MEASURED = MeasuredRuns((), dict[str, Machine]().__getitem__)


def _amount(value: float, quantity: str) -> str:
    return f"{format_number(value)} samples/s" if quantity == "sample_per_s" else format_quantity(value, "time_s")


def _explained(line: str, row: Measurement, one: Estimate) -> Explained | None:
    """Hold a row against the estimate of its model on its machine; None where it is no measurement of it."""
    if row.quantity == "energy_j" or mismatch(row, replace(one, scope="device")):
        return None
    if row.quantity == "latency_s" and set(one.step_time.passes) != {"forward"}:
        return None
    projected = quantity_of(one, row.quantity)
    share = explained_share(row.quantity, projected, row.value)
    if share is None or projected is None:
        return None
    took, takes = (_amount(figure, row.quantity) for figure in (row.value, projected.value))
    said = (
        f"{row.model} on {row.machine}: {row.quantity} measured {took}, of the device's work {takes}: {share:.1%} "
        f"of the time ({row.source or 'no source stated'})"
    )
    return Explained(line, row.machine, share, said)


@dataclass(frozen=True)
class _Case:
    """A line's model under the line's conditions, estimated machine by machine as it is asked for."""

    line: str
    model: ModelProfile
    options: Options
    known: dict[str, Estimate | None]

    def on(self, name: str, load: Callable[[str], Machine]) -> Estimate | None:
        """Estimate it on a machine; None where that cannot be."""
        if name not in self.known:
            try:
                self.known[name] = estimate(self.model, load(name), self.options)
            except FomkitError:
                self.known[name] = None
        return self.known[name]

    def held_against(self, rows: Sequence[Measurement], load: Callable[[str], Machine]) -> Iterator[Explained]:
        """Give what is explained of each row that is a measurement of it."""
        for row in rows:
            one = self.on(row.machine, load)
            found = None if one is None else _explained(self.line, row, one)
            if found is not None:
                yield found


def _case(machines: Sequence[Machine], rated: Sequence[RatedLine], load: Load) -> _Case | None:
    """Give the case of a line that is modelled on one machine at least; None of others."""
    line = rated[0].line
    if line.model is None or not any(one.is_modelled for one in rated):
        return None
    known: dict[str, Estimate | None] = {
        machine.name: one.estimate
        for machine, one in zip(machines, rated, strict=True)
        if one.estimate is not None
    }
    model = load(line.model)
    fixed = fixed_conditions(line.conditions, model)
    options = Options(batch=fixed.batch, sizes=fixed.sizes, precision=fixed.precision)
    return _Case(line.name, under_conditions(model, fixed), options, known)


def _least(case: _Case, own: Mapping[str, Machine], measured: MeasuredRuns) -> Iterator[Explained]:
    """Give the measured run of which least is explained; nothing where nobody measured one."""

    def machine_of(name: str) -> Machine:
        return own[name] if name in own else measured.machine(name)

    about = [row for row in measured.rows if row.model == case.model.name]
    here = [row for row in about if row.machine in own]
    told = [*case.held_against(here, machine_of)] or [*case.held_against(about, machine_of)]
    if told:
        yield min(told, key=lambda one: one.share)


def explained_lines(
    machines: Sequence[Machine],
    sides: Sequence[Sequence[RatedLine]],
    measured: MeasuredRuns,
    load: Load,
) -> tuple[Explained, ...]:
    """Tell of each modelled line how much of its measured runs the device's work explains, the least of them.

    Runs on these machines are what counts; where nobody measured one there, those on other machines do.

    Parameters
    ----------
    machines : sequence of Machine
        Such as baseline and target.
    sides : sequence of sequences of RatedLine
        Line by line on each.
    measured : MeasuredRuns
    load : function
        Gives the model profile of a name.
    """
    own = {machine.name: machine for machine in machines}
    cases = [_case(machines, rated, load) for rated in zip(*sides, strict=True)] if measured.rows else []
    return tuple(one for case in cases if case is not None for one in _least(case, own, measured))


def explained_models(
    estimates: Sequence[Estimate], options: Options, measured: MeasuredRuns, line: str = ""
) -> tuple[Explained, ...]:
    """Tell the same of each model that is estimated.

    Parameters
    ----------
    estimates : sequence of Estimate
        Of one model or more on one machine or more.
    options : Options
        What they were made with.
    measured : MeasuredRuns
    line : str
        What to call the only model instead of its name.
    """
    own = {one.machine.name: one.machine for one in estimates}
    models = {one.model.name: one.model for one in estimates}
    cases = [
        _Case(
            line or name,
            model,
            replace(options, scope=None),
            {one.machine.name: one for one in estimates if one.model.name == name},
        )
        for name, model in models.items()
    ]
    return tuple(one for case in cases for one in _least(case, own, measured))


def little_explained(found: Sequence[Explained], names: Container[str]) -> tuple[Explained, ...]:
    """Keep those, of the lines of some names, of which the device explains less than half."""
    return tuple(one for one in found if one.share < ENOUGH and one.line in names)
