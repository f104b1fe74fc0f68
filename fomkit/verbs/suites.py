"""Suites of work and campaigns, rated; workbooks that compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Machine, Scope
from fomkit.core.suite import Conditions
from fomkit.merit.suites import SuiteResult, run_suite
from fomkit.profiles.locate import locate
from fomkit.profiles.models import load_model
from fomkit.profiles.suites import load_suite
from fomkit.readers.measurements import all_measured, read_measurements
from fomkit.verbs.answer import Answer, command, options_of
from fomkit.verbs.compare import Comparison
from fomkit.verbs.profiles import as_machine


def rate_suite(
    suite: str | Path,
    target: str | Path | Machine,
    *,
    baseline: str | Path | Machine | None = None,
    proposals: Mapping[str, Conditions] | None = None,
    interval: float = DEFAULT_LEVEL,
    allow_excluded: bool = False,
    measured: str | Path | None = None,
) -> SuiteResult:
    """Rate a suite of work on a target and on its baseline.

    The modelled lines are held against the runs that somebody measured of them, in the shipped tables and in
    ``./measurements``.

    Parameters
    ----------
    suite : name or path
    target : name, path or profile
    baseline : name, path or profile, optional
        Default: the suite's.
    proposals : mapping, optional
        What the target does otherwise than a line fixes, by line.
    interval : float
        Level of all intervals.
    allow_excluded : bool
        Give a verdict on the suite's threshold though the device explains less than half of a line's measured run.
    measured : name or path, optional
        A table of measurements on the baseline: ``calibration`` is the suite from them, beside the projected one.

    Raises
    ------
    FomkitError
        When a profile is unknown, or a machine does not state the suite's scope.

    Examples
    --------
    >>> rated = rate_suite("lecture", "a")
    >>> round(rated.merit.value.value, 6), round(rated.merit.weights["P1"], 3)
    (82.597332, 0.769)
    """
    options = options_of(interval=interval)
    lines = load_suite(suite)
    new = as_machine(target, "target")
    old = as_machine(baseline if baseline is not None else lines.baseline, "baseline")
    taken = () if measured is None else read_measurements(locate(str(measured), "measurements"))
    known = all_measured()[0]
    return run_suite(lines, old, new, options, load_model, proposals, known, allow_excluded, taken)


def write_workbook(result: Comparison | SuiteResult, path: str | Path, *, only: str | None = None) -> None:
    """Write a workbook that computes the result from its inputs; replaces the file.

    Parameters
    ----------
    result : Comparison or SuiteResult
        What `fomkit.estimate_all` or `fomkit.rate_suite` gave.
    path : path
        ``NAME.xlsx``.
    only : str, optional
        A target: every other machine's name and figures stay out, for one vendor.

    Raises
    ------
    FomkitError
        When the path is no workbook's, or ``only`` is no target.
    """
    from fomkit.workbook.from_studies import sheet_model_of_comparison, sheet_model_of_suite
    from fomkit.workbook.write import write_workbook as _write

    if Path(path).suffix != ".xlsx":
        raise FomkitError(str(path), "has an ending that no workbook has. Use .xlsx.")
    sheet_model = (
        sheet_model_of_suite(result) if isinstance(result, SuiteResult) else sheet_model_of_comparison(result)
    )
    _write(sheet_model, Path(path), only)


@command(
    "working out",
    arguments={"campaign": "CAMPAIGN"},
    judges_fit=True,
    unanswered=lambda content: any(machine["days"] is None for machine in content["machines"]),
    examples=(
        "fomkit campaign candle-example -t titan -t a",
        "fomkit campaign candle-example -t a --price '1 USD/h per node, 2018-04-01'",
    ),
)
def campaign(
    campaign: str | Path, machines: Sequence[str | Path | Machine], *, scope: Scope = "system",
    interval: float = DEFAULT_LEVEL, allow_uncovered: bool = False, price: str | None = None,
    carbon: str | None = None, to_wall: str | None = None, pue: str | None = None,
) -> Answer:  # fmt: skip
    """Tell how long a campaign's phases take on a machine, and what they cost.

    Exit code 1 where a phase has no days.

    Parameters
    ----------
    campaign : name or path
        Campaign by name or path.
    machines : sequence of name, path or profile
    scope : str
        What a phase has to itself: the whole system, or less.
    interval, allow_uncovered
        As of `fomkit.estimate`.
    price, carbon, to_wall, pue
        As of `fomkit.cost`.

    Returns
    -------
    Answer
        ``fomkit/campaign-cost/1``; its table has a row for each phase on each machine.

    Raises
    ------
    FomkitError
        When a profile is unknown, a phase has no time, or a text lacks its unit, currency, date or source.

    Examples
    --------
    >>> [round(one["days"]["value"]) for one in campaign("candle-example", ["a"]).content["machines"]]
    [423]
    """
    from fomkit.merit.campaign import run_campaign
    from fomkit.output.money import format_campaign
    from fomkit.plan.footprint import check_grid
    from fomkit.profiles.campaigns import load_campaign
    from fomkit.profiles.declared import parse_grid, parse_price
    from fomkit.verbs.suite_content import campaigns_content, phase_rows

    workflow, options = load_campaign(campaign), options_of(interval=interval, scope=scope)
    options = replace(options, allow_uncovered=allow_uncovered)
    paid, declared = parse_price(price) if price is not None else None, parse_grid(carbon, to_wall, pue)
    check_grid(declared)
    measured = all_measured()[0]
    found = [
        run_campaign(workflow, as_machine(one), options, paid, load_model, load_suite, measured)
        for one in machines
    ]
    content = campaigns_content(found, declared)
    unfit = tuple(dict.fromkeys(message for one in found for message in one.unfit))
    return Answer(content, phase_rows(content), format_campaign, unfit)
