"""The methods of a model's convolutions as one table, as a person asks for it in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fomkit.dtypes import Precision
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.profiles import load_machine, load_model
from fomkit.quantities import parse_quantity
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study.asked import as_name, check_options
from fomkit.study.convolutions import convolutions_content, method_rows
from fomkit.study.options import Options
from fomkit.workload import ModelProfile


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
    check_options(batch=batch, sizes=sizes, interval=interval)
    if precision is not None and machine is None:
        raise FomkitError("precision", "depends on what a machine has. Name one.")
    profile = model if isinstance(model, ModelProfile) else load_model(as_name(model, "model"))
    target = machine if isinstance(machine, Machine | None) else load_machine(as_name(machine, "machine"))
    limit = None if workspace is None else parse_quantity(workspace, "byte", "workspace", "the workspace")
    options = Options(batch=batch, interval=interval, allow_uncovered=True, sizes=sizes or {}, precision=precision)
    return pd.json_normalize(method_rows(convolutions_content(profile, options, target, limit)))
