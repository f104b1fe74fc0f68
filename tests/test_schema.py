"""docs/schema/: generated, up to date, and valid for the output of verbs and for shipped files."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib import import_module
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NotRequired, TypedDict

import numpy as np
import pytest
from golden.corpus import SHOWN
from json_figures import schema_of, wrong_by_schema
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

import fomkit
from docs.generate import FILES, schemas
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.files.documents import load_document
from fomkit.output.files import to_json
from fomkit.plan.content import Ends, as_content
from fomkit.profiles.metrics import METRICS

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = sorted(
    path
    for folder in ("machine_profiles", "model_profiles", "validation")
    for path in (ROOT / folder).rglob("*.yaml")
    if "schema:" in path.read_text(encoding="utf-8")
)


def _contents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON in the stored output of a section of the corpus."""
    for match in re.finditer(r"^\{\n", text, re.MULTILINE):
        yield json.JSONDecoder().raw_decode(text, match.start())[0]


def test_the_files_are_what_the_program_makes() -> None:
    made = {name: to_json(content) for name, content in schemas().items()}
    there = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "schema").iterdir()}
    differing = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    assert not differing, "run 'python docs/generate.py schemas'"
    for name in made:
        Draft202012Validator.check_schema(schema_of(name))


def test_every_json_of_the_corpus_is_of_its_schema() -> None:
    found = [
        (path.name, content) for path in sorted(SHOWN.iterdir()) for content in _contents(path.read_text("utf-8"))
    ]
    with_schema = [(name, content) for name, content in found if str(content.get("schema")).startswith("fomkit/")]
    assert len(with_schema) >= 20
    assert not [(name, wrong_by_schema(content)) for name, content in with_schema if wrong_by_schema(content)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_file_is_of_its_schema(path: Path) -> None:
    assert not wrong_by_schema(dict(load_document(path).content))


@pytest.mark.parametrize("name", FILES)
def test_a_files_schema_finds_what_an_editor_should(name: str) -> None:
    path = next(path for path in [*SHIPPED, ROOT / "tests/golden/inputs/layout.yaml"]
                if f"schema: fomkit/{name}/1" in path.read_text(encoding="utf-8"))  # fmt: skip
    good = dict(load_document(path).content)
    assert not wrong_by_schema(good)
    assert "nosuch" in str(wrong_by_schema({**good, "nosuch": 1}))
    assert any(Draft202012Validator(schema_of(name)).iter_errors({"schema": "x"}))


def test_a_quantity_without_its_unit_is_wrong() -> None:
    good = dict(load_document(ROOT / "machine_profiles" / "v100.yaml").content)
    memory = good["device"]["memory"]
    for wrong in ("900", "900 GB", 900, "about 900 GB/s"):
        assert wrong_by_schema({**good, "device": {**good["device"], "memory": {**memory, "bandwidth": wrong}}}), (
            wrong
        )
    assert not wrong_by_schema(
        {**good, "device": {**good["device"], "memory": {**memory, "bandwidth": "0.9 TB/s"}}}
    )
    assert not wrong_by_schema({**good, "device": "v100"})


def test_a_verbs_schema_requires_what_is_always_there_and_takes_what_is_new() -> None:
    content = json.loads(CliRunner().invoke(app, ["estimate", "p1b3", "--target", "titan", "--json"]).stdout)
    assert not wrong_by_schema({**content, "new": {"of": 1}})
    assert not wrong_by_schema({**content, "models": [{**content["models"][0], "new": "word"}]})
    lacking = {name: one for name, one in content["models"][0].items() if name != "step_s"}
    assert "'step_s' is a required property" in str(wrong_by_schema({**content, "models": [lacking]}))
    assert wrong_by_schema({**content, "models": [{**content["models"][0], "step_s": "fast"}]})


def test_figures_are_described_as_in_the_table_of_metrics() -> None:
    (step,) = (one for one in METRICS if one.name == "step_s")
    stated = schema_of("estimate")["properties"]["models"]["items"]["properties"]["step_s"]
    assert stated["title"] == f"{step.title} [{step.unit}]"
    assert stated["description"].startswith(step.doc.capitalize())
    assert "Lower is better." in stated["description"]


def test_the_command_and_python_give_the_file_and_an_unknown_name_is_one_message() -> None:
    done = CliRunner().invoke(app, ["schema", "machine"])
    assert done.stdout == (ROOT / "docs" / "schema" / "machine.json").read_text(encoding="utf-8")
    found = fomkit.schema("estimate")
    assert found.content == schema_of("estimate")
    assert {"schema", "models"} <= set(found.table.loc[found.table["required"], "name"])
    assert repr(found).startswith("<fomkit/estimate/1:")
    with pytest.raises(
        FomkitError, match=r"^estimat: is not the name of a schema\. The nearest names are 'estimate'"
    ):
        fomkit.schema("estimat")
    for name in (path.stem for path in (ROOT / "docs" / "schema").iterdir()):
        assert fomkit.schema(name).rows


Part = TypedDict("Part", {"size": int})
Form = TypedDict("Form", {
    "name": str, "said": str | None, "rate": float | None, "step_s": Ends | None, "parts": list[Part],
    "by_name": dict[str, Ends | None], "extra": NotRequired[Part],
})  # fmt: skip


def test_a_form_is_filled_by_its_types_in_its_order() -> None:
    step = Span(2.0, 1.0, 4.0)
    noun = SimpleNamespace(name="", said="", rate=nan, extra=None, parts=(SimpleNamespace(size=1), {"size": 2}))
    found = as_content(Form, noun, {"name": "not asked", "by_name": {"a": step, "b": None}}, step_s=step)
    ends = {"value": 2.0, "low": 1.0, "high": 4.0}
    assert found == {"name": "", "said": None, "rate": None, "step_s": ends, "parts": [{"size": 1}, {"size": 2}],
                     "by_name": {"a": ends, "b": None}}  # fmt: skip
    assert [*found] == ["name", "said", "rate", "step_s", "parts", "by_name"]
    noun.rate, noun.extra = np.float64(0.5), SimpleNamespace(size=3)
    assert type(as_content(Form, noun, by_name={}, step_s=None)["rate"]) is float
    assert as_content(Form, noun, by_name={}, step_s=None)["extra"] == {"size": 3}
    with pytest.raises(TypeError, match=r"^Form: nothing is given for 'by_name', and no noun has it$"):
        as_content(Form, noun, step_s=None)
    with pytest.raises(TypeError, match=r"^Form: has no nosuch$"):
        as_content(Form, noun, by_name={}, step_s=None, nosuch=1)


def _filled(path: Path) -> Iterator[tuple[Any, ast.Call]]:
    """Yield the TypedDicts that a module fills, each with the call."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "as_content":
            module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            name = ast.unparse(node.args[0])
            if name != "kind":  # in as_content itself
                yield eval(name, vars(module)), node


def test_what_is_given_to_a_form_is_a_key_of_it() -> None:
    filled = [one for path in sorted((ROOT / "fomkit").rglob("*.py")) for one in _filled(path)]
    assert len(filled) > 70
    for form, call in filled:
        given = {word.arg for word in call.keywords} - {None}
        assert given <= set(form.__annotations__), (form.__name__, given - set(form.__annotations__))


@pytest.mark.parametrize(("value", "valid"), [(0, True), ("2 GiB", True), (5, False), ("5", False)])
def test_no_memory_needs_no_unit(value: object, valid: bool) -> None:
    assert Draft202012Validator(schema_of("machine")["$defs"]["byte"]).is_valid(value) == valid
