"""How right fomkit is, as a page: what the public comparisons gave, beside what is said of each set.

The page is made of ``fomkit/validate/1`` alone: the short answer, a chapter for each set with its text, its lines
and its aims, the figures of earlier versions, what was not scored. Nothing of the day or of the machine stands on
it, so it is the same wherever the command ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from fomkit.output.comparisons import aim_range, published_cells, validated_figure
from fomkit.output.screen import Entry

_TITLE = """# How right it is

Written by `fomkit validate -o docs/accuracy.md`, the texts from `validation/sets.md`; a test compares.
"""
_SUMMARIES = ("all", "all counted", "worst counted", "all pairs")  # machines; of any, "all" is one of what
_LEVELS = {"model": "whole models", "ratio": "ratios of two devices", "op": "single ops and calls"}
_SHORT = 15
"""Lines of a chapter's level from which on all but summaries are folded away."""


def _in_percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}" if abs(value) < 0.0995 else f"{100 * value:.0f}"


def _whole_percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _folded_away(what: str, text: str) -> str:
    return f"<details><summary>{what}</summary>\n\n{text}\n</details>\n"


def _other_tools(line: Entry) -> str:
    return ", ".join(f"{name} {_in_percent(errors[1])}" for name, errors in line["peers"].items()) or "–"


def _line_cells(line: Entry) -> list[str]:
    hits = line["hit_rates"]
    levels = " / ".join(_whole_percent(hits[level]) for level in ("50%", "95%", "99%")) if hits else "–"
    width = line["half_width"]
    return [
        f"{line['machine']}: {line['what']}", f"{line['cases']:,}",
        _in_percent(line["median"]), _in_percent(line["mean"]),
        "–" if line["bias"] is None else f"{100 * line['bias']:+.1f}", _whole_percent(line["hit_rate"]),
        levels, "–" if width is None else f"×{width:.2f}", _other_tools(line),
    ]  # fmt: skip


_LINES = ("error in %", "cases", "median", "mean", "bias", "80 % hits", "50 / 95 / 99 % hits", "half-width",
          "others, mean")  # fmt: skip


def _is_summary(line: Entry) -> bool:
    of_all = line["machine"] in _SUMMARIES or line["what"] == "all" or line["machine"].startswith("median of")
    return of_all or bool(line["brier"])


def _lines_of_level(lines: Sequence[Entry]) -> str:
    summaries = [line for line in lines if _is_summary(line) and " / " not in line["what"]]
    if len(lines) < _SHORT or not summaries:
        return _markdown(_LINES, map(_line_cells, lines))
    others = [line for line in lines if line not in summaries]
    return f"{_markdown(_LINES, map(_line_cells, summaries))}\n" + _folded_away(
        f"{len(others)} more lines", _markdown(_LINES, map(_line_cells, others))
    )


def _thresholds(lines: Sequence[Entry]) -> Iterator[str]:
    """Write the Brier scores of lines that have them."""
    asked = [line for line in lines if line["brier"] and " / " not in line["what"]]
    if asked:
        ratios = list(asked[0]["brier"])
        rows = [
            [f"{line['machine']}, {line['what']}"]
            + [
                f"{line['brier'][ratio]:.2f} ({_whole_percent(line['wrong_verdicts'][ratio])} %)"
                for ratio in ratios
            ]
            + [f"{fmean(line['brier'].values()):.3f}"]
            for line in asked
        ]
        head = ["Brier score, and wrong by the value alone, at … times the truth", *ratios, "mean"]
        yield _markdown(head, rows)


def _of_tables(lines: Sequence[Entry]) -> str:
    """Write lines of medians with each table's own."""
    rows = []
    for line in lines:
        medians = sorted(line["medians"].items(), key=lambda one: one[1])
        each = ", ".join(f"{name} {_in_percent(value)}" for name, value in medians)
        rows.append(
            [line["what"], f"{line['cases']:,}", _in_percent(line["median"]), _in_percent(line["mean"]), each]
        )
    return _markdown(["error in %", "ops", "median", "mean", "median of each table"], rows)


def _aims_table(aims: Sequence[Entry]) -> str:
    """Write aims with what was found, missed ones in bold."""
    rows = []
    for aim in aims:
        figure = aim["figure"]
        name = f"{aim['machine']}: {aim['what']}, {figure.replace('_', ' ')}"
        found = validated_figure(aim["value"], figure)
        state = "met" if aim["met"] else "missed" if aim["kept"] else "**past its tolerance**"
        rows.append([name, found if aim["met"] else f"**{found}**", aim_range(aim["target"], figure),
                     aim_range(aim["tolerance"], figure), state])  # fmt: skip
    return _markdown(["aim", "now", "target", "tolerance", ""], rows)


def _published_table(entries: Sequence[Entry]) -> str:
    told = "; ".join(dict.fromkeys(one["source"] for one in entries))
    head = ["", "technique", "published", "projected", "80 % interval", "error"]
    return f"{_markdown(head, map(published_cells, entries))}\nPublished: {told}.\n"


def chapter(of: str, content: Entry) -> Iterator[str]:
    """Write what was found of a set: its lines, then its aims; nothing where it did not run."""
    lines = [line for line in content["lines"] if line["comparison"] == of]
    aims = [aim for aim in content["aims"] if aim["comparison"] == of]
    if published := [one for one in content["published"] if of == content["published_as"]]:
        yield _published_table(published)
    for level, words in _LEVELS.items():
        here = [line for line in lines if line["level"] == level]
        if here and all(line["hit_rate"] is None for line in here):
            yield _of_tables(here)
        elif here:
            yield f"*{words[:1].upper()}{words[1:]}*\n"
            yield _lines_of_level(here)
    yield from _thresholds(lines)
    if aims:
        yield _aims_table(aims)


def _short_answer(entries: Sequence[Entry]) -> str:
    rows = []
    for one in entries:
        figure = one["figure"]
        target = aim_range(one["target"], figure) if one["target"] is not None else "–"
        peers = ", ".join(f"{name} {_in_percent(error)} %" for name, error in one["peers"].items()) or "–"
        found = f"**{validated_figure(one['value'], figure)}**"
        rows.append([one["words"], f"{one['cases']:,}", found, target, peers])
    return _markdown(["", "cases", "error, or hits", "target", "other tools"], rows)


def _earlier_figures(content: Entry) -> str:
    """Write the figures of earlier versions, those of this page below them."""
    named = content["headlines"]
    now = {
        "date": "this page",
        "version": content["fomkit"],
        "figures": {one["name"]: one["value"] for one in named},
    }
    rows = [
        [f"{row['date']}, {row['version']}", *(_in_percent(row["figures"].get(one["name"])) for one in named)]
        for row in (*content["history"], now)
    ]
    return _markdown(["%", *(one["name"] for one in named)], rows)


def _verdicts(aims: Sequence[Mapping[str, bool]]) -> str:
    met, past = sum(aim["met"] for aim in aims), sum(not aim["kept"] for aim in aims)
    return (
        f"{met} of {len(aims)} targets are met; {past} figures are past their tolerance, and with one the command "
        "ends with exit code 1. Each chapter has its aims, and says why one is missed.\n"
    )


def accuracy_page(content: Entry) -> str:
    """Write ``fomkit/validate/1`` as Markdown."""
    texts = [one for one in content["sets"] if one["title"]]
    told = {one["set"] for one in texts}
    names = dict.fromkeys(line["comparison"] for line in content["lines"])
    texts += [{"title": name, "set": name, "text": ""} for name in names if name not in told]
    parts = [_TITLE, *(f"{one['text']}\n" for one in content["sets"] if not one["title"])]
    parts += [_short_answer(content["headlines"])] if content["headlines"] else []
    parts.append(_verdicts(content["aims"]))
    for one in texts:
        found = list(chapter(one["set"], content)) if one["set"] else []
        if found or not one["set"]:
            parts += [f"## {one['title']}\n", *([f"{one['text']}\n"] if one["text"] else []), *found]
    if content["headlines"]:
        said = "The figures of the first table, in percent, as earlier versions had them.\n"
        parts += ["## History\n", said, _earlier_figures(content)]
    notes = [f"- {note}\n" for note in content["said"]]
    left = [f"- {one['what']}: {one['count']:,}, {one['reason']}\n" for one in content["not_scored"]]
    for title, told_there in (("Splits, folds and rules", notes), ("Not scored", left)):
        parts += [f"## {title}\n", "".join(told_there)] if told_there else []
    return "\n".join(part for part in parts if part)
