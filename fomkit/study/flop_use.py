"""How much of a machine's peak the ops of a trace reached, while they ran."""

from __future__ import annotations

from fomkit.costs import add_costs
from fomkit.hardware import Machine
from fomkit.predict.engines import settle_engines
from fomkit.resize import resize_ops
from fomkit.workload import ModelProfile


def say_flop_use(model: ModelProfile, machine: Machine) -> str:
    """Tell the flop utilisation of a traced model: flop / (time × peak), weighted by time.

    Ops without flop, time, or a peak for their number format and engine do not count; the share of the time that
    does is told, too.

    Parameters
    ----------
    model : ModelProfile
        With ``traced_time_s`` in its ops.
    machine : Machine
        That the trace was recorded on.
    """
    ops = add_costs(resize_ops(model.ops, model.sizes, model.name))
    ops, _ = settle_engines(ops, machine)
    peaks = {(one.dtype, one.engine): one.rate.value for one in machine.device.peaks}
    peak = ops[["dtype", "engine"]].apply(tuple, axis=1).map(peaks).astype("float64")
    time_s = (ops["traced_time_s"] * ops["count"]).astype("float64")
    counted = time_s.gt(0) & ops["flop"].gt(0) & peak.notna()
    whole_s = float(time_s.sum())
    if not counted.any() or not whole_s:
        return (
            f"flop utilisation is not known: no op has a time, flop, and a peak of {machine.name} for its format"
        )
    spent_s = float(time_s[counted].sum())
    least_s = float((ops["flop"] * ops["count"] / peak)[counted].sum())
    return (
        f"flop utilisation {least_s / spent_s:.1%} of the peaks of {machine.name}, weighted by time "
        f"({spent_s / whole_s:.0%} of it is of ops that have flop and a peak)"
    )
