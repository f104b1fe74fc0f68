"""``fomkit compare``: projected beside measured, and the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, NamedTuple, TypeVar

from fomkit.cli import choices
from fomkit.cli.choices import machine_option, model_argument, option, output_option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.core.machine import Machine
    from fomkit.core.measurement import Measurement
    from fomkit.core.model import ModelProfile
    from fomkit.plan.options import Options
    from fomkit.verbs.answer import Answer


Profile = TypeVar("Profile", "ModelProfile", "Machine")
Models = Annotated[list[str] | None, model_argument("Models to compare; default: all of the table.", "[MODEL...]")]
Table = Annotated[str, option("Measurements by path, or a shipped table by name.", "--measured", metavar="TABLE")]
Targets = Annotated[
    list[str] | None, machine_option("Machines to compare; default: all of the table.", "--target", "-t")
]
Grid = Annotated[bool, option("Rates by model, machine, framework and mode instead of the comparison.", "--grid")]
Sheet = Annotated[Path | None, output_option("Write .json, .csv or .xlsx as well; replaces the file.")]
_DEFAULT_BASELINE = "p100"


def compare(
    models: Models = None,
    target: Targets = None,
    measured: Table = "candle-lecture",
    baseline: Annotated[str, machine_option("Machine that ratios are to.")] = _DEFAULT_BASELINE,
    calibrate_on: Annotated[
        str | None, option("Carry how far off this model is to the others.", metavar="MODEL")
    ] = None,
    host_from: Annotated[
        str | None, option("Carry the host's part of this machine to the others.", metavar="MACHINE")
    ] = None,
    grid: Grid = False,
    latency: Annotated[str, option("Most that inference may take, with --grid.", metavar="TIME")] = "7 ms",
    interval: choices.Interval = 0.8,
    as_json: Annotated[bool, option("Print fomkit/compare/1 or fomkit/grid/1.", "--json")] = False,
    output: Sheet = None,
    quiet: choices.Quiet = False,
) -> None:
    """Put what fomkit projects beside what somebody measured, cell by cell.

    Each cell says what a device model may claim of it (its time, only its ratio, or neither and why), and whether
    the measurement agrees.

    Examples:

      fomkit compare

      fomkit compare tc1 nt3 --calibrate-on tc1

      fomkit compare --host-from p100 -o candle.csv

      fomkit compare tc1 p1b3 --grid --target v100
    """
    from fomkit.files.write import write_whole
    from fomkit.output.files import to_xlsx

    if output is not None and output.suffix not in (".json", ".csv", ".xlsx"):
        raise FomkitError(str(output), "has an ending that compare cannot write. Use .json, .csv or .xlsx.")
    answer = _answer(
        measured, models or (), target or (), baseline, calibrate_on, host_from,
        latency if grid else None, interval, quiet=quiet,
    )  # fmt: skip
    if output is not None and output.suffix == ".xlsx":
        write_whole(output, to_xlsx(list(answer.rows), "grid" if grid else "compare"))
        output = None
    choices.show_answer(answer, as_json=as_json, output=output)


def _answer(
    table: str, asked: Sequence[str], on: Sequence[str], baseline: str, calibrate_on: str | None,
    host_from: str | None, latency: str | None, interval: float, *, quiet: bool,
) -> Answer:  # fmt: skip
    """Choose the rows of the table, and project them: cell by cell, or as a grid where a ``latency`` is given."""
    from fomkit.profiles.locate import locate
    from fomkit.readers.measurements import read_measurements
    from fomkit.validation.cells import counted_once

    rows = read_measurements(locate(table, "measurements"))
    model = _Named([row.model for row in rows], choices.load_model)
    machine = _Named([row.machine for row in rows], choices.load_machine)
    models, targets = [*map(model.name, asked)], [*map(machine.name, on)]
    baseline = machine.name(baseline)
    calibrate_on = calibrate_on and model.name(calibrate_on)
    host_from = host_from and machine.name(host_from)
    if latency is None:
        others = [name for name in (baseline, host_from) if name not in (None, _DEFAULT_BASELINE)]
        _check_names(table, rows, models, [*targets, *others])
    rows = tuple(row for row in rows if not models or row.model in (*models, calibrate_on))
    wanted = {*targets, baseline, host_from} if targets else None
    found = counted_once([row for row in rows if wanted is None or row.machine in wanted])
    study = _Study(*found, model.load, machine.load, choices.options_of(interval=interval), quiet)
    if latency is not None:
        return study.grid(models, targets, latency)
    return study.compared(baseline, calibrate_on, host_from)


class _Named(Generic[Profile]):
    """Profiles that names of a table's rows stand for: those that the user gave by path, else by the name."""

    def __init__(self, names: Sequence[str], load: Callable[[str], Profile]) -> None:
        self._paths = {name: name for name in names}
        self._load: Callable[[str], Profile] = load

    def name(self, given: str) -> str:
        """Give the name that rows have of a profile that was asked for by name or by path."""
        if given in self._paths or not ("/" in given or given.endswith((".yaml", ".yml"))):
            return given
        name = self._load(given).name
        self._paths[name] = given
        return name

    def load(self, name: str) -> Profile:
        """Load the profile of a row."""
        return self._load(self._paths.get(name, name))


def _check_names(
    table: str, rows: tuple[Measurement, ...], models: list[str], machines: Sequence[str | None]
) -> None:
    for what, given, known in (
        ("the model", models, dict.fromkeys(row.model for row in rows)),
        ("the machine", machines, dict.fromkeys(row.machine for row in rows)),
    ):
        for name in given:
            if name not in known:
                raise FomkitError(table, f"has no row of {what} {name!r}. It has: {', '.join(known)}.")


class _Study(NamedTuple):
    """Rows of measurements, what is to be said of those that were left out, and how to project them."""

    rows: tuple[Measurement, ...]
    notes: tuple[str, ...]
    load_model: Callable[[str], ModelProfile]
    load_machine: Callable[[str], Machine]
    options: Options
    quiet: bool

    def compared(self, baseline: str, calibrate_on: str | None, host_from: str | None) -> Answer:
        """Put projections beside the rows, cell by cell."""
        from fomkit.output.comparisons import format_compare
        from fomkit.validation.cells import make_cells
        from fomkit.validation.grid import compare_content
        from fomkit.validation.verdicts import calibrated_on, cell_verdicts, host_extended_from
        from fomkit.verbs.answer import Answer

        with choices.progress("projecting", len(self.rows), quiet=self.quiet) as advance:
            cells = make_cells(self.rows, self.options, self.load_model, self.load_machine, advance)
        verdicts = cell_verdicts(cells, baseline)
        calibrated = calibrated_on(verdicts, calibrate_on) if calibrate_on else ()
        hosted = host_extended_from(verdicts, host_from) if host_from else ()
        content = compare_content(verdicts, baseline, self.options.interval, calibrated, hosted, self.notes)
        return Answer(content, content["cells"], format_compare)

    def grid(self, models: Sequence[str], targets: Sequence[str], latency: str) -> Answer:
        """Give rates by model, machine, framework and mode."""
        from fomkit.core.units import parse_quantity
        from fomkit.output.comparisons import format_grid
        from fomkit.validation.grid import grid_content, make_grid
        from fomkit.verbs.answer import Answer

        limit_s = parse_quantity(latency, "time_s", "--latency", "the time")
        profiles = [self.load_model(name) for name in models or dict.fromkeys(row.model for row in self.rows)]
        scoped = [row.machine for row in self.rows if row.scope in ("", "device")]
        machines = [self.load_machine(name) for name in targets or dict.fromkeys(scoped)]
        if not machines:
            raise FomkitError(
                ", ".join(profile.name for profile in profiles),
                "nobody measured it in this table, so no machine follows from it. Name machines, for example "
                "'--target v100', or another table (--measured).",
            )
        with choices.progress("projecting", len(profiles) * len(machines), quiet=self.quiet) as advance:
            cells = make_grid(profiles, machines, self.rows, self.options, limit_s, advance)
        content = grid_content(cells, self.options.interval, limit_s, self.notes)
        return Answer(content, content["cells"], format_grid)
