"""The Python interface of what-if questions; `fomkit` offers them beside those of `fomkit.api`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.dtypes import Precision
from fomkit.hardware import Machine, Scope
from fomkit.profiles import load_machine, load_model
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import Options
from fomkit.study.asked import as_name, check_options
from fomkit.whatif.points import Way
from fomkit.whatif.sweep import make_sweep
from fomkit.whatif.sweep_result import Swept, run_sweep
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    from fomkit.whatif.sweep_axes import Given


def sweep(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    vary: Mapping[str, Given],
    *,
    way: Way = "grid",
    points: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
    allow_uncovered: bool = False,
    scheduler: str | None = None,
) -> Swept:
    """Estimate one model on one machine at many points of its parameters.

    Parameters
    ----------
    model, machine : name, path or profile
    vary : mapping
        Parameter to its values (docs/sweep.md): numbers in SI units, or text such as ``"0.5 TB/s..4 TB/s:8"``.
    way : str
        grid takes every combination; random and sobol draw ``points`` (default 4,096) from ``seed``.
    points, seed : int, optional
    batch, sizes, precision, interval, scope, allow_uncovered
        As of `fomkit.estimate`, at every point.
    scheduler : str, optional
        Address of a Dask scheduler whose workers do it, ``tcp://…``; the result is the same.

    Returns
    -------
    Swept
        Its ``table`` has one row for each point, its ``front`` those that no other betters; ``summary()`` is text.

    Raises
    ------
    FomkitError
        When a parameter is unknown, a value cannot be one, or there are too many points.

    Examples
    --------
    >>> swept = sweep("p1b3", "titan", {"batch": [50, 100], "byte_per_s": "125 GB/s..250 GB/s:2"})
    >>> len(swept.table), f"batch {swept.best['batch']:g} at {swept.best['byte_per_s']:.3g} byte/s"
    (4, 'batch 100 at 2.5e+11 byte/s')
    """
    check_options(batch=batch, sizes=sizes, interval=interval, scope=scope)
    profile = model if isinstance(model, ModelProfile) else load_model(as_name(model, "model"))
    target = machine if isinstance(machine, Machine) else load_machine(as_name(machine, "machine"))
    options = Options(batch, interval, scope, None, allow_uncovered, sizes or {}, precision)
    return run_sweep(
        make_sweep(profile, target, vary, way=way, points=points, seed=seed, options=options), scheduler
    )
