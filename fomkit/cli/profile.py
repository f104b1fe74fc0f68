"""``fomkit profile``: a model.py, a program, an ONNX file or a transformer's sizes become a model profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fomkit.cli import choices
from fomkit.cli.choices import argument, option, output_option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.core.model import ModelProfile


Sizes = Annotated[
    list[str] | None,
    option("A size that inputs names, traced at this value; default: its own.", "--set", metavar="NAME=N"),
]
Source = Annotated[
    Path,
    argument(
        "The .py file with the model, or the program, which is run; an ONNX file; a transformer's sizes.", "FILE"
    ),
]
Arguments = Annotated[list[str] | None, argument("With --script, after '--': the program's own.", "ARGUMENTS")]
Script = Annotated[bool, option("The file is a training program: run it, take one of its steps.", "--script")]
Written = Annotated[Path | None, output_option("The profile to write; default: ./NAME.yaml.")]
Mode = Annotated[Literal["train", "infer"], option("A training step, or the forward pass only.")]
MemoryLimit = Annotated[
    float | None, option("Memory that it may take; default: 8, where it really runs 16.", min=0.1, metavar="GB")
]
Measured = Annotated[
    Literal["step", "ops"] | None,
    option(
        "Run it for real, too: time the plain step, or its ops as well, by the profiler.",
        "--measure",
        metavar="<step|ops>",
    ),
]
Threads = Annotated[
    int | None, option("With --measure: threads on the CPU; default: the framework's own number.", min=1)
]
Precision = Annotated[
    Literal["bf16"] | None,
    option("With --measure step: time it under torch.autocast to this format; default: as it is."),
]
Optimizer = Annotated[
    str | None,
    option(
        "With an ONNX file, which has none: sgd, momentum, adam, adamw, …, none; default: sgd.", metavar="RULE"
    ),
]
_OF_FILE = "file"
_WITHOUT_DATA = {
    _OF_FILE: "from the graph in the file",
    "meta": "on the meta device",
    "fake": "on fake tensors",
    "graph": "on the graph of its step",
    "sizes": "nowhere: made by rule from its sizes",
}


def profile(
    source: Source,
    arguments: Arguments = None,
    script: Script = False,
    output: Written = None,
    mode: Mode = "train",
    batch: Annotated[int | None, option("Samples in the step; default: the file's own.", min=1)] = None,
    sizes: Sizes = None,
    optimizer: Optimizer = None,
    name: Annotated[str | None, option("Name of the profile; default: that of the file.")] = None,
    measure: Measured = None,
    threads: Threads = None,
    precision: Precision = None,
    time_limit: Annotated[float, option("Seconds that one attempt may take.", min=0.1)] = 300.0,
    memory_limit: MemoryLimit = None,
    force: Annotated[bool, option("Replace files that exist already.", "--force")] = False,
    quiet: choices.Quiet = False,
) -> None:
    """Trace a PyTorch or Keras model by shapes alone: no data, no accelerator, no memory for weights.

    This runs your file, so let it be one you trust. It gives workload() returning fomkit.Workload, or the names
    model, inputs, loss_fn, optimizer, batch_size, train_samples and epochs. A compiled keras.Model has its own
    inputs, loss and optimizer.

    With --script the file is your own training program: it really runs, on the CPU, and is stopped after its third
    step or a few more. An ONNX file is read; its backward pass and update are derived, and marked so.

    With --measure the model really runs after that, with its weights. The plain step is timed again and again,
    without a profiler, its energy read where there is a counter; --measure ops then times each op. A .yaml has a
    transformer's sizes (docs/parallel.md).

    Examples:

      fomkit profile model.py

      fomkit profile model.py --mode infer --batch 1 -o served.yaml

      fomkit profile model.py --measure ops --threads 1 -o measured.yaml

      fomkit profile --script train.py -o trained.yaml -- --batch-size 32

      fomkit profile model.onnx --batch 32 --optimizer adam -o exported.yaml
    """
    from fomkit.profiles.models import save_model

    wanted, is_onnx = choices.parse_sizes(sizes or ()), _is_onnx(source, script, optimizer)
    _check_use(source, script, arguments or [], mode=mode, batch=batch, sizes=wanted)
    _check_measuring(source, measure, threads, precision or "", program=script, graph=is_onnx)
    path = output or Path(f"{name or source.stem.removesuffix('.transformer')}.yaml")
    limits = {"time_limit_s": time_limit, **({"memory_limit_byte": memory_limit * 1e9} if memory_limit else {})}
    _check_output(path, source, force=force)
    with choices.progress(f"profiling {source.name}", quiet=quiet):
        of_step: dict[str, Any] = {"mode": mode, "batch": batch, "sizes": wanted}
        options = {"arguments": arguments or []} if script else of_step
        found = _reader(source, optimizer, program=script, graph=is_onnx)(source, **options, name=name, **limits)
    if measure is not None:
        with choices.progress(f"timing {source.name}", quiet=quiet):
            found = _measured(found, source, measure, threads, precision or "", limits)
    written = save_model(found, path)
    print("\n".join([*_summary(found), f"Written: {', '.join(map(str, written))}"]))


def _reader(source: Path, optimizer: str | None, *, program: bool, graph: bool) -> Callable[..., ModelProfile]:
    """Choose what makes the profile of a file."""
    from fomkit.frontends.profile import profile_file, profile_onnx, profile_script

    if program:
        return profile_script
    if source.suffix in (".yaml", ".yml"):
        return _of_sizes
    return partial(profile_onnx, optimizer=optimizer) if graph else profile_file


def _of_sizes(
    source: Path, *, mode: str, batch: int | None, sizes: Mapping[str, int], name: str | None, **limits: float
) -> ModelProfile:
    """Make the profile of a transformer from its sizes; nothing runs, so the limits limit nothing."""
    from dataclasses import replace

    from fomkit.plan.transformer_step import load_recipe

    del limits
    if sizes or mode != "train":
        raise FomkitError(
            str(source), "holds the sizes of a transformer, which is trained. Only --batch, --name and -o apply."
        )
    found = load_recipe(source)
    used = {**found.sizes, **({"batch": batch} if batch is not None else {})}
    return replace(found, name=name or found.name, sizes=used)


def _check_output(path: Path, source: Path, *, force: bool) -> None:
    """Refuse a name that is no profile's, and files that are there already."""
    from fomkit.files.write import check_absent
    from fomkit.profiles.models import tables_beside

    if path.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(path), "a model profile is a YAML file. Write, for example, '-o model.yaml'.")
    if path.resolve() == source.resolve():
        raise FomkitError(str(path), "is the file to be read. Name another with -o.")
    check_absent([path, *tables_beside(path)], force)


def _is_onnx(source: Path, script: bool, optimizer: str | None) -> bool:
    """Tell by content whether a file is an ONNX model; by its name, too, so that a damaged one is told as such."""
    from fomkit.frontends.onnx.file import recognise_onnx

    found = not script and (source.suffix == ".onnx" or recognise_onnx(source))
    if optimizer and not found:
        raise FomkitError(
            f"--optimizer {optimizer}", "is for an ONNX file. Name the optimizer in the Python file."
        )
    return found


def _measured(
    found: ModelProfile, source: Path, measure: str, threads: int | None, precision: str, limits: Mapping[str, Any]
) -> ModelProfile:
    from fomkit.bench.step_energy import watch_energy
    from fomkit.verbs.measured_run import measure_profile

    options = {"ops": measure == "ops", "threads": threads, "precision": precision, **limits}
    with watch_energy() as energy:
        return measure_profile(found, source, energy=energy, **options)


def _check_use(
    source: Path, script: bool, arguments: list[str], *, mode: str, batch: int | None, sizes: Mapping[str, int]
) -> None:
    """Refuse a folder, and what only the other way of profiling has."""
    if source.is_dir():
        raise FomkitError(str(source), "is a folder. Give the Python file, or the ONNX file, in it.")
    if arguments and not script:
        message = f"the arguments {' '.join(arguments)!r:.80} are for a training program"
        raise FomkitError(str(source), f"{message}. Add --script, or leave them out.")
    options = {"--mode infer": mode == "infer", "--batch": batch is not None, "--set": bool(sizes)}
    if script and any(options.values()):
        given = next(option for option, is_given in options.items() if is_given)
        raise FomkitError(
            str(source),
            f"{given} is not for a training program, which runs as it is. Give it arguments of its own after "
            f"'--', for example: fomkit profile --script {source} -- --batch-size 32",
        )


def _check_measuring(
    source: Path, measure: str | None, threads: int | None, precision: str, *, program: bool, graph: bool
) -> None:
    """Refuse what cannot be timed before anything runs."""
    if precision and measure != "step":
        raise FomkitError(
            str(source), f"--precision {precision} is for the plain step. Add --measure step, or leave it out."
        )
    if measure is None:
        if threads is not None:
            raise FomkitError(str(source), "--threads is for timing. Add --measure step, or leave it out.")
        return
    if graph:
        raise FomkitError(str(source), "is an ONNX file, which is read, not run. Give a model.py to time it.")
    if program:
        raise FomkitError(
            str(source),
            "--measure is not for a training program, whose step cannot be run again alone. Give its model as a "
            "model.py: model, inputs, loss_fn and optimizer.",
        )
    from fomkit.bench.model_steps import check_timed

    check_timed(source, precision)


def _what_a_run_lacks(model: ModelProfile) -> list[str]:
    """Name what keeps an estimate at the step."""
    known = {"train_samples": model.data.train_samples, "epochs": model.run.epochs}
    lacking = [name for name, value in known.items() if value is None]
    if not lacking or model.traced_with.get("mode") == "infer":
        return []
    made_by_code = model.traced_with.get("device") in _WITHOUT_DATA.keys() - {_OF_FILE}
    place = "file" if made_by_code else "profile's data and run"
    return [f"note: no run and no units per day without {' and '.join(lacking)}; the {place} may give them"]


def _summary(model: ModelProfile) -> list[str]:
    """Say what was found, for people."""
    from fomkit.core.units import format_quantity
    from fomkit.ops.pricing import add_costs
    from fomkit.ops.resize import resize_ops
    from fomkit.output.estimates import measured_lines
    from fomkit.plan.coverage import work_per_pass
    from fomkit.verbs.measured_run import run_content

    work = work_per_pass(add_costs(resize_ops(model.ops, model.sizes, model.name)))
    device = model.traced_with["device"]
    traced = _WITHOUT_DATA.get(device, f"in its own run on the {device}")
    return [
        f"{model.name}: {model.title}, batch {model.batch}, traced {traced}",
        f"parameters: {model.parameters_total:,}, of them trainable {model.parameters_trainable:,}",
        f"work: {'at least ' if model.at_least else ''}"
        + ", ".join(f"{name} {format_quantity(flop, 'flop')}" for name, flop in work.items()),
        f"table: {len(model.ops):,} rows, {len(model.parts):,} parts of rows found at the call",
        *(f"unsupported: {name}" for name in model.unsupported),
        *(f"note: {note}" for note in model.notes),
        *_what_a_run_lacks(model),
        *(measured_lines(run_content(model.measured)) if model.measured else ()),
    ]
