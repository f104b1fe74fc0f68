"""The golden corpus: the output of every verb on shipped inputs and the tests' data, stored as text.

``calls.txt`` has the calls by section; each section runs in a separate folder with a copy of ``inputs/``. The
output of a call is its exit code, both streams, and each file that it wrote as text: a workbook as its cells, a
page as the words that a browser shows. ``shown/`` stores it, one file per section; dates, versions and folders are
masked.

    python tests/golden/corpus.py            # compare, and print what differs
    python tests/golden/corpus.py --write    # store the present output
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import gzip
import html
import io
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHOWN = HERE / "shown"
TOLERANCE = 1e-9
"""Tolerance of a number: other processors sum in another order, and fitted times are rounded to ten digits."""
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PICTURES = (".png", ".svg", ".pdf")
HEAD, AS_KEPT = "## ", "as kept"
"""Beginning of the summary of a section and, if nothing differs, its end."""


def sections() -> dict[str, list[str]]:
    """Read the calls by section, in order."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in (HERE / "calls.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            name = line[3:].strip()
            found[name] = []
        elif line.strip() and not line.startswith("#"):
            found[name].append(line.strip())
    return found


@contextlib.contextmanager
def _streams() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    out, err = io.BytesIO(), io.BytesIO()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (io.TextIOWrapper(one, encoding="utf-8", write_through=True) for one in (out, err))
    try:
        yield out, err
    finally:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.detach()  # otherwise the bytes would be closed with it
        sys.stdout, sys.stderr = before


def call(line: str) -> tuple[int, str, str]:
    """Run one command line in this process; return its exit code and both streams."""
    from fomkit.cli.main import main

    words = shlex.split(line)
    before, sys.argv = sys.argv, words
    code = 0
    try:
        with _streams() as (out, err):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return code, out.getvalue().decode(), err.getvalue().decode()


def _cells(path: Path) -> str:
    import openpyxl

    lines = []
    for sheet in openpyxl.load_workbook(path).worksheets:
        lines.append(f"[{sheet.title}] {sheet.dimensions}")
        for row in sheet.iter_rows():
            lines += [f"{cell.coordinate}\t{cell.value}" for cell in row if cell.value is not None]
    return "\n".join(lines)


def _words(page: str) -> str:
    page = re.sub(r"(?is)<(script|style|svg)\b.*?</\1>", " ", page)
    return "\n".join(filter(None, (" ".join(html.unescape(one).split()) for one in re.split(r"<[^>]*>", page))))


def as_text(path: Path) -> str:
    """Return a file's content as lines that can be compared."""
    if path.suffix == ".xlsx":
        return _cells(path)
    if path.suffix in PICTURES:
        return "(a picture)"
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = raw.decode()
    return _words(text) if path.suffix == ".html" else text


def masked(text: str, folder: Path) -> str:
    """Mask the parts of a text that differ from day to day and from machine to machine."""
    from fomkit import __version__

    for place, word in ((str(folder), "FOLDER"), (str(ROOT), "CHECKOUT")):
        text = text.replace(place, word)
    text = text.replace(datetime.datetime.now(datetime.UTC).date().isoformat(), "TODAY")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", "NOW", text)
    text = re.sub(rf'("fomkit": "|fomkit ){re.escape(__version__)}', r"\1VERSION", text)
    text = re.sub(r"TODAY \d\d:\d\d UTC", "NOW", text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def _files(folder: Path) -> dict[Path, int]:
    return {path: zlib.crc32(path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()}


def show(name: str) -> str:
    """Run a section's calls in a fresh folder; return all output."""
    told: list[str] = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve() / "here"
        shutil.copytree(HERE / "inputs", folder)
        os.chdir(folder)
        try:
            known = _files(folder)
            for line in sections()[name]:
                code, out, err = call(line)
                told += [f"$ {line}", f"[exit {code}]", masked(out, folder)]
                told += ["[stderr]", masked(err, folder)] if err else []
                now = _files(folder)
                for path in (path for path in now if known.get(path) != now[path]):
                    told += [f"[{path.relative_to(folder)}]", masked(as_text(path), folder)]
                known = now
                told.append("")
        finally:
            os.chdir(before)
    return "\n".join(told)


def same(old: str, new: str, tolerance: float = TOLERANCE) -> bool:
    """Return whether two lines are equal: the same words, and numbers within the tolerance."""
    if old == new:
        return True
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return False
    pairs = zip(map(float, NUMBER.findall(old)), map(float, NUMBER.findall(new)), strict=True)
    return all(abs(a - b) <= tolerance * max(abs(a), abs(b)) for a, b in pairs)


def differences(old: str, new: str) -> list[str]:
    """Return the lines that differ, as a unified diff; empty if all are equal."""
    left, right = old.splitlines(), new.splitlines()
    if len(left) == len(right):
        right = [a if same(a, b) else b for a, b in zip(left, right, strict=True)]
    return list(difflib.unified_diff(left, right, "kept", "shown now", lineterm="", n=1))


def settle() -> None:
    """Set this process to reproducible output: 80 columns, no colour, its own cache."""
    os.environ.pop("COLUMNS", None)
    os.environ.update(NO_COLOR="1", TERM="dumb", TZ="UTC", LC_ALL="C.UTF-8")
    os.environ.pop("CI", None)


def main() -> int:
    """Compare or write; return 1 if something differs."""
    from read_once import profiles_are_read_once
    from ready_children import ready_children

    from fomkit.cli import choices

    choices.SPARSE_S = 1e6  # a busy machine prints that it still works
    settle()
    with profiles_are_read_once(), ready_children() if hasattr(socket, "recv_fds") else contextlib.nullcontext():
        return compare()


def compare() -> int:
    """Run the sections that the command line names, or all; write them, or compare them with the stored ones."""
    write = "--write" in sys.argv
    wanted = [one for one in sys.argv[1:] if not one.startswith("-")]
    SHOWN.mkdir(exist_ok=True)
    failed = 0
    for name in sections():
        if wanted and name not in wanted:
            continue
        path, text = SHOWN / f"{name}.txt", show(name)
        if write:
            path.write_text(text, encoding="utf-8")
            continue
        changed = differences(path.read_text(encoding="utf-8"), text)
        failed += bool(changed)
        summary = f"{len(changed)} lines differ" if changed else AS_KEPT
        sys.stdout.write("\n".join([f"{HEAD}{name}: {summary}", *changed[:200]]) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(HERE.parent)]
    sys.exit(main())
