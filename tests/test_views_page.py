"""docs/views.md: examples equal the command's output; ``python tests/test_views_page.py`` rewrites them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from fomkit.cli import choices
from fomkit.cli.main import app
from fomkit.ops.groups import GROUPINGS
from fomkit.output.screen import Screen

PAGE = Path(__file__).resolve().parent.parent / "docs" / "views.md"
WIDTH = 96
EXAMPLE = re.compile(r"^```text\n\$ fomkit ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def printed(command: str) -> str:
    with patch.object(choices, "standard_output", lambda: Screen(WIDTH)):
        done = CliRunner().invoke(app, [*shlex.split(command), "--quiet"])
    if done.exit_code:
        raise AssertionError(f"{command}: {done.exception!r}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


@pytest.mark.parametrize(("command", "shown"), EXAMPLE.findall(PAGE.read_text(encoding="utf-8")))
def test_the_pages_examples_are_what_is_printed(command: str, shown: str) -> None:
    assert printed(command) == shown, "run 'python tests/test_views_page.py'"


def test_every_view_is_on_the_page() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(rows) == set(GROUPINGS)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    filled = EXAMPLE.sub(lambda found: f"```text\n$ fomkit {found[1]}\n{printed(found[1])}```", text)
    PAGE.write_text(filled, encoding="utf-8")
