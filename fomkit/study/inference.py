"""Inference as an estimate: the forward pass of a step, and a run that is one pass over some samples."""

from __future__ import annotations

from dataclasses import replace

from fomkit.errors import FomkitError
from fomkit.rollup import coverage, roll_up_run, roll_up_step
from fomkit.rollup.overheads import INPUT
from fomkit.study.estimate import Estimate, estimated_per_day
from fomkit.study.memory_of import UNKNOWN_FIT
from fomkit.workload import Data

FORWARD = "forward"
OF_TRAINING = "the forward pass of a training step: dropout and statistics of the batch are in it"


def inference_of(one: Estimate, samples: int | None = None) -> Estimate:
    """Keep the forward pass of an estimate.

    Parameters
    ----------
    one : Estimate
        Of a training step or of inference.
    samples : int, optional
        Samples of one run; without them there is a step, which is one batch, and no run.

    Raises
    ------
    FomkitError
        When nothing of the step is a forward pass.
    """
    ops = one.ops[one.ops["pass_name"].isin([FORWARD])]
    if not len(ops):
        raise FomkitError(one.model.name, "has no forward pass, so nothing is known of its inference.")
    # What an epoch pays (a checkpoint) and the input pipeline of a training batch are no part of inference.
    training = [(INPUT, "step"), *((each.name, "epoch") for each in one.machine.overheads)]
    kept = tuple(each for each in one.machine.overheads if (each.name, each.per) not in training)
    machine = replace(one.machine, overheads=kept)
    model = replace(one.model, data=Data(samples, 0, "keep"), run=replace(one.model.run, epochs=1))
    step = roll_up_step(ops, machine, one.step.level)
    run = roll_up_run(model, machine, step, one.sizes.get("batch"), "keep")
    trained = one.model.traced_with.get("mode") != "infer"
    return replace(
        one,
        model=model,
        machine=machine,
        ops=ops,
        step_time=step,
        run_time=run,
        unit_per_day=estimated_per_day(model, machine, run, one.scope, one.runs_at_once),
        coverage=coverage(ops),
        fit=UNKNOWN_FIT,
        deviations=(*one.model.caveats, *((OF_TRAINING,) if trained else ())),
    )
