"""The pages of docs/: examples load and run, errors are the real ones, tables match the loaders."""

from __future__ import annotations

import doctest
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, BeforeValidator

from docs.generate import glossary_page
from fomkit.core.errors import FomkitError
from fomkit.core.machine import EnergyScope, Party, Scope
from fomkit.core.units import UNITS, parse_quantity
from fomkit.merit.fom import MEANS
from fomkit.merit.suites import run_suite
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import (
    BASES,
    BOUNDS,
    DIMENSIONS,
    LAYERS,
    MEASUREMENTS,
    OPS,
    ORDER,
    PASSES,
    TABLES,
    TIME_SOURCES,
    TIMINGS,
)
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.profiles.machine_record import MachineRecord
from fomkit.profiles.machines import load_machine
from fomkit.profiles.metrics import METRICS
from fomkit.profiles.models import load_model
from fomkit.profiles.records import MeasuredOpsRecord, MeasuredRecord, ModelRecord, RepeatedRecord, StepTimesRecord
from fomkit.profiles.suites import GivenRecord, SuiteRecord, load_suite
from fomkit.readers.measurements import read_measurements
from fomkit.verbs.suite_content import suite_content
from fomkit.verbs.vendors import accept

DOCS = Path(__file__).resolve().parent.parent / "docs"
TEXT = (DOCS / "profiles.md").read_text(encoding="utf-8")
SUITES = (DOCS / "suites.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', TEXT, re.MULTILINE | re.DOTALL))


def rows(heading: str, first: str, text: str = TEXT) -> dict[str, list[str]]:
    """Return rows of the table under a heading whose first column is ``first``, by each name in that column."""
    section = re.split(r"^#+ ", text.split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]
    table = section.split(f"| {first} |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {name: row for row in cells for name in re.findall(r"`([^`]+)`", row[0])}


OWN_TABLES = (MeasuredRecord, MeasuredOpsRecord, StepTimesRecord, RepeatedRecord)
"""Parts of a model file whose fields have a table of their own."""


def fields(record: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, bool, str]]:
    """Yield each field of a file: dotted name, whether it is needed, and its dimension where it has a unit."""
    for name, info in record.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        parts = (info.annotation, *getattr(info.annotation, "__args__", ()))
        inner = next((one for one in parts if isinstance(one, type) and issubclass(one, BaseModel)), None)
        if inner is None or inner in OWN_TABLES:
            yield path, info.is_required(), dimension(info.metadata, parts)
        else:
            yield from fields(inner, f"{path}[]." if info.annotation == list[inner] else f"{path}.")


def dimension(metadata: list[Any], parts: tuple[Any, ...]) -> str:
    found = [*metadata, *(one for part in parts for one in getattr(part, "__metadata__", ()))]
    calls = [one.func for one in found if isinstance(one, BeforeValidator) and isinstance(one.func, partial)]
    return str(calls[0].keywords["dimension"]) if calls else ""


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """The page's files in an empty folder."""
    for name, content in BLOCKS.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    shutil.copy(DOCS.parent / "machine_profiles" / "v100.timings.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("heading", "first", "text", "record"),
    [
        ("A machine", "field", TEXT, MachineRecord),
        ("A model", "field", TEXT, ModelRecord),
        ("Its measured times", "field of measured", TEXT, MeasuredRecord),
        ("Its measured times", "field of step", TEXT, StepTimesRecord),
        ("Its measured times", "field of a clock", TEXT, RepeatedRecord),
        ("Its measured times", "field of ops", TEXT, MeasuredOpsRecord),
        ("Suites", "field", SUITES, SuiteRecord),
        ("Suites", "given", SUITES, GivenRecord),
    ],
)
def test_every_field_is_explained_and_no_other(heading, first, text, record) -> None:
    table = rows(heading, first, text)
    expected = {name: (needed, unit) for name, needed, unit in fields(record)}
    assert set(table) == set(expected)
    for name, (needed, unit) in expected.items():
        assert table[name][1] == ("yes" if needed else "no"), name
        assert table[name][3], name
        if unit:
            parse_quantity(table[name][2].strip("`"), unit, "docs/profiles.md", name)


def test_walk_sees_the_fields_with_units() -> None:
    """Otherwise a change of the records could leave the test above without fields to parse."""
    found = {name: unit for name, _, unit in fields(MachineRecord) if unit}
    assert found["device.peak[].rate"] == "flop_per_s"
    assert found["device.memory.capacity"] == "byte"
    assert found["overheads[].share"] == "share"
    assert len(found) >= 16


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("Its timings", TIMINGS),
        ("Its ops", OPS),
        ("Its layers", LAYERS),
        ("Its order", ORDER),
        ("Measurements", MEASUREMENTS),
    ],
)
def test_every_column_is_explained_with_its_unit(heading, columns) -> None:
    expected = {column.name: column.unit or "–" for column in columns if column not in DIMENSIONS}
    assert {name: row[1] for name, row in rows(heading, "column").items()} == expected


def test_every_dimension_is_explained_with_its_unit() -> None:
    expected = {column.name: column.unit or "–" for column in DIMENSIONS}
    assert {name: row[1] for name, row in rows("Kinds and dimensions", "dimension").items()} == expected


def test_kinds_have_the_dimensions_of_the_schema() -> None:
    table = rows("Kinds and dimensions", "kind")
    assert {kind: tuple(re.findall(r"`(\w+)`", row[1])) for kind, row in table.items()} == {
        name: kind.dimensions for name, kind in KINDS.items()
    }
    optional = {kind: tuple(re.findall(r"`(\w+)`", row[2])) for kind, row in table.items()}
    assert optional == {name: kind.optional for name, kind in KINDS.items()}


@pytest.mark.parametrize(
    ("quantity", "name"),
    [
        ("arithmetic rate", "flop_per_s"),
        ("capacity", "byte"),
        ("transfer rate", "byte_per_s"),
        ("time", "time_s"),
        ("share", "share"),
    ],
)
def test_units_are_those_that_files_may_use(quantity, name) -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {quantity} |"))
    words = set(re.findall(r"`([^`\"]+)`", line))
    bases = {word for word in words if word in UNITS[name]}
    assert bases
    for prefix in words - bases:
        assert any(prefix + base in UNITS[name] for base in bases), prefix


def test_examples_load(files) -> None:
    machine = load_machine("example-gpu.yaml")
    assert machine.device.peak("fp16", "matrix").rate.low == 1e14
    assert machine.overheads[0].time_s.value == 2e-3
    model = load_model("digits.yaml")
    assert model.parameters_total == 784 * 100 + 100 + 100 * 10 + 10
    assert files.joinpath("example-gpu.timings.csv").is_file()
    assert [row.spread_stated for row in read_measurements(Path("measured.csv"))] == [True, False]


def test_the_suite_of_the_page_is_rated(tmp_path) -> None:
    (block,) = re.findall(r'^```yaml title="example.suite.yaml"\n(.*?)^```$', SUITES, re.MULTILINE | re.DOTALL)
    path = tmp_path / "example.suite.yaml"
    path.write_text(block, encoding="utf-8")
    content = suite_content(
        run_suite(load_suite(path), load_machine("p100"), load_machine("v100"), Options(), load_model)
    )
    assert content["fom"]["value"] > 1
    assert [one["deviation"] for one in content["deviations"]] == ["batch 20 → 64 (quality not shown)"]
    assert set(rows("The means", "mean", SUITES)) == set(MEANS)


def test_the_delivery_of_the_page_is_judged(tmp_path) -> None:
    for name, block in re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```$', SUITES, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(block, encoding="utf-8")
    told = accept(tmp_path / "example.suite.yaml", "v100", tmp_path / "delivered.csv").content
    assert [one["verdict"] for one in told["lines"]] == ["met", "met"]
    aside = [row["said"] for one in told["lines"] for row in one["rows"] if not row["used"]]
    assert aside == ["its batch is 64, the line's is 20"]


@pytest.mark.usefixtures("files")
def test_the_error_is_the_real_one() -> None:
    with pytest.raises(FomkitError) as caught:
        load_machine("broken.yaml")
    assert str(caught.value) == BLOCKS["the error"].strip()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("page", "least"), [("profiles.md", 15), ("how-a-number-is-made.md", 45)])
def test_the_python_runs(page: str, least: int) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, page, f"docs/{page}", 0)
    assert len(test.examples) >= least
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.usefixtures("files")
def test_a_machine_that_does_not_exist_is_estimated_on() -> None:
    facts, like = (load_machine(f"{name}.yaml") for name in ("next-gpu", "next-gpu-like-v100"))
    assert {facts.party, like.party} == {"vendor"}
    model = load_model("p1b3")
    alone, related = (estimate(model, machine, Options()) for machine in (facts, like))
    assert set(alone.ops["time_source"]) == {"roofline"}
    assert {"transferred", "assumed"} <= set(related.ops["time_source"])
    assert related.deviations[-1].startswith("1 of next-gpu-like-v100's ")  # the simulation is no measurement
    assert not any("not measured" in said for said in alone.deviations)
    wide, narrow = (one.step.high / one.step.low for one in (alone, related))
    assert wide > 1.4 * narrow
    # What the page warns of: the ends of the new rates do not enter transferred times, only those of rates alone.
    text = BLOCKS["next-gpu-like-v100.yaml"].replace("rate: 30 TFLOP/s,", "rate: 30 TFLOP/s, low: 10 TFLOP/s,")
    Path("ends.yaml").write_text(text, encoding="utf-8")
    ends = estimate(model, load_machine("ends.yaml"), Options()).ops
    moved = related.ops["time_source"] == "transferred"
    assert ends.loc[moved, "high_s"].equals(related.ops.loc[moved, "high_s"])


def test_every_number_of_the_page_is_one_that_its_examples_print() -> None:
    """Of docs/how-a-number-is-made.md; numbers of one or two digits may be words of the text."""
    text = (DOCS / "how-a-number-is-made.md").read_text(encoding="utf-8")
    examples = "".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"\(Foster & Stevens[^)]*\)|\bV100\b|\bP100\b|`[^`]*`|\]\([^)]*\)", "", prose)
    numbers = {one.replace(",", "") for one in re.findall(r"\d[\d,]*\.?\d*", prose)}
    long = {one.rstrip(".") for one in numbers if len(one.strip(".")) > 2}
    assert len(long) >= 4
    printed = examples.replace("_", "")
    assert not [one for one in long if one not in printed], long


def test_the_glossary_is_the_schemas_own_words() -> None:
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    assert page == glossary_page(), "run 'python docs/generate.py glossary > docs/glossary.md'"
    for column in (one for columns in TABLES.values() for one in columns):
        assert f"| `{column.name}` |" in page, column.name
    for metric in METRICS:
        assert f"| `{metric.name}` |" in page


def part_of_glossary(heading: str) -> str:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    return text.split(f"\n{heading}\n")[1].split("\n#")[0]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("time_source", TIME_SOURCES),
        ("bound", BOUNDS),
        ("basis", BASES),
        ("party", get_args(Party)),
        ("scope", {*get_args(Scope), *get_args(EnergyScope)}),
        ("pass_name", PASSES),
    ],
)
def test_words_of_a_column_have_a_meaning_each(column, words) -> None:
    meanings = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", part_of_glossary(f"### `{column}`"), re.MULTILINE))
    assert set(meanings) == set(words)


def test_a_word_has_one_meaning() -> None:
    rows = re.findall(
        r"^\| \*\*(.+)\*\* \| (.*?) \| .* \|$", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE
    )
    words = [word.lower() for word, _ in rows]
    assert len(words) == len(set(words)) > 40
    assert all(meaning for _, meaning in rows)


def test_every_link_between_pages_leads_somewhere() -> None:
    """To a file that is there, and to a heading that it has."""
    for page in [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *DOCS.glob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            if "://" in name:
                continue
            target = page.parent / name if name else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor:
                assert anchor in anchors(target.read_text(encoding="utf-8")), f"{page.name}: {link}"


def test_modules_that_old_records_name_are_found(root: Path) -> None:
    rows = (root / "docs/adr/0042-modules.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row for row in rows if not (root / row.partition(",")[2]).is_file()] == []


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    bare = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", bare, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ["numbers.md", "parallel.md"])
def test_prose_is_wrapped_at_130_columns(name: str) -> None:
    """Tables and code have lines of their own length."""
    prose = re.sub(
        r"^```.*?^```$",
        "",
        (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8"),
        flags=re.M | re.S,
    )
    assert not [line for line in prose.splitlines() if len(line) > 130 and not line.startswith("|")]
