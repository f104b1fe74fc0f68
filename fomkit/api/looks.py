"""A closer look: what a model or a machine is made of, what a step's time and memory rest on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fomkit.api.answer import Answer
from fomkit.api.profiles import as_machine, as_model
from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import Options
from fomkit.study.asked import as_name, check_options
from fomkit.study.model_view import COLUMNS, Measure, View, show_model
from fomkit.views import GROUPINGS, Grouping
from fomkit.workload import ModelProfile


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
        ``fomkit/explain/1``; its table has the longest ops.

    Raises
    ------
    FomkitError
        When a profile is unknown or no op has a time.

    Examples
    --------
    >>> explain("p1b3-lecture", "x86-lecture", top=1).table["time_source"].tolist()
    ['measured']
    """
    from fomkit.report.evidence import format_evidence
    from fomkit.study.evidence import explain_ops

    check_options(batch=batch, sizes=sizes, interval=interval)
    options = Options(batch, interval, allow_uncovered=True, sizes=sizes or {}, precision=precision)
    content = explain_ops(as_model(model), as_machine(machine), options, top)
    return Answer(content, content["ops"], format_evidence)


def follow_memory(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine | None = None,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Answer:
    """Follow the memory of one step, moment by moment, and tell the largest batch that fits.

    Parameters
    ----------
    model : name, path or profile
        Without the order of its ops only what stands all the time is known, and the content says so.
    machine : name, path or profile, optional
        Whose device is to hold it.
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
    >>> follow_memory("alexnet", "v100", batch=64).content["target"]["largest_batch"]
    1170
    """
    from fomkit.report.memory import format_memory
    from fomkit.study.memory_view import memory_content

    check_options(batch=batch, sizes=sizes)
    device = None if machine is None else as_machine(machine)
    content = memory_content(as_model(model), Options(batch, sizes=sizes or {}), device)
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
    from fomkit.profiles.recognise import find_profile

    if profile is None:
        return _names()
    if isinstance(profile, str | Path):
        path, what = find_profile(str(as_name(profile, "profile")))
        profile = as_model(path) if what == "model" else as_machine(path)
    if isinstance(profile, Machine):
        return _show_machine(profile)
    check_options(batch=batch, sizes=sizes)
    _check_view(by, measure, top)
    options = Options(batch, sizes=sizes or {}, precision=precision, allow_uncovered=True)
    return _show_model(profile, View(by, measure, top, depth), options, machine)


def _show_model(model: ModelProfile, view: View, options: Options, machine: str | Path | Machine | None) -> Answer:
    from fomkit.report.model_view import format_model_view, view_rows

    if options.precision is not None and machine is None:
        raise FomkitError("precision", "depends on what a machine has. Add, for example, machine='v100'.")
    content = show_model(model, view, options, None if machine is None else as_machine(machine))
    return Answer(content, view_rows(content), format_model_view)


def _check_view(by: str, measure: str | None, top: float | None) -> None:
    if by not in GROUPINGS:
        raise FomkitError("by", f"is {by!r}. Give one of {', '.join(GROUPINGS)}.")
    if measure is not None and measure not in COLUMNS:
        raise FomkitError("measure", f"is {measure!r}. Give one of {', '.join(COLUMNS)}.")
    if top is not None and not 0 < top <= 1:
        raise FomkitError("top", f"is {top!r}. Give a share above 0 and up to 1, for example 0.95.")


def _show_machine(machine: Machine) -> Answer:
    from fomkit.profiles.recognise import shipped_models
    from fomkit.report.machine_view import format_machine_view
    from fomkit.study.machine_view import show_machine

    content = show_machine(machine, [as_model(one) for one in shipped_models()])
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
    from fomkit.report.model_view import format_formulas, formula_rows
    from fomkit.study.work_formulas import formulas_content

    check_options(batch=batch, sizes=sizes)
    content = formulas_content(as_model(model), Options(batch, sizes=sizes or {}))
    return Answer(content, formula_rows(content), format_formulas)


def _names() -> Answer:
    from fomkit.profiles.recognise import list_profiles
    from fomkit.report.profile_list import format_profiles

    rows = [one._asdict() for one in list_profiles()]
    return Answer({"schema": "fomkit/show/1", "profiles": rows}, rows, lambda _content: format_profiles(rows))
