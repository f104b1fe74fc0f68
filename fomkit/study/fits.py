"""Fits of a machine's timings: the shipped ones, else the user's cache, else made once and kept there.

``python -m fomkit.study machine_profiles/v100.yaml`` writes the fits that ship beside a table.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fomkit import __version__
from fomkit.costs import add_costs
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.profiles import load_fits, save_fits
from fomkit.study.lenders import with_lenders


def cache_folder() -> Path:
    """Give the folder of cached fits: ``FOMKIT_CACHE``, else ``fomkit`` in the user's cache folder."""
    base = os.environ.get("FOMKIT_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fomkit"


def fit(machine: Machine) -> dict[str, object]:
    """Fit a machine's timings."""
    from fomkit.predict.fit import fit_timings

    return fit_timings(add_costs(machine.as_built().timings))


def make_fits(machine: Machine, path: Path) -> dict[str, object]:
    """Fit a machine's timings and keep the fits at ``path``."""
    fits = fit(machine)
    save_fits(fits, path, machine.timings_key)
    return fits


def _cached_fits(machine: Machine, path: Path) -> dict[str, object]:
    """Read the cache, and fill it; a cache that cannot be used costs the time of a fit and nothing else."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = load_fits(path, machine.timings_key)
    except (OSError, FomkitError):
        known = {}
    if known:
        return known
    fits = fit(machine)
    with suppress(FomkitError):
        save_fits(fits, path, machine.timings_key)
    return fits


def with_fits(machine: Machine) -> Machine:
    """Give the machine with fits of its timings (`own_fits`), and with lenders where its table is short."""
    return with_lenders(own_fits(machine))


def own_fits(machine: Machine) -> Machine:
    """Give the machine with fits of its timings, made now if nobody has made them yet.

    A machine without timings, or with fits, comes back as it is. New fits are kept under the hash of the timings
    and facts, so a changed table is fitted anew.
    """
    if machine.fits or not len(machine.timings):
        return machine
    if not machine.timings_key:
        return replace(machine, fits=fit(machine))
    path = cache_folder() / f"fits-{__version__}-{machine.timings_key[:32]}.json"
    return replace(machine, fits=_cached_fits(machine, path))
