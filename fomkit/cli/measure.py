"""What ``fomkit measure`` measures besides ops: the network between processes, the input pipeline.

``fomkit measure``: time ops on this machine and write its profile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fomkit.cli import choices
from fomkit.core.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.bench.network import NetworkMeasured
    from fomkit.bench.run import Measured, MeasureSpec
    from fomkit.core.machine import Link


Network = Annotated[
    bool, typer.Option("--network", help="Time messages and collectives between processes instead of ops.")
]
RankCount = Annotated[
    int | None,
    typer.Option("--ranks", min=2, help="With --network: processes to start here; default: 2."),
]
Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="gloo|nccl|mpi",
        help="With --network: what carries the messages; may be repeated. Default: nccl with --device cuda, "
        "else gloo.",
    ),
]
SlurmFile = Annotated[
    Path | None,
    typer.Option("--slurm", metavar="FILE", help="With --network: only write a Slurm job script that does it."),
]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, help="With --slurm: nodes of the job; default: 2.")]
InputFile = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE.py",
        help="Time the input pipeline of this file instead of ops: its loader (a DataLoader, a tf.data.Dataset) "
        "or its dataset. The file is run.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=0, help="With --input: worker processes of the loader made of a dataset."),
]
Add = Annotated[
    bool,
    typer.Option("--add", help="With --network, --input: add to the machine profile that is there."),
]


@dataclass(frozen=True)
class Beside:
    """The options of `measure` that ask for something besides ops, and those it shares with them."""

    output: Path
    plan: str
    device: str
    network: bool
    ranks: int | None
    backends: tuple[str, ...]
    slurm: Path | None
    nodes: int | None
    input_file: Path | None
    workers: int | None
    batch: int | None
    add: bool
    force: bool
    resume: bool
    name: str
    seed: int
    quiet: bool

    @classmethod
    def of(cls, plan: str, given: Mapping[str, Any]) -> Beside | None:
        """Take the arguments of ``measure``; None where ops are to be measured.

        Raises FomkitError when options do not go together.
        """
        names = [field.name for field in fields(cls) if field.name in given]
        backends = tuple(given["backend"] or ())
        spec = cls(**{**{name: given[name] for name in names}, "plan": plan, "backends": backends})
        spec.check()
        return spec if spec.network or spec.input_file is not None else None

    def check(self) -> None:
        """Raise where an option says something of what is not measured."""
        network = {"--ranks": self.ranks, "--backend": self.backends, "--slurm": self.slurm}
        wrong = [name for name, value in network.items() if value and not self.network]
        if wrong:
            raise FomkitError(wrong[0], "says something of a network. Add --network, or leave it out.")
        if self.nodes and not self.slurm:
            raise FomkitError("--nodes", "says something of a job script. Add --slurm FILE, or leave it out.")
        if self.workers is not None and self.input_file is None:
            raise FomkitError("--workers", "says something of an input pipeline. Add --input, or leave it out.")
        if self.add and not self.network and self.input_file is None:
            raise FomkitError("--add", "goes with --network or --input. Leave it out.")
        if self.network and self.input_file is not None:
            raise FomkitError("--network, --input", "are two measurements. Run one after the other, with --add.")

    def measure(self) -> None:
        """Measure the network or the input pipeline, and say what was found."""
        if self.slurm is not None:
            _write_job(self, self.slurm)
        elif self.network:
            _measure_network(self)
        else:
            _measure_input(self)


def _backends(spec: Beside) -> tuple[str, ...]:
    return spec.backends or (("nccl",) if spec.device == "cuda" else ("gloo",))


def _check_output(spec: Beside) -> None:
    from fomkit.files.write import check_absent

    check_absent([spec.output], spec.force or spec.add or spec.resume)


def _write_job(spec: Beside, path: Path) -> None:
    from fomkit.bench.network import Job, slurm_job
    from fomkit.files.write import check_absent, write_whole

    nodes = spec.nodes or 2
    job = Job(nodes, spec.ranks or nodes, spec.plan, _backends(spec), str(spec.output), spec.add)
    text = slurm_job(job)
    check_absent([path], spec.force)
    write_whole(path, text)
    print(f"Written: {path}; submit it with: sbatch {path}")


def _measure_network(spec: Beside) -> None:
    from fomkit.bench.network import NetworkSpec, measure_network
    from fomkit.bench.network_ranks import place_of

    place = place_of(os.environ)
    if place is not None and place.ranks < 2:
        place = None
    if place is not None and (spec.ranks or spec.resume):
        wrong = "--ranks" if spec.ranks else "--resume"
        raise FomkitError(wrong, f"cannot be had where {place.launcher} started the processes. Leave it out.")
    wanted = NetworkSpec(
        output=spec.output, ranks=spec.ranks or 2, backends=_backends(spec), plan=spec.plan, add=spec.add,
        resume=spec.resume, seed=spec.seed, name=spec.name, place=place, environment=os.environ,
    )  # fmt: skip
    if wanted.writes:
        _check_output(spec)
    with choices.status_line("starting the processes", quiet=spec.quiet or not wanted.writes) as report:
        found = measure_network(wanted, report)
    if found is not None:
        _report_network(found, spec.output)


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


def _measure_input(spec: Beside) -> None:
    from fomkit.bench.input_rate import InputSpec, measure_input

    _check_output(spec)
    wanted = InputSpec(
        file=spec.input_file or Path(), output=spec.output, plan=spec.plan, workers=spec.workers,
        batch=spec.batch, add=spec.add, name=spec.name,
    )  # fmt: skip
    with choices.status_line("reading batches", quiet=spec.quiet):
        found = measure_input(wanted)
    for line in found.lines():
        print(line)
    print(f"Written: {', '.join(map(str, found.files))}")


Models = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="MODEL",
        help="Time the ops of this model, by profile name or path, at their exact sizes; may be repeated.",
        autocompletion=choices.complete_model,
    ),
]

LibraryName = Annotated[
    Literal["torch", "tensorflow"] | None,
    typer.Option(help="What runs the ops; default: PyTorch, or TensorFlow where only that is here."),
]


def measure(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Machine profile to write.")],
    quick: Annotated[bool, typer.Option("--quick", help="About 2 minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="About an hour; default: about 10 minutes.")] = False,
    models: Models = None,
    batch: choices.Batch = None,
    sizes: choices.Sizes = None,
    precision: choices.Precisions = None,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="What is measured.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Threads on a CPU; 1 is timed by process time.")] = 1,
    library: LibraryName = None,
    name: Annotated[str, typer.Option(help="Name of the machine; default: the file's.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the random order in which ops are timed.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from what an earlier run kept.")] = False,
    network: Network = False,
    ranks: RankCount = None,
    backend: Backends = None,
    slurm: SlurmFile = None,
    nodes: Nodes = None,
    input_file: InputFile = None,
    workers: Workers = None,
    add: Add = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/measured/1 instead of text.")] = False,
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
    plan = _plan(output, quick, full)
    if beside := Beside.of(plan, locals()):
        beside.measure()
        return
    from fomkit.bench.run import MeasureSpec
    from fomkit.files.write import check_absent

    check_absent([output], force or resume)
    options = choices.options_of(batch=batch, sizes=sizes, precision=precision)
    spec = MeasureSpec(
        output, plan, tuple(models or ()), options, device, threads, seed, resume, name, library=library or ""
    )
    _report(_measured(spec, quiet), as_json)


def _plan(output: Path, quick: bool, full: bool) -> str:
    if quick and full:
        raise FomkitError("--quick, --full", "ask for two plans. Choose one.")
    if output.suffix != ".yaml":
        raise FomkitError(str(output), "has not the ending of a machine profile. Name it, for example, here.yaml.")
    return "quick" if quick else "full" if full else "default"


def _measured(spec: MeasureSpec, quiet: bool) -> Measured:
    from fomkit.bench.run import measure

    with _op_status(quiet) as report:
        return measure(spec, report)


@contextmanager
def _op_status(quiet: bool) -> Iterator[choices.Reporter]:
    """Tell the op that is timed and the time that is left at most."""
    count = 0
    with choices.status_line("starting the process that times", quiet=quiet) as report:

        def advance(text: str) -> None:
            nonlocal count
            count += 1
            report(f"op {count}, {text}")

        yield advance


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
