"""The names of models, suites, campaigns and machines, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fomkit.report.screen import PLAIN, Page, Screen, new_table


def format_profiles(rows: Sequence[Mapping[str, str]], screen: Screen = PLAIN) -> str:
    """Write what can be named: models, suites, campaigns, then machines, each with its title."""
    page = Page(screen)
    table = new_table([("", ""), ("name", ""), ("title", "")])
    for row in rows:
        table.add_row(row["what"], row["name"], row["title"])
    page.table(table)
    page.line("fomkit show NAME says what is in one; fomkit estimate MODEL --target MACHINE joins two;")
    page.line(
        "fomkit fom SUITE rates machines on a suite; fomkit campaign CAMPAIGN --target MACHINE, how long it takes"
    )
    return page.text()
