"""The text of the column ``code_line``: which lines of the user's code run an op, and how often each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_BETWEEN = "; "
_TIMES = re.compile(r" ×(\d{1,12})$")
_PLACE = re.compile(r":(\d{1,9})(?: (\S+))?$")


class CodeLine(NamedTuple):
    """One line of code.

    Attributes
    ----------
    file : str
        Path as the profile gives it; a text of another form is all file.
    line : int or None
    function : str
        With its class; "" where nobody says.
    times : int or None
        Executions of the op that are this line's; None for all that the other lines leave.
    """

    file: str
    line: int | None
    function: str
    times: int | None


def code_line(file: str, line: int, function: str) -> str:
    """Write one line of code.

    Examples
    --------
    >>> code_line("model.py", 12, "Block.forward")
    'model.py:12 Block.forward'
    """
    plain = (text.replace(";", ",").replace("×", "x") for text in (file, function))
    return f"{next(plain)}:{line} {next(plain).replace(' ', '_')}"


def join_lines(lines: Mapping[str, int], count: int | str) -> str:
    """Write the cell of a row.

    Parameters
    ----------
    lines : mapping
        Executions by line of code.
    count : int or str
        Executions of the row; with an expression in named sizes nobody knows how many are each line's.

    Examples
    --------
    >>> join_lines({"model.py:12 f": 2}, 2), join_lines({"model.py:12 f": 2, "model.py:14 f": 1}, 3)
    ('model.py:12 f', 'model.py:12 f ×2; model.py:14 f ×1')
    """
    if isinstance(count, str) or list(lines.values()) == [count]:
        return _BETWEEN.join(lines)
    return _BETWEEN.join(f"{line} ×{times}" for line, times in lines.items())


def split_code_lines(cell: str) -> list[CodeLine]:
    """Read the cell of a row; any text is taken.

    Examples
    --------
    >>> split_code_lines("model.py:12 Block.forward ×2; model.py:14")
    [CodeLine(file='model.py', line=12, function='Block.forward', times=2), \
CodeLine(file='model.py', line=14, function='', times=None)]
    """
    return [_one(text.strip()) for text in cell.split(_BETWEEN.strip()) if text.strip()]


def _one(text: str) -> CodeLine:
    times = _TIMES.search(text)
    text = text[: times.start()] if times else text
    count = int(times[1]) if times else None
    place = _PLACE.search(text)
    if place is None or not place.start():
        return CodeLine(text, None, "", count)
    return CodeLine(text[: place.start()], int(place[1]), place[2] or "", count)
