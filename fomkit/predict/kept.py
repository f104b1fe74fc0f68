"""Results kept while the table they were made from is in use: profiles never change, so neither do they."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

Result = TypeVar("Result")

TABLES = 32
"""Tables whose results are kept, those used last; a machine with a short table borrows from a dozen others."""

_KEPT: OrderedDict[int, tuple[pd.DataFrame, dict[tuple[int, str], tuple[object, Any]]]] = OrderedDict()


def kept(table: pd.DataFrame, also: object, name: str, make: Callable[[], Result]) -> Result:
    """Give what was made of a table before, or make it now.

    Parameters
    ----------
    table : DataFrame
        Known by its identity; nobody may change it in place.
    also : object
        What else the result is made from, known by its identity too; None for the table alone.
    name : str
        Which of the results.
    make : function
    """
    known, results = _KEPT.setdefault(id(table), (table, {}))
    if known is not table:
        known, results = _KEPT[id(table)] = (table, {})
    _KEPT.move_to_end(id(table))
    while len(_KEPT) > TABLES:
        _KEPT.popitem(last=False)
    key = (id(also), name)
    if key not in results or results[key][0] is not also:
        results[key] = (also, make())
    result: Result = results[key][1]
    return result
