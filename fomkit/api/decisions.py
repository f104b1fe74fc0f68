"""The Python interface of decisions: what a result hangs on, and the smallest change that reaches a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.hardware import Machine, Scope
from fomkit.profiles import load_machine, load_model, load_suite
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import Options
from fomkit.study.asked import as_name, check_options
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    from fomkit.whatif.sensitivity import Sensitivity
    from fomkit.whatif.solve import Solution
    from fomkit.whatif.subject import Subject


def _machine(given: str | Path | Machine, what: str) -> Machine:
    return given if isinstance(given, Machine) else load_machine(as_name(given, what))


def _subject(
    model: str | Path | ModelProfile | None, machine: str | Path | Machine, suite: str | Path | None,
    baseline: str | Path | Machine | None, nodes: int | None, layout: str, links: Sequence[str], options: Options,
) -> Subject:  # fmt: skip
    from fomkit.study.all_measured import all_measured
    from fomkit.study.layout_file import parse_layout, parse_link
    from fomkit.study.scaling import with_links
    from fomkit.whatif.choose import subject_of_model, subject_of_suite

    if (model is None) == (suite is None):
        raise FomkitError("model", "or suite: give one of them, not both or neither.")
    target = _machine(machine, "machine")
    if suite is not None:
        lines = load_suite(suite)
        old = _machine(lines.baseline if baseline is None else baseline, "baseline")
        return subject_of_suite(lines, old, target, options, load_model, all_measured()[0])
    profile = model if isinstance(model, ModelProfile) else load_model(as_name(model, "model"))
    spread = parse_layout([layout]) if layout else None
    return subject_of_model(profile, with_links(target, [*map(parse_link, links)]), options, nodes, spread)


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

    check_options(batch=batch, sizes=sizes, interval=interval, scope=scope)
    options = Options(batch, interval, scope, None, allow_uncovered, sizes or {}, precision)
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
    from fomkit.whatif.goal import make_goal
    from fomkit.whatif.solve import solve as _solve

    check_options(batch=batch, sizes=sizes, interval=interval, scope=scope)
    goal = make_goal(unit_per_day=unit_per_day, step_s=step_s, fom=fom, probability=probability)
    options = Options(batch, interval, scope, None, allow_uncovered, sizes or {}, precision)
    return _solve(_subject(model, machine, suite, baseline, nodes, layout, links, options), goal, change, frontier)
