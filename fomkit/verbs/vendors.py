"""Work with vendors, and projections compared with measurements of whole models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.core.units import Precision, parse_quantity
from fomkit.files.write import check_new_folder, write_whole
from fomkit.plan.options import Options, options_of
from fomkit.profiles.locate import locate
from fomkit.verbs.answer import Answer, StoredResult, command, parts, written
from fomkit.verbs.profiles import as_machine, as_model

if TYPE_CHECKING:
    from fomkit.core.measurement import Measurement
    from fomkit.workbook.review import Review


@command(
    "reviewing",
    arguments={"workbook": "WORKBOOK"},
    stores=StoredResult("machine", "Store the changed machine as a profile (.yaml) whose party is vendor."),
    is_incomplete=lambda content: bool(content["findings"]),
)
def review(workbook: str | Path, issued: str | Path) -> Review:
    """Show what a vendor changed in a workbook, cell by cell, and how each change affects the results.

    All results are recomputed from the inputs; the formulas of the returned workbook are compared with the issued
    ones, but not trusted. Exit code 1 where there are findings to discuss with the vendor.

    Parameters
    ----------
    workbook : path
        Workbook that the vendor returned (.xlsx).
    issued : path
        Workbook that was sent to the vendor.

    Returns
    -------
    Review
        ``changes`` are listed cell by cell, ``findings`` are the points to discuss; ``summary()`` is the text;
        `fomkit.save` keeps the changed machine.

    Raises
    ------
    FomkitError
        When a file is no workbook of fomkit's.
    """
    from fomkit.workbook.review import review as _review

    return _review(Path(workbook), Path(issued))


@command(
    "rating",
    arguments={"suite": "SUITE"},
    metavar={"committed": "MACHINE", "measured": "FILE.csv", "measured_on": "NAME"},
    is_incomplete=lambda content: any(one["required"] and one["verdict"] != "met" for one in content["lines"]),
)
def accept(
    suite: str | Path, committed: str | Path | Machine, measured: str | Path, *, measured_on: str | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Answer:  # fmt: skip
    """Check for each line of a suite whether a delivered machine reaches what was committed.

    Exit code 1 where a required line was not measured or does not reach it.

    Parameters
    ----------
    suite : name or path
        Suite by name or path.
    committed : name, path or profile
        Machine profile with the committed figures.
    measured : name or path
        Table of measurements of the delivered machine.
    measured_on : str, optional
        Name of the machine in the measurements; default: the name of the committed profile.
    interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/accept/1``; its table has the lines with their ``verdict``.

    Raises
    ------
    FomkitError
        When a profile or the table is unknown or invalid.
    """
    from fomkit.merit.suites import accept as _accept
    from fomkit.output.comparisons import format_acceptance
    from fomkit.profiles.models import load_model
    from fomkit.profiles.suites import load_suite
    from fomkit.readers.measurements import read_measurements
    from fomkit.verbs.suite_content import acceptance_content

    options = options_of(interval=interval)
    lines, machine = load_suite(suite), as_machine(committed, "committed")
    rows, name = read_measurements(locate(str(measured), "measurements")), measured_on or machine.name
    content = acceptance_content(lines, name, _accept(lines, machine, rows, name, options, load_model), interval)
    return Answer(content, content["lines"], format_acceptance)


@command("estimating", arguments={"models": "MODEL"}, metavar={"output": "FOLDER"}, plain=True)
def pack(
    models: Sequence[str | Path | ModelProfile], machine: str | Path | Machine, output: str | Path, *,
    batch: int | None = None, sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Answer:  # fmt: skip
    """Write a folder with which a vendor can time exactly the ops that account for most of the models' steps.

    The folder has cases.csv, a table of ops that a simulator can fill in; time_ops.py, which fills it in where
    PyTorch runs and checks each result; and README.txt. The command prints the share of each step that the table
    accounts for, the share that the script can time, and the other ops. 'fomkit import' reads the filled table.

    Parameters
    ----------
    models : sequence of name, path or profile
        Model profiles by name or path.
    machine : name, path or profile
        Machine profile whose predicted times decide which ops are chosen.
    output : path
        New folder to write.
    batch, sizes, precision
        As of `fomkit.estimate`.
    tell : function of a text
        Called with a message before each model.

    Returns
    -------
    Answer
        ``fomkit/written/1``: the files that were written.

    Raises
    ------
    FomkitError
        When the folder exists, a profile is unknown, or no op has a time.
    """
    from fomkit.plan.estimate import estimate
    from fomkit.profiles.models import code_last
    from fomkit.verbs.compare import check_distinct
    from fomkit.workbook.vendor import make_pack

    options = options_of(batch, sizes=sizes, precision=precision, allow_uncovered=True)
    folder = Path(output)
    check_new_folder(folder)
    target, estimates, known = as_machine(machine), [], code_last(models, as_model)
    check_distinct(known, (), None)
    for number, model in enumerate(known, 1):
        tell(f"estimating {model.name}, {number} of {len(models)}")
        estimates.append(estimate(model, target, options))
    made = make_pack(estimates)
    folder.mkdir(parents=True)
    for name, text in made.files.items():
        write_whole(folder / name, text)
    return written([folder / name for name in made.files], [*made.lines, f"{folder}: {', '.join(made.files)}"])


Profile = TypeVar("Profile", ModelProfile, Machine)
_BASELINE = "p100"


class _Profiles(Generic[Profile]):
    """Profiles by the names in a table's rows: given ones (loaded or by path) first, else loaded by that name."""

    def __init__(self, names: Iterable[str], load: Callable[[str | Path | Profile], Profile]) -> None:
        self._given: dict[str, str | Profile] = {name: name for name in names}
        self._load: Callable[[str | Path | Profile], Profile] = load

    def name(self, given: str | Path | Profile) -> str:
        """Return the name in the table's rows of a profile that is given by name, by path or loaded."""
        text = str(given) if isinstance(given, str | Path) else ""
        if text and (text in self._given or (Path(text).name == text and not text.endswith((".yaml", ".yml")))):
            return text
        found = self._load(given)
        self._given[found.name] = text or found
        return found.name

    def load(self, name: str) -> Profile:
        """Load the profile that a row names."""
        return self._load(self._given.get(name, name))


def _check_names(
    table: str, rows: Sequence[Measurement], models: Iterable[str | None], machines: Iterable[str | None]
) -> None:
    for what, given, known in (
        ("the model", models, dict.fromkeys(row.model for row in rows)),
        ("the machine", machines, dict.fromkeys(row.machine for row in rows)),
    ):
        for name in given:
            if name is not None and name not in known:
                do = "What nobody measured is compared by fomkit estimate, with --target and --baseline."
                raise FomkitError(table, f"has no row of {what} {name!r}. It has: {', '.join(known)}. {do}")


def _rows_of(table: str) -> Sequence[Measurement]:
    from fomkit.readers.measurements import read_measurements  # imports pandas, which help does not need

    return read_measurements(locate(table, "measurements"))


def _sheet(found: Answer) -> bytes:
    from fomkit.output.files import to_xlsx

    return to_xlsx(list(found.rows), str(found.content["schema"]).split("/")[1])


@command(
    "projecting",
    arguments={"models": "MODEL"},
    metavar={"measured": "TABLE", "calibrate_on": "MODEL", "host_from": "MACHINE", "latency": "TIME"},
    shows={"cells": ("--all", "Show each cell: times, intervals, its claim and what limits its time.")},
    writes={".xlsx": _sheet},
)
def compare(
    models: Sequence[str | Path | ModelProfile] | None = None, *,
    machines: Sequence[str | Path | Machine] | None = None, measured: str | Path = "candle-lecture",
    baseline: str | Path | Machine = _BASELINE, calibrate_on: str | Path | ModelProfile | None = None,
    host_from: str | Path | Machine | None = None, grid: bool = False, latency: str | float | None = None,
    precision: Precision | None = None, interval: float = DEFAULT_LEVEL,
) -> Answer:  # fmt: skip
    """Compare fomkit's projections with measurements, cell by cell.

    Each cell states what a device model may claim (a time, only a ratio, or neither, and why), and whether the
    projection agrees with the measurement.

    Parameters
    ----------
    models : sequence of name, path or profile, optional
        Models to compare; default: all in the table.
    machines : sequence of name, path or profile, optional
        Machines to compare; default: all in the table.
    measured : name or path
        Table of measurements: a path, or the name of a shipped table.
    baseline : name, path or profile
        Machine that ratios refer to.
    calibrate_on : name, path or profile, optional
        Also multiply the other models' projections by the error factor of this model on the same machine.
    host_from : name, path or profile, optional
        Also add the host time measured on this machine to the projections of the same model on other machines.
    grid : bool
        Show rates by model, machine, framework and mode instead; nt3 and nt3-keras, one network, share a row.
    latency : str or float, optional
        With --grid: largest latency of inference; a number is in s; default: 7 ms.
    precision : str, optional
        With --grid: number formats of the projections; default: what each framework would do on the machine.
    interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/compare/1``, or ``fomkit/grid/1``; its table has the cells.

    Raises
    ------
    FomkitError
        When the table, a model or a machine is unknown, or the latency is invalid.
    """
    rows = _rows_of(table := str(measured))
    model = _Profiles((row.model for row in rows), as_model)
    machine = _Profiles((row.machine for row in rows), as_machine)
    named, base = [*map(model.name, models or ())], machine.name(baseline)
    targets = [*map(machine.name, machines or ())]
    like = None if calibrate_on is None else model.name(calibrate_on)
    host = None if host_from is None else machine.name(host_from)
    if not grid:
        _check_names(table, rows, [*named, like], [*targets, *({base, host} - {_BASELINE})])
    chosen = [row for row in rows if not named or row.model in (*named, like)]
    about = [row for row in chosen if not targets or row.machine in (*targets, base, host)]
    options = options_of(interval=interval, precision=precision)
    if grid:
        return _rates_grid(about, options, model, machine, named, targets, latency, (like, host))
    return _cell_by_cell(about, options, model, machine, base, like, host, latency)


def _cell_by_cell(
    about: Sequence[Measurement], options: Options, model: _Profiles[ModelProfile], machine: _Profiles[Machine],
    baseline: str, calibrate_on: str | None, host_from: str | None, latency: str | float | None,
) -> Answer:  # fmt: skip
    if latency is not None:
        raise FomkitError("latency", "limits inference, which needs `grid`. Add `grid`, or leave it out.")
    if options.precision is not None:
        raise FomkitError("precision", "needs --grid. Without it, each row of the measurements states its own.")
    from fomkit.output.comparisons import format_compare
    from fomkit.validation.cells import calibrated_on, cell_verdicts, counted_once, host_extended_from, make_cells
    from fomkit.validation.grid import compare_content

    rows, notes = counted_once(about)
    verdicts = cell_verdicts(make_cells(rows, options, model.load, machine.load, parts(len(rows))), baseline)
    calibrated = calibrated_on(verdicts, calibrate_on) if calibrate_on else ()
    hosted = host_extended_from(verdicts, host_from) if host_from else ()
    content = compare_content(verdicts, baseline, options.interval, calibrated, hosted, notes)
    return Answer(content, content["cells"], format_compare)


def _rates_grid(
    about: Sequence[Measurement], options: Options, model: _Profiles[ModelProfile], machine: _Profiles[Machine],
    models: Sequence[str], targets: Sequence[str], latency: str | float | None, of_cells: Sequence[str | None],
) -> Answer:  # fmt: skip
    for name, given in zip(("calibrate_on", "host_from"), of_cells, strict=True):
        if given is not None:
            raise FomkitError(name, "extends single cells, and `grid` shows rates. Leave one of them out.")
    from fomkit.output.comparisons import format_grid
    from fomkit.validation.cells import counted_once
    from fomkit.validation.grid import grid_content, make_grid

    rows, notes = counted_once(about)
    latency = "7 ms" if latency is None else latency
    limit_s = parse_quantity(latency, "time_s", "latency", "the time") if isinstance(latency, str) else latency
    if not 0 < limit_s < float("inf"):
        raise FomkitError("latency", f"is {latency!r}. Give a time above 0, for example '7 ms'.")
    profiles = [model.load(name) for name in models or dict.fromkeys(row.model for row in rows)]
    scoped = [row.machine for row in rows if row.scope in ("", "device")]
    machines = [machine.load(name) for name in targets or dict.fromkeys(scoped)]
    if not machines:
        raise FomkitError(
            ", ".join(profile.name for profile in profiles),
            "has no measurement in this table, so the machines are unknown. Name machines, for example "
            "'--target v100', or another table (--measured).",
        )
    cells = make_grid(profiles, machines, rows, options, limit_s, parts(len(profiles) * len(machines)))
    content = grid_content(cells, options.interval, limit_s, notes)
    return Answer(content, content["cells"], lambda whole, *screen, **_: format_grid(whole, *screen))
