"""The verbs compare and validate.

``fomkit compare``: what was projected beside what was measured, and the grid of rates.

``fomkit validate``: the public comparisons rerun, figures beside their targets, tolerances and peers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fomkit.cli import choices
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.core.machine import Machine
    from fomkit.core.measurement import Measurement
    from fomkit.core.model import ModelProfile
    from fomkit.output.screen import Screen
    from fomkit.plan.options import Options


Models = Annotated[
    list[str] | None, choices.model_argument("Models to compare; default: all of the table.", "[MODEL...]")
]
Table = Annotated[
    str, typer.Option("--measured", metavar="TABLE", help="Measurements by path, or a shipped table by name.")
]
Targets = Annotated[
    list[str] | None, choices.machine_option("Machines to compare; default: all of the table.", "--target", "-t")
]
Grid = Annotated[
    bool, typer.Option("--grid", help="Rates by model, machine, framework and mode instead of the comparison.")
]
Sheet = Annotated[Path | None, choices.output_option("Write .json, .csv or .xlsx as well; replaces the file.")]
_DEFAULT_BASELINE = "p100"


def compare(
    models: Models = None,
    target: Targets = None,
    measured: Table = "candle-lecture",
    baseline: Annotated[str, choices.machine_option("Machine that ratios are to.")] = _DEFAULT_BASELINE,
    calibrate_on: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Carry how far off this model is to the others.")
    ] = None,
    host_from: Annotated[
        str | None, typer.Option(metavar="MACHINE", help="Carry the host's part of this machine to the others.")
    ] = None,
    grid: Grid = False,
    latency: Annotated[
        str, typer.Option(metavar="TIME", help="Most that inference may take, with --grid.")
    ] = "7 ms",
    interval: choices.Interval = 0.8,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/compare/1 or fomkit/grid/1.")] = False,
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
    from fomkit.plan.options import Options
    from fomkit.profiles.locate import locate
    from fomkit.readers.measurements import read_measurements
    from fomkit.validation.cells import counted_once

    if output is not None and output.suffix not in (".json", ".csv", ".xlsx"):
        raise FomkitError(str(output), "has an ending that compare cannot write. Use .json, .csv or .xlsx.")
    rows = read_measurements(locate(measured, "measurements"))
    loads = _Loads(rows)
    models, target = [loads.model(model) for model in models or []], [loads.machine(one) for one in target or []]
    baseline = loads.machine(baseline)
    calibrate_on, host_from = calibrate_on and loads.model(calibrate_on), host_from and loads.machine(host_from)
    if not grid:
        others = [name for name in (baseline, host_from) if name not in (None, _DEFAULT_BASELINE)]
        _check_names(measured, rows, models, [*target, *others])
    rows = tuple(row for row in rows if not models or row.model in (*models, calibrate_on))
    wanted = {*target, baseline, host_from} if target else None
    found = counted_once([row for row in rows if wanted is None or row.machine in wanted])
    options = Options(interval=interval)
    if grid:
        _grid(found, models, target, latency, options, (output, as_json, quiet), loads)
    else:
        _compare(found, baseline, calibrate_on, host_from, options, (output, as_json, quiet), loads)


class _Loads:
    """The profiles that names of a table's rows stand for: those that the user gave by path, else by the name."""

    def __init__(self, rows: Sequence[Measurement]) -> None:
        self._models = {row.model: row.model for row in rows}
        self._machines = {row.machine: row.machine for row in rows}

    def model(self, given: str) -> str:
        """Give the name that rows have of a model that was asked for by name or by path."""
        return self._name(given, self._models, choices.load_model)

    def machine(self, given: str) -> str:
        """Give the name that rows have of a machine that was asked for by name or by path."""
        return self._name(given, self._machines, choices.load_machine)

    @staticmethod
    def _name(given: str, paths: dict[str, str], load: Callable[[str], ModelProfile | Machine]) -> str:
        if given in paths or not ("/" in given or given.endswith((".yaml", ".yml"))):
            return given
        name = load(given).name
        paths[name] = given
        return name

    def load_model(self, name: str) -> ModelProfile:
        """Load the model of a row."""
        return choices.load_model(self._models.get(name, name))

    def load_machine(self, name: str) -> Machine:
        """Load the machine of a row."""
        return choices.load_machine(self._machines.get(name, name))


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


Found = tuple[tuple["Measurement", ...], tuple[str, ...]]
"""Rows of measurements, and what is to be said of those that were left out."""


def _compare(
    found: Found,
    baseline: str,
    calibrate_on: str | None,
    host_from: str | None,
    options: Options,
    ways: tuple[Path | None, bool, bool],
    loads: _Loads,
) -> None:
    from fomkit.output.comparisons import format_compare
    from fomkit.validation.cells import make_cells
    from fomkit.validation.grid import compare_content
    from fomkit.validation.verdicts import calibrated_on, cell_verdicts, host_extended_from

    with choices.progress("projecting", len(found[0]), quiet=ways[2]) as advance:
        cells = make_cells(found[0], options, loads.load_model, loads.load_machine, advance)
    all_verdicts = cell_verdicts(cells, baseline)
    calibrated = calibrated_on(all_verdicts, calibrate_on) if calibrate_on else ()
    hosted = host_extended_from(all_verdicts, host_from) if host_from else ()
    content = compare_content(all_verdicts, baseline, options.interval, calibrated, hosted, found[1])
    _show(content, format_compare, ways)


def _grid(
    found: Found,
    models: list[str] | None,
    targets: list[str] | None,
    latency: str,
    options: Options,
    ways: tuple[Path | None, bool, bool],
    loads: _Loads,
) -> None:
    from fomkit.core.units import parse_quantity
    from fomkit.output.comparisons import format_grid
    from fomkit.validation.grid import grid_content, make_grid

    rows, notes = found
    limit_s = parse_quantity(latency, "time_s", "--latency", "the time")
    profiles = [loads.load_model(name) for name in models or dict.fromkeys(row.model for row in rows)]
    scoped = [row.machine for row in rows if row.scope in ("", "device")]
    machines = [loads.load_machine(name) for name in targets or dict.fromkeys(scoped)]
    if not machines:
        raise FomkitError(
            ", ".join(profile.name for profile in profiles),
            "nobody measured it in this table, so no machine follows from it. Name machines, for example "
            "'--target v100', or another table (--measured).",
        )
    with choices.progress("projecting", len(profiles) * len(machines), quiet=ways[2]) as advance:
        cells = make_grid(profiles, machines, rows, options, limit_s, advance)
    content = grid_content(cells, options.interval, limit_s, notes)
    _show(content, format_grid, ways)


def _show(
    content: dict[str, Any],
    write: Callable[[dict[str, Any], Screen], str],
    ways: tuple[Path | None, bool, bool],
) -> None:
    from fomkit.files.write import write_whole
    from fomkit.output.files import to_xlsx

    output, as_json, _ = ways
    if output is not None and output.suffix == ".xlsx":
        write_whole(output, to_xlsx(content["cells"], "grid" if "latency_limit_s" in content else "compare"))
        output = None
    choices.write_answer(content, write, as_json=as_json, output=output, rows=content["cells"])


Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Labels laid out like validation/neusight; default: those."),
]
Full = Annotated[
    bool, typer.Option("--full", help="Refit and judge inside each fold, as a user would: minutes more.")
]
Sheets = Annotated[
    list[str] | None,
    typer.Option("--sheet", metavar="NAME", help="A DeepBench sheet, such as 'v100 fp32/vector'; default: all."),
]


Here = Annotated[
    bool,
    typer.Option(
        "--here", help="Measure this machine, estimate ten models' steps on its profile and time them: minutes."
    ),
]


def validate(
    data: Data = None,
    full: Full = False,
    sheets: Sheets = None,
    here: Here = False,
    quick: Annotated[bool, typer.Option("--quick", help="With --here: by the quick plan of measure.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/validate/1 instead of tables.")] = False,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Rerun the public comparisons: how far predictions are from measurements that nobody fitted.

    Shape groups left out of DeepBench's tables; NeuSight's labels of calls, whole models and ratios of machines,
    beside what published predictors said of the same labels. No label is ever fitted. The exit code is 1 where a
    figure is past its tolerance (validation/aims.csv).

    With --here the proof is on hardware, of PyTorch on this machine: once without any of the models' shapes in the
    profile, once with exactly these. The models are shipped; the exit code is 1 where a median error is past its
    tolerance.

    Examples:

      fomkit validate

      fomkit validate --data ../shared/data/neusight --json -o validation.json

      fomkit validate --sheet 'v100 fp32/vector'

      fomkit validate --here --quick
    """
    from fomkit.output.comparisons import format_proof, format_validation
    from fomkit.validation.here import content_of, prove_here
    from fomkit.validation.validate import validate as run

    choices.check_output(output, "validate")
    if here:
        if data is not None or full or sheets:
            raise FomkitError(
                "--here", "takes no --data, --full or --sheet: it times this machine. Leave them out."
            )
        with choices.status_line("starting", quiet=quiet) as tell:
            content = content_of(prove_here(quick=quick, tell=tell))
        choices.write_answer(content, format_proof, as_json=as_json, output=output, rows=content["models"])
    else:
        if quick:
            raise FomkitError("--quick", "is a plan of --here. Add --here, or leave it out.")
        with choices.progress("validating", quiet=quiet):
            content = run(data, full=full, sheets=sheets).content()
        choices.write_answer(content, format_validation, as_json=as_json, output=output, rows=content["lines"])
    if content["regressed"]:
        raise typer.Exit(1)
