"""Read what a workbook has besides cell values: names, visibility, calculation settings, comments, shapes."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring, iterparse

from openpyxl.utils.exceptions import InvalidFileException

from fomkit.files.xlsx import MAX_COLUMNS, damage_reported, local, palette_of, unpacked_file

_INVISIBLE = 0.5
"""Row heights [points] and column widths [characters] below which cells are invisible."""
_PARTS = ("val", "cat", "xVal", "yVal", "bubbleSize", "plus", "minus")
_TYPED = "figures stored in the chart itself"


@dataclass(frozen=True)
class Condition:
    """A conditional format: its cells, colours and number format; "" where the cell's own applies."""

    area: str
    ink: str
    ground: str
    form: str


@dataclass(frozen=True)
class SheetMarks:
    """One sheet: ``visible``, ``hidden`` or ``veryHidden``; hidden rows and columns; comments by cell; shapes.

    ``series`` counts the cells that its charts read, by part of a series (``val``, ``cat``, ``plus``, ``minus``,
    …) and reference. ``conditions`` are its conditional formats.
    """

    state: str = "visible"
    hidden_rows: frozenset[int] = frozenset()
    hidden_columns: frozenset[int] = frozenset()
    comments: Mapping[str, str] = field(default_factory=dict)
    shapes: int = 0
    series: Mapping[tuple[str, str], int] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Marks:
    """A workbook: the cells of its defined names, its sheets by title, and its calculation settings.

    Names that belong to one sheet are prefixed with its title; names that programs create for themselves are left
    out. ``calculation`` lists settings other than the default: ``manual``, ``as displayed``; else "".
    """

    names: Mapping[str, str] = field(default_factory=dict)
    sheets: Mapping[str, SheetMarks] = field(default_factory=dict)
    calculation: str = ""


def _tree(content: bytes) -> Element:
    return fromstring(content)  # noqa: S314 - `unpacked_file` refuses document types, and with them entities


def _attribute(element: Element, name: str) -> str:
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), "")


def _relations(archive: zipfile.ZipFile, part: str) -> Iterator[tuple[str, str, str]]:
    """Yield id, type and part of each relation of a part."""
    folder, name = posixpath.split(part)
    path = posixpath.join(folder, "_rels", f"{name}.rels")
    if path not in archive.namelist():
        return
    for one in _tree(archive.read(path)):
        there = posixpath.normpath(posixpath.join("/", folder, one.get("Target", ""))).lstrip("/")
        yield one.get("Id", ""), one.get("Type", "").rpartition("/")[2], there


def _is_hidden(element: Element, length: str) -> bool:
    """Return whether a row or column is hidden, by its mark or its height or width."""
    size = _attribute(element, length)
    return _attribute(element, "hidden") in ("1", "true") or (bool(size) and float(size) < _INVISIBLE)


def _hidden(content: bytes) -> tuple[frozenset[int], frozenset[int]]:
    rows, columns, number = set[int](), set[int](), 0
    for _, element in iterparse(io.BytesIO(content)):  # noqa: S314 - as in `_tree`
        kind = local(element)
        if kind == "row":
            number = int(element.get("r", number + 1))
            if _is_hidden(element, "ht"):
                rows.add(number)
            element.clear()
        elif kind == "col" and _is_hidden(element, "width"):
            columns.update(
                range(max(int(element.get("min", 1)), 1), min(int(element.get("max", 1)), MAX_COLUMNS) + 1)
            )
    return frozenset(rows), frozenset(columns)


def _series(content: bytes) -> Iterator[tuple[str, str]]:
    for one in _tree(content).iter():
        for part in one if local(one) in ("ser", "errBars") else ():
            if local(part) in _PARTS:
                cells = [found.text or "" for found in part.iter() if local(found) == "f"]
                yield local(part), cells[0] if cells else _TYPED


def _under(element: Element, *names: str) -> Element | None:
    for name in names:
        found = next((one for one in element if local(one) == name), None)
        if found is None:
            return None
        element = found
    return element


def _formats(archive: zipfile.ZipFile, parts: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return text colour, background colour and number format of each format that conditions refer to."""
    if "styles" not in parts:
        return []
    root, theme = _tree(archive.read(parts["styles"])), parts.get("theme")
    palette = palette_of(archive.read(theme) if theme else None)
    found = []
    for one in root.iter():
        if local(one) == "dxf":
            text, form = _under(one, "font", "color"), _under(one, "numFmt")
            fill = _under(one, "fill", "patternFill", "bgColor")
            fill = fill if fill is not None else _under(one, "fill", "patternFill", "fgColor")
            colours = ["" if each is None else palette.colour(each.attrib, "") for each in (text, fill)]
            found.append((colours[0], colours[1], "" if form is None else form.get("formatCode", "")))
    return found


def _conditional_formats(content: bytes, formats: list[tuple[str, str, str]]) -> Iterator[Condition]:
    for one in _tree(content).iter():
        if local(one) == "conditionalFormatting":
            for rule in one:
                number = rule.get("dxfId", "")
                if number.isdigit() and int(number) < len(formats):
                    yield Condition(one.get("sqref", ""), *formats[int(number)])


def _sheet(archive: zipfile.ZipFile, part: str, state: str, formats: list[tuple[str, str, str]]) -> SheetMarks:
    comments, shapes, series = dict[str, str](), 0, Counter[tuple[str, str]]()
    for _, kind, there in _relations(archive, part):
        if kind in ("comments", "threadedComment"):
            for one in _tree(archive.read(there)).iter():
                if local(one) in ("comment", "threadedComment"):
                    comments.setdefault(one.get("ref", ""), "".join(one.itertext()).strip())
        elif kind == "drawing":
            shapes += sum(local(one) in ("sp", "pic", "cxnSp") for one in _tree(archive.read(there)).iter())
            for _, what, chart in _relations(archive, there):
                series.update(_series(archive.read(chart)) if what == "chart" else ())
    content = archive.read(part)
    conditions = tuple(_conditional_formats(content, formats))
    return SheetMarks(state, *_hidden(content), comments, shapes, series, conditions)


def _calculation(root: Element) -> str:
    for one in root.iter():
        if local(one) == "calcPr":
            settings = [one.get("calcMode", "")] if one.get("calcMode") == "manual" else []
            settings += ["as displayed"] if one.get("fullPrecision") in ("0", "false") else []
            return ", ".join(settings)
    return ""


def _defined_names(root: Element, titles: list[str]) -> Iterator[tuple[str, str]]:
    for one in root.iter():
        name = one.get("name", "")
        if local(one) == "definedName" and not name.startswith("_xl"):
            sheet = one.get("localSheetId")
            yield f"{titles[int(sheet)]}!{name}" if sheet is not None else name, one.text or ""


def read_marks(path: Path) -> Marks:
    """Read what a workbook has besides cell values."""
    with damage_reported(path), zipfile.ZipFile(io.BytesIO(unpacked_file(path))) as archive:
        book = next((there for _, kind, there in _relations(archive, "") if kind == "officeDocument"), "")
        if not book:
            raise InvalidFileException("it does not name the part that is the workbook")
        root = _tree(archive.read(book))
        relations = list(_relations(archive, book))
        parts = {key: there for key, _, there in relations}
        formats = _formats(archive, {kind: there for _, kind, there in relations})
        listed = [one for one in root.iter() if local(one) == "sheet"]
        sheets = {
            one.get("name", ""): _sheet(
                archive, parts[_attribute(one, "id")], one.get("state", "visible"), formats
            )
            for one in listed
        }
        return Marks(dict(_defined_names(root, list(sheets))), sheets, _calculation(root))
