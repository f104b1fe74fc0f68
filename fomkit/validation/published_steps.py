"""Whole training steps that others measured, beside projected ones: each is asked for as a user would ask.

Steps on many devices, their models and what the rows of a set have in common are tables in ``validation/steps``. A
constant was read off two of the sets (the rate of MPT's attention, the host of vTrain's machine): these are scored
with the constant as it is stated or shipped, and with it chosen on other rows alone. Megatron-LM's own table has
activations, too.

Steps of image networks are on a board known by its facts alone. Their ops are those of our own sources of the
same networks (``benchmarks/vision_steps.py``), under autocast as the steps were measured. They are priced as any
table of ops and added up as any step; nothing is fitted to a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.interval import DEFAULT_LEVEL, Span, add_common
from fomkit.core.job import Layout
from fomkit.core.machine import Fact, Machine
from fomkit.core.model import ModelProfile, Transformer
from fomkit.core.units import BINARY
from fomkit.files.csv import read_rows
from fomkit.ops.tables import column_names
from fomkit.parallel.step import activation_byte
from fomkit.plan.content import Ends
from fomkit.plan.op_tables import predict_ops
from fomkit.plan.options import Options
from fomkit.plan.scaling import stepper_of, with_links
from fomkit.plan.step import HOST_OP_S, roll_up_step
from fomkit.plan.transformer_step import TransformerStep
from fomkit.profiles.declared import load_layout, parse_layout, parse_link, transformer_profile
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.tables.foreign import read_columns
from fomkit.validation.graphs import without_timings
from fomkit.validation.scores import Cases, Score, cases_of_spans, make_cases, score

Vector = NDArray[np.float64]

MPT, VTRAIN = "MPT under FSDP", "vTrain's small layers"
SETS = (MPT, VTRAIN, "Megatron-LM on JUWELS Booster", "Megatron-Bridge on H100")
CHOSEN = (
    f"{MPT}: the rate of attention is stated, 30 % of the peak, which these rows showed; with model sizes left "
    "out the rows of the other sizes choose it, from 20 to 50 % in steps of half a percent. "
    f"{VTRAIN}: the host of 51 us an op is the shipped default, which these rows showed; hidden 2,048 is also "
    "scored with the host that one row of each setting of hidden 1,024 chooses, from 40 to 66 us in steps of 2."
)
_SIZES = ("hidden", "heads", "blocks", "vocabulary", "feed_forward", "kv_heads", "head_dim", "experts", "top_k")
_NUMBERS = ("blocks", "seq", "devices", "batch", "step_s")
FRACTIONS = np.arange(0.2, 0.5, 0.005)
"""Shares of the peak among which that of attention is chosen on other rows."""
OTHER = 0.4
"""Share at which each step is asked for besides, to tell what its attention takes."""
HOST_S = tuple(np.arange(40e-6, 68e-6, 2e-6).tolist())
"""Host times of an op among which one is chosen on other rows [s]."""


class PublishedStep(NamedTuple):
    """One row: a step of a model on so many devices, how it was laid out, and what it took [s]."""

    of: str
    model: ModelProfile
    machine: Machine
    layout: Layout
    options: Options
    devices: int
    batch: int
    step_s: float

    @property
    def setting(self) -> tuple[object, ...]:
        """What a layer's time depends on, whatever the stages and replicas."""
        return self.model.name, self.layout.tensor, self.layout.microbatch

    @property
    def stepper(self) -> TransformerStep:
        """What gives the step; steps of one model and sequence share what was timed."""
        return cast("TransformerStep", stepper_of(self.model, self.machine, self.layout, self.options))

    def projected(self, host_s: float | None = None) -> Span:
        """Give the step [s] as `fomkit scaling` does, with the machine's host or another of the same spread."""
        stepper = self.stepper
        if host_s is not None:
            low, high = (end * host_s / HOST_OP_S.value for end in (HOST_OP_S.low, HOST_OP_S.high))
            host = Fact(host_s, low, high, "assumed", "chosen on other rows")
            stepper = stepper.on(replace(self.machine, host_op_s=host))
        return stepper.at(self.devices, self.batch).wall_s

    def with_attention(self, fraction: float) -> PublishedStep:
        """Give the row with another rate of its fused attention."""
        return self._replace(layout=replace(self.layout, attention_peak_fraction=fraction))


def _sizes_of_models(path: Path) -> dict[str, Transformer]:
    """Read the sizes of models, by name; of a sequence of one token, which rows replace."""
    found = {}
    for row in read_columns(path, ("model", "style", "attention", "tied"), _SIZES).to_dict("records"):
        sizes: dict[str, Any] = {name: int(row[name]) for name in _SIZES if not np.isnan(row[name])}
        kept = {"style": row["style"], "attention": row["attention"], "tied": row["tied"] == "1"}
        found[row["model"]] = Transformer(**sizes, **kept, seq=1)
    return found


def published_steps(level: float = DEFAULT_LEVEL) -> Iterator[PublishedStep]:
    """Read the rows of all sets; `level`: of the intervals."""
    folder = shipped_folder("validation") / "steps"
    shapes = _sizes_of_models(folder / "models.csv")
    sets = read_columns(folder / "sets.csv", ("set", "machine", "link", "layout"), ("node_devices",))
    common = {row["set"]: row for row in sets.to_dict("records")}

    @cache
    def machine_of(of: str) -> Machine:
        row = common[of]
        return with_links(load_machine(row["machine"]), [parse_link(row["link"])], int(row["node_devices"]))

    @cache
    def model_of(name: str, blocks: float) -> ModelProfile:
        shape = shapes[name]
        return transformer_profile(shape if np.isnan(blocks) else replace(shape, blocks=int(blocks)), name)

    texts = ("set", "model", "precision", "layout")
    for row in read_columns(folder / "steps.csv.gz", texts, _NUMBERS).to_dict("records"):
        model = model_of(row["model"], row["blocks"])
        model = replace(model, transformer=replace(cast("Transformer", model.transformer), seq=int(row["seq"])))
        layout = parse_layout([common[row["set"]]["layout"], row["layout"]])
        options = Options(precision=row["precision"], interval=level)
        counts = int(row["devices"]), int(row["batch"])
        yield PublishedStep(row["set"], model, machine_of(row["set"]), layout, options, *counts, row["step_s"])


def _cases_of_rows(rows: Sequence[PublishedStep], spans: Sequence[Span]) -> Cases:
    return cases_of_spans([row.step_s for row in rows], spans)


def _least_off(choices: Sequence[float], predicted: Vector, measured: Vector) -> float:
    """Choose the constant (choices,) whose times (choices, rows) are the least mean log ratio off."""
    return choices[int(np.abs(np.log(predicted / measured)).mean(axis=1).argmin())]


def sizes_left_out(rows: Sequence[PublishedStep], spans: Sequence[Span], others: Sequence[Span]) -> Cases:
    """Score each model's rows with the rate of attention that the rows of the other models choose.

    A step is taken as linear in the time of its attention; its interval keeps its factors. `others`: the rows'
    steps with attention at `OTHER`.
    """
    stated = np.array([row.layout.attention_peak_fraction for row in rows], np.float64)
    ends = np.array([span.ends for span in spans])
    slope = (ends[:, 0] - np.array([span.value for span in others])) / (1 / stated - 1 / OTHER)
    times = ends[:, 0] + slope * (1 / FRACTIONS[:, None] - 1 / stated)
    names, measured = np.array([row.model.name for row in rows]), np.array([row.step_s for row in rows])
    value = ends[:, 0].copy()
    for name in np.unique(names):
        out = names == name
        fraction = _least_off(FRACTIONS.tolist(), times[:, ~out], measured[~out])
        value[out] = ends[out, 0] + slope[out] * (1 / fraction - 1 / stated[out])
    low, high = (value * ends[:, end] / ends[:, 0] for end in (1, 2))
    return make_cases(measured, value, low, high, fold=np.unique(names, return_inverse=True)[1])


def by_setting(rows: Sequence[PublishedStep], spans: Sequence[Span]) -> Cases:
    """Give each setting as one case: the sum of its rows, which were composed of the same few measurements."""
    known: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        known.setdefault(row.setting, []).append(place)
    sums = [add_common([spans[place] for place in places]) for places in known.values()]
    return cases_of_spans([sum(rows[place].step_s for place in places) for places in known.values()], sums)


def host_by_others(rows: Sequence[PublishedStep], out: Sequence[PublishedStep]) -> Cases:
    """Score some rows with the host that one row of each setting of the others chooses: that of median time."""
    of: dict[tuple[object, ...], list[PublishedStep]] = {}
    for row in rows:
        of.setdefault(row.setting, []).append(row)
    chosen = [sorted(own, key=lambda row: row.step_s)[len(own) // 2] for own in of.values()]
    times = np.array([[row.projected(host_s).value for row in chosen] for host_s in HOST_S])
    host_s = _least_off(HOST_S, times, np.array([row.step_s for row in chosen]))
    return _cases_of_rows(out, [row.projected(host_s) for row in out])


def step_scores(level: float = DEFAULT_LEVEL) -> Iterator[Score]:
    """Score every set, and the two of a chosen constant with the constant chosen on other rows."""
    of: dict[str, list[PublishedStep]] = {}
    for row in published_steps(level=level):
        of.setdefault(row.of, []).append(row)
    for name, rows in of.items():
        machine = rows[0].machine.name
        # Both steps of a row one after the other: they share what was timed, and of plans the last few are kept.
        asked = [[row, row.with_attention(OTHER)] if name == MPT else [row] for row in rows]
        spans, *others = zip(*([one.projected() for one in both] for both in asked), strict=True)
        found = {"steps": _cases_of_rows(rows, spans)}
        if name == MPT:
            found["steps, model sizes left out"] = sizes_left_out(rows, spans, *others)
        if name == VTRAIN:
            found["settings"] = by_setting(rows, spans)
            wide = [row for row in rows if row.model.name.endswith("2048")]
            narrow = [row for row in rows if not row.model.name.endswith("2048")]
            found["hidden 2,048, host by 1,024"] = host_by_others(narrow, wide)
        for what, cases in found.items():
            yield score(cases, name, "model", machine, what, interval=level)


TARGET = "a100-sxm"
TECHNIQUES: dict[str, dict[str, Any]] = {
    "none": {},
    "sequence": {"sequence": True},
    "selective": {"recompute": "selective"},
    "seqsel": {"sequence": True, "recompute": "selective"},
    "full": {"recompute": "full"},
}
MEGATRON = "Megatron-LM as published"
_TABLE_LAYOUT = {"tensor", "pipeline", "interleave", "microbatch"}


class Compared(NamedTuple):
    """One published figure beside the projected one.

    ``unit`` is s of a step, of activations byte, or share of those without a technique.
    """

    model: str
    technique: str
    published: float
    projected: Span
    unit: str
    source: str

    @property
    def error(self) -> float:
        """Projected over published, less 1."""
        return self.projected.value / self.published - 1


Published = TypedDict("Published", {
    "model": str, "technique": str, "published": float, "projected": Ends, "unit": str, "source": str,
    "error": float,
})  # fmt: skip


def read_texts(path: Path) -> list[dict[str, str]]:
    """Read the rows of a table as they stand, by the heads of their columns."""
    rows = read_rows(path)
    _, header = next(rows)
    return [dict(zip(header, row, strict=True)) for _, row in rows]


def _table_layout(base: Layout, line: dict[str, str]) -> Layout:
    sizes: dict[str, Any] = {name: int(value) for name, value in line.items() if name in _TABLE_LAYOUT}
    return replace(base, **sizes, **TECHNIQUES[line["technique"]])


def megatron_steps(folder: Path, machine: Machine | None = None, level: float = DEFAULT_LEVEL) -> list[Compared]:
    """Project the published steps.

    `folder`: with ``steps.csv`` and ``hdr.layout.yaml``; `machine`: default: the shipped a100-sxm; `level`: of the
    intervals.
    """
    base, links = load_layout(folder / "hdr.layout.yaml")
    target = with_links(machine or load_machine(TARGET), links)
    found, options = [], Options(interval=level)
    for line in read_texts(folder / "steps.csv"):
        stepper = stepper_of(load_model(line["model"]), target, _table_layout(base, line), options)
        step = stepper.at(int(line["devices"]), int(line["batch"]))
        published = float(line["published_step_s"])
        found.append(Compared(line["model"], line["technique"], published, step.wall_s, "s", line["source"]))
    return found


def _activations(model: ModelProfile, sizes: dict[str, str], technique: str) -> float:
    if model.transformer is None:
        return float("nan")
    layout = _table_layout(Layout(), {**sizes, "technique": technique})
    micro = int(sizes["microbatch"])
    return activation_byte(model.transformer, micro, layout, int(sizes["batch"]) // micro)


def megatron_activations(folder: Path) -> list[Compared]:
    """Give the published activations of the first stage beside those of the equations.

    `folder`: with ``steps.csv`` and ``activations.csv``.
    """
    sizes = {line["model"]: line for line in read_texts(folder / "steps.csv")}
    found = []
    for line in read_texts(folder / "activations.csv"):
        model, of = load_model(line["model"]), sizes[line["model"]]
        byte = _activations(model, of, line["technique"])
        whole = _activations(model, of, "none")
        in_shares = line["unit"] == "%"
        value, unit, scale = (byte / whole, "share", 0.01) if in_shares else (byte, "byte", BINARY["Gi"])
        published = float(line["published"]) * scale
        found.append(
            Compared(line["model"], line["technique"], published, Span.exact(value), unit, line["source"])
        )
    return found


def megatron_figures(level: float = DEFAULT_LEVEL) -> list[Compared]:
    """Give all of what is published in the tables that come with fomkit, steps first."""
    folder = shipped_folder("validation") / "megatron"
    return [*megatron_steps(folder, level=level), *megatron_activations(folder)]


def megatron_scores(figures: list[Compared], level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score them for the aims: the steps, the worst of these, and the activations, which have no interval."""
    steps = [figure for figure in figures if figure.unit == "s"]
    worst = max(steps, key=lambda step: abs(step.error))
    others = [figure for figure in figures if figure.unit != "s"]
    named = (("steps", steps), ("worst step", [worst]), ("activations", others))
    cases = {what: cases_of_spans([one.published for one in some], [one.projected for one in some])
             for what, some in named}  # fmt: skip
    return [score(own, MEGATRON, "model", TARGET, what, interval=level) for what, own in cases.items()]


VISION = "vision steps by facts"
LATER, EARLIER = "networks that chose no rule", "networks seen when rules were chosen"
VISION_NOTE = (
    f"{VISION}: networks of our own sources with as many parameters as the measured ones, at their batch and size "
    "of image; no step is fitted, and networks by which no rule was chosen are scored apart."
)
FEWEST_ALIKE = 4
"""Networks of a family, and steps of which one part takes most, from which they have a line of their own."""
SHARE = 0.5
"""Share of a step's predicted time from which it counts as one part's."""


class ImageStep(NamedTuple):
    """A measured step [s], what was predicted, and the share of each part in the prediction."""

    model: str
    family: str
    seen: bool
    measured_s: float
    predicted: Span
    shares: Mapping[str, float]

    @property
    def part(self) -> str:
        """The part that takes most of the step; "" where none takes `SHARE`."""
        most = max(self.shares, key=lambda name: self.shares[name])
        return f"mostly {most}" if self.shares[most] >= SHARE else "no part above half"


def parts_of(ops: pd.DataFrame) -> pd.Series[str]:
    """Name the part of a step that each op belongs to."""
    names = {"gemm": "products", "norm": "norms", "conv": "convolutions"}
    return ops["kind"].map(names).fillna("traffic").mask(ops["groups"] > 1, "grouped convolutions")


def predicted_steps(level: float = DEFAULT_LEVEL) -> Iterator[tuple[str, ImageStep]]:
    """Predict every step, machine by machine; give the machine with it."""
    steps = read_columns(shipped_folder("validation") / "vision" / "steps.csv",
                         ("model", "family", "machine"), ("seen", "step_s"))  # fmt: skip
    numbers, texts = ({*column_names("OPS", kind)} for kind in ("number", "text"))
    path = shipped_folder("validation") / "vision" / "ops.csv.gz"
    ops = read_columns(path, {"model", *texts}, numbers, optional=numbers | texts).reset_index(drop=True)
    for machine, rows in steps.groupby("machine", sort=False):
        known = with_fits(without_timings(load_machine(str(machine))))
        own = ops[ops["model"].isin(rows["model"])]
        timed = predict_ops(own.drop(columns="model"), known, interval=level).ops
        of_model = dict(iter(timed.groupby(own["model"], sort=False)))
        for row in rows.to_dict("records"):
            its = of_model[row["model"]]
            spent = (its["time_s"] * its["count"]).groupby(parts_of(its)).sum()
            span = roll_up_step(its, known, level).wall_s
            shares = {str(name): float(share) for name, share in (spent / spent.sum()).items()}
            of, seen, measured_s = (row["model"], row["family"]), row["seen"] > 0, row["step_s"]
            yield str(machine), ImageStep(*of, seen, measured_s, span, shares)


def _alike(steps: list[ImageStep]) -> Iterator[tuple[str, list[ImageStep]]]:
    yield "all", steps
    yield LATER, [one for one in steps if not one.seen]
    yield EARLIER, [one for one in steps if one.seen]
    for attribute in ("part", "family"):
        for name in sorted({getattr(one, attribute) for one in steps}):
            some = [one for one in steps if getattr(one, attribute) == name]
            if len(some) >= FEWEST_ALIKE:
                yield name, some


def vision_scores(level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score the steps: all, those of networks that no rule was chosen by, by their largest part, and by family."""
    machines: dict[str, list[ImageStep]] = {}
    for machine, step in predicted_steps(level):
        machines.setdefault(machine, []).append(step)
    return [
        score(cases_of_spans([one.measured_s for one in some], [one.predicted for one in some]), VISION, "model",
              machine, what, interval=level)
        for machine, steps in machines.items() for what, some in _alike(steps) if some
    ]  # fmt: skip
