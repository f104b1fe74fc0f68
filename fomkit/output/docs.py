"""Format the accuracy page, docs/accuracy.md, and the table of metrics.

The page is made from ``fomkit/validate/1`` alone: the short answer, a chapter for each set with its text, its
lines and its aims, the figures of earlier versions, and what was not scored. It has no date and no machine, so it
is the same wherever the command ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, TypedDict, cast

from fomkit.output.comparisons import aim_range, published_cells, validated_figure
from fomkit.output.screen import PLAIN, Entry, Page, Screen
from fomkit.profiles.metrics import DEEP500, METRICS

_HEADERS = ("figure", "unit", "level", "better", "mean", "by", "what")

ListedMetric = TypedDict("ListedMetric", {
    "name": str, "title": str, "unit": str, "level": str, "better": str, "mean": str, "by": list[str], "doc": str,
    "keyed": str,
})  # fmt: skip
OfDeep500 = TypedDict("OfDeep500", {"column": str, "what": str, "ours": tuple[str, ...], "absent": str})
MetricsContent = TypedDict("MetricsContent", {"schema": str, "metrics": list[ListedMetric],
                                              "deep500": list[OfDeep500]})  # fmt: skip


def metrics_content() -> MetricsContent:
    """Return the table of metrics as plain content (``fomkit/show/1``)."""
    return {
        "schema": "fomkit/show/1",
        "metrics": [cast("ListedMetric", {**one._asdict(), "by": one.by.split()}) for one in METRICS],
        "deep500": [cast("OfDeep500", one._asdict()) for one in DEEP500],
    }


def format_metrics(content: dict[str, Any], screen: Screen = PLAIN) -> str:
    """Format the table of metrics, then Deep500's metrics that fomkit lacks."""
    page = Page(screen)
    rows = (
        [*(metric[key] for key in ("name", "unit", "level", "better", "mean")), ", ".join(metric["by"]),
         "; by ".join(filter(None, (metric["doc"], metric["keyed"])))]
        for metric in content["metrics"]
    )  # fmt: skip
    page.rows(_HEADERS, rows)
    for one in content["deep500"]:
        if one["absent"]:
            page.line(f"Deep500 metrics that are absent: {one['what']}: {one['absent']}")
    return page.text()


_TITLE = """# How right it is

Written by `fomkit validate -o docs/accuracy.md`, the texts from `validation/sets.md`; a test compares.
"""
_SUMMARIES = ("all", "all counted", "worst counted", "all pairs")  # values of ``machine`` in summaries
_LEVELS = {"model": "whole models", "ratio": "ratios of two devices", "op": "single ops and calls"}
_SHORT = 15
"""Number of lines in a chapter's level from which only summaries are shown unfolded."""


def _in_percent(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}" if abs(value) < 0.0995 else f"{100 * value:.0f}"


def _whole_percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _line_cells(line: Entry) -> list[str]:
    hits = line["hit_rates"]
    levels = " / ".join(_whole_percent(hits[level]) for level in ("50%", "95%", "99%")) if hits else "–"
    width = line["half_width"]
    others = ", ".join(f"{name} {_in_percent(errors[1])}" for name, errors in line["peers"].items()) or "–"
    return [
        f"{line['machine']}: {line['what']}", f"{line['cases']:,}",
        _in_percent(line["median"]), _in_percent(line["mean"]),
        "–" if line["bias"] is None else f"{100 * line['bias']:+.1f}", _whole_percent(line["hit_rate"]),
        levels, "–" if width is None else f"×{width:.2f}", others,
    ]  # fmt: skip


_LINES = ("error in %", "cases", "median", "mean", "bias", "80 % hits", "50 / 95 / 99 % hits", "half-width",
          "others, mean")  # fmt: skip


def _lines_of_level(lines: Sequence[Entry]) -> str:
    of_all = (
        line for line in lines
        if line["machine"] in _SUMMARIES or line["what"] == "all" or line["machine"].startswith("median of")
        or line["brier"]
    )  # fmt: skip
    summaries = [line for line in of_all if " / " not in line["what"]]
    if len(lines) < _SHORT or not summaries:
        return _markdown(_LINES, map(_line_cells, lines))
    others = [line for line in lines if line not in summaries]
    folded = (
        f"<details><summary>{len(others)} more lines</summary>\n\n{_markdown(_LINES, map(_line_cells, others))}"
    )
    return f"{_markdown(_LINES, map(_line_cells, summaries))}\n{folded}\n</details>\n"


def _thresholds(lines: Sequence[Entry]) -> Iterator[str]:
    """Yield a table of Brier scores, where lines have them."""
    scored = [line for line in lines if line["brier"] and " / " not in line["what"]]
    if scored:
        ratios = list(scored[0]["brier"])
        rows = []
        for line in scored:
            scores, wrong = line["brier"], line["wrong_verdicts"]
            each = [f"{scores[ratio]:.2f} ({_whole_percent(wrong[ratio])} %)" for ratio in ratios]
            rows.append([f"{line['machine']}, {line['what']}", *each, f"{fmean(scores.values()):.3f}"])
        head = ["Brier score, and wrong by the value alone, at … times the truth", *ratios, "mean"]
        yield _markdown(head, rows)


def _of_tables(lines: Sequence[Entry]) -> str:
    """Format lines of medians with the median of each table."""
    rows = []
    for line in lines:
        medians = sorted(line["medians"].items(), key=lambda one: one[1])
        each = ", ".join(f"{name} {_in_percent(value)}" for name, value in medians)
        rows.append(
            [line["what"], f"{line['cases']:,}", _in_percent(line["median"]), _in_percent(line["mean"]), each]
        )
    return _markdown(["error in %", "ops", "median", "mean", "median of each table"], rows)


def _aims_table(aims: Sequence[Entry]) -> str:
    """Format aims with the figures found, missed ones in bold."""
    rows = []
    for aim in aims:
        figure = aim["figure"]
        name = f"{aim['machine']}: {aim['what']}, {figure.replace('_', ' ')}"
        found = validated_figure(aim["value"], figure)
        state = "met" if aim["met"] else "missed" if aim["kept"] else "**past its tolerance**"
        rows.append([name, found if aim["met"] else f"**{found}**", aim_range(aim["target"], figure),
                     aim_range(aim["tolerance"], figure), state])  # fmt: skip
    return _markdown(["aim", "now", "target", "tolerance", ""], rows)


def chapter(of: str, content: Entry) -> Iterator[str]:
    """Yield the results of a set: its lines, then its aims; nothing where it did not run."""
    lines = [line for line in content["lines"] if line["comparison"] == of]
    aims = [aim for aim in content["aims"] if aim["comparison"] == of]
    if published := [one for one in content["published"] if of == content["published_as"]]:
        head = ["", "technique", "published", "projected", "80 % interval", "error"]
        sources = "; ".join(dict.fromkeys(one["source"] for one in published))
        yield f"{_markdown(head, map(published_cells, published))}\nPublished: {sources}.\n"
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
    """Format the figures of earlier versions, with those of this page in the last row."""
    named = content["headlines"]
    figures = {one["name"]: one["value"] for one in named}
    now = {"date": "this page", "version": content["fomkit"], "figures": figures}
    rows = [
        [f"{row['date']}, {row['version']}", *(_in_percent(row["figures"].get(one["name"])) for one in named)]
        for row in (*content["history"], now)
    ]
    return _markdown(["%", *(one["name"] for one in named)], rows)


def accuracy_page(content: Entry) -> str:
    """Format ``fomkit/validate/1`` as Markdown."""
    texts = [one for one in content["sets"] if one["title"]]
    titled = {one["set"] for one in texts}
    names = dict.fromkeys(line["comparison"] for line in content["lines"])
    texts += [{"title": name, "set": name, "text": ""} for name in names if name not in titled]
    parts = [_TITLE, *(f"{one['text']}\n" for one in content["sets"] if not one["title"])]
    parts += [_short_answer(content["headlines"])] if content["headlines"] else []
    aims = content["aims"]
    met, past = sum(aim["met"] for aim in aims), sum(not aim["kept"] for aim in aims)
    parts.append(
        "A *target* is the accuracy that we aim at. A *tolerance* is a limit near today's figure: past it the "
        "command ends with exit code 1, so that no change makes a figure worse unnoticed. "
        f"{met} of {len(aims)} targets are met; {past} figures are past their tolerance. Each chapter has its "
        "aims, and says why one is missed.\n"
    )
    for one in texts:
        found = list(chapter(one["set"], content)) if one["set"] else []
        if found or not one["set"]:
            parts += [f"## {one['title']}\n", *([f"{one['text']}\n"] if one["text"] else []), *found]
    if content["headlines"]:
        intro = "The figures of the first table, in percent, as earlier versions had them.\n"
        parts += ["## History\n", intro, _earlier_figures(content)]
    notes = [f"- {note}\n" for note in content["said"]]
    left = [f"- {one['what']}: {one['count']:,}, {one['reason']}\n" for one in content["not_scored"]]
    for title, lines in (("Splits, folds and rules", notes), ("Not scored", left)):
        parts += [f"## {title}\n", "".join(lines)] if lines else []
    return "\n".join(part for part in parts if part)
