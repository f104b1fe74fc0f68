"""A table of somebody else's ops on a machine: filled, sized, costed and timed, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fomkit.costs import add_costs, split_recurrent
from fomkit.errors import FomkitError, nearest_names
from fomkit.hardware import Machine
from fomkit.predict import add_times
from fomkit.predict.fresh import with_fresh
from fomkit.resize import resize_ops, sizes_used
from fomkit.rollup import coverage, device_time, uses_of
from fomkit.schema import COSTS, LINE, TIMES, check_table, column_names
from fomkit.shown import Shown
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study.content import span_content
from fomkit.study.fits import with_fits
from fomkit.study.plausible import verdict_on, without_implausible
from fomkit.tables import fill_defaults

if TYPE_CHECKING:
    import pandas as pd

_MADE = tuple(column.name for column in (*COSTS, *TIMES))
_NUMBERS = frozenset(column_names("TIMED", "number"))


@dataclass(frozen=True)
class Prediction(Shown):
    """A table of ops with their times on one machine.

    Attributes
    ----------
    ops : DataFrame
        The rows and index of the table that was given: its columns, with numbers for expressions; what it left
        unsaid; flop, byte, launches, time_s, low_s, high_s [s], time_source, bound and evidence.
    said : tuple of str
        What was filled in, kept without being read, or made anew, a line each.
    """

    ops: pd.DataFrame
    machine: Machine
    level: float
    said: tuple[str, ...]

    @property
    def unpriced(self) -> pd.DataFrame:
        """The rows without a time."""
        return self.ops[self.ops["time_s"].isna()]

    def content(self) -> dict[str, Any]:
        """Give totals as plain content: rows and time by source, their sum, and what has no time."""
        rows = self.ops.groupby("time_source").size()
        unpriced = self.unpriced
        uses = uses_of(self.machine)
        total = device_time(self.ops, self.level, uses) if len(unpriced) < len(self.ops) else None
        return {
            "target": self.machine.name,
            "interval": self.level,
            "rows": len(self.ops),
            "time_s": span_content(total),
            "sources": {
                source: {"rows": int(rows.get(source, 0)), "share": share}
                for source, share in coverage(self.ops).items()
                if source in rows.index
            },
            "unpriced": {str(kind): group.index.tolist() for kind, group in unpriced.groupby("kind")},
            "rows_are": "line" if self.ops.index.name == LINE else "row",
        }

    def summary(self) -> str:
        """Write the totals as the text that the command line prints, after a line for what was filled in."""
        return self._view.text(self)


def _floats(ops: pd.DataFrame, where: str) -> pd.DataFrame:
    """Make whole-number columns float64, in which no product overflows, and refuse what is neither."""
    columns: dict[str, pd.Series] = {}
    for name in ops.columns.intersection(list(_NUMBERS)):
        if ops[name].dtype.kind in "iub":
            columns[name] = ops[name].astype("float64")
        elif ops[name].dtype.kind not in "fOUT":
            raise FomkitError(where, f"the column {name!r} must hold numbers, it is {ops[name].dtype}.")
    return ops.assign(**columns)


def _check_sizes(ops: pd.DataFrame, sizes: Mapping[str, int], where: str) -> None:
    used = sizes_used(ops)
    if missing := sorted(used - set(sizes)):
        example = " ".join(f"--set {name}=64" for name in missing)
        raise FomkitError(where, f"its dimensions use {', '.join(missing)}. Say how large, for example {example}.")
    for name in sorted(set(sizes) - used):
        raise FomkitError(where, f"no dimension uses the size {name!r}. {nearest_names(name, used)}")


def predict_ops(
    ops: pd.DataFrame,
    machine: Machine,
    *,
    sizes: Mapping[str, int] | None = None,
    interval: float = DEFAULT_LEVEL,
    where: str = "predict_ops",
) -> Prediction:
    """Predict each op of a table on a machine.

    Parameters
    ----------
    ops : DataFrame
        At least ``kind``, ``dtype`` and the dimensions of the kinds (docs/profiles.md), as numbers or expressions
        in named sizes; `fomkit.tables.fill_defaults` says what may be left out. Other columns ride along unread.
    machine : Machine
    sizes : mapping, optional
        The value of each named size.
    interval : float
        Share of intervals that should contain the truth.
    where : str
        File or stage, for error messages.

    Raises
    ------
    FomkitError
        When a column, a dimension or a size is missing or a value cannot be.
    """
    machine = without_implausible(machine)
    names = set(column_names("OPS"))
    strangers = [name for name in ops.columns if name not in names and name not in _MADE]
    remade = [name for name in ops.columns if name in _MADE]
    filled, said = fill_defaults(_floats(ops.drop(columns=[*strangers, *remade]), where), where)
    _check_sizes(filled, sizes or {}, where)
    sized = resize_ops(filled, sizes or {}, where)
    check_table(sized, "OPS", where)
    costed = add_costs(sized)
    timed = add_times(costed, with_fits(machine), interval=interval, calls=split_recurrent(costed))
    timed = with_fresh(timed, machine.device)
    given = [name for name in ops.columns if name not in remade]
    order = [*given, *(name for name in timed.columns if name not in given)]
    if strangers:
        said = (*said, f"{', '.join(map(str, strangers))}: no column of ours; kept as it stands, not read.")
    if remade:
        said = (*said, f"{', '.join(remade)}: made anew; what the table had is replaced.")
    timed = timed.assign(**{name: ops[name] for name in strangers})[order]
    return Prediction(timed, machine, interval, (*said, *verdict_on(machine)))
