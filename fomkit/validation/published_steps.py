"""Published steps on many devices beside projected ones: each row is asked for as a user would ask.

Rows, their models and what the rows of a set have in common are tables in ``validation/steps``. A constant was
read off two of the sets (the rate of MPT's attention, the host of vTrain's machine): these are scored with the
constant as it is stated or shipped, and with it chosen on other rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fomkit.core.interval import DEFAULT_LEVEL, Span, add_common
from fomkit.core.job import Layout
from fomkit.core.machine import Fact, Machine
from fomkit.core.model import ModelProfile, Transformer
from fomkit.plan.options import Options
from fomkit.plan.scaling import stepper_of, with_links
from fomkit.plan.step import HOST_OP_S
from fomkit.plan.transformer_step import TransformerStep
from fomkit.profiles.declared import parse_layout, parse_link
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.profiles.recipes import transformer_profile
from fomkit.readers.tables.foreign import read_columns
from fomkit.validation.scores import Cases, Score, cases_of_spans, make_cases, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def published_steps(folder: Path | None = None, level: float = DEFAULT_LEVEL) -> Iterator[PublishedStep]:
    """Read the rows of all sets.

    `folder`: with ``steps.csv.gz``, ``models.csv`` and ``sets.csv``; default: the shipped one; `level`: of the
    intervals.
    """
    folder = folder or shipped_folder("validation") / "steps"
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


def sizes_left_out(rows: Sequence[PublishedStep], spans: Sequence[Span]) -> Cases:
    """Score each model's rows with the rate of attention that the rows of the other models choose.

    A step is taken as linear in the time of its attention; its interval keeps its factors.
    """
    stated = np.array([row.layout.attention_peak_fraction for row in rows], np.float64)
    ends = np.array([span.ends for span in spans])
    other = np.array([row.with_attention(0.4).projected().value for row in rows])
    slope = (ends[:, 0] - other) / (1 / stated - 1 / 0.4)
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
        machine, spans = rows[0].machine.name, [row.projected() for row in rows]
        found = {"steps": _cases_of_rows(rows, spans)}
        if name == MPT:
            found["steps, model sizes left out"] = sizes_left_out(rows, spans)
        if name == VTRAIN:
            found["settings"] = by_setting(rows, spans)
            wide = [row for row in rows if row.model.name.endswith("2048")]
            narrow = [row for row in rows if not row.model.name.endswith("2048")]
            found["hidden 2,048, host by 1,024"] = host_by_others(narrow, wide)
        for what, cases in found.items():
            yield score(cases, name, "model", machine, what, interval=level)
