"""Talks with vendors: ask for timings, review what comes back, accept what was delivered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.units import Precision
from fomkit.plan.options import check_lists, options_of
from fomkit.verbs.answer import Answer, Kept, command, written

if TYPE_CHECKING:
    from fomkit.core.machine import Machine
    from fomkit.core.model import ModelProfile
    from fomkit.workbook.review import Review


@command(
    "reviewing",
    arguments={"workbook": "WORKBOOK"},
    kept=Kept("machine", "Keep the changed machine as a profile (.yaml) whose party is vendor."),
    unanswered=lambda content: bool(content["findings"]),
    examples=(
        "fomkit review vendor.xlsx --issued sent.xlsx",
        "fomkit review vendor.xlsx --issued sent.xlsx -o round3.yaml",
    ),
)
def review(workbook: str | Path, issued: str | Path) -> Review:
    """Show what a vendor changed in a workbook, cell by cell, and what each change does.

    Every number is computed anew from the inputs; formulas of the returned workbook are compared and not trusted.
    Exit code 1 means that there is something to talk about.

    Parameters
    ----------
    workbook : path
        The workbook that came back (.xlsx).
    issued : path
        The workbook that was sent.

    Returns
    -------
    Review
        Its ``changes`` are cell by cell, its ``findings`` what there is to talk about; ``summary()`` is the text;
        `fomkit.save` keeps the changed machine.

    Raises
    ------
    FomkitError
        When one of them is no workbook of fomkit's.
    """
    from fomkit.workbook.review import review as _review

    return _review(Path(workbook), Path(issued))


@command(
    "rating",
    arguments={"suite": "SUITE"},
    metavar={"committed": "MACHINE", "measured": "FILE.csv", "measured_on": "NAME"},
    unanswered=lambda content: any(one["required"] and one["verdict"] != "met" for one in content["lines"]),
    examples=("fomkit accept suite.yaml --committed round2.yaml --measured m.csv",),
)
def accept(
    suite: str | Path,
    committed: str | Path | Machine,
    measured: str | Path,
    *,
    measured_on: str | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Answer:
    """Say for each line of a suite whether what was committed is met.

    Exit code 1 where a required line is not met.

    Parameters
    ----------
    suite : name or path
        Suite by name or path.
    committed : name, path or profile
        Machine profile that was committed to.
    measured : name or path
        Measurements of the delivered machine.
    measured_on : str, optional
        The machine's name in the measurements; default: the profile's.
    interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/accept/1``; its table has the lines with their ``verdict``.

    Raises
    ------
    FomkitError
        When a profile or the table is unknown or wrong.
    """
    from fomkit.merit.suites import accept as _accept
    from fomkit.output.suites import format_acceptance
    from fomkit.profiles.locate import locate
    from fomkit.profiles.models import load_model
    from fomkit.profiles.suites import load_suite
    from fomkit.readers.measurements import read_measurements
    from fomkit.verbs.profiles import as_machine
    from fomkit.verbs.suite_content import acceptance_content

    options = options_of(interval=interval)
    lines, machine = load_suite(suite), as_machine(committed, "committed")
    rows, name = read_measurements(locate(str(measured), "measurements")), measured_on or machine.name
    content = acceptance_content(lines, name, _accept(lines, machine, rows, name, options, load_model), interval)
    return Answer(content, content["lines"], format_acceptance)


@command(
    "estimating",
    arguments={"models": "MODEL..."},
    metavar={"output": "FOLDER"},
    plain=True,
    examples=("fomkit pack resnet50 gpt2 --target v100 -o for-vendor",),
)
def pack(
    models: Sequence[str | Path | ModelProfile],
    machine: str | Path | Machine,
    output: str | Path,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Ask somebody to time exactly the ops that carry the models' steps.

    Writes cases.csv, which a simulator can fill, time_ops.py, which fills it where PyTorch runs and checks each
    result, and README.txt. It tells what share of each step the table carries and the script can time, and
    which ops it cannot. What comes back is imported with 'fomkit import'.

    Parameters
    ----------
    models : sequence of name, path or profile
        Model profiles by name or path.
    machine : name, path or profile
        Machine profile by whose times the ops are chosen.
    output : path
        New folder to write.
    batch, sizes, precision
        As of `fomkit.estimate`.
    tell : function of a text
        Told before each model.

    Returns
    -------
    Answer
        ``fomkit/written/1``: the files that were written.

    Raises
    ------
    FomkitError
        When the folder is there already, a profile is unknown, or nothing has a time.
    """
    from fomkit.files.write import write_whole
    from fomkit.plan.estimate import estimate
    from fomkit.verbs.profiles import as_machine, as_model
    from fomkit.workbook.vendor import make_pack

    check_lists(models=models)
    options = options_of(batch, sizes=sizes, precision=precision, allow_uncovered=True)
    folder = Path(output)
    if folder.exists():
        raise FomkitError(str(folder), "is there already. Name a new folder.")
    target, estimates = as_machine(machine), []
    for number, model in enumerate(map(as_model, models), 1):
        tell(f"estimating {model.name}, {number} of {len(models)}")
        estimates.append(estimate(model, target, options))
    made = make_pack(estimates)
    folder.mkdir(parents=True)
    for name, text in made.files.items():
        write_whole(folder / name, text)
    return written([folder / name for name in made.files], [*made.lines, f"{folder}: {', '.join(made.files)}"])
