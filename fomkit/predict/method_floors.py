"""The least that a convolution takes by each method at a machine's rates, within a limit of workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from fomkit.predict.engines import settle_engines
from fomkit.predict.rates import rates
from fomkit.quantities import format_mebibyte

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Fact, Machine

    Array = NDArray[np.float64]


class _Facts(NamedTuple):
    """Rates for one op: of products, of all other arithmetic, of memory; None where unknown."""

    products: Fact | None
    others: Fact | None
    memory: Fact | None


def _facts(machine: Machine, dtype: str, engine: str) -> _Facts:
    """Find the rates: products run on the op's engine, transforms on the vector engine, else in fp32 there."""
    own = rates(machine, dtype, engine)
    vector = [rates(machine, name, "vector").flop_per_s for name in (dtype, "fp32")]
    others = own.flop_per_s if engine == "vector" else next((rate for rate in vector if rate is not None), None)
    return _Facts(own.flop_per_s, others, own.byte_per_s)


def add_workspace(methods: pd.DataFrame, batch: pd.Series[float], limit_byte: float | None) -> pd.DataFrame:
    """Add how many samples a method works on at once, and the workspace that it then takes.

    Parameters
    ----------
    methods : DataFrame
        As `fomkit.costs.method_costs` gives it.
    batch : Series
        Samples of each op, by its index.
    limit_byte : float or None
        Most that the workspace may be [byte]; None where any.

    Returns
    -------
    DataFrame
        With samples_at_once and workspace_byte [byte]. A method that does not fit for one sample is absent, with
        the reason.
    """
    samples = methods["of"].map(batch).to_numpy(np.float64)
    fixed, each = (methods[name].to_numpy(np.float64) for name in ("fixed_byte", "sample_byte"))
    room = np.inf if limit_byte is None else limit_byte - fixed
    fitting = np.where(each > 0, np.floor(np.divide(room, each, out=np.full(len(each), np.inf), where=each > 0)),
                       np.where(room >= 0, np.inf, 0.0))  # fmt: skip
    at_once = np.minimum(samples, fitting)
    left_out = (methods["absent"] == "").to_numpy() & (at_once < 1)
    absent = methods["absent"].to_numpy(object).copy()
    for place in np.flatnonzero(left_out):
        needed = format_mebibyte(float(fixed[place] + each[place]))
        absent[place] = f"more workspace than the limit for one sample: {needed} MiB"
    known = absent == ""
    return methods.assign(
        samples_at_once=np.where(known, at_once, np.nan),
        workspace_byte=np.where(known, fixed + at_once * each, np.nan),
        absent=absent,
    )


def add_floors(methods: pd.DataFrame, ops: pd.DataFrame, machine: Machine) -> pd.DataFrame:
    """Add the least time of each method.

    Products take 2 · multiply_adds / peak of the op's engine, transforms their operations / peak of the vector
    engine: one after the other on one engine, side by side on two. The memory moves the op's own byte, and what
    all samples need of workspace is written once and read once. The floor is the longer of arithmetic and memory.

    Parameters
    ----------
    methods : DataFrame
        With a workspace (`add_workspace`).
    ops : DataFrame
        COSTED rows that ``of`` names.
    machine : Machine

    Returns
    -------
    DataFrame
        With products_s, transforms_s, memory_s and floor_s [s], and ``bound``; NaN and "" where a rate is unknown
        or the method is absent.
    """
    settled, _ = settle_engines(ops, machine)
    pairs = dict.fromkeys(zip(settled["dtype"], settled["engine"], strict=True))
    facts = {pair: _facts(machine, str(pair[0]), str(pair[1])) for pair in pairs}
    found = [facts[pair] for pair in zip(settled["dtype"], settled["engine"], strict=True)]
    place = ops.index.get_indexer(pd.Index(methods["of"]))
    product, other, memory = (
        np.array([np.nan if fact is None else fact.value for fact in column])[place]
        for column in zip(*found, strict=True)
    )
    batch, byte = (ops[name].to_numpy(np.float64)[place] for name in ("batch", "byte"))
    absent = (methods["absent"] != "").to_numpy()
    more = (methods["additions"] + methods["multiplications"]).to_numpy(np.float64)
    moved = byte + 2 * (methods["fixed_byte"] + batch * methods["sample_byte"]).to_numpy(np.float64)
    products_s = 2 * methods["multiply_adds"].to_numpy(np.float64) / product
    transforms_s = np.where(more == 0, 0.0, more / other)
    memory_s = np.where(absent, np.nan, moved / memory)
    one_engine = (settled["engine"].to_numpy(object) == "vector")[place]
    compute_s = np.where(one_engine, products_s + transforms_s, np.maximum(products_s, transforms_s))
    floor_s = np.where(absent, np.nan, np.maximum(compute_s, memory_s))
    bound = np.where(np.isnan(floor_s), "", np.where(compute_s >= memory_s, "compute", "memory"))
    times = {"products_s": products_s, "transforms_s": transforms_s, "memory_s": memory_s, "floor_s": floor_s}
    return methods.assign(**{name: np.where(absent, np.nan, one) for name, one in times.items()}, bound=bound)


def best_methods(methods: pd.DataFrame, by: str) -> pd.Series[str]:
    """Name the method of the least figure for each op, the first of equal ones; "" where none is known."""
    known = methods[methods[by].notna()]
    first = known.loc[known.groupby("of", sort=False)[by].idxmin()]
    return first.set_index("of")["method"].reindex(methods["of"].unique(), fill_value="")
