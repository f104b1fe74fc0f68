"""A hostile or broken workbook leads to one clear message, and needs little memory and time."""

from __future__ import annotations

import io
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import openpyxl
import pytest

from fomkit.core.errors import FomkitError
from fomkit.files import xlsx
from fomkit.files.xlsx import cell_name, read_workbook


def write_zip(path: Path, parts: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def patched(content: bytes, mark: bytes, offset: int, form: str, value: int) -> bytes:
    """Change one field of every zip record that starts with ``mark``."""
    changed, start = bytearray(content), content.find(mark)
    while start >= 0:
        struct.pack_into(form, changed, start + offset, value)
        start = content.find(mark, start + 4)
    return bytes(changed)


def test_reads_values_rows_and_gaps(make_workbook):
    path = make_workbook({"a": [["x", 1], [], [None, 2.5, "y"]], "b": [["z"]]})
    first, second = read_workbook(path)
    assert (first.name, second.name) == ("a", "b")
    assert [first.cell(1, 1), first.cell(1, 2), first.cell(2, 1), first.cell(3, 3)] == ["x", 1, None, "y"]
    assert first.cell(99, 99) is None
    assert first.filled() == 2
    assert first.filled(2) == 1
    assert first.filled(1, 3) == 1


def test_formulas_without_a_cached_value_are_named(make_workbook):
    (sheet,) = read_workbook(make_workbook({"a": [[1, "=1+1"], ["text", "=A1"]]}))
    assert sheet.uncached == {(1, 2), (2, 2)}
    assert sheet.cell(1, 2) is None


def test_formulas_with_a_cached_value_are_read(make_workbook, tmp_path):
    parts = parts_of(make_workbook({"a": [["=1500*16"]]}))
    name = "xl/worksheets/sheet1.xml"
    assert b"<v></v>" in parts[name] or b"<v />" in parts[name] or b"<v/>" in parts[name]
    for empty in (b"<v></v>", b"<v />", b"<v/>"):
        parts[name] = parts[name].replace(empty, b"<v>24000</v>")
    (sheet,) = read_workbook(write_zip(tmp_path / "cached.xlsx", parts))
    assert sheet.cell(1, 1) == 24000
    assert sheet.uncached == frozenset()


def test_text_file_called_xlsx(tmp_path):
    path = tmp_path / "made.xlsx"
    path.write_text("M,N,K\n1,2,3\n")
    assert not xlsx.looks_like_workbook(path)
    with pytest.raises(FomkitError, match=r"made\.xlsx: is not an \.xlsx workbook \(a zip archive\)"):
        read_workbook(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FomkitError, match="cannot be read"):
        read_workbook(tmp_path / "absent.xlsx")
    with pytest.raises(FomkitError, match="cannot be read"):
        read_workbook(tmp_path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_workbook(make_workbook, share):
    path = make_workbook({"a": [[number, "text"] for number in range(500)]})
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FomkitError, match="damaged or not a workbook"):
        read_workbook(path)


def test_flipped_byte(make_workbook):
    path = make_workbook({"a": [[number, f"text {number}"] for number in range(500)]})
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        part = archive.getinfo("xl/worksheets/sheet1.xml")
    content[part.header_offset + 30 + len(part.filename) + part.compress_size // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(FomkitError, match="damaged or not a workbook"):
        read_workbook(path)


def test_zip_that_is_no_workbook(tmp_path):
    with pytest.raises(FomkitError, match="damaged or not a workbook"):
        read_workbook(write_zip(tmp_path / "photos.xlsx", {"a.txt": b"hello"}))


def test_broken_xml(make_workbook, tmp_path):
    parts = parts_of(make_workbook({"a": [[1]]}))
    parts["xl/worksheets/sheet1.xml"] = parts["xl/worksheets/sheet1.xml"][:-30]
    with pytest.raises(FomkitError, match="damaged or not a workbook"):
        read_workbook(write_zip(tmp_path / "broken.xlsx", parts))


def test_archive_whose_list_of_parts_names_no_workbook(make_workbook, tmp_path):
    parts = parts_of(make_workbook({"a": [[1]]}))
    parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace(b"sheet.main+xml", b"sheet.other+xml")
    with pytest.raises(FomkitError, match="damaged or not a workbook"):
        read_workbook(write_zip(tmp_path / "partless.xlsx", parts))


def test_zip_bomb_by_size(tmp_path):
    bomb = write_zip(tmp_path / "bomb.xlsx", {f"xl/{part}.xml": b" " * 17_000_000 for part in range(4)})
    started = time.monotonic()
    with pytest.raises(FomkitError, match="unpacks to 68,000,000 bytes"):
        read_workbook(bomb)
    assert time.monotonic() - started < 1


def test_zip_bomb_by_ratio(tmp_path):
    bomb = write_zip(tmp_path / "bomb.xlsx", {"xl/worksheets/sheet1.xml": b" " * 20_000_000})
    with pytest.raises(FomkitError, match=r"times its size\. Up to 100 times"):
        read_workbook(bomb)


def test_zip_bomb_that_lies_about_its_size(tmp_path):
    path = write_zip(tmp_path / "bomb.xlsx", {"[Content_Types].xml": b" " * 30_000_000})
    content = patched(path.read_bytes(), b"PK\x01\x02", 24, "<I", 1000)
    path.write_bytes(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.infolist()[0].file_size == 1000
    tracemalloc.start()
    with pytest.raises(FomkitError, match="damaged or not a workbook"):
        read_workbook(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_too_many_parts(tmp_path):
    parts = {f"{part}.xml": b"<a/>" for part in range(xlsx.MAX_PARTS + 1)}
    with pytest.raises(FomkitError, match=r"has 1,001 parts\. Up to 1,000"):
        read_workbook(write_zip(tmp_path / "many.xlsx", parts))


def test_encrypted_part(make_workbook):
    path = make_workbook({"a": [[1]]})
    path.write_bytes(patched(path.read_bytes(), b"PK\x01\x02", 8, "<H", 1))
    with pytest.raises(FomkitError, match="is encrypted"):
        read_workbook(path)


def test_unusual_compression_is_refused(tmp_path):
    path = tmp_path / "bz2.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("[Content_Types].xml", b" " * 500)
    with pytest.raises(FomkitError, match="has an unknown compression"):
        read_workbook(path)


def test_file_larger_than_the_cap(tmp_path):
    path = tmp_path / "large.xlsx"
    with path.open("wb") as stream:
        stream.write(b"PK\x03\x04")
        stream.truncate(64_000_001)
    with pytest.raises(FomkitError, match=r"is larger than 64,000,000 bytes"):
        read_workbook(path)


def test_document_type_is_refused(make_workbook, tmp_path):
    parts = parts_of(make_workbook({"a": [[1]]}))
    entity = b'<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;">]>'
    name = "xl/worksheets/sheet1.xml"
    parts[name] = parts[name].replace(b"<worksheet", entity + b"<worksheet", 1)
    with pytest.raises(FomkitError, match=r"declares a document type in xl/worksheets/sheet1\.xml"):
        read_workbook(write_zip(tmp_path / "entity.xlsx", parts))


@pytest.mark.parametrize("cell", ["XFD1048576", "A1048576", "XFD1", f"A{xlsx.MAX_ROWS + 1}"])
def test_lone_cell_far_away(tmp_path, cell):
    book = openpyxl.Workbook()
    book.active[cell] = 1
    path = tmp_path / "lone.xlsx"
    book.save(path)
    assert path.stat().st_size < 10_000
    started = time.monotonic()
    with pytest.raises(FomkitError, match=r"sheet 'Sheet' has cells beyond row 20,000 or column 256"):
        read_workbook(path)
    assert time.monotonic() - started < 2


def test_the_last_allowed_cell_is_read(tmp_path):
    book = openpyxl.Workbook()
    book.active.cell(xlsx.MAX_ROWS, xlsx.MAX_COLUMNS, 7)
    path = tmp_path / "edge.xlsx"
    book.save(path)
    (sheet,) = read_workbook(path)
    assert sheet.cell(xlsx.MAX_ROWS, xlsx.MAX_COLUMNS) == 7


def test_a_false_declared_size_does_not_hide_cells(make_workbook, tmp_path):
    parts = parts_of(make_workbook({"a": [[1, 2], [3, 4]]}))
    name = "xl/worksheets/sheet1.xml"
    assert b'ref="A1:B2"' in parts[name]
    parts[name] = parts[name].replace(b'ref="A1:B2"', b'ref="A1:A1"', 1)
    (sheet,) = read_workbook(write_zip(tmp_path / "small.xlsx", parts))
    assert sheet.cell(2, 2) == 4


def test_reading_leaves_the_file_as_it_was(make_workbook):
    path = make_workbook({"a": [[1]]})
    before = path.read_bytes()
    read_workbook(path)
    assert path.read_bytes() == before


def test_names_of_cells():
    assert [cell_name(1, 1), cell_name(98, 9), cell_name(3, 28)] == ["A1", "I98", "AB3"]
    assert xlsx.Sheet("s", ()).cell(1, 1) is None
