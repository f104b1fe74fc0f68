"""Products in fp32 on a machine that has a faster engine for a narrower format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fomkit.advice.case import Case
from fomkit.advice.evidence import evidence, seconds_of
from fomkit.advice.finding import Finding, does_not_apply
from fomkit.advice.saving import changed_rows, saving
from fomkit.dtypes import MATRIX_KINDS
from fomkit.errors import FomkitError
from fomkit.precision import choose_formats
from fomkit.quantities import format_quantity
from fomkit.study.estimate import Estimate

CANDIDATES: Mapping[str, str] = {
    "tf32": "allow tf32 products (torch.set_float32_matmul_precision('high'))",
    "bf16": "run under autocast in bfloat16 (torch.autocast, Keras: mixed_bfloat16)",
    "mixed": "run under autocast in float16 with a scaled loss (torch.autocast, GradScaler, Keras: mixed_float16)",
}
"""Precisions that frameworks train in by a switch, the one nearest to fp32 first. fp8 needs more than a switch."""

MOSTLY = 0.5
"""Share of the flop in fp32 above which a step is one of fp32."""


def _tried(case: Case, name: str, how: str) -> Finding:
    try:
        choose_formats(name, case.model.traced_with.get("framework", ""), case.machine)
    except FomkitError:
        return does_not_apply(f"nothing is known of {name} on {case.machine.name}")
    after = case.again(precision=name)
    if case.lacks_times(after):
        return does_not_apply(f"in {name} part of the step has no time")
    changed = changed_rows(case.before.ops, after.ops)[0]
    after_s = seconds_of(after.ops)[: len(case.ops)]  # the casts of weights follow the rows of the step
    products = case.ops["kind"].isin(MATRIX_KINDS).to_numpy(bool)
    runs_in = sorted(set(case.ops.loc[products, "dtype"].astype("str")))
    rows = case.ops["seconds"].notna() & (changed & products)
    has = "" if (rate := _rate(case, after)) is None else f" of {format_quantity(rate, 'flop_per_s', 3)}"
    return Finding(
        says=f"The products run in {' and '.join(runs_in)}; --precision {name} has an engine{has} here.",
        do=f"{how[0].upper()}{how[1:]}; check that the training still converges, and ask again with "
        f"--precision {name}: the other findings change with it.",
        sure=f"The whole step was estimated again: {after.formats.said}.",
        saving=saving(case.before, after.ops),
        column="dtype, engine",
        rows=evidence(case, rows, after_s),
    )


def _rate(case: Case, after: Estimate) -> float | None:
    """Give the fastest stated peak of the engines that the products run on then [flop/s]; None where none is."""
    peaks = [case.machine.device.peak(*pair) for pair in set(after.formats.matrix.values())]
    return max((peak.rate.value for peak in peaks if peak is not None), default=None)


def faster_engine(case: Case) -> list[Finding]:
    """Find a narrower number format in which the step is faster."""
    ops = case.ops
    if case.options.precision not in (None, "fp32"):
        return [does_not_apply(f"the step was asked for in {case.options.precision}")]
    wide = (ops["dtype"] == "fp32") & ops["kind"].isin(MATRIX_KINDS)
    share = case.share_of_products(wide)
    if share < MOSTLY and not case.before.formats.name.startswith("fp32"):
        return [does_not_apply(f"only {share:.0%} of the arithmetic of its products is in fp32")]
    if not case.machine.device.peaks and not len(case.machine.timings):
        return [does_not_apply("the machine states no number formats")]
    found = [_tried(case, name, how) for name, how in CANDIDATES.items()]
    best = min(
        (one.saving.ratio.value for one in found if one.saving is not None and one.state == "advice"), default=0.0
    )
    return [
        replace(one, rejected="another format saves more")
        if one.state == "advice" and one.saving is not None and one.saving.ratio.value > best
        else one
        for one in found
    ]
