"""A closer look: what models and machines are made of, where time goes, methods of convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.figure_table import upper_bounds
from fomkit.core.interval import DEFAULT_LEVEL, Span
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.core.units import Precision, format_number, format_quantity, parse_quantity
from fomkit.merit.fom import FigureOfMerit
from fomkit.ops.groups import GROUPINGS, Grouping, fewest
from fomkit.plan.convolutions import convolutions_content, method_rows
from fomkit.plan.estimate import Estimate, check_one_device
from fomkit.plan.options import Options
from fomkit.profiles.campaigns import find_profile, list_profiles, shipped_models
from fomkit.verbs.answer import Answer, check_options, command, options_of
from fomkit.verbs.model_view import COLUMNS, Measure, View, show_model
from fomkit.verbs.profiles import as_machine, as_model


@command(
    "explaining",
    examples=(
        "fomkit explain resnet50 --target v100 --top 5",
        "fomkit explain gpt2 --target a100-sxm --set seq=512 --precision bf16",
        "fomkit explain p1b3-lecture --target x86-lecture --json",
    ),
)
def explain(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    *,
    top: int = 10,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Answer:
    """Explain a step's time: its longest ops, what each rests on, and what to time to know better.

    For each op: time with interval, the nearest timings and where they stand, the formulas of arithmetic and
    traffic with the numbers put in, and the floor. At the end, which ops timed on the machine would shrink the
    step's interval most. The method's nine steps are in 'fomkit estimate --explain'.

    Parameters
    ----------
    model, machine : name, path or profile
    top : int
        Ops, and measurements, to list.
    batch, sizes, precision, interval
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/explain/1``: ``content["ops"]`` are the longest; its table has the ops to time, best first.

    Raises
    ------
    FomkitError
        When a profile is unknown or no op has a time.

    Examples
    --------
    >>> [op["time_source"] for op in explain("p1b3-lecture", "x86-lecture", top=1).content["ops"]]
    ['measured']
    """
    from fomkit.output.estimates import format_evidence, measurement_rows
    from fomkit.plan.evidence import explain_ops

    check_options(sizes={"top": top})
    options = options_of(batch, interval, allow_uncovered=True, sizes=sizes, precision=precision)
    content = explain_ops(as_model(model), as_machine(machine), options, top)
    return Answer(content, measurement_rows(content), format_evidence)


@command(
    "following the memory",
    examples=(
        "fomkit memory resnet50 --batch 64 --target v100",
        "fomkit memory gpt2 --set seq=512 --json",
    ),
)
def memory(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine | None = None,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Answer:
    """Follow the memory of one step: parameters, gradients, optimizer state, activations, by moment and module.

    With a machine it also tells the largest batch that its device holds. Without the order of a model's ops only
    what stands all the time is known, and that is said.

    Parameters
    ----------
    model : name, path or profile
    machine : name, path or profile, optional
        Machine whose device is to hold it.
    batch, sizes
        As of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/memory/1``; its table has a row for each moment.

    Raises
    ------
    FomkitError
        When a profile is unknown, or nothing is known of the memory.

    Examples
    --------
    >>> memory("alexnet", "v100", batch=64).content["target"]["largest_batch"]
    1170
    """
    from fomkit.output.machines import format_memory
    from fomkit.verbs.machine_view import memory_content

    options = options_of(batch, sizes=sizes)
    device = None if machine is None else as_machine(machine)
    content = memory_content(as_model(model), options, device)
    return Answer(content, content["live"], format_memory)


def show(
    profile: str | Path | ModelProfile | Machine | None = None,
    *,
    by: Grouping = "kind",
    machine: str | Path | Machine | None = None,
    measure: Measure | None = None,
    top: float | None = None,
    depth: int | None = None,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
) -> Answer:
    """Show a model's ops by group, what is known of a machine, or what there is to name.

    Parameters
    ----------
    profile : name, path or profile, optional
        Of a model or a machine; none: list them all, for which no other argument is used.
    by : str
        Of a model: kind, op, shape, module, pass, scope or code.
    machine : name, path or profile, optional
        Of a model: predict its times there.
    measure : str, optional
        Of a model: order and cut by time, flop or byte; default: time where every op has one, else flop.
    top : float, optional
        Of a model: only the fewest groups that reach this share of the measure.
    depth : int, optional
        Of a model: levels of a tree; default: all.
    batch, sizes, precision
        Of a model, as of `fomkit.estimate`.

    Returns
    -------
    Answer
        ``fomkit/show/1``; its table has the groups, the families of a machine's tables, or the names.

    Raises
    ------
    FomkitError
        When there is no such profile, or an argument does not fit it.

    Examples
    --------
    >>> [peak["dtype"] for peak in show("titan").content["facts"]["peaks"]]
    ['fp32', 'fp64']
    """
    if profile is None:
        return names()
    if isinstance(profile, str | Path):
        path, what = find_profile(str(profile))
        profile = as_model(path) if what == "model" else as_machine(path)
    if isinstance(profile, Machine):
        return facts_of(profile)
    options = options_of(batch, sizes=sizes, precision=precision, allow_uncovered=True)
    view, target = _view(by, measure, top, depth), None if machine is None else as_machine(machine)
    if precision is not None and machine is None:
        raise FomkitError("precision", "depends on what a machine has. Add, for example, machine='v100'.")
    return groups_of(profile, view, options, target)


def groups_of(model: ModelProfile, view: View, options: Options, machine: Machine | None) -> Answer:
    """Show a model's ops by group."""
    from fomkit.output.models import format_model_view, view_rows

    content = show_model(model, view, options, machine)
    return Answer(content, view_rows(content), format_model_view)


def _view(by: Grouping, measure: Measure | None, top: float | None, depth: int | None) -> View:
    if by not in GROUPINGS:
        raise FomkitError("by", f"is {by!r}. Give one of {', '.join(GROUPINGS)}.")
    if measure is not None and measure not in COLUMNS:
        raise FomkitError("measure", f"is {measure!r}. Give one of {', '.join(COLUMNS)}.")
    if top is not None and not 0 < top <= 1:
        raise FomkitError("top", f"is {top!r}. Give a share above 0 and up to 1, for example 0.95.")
    return View(by, measure, top, depth)


def facts_of(machine: Machine) -> Answer:
    """Show what is known of a machine, beside the ops of the shipped models."""
    from fomkit.output.machines import format_machine_view
    from fomkit.verbs.machine_view import show_machine

    content = show_machine(machine, [as_model(model) for model in shipped_models()])
    rows = content["coverage"]["families"] if content["coverage"] else content["facts"]["peaks"]
    return Answer(content, rows, format_machine_view)


def work_formulas(
    model: str | Path | ModelProfile, *, batch: int | None = None, sizes: Mapping[str, int] | None = None
) -> Answer:
    """Write the work of a step, by pass, as formulas of its batch and other sizes.

    Parameters
    ----------
    model : name, path or profile
    batch, sizes
        Put in as numbers; the others stay names.

    Returns
    -------
    Answer
        ``fomkit/formulas/1``; its table has the formulas of each pass and of the step.

    Raises
    ------
    FomkitError
        When the profile is unknown, or a size cannot be had.

    Examples
    --------
    >>> work_formulas("candle/p1b3").table["flop"].tolist()
    ['60177401*batch', '61289152*batch', '60177402', '121466553*batch + 60177402']
    """
    from fomkit.plan.work_formulas import formulas_content

    options = options_of(batch, sizes=sizes)
    return formulas_of(formulas_content(as_model(model), options))


def formulas_of(content: dict[str, Any]) -> Answer:
    """Show the work of a step as formulas."""
    from fomkit.output.models import format_formulas, formula_rows

    return Answer(content, formula_rows(content), format_formulas)


def names() -> Answer:
    """List the profiles that there are to name."""
    from fomkit.output.screen import format_profiles

    rows = [profile._asdict() for profile in list_profiles()]
    return Answer(
        {"schema": "fomkit/show/1", "profiles": rows}, rows, lambda _, *screen: format_profiles(rows, *screen)
    )


def convolution_methods(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine | None = None,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    workspace: str | None = None,
    interval: float = DEFAULT_LEVEL,
) -> pd.DataFrame:
    """Say what each convolution of a step takes by each method, one row for each of both.

    Parameters
    ----------
    model : name, path or profile
    machine : name, path or profile, optional
        Gives floors, and the predicted time of the op beside them; without it, work only.
    batch : int, optional
        Samples in one step; default: the profile's.
    sizes : mapping, optional
        Other named sizes of the profile.
    precision : str, optional
        fp32, tf32, mixed, bf16 or fp8; it depends on what a machine has, so it needs one.
    workspace : str, optional
        Most that a method may take besides operands and result, for example ``"256 MiB"``.
    interval : float
        Level of the times' intervals.

    Returns
    -------
    DataFrame
        Columns as in the CSV file of ``fomkit show MODEL --convolutions`` (docs/views.md); where a method cannot
        compute a convolution its figures are empty and ``absent`` says why.

    Raises
    ------
    FomkitError
        When a profile is unknown, the model has no convolution or the workspace is no size.

    Examples
    --------
    >>> found = convolution_methods("vgg16", batch=1)
    >>> one = found[found["shape"] == "1× 512→512 28×28 k3 p1"].set_index(["pass_name", "method"]).loc["forward"]
    >>> one.loc["direct", ["multiply_adds", "work_depth"]].tolist()
    [1849688064.0, 13.0]
    """
    options = options_of(batch, interval, allow_uncovered=True, sizes=sizes, precision=precision)
    if precision is not None and machine is None:
        raise FomkitError("precision", "depends on what a machine has. Name one.")
    profile, target = as_model(model), None if machine is None else as_machine(machine)
    limit = None if workspace is None else parse_quantity(workspace, "byte", "workspace", "the workspace")
    return pd.json_normalize([dict(row) for row in methods_of(profile, options, target, limit).rows])


def methods_of(model: ModelProfile, options: Options, machine: Machine | None, limit: float | None) -> Answer:
    """Show each convolution by each method; `limit`: bytes that a method may take beside its operands."""
    from fomkit.output.models import format_convolutions

    content = convolutions_content(model, options, machine, limit)
    return Answer(content, method_rows(content), format_convolutions)


DOMINANT_SHARE = 0.95


class Step(NamedTuple):
    """One step of the method: what is done, its number, and where the number comes from."""

    title: str
    number: str
    detail: str


def _dominant(ops: pd.DataFrame) -> tuple[dict[str, float], float]:
    """Give the seconds per step of each dominant op, longest first, and the share of the step that they reach."""
    seconds = (ops["time_s"] * ops["count"]).groupby(ops["op"].astype("str")).sum()
    amounts = {str(name): float(value) for name, value in seconds.items()}
    cut = fewest(amounts, DOMINANT_SHARE)
    return {name: amounts[name] for name in cut.groups}, cut.reached


def _products(ops: pd.DataFrame) -> str:
    products = ops[ops["kind"] == "gemm"]
    if products.empty:
        return "no matrix product"
    seconds = (products["time_s"] * products["count"]).sort_values(ascending=False)
    longest = products.loc[seconds.index[:3], ["m", "n", "k"]].to_numpy(float)
    sizes = [" × ".join(f"{size:g}" for size in row) for row in longest]
    flop = (products["flop"] * products["count"]).sum()
    work = f"{format_quantity(flop, 'flop')} in {format_quantity(seconds.sum(), 'time_s')}"
    return f"{work}; longest (m × n × k): {'; '.join(sizes)}"


def _ends(span: Span) -> str:
    low, high = (format_quantity(end, "time_s") for end in (span.low, span.high))
    return "no spread stated" if span.low == span.high else f"{low} … {high}, {span.level:.0%} interval"


def method_steps(estimate: Estimate, merit: FigureOfMerit | None = None) -> list[Step]:
    """Tell an estimate as the lecture's nine steps (Foster & Stevens 2018, lecture 10)."""
    check_one_device([estimate], "the lecture's method")
    model, ops, run = estimate.model, estimate.ops, estimate.run_time
    top, reached = _dominant(ops)
    per_day = estimate.unit_per_day
    traced = ", ".join(model.traced_with.values()) or "unknown framework"
    parameters = "unknown" if model.parameters_total is None else f"{model.parameters_total:,}"
    sources = ", ".join(f"{source} {share:.1%}" for source, share in estimate.coverage.items() if share > 0)
    hours = "unknown" if run.run_s is None else f"{run.run_s.value / 3600:.3f} h"
    epochs = "unknown" if model.run.epochs is None else f"{model.run.epochs} epochs"
    steps = "unknown" if run.steps_per_epoch is None else f"{run.steps_per_epoch} steps"
    epoch = "unknown" if run.epoch_s is None else f"{run.epoch_s.value:.2f} s per epoch"
    rate = "unknown" if per_day is None else f"{format_number(per_day.value, 6)} {model.unit.name}s per day"
    interval = "" if per_day is None else f"{format_number(per_day.low)} … {format_number(per_day.high)}; "
    bound = upper_bounds(estimate.excludes) or "nothing excluded"
    fom = "needs --baseline" if merit is None else format_number(merit.value.value, 6)
    longest = ", ".join(f"{name} {format_quantity(time_s, 'time_s')}" for name, time_s in top.items())
    step, step_ends = f"{estimate.step.value * 1e3:.4f} ms", _ends(estimate.step)
    at_once = f"{estimate.runs_at_once:,} at once, scope {estimate.scope}"
    return [
        Step(
            "profile the model", f"{ops['count'].sum():,.0f} op executions", f"{parameters} parameters; {traced}"
        ),
        Step("take the dominant ops", f"{reached:.2%} of the step", longest),
        Step("size the matrix products", f"{int((ops['kind'] == 'gemm').sum())} rows", _products(ops)),
        Step("map onto the target's timings", sources, estimate.machine.title),
        Step("add up one pass", step, f"{step_ends}; bound: {estimate.step_time.bound}"),
        Step("roll up an epoch", epoch, f"{steps} of batch {estimate.sizes.get('batch', 'unknown')}"),
        Step("roll up a run", hours, epochs),
        Step("units of work per day", rate, f"{interval}{at_once}; {bound}"),
        Step("figure of merit", fom, "" if merit is None else f"over {merit.baseline.machine}, {merit.mean}"),
    ]
