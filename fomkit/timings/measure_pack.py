"""The script of a pack as one text: how ops are made and checked, then how they are timed."""

from __future__ import annotations

import re
from pathlib import Path

_OWN_IMPORT = re.compile(r"^from fomkit\.timings\.measure_cases import .*\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"


def script_text() -> str:
    """Give the source of a script that needs nothing but Python and PyTorch."""
    folder = Path(__file__).parent
    cases = (folder / "measure_cases.py").read_text(encoding="utf-8")
    times = (folder / "measure_times.py").read_text(encoding="utf-8")
    return f"{cases}\n\n{_OWN_IMPORT.sub('', times.partition(_FUTURE)[2]).lstrip()}"
