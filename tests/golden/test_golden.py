"""The output of every verb equals the corpus; intended changes are written by ``corpus.py --write``."""

from __future__ import annotations

import subprocess
import sys

import pytest
from golden.corpus import AS_KEPT, HEAD, HERE, sections


@pytest.fixture(scope="module")
def summaries(request: pytest.FixtureRequest) -> dict[str, str]:
    """Run the requested sections in one separate process, which reads machines once."""
    nodes = {f"test_it_shows_what_is_kept[{name}]": name for name in sections()}
    wanted = [nodes[one.name] for one in request.session.items if one.name in nodes]
    done = subprocess.run(
        [sys.executable, str(HERE / "corpus.py"), *wanted],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    found = dict.fromkeys(wanted, f"did not end: {done.stderr}")
    for one in f"\n{done.stdout}".split(f"\n{HEAD}")[1:]:
        name, _, summary = one.partition(": ")
        found[name] = summary.strip()
    return found


@pytest.mark.parametrize("name", sections())
def test_it_shows_what_is_kept(name: str, summaries: dict[str, str]) -> None:
    assert summaries[name] == AS_KEPT, summaries[name]
