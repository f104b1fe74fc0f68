"""Which cells the headlines hang on: the references of formulas, followed from Summary back to figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fomkit.tables.xlsx import MAX_COLUMNS, MAX_ROWS
from fomkit.workbook.layout import CHANGED

Place = tuple[str, int, int]
"""Sheet, row and column, both from 1."""
_TEXT = re.compile(r'"[^"]*"')
_REFERENCE = re.compile(
    r"(?:'([^']+)'!|([A-Za-z_]\w*)!)?\$?([A-Z]{1,3})\$?(\d+)(?::\$?([A-Z]{1,3})\$?(\d+))?(?![\w(])"
)
HEADLINES = "Summary"


def _number(letters: str) -> int:
    found = 0
    for letter in letters:
        found = 26 * found + ord(letter) - ord("A") + 1
    return found


def precedents(formula: str, sheet: str) -> Iterator[Place]:
    """Walk over the cells that a formula names; those without a sheet stand on its own.

    Examples
    --------
    >>> list(precedents('=IF(A1="B2",Ops!$C$3:$C$4,0)', "Summary"))
    [('Summary', 1, 1), ('Ops', 3, 3), ('Ops', 4, 3)]
    """
    for quoted, plain, left, top, right, bottom in _REFERENCE.findall(_TEXT.sub("", formula)):
        there, last = quoted or plain or sheet, min(int(bottom or top), MAX_ROWS)
        for row in range(int(top), last + 1):
            for column in range(_number(left), min(_number(right or left), MAX_COLUMNS) + 1):
                yield there, row, column


def _is_state(place: Place, formulas: Mapping[Place, str]) -> bool:
    """Tell whether a cell says that something was changed, or shows such a cell."""
    text = formulas[place]
    if _REFERENCE.fullmatch(text.removeprefix("=")):
        text = formulas.get(next(precedents(text, place[0]), place), "")
    return f'"{CHANGED}"' in text


def behind_headlines(formulas: Mapping[Place, str]) -> frozenset[Place]:
    """Give every cell that a value of Summary hangs on, through however many formulas.

    Words that say whether something was changed are no headline: they hang on every input, also on those that move
    nothing.

    Parameters
    ----------
    formulas : mapping
        Every formula of a workbook by its place.
    """
    waiting = [place for place in formulas if place[0] == HEADLINES and not _is_state(place, formulas)]
    seen, blocks = set(waiting), set[tuple[str, str]]()
    while waiting:
        sheet, row, column = waiting.pop()
        text = formulas.get((sheet, row, column))
        if text is None or (sheet, text) in blocks:
            continue
        blocks.add((sheet, text))
        for place in precedents(text, sheet):
            if place not in seen:
                seen.add(place)
                waiting.append(place)
    return frozenset(seen)
