"""The model noun: a traced network with its sizes, its data and what one run of it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import Span
from fomkit.core.units import STATED, Stated, stated_facts, stated_number, stated_on_top, stated_text

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.core.measurement import MeasuredRun


PassGroup = Literal["forward", "backward", "update"]

PARTIAL = "partial"
"""How a note begins that says that part of the step or of its source is missing."""
DOUBTFUL = "doubtful"
"""How a note begins that says that a figure of the profile may be another: its batch, its work, its times."""
OF_ONE = "the step of one"
"""How a note begins that says that a program runs as several processes, of which the profile has one."""

OF_A_RUN = ("train_samples", "validation_samples", "epochs")
"""Parameters of a model that are no sizes of its ops."""
LastBatch = Literal["drop", "keep"]

BATCH = "batch"
CACHE = "cache"
"""The named size of a step that makes one token after so many: keys and values of theirs are kept."""
OF_SIZES = "sizes"
"""What a profile was traced on that a transformer's sizes gave by rule: nothing."""
IMPL_BY_DEFAULT = "default"
"""``impl_from`` of an optimizer whose implementation nobody asked for: each kind of device has a default."""
STATE_TENSORS: Mapping[str, int] = {
    "sgd": 0, "momentum": 1, "nesterov": 1, "adam": 2, "adam_amsgrad": 3, "adamw": 2, "adamw_amsgrad": 3,
    "adamax": 2, "nadam": 2, "radam": 2, "rmsprop": 1, "rmsprop_momentum": 2, "rmsprop_centered": 2,
    "rmsprop_centered_momentum": 3, "adagrad": 1, "adadelta": 2,
}  # fmt: skip
"""Tensors of a parameter's size that an optimizer keeps for it, by rule (torch 2.13, torch.optim)."""


@dataclass(frozen=True)
class Workload:
    """What a user's file gives to be profiled: one training step and the run around it.

    `model`: a module of the framework.
    `inputs`: tensor, tuple, dict, or function of the batch size that gives one; its further parameters with a
      whole-number default are named sizes: ``inputs(batch, seq=1024)``; ``inputs(batch=512)`` states the batch.
    `loss`: function of (output, inputs); default: the output's ``.loss``, else the sum of its first tensor (the
      profile says so).
    `optimizer`: one of the framework, or a function of the parameters that gives one.
    `batch_size`: default: that of ``inputs``, else the first dimension of the first input tensor.
    `train_samples`, `epochs`: what makes a run; without them fomkit stops at the step.
    `validation_samples`: samples validated after each epoch; 0 = none.
    `last_batch`: what becomes of one that is not full.
    `notes`: what a reader of the numbers should know.
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
    """The samples of one epoch; None where the profile does not say."""

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
    """Epochs that a training needs to reach a target, by batch, as somebody measured them.

    `epochs`: by batch, in ascending order; intervals of 80 %, whose ends equal the value where nobody stated a
      spread.
    `metric`, `target`: what is reached: ``top-5 accuracy``, 0.93.
    `source`: where the figures are from.
    `where`: the file, for messages.
    """

    epochs: Mapping[int, Span]
    metric: str
    target: float
    source: str
    where: str = "epochs to the target"

    @property
    def covers(self) -> tuple[int, int]:
        """The least and the largest batch."""
        return min(self.epochs), max(self.epochs)


@dataclass(frozen=True)
class Transformer:
    """A decoder-only transformer by its sizes: what tensor, pipeline and sequence parallelism split.

    `feed_forward`: width of the feed-forward layer; default: four times ``hidden``.
    `attention`: ``unfused``: batched products and a softmax that write their scores; ``fused``: one kernel.
    `style`: ``gpt``: biases, dropout, learned positions, layer norms, GELU; ``llama``: none of these, but gated
      feed-forward layers, norms of one number an element, and positions that turn queries and keys.
    `kv_heads`: heads of keys and values; default: ``heads``. `head_dim`: default: ``hidden / heads``.
    `tied`: whether words in and out are one table.
    `experts`: feed-forward layers of each block, of which every token takes ``top_k``; 0: one layer for all
      tokens.
    `capacity_factor`: slots of an expert over its even share of the tokens, as declared: how tokens spread is not
      predicted.
    """

    hidden: int
    heads: int
    blocks: int
    seq: int
    vocabulary: int
    feed_forward: int = 0
    attention: Literal["unfused", "fused"] = "unfused"
    experts: int = 0
    top_k: int = 1
    capacity_factor: float = 1.0
    style: Literal["gpt", "llama"] = "gpt"
    kv_heads: int = 0
    head_dim: int = 0
    tied: bool = True

    def __post_init__(self) -> None:
        """Give the feed-forward layer and the heads their usual sizes where none are stated."""
        usual = {"feed_forward": 4 * self.hidden, "kv_heads": self.heads, "head_dim": self.hidden // self.heads}
        for name, size in usual.items():
            if not getattr(self, name):
                object.__setattr__(self, name, size)

    @property
    def gated(self) -> bool:
        """Whether a feed-forward layer has a third product, which gates its activation."""
        return self.style == "llama"

    @property
    def attention_width(self) -> int:
        """Width of queries, keys and values together."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def feed_forward_parameters(self) -> int:
        """Learned numbers of one feed-forward layer: two products with their biases, or three without."""
        if self.gated:
            return 3 * self.hidden * self.feed_forward
        return 2 * self.hidden * self.feed_forward + self.feed_forward + self.hidden

    @property
    def expert_slots(self) -> int:
        """Places for tokens of one sample that each expert has; 0 without experts.

        >>> sizes = {"hidden": 512, "heads": 8, "blocks": 4, "seq": 256, "vocabulary": 1000}
        >>> Transformer(**sizes, experts=8, top_k=2, capacity_factor=1.25).expert_slots
        80
        """
        # Less a hair: 1.1 is not exactly 1.1.
        even = self.seq * self.top_k * self.capacity_factor / self.experts if self.experts else 0.0
        return ceil(even * (1 - 1e-12))

    @property
    def block_parameters(self) -> int:
        """Learned numbers of one block: products with their biases, two norms, a router beside experts."""
        return self.block_parameters_of(1)

    def block_parameters_of(self, expert: int) -> int:
        """Count those that one of so many devices holds, which share the experts and copy the rest."""
        context = self.heads * self.head_dim
        learned = 2 * self.hidden if self.gated else self.attention_width + 5 * self.hidden  # norms; biases too
        attention = self.hidden * (self.attention_width + context) + learned
        layers = self.experts // expert if self.experts else 1
        return attention + layers * self.feed_forward_parameters + self.hidden * self.experts

    @property
    def embedding_parameters(self) -> int:
        """Learned numbers of words, shared with the output or not, and of positions."""
        positions = 0 if self.gated else self.seq
        return (self.vocabulary * (1 if self.tied else 2) + positions) * self.hidden

    @property
    def parameters(self) -> int:
        """Learned numbers of all."""
        last_norm = self.hidden * (1 if self.gated else 2)
        return self.blocks * self.block_parameters + self.embedding_parameters + last_norm


@dataclass(frozen=True)
class ModelProfile:
    """A model profile: the op table of one step and everything needed to roll it up.

    `sizes`: named sizes (``batch``, ``seq``) that the dimensions of ``ops`` may use in expressions.
    `ops`: an OPS table; dimension cells are numbers or expressions in ``sizes``.
    `parts`: decomposition of rnn and attention rows into gemm and pointwise rows; its column ``of`` is the
      position in ``ops`` of the row it decomposes, its ``count`` is per execution of that row. Empty where none.
    `layers`: a LAYERS table of one forward pass; None where nobody recorded the layers.
    `order`: an ORDER table of one step; None where nobody recorded the order.
    `transformer`: the sizes that the ops were made from by rule; None for a traced network.
    `unsupported`: ops that the tracer saw and has no rule for, with their counts; they are missing from ``ops``.
    `bounded`: ops without a rule that are in ``ops`` with their traffic, by name.
    `missing`: work of the step that its source did not hold, such as ``loss``; it is missing from ``ops``.
    `excludes`: work of a unit that no step of this model holds, such as the ``prompt`` of decoded tokens.
    `derived`: passes whose rows follow from the forward pass by rule; nobody traced them.
    `measured`: how long its step took where it was timed; the times of its ops are ``traced_time_s`` in ``ops``.
    `stated`: what was stated of it by `with_`, of which ``notes`` has one.
    `asked_as`: name or path by which a command finds it; "" of one that was made in Python.
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

    def __repr__(self) -> str:
        return f"<model {self.name}: {self.title}; {len(self.ops):,} rows of ops>"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What every figure made of it must say: what is derived or missing, some of its notes."""
        derived = (f"derived by rule, not traced: {', '.join(self.derived)}",) if self.derived else ()
        missing = (f"not in the profile and not counted: {', '.join(self.missing)}",) if self.missing else ()
        return (
            *derived,
            *missing,
            *(note for note in self.notes if note.startswith((PARTIAL, DOUBTFUL, STATED, OF_ONE))),
        )

    @property
    def at_least(self) -> bool:
        """Whether work of the step is not in ``ops``, so that every total is a lower bound."""
        return bool(self.unsupported or self.missing)

    def with_(self, stated: Mapping[str, int | str] | None = None, /, **more: int | str) -> ModelProfile:
        """Give a copy with another run, for example ``with_(epochs=90)``; every result says so.

        Names are the parameters of `fomkit.sweep`: ``epochs``, ``train_samples``, ``validation_samples``; and
        ``name``, ``title``; `stated` has them as a mapping. Sizes such as the batch are chosen at each estimate.
        Raises FomkitError when a name is none of these or is stated twice, or a value cannot be one.

        >>> import fomkit
        >>> fomkit.model("p1b3").with_(epochs=2).run.epochs
        2
        """
        given, texts, counts = stated_facts(stated, more, {}), dict[str, Any](), dict[str, float]()
        for name, (_, value) in given.items():
            if name in ("name", "title"):
                texts[name] = stated_text(value, "with_", name)
            elif name in OF_A_RUN:
                counts[name] = stated_number(value, "", "with_", name, int(name != "validation_samples"))
            else:
                what = "is chosen at each estimate" if name in self.sizes else "is nothing that can be stated"
                hint = nearest_names(name, (*OF_A_RUN, "name", "title"))
                raise FomkitError(f"with_({name}=…)", f"{what}. {hint}")
        if not given:
            return self
        said, notes = stated_on_top(self.notes, self.stated, given)
        return replace(self.with_run(counts), stated=said, notes=notes, **texts)

    def with_run(self, values: Mapping[str, float]) -> ModelProfile:
        """Give it with other samples and epochs (`OF_A_RUN`)."""
        now = {
            **vars(self.data),
            **vars(self.run),
            **{name: round(values[name]) for name in OF_A_RUN if name in values},
        }
        data = Data(now["train_samples"], now["validation_samples"], self.data.last_batch)
        return replace(self, data=data, run=Run(now["epochs"], self.run.devices_per_run))

    def resized(self, sizes: Mapping[str, int]) -> list[str]:
        """Name those of some sizes that are others than the profile's."""
        return [name for name, value in sizes.items() if value != self.sizes.get(name)]

    @property
    def batch(self) -> int | None:
        """Samples in one step."""
        return self.sizes.get("batch")


def by_network(models: Sequence[ModelProfile]) -> list[list[ModelProfile]]:
    """Put the traces of one network by several frameworks together.

    The name of one begins with that of the other, a dash follows, and both have the same data and equally many
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
