"""Rules of advice on ops: misaligned products, number formats, updates, and ops far above their floors.

Each finding lists the ops that it is about (`evidence`), and remedies by kind of op.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isnan, nan
from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.core.units import ITEM_BYTE, MATRIX_KINDS, format_quantity
from fomkit.ops.groups import identities, shape_label
from fomkit.ops.kinds import KINDS
from fomkit.ops.precision import choose_formats
from fomkit.ops.tables import TIMES
from fomkit.plan.content import as_content
from fomkit.plan.estimate import Estimate
from fomkit.plan.evidence import Near, nearest_timings, neighbour_content
from fomkit.prediction.cascade import add_times
from fomkit.prediction.estimators import Record, records
from fomkit.prediction.exact import row_major
from fomkit.whatif.advice_case import WORTH, Case, Finding, changed_rows, does_not_apply, saving

REMEDIES: Mapping[str, str] = {
    "conv": "let the library search for algorithms (torch.backends.cudnn.benchmark = True), store images "
    "channels last",
    "gemm": "make small products larger (a larger batch, several in one), use sizes that are multiples of 64",
    "rnn": "use the library's whole layer (torch.nn.LSTM) and a larger batch",
    "attention": "check that a fused kernel runs (torch.nn.functional.scaled_dot_product_attention; flash "
    "attention needs a 16-bit format)",
    "norm": "let a compiler fuse it with its neighbours (torch.compile, XLA)",
    "pointwise": "let a compiler fuse ops (torch.compile, XLA)",
    "copy": "avoid copies (contiguous, transposes, casts); let a compiler fuse the rest",
    "reduction": "let a compiler fuse it with its neighbours (torch.compile, XLA)",
    "softmax": "compute loss and softmax in one op (cross_entropy in the products' format) or in pieces",
    "pool": "store images channels last, or replace pooling by strides",
    "embedding": "use sparse gradients, or a fused embedding bag",
}

TOP = 3
"""Number of ops, and of kinds of ops, that a finding lists."""


def kinds_in_words(kinds: list[str]) -> str:
    """Write kinds as a list, the first ones only.

    >>> kinds_in_words(["conv", "norm"])
    'convolutions and normalisation'
    """
    names = [KINDS[kind].title if kind in KINDS else kind for kind in kinds[:TOP]]
    *first, last = [*names, *(["more"] if len(kinds) > TOP else [])]
    return f"{', '.join(first)} and {last}" if first else last


def seconds_of(ops: pd.DataFrame) -> NDArray[np.float64]:
    """Return the time of each row in a step [s]."""
    return (ops["time_s"] * ops["count"]).to_numpy(np.float64)


def _op_label(row: Record) -> str:
    """Write kind and sizes; for element-wise ops only the number of elements, which determines their bytes."""
    if row["kind"] == "optimizer" or isnan(float(row.get("numel", nan))):
        return shape_label(row)
    count = row["numel"]
    return f"{row['kind']} of {count:,.0f} element{'s' if count != 1 else ''}"


SlowOp = TypedDict("SlowOp", {
    "rows": list[int], "op": str, "sizes": str, "pass_name": str, "dtype": str, "engine": str, "executions": float,
    "step_time_s": float, "floor_s": float | None, "after_s": float | None, "time_source": str, "bound": str,
    "evidence": str, "nearest": list[Near],
})  # fmt: skip


def evidence(case: Case, rows: pd.Series[bool], after_s: NDArray[np.float64] | None = None) -> tuple[SlowOp, ...]:
    """Describe some rows, equal ones as one: those that change most, else the longest.

    `rows`: mask of the rows of the case's ops that the finding is about; `after_s`: time of each row of the case's
    ops in the changed step [s]. Returns a tuple, in which ops that become slower are last. ``rows`` are positions
    in the table of ops, from 0; times are of one step.
    """
    ops = case.ops if after_s is None else case.ops.assign(after_s=after_s)
    ops = ops[rows & ops["seconds"].notna()]
    if not len(ops):
        return ()
    groups = identities(ops)
    size = ops["seconds"] if after_s is None else (ops["seconds"] - ops["after_s"]).abs()
    # Ops with equal savings keep the table's order: differences of a picosecond are rounding errors.
    sums = size.groupby(groups).sum().round(12).sort_values(ascending=False, kind="stable")
    alike = [ops[groups == name] for name in sums.index[:TOP]]
    first = pd.concat([own.iloc[:1] for own in alike], ignore_index=True)
    near = nearest_timings(first, case.fitted)
    found = [
        as_content(
            SlowOp, row, rows=own.index.tolist(), sizes=_op_label(row), executions=float(own["count"].sum()),
            step_time_s=float(own["seconds"].sum()),
            floor_s=(own["floor_s"] * own["count"]).sum(skipna=False),
            after_s=None if after_s is None else own["after_s"].sum(skipna=False),
            nearest=[neighbour_content(one) for one in near.get(number, [])[:1]],
        )
        for own, (number, row) in zip(alike, records(first), strict=True)
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (one["after_s"] or 0.0) > one["step_time_s"]))  # slower ones last


EXPENSIVE = 0.10
"""Share of the device's time from which one op is expensive: a shorter one cannot save a tenth of a step."""

LOW_USE = 0.5
"""Share of the floor in an op's time up to which its use is low: at the floor it takes half the time or less."""

LONG_ENOUGH = 0.01
"""Share of the device's time from which an op of low use is considered; shorter ones are not worth advice."""

_NO_FLOOR = "the machine states no rates, so the least time is unknown"


def _device_shares(case: Case) -> pd.Series[float]:
    """Return for each row the share of the device's time of all rows equal to it."""
    return case.ops["seconds"].groupby(identities(case.ops)).transform("sum") / case.device_s


def _kinds_by_time(ops: pd.DataFrame) -> list[str]:
    return [str(kind) for kind in ops.groupby("kind")["seconds"].sum().sort_values(ascending=False).index]


def _floor_finding(case: Case, rows: pd.Series[bool], says: str) -> Finding:
    above = rows & (case.ops["floor_s"] < case.ops["time_s"])
    after = case.with_times(above, case.ops["floor_s"])
    kinds = _kinds_by_time(case.ops[above]) or _kinds_by_time(case.ops[rows])
    remedies = [f"{KINDS[kind].title}: {REMEDIES[kind]}" for kind in kinds if kind in REMEDIES]
    return Finding(
        says=says,
        do=("; ".join(remedies[:2]) or "measure them alone on the machine first") + ".",
        sure="An upper bound for the same algorithm: no library reaches the stated rates, and some of these ops "
        "may already be as fast as possible.",
        saving=saving(case.before, after),
        at_most=True,
        column="time_s against floor_s, the longer of flop / peak and byte / bandwidth",
        rows=evidence(case, rows),
    )


def expensive_ops(case: Case) -> Finding:
    """Find single ops that take much of the step."""
    if case.ops["floor_s"].isna().all():
        return does_not_apply(_NO_FLOOR)
    shares = _device_shares(case)
    rows = shares >= EXPENSIVE
    if not rows.any():
        return does_not_apply(
            f"no op takes {EXPENSIVE:.0%} of the device's time with all its executions; the longest takes "
            f"{shares.max():.1%}"
        )
    count = identities(case.ops)[rows].nunique()
    taken = case.ops.loc[rows, "seconds"].sum() / case.device_s
    what = "one op take" if count == 1 else f"{count} ops together take"
    return _floor_finding(case, rows, f"All executions of {what} {taken:.0%} of the device's time.")


def low_use(case: Case) -> Finding:
    """Find ops that take at least twice their floor at the machine's rates."""
    ops = case.ops
    if ops["floor_s"].isna().all():
        return does_not_apply(_NO_FLOOR)
    rows = (ops["floor_s"] <= LOW_USE * ops["time_s"]) & (_device_shares(case) >= LONG_ENOUGH)
    if not rows.any():
        return does_not_apply(
            f"no op of {LONG_ENOUGH:.0%} of the device's time takes {1 / LOW_USE:.0f} times its least time"
        )
    taken = ops.loc[rows, "seconds"].sum()
    use = (ops["floor_s"] * ops["count"])[rows].sum() / taken
    share = f"{use:.0%}" if use >= 0.1 else f"{use:.1%}"
    count = identities(ops)[rows].nunique()
    what = "One op runs" if count == 1 else f"{count} ops run"
    return _floor_finding(
        case,
        rows,
        f"{what} at {share} of the machine's rates and take {taken / case.device_s:.0%} of the device's "
        f"time, mostly {kinds_in_words(_kinds_by_time(ops[rows]))}.",
    )


LOAD_BYTE = 16.0
"""Size of the loads that feed matrix engines [byte] (NVIDIA, "Matrix Multiplication Background User's Guide",
requirements to use tensor cores: sizes in multiples of 16 bytes)."""

_DO = (
    "Pad them: hidden sizes, classes or the vocabulary up to the next multiple, in the model's definition. "
    "Other ops that grow with a padded size (a softmax over the vocabulary) are not counted."
)


def padded_sizes(products: pd.DataFrame) -> pd.DataFrame:
    """Return m, n and k with the stored rows padded to whole loads.

    >>> import pandas as pd
    >>> row = {"m": 4095.0, "n": 50257.0, "k": 768.0, "trans_a": 0.0, "trans_b": 0.0, "dtype": "fp16"}
    >>> padded_sizes(pd.DataFrame([row])).values.tolist()
    [[4095.0, 50264.0, 768.0]]
    """
    multiple = LOAD_BYTE / products["dtype"].astype("str").map(ITEM_BYTE).astype(float)
    turned_a, turned_b = (products[name] == 1 for name in ("trans_a", "trans_b"))
    # Which size is the length of a stored row of A (m×k), B (k×n) or the result.
    stored = {"m": turned_a, "n": turned_a | True, "k": ~turned_a | turned_b}
    whole = {name: np.ceil(products[name] / multiple) * multiple for name in stored}
    return products[[*stored]].assign(**{name: products[name].mask(stored[name], whole[name]) for name in stored})


def _misaligned(ops: pd.DataFrame) -> pd.Series[bool]:
    products = (ops["kind"] == "gemm") & (ops["engine"] == "matrix")
    found = products & False
    if products.any():
        own = ops[products]
        found[products] = (padded_sizes(own) != own[["m", "n", "k"]]).any(axis="columns")
    return found


def _misaligned_timings(case: Case, rows: pd.Series[bool]) -> int:
    """Count the timings of misaligned products in the machine's table."""
    table = case.machine.timings
    if not len(table) or "m" not in table.columns:
        return 0
    formats = set(case.ops.loc[rows, "dtype"].astype("str"))
    own = table[table["dtype"].isin(formats)].reset_index(drop=True)
    own = own[own["kind"] == "gemm"].reset_index(drop=True)
    return int(_misaligned(row_major(own)).sum()) if len(own) else 0


def _seconds_after(case: Case, after: Estimate) -> NDArray[np.float64]:
    """Return the time of each row of the case in another step [s]; NaN for casts, which may differ there."""
    found, traced = np.full(len(case.ops), np.nan), len(case.model.ops)
    found[:traced] = seconds_of(after.ops)[:traced]
    return found


def _padded(case: Case, rows: pd.Series[bool]) -> Estimate:
    fixed = case.fixed
    sizes = padded_sizes(case.ops[rows])
    ops = fixed.ops.copy()
    at = sizes.index[sizes.index < len(ops)]
    padded = row_major(ops.iloc[at])
    for name in ops.columns.intersection(["trans_a", "trans_b", "layout"]).tolist():
        ops.loc[ops.index[at], name] = padded[name].to_numpy()
    ops.loc[ops.index[at], ["m", "n", "k"]] = sizes.loc[at].to_numpy(np.float64)
    return case.again(model=replace(fixed, ops=ops), sizes={}, batch=None)


def _findings(case: Case, rows: pd.Series[bool]) -> Iterator[Finding]:
    after, timed, traced = _padded(case, rows), _misaligned_timings(case, rows), len(case.model.ops)
    after_s = _seconds_after(case, after)
    # Casts stay those of this step: they do not grow with a padded size.
    padded = pd.concat([after.ops.iloc[:traced], case.before.ops.iloc[traced:]])
    count = int(rows.sum())
    what = f"{count} products on the matrix engine have" if count > 1 else "One product on the matrix engine has"
    says = f"{what} rows whose length is not a multiple of {LOAD_BYTE:.0f} bytes."
    timed_text = (
        f"The machine's table has {timed:,} such timings" if timed else "The machine's table has no such timing"
    )
    found = Finding(
        says=says,
        do=_DO,
        sure=f"The padded products were estimated again. {timed_text}.",
        saving=saving(case.before, padded),
        column="m, n, k (with trans_a, trans_b), engine",
        rows=evidence(case, rows, after_s),
    )
    yield found
    if found.state == "advice" or timed or not len(case.machine.timings):
        return
    own = case.ops[rows].drop(columns=[*(column.name for column in TIMES), "floor_s", "seconds"], errors="ignore")
    on_vector = add_times(own.assign(engine="vector").reset_index(drop=True), case.fitted, checked=True)
    longer_s = float(np.nansum(seconds_of(on_vector))) - float(case.ops.loc[rows, "seconds"].sum())
    if longer_s > WORTH * case.before.step.value:
        more = format_quantity(longer_s, "time_s", 3)
        yield Finding(
            says=f"{says} If the library cannot run them on the matrix engine, a step takes up to {more} more "
            "than estimated.",
            do=_DO,
            sure="Unknown: the machine's table has no such timing, so they are estimated as if they were "
            "aligned. The bound assumes the vector engine, as in cuBLAS before version 11; newer versions lose "
            "less. Time one of them.",
            column=found.column,
            rows=found.rows,
        )


def misaligned(case: Case) -> Finding | list[Finding]:
    """Find products that the matrix engine cannot load whole."""
    on_engine = (case.ops["engine"] == "matrix") & (case.ops["kind"] == "gemm")
    if not on_engine.any():
        return does_not_apply("no matrix product of the step runs on a matrix engine")
    rows = _misaligned(case.ops) & case.ops["seconds"].notna()
    if not rows.any():
        return does_not_apply(f"the rows of all its products are multiples of {LOAD_BYTE:.0f} bytes")
    return list(_findings(case, rows))


CANDIDATES: Mapping[str, str] = {
    "tf32": "allow tf32 products (torch.set_float32_matmul_precision('high'))",
    "bf16": "run under autocast in bfloat16 (torch.autocast, Keras: mixed_bfloat16)",
    "mixed": "run under autocast in float16 with a scaled loss (torch.autocast, GradScaler, Keras: mixed_float16)",
}
"""Precisions in which frameworks train by a switch, the nearest to fp32 first. fp8 needs more than a switch."""

MOSTLY = 0.5
"""Share of the flop in fp32 from which on a step counts as one in fp32."""


def _in_precision(case: Case, name: str, how: str) -> Finding:
    try:
        choose_formats(name, case.model.traced_with.get("framework", ""), case.machine)
    except FomkitError:
        return does_not_apply(f"{case.machine.name} has no peak or timing in {name}")
    after = case.again(precision=name)
    if case.lacks_times(after):
        return does_not_apply(f"in {name} part of the step has no time")
    changed = changed_rows(case.before.ops, after.ops)[0]
    after_s = _seconds_after(case, after)
    products = case.ops["kind"].isin(MATRIX_KINDS).to_numpy(bool)
    runs_in = sorted(set(case.ops.loc[products, "dtype"].astype("str")))
    rows = case.ops["seconds"].notna() & (changed & products)
    peaks = (case.machine.device.peak(*pair) for pair in set(after.formats.matrix.values()))
    fastest = max((peak.rate.value for peak in peaks if peak is not None), default=None)
    has = "" if fastest is None else f" of {format_quantity(fastest, 'flop_per_s', 3)}"
    return Finding(
        says=f"The products run in {' and '.join(runs_in)}; with --precision {name} they would run on an engine"
        f"{has}.",
        do=f"{how[0].upper()}{how[1:]}; check that the training still converges, and run this again with "
        f"--precision {name}: the other findings change.",
        sure=f"The whole step was estimated again: {after.formats.message}.",
        saving=saving(case.before, after),
        column="dtype, engine",
        rows=evidence(case, rows, after_s),
    )


def faster_engine(case: Case) -> Finding | list[Finding]:
    """Find a narrower number format in which the step is faster."""
    ops = case.ops
    if case.options.precision not in (None, "fp32"):
        return does_not_apply(f"--precision {case.options.precision} is given")
    products = ops[ops["kind"].isin(MATRIX_KINDS)]
    flop, wide = (
        (products["flop"] * products["count"]).to_numpy(np.float64),
        products["dtype"].eq("fp32").to_numpy(),
    )
    share = float(np.nansum(flop[wide]) / max(np.nansum(flop), 1.0))
    if share < MOSTLY and not case.before.formats.name.startswith("fp32"):
        return does_not_apply(
            f"{f'only {share:.0%} of the arithmetic' if share else 'none'} of its products is in fp32"
        )
    if not case.machine.device.peaks and not len(case.machine.timings):
        return does_not_apply("the machine states no number formats")
    found = [_in_precision(case, name, how) for name, how in CANDIDATES.items()]
    best = min(
        (one.saving.ratio.value for one in found if one.saving is not None and one.state == "advice"), default=0.0
    )
    return [
        replace(one, rejected="another format saves more")
        if one.state == "advice" and one.saving is not None and one.saving.ratio.value > best
        else one
        for one in found
    ]


FUSED = "fused"


def unfused_update(case: Case) -> Finding:
    """Find the saving of a fused update."""
    updates = case.ops["kind"] == "optimizer"
    if not updates.any():
        return does_not_apply("the step has no update")
    rows = updates & (case.ops["impl"] != FUSED)
    if not rows.any():
        return does_not_apply("the update is fused already")
    ops = case.model.ops
    model = replace(
        case.model, ops=ops.assign(impl=ops["impl"].astype("object").mask(ops["kind"] == "optimizer", FUSED))
    )
    after = case.again(model=model)
    rules = ", ".join(sorted(set(case.ops.loc[rows, "rule"].astype("str"))))
    if case.lacks_times(after):
        return does_not_apply(f"there is no known fused update for {rules}")
    impl = ", ".join(sorted(set(case.ops.loc[rows, "impl"].astype("str"))))
    took = case.ops.loc[rows, "seconds"].sum() / case.device_s
    words = {"foreach": "a few kernels over lists of tensors", "per_tensor": "several kernels for each tensor"}
    return Finding(
        says=f"The update ({rules}) runs as {words.get(impl, impl)} and takes {took:.1%} of the device's "
        "time; one fused kernel reads and writes less.",
        do=f"Use torch.optim with fused=True. '{impl}' may be a default of the trace that differs from your "
        "training; check first.",
        sure="The update was estimated again as one kernel, from the bytes that it must move.",
        saving=saving(case.before, after),
        column="impl",
        rows=evidence(case, rows, seconds_of(after.ops)[: len(case.ops)]),
    )
