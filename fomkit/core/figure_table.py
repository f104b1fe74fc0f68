"""Every figure that the commands give, one entry each.

Times are averaged arithmetically, rates harmonically, ratios geometrically or not at all (Smith, CACM 31(10),
1988; Fleming and Wallace, CACM 29(3), 1986). The levels are those of Deep500 (Ben-Nun et al., IPDPS 2019):
operators, networks, training, distributed training; ``system`` is what a whole machine does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fomkit.core.figure import OF_CONVOLUTIONS, OF_COST, OF_ENERGY, WHAT_IF, Metric, read_metrics

METRICS: tuple[Metric, ...] = (
    *read_metrics("""
# times
time_s | time | s | op lower arithmetic | show explain predict advise scaling |
    one execution of an op; of a group of ops, their time in a step
low_s | low | s | op lower none | predict | lower end of the interval of time_s
high_s | high | s | op lower none | predict | upper end of the interval of time_s
step_time_s | per step | s | op lower arithmetic | explain advise | all executions of an op in a step
launch_s | launch | s | op lower arithmetic | show | the host's cost of starting one kernel
traced_time_s | traced time | s | op lower arithmetic | import | one execution of an op as a trace gives it
traced_s | traced | s | op lower arithmetic | show |
    all executions of a group's ops in a step, as traced or measured
traced_share | share | share | network none none | show | of the traced time of a step
step_s | step | s | network lower arithmetic | estimate explain advise scaling cost sensitivity fom |
    one training step
baseline_step_s | baseline measured | s | network lower arithmetic | fom | a line's measured step on the baseline
rest_s | not the device's | s | network lower arithmetic | fom |
    what of a measured step the device's work does not explain
passes_s | passes | s | network lower arithmetic | estimate | one pass of a step | pass
device_s | device | s | network lower arithmetic | estimate explain advise | what a step keeps the device busy
host_launch_s | host launch | s | network lower arithmetic | estimate |
    what the host needs to start a step's kernels
input_s | input | s | network lower arithmetic | estimate | loading the data of a step
measured_step_s | measured step | s | network lower arithmetic | estimate fom | a step as somebody measured it
predicted_step_s | predicted step | s | network lower arithmetic | estimate | the same step as predicted
all_measured | step then | s | network lower none | explain | a step once the listed ops were timed exactly
latency_s | latency | s | network lower arithmetic | compare cost | one forward pass of a batch
latency_limit_s | latency limit | s | network none none | compare | what inference may take at most
epoch_s | epoch | s | training lower arithmetic | estimate cost | once through the training data
run_s | run | s | training lower arithmetic | estimate scaling cost campaign | a whole training run
validation_s | validation | s | training lower arithmetic | estimate | the validation of one epoch
start_up_s | start-up | s | training lower arithmetic | estimate | what a run needs before it trains
days | days | day | system lower arithmetic | fom campaign | a campaign on a machine | machine
# rates
flop_per_s | peak | flop/s | system higher harmonic | show advise | a device's arithmetic peak
byte_per_s | bandwidth | byte/s | system higher harmonic | show | a device's memory bandwidth
floor.compute.rate | peak | flop/s | op higher harmonic | explain | the peak that bounds an op
floor.memory.rate | bandwidth | byte/s | op higher harmonic | explain | the bandwidth that bounds an op
sample_per_s | samples/s | 1/s | network higher harmonic | compare scaling cost | samples trained or inferred
token_per_s | tokens/s | 1/s | network higher harmonic | estimate |
    tokens that one device trains on, reads or makes, of a transformer by its sizes
unit_per_day | units/day | 1/day | system higher harmonic | estimate fom advise scaling cost campaign |
    units of work that a machine does in a day | machine, line
rates | harmonic mean rate | 1/day | system higher harmonic | estimate fom |
    mean rate of the baseline and of the target | machine
lines.committed | committed units/day | 1/day | system higher harmonic | accept | the rate that a vendor committed
lines.measured | measured | 1/day | system higher harmonic | accept | the rate that was measured
# ratios
fom | FOM | ratio | system higher geometric | estimate fom sensitivity |
    figure of merit: how many times the baseline's mean rate
projected_fom | projected FOM | ratio | system higher geometric | fom |
    of the device's work alone, over calibrated lines
measured_fom | measured FOM | ratio | system higher geometric | fom |
    as measured on both machines, over these lines
foms | FOM | ratio | system higher geometric | estimate | the same, of several machines
foms.measured | measured | ratio | system higher geometric | compare |
    geometric mean of a machine's measured ratios that are claimed
foms.projected | projected | ratio | system higher geometric | compare | the same of the projected ratios
ratio | ratio | ratio | system higher geometric | estimate fom compare | how many times faster than the baseline
ratio_interval | ratio | ratio | system higher geometric | fom | the same with its interval
ratios | ratio | ratio | system higher geometric | estimate fom | the same of each line | line
projected_ratio | projected ratio | ratio | system higher geometric | compare | the same, predicted
predicted_step_ratio | predicted step ratio | ratio | network higher geometric | estimate |
    the baseline's step over the target's, predicted
other_means | other means | ratio | system higher none | estimate fom |
    what other means of the ratios would say | mean
value_with_rates_cut_to_whole_units | with whole units | ratio | system higher none | estimate fom |
    the FOM with every rate cut to whole units a day first
threshold.threshold | threshold | ratio | system none none | fom | the FOM that is asked for
factor | factor | ratio | network none geometric | estimate |
    measured baseline times predicted ratio, over the prediction
mean_factor | mean factor | ratio | network none none | compare | geometric mean of measured over projected
explained | explained | ratio | network none geometric | compare fom campaign | projected over measured time
explained_shares | explained | ratio | network none geometric | fom estimate |
    projected over measured time of a line's measured run | line
intensity | flop/byte | flop/byte | op none harmonic | show | arithmetic per byte of traffic
ridge_point | ridge | flop/byte | system none none | show |
    intensity from which the peak, not the memory, is the bound
half_width | half-width | ratio | system lower geometric | validate |
    upper end of the usual interval over its middle
distance | distance | ratio | op lower none | explain | to a timed op, in lengths of the fit
spacing | spacing | ratio | op lower none | show |
    to the nearest other timed op, in lengths of the fit: median and ninth decile
# shares and probabilities
coverage | coverage | share | network none none | estimate explain advise cost scaling |
    of the predicted time, by where it comes from | source
time_sources | time from | share | network none none | show | of a group's time, by where it comes from | source
flop_share | share | share | network none none | show | of the step's arithmetic
byte_share | share | share | network none none | show | of the step's traffic
time_share | share | share | network none none | show | of the step's time
share | share | share | op none none | explain sensitivity | of the time of a step
target.share | of the memory | share | network lower none | memory | of a device's memory that a step takes
shrinks | narrower | share | network higher none | explain sensitivity |
    by which an exact timing would narrow the step's interval
near_flop_share | of flop | share | network higher none | show |
    of the reference ops' arithmetic that is near a timed op
modelled_share | modelled | share | training lower none | accept |
    of a measured run that is predicted: validation and overheads
weights | weight | share | system none none | estimate fom | of the FOM that a line carries | line
weight | weight | share | system none none | fom | of the FOM that this line carries
availability | availability | share | system higher none | show | of the time that a machine is up
probability | P(reached) | share | system higher none | fom accept solve |
    that a threshold or a committed rate is reached
interval | interval | share | system none none | estimate explain fom show compare validate accept advise scaling
    cost campaign sweep sensitivity solve | level of the intervals: how often they hold
level_of_rows | interval | share | system none none | estimate | level of the intervals of measurements
# errors and what they are judged by
difference | difference | share | system higher none | accept | measured over committed rate, less 1
error | error | share | network none arithmetic | compare validate | projected over measured or published, less 1
mean_error | mean error | share | network lower arithmetic | compare | mean of errors without sign
median | median | share | system lower none | show validate | median error without sign
mean | mean | share | system lower arithmetic | show validate | mean error without sign
bias | bias | share | system none none | validate | median error with sign
lines.total | total | share | system none none | validate | error of the sum of all times
hit_rate | hits | share | system none none | show validate | of intervals that contain the truth
hit_rates | hits | share | system none none | validate | the same at other levels | level
brier | Brier score | ratio | system lower none | validate |
    squared difference between the chance of reaching a threshold and what came true | threshold over the truth
wrong_verdicts | wrong verdicts | share | system lower none | validate |
    of values alone, held against the same thresholds | threshold over the truth
medians | medians | share | system lower none | validate | of each sheet, machine or table | table
headlines | found | mixed | system none none | validate | a figure of the short answer
headlines.target | target | mixed | system none none | validate | range that it shall be in
history.figures | earlier | mixed | system none none | validate | a figure of an earlier version | headline
interval_score | score | ratio | system lower none | validate |
    interval score of log times: width and misses together (Gneiting and Raftery 2007)
constant_score | constant | ratio | system lower none | validate |
    the score of one width for all, tuned on the truth
peers | peers | share | system lower none | validate | median and mean error of other tools on the same rows | tool
aims.target | target | mixed | system none none | validate | range that the figure shall be in
aims.tolerance | tolerance | mixed | system none none | validate | range outside which a change is a regression
aims | found | mixed | system none none | validate | the figure as found
# work and memory
flop | flop | flop | op none arithmetic | show explain predict advise | arithmetic; a fused multiply-add is 2
byte | byte | byte | op none arithmetic | show explain predict | compulsory device-memory traffic
"""),
    *OF_CONVOLUTIONS,
    *read_metrics("""
launches | launches | count | op none arithmetic | explain predict | kernels that the host starts
outside_layers_flop | outside layers | flop | network none arithmetic | show |
    arithmetic of ops that are no layer's
multiply_adds | multiply-adds | count | network none arithmetic | show | multiplications with an addition, forward
other_operations | other ops | count | network none arithmetic | show | other arithmetic, forward
all_operations | operations | count | network none arithmetic | show | both together
parameters | parameters | count | network none arithmetic | show | learned numbers of a layer type
parameters.total | parameters | count | network none arithmetic | show | learned numbers
parameters.trainable | trainable | count | network none arithmetic | show | those that are trained
parameter_byte | weights | byte | network none arithmetic | show memory | bytes of parameters
output_byte | outputs | byte | network none arithmetic | show | outputs of a layer type
input_byte | data | byte | network none arithmetic | show memory | the data of the samples
im2col_byte | im2col | byte | network none arithmetic | show memory |
    patches of convolutions written as plain products
largest_im2col_byte | largest im2col | byte | network none none | show memory | those of the layer with most
feature_maps_byte | feature maps | byte | network lower arithmetic | show memory | data and outputs of all layers
feature_maps_in_place_byte | feature maps in place | byte | network lower arithmetic | show memory |
    less those that take their input's place
copies_byte | copies | byte | network lower arithmetic | show memory |
    one copy for each reader of what several layers read
with_copies_byte | activations | byte | network lower arithmetic | show memory | feature maps and copies
totals | whole step | byte | network lower arithmetic | memory | all memory made for a purpose in a step | role
roles | by role | byte | network lower arithmetic | memory | memory in use, by purpose | role
peak.byte | peak | byte | network lower arithmetic | memory | most memory in use in a step
passes.*.byte | peak of a pass | byte | network lower arithmetic | memory | most memory in use in a pass
modules.byte | at the peak | byte | network lower arithmetic | memory | a module's memory at the peak
live.byte | in use | byte | network lower arithmetic | memory | memory in use at a moment
capacity_byte | capacity | byte | system higher arithmetic | show memory advise scaling | a device's memory
largest_batch | largest batch | count | network higher none | memory | most samples of a step that fit a device
stake.time_s | at stake | s | network higher none | advise | what a change saves of each step
stake.share | at stake | share | network higher none | advise | of each step
stake.unit_per_day | at stake | 1/day | system higher none | advise | units/day more
stake.probability | P(saves) | share | network higher none | advise | that it saves time at all
after_s | then | s | op lower arithmetic | advise | all executions of an op in the changed step
floor_s | least | s | op lower arithmetic | advise show | at the machine's stated rates
at_peak_s | at peak | s | network lower arithmetic | advise | the step's products at the stated peak
least.device_s | least | s | network lower arithmetic | advise | the device's time at the machine's stated rates
least.share_of_device | can be saved | share | network lower none | advise |
    of the device's time, above the stated rates
least.share_without_bound | without a bound | share | network none none | advise |
    of the device's time, in ops that beat the stated rates or have none
peak_fraction | of the peak | share | network higher none | advise |
    arithmetic of the products beside what the engines could do in the step
use.bounds | bound by | share | network none none | advise | of the device's time | bound
memory.roles | by role | byte | network lower arithmetic | advise | at the peak | role
peak_byte | peak | byte | network lower arithmetic | advise scaling | most memory in use in a step
structures.byte | at the peak | byte | network lower arithmetic | advise | memory of layers of one pattern
structures.modules | layers | count | network none none | advise | layers of one pattern
nearest.distance | distance | ratio | op lower none | advise | to a timed op, in lengths of the fit
best | best | count | network none none | advise | place in the list of the best opportunity
ops.rows | rows | count | op none none | advise | rows of the op table
# distributed training
compute_s | compute | s | distributed lower arithmetic | scaling |
    what the busiest device calculates in a step, its host and data with it
busy_s | link busy | s | distributed lower arithmetic | scaling | what a device's links are busy in a step
exposed_s | exposed | s | distributed lower arithmetic | scaling | what nothing hides of that
bubble_s | bubble | s | distributed lower arithmetic | scaling | what a device waits for other stages of a pipeline
speedup | speed-up | ratio | distributed higher geometric | scaling | samples a second over those of the reference
gain | gain | share | distributed higher none | scaling | speed-up less 1; may be negative
efficiency | efficiency | share | distributed higher none | scaling | speed-up over what as many devices could give
losses | lost | share | distributed lower none | scaling | of the step, that the ideal would not have | cause
sent_byte | sent | byte | distributed lower arithmetic | scaling | bytes that a device sends in a step | purpose
gradient_byte | gradients | byte | distributed none arithmetic | scaling | gradients that replicas add up
needed_byte_per_s | needs | byte/s | distributed lower none | scaling |
    bandwidth of each device above which replicas gain anything
alpha_s | alpha | s | distributed lower none | scaling | start-up of a message on a link
links.byte_per_s | bandwidth | byte/s | distributed higher none | scaling | of a link
serialise_byte_per_s | packing | byte/s | distributed higher none | scaling |
    rate at which a host packs messages for a link
layout | layout | count | distributed none none | scaling sensitivity |
    how a training is spread over devices | name
nodes | nodes | count | distributed none none | scaling sensitivity | nodes that a job occupies
devices | devices | count | distributed none none | scaling | devices that a job occupies
replicas | replicas | count | distributed none none | scaling | copies of the model
microbatches | microbatches | count | distributed none none | scaling | microbatches of a replica's step
once_share | once a job | share | system lower none | scaling cost | of a job's time, by what is paid once a job
times | times as long | ratio | system none none | scaling | a job's work beside that of today
times_for_one_percent | 1 % at | ratio | system lower none | scaling cost |
    times as long a job must be for what is paid once to be 1 %
useful_share | useful | share | system higher none | scaling | of the time, less checkpoints and what failures undo
mtbf_s | between failures | s | system higher none | scaling | mean time between failures of a job
checkpoint_interval_s | checkpoint every | s | system none none | scaling | work between two checkpoints
"""),
    *OF_ENERGY,
    # counts
    *read_metrics("""
batch | batch | count | training none none | estimate compare scaling cost | samples of one step
sizes | sizes | count | network none none | estimate explain show memory advise cost sweep sensitivity solve |
    what the dimensions were resolved at; of timings, their range | size
measured_lines | lines measured | count | system none none | fom |
    calibrated lines that were measured on the target
calibrated.inside | inside | count | system higher none | fom |
    of these, those whose measured step lies in the calibrated interval
fixed | fixed | count | training none none | fom | what a line of a suite fixes | condition
dimensions | sizes | count | op none none | explain | sizes of an op | dimension
measurements.line | sizes | count | op none none | explain sensitivity | the op as a row of a table | column
count | count | count | op none arithmetic | show explain | executions in a step
executions | count | count | op none arithmetic | explain advise sensitivity |
    executions in a step, of passes together
distinct_ops | distinct | count | network none arithmetic | show | ops that differ in sizes
missing | missing | count | network lower arithmetic | show | ops of which this is unknown | amount
depth | depth | count | network none none | show | level of a module
layers | layers | count | network none arithmetic | show | layers of a type
samples | samples | count | network none none | show memory | samples of a census of layers
ops | ops | count | network none arithmetic | show explain | timed ops, or ops not listed
modules | modules | count | network none none | explain | modules that run an op
rows | rows | count | system higher arithmetic | show | rows of timings
rows_of_one_op | rows of one op | count | system none arithmetic | show | rows that stand for one op only
corrected | corrected | count | system none arithmetic | show | rows with a note
reference | reference | count | system none none | show | distinct ops of the shipped models
near | near | count | system higher none | show | those near a timed op
outside | beyond | count | system lower none | show | those beyond the range of a size | size
source_row | row | count | op none none | explain advise | line of the file that a timing is from
id | moment | count | network none none | memory | executed op, counted from 1
steps_per_epoch | steps/epoch | count | training none none | estimate scaling | steps of one epoch
runs_at_once | runs at once | count | system higher none | estimate scaling cost | runs that fit side by side
runs_per_unit | runs per unit | count | system none none | fom | runs of one unit of work
units | units | count | system none none | fom | units of work of a campaign
version | version | count | system none none | fom accept | of the suite
node_devices | devices in a node | count | system none none | show scaling | devices of one node
system_nodes | nodes | count | system none none | show | nodes of the machine
rows_of_others | rows of others | count | system none none | estimate | measurements of other models or machines
repeats | repeats | count | network none none | estimate show | times that it was measured
cases | cases | count | system none none | validate | predictions that are scored
not_scored.count | not scored | count | system lower none | validate | rows that could not be scored
foms.count | cells | count | network none none | compare | those that a mean is of
summary.*.count | cells | count | network none none | compare | cells of one claim
summary.*.inside | inside | count | network higher none | compare | those inside their interval
# a step that was timed here
median_s | median | s | network lower none | show | middle of the repeats of a timed step
p10_s | p10 | s | network lower none | show | a tenth of the repeats took less
p25_s | p25 | s | network lower none | show | a quarter of the repeats took less
p75_s | p75 | s | network lower none | show | a quarter of the repeats took more
p90_s | p90 | s | network lower none | show | a tenth of the repeats took more
step.*.low_s | low | s | network lower none | show | lower end of the median's 95 % interval
step.*.high_s | high | s | network lower none | show | upper end of that interval
joined_s | in rows | s | network none none | show | profiled time of a step in rows
profiler_overhead | profiler | share | network lower none | show | what the profiler adds to the plain step
profiler_overhead_low | profiler | share | network lower none | show |
    the least that it may add, by the intervals of both medians
profiler_overhead_high | profiler | share | network lower none | show | the most that it may add
scaled_by | divided by | ratio | network none none | show |
    what times of ops were divided by, on a processor that was shared
ops_share_of_step | ops | share | network none none | show | profiled time of all ops over the plain step
joined_share_of_ops | in rows | share | network higher none | show | of the ops' profiled time, that in rows
threads | threads | count | system none none | show | of the framework on the CPU
warm_up | warm-up | count | network none none | show | steps that ran before the timed ones
load_start | load | count | system lower none | show | processes waiting for the processor before
load_end | load after | count | system lower none | show | the same afterwards
energy.value_j | energy | J | network lower arithmetic | show | energy of a timed step
energy.low_j | low | J | network lower none | show | lower end of it, by the instrument
energy.high_j | high | J | network lower none | show | upper end of it, by the instrument
timed_share | measured or interpolated | share | network higher none | measure |
    of a model's predicted step time, or of a plan's ops, that rests on timings now
enough_share | enough | share | network none none | measure | share that is sufficient
wanted_ops | ops | count | op none none | measure | ops that were to be timed
timed_ops | timed | count | op higher none | measure | those of them that have a time
measuring_s | took | s | system lower none | measure | a measurement, by the clock that times its ops
measuring_wall_s | by the wall | s | system lower none | measure | the same by the wall
budget_s | budget | s | system none none | measure | what it may take by the former clock
# figures in the unit of the quantity that they are of
cells.measured | measured | mixed | network none none | compare | the quantity as measured
cells.projected | projected | mixed | network none none | compare | the quantity as predicted
published | published | mixed | network none none | validate | a figure as published
published.projected | projected | mixed | network none none | validate | the same predicted
calibrated | calibrated | mixed | network none none | compare | the prediction times another model's factor
with_host_term | with host term | mixed | network none none | compare |
    the prediction and a host's term from elsewhere
used | measurement | mixed | network none none | estimate | a row of measurements that counts
set_aside | measurement | mixed | network none none | estimate | a row that does not count
old | old | mixed | system none none | review | figure of the issued workbook
new | new | mixed | system none none | review | figure of the returned workbook
change | change | share | system none none | review | of a headline, by one change or by all
old_low | old, low | mixed | system none none | review | lower end of a headline as issued
old_high | old, high | mixed | system none none | review | upper end of a headline as issued
new_low | new, low | mixed | system none none | review | lower end of it as returned
new_high | new, high | mixed | system none none | review | upper end of it as returned
old_probability | P, old | share | system higher none | review | that the FOM as issued reaches the threshold
new_probability | P, new | share | system higher none | review | that the FOM as returned reaches the threshold
threshold | threshold | ratio | system none none | review | the FOM that the suite asks for
groups.count | cells | count | system none none | review | changed cells of a column
factor_low | least factor | ratio | system none none | review | new over old figure of a column, the least
factor_high | greatest factor | ratio | system none none | review | new over old figure of a column, the greatest
groups.basis.count | cells | count | system none none | review | cells whose basis became so
groups.party.count | cells | count | system none none | review | cells whose party became so
"""),
    *OF_COST,
    *WHAT_IF,
)


def title_of(name: str) -> str:
    """Give what a printed table calls a figure.

    >>> title_of("unit_per_day")
    'units/day'
    """
    return next(metric.title for metric in METRICS if metric.name == name)


def find_metric(path: Sequence[str], verb: str) -> Metric | None:
    """Find what a figure of a verb's JSON is: the metric with the longest name that fits; None where it is none.

    `path`: its place, lists and the ends of a span left out.

    >>> find_metric(["models", "terms", "passes_s", "forward"], "estimate").unit
    's'
    >>> find_metric(["models", "lucky_number"], "estimate")
    """
    fitting = [metric for metric in METRICS if verb in metric.by.split() and _names_place(metric, path)]
    return max(fitting, key=lambda one: one.name.count("."), default=None)


def _names_place(metric: Metric, path: Sequence[str]) -> bool:
    names = metric.name.split(".")
    keys = len(metric.keyed.split(", ")) if metric.keyed else 0
    for depth in range(keys + 1):
        end = list(path[: len(path) - depth])[-len(names) :]
        if len(end) == len(names) and all(a in ("*", b) for a, b in zip(names, end, strict=True)):
            return True
    return False


def upper_bounds(excludes: Iterable[str], of: str = "units/day") -> str:
    """Say what figures are because of terms that nobody stated; "" without such terms.

    >>> upper_bounds(["input", "start_up"])
    'units/day are upper bounds, nobody stated: input, start_up'
    """
    terms = ", ".join(excludes)
    return f"{of} are upper bounds, nobody stated: {terms}" if terms else ""
