"""Measurement of this machine, and validation of predictions by public measurements."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fomkit.core.errors import FomkitError
from fomkit.core.units import Precision, format_quantity
from fomkit.plan.options import Options, check_counts, check_options, options_of
from fomkit.verbs.answer import Answer, checked, command, written

if TYPE_CHECKING:
    from fomkit.bench.input_rate import InputMeasured
    from fomkit.bench.network import NetworkMeasured
    from fomkit.bench.run import Measured
    from fomkit.core.machine import Link

MeasurePlan = Literal["quick", "default", "full"]
"""Duration by the clock that times the ops: about 2 minutes, 10 minutes or an hour."""


def _no_progress(_text: str) -> None:
    """Ignore progress messages: the default of ``tell``."""


def _output(path: str | Path, plan: str, force: bool) -> Path:
    from fomkit.bench.session import PLANS
    from fomkit.files.write import check_absent

    if plan not in PLANS:
        raise FomkitError("plan", f"is {plan!r}. Expected one of {', '.join(PLANS)}.")
    target = Path(path)
    if target.suffix != ".yaml":
        raise FomkitError(str(target), "has the wrong ending for a machine profile. Use .yaml.")
    check_absent([target], force)
    return target


@command(
    "starting the process that times",
    arguments={},
    spelled={"models": ("--for",), "backends": ("--backend",), "input_file": ("--input",)},
    metavar={
        "output": "FILE", "models": "MODEL", "backends": "gloo|nccl|mpi", "slurm": "FILE", "input_file": "FILE.py"
    },
    is_incomplete=lambda content: content.get("sufficient") is False,
)  # fmt: skip
def measure(
    output: str | Path, *, quick: bool = False, full: bool = False, models: Sequence[str] = (),
    batch: int | None = None, sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    device: Literal["cpu", "cuda"] = "cpu", threads: int = 1,
    library: Literal["torch", "tensorflow"] | None = None, name: str = "", seed: int = 0, resume: bool = False,
    network: bool = False, ranks: int | None = None, backends: Sequence[str] = (),
    slurm: str | Path | None = None, nodes: int | None = None, input_file: str | Path | None = None,
    workers: int | None = None, add: bool = False, force: bool = False, tell: Callable[[str], None] = _no_progress,
) -> Answer:  # fmt: skip
    """Time ops on this machine with PyTorch or TensorFlow, and write a machine profile.

    Results of ops are first checked against double precision. Without --for the ops cover the space of sizes.
    Durations are by the clock that times the ops; on a busy machine the wall time is up to four times as long.

    Exit code 1 where less than 80 % of a model's predicted step time (without --for: 20 % of the plan's ops) is
    measured or interpolated; --resume continues. For --network and --input see docs/measure-network.md.

    Parameters
    ----------
    quick : bool
        Use the plan of about 2 minutes.
    full : bool
        Use the plan of about an hour; default: about 10 minutes.
    output, models, device, threads, library, name, seed, resume, force, tell
        As of `fomkit.measure_machine`.
    batch, sizes, precision
        As of `fomkit.estimate`.
    network : bool
        Time messages and collectives between processes instead of ops.
    slurm : path, optional
        With --network: measure nothing here; write a Slurm job script that does the measurement.
    nodes : int, optional
        With --slurm: nodes of the job; default: 2.
    ranks, backends, add
        As of `fomkit.measure_network`.
    input_file : path, optional
        Time the input pipeline of this Python file instead of ops: its loader (a DataLoader, a tf.data.Dataset) or
        its dataset. The file is executed.
    workers
        As of `fomkit.measure_input`.

    Returns
    -------
    Answer
        ``fomkit/measured/1`` for ops, else ``fomkit/written/1``; `fomkit.machine` loads the profile.

    Raises
    ------
    FomkitError
        When nothing can be timed here, or an option does not apply to what is measured.
    """
    other = _OtherMeasurement(network, ranks, (*dict.fromkeys(backends),), slurm, nodes, input_file, workers, add)
    shared: dict[str, Any] = {"plan": other.plan(quick, full), "name": name, "force": force}
    of_run: dict[str, Any] = {"resume": resume, "seed": seed, "tell": tell}
    of_ops = {"models": models, "batch": batch, "sizes": sizes, "precision": precision}
    if network or input_file is not None:
        other.check({**of_ops, "library": library, "threads": threads > 1, "resume": resume, "seed": seed})
        return _measure_other(Path(output), other, device, batch, shared, of_run)
    shared |= {**of_ops, "device": device}
    return _ops_answer(measure_machine(output, library=library, threads=threads, **shared, **of_run))


class _OtherMeasurement(NamedTuple):
    """Options of a measurement other than of ops: of the network, or of an input pipeline."""

    network: bool
    ranks: int | None
    backends: tuple[str, ...]
    slurm: str | Path | None
    nodes: int | None
    input_file: str | Path | None
    workers: int | None
    add: bool

    def plan(self, quick: bool, full: bool) -> MeasurePlan:
        """Return the plan's name; raise FomkitError where an option does not apply to what is measured."""
        if quick and full:
            raise FomkitError("`quick`, `full`", "are two plans. Choose one.")
        of_network = {"ranks": self.ranks, "backends": self.backends, "slurm": self.slurm}
        if not self.network and (wrong := [name for name, value in of_network.items() if value]):
            raise FomkitError(wrong[0], "needs `network`. Add `network`, or leave it out.")
        check_counts(nodes=self.nodes)
        if self.nodes and not self.slurm:
            raise FomkitError("nodes", "needs a job script. Add `slurm` FILE, or leave it out.")
        if self.workers is not None and self.input_file is None:
            raise FomkitError("workers", "needs an input pipeline. Add `input_file`, or leave it out.")
        if self.add and not self.network and self.input_file is None:
            raise FomkitError("add", "needs `network` or `input_file`. Leave it out.")
        if self.network and self.input_file is not None:
            raise FomkitError(
                "`network`, `input_file`", "are two measurements. Run one after the other, with `add`."
            )
        return "quick" if quick else "full" if full else "default"

    def check(self, of_ops: Mapping[str, object]) -> None:
        """Raise FomkitError where an option of ops is given, because ops are not measured."""
        what, taken = ("the network", ("resume", "seed")) if self.network else ("an input pipeline", ("batch",))
        for name in (name for name, value in of_ops.items() if value and name not in taken):
            raise FomkitError(name, f"is for ops, and {what} is measured. Leave it out.")


def _measure_other(
    output: Path, other: _OtherMeasurement, device: str, batch: int | None, shared: Mapping[str, Any],
    of_run: Mapping[str, Any],
) -> Answer:  # fmt: skip
    """Measure the network or an input pipeline, or write the job script for it; return the answer to print."""
    backends = other.backends or (("nccl",) if device == "cuda" else ("gloo",))
    if other.slurm is not None:
        from fomkit.bench.network import slurm_job
        from fomkit.files.write import check_absent, write_whole

        path, nodes = Path(other.slurm), other.nodes or 2
        text = slurm_job(nodes, other.ranks or nodes, shared["plan"], backends, str(output), add=other.add)
        check_absent([path], shared["force"])
        write_whole(path, text)
        return written([path], [f"Written: {path}; submit it with: sbatch {path}"])
    if other.input_file is not None:
        read = measure_input(other.input_file, output, workers=other.workers, batch=batch, add=other.add, **shared)
        return written(read.files, [*read.lines(), f"Written: {', '.join(map(str, read.files))}"])
    found = measure_network(output, ranks=other.ranks, backends=backends, add=other.add, **shared, **of_run)
    if found is None:
        return written((), ())
    lines = [*found.machine.notes, f"measured in {found.wall_s:.0f} s: {', '.join(map(str, found.files))}"]
    if found.interrupted:
        lines.append(
            f"interrupted; to continue: fomkit measure --network --resume -o {output}, with the same options"
        )
    return written(found.files, [*(_link_line(link) for link in found.machine.links if link.channel), *lines])


def _link_line(link: Link) -> str:
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


def _ops_answer(found: Measured) -> Answer:
    """Return the answer for timed ops: what was measured, whether it suffices, the files, and the next command."""
    from fomkit.bench.journal import DESIGN, MeasuredContent
    from fomkit.output.machines import format_measured

    verdict, notes = found.verdict, list(found.machine.notes)
    content: MeasuredContent = {
        "schema": "fomkit/measured/1", "machine": found.machine.name, **verdict.content(),
        "files": [str(file) for file in found.files], "notes": notes,
    }  # fmt: skip
    models = [whose for whose in verdict.shares if whose != DESIGN]
    return Answer(content, content["shares"], partial(format_measured, verdict.lines(), models))


def _options_of_models(models: Sequence[str], **given: Any) -> Options:
    if unused := [name for name, value in given.items() if value and not models]:
        raise FomkitError(unused[0], "is for the ops of a model. Add `models`, or leave it out.")
    return options_of(**given)


@checked
def measure_machine(
    output: str | Path, *, plan: MeasurePlan = "default", models: Sequence[str] = (), batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    device: Literal["cpu", "cuda"] = "cpu", library: Literal["torch", "tensorflow"] | None = None,
    threads: int = 1, name: str = "", seed: int = 0, resume: bool = False, force: bool = False,
    tell: Callable[[str], None] = _no_progress,
) -> Measured:  # fmt: skip
    """Time ops on this machine with PyTorch or TensorFlow, in a separate process, and write a machine profile.

    Parameters
    ----------
    output : path
        Machine profile to write.
    plan : str
        quick (about 2 minutes), default (10) or full (an hour), by the clock that times the ops.
    models : sequence of str
        Time the ops of this model, by profile name or path, at their exact sizes; may be repeated.
    batch, sizes, precision
        For the models, as of `fomkit.estimate`.
    device : str
        Device to measure.
    threads : int
        CPU threads; a single thread is timed by process time.
    library : str, optional
        Library that runs the ops; default: PyTorch, or TensorFlow where only TensorFlow is installed.
    name : str
        Name of the machine; default: the file's name.
    seed : int
        Seed of the random order in which ops are timed.
    resume : bool
        Continue an interrupted measurement; timings that it stored are kept.
    force : bool
        Replace the file if it exists.
    tell : function of a text
        Called with a message before each op.

    Returns
    -------
    Measured
        ``machine``, the ``files`` written, ``interrupted``, and the ``verdict`` whether the timings suffice.

    Raises
    ------
    FomkitError
        When nothing can be timed here, or there is nothing to resume.
    """
    from fomkit.bench.run import MeasureSpec, measure

    check_counts(threads=threads)
    if seed < 0:
        raise FomkitError("seed", f"is {seed!r}. Give a whole number of 0 or more.")
    options = _options_of_models(models, batch=batch, sizes=sizes, precision=precision)
    target = _output(output, plan, force or resume)
    spec = MeasureSpec(
        target, plan, tuple(models), options, device, threads, seed, resume, name, library=library or ""
    )
    done = count(1)
    return measure(spec, lambda text: tell(f"op {next(done)}, {text}"))


@checked
def measure_network(
    output: str | Path, *, ranks: int | None = None, backends: Sequence[str] = ("gloo",),
    plan: MeasurePlan = "default", add: bool = False, resume: bool = False, seed: int = 0, name: str = "",
    force: bool = False, tell: Callable[[str], None] = _no_progress,
) -> NetworkMeasured | None:  # fmt: skip
    """Time messages and collectives between processes, started here or by a launcher, and write the links found.

    Parameters
    ----------
    output, plan, resume, seed, name, force, tell
        As of `fomkit.measure_machine`.
    ranks : int, optional
        With --network: number of processes to start here; default: 2.
    backends : sequence of str
        With --network: backend that sends the messages; may be repeated. Default: nccl with --device cuda, else
        gloo.
    add : bool
        With --network or --input: add the results to an existing machine profile.

    Returns
    -------
    NetworkMeasured or None
        None in a launched process that is not the one that writes the file.

    Raises
    ------
    FomkitError
        When nothing can be timed here.
    """
    from fomkit.bench.network import NetworkSpec
    from fomkit.bench.network import measure_network as _measure
    from fomkit.bench.network_ranks import place_of

    if ranks is not None and ranks < 2:
        raise FomkitError("ranks", f"is {ranks!r}. Give 2 or more.")
    place = place_of(os.environ)
    if place is not None and place.ranks < 2:
        place = None
    if place is not None and (ranks or resume):
        wrong = "ranks" if ranks else "resume"
        raise FomkitError(wrong, f"cannot be used where {place.launcher} started the processes. Leave it out.")
    target, chosen = Path(output), tuple(dict.fromkeys(backends))
    spec = NetworkSpec(target, ranks or 2, chosen, plan, add, resume, seed, name, place, os.environ)
    _output(output, plan, force or add or resume or not spec.writes)
    return _measure(spec, tell)


@checked
def measure_input(
    source: str | Path, output: str | Path, *, plan: MeasurePlan = "default", workers: int | None = None,
    batch: int | None = None, add: bool = False, name: str = "", force: bool = False,
) -> InputMeasured:  # fmt: skip
    """Time the input pipeline of a file: its loader (a DataLoader, a ``tf.data.Dataset``) or its dataset.

    Parameters
    ----------
    source : path
        A Python file, which is executed in a separate process.
    output, plan, add, name, force
        As of `fomkit.measure_network`.
    workers : int, optional
        With --input: worker processes of the loader that is made from a dataset.
    batch : int, optional
        Batch of that loader.

    Raises
    ------
    FomkitError
        When the file fails or has no loader.
    """
    from fomkit.bench.input_rate import InputSpec
    from fomkit.bench.input_rate import measure_input as _measure

    check_options(batch=batch)
    if workers is not None and workers < 0:
        raise FomkitError("workers", f"is {workers!r}. Give a whole number of 0 or more.")
    target = _output(output, plan, force or add)
    return _measure(InputSpec(Path(source), target, plan, workers, batch, add, name))


def _page(found: Answer) -> str:
    from fomkit.output.docs import accuracy_page

    return accuracy_page(dict(found.content))


def _check_page(arguments: Mapping[str, Any], output: Path | None) -> None:
    if arguments["here"] and output is not None and output.suffix == ".md":
        raise FomkitError(str(output), "is for public comparisons, and --here is none. Use .json or .csv.")


@command(
    "validating",
    arguments={},
    spelled={"sheets": ("--sheet",)},
    metavar={"data": "DIR", "sheets": "NAME"},
    is_incomplete=lambda content: bool(content["regressed"]),
    before=_check_page,
    writes={".md": _page},
)
def validate(
    data: str | Path | None = None, *, full: bool = False, sheets: Sequence[str] = (), here: bool = False,
    quick: bool = False, tell: Callable[[str], None] = _no_progress,
) -> Answer:  # fmt: skip
    """Compare predictions with public measurements that were not used to fit them.

    The comparisons: DeepBench's tables with one group of shapes left out at a time; NeuSight's measured ops, whole
    models and ratios between machines, with the errors that published predictors have on the same measurements.
    Exit code 1 where an error exceeds its tolerance (validation/aims.csv).

    With --here this machine is measured with PyTorch, and steps of shipped models are predicted and timed: once
    from a profile without any of the models' shapes, once from a profile with exactly these shapes. Exit code 1
    where a median error exceeds its tolerance.

    Parameters
    ----------
    data : path, optional
        Folder of measurements laid out like validation/neusight; default: that one.
    full : bool
        Refit and score inside each fold of the cross-validation; takes minutes longer.
    sheets : sequence of str
        DeepBench sheet to use, such as 'v100 fp32/vector'; may be repeated; default: all.
    here : bool
        Measure this machine, predict the steps of ten models from its profile, and time them; takes minutes.
    quick : bool
        With --here: use the quick plan of measure.
    tell : function of a text
        Called with a message before each part.

    Returns
    -------
    Answer
        ``fomkit/validate/1``: the table has the scores, ``content["aims"]`` the tolerances; ``fomkit/here/1``: the
        table has the models.

    Raises
    ------
    FomkitError
        When a table cannot be read, or nothing can be timed here.
    """
    from fomkit.output.comparisons import format_proof, format_validation

    if not here:
        if quick:
            raise FomkitError("quick", "is a plan for `here`. Add `here`, or leave it out.")
        from fomkit.validation.validate import validate as compared

        content = compared(None if data is None else Path(data), full=full, sheets=sheets or None,
                           tell=tell).content()  # fmt: skip
        return Answer(content, content["lines"], format_validation)
    if data is not None or full or sheets:
        raise FomkitError("here", "excludes `data`, `full` and `sheets`: it times this machine. Leave them out.")
    from fomkit.validation.here import content_of, prove_here

    proof = content_of(prove_here(quick=quick, tell=tell))
    return Answer(proof, proof["models"], format_proof)
