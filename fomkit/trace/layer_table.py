"""From traced layers to the LAYERS table: equal calls become one row with a count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fomkit.trace.calls import TracedOp, add_counts

if TYPE_CHECKING:
    from fomkit.trace.op_table import Row

LAYER = "layer"
"""Kind of the rows that are layers; they travel with the ops until their sizes have names."""

_OWNED = ("parameters", "parameter_byte", "bias")


def split_layers(rows: Sequence[TracedOp]) -> tuple[list[TracedOp], list[TracedOp]]:
    """Part ops and layers."""
    return [row for row in rows if row.kind != LAYER], [row for row in rows if row.kind == LAYER]


def count_layers(layers: Iterable[TracedOp]) -> list[Row]:
    """Count equal calls.

    Parameters are numbers, and the first call of a module has them; later calls add 0.

    Returns
    -------
    list of dict
        Rows of the LAYERS table in order of first execution; ``count`` is 0 for a module that was never called.
    """
    counted: dict[object, Row] = {}
    for layer in layers:
        sizes = {name: size for name, size in layer.dimensions.items() if name not in _OWNED}
        owned = {name: float(layer.dimensions[name]) for name in _OWNED}
        key = (layer.op, layer.module, tuple(sizes.items()))
        called = layer.dimensions["acts"] != "never" or layer.dimensions["output_numel"] != 0
        if key not in counted:
            counted[key] = {"layer": layer.op, "module": layer.module, "count": 0, **owned, **sizes}
        else:
            counted[key].update({name: counted[key][name] + amount for name, amount in owned.items()})
        if called:
            counted[key]["count"] = add_counts(counted[key]["count"], layer.count)
    return list(counted.values())
