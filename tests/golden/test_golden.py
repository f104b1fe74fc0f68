"""What every verb shows is what the corpus keeps; a change that is meant is written with ``corpus.py --write``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NAMES = [line[3:].strip() for line in (HERE / "calls.txt").read_text().splitlines() if line.startswith("## ")]


@pytest.mark.parametrize("name", NAMES)
def test_it_shows_what_is_kept(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "corpus.py"), name], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
