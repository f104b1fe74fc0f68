"""``fomkit import``: timings become a machine, a table of ops a model, records of runs measurements."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fomkit.cli import choices
from fomkit.cli.choices import argument, option, output_option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.readers.tables.foreign import ImportedTimings


Source = Annotated[
    Path,
    argument(
        "A DeepBench workbook (.xlsx), a table of timings or ops (.csv), a log of nccl-tests or of OSU's "
        "micro-benchmarks, a profiler's trace (.json, .xplane.pb, .sqlite), a model (.onnx), a record of a run "
        "(.json, log), a wall meter's log (.csv).",
        "FILE",
    ),
]
FileFormat = Annotated[
    str | None,
    option(
        "Its format, or that of an installed adapter; default: by its content.",
        "--format",
        metavar="deepbench|deepbench-log|nccl-tests|osu|aiconfigurator|neusight|timings|ops|kineto|xplane|nsys|tfprof"
        "|onnx|benchmarker|dawnbench|mllog|meter",
    ),
]
OneDevice = Annotated[
    str | None, option("The device to read from a table of several.", "--device", metavar="NAME")
]
Sizes = Annotated[
    list[str] | None,
    option(
        "A model's named size, for example batch=64; ranks=N, nodes=N of a network's log.",
        "--set",
        metavar="NAME=N",
    ),
]
Written = Annotated[
    Path, output_option("The profile to write, NAME.yaml, its table beside it; measurements: NAME.csv.")
]
Product = Annotated[
    str | None,
    option("What to make of it; default: by its content.", "--as", metavar="machine|model|measurements"),
]
Facts = Annotated[
    Path | None, option("What the file does not say: a machine file without timings, a model file without ops.")
]
Name = Annotated[str | None, option("Name of the profile; default: that of the facts, or of the output.")]
OfModel = Annotated[str | None, option("The model profile that a record is a run of.", "--model", metavar="NAME")]
OnMachine = Annotated[
    str | None, option("The machine profile that a record or a trace ran on.", "--machine", metavar="NAME")
]
Graph = Annotated[
    Path | None,
    option("The Keras model that a trace of TensorFlow is of, for its sizes. It is run.", metavar="MODEL.py"),
]
Start = Annotated[
    str | None, option("A meter's log: from here, in the form of its times.", "--start", metavar="TIME")
]
End = Annotated[str | None, option("A meter's log: up to here.", "--end", metavar="TIME")]
Mode = Annotated[
    Literal["train", "infer"] | None,
    option("Of an ONNX file: a training step, or the forward pass only; default: train."),
]
Optimizer = Annotated[
    str | None, option("Of an ONNX file's training step: sgd, adam, …, none; default: sgd.", metavar="RULE")
]
_OF_MODEL = ("--set", "--samples", "--epochs", "--graph")
"""Options that say something of a model."""
_HEADINGS = ("kind", "sheet", "section", "pass", "imported", "corrected", "no time", "below 1 us", "skipped")


def _report(imported: ImportedTimings) -> list[str]:
    """Write what became of each section's rows as aligned lines."""
    rows = [_HEADINGS] + [
        (
            count.kind or "-", count.sheet, count.section, count.pass_name or "-", str(count.imported),
            str(count.corrected), str(count.without_time), str(count.below_resolution), str(count.skipped),
        )
        for count in imported.counts
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    form = "  ".join(f"{{:{'<' if place < 4 else '>'}{width}}}" for place, width in enumerate(widths))
    return [form.format(*row) for row in rows]


def import_file(
    source: Source,
    output: Written,
    product: Product = None,
    file_format: FileFormat = None,
    device: OneDevice = None,
    facts: Facts = None,
    name: Name = None,
    sizes: Sizes = None,
    samples: Annotated[int | None, option("A model's training samples in an epoch.", min=1)] = None,
    epochs: Annotated[int | None, option("A model's epochs in a run.", min=1)] = None,
    mode: Mode = None,
    optimizer: Optimizer = None,
    model: OfModel = None,
    machine: OnMachine = None,
    graph: Graph = None,
    start: Start = None,
    end: End = None,
    force: Annotated[bool, option("Replace files that exist already.", "--force")] = False,
    quiet: choices.Quiet = False,
) -> None:
    """Import timings as a machine profile; ops, a trace or ONNX as a model profile; records as measurements.

    The content decides which it is, never the name; where it fits several, say --as or --format.

    Examples:

      fomkit import DeepBench_NV_M40.xlsx -o machine_profiles/m40.yaml

      fomkit import vendor-timings.csv --facts datasheet.yaml -o mine.yaml

      fomkit import vendor-ops.csv --set batch=64 --epochs 90 -o theirs.yaml

      fomkit import trace.json.gz --set batch=64 -o traced.yaml

      fomkit import run.xplane.pb -o recorded.yaml

      fomkit import report.sqlite --set batch=64 -o reported.yaml

      fomkit import model.onnx --set batch=64 --optimizer adam -o network.yaml

      fomkit import record.json --model resnet50 --machine v100 -o run.csv

      fomkit import meter.csv --model resnet50 --machine v100 -o energy.csv
    """
    given = {
        "--device": device, "--facts": facts, "--name": name, "--set": sizes, "--samples": samples,
        "--epochs": epochs, "--graph": graph, "--mode": mode, "--optimizer": optimizer, "--model": model,
        "--machine": machine, "--start": start, "--end": end,
    }  # fmt: skip
    chosen, makes = _choose(source, product, file_format, {key: value for key, value in given.items() if value})
    if makes == "measurements":
        _import_measurements(source, output, chosen, model, machine, start, end, force=force)
    elif makes == "machine":
        _import_machine(source, output, chosen, facts, name, device, sizes, force=force, quiet=quiet)
    else:
        more = {"mode": mode, "optimizer": optimizer, "graph": graph}
        _import_model(source, output, chosen, facts, name, sizes, samples, epochs, machine, more, force=force)


def _choose(
    source: Path, wanted: str | None, file_format: str | None, given: Mapping[str, object]
) -> tuple[str, str]:
    """Choose format and product; refuse ``given`` options that say something of another thing."""
    from fomkit.readers.imports import TRACES, choose_import
    from fomkit.readers.tables.registry import READERS

    chosen, product = choose_import(source, wanted, file_format)

    def refuse(options: Iterable[str], why: str) -> None:
        if wrong := [option for option in options if option in given]:
            raise FomkitError(wrong[0], f"{why}. Leave it out.")

    if chosen != "meter":
        refuse(("--start", "--end"), "cuts a meter's log, and this is none")
    if chosen != "onnx":
        refuse(("--mode", "--optimizer"), "is for an ONNX file, and this is none")
    if product == "measurements":
        why = "says nothing of a record of a run; --model and --machine do"
        refuse(("--device", "--facts", "--name", *_OF_MODEL), why)
        return chosen, product
    refuse(("--model",), "names what a record of a run is of, and this is none")
    if chosen not in TRACES or product == "machine":
        refuse(("--machine",), "names where a record, or a trace that becomes a model, was made")
    of_run = ("--set",) if chosen in READERS and READERS[chosen].takes == "run" else ()
    if product == "machine" and any(option in given for option in _OF_MODEL if option not in of_run):
        raise FomkitError("import", f"{', '.join(_OF_MODEL)} say something of a model, not of a machine.")
    if product == "model" and "--device" in given:
        raise FomkitError(f"--device {given['--device']}", "says something of a table of timings, not of a model.")
    return chosen, product


def _check_profile(product: str, output: Path, facts: Path | None) -> None:
    """Raise where profile and facts cannot be what was said of them."""
    if output.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(output), "a profile is a YAML file. Write, for example, '-o machine.yaml'.")
    if facts is not None and not facts.is_file():
        table = "timings" if product == "machine" else "ops"
        raise FomkitError(
            str(facts), f"is not a file. Give a {product} file without {table}; see docs/profiles.md."
        )


def _import_measurements(
    source: Path, output: Path, chosen: str, model: str | None, machine: str | None, start: str | None,
    end: str | None, *, force: bool,
) -> None:  # fmt: skip
    from fomkit.files.write import check_absent, write_table
    from fomkit.verbs.measurements import import_measurements

    if output.suffix != ".csv":
        raise FomkitError(str(output), "measurements are a CSV file. Write, for example, '-o measured.csv'.")
    check_absent([output], force)
    imported = import_measurements(source, model=model, machine=machine, file_format=chosen, start=start, end=end)
    write_table(imported.table, output, "MEASUREMENTS")
    for line in imported.said:
        print(f"{source}: {line}", file=sys.stderr)
    for row in imported.table.to_dict("records"):
        print(f"{row['model']} on {row['machine']}: {row['quantity']} {row['value']:g}")
    print(f"Written: {output}")


def _import_machine(
    source: Path, output: Path, chosen: str, facts: Path | None, name: str | None, device: str | None,
    sizes: list[str] | None, *, force: bool, quiet: bool,
) -> None:  # fmt: skip
    from fomkit.files.write import check_absent
    from fomkit.profiles.evidence import verdict_on, without_implausible
    from fomkit.profiles.save_machine import save_machine
    from fomkit.readers.imports import import_timings
    from fomkit.readers.tables.registry import as_machine

    _check_profile("machine", output, facts)
    named = choices.parse_sizes(sizes or ())
    check_absent([output, output.with_name(f"{output.stem}.timings.csv")], force)
    stated = choices.load_machine(facts) if facts else None
    with choices.progress(f"reading {source.name}", quiet=quiet):
        imported = import_timings(source, chosen, device=device, sizes=named)
    machine = as_machine(imported, name or (stated.name if stated else output.stem), stated)
    verdict = verdict_on(without_implausible(machine))
    written = save_machine(machine, output)
    print(f"{machine.title}: {len(imported.timings)} timings from {source.name}")
    print("\n".join(_report(imported)))
    for count in imported.counts:
        if count.reason:
            print(f"sheet {count.sheet!r}, {count.section}: skipped: {count.reason}", file=sys.stderr)
    for remark in (*imported.remarks, *verdict):
        print(remark, file=sys.stderr)
    if stated is None:
        print("Peaks and bandwidth are not in this file and stay unknown; give them with --facts.")
    print(f"Written: {', '.join(map(str, written))}")


def _import_model(
    source: Path, output: Path, chosen: str, facts: Path | None, name: str | None,
    sizes: list[str] | None, samples: int | None, epochs: int | None, machine: str | None,
    more: Mapping[str, object], *, force: bool,
) -> None:  # fmt: skip
    from fomkit.files.write import check_absent
    from fomkit.profiles.models import save_model, tables_beside
    from fomkit.readers.imports import import_model

    _check_profile("model", output, facts)
    named = choices.parse_sizes(sizes or ())
    check_absent([output, *tables_beside(output)], force)
    ran_on = choices.load_machine(machine) if machine else None
    asked = {key: value for key, value in more.items() if value}
    model, said = import_model(
        source, facts, name=name or (None if facts else output.stem), file_format=chosen, sizes=named,
        train_samples=samples, epochs=epochs, machine=ran_on, **asked,
    )  # fmt: skip
    written = save_model(model, output)
    for line in (*said, *(f"unsupported: {one}" for one in model.unsupported)):
        print(f"{source}: {line}", file=sys.stderr)
    print(f"{model.name}: {len(model.ops):,} rows of ops from {source.name}")
    if model.data.train_samples is None or model.run.epochs is None:
        print("Samples and epochs of a run are not known; give them with --facts, or with --samples and --epochs.")
    print(f"Written: {', '.join(map(str, written))}")
