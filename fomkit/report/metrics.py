"""The table of metrics for people: as a printed table, and as the page docs/metrics.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fomkit.metrics import DEEP500, METRICS
from fomkit.report.screen import PLAIN, Page, Screen, new_table

_HEADERS = ("figure", "unit", "level", "better", "mean", "by", "what")
_PAGE = """# Metrics

Written by `python -m fomkit.cli.metrics_page` from the table in `fomkit/metrics/table.py`; a test compares, and
another walks the JSON of the commands: every figure in it has a row here. `fomkit show --metrics` prints the
same.

A figure is named by the end of its place in the JSON output (`--json`, and the columns of CSV files), lists
left out; `*` stands for a name in between, *keys* are what its values are told apart by. A value with its ends
`low` and `high` is one figure. `count`, `ratio` and `share` are plain numbers; `mixed` is the unit of whatever
the figure speaks of.

The mean is the one that may be taken over several values of a figure: of times the arithmetic, of rates the
harmonic, of ratios the geometric, or none (Smith, CACM 31(10), 1988; Fleming and Wallace, CACM 29(3), 1986). A
suite's figure of merit is the ratio of harmonic mean rates; the other means of its ratios are told beside it
and not to be averaged.

The levels are those of Deep500 (Ben-Nun et al., "A Modular Benchmarking Infrastructure for High-Performance and
Reproducible Deep Learning", IPDPS 2019): operators (0), networks (1), training (2), distributed training (3).
What a whole machine does is `system`. No figure is of the level `distributed` yet.
"""
_DEEP500 = """
## Deep500's metrics

The metrics by which Table II of that paper compares benchmarks, and what gives them here. Its other columns
(closed, open, infrastructure, operators, and the fields of application) say what a benchmark contains, which is
no figure. The columns were written down after the paper; they could not be compared with its print here.
"""


def metrics_content() -> dict[str, Any]:
    """Give the table as plain content (``fomkit/show/1``)."""
    return {
        "schema": "fomkit/show/1",
        "metrics": [{**one._asdict(), "by": one.by.split()} for one in METRICS],
        "deep500": [one._asdict() for one in DEEP500],
    }


def format_metrics(content: dict[str, Any], screen: Screen = PLAIN) -> str:
    """Write the table as aligned text, then what Deep500 has and fomkit has not."""
    page = Page(screen)
    table = new_table([(header, "") for header in _HEADERS])
    for one in content["metrics"]:
        keyed = f"; by {one['keyed']}" if one["keyed"] else ""
        commands = ", ".join(one["by"])
        table.add_row(
            one["name"], one["unit"], one["level"], one["better"], one["mean"], commands, f"{one['doc']}{keyed}"
        )
    page.table(table)
    for one in content["deep500"]:
        if one["absent"]:
            page.line(f"absent, of Deep500's metrics: {one['what']}: {one['absent']}")
    return page.text()


def _lines() -> Iterator[str]:
    yield "| figure | unit | level | better | mean | by | keys | what |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in METRICS:
        commands = ", ".join(f"`{verb}`" for verb in one.by.split())
        yield (
            f"| `{one.name}` | {one.unit} | {one.level} | {one.better} | {one.mean} | {commands} | {one.keyed} | "
            f"{one.doc} |"
        )


def metrics_page() -> str:
    """Give docs/metrics.md."""
    given = [
        f"| {one.column} | {one.what} | {', '.join(f'`{name}`' for name in one.ours) or f'absent: {one.absent}'} |"
        for one in DEEP500
    ]
    columns = ["| column | what | here |", "|---|---|---|", *given]
    return "\n".join([_PAGE, *_lines(), _DEEP500, *columns]) + "\n"
