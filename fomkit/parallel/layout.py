"""How a training is spread over devices: one frozen record, and what cannot be combined, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.prediction.exchange import Algorithm

Recompute = Literal["none", "selective", "full"]
OptimizerPlace = Literal["device", "server"]
Prefetch = Literal["post", "pre"]
Scatter = Literal["each", "last"]
Launch = Literal["eager", "graphs"]
BUCKET_BYTE = 25 * 1024 * 1024
"""Gradients sent together (PyTorch 2, ``DistributedDataParallel(bucket_cap_mb=25)``) [byte]."""
_WHERE = "layout"


@dataclass(frozen=True)
class Layout:
    """Parallelism of one training; the number of replicas (data parallelism) follows from the devices.

    `tensor`, `pipeline`, `interleave`: devices that share each layer; stages; model chunks of each stage (1 =
      plain 1F1B).
    `sequence`: what tensor parallelism leaves whole (norms, dropouts, residuals) is split along the sequence.
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
                _WHERE,
                f"{devices} devices do not divide into copies of tensor {self.tensor} × pipeline {self.pipeline} "
                f"= {self.model_devices}. Take a multiple of {self.model_devices} devices.",
            )
        copies = devices // self.model_devices
        if copies % self.expert:
            raise FomkitError(
                _WHERE,
                f"{copies} replicas on {devices} devices do not divide into groups of expert {self.expert}. "
                f"Take a multiple of {self.fewest_devices} devices.",
            )
        return copies


def _check_values(layout: Layout) -> None:
    for name, least in (("tensor", 1), ("pipeline", 1), ("interleave", 1), ("expert", 1), ("servers", 1),
                        ("microbatch", 1), ("zero", 0), ("staleness", 0)):  # fmt: skip
        value = getattr(layout, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise FomkitError(_WHERE, f"{name} is {value!r}. Expected a whole number, {least} or more.")
    for name, words in (("algorithm", get_args(Algorithm)), ("recompute", get_args(Recompute)),
                        ("optimizer", get_args(OptimizerPlace)), ("prefetch", get_args(Prefetch)),
                        ("scatter", get_args(Scatter)), ("launch", get_args(Launch))):  # fmt: skip
        if getattr(layout, name) not in words:
            value = getattr(layout, name)
            raise FomkitError(_WHERE, f"{name} {value!r} is not one. {nearest_names(str(value), words)}")
    if layout.zero > 3:
        raise FomkitError(_WHERE, f"zero is {layout.zero}. Expected 0, 1, 2 or 3.")
    if not 0 < layout.compression <= 1:
        raise FomkitError(_WHERE, f"compression is {layout.compression:g}. Give bytes sent over bytes, 0.25 say.")
    for name in ("bucket_byte", "gradient_byte"):
        if not getattr(layout, name) > 0:
            raise FomkitError(_WHERE, f"{name} is {getattr(layout, name):g}. Give a size above 0.")
    if layout.attention_peak_fraction is not None and not 0 < layout.attention_peak_fraction <= 1:
        raise FomkitError(
            _WHERE,
            f"attention_peak_fraction is {layout.attention_peak_fraction:g}. Give a share of the peak, 0.3 say.",
        )


def _refusals(layout: Layout) -> list[str]:
    server = layout.algorithm == "parameter_server"
    return [
        why
        for refused, why in (
            (layout.expert > 1 and server, "a parameter server with expert parallelism is not modelled: not all "
                                           "workers hold the same. Choose another algorithm"),
            (layout.interleave > 1 and layout.pipeline == 1, "interleave splits pipeline stages and there is one "
                                                             "stage. Give pipeline 2 or more"),
            (layout.sequence and layout.tensor == 1, "sequence parallelism shares the tensor group, which is 1. "
                                                     "Give tensor 2 or more"),
            (server and layout.zero > 0, "a parameter server and zero both share out the update. Choose one"),
            (server and layout.model_devices > 1, "a parameter server with tensor or pipeline parallelism is not "
                                                  "modelled. Choose another algorithm"),
            (layout.optimizer == "server" and not server, "an update on the server needs the algorithm "
                                                          "parameter_server"),
            (layout.zero > 1 and layout.pipeline > 1, "zero 2 and 3 with a pipeline are not modelled: they send "
                                                      "for every microbatch. Choose zero 0 or 1"),
            (layout.zero < 2 and layout.scatter == "last", "scatter belongs to zero 2 and 3. Leave it out"),
            (layout.zero < 3 and layout.prefetch == "pre", "prefetch belongs to zero 3. Leave it out"),
            (layout.zero > 0 and layout.staleness > 0, "stale gradients with zero are not modelled. Choose one"),
            (layout.clip and layout.staleness > 0, "clipping needs the norm of gradients that stale ones do not "
                                                   "have yet. Choose one"),
            (layout.servers > 1 and not server, "servers belong to the algorithm parameter_server. Add it"),
        )
        if refused
    ]  # fmt: skip


def check_layout(layout: Layout) -> Layout:
    """Give the layout back, or raise for what it cannot combine.

    Raises FomkitError with the name of the value or the combination.

    Examples
    --------
    >>> check_layout(Layout(tensor=8, sequence=True)).model_devices
    8
    """
    _check_values(layout)
    for why in _refusals(layout):
        raise FomkitError(_WHERE, f"{why}.")
    return layout


def microbatches_of(samples: int, replicas: int, microbatch: int | None) -> tuple[int, int]:
    """Give the samples of a microbatch and the microbatches of a step.

    Raises FomkitError when the samples do not divide.

    Examples
    --------
    >>> microbatches_of(64, 2, 4)
    (4, 8)
    """
    share, rest = divmod(samples, replicas)
    if not share:
        raise FomkitError(
            _WHERE, f"a batch of {samples} has no sample for each of {replicas} replicas. Enlarge the batch."
        )
    micro = microbatch or share
    if rest or share % micro:
        raise FomkitError(
            _WHERE,
            f"a batch of {samples} does not divide into {replicas} replicas"
            + (f" of microbatches of {micro}" if microbatch else "")
            + ". Change the batch, the microbatch or the number of devices.",
        )
    return micro, share // micro
