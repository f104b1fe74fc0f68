"""The child's side of a request: what it is asked, and the result file that it leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Where the result goes, and the parent's nonce, which the user's code never sees."""

    path: Path
    nonce: str

    def leave(self, result: Mapping[str, Any]) -> None:
        """Write the result, whole or not at all."""
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps({"nonce": self.nonce, **result}), encoding="utf-8")
        unfinished.replace(self.path)


def take_request() -> tuple[dict[str, Any], Answer]:
    """Read a request from standard input; standard output and error belong to the user's code."""
    request = json.loads(sys.stdin.readline())
    return request, Answer(Path(request.pop("result")), request.pop("nonce"))
