"""Change one operator or number of fomkit at a time and see whether a test fails: what the tests do not hold.

    python benchmarks/mutants.py --count 150 --seed 7 --jobs 2

A first run of the tests under coverage (kept in .mutants.json for the same files) tells which of them execute a
line. For each mutant these are run, the quickest first, until one fails. A mutant with which none fails is a
survivor; it is printed with its place and the change. Needs ``pip install coverage``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("ops", "prediction", "plan", "merit")
MAP = ROOT / ".mutants.json"
OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Pow: "*", ast.Mod: "*",
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    ast.And: "or", ast.Or: "and", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
         "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}  # fmt: skip
LONGEST_S = 240.0
"""Time of tests run for one mutant; where all that execute its line take longer, the slowest are left out."""


class Mutant(NamedTuple):
    """One change: characters from start to end of a line of a file are replaced."""

    path: str
    line: int
    start: int
    end: int
    new: str

    def told(self) -> str:
        """Give the place and the change, with the line as it stands."""
        text = (ROOT / self.path).read_text(encoding="utf-8").split("\n")[self.line - 1]
        return f"{self.path}:{self.line}: {text[self.start : self.end].strip()!r} → {self.new!r} in {text.strip()}"


def _said(tree: ast.Module) -> set[int]:
    """Give nodes that only say something: annotations, texts of messages, docstrings."""
    silent: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns, *(arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg))]
        elif isinstance(node, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom):
            parts = [node]
        silent.update(id(inner) for part in parts if part is not None for inner in ast.walk(part))
    return silent


def _between(lines: list[str], left: ast.expr, right: ast.expr) -> tuple[int, int, int] | None:
    """Give line, start and end of what stands between two operands, where that is on one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return None
    line = lines[right.lineno - 1].encode()
    start = len(line[: left.end_col_offset].decode())
    return right.lineno, start, start + len(line[left.end_col_offset : right.col_offset].decode())


def _of_operators(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Give line, start, end and what to put there for each operator of an expression."""
    if isinstance(node, ast.BinOp):
        found = [(node.op, node.left, node.right)]
    elif isinstance(node, ast.BoolOp):
        found = [(node.op, left, right) for left, right in itertools.pairwise(node.values)]
    elif isinstance(node, ast.Compare):
        sides = itertools.pairwise([node.left, *node.comparators])
        found = [(kind, left, right) for kind, (left, right) in zip(node.ops, sides, strict=True)]
    else:
        return
    for kind, left, right in found:
        place, new = _between(lines, left, right), OPERATORS.get(type(kind))
        # A parenthesis between the two belongs to one of them.
        if place is not None and new is not None and not set(lines[place[0] - 1][place[1] : place[2]]) & set("()"):
            yield *place, f" {new} "


def _of_words(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Give the same for a number, and for a function that has a counterpart."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.end_col_offset:
        new = str(node.value + 1) if isinstance(node.value, int) else repr(node.value * 1.5 or 0.5)
        start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
        yield node.lineno, start, start + node.end_col_offset - node.col_offset, new
    elif isinstance(node, ast.Name | ast.Attribute) and node.end_lineno and node.end_col_offset:
        word = node.id if isinstance(node, ast.Name) else node.attr
        if word in NAMES:
            end = len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode())
            yield node.end_lineno, end - len(word), end, NAMES[word]


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Walk over all changes of one file."""
    text = path.read_text(encoding="utf-8")
    lines, tree, name = text.split("\n"), ast.parse(text), str(path.relative_to(ROOT))
    silent = _said(tree)
    for node in ast.walk(tree):
        if id(node) not in silent:
            for change in itertools.chain(_of_operators(node, lines), _of_words(node, lines)):
                yield Mutant(name, *change)


class _Map(NamedTuple):
    """Which tests execute a line, and how long each takes [s]."""

    tests: dict[str, dict[str, list[int]]]
    nodes: list[str]
    seconds: dict[str, float]

    def of(self, mutant: Mutant) -> list[str]:
        """Give the tests that execute a mutant's line, the quickest first, as many as `LONGEST_S` allows."""
        lines = self.tests.get(mutant.path, {})
        found = {self.nodes[number] for number in lines.get(str(mutant.line), [])}
        if "" in found:  # when the module was imported: any test of the module may tell
            found = {self.nodes[number] for own in lines.values() for number in own}
        chosen, spent = [], 0.0
        for node in sorted(found - {""}, key=lambda node: self.seconds.get(node, 1.0)):
            spent += self.seconds.get(node, 1.0)
            if chosen and spent > LONGEST_S:
                break
            chosen.append(node)
        return chosen


PLUGIN = """
import json, os, pytest, coverage
seconds = {}
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    coverage.Coverage.current().switch_context(item.nodeid)
def pytest_runtest_logreport(report):
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
def pytest_sessionfinish():
    with open(os.environ["MUTANT_SECONDS"], "w") as file:
        json.dump(seconds, file)
"""


def _key() -> str:
    found = hashlib.sha256()
    for path in sorted([*(ROOT / "fomkit").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        found.update(path.read_bytes())
    return found.hexdigest()


def _copy(to: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def _environment(folder: Path, **more: str) -> dict[str, str]:
    shared = os.environ.get("FOMKIT_SHARED", str(ROOT.parent / "shared"))
    return {**os.environ, "PYTHONPATH": str(folder), "FOMKIT_SHARED": shared, "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", **more}  # fmt: skip


def make_map(tests: list[str]) -> _Map:
    """Run the tests under coverage, or read what an earlier run of the same files found."""
    key = _key()
    if MAP.is_file() and (kept := json.loads(MAP.read_text(encoding="utf-8")))["key"] == key:
        return _Map(kept["tests"], kept["nodes"], kept["seconds"])
    with tempfile.TemporaryDirectory() as made:
        folder = _copy(Path(made) / "checkout")
        (folder / "mutants_plugin.py").write_text(PLUGIN, encoding="utf-8")
        told, data = folder / "seconds.json", folder / ".coverage"
        rooms = ",".join(f"fomkit/{room}/*" for room in ROOMS)
        command = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            f"--data-file={data}",
            f"--include={rooms}",
            "-m",
            "pytest",
            "-q",
            "-p",
            "mutants_plugin",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",
            *tests,
        ]
        print("running the tests under coverage, once", flush=True)
        subprocess.run(command, cwd=folder, env=_environment(folder, MUTANT_SECONDS=str(told)), check=False)
        from coverage import CoverageData

        found = CoverageData(str(data))
        found.read()
        seconds = json.loads(told.read_text(encoding="utf-8"))
        nodes: dict[str, int] = {}
        by_file = {}
        for file in found.measured_files():
            executed = found.contexts_by_lineno(file)
            name = str(Path(file).resolve().relative_to(folder.resolve()))
            by_file[name] = {
                str(line): [nodes.setdefault(node, len(nodes)) for node in contexts]
                for line, contexts in executed.items()
            }
    made_map = {"key": key, "tests": by_file, "nodes": list(nodes), "seconds": seconds}
    MAP.write_text(json.dumps(made_map), encoding="utf-8")
    return _Map(by_file, list(nodes), seconds)


def is_killed(mutant: Mutant, tests: list[str], folder: Path) -> bool:
    """Tell whether a test fails with the mutant in a copy of the checkout."""
    path = folder / mutant.path
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    line = lines[mutant.line - 1]
    lines[mutant.line - 1] = line[: mutant.start] + mutant.new + line[mutant.end :]
    path.write_text("\n".join(lines), encoding="utf-8")
    chosen = folder / "chosen.txt"
    chosen.write_text("\n".join(tests), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"@{chosen}"]
    try:
        done = subprocess.run(
            command, cwd=folder, env=_environment(folder), capture_output=True, check=False, timeout=900
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text, encoding="utf-8")
    return done.returncode != 0


def main() -> None:
    """Draw mutants, run their tests and print who survived."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--count", type=int, default=150)
    asked.add_argument("--seed", type=int, default=int(time.time()))
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--file", action="append", default=[], help="Only mutants of this file.")
    asked.add_argument("tests", nargs="*", help="Tests of the first run; default: all.")
    options = asked.parse_args()
    known = make_map(options.tests)
    files = [ROOT / name for name in options.file] or [
        path for room in ROOMS for path in sorted((ROOT / "fomkit" / room).rglob("*.py"))
    ]
    every = [mutant for path in files for mutant in mutants_of(path)]
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"seed {options.seed}: {len(drawn)} of {len(every)} mutants", flush=True)
    with tempfile.TemporaryDirectory() as made:
        copies: Queue[Path] = Queue()
        for number in range(options.jobs):
            copies.put(_copy(Path(made) / str(number)))

        def tried(mutant: Mutant) -> tuple[Mutant, bool, int]:
            tests, folder = known.of(mutant), copies.get()
            try:
                return mutant, bool(tests) and is_killed(mutant, tests, folder), len(tests)
            finally:
                copies.put(folder)

        killed = 0
        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, dead, count in pool.map(tried, drawn):
                killed += dead
                if not dead:
                    print(f"survived {count} tests: {mutant.told()}", flush=True)
    print(f"seed {options.seed}: {killed} of {len(drawn)} killed, {killed / len(drawn):.1%}")


if __name__ == "__main__":
    main()
