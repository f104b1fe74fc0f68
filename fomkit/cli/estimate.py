"""``fomkit estimate``: models on machines, with intervals and coverage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fomkit.cli import choices
from fomkit.cli.choices import machine_option, model_argument, option, output_option
from fomkit.cli.workbooks import write_and_report
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fomkit.core.measurement import Measurement
    from fomkit.core.model import LastBatch
    from fomkit.plan.options import Options
    from fomkit.verbs.answer import Spread
    from fomkit.verbs.compare import Comparison


Models = Annotated[
    list[str] | None,
    model_argument(
        "Model profiles by name or path, or a folder of them; a model.py or ONNX file is profiled first. None: "
        "all right in ./model_profiles."
    ),
]
Baseline = Annotated[str | None, machine_option("Machine to compare with; gives ratios and a FOM.")]
Measured = Annotated[
    Path | None,
    option(
        "Measurements of the baseline, by path or name: tells them times the predicted ratio as well.",
        "--from",
        metavar="CSV",
    ),
]
Partial = Annotated[Literal["drop", "keep"] | None, option("Drop or keep a partial last batch.")]
Explained = Annotated[bool, option("Print the nine steps, each with its number.", "--explain")]
EstimateOutput = Annotated[
    Path | None,
    output_option(
        "Write .json, .csv, a workbook that computes (.xlsx) or a report (.html) as well; replaces the file."
    ),
]


def estimate(
    models: Models = None,
    target: Annotated[list[str] | None, choices.MACHINES] = None,
    baseline: Baseline = None, measurements: Measured = None,
    batch: choices.Batch = None, sizes: choices.Sizes = None, precision: choices.Precisions = None,
    scope: choices.Scopes = None, nodes: choices.Nodes = None, layout: choices.Layouts = None,
    links: choices.Links = None, node_devices: choices.NodeDevices = None,
    interval: choices.Interval = 0.8, last_batch: Partial = None,
    allow_uncovered: choices.Uncovered = False, allow_oversize: choices.Oversize = False,
    explain: Explained = False,
    as_json: Annotated[bool, option("Print fomkit/estimate/1 instead of a table.", "--json")] = False,
    output: EstimateOutput = None, only: choices.Only = None, quiet: choices.Quiet = False,
) -> None:  # fmt: skip
    """Estimate steps, runs and units of work per day.

    Exit code 1 where the device's memory does not hold a step: nobody can have its units a day.

    Examples:

      fomkit estimate --target v100

      fomkit estimate resnet50 gpt2 --target v100 --baseline p100

      fomkit estimate candle --target v100

      fomkit estimate resnet50 --target v100 --baseline p100 --from measured.csv

      fomkit estimate gpt2 --target v100 --batch 8 --set seq=512 --precision mixed

      fomkit estimate p1b3 --target v100 --baseline p100 --for v100 -o v100.xlsx

      fomkit estimate resnet50 --target v100 -o report.html

      fomkit estimate p1b3-lecture --target x86-lecture --explain

      fomkit estimate gpt-22b -t a100-sxm --nodes 1 --batch 2 --layout tensor=8
    """
    from fomkit.profiles.models import model_names, models_named
    from fomkit.verbs.answer import spread_as
    from fomkit.verbs.compare import estimates_content

    if not target:
        raise FomkitError("estimate", "no machine is named. Add, for example, '--target v100'.")
    rows = _read_rows(measurements, baseline)
    chosen = choices.options_of(batch, interval, scope, last_batch, allow_uncovered, sizes, precision)
    spread = spread_as(nodes, layout or (), links or (), node_devices)
    names = [one for name in models for one in models_named(name)] if models else model_names()
    several = len(names) * (len(target) + bool(baseline))
    _check_output(output, only, several)
    with choices.progress("estimating", several, quiet=quiet) as advance:
        result = _estimated(names, target, baseline, chosen, rows, advance, spread, skip_failures=not models)
    _check_steps(result, asked=explain and not as_json)
    block = _measured_block(result, rows, str(measurements), last_batch)
    if output is not None:
        _write(result, output, only, rows, block, quiet)
    _show(content := estimates_content(result, block), output, as_json)
    if explain and not as_json:
        _show_steps(result, content)
    choices.end_if_oversize(result.unfit, allowed=allow_oversize)


def _estimated(
    names: Sequence[str],
    target: Sequence[str],
    baseline: str | None,
    chosen: Options,
    rows: tuple[Measurement, ...],
    after_each: Callable[[], None],
    spread: Spread,
    *,
    skip_failures: bool,
) -> Comparison:
    """Load what is named, estimate each model on each machine, and hold figures of merit against measured runs."""
    import pandas as pd

    from fomkit.verbs.compare import compare

    # Where PyArrow is installed pandas keeps text in its arrays, which are slower on tables of this size.
    with pd.option_context("mode.string_storage", "python"):
        machines = [choices.load_machine(name) for name in target]
        base = choices.load_machine(baseline) if baseline else None
        models = [choices.load_model(name) for name in names]
        measured = None
        if base:
            from fomkit.readers.measurements import all_measured

            known = all_measured()[0]
            measured = known._replace(rows=(*known.rows, *rows))
        return compare(
            models,
            machines,
            base,
            chosen,
            skip_failures=skip_failures,
            after_each=after_each,
            measured=measured,
            spread=spread,
        )


def _check_output(path: Path | None, only: str | None, estimates: int) -> None:
    """Raise before the estimating when nothing could be written after it."""
    choices.check_workbook(path, only, (".json", ".csv", ".html"))
    if path is None or path.suffix != ".html":
        return
    from fomkit.files.write import check_absent
    from fomkit.output.pages import check_libraries
    from fomkit.verbs.report.write import check_few

    check_libraries()
    check_few(estimates)
    check_absent([path], force=True)


def _write(
    result: Comparison,
    path: Path,
    only: str | None,
    rows: tuple[Measurement, ...],
    block: dict[str, Any] | None,
    quiet: bool,
) -> None:
    """Write a workbook or a page; the other endings are of what is shown."""
    from fomkit.output.estimates import format_from_measurements
    from fomkit.verbs.report.write import write_comparison
    from fomkit.workbook.from_studies import sheet_model_of_comparison

    if path.suffix == ".xlsx":
        write_and_report(sheet_model_of_comparison(result), path, only)
    if path.suffix == ".html":
        aside = "" if block is None else format_from_measurements(block)
        with choices.progress("writing the report", quiet=quiet):
            write_comparison(result, path, rows=rows, aside=aside)


def _read_rows(path: Path | None, baseline: str | None) -> tuple[Measurement, ...]:
    """Read measurements before the estimating, which takes longer; a table of none is refused by its reader."""
    if path is None:
        return ()
    from fomkit.profiles.locate import locate
    from fomkit.readers.measurements import read_measurements

    if not baseline:
        raise FomkitError(
            f"--from {path}", "needs the machine they were taken on. Add, for example, '--baseline p100'."
        )
    return read_measurements(locate(str(path), "measurements"))


def _show(content: dict[str, Any], output: Path | None, as_json: bool) -> None:
    from fomkit.output.estimates import format_from_measurements, with_ways
    from fomkit.output.terminal import format_estimates

    of_content = output if output and output.suffix in (".json", ".csv") else None
    choices.write_answer(content, format_estimates, as_json=as_json, output=of_content, rows=with_ways(content))
    if "from_measurements" in content and not as_json:
        print(format_from_measurements(content["from_measurements"], choices.standard_output()), end="")


def _measured_block(
    result: Comparison, rows: tuple[Measurement, ...], path: str, last_batch: LastBatch | None
) -> dict[str, Any] | None:
    if not rows:
        return None
    from fomkit.verbs.from_measurements import from_measurements, measured_content

    return measured_content(from_measurements(result, rows, path, last_batch), path)


def _check_steps(result: Comparison, *, asked: bool) -> None:
    """Raise before anything is written or shown when the steps of the method cannot be told of a run."""
    from fomkit.plan.estimate import check_one_device

    check_one_device(result.estimates if asked else (), "the lecture's method")


def _show_steps(result: Comparison, content: dict[str, Any]) -> None:
    from fomkit.output.terminal import format_explanation, format_terms
    from fomkit.verbs.looks import method_steps

    merits = {merit.target.machine: merit for merit in result.merits}
    blocks = content["models"][len(result.baseline) :]
    for one, block in zip(result.estimates, blocks, strict=True):
        steps = method_steps(one, merits.get(one.machine.name))
        title = f"\n{one.model.name} on {one.machine.name}, in nine steps"
        print(format_explanation(title, steps, choices.standard_output()), end="")
        if block["energy_j"] is not None:
            print(format_terms(block), end="")
