"""Change one operator or number of fomkit at a time, and find the changes (mutants) that no test notices.

    python benchmarks/mutants.py --count 150 --seed 7 --jobs 2

A first run of the tests under coverage determines which tests execute a line. Its result is cached in
.mutants.json, and only test files that changed since are run again. Then the tests are collected once, in a copy
of the checkout, and each mutant is tried in a fork of that process: the changed functions get their new code, and
the tests that execute the changed statement run until one fails, first those of tests/golden/test_frozen.py. A
mutant in code that runs at import is tried in a fork that imports fomkit again. No cached result is used: caches
of functions are empty, and so is fomkit's cache folder, unless the mutant's room is above all that is cached
there. A test that also fails without the mutant does not count. A mutant for which no test fails survives. A
mutant that makes a test run over a minute is killed if the test needs less than a fifth of that time without it; a
mutant that only slows tests is not. Code that only child processes execute is not covered. Needs ``pip install
coverage``.

    python benchmarks/mutants.py --count 40 --rooms     # only tests of the calculating rooms: in minutes
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib.machinery
import inspect
import io
import itertools
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from mutants_covered import ROOM_TESTS, ROOMS, ROOT, Covered, covered, file_of

OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Pow: "*", ast.Mod: "*",
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    ast.And: "or", ast.Or: "and", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
         "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}  # fmt: skip


class Mutant(NamedTuple):
    """One change: it replaces characters start to end of a line; its statement spans lines first to last."""

    path: str
    line: int
    start: int
    end: int
    new: str
    first: int
    last: int

    def told(self) -> str:
        """Return the place and the change, with the unchanged line."""
        text = (ROOT / self.path).read_text(encoding="utf-8").split("\n")[self.line - 1]
        return f"{self.path}:{self.line}: {text[self.start : self.end].strip()!r} → {self.new!r} in {text.strip()}"

    def changed(self, text: str) -> str:
        """Return the file's text with the change."""
        lines = text.split("\n")
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.new + line[self.end :]
        return "\n".join(lines)


def _nodes_to_keep(tree: ast.Module) -> set[int]:
    """Return ids of nodes not to change: annotations, messages, imports, unions with None, names the file sets."""
    silent: set[int] = set()
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns, *(arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg))]
        elif isinstance(node, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value is None
        ):  # what is "or None" is a type
            parts = [node]
        silent.update(id(inner) for part in parts if part is not None for inner in ast.walk(part))
    return silent | {id(node) for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in own}


def _between(lines: list[str], left: ast.expr, right: ast.expr) -> tuple[int, int, int] | None:
    """Return line, start and end of the text between two operands; None if it is not on one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return None
    line = lines[right.lineno - 1].encode()
    start = len(line[: left.end_col_offset].decode())
    return right.lineno, start, start + len(line[left.end_col_offset : right.col_offset].decode())


def _operator_changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield line, start, end and replacement for each operator of an expression."""
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
        # A parenthesis between the operands belongs to one of them.
        if place is not None and new is not None and not set(lines[place[0] - 1][place[1] : place[2]]) & set("()"):
            yield *place, f" {new} "


def _word_changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield the same for a number, and for a function with a counterpart in `NAMES`."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.end_col_offset:
        new = str(node.value + 1) if isinstance(node.value, int) else repr(node.value * 1.5 or 0.5)
        start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
        yield node.lineno, start, start + node.end_col_offset - node.col_offset, new
    elif isinstance(node, ast.Name | ast.Attribute) and node.end_lineno and node.end_col_offset:
        word = node.id if isinstance(node, ast.Name) else node.attr
        if word in NAMES:
            end = len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode())
            yield node.end_lineno, end - len(word), end, NAMES[word]


def _statements(tree: ast.Module) -> dict[int, tuple[int, int]]:
    """Return, by line, first and last line of the innermost statement there; of a compound statement, its head."""
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):  # from the outside inwards
        if isinstance(node, ast.stmt) and node.end_lineno:
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            found.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return found


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of one file."""
    text = path.read_text(encoding="utf-8")
    lines, tree, name = text.split("\n"), ast.parse(text), str(path.relative_to(ROOT))
    silent, statements = _nodes_to_keep(tree), _statements(tree)
    for node in ast.walk(tree):
        if id(node) not in silent:
            for change in itertools.chain(_operator_changes(node, lines), _word_changes(node, lines)):
                yield Mutant(name, *change, *statements.get(change[0], (change[0], change[0])))


def _differing_codes(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """Return pairs of differing function codes; None if code that runs at import differs."""
    is_function = bool(old.co_flags & inspect.CO_NEWLOCALS)  # not set for the bodies of modules and classes
    if not is_function and _own(old) != _own(new):
        return None
    pairs = [(old, new)] if is_function and old != new else []
    for before, after in zip(_inner(old), _inner(new), strict=True):
        below = _differing_codes(before, after)
        is_comprehension = before.co_name.startswith("<") and before.co_name != "<lambda>"
        if below is None or (below and is_comprehension and not is_function):
            return None
        pairs += below
    return pairs


def _inner(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> tuple[Any, ...]:
    return code.co_code, code.co_names, [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]


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


class _Chosen:
    """A plugin that runs chosen tests in the given order, with fixed examples, and records the first failure."""

    def __init__(self, tests: Sequence[str] = (), begins: Callable[[str], object] = str) -> None:
        self.tests, self.begins, self.failed = tests, begins, ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Make hypothesis try the same examples each time, without shrinking a failing example."""
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in self.tests or by_name if name in by_name]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.begins(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


class _Trial(NamedTuple):
    """A fork that runs tests with a mutant, or without it for comparison."""

    mutant: Mutant
    tests: list[str]
    folder: Path

    def failed(self) -> str:
        """Return the test that failed or did not end, or the file that could not be imported."""
        return self.told("failed")

    def told(self, what: str) -> str:
        """Return the text that the fork wrote to a file; "" without the file."""
        path = self.folder / what
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def suspected(self) -> list[str]:
        """Return the tests to run without the mutant, to see whether it causes the failure."""
        failed = self.failed()
        return [test for test in self.tests if failed in (test, file_of(test))] or self.tests[:1]


class Trials:
    """A plugin that tries mutants instead of running the tests that were collected."""

    def __init__(self, drawn: Sequence[Mutant], known: Covered, folder: Path, jobs: int, longest_s: float) -> None:
        self.drawn, self.known, self.folder, self.jobs, self.longest_s = drawn, known, folder, jobs, longest_s
        self.chosen = _Chosen()
        self.tried: list[Mutant] = []
        self.survivors: list[Mutant] = []
        self.holds: dict[tuple[bool, bool, str], bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant in a fork."""
        self.items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # frozen objects are not listed by get_objects
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(str(self.folder)):
                self.functions.setdefault(_place(one.__code__), []).append(one)
            elif type(one) is _lru_cache_wrapper:  # drop results from the collection; isinstance asks proxies
                one.cache_clear()
        gc.freeze()
        running: dict[int, _Trial] = {}
        waiting = [(mutant, self.known.of(mutant, self.longest_s)) for mutant in self.drawn]
        while waiting or running:
            while waiting and len(running) < self.jobs:
                pid, trial = self._forked(*waiting.pop(0))
                running[pid] = trial
            pid, status = os.wait()
            trial, code = running.pop(pid), os.waitstatus_to_exitcode(status)
            again = self._tests_that_hold(trial, hangs=code == -signal.SIGALRM) if code else trial.tests
            if again == trial.tests:
                self._tell(trial, code)
            else:
                waiting.insert(0, (trial.mutant, again))
            shutil.rmtree(trial.folder, ignore_errors=True)
        return True

    def _tell(self, trial: _Trial, code: int) -> None:
        self.tried.append(trial.mutant)
        by = f"{trial.failed() or 'all'}{f', exit {code}' if code < 0 else ''}"
        is_alive = not code or bool(trial.told("trouble"))
        how = f"SURVIVED {len(trial.tests)} tests {trial.told('trouble')}" if is_alive else f"killed by {by}"
        print(f"{len(self.tried)} {how}: {trial.mutant.told()}", file=sys.__stdout__, flush=True)
        if is_alive:
            self.survivors.append(trial.mutant)

    def _tests_that_hold(self, trial: _Trial, *, hangs: bool) -> list[str]:
        """Return a mutant's tests without those that also fail without it, or take nearly as long."""
        suspected = trial.suspected()
        key = self.known.is_at_import(trial.mutant), hangs, str(suspected)
        if key not in self.holds:
            pid, plain = self._forked(trial.mutant, suspected, share=1 / HANGS if hangs else 1.0, is_changed=False)
            self.holds[key] = os.waitpid(pid, 0)[1] == 0
            if not self.holds[key]:
                print(
                    f"fails without a mutant: {suspected[0]}",
                    plain.told("trouble"),
                    file=sys.__stdout__,
                    flush=True,
                )
            shutil.rmtree(plain.folder, ignore_errors=True)
        return trial.tests if self.holds[key] else [test for test in trial.tests if test not in suspected]

    def _forked(
        self, mutant: Mutant, tests: list[str], *, share: float = 1.0, is_changed: bool = True
    ) -> tuple[int, _Trial]:
        """Start a fork whose exit status is 0 if each test passes in this share of its allowed time."""
        trial = _Trial(mutant, tests, Path(tempfile.mkdtemp(dir=self.folder.parent)))

        def begins(test: str) -> None:
            (trial.folder / "failed").write_text(test, encoding="utf-8")
            signal.alarm(math.ceil(share * HANGS * (LEAST_S + 2 * self.known.seconds.get(test, 1.0))))

        pid = os.fork()
        if pid:
            return pid, trial
        code = 1
        try:
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            tempfile.tempdir = os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(trial.folder)
            if Path(mutant.path).parts[1] in KEPT_BY:
                os.environ["FOMKIT_CACHE"] = str(trial.folder / "cache")
            signal.alarm(HANGS * LEAST_S)  # to import; then each test has its own
            code = self._run(trial, begins, is_changed) if tests else 0
            signal.alarm(0)
            (trial.folder / "failed").write_text(self.chosen.failed, encoding="utf-8")
        except BaseException:
            (trial.folder / "trouble").write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(code)

    def _run(self, trial: _Trial, begins: Callable[[str], None], is_changed: bool) -> int:
        """Run tests with changed code in the existing functions, or with new imports if import code differs."""
        path = self.folder / trial.mutant.path
        text = path.read_text(encoding="utf-8")
        old, new = (compile(one, path, "exec", dont_inherit=True) for one in (text, trial.mutant.changed(text)))
        pairs = None if self.known.is_at_import(trial.mutant) else _differing_codes(old, new)
        if pairs is None:
            self.chosen = _Chosen(trial.tests, begins)
            return self._run_imported(str(path), new if is_changed else old)
        self.chosen.begins = begins
        for before, after in pairs if is_changed else []:
            for function in self.functions.get(_place(before), []):
                if function.__code__ == before:
                    function.__code__ = after
        chosen = [self.items[test] for test in trial.tests if test in self.items]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.chosen.failed:
                return 1
        return 0

    def _run_imported(self, path: str, code: CodeType) -> int:
        """Run tests after importing all of fomkit and of the tests again, one file with this code."""
        usual = importlib.machinery.SourceFileLoader.get_code

        def get_code(loader: Any, name: str) -> CodeType | None:
            return code if loader.path == path else usual(loader, name)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]
        # Pytest imports a file named on its command line itself; a folder's files are imported as usual.
        sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, AssertionRewritingHook)]
        files = {Path(file_of(test)) for test in self.chosen.tests}
        places = sorted({str(file if file.parts[0] == "tests" else file.parent) for file in files})
        return int(pytest.main([*_OPTIONS, "-x", *places], [self.chosen]))


LEAST_S, HANGS = 12, 5
"""Allowed time of a test without a mutant in addition to twice its known time [s]; factor on it with a mutant."""
KEPT_BY = ("ops", "prediction")
"""Rooms whose code makes the contents of fomkit's cache folder."""
_OPTIONS = ["-q", "--capture=sys", "-p", "no:cacheprovider", "-m", "not slow"]


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def main() -> None:
    """Draw mutants, run their tests and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--file", action="append", default=[], help="Only mutants of this file.")
    parser.add_argument("--line", type=int, action="append", default=[], help="Only mutants of this line.")
    parser.add_argument("--longest", type=float, default=120.0, help="Time of tests tried for one mutant [s].")
    parser.add_argument("--rooms", action="store_true", help="Only tests that are about the rooms themselves.")
    parser.add_argument("tests", nargs="*", default=["tests", "fomkit"], help="Tests that are run; default: all.")
    options = parser.parse_args()
    files = [ROOT / name for name in options.file] or [
        path for room in ROOMS for path in sorted((ROOT / "fomkit" / room).rglob("*.py"))
    ]
    every = [one for path in files for one in mutants_of(path) if not options.line or one.line in options.line]
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"seed {options.seed}: {len(drawn)} of {len(every)} mutants", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = _copy(Path(made).resolve() / "checkout")
        shared = os.environ.get("FOMKIT_SHARED", str(ROOT.parent / "shared"))
        os.environ.update(
            PYTHONPATH=str(folder),
            FOMKIT_SHARED=shared,
            OMP_NUM_THREADS="1",
            FOMKIT_CACHE=str(folder.parent / "cache"),
        )
        known = covered(list(ROOM_TESTS) if options.rooms else options.tests, folder)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        trials = Trials(drawn, known, folder, options.jobs, options.longest)
        collected = sorted({file_of(test) for mutant in drawn for test in known.of(mutant, options.longest)})
        with contextlib.redirect_stdout(io.StringIO()) as said:
            pytest.main([*_OPTIONS, *collected], [trials, trials.chosen])
    if len(trials.tried) < len(drawn):
        sys.exit(said.getvalue())
    killed = len(drawn) - len(trials.survivors)
    for mutant in trials.survivors:
        print(f"survived: {mutant.told()}")
    every_room, alive = (Counter(Path(one.path).parts[1] for one in some) for some in (drawn, trials.survivors))
    for room, count in sorted(every_room.items()):
        print(f"{room}: {count - alive[room]} of {count} killed")
    print(f"seed {options.seed}: {killed} of {len(drawn)} killed, {killed / max(len(drawn), 1):.1%}")


if __name__ == "__main__":
    main()
