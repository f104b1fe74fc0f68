"""Join a profiler's times to the op table of a model profile, and export the measured step.

`with_times` adds times to a profile; `measurement_of` returns its step as a row of a table of measurements. A
table traced by shapes and a run under a profiler name some ops differently, and a device may run other ops. Times
are therefore joined in rounds, the strictest first; a row that has a time gets no more in a later round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fomkit.bench.model_steps import Timed, time_file
from fomkit.core import measurement
from fomkit.core.errors import FomkitError
from fomkit.core.measurement import Clock, MeasuredOps, MeasuredRun, Measurement, Unjoined, device_kind
from fomkit.core.model import ModelProfile
from fomkit.core.units import count_text, round_quantity
from fomkit.frontends.lowering.calls import UPDATE
from fomkit.frontends.step_spread import Spent
from fomkit.ops.kinds import KINDS, PRODUCT_KINDS
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.profiles.locate import locate
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.measurements import read_measurements
from fomkit.readers.profilers.xplane import with_node_times

_SMALL = 0.02
"""Share of the unjoined time below which ops without work are listed together."""
_SAME_OPS: Mapping[str, str] = {
    "linear": "mm", "addmm": "mm", "matmul": "mm", "convolution_overrideable": "convolution",
    "mkldnn_convolution": "convolution", "cudnn_convolution": "convolution", "miopen_convolution": "convolution",
    "thnn_conv2d": "convolution", "slow_conv3d": "convolution", "mkldnn_rnn_layer": "lstm", "_cudnn_rnn": "rnn",
    "cudnn_batch_norm": "native_batch_norm", "miopen_batch_norm": "native_batch_norm",
    "_native_batch_norm_legit": "native_batch_norm", "zeros_like": "zeros", "new_zeros": "zeros",
    "zero": "zeros", "ones_like": "ones", "new_ones": "ones", "full_like": "full", "_to_copy": "clone",
    "copy": "clone", "contiguous": "clone", "square": "pow",
}  # fmt: skip
"""Synonyms of ops in backends and spellings, without library and without the underscore of in-place ops."""


@dataclass(frozen=True)
class Joined:
    """Times joined to an op table.

    `time_s`: time of one execution of each row [s]; NaN if the profiler has none.
    `joined_s`: time of a step assigned to the rows [s].
    `unjoined`: the rest, the longest first.
    `miscounted`: number of rows that ran more or less often than the table says; their time is that of the step
      over their count.
    `impls`: how the update ran: per_tensor, foreach or fused.
    `parted`: number of rows of gradients whose times the profiler recorded as one.
    """

    time_s: pd.Series[float]
    joined_s: float
    unjoined: tuple[Unjoined, ...]
    miscounted: int
    impls: frozenset[str] = frozenset()
    parted: int = 0


def canonical(op: str) -> str:
    """Return the common name of an op, for all backends and spellings.

    Examples
    --------
    >>> canonical("aten::mkldnn_convolution"), canonical("aten.add_"), canonical("cudnn_convolution_backward")
    ('convolution', 'add', 'convolution_backward')
    """
    name = op.rpartition("::")[2].removeprefix("aten.").rstrip("_") or op
    stem = name.removesuffix("_backward")
    return _SAME_OPS.get(stem, stem) + name[len(stem) :]


def _needed_sizes(kind: str, cells: Mapping[str, Any]) -> tuple[float | str, ...]:
    """Return the sizes that identify an op of a kind, without the implementation."""
    names = [name for name in KINDS[kind].dimensions if name != "impl"] if kind in KINDS else []
    values = [cells.get(name) for name in names]
    return tuple(one if isinstance(one, str) else float("nan" if one is None else one) for one in values)


Key = Callable[[Mapping[str, Any]], object]


def _broad_pass(cells: Mapping[str, Any]) -> str:
    return str(cells["pass_name"]).partition("_")[0]


def _same_op(cells: Mapping[str, Any]) -> object:
    kind = cells["kind"]
    return canonical(cells["op"]), kind, cells["dtype"], cells["pass_name"], _needed_sizes(kind, cells)


def _either_gradient(key: Key) -> Key:
    """Return a key that does not distinguish the two gradients of a backward pass."""
    return lambda cells: key({**cells, "pass_name": _broad_pass(cells)})


def _by_sizes(cells: Mapping[str, Any]) -> object:
    kind = cells["kind"]
    if kind not in PRODUCT_KINDS:
        return None
    # A recurrent layer whose input needs no gradient has input_size 0 there, which profilers do not record.
    loose = {**cells, "input_size": 0.0} if kind == "rnn" else cells
    return (kind, cells["pass_name"], _needed_sizes(kind, loose))


def _by_numel(cells: Mapping[str, Any]) -> object:
    if cells["kind"] in PRODUCT_KINDS:
        return None
    return (canonical(cells["op"]), _broad_pass(cells), cells.get("numel"))


_IN_PIECES: Mapping[tuple[str, str], str] = {
    ("bernoulli", "forward"): "native_dropout", ("div", "forward"): "native_dropout",
    ("mul", "forward"): "native_dropout", ("mul", "backward"): "native_dropout_backward",
}  # fmt: skip
"""Ops that a CPU runs instead of a dropout, by name and pass."""


def _in_pieces(cells: Mapping[str, Any]) -> object:
    name = canonical(cells["op"])
    whole = _IN_PIECES.get((name, _broad_pass(cells)), name)
    return (whole, cells.get("numel")) if whole.startswith("native_dropout") else None


def _any_pass(cells: Mapping[str, Any]) -> object:
    """Match copies of any pass, for ops between the passes such as the gradient of the loss itself."""
    return (canonical(cells["op"]), cells.get("numel")) if cells["kind"] == "copy" else None


ROUNDS: Sequence[Key] = (
    _same_op, _either_gradient(_same_op), _by_sizes, _either_gradient(_by_sizes), _by_numel, _in_pieces,
    _any_pass, lambda cells: UPDATE if cells["pass_name"] == UPDATE else None,
)  # fmt: skip
"""Keys by which rows and times are matched, round by round; None matches nothing."""


def _elements_or_flop(cells: Mapping[str, Any]) -> float:
    """Return the weight by which rows share a time: elements, else flop, else 1."""
    for amount in (cells.get("numel"), cells.get("flop")):
        if isinstance(amount, int | float) and 0 < amount < np.inf:
            return float(amount)
    return 1.0


def join_times(ops: pd.DataFrame, times: Iterable[Spent]) -> Joined:
    """Join all times that a profiler recorded in one step to the step's op table, whose sizes are numbers."""
    rows: list[dict[str, Any]] = [
        {str(name): cell for name, cell in row.items()} for row in add_costs(ops).to_dict("records")
    ]
    left = seen = list(times)
    found = _Found()
    for key in ROUNDS:
        places: dict[object, list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            if place not in found.spent and (same := key(row)) is not None:
                places[same].append(place)
        left = _join_round(key, rows, places, left, found)
    _split_by_work(rows, found)
    time = [found.spent.get(place, np.nan) / row["count"] for place, row in enumerate(rows)]
    miscounted = sum(abs(times_run - rows[place]["count"]) > 0.01 for place, times_run in found.ran.items())
    series = pd.Series(time, ops.index, dtype="float64")
    impls = frozenset(str(one.dimensions["impl"]) for one in seen if one.kind == "optimizer")
    return Joined(series, sum(found.spent.values()), _list_unjoined(left), miscounted, impls, len(found.parted))


@dataclass
class _Found:
    """Time and executions of rows by place; ``parted``: places whose time was recorded as one with another's."""

    spent: dict[int, float] = field(default_factory=dict)
    ran: dict[int, float] = field(default_factory=dict)
    parted: set[int] = field(default_factory=set)


def _split_by_work(rows: Sequence[Mapping[str, Any]], found: _Found) -> None:
    """Divide times recorded as one for both gradients by their work; input gradients may have a smaller count."""
    pairs: dict[object, list[int]] = defaultdict(list)
    for place in sorted(found.parted):
        pairs[_either_gradient(_by_sizes)(rows[place])].append(place)
    for pair in pairs.values():
        if len({rows[place]["pass_name"] for place in pair}) == len(pair) == 2:
            whole = sum(found.spent[place] for place in pair)
            weights = [rows[place]["count"] * _elements_or_flop(rows[place]) for place in pair]
            found.spent.update(
                {place: whole * one / sum(weights) for place, one in zip(pair, weights, strict=True)}
            )


def _join_round(
    key: Key,
    rows: Sequence[Mapping[str, Any]],
    places: Mapping[object, list[int]],
    left: Iterable[Spent],
    found: _Found,
) -> list[Spent]:
    """Join the times that match a row in one round; return the others."""
    rest = []
    for one in left:
        cells = {**one.dimensions, **{name: getattr(one, name) for name in ("op", "kind", "dtype", "pass_name")}}
        same = key(cells) if one.kind else None
        members = places.get(same, []) if same is not None else []
        if not members:
            rest.append(one)
            continue
        weights = [rows[place]["count"] * _elements_or_flop(rows[place]) for place in members]
        executions = sum(rows[place]["count"] for place in members)
        for place, weight in zip(members, weights, strict=True):
            found.spent[place] = found.spent.get(place, 0.0) + one.time_s * weight / sum(weights)
            if key is not _in_pieces:
                found.ran[place] = found.ran.get(place, 0.0) + one.count * rows[place]["count"] / executions
        if one.halved:
            found.parted.update(members)
    return rest


def _list_unjoined(left: Iterable[Spent]) -> tuple[Unjoined, ...]:
    """List the unjoined times by op, the longest first; small times of ops without work are listed together."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for one in left:
        sums = found.setdefault(
            (one.op, one.pass_name, measurement.NO_ROW if one.kind else measurement.NO_WORK), [0.0, 0.0]
        )
        sums[0] += one.count
        sums[1] += one.time_s
    whole = sum(time for _, time in found.values())
    small = [key for key, (_, time) in found.items() if key[2] == measurement.NO_WORK and time < _SMALL * whole]
    if len(small) > 1:
        sums = [sum(found[key][place] for key in small) for place in (0, 1)]
        found = {key: value for key, value in found.items() if key not in small}
        found[f"{len(small)} others", "", measurement.NO_WORK] = sums
    listed = (Unjoined(op, pass_name, int(count), round_quantity(time, "time_s"), why)
              for (op, pass_name, why), (count, time) in found.items())  # fmt: skip
    return tuple(sorted(listed, key=lambda one: -one.time_s))


def _join_notes(model: ModelProfile, joined: Joined) -> Iterator[str]:
    if joined.miscounted:
        yield f"{joined.miscounted} rows ran more or less often than the table states; they have the measured time"
    missing = int(joined.time_s.isna().sum())
    if missing:
        yield f"{missing} of {len(model.ops)} rows have no time: no op of that name ran, or another row has it"
    recorded = {str(one) for one in model.ops["impl"] if one}
    if joined.impls and recorded and joined.impls != recorded:
        ran, in_table = (" and ".join(sorted(names)) for names in (joined.impls, recorded))
        yield f"the update ran {ran} here, where the table has {in_table}"
    if joined.parted:
        yield f"both gradients had one time, which was divided in proportion to their work: {joined.parted} rows"


def _joined_times(model: ModelProfile, timed: Timed) -> Joined:
    """Join times to rows: by nodes of the graph if the profiler recorded them, else by op and sizes."""
    sized = resize_ops(model.ops, model.sizes, model.name)
    by_node = timed.joined
    if by_node is None:
        return join_times(sized, timed.spent)
    rows = tuple(sized[["op", "pass_name", "module"]].itertuples(index=False, name=None))
    if rows != timed.rows:
        raise FomkitError(
            model.name,
            "another step ran than was profiled: its ops are not those of the table. Let the file build the same "
            "model each time.",
        )
    times = with_node_times(sized, sized["count"].astype("float64").tolist(), by_node)
    listed = tuple(replace(one, time_s=float(f"{one.time_s:.6g}")) for one in by_node.unjoined)
    return Joined(times["traced_time_s"], by_node.joined_s, listed, miscounted=0)


def with_times(model: ModelProfile, timed: Timed) -> ModelProfile:
    """Add timings at its sizes to a model profile; of its op table only ``traced_time_s`` changes."""
    if timed.profiled is None:
        return replace(model, measured=timed.run)
    joined = _joined_times(model, timed)
    joined_s = round_quantity(joined.joined_s, "time_s")
    factor = float(f"{timed.scaled_by:.6g}")
    seen = MeasuredOps(timed.profiler, timed.profiled, joined_s, joined.unjoined, factor)
    run = replace(timed.run, ops=seen, notes=(*timed.run.notes, *_join_notes(model, joined)))
    ops = model.ops.assign(traced_time_s=joined.time_s.map(lambda time: float(f"{time:.6g}")))
    return replace(model, ops=ops, measured=run)


def measure_profile(model: ModelProfile, path: Path, **options: Any) -> ModelProfile:
    """Time the model of a profiled file at the profile's sizes; ``options``: of `model_steps.time_file`."""
    return with_times(model, time_file(path, mode=model.traced_with["mode"], sizes=model.sizes, **options))


def run_content(run: MeasuredRun) -> Mapping[str, object]:
    """Return a measured run, with derived figures, as plain values; times in seconds."""
    ends = run.overhead_ends
    joined = None if run.ops is None or not run.ops.total_s else run.ops.joined_s / run.ops.total_s
    return {
        **asdict(run),
        "sizes": dict(run.sizes),
        "profiler_overhead": run.overhead,
        "profiler_overhead_low": None if ends is None else ends[0],
        "profiler_overhead_high": None if ends is None else ends[1],
        "ops_share_of_step": run.ops_share,
        "joined_share_of_ops": joined,
    }


def measurement_of(model: ModelProfile, machine: str, where: str) -> Measurement:
    """Return a measured profile's step as a row of a table of measurements.

    `machine`: name of the machine profile of the machine it ran on; `where`: the profile's file. Raises
    FomkitError when nothing was measured, or on another kind of device than the machine's.
    """
    run = model.measured
    if run is None:
        raise FomkitError(where, "has no measured times. Make it with: fomkit profile model.py --measure step")
    clock = _exported_clock(run)
    step = run.step.by(clock)
    if step is None:
        raise FomkitError(where, f"has no times of the clock {clock!r}. Measure it again.")
    load = "" if run.load_start is None else f"; load {run.load_start:g} to {run.load_end or run.load_start:g}"
    threads = "" if run.device == "gpu" else f"; {count_text(run.threads, 'thread')}"
    shared = ", as other processes shared the processor" if clock == "process" else ""
    notes = [f"{run.processor}{threads}; {clock} time{shared}{load}", *_machine_notes(run, machine, where)]
    if not (precision := run.precision):  # the number format of most of the arithmetic, as an estimate names it
        ops = add_costs(resize_ops(model.ops, model.sizes, model.name))
        precision = str((ops["flop"] * ops["count"]).groupby(ops["dtype"]).sum().idxmax())
    low, high = (step.median_s if end is None else end for end in (step.p10_s, step.p90_s))
    framework = model.traced_with.get("framework", "")
    return Measurement(
        where, model.name, machine, "step_s", step.median_s, low, high,
        spread_stated=step.p10_s is not None, basis="measured", repeats=run.step.repeats, batch=model.batch,
        precision=precision, devices=1, scope="device", party="lab", framework=framework,
        framework_version=run.software.get(framework, ""), date=run.date,
        source=f"fomkit profile --measure {'step' if run.ops is None else 'ops'}, {where}", note="; ".join(notes),
    )  # fmt: skip


def rows_to_export(source: str | Path | ModelProfile, machine: str | None, chosen: str) -> tuple[Measurement, ...]:
    """Return the measurements to write: those of a table, or the step of a profile measured on ``machine``."""
    if isinstance(source, ModelProfile) or Path(source).suffix in (".yaml", ".yml"):
        model = source if isinstance(source, ModelProfile) else load_model(source)
        where = model.name if isinstance(source, ModelProfile) else str(source)
        if machine is None:
            raise FomkitError(
                where, "does not state the machine profile of the machine it ran on. Add `machine` NAME."
            )
        return (measurement_of(model, machine, where),)
    if machine is not None:
        raise FomkitError("machine", "names where a model profile was measured; a table states it. Leave it out.")
    if chosen == "measurements":
        raise FomkitError(str(source), "is a table of measurements already. Write, for example, '-o record.json'.")
    return read_measurements(locate(str(source), "measurements"))


def _exported_clock(run: MeasuredRun) -> Clock:
    """Choose the clock of the row: wall time, as ``step_s`` means, or process time if the processor was shared."""
    wall, process = run.step.wall, run.step.process
    if run.clock == "process" and wall is not None and process is not None:
        return "process" if wall.median_s > measurement.SHARED * process.median_s else "wall"
    return run.clock


def _machine_notes(run: MeasuredRun, machine: str, where: str) -> list[str]:
    """Check that the run's device is of the machine's kind; return a note if the machine's kind is unknown."""
    try:
        locate(machine, "machine_profiles")
    except FomkitError:  # a name that only the table of measurements has
        kind: str = ""
    else:
        kind = device_kind(load_machine(machine))
    if not kind:
        return [f"whether {machine} has a CPU or a GPU is not known, it ran on a {run.device.upper()}"]
    if kind != run.device:
        raise FomkitError(
            where,
            f"was measured on a {run.device.upper()} ({run.processor}), and the machine profile {machine} is of a "
            f"{kind.upper()}. Name the profile of the machine that it ran on.",
        )
    return []
