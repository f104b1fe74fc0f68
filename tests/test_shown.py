"""Views of results: every result class has one, registered in one place and loaded by every public entry point."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError, Shown
from fomkit.merit.suites import SuiteResult, SuiteResults
from fomkit.output.files import to_json
from fomkit.plan.estimate import Estimate
from fomkit.plan.op_tables import Prediction
from fomkit.verbs.compare import Comparison
from fomkit.verbs.cost import Cost
from fomkit.verbs.scaling import ScalingResult
from fomkit.verbs.views import VIEWS
from fomkit.whatif.advise import Advice
from fomkit.whatif.sensitivity import Sensitivity
from fomkit.whatif.solve import Solution
from fomkit.whatif.sweep_result import Swept
from fomkit.workbook.review import Review

RESULTS = (
    Advice, Comparison, Cost, Estimate, Prediction, Review, ScalingResult, Sensitivity, Solution, SuiteResult,
    SuiteResults, Swept,
)  # fmt: skip


def test_every_class_that_is_shown_has_a_view_and_every_view_a_class() -> None:
    assert {one for one in Shown.__subclasses__() if one.__module__.startswith("fomkit.")} == set(RESULTS)
    assert {one.__name__ for one in RESULTS} == set(VIEWS)


def test_in_a_notebook_the_text_of_a_result_is_returned_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rated = fomkit.fom("lecture", "a")
    told = rated.summary()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert rated.summary() == told
    assert "ratio" in told


class Nothing(Shown):
    """A result class without a view."""

    def summary(self) -> str:
        """Show it."""
        return self._view.answer(self).summary()


def test_a_result_without_a_view_says_so() -> None:
    with pytest.raises(FomkitError, match="Nothing: has no view"):
        Nothing().summary()


def test_a_way_that_a_view_lacks_says_so() -> None:
    with pytest.raises(FomkitError, match="Nothing: has no such view"):
        VIEWS["Swept"].figure(Nothing())


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


@pytest.mark.parametrize(
    ("make", "asked"),
    [
        (lambda: fomkit.estimate("p1b3", "v100"), "estimate p1b3 -t v100"),
        (lambda: fomkit.fom("lecture", "a"), "fom lecture -t a"),
        (lambda: fomkit.scaling("p1b3", "v100", nodes=[1], node_devices=1),
         "scaling p1b3 -t v100 --nodes 1 --node-devices 1"),
        (lambda: fomkit.sensitivity("p1b3", "v100"), "sensitivity p1b3 -t v100"),
        (lambda: fomkit.solve("p1b3", "v100", unit_per_day=400), "solve p1b3 -t v100 --unit-per-day 400"),
        (lambda: fomkit.explain("p1b3", "v100"), "explain p1b3 -t v100"),
    ],
    ids=["estimate", "fom", "scaling", "sensitivity", "solve", "explain"],
)  # fmt: skip
def test_python_has_the_content_and_the_table_that_the_command_line_writes(
    make: Callable[[], Any], asked: str, tmp_path: Path
) -> None:
    found, file = make(), tmp_path / "rows.csv"
    printed = CliRunner().invoke(app, [*asked.split(), "--json", "-o", str(file)])
    assert json.loads(printed.stdout) == json.loads(to_json(dict(found.content)))
    rows = pd.read_csv(file)
    assert rows.columns.tolist() == found.table.columns.tolist()
    assert len(rows) == len(found.table) > 0
    assert found.summary().strip()
    assert "\n" not in repr(found)


@pytest.mark.parametrize(
    "make",
    [
        lambda: fomkit.fom("lecture", "a"),
        lambda: fomkit.cost("p1b3", "v100", price="3600 USD/h per node, 2018-04-01"),
        lambda: fomkit.advise("p1b3", "v100"),
        lambda: fomkit.scaling("p1b3", "titan", nodes="1,2", links=["system, 5 us, 25 GB/s, each"]),
        lambda: fomkit.sensitivity("p1b3", "v100"),
        lambda: fomkit.solve("p1b3", "v100", unit_per_day=100),
        lambda: fomkit.sweep("p1b3", "v100", {"batch": [100, 200]}),
    ],
    ids=["fom", "cost", "advise", "scaling", "sensitivity", "solve", "sweep"],
)
def test_a_notebook_shows_the_text_of_a_result(make: Callable[[], Any]) -> None:
    found = make()
    assert found._repr_html_() == f"<pre>{escape(found.summary())}</pre>"
