"""The job, a unit of work on any number of devices; the suite, lines of such work; the campaign.

A line also has conditions, and times that were stated for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Basis, Party, Scope
from fomkit.core.units import Precision, agree, count_text

Algorithm = Literal["auto", "ring", "tree", "hierarchical", "parameter_server"]
"""The algorithm of a collective over several devices."""
Recompute = Literal["none", "selective", "full"]
Scatter = Literal["each", "last"]
Launch = Literal["eager", "graphs"]
LAYOUT = "layout"
"""Location in messages about a layout."""
BUCKET_BYTE = 25 * 1024 * 1024
"""Gradients sent together (PyTorch 2, ``DistributedDataParallel(bucket_cap_mb=25)``) [byte]."""


@dataclass(frozen=True)
class Layout:
    """Parallelism of one training; the number of replicas (data parallelism) follows from the devices.

    `data`: replicas that are expected; None allows any number.
    `tensor`, `pipeline`, `interleave`: devices that share each layer; stages; model chunks of each stage (1 =
      plain 1F1B). Stages may be uneven, see `stage_blocks`.
    `sequence`: ops that tensor parallelism does not split (norms, dropouts, residuals) are split along the
      sequence.
    `tensor_overlap`: gathers and scatters of the tensor group run at the same time as the products that need or
      produce them (Transformer Engine's userbuffers); with ``sequence``.
    `context`: devices that share each sequence, in all ops (context parallelism); keys and values go round among
      them while attention computes. They share gradients and the optimizer's state like replicas.
    `expert`: replicas that share the experts of a layer and exchange its tokens; it divides both.
    `whole_experts`: a tensor group does not split its experts: its devices are among the ``expert`` devices that
      share them, and each sends its own part of the sequence.
    `expert_overlap`: tokens are exchanged with experts while another microbatch's block of the same kind runs, in
      the other direction; only what takes longer than the block is exposed.
    `microbatch`: samples that a replica processes at once; None means all of its share.
    `recompute`: activations recomputed in the backward pass: none, selective (attention's core), full.
    `zero`: what replicas share instead of copying: 0 nothing, 1 optimizer state, 2 gradients too, 3 all.
    `algorithm`: of the sum over replicas; auto uses measured times inside a node, else a ring there, and between
      nodes the fastest of ring, tree and hierarchical.
    `servers`: devices that hold the parameters, for ``parameter_server``.
    `channel`: transport whose links are used, such as nccl, mpi, verbs or grpc; "" means links without a name.
    `bucket_byte`: gradients sent together.
    `compression`: bytes sent over bytes of the gradients, as declared by the user; 1 = none.
    `staleness`: steps by which gradients may be late, as declared; above 0 a step waits for the link only where
      the link is busy all the time. The additional epochs are not predicted.
    `sync_norm`, `clip`: batch norms over all replicas; gradients clipped by their norm over all devices.
    `optimizer`: where the update runs.
    `prefetch`: with zero 3, when parameters of the next block are gathered during the backward pass of this one:
      ``post``, not before its own gradients are being sent; ``pre``, from its start.
    `scatter`: with zero 2 and 3, whether gradients are scattered in each microbatch, or stay whole until the last.
    `gradient_byte`: bytes of each gradient as replicas send it.
    `attention_peak_fraction`: share of the peak that the fused attention of this program reaches, as stated, for
      the arithmetic of a causal kernel; None predicts it like every other op.
    `launch`: ``eager``, the host starts op by op; ``graphs``, captured or compiled ops never wait for the host.
    """

    data: int | None = None
    tensor: int = 1
    pipeline: int = 1
    interleave: int = 1
    sequence: bool = False
    tensor_overlap: bool = False
    context: int = 1
    expert: int = 1
    whole_experts: bool = False
    expert_overlap: bool = False
    microbatch: int | None = None
    recompute: Recompute = "none"
    zero: int = 0
    algorithm: Algorithm = "auto"
    servers: int = 1
    channel: str = ""
    bucket_byte: float = BUCKET_BYTE
    overlap: bool = True
    compression: float = 1.0
    staleness: int = 0
    sync_norm: bool = False
    clip: bool = False
    optimizer: Literal["device", "server"] = "device"
    prefetch: Literal["post", "pre"] = "post"
    scatter: Scatter = "each"
    gradient_byte: float = 4
    attention_peak_fraction: float | None = None
    launch: Launch = "eager"

    @property
    def model_devices(self) -> int:
        """Devices of one replica, apart from its experts."""
        return self.tensor * self.context * self.pipeline

    @property
    def _product(self) -> str:
        return (
            f"tensor {self.tensor} × {f'context {self.context} × ' * (self.context > 1)}pipeline {self.pipeline}"
        )

    @property
    def gathers(self) -> int:
        """Times that replicas gather the parameters of a block: with zero 3 again before its backward pass."""
        return min(self.zero, 1) + (self.zero == 3)

    @property
    def expert_replicas(self) -> int:
        """Replicas that share the experts."""
        return self.expert // self.tensor if self.whole_experts else self.expert

    @property
    def expert_tensor(self) -> int:
        """Devices that split each expert."""
        return 1 if self.whole_experts else self.tensor

    @property
    def fewest_devices(self) -> int:
        """Devices that hold the whole model once: its experts are shared by as many copies of the rest."""
        return self.model_devices * self.expert_replicas

    def whole_nodes(self, node_devices: int | None) -> int | None:
        """Return the nodes that the devices of one copy fill; None where they do not fill whole nodes.

        >>> Layout(tensor=8, pipeline=2).whole_nodes(8), Layout(tensor=4).whole_nodes(8)
        (2, None)
        """
        nodes, rest = divmod(self.fewest_devices, node_devices or 1)
        return nodes if node_devices and nodes and not rest else None

    def stage_blocks(self, blocks: int) -> list[int]:
        """Return the blocks of each stage.

        What is left over goes to inner stages, one block each: the first and the last have words and head, too. If
        there are too few inner stages, the first has one more.

        >>> Layout(pipeline=4).stage_blocks(32), Layout(pipeline=4).stage_blocks(35)
        ([8, 8, 8, 8], [9, 9, 9, 8])
        """
        least, rest = divmod(blocks, self.pipeline)
        inner = max(self.pipeline - 2, 0)
        more = min(rest, inner)
        return [least + (rest > inner), *[least + 1] * more, *[least] * (inner - more), least][: self.pipeline]

    def replicas(self, devices: int) -> int:
        """Return the copies of the model on ``devices`` devices; where experts are shared, those of the rest."""
        if devices % self.model_devices:
            raise FomkitError(
                LAYOUT,
                f"{count_text(devices, 'device')} cannot be divided into copies of {self._product} = "
                f"{self.model_devices}. Use a multiple of {count_text(self.model_devices, 'device')}, by nodes or "
                "by data.",
            )
        copies = devices // self.model_devices
        if copies % self.expert_replicas:
            raise FomkitError(
                LAYOUT,
                f"{count_text(copies, 'replica')} on {count_text(devices, 'device')} {agree(copies, 'does/do')} "
                f"not divide into groups of expert {self.expert}"
                f"{f' / tensor {self.tensor}' * self.whole_experts}. Use a multiple of "
                f"{count_text(self.fewest_devices, 'device')}.",
            )
        if self.data not in (None, copies):
            raise FomkitError(
                LAYOUT,
                f"data is {self.data}, but {count_text(devices, 'device')} divided by {self._product} "
                f"{agree(devices, 'is/are')} {count_text(copies, 'replica')}. Leave data out, or use "
                f"{count_text((self.data or 1) * self.model_devices, 'device')}.",
            )
        return copies


@dataclass(frozen=True)
class Job:
    """The distribution of one run of a line.

    `nodes`: whole nodes of one run; ``fill`` uses all nodes of the machine; None uses the devices of the layout's
      replicas (``data``), else of the model's run (``devices_per_run``) or of one replica, inside a node if they
      fit.
    """

    nodes: int | Literal["fill"] | None = None
    layout: Layout = field(default_factory=Layout)

    @property
    def states_devices(self) -> bool:
        """Whether nodes or replicas state the devices of a run, not the run of the model."""
        return self.nodes is not None or self.layout.data is not None


Category = Literal["baseline", "ported", "optimized"]
MeanName = Literal["ratio_of_harmonic_means", "weighted_harmonic", "harmonic", "geometric", "arithmetic"]

OPTIMIZED: Category = "optimized"


@dataclass(frozen=True)
class Conditions:
    """Conditions that a line of work fixes, or a proposal changes; None if not stated.

    `batch`: samples in one step.
    `precision`: number formats of the step.
    `epochs`, `samples`: epochs of one run, training samples of one epoch.
    `quality`: target of the trained model, as text: ``validation accuracy 0.95``.
    `sizes`: other named sizes of the model.
    """

    batch: int | None = None
    precision: Precision | None = None
    epochs: int | None = None
    samples: int | None = None
    quality: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def stated(self) -> dict[str, int | str]:
        """Return the stated conditions by name; each named size under its own."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "sizes"}
        return {**{name: value for name, value in plain.items() if value is not None}, **self.sizes}


@dataclass(frozen=True)
class GivenTime:
    """The stated time of one run of a line on one machine's device set.

    `run_s`: the bounds equal the value if no spread is stated [s].
    `relative_rate`: instead of a time, how many times faster than a reference one device is; ``run_s`` is then a
      day divided by it, so that a rate is a multiple of the reference's.
    `basis`, `party`: what kind of figure it is, and whose.
    `category`: whether the run used the line's own code, a ported or an optimized one.
    `conditions`: those under which it is valid, as far as they are stated.
    `utilisation_gain`, `precision_gain`: stated factors on the machine's rate, from higher utilisation and from
      narrower number formats.
    """

    run_s: Span
    basis: Basis
    party: Party
    category: Category
    conditions: Conditions = field(default_factory=Conditions)
    source: str = ""
    relative_rate: float | None = None
    utilisation_gain: float = 1.0
    precision_gain: float = 1.0


@dataclass(frozen=True)
class SuiteLine:
    """One line of a suite: a unit of work with times per machine, an estimate from a model profile, or both.

    `runs`: runs of the workload in one unit.
    `given`: stated times by machine; they have priority over an estimate.
    `model`: model profile for the estimate where no time is given.
    `job`: how a run is distributed over nodes; None if the line does not say.
    """

    name: str
    required: bool
    category: Category
    basis: Basis
    party: Party
    unit: str = "run"
    runs: float = 1.0
    weight: float = 1.0
    given: Mapping[str, GivenTime] = field(default_factory=dict)
    model: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    job: Job | None = None

    @property
    def is_relative(self) -> bool:
        """True if rates are multiples of a reference's, not times."""
        return any(one.relative_rate is not None for one in self.given.values())


@dataclass(frozen=True)
class FrozenRate:
    """Units per day of one line on the baseline, at the time the version was frozen.

    `precision`: number formats of most of the arithmetic; "" for a given time.
    `work`: hash of the work of an estimated line (`fomkit.merit.rated_lines.work_hash`); "" for a given time.
    `excludes`: terms that an estimated line leaves out because they are not stated; None if the file does not say.
    """

    unit_per_day: Span
    basis: Basis
    precision: str = ""
    work: str = ""
    excludes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Campaign:
    """A number of units of one line to be done on the whole machine."""

    name: str
    line: str
    units: float


@dataclass(frozen=True)
class Suite:
    """Lines of work over which a figure of merit is computed.

    `frozen`: the baseline's rates of this version by line; empty if they are not frozen.
    """

    name: str
    title: str
    version: int
    baseline: str
    scope: Scope
    lines: tuple[SuiteLine, ...]
    mean: MeanName = "ratio_of_harmonic_means"
    threshold: float | None = None
    notes: tuple[str, ...] = ()
    frozen: Mapping[str, FrozenRate] = field(default_factory=dict)
    campaigns: tuple[Campaign, ...] = ()


@dataclass(frozen=True)
class Phase:
    """One phase of a workflow: a number of runs of a model, or units of a suite's line.

    `runs`: trainings, passes over the samples of inference, or units of the line.
    `basis`, `source`: what kind of figure the number of runs is, and its source.
    `model`: model profile; None where ``suite`` and ``line`` name the work.
    `mode`: train, or infer: one run is then one pass over ``conditions.samples``.
    `job`: how each training is distributed over devices; None means as the model's run says.
    """

    name: str
    runs: float
    basis: Basis
    source: str
    model: str | None = None
    mode: Literal["train", "infer"] = "train"
    conditions: Conditions = field(default_factory=Conditions)
    suite: str = ""
    line: str = ""
    job: Job | None = None


@dataclass(frozen=True)
class Workflow:
    """Phases that a campaign runs one after the other, each on the whole machine."""

    name: str
    title: str
    phases: tuple[Phase, ...]
    notes: tuple[str, ...] = ()
