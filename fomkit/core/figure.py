"""Every figure that fomkit prints, as data: its name, unit, direction and what it means, by subject.

Estimates, convolutions by method, energy, money and carbon, what-if questions; and the metrics by which Deep500
compares benchmarks (Ben-Nun et al., IPDPS 2019, Table II). Those columns were written down after the paper and not
compared with its print.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

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


def read_metrics(table: str) -> tuple[Metric, ...]:
    """Read figures, a line each, as the fields of `Metric` with ` | ` between them; an indented line goes on."""
    lines = table.strip().replace("\n    ", " ").splitlines()
    figures: list[Any] = [line.split(" | ") for line in lines if not line.startswith("#")]
    return tuple(Metric(name, title, unit, *kinds.split(), *more) for name, title, unit, kinds, *more in figures)


OF_CONVOLUTIONS: tuple[Metric, ...] = read_metrics("""
least_flop | least flop | flop | op none arithmetic | explain predict |
    arithmetic by the cheapest known algorithm, transforms included; below flop in convolutions only
additions | additions | count | op lower arithmetic | show |
    additions outside the products: transforms, and sums scattered by col2im
multiplications | multiplications | count | op lower arithmetic | show | multiplications of transforms
work_depth | depth | count | op lower none | show |
    longest chain of additions and levels of transforms, with any number of processors
samples_at_once | at once | count | op higher none | show | samples of the batch that the workspace holds at once
workspace_byte | workspace | byte | op lower arithmetic | show |
    memory that a method takes besides operands and result
largest_workspace_byte | largest workspace | byte | network lower none | show |
    that of the convolution with most; one would serve all
workspace_limit_byte | limit | byte | network none none | show | most workspace that was allowed
products_s | products | s | op lower arithmetic | show | multiply-adds at the engine's peak
transforms_s | transforms | s | op lower arithmetic | show | all other arithmetic at the vector engine's peak
memory_s | memory | s | op lower arithmetic | show | operands, result and workspace at the bandwidth
direct_s | direct floor | s | network lower arithmetic | show |
    the floors of a step's convolutions by the direct method
best_s | best floor | s | network lower arithmetic | show | the same, each by the method of the lowest floor
possible_in | possible in | count | network none arithmetic | show | executions that a method can compute
best_in | best in | count | network none arithmetic | show | executions of which a method is the best
without_time | without a time | count | network lower none | show | convolutions without a predicted time
""")

OF_COST: tuple[Metric, ...] = read_metrics("""
price | price | currency/h | system lower none | cost campaign show |
    what the use of a device, a node or the system costs, in the currency that is said
paid_units | paid for | count | system none none | cost campaign |
    devices, nodes or systems that are paid for, whichever the price is of
money | money | currency | training lower arithmetic | cost campaign |
    what a run, a unit of work, a training to its target, or a campaign costs | of
money_per_million | money for a million | currency | network lower arithmetic | cost |
    what a million samples of inference cost
once_s | once | s | training lower arithmetic | cost scaling | what is paid once a run, beside its epochs
steps_for_one_percent | steps, 1 % | count | training lower none | cost |
    steps beside which what is paid once is 1 %
epochs_for_one_percent | epochs, 1 % | count | training lower none | cost |
    epochs beside which what is paid once is 1 %
to_target_s | to the target | s | training lower arithmetic | cost scaling | a training until a target is reached
epochs | epochs | count | training lower arithmetic | cost scaling |
    epochs until a target is reached, from the user's curve
to_target.target | target | mixed | training none none | cost scaling | value of the metric to reach
covers | covers | count | training none none | cost scaling | least and largest batch of a curve
modelled | modelled | ratio | system higher geometric | cost | speed-up over the baseline
claimed | claimed | ratio | system none none | cost | speed-up that somebody claims of one change | change
naive_product | naive | ratio | system none none | cost |
    product of claims, as if none took from what another gains
wall_j | at the wall | J | training lower arithmetic | cost | energy at the wall | of
kg | carbon | kg | training lower arithmetic | cost campaign |
    carbon dioxide equivalent of the energy at the wall | of
kg_per_kwh | grid | kg/kWh | system lower none | cost campaign |
    carbon dioxide equivalent of the grid's energy, as declared
to_wall | to the wall | ratio | system lower none | cost campaign |
    energy at the wall over that of a narrower scope, as declared
pue | PUE | ratio | system lower none | cost campaign |
    energy of the building over that of its machines, as declared
phases.runs | runs | count | system none none | campaign | runs, or units of work, of a phase
no_spread.*.share | no spread | share | system lower none | campaign |
    of a sum over phases, that of the phases whose figure states no spread
order_of_magnitude | 10^ | count | system none none | campaign | power of ten of the days
""")

OF_ENERGY: tuple[Metric, ...] = read_metrics("""
energy_j | energy | J | network lower arithmetic | estimate cost campaign |
    what a step, an epoch, a run and a unit of work take, within the scope that is said | of
energy_j.terms_step | terms | J | network lower arithmetic | estimate | what a step's energy is the sum of | term
energy_j.step_at_most | at most | J | network lower arithmetic | estimate |
    a step's upper bound, from the limit of a chip's power
energy_j.limit_w | limit | W | system lower arithmetic | estimate | the most power that a chip may take, no average
energy_j.idle_share | idle power | share | network lower none | estimate |
    of a step's energy that would be taken if nothing were computed
energy_j.process_m | process | m | system none none | estimate | process node that figures per flop and byte are of
energy_j.devices | devices | count | training none none | estimate | devices of one run, which the energy is of
energy.idle_w | idle power | W | system lower arithmetic | show |
    while nothing is computed, within the scope that is said
energy.limit_w | limit | W | system lower arithmetic | show | the most power that a chip may take, no average
average.power_w | mean power | W | system lower arithmetic | show | while a workload ran
per_flop.joule_per_flop | flop | J/flop | system lower arithmetic | show | what a flop takes besides idle power
energy.joule_per_byte | byte | J/byte | system lower arithmetic | show |
    what a byte of memory traffic takes besides idle power
energy.process_m | process | m | system none none | show | process node that figures per flop and byte are of
energy.devices | devices | count | system none none | show | devices that idle power covers
average.devices | devices | count | system none none | show | devices that mean power covers
average.batch | batch | count | training none none | show | samples of a step of that workload
""")

WHAT_IF: tuple[Metric, ...] = read_metrics("""
points | points | count | system none arithmetic | sweep | scenarios that were estimated
too_large | too large | count | system lower arithmetic | sweep |
    scenarios whose step a device's memory does not hold
not_checked | not checked | count | system lower arithmetic | sweep |
    scenarios of which nobody knows whether a device's memory holds their step
seed | seed | count | system none none | sweep | of the random numbers
varied.least | least | mixed | system none none | sweep | lower end of what is varied
varied.most | most | mixed | system none none | sweep | upper end of what is varied
varied.count | values | count | system none none | sweep | values of what is varied
ranges | range | mixed | system none none | sweep | least and most of a result | column, end
best.point | best | mixed | system none none | sweep | parameters and results of the best scenario | column
front.size | on the front | count | system none none | sweep | scenarios that no other betters in every objective
front.points | front | mixed | system none none | sweep | parameters and results of those | column
# sensitivity and solve
figures | figure | mixed | system none none | sensitivity solve | the figures as they are | figure
setting | value | mixed | system none none | sensitivity solve | a parameter as it is
elasticity | elasticity | ratio | system none none | sensitivity | d ln(figure) / d ln(parameter) | figure
at_half_step | at half the step | ratio | system none none | sensitivity |
    the same of the main figure, over half the step
below | below | ratio | system none none | sensitivity | the same below the value alone
above | above | ratio | system none none | sensitivity | the same above the value alone
step | step | share | system none none | sensitivity |
    change of a parameter that an elasticity is taken over, either way
plain_range | varied by | share | system none none | sensitivity |
    change either way of a parameter that has no interval
varied.from | varied | mixed | system none none | sensitivity | lower end of a parameter's interval
varied.to | varied to | mixed | system none none | sensitivity | the higher end
at_low | at the lower | mixed | system none none | sensitivity | the figure with a parameter at the lower end
at_high | at the higher | mixed | system none none | sensitivity | the figure with it at the higher end
swing | swing | share | system none none | sensitivity | difference of both over the figure as it is
goal.asked | asked | mixed | system none none | solve | the value that is to be reached
goal.probability | asked P | share | system none none | solve | with which it is to be reached
most_factor | at most | ratio | system none none | solve | factor by which a parameter is changed at most
needed | needed | mixed | system none none | solve | the value of a parameter with which the goal is reached
changes.factor | factor | ratio | system none none | solve | that over the parameter as it is
tried | tried | mixed | system none none | solve |
    the value of a parameter that comes nearest to a goal out of reach
then | then | mixed | system none none | solve | the figure with a change
changes.probability | P(reached) | share | system higher none | solve | that the goal is reached with one change
points.probability | P(reached) | share | system higher none | solve | that the goal is reached with a combination
points.values | value | mixed | system none none | solve | of a combination | parameter
points.factors | factor | ratio | system none none | solve |
    of a combination, over the parameters as they are | parameter
total | sum of |ln| | ratio | system lower none | solve | what a combination takes: the sum of |ln(factor)|
""")
