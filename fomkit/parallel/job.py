"""What a layout cannot combine and how it shares a batch out; what failures, checkpoints and one-off costs leave.

Memory of a transformer's training is that of the first stage, per device: Korthikanti et al., arXiv 2205.05198,
equations 1 to 6 (activations), section 4.2.3 (pipeline). Activations are those kept for the backward pass, 2 bytes
each, masks of dropouts 1 byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, sqrt
from typing import get_args

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.interval import Span
from fomkit.core.job import LAYOUT, Algorithm, Launch, Layout, OptimizerPlace, Prefetch, Recompute, Scatter
from fomkit.core.model import Transformer


def young_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Give the first-order best interval between checkpoints (Young, CACM 17(9), 1974) [s].

    >>> young_s(60.0, 12_000.0)
    1200.0
    """
    return sqrt(2 * checkpoint_s * mtbf_s)


def daly_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Give the higher-order best interval (Daly, FGCS 22(3), 2006, equation 37) [s].

    >>> round(daly_s(60.0, 12_000.0), 1)
    1160.3
    """
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = sqrt(checkpoint_s / (2 * mtbf_s))
    return young_s(checkpoint_s, mtbf_s) * (1 + ratio / 3 + ratio * ratio / 9) - checkpoint_s


def useful_share(checkpoint_s: float, restart_s: float, mtbf_s: float, interval_s: float) -> float:
    """Give the share of the time that is work and stays done (Daly 2006, equation 20).

    Failures come at random, at one rate; after each the work since the last checkpoint is done again.

    >>> round(useful_share(60.0, 60.0, 12_000.0, 1160.3), 4)
    0.8988
    """
    wall = mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + checkpoint_s) / mtbf_s)
    return interval_s / wall


def system_mtbf_s(device_mtbf_s: float, devices: int) -> float:
    """Give the mean time between failures of a job on so many devices, any of which ends it [s]."""
    return device_mtbf_s / devices


SMALL_SHARE = 0.01
"""Share of a job below which what is paid once hardly counts."""


def amortised_share(shares: Sequence[float], times_longer: float) -> float:
    """Give the share of one-off overheads once the job's own work is so many times as long.

    `shares`: shares of the time of the job as it is.

    >>> round(amortised_share([0.155, 0.181], 10), 3)
    0.048
    """
    once = sum(shares)
    return once / (once + (1 - once) * times_longer)


def times_for_share(shares: Sequence[float], share: float) -> float:
    """Give how many times as long the work must be for one-off overheads to be a given share.

    >>> round(times_for_share([0.155, 0.181], 0.048165), 2)
    10.0
    """
    once = sum(shares)
    return once * (1 - share) / (share * (1 - once))


def work_for_share(once_s: Span) -> Span:
    """Give the work [s] beside which a time that is paid once is `SMALL_SHARE` of the job.

    >>> round(work_for_share(Span.exact(40.0)).value, 9)
    3960.0
    """
    return once_s.scaled((1 - SMALL_SHARE) / SMALL_SHARE)


PARAMETER_BYTE = 2
GRADIENT_BYTE = 4
STATE_BYTE = 12
"""Of mixed precision with Adam: parameters in 2 bytes, sums of gradients in 4, fp32 copy and two moments."""

_SPLIT, _WIDE = 24, 16
"""Bytes of each element of a block's stream that tensor parallelism splits: queries to values 6, their context
2, wide activations before and after GELU 16."""
_WHOLE = 10
"""Bytes that it leaves whole: inputs of two norms 4, of two products 4, masks of two dropouts 2."""
_GATED_WHOLE = 8
"""Bytes that a block of Llama's style leaves whole: inputs of two norms 4, of two products 4."""
_PLACE = 4
"""Bytes of each element of an expert's places: its tokens, and what it gives."""
_SHARE = 4
"""Bytes of each token's share in each expert."""
_SCORES = 5
"""Bytes of each attention score: before and after its dropout 4, the mask 1."""


def _experts_byte(shape: Transformer, tensor: int) -> float:
    """Give what the experts keep in place of the feed-forward layer's wide activations, per element of the stream.

    This is not in the paper: it is the tensors that the backward ops of `fomkit.parallel.transformer` read. A
    tensor group splits the wide activations only.
    """
    places = shape.experts * shape.expert_slots / shape.seq
    wide = (6 if shape.gated else 4) * shape.feed_forward / shape.hidden
    return places * (_PLACE + wide / tensor) + _SHARE * shape.experts / shape.hidden


def block_activation_byte(shape: Transformer, samples: int, layout: Layout) -> float:
    """Give what one block keeps for its backward pass, per device [byte].

    Of the style of GPT by the equations of arXiv 2205.05198, which hold for a feed-forward width of four times the
    hidden size; of Llama's, and of experts, it is the tensors that the backward ops of
    `fomkit.parallel.transformer` read.

    Raises FomkitError for a GPT of another width.

    >>> gpt = Transformer(hidden=6144, heads=64, blocks=48, seq=2048, vocabulary=51200)
    >>> block_activation_byte(gpt, 4, Layout(tensor=8)) * 48 / 1_073_741_824
    59.25
    """
    if shape.feed_forward != 4 * shape.hidden and not (shape.experts or shape.gated):
        raise FomkitError("layout", f"activations are known for a feed-forward width of 4 × {shape.hidden} only.")
    stream = shape.seq * samples * shape.hidden
    if layout.recompute == "full":
        return 2.0 * stream / (layout.tensor if layout.sequence else 1)
    saves_scores = layout.recompute == "none" and shape.attention == "unfused"
    scores = _SCORES * shape.heads * shape.seq / shape.hidden if saves_scores else 0.0
    whole = (_GATED_WHOLE if shape.gated else _WHOLE) / (layout.tensor if layout.sequence else 1)
    attention, wide = float(_SPLIT - _WIDE), float(_WIDE)
    if shape.gated:  # queries, keys, values and context; gate and up, and what they make, 2 bytes each
        attention = 2 * (shape.attention_width + shape.heads * shape.head_dim) / shape.hidden
        wide = 6 * shape.feed_forward / shape.hidden
    if not shape.experts:
        return stream * (whole + (attention + wide + scores) / layout.tensor)
    split = (attention + scores) / layout.tensor
    return stream * (whole + split + _experts_byte(shape, layout.tensor))


def activation_byte(shape: Transformer, samples: int, layout: Layout, microbatches: int) -> float:
    """Give the activations that the first stage holds at most, per device [byte].

    It holds those of ``p`` microbatches in flight, each of ``blocks/p`` blocks, and with interleaving
    ``1 + (p - 1)/(p·v)`` times as many; fewer where the step has fewer microbatches.
    """
    stages, chunks = layout.pipeline, layout.interleave
    in_flight = shape.blocks * (1 + (stages - 1) / (stages * chunks) if chunks > 1 else 1.0)
    if microbatches < stages:
        in_flight = min(in_flight, shape.blocks / stages * microbatches)
    return block_activation_byte(shape, samples, layout) * in_flight


def state_byte(parameters: float, layout: Layout, replicas: int) -> float:
    """Give parameters, gradients and the optimizer's state per device, shared out as zero says [byte].

    Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter models", SC 2020, figure 1.

    >>> state_byte(7.5e9, Layout(zero=1), 64) / 1e9
    46.40625
    """
    shared = [1 if layout.zero < stage else replicas for stage in (3, 2, 1)]
    each = (PARAMETER_BYTE, GRADIENT_BYTE, STATE_BYTE)
    return parameters / layout.model_devices * sum(byte / by for byte, by in zip(each, shared, strict=True))


def _check_values(layout: Layout) -> None:
    for name, least in (("tensor", 1), ("pipeline", 1), ("interleave", 1), ("expert", 1), ("servers", 1),
                        ("microbatch", 1), ("zero", 0), ("staleness", 0)):  # fmt: skip
        value = getattr(layout, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise FomkitError(LAYOUT, f"{name} is {value!r}. Expected a whole number, {least} or more.")
    for name, words in (("algorithm", get_args(Algorithm)), ("recompute", get_args(Recompute)),
                        ("optimizer", get_args(OptimizerPlace)), ("prefetch", get_args(Prefetch)),
                        ("scatter", get_args(Scatter)), ("launch", get_args(Launch))):  # fmt: skip
        if getattr(layout, name) not in words:
            value = getattr(layout, name)
            raise FomkitError(LAYOUT, f"{name} {value!r} is not one. {nearest_names(str(value), words)}")
    if layout.zero > 3:
        raise FomkitError(LAYOUT, f"zero is {layout.zero}. Expected 0, 1, 2 or 3.")
    if not 0 < layout.compression <= 1:
        raise FomkitError(LAYOUT, f"compression is {layout.compression:g}. Give bytes sent over bytes, 0.25 say.")
    for name in ("bucket_byte", "gradient_byte"):
        if not getattr(layout, name) > 0:
            raise FomkitError(LAYOUT, f"{name} is {getattr(layout, name):g}. Give a size above 0.")
    if layout.attention_peak_fraction is not None and not 0 < layout.attention_peak_fraction <= 1:
        raise FomkitError(
            LAYOUT,
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
            (layout.tensor_overlap and not layout.sequence, "tensor_overlap hides gathers and scatters along the "
                                                            "sequence. Add sequence"),
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

    >>> check_layout(Layout(tensor=8, sequence=True)).model_devices
    8
    """
    _check_values(layout)
    for why in _refusals(layout):
        raise FomkitError(LAYOUT, f"{why}.")
    return layout


def describe_layout(layout: Layout) -> str:
    """Name what differs from plain copies.

    >>> describe_layout(Layout(tensor=8, sequence=True))
    'tensor 8, sequence'
    """
    plain = vars(Layout())
    changed = {name: value for name, value in vars(layout).items() if value != plain[name]}
    parts = [name if value is True else f"no {name}" if value is False else f"{name} {value}"
             for name, value in changed.items()]  # fmt: skip
    return ", ".join(parts) or "copies of the model"


def microbatches_of(samples: int, replicas: int, microbatch: int | None) -> tuple[int, int]:
    """Give the samples of a microbatch and the microbatches of a step.

    Raises FomkitError when the samples do not divide.

    >>> microbatches_of(64, 2, 4)
    (4, 8)
    """
    share, rest = divmod(samples, replicas)
    if not share:
        raise FomkitError(
            LAYOUT, f"a batch of {samples} has no sample for each of {replicas} replicas. Enlarge the batch."
        )
    micro = microbatch or share
    if rest or share % micro:
        raise FomkitError(
            LAYOUT,
            f"a batch of {samples} does not divide into {replicas} replicas"
            + (f" of microbatches of {micro}" if microbatch else "")
            + ". Change the batch, the microbatch or the number of devices.",
        )
    return micro, share // micro
