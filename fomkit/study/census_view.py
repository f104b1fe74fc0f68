"""The layers of a model by type, for one sample, as plain content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.costs import add_costs, im2col_byte
from fomkit.resize import resize_ops, sizes_used
from fomkit.schema import check_table
from fomkit.views import layer_census
from fomkit.views.census import TYPE_COLUMNS
from fomkit.workload import ModelProfile


def census_content(model: ModelProfile, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """Count a model's layers by type, in the forward pass of one sample; None where nobody recorded the layers.

    A profile that is fixed at its batch is counted at that batch, and ``samples`` says so.

    Parameters
    ----------
    model : ModelProfile
    sizes : mapping
        The named sizes of the study; the batch among them does not count.

    Raises
    ------
    FomkitError
        When the table of layers is not one.
    """
    if model.layers is None:
        return None
    samples = 1 if "batch" in sizes_used(model.ops) else model.sizes.get("batch")
    sizes = {**model.sizes, **sizes, **({} if samples is None else {"batch": samples})}
    where = f"{model.name}, layers"
    layers = resize_ops(model.layers, sizes, where)
    check_table(layers, "LAYERS", where)
    ops = add_costs(resize_ops(model.ops, sizes, model.name))
    census = layer_census(layers, ops, im2col_byte(ops, whole_batch=True))
    total = {name: float(census.types[name].sum()) for name in TYPE_COLUMNS}
    maps = total["output_byte"] + census.input_byte
    return {
        "samples": samples,
        "types": [
            {"layer": str(name), **{column: float(row[column]) for column in TYPE_COLUMNS}}
            for name, row in census.types.iterrows()
        ],
        "total": total,
        "all_operations": total["multiply_adds"] + total["other_operations"],
        "activations": {
            "input_byte": census.input_byte,
            "feature_maps_byte": maps,
            "feature_maps_in_place_byte": maps - census.in_place_byte,
            "copies_byte": census.copy_byte,
            "with_copies_byte": maps + census.copy_byte,
        },
        "largest_im2col_byte": census.largest_im2col_byte,
        "not_counted": list(census.idle),
        "outside_layers_flop": census.elsewhere_flop,
    }
