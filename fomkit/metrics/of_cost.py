"""Figures of money, carbon, what is paid once, and campaigns: more of `fomkit.metrics.table`."""

from __future__ import annotations

from fomkit.metrics.metric import Metric

_M = Metric
# fmt: off
OF_COST: tuple[Metric, ...] = (
    _M("price", "price", "currency/h", "system", "lower", "none", "cost campaign show",
       "what the use of a device, a node or the system costs, in the currency that is said"),
    _M("paid_units", "paid for", "count", "system", "none", "none", "cost campaign",
       "devices, nodes or systems that are paid for, whichever the price is of"),
    _M("money", "money", "currency", "training", "lower", "arithmetic", "cost campaign",
       "what a run, a unit of work, a training to its target, or a campaign costs", "of"),
    _M("money_per_million", "money for a million", "currency", "network", "lower", "arithmetic", "cost",
       "what a million samples of inference cost"),
    _M("once_s", "once", "s", "training", "lower", "arithmetic", "cost scaling",
       "what is paid once a run, beside its epochs"),
    _M("steps_for_one_percent", "steps, 1 %", "count", "training", "lower", "none", "cost",
       "steps beside which what is paid once is 1 %"),
    _M("epochs_for_one_percent", "epochs, 1 %", "count", "training", "lower", "none", "cost",
       "epochs beside which what is paid once is 1 %"),
    _M("to_target_s", "to the target", "s", "training", "lower", "arithmetic", "cost scaling",
       "a training until a target is reached"),
    _M("epochs", "epochs", "count", "training", "lower", "arithmetic", "cost scaling",
       "epochs until a target is reached, from the user's curve"),
    _M("to_target.target", "target", "mixed", "training", "none", "none", "cost scaling",
       "value of the metric to reach"),
    _M("covers", "covers", "count", "training", "none", "none", "cost scaling",
       "least and largest batch of a curve"),
    _M("modelled", "modelled", "ratio", "system", "higher", "geometric", "cost", "speed-up over the baseline"),
    _M("claimed", "claimed", "ratio", "system", "none", "none", "cost",
       "speed-up that somebody claims of one change", "change"),
    _M("naive_product", "naive", "ratio", "system", "none", "none", "cost",
       "product of claims, as if none took from what another gains"),
    _M("wall_j", "at the wall", "J", "training", "lower", "arithmetic", "cost", "energy at the wall", "of"),
    _M("kg", "carbon", "kg", "training", "lower", "arithmetic", "cost campaign",
       "carbon dioxide equivalent of the energy at the wall", "of"),
    _M("kg_per_kwh", "grid", "kg/kWh", "system", "lower", "none", "cost campaign",
       "carbon dioxide equivalent of the grid's energy, as declared"),
    _M("to_wall", "to the wall", "ratio", "system", "lower", "none", "cost campaign",
       "energy at the wall over that of a narrower scope, as declared"),
    _M("pue", "PUE", "ratio", "system", "lower", "none", "cost campaign",
       "energy of the building over that of its machines, as declared"),
    _M("phases.runs", "runs", "count", "system", "none", "none", "campaign", "runs, or units of work, of a phase"),
    _M("no_spread.*.share", "no spread", "share", "system", "lower", "none", "campaign",
       "of a sum over phases, that of the phases whose figure states no spread"),
    _M("order_of_magnitude", "10^", "count", "system", "none", "none", "campaign",
       "power of ten of the days"),
)
# fmt: on
