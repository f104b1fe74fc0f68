"""Steps that wait for their data."""

from __future__ import annotations

from dataclasses import replace

from fomkit.advice.case import Case
from fomkit.advice.finding import Finding, does_not_apply
from fomkit.advice.saving import saving
from fomkit.quantities import format_quantity
from fomkit.rollup.overheads import INPUT


def input_bound(case: Case) -> list[Finding]:
    """Find out whether the input pipeline is slower than the rest of the step."""
    step = case.before.step_time
    if step.input_s is None:
        return [
            does_not_apply(
                "nobody stated what the input pipeline takes; it is unknown, not 0 (overheads, named input, of "
                "the machine profile)"
            )
        ]
    known = [span.value for span in (step.device_s, step.host_launch_s) if span is not None]
    input_text, other_text = (
        format_quantity(time_s, "time_s", 3) for time_s in (step.input_s.value, max(known, default=0.0))
    )
    if step.input_s.value <= max(known):
        return [does_not_apply(f"the input takes {input_text} of a step and hides behind {other_text} of work")]
    ready = replace(
        case.machine,
        overheads=tuple(one for one in case.machine.overheads if (one.name, one.per) != (INPUT, "step")),
    )
    return [
        Finding(
            says=f"The input pipeline takes {input_text} of each step, the device and host {other_text}: the "
            "device waits for data.",
            do="Load with more workers, decode and augment on the device, or keep the data decoded and near "
            "(DataLoader(num_workers=...), tf.data prefetch).",
            sure="As sure as the stated time of the input; the saving is what is left when it hides behind the "
            "other work.",
            saving=saving(case.before, case.before.ops, ready),
            column="overheads of the machine, named input",
        )
    ]
