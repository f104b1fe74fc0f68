"""How long a model takes on a machine, several against a baseline, advice, times of anybody's ops."""

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
from fomkit.plan.estimate import Estimate
from fomkit.plan.op_tables import Prediction
from fomkit.plan.op_tables import predict_ops as _predict_ops
from fomkit.readers.measurements import all_measured
from fomkit.verbs.answer import check_frame, check_options, command, layout_words, options_of, spread_as
from fomkit.verbs.compare import Comparison, compare
from fomkit.verbs.profiles import as_machine, as_model

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.whatif.advice.advise import Advice


def estimate(
    model: str | Path | ModelProfile | Any, machine: str | Path | Machine, *, inputs: Any = None,
    batch: int | None = None, sizes: Mapping[str, int] | None = None, precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL, scope: Scope | None = None, last_batch: LastBatch | None = None,
    allow_uncovered: bool = False, nodes: int | Literal["fill"] | None = None,
    layout: str | Path | Sequence[str] = "", links: Sequence[str | Link] = (), node_devices: int | None = None,
) -> Estimate:  # fmt: skip
    """Estimate one model on one machine.

    Parameters
    ----------
    model, machine : name, path or profile
        A model may also be a ``model.py`` or an ONNX file, which is profiled first and kept by its content, or a
        ``torch.nn.Module`` or ``keras.Model`` in memory.
    inputs
        Of a module in memory, as `fomkit.Workload` takes them.
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
    last_batch : str, optional
        drop or keep a partial last batch; default: the profile's choice.
    allow_uncovered : bool
        Leave work without a time out; times are then lower bounds.
    nodes : int or "fill", optional
        Whole nodes of one run, whose devices share the batch: ``job`` is its step, ``ops`` are those of one
        microbatch on one device. Without a scope the system is rated, or these nodes where nobody says its own.
    layout, links, node_devices : optional
        As of `fomkit.scaling`.

    Raises
    ------
    FomkitError
        When a profile is unknown, work has no time, a layout does not divide, or a link that it needs is not
        stated.

    Examples
    --------
    >>> one = estimate("p1b3-lecture", "x86-lecture")
    >>> round(one.step.value * 1e3, 4), one.run_time.steps_per_epoch, round(one.unit_per_day.value, 5)
    (287.2917, 8001, 1.87939)
    """
    options = options_of(batch, interval, scope, last_batch, allow_uncovered, sizes, precision)
    spread = spread_as(nodes, layout_words(layout), links, node_devices)
    profile, target = as_model(model, inputs, batch), spread.on(as_machine(machine))
    return spread.estimate(profile, target, replace(options, scope=spread.scope([profile], [target], scope)))


def estimate_all(
    models: Sequence[str | Path | ModelProfile],
    machines: Sequence[str | Path | Machine],
    baseline: str | Path | Machine | None = None,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
    scope: Scope | None = None,
) -> Comparison:
    """Estimate several models on several machines at one scope, and compare them with a baseline.

    Parameters
    ----------
    models, machines : sequence of name, path or profile
    baseline : name, path or profile, optional
        The machine that ratios and figures of merit are over.
    batch, sizes, precision, interval, scope
        As of `estimate`, for all of them.

    Returns
    -------
    Comparison
        Its ``estimates`` are machine by machine, model by model; ``merits`` one for each machine where there is a
        baseline and every model says what a run is; ``summary()`` the text.

    Raises
    ------
    FomkitError
        When a profile is unknown or named twice, work has no time, or the machines share no scope.

    Examples
    --------
    >>> both = estimate_all(["p1b3", "tc1"], ["v100"], baseline="p100")
    >>> [one.model.name for one in both.estimates], sorted(both.merits[0].weights)
    (['p1b3', 'tc1'], ['p1b3', 'tc1'])
    >>> round(sum(both.merits[0].weights.values()), 12)
    1.0
    """
    options = options_of(batch, interval, scope, sizes=sizes, precision=precision)
    for what, given in (("models", models), ("machines", machines)):
        if isinstance(given, str | Path):
            raise FomkitError(what, f"is one name, {str(given)!r}. Give a list, for example [{str(given)!r}].")
    return compare(
        [as_model(model) for model in models],
        [as_machine(machine) for machine in machines],
        None if baseline is None else as_machine(baseline, "baseline"),
        options,
        measured=None if baseline is None else all_measured()[0],
    )


@command(
    "trying changes",
    shows={"tried": ("--all", "List too what was tried and rejected, and what does not apply.")},
    examples=(
        "fomkit advise resnet50 --target v100",
        "fomkit advise gpt2 --target a100-sxm --precision bf16 --batch 8 --all",
    ),
)
def advise(
    model: str | Path | ModelProfile,
    machine: str | Path | Machine,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    precision: Precision | None = None,
    interval: float = DEFAULT_LEVEL,
) -> Advice:
    """Advise what to change in a training: use of the device, memory, and the time at stake of each change.

    Each change is estimated again.

    Parameters
    ----------
    model, machine : name, path or profile
    batch, sizes, precision, interval
        As of `estimate`.

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
    from fomkit.whatif.advice.advise import advise as _advise

    options = options_of(batch, interval, sizes=sizes, precision=precision)
    return _advise(as_model(model), as_machine(machine), options)


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
    from fomkit.files.op_csv import read_numbered_table

    check_options(sizes=sizes, interval=interval)
    target = as_machine(machine)
    if isinstance(table, str | Path):
        path, ops = str(table), read_numbered_table(Path(table), "TIMED", keep=())
    else:
        path, ops = "table", check_frame(table)
    return _predict_ops(ops, target, sizes=sizes, interval=interval, where=path)
