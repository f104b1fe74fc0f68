"""Other machines' tables for a machine that has timed a few ops of a kind only."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from fomkit.costs import add_costs
from fomkit.hardware import Machine
from fomkit.predict.borrow import FEWEST, KINDS, MOST
from fomkit.predict.families import families, training_rows
from fomkit.predict.kept import kept
from fomkit.profiles import load_machine
from fomkit.profiles.locate import shipped_folder


def is_short(machine: Machine) -> bool:
    """Tell whether a machine's table has a family of so few ops that other machines may tell more of it."""
    some = machine.timings[machine.timings["kind"].isin(KINDS)].reset_index(drop=True)
    return any(FEWEST <= len(training_rows(some, name)) <= MOST for name, _ in families(some))


@cache
def shipped_lenders() -> tuple[Machine, ...]:
    """Load the shipped machines that have fits of such kinds of their own."""
    from fomkit.study.fits import own_fits  # which lends from here

    found = (load_machine(path) for path in sorted(shipped_folder("machine_profiles").glob("*.yaml")))
    lending = (one for one in found if not one.device_of and one.timings["kind"].isin(KINDS).any())
    fitted = map(own_fits, lending)
    return tuple(one for one in fitted if any(key.partition("/")[0] in KINDS for key in one.fits))


@cache
def _others(*names: str) -> tuple[Machine, ...]:
    return tuple(one for one in shipped_lenders() if one.name not in names)


def with_lenders(machine: Machine) -> Machine:
    """Give a machine with a short table the shipped machines to borrow from, and its timings their costs.

    A machine without such a table comes back as it is.
    """
    timings = machine.timings
    if machine.lenders or not len(timings) or not kept(timings, None, "is short", partial(is_short, machine)):
        return machine
    costed = kept(timings, None, "costed", partial(add_costs, timings))
    return replace(machine, timings=costed, lenders=_others(machine.name, machine.device_of))
