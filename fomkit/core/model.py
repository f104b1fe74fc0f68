"""The model noun: a traced network with its sizes, its data, and the definition of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import Span
from fomkit.core.transformer import Transformer
from fomkit.core.units import (
    STATED,
    Stated,
    agree,
    equal_fields,
    stated_facts,
    stated_number,
    stated_on_top,
    stated_text,
)

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.measurement import MeasuredRun

PassGroup = Literal["forward", "backward", "update"]

PARTIAL = "partial"
"""First word of a note on a missing part of the step or of its source."""
DOUBTFUL = "doubtful"
"""First word of a note on a doubtful figure of the profile: its batch, its work, its times."""
OF_ONE = "the step of one"
"""First words of a note on a program of several processes, of which the profile has one."""

OF_A_RUN = ("train_samples", "validation_samples", "epochs")
"""Parameters of a model that are not sizes of its ops."""
LastBatch = Literal["drop", "keep"]

BATCH = "batch"
CACHE = "cache"
"""The named size of a decoding step: the earlier tokens whose keys and values are kept."""
OF_SIZES = "sizes"
"""``traced_with["device"]`` of a profile that was computed by rule from a transformer's sizes."""
IMPL_BY_DEFAULT = "default"
"""``impl_from`` of an optimizer whose implementation was not chosen: each kind of device has a default."""
STATE_TENSORS: Mapping[str, int] = {
    "sgd": 0, "momentum": 1, "nesterov": 1, "adam": 2, "adam_amsgrad": 3, "adamw": 2, "adamw_amsgrad": 3,
    "adamax": 2, "nadam": 2, "radam": 2, "rmsprop": 1, "rmsprop_momentum": 2, "rmsprop_centered": 2,
    "rmsprop_centered_momentum": 3, "adagrad": 1, "adadelta": 2,
}  # fmt: skip
"""Tensors of a parameter's size that an optimizer stores per parameter, by rule (torch 2.13, torch.optim)."""
TO_SHORT = "parameters to the short format"
"""The op of an update that copies fp32 parameters to those in 16 bits that products read."""


@dataclass(frozen=True)
class Workload:
    """A user's model to be profiled: one training step and the run around it.

    `model`: a module of the framework.
    `inputs`: tensor, tuple, dict, object that holds tensors, or a function of the batch size that returns one; its
      further parameters with an integer default are named sizes: ``inputs(batch, seq=1024)``;
      ``inputs(batch=512)`` states the batch.
    `loss`: function of (output, inputs); default: the output's ``.loss``, else the sum of its first tensor (then
      noted in the profile).
    `optimizer`: one of the framework, or a function of the parameters that returns one.
    `batch_size`: default: that of ``inputs``, else the first dimension of the first input tensor.
    `train_samples`, `epochs`: define a run; without them fomkit stops at the step.
    `validation_samples`: samples validated after each epoch; 0 = none.
    `last_batch`: whether an incomplete batch is kept or dropped.
    `notes`: for the readers of the results.
    """

    model: Any
    inputs: Any
    loss: Callable[[Any, Any], Any] | None = None
    optimizer: Any = None
    batch_size: int | None = None
    train_samples: int | None = None
    epochs: int | None = None
    validation_samples: int | None = None
    last_batch: LastBatch = "drop"
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Data:
    """The samples of one epoch; None where the profile does not state them."""

    train_samples: int | None = None
    validation_samples: int | None = None
    last_batch: LastBatch = "drop"


@dataclass(frozen=True)
class Run:
    """One complete training: epochs and the devices it occupies."""

    epochs: int | None = None
    devices_per_run: int = 1


@dataclass(frozen=True)
class Unit:
    """The unit of work that units/day counts, as a number of runs."""

    name: str = "trained model"
    runs: float = 1.0


@dataclass(frozen=True)
class EpochsToTarget:
    """Measured epochs that a training requires to reach a target, by batch.

    `epochs`: by batch, in ascending order; 80 % intervals, whose bounds equal the value if no spread is stated.
    `metric`, `target`: what is reached: ``top-5 accuracy``, 0.93.
    """

    epochs: Mapping[int, Span]
    metric: str
    target: float
    source: str
    where: str = "epochs to the target"

    @property
    def covers(self) -> tuple[int, int]:
        """The smallest and the largest batch."""
        return min(self.epochs), max(self.epochs)


@dataclass(frozen=True, eq=False)
class ModelProfile:
    """A model profile: the op table of one step and everything needed to roll it up.

    `sizes`: named sizes (``batch``, ``seq``) that the dimensions of ``ops`` may use in expressions.
    `ops`: an OPS table; dimension cells are numbers or expressions in ``sizes``.
    `parts`: decomposition of rnn and attention rows into gemm and pointwise rows; its column ``of`` is the
      position in ``ops`` of the row that it decomposes, its ``count`` is per execution of that row. Empty if there
      is none.
    `layers`: a LAYERS table of one forward pass; None if layers were not recorded.
    `order`: an ORDER table of one step; None if the order was not recorded.
    `transformer`: the sizes from which the ops were computed by rule; None for a traced network.
    `unsupported`: ops without a rule, with their counts; they are missing in ``ops``.
    `bounded`: ops whose price is a lower bound, by name: that of their bytes or, in sequence, of their flop.
    `missing`: work of the step that its source did not contain, such as ``loss``; it is missing in ``ops``.
    `excludes`: work of a unit that no step of this model contains, such as the ``prompt`` of decoded tokens.
    `derived`: passes whose rows are derived from the forward pass by rule, not traced.
    `measured`: measured time of its step; the measured times of its ops are ``traced_time_s`` in ``ops``.
    `stated`: figures that were stated by `with_`; ``notes`` contains a note on them.
    `asked_as`: name or path by which a command finds it; "" for one that was built in Python.
    """

    name: str
    title: str
    ops: pd.DataFrame
    parts: pd.DataFrame
    sizes: Mapping[str, int]
    traced_with: Mapping[str, str]
    parameters_total: int | None = None
    parameters_trainable: int | None = None
    data: Data = field(default_factory=Data)
    run: Run = field(default_factory=Run)
    unit: Unit = field(default_factory=Unit)
    optimizer: Mapping[str, str] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    bounded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    layers: pd.DataFrame | None = None
    order: pd.DataFrame | None = None
    transformer: Transformer | None = None
    measured: MeasuredRun | None = None
    stated: Stated = field(default_factory=dict, repr=False, compare=False)
    asked_as: str = field(default="", repr=False, compare=False)

    def __eq__(self, other: object) -> bool:
        return equal_fields(self, other)

    def __repr__(self) -> str:
        return f"<model {self.name}: {self.title}; {agree(len(self.ops), f'1 row/{len(self.ops):,} rows')} of ops>"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Notes for every figure of this model: what is derived or missing, and some of its notes."""
        derived = (f"derived by rule, not traced: {', '.join(self.derived)}",) if self.derived else ()
        missing = (f"not in the profile and not counted: {', '.join(self.missing)}",) if self.missing else ()
        return (
            *derived,
            *missing,
            *(note for note in self.notes if note.startswith((PARTIAL, DOUBTFUL, STATED, OF_ONE))),
        )

    @property
    def trains_by_sizes(self) -> bool:
        """Whether it is a training step that layouts price by the sizes of a transformer."""
        return self.transformer is not None and self.traced_with.get("mode") != "infer"

    @property
    def at_least(self) -> bool:
        """Whether work of the step is missing in ``ops``, so that every total is a lower bound."""
        return bool(self.unsupported or self.missing)

    def with_(self, stated: Mapping[str, int | str] | None = None, /, **more: int | str) -> ModelProfile:
        """Return a copy with another run, for example ``with_(epochs=90)``; every result says so.

        Names are the parameters of `fomkit.sweep`: ``epochs``, ``train_samples``, ``validation_samples``; and
        ``name``, ``title``; `stated` has them as a mapping. Sizes such as the batch are chosen in each estimate.
        Raises FomkitError for an unknown name, a figure that is stated twice, or an invalid value.

        >>> import fomkit
        >>> fomkit.model("p1b3").with_(epochs=2).run.epochs
        2
        """
        given, texts, counts = stated_facts(stated, more, {}), dict[str, Any](), dict[str, float]()
        for name, (_, value) in given.items():
            if name in ("name", "title"):
                texts[name] = stated_text(value, name)
            elif name in OF_A_RUN:
                counts[name] = stated_number(value, "", name, int(name != "validation_samples"))
            else:
                what = "is chosen at each estimate" if name in self.sizes else "cannot be stated"
                hint = nearest_names(name, (*OF_A_RUN, "name", "title"))
                raise FomkitError(f"with_({name}=…)", f"{what}. {hint}")
        if not given:
            return self
        facts, notes = stated_on_top(self.notes, self.stated, given)
        return replace(self.with_run(counts), stated=facts, notes=notes, **texts)

    def with_run(self, values: Mapping[str, float]) -> ModelProfile:
        """Return the model with other samples and epochs (`OF_A_RUN`)."""
        counts: dict[str, Any] = {name: round(values[name]) for name in OF_A_RUN if name in values}
        run = replace(self.run, epochs=counts.pop("epochs", self.run.epochs))
        return replace(self, data=replace(self.data, **counts), run=run)

    def resized(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the names of sizes that differ from the profile's."""
        return [name for name, value in sizes.items() if value != self.sizes.get(name)]

    @property
    def batch(self) -> int | None:
        """Samples in one step."""
        return self.sizes.get("batch")


def by_network(models: Sequence[ModelProfile]) -> list[list[ModelProfile]]:
    """Group the traces of one network by several frameworks.

    The name of one begins with that of the other and a dash, and both have the same data and the same number of
    trainable parameters.
    """
    found: dict[str, list[ModelProfile]] = {}
    for model in models:
        framework = model.traced_with.get("framework")
        first = next(
            (
                one
                for one in models
                if model.name.startswith(f"{one.name}-")
                and (model.parameters_trainable, model.data) == (one.parameters_trainable, one.data)
                and framework != one.traced_with.get("framework")
            ),
            model,
        )
        known = found.setdefault(first.name, [first])
        known += [] if model is first else [model]
    return list(found.values())
