"""The Python interface, as a person writes it in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from fomkit.hardware import Machine, Scope
from fomkit.precision import Precision
from fomkit.profiles import load_machine, load_model
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import Estimate, Options
from fomkit.study import estimate as _estimate
from fomkit.workload import ModelProfile, Workload


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
    source: str | Path | Workload, *, mode: Literal["train", "infer"] = "train", batch: int | None = None
) -> ModelProfile:
    """Trace one training step by shapes only.

    Parameters
    ----------
    source : path or Workload
        A ``model.py``, which runs in a child process, or a workload made here, which is traced here.
    mode : str
        ``train`` for forward, backward and update, ``infer`` for the forward pass.
    batch : int, optional
        Samples in one step; default: the workload's own.

    Raises
    ------
    FomkitError
        When the file fails, hangs or lacks something.
    """
    from fomkit.trace import profile_file, profile_workload

    if isinstance(source, Workload):
        return profile_workload(source, mode=mode, batch=batch)
    return profile_file(Path(source), mode=mode, batch=batch)


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
    profile = model if isinstance(model, ModelProfile) else load_model(model)
    target = machine if isinstance(machine, Machine) else load_machine(machine)
    options = Options(
        batch=batch,
        interval=interval,
        scope=scope,
        allow_uncovered=allow_uncovered,
        sizes=sizes or {},
        precision=precision,
    )
    return _estimate(profile, target, options)
