"""Fits of a machine's timings: the shipped ones, else the user's cache, else made once and kept there.

``python -m fomkit.study machine_profiles/v100.yaml`` writes the fits that ship beside a table. Beside any other
profile nobody's fits are read: who made them is unknown.
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
from fomkit.predict.kept import kept
from fomkit.profiles import load_fits, save_fits
from fomkit.profiles.fits import fit_key
from fomkit.profiles.locate import is_shipped
from fomkit.study.lenders import with_lenders
from fomkit.study.plausible import without_implausible


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
    """Fit a machine's timings, without those that cannot be, and keep the fits by the whole table's key."""
    fits = fit(without_implausible(machine))
    save_fits(fits, path, fit_key(machine.as_built().timings))
    return fits


def write_fits(machine: Machine, path: Path) -> list[Path]:
    """Fit the timings of a profile just written at ``path``, so that nobody waits for it later.

    Returns
    -------
    list of Path
        The file beside a profile of those that come with fomkit. Of any other it is empty: fits beside it are not
        read, theirs are in the user's cache.
    """
    if not len(machine.timings):
        return []
    beside = path.with_name(f"{path.stem}.fits.json")
    if not is_shipped(beside, "machine_profiles"):
        own_fits(machine)
        return []
    make_fits(machine, beside)
    return [beside]


def _cached_fits(machine: Machine, key: str) -> dict[str, object]:
    """Read the cache, and fill it; a cache that cannot be used costs the time of a fit and nothing else."""
    path = cache_folder() / f"fits-{__version__}-{key[:32]}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = load_fits(path, key)
    except (OSError, FomkitError):
        known = {}
    if known:
        return known
    fits = fit(machine)
    with suppress(FomkitError):
        save_fits(fits, path, key)
    return fits


def with_fits(machine: Machine) -> Machine:
    """Give the machine with fits of its timings (`own_fits`), and with lenders where its table is short."""
    return with_lenders(own_fits(machine))


def own_fits(machine: Machine) -> Machine:
    """Give the machine with fits of its timings, made now if nobody has made them yet.

    Timings that cannot be are left out first (`fomkit.study.plausible`). A machine without timings has no fits.
    Fits that it brings along hold only for the timings that they were made of (``timings_key``): of a table that
    was put in their place since, new ones are made, and kept in the user's cache under the hash of its content.
    """
    machine = without_implausible(machine)
    timings = machine.timings
    if not len(timings):
        return replace(machine, fits={}, timings_key="") if machine.fits else machine
    key = kept(timings, machine.origin, "fit key", lambda: fit_key(machine.as_built().timings))
    if machine.fits and machine.timings_key == key:
        return machine
    fits = kept(timings, machine.origin, "fits", lambda: _cached_fits(machine, key))
    return replace(machine, timings_key=key, fits=fits)
