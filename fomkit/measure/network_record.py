"""What was timed between processes as part of a machine profile: timings, links, and what was not timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fomkit.hardware import Link, Machine, Tier
from fomkit.measure.ops import Cells
from fomkit.measure.timed import HARNESS, NOISY
from fomkit.schema import column_names
from fomkit.timings.collectives import SEND, SERVER, op_of
from fomkit.timings.link_fit import Timed, links_of
from fomkit.timings.measure_payloads import BUFFERS, SIZES_BYTE
from fomkit.timings.measure_statistics import summarise

if TYPE_CHECKING:
    import pandas as pd

Answers = Iterable[tuple[Cells, Mapping[str, Any]]]
_NUMBERS = frozenset(column_names("TIMINGS", "number"))


def _note(cells: Cells, answer: Mapping[str, Any]) -> str:
    found = summarise(answer["times"])
    parts = []
    if found.low_s is not None and found.high_s is not None:
        parts.append(f"median within [{found.low_s:.4g}, {found.high_s:.4g}] s at 95 %")
    if found.outliers:
        parts.append(f"{found.outliers} of {found.repeats} outliers kept, longest {found.longest_s:.4g} s")
    if "/" in cells["op"]:
        sizes = ", ".join(f"{byte:,}" for byte in SIZES_BYTE.values())
        _, scheme, form = cells["op"].split("/")
        parts.append(f"{BUFFERS} buffers of {sizes} bytes, {scheme}, {form}")
    if cells["collective"] == SERVER:
        rate = (float(cells["ranks"]) - 1) / found.median_s
        parts.append(f"{rate:.4g} exchanges/s of {cells['ranks']} ranks, one of them the server")
    return "; ".join(parts)


def _row(cells: Cells, answer: Mapping[str, Any], channel: str, version: str) -> dict[str, object]:
    found = summarise(answer["times"])
    return {
        **{name: float(text) if name in _NUMBERS else text for name, text in cells.items()},
        "time_s": found.median_s,
        "p25_s": found.p25_s,
        "p75_s": found.p75_s,
        "repeats": float(found.repeats),
        "harness": HARNESS,
        "library": channel,
        "library_version": f"torch {version}",
        "note": _note(cells, answer),
    }


def link_of(answers: Answers, tier: Tier, channel: str, source: str) -> tuple[Link, ...]:
    """Make the links of one tier from messages that went there and back."""
    timed: list[tuple[float, float, float]] = []
    for cells, answer in answers:
        if "times" in answer and cells["op"] == op_of(SEND) and cells["link"] == tier:
            found = summarise(answer["times"])
            timed.append((float(cells["message_byte"]), found.median_s, min(found.width, 1.0)))
    columns = list(zip(*timed, strict=True)) if timed else [(), (), ()]
    return links_of(Timed(*columns), tier, channel, source)


def _skipped(answers: Answers) -> list[str]:
    groups: dict[tuple[str, str], int] = {}
    for cells, answer in answers:
        if "reason" in answer:
            key = cells["collective"], str(answer["reason"])
            groups[key] = groups.get(key, 0) + 1
    return [f"not timed: {count} {collective}, {reason}" for (collective, reason), count in groups.items()]


def _noise(answers: Answers) -> str:
    from statistics import median

    widths = [summarise(answer["times"]).width for _, answer in answers if "times" in answer]
    noisy = sum(width > NOISY for width in widths)
    return (
        f"noise: of {len(widths)} exchanges the median is known to ±{median(widths):.1%} in the middle; "
        f"{noisy} are wider than ±10 %"
    )


def _kept_rows(machine: Machine, channel: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Give the timings that this measurement does not replace: all but its own, of like ranks."""
    import pandas as pd

    old = machine.timings
    if not len(old):
        return rows
    names = ["harness", "library", "kind"]
    own = pd.Series(True, old.index)
    for name, value in zip(names, (HARNESS, channel, "collective"), strict=True):
        own &= (old[name] == value) if name in old.columns else False
    if own.any():
        keys = ["collective", "op", "message_byte", "ranks", "link"]
        seen = pd.MultiIndex.from_frame(rows[keys])
        own &= pd.MultiIndex.from_frame(old[keys].fillna({"op": "", "collective": "", "link": ""})).isin(seen)
    names = [name for name in column_names("TIMINGS") if name in {*old.columns, *rows.columns}]
    joined = pd.concat([old[~own], rows], ignore_index=True).reindex(columns=names)
    texts = [name for name in names if name not in _NUMBERS]
    return joined.assign(**{name: joined[name].fillna("") for name in texts})


def with_network(
    machine: Machine, answers: Answers, channel: str, facts: Mapping[str, Any], launcher: str
) -> Machine:
    """Add what was timed over one channel to a machine; what it replaces is the same measurement of before.

    Parameters
    ----------
    machine : Machine
    answers : iterable of (cells, answer)
    channel : str
        Backend that carried the messages.
    facts : mapping
        ``hosts``, ``devices`` and ``library_version``, as the ranks told them.
    launcher : str
        What started the ranks.
    """
    import pandas as pd

    answers = list(answers)
    hosts, version = facts["hosts"], str(facts["library_version"])
    nodes = len(set(hosts))
    where = f"{len(hosts)} ranks on {nodes} node{'s' if nodes > 1 else ''}, started by {launcher}"
    source = f"measured here, {channel} of torch {version}, {where}"
    rows = [_row(cells, answer, channel, version) for cells, answer in answers if "times" in answer]
    links = [one for tier in ("node", "system") for one in link_of(answers, tier, channel, source)]
    new = {(one.tier, one.channel) for one in links}
    kept = [one for one in machine.links if (one.tier, one.channel) not in new]
    notes = [f"network: {source}", f"{channel}: {_noise(answers)}" if rows else ""]
    notes += [f"{channel}, {one}" for one in _skipped(answers)]
    if rows and not links:
        notes.append(f"{channel}, no link: its messages do not tell start-up time and rate apart")
    before = [
        one
        for one in machine.notes
        if not one.startswith((f"{channel}: noise", f"{channel}, not timed", f"{channel}, no link"))
    ]
    return replace(
        machine,
        timings=_kept_rows(machine, channel, pd.DataFrame(rows)) if rows else machine.timings,
        links=(*kept, *links),
        notes=tuple(dict.fromkeys(filter(None, (*before, *notes)))),
    )
