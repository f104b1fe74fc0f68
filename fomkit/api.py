"""The Python interface, as a person writes it in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.hardware import Machine, Scope
from fomkit.profiles import load_machine, load_model
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import Estimate, Options, Prediction, SuiteResult
from fomkit.study import estimate as _estimate
from fomkit.study import predict_ops as _predict_ops
from fomkit.study.asked import as_name, check_frame, check_options
from fomkit.suite import Conditions
from fomkit.workload import ModelProfile, Workload

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.advice import Advice
    from fomkit.study.cost import Cost


def machine(name: str | Path) -> Machine:
    """Load a machine profile by name (``"v100"``) or path.

    Examples
    --------
    >>> machine("titan").system_nodes
    18688
    """
    return load_machine(name)


def model(name: str | Path) -> ModelProfile:
    """Load a model profile by name (``"p1b3"``) or path.

    Examples
    --------
    >>> model("p1b3-lecture").parameters_total
    30088701
    """
    return load_model(name)


def profile(
    source: str | Path | Workload,
    *,
    mode: Literal["train", "infer"] = "train",
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    arguments: Sequence[str] | None = None,
    measure: Literal["step", "ops"] | None = None,
    threads: int | None = None,
) -> ModelProfile:
    """Trace one training step, by shapes only unless a training program is run.

    Parameters
    ----------
    source : path or Workload
        A ``model.py``, which runs in a child process; an ONNX file, which is read; or a workload made here.
    mode : str
        ``train`` for forward, backward and update, ``infer`` for the forward pass.
    batch : int, optional
        Samples in one step; default: the workload's own.
    sizes : mapping, optional
        Values of further named sizes, those that ``inputs(batch, seq=1024)`` has with a whole-number default.
    arguments : sequence of str, optional
        Where given, also empty, the file is a training program that is run with them until a step is recorded;
        its batch is its own.
    measure : str, optional
        Of a ``model.py``: time the plain ``step``, or its ``ops`` as well; it then runs for real.
    threads : int, optional
        Of the framework on the CPU while it is timed; default: as many as it takes.

    Raises
    ------
    FomkitError
        When the file fails, hangs or lacks something.
    """
    from fomkit.trace import profile_file, profile_onnx, profile_script, profile_workload
    from fomkit.trace.onnx_file import recognise_onnx

    if measure is not None and (isinstance(source, Workload) or arguments is not None):
        raise FomkitError("profile", "only a model.py is timed, in a process of its own. Give its path.")
    if arguments is not None:
        if isinstance(source, Workload) or mode != "train" or batch is not None or sizes:
            raise FomkitError(
                "profile",
                "arguments are for a training program, which decides mode, batch and sizes itself. Give its file "
                "and its arguments only.",
            )
        return profile_script(Path(source), arguments)
    if isinstance(source, Workload):
        return profile_workload(source, mode=mode, batch=batch, sizes=sizes)
    if recognise_onnx(Path(source)):
        if measure is not None:
            raise FomkitError(str(source), "is an ONNX file, which is read, not run. Give a model.py to time it.")
        return profile_onnx(Path(source), mode=mode, batch=batch, sizes=sizes)
    found = profile_file(Path(source), mode=mode, batch=batch, sizes=sizes)
    if measure is None:
        return found
    from fomkit.measure.step_energy import measure_model

    return measure_model(found, Path(source), ops=measure == "ops", threads=threads)


def estimate(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
    allow_uncovered: bool = False,
) -> Estimate:
    """Estimate one model on one machine.

    Parameters
    ----------
    model, machine : name, path or profile
    batch : int, optional
        Samples in one step; default: the profile's.
    sizes : mapping, optional
        Other named sizes of the profile, for example ``{"seq": 512}``.
    precision : str, optional
        fp32, tf32, mixed, bf16 or fp8; default: what the framework would do on the machine.
    interval : float
        Level of all intervals.
    scope : str, optional
        device, node or system; default: the narrowest that the machine states.
    allow_uncovered : bool
        Leave work without a time out; times are then lower bounds.

    Raises
    ------
    FomkitError
        When a profile is unknown or work has no time.

    Examples
    --------
    >>> one = estimate("p1b3-lecture", "x86-lecture")
    >>> round(one.step.value * 1e3, 4), one.run_time.steps_per_epoch, round(one.unit_per_day.value, 5)
    (287.2917, 8001, 1.87939)
    """
    check_options(batch=batch, sizes=sizes, interval=interval, scope=scope)
    profile = model if isinstance(model, ModelProfile) else load_model(as_name(model, "model"))
    target = machine if isinstance(machine, Machine) else load_machine(as_name(machine, "machine"))
    options = Options(
        batch=batch,
        interval=interval,
        scope=scope,
        allow_uncovered=allow_uncovered,
        sizes=sizes or {},
        precision=precision,
    )
    return _estimate(profile, target, options)


def advise(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Advice:
    """Advise what to change in a training on a machine; each change is estimated again.

    Parameters
    ----------
    model, machine : name, path or profile
    batch : int, optional
        Samples in one step; default: the profile's.
    sizes : mapping, optional
        Other named sizes of the profile, for example ``{"seq": 512}``.
    precision : str, optional
        fp32, tf32, mixed, bf16 or fp8; default: what the framework would do on the machine.
    interval : float
        Level of all intervals.

    Returns
    -------
    Advice
        Its ``findings`` are what is worth doing, ``content`` is everything, ``summary()`` the text.

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
    from fomkit.advice import advise as _advise

    check_options(batch=batch, sizes=sizes, interval=interval)
    profile = model if isinstance(model, ModelProfile) else load_model(as_name(model, "model"))
    target = machine if isinstance(machine, Machine) else load_machine(as_name(machine, "machine"))
    options = Options(batch=batch, interval=interval, sizes=sizes or {}, precision=precision)
    return _advise(profile, target, options)


def cost(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    *,
    price: str | None = None,
    once: Mapping[str, str] | None = None,
    to_accuracy: str | Path | None = None,
    carbon: str | None = None,
    to_wall: str | None = None,
    pue: str | None = None,
    infer_batch: int | None = None,
    batch: int | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
) -> Cost:
    """Tell what a training and its inference cost; texts are those of the command line (docs/cost.md).

    Returns
    -------
    Cost
        Its ``estimate``, ``run_money``, ``inference`` (an estimate too), ``to_target``; ``content`` is everything.

    Raises
    ------
    FomkitError
        When a text lacks its unit, currency, date or source, or the curve does not cover the batch.

    Examples
    --------
    >>> found = cost("p1b3-lecture", "x86-lecture", price="4.56 USD/h per node, 2018-04-01")
    >>> round(found.run_money.value, 2)  # 12.770 h
    58.23
    """
    from fomkit.profiles.epochs_table import load_epochs
    from fomkit.study.cost import Declared
    from fomkit.study.cost import cost as _cost
    from fomkit.study.declared import parse_grid, parse_price
    from fomkit.study.stack import parse_once

    check_options(batch=batch, sizes={"infer_batch": infer_batch}, interval=interval, scope=scope)
    profile = model if isinstance(model, ModelProfile) else load_model(as_name(model, "model"))
    target = machine if isinstance(machine, Machine) else load_machine(as_name(machine, "machine"))
    declared = Declared(
        price=parse_price(price) if price is not None else None,
        once=parse_once([f"{name}={amount}" for name, amount in (once or {}).items()]),
        grid=parse_grid(carbon, to_wall, pue),
        epochs=load_epochs(Path(to_accuracy)) if to_accuracy is not None else None,
        infer_batch=infer_batch,
    )
    return _cost(profile, target, Options(batch=batch, interval=interval, scope=scope), declared)


def rate_suite(
    suite: str | Path,
    target: str | Path | Machine,
    *,
    baseline: str | Path | Machine | None = None,
    proposals: Mapping[str, Conditions] | None = None,
    interval: float = DEFAULT_LEVEL,
) -> SuiteResult:
    """Rate a suite of work on a target and on its baseline.

    Parameters
    ----------
    suite : name or path
    target : name, path or profile
    baseline : name, path or profile, optional
        Default: the suite's.
    proposals : mapping, optional
        What the target does otherwise than a line fixes, by line.
    interval : float
        Level of all intervals.

    Raises
    ------
    FomkitError
        When a profile is unknown, or a machine does not state the suite's scope.

    Examples
    --------
    >>> rated = rate_suite("lecture", "a")
    >>> round(rated.merit.value.value, 6), round(rated.merit.weights["P1"], 3)
    (82.597332, 0.769)
    """
    from fomkit.profiles import load_suite
    from fomkit.study import run_suite

    check_options(interval=interval)
    lines = load_suite(suite)
    new = target if isinstance(target, Machine) else load_machine(as_name(target, "target"))
    named = baseline if baseline is not None else lines.baseline
    old = named if isinstance(named, Machine) else load_machine(as_name(named, "baseline"))
    return run_suite(lines, old, new, Options(interval=interval), load_model, proposals)


def compare_measured(
    table: str | Path = "candle-lecture",
    *,
    baseline: str | None = "p100",
    interval: float = DEFAULT_LEVEL,
) -> pd.DataFrame:
    """Put projections beside a table of measurements, one row for each model on each machine.

    Parameters
    ----------
    table : name or path
        A shipped table of measurements, or your own (docs/profiles.md).
    baseline : str, optional
        Name of the machine that ratios are to.
    interval : float
        Level of all intervals.

    Returns
    -------
    DataFrame
        model, machine, batch, quantity, basis, claim, agrees, cause, error and explained (shares), and as value,
        low and high: measured, projected [s, or 1/s], projected_ratio; ratio is the measured one.

    Raises
    ------
    FomkitError
        When the table or a model of it is unknown.
    """
    import pandas as pd

    from fomkit.compare import judge, make_cells
    from fomkit.compare.content import compare_content
    from fomkit.measurements import read_measurements
    from fomkit.profiles.locate import locate

    check_options(interval=interval)
    rows = read_measurements(locate(str(table), "measurements"))
    cells = make_cells(rows, Options(interval=interval), load_model, load_machine)
    return pd.json_normalize(compare_content(judge(cells, baseline), baseline, interval)["cells"], sep="_")


def predict_ops(
    table: str | Path | pd.DataFrame,
    machine: str | Path | Machine,
    *,
    sizes: Mapping[str, int] | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Prediction:
    """Predict each op of a table of anybody's ops.

    Parameters
    ----------
    table : path or DataFrame
        With the columns ``kind``, ``dtype`` and the dimensions of the kinds (docs/profiles.md).
    machine : name, path or profile
    sizes : mapping, optional
        The named sizes that dimensions use, for example ``{"batch": 64}``.
    interval : float
        Level of all intervals.

    Returns
    -------
    Prediction
        Its ``ops`` are the table with flop, byte, launches, least_flop, time_s, low_s, high_s [s], time_source,
        bound and evidence; ``unpriced`` are the rows without a time, ``said`` what was filled in.

    Raises
    ------
    FomkitError
        When the machine is unknown, or a column, a dimension or a value is missing or cannot be.

    Examples
    --------
    >>> import pandas as pd
    >>> ops = pd.DataFrame({"kind": ["gemm"], "dtype": ["fp32"], "m": [1760], "n": [128], "k": [1760]})
    >>> found = predict_ops(ops, "v100")
    >>> found.ops["flop"].tolist(), len(found.unpriced)
    ([792985600.0], 0)
    """
    from fomkit.tables import read_numbered_table

    check_options(sizes=sizes, interval=interval)
    target = machine if isinstance(machine, Machine) else load_machine(as_name(machine, "machine"))
    if isinstance(table, str | Path):
        path, ops = str(table), read_numbered_table(Path(table), "TIMED", keep=())
    else:
        path, ops = "table", check_frame(table)
    return _predict_ops(ops, target, sizes=sizes, interval=interval, where=path)
