"""Fits of a machine's timings: the shipped ones, else the user's cache, else made once and kept there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import fomkit
from fomkit.costs import add_costs
from fomkit.machine import Machine
from fomkit.profiles import load_fits, save_fits


def cache_folder() -> Path:
    """Give the folder of cached fits: ``FOMKIT_CACHE``, else ``fomkit`` in the user's cache folder."""
    base = os.environ.get("FOMKIT_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fomkit"


def with_fits(machine: Machine) -> Machine:
    """Give the machine with fits of its timings, made now if nobody has made them yet.

    A machine without timings, or with fits, comes back as it is. New fits are kept under the hash of the timings
    and facts, so a changed table is fitted anew.
    """
    if machine.fits or not len(machine.timings):
        return machine
    path = cache_folder() / f"fits-{fomkit.__version__}-{machine.timings_key[:32]}.json"
    fits = load_fits(path, machine.timings_key)
    if not fits:
        from fomkit.predict.fit import fit_timings

        fits = fit_timings(add_costs(machine.timings))
        path.parent.mkdir(parents=True, exist_ok=True)
        save_fits(fits, path, machine.timings_key)
    return replace(machine, fits=fits)
