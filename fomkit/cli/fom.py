"""``fomkit fom``: the figure of merit of a suite.

``--propose LINE.CONDITION=VALUE``: what a target does otherwise than a suite's line fixes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from fomkit.cli import choices
from fomkit.cli.choices import argument, machine_option, option, output_option
from fomkit.cli.workbooks import write_and_report
from fomkit.core.errors import FomkitError
from fomkit.core.suite import Conditions
from fomkit.core.units import Precision

if TYPE_CHECKING:
    from fomkit.core.suite import Suite
    from fomkit.merit.suites import SuiteResult


_PROPOSAL = re.compile(r"(.+)\.([A-Za-z_]\w*)=(.+)")
_COUNTS = ("batch", "epochs", "samples")


def _value(text: str, name: str, where: str) -> Any:
    if name == "quality":
        return text
    if name == "precision":
        if text not in get_args(Precision):
            raise FomkitError(where, f"{text!r} is no precision. Use one of {', '.join(get_args(Precision))}.")
        return text
    if not re.fullmatch(r"[1-9]\d{0,14}", text):
        raise FomkitError(where, f"{name} is a whole number from 1. Write, for example, {name}=256.")
    return int(text)


def parse_proposals(texts: Sequence[str]) -> dict[str, Conditions]:
    """Read proposals such as ``TC1.batch=256``; a name that is no condition is a named size of the model.

    Raises FomkitError when one has another form, or says something twice.

    Examples
    --------
    >>> parse_proposals(["TC1.batch=256"])["TC1"].batch
    256
    """
    proposals: dict[str, Conditions] = {}
    for text in texts:
        where = f"--propose {text}"
        match = _PROPOSAL.fullmatch(text)
        if match is None:
            raise FomkitError(where, "is not LINE.CONDITION=VALUE. Write, for example, --propose TC1.batch=256.")
        line, name = match[1], match[2]
        one = proposals.get(line, Conditions())
        if name in one.stated():
            raise FomkitError(where, f"proposes {name} a second time. Propose it once.")
        value = _value(match[3], name, where)
        known = name in (*_COUNTS, "quality", "precision")
        proposals[line] = (
            replace(one, **{name: value}) if known else replace(one, sizes={**one.sizes, name: value})
        )
    return proposals


Suites = Annotated[
    str, argument("Suite by name or path, for example lecture.", "SUITE", autocompletion=choices.complete_suite)
]
Target = Annotated[
    str | None, machine_option("Machine to rate; default: the only other one given.", "--target", "-t")
]
Baseline = Annotated[str | None, machine_option("Machine to compare with; default: the suite's.")]
Propose = Annotated[
    list[str] | None,
    option(
        "Change batch, precision, epochs, samples, quality or a size of a line on the target.",
        metavar="LINE.CONDITION=VALUE",
    ),
]
Threshold = Annotated[
    float | None, option("Figure of merit to reach; default: the suite's, if it has one.", min=1e-12, max=1e12)
]
Excluded = Annotated[
    bool,
    option(
        "Give the verdict on a threshold though the device explains less than half of a measured run.",
        "--allow-excluded",
    ),
]
Workbook = Annotated[
    Path | None, output_option("Write a workbook that computes (.xlsx) as well; replaces the file.")
]
Freeze = Annotated[
    Path | None,
    option("Write the suite's next version with the baseline's rates frozen; replaces the file.", metavar="FILE"),
]
From = Annotated[
    Path | None,
    option(
        "Measurements of the baseline, by path or name: works the suite out from them as well.",
        "--from",
        metavar="CSV",
    ),
]


def _target(lines: Suite, baseline: str, wanted: str | None) -> str:
    from fomkit.merit.suites import given_machines

    others = [name for name in given_machines(lines) if name != baseline]
    if wanted is None and len(others) != 1:
        known = f"the suite gives times of {', '.join(others)}" if others else "the suite gives no machine's times"
        raise FomkitError(lines.name, f"the target is not clear; {known}. Add '--target NAME'.")
    return wanted or others[0]


def _freeze(suite: str, others: dict[str, object], path: Path, quiet: bool) -> None:
    from fomkit import __version__
    from fomkit.files.write import write_whole
    from fomkit.merit.suites import freeze_rates
    from fomkit.profiles.suites import freeze_text, read_unfrozen

    if given := [name for name, value in others.items() if value]:
        raise FomkitError(
            "--freeze", f"rates the suite's own baseline and nothing else. Leave {', '.join(given)} out."
        )
    if path.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(path), "has an ending that no suite has. Use .suite.yaml.")
    text, lines = read_unfrozen(suite)
    lines = replace(lines, version=lines.version + 1 if lines.frozen else lines.version, frozen={})
    with choices.progress(f"rating {lines.baseline}", quiet=quiet):
        rates = freeze_rates(lines, choices.load_machine(lines.baseline), choices.options_of(), choices.load_model)
    write_whole(path, freeze_text(text, lines, rates, __version__))
    print(f"{path}: version {lines.version} of {lines.name}, {len(rates)} rates of {lines.baseline} frozen")


def _check_strict(result: SuiteResult) -> None:
    said = [f"{one.line.name}: {what}" for one in result.target for what in one.deviations]
    if said:
        raise FomkitError(
            result.suite.name,
            f"--strict allows no deviation from its lines, and there is {'; '.join(said)}. Leave --strict out.",
        )


def _answer(result: SuiteResult, as_json: bool, allow_oversize: bool, unread: Sequence[str]) -> None:
    """Answer; end with exit code 1 without a figure or a verdict that was asked for, or where nothing fits."""
    from fomkit.output.suites import format_suite
    from fomkit.verbs.suite_content import suite_content

    choices.write_answer(suite_content(result), format_suite, as_json=as_json)
    for said in unread:
        choices.complain(said)
    choices.end_if_oversize(result.unfit, allowed=allow_oversize)
    if result.merit is None or (result.suite.threshold is not None and result.withheld):
        raise typer.Exit(1)


def fom(
    suite: Suites,
    target: Target = None,
    baseline: Baseline = None,
    propose: Propose = None,
    threshold: Threshold = None,
    allow_excluded: Excluded = False,
    allow_oversize: choices.Oversize = False,
    strict: Annotated[bool, option("Refuse deviations from what the lines fix.", "--strict")] = False,
    interval: choices.Interval = 0.8,
    from_: From = None,
    freeze: Freeze = None,
    output: Workbook = None,
    only: choices.Only = None,
    as_json: Annotated[bool, option("Print fomkit/fom/1 instead of a table.", "--json")] = False,
    quiet: choices.Quiet = False,
) -> None:
    """Rate a target machine over a baseline on a suite of work.

    Exit code 1 where a required line has no time, and so there is no figure of merit; where the verdict on a
    threshold is not given, because the device explains less than half of a measured run of one of its lines
    (--allow-excluded gives it); and where the device's memory does not hold a step (--allow-oversize).

    Examples:

      fomkit fom lecture

      fomkit fom lecture.suite.yaml --baseline a --target titan --json

      fomkit fom lecture --for a -o vendor.xlsx

      fomkit fom candle --target v100 --from candle-lecture
    """
    from fomkit.merit.suites import run_suite
    from fomkit.profiles.locate import locate
    from fomkit.profiles.suites import load_suite
    from fomkit.readers.measurements import all_measured, read_measurements
    from fomkit.workbook.from_studies import sheet_model_of_suite

    choices.check_workbook(output, only)
    if freeze is not None:
        others = {"--target": target, "--baseline": baseline, "--propose": propose, "--strict": strict,
                  "--threshold": threshold, "--from": from_}  # fmt: skip
        _freeze(suite, {**others, "-o": output, "--for": only, "--json": as_json}, freeze, quiet)
        return
    lines = load_suite(suite)
    lines = lines if threshold is None else replace(lines, threshold=threshold)
    old = choices.load_machine(baseline or lines.baseline)
    new = choices.load_machine(_target(lines, old.name, target))
    proposed, options = parse_proposals(propose or []), choices.options_of(interval=interval)
    taken = () if from_ is None else read_measurements(locate(str(from_), "measurements"))
    with choices.progress(f"rating {suite}", quiet=quiet):
        measured, unread = all_measured()
        result = run_suite(lines, old, new, options, choices.load_model, proposed, measured, allow_excluded, taken)
    if strict:
        _check_strict(result)
    if output is not None:
        write_and_report(sheet_model_of_suite(result), output, only)
    _answer(result, as_json, allow_oversize, unread)
