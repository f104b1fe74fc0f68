"""An update of many kernels where the framework has one kernel for it."""

from __future__ import annotations

from dataclasses import replace

from fomkit.advice.case import Case
from fomkit.advice.evidence import evidence, seconds_of
from fomkit.advice.finding import Finding, does_not_apply
from fomkit.advice.saving import saving

FUSED = "fused"


def unfused_update(case: Case) -> list[Finding]:
    """Find out what a fused update saves."""
    updates = case.ops["kind"] == "optimizer"
    if not updates.any():
        return [does_not_apply("the step has no update")]
    rows = updates & (case.ops["impl"] != FUSED)
    if not rows.any():
        return [does_not_apply("the update is fused already")]
    ops = case.model.ops
    model = replace(
        case.model, ops=ops.assign(impl=ops["impl"].astype("object").mask(ops["kind"] == "optimizer", FUSED))
    )
    after = case.again(model=model)
    rules = ", ".join(sorted(set(case.ops.loc[rows, "rule"].astype("str"))))
    if case.lacks_times(after):
        return [does_not_apply(f"there is no known fused update for {rules}")]
    impl = ", ".join(sorted(set(case.ops.loc[rows, "impl"].astype("str"))))
    took = case.ops.loc[rows, "seconds"].sum() / case.device_s
    words = {"foreach": "a few kernels over lists of tensors", "per_tensor": "several kernels for each tensor"}
    return [
        Finding(
            says=f"The update ({rules}) runs as {words.get(impl, impl)} and takes {took:.1%} of the device's "
            "time; one fused kernel reads and writes less.",
            do=f"Ask for it: torch.optim with fused=True. The trace's '{impl}' may be the default of the trace "
            "and not what your training does; check first.",
            sure="The update was estimated again as one kernel, by the bytes it has to move.",
            saving=saving(case.before, after.ops),
            column="impl",
            rows=evidence(case, rows, seconds_of(after.ops)[: len(case.ops)]),
        )
    ]
