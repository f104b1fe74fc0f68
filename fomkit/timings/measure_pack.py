"""The script of a pack as one text: how ops are made and checked, how they are timed, and what repeats tell."""

from __future__ import annotations

import re
from pathlib import Path

PARTS = (
    "cases", "products", "updates", "traffic", "windows", "makers", "statistics", "watch", "times"
)  # fmt: skip
"""The files of the script, in the order in which they use each other."""
_OWN_IMPORT = re.compile(
    r"^from fomkit\.timings\.measure_\w+ import (?:\([^)]*\)|[^\n(]*)(?:  #[^\n]*)?\n", re.MULTILINE
)
_FUTURE = "from __future__ import annotations\n"


def script_text() -> str:
    """Give the source of a script that needs nothing but Python and PyTorch."""
    texts = [Path(__file__).with_name(f"measure_{part}.py").read_text(encoding="utf-8") for part in PARTS]
    bodies = [_OWN_IMPORT.sub("", text.partition(_FUTURE)[2]).lstrip() for text in texts]
    return texts[0].partition(_FUTURE)[0] + _FUTURE + "\n" + "\n\n".join(bodies)
