"""Checks of a layout and its divisors, the microbatches of a batch, and the description of a layout."""

from __future__ import annotations

from typing import Literal, get_args, get_origin, get_type_hints

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.job import LAYOUT, Layout
from fomkit.core.model import Transformer

_WORDS = {name: get_args(kind) for name, kind in get_type_hints(Layout).items() if get_origin(kind) is Literal}
"""Allowed words for each choice of a layout."""


def _check_values(layout: Layout) -> None:
    for name, least in (("tensor", 1), ("pipeline", 1), ("interleave", 1), ("expert", 1), ("servers", 1),
                        ("microbatch", 1), ("zero", 0), ("staleness", 0)):  # fmt: skip
        value = getattr(layout, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise FomkitError(LAYOUT, f"{name} is {value!r}. Expected a whole number, {least} or more.")
    for name, words in _WORDS.items():
        if (word := getattr(layout, name)) not in words:
            raise FomkitError(LAYOUT, f"{word!r} is not a value of {name}. {nearest_names(str(word), words)}")
    if layout.zero > 3:
        raise FomkitError(LAYOUT, f"zero is {layout.zero}. Expected 0, 1, 2 or 3.")
    if not 0 < layout.compression <= 1:
        raise FomkitError(
            LAYOUT, f"compression is {layout.compression:g}. Give the share of bytes sent, such as 0.25."
        )
    for name in ("bucket_byte", "gradient_byte"):
        if not getattr(layout, name) > 0:
            raise FomkitError(LAYOUT, f"{name} is {getattr(layout, name):g}. Give a size above 0.")
    if layout.attention_peak_fraction is not None and not 0 < layout.attention_peak_fraction <= 1:
        raise FomkitError(
            LAYOUT,
            f"attention_peak_fraction is {layout.attention_peak_fraction:g}. Give a share, such as 0.3.",
        )


def _refusals(layout: Layout) -> list[str]:
    server = layout.algorithm == "parameter_server"
    return [
        why
        for refused, why in (
            (layout.expert > 1 and server, "a parameter server with expert parallelism is not modelled: workers "
                                           "differ in parameters. Choose another algorithm"),
            (layout.interleave > 1 and layout.pipeline == 1, "interleave splits pipeline stages, but there is "
                                                             "one stage. Give pipeline 2 or more"),
            (layout.sequence and layout.tensor == 1, "sequence parallelism shares the tensor group, which is 1. "
                                                     "Give tensor 2 or more"),
            (layout.tensor_overlap and not layout.sequence, "tensor_overlap hides gathers and scatters along the "
                                                            "sequence. Add sequence"),
            (server and layout.zero > 0, "a parameter server and zero both distribute the update. Choose one"),
            (server and layout.model_devices > 1, "a parameter server with tensor or pipeline parallelism is not "
                                                  "modelled. Choose another algorithm"),
            (layout.optimizer == "server" and not server, "an update on the server needs the algorithm "
                                                          "parameter_server"),
            (layout.zero > 1 and layout.pipeline > 1, "zero 2 and 3 with a pipeline are not modelled: they "
                                                      "communicate for every microbatch. Choose zero 0 or 1"),
            (layout.zero < 2 and layout.scatter == "last", "scatter requires zero 2 or 3. Leave it out"),
            (layout.zero < 3 and layout.prefetch == "pre", "prefetch requires zero 3. Leave it out"),
            (layout.zero > 0 and layout.staleness > 0, "stale gradients with zero are not modelled. Choose one"),
            (layout.clip and layout.staleness > 0, "clipping needs the norm of all gradients, which stale "
                                                   "gradients lack. Choose one"),
            (layout.servers > 1 and not server, "servers require the algorithm parameter_server. Add it"),
        )
        if refused
    ]  # fmt: skip


def check_layout(layout: Layout) -> Layout:
    """Return the layout, or raise for a combination that is not allowed.

    >>> check_layout(Layout(tensor=8, sequence=True)).model_devices
    8
    """
    _check_values(layout)
    for why in _refusals(layout):
        raise FomkitError(LAYOUT, f"{why}.")
    return layout


def describe_layout(layout: Layout) -> str:
    """Describe how a layout differs from plain copies.

    >>> describe_layout(Layout(tensor=8, sequence=True))
    'tensor 8, sequence'
    """
    plain = vars(Layout())
    changed = {name: value for name, value in vars(layout).items() if value != plain[name]}
    parts = [name if value is True else f"no {name}" if value is False else f"{name} {value}"
             for name, value in changed.items()]  # fmt: skip
    return ", ".join(parts) or "copies of the model"


def microbatches_of(samples: int, replicas: int, microbatch: int | None) -> tuple[int, int]:
    """Return the samples of a microbatch and the microbatches of a step.

    >>> microbatches_of(64, 2, 4)
    (4, 8)
    """
    share, rest = divmod(samples, replicas)
    if not share:
        raise FomkitError(
            "batch",
            f"a batch of {samples:,} has fewer samples than the {replicas:,} replicas. "
            f"Give a batch of at least {replicas:,}, or fewer nodes.",
        )
    micro = microbatch or share
    if rest or share % micro:
        raise FomkitError(
            LAYOUT if microbatch else "batch",
            f"a batch of {samples} does not divide into {replicas} replicas"
            + (f" of microbatches of {micro}" if microbatch else "")
            + ". Change the batch, the microbatch or the number of devices.",
        )
    return micro, share // micro


def check_schedule(stages: int, microbatches: int, chunks: int, blocks: int) -> None:
    """Raise where the schedule of a pipeline is not possible."""
    if blocks % (stages * chunks):
        raise FomkitError(
            LAYOUT,
            f"{blocks} blocks do not divide into pipeline {stages} × interleave {chunks} = {stages * chunks} "
            "chunks. Choose divisors.",
        )
    if chunks > 1 and microbatches % stages:
        raise FomkitError(
            LAYOUT,
            f"an interleaved pipeline needs microbatches in multiples of its {stages} stages, but there are "
            f"{microbatches}. Change batch, microbatch or interleave.",
        )


def check_split(shape: Transformer, tensor: int, *, sequence: bool) -> None:
    """Raise where a transformer does not divide among the devices of a tensor group."""
    pieces = {"heads": shape.heads, **({"kv_heads": shape.kv_heads} if shape.kv_heads != shape.heads else {}),
              "hidden": shape.hidden, "feed_forward": shape.feed_forward,
              **({"seq": shape.seq} if sequence else {})}  # fmt: skip
    for name, size in pieces.items():
        if size % tensor:
            raise FomkitError(
                LAYOUT, f"{name} {size:,} is not divisible by tensor {tensor}. Choose a divisor of {size:,}."
            )


def check_experts(name: str, shape: Transformer, expert: int) -> None:
    """Raise where replicas cannot share the experts of a transformer."""
    if expert > 1 and not shape.experts:
        raise FomkitError(name, f"has no experts, which expert {expert} would share. Leave 'expert' at 1.")
    if shape.experts % expert:
        raise FomkitError(LAYOUT, f"experts {shape.experts} do not divide by expert {expert}. Choose a divisor.")
