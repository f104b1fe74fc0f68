"""Format advice as text: three answers, then each finding with the time at stake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fomkit.core.units import format_number, format_quantity, memory_text
from fomkit.output.screen import PLAIN, Entry, Page, Screen, Table, named_sizes
from fomkit.output.values import format_plain, interval_words, percent, with_ends

if TYPE_CHECKING:
    from fomkit.plan.content import Ends
    from fomkit.whatif import advise
    from fomkit.whatif.slow_ops import SlowOp

WIDTH = 80
"""Width at which text is wrapped; a narrower terminal wraps it earlier."""

_VERDICTS = {
    "well": "Well.", "partly": "Partly.", "poorly": "Poorly.",
    "unknown": "Unknown: the machine states no peak rate for this arithmetic.",
}  # fmt: skip
_WAITS = {
    "compute": "on arithmetic", "memory": "on moving data", "launch": "on starting kernels",
    "network": "on the network", "input": "on input", "measured": "in ops whose bound is unknown",
    "waiting": "with the device idle",
}  # fmt: skip
_SURETIES = {"sure": "almost certainly a saving", "likely": "probably a saving", "unsure": "may save nothing"}
_ROLES = {
    "state": "optimizer state", "activation": "activations", "parameter": "parameters", "gradient": "gradients",
    "buffer": "buffers", "temporary": "temporary tensors",
}  # fmt: skip


_in_s = partial(format_plain, dimension="time_s", digits=3)


def _percents(span: Ends) -> str:
    return with_ends(span, percent)


def _engine_rate(engine: advise.Engine | advise.Fastest) -> str:
    return format_quantity(engine["flop_per_s"], "flop_per_s", 3)


def _of_the_peak(use: advise.Use, fraction: Ends, step: Ends, named: str) -> str:
    at_peak, now, share = _in_s(use["at_peak_s"] or 0.0), _in_s(step["value"]), _percents(fraction)
    if use["above_peak"] is None:
        used = f"it uses {share} of the peak ({named})"
        return f"At the stated peak rate its products would take {at_peak} of the {now}: {used}."
    return (
        f"Counted as direct convolutions and products, its flop rate is {share} of the stated peak ({named}), at "
        f"which they would take {at_peak}, more than the step's {now}: {use['above_peak']}."
    )


def _use(content: advise.AdviceContent) -> Iterator[str]:
    use, step = content["use"], content["step_s"]
    fastest, engines = use["fastest"], use["engines"]
    slower = fastest is not None and (fastest["dtype"], fastest["engine"]) not in {
        (engine["dtype"], engine["engine"]) for engine in engines
    }
    yield "Well, for its number formats." if slower and use["verdict"] == "well" else _VERDICTS[use["verdict"]]
    if use["peak_fraction"] is not None:
        named = " and ".join(
            f"{engine['dtype']} on the {engine['engine']} engine, {_engine_rate(engine)}" for engine in engines[:2]
        )
        yield _of_the_peak(use, use["peak_fraction"], step, named)
        if slower and fastest is not None and fastest["peak_fraction"] is not None:
            fastest_text = f"Of the machine's fastest engine ({fastest['dtype']}, {_engine_rate(fastest)}) that is"
            yield f"{fastest_text} {_percents(fastest['peak_fraction'])}."
    shares = [
        f"{_percents(span)} {_WAITS[name]}" for name, span in use["bounds"].items() if span["value"] >= 0.005
    ]
    yield f"The step spends {', '.join(shares)}."


def _memory_sentences(memory: advise.Carriers) -> Iterator[str]:
    room = memory["capacity_byte"]
    if memory["known"] == "nothing":
        yield "Unknown: the profile has no order of its ops (see 'fomkit memory')."
        return
    total = memory["peak_byte"]
    roles = [f"{_ROLES.get(role, role)} {memory_text(byte)}" for role, byte in memory["roles"].items()]
    if total is None:
        yield f"Only memory independent of the batch is known: {', '.join(roles)}. The layers are unknown."
        return
    share_text = "" if room is None else f", {percent(total / room)} of the device"
    role, byte = next(iter(memory["roles"].items()))
    yield f"The peak is {memory_text(total)}{share_text}; {byte / total:.0%} of it is {_ROLES.get(role, role)}."
    named = [
        f"{structure['structure'] or 'the model itself'} ({memory_text(structure['byte'])}"
        + (f" in {structure['modules']} layers)" if structure["modules"] > 1 else ")")
        for structure in memory["structures"]
    ]
    if named:
        yield f"The largest parts are {', '.join(named)}."
    if memory["formats"] == "of the trace, which are wider":
        yield "This is for the number formats of the trace, which are wider than the selected ones."


def _bound(least: advise.Least) -> str:
    saved, unbounded = 1 - least["share_of_device"], least["share_without_bound"]
    if not unbounded:
        return (
            f"Changes that keep ops, sizes, formats and algorithms cannot save more than {saved:.0%} of the "
            f"device's time: at the machine's stated rates it is {_in_s(least['device_s'])}."
        )
    return (
        f"For {percent(unbounded)} of the device's time no bound is known: its ops take less than flop / peak "
        f"or byte / bandwidth (Winograd, FFT, caches), or have neither. In the rest, changes that keep ops, "
        f"sizes, formats and algorithms save at most {percent(saved)} of the device's time."
    )


def _best_sentences(content: advise.AdviceContent) -> Iterator[str]:
    room, peak = content["memory"]["capacity_byte"], content["memory"]["peak_byte"]
    if room is not None and peak is not None and peak > room:
        yield "First make the step fit the memory (see 1.)."
    if content["best"] is None:
        yield "None: no change that was tried saves enough time."
    else:
        found = content["findings"][content["best"]]
        yield f"{found['do'].split(';')[0].rstrip('.')}."
        if found["stake"] is not None:
            sure = _SURETIES[found["surety"] or ""]
            yield f"{sure[0].upper()}{sure[1:]}: {_stake(found['stake'], content)}."
    if content["least"] is not None:
        yield _bound(content["least"])


def _stake(stake: advise.Stake, content: advise.AdviceContent) -> str:
    time = with_ends(stake["time_s"], _in_s)
    text = f"{'at most ' * stake['at_most']}{time} of each step, {_percents(stake['share'])}"
    gain, rate = stake["unit_per_day"], content["unit_per_day"]
    if gain is None or rate is None:
        return text
    now = rate["value"]
    then, low, high = (format_number(now + gain[end], 3) for end in ("value", "low", "high"))
    ends = f" ({low} … {high})" if low != high else ""
    return f"{text}; {format_number(now, 3)} → {then} a day{ends}"


def _op(entry: SlowOp) -> str:
    then = ""
    if entry["after_s"] is not None:
        then = f" → {_in_s(entry['after_s'])}"
        if entry["after_s"] > entry["step_time_s"]:
            then += ", which is slower"
    elif entry["floor_s"] is not None and entry["floor_s"] > entry["step_time_s"]:
        then = f", less than the {_in_s(entry['floor_s'])} by the stated rates"
    elif entry["floor_s"] is not None:
        then = f", at the stated rates {_in_s(entry['floor_s'])}"
    near = entry["nearest"][0] if entry["nearest"] else None
    source_text = entry["time_source"]
    if near is not None:
        place = "the same op" if near["distance"] == 0 else f"nearest {near['sizes']}"
        row = "" if near["source_row"] is None else f", row {near['source_row']:g}"
        source_text += f" ({place}: {near['source_file'] or 'table'}{row})"
    rows = ", ".join(map(str, entry["rows"][:3])) + (", …" if len(entry["rows"]) > 3 else "")
    place = "row" if len(entry["rows"]) == 1 else "rows"
    time = f"{_in_s(entry['step_time_s'])}{then}"
    return f"{entry['sizes']}, {entry['pass_name']}: {time}; {source_text}; {place} {rows}"


def _finding(page: Page, number: str, entry: advise.Found, content: advise.AdviceContent) -> None:
    page.heading(f"{number}{entry['says']}")
    lines = []
    if entry["stake"] is not None:
        lines.append(("at stake", _stake(entry["stake"], content)))
    elif entry["state"] == "advice" and not entry["urgent"]:
        lines.append(("at stake", "unknown"))
    if entry["rejected"]:
        lines.append(("rejected", entry["rejected"]))
    sure = _SURETIES.get(entry["surety"] or "", "") if entry["state"] == "advice" else ""
    how_sure = f"{sure[:1].upper()}{sure[1:]}. {entry['sure']}" if sure else entry["sure"]
    lines += [("do", entry["do"]), ("how sure", how_sure)]
    if entry["column"]:
        lines.append(("column", entry["column"]))
    lines += [("ops" if place == 0 else "", _op(op)) for place, op in enumerate(entry["ops"])]
    page.table(Table(["", "", ""], [(("", *pair), "") for pair in lines if pair[1]], widest=page.screen.width))


def format_advice(content: advise.AdviceContent, screen: Screen = PLAIN, *, tried: bool = False) -> str:
    """Format ``fomkit/advise/1`` as text; ``tried``: also list rejected changes and those that do not apply."""
    page, step = Page(replace(screen, width=min(screen.width, WIDTH))), content["step_s"]
    interval = interval_words(content["interval"], step, "time_s")
    per_day = content["unit_per_day"]
    runs = "" if per_day is None else f"; {format_number(per_day['value'], 3)} {content['unit']}s a day"
    where = f"{content['model']} on {content['target']}, {named_sizes(content)}, {content['precision']}"
    headline = Page(screen)
    headline.line(f"{where}: a step takes {_in_s(step['value'])} ({interval}){runs}", "bold")
    answers = (
        ("Does the step use the device well?", _use(content)),
        ("Which layers and structures carry the memory?", _memory_sentences(content["memory"])),
        ("What is the best opportunity?", _best_sentences(content)),
    )
    for question, lines in answers:
        page.heading(question)
        page.line(f"  {' '.join(lines)}")
    advice = [finding for finding in content["findings"] if finding["state"] == "advice"]
    for number, one in enumerate(advice, 1):
        _finding(page, f"{number}. ", one, content)
    page.line("")
    page.line(f"{content['overlap'].capitalize()}.")
    if tried:
        for finding in content["findings"]:
            if finding["state"] == "rejected":
                _finding(page, "- ", finding, content)
        page.line("")
        for finding in content["findings"]:
            if finding["state"] == "not_applicable":
                text = f"{finding['rule']}: {finding['says'][0].lower()}{finding['says'][1:]}"
                page.line(f"- {text}")
    else:
        others = len(content["findings"]) - len(advice)
        page.line(f"{others} other changes were rejected or do not apply; --all lists them.")
    if content["excludes"]:
        page.line(f"Excluded, because not stated: {', '.join(content['excludes'])}.")
    page.notes(content["deviations"])
    return headline.text() + page.text()


def lines_of_findings(content: advise.AdviceContent) -> list[Entry]:
    """Return the findings as rows of a table; their ops are abbreviated, without times."""
    return [
        {**finding, "ops": [f"{op['sizes']}, {op['pass_name']}" for op in finding["ops"]]}
        for finding in content["findings"]
    ]
