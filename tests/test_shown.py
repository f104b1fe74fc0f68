"""Views of results: every result class has one, registered in one place and loaded by every public entry point."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fomkit
from fomkit.core.errors import FomkitError, Shown
from fomkit.merit.suites import SuiteResult
from fomkit.plan.estimate import Estimate
from fomkit.plan.op_tables import Prediction
from fomkit.verbs.compare import Comparison
from fomkit.verbs.cost import Cost
from fomkit.verbs.views import VIEWS
from fomkit.whatif.advise import Advice
from fomkit.whatif.sensitivity import Sensitivity
from fomkit.whatif.solve import Solution
from fomkit.whatif.sweep_result import Swept
from fomkit.workbook.review import Review

RESULTS = (Advice, Comparison, Cost, Estimate, Prediction, Review, Sensitivity, Solution, SuiteResult, Swept)


def test_every_class_that_is_shown_has_a_view_and_every_view_a_class() -> None:
    assert {one for one in Shown.__subclasses__() if one.__module__.startswith("fomkit.")} == set(RESULTS)
    assert {one.__name__ for one in RESULTS} == set(VIEWS)


class Nothing(Shown):
    """A result class without a view."""

    def summary(self) -> str:
        """Show it."""
        return self._view.text(self)


def test_a_result_without_a_view_says_so() -> None:
    with pytest.raises(FomkitError, match="Nothing: has no view"):
        Nothing().summary()


def test_a_way_that_a_view_lacks_says_so() -> None:
    with pytest.raises(FomkitError, match="Nothing: is not shown in this way"):
        VIEWS["Swept"].html(Nothing())


def test_a_class_that_derives_from_a_result_is_shown_as_it() -> None:
    class Own(Estimate): ...

    one = fomkit.estimate("p1b3-lecture", "x86-lecture")
    assert Own(**vars(one)).summary() == one.summary()


def _new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_what_a_public_function_gives_is_shown_in_a_process_that_imported_nothing_else() -> None:
    code = "import fomkit; print(fomkit.estimate('p1b3-lecture', 'x86-lecture').summary()[:8])"
    assert _new_process(code) == "p1b3-lec\n"


def test_what_calculates_imports_no_view() -> None:
    rooms = "plan.estimate merit.suites whatif.sensitivity whatif.solve whatif.advise"
    names = ", ".join(f"fomkit.{room}" for room in rooms.split())
    loaded = _new_process(f"import sys, {names}; print(*sys.modules)").split()
    assert not [name for name in loaded if name.startswith(("fomkit.output", "fomkit.verbs", "altair"))]
