"""What a training and its inference cost: money, and what is paid once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.api.profiles import as_machine, as_model
from fomkit.hardware import Machine, Scope
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import Options
from fomkit.study.asked import check_options
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    from fomkit.study.cost import Cost, Declared
    from fomkit.study.footprint import Grid


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

    Parameters
    ----------
    model, machine : name, path or profile
    price : str, optional
        With currency, date and what it is of: ``"4.56 USD/h per node, 2018-04-01"``.
    once : mapping, optional
        What a job takes once, by name: a time or a share, as text.
    to_accuracy : path, optional
        A table of epochs to a quality by batch.
    carbon, to_wall, pue : str, optional
        Of the grid: carbon per energy, chip to wall, and the building's overhead.
    infer_batch : int, optional
        Samples of one inference; default: the step's.
    batch, interval, scope
        As of `fomkit.estimate`.

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
    from fomkit.study.cost import cost as _cost
    from fomkit.study.declared import parse_grid

    check_options(batch=batch, sizes={"infer_batch": infer_batch}, interval=interval, scope=scope)
    grid, options = parse_grid(carbon, to_wall, pue), Options(batch=batch, interval=interval, scope=scope)
    declared = _declared(price, once, grid, to_accuracy, infer_batch)
    return _cost(as_model(model), as_machine(machine), options, declared)


def _declared(
    price: str | None,
    once: Mapping[str, str] | None,
    grid: Grid,
    to_accuracy: str | Path | None,
    infer_batch: int | None,
) -> Declared:
    from fomkit.profiles.epochs_table import load_epochs
    from fomkit.study.cost import Declared
    from fomkit.study.declared import parse_price
    from fomkit.study.stack import parse_once

    return Declared(
        price=parse_price(price) if price is not None else None,
        once=parse_once([f"{name}={amount}" for name, amount in (once or {}).items()]),
        grid=grid,
        epochs=load_epochs(Path(to_accuracy)) if to_accuracy is not None else None,
        infer_batch=infer_batch,
    )
