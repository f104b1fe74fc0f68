"""Read the timings of two simulators of large models as TIMINGS: Vidur's and vTrain's.

Vidur (Microsoft, 2024) runs one decoder layer of a serving engine in fp16 and sums the profiler's times of the
kernels in each named piece, in ms: device time alone, warm, rounded to a microsecond. Its sources
(``vidur/profiling/mlp``, ``collectives``) show what ran:

- Projections are F.linear, weights stored n×k; each of ``num_tensor_parallel_workers`` has its share of heads, of
  the inner width and of the vocabulary. A gated activation reads both halves; positions are rotated in place.
- If there is a norm after attention, the norms are RMS norms by a kernel of the serving engine. If there is none,
  the file does not say which norm it is, and ``add`` is two additions in one time.
- With several workers the embedding masks the words of other workers: more than one kernel in one time.
- A collective's time is the median of NCCL's kernels on rank 0; every rank holds ``size`` bytes of fp16.

vTrain (KAIST, 2024) has nccl-tests' all-reduce at one number of ranks n, in ns, out of place and in place; the
ratio of bus rate to algorithm rate, 2(n − 1)/n, determines n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.units import ITEM_BYTE
from fomkit.files.csv import parse_number, read_header, read_rows, shown
from fomkit.harness.torch.network import SEND, op_of
from fomkit.readers.tables.foreign import ImportedTimings, SectionCount, check_present, make_timings, read_columns
from fomkit.readers.tables.network_logs import DTYPES, PLACES, TOLERANCE

HARNESS = "Vidur"
TICK_S = 1e-6
"""Resolution of the profiler's times [s]."""
SHORTEST = 3
"""Fewest ticks of a usable time; a shorter time is uncertain by more than a factor of 1.2 either way."""
ITEM = ITEM_BYTE["fp16"]
_SIZES = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size", "num_tokens")
_WORKERS = "num_tensor_parallel_workers"
_MEDIAN, _LEAST, _MOST = ("time_stats.{}." + word for word in ("median", "min", "max"))
_SECOND_NORM = "post_attention_layernorm"
Columns = dict[str, object]


def _projection(n: pd.Series[float], k: pd.Series[float], rows: pd.DataFrame) -> Columns:
    stored = {"b": 1.0, "trans_a": 0.0, "trans_b": 1.0, "accumulate_dtype": "fp32"}
    return {"kind": "gemm", "engine": "matrix", "m": rows["num_tokens"], "n": n, "k": k, **stored}


def _streamed(kind: str, numel: pd.Series[float], reads: pd.Series[float] | int, row: pd.Series[float] | float,
             extra: pd.Series[float] | float = 0.0) -> Columns:  # fmt: skip
    """Return the columns of an op that reads ``reads`` numbers for each one written, and `extra` numbers once."""
    read, written = ITEM * (numel * reads + extra), ITEM * numel
    sizes = {"numel": numel, "row": row, "inputs": reads, "read_byte": read, "write_byte": written}
    return {"kind": kind, "op": "", "engine": "vector", "pass_name": "forward", **sizes}


def _makers(rows: pd.DataFrame) -> Mapping[str, Callable[[], Columns]]:
    """Return, for each piece, a function that makes its columns."""
    tokens, wide, workers = rows["num_tokens"], rows["n_embd"], rows[_WORKERS]
    inner, gated = rows["n_expanded_embd"] / workers, 1 + rows["gated"]
    heads = (rows["n_head"] + 2 * rows["n_kv_head"]) / workers * rows["head_dim"]
    turned = tokens * ((rows["n_head"] + rows["n_kv_head"]) / workers) * rows["head_dim"]

    def norm() -> Columns:
        return {**_streamed("norm", tokens * wide, 1, wide, wide), "inputs": 2.0}

    return {
        "emb": lambda: {**_streamed("embedding", tokens * wide, 1, wide), "inputs": 2.0},
        "input_layernorm": norm,
        _SECOND_NORM: norm,
        "attn_pre_proj": lambda: _projection(heads, wide, rows),
        # A model's configuration has this name; another op of this traffic is faster.
        "attn_rope": lambda: {**_streamed("pointwise", turned, 1, float("nan")), "op": "positions"},
        "attn_post_proj": lambda: _projection(wide, wide / workers, rows),
        "mlp_up_proj": lambda: _projection(gated * inner, wide, rows),
        "mlp_act": lambda: {**_streamed("pointwise", tokens * inner, gated, float("nan")), "op": "activation"},
        "mlp_down_proj": lambda: _projection(wide, inner, rows),
        "add": lambda: _streamed("pointwise", tokens * wide, 2, float("nan")),
    }


_TWICE = "two kernels in one time: without a norm after attention both branches are added at once"
_WHICH = "the file does not state which norm: there is none after attention"
_SHORT = "less than 3 us, in whole microseconds"
_MASKED = "several kernels in one time: a worker masks the tokens that others hold"


def _why_left_out(piece: str, rows: pd.DataFrame, seconds: pd.Series[float], *, second: bool) -> pd.Series[str]:
    """Return for each row why it is not the timing of one op; "" if it is."""
    why = seconds.map(lambda _: "")
    least, most = (rows[one.format(piece)] / 1e3 for one in (_LEAST, _MOST))
    why = why.mask((seconds < least * 0.999) | (seconds > most * 1.001), "a median outside its range")
    if piece == "emb":
        why = why.mask(rows[_WORKERS] > 1, _MASKED)
    if piece in ("add", "input_layernorm") and not second:
        why = why.mask(why == "", _TWICE if piece == "add" else _WHICH)
    why = why.mask((why == "") & (seconds < SHORTEST * TICK_S * 0.999), _SHORT)
    return why.mask(~(seconds > 0), "no time")


def recognise_vidur(path: Path) -> bool:
    """Return whether a file is a table of Vidur's: of a layer's pieces, or of a collective."""
    header = read_header(path)
    layers = {*_SIZES, _WORKERS} <= set(header)
    return any(name.startswith("time_stats.") for name in header) and (layers or "devices_per_node" in header)


def read_vidur(path: Path) -> ImportedTimings:
    """Read a table of a layer's pieces, or of a collective."""
    return _vidur_collectives(path) if "devices_per_node" in read_header(path) else _layer_pieces(path)


def _read_layers(path: Path, pieces: list[str]) -> pd.DataFrame:
    stats = [one.format(piece) for piece in pieces for one in (_MEDIAN, _LEAST, _MOST)]
    rows = read_columns(path, ("use_gated_mlp",), (*_SIZES, _WORKERS, *stats))
    check_present(rows, path, (*_SIZES, _WORKERS))
    wrong = ~rows["use_gated_mlp"].isin(["True", "False"]).to_numpy()
    if wrong.any():
        at = int(wrong.argmax())
        found = rows["use_gated_mlp"].iloc[at]
        raise FomkitError(f"{path}:{rows.index[at]}", f"use_gated_mlp is {found!r}. Expected True or False.")
    for divided in ("n_head", "n_expanded_embd", "n_embd"):
        by = rows["n_head"] if divided == "n_embd" else rows[_WORKERS]
        uneven = (rows[divided] % by != 0).to_numpy()
        if uneven.any():
            line = rows.index[int(uneven.argmax())]
            raise FomkitError(f"{path}:{line}", f"{divided} does not divide among its parts. Check that line.")
    return rows.assign(head_dim=rows["n_embd"] / rows["n_head"], gated=1.0 * (rows["use_gated_mlp"] == "True"))


def _layer_pieces(path: Path) -> ImportedTimings:
    header = set(read_header(path))
    known = ["emb", "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", _SECOND_NORM, "mlp_up_proj",
             "mlp_act", "mlp_down_proj", "add"]  # fmt: skip
    pieces = [piece for piece in known if _MEDIAN.format(piece) in header]
    if not pieces:
        raise FomkitError(
            str(path), f"has the time of no piece. Expected columns such as {_MEDIAN.format('add')}."
        )
    rows, parts, counts = _read_layers(path, pieces), [], list[SectionCount]()
    for piece, make in _makers(rows).items():
        if piece not in pieces:
            continue
        seconds = rows[_MEDIAN.format(piece)] / 1e3
        why = _why_left_out(piece, rows, seconds, second=_SECOND_NORM in pieces)
        columns = {"time_s": seconds, "library": "Sarathi-Serve", "harness": HARNESS, "note": piece, **make()}
        kept = why == ""
        parts.append(pd.DataFrame(columns, rows.index)[kept])
        kind = str(columns["kind"])
        counts.append(SectionCount("-", piece, imported=int(kept.sum()), kind=kind))
        counts += [SectionCount("-", piece, skipped=int(many), reason=str(reason), kind=kind)
                   for reason, many in why[why != ""].value_counts().items()]  # fmt: skip
    table = pd.concat(parts)
    if not len(table):
        raise FomkitError(
            str(path), "has no time that a clock of microseconds resolves. Check that the file is complete."
        )
    fixed = {"dtype": "fp16", "repeats": 20.0, "harness_s": 0.0}
    timings = make_timings({**{str(name): table[name] for name in table}, **fixed}, table.index, path)
    return ImportedTimings(timings, "", counts=tuple(counts), notes=(_LAYERS,))


_LAYERS = (
    "Vidur's pieces of a decoder layer are medians of 20, in fp16, of device time alone, printed in whole "
    "microseconds; norm, rotary positions and gated activation are kernels of the serving engine Sarathi-Serve "
    "(vLLM's of 2023). What a piece reads was written just before it, so small ones come from the L2 cache."
)
_COLLECTIVES = (
    "Vidur's collectives are medians of NCCL's kernels on rank 0, started one behind the other, fp16; the time "
    "includes waiting for the other ranks."
)


def _vidur_collectives(path: Path) -> ImportedTimings:
    words = [name for name in read_header(path) if name.startswith("time_stats.") and name.endswith(".median")]
    if len(words) != 1:
        raise FomkitError(
            f"{path}:1", "does not have the median of one collective. Expected time_stats.all_reduce.median."
        )
    sizes = ("num_workers", "size", "devices_per_node")
    rows = read_columns(path, ("collective",), (*sizes, words[0]))
    check_present(rows, path, (*sizes, words[0]))
    known = {"all_reduce": "all_reduce", "send_recv": SEND}
    skipped = ~rows["collective"].isin(list(known))
    read = rows[~skipped]
    if not len(read):
        raise FomkitError(str(path), f"has no collective that fomkit reads: {', '.join(known)}. Leave it out.")
    names = read["collective"].map(known)
    inside = read["num_workers"] <= read["devices_per_node"]
    columns: Columns = {
        "kind": "collective", "op": names.map(op_of), "engine": "vector", "dtype": "fp16", "collective": names,
        "message_byte": read["size"], "ranks": read["num_workers"], "time_s": read[words[0]] / 1e3,
        "link": inside.map({True: "node", False: "system"}), "harness": HARNESS, "library": "NCCL",
    }  # fmt: skip
    counts = [SectionCount("-", str(name), imported=int(many), kind="collective")
              for name, many in read["collective"].value_counts().items()]  # fmt: skip
    if skipped.any():
        counts.append(SectionCount("-", "others", skipped=int(skipped.sum()), reason="unknown collective"))
    return ImportedTimings(
        make_timings(columns, read.index, path), "", counts=tuple(counts), notes=(_COLLECTIVES,)
    )


VTRAIN_HEADER = ("size(B)", "count", "type", *2 * ("time(ns)", "busbw(GB/s)"))


class _Reduced(NamedTuple):
    """One printed time: its line, bytes, seconds, bus rate over algorithm rate, number format, and place."""

    line: int
    byte: float
    time_s: float
    factor: float
    dtype: str
    place: str


def recognise_vtrain(path: Path) -> bool:
    """Return whether a file is a table of vTrain's all-reduces."""
    return read_header(path) == VTRAIN_HEADER


def _printed_times(path: Path) -> Iterator[_Reduced]:
    rows = read_rows(path)
    next(rows)
    for line, cells in rows:
        if cells[2] not in DTYPES:
            raise FomkitError(f"{path}:{line}", f"type is {shown(cells[2])}. Expected one of {', '.join(DTYPES)}.")
        places = (0, *range(3, len(VTRAIN_HEADER)))
        byte, *timed = (float(parse_number(cells[at], f"{path}:{line}", VTRAIN_HEADER[at])) for at in places)
        if not all(number > 0 for number in (byte, *timed)):
            raise FomkitError(f"{path}:{line}", "has a size, a time or a rate that is empty or not above 0.")
        for place, time_ns, rate in zip(PLACES, timed[::2], timed[1::2], strict=True):
            yield _Reduced(line, byte, time_ns * 1e-9, rate * time_ns / byte, DTYPES[cells[2]], place)


def read_vtrain(path: Path) -> ImportedTimings:
    """Read a table of all-reduces at one number of ranks."""
    found = list(_printed_times(path))
    median = sorted(one.factor for one in found)[len(found) // 2] if found else 0.0
    ranks = round(2 / (2 - median)) if 0.9 < median < 1.999 else 0
    if ranks < 2 or abs(2 * (ranks - 1) / ranks / median - 1) > TOLERANCE:
        raise FomkitError(
            str(path), f"its bus rates are {median:.3g} times bytes over time, which no number of ranks gives "
                       "(2 × (n − 1) / n). Check its units: bytes, ns, GB/s.",
        )  # fmt: skip
    factor = 2 * (ranks - 1) / ranks
    kept = [one for one in found if abs(one.factor / factor - 1) <= TOLERANCE]
    columns: Columns = {
        "kind": "collective", "op": op_of("all_reduce"), "engine": "vector", "collective": "all_reduce",
        "dtype": [one.dtype for one in kept], "message_byte": [one.byte for one in kept], "ranks": float(ranks),
        "link": "node", "time_s": [one.time_s for one in kept], "harness": "nccl-tests", "library": "NCCL",
        "note": [one.place for one in kept],
    }  # fmt: skip
    timings = make_timings(columns, pd.Index([one.line for one in kept]), path)
    wrong = len(found) - len(kept)
    reason = "size, time and rate that do not agree" if wrong else ""
    count = SectionCount("-", "all_reduce", imported=len(kept), skipped=wrong, reason=reason, kind="collective")
    remark = f"The rates are those of {ranks} ranks, assumed to be on one node."
    return ImportedTimings(timings, "", {"Ranks": str(ranks)}, (count,), remarks=(remark,))
