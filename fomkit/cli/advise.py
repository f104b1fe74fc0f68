"""``fomkit advise``: what to change in a training on a machine, and the time at stake.

``fomkit explain``: what carries the time of a step, what that rests on, and what to time first.

``fomkit memory``: what a step takes of a device's memory, when, for what, and the largest batch that fits.

``fomkit predict``: a table of anybody's ops gets a time, an interval and its evidence, row by row.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fomkit.cli import choices
from fomkit.cli.choices import argument, machine_option, option, output_option
from fomkit.core.errors import FomkitError


def advise(
    model: choices.Model,
    target: choices.Target,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    interval: choices.Interval = 0.8,
    tried: Annotated[
        bool, option("List too what was tried and rejected, and what does not apply.", "--all")
    ] = False,
    as_json: Annotated[bool, option("Print fomkit/advise/1 instead of text.", "--json")] = False,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Advise what to change in a training: use of the device, memory, and the time at stake of each change.

    Each change is estimated again. The -o file as .csv has one line for each finding.

    Examples:

      fomkit advise resnet50 --target v100

      fomkit advise gpt2 --target a100-sxm --precision bf16 --batch 8 --all
    """
    from fomkit.output.advice import format_advice, lines_of_findings
    from fomkit.whatif.advice.advise import advise as advise_on

    choices.check_output(output, "advise")
    options = choices.options_of(batch, interval, sizes=sizes, precision=precision)
    with choices.progress("trying changes", quiet=quiet):
        content = dict(advise_on(choices.load_model(model), choices.load_machine(target), options).content)
    write = partial(format_advice, tried=tried)
    choices.write_answer(content, write, as_json=as_json, output=output, rows=lines_of_findings(content))


Output = Annotated[
    Path | None, output_option("Write as well: .json everything, .csv the ops to time; replaces the file.")
]


def explain(
    model: choices.Model,
    target: choices.Target,
    top: Annotated[int, option("Ops, and measurements, to list.", min=1)] = 10,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    interval: choices.Interval = 0.8,
    as_json: Annotated[bool, option("Print fomkit/explain/1 instead of text.", "--json")] = False,
    output: Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Explain a step's time: its longest ops, what each rests on, and what to time.

    For each op: time with interval, the nearest timings and where they stand, the formulas of arithmetic and
    traffic with the numbers put in, and the floor. At the end, which ops timed on the machine would shrink the
    step's interval most. The method's nine steps are in 'fomkit estimate --explain'.

    Examples:

      fomkit explain resnet50 --target v100 --top 5

      fomkit explain gpt2 --target a100-sxm --set seq=512 --precision bf16

      fomkit explain p1b3-lecture --target x86-lecture --json
    """
    from fomkit.output.estimates import format_evidence, measurement_rows
    from fomkit.plan.evidence import explain_ops

    choices.check_output(output, "explain")
    options = choices.options_of(batch, interval, allow_uncovered=True, sizes=sizes, precision=precision)
    with choices.progress("explaining", quiet=quiet):
        content = explain_ops(choices.load_model(model), choices.load_machine(target), options, top)
    choices.write_answer(content, format_evidence, as_json=as_json, output=output, rows=measurement_rows(content))


def memory(
    model: choices.Model,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    target: Annotated[str | None, machine_option("Machine whose device is to hold it.", "--target", "-t")] = None,
    as_json: Annotated[bool, option("Print fomkit/memory/1 instead of tables.", "--json")] = False,
    output: choices.Output = None,
    quiet: choices.Quiet = False,
) -> None:
    """Follow the memory of one step: parameters, gradients, optimizer state, activations, by moment and module.

    The -o file as .csv has one line for each moment.

    Examples:

      fomkit memory resnet50 --batch 64 --target v100

      fomkit memory gpt2 --set seq=512 --json
    """
    from fomkit.output.machines import format_memory
    from fomkit.verbs.machine_view import memory_content

    choices.check_output(output, "memory")
    with choices.progress("following the memory", quiet=quiet):
        machine = None if target is None else choices.load_machine(target)
        options = choices.options_of(batch, sizes=sizes)
        content = memory_content(choices.load_model(model), options, machine)
    choices.write_answer(content, format_memory, as_json=as_json, output=output, rows=content["live"])


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
