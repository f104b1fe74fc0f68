"""Batch normalisation over devices: a norm on each, and exchanges of statistics where the ranks are known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fomkit.trace.calls import BACKWARD, FORWARD, Dimensions, TracedOp
from fomkit.trace.torch_recorder import Recorder

_UNKNOWN = (
    "SyncBatchNorm counts as a batch norm: without a process group the ranks are not known, so its exchange of "
    "statistics is not counted"
)


def _link(ranks: int) -> tuple[str, bool]:
    """Name the tier that the ranks span, as torchrun tells it, and whether that is only assumed."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return ("system", False) if local.isdigit() and ranks > int(local) else ("node", not local.isdigit())


def _exchanges(channels: int, ranks: int, path: str) -> Iterator[TracedOp]:
    """Describe what torch.nn.modules._functions.SyncBatchNorm sends, in fp32 whatever the data's format.

    Forward every rank gathers mean, inverse deviation and count; back two sums are added up.
    """
    shared: Dimensions = {"ranks": ranks, "link": _link(ranks)[0]}
    forward: Dimensions = {"collective": "all_gather", "message_byte": 4 * (2 * channels + 1), **shared}
    backward: Dimensions = {"collective": "all_reduce", "message_byte": 4 * 2 * channels, **shared}
    yield TracedOp("c10d::allgather_", "collective", forward, "fp32", FORWARD, path)
    yield TracedOp("c10d::allreduce_", "collective", backward, "fp32", BACKWARD, path)


def _note_exchange(module: Any, recorder: Recorder) -> None:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        recorder.note(_UNKNOWN)
        return
    ranks = distributed.get_world_size(module.process_group)
    if ranks == 1:
        return
    if _link(ranks)[1]:
        recorder.note(f"SyncBatchNorm: its {ranks} ranks are taken to be one node's; LOCAL_WORLD_SIZE is not set")
    for row in _exchanges(module.num_features, ranks, recorder.stack.top.path):
        if row.pass_name == FORWARD or torch.is_grad_enabled():
            recorder.ops.append(row)
            recorder.order.note([row], (), row.module, row.pass_name)


@contextmanager
def watch_sync_norms(recorder: Recorder) -> Iterator[None]:
    """Run SyncBatchNorm as a batch norm inside the block, its exchanges as rows of their own."""
    kind: Any = torch.nn.SyncBatchNorm
    forward = kind.forward

    def alone(self: Any, values: torch.Tensor) -> Any:
        if self.training or not self.track_running_stats:
            _note_exchange(self, recorder)
        known = torch.distributed.is_initialized
        torch.distributed.is_initialized = lambda: False
        try:
            return forward(self, values)
        finally:
            torch.distributed.is_initialized = known

    kind.forward = alone
    try:
        yield
    finally:
        kind.forward = forward
