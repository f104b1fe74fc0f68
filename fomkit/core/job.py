"""The job noun: a unit of work as it is run, spread over how many devices and in which way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fomkit.core.errors import FomkitError

Algorithm = Literal["auto", "ring", "tree", "hierarchical", "parameter_server"]
"""How a collective goes over several devices."""
Recompute = Literal["none", "selective", "full"]
OptimizerPlace = Literal["device", "server"]
Prefetch = Literal["post", "pre"]
Scatter = Literal["each", "last"]
Launch = Literal["eager", "graphs"]
LAYOUT = "layout"
"""Where a message about a layout says it comes from."""
BUCKET_BYTE = 25 * 1024 * 1024
"""Gradients sent together (PyTorch 2, ``DistributedDataParallel(bucket_cap_mb=25)``) [byte]."""


@dataclass(frozen=True)
class Layout:
    """Parallelism of one training; the number of replicas (data parallelism) follows from the devices.

    `tensor`, `pipeline`, `interleave`: devices that share each layer; stages; model chunks of each stage (1 =
      plain 1F1B).
    `sequence`: what tensor parallelism leaves whole (norms, dropouts, residuals) is split along the sequence.
    `tensor_overlap`: gathers and scatters of the tensor group run beside the products that need or make them
      (Transformer Engine's userbuffers); with ``sequence``.
    `expert`: replicas that share the experts of a layer and send each other its tokens; it divides both.
    `microbatch`: samples of a replica that are worked on at once; None takes all of its share.
    `recompute`: activations made again in the backward pass: none, selective (attention's core), full.
    `zero`: what replicas share out instead of copying: 0 nothing, 1 optimizer state, 2 gradients too, 3 all.
    `algorithm`: of the sum over replicas; auto takes measured times inside a node, else a ring there, and between
      nodes the best of ring, tree and hierarchical.
    `servers`: devices that hold the parameters, for ``parameter_server``.
    `channel`: transport whose links are used, such as nccl, mpi, verbs or grpc; "" takes links that name none.
    `bucket_byte`: gradients sent together.
    `overlap`: gradients travel while the backward pass goes on.
    `compression`: bytes sent over bytes of the gradients, as declared by the user; 1 = none.
    `staleness`: steps by which gradients may be late, as declared; above 0 a step waits for the link only where it
      is busy all the time. What it costs in epochs is not known here.
    `sync_norm`, `clip`: batch norms over all replicas; gradients clipped by their norm over all devices.
    `optimizer`: where the update runs.
    `prefetch`: with zero 3, what of the next block is gathered beside the backward pass of this one: ``post``,
      nothing before its own gradients are on their way; ``pre``, all of it.
    `scatter`: with zero 2 and 3, whether gradients are scattered in each microbatch, or stay whole until the last.
    `gradient_byte`: of each gradient as replicas send it.
    `attention_peak_fraction`: share of the peak that the fused attention of this program reaches, as stated, of
      the arithmetic that a causal kernel does; None prices it as every other op.
    `launch`: ``eager``, the host starts op by op; ``graphs``, which were captured or compiled, never wait for it.
    """

    tensor: int = 1
    pipeline: int = 1
    interleave: int = 1
    sequence: bool = False
    tensor_overlap: bool = False
    expert: int = 1
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
    optimizer: OptimizerPlace = "device"
    prefetch: Prefetch = "post"
    scatter: Scatter = "each"
    gradient_byte: float = 4
    attention_peak_fraction: float | None = None
    launch: Launch = "eager"

    @property
    def model_devices(self) -> int:
        """Devices that hold one copy of the model, or of what is not experts."""
        return self.tensor * self.pipeline

    @property
    def gathers(self) -> int:
        """How often replicas gather the parameters of a block: with zero 3 again before its backward pass."""
        return min(self.zero, 1) + (self.zero == 3)

    @property
    def fewest_devices(self) -> int:
        """Devices that hold all of the model once: its experts are shared by as many copies of the rest."""
        return self.model_devices * self.expert

    def replicas(self, devices: int) -> int:
        """Count the copies of the model on so many devices; where experts are shared, those of the rest.

        Raises FomkitError when the copies do not fill the devices, or do not divide into groups that share
        experts.
        """
        if devices % self.model_devices:
            raise FomkitError(
                LAYOUT,
                f"{devices} devices do not divide into copies of tensor {self.tensor} × pipeline {self.pipeline} "
                f"= {self.model_devices}. Take a multiple of {self.model_devices} devices.",
            )
        copies = devices // self.model_devices
        if copies % self.expert:
            raise FomkitError(
                LAYOUT,
                f"{copies} replicas on {devices} devices do not divide into groups of expert {self.expert}. "
                f"Take a multiple of {self.fewest_devices} devices.",
            )
        return copies


@dataclass(frozen=True)
class Job:
    """One run of a line as it is spread out.

    `nodes`: whole nodes of one run; ``fill`` takes all that the machine has; None takes as many devices as the
      model's run says (``devices_per_run``), inside a node where they fit.
    """

    nodes: int | Literal["fill"] | None = None
    layout: Layout = field(default_factory=Layout)
