"""Estimates of models and tables of ops on machines, compared with a baseline; advice on a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Link, Machine, Scope
from fomkit.core.model import LastBatch, ModelProfile
from fomkit.core.units import Precision
from fomkit.files.op_csv import format_as_given, read_numbered_table
from fomkit.plan.options import Options, check_counts, check_options, choose_scope, options_of
from fomkit.profiles.locate import locate
from fomkit.verbs.answer import checked, command, parts
from fomkit.verbs.profiles import as_machine, as_model, in_mode, run_with
from fomkit.verbs.profiling import Fusion, Mode

# Modules that calculate are imported inside the functions, so that --help starts fast.
if TYPE_CHECKING:
    from pandas import DataFrame

    from fomkit.core.measurement import Measurement
    from fomkit.plan.estimate import Estimate
    from fomkit.plan.op_tables import Prediction
    from fomkit.verbs.compare import Comparison
    from fomkit.whatif.advise import Advice


@checked
def estimate(
    model: str | Path | ModelProfile | Any, machine: str | Path | Machine, *, inputs: Any = None,
    batch: int | None = None, sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL, scope: Scope | None = None, last_batch: LastBatch | None = None,
    allow_uncovered: bool = False, nodes: int | Literal["fill"] | None = None, mode: Mode | None = None,
    layout: str | Path | Sequence[str] = "", links: Sequence[str | Link] = (), node_devices: int | None = None,
    epochs: int | None = None, samples: int | None = None, unit: str = "", fusion: Fusion | None = None,
) -> Estimate:  # fmt: skip
    """Estimate one model on one machine.

    Parameters
    ----------
    model, machine : name, path or profile
        The model may also be a ``model.py`` or an ONNX file, which is profiled first (cached by content), or in
        memory a ``torch.nn.Module``, a ``keras.Model``, or with inputs, loss and optimizer a `fomkit.Workload`.
    inputs
        Inputs of a module in memory, in the form that `fomkit.Workload` takes.
    batch : int, optional
        Samples in one step; default: the profile's.
    sizes : mapping, optional
        Other named sizes of the profile, for example ``{"seq": 512}``.
    precision : str, optional
        fp32, tf32, mixed, bf16, fp8, fp8_block, mxfp8, nvfp4 or int8; default: what the framework would do.
    interval : float
        Probability level of all intervals.
    scope : str, optional
        What the rates count: device, node or system; default: the narrowest scope that the machine states.
    last_batch : str, optional
        drop or keep a partial last batch; default: the profile's choice.
    allow_uncovered : bool
        Leave out work that has no time, instead of raising an error; times are then lower bounds.
    nodes : int or "fill", optional
        Whole nodes of one run, which share the batch: ``job`` is their step, ``ops`` are of one microbatch on one
        device. Default scope: the system, or these nodes where the machine states no number of nodes.
    layout, links, node_devices : optional
        As of `fomkit.scaling`.
    epochs, samples, unit : optional
        Epochs of a run, training samples of an epoch, and what one run makes, where the profile states none.
    mode, fusion : str, optional
        The step (train, infer, prefill, decode) and which ops run as one kernel; see `estimate_all`.

    Raises
    ------
    FomkitError
        When a profile is unknown, work has no time, a layout does not divide, or a link that it needs is unknown.

    Examples
    --------
    >>> one = estimate("p1b3-lecture", "x86-lecture")
    >>> round(one.step.value * 1e3, 4), one.run_time.steps_per_epoch, round(one.unit_per_day.value, 5)
    (287.2917, 8001, 1.87939)
    """
    from fomkit.plan.run import stated_run
    from fomkit.verbs.compare import placement_of

    options = options_of(batch, interval, scope, allow_uncovered, sizes, precision, last_batch)
    check_counts(epochs=epochs, samples=samples)
    target = (placement := placement_of(nodes, layout, links, node_devices)).on(as_machine(machine))
    profile = stated_run(in_mode(model, mode, fusion, batch, sizes, inputs), epochs, samples, unit)
    return placement.estimate(profile, target, replace(options, scope=placement.scope([profile], [target], scope)))


def _check_page(arguments: Mapping[str, Any], output: Path | None) -> None:
    """Check before the work that an HTML page of this many estimates can be written; raise if not."""
    if output is None or output.suffix != ".html":
        return
    from fomkit.output.pages import check_libraries
    from fomkit.verbs.report.write import check_few

    check_libraries()
    check_few(len(_models_of(arguments["models"])) * (len(arguments["machines"]) + bool(arguments["baseline"])))


def _page(found: Comparison) -> str:
    from fomkit.verbs.report.write import comparison_page

    return comparison_page(found)


def _models_of(models: Sequence[str | Path | ModelProfile] | None) -> list[str | Path | ModelProfile]:
    """Return the models that are named, a folder as its models; without names, all in the folder of models."""
    from fomkit.profiles.models import model_names, models_named

    if not models:
        return [*model_names()]
    return [each for one in models for each in (models_named(one) if isinstance(one, str) else [one])]


@command(
    "estimating",
    arguments={"models": "MODEL"},
    spelled={"measurements": ("--from",), "last_batch": ("--last-batch",), "arguments": ("--argument",)},
    metavar={"measurements": "CSV", "nodes": "N|fill", "unit": "TEXT", "arguments": "TEXT"},
    shows={"explain": ("--explain", "Print the lecture's twelve steps with their arithmetic.")},
    judges_fit=True,
    before=_check_page,
    workbook=lambda arguments: [as_machine(one).name for one in arguments["machines"]],
    writes={".html": _page},
)
def estimate_all(
    models: Sequence[str | Path | ModelProfile] | None, machines: Sequence[str | Path | Machine],
    baseline: str | Path | Machine | None = None, *, measurements: str | Path | None = None,
    batch: int | None = None, sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    scope: Scope | None = None, nodes: int | Literal["fill"] | None = None, mode: Mode | None = None,
    layout: str | Path | Sequence[str] = "", links: Sequence[str | Link] = (), node_devices: int | None = None,
    interval: float = DEFAULT_LEVEL, last_batch: LastBatch | None = None, allow_uncovered: bool = False,
    epochs: int | None = None, samples: int | None = None, unit: str = "", fusion: Fusion | None = None,
    arguments: Sequence[str] | None = None,
) -> Comparison:  # fmt: skip
    """Estimate the time of training steps and runs, and the units of work per day, of models on machines.

    Parameters
    ----------
    models : sequence of name, path or profile, optional
        Profiles by name or path, folders, or code (model.py, ONNX); default: ./model_profiles or the shipped ones.
    machines : sequence of name, path or profile
    baseline : name, path or profile, optional
        Machine to compare the targets with; adds ratios and a figure of merit (FOM).
    measurements : name or path, optional
        Measurements of the baseline, by path or name; targets are also predicted as measured × predicted ratio.
    nodes : int or "fill", optional
        Run one training, or serve one model, on N whole nodes, which share --batch; fill: on all nodes.
    last_batch : str, optional
        Drop or keep the partial last batch of an epoch; default: the profile's choice.
    epochs : int, optional
        Epochs of a run, where the profile states none.
    samples : int, optional
        Training samples of an epoch, where the profile states none.
    unit : str, optional
        Name of what one run makes, where the profile states none; default: trained model.
    mode : str, optional
        Step to estimate: training (train), a forward pass (infer), a prompt (prefill) or one token after a cache
        (decode); default: the profile's. Another mode needs its own profile, the model's file or its config.json.
    fusion : str, optional
        Ops run as one kernel: none (eager), chains (compiled), as libraries do (vendor); default: the profile's.
    arguments : sequence of str, optional
        An argument of the training program that is the only model; or give all of them after '--'.
    batch, sizes, precision, scope, layout, links, node_devices, interval, allow_uncovered
        As of `fomkit.estimate`, for all of them.

    Returns
    -------
    Comparison
        ``estimates`` by machine, then by model; ``merits`` by machine, if the run of each model is known.

    Raises
    ------
    FomkitError
        When a profile is unknown or named twice, work has no time, or the machines share no scope.

    Examples
    --------
    >>> both = estimate_all(["p1b3", "tc1"], ["v100"], baseline="p100")
    >>> [one.model.name for one in both.estimates], sorted(both.merits[0].weights)
    (['p1b3', 'tc1'], ['p1b3', 'tc1'])
    """
    options = options_of(batch, interval, scope, allow_uncovered, sizes, precision, last_batch)
    return _compare_all(models, machines, baseline, measurements, options, (nodes, layout, links, node_devices),
                        (mode, fusion, batch, sizes), (epochs, samples, unit), arguments)  # fmt: skip


def _compare_all(
    models: Sequence[str | Path | ModelProfile] | None, machines: Sequence[str | Path | Machine],
    baseline: str | Path | Machine | None, measurements: str | Path | None, options: Options,
    placement: tuple[int | Literal["fill"] | None, str | Path | Sequence[str], Sequence[str | Link], int | None],
    of_step: tuple[Any, ...], of_run: tuple[int | None, int | None, str], arguments: Sequence[str] | None,
) -> Comparison:  # fmt: skip
    """Estimate all models on all machines; `of_step`: arguments of `in_mode`; `of_run`: of `stated_run`."""
    from fomkit.plan.run import check_unit, stated_run
    from fomkit.profiles.models import code_last
    from fomkit.verbs.compare import check_distinct, compare, placement_of

    check_counts(epochs=of_run[0], samples=of_run[1])
    check_unit(of_run[2])
    placed = placement_of(*placement)
    if not machines:
        raise FomkitError("machines", "is missing. Name one or more, for example v100.")
    if measurements is not None and baseline is None:
        what = "needs the machine that was measured. Add, for example, '--baseline p100'."
        raise FomkitError(f"measurements {measurements}", what)
    rows: tuple[Measurement, ...] = ()
    known = None
    if baseline is not None:
        from fomkit.readers.measurements import all_measured, read_measurements  # most estimates have none

        if measurements is not None:
            rows = read_measurements(locate(str(measurements), "measurements"))
        known = all_measured()[0]
        known = known._replace(rows=(*known.rows, *rows))
    targets = [as_machine(machine) for machine in machines]
    base = None if baseline is None else as_machine(baseline, "baseline")
    check_distinct((), targets, base)
    if options.scope is not None:
        choose_scope([placed.on(one) for one in (*targets, *([base] if base else []))], options.scope)
    models = models if arguments is None else [run_with(arguments, models)]
    named = _models_of(models)
    done = parts(len(named) * (len(machines) + (baseline is not None)))
    profiles = code_last(named, lambda model: stated_run(in_mode(model, *of_step), *of_run))
    found = compare(profiles, targets, base, options, skip_failures=not models, after_each=done,
                    measured=known, placement=placed)  # fmt: skip
    if measurements is None:
        return found
    from fomkit.verbs.from_measurements import from_measurements, measured_content

    where = str(measurements)
    content = measured_content(from_measurements(found, rows, where, options.last_batch), where)
    return replace(found, rows=rows, from_measurements=content)


@command("trying changes", shows={"tried": ("--all", "Also list changes that were rejected or do not apply.")})
def advise(
    model: str | Path | ModelProfile, machine: str | Path | Machine, *, batch: int | None = None,
    sizes: Mapping[str, int] | None = None, precision: Precision | None = None, interval: float = DEFAULT_LEVEL,
) -> Advice:  # fmt: skip
    """List changes to a training, with the time at stake for each, and the use of the device and its memory.

    The time of each change comes from an estimate of the changed training.

    Parameters
    ----------
    model, machine : name, path or profile
    batch, sizes, precision, interval
        As of `estimate`.

    Returns
    -------
    Advice
        ``findings`` are the changes worth making, ``content`` is everything, ``summary()`` returns the text.

    Raises
    ------
    FomkitError
        When a profile is unknown or no op has a time.

    Examples
    --------
    >>> advice = advise("resnet50", "v100")
    >>> advice.findings[0]["rule"], round(advice.findings[0]["stake"]["share"]["value"], 1)
    ('faster engine', 0.6)
    """
    from fomkit.whatif.advise import advise as _advise

    options = options_of(batch, interval, sizes=sizes, precision=precision)
    target = as_machine(machine)  # before the model, which may be code that runs for minutes
    return _advise(as_model(model, batch=options.batch), target, options)


def _ops_of(model: ModelProfile, sizes: Mapping[str, int]) -> DataFrame:
    """Return the ops of a model, or of a list that is one, at these sizes, else its own."""
    from fomkit.ops.resize import resize_ops
    from fomkit.plan.options import choose_sizes

    return resize_ops(model.ops, choose_sizes(model, sizes), model.name)


def _frame_of_ops(table: object) -> DataFrame:
    """Return the table if it is a DataFrame of ops; raise otherwise."""
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise FomkitError("table", f"is of type {type(table).__name__}. Give a path or a DataFrame.")
    if not len(table):
        raise FomkitError("table", "has no rows. Give at least one op.")
    if table.columns.has_duplicates or not all(isinstance(name, str) for name in list[object](table.columns)):
        raise FomkitError("table", "its column names must be texts, and different. Rename them.")
    return table


@command(
    "predicting",
    arguments={"table": "OPS.csv"},
    writes={".csv": lambda found: format_as_given(found.ops, "TIMED")},
    prints=".csv",
    is_incomplete=lambda content: bool(content["unpriced"]),
    metavar={"keep": "COLUMN"},
    override_option=("--allow-uncovered", "Exit with 0 even where rows have no time."),
)
def predict(
    table: str | Path | DataFrame, machine: str | Path | Machine, *, sizes: Mapping[str, int] | None = None,
    interval: float = DEFAULT_LEVEL, keep: Sequence[str] = (),
) -> Prediction:  # fmt: skip
    """Predict the time of every op of a table on a machine.

    The table needs the columns kind, dtype and the dimensions of each kind (docs/profiles.md). Missing op, engine,
    pass_name and count get defaults, and a message says so. Your own columns are kept. The result has the same
    rows in the same order, with flop, byte, launches, least_flop, time_s, low_s, high_s, time_source, bound and
    evidence added. A row that cannot be priced has no time and is listed; the exit code is then 1.

    Parameters
    ----------
    table : path, name or DataFrame
        Table of ops, .csv or .csv.gz; or a list of ops or a model by the name of its profile, at its own sizes.
    machine : name, path or profile
    sizes : mapping, optional
        Value of a named size in the dimensions, for example seq=512.
    interval : float
        As of `fomkit.estimate`.
    keep : sequence of str
        Column of your own to keep although its name resembles one of fomkit's; may be repeated.

    Returns
    -------
    Prediction
        ``ops`` is the table with the predictions added [byte, s], ``unpriced`` lists the rows without a time, and
        ``said`` the defaults that were filled in.

    Raises
    ------
    FomkitError
        When the machine is unknown, or a column, a dimension or a value is missing or invalid.

    Examples
    --------
    >>> import pandas as pd
    >>> ops = pd.DataFrame({"kind": ["gemm"], "dtype": ["fp32"], "m": [1760], "n": [128], "k": [1760]})
    >>> found = predict(ops, "v100")
    >>> found.ops["flop"].tolist(), len(found.unpriced)
    ([792985600.0], 0)
    """
    from fomkit.plan.op_tables import predict_ops
    from fomkit.profiles.evidence import with_fits

    check_options(sizes=sizes, interval=interval)
    target = as_machine(machine)
    if isinstance(table, str | Path):
        path = str(table)
        if Path(table).suffix in ("", ".yaml", ".yml"):
            ops, sizes = _ops_of(as_model(table), sizes or {}), None
        else:
            ops = read_numbered_table(Path(table), "TIMED", keep=keep)
        if missing := [name for name in keep if name not in ops]:
            raise FomkitError(f"keep {missing[0]}", f"is not a column of {path}. Leave it out, or correct it.")
    else:
        path, ops = "table", _frame_of_ops(table)
    return predict_ops(ops, with_fits(target), sizes=sizes, interval=interval, where=path)
