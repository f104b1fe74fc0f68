"""Random changes of valid files for fuzzing, by format, and small enough that files reach the later checks.

A change is a function of a random generator and the content of a file, which returns changed content.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import openpyxl
import yaml
from openpyxl.utils.exceptions import IllegalCharacterError

Change = Callable[[Random, bytes], bytes]
NASTY = [
    "", " ", "0", "-1", "-0", "1.5", "1e300", "-1e300", "1e-300", "1e999", "nan", "inf", ".nan", "1:30", "010",
    "0x10", "1_000", "1,234", "1,5", "no", "yes", "on", "true", "null", "~", "=1+1", "+1", "-x", "@x", "\tx",
    "\rx", "'x", '"', "''", "{", "}", "[", "]", "&a", "*a", "!!python/object:os.system", "<<", "---", "# x",
    ": ", "- ", "batch", "2*batch", "batch//0", "batch-999", "((((batch", "9" * 40, "x" * 300, "ü", "名", "١٢",
    "\u202e", "\ufeff", "\x00", "\x1b[2J", "3 GB", "3 GB/s", "3 TFLOP/s", "1e300 TFLOP/s", "1e-300 s", "3 %",
    "-3 s", "3 us", "fp32", "fp31", "int8", "matrix", "vector", "forward", "update", "gemm", "conv", "rnn",
    "attention", "pointwise", "optimizer", "collective", "other", "lstm", "adam", "fused", "9007199254740993",
    "100000000000000000000", "None", "nan batch",
]  # fmt: skip
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "1000",
    "0.5",
    "1.5",
    "1e-9",
    "1e9",
    "1e15",
    "999999999999999",
    "1e16",
    "-1",
]
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, -(2**63), 10**40, 0.5, 1e300, -1e300, 1e-300, float("inf"),
    float("nan"), "", "x", "batch", "3 GB/s", [], {}, [1, 2], {"a": 1}, [[]], "9" * 40, "\u202e", "ü",
]  # fmt: skip
NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?(e-?\d+)?(?!\w)")


def word(rng: Random) -> str:
    """Return one of the words that break readers, or random letters."""
    if rng.random() < 0.8:
        return rng.choice(NASTY)
    letters = (rng.choice([rng.randrange(32, 127), rng.randrange(0x110000)]) for _ in range(rng.randrange(9)))
    return "".join(map(chr, letters))


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _number_changed(rng: Random, line: str) -> str:
    """Replace one number of a line."""
    found = list(NUMBER.finditer(line))
    if not found:
        return line
    match = rng.choice(found)
    number = rng.choice([*NUMBERS, str(rng.randrange(10**6))])
    return line[: match.start()] + number + line[match.end() :]


def _token_changed(rng: Random, line: str, separators: str) -> str:
    """Replace one token of a line by a word."""
    cuts = [0, *(place for place, letter in enumerate(line) if letter in separators), len(line)]
    place = rng.randrange(len(cuts) - 1)
    start = cuts[place] + (1 if place else 0)
    space = " " if line[start : start + 1] == " " else ""
    return line[:start] + space + word(rng) + line[cuts[place + 1] :]


def _letter_changed(rng: Random, line: str) -> str:
    place = rng.randrange(len(line) + 1)
    return line[:place] + word(rng)[:1] + line[place + rng.randrange(2) :]


def text_changed(separators: str) -> Change:
    """Return a change of a few tokens, letters or lines of a text."""

    def change(rng: Random, content: bytes) -> bytes:
        lines = content.decode("utf-8", "replace").split("\n")
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            at, what = rng.randrange(len(lines)), rng.randrange(12)
            if what == 0 and len(lines) > 1:
                del lines[at]
            elif what == 1:
                lines.insert(at, rng.choice(lines))
            elif what == 2:
                lines[at] = word(rng)
            elif what == 3:
                lines[at] = " " * rng.randrange(5) + lines[at].lstrip()
            elif what == 4:
                lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
            elif what == 5:
                lines[at] = _letter_changed(rng, lines[at])
            elif what < 9:
                lines[at] = _number_changed(rng, lines[at])
            else:
                lines[at] = _token_changed(rng, lines[at], separators)
        return encoded("\n".join(lines) or "\n")

    return change


def numbers_changed(rng: Random, content: bytes) -> bytes:
    """Replace some numbers of a text, so that most files stay valid but have strange values."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        lines[at] = _number_changed(rng, lines[at])
    return encoded("\n".join(lines))


def columns_changed(rng: Random, content: bytes) -> bytes:
    """Drop, repeat, swap, rename, empty or fill a column of a table."""
    rows = [line.split(",") for line in content.decode("utf-8", "replace").split("\n") if line]
    at, other, what = rng.randrange(len(rows[0])), rng.randrange(len(rows[0])), rng.randrange(6)
    filled = word(rng).replace(",", "").replace("\n", "")
    for number, row in enumerate(rows):
        if at >= len(row) or other >= len(row):
            continue
        if what == 0:
            del row[at]
        elif what == 1:
            row.insert(other, row[at])
        elif what == 2:
            row[at], row[other] = row[other], row[at]
        elif what == 3 and number == 0:
            row[at] = rng.choice([row[other], filled])
        elif what == 4 and number:
            row[at] = ""
        elif what == 5 and number:
            row[at] = rng.choice([filled, row[other]])
    return encoded("\n".join(map(",".join, rows)) + "\n")


def bytes_changed(rng: Random, content: bytes) -> bytes:
    """Flip, cut, repeat or insert bytes anywhere."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place, what = rng.randrange(max(len(changed), 1)), rng.randrange(4)
        if what == 0 and changed:
            changed[place] = rng.randrange(256)
        elif what == 1:
            del changed[place : place + rng.randint(1, 64)]
        elif what == 2:
            changed[place:place] = rng.randbytes(rng.randrange(17))
        else:
            changed[place:place] = changed[max(place - 20, 0) : place]
    return bytes(changed)


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every container of a tree with each of its keys."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [place for key in keys for place in ((tree, key), *_places(tree[key]))]


def tree_changed(rng: Random, tree: Any) -> Any:
    """Change values of a tree of mappings and lists: other types or numbers, dropped, repeated or moved values."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = _places(tree)
        if not places:
            return rng.choice(VALUES)
        (inside, key), (there, from_key) = rng.choice(places), rng.choice(places)
        what, value = rng.randrange(7), inside[key]
        if what == 0:
            del inside[key]
        elif what == 1:
            inside[key] = json.loads(json.dumps(there[from_key]))
        elif what == 2:
            inside[key] = [value] if rng.random() < 0.5 else {"x": value}
        elif what == 3 and isinstance(value, int | float):
            inside[key] = rng.choice([-value, value + 1, str(value), 1e16, 1e-9, 1.5])
        elif what == 4 and isinstance(inside, dict):
            inside[word(rng)] = inside.pop(key)
        elif what == 5:
            inside[key] = word(rng)
        else:
            inside[key] = rng.choice(VALUES)
    return tree


def json_changed(rng: Random, content: bytes) -> bytes:
    return encoded(json.dumps(tree_changed(rng, json.loads(content))))


def yaml_changed(rng: Random, content: bytes) -> bytes:
    tree = tree_changed(rng, json.loads(json.dumps(yaml.safe_load(content), default=str)))
    return encoded(yaml.safe_dump(tree, sort_keys=False, default_flow_style=rng.choice([None, True, False])))


def packed(change: Change) -> Change:
    """Return a change of the content of gzip data, or of the gzip data itself."""

    def both(rng: Random, content: bytes) -> bytes:
        if rng.random() < 0.3:
            return bytes_changed(rng, content)
        return gzip.compress(change(rng, gzip.decompress(content)), mtime=0)

    return both


def _varint(value: int) -> bytes:
    found, value = bytearray(), value & (2**64 - 1)
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def _fields(content: bytes) -> list[list[Any]] | None:
    """Split a protobuf message into fields of number, wire type and value; None if it is not a message."""
    found: list[list[Any]] = []
    at = 0
    with suppress(IndexError):
        while at < len(content):
            tag, at = _read_varint(content, at)
            number, wire = tag >> 3, tag & 7
            if not number or wire not in (0, 1, 2, 5):
                return None
            value: Any
            if wire in (0, 2):
                value, at = _read_varint(content, at)
            size = {0: 0, 1: 8, 5: 4}.get(wire, 0) if wire != 2 else value
            if wire:
                value = content[at : at + size]
            at += size
            if at > len(content):
                return None
            found.append([number, wire, value])
        return found
    return None


def _joined(fields: Sequence[Sequence[Any]]) -> bytes:
    made = bytearray()
    for number, wire, value in fields:
        made += _varint(number << 3 | wire)
        made += _varint(value) if wire == 0 else (_varint(len(value)) if wire == 2 else b"") + value
    return bytes(made)


def _leaf(rng: Random, value: bytes) -> bytes:
    return rng.choice([b"", b"\xff", encoded(word(rng)), value * 2, value[:-1], bytes_changed(rng, value)])


def wire_changed(rng: Random, content: bytes) -> bytes:
    """Change one field of a protobuf message, at any depth, so that the message stays well-formed."""
    fields = _fields(content)
    if not fields:
        return bytes_changed(rng, content)
    at = rng.randrange(len(fields))
    number, wire, value = fields[at]
    if wire == 2 and value and rng.random() < 0.8:
        fields[at][2] = wire_changed(rng, value) if _fields(value) else _leaf(rng, value)
        return _joined(fields)
    what = rng.randrange(6)
    if what == 0:
        del fields[at]
    elif what == 1:
        fields.insert(rng.randrange(len(fields)), list(rng.choice(fields)))
    elif what == 2:
        fields[at][0] = rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 14, 20, number + 1])
    elif wire == 0:
        fields[at][2] = rng.choice([0, 1, 2, value + 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, 255])
    elif wire == 2:
        fields[at][2] = _leaf(rng, value)
    else:
        fields[at][2] = rng.randbytes(len(value))
    return _joined(fields)


CELLS: list[Any] = [
    None, "N", "T", "N/A", "Not Supported", "#VALUE!", "-", " ", "=1+1", "=A1", "FP32", "Float", "Specs",
    "Convolution", "Dense Matrix Multiplication", "Recurrent Layers - LSTM", "All-Reduce", "M", -2, 1, 17, 5000, 0,
    1e300, -1e300, 1e-300, 2**53, 0.059, 1.5, True, *(text for text in NASTY if text.isprintable()),
]  # fmt: skip


def workbook(sheets: dict[str, list[list[object]]]) -> bytes:
    """Write sheets of cells as a workbook."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row, cells in enumerate(rows, start=1):
            for column, value in enumerate(cells, start=1):
                if value is not None:
                    sheet.cell(row, column).value = value
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def cells_changed(rng: Random, content: bytes) -> bytes:
    """Change cells of a workbook, or drop and insert its rows, columns and sheets."""
    book = openpyxl.load_workbook(io.BytesIO(content))
    for _ in range(rng.randint(1, 5)):
        sheet = rng.choice(book.worksheets)
        row, column = rng.randint(1, sheet.max_row), rng.randint(1, sheet.max_column)
        what = rng.randrange(16)
        if what == 0:
            sheet.insert_rows(row)
        elif what == 1:
            sheet.delete_rows(row)
        elif what == 2:
            sheet.delete_cols(column)
        elif what == 3 and len(book.worksheets) > 1:
            book.remove(sheet)
        elif what == 4:
            sheet.title = "".join(letter for letter in word(rng) if letter.isalnum())[:20] or "x"
        else:
            with suppress(ValueError, AttributeError, IllegalCharacterError):
                sheet.cell(row, column).value = rng.choice(CELLS)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def _in_encoding(rng: Random, part: bytes) -> bytes:
    encoding = rng.choice(["utf-16", "latin-1", "utf-7", "klingon", "cp037", "", "utf-8"])
    text = re.sub(r"^<\?xml[^>]*\?>", "", part.decode("utf-8", "replace"))
    written = f'<?xml version="1.0" encoding="{encoding}"?>{text}'
    return written.encode("utf-16" if encoding == "utf-16" else "utf-8")


def part_changed(rng: Random, content: bytes) -> bytes:
    """Change the XML inside a workbook, so that the archive stays valid but its content does not."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name, other, what = rng.choice(sorted(parts)), rng.choice(sorted(parts)), rng.randrange(9)
    if what == 0:
        del parts[name]
    elif what == 1:
        parts[name] = bytes_changed(rng, parts[name])
    elif what == 2:
        parts[name] = parts[other]
    elif what == 3:
        parts[rng.choice([name.upper(), f"x/{name}", "x"])] = parts.pop(name)
    elif what == 4:
        parts[name] = _in_encoding(rng, parts[name])
    else:
        text = parts[name].decode("utf-8", "replace")
        change = _number_changed(rng, text) if what < 6 else _token_changed(rng, text, '<>" =/')
        parts[name] = encoded(change)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, data in parts.items():
            archive.writestr(part, data)
    return stream.getvalue()


def _change_database(rng: Random, database: sqlite3.Connection) -> None:
    tables = [one[0] for one in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = rng.choice(tables)
    column = rng.choice([one[1] for one in database.execute(f"PRAGMA table_info({table})")])
    value = rng.choice([-1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1.5, 1e300, b"\xff", None, word(rng)])
    some = f"rowid IN (SELECT rowid FROM {table} ORDER BY rowid LIMIT 3 OFFSET {rng.randrange(9)})"
    if rng.random() < 0.2:
        shape = (f"DROP TABLE {table}", f"ALTER TABLE {table} DROP COLUMN {column}",
                 f"ALTER TABLE {table} RENAME COLUMN {column} TO x_{column}")  # fmt: skip
        database.execute(rng.choice(shape))
    else:
        rows = (f"UPDATE {table} SET {column} = ? WHERE {some}", f"UPDATE {table} SET {column} = ?",
                f"UPDATE {table} SET {column} = {column} - ?",
                f"DELETE FROM {table} WHERE {some} OR rowid = ?")  # fmt: skip
        database.execute(rng.choice(rows), (value,))
    database.commit()


def database_changed(rng: Random, content: bytes) -> bytes:
    """Change rows, columns and tables of an SQLite database, which stays a valid database."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "x.sqlite")
        path.write_bytes(content)
        for _ in range(rng.randint(1, 3)):
            with closing(sqlite3.connect(path)) as database, suppress(sqlite3.Error, OverflowError):
                _change_database(rng, database)
        return path.read_bytes()
