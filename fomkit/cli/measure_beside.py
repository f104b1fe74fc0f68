"""What ``fomkit measure`` measures besides ops: the network between processes, the input pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fomkit.cli.screen import Tell, telling
from fomkit.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.hardware import Link
    from fomkit.measure.network import NetworkMeasured

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

        Raises
        ------
        FomkitError
            When options do not go together.
        """
        names = [one.name for one in fields(cls) if one.name in given]
        backends = tuple(given["backend"] or ())
        asked = cls(**{**{name: given[name] for name in names}, "plan": plan, "backends": backends})
        asked.check()
        return asked if asked.network or asked.input_file is not None else None

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


def measure_beside(asked: Beside) -> None:
    """Measure the network or the input pipeline, and say what was found."""
    if asked.slurm is not None:
        _write_job(asked, asked.slurm)
    elif asked.network:
        _measure_network(asked)
    else:
        _measure_input(asked)


def _backends(asked: Beside) -> tuple[str, ...]:
    return asked.backends or (("nccl",) if asked.device == "cuda" else ("gloo",))


def _check_output(asked: Beside) -> None:
    from fomkit.profiles import check_absent

    check_absent([asked.output], asked.force or asked.add or asked.resume)


def _write_job(asked: Beside, path: Path) -> None:
    from fomkit.measure.slurm_job import Job, slurm_job
    from fomkit.profiles import check_absent, write_whole

    nodes = asked.nodes or 2
    job = Job(nodes, asked.ranks or nodes, asked.plan, _backends(asked), str(asked.output), asked.add)
    text = slurm_job(job)
    check_absent([path], asked.force)
    write_whole(path, text)
    print(f"Written: {path}; submit it with: sbatch {path}")


def _measure_network(asked: Beside) -> None:
    from fomkit.measure.network import NetworkAsked, measure_network
    from fomkit.timings.measure_ranks import place_of

    place = place_of(os.environ)
    if place is not None and place.ranks < 2:
        place = None
    if place is not None and (asked.ranks or asked.resume):
        wrong = "--ranks" if asked.ranks else "--resume"
        raise FomkitError(wrong, f"cannot be had where {place.launcher} started the processes. Leave it out.")
    wanted = NetworkAsked(
        output=asked.output, ranks=asked.ranks or 2, backends=_backends(asked), plan=asked.plan, add=asked.add,
        resume=asked.resume, seed=asked.seed, name=asked.name, place=place, environment=os.environ,
    )  # fmt: skip
    if wanted.writes:
        _check_output(asked)
    with _told(asked.quiet or not wanted.writes, "starting the processes") as tell:
        found = measure_network(wanted, tell)
    if found is not None:
        _report_network(found, asked.output)


@contextmanager
def _told(quiet: bool, what: str) -> Iterator[Tell]:
    with telling(what, quiet=quiet) as tell:
        yield tell


def _link_line(link: Link) -> str:
    from fomkit.quantities import format_quantity

    def shown(value: float, ends: tuple[float, float] | None, dimension: str) -> str:
        text = format_quantity(value, dimension, 3)
        low, high = (format_quantity(one, dimension, 3) for one in ends or (value, value))
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


def _measure_input(asked: Beside) -> None:
    from fomkit.measure.input_rate import InputAsked, measure_input

    _check_output(asked)
    wanted = InputAsked(
        file=asked.input_file or Path(), output=asked.output, plan=asked.plan, workers=asked.workers,
        batch=asked.batch, add=asked.add, name=asked.name,
    )  # fmt: skip
    with _told(asked.quiet, "reading batches"):
        found = measure_input(wanted)
    for line in found.lines():
        print(line)
    print(f"Written: {', '.join(map(str, found.files))}")
