"""The options that write workbooks."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, words)])
    if isinstance(result.exception, FomkitError):
        return 2, str(result.exception)
    return result.exit_code, result.stdout


def cell(path: Path, name: str) -> object:
    place = openpyxl.load_workbook(path).defined_names[name].attr_text
    sheet, _, address = place.partition("!")
    return openpyxl.load_workbook(path, data_only=True)[sheet][address.replace("$", "")].value


def test_estimate_writes_a_workbook_of_what_it_prints(tmp_path: Path) -> None:
    path = tmp_path / "study.xlsx"
    code, out = run("estimate", "p1b3", "-t", "v100", "-t", "mi25", "--baseline", "p100", "-o", path, "--json")
    assert code == 0
    import json

    content = json.loads(out)
    assert cell(path, "fom") == pytest.approx(content["foms"][0]["value"], rel=1e-12)
    rate = next(one for one in content["models"] if one["target"] == "v100")["unit_per_day"]["value"]
    assert cell(path, "unit_per_day_p1b3") == pytest.approx(rate, rel=1e-12)
    assert run("estimate", "p1b3", "-t", "v100", "-o", path, "--for", "mi25")[0] == 2


def test_fom_writes_a_workbook_for_one_vendor(tmp_path: Path) -> None:
    path = tmp_path / "vendor.xlsx"
    code, out = run("fom", "lecture", "--for", "a", "-o", path)
    assert code == 0
    assert "82.597332" in out
    assert cell(path, "fom") == pytest.approx(229125 / 2774, rel=1e-12)
    texts = [str(one.value) for sheet in openpyxl.load_workbook(path) for row in sheet.iter_rows() for one in row]
    assert not any("titan" in text.lower() for text in texts)


def test_the_free_texts_that_go_along_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "vendor.xlsx"
    result = CliRunner().invoke(app, ["fom", "lecture", "--for", "a", "-o", str(path)])
    assert f"free texts that {path} contains; read them before you send it:" in result.stderr
    for line in ("  line names: P1; P2; P3", "  title of the study: Suite lecture, version 1"):
        assert line in result.stderr.splitlines()
    assert "  titles of machines: " in result.stderr
    whole = CliRunner().invoke(app, ["fom", "lecture", "-o", str(tmp_path / "whole.xlsx")])
    assert "free texts" not in whole.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["estimate", "p1b3", "-t", "v100", "-o", "x.pdf"], "x.pdf: has an ending that estimate cannot write"),
        (["estimate", "p1b3", "-t", "v100", "--for", "v100"], "--for v100: needs a workbook"),
        (["fom", "lecture", "-o", "x.pdf"], "x.pdf: has an ending that fom cannot write"),
        (["fom", "lecture", "-o", "."], ".: is a folder. Use .json, .csv or .xlsx."),
        (["fom", "lecture", "--for", "a", "-o", "x.csv"], "--for a: needs a workbook"),
    ],
)
def test_other_endings_are_refused_before_anything_is_estimated(words: list[str], said: str) -> None:
    code, out = run(*words)
    assert code == 2
    assert said in out
