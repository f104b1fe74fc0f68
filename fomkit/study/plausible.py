"""The plausibility stage: each machine is held against itself once, before anything is answered from it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fomkit.costs import add_costs
from fomkit.hardware import Machine, Plausibility
from fomkit.predict.kept import kept
from fomkit.predict.plausibility import judge_facts, judge_timings
from fomkit.profiles.fits import fit_key
from fomkit.schema import COSTS, check_table
from fomkit.study.device_kind import device_kind

if TYPE_CHECKING:
    import pandas as pd


def _judge(given: pd.DataFrame, machine: Machine) -> Plausibility:
    """Check a machine's table, price it, and find the rows that cannot be."""
    made = [column.name for column in COSTS] + [name for name in given.columns if str(name).startswith("_")]
    plain = given.drop(columns=made, errors="ignore").reset_index(drop=True)
    check_table(plain, "TIMINGS", f"{machine.name}: timings")
    costed, stated = add_costs(plain, checked=True), machine.stated_rows().to_numpy(bool)
    kind, named = device_kind(machine), dict[int, str]()
    suspicions = list(judge_facts(machine.device, machine.name, refuse=machine.origin is None))
    # Rows that were stated for a changed machine are held against the change, all others against the origin.
    for own, device in ((~stated, machine.origin or machine.device), (stated, machine.device)):
        if own.any():
            places = np.flatnonzero(own)
            found = judge_timings(costed[own], replace(machine, device=device), kind)
            suspicions += found.suspicions
            named |= {int(places[at]): text for at, text in found.why.items()}
    left = given.drop(index=given.index[list(named)]).reset_index(drop=True) if named else given
    return Plausibility(tuple(named.values()), tuple(suspicions), given, left, machine.device)


def verdict_on(machine: Machine, most: int = 1, *, named: bool = True) -> tuple[str, ...]:
    """Write what `without_implausible` found of a machine, listing so many of the timings left out."""
    found = machine.plausibility
    return () if found is None else found.messages(machine.name if named else "", most)


def without_implausible(machine: Machine) -> Machine:
    """Give the machine without the timings that cannot be, and with what was found (`Plausibility`).

    Every answer passes here, of machines from files as of those made in Python. A table is judged once; a machine
    with other timings or facts is judged anew, all of its rows.

    Raises
    ------
    ManyFomkitError
        When a column of its timings holds what it may not.
    FomkitError
        When timings or facts cannot be as a whole.
    """
    known = machine.plausibility
    if known is not None and known.is_of(machine):
        return machine
    given = known.given if known is not None and machine.timings is known.left else machine.timings
    if not len(given):
        found = Plausibility(
            (),
            judge_facts(machine.device, machine.name, refuse=machine.origin is None),
            given,
            given,
            machine.device,
        )
        return replace(machine, plausibility=found)
    whole = replace(machine, timings=given)
    found = kept(given, machine.device, f"plausibility of {machine.name}", partial(_judge, given, whole))
    if found.left is machine.timings:
        return replace(machine, plausibility=found)
    left = replace(machine, timings=found.left, plausibility=found)
    # Fits that come with a table were made without the rows that cannot be (`fomkit.study.fits.make_fits`).
    fits = machine.fits if machine.timings_key == fit_key(whole.as_built().timings) else {}
    return replace(left, fits=fits, timings_key=fit_key(left.as_built().timings))
