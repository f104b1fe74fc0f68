"""A step without gradients on many devices: copies of a model, or of a tensor group that shares its layers.

Copies exchange nothing. In a tensor group (Shoeybi et al., arXiv 1909.08053, section 3) each device has some
heads, a part of each feed-forward layer or expert, and of the words; all have norms and routers. What attention
and the feed-forward layer return is summed over the group, the words' scores are gathered. Devices may also share
whole experts and send each other tokens (DeepSeek-AI, arXiv 2412.19437, section 3.4): copies of all other layers,
or tensor groups whose devices have a part of the tokens each. Collectives are rows of the op table of one device,
priced like every other op.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import LAYOUT, Layout
from fomkit.core.machine import Machine
from fomkit.core.model import BATCH, CACHE, ModelProfile
from fomkit.core.transformer import Architecture, Stack, Transformer
from fomkit.core.units import ITEM_BYTE
from fomkit.ops.resize import resize_ops
from fomkit.ops.tables import table_of_rows
from fomkit.parallel.kernels import Cell, Many, Mode, Row, Sharing
from fomkit.parallel.step import Notes, ParallelStep, check_experts, microbatches_of
from fomkit.parallel.transformer import block_of, one_of_group, step_rows
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.memory import Held
from fomkit.plan.memory_of import held_of_step
from fomkit.plan.options import Options
from fomkit.plan.replica_step import OneDevice, on_one_device
from fomkit.prediction.exchange import Network
from fomkit.prediction.links import bus_factor


def _output(row: Row, item_byte: int) -> Cell:
    """Return the bytes that an op writes, as a cell."""
    if row["kind"] == "attention":
        width = row["shared_dim"] or row["head_dim"]
        wide, tokens = row["heads"] * width, BATCH if row["q_len"] == 1 else f"{BATCH}*{row['q_len']}"
    elif isinstance(row.get("b"), str):  # scores written out, of all heads and samples
        return f"{item_byte}*{row['b']}*({row['m']})*({row['n']})"
    elif row.get("collective") == "all_to_all":
        received: Cell = row["message_byte"]
        return received
    elif row["kind"] in ("gemm", "experts"):
        wide, tokens = row["b"] * row["n"] if row["kind"] == "gemm" else row["k"], row["m"]
    else:
        written: Cell = row.get("write_byte", 0)
        return written
    return Many(wide * item_byte, str(tokens)).cell


def order_rows(
    shape: Architecture, mode: Mode, rows: list[Row], sizes: Mapping[str, int], saved: float = 0.0
) -> list[dict[str, Any]]:
    """Return the memory of a step without gradients: weights, cache, and each op's output for the next op.

    `saved`: bytes by which the weights are smaller than in the step's format. Equal blocks run once here: each
    frees its temporaries, so that more of them take no more memory at once.
    """
    item = int(ITEM_BYTE[shape.dtype])
    found: list[dict[str, Any]] = [{"id": 0, "role": "parameter", "output_byte": item * shape.parameters - saved}]
    if mode != "train" and shape.decoder is not None:
        kept = {"id": 0, "role": "buffer", "module": "cache"}
        long = f"({CACHE} + 1)" if mode == "decode" else shape.decoder.length
        for many, block in shape.decoder.blocks:
            each, window = item * many * block.attention.cached, block.attention.window
            seen = window if window and window <= sizes.get(CACHE, sizes.get("seq", 0)) else long
            found.append({**kept, "output_byte": f"{each}*{BATCH}*{seen}"})
        if shape.encoder is not None:
            each = sum(many * block.cross.cached for many, block in shape.decoder.blocks if block.cross)
            found.append({**kept, "output_byte": f"{item * each}*{BATCH}*{shape.encoder.length}"})
    for place, row in enumerate(rows):
        made = {"id": place + 1, "row": place, "role": "temporary", "freed_by": place + 2}
        found.append({**made, "output_byte": _output(row, item)})
    return found


def architecture_of(sizes: Transformer, dtype: str, expert: int = 1) -> Architecture:
    """Return the architecture, with weights of one format, on one of ``expert`` devices that share experts."""
    blocks = tuple((many, block_of(block, expert)) for many, block in sizes.architecture.blocks)
    return replace(sizes.architecture, dtype=dtype, decoder=Stack(blocks, "seq"))


_FORMATS = ("dtype", "engine", "weight_share")
"""Columns that differ between equal ops whose weights are stored in other formats."""


def _places(model: ModelProfile, rows: list[Row]) -> list[int]:
    """Return each row's place among a profile's ops; raise FomkitError if more than number formats differ."""
    tables = [resize_ops(table, model.sizes, model.name) for table in (model.ops, table_of_rows(rows, "OPS"))]
    names = sorted({*tables[0], *tables[1]}.difference(_FORMATS))
    texts = [
        table.reindex(columns=names).astype(object).fillna("").astype(str).to_numpy().tolist() for table in tables
    ]
    sorted_ops, sorted_rows = (sorted((text, place) for place, text in enumerate(each)) for each in texts)
    if [text for text, _ in sorted_ops] != [text for text, _ in sorted_rows]:
        raise FomkitError(model.name, NOT_ITS_OPS)
    found = {place: of for (_, of), (_, place) in zip(sorted_ops, sorted_rows, strict=True)}
    return [found[place] for place in range(len(rows))]


def _shared(model: ModelProfile, layout: Layout, network: Network) -> ModelProfile:
    """Return the profile of one device of those that share a model, from a profile of the whole.

    Rows keep the number formats, and shares of weights, of the same rows of the whole.
    """
    tensor, expert = layout.tensor, layout.expert
    if tensor == expert == 1:
        return model
    if model.transformer is None:
        raise FomkitError(model.name, NOT_SPLIT)
    mode: Mode = "decode" if CACHE in model.sizes else "infer"
    dtype = str(model.ops["dtype"].iloc[0])
    whole = architecture_of(model.transformer, dtype)
    check_experts(model.name, model.transformer, expert)
    part = architecture_of(one_of_group(model.transformer, tensor, whole_experts=expert > 1), dtype, expert)
    group, apart = (
        Sharing(ranks, "node" if ranks <= network.node_devices else "system") for ranks in (tensor, expert)
    )
    rows = step_rows(part, mode, model.sizes, group=group, apart=apart)
    of_whole = step_rows(whole, mode, model.sizes)
    names, places = {row["op"] for row in of_whole}, _places(model, of_whole)
    own = [row for row in rows if row["op"] in names]
    kept = model.ops[[name for name in _FORMATS if name in model.ops]].iloc[places]
    for row, cells in zip(own, kept.to_dict("records"), strict=True):
        row |= {str(name): cell for name, cell in cells.items()}
    # Weights that are stored in fewer bytes are so on each device.
    byte = ITEM_BYTE[dtype] * part.parameters
    order = table_of_rows(order_rows(part, mode, rows, model.sizes), "ORDER")
    if model.order is not None and byte:
        stored = float(model.order.loc[model.order["role"].eq("parameter"), "output_byte"].iloc[0])
        order.loc[order["role"].eq("parameter"), "output_byte"] = (
            byte * stored / (ITEM_BYTE[dtype] * whole.parameters)
        )
    return replace(
        model, ops=table_of_rows(rows, "OPS"), order=order, parameters_total=part.parameters, transformer=None
    )


NOT_SPLIT = (
    "cannot be split by tensor or expert: only profiles of decoders from a config.json can, with blocks as in "
    "Llama, GPT-2, Gemma or DeepSeek and without --fusion, made with this version of fomkit (docs/parallel.md). "
    "Use replicas only."
)
NOT_ITS_OPS = (
    "cannot be split by tensor or expert: its ops are not those of the sizes in its block 'transformer'. Make the "
    "profile again from its config.json, or use replicas only."
)
_ALLOWED = ("data", "tensor", "expert", "whole_experts")
TOGETHER = (
    "expert with tensor is modelled for whole experts alone: each device of a tensor group sends its part of the "
    "tokens. Add sequence and whole_experts, or leave out tensor."
)
EVEN = "tokens are assumed to spread evenly over experts; each is sent once for each expert that it chose"


class InferenceStep:
    """A step without gradients, at any number of devices and samples."""

    def __init__(self, model: ModelProfile, machine: Machine, layout: Layout, network: Network,
                 options: Options) -> None:  # fmt: skip
        plain = Layout()
        allowed = (*_ALLOWED, "sequence") if layout.whole_experts else _ALLOWED
        if layout.tensor > 1 and layout.expert > 1 and not layout.whole_experts:
            raise FomkitError(LAYOUT, TOGETHER)
        for name in (one.name for one in fields(Layout)):
            if name not in allowed and getattr(layout, name) != getattr(plain, name):
                raise FomkitError(
                    model.name,
                    f"is a step without gradients, for which {name} is not modelled. Use data, tensor and expert.",
                )
        self.whole, self.layout, self.options = on_one_device(model), layout, options
        self.machine, self.network, self._estimates = machine, network, dict[int, Estimate]()

    @cached_property
    def model(self) -> ModelProfile:
        """The profile of one device."""
        return _shared(self.whole, self.layout, self.network)

    def on(self, machine: Machine) -> InferenceStep:
        """Return the step on a machine that differs in links only; its ops include collectives."""
        network = replace(self.network, machine=machine)
        return InferenceStep(self.whole, machine, self.layout, network, self.options)

    def estimate(self, samples: int) -> Estimate:
        """Return the estimate of a copy's samples on one device."""
        if samples not in self._estimates:
            for ranks in (self.layout.tensor, self.layout.expert):
                self.network.exchange("all_reduce", 1.0, self.network.group(ranks))  # raises without links
            self._estimates[samples] = estimate(self.model, self.machine, replace(self.options, batch=samples))
        return self._estimates[samples]

    def _samples(self, devices: int, samples: int) -> int:
        return microbatches_of(samples, self.layout.replicas(devices), None)[0]

    def one_device(self, devices: int, samples: int) -> OneDevice:
        """Return what a device executes."""
        one = self.estimate(self._samples(devices, samples))
        return OneDevice(one.ops, one.formats, one.fitted, one.fit)

    def held(self, devices: int, samples: int) -> Held | None:
        """Return a device's memory by role; None where it is unknown."""
        options = replace(self.options, batch=self._samples(devices, samples))
        return held_of_step(self.model, self.machine, options, {})

    def at(self, devices: int, samples: int) -> ParallelStep:
        """Return a step of `samples` samples on `devices` devices."""
        layout, samples_of_one = self.layout, self._samples(devices, samples)
        self.network.check_inside(layout.tensor)
        one, held = self.estimate(samples_of_one), self.held(devices, samples)
        ops = one.ops
        sums = ops["kind"].eq("collective").to_numpy()
        # Sums leave out ops without a time: their step is a lower bound.
        spent = ops[["time_s", "low_s", "high_s"]].mul(ops["count"], axis=0)
        value, low, high = spent[sums].sum() * (one.step.value / float(spent["time_s"].sum()))
        # Timings without repeats have no width of their own: it is at least the step's.
        exchanged = one.step.scaled(value / one.step.value)
        exchanged = replace(exchanged, low=min(low, exchanged.low), high=max(high, exchanged.high))
        sent = dict[str, float]()
        for row in ops[sums].to_dict("records"):
            to = "experts" if row["collective"] == "all_to_all" else "tensor"
            byte = bus_factor(row["collective"], row["ranks"]) * row["message_byte"] * row["count"]
            sent[to] = sent.get(to, 0.0) + byte
        zero = Span.exact(0.0, self.network.level)
        return ParallelStep(
            layout=layout, devices=devices, replicas=layout.replicas(devices), samples=samples, microbatches=1,
            compute_s=one.step.scaled(1 - value / one.step.value), busy_s=exchanged,
            exposed_s=exchanged, bubble_s=zero, replicas_s=zero, wall_s=one.step,
            sent_byte=sent,
            memory_byte=None if held is None else sum(held.values()), coverage=one.coverage, excludes=one.excludes,
            notes=Notes(lambda: (*one.deviations, *[EVEN] * (layout.expert > 1))), precision=one.precision,
        )  # fmt: skip
