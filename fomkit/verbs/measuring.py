"""The machine at hand, measured; and how far predictions are from measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.units import Precision
from fomkit.files.write import check_absent
from fomkit.verbs.answer import Answer, check_options, options_of

if TYPE_CHECKING:
    from fomkit.bench.input_rate import InputMeasured
    from fomkit.bench.network import NetworkMeasured
    from fomkit.bench.run import Measured


MeasurePlan = Literal["quick", "default", "full"]
"""About 2 minutes, 10 minutes, an hour of the clock that times the ops."""


def _silent(_text: str) -> None:
    """Let nobody watch."""


def _output(path: str | Path, plan: str, force: bool) -> Path:
    from fomkit.bench.session import PLANS

    if plan not in PLANS:
        raise FomkitError("plan", f"is {plan!r}. Give {', '.join(PLANS)}.")
    target = Path(path)
    if target.suffix != ".yaml":
        raise FomkitError(str(target), "has not the ending of a machine profile. Name it, for example, here.yaml.")
    check_absent([target], force)
    return target


def measure_machine(
    output: str | Path,
    *,
    plan: MeasurePlan = "default",
    models: Sequence[str] = (),
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    library: Literal["torch", "tensorflow"] | None = None,
    threads: int = 1,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
    tell: Callable[[str], None] = _silent,
) -> Measured:
    """Time ops on this machine with PyTorch, or TensorFlow, in a process of their own, and write its profile.

    Parameters
    ----------
    output : path
        Of the machine profile, ``NAME.yaml``.
    plan : str
        quick (about 2 minutes), default (10) or full (an hour), by the clock that times the ops.
    models : sequence of str
        Time the ops of these profiles at their exact sizes; default: ops that fill the space of sizes.
    batch, sizes, precision
        Of the models, as of `fomkit.estimate`.
    device, threads
        What is measured, and with how many threads on a CPU.
    library : str, optional
        What runs the ops; default: PyTorch, or TensorFlow where only that is here.
    seed : int
        Of the random order in which ops are timed.
    resume : bool
        Go on from what an earlier run kept.
    force : bool
        Replace a profile that exists.
    tell : function of a text
        Told before each op.

    Returns
    -------
    Measured
        ``machine``, the files that were written, ``interrupted``, and the ``verdict`` whether it is enough.

    Raises
    ------
    FomkitError
        When nothing can be timed here, or there is nothing to resume.
    """
    from fomkit.bench.run import MeasureSpec, measure

    options = options_of(batch, sizes=sizes, precision=precision)
    target = _output(output, plan, force or resume)
    spec = MeasureSpec(target, plan, tuple(models), options, device, threads, seed, resume, library=library or "")
    return measure(spec, tell)


def measure_network(
    output: str | Path,
    *,
    ranks: int = 2,
    backends: Sequence[str] = ("gloo",),
    plan: MeasurePlan = "default",
    add: bool = False,
    force: bool = False,
    tell: Callable[[str], None] = _silent,
) -> NetworkMeasured:
    """Time messages and collectives between processes that are started here, and write the links found.

    Parameters
    ----------
    output : path
        Of the machine profile, ``NAME.yaml``.
    ranks : int
        Processes.
    backends : sequence of str
        Of ``torch.distributed``: gloo, nccl, mpi.
    plan : str
        As of `fomkit.measure_machine`.
    add : bool
        Add to the profile that is there.
    force : bool
        Replace a profile that exists.
    tell : function of a text
        Told of each part.

    Raises
    ------
    FomkitError
        When nothing can be timed here.
    """
    from fomkit.bench.network import NetworkSpec
    from fomkit.bench.network import measure_network as _measure

    target = _output(output, plan, force or add)
    if ranks < 2:
        raise FomkitError("ranks", f"is {ranks!r}. Give 2 or more.")
    found = _measure(NetworkSpec(target, ranks, tuple(backends), plan, add), tell)
    if found is None:
        raise FomkitError(str(target), "is written by another of the processes that a launcher started.")
    return found


def measure_input(
    source: str | Path,
    output: str | Path,
    *,
    plan: MeasurePlan = "default",
    workers: int | None = None,
    batch: int | None = None,
    add: bool = False,
    force: bool = False,
) -> InputMeasured:
    """Time the input pipeline of a file: its loader (a DataLoader, a ``tf.data.Dataset``) or its dataset.

    Parameters
    ----------
    source : path
        A Python file, which is run in a process of its own.
    output : path
        Of the machine profile, ``NAME.yaml``.
    plan : str
        As of `fomkit.measure_machine`.
    workers, batch : int, optional
        Of the loader that is made of a dataset.
    add : bool
        Add to the profile that is there.
    force : bool
        Replace a profile that exists.

    Raises
    ------
    FomkitError
        When the file fails or has no loader.
    """
    from fomkit.bench.input_rate import InputSpec
    from fomkit.bench.input_rate import measure_input as _measure

    check_options(batch=batch)
    target = _output(output, plan, force or add)
    return _measure(InputSpec(Path(source), target, plan, workers, batch, add))


def validate_predictions(
    data: str | Path | None = None, *, full: bool = False, sheets: Sequence[str] | None = None
) -> Answer:
    """Rerun the public comparisons: how far predictions are from measurements that nobody fitted (minutes).

    Parameters
    ----------
    data : path, optional
        Labels laid out like ``validation/neusight``; default: those.
    full : bool
        Refit and judge inside each fold, as a user would.
    sheets : sequence of str, optional
        DeepBench sheets such as ``"v100 fp32/vector"``; default: all.

    Returns
    -------
    Answer
        ``fomkit/validate/1``; its table has the scores, ``content["aims"]`` their targets.

    Raises
    ------
    FomkitError
        When a table cannot be read.
    """
    from fomkit.output.comparisons import format_validation
    from fomkit.validation.validate import validate

    content = validate(None if data is None else Path(data), full=full, sheets=sheets).content()
    return Answer(content, content["lines"], format_validation)


def prove_here(*, quick: bool = False, tell: Callable[[str], None] = _silent) -> Answer:
    """Measure this machine, estimate ten models' steps on its profile and time them (minutes).

    Parameters
    ----------
    quick : bool
        By the quick plan of measure.
    tell : function of a text
        Told before each part.

    Returns
    -------
    Answer
        ``fomkit/here/1``; its table has the models.

    Raises
    ------
    FomkitError
        When nothing can be timed here.
    """
    from fomkit.output.comparisons import format_proof
    from fomkit.validation.here import content_of
    from fomkit.validation.here import prove_here as _prove

    content = content_of(_prove(quick=quick, tell=tell))
    return Answer(content, content["models"], format_proof)
