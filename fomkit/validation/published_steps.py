"""Compare whole training steps measured by others with projections made as a user would make them.

`step_scores` scores steps on many devices; the tables in ``validation/steps`` hold the steps, their models and the
settings that a set shares. Two of the sets each determined a constant (the rate of MPT's attention, the host time
of vTrain's machine): they are scored with the stated or shipped constant, and with the constant chosen on other
rows only. `megatron_figures` compares Megatron-LM's own table, which also has activations.

`vision_scores` scores steps of image networks on a board known only by its facts. Their ops come from fomkit's own
sources of the same networks (``benchmarks/vision_steps.py``), under autocast as the steps were measured. They are
priced like any op table and summed like any step; nothing is fitted to a step.
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
from fomkit.core.model import ModelProfile
from fomkit.core.transformer import Transformer
from fomkit.core.units import BINARY, by_key
from fomkit.files.csv import read_rows
from fomkit.ops.tables import column_names
from fomkit.plan.content import Ends
from fomkit.plan.memory import activation_byte
from fomkit.plan.op_tables import predict_ops
from fomkit.plan.options import HOST_OP_S, Options
from fomkit.plan.scaling import stepper_of, with_user_links
from fomkit.plan.step import roll_up_step
from fomkit.plan.transformer_step import TransformerStep
from fomkit.profiles.declared import load_layout, parse_layout, parse_link
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, transformer_profile
from fomkit.readers.tables.foreign import read_columns
from fomkit.validation.graphs import without_timings
from fomkit.validation.scores import Cases, Score, cases_of_spans, make_cases, score

Vector = NDArray[np.float64]

MPT, VTRAIN = "MPT under FSDP", "vTrain's small layers"
SETS = (MPT, VTRAIN, "Megatron-LM on JUWELS Booster", "Megatron-Bridge on H100")
CHOSEN = (
    f"{MPT}: the rate of attention is set to 30 % of the peak, chosen on these rows; with model sizes left out it "
    f"is chosen on the rows of the other sizes, from 20 to 50 % in steps of half a percent. {VTRAIN}: the host "
    "cost of 51 us an op is the shipped default, chosen on these rows; hidden 2,048 is also scored with the host "
    "cost chosen on one row of each setting of hidden 1,024, from 40 to 66 us in steps of 2."
)
_SIZES = (
    "hidden", "heads", "blocks", "vocabulary", "feed_forward", "kv_heads", "head_dim", "head_norm", "experts",
    "top_k", "qkv_bias", "window",
)  # fmt: skip
_NUMBERS = ("blocks", "seq", "devices", "batch", "step_s")
FRACTIONS = np.arange(0.2, 0.5, 0.005)
"""Candidates for attention's share of the peak, from which one is chosen on other rows."""
OTHER_FRACTION = 0.4
"""Second share at which each step is projected, to derive the time of its attention from the difference."""
HOST_S = tuple(np.arange(40e-6, 68e-6, 2e-6).tolist())
"""Candidates for the host time of an op [s], from which one is chosen on other rows."""


class PublishedStep(NamedTuple):
    """One row: the step of a model on a number of devices, its layout, and its measured time [s]."""

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
        """The settings that a layer's time depends on; stages and replicas do not matter."""
        return self.model.name, self.layout.tensor, self.layout.microbatch

    @property
    def stepper(self) -> TransformerStep:
        """The stepper that projects the step; steps of one model and sequence share predicted times."""
        return cast("TransformerStep", stepper_of(self.model, self.machine, self.layout, self.options))

    def projected(self, host_s: float | None = None) -> Span:
        """Project the step [s] as `fomkit scaling` does, with the machine's host time or one of equal spread."""
        stepper = self.stepper
        if host_s is not None:
            low, high = (end * host_s / HOST_OP_S.value for end in (HOST_OP_S.low, HOST_OP_S.high))
            host = Fact(host_s, low, high, "assumed", "chosen on other rows")
            stepper = stepper.on(replace(self.machine, host_op_s=host))
        return stepper.at(self.devices, self.batch).wall_s

    def with_attention(self, fraction: float) -> PublishedStep:
        """Return the row with another rate of its fused attention."""
        return self._replace(layout=replace(self.layout, attention_peak_fraction=fraction))


def _sizes_of_models(path: Path) -> dict[str, Transformer]:
    """Read the sizes of models, by name; the sequence of one token is a placeholder that each row replaces."""
    found = {}
    rows = read_columns(path, ("model", "style", "attention", "tied"), (*_SIZES, "window_share"))
    for row in rows.to_dict("records"):
        sizes: dict[str, Any] = {name: int(row[name]) for name in _SIZES if not np.isnan(row[name])}
        if sizes.get("window"):
            sizes["window_share"] = row["window_share"]
        kept = {"style": row["style"], "attention": row["attention"], "tied": row["tied"] == "1"}
        found[row["model"]] = Transformer(**sizes, **kept, seq=1)
    return found


def published_steps(level: float = DEFAULT_LEVEL) -> Iterator[PublishedStep]:
    """Read the rows of all sets; `level`: level of the intervals."""
    folder = shipped_folder("validation") / "steps"
    shapes = _sizes_of_models(folder / "models.csv")
    sets = read_columns(folder / "sets.csv", ("set", "machine", "link", "layout"), ("node_devices",))
    common = {row["set"]: row for row in sets.to_dict("records")}

    @cache
    def machine_of(of: str) -> Machine:
        row = common[of]
        return with_user_links(load_machine(row["machine"]), [parse_link(row["link"])], int(row["node_devices"]))

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


def _best_choice(choices: Sequence[float], predicted: Vector, measured: Vector) -> float:
    """Return the choice (choices,) whose times (choices, rows) have the least mean absolute log error."""
    return choices[int(np.abs(np.log(predicted / measured)).mean(axis=1).argmin())]


def sizes_left_out(rows: Sequence[PublishedStep], spans: Sequence[Span], others: Sequence[Span]) -> Cases:
    """Return each model's rows as cases, with the rate of attention chosen on the rows of the other models.

    A step is treated as linear in the time of its attention; its interval keeps its factors. `others`: the rows'
    steps with attention at `OTHER_FRACTION`.
    """
    stated = np.array([row.layout.attention_peak_fraction for row in rows], np.float64)
    ends = np.array([span.ends for span in spans])
    slope = (ends[:, 0] - np.array([span.value for span in others])) / (1 / stated - 1 / OTHER_FRACTION)
    times = ends[:, 0] + slope * (1 / FRACTIONS[:, None] - 1 / stated)
    names, measured = np.array([row.model.name for row in rows]), np.array([row.step_s for row in rows])
    value = ends[:, 0].copy()
    for name in np.unique(names):
        out = names == name
        fraction = _best_choice(FRACTIONS.tolist(), times[:, ~out], measured[~out])
        value[out] = ends[out, 0] + slope[out] * (1 / fraction - 1 / stated[out])
    low, high = (value * ends[:, end] / ends[:, 0] for end in (1, 2))
    return make_cases(measured, value, low, high, fold=np.unique(names, return_inverse=True)[1])


def by_setting(rows: Sequence[PublishedStep], spans: Sequence[Span]) -> Cases:
    """Return each setting as one case: the sum of its rows, which were composed of the same few measurements."""
    known = by_key((row.setting, place) for place, row in enumerate(rows))
    sums = [add_common([spans[place] for place in places]) for places in known.values()]
    return cases_of_spans([sum(rows[place].step_s for place in places) for places in known.values()], sums)


def host_by_others(rows: Sequence[PublishedStep], out: Sequence[PublishedStep]) -> Cases:
    """Return ``out`` as cases, with the host time that best fits the median row of each setting of ``rows``."""
    settings = by_key((row.setting, row) for row in rows).values()
    chosen = [sorted(own, key=lambda row: row.step_s)[len(own) // 2] for own in settings]
    times = np.array([[row.projected(host_s).value for row in chosen] for host_s in HOST_S])
    host_s = _best_choice(HOST_S, times, np.array([row.step_s for row in chosen]))
    return _cases_of_rows(out, [row.projected(host_s) for row in out])


def step_scores(level: float = DEFAULT_LEVEL) -> Iterator[Score]:
    """Score every set; the two sets with a chosen constant also with the constant chosen on other rows."""
    for name, rows in by_key((row.of, row) for row in published_steps(level=level)).items():
        machine = rows[0].machine.name
        # Both steps of a row in succession: they share predicted times, and only the last few plans are cached.
        pairs = [[row, row.with_attention(OTHER_FRACTION)] if name == MPT else [row] for row in rows]
        spans, *others = zip(*([one.projected() for one in both] for both in pairs), strict=True)
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
    """One published figure with the projected one.

    ``unit`` is s for a step; for activations byte, or share of the activations without a technique.
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
    """Read the rows of a table as text, by column name."""
    rows = read_rows(path)
    _, header = next(rows)
    return [dict(zip(header, row, strict=True)) for _, row in rows]


def _table_layout(base: Layout, line: dict[str, str]) -> Layout:
    sizes: dict[str, Any] = {name: int(value) for name, value in line.items() if name in _TABLE_LAYOUT}
    return replace(base, **sizes, **TECHNIQUES[line["technique"]])


def megatron_steps(folder: Path, machine: Machine | None = None, level: float = DEFAULT_LEVEL) -> list[Compared]:
    """Project the published steps of a folder (``steps.csv``, ``hdr.layout.yaml``), by default on a100-sxm."""
    base, links = load_layout(folder / "hdr.layout.yaml")
    target = with_user_links(machine or load_machine(TARGET), links)
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
    return max(activation_byte(model.transformer, micro, layout, int(sizes["batch"]) // micro, head=False))


def megatron_activations(folder: Path) -> list[Compared]:
    """Return the published activations of the first stage (``activations.csv``) with those of the equations."""
    sizes = {line["model"]: line for line in read_texts(folder / "steps.csv")}
    found = []
    for line in read_texts(folder / "activations.csv"):
        model, step = load_model(line["model"]), sizes[line["model"]]
        byte = _activations(model, step, line["technique"])
        whole = _activations(model, step, "none")
        in_shares = line["unit"] == "%"
        value, unit, scale = (byte / whole, "share", 0.01) if in_shares else (byte, "byte", BINARY["Gi"])
        published = float(line["published"]) * scale
        found.append(
            Compared(line["model"], line["technique"], published, Span.exact(value), unit, line["source"])
        )
    return found


def megatron_figures(level: float = DEFAULT_LEVEL) -> list[Compared]:
    """Return all published figures of the shipped tables, steps first."""
    folder = shipped_folder("validation") / "megatron"
    return [*megatron_steps(folder, level=level), *megatron_activations(folder)]


def megatron_scores(figures: list[Compared], level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score the figures: all steps, the worst step, and the activations, which have no interval."""
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
    f"{VISION}: networks from our own sources with as many parameters as the measured ones, at their batch and "
    "image size; no step is fitted. Networks on which no rule was chosen are scored separately."
)
FEWEST_ALIKE = 4
"""Fewest steps of a family, or with the same largest part, for a line of their own."""
MIN_PART_SHARE = 0.5
"""Share of a step's predicted time from which the step is assigned to its largest part."""


class ImageStep(NamedTuple):
    """A measured step [s], its prediction, and the share of each part in the prediction."""

    model: str
    family: str
    seen: bool
    measured_s: float
    predicted: Span
    shares: Mapping[str, float]

    @property
    def part(self) -> str:
        """The largest part of the step as "mostly PART"; "no part above half" if none reaches `MIN_PART_SHARE`."""
        most = max(self.shares, key=lambda name: self.shares[name])
        return f"mostly {most}" if self.shares[most] >= MIN_PART_SHARE else "no part above half"


def parts_of(ops: pd.DataFrame) -> pd.Series[str]:
    """Return the name of the part of a step that each op belongs to."""
    names = {"gemm": "products", "norm": "norms", "conv": "convolutions"}
    return ops["kind"].map(names).fillna("traffic").mask(ops["groups"] > 1, "grouped convolutions")


def predicted_steps(level: float = DEFAULT_LEVEL) -> Iterator[tuple[str, ImageStep]]:
    """Predict every step, machine by machine; yield the machine's name with each step."""
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
            model_ops = of_model[row["model"]]
            spent = (model_ops["time_s"] * model_ops["count"]).groupby(parts_of(model_ops)).sum()
            span = roll_up_step(model_ops, known, level).wall_s
            shares = {str(name): float(share) for name, share in (spent / spent.sum()).items()}
            names, seen, measured_s = (row["model"], row["family"]), row["seen"] > 0, row["step_s"]
            yield str(machine), ImageStep(*names, seen, measured_s, span, shares)


def _step_groups(steps: list[ImageStep]) -> Iterator[tuple[str, list[ImageStep]]]:
    yield "all", steps
    yield LATER, [one for one in steps if not one.seen]
    yield EARLIER, [one for one in steps if one.seen]
    for attribute in ("part", "family"):
        for name in sorted({getattr(one, attribute) for one in steps}):
            some = [one for one in steps if getattr(one, attribute) == name]
            if len(some) >= FEWEST_ALIKE:
                yield name, some


def vision_scores(level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score the steps: all, of networks that no rule was chosen by, of the others, by largest part, by family."""
    return [
        score(cases_of_spans([one.measured_s for one in some], [one.predicted for one in some]), VISION, "model",
              machine, what, interval=level)
        for machine, steps in by_key(predicted_steps(level)).items() for what, some in _step_groups(steps) if some
    ]  # fmt: skip
