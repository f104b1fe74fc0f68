"""Find which tests execute a line of the calculating rooms, by one run under coverage; for ``mutants.py``."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mutants import Mutant

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("ops", "prediction", "plan", "merit")
KEPT = ROOT / ".mutants.json"
FROZEN, FROZEN_OF = "tests/golden/test_frozen.py", "tests/golden/frozen"
"""Tests of frozen results, which notice most changes of a statement; prefix of the files that make them."""
ROOM_TESTS = (
    FROZEN, *(f"fomkit/{room}" for room in ROOMS), "tests/costs", "tests/predict",
    *(f"tests/test_{name}.py" for name in ("accept", "campaign", "caveats", "convolution_methods", "cost",
      "energy", "estimate_says", "explain", "fom", "from_measurements", "jobs", "lecture_measurements",
      "lecture_page", "memory",
      "meter", "options", "own_memory", "parallel", "plausibility", "precision", "predict_command", "resize",
      "rollup", "scaling", "scenarios", "shared_errors", "suites", "timeline", "use_in_steps", "views")),
)  # fmt: skip
"""Tests of the calculating rooms themselves."""
ELSEWHERE = ("tests/trace", "tests/measure", "tests/report", "tests/golden/test_golden.py", "tests/test_fuzz.py",
             "tests/test_contributing.py", "tests/timings/test_measure*.py", "fomkit/frontends", "fomkit/harness",
             "fomkit/bench")  # fmt: skip
"""Tests that trace, time, draw or start child processes: they are long, and do not test these rooms."""


class Covered(NamedTuple):
    """The tests that execute a line, by file and line, and the time of each test [s]."""

    tests: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]

    @classmethod
    def unpacked(cls, tests: dict[str, dict[str, list[int]]], seconds: dict[str, float]) -> Covered:
        """Restore the result of `packed`."""
        names = ["", *seconds]
        return cls(
            {
                file: {line: [names[at] for at in found] for line, found in own.items()}
                for file, own in tests.items()
            },
            seconds,
        )

    def packed(self) -> dict[str, object]:
        """Return plain content with tests as numbers from 1, in the order of ``seconds``; 0 is before any test."""
        number = {name: at for at, name in enumerate(["", *self.seconds])}
        tests = {
            file: {line: [number[test] for test in found] for line, found in own.items()}
            for file, own in self.tests.items()
        }
        return {"tests": tests, "seconds": self.seconds}

    def is_at_import(self, mutant: Mutant) -> bool:
        """Return whether a statement is executed before any test."""
        return "" in self._executing(mutant)

    def _executing(self, mutant: Mutant) -> set[str]:
        lines = self.tests.get(mutant.path, {})
        return {test for line in range(mutant.first, mutant.last + 1) for test in lines.get(str(line), [])}

    def _using(self, mutant: Mutant) -> set[str]:
        """Return the tests that execute a line, of any room, with a name that the statement assigns."""
        text = (ROOT / mutant.path).read_text(encoding="utf-8").split("\n")[mutant.first - 1]
        given = re.match(r"(\w+(?:, \w+)*)(?:: [^=]+)? = ", text)
        names = re.compile(rf"\b(?:{given[1].replace(', ', '|')})\b" if given else r"(?!)")
        found = set[str]()
        for file, known in self.tests.items():
            lines = enumerate((ROOT / file).read_text(encoding="utf-8").split("\n"), 1)
            found.update(test for at, line in lines if names.search(line) for test in known.get(str(at), []))
        return found

    def of(self, mutant: Mutant, longest_s: float) -> list[str]:
        """Return the tests that may notice a mutant: all of frozen numbers, then as many as the time allows.

        First, quick ones first, those that execute the statement; then others of their files, which may use it by
        a fixture or a cache.
        """
        found = self._executing(mutant)
        if "" in found:  # executed at import: the tests that use its name, else any test of the module
            every = {test for own in self.tests[mutant.path].values() for test in own}
            found = (self._using(mutant) or every) - {""} or every
        found -= {""}
        files = {file_of(test) for test in found}
        others = {test for test in self.seconds if file_of(test) in files} - found
        order = [*self._quick_first(found), *self._quick_first(others)]
        chosen = [test for test in order if file_of(test) == FROZEN]
        spent = 0.0
        for test in (test for test in order if file_of(test) != FROZEN):
            spent += self.seconds.get(test, 1.0)
            if chosen and spent > longest_s:
                break
            chosen.append(test)
        return chosen

    def without(self, files: set[str]) -> Covered:
        """Return a copy without the tests of some files."""
        return Covered(
            {
                name: {line: [test for test in found if file_of(test) not in files] for line, found in own.items()}
                for name, own in self.tests.items()
            },
            {test: spent for test, spent in self.seconds.items() if file_of(test) not in files},
        )

    def moved(self, file: str, before: list[str], after: list[str]) -> None:
        """Update the lines of a file that changed: a new line gets the tests of the lines around it."""
        known, moved = self.tests.get(file, {}), {}
        changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        for tag, first, last, start, end in changes:
            about = {test for line in range(first, last + 2) for test in known.get(str(line), [])}
            for at in range(start, end):
                same = known.get(str(first + at - start + 1), []) if tag == "equal" else sorted(about)
                moved.update({str(at + 1): same} if same else {})
        self.tests[file] = moved

    def _quick_first(self, tests: set[str]) -> list[str]:
        """Sort tests by the power of ten of their time, then by file, because a file shares its set-up."""

        def key(test: str) -> tuple[float, str, float]:
            spent = self.seconds.get(test, 1.0)
            return math.ceil(math.log10(max(spent, 0.01))), file_of(test), spent

        return sorted(tests, key=key)


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


PLUGIN = """
import json, os, pytest, coverage
seconds, failed = {}, set()
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    coverage.Coverage.current().switch_context(item.nodeid)
def pytest_runtest_logreport(report):
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        failed.add(report.nodeid)
def pytest_sessionfinish():
    with open(os.environ["MUTANT_SECONDS"], "w") as file:
        json.dump({test: spent for test, spent in seconds.items() if test not in failed}, file)
"""


def _texts(*folders: str) -> dict[str, str]:
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}


def _run(tests: Sequence[str], folder: Path) -> Covered:
    """Run tests under coverage; failed and skipped tests are left out."""
    from coverage import CoverageData

    (folder / "mutants_plugin.py").write_text(PLUGIN, encoding="utf-8")
    told, data = folder / "seconds.json", folder / ".coverage"
    rooms = ",".join(f"fomkit/{room}/*" for room in ROOMS)
    under = ["coverage", "run", f"--data-file={data}", f"--include={rooms}", "-m"]
    of_pytest = ["-q", "-p", "mutants_plugin", "-p", "no:cacheprovider", "-m", "not slow"]
    left_out = [f"--ignore-glob={folder / one}" for one in ELSEWHERE]
    environment = {**os.environ, "MUTANT_SECONDS": str(told)}
    print("running the tests under coverage", flush=True)
    subprocess.run(
        [sys.executable, "-m", *under, "pytest", *of_pytest, *left_out, *tests],
        cwd=folder, env=environment, check=False,
    )  # fmt: skip
    seconds = json.loads(told.read_text(encoding="utf-8"))
    found, by_file = CoverageData(str(data)), {}
    found.read()
    for file in found.measured_files():
        name = str(Path(file).resolve().relative_to(folder.resolve()))
        by_file[name] = {
            str(line): [test for test in tests if test in seconds or not test]
            for line, tests in found.contexts_by_lineno(file).items()
        }
    return Covered(by_file, seconds)


def covered(tests: Sequence[str], folder: Path) -> Covered:
    """Run the tests under coverage, except those known from an earlier run.

    The earlier run is used for unchanged lines. A test that since executes other lines, because code changed, may
    be missed, so that a mutant survives. Without .mutants.json all tests run.
    """
    code = _texts(*(f"fomkit/{room}" for room in ROOMS))
    files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in _texts("tests").items()}
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    known, wanted = Covered({}, {}), list(tests)
    if kept and {*tests}.issuperset(kept["asked"]):
        changed = {name for name in {*files, *kept["files"]} if files.get(name) != kept["files"].get(name)}
        changed |= {FROZEN for name in changed if name.startswith(FROZEN_OF)}
        again = {name for name in changed if not name.startswith(FROZEN_OF)}
        if all(Path(name).name.startswith("test_") for name in again):  # no file shared by tests changed
            edited = {name for name in {*code, *kept["code"]} if code.get(name) != kept["code"].get(name)}
            known = Covered.unpacked(kept["tests"], kept["seconds"]).without({*changed, *edited})
            for name in edited:
                known.moved(name, *(some.get(name, "").split("\n") for some in (kept["code"], code)))
            again |= {*edited, *tests} - {*kept["asked"]}  # doctests of edited files; newly named tests
            wanted = [name for name in sorted(again) if (ROOT / name).exists() and name.startswith(tuple(tests))]
    if wanted:
        more = _run(wanted, folder)
        known.seconds.update(more.seconds)
        for file, own in more.tests.items():
            lines = known.tests.setdefault(file, {})
            for line, found in own.items():
                lines[line] = sorted({*lines.get(line, []), *found})
    KEPT.write_text(json.dumps({"code": code, "files": files, "asked": list(tests), **known.packed()}))
    return known
