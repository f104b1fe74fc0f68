"""A timeline as the text of a trace file: one event a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def timeline_text(content: Mapping[str, Any]) -> str:
    """Write trace events in JSON object format; NaN and infinity are refused.

    Examples
    --------
    >>> print(timeline_text({"traceEvents": [{"ph": "M"}, {"ph": "X"}], "displayTimeUnit": "ms"}), end="")
    {"traceEvents": [
    {"ph": "M"},
    {"ph": "X"}
    ],
    "displayTimeUnit": "ms"}
    """

    def written(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    events = ",\n".join(written(event) for event in content["traceEvents"])
    others = (item for item in content.items() if item[0] != "traceEvents")
    rest = ",\n".join(f"{written(key)}: {written(value)}" for key, value in others)
    return f'{{"traceEvents": [\n{events}\n],\n{rest}}}\n'
