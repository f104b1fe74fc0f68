"""What was measured so far, line by line, so that no interrupt loses it and a later run goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.measure.ops import Cells, key_of
from fomkit.profiles import write_whole
from fomkit.tables.opening import open_file

SCHEMA = "fomkit/measuring/1"
Answer = Mapping[str, Any]


def journal_path(output: Path) -> Path:
    """Give the file that keeps what was measured for a profile that is not done."""
    return output.with_name(f"{output.stem}.measuring.jsonl")


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    answered = all(isinstance(entry.get(one), dict) for one in ("cells", "answer"))
    return answered or isinstance(entry.get("mark"), str)


class Journal:
    """Ops and what came of them: times, or the reason why there are none.

    Parameters
    ----------
    path : Path
    about : mapping
        What makes timings comparable: device, threads, library. A run goes on only with the same.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.answers: dict[tuple[str, ...], tuple[Cells, Answer]] = {}
        self.marks: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Write a new file."""
        write_whole(self.path, json.dumps({"schema": SCHEMA, "about": self.about}) + "\n")

    def resume(self) -> None:
        """Take over what an earlier run measured; a last line that was cut off is left out.

        Raises
        ------
        FomkitError
            When there is no such file, or it is of another machine, thread count or library.
        """
        where = str(self.path)
        try:
            with open_file(self.path) as stream:
                first, *lines = stream.read().decode("utf-8").splitlines()
            header = json.loads(first)
        except OSError as error:
            raise FomkitError(where, "is not there, so nothing can be resumed. Leave --resume out.") from error
        except (ValueError, RecursionError) as error:
            raise FomkitError(where, "is no record of a measurement. Delete it and leave --resume out.") from error
        if not isinstance(header, dict) or header.get("schema") != SCHEMA:
            raise FomkitError(where, f"does not say schema {SCHEMA}. Delete it and leave --resume out.")
        before = header.get("about")
        if before != self.about:
            raise FomkitError(
                where, f"was measured on {_said(before)}, and this is {_said(self.about)}. "
                       "Measure anew, without --resume.",
            )  # fmt: skip
        for number, line in enumerate(lines, 2):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not _is_entry(entry):
                raise FomkitError(f"{where}:{number}", "is no op with its answer. Delete the line, or the file.")
            self._take(entry)
        self.begin()
        for entry in self._entries():
            self._write(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        if "mark" in entry:
            self.marks.append(entry)
        else:
            self.answers[key_of(entry["cells"])] = (entry["cells"], entry["answer"])

    def _entries(self) -> list[dict[str, Any]]:
        return [*self.marks, *({"cells": cells, "answer": answer} for cells, answer in self.answers.values())]

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def keep(self, cells: Cells, answer: Answer) -> None:
        """Add what came of an op."""
        entry = {"cells": dict(cells), "answer": dict(answer)}
        self._take(entry)
        self._write(entry)

    def mark(self, name: str, **values: object) -> None:
        """Add something else that was seen, under a name."""
        entry = {"mark": name, **values}
        self._take(entry)
        self._write(entry)

    def marked(self, name: str) -> list[dict[str, Any]]:
        """Give what was seen under a name, in order."""
        return [one for one in self.marks if one["mark"] == name]

    def close(self) -> None:
        """Delete the file: its profile is written."""
        self.path.unlink(missing_ok=True)


def _said(about: object) -> str:
    return ", ".join(str(value) for value in about.values()) if isinstance(about, dict) else "something else"
