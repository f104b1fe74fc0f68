"""Fit the surfaces of typical utilisation, max(flop / peak, byte / bandwidth) / time, to all shipped tables.

``python benchmarks/usual_utilisation.py`` rewrites ``machine_profiles/usual_utilisation/``. A surface is a
Gaussian-process fit of ln(utilisation) to one machine's timings of one work, a kind (or part of a kind) of ops.
The rules are the same for every machine that states architecture, peak and bandwidth; floor is that numerator:

- utilisation = floor / (time − harness − visible part of the launch); at most half of the time is subtracted for
  the launch, which estimates add again;
- each machine and work has at most `MOST` timings, half of them as far apart as possible, half evenly spaced by
  their floor (products in tiles are drawn at random); no surface is made from fewer than `FEWEST` timings, or
  `FEWEST_THIN` for products with a vector;
- products with one row or column are also a work of their own, for any engine, from `SHORTEST_S` on;
- the peak is the one that a power limit lets a machine hold (`fomkit.prediction.rates.throttled`);
- timings by a library that no framework calls (`APART`) are used only for chips of the same series (`OF_SERIES`);
- attention over windows, and by the library that serving chooses for some widths only, is left out (`by_choice`);
- a machine whose file names another's device is that device and has no surfaces of its own;
- kinds without timings move data: for them there is a table of all timed kinds that do, each with as many rows;
- products of matrix engines that were timed without host time (`DEVICE_ALONE`), and products of vector units that
  are not thin, are also compared with the form of `fomkit.prediction.tiles`, if the profile states processors and
  cache: the form is fitted to the machine's own table, shrunk towards `Form`'s defaults, and utilisation is
  form / time; few rows are stored for other chips (`TILED`), many, of matrix engines, for other boards of the same
  chip (`TWINS`);
- the length of a feature is `REACH` standard deviations over all machines;
- each surface is predicted from those of other chips, for products and convolutions mostly of near generations
  (``generations.csv``), and the residuals are stored with it, for intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.machine import Machine
from fomkit.core.measurement import Surface, kind_of_work, on_series
from fomkit.ops.pricing import add_costs
from fomkit.prediction.estimators import is_in
from fomkit.prediction.exact import row_major
from fomkit.prediction.gp import FEATURE_DIGITS, side_by_side, surface_rows, weights_of
from fomkit.prediction.rates import SHOWN, balance_of, op_seconds, throttled
from fomkit.prediction.tiles import (
    DECODE,
    LATENT,
    TILED,
    TWINS,
    WINDOW,
    Chip,
    Form,
    Tiled,
    attention_parts,
    by_parts,
    chip_of,
    fit_form,
    log_time_over_floor,
    of_width,
    thinness,
    tile_seconds,
    tiled,
    weighed_by_rows,
)
from fomkit.prediction.typical import (
    BY_PASS,
    FEATURES,
    MATVEC,
    OF_LIBRARIES,
    OF_OTHER_SIZES,
    SHORTEST_S,
    median_and_spread,
    similarity,
)
from fomkit.profiles.evidence import (
    FOLDER,
    GENERATIONS,
    OP_COLUMNS,
    OPS,
    SURFACE_COLUMNS,
    SURFACES,
    read_generations,
)
from fomkit.profiles.machines import load_machine
from fomkit.readers.tables.aiconfigurator import HARNESS

MOST = {"gemm": 150, "tiles": 150, "twins": 1000, "conv": 48, "pointwise": 30, "matvec": 12,
        "attention": 150, "decode": 150, "full": 150}  # fmt: skip
OTHERS, MOST_OF_SERIES = 36, 124
MOVING = ("norm", "pointwise", "softmax")
APART = (
    "trtllm_mha", "sglang_flashinfer_trtllm_moe", "sglang_flashinfer_cutedsl_nvfp4",
    "sglang_deepgemm_gemm_nt_f8f8bf16",
)  # fmt: skip
"""Libraries that no framework calls: the utilisation of B200's attention by TensorRT-LLM does not predict other
machines' FlashAttention. With its rows, the median error of attention on left-out chips is 37 % instead of 30.
Serving engines use them on all chips of a series: rows of the kinds `OF_SERIES` predict these chips alone.
Products in nvfp4 are those of one serving engine on two boards of one chip."""
BLOCK_SCALED = "fp8_block"
"""Format of kernels that scale sums by blocks: 1.1 times as quick as fp8's on H100 and H200 and 0.7 times on B200
and GB200, so that they do not predict each other."""
OF_SERIES = ("attention", "experts")
SISTERS = ("gb200",)
"""Machines with the chip of another machine here under another power limit: except for products in tiles, which
select the machines they use, their surfaces would count the same data twice."""
DEVICE_ALONE = (HARNESS,)
FEWEST, FEWEST_THIN, REACH, SAMPLE_ROWS = 20, 4, 2.0, 200
PROBABILITIES = (np.arange(20) + 0.5) / 20
ROOT = Path(__file__).parent.parent
TARGET = ROOT / "machine_profiles" / FOLDER


class Table(NamedTuple):
    """Timings of one machine for one work and number format, as features and ln(utilisation).

    `products`, `chip`, `form`: only for products in tiles.
    """

    machine: Machine
    dtype: str
    engine: str
    features: np.ndarray
    reached: np.ndarray
    products: Tiled | None = None
    chip: Chip | None = None
    form: Form | tuple[()] = ()


def in_tiles(machine: Machine, costed: pd.DataFrame) -> Iterator[Table]:
    """Yield the tables of products whose utilisation is relative to the tile form."""
    alone = (costed["engine"] == "matrix") & is_in(costed, "harness", *DEVICE_ALONE)
    broad = (costed["engine"] == "vector") & (thinness(costed) == 0)
    rows = costed[(costed["kind"] == "gemm") & (alone | broad)]
    for (engine, dtype), timed in rows.groupby(["engine", "dtype"], sort=True):
        peak = machine.device.peak(dtype, engine)
        chip = chip_of(machine.device, peak.rate.value, machine.device.byte_per_s.value) if peak else None
        if chip is None or len(timed) < FEWEST:
            continue
        products, time_s = tiled(timed, chip), timed["own_s"].to_numpy()
        form = fit_form(products, chip, time_s)
        features = np.rint(products.features * FEATURE_DIGITS) / FEATURE_DIGITS
        reached = np.log(tile_seconds(form, products, chip) / time_s)
        yield Table(machine, dtype, engine, features, reached, products, chip, form)


def machines() -> Iterator[Machine]:
    for path in sorted((ROOT / "machine_profiles").glob("*.yaml")):
        machine = throttled(load_machine(path))
        own = not machine.device_of
        if own and machine.device.architecture and machine.device.byte_per_s is not None and len(machine.timings):
            yield machine


def traffic(timings: pd.DataFrame) -> pd.DataFrame:
    """Return timings of all timed kinds that move data, for the kinds without timings."""
    moving = timings[timings["kind"].isin(MOVING)].groupby("kind")
    found = [rows.iloc[spaced_evenly(len(rows), SAMPLE_ROWS)] for _, rows in moving]
    return pd.concat(found).assign(kind="traffic") if found else timings.iloc[:0]


def thin(timings: pd.DataFrame) -> pd.DataFrame:
    """Return the products of a matrix and a vector."""
    return timings[(timings["kind"] == "gemm") & (thinness(timings) == 1)].assign(kind=MATVEC)


def spaced_evenly(length: int, count: int) -> np.ndarray:
    return np.unique(np.linspace(0, length - 1, min(length, count)).round().astype(int))


def by_choice(timings: pd.DataFrame) -> np.ndarray:
    """Return attention that says nothing of other boards: windows, and widths for which SGLang chose Triton.

    Some libraries compute all scores of a prompt with a window; some convert a cache in fp8: on Hopper a latent
    one takes up to seven times as long as in bf16. With such rows, intervals of all decoding are twice as wide.
    Encoders and latent attention in bf16 have one library.
    """
    part = attention_parts(timings)
    attention = is_in(timings, "kind", "attention")
    commonest = (
        timings[attention].groupby(["dtype", part[attention]])["library"].agg(lambda own: own.mode().iat[0])
    )
    main = np.array([commonest.get(key, "") for key in zip(timings["dtype"], part, strict=True)])
    chosen = is_in(timings, "library", "triton") & (main != "triton")
    converted = np.isin(part, [DECODE, LATENT]) & is_in(timings, "dtype", "fp8")
    return attention & (chosen | converted | (part == WINDOW))


def tables(machine: Machine) -> Iterator[tuple[str, Table]]:
    timings = row_major(machine.timings)
    timings = timings[~by_choice(timings)]
    apart = is_in(timings, "library", *APART)
    # Serving chooses the library by the mixture: those of one series are all by its libraries.
    experts = is_in(timings, "kind", "experts")
    apart |= experts & (apart & experts).any()
    if (rows := timings[apart & timings["kind"].isin(OF_SERIES)]).size:
        for work, table in in_works(machine, add_costs(rows)):
            kind, _, engine = work.partition("/")
            yield on_series(kind, machine.device.architecture, engine), table
    timings = timings[timings["kind"].isin(FEATURES) & ~apart & timings["dtype"].ne(BLOCK_SCALED)]
    products = in_tiles(machine, add_costs(timings).assign(own_s=op_seconds(timings)))
    for one in products:
        yield f"{TILED}/{one.engine}", one
        if one.engine == "matrix":
            yield f"{TWINS}/{one.engine}", one
    if machine.name in SISTERS:
        return
    costed = add_costs(timings)
    yield from in_works(machine, pd.concat([costed, traffic(costed), thin(costed)], ignore_index=True))


def in_works(machine: Machine, costed: pd.DataFrame) -> Iterator[tuple[str, Table]]:
    """Yield the tables of costed timings by work, relative to the floor."""
    costed = costed.assign(own_s=op_seconds(costed), kind=by_parts(costed).cells())
    byte_per_s, launch = machine.device.byte_per_s.value, machine.device.launch_s
    launch_s = 0.0 if launch is None else launch.value
    word_of = costed["pass_name"].where(costed["kind"].isin(BY_PASS), "").fillna("")
    for (kind, dtype, engine, word), rows in costed.groupby(["kind", "dtype", "engine", word_of], sort=True):
        peak = machine.device.peak(dtype, engine)
        if peak is None or (kind in BY_PASS and not word):
            continue
        kernel_s = np.maximum(rows["own_s"] - SHOWN * launch_s, rows["own_s"] / 2)
        floor_s = np.maximum(rows["flop"] / peak.rate.value, rows["byte"] / byte_per_s)
        features = FEATURES[kind](rows, np.full(len(rows), peak.rate.value), byte_per_s)
        good = np.isfinite(features).all(1) & (floor_s > (SHORTEST_S if kind == MATVEC else 0.0))
        if good.sum() >= (FEWEST_THIN if kind == MATVEC else FEWEST):
            reached = np.log(floor_s / kernel_s).to_numpy()[good]
            work = f"{kind}/{engine}/{word}" if kind in BY_PASS else f"{kind}/{engine}"
            work = f"{MATVEC}/vector" if kind == MATVEC else work
            rounded = np.rint(features[good] * FEATURE_DIGITS) / FEATURE_DIGITS
            yield work, Table(machine, dtype, engine, rounded, reached)


def is_common(work: str) -> bool:
    """Return whether a work is not one of a single series of chips."""
    return work.partition("/")[0] == kind_of_work(work)


def most(work: str) -> int:
    return MOST.get(work.partition("/")[0], OTHERS if is_common(work) else MOST_OF_SERIES)


def spaced(features: np.ndarray, count: int) -> np.ndarray:
    """Choose rows: half as far apart as possible, half evenly spaced by the first feature."""
    if len(features) <= count:
        return np.arange(len(features))
    scale = features.std(0)
    scaled = (features - features.mean(0)) / np.where(scale > 0, scale, 1.0)
    found = [int(np.argmin((scaled**2).sum(1)))]
    apart = ((scaled - scaled[found[0]]) ** 2).sum(1)
    while len(found) < count // 2:
        found.append(int(np.argmax(apart)))
        apart = np.minimum(apart, ((scaled - scaled[found[-1]]) ** 2).sum(1))
    rest = np.setdiff1d(np.argsort(features[:, 0], kind="stable"), found, assume_unique=True)
    even = rest[np.linspace(0, len(rest) - 1, count - len(found)).round().astype(int)]
    return np.sort(np.concatenate([found, even]))


def drawn(length: int, count: int) -> np.ndarray:
    """Choose rows at random: with small residuals, typical rows are more useful than rows far from all others."""
    return np.sort(np.random.default_rng(0).permutation(length)[:count])


def surface(table: Table, work: str, length: np.ndarray, errors: tuple[float, ...] = ()) -> Surface:
    at = spaced(table.features, most(work)) if table.chip is None else drawn(len(table.features), most(work))
    features, reached = table.features[at], table.reached[at]
    mean = float(reached.mean().round(4))
    balance = round(balance_of(table.machine, work.partition("/")[0], table.dtype, table.engine), 3)
    rows = surface_rows(features, weights_of(features, reached - mean, length))
    of = table.machine
    return Surface(of.name, of.device.architecture, table.dtype, balance, mean, errors, rows, tuple(table.form))


def missed(table: Table, one: Surface, others: list[Surface], length: np.ndarray, work: str) -> tuple[float, ...]:
    """Return evenly probable quantiles of a table's residuals from other chips' surfaces [standard deviations]."""
    twins, same = work.startswith(TWINS) or not is_common(work), one.architecture
    included = [
        other for other in others if other.machine != one.machine and (other.architecture == same) == twins
    ]
    if not included:
        return ()
    at = spaced(table.features, SAMPLE_ROWS)
    above = None
    if table.products is not None and table.chip is not None:
        found = side_by_side(length, of_width(included, one.dtype))
        floor = np.log(2.0) * table.features[:, -1]
        own = np.log(tile_seconds(Form(*table.form), table.products, table.chip)) - floor
        above = (log_time_over_floor(found, table.products, table.chip) - own)[:, at]
    else:
        found = side_by_side(length, included)
    by_library = above is not None or work.startswith(OF_LIBRARIES)
    years = read_generations(TARGET / GENERATIONS) if by_library else {}
    weight = similarity(found, one.dtype, one.balance, one.architecture, years, {})
    if work.startswith(OF_OTHER_SIZES) and len(found.known) > 1:
        weight = weighed_by_rows(found, table.features[at], weight)
    value, sigma = median_and_spread(found, table.features[at], weight, above)
    return tuple(np.quantile((table.reached[at] - value) / sigma, PROBABILITIES).round(2).tolist())


def entry(work: str, found: list[Table]) -> Iterator[tuple[list[object], np.ndarray]]:
    """Yield the cells of each surface, beginning with the work, and the whole numbers of its ops."""
    spread = np.concatenate([table.features[spaced(table.features, SAMPLE_ROWS)] for table in found]).std(0)
    length = np.where(spread > 1e-9, REACH * spread, 1e6).round(3)  # a mean of equal numbers rounds
    plain = [surface(table, work, length) for table in found]
    for table, one in zip(found, plain, strict=True):
        if one.machine in SISTERS and not is_common(work):
            continue  # its table tells how far the other board's surface errs
        balance = "" if np.isnan(one.balance) else one.balance
        lengths = " ".join(f"{value:g}" for value in length)
        errors = " ".join(map(repr, missed(table, one, plain, length, work)))
        timings = len(table.reached)
        yield (
            [
                work,
                one.machine,
                one.architecture,
                one.dtype,
                timings,
                len(one.rows),
                balance,
                one.mean,
                lengths,
                errors,
                " ".join(map(repr, one.form)),
            ],
            one.rows,
        )


def texts() -> dict[str, str]:
    """Return the texts of the files by name."""
    works: dict[str, list[Table]] = {}
    for machine in machines():
        for work, table in tables(machine):
            works.setdefault(work, []).append(table)
    surfaces, ops = [",".join(SURFACE_COLUMNS)], [",".join(OP_COLUMNS)]
    in_order = sorted(works, key=lambda work: (not is_common(work), work))
    for number, (cells, rows) in enumerate((one for work in in_order for one in entry(work, works[work])), 1):
        surfaces.append(",".join(map(str, [number, *cells])))
        absent = "," * (len(OP_COLUMNS) - 1 - rows.shape[1])
        ops += [",".join(map(str, [number, *row])) + absent for row in rows.tolist()]
    return {SURFACES: "\n".join(surfaces) + "\n", OPS: "\n".join(ops) + "\n"}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for name, text in texts().items():
        (TARGET / name).write_text(text, encoding="utf-8", newline="\n")
