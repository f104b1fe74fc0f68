"""Figures of energy: more of `fomkit.metrics.table`."""

from __future__ import annotations

from fomkit.metrics.metric import Metric

_M = Metric
# fmt: off
OF_ENERGY: tuple[Metric, ...] = (
    _M("energy_j", "energy", "J", "network", "lower", "arithmetic", "estimate cost campaign",
       "what a step, an epoch, a run and a unit of work take, within the scope that is said", "of"),
    _M("energy_j.terms_step", "terms", "J", "network", "lower", "arithmetic", "estimate",
       "what a step's energy is the sum of", "term"),
    _M("energy_j.step_at_most", "at most", "J", "network", "lower", "arithmetic", "estimate",
       "a step's upper bound, from the limit of a chip's power"),
    _M("energy_j.limit_w", "limit", "W", "system", "lower", "arithmetic", "estimate",
       "the most power that a chip may take, no average"),
    _M("energy_j.idle_share", "idle power", "share", "network", "lower", "none", "estimate",
       "of a step's energy that would be taken if nothing were computed"),
    _M("energy_j.process_m", "process", "m", "system", "none", "none", "estimate",
       "process node that figures per flop and byte are of"),
    _M("energy_j.devices", "devices", "count", "training", "none", "none", "estimate",
       "devices of one run, which the energy is of"),
    _M("energy.idle_w", "idle power", "W", "system", "lower", "arithmetic", "show",
       "while nothing is computed, within the scope that is said"),
    _M("energy.limit_w", "limit", "W", "system", "lower", "arithmetic", "show",
       "the most power that a chip may take, no average"),
    _M("average.power_w", "mean power", "W", "system", "lower", "arithmetic", "show", "while a workload ran"),
    _M("per_flop.joule_per_flop", "flop", "J/flop", "system", "lower", "arithmetic", "show",
       "what a flop takes besides idle power"),
    _M("energy.joule_per_byte", "byte", "J/byte", "system", "lower", "arithmetic", "show",
       "what a byte of memory traffic takes besides idle power"),
    _M("energy.process_m", "process", "m", "system", "none", "none", "show",
       "process node that figures per flop and byte are of"),
    _M("energy.devices", "devices", "count", "system", "none", "none", "show", "devices that idle power covers"),
    _M("average.devices", "devices", "count", "system", "none", "none", "show", "devices that mean power covers"),
    _M("average.batch", "batch", "count", "training", "none", "none", "show",
       "samples of a step of that workload"),
)
# fmt: on
