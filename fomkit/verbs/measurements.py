"""Measurements of whole models: beside projections, from records of others and into them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Machine
from fomkit.core.model import LastBatch, ModelProfile
from fomkit.profiles.locate import locate
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.measurements import read_measurements
from fomkit.verbs.answer import Answer, options_of
from fomkit.verbs.compare import Comparison, estimates_content
from fomkit.verbs.from_measurements import from_measurements, measured_content
from fomkit.verbs.profiles import as_machine, as_model

if TYPE_CHECKING:
    import pandas as pd


def compare_measured(
    table: str | Path = "candle-lecture", *, baseline: str | None = "p100", interval: float = DEFAULT_LEVEL
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

    from fomkit.validation.cells import make_cells
    from fomkit.validation.grid import compare_content
    from fomkit.validation.verdicts import cell_verdicts

    options = options_of(interval=interval)
    rows = read_measurements(locate(str(table), "measurements"))
    cells = make_cells(rows, options, load_model, load_machine)
    return pd.json_normalize(compare_content(cell_verdicts(cells, baseline), baseline, interval)["cells"], sep="_")


def project_measured(comparison: Comparison, table: str | Path, *, last_batch: LastBatch | None = None) -> Answer:
    """Tell a comparison a second time: what was measured on its baseline times the predicted ratio.

    Parameters
    ----------
    comparison : Comparison
        What `fomkit.estimate_all` gave, with a baseline.
    table : name or path
        Measurements of the baseline.
    last_batch : str, optional
        drop or keep a partial last batch; default: the profiles' choice.

    Returns
    -------
    Answer
        ``fomkit/estimate/1`` with ``from_measurements``: both ways, the factor between them and whether they
        agree; its table has the models.

    Raises
    ------
    FomkitError
        When there is no baseline, or no row is a measurement of any of its estimates.
    """
    from fomkit.output.estimates import format_from_measurements, with_ways

    rows = read_measurements(locate(str(table), "measurements"))
    block = measured_content(from_measurements(comparison, rows, str(table), last_batch), str(table))
    content = estimates_content(comparison, block)
    return Answer(content, with_ways(content), lambda whole: format_from_measurements(whole["from_measurements"]))


def compare_rates(
    models: Sequence[str | Path | ModelProfile],
    machines: Sequence[str | Path | Machine],
    *,
    latency_s: float = 0.007,
    interval: float = DEFAULT_LEVEL,
) -> pd.DataFrame:
    """Give rates of models on machines, in training and in inference within a latency.

    Parameters
    ----------
    models, machines : sequence of name, path or profile
    latency_s : float
        Most that one forward pass of a batch may take [s].
    interval : float
        Level of all intervals.

    Returns
    -------
    DataFrame
        A row for each model, machine and mode, as ``fomkit compare --grid -o FILE.csv`` writes it.

    Raises
    ------
    FomkitError
        When a profile is unknown, or the limit is no time.
    """
    from fomkit.output.files import to_frame
    from fomkit.validation.grid import grid_content, make_grid

    options = options_of(interval=interval)
    if not 0 < latency_s < float("inf"):
        raise FomkitError("latency_s", f"is {latency_s!r}. Give seconds above 0, for example 0.007.")
    profiles, targets = [as_model(model) for model in models], [as_machine(machine) for machine in machines]
    cells = make_grid(profiles, targets, (), options, latency_s)
    return to_frame(grid_content(cells, interval, latency_s)["cells"])
