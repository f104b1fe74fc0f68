"""The ten models that prove a profile of the machine at hand: traced and timed here, from the shipped sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fomkit.costs import split_recurrent
from fomkit.errors import FomkitError
from fomkit.measure.ops import cells_of, shape_of
from fomkit.measure.step_energy import watch_energy
from fomkit.measurement import MeasuredRun, Repeated
from fomkit.profiles import save_model
from fomkit.profiles.locate import shipped_folder
from fomkit.resize import resize_ops
from fomkit.trace import profile_file
from fomkit.trace.measuring import time_file
from fomkit.workload import ModelProfile

SOURCES = (
    "here/multilayer_perceptron", "here/convolutional", "here/depthwise", "here/lstm", "here/gru", "here/encoder",
    "here/decoder", "here/autoencoder", "here/embeddings", "candle/p1b3",
)  # fmt: skip
"""Below ``model_profiles/src``; a step of each takes 5 to 500 ms on one core."""
Shapes = frozenset[tuple[str, ...]]
Trace = Callable[[Path], ModelProfile]


@dataclass(frozen=True)
class Traced:
    """A model of the ten: where its source is, and its profile in memory and as a file."""

    source: Path
    model: ModelProfile
    path: Path


def source_of(name: str) -> Path:
    """Give the source of one of the ten."""
    return shipped_folder("model_profiles") / "src" / f"{name}.py"


def trace_models(names: Sequence[str], folder: Path, tell: Callable[[str], None], trace: Trace) -> list[Traced]:
    """Trace models by the framework that is installed, and write their profiles for who measures their ops."""
    found = []
    for name in names:
        tell(f"tracing {name}")
        source = source_of(name)
        model = trace(source)
        path = folder / f"{model.name}.yaml"
        save_model(model, path)
        found.append(Traced(source, model, path))
    return found


def trace_file(source: Path) -> ModelProfile:
    """Trace a training step, as ``fomkit profile`` does."""
    return profile_file(source)


def shapes_of(model: ModelProfile) -> Shapes:
    """Give the shapes of all ops of a step; of recurrent layers those of the calls that they are made of, too."""
    ops = resize_ops(model.ops, model.sizes, model.name)
    rows = [*ops.to_dict("records"), *split_recurrent(ops).to_dict("records")]
    return frozenset(shape_of(cells_of({str(name): value for name, value in row.items()})) for row in rows)


def time_step(one: Traced, threads: int, precision: str = "") -> MeasuredRun:
    """Time the plain step of a model, as ``fomkit profile --measure step`` does.

    ``precision`` is as there: ``bf16``, or "" for the step as it is.

    Raises
    ------
    FomkitError
        When it does not run here.
    """
    mode = one.model.traced_with["mode"]
    with watch_energy() as energy:
        return time_file(
            one.source, mode=mode, sizes=one.model.sizes, ops=False, threads=threads, precision=precision,
            energy=energy,
        ).run  # fmt: skip


def step_of(run: MeasuredRun, where: str) -> Repeated:
    """Give the times of a step by the clock that is meant.

    Raises
    ------
    FomkitError
        When that clock was not read.
    """
    if run.step_time is None:
        raise FomkitError(where, f"the clock of {run.clock} was not read.")
    return run.step_time
