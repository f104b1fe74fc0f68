"""Every figure that fomkit prints, as data: its name, unit, direction and what it means, by subject.

Estimates, convolutions by method, energy, money and carbon, what-if questions; and the metrics by which Deep500
compares benchmarks (Ben-Nun et al., IPDPS 2019, Table II). Those columns were written down after the paper and not
compared with its print.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["op", "network", "training", "distributed", "system"]
Better = Literal["lower", "higher", "none"]
Mean = Literal["arithmetic", "harmonic", "geometric", "none"]


class Metric(NamedTuple):
    """One figure.

    `name`: the end of its place in the JSON output, lists left out: ``step_s``, ``peak.byte``; ``*`` stands for a
      name in between. A value and its ends, low and high, are one figure.
    `title`: what a printed table calls it.
    `unit`: ``count``, ``ratio`` and ``share`` are plain numbers; ``mixed`` is that of the figure spoken of.
    `mean`: the one mean that may be taken over it.
    `by`: the commands that give it, separated by blanks.
    `keyed`: what its values are told apart by where it holds several, outermost first: ``machine, line``.
    """

    name: str
    title: str
    unit: str
    level: Level
    better: Better
    mean: Mean
    by: str
    doc: str
    keyed: str = ""


class PeerColumn(NamedTuple):
    """A column of Deep500's Table II: what it is, the figures here that answer it, or why there is none."""

    column: str
    what: str
    ours: tuple[str, ...] = ()
    absent: str = ""


_TRAINS = "fomkit never trains: it knows the work of a step, not what the step learns"
DEEP500: tuple[PeerColumn, ...] = (
    PeerColumn("Perf", "performance", ("step_s", "flop_per_s", "unit_per_day")),
    PeerColumn("Con", "convergence", absent=_TRAINS),
    PeerColumn("Acc", "accuracy", absent=_TRAINS),
    PeerColumn("Tim", "time", ("time_s", "step_s", "run_s")),
    PeerColumn("Cos", "cost", ("money", "money_per_million")),
    PeerColumn("Ene", "energy", ("energy_j", "wall_j")),
    PeerColumn("Util", "utilisation", ("peak_fraction",)),
    PeerColumn("Mem", "memory consumption", ("peak.byte", "roles")),
    PeerColumn("Tput", "throughput", ("sample_per_s", "unit_per_day")),
    PeerColumn("Brk", "timing breakdown", ("passes_s", "time_share")),
    PeerColumn("Sca", "strong scaling", ("speedup", "efficiency")),
    PeerColumn("Com", "communication", ("busy_s", "exposed_s")),
    PeerColumn("TTA", "time to accuracy, by the user's curve of epochs", ("to_target_s",)),
    PeerColumn("FTA", "final test accuracy", absent=_TRAINS),
    PeerColumn("Lat", "latency of inference", ("latency_s",)),
)
"""Its columns of metrics; the others (closed, open, infrastructure, operators, the fields of application) say
what a benchmark contains."""


_M = Metric
# fmt: off
OF_CONVOLUTIONS: tuple[Metric, ...] = (
    _M("least_flop", "least flop", "flop", "op", "none", "arithmetic", "explain predict",
       "arithmetic by the cheapest known algorithm, transforms included; below flop in convolutions only"),
    _M("additions", "additions", "count", "op", "lower", "arithmetic", "show",
       "additions outside the products: transforms, and sums scattered by col2im"),
    _M("multiplications", "multiplications", "count", "op", "lower", "arithmetic", "show",
       "multiplications of transforms"),
    _M("work_depth", "depth", "count", "op", "lower", "none", "show",
       "longest chain of additions and levels of transforms, with any number of processors"),
    _M("samples_at_once", "at once", "count", "op", "higher", "none", "show",
       "samples of the batch that the workspace holds at once"),
    _M("workspace_byte", "workspace", "byte", "op", "lower", "arithmetic", "show",
       "memory that a method takes besides operands and result"),
    _M("largest_workspace_byte", "largest workspace", "byte", "network", "lower", "none", "show",
       "that of the convolution with most; one would serve all"),
    _M("workspace_limit_byte", "limit", "byte", "network", "none", "none", "show",
       "most workspace that was allowed"),
    _M("products_s", "products", "s", "op", "lower", "arithmetic", "show", "multiply-adds at the engine's peak"),
    _M("transforms_s", "transforms", "s", "op", "lower", "arithmetic", "show",
       "all other arithmetic at the vector engine's peak"),
    _M("memory_s", "memory", "s", "op", "lower", "arithmetic", "show",
       "operands, result and workspace at the bandwidth"),
    _M("direct_s", "direct floor", "s", "network", "lower", "arithmetic", "show",
       "the floors of a step's convolutions by the direct method"),
    _M("best_s", "best floor", "s", "network", "lower", "arithmetic", "show",
       "the same, each by the method of the lowest floor"),
    _M("possible_in", "possible in", "count", "network", "none", "arithmetic", "show",
       "executions that a method can compute"),
    _M("best_in", "best in", "count", "network", "none", "arithmetic", "show",
       "executions of which a method is the best"),
    _M("without_time", "without a time", "count", "network", "lower", "none", "show",
       "convolutions without a predicted time"),
)
# fmt: on


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


# fmt: off
WHAT_IF: tuple[Metric, ...] = (
    _M("points", "points", "count", "system", "none", "arithmetic", "sweep", "scenarios that were estimated"),
    _M("too_large", "too large", "count", "system", "lower", "arithmetic", "sweep",
       "scenarios whose step a device's memory does not hold"),
    _M("not_checked", "not checked", "count", "system", "lower", "arithmetic", "sweep",
       "scenarios of which nobody knows whether a device's memory holds their step"),
    _M("seed", "seed", "count", "system", "none", "none", "sweep", "of the random numbers"),
    _M("varied.least", "least", "mixed", "system", "none", "none", "sweep", "lower end of what is varied"),
    _M("varied.most", "most", "mixed", "system", "none", "none", "sweep", "upper end of what is varied"),
    _M("varied.count", "values", "count", "system", "none", "none", "sweep", "values of what is varied"),
    _M("ranges", "range", "mixed", "system", "none", "none", "sweep", "least and most of a result", "column, end"),
    _M("best.point", "best", "mixed", "system", "none", "none", "sweep",
       "parameters and results of the best scenario", "column"),
    _M("front.size", "on the front", "count", "system", "none", "none", "sweep",
       "scenarios that no other betters in every objective"),
    _M("front.points", "front", "mixed", "system", "none", "none", "sweep",
       "parameters and results of those", "column"),
    # sensitivity and solve
    _M("figures", "figure", "mixed", "system", "none", "none", "sensitivity solve",
       "the figures as they are", "figure"),
    _M("setting", "value", "mixed", "system", "none", "none", "sensitivity solve", "a parameter as it is"),
    _M("elasticity", "elasticity", "ratio", "system", "none", "none", "sensitivity",
       "d ln(figure) / d ln(parameter)", "figure"),
    _M("at_half_step", "at half the step", "ratio", "system", "none", "none", "sensitivity",
       "the same of the main figure, over half the step"),
    _M("below", "below", "ratio", "system", "none", "none", "sensitivity", "the same below the value alone"),
    _M("above", "above", "ratio", "system", "none", "none", "sensitivity", "the same above the value alone"),
    _M("step", "step", "share", "system", "none", "none", "sensitivity",
       "change of a parameter that an elasticity is taken over, either way"),
    _M("plain_range", "varied by", "share", "system", "none", "none", "sensitivity",
       "change either way of a parameter that has no interval"),
    _M("varied.from", "varied", "mixed", "system", "none", "none", "sensitivity",
       "lower end of a parameter's interval"),
    _M("varied.to", "varied to", "mixed", "system", "none", "none", "sensitivity", "the higher end"),
    _M("at_low", "at the lower", "mixed", "system", "none", "none", "sensitivity",
       "the figure with a parameter at the lower end"),
    _M("at_high", "at the higher", "mixed", "system", "none", "none", "sensitivity",
       "the figure with it at the higher end"),
    _M("swing", "swing", "share", "system", "none", "none", "sensitivity",
       "difference of both over the figure as it is"),
    _M("goal.asked", "asked", "mixed", "system", "none", "none", "solve", "the value that is to be reached"),
    _M("goal.probability", "asked P", "share", "system", "none", "none", "solve",
       "with which it is to be reached"),
    _M("most_factor", "at most", "ratio", "system", "none", "none", "solve",
       "factor by which a parameter is changed at most"),
    _M("needed", "needed", "mixed", "system", "none", "none", "solve",
       "the value of a parameter with which the goal is reached"),
    _M("changes.factor", "factor", "ratio", "system", "none", "none", "solve", "that over the parameter as it is"),
    _M("tried", "tried", "mixed", "system", "none", "none", "solve",
       "the value of a parameter that comes nearest to a goal out of reach"),
    _M("then", "then", "mixed", "system", "none", "none", "solve", "the figure with a change"),
    _M("changes.probability", "P(reached)", "share", "system", "higher", "none", "solve",
       "that the goal is reached with one change"),
    _M("points.probability", "P(reached)", "share", "system", "higher", "none", "solve",
       "that the goal is reached with a combination"),
    _M("points.values", "value", "mixed", "system", "none", "none", "solve", "of a combination", "parameter"),
    _M("points.factors", "factor", "ratio", "system", "none", "none", "solve",
       "of a combination, over the parameters as they are", "parameter"),
    _M("total", "sum of |ln|", "ratio", "system", "lower", "none", "solve",
       "what a combination takes: the sum of |ln(factor)|"),
)
# fmt: on
