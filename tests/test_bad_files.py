"""Traps of files and arithmetic that no other test covers: each is refused at once, by name.

Elsewhere: YAML scalars, aliases, tags and depth in test_profiles; workbooks (bombs, lone cells, formulas without a
value, encryption, truncation, document types) in timings/test_xlsx; a user's model.py in trace/test_trace_child;
sums at an offset in test_spans; random changes in test_fuzz.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from terminal import in_this_process

from fomkit.core.errors import FomkitError, printable
from fomkit.core.units import LEAST, MOST, parse_quantity
from fomkit.files.csv import MAX_BYTE, MAX_COLUMNS
from fomkit.files.documents import format_document, load_document
from fomkit.files.op_csv import format_as_given, format_table, read_numbered_table, read_table
from fomkit.files.xlsx import read_workbook
from fomkit.ops.check import check_table
from fomkit.ops.pricing import add_costs
from fomkit.ops.tables import HUGE
from fomkit.output.files import to_csv
from fomkit.plan.coverage import coverage
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import FITS_SCHEMA as FITS
from fomkit.profiles.machines import load_fits, load_machine
from fomkit.profiles.models import load_model, save_model

LIVE = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "=HYPERLINK(1)", "-x", "'=1", "''@"]
OPS = "op,kind,dtype,engine,pass_name,count,b,m,n,k\nmm,gemm,fp32,vector,forward,1,1,8,8,8\n"


def written(folder: Path, content: str | bytes, name: str = "x.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fomkit", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n---\nb: 2\n", "x.yaml:2: is not valid YAML: .* Keep one, without lines of '---'"),
        ("a:\n\tb: 1\n", "x.yaml:2: is not valid YAML: .* Indent with spaces"),
        ("a: b: c\n", "a colon and a space in quotes"),
        ("a: 'x\n", "is not closed"),
        (" a: 1\nb: 2\n", "The indentation of this line"),
        ("a: 1_000\n", "could be read in several ways"),
        ('a: "\\ud800"\n', "contains an unprintable character"),
        ('a: "\\e[2J"\n', "contains an unprintable character"),
        ('"\\0": 1\n', "contains an unprintable character"),
        ("a: \u202egnp.exe\n", "contains an unprintable character"),
        ("a: !!binary aGk=\n", "the tag .* is not allowed"),
        ("a".encode("utf-16"), "not UTF-8"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(FomkitError, match=words):
        load_document(written(tmp_path, text, "x.yaml"))


def test_yaml_with_a_byte_order_mark_or_foreign_line_ends_is_read(tmp_path: Path) -> None:
    assert load_document(written(tmp_path, "\ufeffa: 1\r\nb: x\r\n", "x.yaml")).content == {"a": 1, "b": "x"}


DOUBTFUL = [
    "1e3",
    "15.7e12",
    "010",
    "1:30",
    "no",
    "null",
    "true",
    "~",
    "",
    ".nan",
    "1_000",
    "8",
    "-5",
    "0x1",
    " x ",
]
STRUCTURE = ["a: b", "#", "[", "x\ny", "- a", "'", '"', "&a", "*a", "!t", "{", "? a", "a #b", "\n", "x\n"]
PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=9)


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from([*DOUBTFUL, *STRUCTURE]) | PRINTABLE))
def test_text_is_written_so_that_it_reads_back(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, str]
) -> None:
    path = written(tmp_path_factory.getbasetemp(), format_document({"z": 1, **content}), "back.yaml")
    assert load_document(path).content == {"z": 1, **content}


@pytest.mark.parametrize("text", LIVE)
def test_live_text_is_disarmed_wherever_csv_is_written_and_reads_back(tmp_path: Path, text: str) -> None:
    ops = read_table(written(tmp_path, OPS), "OPS").assign(op=text)
    for content in (format_table(ops, "OPS"), format_as_given(ops, "OPS")):
        cell = rows_of(content)[0]["op"]
        assert cell == f"'{text}"
        assert read_table(written(tmp_path, content), "OPS")["op"].tolist() == [text]
    (row,) = rows_of(to_csv([{"model": text, "step_s": {"value": -1.5}}]))
    assert row == {"model": f"'{text}", "step_s.value": "-1.5"}


@pytest.mark.parametrize("text", LIVE)
def test_profiles_with_live_names_come_back_whole(tmp_path: Path, text: str) -> None:
    from dataclasses import replace

    model, machine = load_model("p1b3-lecture"), load_machine("x86-lecture")
    model = replace(model, ops=model.ops.assign(op=text))
    machine = replace(machine, timings=machine.timings.assign(note=text))
    assert set(load_model(save_model(model, tmp_path / "m.yaml")[0]).ops["op"]) == {text}
    assert set(load_machine(save_machine(machine, tmp_path / "n.yaml")[0]).timings["note"]) == {text}
    for path in tmp_path.glob("*.csv"):
        cells = [cell for row in rows_of(path.read_bytes().decode()) for cell in row.values()]
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)


def test_negative_numbers_survive_as_numbers() -> None:
    assert (
        format_as_given(pd.DataFrame({"time_s": [-1.5], "theirs": ["-1.5"]}), "TIMED")
        == "time_s,theirs\n-1.5,-1.5\n"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("kind;m;n\ngemm;1;2\n", r"x.csv:1: its cells are separated by ';'. Save it with commas"),
        ("kind\tm\tn\ngemm\t1\t2\n", r"x.csv:1: its cells are separated by '\\t'"),
        ("kind,m\ngemm,'1,5'\n", "x.csv:2: has 3 cells where the header has 2. Quote"),
        ('kind,m\ngemm,"1,5"\n', "x.csv:2: m is '1,5'. .* Write a decimal point"),
        ('kind,m\ngemm,"1,234"\n', "no thousands separator"),
        ("kind,m\ngemm,1 234\n", "no thousands separator"),
        ("kind,m\ngemm,1_000\n", None),
        ("kind,m\ngemm,١٢\n", "x.csv:2: m is '١٢'. Expected a number"),
        ("kind,m\ngemm,N/A\n", "Leave the cell empty where the value is unknown"),
        ("kind,m\ngemm,-\n", "m is '-'. Expected a number"),
        ("kind,traced_time_s\ngemm,x\n", "traced_time_s is 'x'. Expected a number."),
        ("kind,count\ngemm,1e999\n", "too large a number"),
        ("kind,m\ngemm,1\0\n", "x.csv:2: is not a CSV table: it has a zero byte"),
        ("\0" * 100, "zero byte"),
        ("kind,m\ngemm,1\n".encode("utf-16"), "is UTF-16 text. Save it as CSV in UTF-8"),
        ("kind,m\nünit,1\n".encode("latin-1"), "x.csv:2: is not a CSV table in UTF-8"),
        ("kind,m,m\ngemm,1,2\n", "the column 'm' is given twice"),
        ("kind,,m\ngemm,1,2\n", "column 2 has no name"),
        ("kind,m\ngemm\n", "has 1 cells where the header has 2"),
        ("kind,m\ngemm,1,\n", "has 3 cells where the header has 2"),
        ("", "is empty"),
        ("\n\n\n", "is empty"),
        ("kind,m\n", "has a header and no rows"),
        ('kind,m\n"gemm,1\n', "x.csv:2: is not a CSV table .* Close every quote"),
        ('kind,m\n"ge"mm,1\n', "is not a CSV table"),
        ("kind,m\ngemm," + "x" * 200_000 + "\n", "is not a CSV table .*field larger"),
        (b"PK\x03\x04rest", "is a zip archive or a workbook"),
        (gzip.compress(b"kind,m\ngemm,1\n", mtime=0)[:-6], "its gzip data has no end"),
        (b"\x1f\x8brubbish", "is damaged"),
        (gzip.compress(b"kind,m\ngemm,1\n", mtime=0) * 2, "more than one gzip stream"),
    ],
)  # fmt: skip
def test_csv_that_is_refused(tmp_path: Path, content: str | bytes, words: str | None) -> None:
    path = written(tmp_path, content)
    if words is None:  # an expression as far as the reader can tell; resizing refuses it
        assert read_table(path, "OPS")["m"].dtype == object
        return
    with pytest.raises(FomkitError, match=words):
        read_table(path, "OPS")


@pytest.mark.parametrize(
    "text", ["\ufeff" + OPS, OPS.replace("\n", "\r\n"), OPS.replace("\n", "\r"), OPS + "\n\n"]
)
def test_csv_of_other_programs_is_read(tmp_path: Path, text: str) -> None:
    assert read_table(written(tmp_path, text), "OPS")["m"].tolist() == [8.0]
    assert read_table(written(tmp_path, gzip.compress(text.encode())), "OPS")["m"].tolist() == [8.0]


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    text = 'op,traced_time_s\n\n"a\nb",1\nc,2\n\nd,x\n'
    with pytest.raises(FomkitError, match=r"x\.csv:7: traced_time_s is 'x'"):
        read_table(written(tmp_path, text), "OPS")
    table = read_numbered_table(written(tmp_path, text.replace("x", "3")), "OPS")
    assert table.index.tolist() == [3, 5, 7]
    assert table["op"].tolist() == ["a\nb", "c", "d"]
    wrong = OPS + "\nmm,gemm,fp32,vector,forward,0,1,8,8,8\n"
    with pytest.raises(FomkitError, match=r"x\.csv:4: count is 0\. Expected a finite number above 0"):
        check_table(read_numbered_table(written(tmp_path, wrong), "OPS"), "OPS", str(tmp_path / "x.csv"))


@pytest.mark.parametrize("make", [
    lambda: "kind," * 1_000_000 + "kind\n",
    lambda: ",".join(f"c{place}" for place in range(MAX_COLUMNS + 1)) + "\n",
    lambda: gzip.compress(b"kind,m\n" + b"gemm,1\n" * 12_000_000, mtime=0),
    lambda: b"x" * (MAX_BYTE + 1),
])  # fmt: skip
def test_tables_without_measure_cost_little(tmp_path: Path, make: Callable[[], str | bytes]) -> None:
    path = written(tmp_path, make())
    started = time.process_time()
    tracemalloc.start()
    with pytest.raises(FomkitError, match=r"columns. Up to|is larger than|stands twice"):
        read_numbered_table(path, "OPS", keep=("kind",))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MAX_BYTE
    assert time.process_time() - started < 20


def test_too_many_cells_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fomkit.files.csv.MAX_CELLS", 20)
    assert len(read_table(written(tmp_path, "op,kind\n" + "a,gemm\n" * 9), "OPS")) == 9
    with pytest.raises(FomkitError, match="has more than 20 cells"):
        read_table(written(tmp_path, "op,kind\n" + "a,gemm\n" * 10), "OPS")


@pytest.mark.parametrize("size", ["1e300", "1e16", "9007199254740993"])
def test_sizes_whose_products_would_overflow_are_refused(tmp_path: Path, size: str) -> None:
    ops = read_table(written(tmp_path, OPS.replace("8,8,8", f"8,{size},8")), "OPS")
    with pytest.raises(FomkitError, match=r"row 0: n is .* at most 1e\+15"):
        check_table(ops, "OPS", "x")


def test_products_of_the_largest_sizes_are_numbers(tmp_path: Path) -> None:
    ops = read_table(written(tmp_path, OPS.replace("1,8,8,8", "1e15,1e15,1e15,1e15")), "OPS")
    assert add_costs(ops)["flop"].tolist() == [pytest.approx(2 * HUGE**4)]


def test_work_that_is_not_priced_is_not_summed_as_nothing() -> None:
    timed = pd.DataFrame({"kind": ["gemm", "other"], "count": [1.0, 3.0], "time_s": [1.0, float("nan")],
                          "time_source": ["roofline", ""]})  # fmt: skip
    assert timed["time_s"].sum() == 1.0, "what pandas says"
    assert coverage(timed)["unpriced"] == 0.75


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [("16 GiB", "byte", 2.0**34), ("16 GB", "byte", 16e9), ("100 Gb/s", "byte_per_s", 12.5e9),
     ("100 GB/s", "byte_per_s", 1e11), ("100 Gbit/s", "byte_per_s", 12.5e9)],
)  # fmt: skip
def test_bits_bytes_giga_and_gibi_differ(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension, "x", "y") == value


@pytest.mark.parametrize("text", ["1e300 EB/s", "1e25 EB/s", "1e-300 B/s"])
def test_quantities_that_nothing_is_near_to_are_refused(text: str) -> None:
    with pytest.raises(FomkitError, match="outside the plausible range"):
        parse_quantity(text, "byte_per_s", "x", "y")
    assert LEAST < 1e-15 < 1e24 < MOST


def test_a_peak_says_of_which_format_and_engine_it_is(tmp_path: Path) -> None:
    text = "schema: fomkit/machine/1\nname: x\ndevice: {peak: [{rate: 1 TFLOP/s, source: s}]}\n"
    with pytest.raises(FomkitError, match=r"dtype is missing.*\n.*engine is missing"):
        load_machine(written(tmp_path, text, "x.yaml"))


@pytest.mark.parametrize("content", ["[" * 100_000, "{", "NaN", f'{{"schema": "{FITS}", "timings_key": "k"}}'])
def test_broken_fits_are_told(tmp_path: Path, content: str) -> None:
    path = written(tmp_path, content, "x.fits.json")
    if content == "NaN":
        assert load_fits(path, "k") == {}
        return
    with pytest.raises(FomkitError, match="Delete the file; fomkit makes it again"):
        load_fits(path, "k")


def test_a_workbook_of_the_old_kind_or_with_a_password_is_told(tmp_path: Path) -> None:
    # Both are OLE containers, which begin alike; a password turns .xlsx into one.
    path = written(tmp_path, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "old.xlsx")
    with pytest.raises(FomkitError, match=r"is not an \.xlsx workbook .* Save it as \.xlsx without a password"):
        read_workbook(path)


def test_links_of_a_workbook_to_elsewhere_are_not_followed(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = "='file:///etc/[passwd]x'!A1"
    book.active["B1"] = "kept"
    book.save(tmp_path / "links.xlsx")
    with zipfile.ZipFile(tmp_path / "links.xlsx", "a") as archive:
        archive.writestr("xl/externalLinks/externalLink1.xml", "<externalLink/>")
        archive.writestr(
            "xl/externalLinks/_rels/externalLink1.xml.rels", '<Relationship Target="file:///etc/passwd"/>'
        )
    (sheet,) = read_workbook(tmp_path / "links.xlsx")
    assert (sheet.cell(1, 1), sheet.cell(1, 2)) == (None, "kept")
    assert sheet.uncached == {(1, 1)}


def test_messages_show_what_a_terminal_would_hide() -> None:
    error = FomkitError("a\x1b[2J.yaml:1", "name is 'x\x07'. Write\nplain text.")
    assert str(error) == "a\\x1b[2J.yaml:1: name is 'x\\x07'. Write\nplain text."
    assert printable("2 × µs, 名") == "2 × µs, 名"


COMMANDS = [
    ("estimate", "{file}", "-t", "v100", "-o", "out.csv"),
    ("estimate", "p1b3", "-t", "{file}", "-o", "out.csv"),
    ("fom", "{file}"),
    ("import", "{file}", "-o", "out.yaml"),
    ("import", "{file}", "--as", "model", "-o", "out.yaml"),
    ("predict", "{file}", "-t", "v100", "-o", "out.csv"),
]
FILES: dict[str, bytes] = {
    "empty.yaml": b"",
    "bomb.yaml": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "tag.yaml": b"a: !!python/object/apply:os.system [touch out.csv]\n",
    "bytes.yaml": bytes(range(256)),
    "semicolon.csv": b"kind;dtype;m;n;k\ngemm;fp32;1,5;2;3\n",
    "live.csv": b"kind,dtype,m,n,k\n=cmd|' /C calc'!A0,fp32,1,2,3\n",
    "workbook.xlsx": b"PK\x03\x04 and no more",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_every_command_tells_one_message_and_writes_nothing(
    tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    written(tmp_path, FILES[name], name)
    arguments = [part.format(file=name) for part in command]
    # A process of its own shows once for each command that nothing beside the message is written.
    done = (run if name == "empty.yaml" else in_this_process)(*arguments, cwd=tmp_path)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("fomkit: ")
    assert name in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_json_out_has_no_number_that_json_lacks(root: Path) -> None:
    done = run("estimate", "p1b3", "-t", "v100", "--json", cwd=root)

    def refuse(word: str) -> float:
        raise AssertionError(word)

    json.loads(done.stdout, parse_constant=refuse)
