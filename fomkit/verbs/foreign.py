"""Import and export: foreign timings, ops, traces and records become profiles or measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.units import count_text
from fomkit.plan.options import check_counts, check_options
from fomkit.verbs.answer import Answer, Table, checked, command, written

if TYPE_CHECKING:
    from fomkit.core.machine import Machine
    from fomkit.core.model import ModelProfile
    from fomkit.readers.measurements import ImportedMeasurements
    from fomkit.readers.tables.foreign import ImportedTimings

_FORMATS = (
    "deepbench|deepbench-log|nccl-tests|osu|aiconfigurator|neusight|timings|ops|kineto|xplane|nsys|tfprof|onnx"
    "|benchmarker|dawnbench|mllog|meter"
)
_OF_MODEL = ("sizes", "train_samples", "epochs", "graph")
"""Arguments that only apply to a model."""
_COUNTS = ("imported", "corrected", "no time", "below 1 us", "skipped")
_HEADINGS = ("kind", "sheet", "section", "pass", *((name, "right") for name in _COUNTS))
_NEXT = {"machine": "fomkit show {file}", "model": "fomkit estimate {file} --target v100"}


@command(
    "reading",
    arguments={"source": "FILE"},
    spelled={
        "product": ("--as",), "file_format": ("--format",), "train_samples": ("--samples",),
        "machine": ("--machine",),
    },
    metavar={
        "product": "machine|model|measurements", "file_format": _FORMATS, "device": "NAME", "model": "NAME",
        "machine": "NAME", "graph": "MODEL.py", "start": "TIME", "end": "TIME", "optimizer": "RULE",
    },
    plain=True,
)  # fmt: skip
def import_file(
    source: str | Path, output: str | Path, *,
    product: Literal["machine", "model", "measurements"] | str | None = None, file_format: str | None = None,
    device: str | None = None, facts: str | Path | None = None, name: str | None = None,
    sizes: Mapping[str, int] | None = None, train_samples: int | None = None, epochs: int | None = None,
    mode: Literal["train", "infer"] | None = None, optimizer: str | None = None, model: str | None = None,
    machine: str | None = None, graph: str | Path | None = None, start: str | None = None,
    end: str | None = None, force: bool = False,
) -> Answer:  # fmt: skip
    """Import timings as a machine profile; ops, a trace or ONNX as a model profile; records as measurements.

    The format is recognised by the file's content, never by its name. Where several formats fit, choose with --as
    or --format.

    Parameters
    ----------
    source : path
        A DeepBench workbook (.xlsx), a table of timings or ops (.csv), a log of nccl-tests or of OSU's
        micro-benchmarks, a profiler's trace (.json, .xplane.pb, .sqlite), a model (.onnx), a record of a run
        (.json, log), a wall meter's log (.csv).
    output : path
        File to write: a profile, NAME.yaml, with its table in a file beside it; or measurements, NAME.csv.
    product : str, optional
        What to make from the file; default: determined by its content.
    file_format : str, optional
        Format of the file, or of an installed adapter; default: determined by its content.
    facts : path, optional
        Profile with the facts that the file lacks: of a machine without timings, or of a model without ops.
    name : str, optional
        Name of the profile; default: the name in the facts, else that of the output file.
    sizes : mapping, optional
        Named size of a model, for example batch=64; for a network's log ranks=N or nodes=N.
    machine : str, optional
        Name of the machine profile that the run of a record, or of a trace, was made on.
    device
        As of `fomkit.import_machine`.
    train_samples, epochs, mode, optimizer, graph
        As of `fomkit.import_model`.
    model, start, end
        As of `fomkit.import_measurements`.
    force : bool
        Replace files that exist already.

    Returns
    -------
    Answer
        ``fomkit/written/1``: the files that were written; `fomkit.import_machine`, `fomkit.import_model` and
        `fomkit.import_measurements` return what is read and write nothing.

    Raises
    ------
    FomkitError
        When the file is of no known format or broken, or an option does not apply to it.
    """
    given: dict[str, Any] = {
        "device": device, "facts": facts, "name": name, "sizes": sizes, "train_samples": train_samples,
        "epochs": epochs, "graph": graph, "mode": mode, "optimizer": optimizer, "model": model,
        "machine": machine, "start": start, "end": end,
    }  # fmt: skip
    return _import_path(Path(source), Path(output), product, file_format, given, force=force)


def _import_path(
    path: Path, target: Path, product: str | None, file_format: str | None, given: Mapping[str, Any], *,
    force: bool,
) -> Answer:  # fmt: skip
    """Read a file, write the result, and report what was found; ``given``: the options of `import_file`."""
    from fomkit.readers.registry import choose_import
    from fomkit.verbs.profiles import check_save, save

    check_options(sizes=given["sizes"])
    check_counts(train_samples=given["train_samples"], epochs=given["epochs"])
    chosen, makes = choose_import(path, product, file_format)
    _check_given([name for name, value in given.items() if value], given, chosen, makes)
    check_save(makes, target, force=force)
    if given["facts"] is not None and not Path(given["facts"]).is_file():
        table = "timings" if makes == "machine" else "ops"
        raise FomkitError(
            str(given["facts"]), f"is not a file. Give a {makes} file without {table}; see docs/profiles.md."
        )
    readers = {"machine": _read_machine, "model": _read_model, "measurements": _read_measurements}
    read: Callable[..., Any] = readers[makes]
    found, lines, remarks, *table = read(path, target.stem, chosen, given)
    files = save(found, target, force=force)
    lines.append(f"Written: {', '.join(map(str, files))}")
    if makes in _NEXT:
        lines.append(f"Next: {_NEXT[makes].format(file=quote(files[0].as_posix()))}")
    return written(files, lines, remarks, *table)


def _check_given(names: Iterable[str], given: Mapping[str, Any], chosen: str, makes: str) -> None:
    """Refuse options that do not apply to the content of the file."""
    from fomkit.readers.registry import READERS, TRACES

    def refuse(wrong: Iterable[str], why: str) -> None:
        if found := [name for name in wrong if name in names]:
            raise FomkitError(found[0], f"{why}. Leave it out.")

    if chosen != "meter":
        refuse(("start", "end"), "is for a meter's log, and this is none")
    if chosen != "onnx":
        refuse(("mode", "optimizer"), "is for an ONNX file, and this is none")
    if makes == "measurements":
        why = "is not for a record of a run; `model` and `machine` are"
        refuse(("device", "facts", "name", *_OF_MODEL), why)
        return
    refuse(("model",), "is for a record of a run, and this is none")
    if chosen not in TRACES or makes == "machine":
        refuse(("machine",), "is for a record, or for a trace that becomes a model")
    of_run = ("sizes",) if chosen in READERS and READERS[chosen].takes == "run" else ()
    if makes == "machine" and any(name in names for name in _OF_MODEL if name not in of_run):
        listed = ", ".join(f"`{name}`" for name in _OF_MODEL)
        raise FomkitError("import", f"{listed} are for a model, not for a machine.")
    if makes == "model" and "device" in names:
        raise FomkitError(f"device {given['device']}", "is for a table of timings, not for a model.")


def _read_machine(
    path: Path, stem: str, chosen: str, given: Mapping[str, Any]
) -> tuple[Machine, list[str], list[str], Table]:
    from fomkit.core.measurement import verdict_on
    from fomkit.profiles.evidence import without_implausible

    facts, name = given["facts"], given["name"]
    machine, imported = _with_timings(path, chosen, facts, name, stem, given["device"], given["sizes"])
    rows = [
        (
            count.kind, count.sheet.strip("-"), count.section, count.pass_name, str(count.imported),
            str(count.corrected), str(count.without_time), str(count.below_resolution), str(count.skipped),
        )
        for count in imported.counts
    ]  # fmt: skip
    lines = [f"{machine.title}: {count_text(len(imported.timings), 'timing')} from {path.name}"]
    if facts is None:
        lines.append("Peaks and bandwidth are missing in this file and stay unknown; give them with --facts.")
    remarks = [
        f"{'' if one.sheet == '-' else f'sheet {one.sheet!r}, '}{one.section}: skipped: {one.reason}"
        for one in imported.counts
        if one.reason
    ]
    return (
        machine,
        lines,
        [*remarks, *imported.remarks, *verdict_on(without_implausible(machine))],
        [_HEADINGS, *rows],
    )


# The remark for a profile, by whether it lacks the samples, and whether it lacks the epochs.
_UNKNOWN = {
    (True, True): ["Samples and epochs of a run are unknown; give them with --facts, or --samples and --epochs."],
    (True, False): ["The samples of an epoch are unknown; give them with --facts or --samples."],
    (False, True): ["The epochs of a run are unknown; give them with --facts or --epochs."],
}


def _read_model(
    path: Path, stem: str, chosen: str, given: Mapping[str, Any]
) -> tuple[ModelProfile, list[str], list[str]]:
    of_model = ("facts", "machine", "sizes", "train_samples", "epochs", "graph", "mode", "optimizer")
    name = given["name"] or (None if given["facts"] else stem)
    model, remarks = _with_facts(path, chosen, name=name, **{one: given[one] for one in of_model})
    lines = [f"{model.name}: {count_text(len(model.ops), 'row')} of ops from {path.name}"]
    lines += _UNKNOWN.get((model.data.train_samples is None, model.run.epochs is None), [])
    unsupported = (f"unsupported: {name}" for name in model.unsupported)
    return model, lines, [f"{path}: {one}" for one in (*remarks, *unsupported)]


def _read_measurements(
    path: Path, _stem: str, chosen: str, given: Mapping[str, Any]
) -> tuple[ImportedMeasurements, list[str], list[str]]:
    arguments = {name: given[name] for name in ("model", "machine", "start", "end")}
    found = import_measurements(path, file_format=chosen, **arguments)
    rows = found.table.to_dict("records")
    lines = [f"{row['model']} on {row['machine']}: {row['quantity']} {row['value']:g}" for row in rows]
    return found, lines, [f"{path}: {line}" for line in found.messages]


@checked
def import_machine(
    source: str | Path, facts: str | Path | Machine | None = None, *, name: str | None = None,
    file_format: str | None = None, device: str | None = None, sizes: Mapping[str, int] | None = None,
) -> Machine:  # fmt: skip
    """Read timings of ops as a machine profile; `fomkit.save` writes it.

    Parameters
    ----------
    source, facts, name, file_format, sizes
        See `fomkit.import_file`; without a name or facts the machine is named after the file.
    device : str, optional
        Device to read from a table with several.

    Returns
    -------
    Machine
        Its ``notes`` are the reader's remarks.

    Raises
    ------
    FomkitError
        When the file is of no known format, or broken.
    """
    from fomkit.readers.registry import choose_import

    check_options(sizes=sizes)
    path = Path(source)
    chosen, _ = choose_import(path, "machine", file_format)
    return _with_timings(path, chosen, facts, name, path.name.partition(".")[0], device, sizes)[0]


def _with_timings(
    path: Path, chosen: str, facts: str | Path | Machine | None, name: str | None, stem: str, device: str | None,
    sizes: Mapping[str, int] | None,
) -> tuple[Machine, ImportedTimings]:  # fmt: skip
    """Read the timings of a machine; ``stem``: its name where neither ``name`` nor the facts state one."""
    from fomkit.readers.registry import as_machine as with_facts
    from fomkit.readers.registry import import_timings
    from fomkit.verbs.profiles import as_machine

    stated = None if facts is None else as_machine(facts, "facts")
    imported = import_timings(path, chosen, device=device, sizes=sizes)
    return with_facts(imported, name or (stated.name if stated else stem), stated), imported


@checked
def import_model(
    source: str | Path, facts: str | Path | None = None, *, name: str | None = None,
    file_format: str | None = None, sizes: Mapping[str, int] | None = None, train_samples: int | None = None,
    epochs: int | None = None, machine: str | Path | Machine | None = None, graph: str | Path | None = None,
    mode: Literal["train", "infer"] | None = None, optimizer: str | None = None,
) -> ModelProfile:  # fmt: skip
    """Read a table of ops, a profiler's trace or an ONNX file as a model profile; `fomkit.save` writes it.

    Parameters
    ----------
    source, facts, name, file_format, sizes, machine
        See `fomkit.import_file`; without a name or facts the model is named after the file.
    train_samples : int, optional
        Training samples of an epoch; overrides the facts.
    epochs : int, optional
        Epochs of a run; overrides the facts.
    graph : path, optional
        For a TensorFlow trace: Python file of the traced Keras model, from which the sizes are read. It is
        executed.
    mode : str, optional
        For an ONNX file: a training step (train) or the forward pass only (infer); default: train.
    optimizer : str, optional
        For the training step of an ONNX file: sgd, adam, …, none; default: sgd.

    Returns
    -------
    ModelProfile
        Its ``notes`` state what was filled in and what is partial.

    Raises
    ------
    FomkitError
        When the file is of no known format or broken, a size is missing, or an argument is for another format.
    """
    from fomkit.readers.registry import choose_import

    check_options(sizes=sizes)
    chosen, _ = choose_import(Path(source), "model", file_format)
    return _with_facts(
        Path(source), chosen, facts, machine, name=name, sizes=sizes, train_samples=train_samples, epochs=epochs,
        graph=graph, mode=mode, optimizer=optimizer,
    )[0]  # fmt: skip


def _with_facts(
    path: Path, chosen: str, facts: str | Path | None, machine: str | Path | Machine | None, *,
    graph: str | Path | None, mode: str | None, optimizer: str | None, **more: Any,
) -> tuple[ModelProfile, tuple[str, ...]]:  # fmt: skip
    from fomkit.readers.registry import import_model as read
    from fomkit.verbs.profiles import as_machine

    of_format = {"graph": None if graph is None else Path(graph), "mode": mode, "optimizer": optimizer}
    more |= {name: value for name, value in of_format.items() if value is not None}
    ran_on, stated = None if machine is None else as_machine(machine), None if facts is None else Path(facts)
    return read(path, stated, file_format=chosen, machine=ran_on, **more)


@checked
def import_measurements(
    source: str | Path, *, model: str | None = None, machine: str | None = None, file_format: str | None = None,
    start: str | None = None, end: str | None = None,
) -> ImportedMeasurements:  # fmt: skip
    """Read a record of a run, or a wall meter's log, as a table of measurements.

    Parameters
    ----------
    source, machine, file_format
        See `fomkit.import_file`.
    model : str, optional
        Name of the model profile that a record is a run of; default: the file's own name, which no profile has.
    start : str, optional
        For a meter's log: use rows from this time on, written as in the log.
    end : str, optional
        For a meter's log: use rows up to this time.

    Returns
    -------
    ImportedMeasurements
        ``table`` has the measurements (columns of MEASUREMENTS), ``messages`` the reader's remarks.

    Raises
    ------
    FomkitError
        When the file is of no known format, broken, or holds no measurement.
    """
    from fomkit.readers.measurements import import_measurements as read
    from fomkit.readers.measurements import import_meter
    from fomkit.readers.registry import choose_import

    path = Path(source)
    chosen, _ = choose_import(path, "measurements", file_format)
    if chosen == "meter":
        return import_meter(path, model=model, machine=machine, start=start, end=end)
    if start is not None or end is not None:
        raise FomkitError("start, end", "are for a meter's log, and this is none. Leave them out.")
    return read(path, chosen, model=model, machine=machine)


@command(
    "exporting",
    arguments={"source": "MEASURED"},
    spelled={"machine": ("--machine",), "file_format": ("--format",)},
    metavar={"machine": "NAME"},
    plain=True,
)
def export(
    source: str | Path | ModelProfile, output: str | Path, *, machine: str | None = None,
    file_format: Literal["benchmarker", "measurements"] | None = None, force: bool = False,
) -> Answer:  # fmt: skip
    """Write measurements as records of the modular benchmarker, with all fields that an import kept.

    A model profile made with --measure becomes a table of measurements, for 'estimate --from' and 'compare'.

    Parameters
    ----------
    source : name, path or profile
        Table of measurements (.csv), or measured model profile (.yaml).
    output : path
        File to write.
    machine : str, optional
        For a measured profile: name of the machine profile that it ran on.
    file_format : str, optional
        Records of the modular benchmarker (JSON), or rows of a table of measurements; default: by the ending of
        the output file.
    force : bool
        Replace a file that exists already.

    Returns
    -------
    Answer
        ``fomkit/written/1``: the file that was written.

    Raises
    ------
    FomkitError
        When the source holds no measurement, or the file exists and ``force`` is not given.
    """
    from fomkit.bench.measured_run import rows_to_export
    from fomkit.files.write import check_absent, write_whole
    from fomkit.readers.measurements import format_measurements
    from fomkit.readers.records import format_benchmarker

    path = Path(output)
    check_absent([path], force)
    chosen = file_format or ("measurements" if path.suffix == ".csv" else "benchmarker")
    rows = rows_to_export(source, machine, chosen)
    write_whole(path, format_measurements(rows) if chosen == "measurements" else format_benchmarker(rows))
    return written([path], [f"Written: {path} ({len(rows):,} of {count_text(len(rows), 'row')})"])
