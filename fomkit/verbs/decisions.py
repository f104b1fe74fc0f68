"""Decisions: sensitivity, the smallest change that reaches a target, sweeps, and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Link, Machine, Scope
from fomkit.core.model import ModelProfile
from fomkit.core.units import Precision, parse_quantity
from fomkit.files.write import check_absent
from fomkit.plan.options import Options, check_counts, check_nodes, options_of
from fomkit.verbs.answer import checked, command, parts
from fomkit.verbs.profiles import as_machine, as_model

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.job import Layout
    from fomkit.verbs.cost import Cost
    from fomkit.whatif.sensitivity import Sensitivity
    from fomkit.whatif.solve import Solution
    from fomkit.whatif.subjects import AnySubject
    from fomkit.whatif.sweep import Sweep
    from fomkit.whatif.sweep_axes import Given
    from fomkit.whatif.sweep_result import Swept


def _subject(
    model: str | Path | ModelProfile | None, machine: str | Path | Machine, suite: str | Path | None,
    baseline: str | Path | Machine | None, options: Options, nodes: int | None, layout: str | Path | Sequence[str],
    links: Sequence[str | Link], node_devices: int | None, replica_batch: int | None,
) -> AnySubject:  # fmt: skip
    """Return what is varied: a model on the machine or on nodes of it, or the FOM of a suite."""
    from fomkit.profiles.models import load_model
    from fomkit.profiles.suites import load_suite
    from fomkit.readers.measurements import all_measured
    from fomkit.whatif.subjects import subject_of_model, subject_of_suite

    if (model is None) == (suite is None):
        none, both = "is missing. Give a model, or `suite`.", "and `suite` exclude each other. Give one of them."
        raise FomkitError("model", none if model is None else both)
    named = {"nodes": nodes, "layout": layout, "links": links, "node_devices": node_devices,
             "replica_batch": replica_batch}  # fmt: skip
    spread = [name for name, value in named.items() if value]
    if suite is not None and spread:
        raise FomkitError(
            "suite", f"and {', '.join(f'`{name}`' for name in spread)} exclude each other. Name a model."
        )
    if suite is None and baseline is not None:
        raise FomkitError("baseline", "is the baseline of a suite's FOM. Add `suite`, or leave it out.")
    target = as_machine(machine)
    if model is not None:
        stated, linked = _linked(target, layout, links, node_devices)
        nodes = stated.whole_nodes(linked.node_devices) if nodes is None and layout else nodes
        if nodes is None and spread:
            raise FomkitError(spread[0], "is for runs on nodes. Add `nodes`.")
        if nodes is not None:
            check_nodes(nodes)
        if replica_batch is not None and options.batch is not None:
            raise FomkitError("batch", "and `replica_batch` exclude each other. Give one of them.")
        known = as_model(model, batch=options.batch or replica_batch)
        return subject_of_model(known, linked, options, nodes, stated, replica_batch)
    lines = load_suite(suite or "")
    old = as_machine(lines.baseline if baseline is None else baseline, "baseline")
    return subject_of_suite(lines, old, target, options, load_model, all_measured()[0])


def _linked(
    machine: Machine, layout: str | Path | Sequence[str], links: Sequence[str | Link], node_devices: int | None
) -> tuple[Layout, Machine]:
    """Return the layout, and the machine with the stated links and devices per node."""
    from fomkit.plan.scaling import with_user_links
    from fomkit.profiles.declared import spread_of

    stated, more = spread_of(layout, links)
    return stated, with_user_links(machine, more, node_devices)


@command("varying parameters", judges_fit=True, draw=lambda found: found.chart())
def sensitivity(
    model: str | Path | ModelProfile | None, machine: str | Path | Machine, *, suite: str | Path | None = None,
    baseline: str | Path | Machine | None = None, batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None, scope: Scope | None = None,
    nodes: int | None = None, layout: str | Path | Sequence[str] = "", links: Sequence[str | Link] = (),
    node_devices: int | None = None, replica_batch: int | None = None, interval: float = DEFAULT_LEVEL,
    allow_uncovered: bool = False,
) -> Sensitivity:  # fmt: skip
    """Compute how units per day or a FOM depend on each parameter, and what to measure to know them better.

    The elasticity is the relative change of the result over that of the parameter, for a change of 1 %; a star
    marks a kink, where a smaller change gives another value. The swing is the change of the result between the
    bounds of the parameter's own interval, or between 10 % less and 10 % more. See docs/whatif.md.

    Parameters
    ----------
    model : name, path or profile
        Model profile by name or path; leave it out with --suite.
    machine : name, path or profile
    suite : name or path, optional
        Vary the FOM of this suite instead of a model; its lines fix batch, sizes, precision and scope.
    baseline : name, path or profile, optional
        With --suite: machine to compare with; default: the suite's.
    nodes : int, optional
        Vary a training on this many nodes, which share --batch.
    replica_batch : int, optional
        With --nodes: samples in one step of one replica, kept where nodes vary; default: its share of the batch.
    batch, sizes, precision, scope, layout, links, node_devices, interval, allow_uncovered
        As of `fomkit.estimate`.

    Returns
    -------
    Sensitivity
        ``table()`` has one row for each parameter, the largest swing first; ``chart()`` is the tornado chart,
        ``to_measure`` what to measure first, ``content`` everything, ``summary()`` the text.

    Raises
    ------
    FomkitError
        When a profile is unknown, options exclude each other, or there is no estimate.

    Examples
    --------
    >>> found = sensitivity("p1b3-lecture", "x86-lecture")
    >>> slopes = {one.parameter.name: one.elasticity["unit_per_day"] for one in found.effects}
    >>> round(slopes["epochs"], 9)  # twice the epochs, half the runs a day
    -1.0
    """
    from fomkit.whatif.sensitivity import sensitivity as _sensitivity

    options = options_of(batch, interval, scope, allow_uncovered, sizes, precision)
    spread = (nodes, layout, links, node_devices, replica_batch)
    return _sensitivity(_subject(model, machine, suite, baseline, options, *spread))


@command(
    "changing parameters",
    judges_fit=True,
    spelled={"unit_per_day": ("--units-per-day", "--unit-per-day")},
    metavar={"step": "TIME", "change": "NAME", "frontier": "NAME,NAME,…"},
)
def solve(
    model: str | Path | ModelProfile | None, machine: str | Path | Machine, *, unit_per_day: float | None = None,
    step: str | float | None = None, fom: float | None = None, probability: float = 0.5,
    change: Sequence[str] = (), frontier: str | Sequence[str] = (), suite: str | Path | None = None,
    baseline: str | Path | Machine | None = None, batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None, scope: Scope | None = None,
    nodes: int | None = None, layout: str | Path | Sequence[str] = "", links: Sequence[str | Link] = (),
    node_devices: int | None = None, replica_batch: int | None = None, interval: float = DEFAULT_LEVEL,
    allow_uncovered: bool = False,
) -> Solution:  # fmt: skip
    """Find the smallest change of a parameter, or of several together, that reaches a target.

    If none does, the reason is printed. The parameters are those of 'fomkit sensitivity'. See docs/whatif.md.

    Parameters
    ----------
    unit_per_day : float, optional
        Target: at least this many units of work per day.
    step : str or float, optional
        Target: a step time of at most this, for example '20 ms'; a number is in s.
    fom : float, optional
        Target, with --suite: a FOM of at least this.
    probability : float
        Probability of reaching the target, above 0 and below 1; 0.5: the estimated value itself must reach it.
    change : sequence of str
        Change only this parameter; may be repeated; default: each parameter alone.
    frontier : sequence of str
        Change these two or more parameters together, and list the frontier of combinations.
    model, machine, suite, baseline, batch, sizes, precision, scope, nodes, layout, links, node_devices,
    replica_batch, interval, allow_uncovered
        As of `fomkit.sensitivity`.

    Returns
    -------
    Solution
        ``reached``, ``changes`` (the smallest first, then those that cannot reach the target, and why),
        ``frontier``, ``content`` and ``summary()``.

    Raises
    ------
    FomkitError
        When the target, the probability or a parameter is invalid.

    Examples
    --------
    >>> found = solve("p1b3-lecture", "x86-lecture", unit_per_day=3.0, change=["epochs"])
    >>> found.changes[0].value, round(found.changes[0].figure.value, 3)  # 1.879 a day at 20 epochs
    (12.0, 3.132)
    """
    from fomkit.whatif.cases import make_goal, read_together
    from fomkit.whatif.solve import solve as _solve

    step_s = parse_quantity(step, "time_s", "step", "time") if isinstance(step, str) else step
    goal = make_goal(unit_per_day=unit_per_day, step_s=step_s, fom=fom, probability=probability)
    goal.check(of_suite=suite is not None)
    names = read_together(frontier)
    options = options_of(batch, interval, scope, allow_uncovered, sizes, precision)
    spread = (nodes, layout, links, node_devices, replica_batch)
    return _solve(_subject(model, machine, suite, baseline, options, *spread), goal, tuple(change), names)


@checked
def scenarios(
    model: str | Path | ModelProfile, machine: str | Path | Machine,
    points: pd.DataFrame | Mapping[str, Sequence[float]], *, batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None, interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None, allow_uncovered: bool = False,
) -> pd.DataFrame:  # fmt: skip
    """Estimate a model on a machine at each row of a table of parameter values.

    Parameters
    ----------
    points : DataFrame or mapping of columns
        Columns are the parameters of `sweep` in SI units: sizes such as ``batch``, ``byte_per_s``, ``launch_s``,
        ``host_op_s``, ``flop_per_s/DTYPE/ENGINE``, ``nodes``, ``epochs``, ``overhead/PER/NAME``. A parameter
        without a column keeps its value.
    model, machine, batch, sizes, precision, interval, scope, allow_uncovered
        As of `fomkit.estimate`.

    Returns
    -------
    DataFrame
        The points, in their order, with step_s [s], sample_per_s [1/s] and unit_per_day [1/day], each also with
        _low and _high, NaN where the profile does not state what is needed; ``shared``, the share of the error
        variance that is common to other work on the machine; ``basis``, measured or modelled; and ``why``, the
        reason why a point has no figures, else "".

    Raises
    ------
    FomkitError
        When a column is no parameter, or the model or the machine is unknown.

    Examples
    --------
    >>> found = scenarios("p1b3-lecture", "x86-lecture", {"epochs": [20, 10]})
    >>> found["unit_per_day"].round(3).tolist()
    [1.879, 3.759]
    """
    import pandas as pd

    from fomkit.plan.scenarios import prepare_study
    from fomkit.plan.scenarios import scenarios as _scenarios
    from fomkit.profiles.evidence import with_fits

    options = options_of(batch, interval, scope, allow_uncovered, sizes, precision)
    target = with_fits(as_machine(machine))
    try:
        table = pd.DataFrame(points).apply(pd.to_numeric)
    except (TypeError, ValueError) as error:
        raise FomkitError(
            "points", f"are {points!r:.60}: {error}. Expected a DataFrame, or a dict of columns, of numbers."
        ) from None
    return _scenarios(prepare_study(as_model(model, batch=options.batch), target, options), table)


def _varied(
    vary: Sequence[str] | Mapping[str, Given] | str, way: str, points: int | None, seed: int
) -> Mapping[str, Given]:
    """Return the values that are varied; raise where points cannot be drawn from them in this way."""
    from fomkit.whatif.sweep_axes import check_way, read_vary

    check_way(way, points, seed)
    return vary if isinstance(vary, Mapping) else read_vary(vary)


def _points_file(output: str | Path | None, scheduler: str | None, *, resume: bool) -> Path | None:
    """Return the file of points; raise where it, or the address of the scheduler, cannot be used."""
    if scheduler is not None:
        from fomkit.whatif.sweep_result import check_scheduler

        check_scheduler(scheduler)
    if output is None:
        if resume:
            raise FomkitError("resume", "continues a file of points. Name it: -o points.csv, or .parquet.")
        return None
    from fomkit.output.files import check_ending

    check_ending(str(output), Path(output).suffix)
    check_absent([Path(output)], force=True)
    return Path(output)


def _run_into(spec: Sweep, output: Path | None, scheduler: str | None, *, resume: bool, keep: bool) -> Swept:
    """Run a sweep; where a file is named, write the points to it as they are computed."""
    from fomkit.output.files import KeptStretches
    from fomkit.whatif.sweep_result import run_sweep

    done = parts(len(spec.stretches()))
    if output is None:
        return run_sweep(spec, scheduler, done, keep=keep)
    kept = KeptStretches(output, spec.key)
    kept.begin(resume=resume)

    def written(blocks: Iterable[pd.DataFrame]) -> Iterable[pd.DataFrame]:
        return kept.over(blocks, (*spec.names, *spec.columns), spec.stretches())

    found = run_sweep(spec, scheduler, done, keep=keep, first=kept.count, through=written)
    kept.write()
    return found


@command(
    "sweeping",
    judges_fit=True,
    metavar={"vary": "NAME=VALUES", "scheduler": "ADDRESS"},
    python_only={"keep": False},
    streams=(".csv", ".parquet"),
)
def sweep(
    model: str | Path | ModelProfile, machine: str | Path | Machine,
    vary: Sequence[str] | Mapping[str, Given] | str, *, way: Literal["grid", "random", "sobol"] = "grid",
    points: int | None = None, seed: int = 0, batch: int | None = None, sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None, interval: float = DEFAULT_LEVEL, scope: Scope | None = None,
    allow_uncovered: bool = False, layout: str | Path | Sequence[str] = "", links: Sequence[str | Link] = (),
    node_devices: int | None = None, scheduler: str | None = None, resume: bool = False,
    output: str | Path | None = None, keep: bool = True,
) -> Swept:  # fmt: skip
    """Estimate a training at many points: sizes, rates of the machine, nodes, links, price and power.

    The best points are printed, and the Pareto front over time, cost, energy and memory. docs/sweep.md lists the
    parameters. Exit code 1 where no point's step fits the device's memory, unless --allow-oversize is given.

    Parameters
    ----------
    vary : mapping, str or sequence of str
        Parameter and its values: NAME=16,32 or NAME=LOW..HIGH:STEPS[:log]; may be repeated.
    way : str
        Estimate every combination of the values (grid), or points drawn from the ranges (random, sobol).
    points : int, optional
        With --way random or sobol: number of points to draw; default: 4096.
    seed : int
        Seed of the random numbers, or of the Sobol sequence.
    scheduler : str, optional
        Address of a Dask scheduler whose workers estimate the points: tcp://HOST:8786.
    resume : bool
        Continue an interrupted sweep into the same file; stretches of points that are complete there are kept.
    output : path, optional
        File for all points, .csv or .parquet, written as they are computed.
    keep : bool
        Keep all points in memory, for ``table``.
    model, machine, batch, sizes, precision, interval, scope, allow_uncovered, layout, links, node_devices
        As of `fomkit.estimate`, at every point.

    Returns
    -------
    Swept
        ``table`` has one row for each point, ``front`` the Pareto-optimal ones; ``summary()`` is the text.

    Raises
    ------
    FomkitError
        When a parameter is unknown, a value is invalid, or there are too many points.

    Examples
    --------
    >>> swept = sweep("p1b3", "titan", {"batch": [50, 100], "byte_per_s": "125 GB/s..250 GB/s:2"})
    >>> len(swept.table), f"batch {swept.best['batch']:g} at {swept.best['byte_per_s']:.3g} byte/s"
    (4, 'batch 100 at 2.5e+11 byte/s')
    """
    from fomkit.whatif.sweep import make_sweep

    given, path = _varied(vary, way, points, seed), _points_file(output, scheduler, resume=resume)
    options = options_of(batch, interval, scope, allow_uncovered, sizes, precision)
    stated, target = _linked(as_machine(machine), layout, links, node_devices)
    spec = make_sweep(as_model(model, batch=batch), target, given, way=way, points=points, seed=seed,
                      options=options, layout=stated)  # fmt: skip
    return _run_into(spec, path, scheduler, resume=resume, keep=keep)


@command("computing the cost", judges_fit=True,
         metavar={"nodes": "N|fill", "once": "NAME=TIME|SHARE", "claimed": "NAME=FACTOR"})  # fmt: skip
def cost(
    model: str | Path | ModelProfile, machine: str | Path | Machine, *,
    baseline: str | Path | Machine | None = None, batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None, scope: Scope | None = None,
    nodes: int | Literal["fill"] | None = None, layout: str | Path | Sequence[str] = "",
    links: Sequence[str | Link] = (), node_devices: int | None = None, interval: float = DEFAULT_LEVEL,
    allow_uncovered: bool = False, price: str | None = None, once: Sequence[str] | Mapping[str, str] = (),
    to_accuracy: str | Path | None = None, infer_batch: int | None = None, carbon: str | None = None,
    to_wall: str | None = None, pue: str | None = None, claimed: Sequence[str] = (),
) -> Cost:  # fmt: skip
    """Compute the cost of a training and of its inference: money, carbon, one-off times, time to an accuracy.

    A price needs a currency and a date; carbon needs the energy at the wall. docs/cost.md has all formulas.

    Parameters
    ----------
    baseline : name, path or profile, optional
        Machine over which a speed-up is predicted.
    scope : str, optional
        Part of the machine that is filled with runs side by side; default: one device.
    nodes : int or "fill", optional
        Run one training, or serve one model, on N whole nodes, which share --batch; fill: on all nodes.
    once : sequence of str, or mapping, optional
        Cost that is paid once a run: a time (compile=40s) or a share of the run's present time (scheduler=15.5%).
    infer_batch : int, optional
        Samples of one inference; default: the batch of the training step.
    price, to_accuracy, carbon, to_wall, pue
        As of docs/cost.md: texts with unit, currency, date or source, and a table of epochs by batch.
    claimed : sequence of str
        Speed-up that others claim, shown beside the predicted one; may be repeated.
    model, machine, batch, sizes, precision, layout, links, node_devices, interval, allow_uncovered
        As of `fomkit.estimate`.

    Returns
    -------
    Cost
        ``estimate``, ``run_money``, ``inference`` (an estimate too), ``to_target``; ``content`` is everything.

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
    from fomkit.verbs.compare import placement_of
    from fomkit.verbs.cost import check_costed, read_declared
    from fomkit.verbs.cost import cost as _cost

    check_counts(infer_batch=infer_batch)
    options = options_of(batch, interval, scope, allow_uncovered, sizes, precision)
    declared = read_declared(price, once, to_accuracy, infer_batch, (carbon, to_wall, pue), claimed)
    placement = placement_of(nodes, layout, links, node_devices)
    old = None if baseline is None else as_machine(baseline, "baseline")
    check_costed(target := as_machine(machine), declared, old)
    return _cost(as_model(model, batch=options.batch), target, options, declared, old, placement)
