"""Suites of work and campaigns, and workbooks that compute their results with formulas."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from fomkit import __version__
from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.job import Conditions
from fomkit.core.machine import Machine, Scope
from fomkit.core.units import Precision
from fomkit.files.write import write_whole
from fomkit.plan.options import options_of
from fomkit.profiles.locate import locate
from fomkit.verbs.answer import Answer, checked, command
from fomkit.verbs.profiles import as_machine

# Modules that calculate are imported inside the functions, so that --help starts fast.
if TYPE_CHECKING:
    from fomkit.core.job import Suite
    from fomkit.merit.suites import SuiteResult, SuiteResults
    from fomkit.verbs.compare import Comparison
    from fomkit.workbook.records import SheetModel

Named = str | Path | Machine
"""A machine by name or path, or its profile."""
_PROPOSAL = re.compile(r"(.+)\.([A-Za-z_]\w*)=(.+)")
_COUNTS = ("batch", "epochs", "samples")


def _proposed_value(text: str, name: str, where: str) -> Any:
    if name == "quality":
        return text
    if name == "precision":
        if text not in get_args(Precision):
            raise FomkitError(where, f"{text!r} is not a precision. Use one of {', '.join(get_args(Precision))}.")
        return text
    if not re.fullmatch(r"[1-9]\d{0,14}", text):
        raise FomkitError(where, f"{name} must be a whole number of 1 or more. Write, for example, {name}=256.")
    return int(text)


def _parse_proposals(texts: Sequence[str]) -> dict[str, Conditions]:
    """Parse proposals such as ``TC1.batch=256``; a name that is no condition is a named size of the model.

    >>> _parse_proposals(["TC1.batch=256"])["TC1"].batch
    256
    """
    proposals: dict[str, Conditions] = {}
    for text in map(str, texts):
        where = f"proposals {text}"
        match = _PROPOSAL.fullmatch(text)
        if match is None:
            raise FomkitError(where, "is not LINE.CONDITION=VALUE. Write, for example, --propose TC1.batch=256.")
        line, name = match[1], match[2]
        one = proposals.get(line, Conditions())
        if name in one.stated():
            raise FomkitError(where, f"{name} is given twice. Give it once.")
        value = _proposed_value(match[3], name, where)
        known = name in (*_COUNTS, "quality", "precision")
        proposals[line] = (
            replace(one, **{name: value}) if known else replace(one, sizes={**one.sizes, name: value})
        )
    return proposals


def _only_other(lines: Suite, baseline: str) -> str:
    """Return the only machine besides the baseline whose times the suite states; raise where there is not one."""
    from fomkit.merit.suites import given_machines

    others = [name for name in given_machines(lines) if name != baseline]
    if len(others) != 1:
        known = f"the suite states times of {', '.join(others)}" if others else "the suite states no times"
        raise FomkitError(lines.name, f"the target is missing; {known}. Add '--target NAME'.")
    return others[0]


def _targets_of(lines: Suite, baseline: Machine, target: Named | Sequence[Named] | None) -> list[Machine]:
    """Return the machines that are rated; raise where one is named twice."""
    if target is None:
        target = _only_other(lines, baseline.name)
    given = target if isinstance(target, list | tuple) else [cast("Named", target)]
    if not given:
        raise FomkitError("target", "is an empty list. Name at least one machine.")
    machines = [as_machine(one, "target") for one in given]
    names = [one.name for one in machines]
    if twice := {name for name in names if names.count(name) > 1}:
        raise FomkitError("target", f"names {min(twice)} twice. Give each machine once.")
    return machines


def _target_names(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the machines that a workbook may be for."""
    from fomkit.profiles.suites import load_suite

    lines, baseline = load_suite(arguments["suite"]), arguments["baseline"]
    old = as_machine(lines.baseline if baseline is None else baseline, "baseline")
    return [one.name for one in _targets_of(lines, old, arguments["target"])]


def _check_output(arguments: Mapping[str, Any], output: Path | None) -> None:
    if arguments["freeze"] is not None and output is not None:
        raise FomkitError("freeze", "freezes the rates of the suite's own baseline only. Leave -o out.")
    if output is not None and output.suffix == ".xlsx" and len(arguments["target"] or ()) > 1:
        raise FomkitError(str(output), "is a workbook, which rates one machine. Give one target.")


def _freeze(suite: str | Path, path: Path, others: Mapping[str, object]) -> Answer:
    """Write the next version of a suite, in which the rates of its own baseline are frozen."""
    from fomkit.merit.suites import freeze_rates
    from fomkit.profiles.models import load_model
    from fomkit.profiles.suites import freeze_text, read_unfrozen

    if given := [f"`{name}`" for name, value in others.items() if value]:
        raise FomkitError(
            "freeze", f"freezes the rates of the suite's own baseline only. Leave {', '.join(given)} out."
        )
    if path.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(path), "has the wrong ending for a suite. Use .suite.yaml.")
    text, lines = read_unfrozen(suite)
    lines = replace(lines, version=lines.version + 1 if lines.frozen else lines.version, frozen={})
    rates = freeze_rates(lines, as_machine(lines.baseline), options_of(), load_model)
    write_whole(path, freeze_text(text, lines, rates, __version__))
    said = f"{path}: version {lines.version} of {lines.name}, {len(rates)} rates of {lines.baseline} frozen\n"
    content = {"schema": "fomkit/freeze/1", "fomkit": __version__, "suite": lines.name, "baseline": lines.baseline,
               "lines": [*rates]}  # fmt: skip
    return Answer(content, [{"line": name} for name in rates], lambda *_: said)


@command(
    "rating",
    arguments={"suite": "SUITE"},
    spelled={"target": ("--target", "-t"), "proposals": ("--propose",), "measurements": ("--from",)},
    metavar={"proposals": "LINE.CONDITION=VALUE", "measurements": "CSV", "freeze": "FILE"},
    judges_fit=True,
    # A target is not rated, there is no figure of merit, or a requested verdict is withheld.
    is_incomplete=lambda content: (
        bool(content.get("refused"))
        or any(
            one.get("fom", "") is None or "why" in (one.get("threshold") or {})
            for one in content.get("results", [content])
        )
    ),
    before=_check_output,
    files=("freeze",),
    workbook=_target_names,
)
def fom(
    suite: str | Path, target: Sequence[str | Path | Machine] | str | Path | Machine | None = None, *,
    baseline: str | Path | Machine | None = None, proposals: Sequence[str] | Mapping[str, Conditions] = (),
    threshold: float | None = None, allow_excluded: bool = False, strict: bool = False,
    interval: float = DEFAULT_LEVEL, measurements: str | Path | None = None, freeze: str | Path | None = None,
) -> SuiteResult | SuiteResults | Answer:  # fmt: skip
    """Compute the figure of merit (FOM) of a target machine over a baseline on a suite of work.

    Lines that are modelled are compared with measured runs of their models, from the shipped tables and from
    ./measurements. Exit code 1 in four cases: a required line has no time, so there is no figure of merit; one of
    several targets cannot be rated; the verdict on a threshold is withheld, because the device explains less than
    half of a measured run of one of the lines, unless --allow-excluded is given; a step does not fit the device's
    memory, unless --allow-oversize is given.

    Parameters
    ----------
    suite : name or path
        Suite by name or path, for example lecture.
    target : name, path or profile, or a list of them, optional
        Machine to rate; default: the only machine besides the baseline whose times the suite states. May be
        repeated: the figures of merit then stand side by side.
    baseline : name, path or profile, optional
        Machine to compare with; default: the suite's.
    proposals : sequence of str, or mapping of Conditions by line
        Change batch, precision, epochs, samples, quality or a named size of a line on the target only.
    threshold : float, optional
        Figure of merit to reach; default: the suite's, if it has one.
    allow_excluded : bool
        Print the verdict on a threshold even if the device explains less than half of a measured run.
    strict : bool
        Refuse any deviation from the conditions that the lines fix.
    interval : float
        As of `fomkit.estimate`.
    measurements : name or path, optional
        Table of measurements of the baseline, by path or name; the FOM is also computed from it.
    freeze : path, optional
        Write the next version of the suite, with the rates of its baseline frozen, to this file.

    Raises
    ------
    FomkitError
        When a profile is unknown, or a machine does not state the suite's scope.

    Examples
    --------
    >>> rated = fom("lecture", "a")
    >>> round(rated.merit.value.value, 6), round(rated.merit.weights["P1"], 3)
    (82.597332, 0.769)
    """
    if freeze is not None:
        return _freeze(suite, Path(freeze), {"target": target, "baseline": baseline, "proposals": proposals,
                       "strict": strict, "threshold": threshold, "measurements": measurements})  # fmt: skip
    changed = proposals if isinstance(proposals, Mapping) else _parse_proposals(proposals)
    found = _rate_named_suite(suite, target, baseline, changed, threshold, allow_excluded, interval, measurements)
    if strict:
        _check_no_deviation(found.results)
    return found.results[0] if len(found) == 1 and not found.refused else found


def _check_no_deviation(found: Sequence[SuiteResult]) -> None:
    deviations = dict.fromkeys(
        f"{one.line.name}: {what}" for each in found for one in each.target for what in one.deviations
    )
    if deviations:
        raise FomkitError(
            found[0].suite.name,
            f"`strict` allows no deviation, and these lines deviate: {'; '.join(deviations)}. Leave `strict` out.",
        )


def _rate_named_suite(
    suite: str | Path, target: Named | Sequence[Named] | None, baseline: Named | None,
    proposals: Mapping[str, Conditions], threshold: float | None, allow_excluded: bool, interval: float,
    measurements: str | Path | None,
) -> SuiteResults:  # fmt: skip
    """Rate every target; one that cannot be rated stops the others only where none can be."""
    from fomkit.merit.suites import SuiteResult, SuiteResults, rate_lines, run_suite
    from fomkit.profiles.models import load_model
    from fomkit.profiles.suites import load_suite
    from fomkit.readers.measurements import all_measured, read_measurements

    lines = load_suite(suite)
    if threshold is not None and not _LEAST <= threshold <= 1 / _LEAST:
        raise FomkitError("threshold", f"is {threshold!r}. Give a number from {_LEAST:g} to {1 / _LEAST:g}.")
    options, lines = options_of(interval=interval), replace(lines, threshold=threshold or lines.threshold)
    old = as_machine(lines.baseline if baseline is None else baseline, "baseline")
    targets = _targets_of(lines, old, target)
    taken = () if measurements is None else read_measurements(locate(str(measurements), "measurements"))
    known, unread = all_measured()
    now = rate_lines(replace(lines, frozen={}), old, options, load_model) if lines.frozen else ()
    results, refused = list[SuiteResult](), dict[str, FomkitError]()
    for new in targets:
        try:
            one = run_suite(lines, old, new, options, load_model, proposals, known, allow_excluded, taken)
        except FomkitError as error:
            if new.name == old.name:
                raise
            refused[new.name] = error
            continue
        results.append(replace(one, unread=tuple(unread), now=now if old.name == lines.baseline else ()))
    if not results:
        raise ManyFomkitError(refused.values()) if len(refused) > 1 else next(iter(refused.values()))
    whys = {name: error.what if error.where == name else str(error) for name, error in refused.items()}
    return SuiteResults(tuple(results), whys)


_LEAST = 1e-12
"""Smallest valid threshold; the largest is its inverse."""


@checked
def write_workbook(result: Comparison | SuiteResult, path: str | Path, *, only: str | None = None) -> None:
    """Write a workbook whose formulas compute the result from its inputs; an existing file is replaced.

    Parameters
    ----------
    result : Comparison or SuiteResult
        Result of `fomkit.estimate_all` or `fomkit.fom`.
    path : path
        ``NAME.xlsx``.
    only : str, optional
        Name of a target. Names and figures of all other machines are left out, so that one vendor can read it.

    Raises
    ------
    FomkitError
        When the path does not end in .xlsx, or ``only`` is no target.
    """
    from fomkit.workbook.write import write_workbook as _write

    if Path(path).suffix != ".xlsx":
        raise FomkitError(str(path), "has the wrong ending for a workbook. Use .xlsx.")
    _write(sheet_model_of(result), Path(path), only)


def sheet_model_of(result: Comparison | SuiteResult | SuiteResults) -> SheetModel:
    """Return the sheet model of a result: everything that its workbook computes and shows."""
    from fomkit.merit.suites import SuiteResult, SuiteResults
    from fomkit.workbook.from_studies import sheet_model_of_comparison, sheet_model_of_suite

    if isinstance(result, SuiteResults):
        raise FomkitError("result", "has several targets, and a workbook rates one. Give one of its `results`.")
    return sheet_model_of_suite(result) if isinstance(result, SuiteResult) else sheet_model_of_comparison(result)


@command(
    "computing the campaign",
    arguments={"campaign": "CAMPAIGN"},
    judges_fit=True,
    is_incomplete=lambda content: any(machine["days"] is None for machine in content["machines"]),
)
def campaign(
    campaign: str | Path, machines: Sequence[str | Path | Machine], *, scope: Scope = "system",
    interval: float = DEFAULT_LEVEL, allow_uncovered: bool = False, price: str | None = None,
    carbon: str | None = None, to_wall: str | None = None, pue: str | None = None,
) -> Answer:  # fmt: skip
    """Compute how long the phases of a campaign take on a machine, and what they cost.

    Exit code 1 where the duration of a phase is unknown, or a step does not fit the memory, unless
    --allow-oversize is given.

    Parameters
    ----------
    campaign : name or path
        Campaign by name or path.
    machines : sequence of name, path or profile
    scope : str
        Part of the machine that each phase has to itself: device, node or system.
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
    [394]
    """
    from fomkit.merit.campaign import run_campaign
    from fomkit.merit.footprint import check_grid
    from fomkit.output.money import format_campaign
    from fomkit.profiles.campaigns import load_campaign
    from fomkit.profiles.declared import parse_grid, parse_price
    from fomkit.profiles.models import load_model
    from fomkit.profiles.suites import load_suite
    from fomkit.readers.measurements import all_measured
    from fomkit.verbs.compare import check_distinct
    from fomkit.verbs.suite_content import campaigns_content, phase_rows

    workflow, options = load_campaign(campaign), options_of(interval=interval, scope=scope)
    options = replace(options, allow_uncovered=allow_uncovered)
    paid, declared = parse_price(price) if price is not None else None, parse_grid(carbon, to_wall, pue)
    check_grid(declared)
    measured = all_measured()[0]
    targets = [as_machine(one) for one in machines]
    check_distinct((), targets, None)
    found = [run_campaign(workflow, one, options, paid, load_model, load_suite, measured) for one in targets]
    content = campaigns_content(found, declared)
    unfit = tuple(dict.fromkeys(message for one in found for message in one.unfit))
    return Answer(content, phase_rows(content), format_campaign, unfit)
