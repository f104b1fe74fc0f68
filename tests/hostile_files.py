"""Mutations of valid files, for the fuzz tests: small enough changes to reach the deep checks."""

from __future__ import annotations

import io
import re
import zipfile

import openpyxl
from hypothesis import strategies as st

NASTY = [
    "",
    " ",
    "0",
    "-1",
    "-0",
    "1.5",
    "1e300",
    "-1e300",
    "1e-300",
    "1e999",
    "nan",
    "inf",
    ".nan",
    "1:30",
    "010",
    "0x10",
    "1_000",
    "1,234",
    "1,5",
    "no",
    "yes",
    "on",
    "true",
    "null",
    "~",
    "=1+1",
    "+1",
    "-x",
    "@x",
    "\tx",
    "\rx",
    "'x",
    '"',
    "''",
    "{",
    "}",
    "[",
    "]",
    "&a",
    "*a",
    "!!python/object:os.system",
    "<<",
    "---",
    "# x",
    ": ",
    "- ",
    "batch",
    "2*batch",
    "batch//0",
    "batch-999",
    "((((batch",
    "9" * 40,
    "x" * 300,
    "ü",
    "名",
    "١٢",
    "\u202e",
    "\ufeff",
    "\0",
    "\x1b[2J",
    "3 GB",
    "3 GB/s",
    "3 TFLOP/s",
    "1e300 TFLOP/s",
    "1e-300 s",
    "3 %",
    "-3 s",
    "3 us",
    "fp32",
    "fp31",
    "int8",
    "matrix",
    "vector",
    "forward",
    "update",
    "gemm",
    "conv",
    "rnn",
    "attention",
    "pointwise",
    "optimizer",
    "collective",
    "other",
    "lstm",
    "adam",
    "fused",
    "9007199254740993",
    "100000000000000000000",
    "None",
    "nan batch",
]
words = st.one_of(st.sampled_from(NASTY), st.text(max_size=12))


@st.composite
def mutated_text(draw: st.DrawFn, sources: list[str], separators: str) -> str:
    """Take a valid text and change a few of its tokens or lines."""
    text = draw(st.sampled_from(sources))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        lines = text.split("\n")
        line = draw(st.integers(0, len(lines) - 1))
        change = draw(st.integers(0, 9))
        if change == 0:
            del lines[line]
        elif change == 1:
            lines.insert(line, draw(st.sampled_from(lines)))
        elif change == 2:
            lines[line] = draw(words)
        elif change == 3:
            lines[line] = " " * draw(st.integers(0, 4)) + lines[line].lstrip()
        elif change == 4:
            lines[line] = lines[line][: draw(st.integers(0, len(lines[line])))]
        elif change < 8:
            lines[line] = draw(number_changed(lines[line]))
        else:
            lines[line] = draw(token_changed(lines[line], separators))
        text = "\n".join(lines) or "\n"
    return text


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


@st.composite
def number_changed(draw: st.DrawFn, line: str) -> str:
    """Put another number for one of a line's, so that most files stay right and their values grow strange."""
    found = list(re.finditer(r"(?<![\w.])\d+(\.\d+)?(e-?\d+)?(?!\w)", line))
    if not found:
        return line
    match = draw(st.sampled_from(found))
    number = draw(st.one_of(st.sampled_from(NUMBERS), st.integers(0, 10**6).map(str)))
    return line[: match.start()] + number + line[match.end() :]


@st.composite
def token_changed(draw: st.DrawFn, line: str, separators: str) -> str:
    """Put another word for one of a line's tokens."""
    cuts = [0, *(place for place, letter in enumerate(line) if letter in separators), len(line)]
    place = draw(st.integers(0, len(cuts) - 2))
    start = cuts[place] + (1 if place else 0)
    space = " " if line[start : start + 1] == " " else ""
    return line[:start] + space + draw(words) + line[cuts[place + 1] :]


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@st.composite
def mutated_bytes(draw: st.DrawFn, source: bytes) -> bytes:
    """Flip, cut, repeat or insert bytes anywhere."""
    content = bytearray(source)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        change = draw(st.integers(0, 3))
        if change == 0 and content:
            content[place] = draw(st.integers(0, 255))
        elif change == 1:
            del content[place : place + draw(st.integers(1, 64))]
        elif change == 2:
            content[place:place] = draw(st.binary(max_size=16))
        else:
            content[place:place] = content[max(place - 20, 0) : place]
    return bytes(content)


CELLS = st.one_of(
    st.none(),
    st.sampled_from(
        ["N", "T", "N/A", "Not Supported", "#VALUE!", "-", " ", "=1+1", "=A1", "FP32", "Float", "Specs"]
    ),
    st.sampled_from(["Convolution", "Dense Matrix Multiplication", "Recurrent Layers - LSTM", "All-Reduce", "M"]),
    st.integers(-2, 5000),
    st.sampled_from([0, 1e300, -1e300, 1e-300, 2**53, 0.059, 1.5, True]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=10),
)


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


@st.composite
def mutated_workbook(draw: st.DrawFn, sheets: dict[str, list[list[object]]]) -> bytes:
    """Change cells of a valid workbook, or move, repeat and drop its rows."""
    changed = {title: [list(row) for row in rows] for title, rows in sheets.items()}
    for _ in range(draw(st.integers(1, 5))):
        rows = changed[draw(st.sampled_from(sorted(changed)))]
        row = draw(st.integers(0, len(rows) - 1))
        change = draw(st.integers(0, 7))
        if change == 0:
            rows.insert(row, list(draw(st.sampled_from(rows))))
        elif change == 1 and len(rows) > 1:
            del rows[row]
        else:
            rows[row] += [None] * (draw(st.integers(1, 12)) - len(rows[row]))
            rows[row][draw(st.integers(0, len(rows[row]) - 1))] = draw(CELLS)
    return workbook(changed)


@st.composite
def mutated_part(draw: st.DrawFn, source: bytes) -> bytes:
    """Change the XML inside a workbook, so that the archive is sound and its content is not."""
    with zipfile.ZipFile(io.BytesIO(source)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = draw(st.sampled_from(sorted(parts)))
    change = draw(st.integers(0, 3))
    if change == 0:
        del parts[name]
    elif change == 1:
        parts[name] = draw(mutated_bytes(parts[name]))
    else:
        text = parts[name].decode()
        parts[name] = encoded(draw(token_changed(text, '<>" =/')))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    return stream.getvalue()
