"""``fomkit predict``: a table of anybody's ops gets a time, an interval and its evidence, row by row."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fomkit.cli import choices
from fomkit.cli.choices import argument, option, output_option
from fomkit.core.errors import FomkitError

STDOUT = Path("-")


def predict(
    source: Annotated[Path, argument("The table, .csv or .csv.gz.", "OPS.csv")],
    target: choices.Target,
    output: Annotated[Path, output_option("The table to write (.csv); - is standard output.")] = STDOUT,
    sizes: choices.Sizes = None,
    interval: choices.Interval = 0.8,
    keep: Annotated[list[str] | None, option("A column of yours whose name looks like one of fomkit's.")] = None,
    allow_uncovered: Annotated[
        bool, option("Exit with 0 even where rows have no time.", "--allow-uncovered")
    ] = False,
    force: Annotated[bool, option("Replace a file that exists already.", "--force")] = False,
    quiet: choices.Quiet = False,
) -> None:
    """Predict every op of a table on a machine.

    The table needs the columns kind, dtype and the dimensions of its kinds (docs/profiles.md). Where op, engine,
    pass_name or count are missing, a default is taken and said. Your own columns are kept. The result has the same
    rows in the same order, with flop, byte, launches, least_flop, time_s, low_s, high_s, time_source, bound and
    evidence. A row that nothing can price has no time and is listed; the exit code is then 1.

    Examples:

      fomkit predict ops.csv --target v100 -o timed.csv

      fomkit predict resnet50.ops.csv -t p100 --set batch=64 > timed64.csv
    """
    from fomkit.files.op_csv import format_as_given, read_numbered_table
    from fomkit.files.write import check_absent, write_whole
    from fomkit.output.estimates import format_prediction
    from fomkit.plan.op_tables import predict_ops

    if output != STDOUT:
        if output.suffix != ".csv":
            raise FomkitError(str(output), "is to be a table. Write, for example, '-o timed.csv'.")
        check_absent([output], force)
    ops = read_numbered_table(source, "TIMED", keep=keep or ())
    named = choices.parse_sizes(sizes or ())
    with choices.progress(f"predicting {source.name}", quiet=quiet):
        found = predict_ops(ops, choices.load_machine(target), sizes=named, interval=interval, where=str(source))
    text = format_as_given(found.ops, "TIMED")
    if output == STDOUT:
        print(text, end="")
    else:
        write_whole(output, text)
    summary = format_prediction(found.content(), source.name)
    for line in found.said:
        print(f"{source}: {line}", file=sys.stderr)
    print(summary, end="", file=sys.stderr if output == STDOUT else sys.stdout)
    if output != STDOUT:
        print(f"Written: {output}")
    if len(found.unpriced) and not allow_uncovered:
        raise typer.Exit(1)
