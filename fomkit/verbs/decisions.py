"""The Python interface of decisions: sensitivity, the smallest change that reaches a goal, sweeps, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.job import Layout
from fomkit.core.machine import Link, Machine, Scope
from fomkit.core.model import ModelProfile
from fomkit.core.units import Precision
from fomkit.plan.options import Options
from fomkit.plan.stack import parse_once
from fomkit.profiles.campaigns import load_epochs
from fomkit.profiles.declared import parse_grid, parse_layout, parse_link, parse_price
from fomkit.profiles.models import load_model
from fomkit.profiles.suites import load_suite
from fomkit.verbs.answer import check_options, options_of, spread_as
from fomkit.verbs.cost import Cost, Declared
from fomkit.verbs.cost import cost as _cost
from fomkit.verbs.profiles import as_machine, as_model
from fomkit.whatif.sweep import make_sweep
from fomkit.whatif.sweep_axes import Way
from fomkit.whatif.sweep_result import Swept, run_sweep

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.whatif.cases import Subject
    from fomkit.whatif.sensitivity import Sensitivity
    from fomkit.whatif.solve import Solution
    from fomkit.whatif.sweep_axes import Given


def subject_of(
    model: str | Path | ModelProfile | None, target: Machine, suite: str | Path | None,
    baseline: str | Path | Machine | None, options: Options, nodes: int | None = None,
    layout: Layout | None = None, links: Sequence[Link] = (), node_devices: int | None = None,
) -> Subject:  # fmt: skip
    """Load what is asked of: a model on the target or on nodes of it, or the FOM of a suite."""
    from fomkit.plan.scaling import with_links
    from fomkit.readers.measurements import all_measured
    from fomkit.whatif.node_cases import subject_of_model, subject_of_suite

    if model is not None and suite is None:
        return subject_of_model(as_model(model), with_links(target, links, node_devices), options, nodes, layout)
    if suite is None or model is not None:
        raise FomkitError("model", "or suite: give one of them, not both or neither.")
    lines = load_suite(suite)
    old = as_machine(lines.baseline if baseline is None else baseline, "baseline")
    return subject_of_suite(lines, old, target, options, load_model, all_measured()[0])


def _subject(
    model: str | Path | ModelProfile | None, machine: str | Path | Machine, suite: str | Path | None,
    baseline: str | Path | Machine | None, nodes: int | None, layout: str, links: Sequence[str], options: Options,
) -> Subject:  # fmt: skip
    of_nodes = [name for name, value in (("nodes", nodes), ("layout", layout), ("links", links)) if value]
    if suite is not None and of_nodes:
        raise FomkitError("suite", f"and {', '.join(of_nodes)} do not go together. Ask of a model.")
    if suite is None and baseline is not None:
        raise FomkitError("baseline", "is the machine that a suite's FOM is over. Add suite, or leave it out.")
    spread = parse_layout([layout]) if layout else None
    return subject_of(
        model, as_machine(machine), suite, baseline, options, nodes, spread, [*map(parse_link, links)]
    )


def sensitivity(
    model: str | Path | ModelProfile | None,
    machine: str | Path | Machine,
    *,
    suite: str | Path | None = None,
    baseline: str | Path | Machine | None = None,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
    nodes: int | None = None,
    layout: str = "",
    links: Sequence[str] = (),
    allow_uncovered: bool = False,
) -> Sensitivity:
    """Tell what the units/day of a model, or the FOM of a suite, hang on.

    Parameters
    ----------
    model : name, path or profile
        None where a suite is asked of.
    machine : name, path or profile
    suite : name or path, optional
        Its FOM is asked of; its lines fix batch, sizes, precision and scope.
    baseline : name, path or profile, optional
        Of a suite; default: its own.
    batch, sizes, precision, interval, scope, allow_uncovered
        As of `estimate`.
    nodes : int, optional
        Ask of a training on so many nodes, the batch that of one replica.
    layout, links : str, sequence of str, optional
        Of nodes, in the words of the command line: ``"zero=1,clip"``, ``["system, 5 us, 25 GB/s, each"]``.

    Returns
    -------
    Sensitivity
        ``table()`` has one row for each parameter, the largest swing first; ``chart()`` is the tornado,
        ``to_measure`` what to measure first, ``content`` everything, ``summary()`` the text.

    Raises
    ------
    FomkitError
        When a profile is unknown, options do not go together, or there is no estimate.

    Examples
    --------
    >>> found = sensitivity("p1b3-lecture", "x86-lecture")
    >>> slopes = {one.parameter.name: one.elasticity["unit_per_day"] for one in found.effects}
    >>> round(slopes["epochs"], 9)  # twice the epochs, half the runs a day
    -1.0
    """
    from fomkit.whatif.sensitivity import sensitivity as _sensitivity

    options = options_of(batch, interval, scope, None, allow_uncovered, sizes, precision)
    return _sensitivity(_subject(model, machine, suite, baseline, nodes, layout, links, options))


def solve(
    model: str | Path | ModelProfile | None,
    machine: str | Path | Machine,
    *,
    unit_per_day: float | None = None,
    step_s: float | None = None,
    fom: float | None = None,
    probability: float = 0.5,
    change: Sequence[str] = (),
    frontier: Sequence[str] = (),
    suite: str | Path | None = None,
    baseline: str | Path | Machine | None = None,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
    nodes: int | None = None,
    layout: str = "",
    links: Sequence[str] = (),
    allow_uncovered: bool = False,
) -> Solution:
    """Find the smallest change that reaches a target: of each parameter alone, or of several together.

    Parameters
    ----------
    unit_per_day, step_s, fom : float
        The target, one of them: at least so many units a day, a step of at most [s], at least this FOM.
    probability : float
        With which it is to be reached, between 0 and 1; 0.5 asks it of the value itself.
    change, frontier : sequence of str
        Parameters to change, each alone (default: each), or two or more together; the names of `sensitivity`.
    model, machine, suite, baseline, batch, sizes, precision, interval, scope,
    nodes, layout, links, allow_uncovered
        As of `sensitivity`.

    Returns
    -------
    Solution
        ``reached``, ``changes`` (the smallest first, then those out of reach and why), ``frontier``, ``content``
        and ``summary()``. That nothing reaches the target is an answer.

    Raises
    ------
    FomkitError
        When the target, the probability or a parameter cannot be.

    Examples
    --------
    >>> found = solve("p1b3-lecture", "x86-lecture", unit_per_day=3.0, change=["epochs"])
    >>> found.changes[0].value, round(found.changes[0].figure.value, 3)  # 1.879 a day at 20 epochs
    (12.0, 3.132)
    """
    from fomkit.whatif.cases import make_goal
    from fomkit.whatif.solve import solve as _solve

    goal = make_goal(unit_per_day=unit_per_day, step_s=step_s, fom=fom, probability=probability)
    options = options_of(batch, interval, scope, None, allow_uncovered, sizes, precision)
    return _solve(_subject(model, machine, suite, baseline, nodes, layout, links, options), goal, change, frontier)


def scenarios(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    points: pd.DataFrame | Mapping[str, Sequence[float]],
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
    allow_uncovered: bool = False,
) -> pd.DataFrame:
    """Estimate a model on a machine at points of your own: one row each in, one row each out.

    Parameters
    ----------
    points : DataFrame or mapping of columns
        Columns are the parameters of `sweep` in SI units: sizes such as ``batch``, ``byte_per_s``, ``launch_s``,
        ``flop_per_s/DTYPE/ENGINE``, ``nodes``, ``epochs``, ``overhead/PER/NAME``. What has no column stays as it
        is.
    model, machine, batch, sizes, precision, interval, scope, allow_uncovered
        As of `fomkit.estimate`.

    Returns
    -------
    DataFrame
        The points with step_s [s], sample_per_s [1/s] and unit_per_day [1/day], each with _low and _high, NaN
        where the profile does not say; ``basis``, measured or modelled; and ``why``, the reason why a point has no
        figures, "" where it has.

    Raises
    ------
    FomkitError
        When a column is no parameter, or the model or the machine cannot be had.

    Examples
    --------
    >>> found = scenarios("p1b3-lecture", "x86-lecture", {"epochs": [20, 10]})
    >>> found["unit_per_day"].round(3).tolist()
    [1.879, 3.759]
    """
    import pandas as pd

    from fomkit.plan.scenarios import prepare_study
    from fomkit.plan.scenarios import scenarios as _scenarios

    check_options(batch=batch, sizes=sizes, interval=interval, scope=scope)
    options = Options(batch, interval, scope, None, allow_uncovered, sizes or {}, precision)
    return _scenarios(prepare_study(as_model(model), as_machine(machine), options), pd.DataFrame(points))


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
    options = options_of(batch, interval, scope, None, allow_uncovered, sizes, precision)
    profile, target = as_model(model), as_machine(machine)
    spec = make_sweep(profile, target, vary, way=way, points=points, seed=seed, options=options)
    return run_sweep(spec, scheduler)


def cost(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    *,
    price: str | None = None,
    once: Mapping[str, str] | None = None,
    to_accuracy: str | Path | None = None,
    carbon: str | None = None, to_wall: str | None = None, pue: str | None = None,
    infer_batch: int | None = None,
    batch: int | None = None, interval: float = DEFAULT_LEVEL, scope: Scope | None = None,
    nodes: int | Literal["fill"] | None = None, layout: str | Path = "", links: Sequence[str | Link] = (),
    node_devices: int | None = None,
) -> Cost:  # fmt: skip
    """Tell what a training and its inference cost; texts are those of the command line (docs/cost.md).

    Parameters
    ----------
    model, machine : name, path or profile
    price : str, optional
        With currency, date and what it is of: ``"4.56 USD/h per node, 2018-04-01"``.
    once : mapping, optional
        What a job takes once, by name: a time or a share, as text.
    to_accuracy : path, optional
        A table of epochs to a quality by batch.
    carbon, to_wall, pue : str, optional
        Of the grid: carbon per energy, chip to wall, and the building's overhead.
    infer_batch : int, optional
        Samples of one inference; default: the step's.
    batch, interval, scope, nodes, layout, links, node_devices
        As of `fomkit.estimate`.

    Returns
    -------
    Cost
        Its ``estimate``, ``run_money``, ``inference`` (an estimate too), ``to_target``; ``content`` is everything.

    Raises
    ------
    FomkitError
        When a text lacks its unit, currency, date or source, or the curve does not cover the batch.

    Examples
    --------
    >>> found = cost("p1b3-lecture", "x86-lecture", price="4.56 USD/h per node, 2018-04-01")
    >>> round(found.run_money.value, 2)  # 12.770 h
    58.23
    """
    check_options(batch=batch, sizes={"infer_batch": infer_batch}, interval=interval, scope=scope)
    options = Options(batch=batch, interval=interval, scope=scope)
    stated = parse_once([f"{name}={amount}" for name, amount in (once or {}).items()])
    declared = Declared(
        parse_price(price) if price is not None else None, stated, parse_grid(carbon, to_wall, pue),
        load_epochs(Path(to_accuracy)) if to_accuracy is not None else None, infer_batch,
    )  # fmt: skip
    spread = spread_as(nodes, [str(layout)] if layout else [], links, node_devices)
    return _cost(as_model(model), as_machine(machine), options, declared, None, spread)
