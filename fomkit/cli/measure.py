"""``fomkit measure``: time ops on this machine, its network or its input pipeline, and write its profile."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from fomkit.cli import choices
from fomkit.cli.choices import option
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.bench.network import NetworkMeasured
    from fomkit.bench.run import Measured, MeasureSpec
    from fomkit.core.machine import Link


Network = Annotated[bool, option("Time messages and collectives between processes instead of ops.", "--network")]
RankCount = Annotated[int | None, option("With --network: processes to start here; default: 2.", "--ranks", min=2)]
Backends = Annotated[
    list[str] | None,
    option(
        "With --network: what carries the messages; may be repeated. Default: nccl with --device cuda, else gloo.",
        "--backend",
        metavar="gloo|nccl|mpi",
    ),
]
SlurmFile = Annotated[
    Path | None, option("With --network: only write a Slurm job script that does it.", "--slurm", metavar="FILE")
]
Nodes = Annotated[int | None, option("With --slurm: nodes of the job; default: 2.", "--nodes", min=1)]
InputFile = Annotated[
    Path | None,
    option(
        "Time the input pipeline of this file instead of ops: its loader (a DataLoader, a tf.data.Dataset) "
        "or its dataset. The file is run.",
        "--input",
        metavar="FILE.py",
    ),
]
Workers = Annotated[
    int | None, option("With --input: worker processes of the loader made of a dataset.", "--workers", min=0)
]
Add = Annotated[bool, option("With --network, --input: add to the machine profile that is there.", "--add")]


class _Beside(NamedTuple):
    """What is to be measured besides ops: the network, or an input pipeline."""

    network: bool
    ranks: int | None
    backend: list[str] | None
    slurm: Path | None
    nodes: int | None
    source: Path | None
    workers: int | None
    add: bool

    def check(self) -> None:
        """Raise where an option says something of what is not measured."""
        of_network = {"--ranks": self.ranks, "--backend": self.backend, "--slurm": self.slurm}
        if not self.network and (wrong := [name for name, value in of_network.items() if value]):
            raise FomkitError(wrong[0], "says something of a network. Add --network, or leave it out.")
        if self.nodes and not self.slurm:
            raise FomkitError("--nodes", "says something of a job script. Add --slurm FILE, or leave it out.")
        if self.workers is not None and self.source is None:
            raise FomkitError("--workers", "says something of an input pipeline. Add --input, or leave it out.")
        if self.add and not self.network and self.source is None:
            raise FomkitError("--add", "goes with --network or --input. Leave it out.")
        if self.network and self.source is not None:
            raise FomkitError("--network, --input", "are two measurements. Run one after the other, with --add.")


def _check_output(spec: MeasureSpec, *, replaces: bool) -> None:
    from fomkit.files.write import check_absent

    check_absent([spec.output], replaces or spec.resume)


def _measure_beside(beside: _Beside, spec: MeasureSpec, *, force: bool, quiet: bool) -> None:
    """Measure it, and say what was found."""
    backends = tuple(beside.backend or (("nccl",) if spec.device == "cuda" else ("gloo",)))
    if beside.slurm is not None:
        _write_job(beside, beside.slurm, spec, backends, force)
    elif beside.source is not None:
        _measure_input(beside, beside.source, spec, force, quiet)
    else:
        _measure_network(beside, spec, backends, force, quiet)


def _write_job(beside: _Beside, path: Path, spec: MeasureSpec, backends: tuple[str, ...], force: bool) -> None:
    from fomkit.bench.network import Job, slurm_job
    from fomkit.files.write import check_absent, write_whole

    nodes = beside.nodes or 2
    text = slurm_job(Job(nodes, beside.ranks or nodes, spec.plan, backends, str(spec.output), beside.add))
    check_absent([path], force)
    write_whole(path, text)
    print(f"Written: {path}; submit it with: sbatch {path}")


def _measure_network(
    beside: _Beside, spec: MeasureSpec, backends: tuple[str, ...], force: bool, quiet: bool
) -> None:
    from fomkit.bench.network import NetworkSpec, measure_network
    from fomkit.bench.network_ranks import place_of

    place = place_of(os.environ)
    if place is not None and place.ranks < 2:
        place = None
    if place is not None and (beside.ranks or spec.resume):
        wrong = "--ranks" if beside.ranks else "--resume"
        raise FomkitError(wrong, f"cannot be had where {place.launcher} started the processes. Leave it out.")
    wanted = NetworkSpec(
        spec.output, beside.ranks or 2, backends, spec.plan, beside.add, spec.resume, spec.seed, spec.name, place,
        os.environ,
    )  # fmt: skip
    if wanted.writes:
        _check_output(spec, replaces=force or beside.add)
    with choices.status_line("starting the processes", quiet=quiet or not wanted.writes) as report:
        found = measure_network(wanted, report)
    if found is not None:
        _report_network(found, wanted.output)


def _link_line(link: Link) -> str:
    from fomkit.core.units import format_quantity

    def shown(value: float, ends: tuple[float, float] | None, dimension: str) -> str:
        text = format_quantity(value, dimension, 3)
        low, high = (format_quantity(end, dimension, 3) for end in ends or (value, value))
        return f"{text} ({low} to {high})"

    sizes = (
        f"{format_quantity(link.least_byte or 0.0, 'byte')} to {format_quantity(link.most_byte or 0.0, 'byte')}"
    )
    alpha = shown(link.alpha_s, link.alpha_range_s, "time_s")
    rate = shown(link.byte_per_s, link.range_byte_per_s, "byte_per_s")
    return f"{link.channel}, {link.tier}, {sizes}: alpha {alpha}, {rate}"


def _report_network(found: NetworkMeasured, output: Path) -> None:
    for link in found.machine.links:
        if link.channel:
            print(_link_line(link))
    for note in found.machine.notes:
        print(note)
    print(f"measured in {found.wall_s:.0f} s: {', '.join(map(str, found.files))}")
    if found.interrupted:
        print(f"interrupted; to go on: fomkit measure --network --resume -o {output}, with the same options")


def _measure_input(beside: _Beside, source: Path, spec: MeasureSpec, force: bool, quiet: bool) -> None:
    from fomkit.bench.input_rate import InputSpec, measure_input

    _check_output(spec, replaces=force or beside.add)
    wanted = InputSpec(
        source, spec.output, spec.plan, workers=beside.workers, batch=spec.options.batch, add=beside.add,
        name=spec.name,
    )  # fmt: skip
    with choices.status_line("reading batches", quiet=quiet):
        found = measure_input(wanted)
    for line in found.lines():
        print(line)
    print(f"Written: {', '.join(map(str, found.files))}")


Models = Annotated[
    list[str] | None,
    option(
        "Time the ops of this model, by profile name or path, at their exact sizes; may be repeated.",
        "--for",
        metavar="MODEL",
        autocompletion=choices.complete_model,
    ),
]

LibraryName = Annotated[
    Literal["torch", "tensorflow"] | None,
    option("What runs the ops; default: PyTorch, or TensorFlow where only that is here."),
]


def measure(
    output: Annotated[Path, option("Machine profile to write.", "--output", "-o", metavar="FILE")],
    quick: Annotated[bool, option("About 2 minutes.", "--quick")] = False,
    full: Annotated[bool, option("About an hour; default: about 10 minutes.", "--full")] = False,
    models: Models = None,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    device: Annotated[Literal["cpu", "cuda"], option("What is measured.")] = "cpu",
    threads: Annotated[int, option("Threads on a CPU; 1 is timed by process time.", min=1)] = 1,
    library: LibraryName = None,
    name: Annotated[str, option("Name of the machine; default: the file's.")] = "",
    seed: Annotated[int, option("Of the random order in which ops are timed.", min=0)] = 0,
    resume: Annotated[bool, option("Go on from what an earlier run kept.", "--resume")] = False,
    network: Network = False,
    ranks: RankCount = None,
    backend: Backends = None,
    slurm: SlurmFile = None,
    nodes: Nodes = None,
    input_file: InputFile = None,
    workers: Workers = None,
    add: Add = False,
    force: Annotated[bool, option("Replace the file if it exists.", "--force")] = False,
    as_json: Annotated[bool, option("Print fomkit/measured/1 instead of text.", "--json")] = False,
    quiet: choices.Quiet = False,
) -> None:
    """Time ops on this machine with PyTorch, or TensorFlow, and write its profile.

    Each result is checked against double precision first. Without --for the ops fill the space of sizes. Time is
    that of the clock that times the ops: on a busy machine it takes up to four times as long by the wall.

    Exit code 1 where less than 80 % of each model's predicted step time, without --for 20 % of the plan's ops, is
    measured or interpolated; --resume goes on. --network, --input: docs/measure-network.md.

    Examples:

      fomkit measure --quick -o here.yaml

      fomkit measure --for resnet50 --batch 8 -o here.yaml --force

      fomkit measure --library tensorflow --quick -o here_tensorflow.yaml

      fomkit measure --network --ranks 2 --quick -o ranks.yaml

      fomkit measure --input loader.py -o here.yaml --add
    """
    from fomkit.bench.run import MeasureSpec

    plan = _plan(output, quick, full)
    beside = _Beside(network, ranks, backend, slurm, nodes, input_file, workers, add)
    beside.check()
    options = choices.options_of(batch=batch, sizes=sizes, precision=precision)
    spec = MeasureSpec(
        output, plan, tuple(models or ()), options, device, threads, seed, resume, name, library=library or ""
    )
    if network or input_file is not None:
        _measure_beside(beside, spec, force=force, quiet=quiet)
        return
    _check_output(spec, replaces=force)
    _report(_measured(spec, quiet), as_json)


def _plan(output: Path, quick: bool, full: bool) -> str:
    if quick and full:
        raise FomkitError("--quick, --full", "ask for two plans. Choose one.")
    if output.suffix != ".yaml":
        raise FomkitError(str(output), "has not the ending of a machine profile. Name it, for example, here.yaml.")
    return "quick" if quick else "full" if full else "default"


def _measured(spec: MeasureSpec, quiet: bool) -> Measured:
    """Time the ops, telling the one that is timed and the time that is left at most."""
    from fomkit.bench.run import measure

    done = count(1)
    with choices.status_line("starting the process that times", quiet=quiet) as report:
        return measure(spec, lambda text: report(f"op {next(done)}, {text}"))


def _report(found: Measured, as_json: bool) -> None:
    content = {
        "schema": "fomkit/measured/1", "machine": found.machine.name, **found.verdict.content(),
        "files": [str(file) for file in found.files], "notes": list(found.machine.notes),
    }  # fmt: skip
    choices.write_answer(content, lambda _content, _screen: _as_text(found), as_json=as_json)
    if not found.verdict.sufficient:
        raise typer.Exit(1)


def _as_text(found: Measured) -> str:
    verdict = found.verdict
    lines = [*found.machine.notes, f"Written: {', '.join(str(file) for file in found.files)}"]
    if verdict.resume and (found.interrupted or not verdict.sufficient):
        lines.append(f"{'interrupted; ' if found.interrupted else ''}to go on: {verdict.resume}")
    return "".join(f"{line}\n" for line in lines)
