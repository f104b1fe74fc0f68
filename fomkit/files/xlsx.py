"""Read workbooks from untrusted sources: checked before they are opened, opened read-only, read as plain values.

A workbook is a zip archive of XML. A small file may hold a part of many gigabytes, or one lone cell in the last
corner of the grid, so size, ratio, parts, rows and columns are limited, each with its own message. Colours in any
notation are converted to RGB, to determine whether text is legible on its background.
"""

from __future__ import annotations

import colorsys
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError, fromstring

from openpyxl import Workbook, load_workbook
from openpyxl.styles.colors import COLOR_INDEX
from openpyxl.utils import get_column_letter
from openpyxl.utils.exceptions import InvalidFileException
from openpyxl.worksheet.worksheet import Worksheet

from fomkit.core.errors import FomkitError
from fomkit.files.csv import open_file, read_errors_reported

MAX_BYTE = 64_000_000
"""Largest file, and largest total content of its parts [byte]."""
MAX_RATIO = 100
"""Largest ratio of content to file; workbooks of figures unpack to about 5 times."""
MAX_PARTS = 1000
MAX_ROWS = 20_000
MAX_COLUMNS = 256

ZIP_START = b"PK\x03\x04"
_ENCRYPTED = 0x1
_HEAD = 200
_ENCODING = re.compile(rb"""(?:\xef\xbb\xbf)?\s*<\?xml\b[^>]*?\bencoding\s*=\s*["']([\x21-\x7e]*?)["']""")
_PLAIN = ("utf-8", "utf8", "us-ascii", "ascii")
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<", b"\0\0")
_DOCTYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))
_REASON_LENGTH = 100
"""Largest number of shown characters of the cause of damage, which may quote the file."""
# What zipfile, the XML parser and openpyxl raise for a damaged archive; openpyxl has no error class of its own for
# malformed parts and passes Python's errors on.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ParseError, InvalidFileException,
    ValueError, TypeError, AttributeError, LookupError, OSError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """One sheet as plain values.

    `rows`: ``rows[0][0]`` is cell A1; rows end at their last cell. A formula cell has its cached value.
    `uncached` (row, column): 1-based positions of formulas that were saved without a value.
    """

    name: str
    rows: tuple[tuple[object, ...], ...]
    uncached: frozenset[tuple[int, int]] = frozenset()

    def cell(self, row: int, column: int) -> object:
        """Return the value at a 1-based position; None where the sheet has no such cell.

        >>> Sheet("s", (("M", "N"), (1760.0,))).cell(2, 1)
        1760.0
        """
        values = self.rows[row - 1] if row <= len(self.rows) else ()
        return values[column - 1] if column <= len(values) else None

    def filled(self, start: int = 1, stop: int | None = None) -> int:
        """Count the rows from ``start`` to before ``stop`` (1-based) that are not empty."""
        rows = self.rows[start - 1 : None if stop is None else stop - 1]
        return sum(any(value is not None for value in row) for row in rows)


def cell_name(row: int, column: int) -> str:
    """Return the name of a cell as in spreadsheet programs.

    >>> cell_name(98, 9)
    'I98'
    """
    return f"{get_column_letter(column)}{row}"


def looks_like_workbook(path: Path) -> bool:
    """Return whether a file can be a workbook, by its first bytes."""
    with read_errors_reported(path), open_file(path) as stream:
        return stream.read(len(ZIP_START)) == ZIP_START


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Convert errors of a damaged file to one message, and silence openpyxl's warnings about unused features."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"openpyxl(\..*)?")
            yield
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0][:_REASON_LENGTH].rstrip(".")
        raise FomkitError(
            str(path), f"is damaged or not a workbook ({reason}). Save it again as .xlsx in a spreadsheet program."
        ) from error


def _check_directory(path: Path, parts: list[zipfile.ZipInfo], byte: int) -> None:
    size = sum(part.file_size for part in parts)
    if len(parts) > MAX_PARTS:
        raise FomkitError(str(path), f"has {len(parts):,} parts. Up to {MAX_PARTS:,} were expected.")
    if size > MAX_BYTE:
        raise FomkitError(
            str(path), f"unpacks to {size:,} bytes. Up to {MAX_BYTE:,} were expected. Split the workbook."
        )
    if size > MAX_RATIO * byte:
        raise FomkitError(
            str(path),
            f"unpacks to {size / byte:,.0f} times its size. Up to {MAX_RATIO} times was expected. "
            "Save it again in a spreadsheet program.",
        )
    if any(part.flag_bits & _ENCRYPTED for part in parts):
        raise FomkitError(str(path), "is encrypted. Save it without a password.")
    # Other compression methods cannot be unpacked piecewise, and no workbook uses them.
    if any(part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for part in parts):
        raise FomkitError(str(path), "has an unknown compression. Save it again as .xlsx.")


def _check_part(path: Path, name: str, data: bytes) -> None:
    """Raise for XML that is not UTF-8, the encoding of spreadsheet programs, and for any document type."""
    encoding = _ENCODING.match(data[:_HEAD])
    stated = encoding[1].decode("ascii").lower() if encoding else "utf-8"
    if data[:2] in _UTF16 and name.endswith((".xml", ".rels", ".vml")):
        stated = "utf-16"
    if stated not in _PLAIN:
        raise FomkitError(
            str(path),
            f"has {stated!r:.40} text in {name}. UTF-8 was expected. Save it again in a spreadsheet program.",
        )
    if any(mark in data for mark in _DOCTYPES):
        raise FomkitError(str(path), f"declares a document type in {name}, which is not allowed. Save it without.")


def unpacked_file(path: Path) -> bytes:
    """Read a workbook's file under the limits of this module, as an uncompressed archive: openpyxl reads no other.

    A directory may state a false size of a part, and an unlimited read would unpack it all before noticing.
    """
    if not looks_like_workbook(path):
        raise FomkitError(
            str(path), "is not an .xlsx workbook (a zip archive). Save it as .xlsx without a password."
        )
    size = path.stat().st_size
    if size > MAX_BYTE:
        raise FomkitError(str(path), f"is larger than {MAX_BYTE:,} bytes. Split it.")
    with open_file(path) as stream:
        content = stream.read(size)
    plain = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(plain, "w") as copy:
        _check_directory(path, archive.infolist(), len(content))
        for name in dict.fromkeys(archive.namelist()):
            part = archive.getinfo(name)
            with archive.open(part) as packed:
                data = packed.read(part.file_size)
            _check_part(path, part.filename, data)
            copy.writestr(name, data)
    return plain.getvalue()


def _sheet_rows(path: Path, sheet: Worksheet) -> Iterator[tuple[int, tuple[Any, ...]]]:
    # The dimensions that a sheet states may be false, so they are reset and the rows are counted.
    sheet.reset_dimensions()  # type: ignore[attr-defined]  # of read-only sheets; the stubs lack it
    for number, row in enumerate(sheet.iter_rows(), start=1):
        if number > MAX_ROWS or len(row) > MAX_COLUMNS:
            raise FomkitError(
                str(path),
                f"sheet {sheet.title!r} has cells beyond row {MAX_ROWS:,} or column {MAX_COLUMNS}. "
                "Delete the rows and columns outside its tables.",
            )
        yield number, row


BLACK, WHITE = "000000", "FFFFFF"
LEGIBLE = 1.6
"""Contrast ratio below which text is illegible on its background; WCAG 2.2 demands 4.5."""
_SYSTEM = {"64": BLACK, "65": WHITE}
"""System colours by index: text and background."""
_THEME = {
    "lt1": WHITE, "dk1": BLACK, "lt2": "EEECE1", "dk2": "1F497D", "accent1": "4F81BD", "accent2": "C0504D",
    "accent3": "9BBB59", "accent4": "8064A2", "accent5": "4BACC6", "accent6": "F79646", "hlink": "0000FF",
    "folHlink": "800080",
}  # fmt: skip
"""Office's theme colours in the order of their numbers, for a workbook without a theme."""


def local(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@lru_cache(maxsize=4096)
def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2, "contrast ratio"), from 1 to 21.

    >>> contrast("000000", "FFFFFF"), round(contrast("FEFEFE", "FFF9D9"), 2)
    (21.0, 1.05)
    """
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _tinted(colour: str, tint: float) -> str:
    """Lighten or darken a colour by a tint, according to ECMA-376 part 1, 18.8.19."""
    if not tint:
        return colour
    hue, light, full = colorsys.rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)))
    light = light * (1 + tint) if tint < 0 else light * (1 - tint) + tint
    return "".join(f"{round(255 * min(max(one, 0.0), 1.0)):02X}" for one in colorsys.hls_to_rgb(hue, light, full))


@dataclass(frozen=True)
class Palette:
    """The colours of one workbook: by theme number, and by index."""

    theme: Sequence[str] = tuple(_THEME.values())
    index: Sequence[str] = COLOR_INDEX

    def colour(self, stated: Mapping[str, str], otherwise: str) -> str:
        """Return a colour as six hexadecimal digits; ``otherwise`` where none is stated, or it is invalid.

        `stated`: attributes of a colour element: ``rgb``, ``theme``, ``indexed`` or ``auto``, and ``tint``.
        """
        found = stated.get("rgb", "")[-6:]
        with_number = self.theme if "theme" in stated else self.index if "indexed" in stated else ()
        number = stated.get("theme", stated.get("indexed", ""))
        if "indexed" in stated and number in _SYSTEM:
            found = _SYSTEM[number]
        elif number.isdigit() and int(number) < len(with_number):
            found = with_number[int(number)][-6:]
        if not re.fullmatch(r"[0-9A-Fa-f]{6}", found):
            return otherwise
        try:
            return _tinted(found.upper(), float(stated.get("tint", 0.0)))
        except ValueError:
            return found.upper()


def palette_of(theme: bytes | None, index: Sequence[str] | None = None) -> Palette:
    """Read the colours of a workbook's theme."""
    found: dict[str, str] = {}
    scheme = () if not theme else fromstring(theme).iter()  # noqa: S314 - the door refuses document types
    for one in scheme:
        if local(one) in _THEME and len(one) and local(one) not in found:
            found[local(one)] = one[0].get("lastClr") or one[0].get("val") or ""
    colours = tuple(found.get(name) or default for name, default in _THEME.items())
    return Palette(colours, tuple(index) if index else COLOR_INDEX)


def is_legible(text: str, ground: str) -> bool:
    """Return whether text of one colour is legible on a background of another."""
    return contrast(text, ground) >= LEGIBLE


_FOREIGN = (
    "vbaProject", "xl/externalLinks/", "xl/embeddings/", "xl/activeX/", "xl/connections", "xl/queryTables/",
)  # fmt: skip
"""Parts through which a workbook runs code or loads data from elsewhere."""


@dataclass(frozen=True)
class Content:
    """The content and look of one cell.

    `value`: for a formula the value that was saved with it, None without one.
    `formula`: with its =; "" where there is none.
    `form`: the number format.
    `ink`, `ground`: colours of the text and of the background, six hexadecimal digits each.
    `size`: font size [points].
    """

    value: object
    formula: str = ""
    form: str = "General"
    ink: str = BLACK
    ground: str = WHITE
    size: float = 11.0


def _opened(content: bytes, *, values: bool) -> Workbook:
    """Open a workbook to read its cells' values, as stored, or else their formulas."""
    return load_workbook(io.BytesIO(content), read_only=True, data_only=values, keep_links=False)


def _sheet_values(path: Path, content: bytes) -> dict[str, tuple[tuple[object, ...], ...]]:
    return {
        sheet.title: tuple(tuple(cell.value for cell in row) for _, row in _sheet_rows(path, sheet))
        for sheet in _opened(content, values=True).worksheets
    }


def read_workbook(path: Path) -> tuple[Sheet, ...]:
    """Read every sheet of a workbook as plain values, in the workbook's order."""
    sheets = []
    with damage_reported(path):
        content = unpacked_file(path)
        values = _sheet_values(path, content)
        for book_sheet in _opened(content, values=False).worksheets:
            sheet = Sheet(book_sheet.title, values[book_sheet.title])
            uncached = frozenset(
                (number, column)
                for number, row in _sheet_rows(path, book_sheet)
                for column, cell in enumerate(row, start=1)
                if cell.data_type == "f" and sheet.cell(number, column) is None
            )
            sheets.append(replace(sheet, uncached=uncached))
    return tuple(sheets)


def _check_plain(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = next((name for name in archive.namelist() if any(word in name for word in _FOREIGN)), None)
    if found is not None:
        raise FomkitError(
            str(path),
            f"contains macros, links or external data ({found}). Save it as a plain .xlsx without them.",
        )


def _stated_attributes(colour: Any) -> dict[str, str]:
    """Convert a colour of openpyxl to the attributes that it was read from."""
    if colour is None:
        return {}
    return {str(colour.type): str(getattr(colour, colour.type)), "tint": str(colour.tint or 0.0)}


def _look(cell: Any, palette: Palette) -> tuple[str, str, float]:
    """Return the colours of a cell's text and background, and its font size."""
    font, fill = cell.font, cell.fill
    ground = WHITE
    if getattr(fill, "stop", None):
        ground = palette.colour(_stated_attributes(fill.stop[0].color), WHITE)
    elif getattr(fill, "patternType", None):
        is_solid = fill.patternType == "solid"
        ground = palette.colour(_stated_attributes(fill.fgColor if is_solid else fill.bgColor), WHITE)
    return palette.colour(_stated_attributes(font.color), BLACK), ground, float(font.sz or Content.size)


def read_contents(path: Path) -> dict[str, dict[tuple[int, int], Content]]:
    """Read every filled cell of a workbook with its formula, by sheet and 1-based position."""
    with damage_reported(path):
        content = unpacked_file(path)
        _check_plain(path, content)
        values = _sheet_values(path, content)
        book = _opened(content, values=False)
        sheets: dict[str, dict[tuple[int, int], Content]] = {}
        palette = palette_of(book.loaded_theme, book._colors)  # type: ignore[attr-defined]
        looks: dict[object, tuple[str, str, float]] = {}
        for sheet in book.worksheets:
            contents, known = sheets.setdefault(sheet.title, {}), Sheet(sheet.title, values[sheet.title])
            for number, row in _sheet_rows(path, sheet):
                for column, cell in enumerate(row, start=1):
                    if cell.value is None:
                        continue
                    formula = str(getattr(cell.value, "text", cell.value)) if cell.data_type == "f" else ""
                    value = known.cell(number, column) if formula else cell.value
                    style = cell._style_id
                    look = looks[style] if style in looks else looks.setdefault(style, _look(cell, palette))
                    contents[number, column] = Content(value, formula, cell.number_format, *look)
        return sheets
